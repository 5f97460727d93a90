/* Agreement: who failed, what differs, the minimum; and that the option `check` finds a rank with another result. */
#include "ranks.h"

static void test_nobody_fails(void) {
    Err e = {"untouched"};
    CU_ASSERT_EQUAL(comm_agree(job, false, NULL, &e), 0);
    CU_ASSERT_STRING_EQUAL(e.msg, "untouched");
}

static void test_one_fails(void) {
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, false, WIRE_F32);
        for (int bad = 0; bad < comm_size(c); bad++) {
            Err e = {0}; /* the same for both, as callers do */
            char want[600];
            if (comm_rank(c) == bad) err_set(&e, "cannot read file %d", bad);
            snprintf(want, sizeof want, "rank %d on host %s: cannot read file %d", bad, comm_host_name(c, bad), bad);
            CU_ASSERT_EQUAL(comm_agree(c, comm_rank(c) == bad, &e, &e), -1);
            CU_ASSERT_STRING_EQUAL(e.msg, comm_size(c) == 1 ? "cannot read file 0" : want);
        }
        comm_free(c);
    }
}

static void test_lowest_is_heard(void) {
    if (comm_size(job) < 3) return;
    Err e = {0};
    char want[600];
    err_set(&e, "reason %d", comm_rank(job));
    snprintf(want, sizeof want, "rank 1 on host %s: reason 1", comm_host_name(job, 1));
    CU_ASSERT_EQUAL(comm_agree(job, comm_rank(job) >= 1, &e, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, want);
}

static void test_all_fail_alike(void) {
    Err e = {"no such file: model.gguf"};
    CU_ASSERT_EQUAL(comm_agree(job, true, &e, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "no such file: model.gguf");
}

static void test_same(void) {
    Err e = {0};
    char name[100];
    check_ok(comm_same(job, 0xfeedface12345678u, "the plan", &e), &e, "same");
    if (comm_size(job) == 1) return;
    int odd = comm_size(job) - 1;
    snprintf(name, sizeof name, "rank %d (host", odd);
    CU_ASSERT_EQUAL(comm_same(job, comm_rank(job) == odd, "the plan", &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "the plan"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, name));
    if (odd > 1) CU_ASSERT_PTR_NULL(strstr(e.msg, "rank 1 ("));
}

static void test_min(void) {
    int64_t least = 0;
    Err e = {0};
    check_ok(comm_min(job, 100 - comm_rank(job), &least, &e), &e, "min");
    CU_ASSERT_EQUAL(least, 101 - comm_size(job));
    check_ok(comm_min(job, INT64_MIN + comm_rank(job), &least, &e), &e, "min");
    CU_ASSERT_EQUAL(least, INT64_MIN);
}

/* A kernel that is off by one unit in the last place of one element. */
static void broken_sum(const float *const *src, int n_src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        float sum = src[0][i];
        for (int q = 1; q < n_src; q++) sum += src[q][i];
        dst[i] = i == 31 ? nextafterf(sum, INFINITY) : sum;
    }
}

static void planted(bool each, int bad) {
    Comm *c = make_comm(each, true, WIRE_F32);
    Kernels broken = {.name = "broken", .sum = broken_sum};
    float x[100];
    char name[100], byte = 1;
    Err e = {0};
    for (size_t i = 0; i < 100; i++) x[i] = element(5, comm_rank(c), i);
    check_ok(comm_broadcast(c, &byte, 1, &e), &e, "broadcast");
    check_ok(comm_allreduce(c, x, 100, false, &e), &e, "allreduce without the defect");
    if (comm_rank(c) == bad) comm_set_kernels(c, &broken);
    snprintf(name, sizeof name, "rank %d (host", bad);
    CU_ASSERT_EQUAL(comm_allreduce(c, x, 100, false, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "number 3, allreduce of 100"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, name));
    for (int r = 0; r < comm_size(c); r++) {
        snprintf(name, sizeof name, "rank %d (", r);
        if (r != bad) CU_ASSERT_PTR_NULL(strstr(e.msg, name));
    }
    comm_free(c);
}

static void test_check_finds_a_planted_difference(void) {
    if (comm_size(job) == 1) return;
    planted(true, 1);
    if (comm_hosts(job) == 1) planted(false, 1);
    if (comm_size(job) > 2) planted(true, comm_size(job) - 1);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"nobody fails", test_nobody_fails},
        {"one rank fails", test_one_fails},
        {"the lowest failing rank is heard", test_lowest_is_heard},
        {"all fail with the same words", test_all_fail_alike},
        {"same", test_same},
        {"min", test_min},
        {"check finds a planted difference", test_check_finds_a_planted_difference},
        CU_TEST_INFO_NULL,
    };
    return run_on_ranks("comm agree", tests);
}
