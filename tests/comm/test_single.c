/* A process that no launcher started is a job of one rank, without MPI: nothing to wait for, nothing printed. */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "comm/comm.h"

static Comm *alone(void) {
    static const char *const launcher[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < 3; i++) unsetenv(launcher[i]);
    Comm *c = NULL;
    Err e = {0};
    CU_ASSERT_EQUAL_FATAL(comm_create(&(CommOptions){.check = true}, &c, &e), 0);
    return c;
}

static void test_one_rank(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    Comm *c = alone();
    clock_gettime(CLOCK_MONOTONIC, &b);
    /* Starting MPI takes 0.1 s and more. */
    CU_ASSERT_TRUE((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) < 0.05);
    char name[65] = "";
    gethostname(name, sizeof name - 1);
    CU_ASSERT_EQUAL(comm_size(c), 1);
    CU_ASSERT_EQUAL(comm_rank(c) + comm_host(c) + comm_local_rank(c), 0);
    CU_ASSERT_EQUAL(comm_hosts(c), 1);
    CU_ASSERT_EQUAL(comm_local_size(c), 1);
    CU_ASSERT_STRING_EQUAL(comm_host_name(c, 0), name);
    comm_free(c);
}

static void test_collectives_of_one(void) {
    Comm *c = alone();
    Err e = {0};
    float x[3] = {1, 2, 3};
    char out[4] = "abc";
    size_t n = 3;
    int64_t least = 0;
    CU_ASSERT_EQUAL(comm_allreduce(c, x, 3, false, &e), 0);
    CU_ASSERT_TRUE(x[0] == 1 && x[1] == 2 && x[2] == 3);
    CU_ASSERT_EQUAL(comm_allgather(c, "xyz", &n, out, &e), 0);
    CU_ASSERT_STRING_EQUAL(out, "xyz");
    CU_ASSERT_EQUAL(comm_broadcast(c, out, 3, &e), 0);
    CU_ASSERT_EQUAL(comm_barrier(c, &e), 0);
    CU_ASSERT_EQUAL(comm_same(c, 17, "it", &e), 0);
    CU_ASSERT_EQUAL(comm_min(c, -5, &least, &e), 0);
    CU_ASSERT_EQUAL(least, -5);
    CU_ASSERT_EQUAL(comm_agree(c, false, NULL, &e), 0);
    CU_ASSERT_EQUAL(comm_agree(c, true, &(Err){"why"}, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "why");
    CU_ASSERT_EQUAL(comm_agree(c, true, &(Err){"why"}, NULL), -1);
    comm_free(c);
}

static void test_abort(void) {
    pid_t child = fork();
    if (child == 0) comm_fail(alone(), &(Err){"over"});
    int status = 0;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void test_free_nothing(void) { comm_free(NULL); }

int main(void) {
    static const CU_TestInfo tests[] = {
        {"one rank", test_one_rank}, {"collectives of one", test_collectives_of_one},
        {"abort", test_abort},       {"free nothing", test_free_nothing},
        CU_TEST_INFO_NULL,
    };
    return check_run("comm single", tests);
}
