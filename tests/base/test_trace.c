/* The trace: what is recorded, what is dropped, and that the text is JSON of Chrome's trace format. */
#include "base/trace.h"
#include "check.h"

static void test_off(void) {
    CU_ASSERT(!trace_on());
    trace_add(0, "x", "compute", 0, 0); /* no trace: nothing happens */
    trace_stop();
}

static void test_events(void) {
    Err e;
    char *text;
    CU_ASSERT_FATAL(trace_start(2, 3, &e) == 0);
    CU_ASSERT(trace_on());
    uint64_t t0 = trace_now();
    trace_add(0, "blk.0.qkv", "compute", t0, 0);
    trace_add(1, "sum \"x\"", "wire", t0 + 1500, 4096);
    for (int i = 0; i < 5; i++) trace_add(1, "more", "wait", t0, 0); /* room for two of them */
    trace_add(2, "no such thread", "wait", t0, 0);
    trace_add(-1, "no such thread", "wait", t0, 0);
    CU_ASSERT_FATAL(trace_json(3, "node\\7", t0, &text, &e) == 0);
    CU_ASSERT(
        strstr(text,
               "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":3,\"args\":{\"name\":\"rank 3 on node\\\\7\"}}") ==
        text);
    CU_ASSERT(
        strstr(text,
               "{\"name\":\"blk.0.qkv\",\"cat\":\"compute\",\"ph\":\"X\",\"pid\":3,\"tid\":0,\"ts\":0.000,\"dur\":") !=
        NULL);
    CU_ASSERT(
        strstr(text, "\"name\":\"sum \\\"x\\\"\",\"cat\":\"wire\",\"ph\":\"X\",\"pid\":3,\"tid\":1,\"ts\":1.500,") !=
        NULL);
    CU_ASSERT(strstr(text, "\"args\":{\"bytes\":4096}") != NULL);
    CU_ASSERT(strstr(text, "3 events dropped") != NULL);
    CU_ASSERT(strstr(text, "no such thread") == NULL);
    free(text);
    CU_ASSERT_FATAL(trace_json(0, "h", t0 + 2500, &text, &e) == 0); /* a time before the shift */
    CU_ASSERT(strstr(text, "\"ts\":-2.500,") != NULL && strstr(text, "\"ts\":-1.000,") != NULL);
    free(text);
    trace_stop();
    CU_ASSERT(!trace_on());
}

/* An operator's name is gone with its graph, before the trace is written; a long one is cut. */
static void test_names_are_kept(void) {
    Err e;
    char name[64], *text;
    CU_ASSERT_FATAL(trace_start(1, 2, &e) == 0);
    strcpy(name, "blk.7.ffn_down");
    trace_add(0, name, "linear", trace_now(), 0);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    trace_add(0, name, "linear", trace_now(), 0);
    memset(name, 'x', sizeof name - 1);
    CU_ASSERT_FATAL(trace_json(0, "h", 0, &text, &e) == 0);
    CU_ASSERT(strstr(text, "\"name\":\"blk.7.ffn_down\"") != NULL);
    CU_ASSERT(strstr(text, "\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"") != NULL); /* 31 */
    free(text);
    trace_stop();
}

static void test_refusals(void) {
    Err e;
    CU_ASSERT(trace_start(0, 10, &e) == -1 && !trace_on());
    CU_ASSERT(trace_start(1, SIZE_MAX / 8, &e) == -1 && !trace_on());
    CU_ASSERT(trace_start(1, (size_t)1 << 57, &e) == -1 && !trace_on());
}

int main(void) {
    static const CU_TestInfo tests[] = {{"off", test_off},
                                        {"events", test_events},
                                        {"names", test_names_are_kept},
                                        {"refusals", test_refusals},
                                        CU_TEST_INFO_NULL};
    return check_run("trace", tests);
}
