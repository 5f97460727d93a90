/* The thread pool: every thread runs every job, barriers order memory, and crowded pools still get through. */
#include "base/pool.h"
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16 };

typedef struct Job {
    Pool *pool;
    _Atomic int calls[MOST];
    int value[2][MOST]; /* plain memory, handed over by the barrier */
    int rounds;
    _Atomic int wrong;
} Job;

static void count(void *arg, int thread, int n) {
    Job *j = arg;
    if (n == pool_size(j->pool)) atomic_fetch_add(&j->calls[thread], 1);
}

/* Each round a thread writes its own place and, after the barrier, reads those of all others. */
static void pass_around(void *arg, int thread, int n) {
    Job *j = arg;
    for (int r = 0; r < j->rounds; r++) {
        j->value[r & 1][thread] = r * 100 + thread;
        pool_barrier(j->pool);
        for (int t = 0; t < n; t++)
            if (j->value[r & 1][t] != r * 100 + t) atomic_fetch_add(&j->wrong, 1);
    }
}

static void test_all_threads_run(void) {
    Err e = {0};
    for (int n = 1; n <= 8; n++) {
        Job j = {0};
        CU_ASSERT_FATAL(pool_create(n, NULL, &j.pool, &e) == 0);
        CU_ASSERT(pool_size(j.pool) == n);
        for (int i = 0; i < 200; i++) pool_run(j.pool, count, &j);
        for (int t = 0; t < MOST; t++) CU_ASSERT(j.calls[t] == (t < n ? 200 : 0));
        pool_free(j.pool);
    }
}

static void test_barrier(void) {
    Err e = {0};
    for (int n = 1; n <= 8; n++) { /* 8 threads are more than many a machine has: the crowded path */
        Job j = {.rounds = n <= 2 ? 20000 : 500};
        CU_ASSERT_FATAL(pool_create(n, NULL, &j.pool, &e) == 0);
        pool_run(j.pool, pass_around, &j);
        CU_ASSERT(j.wrong == 0);
        pool_free(j.pool);
    }
}

/* Workers that have gone to sleep come back. */
static void test_sleep_and_wake(void) {
    Err e = {0};
    Job j = {0};
    CU_ASSERT_FATAL(pool_create(4, NULL, &j.pool, &e) == 0);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        pool_run(j.pool, count, &j);
    }
    for (int t = 0; t < 4; t++) CU_ASSERT(j.calls[t] == 20);
    pool_free(j.pool);
}

static void where(void *arg, int thread, int n) {
    (void)n;
    ((int *)arg)[thread] = sched_getcpu();
}

static void test_pinning(void) {
    Err e = {0};
    cpu_set_t before, after;
    CU_ASSERT_FATAL(sched_getaffinity(0, sizeof before, &before) == 0);
    int cpus[2] = {-1, -1}, seen[2] = {-1, -1};
    for (int c = CPU_SETSIZE - 1; c >= 0; c--) /* the two lowest, or one of them twice */
        if (CPU_ISSET((size_t)c, &before)) cpus[1] = cpus[0] < 0 ? c : cpus[0], cpus[0] = c;
    Pool *p;
    CU_ASSERT_FATAL(pool_create(2, cpus, &p, &e) == 0);
    pool_run(p, where, seen);
    CU_ASSERT(seen[0] == cpus[0]);
    CU_ASSERT(seen[1] == cpus[1]);
    pool_free(p);
    CU_ASSERT(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
}

static void test_refusals(void) {
    Err e = {0};
    Pool *p;
    int nowhere[2] = {0, CPU_SETSIZE - 1}, no_cpu[1] = {-3};
    CU_ASSERT(pool_create(0, NULL, &p, &e) == -1 && !p);
    CU_ASSERT(pool_create(1000000, NULL, &p, &e) == -1 && !p);
    CU_ASSERT(pool_create(1, no_cpu, &p, &e) == -1 && !p);
    CU_ASSERT(strstr(e.msg, "no CPU -3") != NULL);
    CU_ASSERT(pool_create(2, nowhere, &p, &e) == -1 && !p);
    CU_ASSERT(strstr(e.msg, "thread 1") != NULL);
    pool_free(NULL);
}

static void barriers(void *arg, int thread, int n) {
    (void)thread, (void)n;
    Job *j = arg;
    for (int r = 0; r < j->rounds; r++) pool_barrier(j->pool);
}

/* Not a test of a figure, only a report of it: the machine may be busy. */
static void test_cost(void) {
    Err e = {0};
    for (int n = 2; n <= 4; n += 2) {
        Job j = {.rounds = n == 2 ? 200000 : 2000};
        CU_ASSERT_FATAL(pool_create(n, NULL, &j.pool, &e) == 0);
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        pool_run(j.pool, barriers, &j);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
        printf("    %d threads: %.0f ns a barrier\n", n, ns / j.rounds);
        pool_free(j.pool);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"all threads run", test_all_threads_run},
                                        {"barrier", test_barrier},
                                        {"sleep and wake", test_sleep_and_wake},
                                        {"pinning", test_pinning},
                                        {"refusals", test_refusals},
                                        {"cost", test_cost},
                                        CU_TEST_INFO_NULL};
    return check_run("pool", tests);
}
