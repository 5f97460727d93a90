/* When waits count as unusual: on invented series. */
#include "check.h"
#include "comm/usual.h"

static const uint64_t ms = 1000000;

static Usual usual;
static uint64_t said;

static int waits(int n, size_t bytes, uint64_t ns) {
    int exceeded = 0;
    for (int i = 0; i < n; i++) exceeded += usual_exceeded(&usual, bytes, ns, &said);
    return exceeded;
}

static void start(size_t bytes, uint64_t ns) {
    usual = (Usual){0};
    CU_ASSERT_EQUAL(waits(100, bytes, ns), 0);
}

static void test_a_long_one(void) {
    start(20000, ms);
    CU_ASSERT_EQUAL(waits(1, 20000, 5000 * ms), 1);
    CU_ASSERT_EQUAL(said, ms);
}

/* 18 KB over a link of 1 Mbit/s: 160 ms in place of 1 ms. */
static void test_many_slow_ones(void) {
    start(18432, ms);
    CU_ASSERT_EQUAL(waits(6, 18432, 160 * ms), 0);
    CU_ASSERT_EQUAL(waits(1, 18432, 160 * ms), 1);
}

static void test_now_and_then(void) {
    start(2304, ms / 50);
    for (int i = 0; i < 100; i++) {
        CU_ASSERT_EQUAL(waits(1, 2304, 200 * ms), 0);
        CU_ASSERT_EQUAL(waits(3, 2304, ms / 50), 0);
    }
}

/* Each size has its own measure; the first waits of one are no measure yet. */
static void test_sizes_apart(void) {
    start(2304, ms / 50);
    CU_ASSERT_EQUAL(waits(32, 1 << 20, 3000 * ms), 0);
    CU_ASSERT_EQUAL(waits(1, 2304, 3000 * ms), 1);
}

static void test_slower_and_slower(void) {
    start(100, ms);
    for (uint64_t ns = ms; ns < 4000 * ms; ns += ns / 20) CU_ASSERT_EQUAL(waits(4, 100, ns), 0);
}

static void test_nothing_waits(void) {
    start(0, 0);
    CU_ASSERT_EQUAL(waits(1000, 0, ms), 0); /* too short to be anybody's fault */
}

int main(void) {
    static const CU_TestInfo tests[] = {{"a long one", test_a_long_one},
                                        {"many slow ones", test_many_slow_ones},
                                        {"now and then", test_now_and_then},
                                        {"sizes apart", test_sizes_apart},
                                        {"slower and slower", test_slower_and_slower},
                                        {"nothing waits", test_nothing_waits},
                                        CU_TEST_INFO_NULL};
    return check_run("comm usual", tests);
}
