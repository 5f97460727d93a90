/* Groups, allgather, broadcast, barrier; and that a rank which waits long leaves its core to others. */
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

static void test_groups(void) {
    int host[MAX_RANKS];
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, false, WIRE_F32);
        int hosts = hosts_of(c, each, host), before = 0, here = 0, me = comm_rank(c);
        for (int r = 0; r < comm_size(c); r++) {
            here += host[r] == host[me];
            before += host[r] == host[me] && r < me;
        }
        CU_ASSERT_EQUAL(comm_hosts(c), hosts);
        CU_ASSERT_EQUAL(comm_host(c), host[me]);
        CU_ASSERT_EQUAL(comm_local_rank(c), before);
        CU_ASSERT_EQUAL(comm_local_size(c), here);
        comm_free(c);
    }
    char name[65] = "";
    gethostname(name, sizeof name - 1);
    CU_ASSERT_STRING_EQUAL(comm_host_name(job, comm_rank(job)), name);
}

/* Rank r gives base + r * step bytes, some ranks none. */
static void gather(Comm *c, size_t base, size_t step, int none, bool in_place) {
    size_t n[MAX_RANKS], all = 0, at = 0, wrong = 0;
    Err e = {0};
    int me = comm_rank(c);
    for (int r = 0; r < comm_size(c); r++) {
        n[r] = r % 3 == none ? 0 : base + (size_t)r * step;
        at += r < me ? n[r] : 0;
        all += n[r];
    }
    uint8_t *out = malloc(all + 1), *mine = in_place ? out + at : malloc(n[me] + 1);
    memset(out, 0xaa, all + 1);
    for (size_t i = 0; i < n[me]; i++) mine[i] = byte_of(base, me, i);
    check_ok(comm_allgather(c, mine, n, out, &e), &e, "allgather");
    const uint8_t *p = out;
    for (int r = 0; r < comm_size(c); r++)
        for (size_t i = 0; i < n[r]; i++) wrong += *p++ != byte_of(base, r, i);
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(out[all], 0xaa);
    if (!in_place) free(mine);
    free(out);
}

static void test_allgather(void) {
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, true, WIRE_F32);
        gather(c, 8, 0, -1, false);
        gather(c, 0, 1, -1, false);      /* rank 0 gives nothing */
        gather(c, 1000, 333, 1, false);  /* ranks 1, 4, ... give nothing */
        gather(c, 1 << 20, 1, -1, true); /* at and just above a slot */
        gather(c, 3000000, 77777, 2, false);
        gather(c, 0, 0, -1, false); /* nobody gives anything */
        comm_free(c);
    }
}

static void test_broadcast(void) {
    static const size_t sizes[] = {0, 1, 60, 4096, 1 << 20, (1 << 20) + 1, 5000001};
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, true, WIRE_F32);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t n = sizes[s], wrong = 0;
            uint8_t *data = malloc(n + 1);
            Err e = {0};
            for (size_t i = 0; i <= n; i++) data[i] = byte_of(s, comm_rank(c), i); /* each rank something else */
            check_ok(comm_broadcast(c, data, n, &e), &e, "broadcast");
            for (size_t i = 0; i < n; i++) wrong += data[i] != byte_of(s, 0, i);
            CU_ASSERT_EQUAL(wrong, 0);
            CU_ASSERT_EQUAL(data[n], byte_of(s, comm_rank(c), n));
            free(data);
        }
        comm_free(c);
    }
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Nobody leaves a barrier before the last has come: rank by rank, one is late. The ranks share this machine's clock,
 * also on the lab's pretended hosts. */
static void test_barrier(void) {
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, false, WIRE_F32);
        Err e = {0};
        for (int late = 0; late < comm_size(c); late++) {
            int64_t came, left, first_left = 0, last_came = 0;
            if (comm_rank(c) == late) usleep(5000);
            came = (int64_t)(1e9 * seconds(CLOCK_MONOTONIC));
            check_ok(comm_barrier(c, &e), &e, "barrier");
            left = (int64_t)(1e9 * seconds(CLOCK_MONOTONIC));
            check_ok(comm_min(c, left, &first_left, &e), &e, "min");
            check_ok(comm_min(c, -came, &last_came, &e), &e, "min");
            CU_ASSERT_TRUE(first_left >= -last_came);
        }
        comm_free(c);
    }
}

/* While rank 0 thinks for 0.6 s the waiting ranks use little of their cores, and then go on at once. */
static void test_long_wait(void) {
    for (int each = 0; each < 2; each++) {
        Comm *c = make_comm(each, false, WIRE_F32);
        Err e = {0};
        int word = comm_rank(c);
        check_ok(comm_barrier(c, &e), &e, "barrier");
        if (comm_rank(c) == 0) usleep(600000);
        double used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        CommStats before = comm_stats(c);
        check_ok(comm_broadcast(c, &word, sizeof word, &e), &e, "broadcast");
        used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        CU_ASSERT_EQUAL(word, 0);
        CU_ASSERT_TRUE(used < 0.15);
        CommStats after = comm_stats(c);
        uint64_t waited = after.wait_ns - before.wait_ns + after.wire_ns - before.wire_ns;
        if (comm_rank(c)) CU_ASSERT_TRUE(waited > 300000000u);
        comm_free(c);
    }
}

/* The memory has no name any more once comm_create has returned (another job's may be there for a moment: ours has
 * been gone for good by then). */
static void test_nothing_left_in_dev_shm(void) {
    Comm *c = make_comm(false, false, WIRE_F32);
    int found = 1;
    for (int tries = 0; tries < 20 && found; tries++) {
        if (tries) usleep(50000);
        DIR *d = opendir("/dev/shm");
        found = 0;
        for (struct dirent *f; d && (f = readdir(d));) found += !strncmp(f->d_name, "sheaf-", 6);
        if (d) closedir(d);
    }
    CU_ASSERT_EQUAL(found, 0);
    comm_free(c);
}

static void test_stats(void) {
    Comm *c = make_comm(true, false, WIRE_BF16);
    float x[1000] = {0};
    Err e = {0};
    check_ok(comm_allreduce(c, x, 1000, false, &e), &e, "allreduce");
    check_ok(comm_allreduce(c, x, 1000, true, &e), &e, "allreduce");
    CommStats s = comm_stats(c);
    CU_ASSERT_EQUAL(s.calls, 2);
    CU_ASSERT_EQUAL(s.shared_bytes, 0);
    /* One-shot: 2 + 4 bytes a value to each of the others. */
    CU_ASSERT_EQUAL(s.network_bytes, 6000u * (unsigned)(comm_size(c) - 1));
    comm_free(c);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"groups", test_groups},
        {"allgather", test_allgather},
        {"broadcast", test_broadcast},
        {"barrier", test_barrier},
        {"a long wait sleeps", test_long_wait},
        {"nothing left in /dev/shm", test_nothing_left_in_dev_shm},
        {"bytes are counted", test_stats},
        CU_TEST_INFO_NULL,
    };
    return run_on_ranks("comm data", tests);
}
