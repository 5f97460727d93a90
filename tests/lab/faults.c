/* What comm does when a host is unusual or something goes wrong: shared memory by name where ranks cannot see each
 * other's files, too little of it, a rank that ends the job. Looks inside comm, and so includes MPI. Run by mpirun on
 * one host; with an argument it is the program that test_abort.sh runs. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "comm/internal.h"

static int rank, n_ranks;

static void add_up(const float *const *src, int n_src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        float sum = src[0][i];
        for (int q = 1; q < n_src; q++) sum += src[q][i];
        dst[i] = sum;
    }
}

static int names_in_dev_shm(void) {
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *f; d && (f = readdir(d));) n += !strncmp(f->d_name, "sheaf-", 6);
    if (d) closedir(d);
    return n;
}

/* Sums of every size class through `s` are right: rank r gives r + i, small integers, exact in any order. */
static void check_sums(Shared *s) {
    static const size_t sizes[] = {1, 100, 5000, 100000};
    float *x = malloc(100000 * sizeof *x);
    Err e = {0};
    for (size_t k = 0; k < 4; k++) {
        size_t piece = shared_piece_bytes(s) / sizeof *x, n = sizes[k] < piece ? sizes[k] : piece, wrong = 0;
        for (size_t i = 0; i < n; i++) x[i] = (float)(rank + (int)(i % 1000));
        CU_ASSERT_EQUAL(shared_allreduce(s, x, n, 0, NULL, NULL, &e), 0);
        for (size_t i = 0; i < n; i++)
            wrong += x[i] != (float)(n_ranks * (n_ranks - 1) / 2 + n_ranks * (int)(i % 1000));
        CU_ASSERT_EQUAL(wrong, 0);
    }
    free(x);
}

static void with_memory(SegmentKind kind, size_t least, size_t most) {
    static const Ops ops = {.sum = add_up};
    CommStats stats = {0};
    Slowest slowest = {0};
    Shared *s = NULL;
    Err e = {0};
    int rc = shared_create(MPI_COMM_WORLD, kind, 100, &ops, &stats, &slowest, &s, &e);
    if (rc) fprintf(stderr, "rank %d: %s\n", rank, e.msg);
    CU_ASSERT_EQUAL_FATAL(rc, 0);
    CU_ASSERT_TRUE(shared_piece_bytes(s) >= least && shared_piece_bytes(s) <= most);
    MPI_Barrier(MPI_COMM_WORLD);
    CU_ASSERT_EQUAL(names_in_dev_shm(), 0);
    check_sums(s);
    MPI_Barrier(MPI_COMM_WORLD);
    shared_free(s);
}

static void test_by_descriptor(void) { with_memory(SEGMENT_MEMFD, 1 << 20, 1 << 20); }
static void test_by_name(void) { with_memory(SEGMENT_SHM, 1 << 20, 1 << 20); }

/* The soft limit, back to the hard one when that is lower. */
static void limit(int what, rlim_t most) {
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(what, &r);
    r.rlim_cur = most < r.rlim_max ? most : r.rlim_max;
    setrlimit(what, &r);
}

/* A file-size limit stands for memory that runs out: smaller slots are tried. */
static void test_little_memory(void) {
    limit(RLIMIT_FSIZE, 3u << 20);
    with_memory(SEGMENT_ANY, 1 << 16, 1 << 18);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
}

/* One rank that cannot is enough: all fail, with its words. */
static void fails_on(int bad, int what, rlim_t most, const char *words) {
    static const Ops ops = {.sum = add_up};
    struct rlimit before;
    CommStats stats = {0};
    Slowest slowest = {0};
    Shared *s = NULL;
    Err e = {0};
    getrlimit(what, &before);
    if (rank == bad) limit(what, most);
    CU_ASSERT_EQUAL(shared_create(MPI_COMM_WORLD, SEGMENT_ANY, 0, &ops, &stats, &slowest, &s, &e), -1);
    setrlimit(what, &before);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, words));
    if (!strstr(e.msg, words)) fprintf(stderr, "rank %d: %s\n", rank, e.msg);
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0 has unlinked by now */
    CU_ASSERT_EQUAL(names_in_dev_shm(), 0);
}

static void test_one_rank_cannot(void) {
    fails_on(0, RLIMIT_FSIZE, 4096, "File too large");
    fails_on(n_ranks - 1, RLIMIT_NOFILE, 0, "Too many open files");
}

/* For test_abort.sh: all wait in a collective but the last rank, which gives up. Never ends well. */
static int give_up(const char *how) {
    Comm *c = NULL;
    Err e = {0};
    int word = 0;
    if (comm_create(&(CommOptions){.each_rank_a_host = !strcmp(how, "network")}, &c, &e)) return 3;
    if (comm_rank(c) == comm_size(c) - 1) {
        usleep(200000);
        comm_fail(c, &(Err){"gives up"});
    }
    comm_barrier(c, &e);
    while (!comm_broadcast(c, &word, sizeof word, &e)) {
    }
    sleep(60); /* never reached: nobody is left to end the loop */
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return give_up(argv[1]);
    static const CU_TestInfo tests[] = {
        {"shared memory by descriptor", test_by_descriptor},
        {"shared memory by name", test_by_name},
        {"little shared memory", test_little_memory},
        {"one rank cannot", test_one_rank_cannot},
        CU_TEST_INFO_NULL,
    };
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    int status = check_run("comm faults", tests);
    MPI_Finalize();
    return status;
}
