/* Sums over ranks equal, bit for bit, the sum in the documented order computed here, on every rank. */
#include "ranks.h"

static const size_t sizes[] = {0, 1, 3, 17, 575, 576, 2047, 2048, 2049, 4608, 100000, 262144, 262145, 400000};
enum { N_SIZES = sizeof sizes / sizeof *sizes, LARGEST = 400000 };

static size_t count_wrong(const Comm *c, bool each, Wire wire, uint64_t seed, const float *x, size_t n) {
    int host[MAX_RANKS], hosts = hosts_of(c, each, host);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        float want = expected_sum(c, host, hosts, wire, seed, i);
        if (!memcmp(&want, &x[i], sizeof want)) continue;
        if (!wrong++)
            fprintf(stderr, "rank %d: element %zu of %zu is %a, not %a\n", comm_rank(c), i, n, (double)x[i],
                    (double)want);
    }
    return wrong;
}

static void sums(bool each, Wire wire, const Kernels *k, SumWay way) {
    Comm *c = make_comm(each, false, wire);
    float *x = malloc((LARGEST + 3) * sizeof *x);
    Err e = {0};
    comm_set_kernels(c, k);
    comm_force_sums(c, way);
    for (size_t s = 0; s < N_SIZES; s++) {
        for (int exact = 0; exact < (way == SUM_CHOSEN ? 2 : 1); exact++) {
            float *v = x + s % 3; /* not always aligned */
            size_t n = sizes[s];
            uint64_t seed = 10 * s + (uint64_t)exact;
            for (size_t i = 0; i < n; i++) v[i] = element(seed, comm_rank(c), i);
            v[n] = 42;
            check_ok(comm_allreduce(c, v, n, exact, &e), &e, "allreduce");
            CU_ASSERT_EQUAL(count_wrong(c, each, exact ? WIRE_F32 : wire, seed, v, n), 0);
            CU_ASSERT_EQUAL(v[n], 42); /* nothing is written past the end */
        }
    }
    free(x);
    comm_free(c);
}

static const Kernels *best_kernels(void) {
    const Kernels *k = NULL;
    Err e = {0};
    check_ok(kernels_select(NULL, &k, &e), &e, "kernels_select");
    return k;
}

static void test_plain(void) { sums(false, WIRE_F32, NULL, SUM_CHOSEN); }
static void test_plain_bf16(void) { sums(false, WIRE_BF16, NULL, SUM_CHOSEN); }
static void test_kernels(void) { sums(false, WIRE_BF16, best_kernels(), SUM_CHOSEN); }
static void test_each_rank_a_host(void) { sums(true, WIRE_F32, NULL, SUM_CHOSEN); }
static void test_each_rank_a_host_bf16(void) { sums(true, WIRE_BF16, NULL, SUM_CHOSEN); }
static void test_each_rank_a_host_kernels(void) { sums(true, WIRE_BF16, best_kernels(), SUM_CHOSEN); }

/* The same bits whichever way. */
static void test_ways(void) {
    for (int each = 0; each < 2; each++) {
        sums(each, WIRE_F32, best_kernels(), SUM_ONE_SHOT);
        sums(each, WIRE_F32, best_kernels(), SUM_TWO_SHOT);
    }
}

/* The fixed order loses no more than any order may: each of the size - 1 additions rounds once. */
static void test_near_the_exact_sum(void) {
    enum { N = 5000 };
    static float x[N];
    Err e = {0};
    for (size_t i = 0; i < N; i++) x[i] = element(77, comm_rank(job), i);
    check_ok(comm_allreduce(job, x, N, false, &e), &e, "allreduce");
    size_t far = 0;
    for (size_t i = 0; i < N; i++) {
        double sum = 0, magnitude = 0;
        for (int r = 0; r < comm_size(job); r++) {
            sum += (double)element(77, r, i);
            magnitude += fabs((double)element(77, r, i));
        }
        far += fabs((double)x[i] - sum) > magnitude * comm_size(job) * 0x1p-24;
    }
    CU_ASSERT_EQUAL(far, 0);
}

/* What is not a number on one rank is not a number on all; an infinity stays one; on either wire. */
static void test_not_finite(void) {
    for (int kind = 0; kind < 4; kind++) {
        Comm *c = make_comm(kind & 1, true, kind & 2 ? WIRE_BF16 : WIRE_F32);
        float x[40] = {0};
        Err e = {0};
        if (comm_rank(c) == comm_size(c) - 1) x[7] = NAN, x[8] = INFINITY, x[9] = -INFINITY;
        check_ok(comm_allreduce(c, x, 40, false, &e), &e, "allreduce");
        CU_ASSERT_TRUE(isnan(x[7]) && isinf(x[8]) && x[8] > 0 && isinf(x[9]) && x[9] < 0);
        CU_ASSERT_EQUAL(x[6], 0);
        comm_free(c);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"sums, plain C", test_plain},
        {"sums, plain C, bf16 between hosts", test_plain_bf16},
        {"sums, this CPU's kernels", test_kernels},
        {"sums, each rank a host", test_each_rank_a_host},
        {"sums, each rank a host, bf16", test_each_rank_a_host_bf16},
        {"sums, each rank a host, this CPU's kernels", test_each_rank_a_host_kernels},
        {"sums, each way at each size", test_ways},
        {"near the exact sum", test_near_the_exact_sum},
        {"not finite", test_not_finite},
        CU_TEST_INFO_NULL,
    };
    return run_on_ranks("comm allreduce", tests);
}
