/* Thousands of collectives of random kind and size one after another, each verified: what one leaves behind must not
 * reach into the next. All ranks draw the same sequence. */
#include <unistd.h>

#include "ranks.h"

enum { LARGE = 300000 };

typedef struct Stress {
    Comm *c;
    bool each;
    int host[MAX_RANKS], hosts;
    float *x;
    uint8_t *bytes;
    size_t wrong;
} Stress;

/* Mostly as in decoding, now and then as in prefill, seldom more than a slot. */
static size_t draw_size(uint64_t h) {
    switch (h % 512) {
    case 0: return (h >> 32) % LARGE;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7: return (h >> 32) % 20000;
    default: return (h >> 32) % 700;
    }
}

/* All elements of short vectors; of long ones some 500, the first and the last among them. */
static size_t step_of(size_t n) { return n < 1000 ? 1 : n / 499; }

static void one_allreduce(Stress *s, uint64_t seed, size_t n, Err *e) {
    int me = comm_rank(s->c);
    size_t step = step_of(n);
    memset(s->x, 0, n * sizeof *s->x);
    for (size_t i = 0; i < n; i += step) s->x[i] = element(seed, me, i);
    if (n) s->x[n - 1] = element(seed, me, n - 1);
    check_ok(comm_allreduce(s->c, s->x, n, false, e), e, "allreduce");
    for (size_t i = 0; i < n; i += step)
        s->wrong += s->x[i] != expected_sum(s->c, s->host, s->hosts, WIRE_F32, seed, i);
    if (n) s->wrong += s->x[n - 1] != expected_sum(s->c, s->host, s->hosts, WIRE_F32, seed, n - 1);
}

static void one_broadcast(Stress *s, uint64_t seed, size_t n, Err *e) {
    size_t step = step_of(n);
    for (size_t i = 0; i < n; i += step) s->bytes[i] = byte_of(seed, comm_rank(s->c), i);
    check_ok(comm_broadcast(s->c, s->bytes, n, e), e, "broadcast");
    for (size_t i = 0; i < n; i += step) s->wrong += s->bytes[i] != byte_of(seed, 0, i);
}

static void one_allgather(Stress *s, uint64_t seed, size_t most, Err *e) {
    size_t n[MAX_RANKS], at = 0;
    uint8_t mine[700];
    for (int r = 0; r < comm_size(s->c); r++) n[r] = mix(seed + (uint64_t)r) % (most % 700 + 1);
    for (size_t i = 0; i < n[comm_rank(s->c)]; i++) mine[i] = byte_of(seed, comm_rank(s->c), i);
    check_ok(comm_allgather(s->c, mine, n, s->bytes, e), e, "allgather");
    for (int r = 0; r < comm_size(s->c); at += n[r++])
        for (size_t i = 0; i < n[r]; i++) s->wrong += s->bytes[at + i] != byte_of(seed, r, i);
}

static void stress(bool each, int count) {
    Stress s = {.c = make_comm(each, false, WIRE_F32), .each = each};
    Err e = {0};
    s.hosts = hosts_of(s.c, each, s.host);
    s.x = malloc(LARGE * sizeof *s.x);
    s.bytes = malloc(LARGE + MAX_RANKS * 700);
    for (int k = 0; k < count; k++) {
        uint64_t seed = mix((uint64_t)k), h = mix(seed);
        size_t n = draw_size(mix(h));
        /* Now and then a rank comes late. */
        if (mix(seed + (uint64_t)comm_rank(s.c)) % 1000 == 0) usleep(100);
        switch (h % 8) {
        case 0: check_ok(comm_barrier(s.c, &e), &e, "barrier"); break;
        case 1:
        case 2: one_broadcast(&s, seed, n, &e); break;
        case 3: one_allgather(&s, seed, n, &e); break;
        default: one_allreduce(&s, seed, n, &e);
        }
        if (s.wrong) {
            err_set(&e, "collective %d, kind %d, size %zu: %zu wrong", k, (int)(h % 8), n, s.wrong);
            comm_fail(job, &e); /* the others would wait for this rank's next one */
        }
    }
    CU_ASSERT_EQUAL(s.wrong, 0);
    check_ok(comm_agree(s.c, s.wrong > 0, &(Err){"wrong data"}, &e), &e, "stress");
    free(s.x);
    free(s.bytes);
    comm_free(s.c);
}

static void test_hosts_as_they_are(void) { stress(false, 20000); }
static void test_each_rank_a_host(void) { stress(true, 4000); }

int main(void) {
    static const CU_TestInfo tests[] = {
        {"hosts as they are", test_hosts_as_they_are},
        {"each rank a host", test_each_rank_a_host},
        CU_TEST_INFO_NULL,
    };
    return run_on_ranks("comm stress", tests);
}
