#include "shared.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_util.h"
#include "wait.h"

/* The protocol. Every rank has one flag, a number that only grows: the stage it has reached. To post stage v says: what
 * I wrote before is there to be read, and of the data of earlier stages I read nothing any more.
 *
 * A collective is cut into pieces that fit a slot; a piece has one or more stages. Each rank has two slots and uses
 * them in turns, so a slot is written again in the second piece after. That is safe when all ranks have posted the
 * first stage of the piece between (then they are done reading the one before it), which piece_begin waits for; after
 * a collective in which everyone waited for everyone this is known already and costs nothing. */

enum {
    /* Below, everyone sums everything (one crossing of flags); above, everyone sums a slice, then all gather them. */
    ONE_SHOT_BYTES = 8192,
    /* A slice is summed and handed on in chunks, so that the two overlap. */
    CHUNK_VALUES = 16384,
};

typedef struct Flag {
    _Alignas(128) _Atomic uint64_t stage; /* 128: neighbouring lines are fetched in pairs */
} Flag;

struct Shared {
    int rank, size;
    bool crowded; /* more ranks than cores */
    SumWay way;
    Segment segment;
    Flag *flags; /* [size]: the segment's control area; behind them the caller's extra memory */
    size_t piece_bytes;
    uint64_t stage;       /* the last one this rank has posted */
    uint64_t piece_stage; /* the first stage of the current piece */
    int slot;             /* of the current piece */
    uint64_t *seen;       /* [size]: the stage each rank was last seen to have reached */
    const float **src;    /* [size]: scratch for Ops.sum */
    const Ops *ops;
    CommStats *stats;
    Slowest *slowest;
};

/* Whether the host's ranks outnumber the cores that at least one of them may run on. */
static int find_crowded(MPI_Comm local, int size, bool *crowded, Err *e) {
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof mine, &mine)) return err_errno(e, "sched_getaffinity");
    if (mpi_ok(MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, local), "MPI_Allreduce", e)) return -1;
    *crowded = size > CPU_COUNT(&all);
    return 0;
}

int shared_create(MPI_Comm local, SegmentKind kind, size_t extra_bytes, const Ops *ops, CommStats *stats,
                  Slowest *slowest, Shared **out, Err *e) {
    Shared *s = calloc(1, sizeof *s);
    int rc = s ? 0 : err_set(e, "no memory for the state of the shared-memory collectives");
    if (!rc) {
        MPI_Comm_rank(local, &s->rank);
        MPI_Comm_size(local, &s->size);
        s->ops = ops;
        s->stats = stats;
        s->slowest = slowest;
        s->seen = calloc((size_t)s->size, sizeof *s->seen);
        s->src = calloc((size_t)s->size, sizeof *s->src);
        if (!s->seen || !s->src) rc = err_set(e, "no memory for the state of the shared-memory collectives");
    }
    if (mpi_agree(local, rc, e) || !s || find_crowded(local, s->size, &s->crowded, e) ||
        segment_create(local, kind, (size_t)s->size * sizeof(Flag) + extra_bytes, &s->segment, e)) {
        shared_free(s);
        return -1;
    }
    s->flags = (Flag *)s->segment.base;
    s->piece_bytes = s->segment.slot_bytes;
    *out = s;
    return 0;
}

void shared_free(Shared *s) {
    if (!s) return;
    segment_free(&s->segment);
    free(s->seen);
    free(s->src);
    free(s);
}

size_t shared_piece_bytes(const Shared *s) { return s->piece_bytes; }
void shared_limit_piece(Shared *s, size_t bytes) {
    if (bytes < s->piece_bytes) s->piece_bytes = bytes;
}

bool shared_crowded(const Shared *s) { return s->crowded; }

void shared_force(Shared *s, SumWay way) { s->way = way; }
bool shared_one_shot(const Shared *s, size_t n) {
    return s->way == SUM_CHOSEN ? n * sizeof(float) <= ONE_SHOT_BYTES : s->way == SUM_ONE_SHOT;
}

void *shared_extra(const Shared *s) { return s->flags + s->size; }

/* ---- flags --------------------------------------------------------------------------------------------------------*/

static void post(Shared *s) { atomic_store_explicit(&s->flags[s->rank].stage, ++s->stage, memory_order_release); }

static void wait_long(Shared *s, int rank, uint64_t stage) {
    _Atomic uint64_t *flag = &s->flags[rank].stage;
    Wait w = {0};
    while ((s->seen[rank] = atomic_load_explicit(flag, memory_order_acquire)) < stage) wait_step(&w, s->crowded);
    uint64_t ns = wait_ns(&w);
    s->stats->wait_ns += ns;
    if (ns > s->slowest->rank_ns) {
        s->slowest->rank_ns = ns;
        s->slowest->rank = rank;
    }
}

static inline void wait_for(Shared *s, int rank, uint64_t stage) {
    if (s->seen[rank] < stage) wait_long(s, rank, stage);
}

static void wait_all(Shared *s, uint64_t stage) {
    for (int q = 0; q < s->size; q++)
        if (q != s->rank) wait_for(s, q, stage);
}

/* Turns to the other slot. `writes`: this rank will write into it. */
static void piece_begin(Shared *s, bool writes) {
    uint64_t before = s->piece_stage;
    s->piece_stage = s->stage + 1;
    s->slot ^= 1;
    if (writes) wait_all(s, before);
}

static uint8_t *slot_of(const Shared *s, int rank) { return segment_slot(&s->segment, rank, s->slot); }

/* ---- collectives --------------------------------------------------------------------------------------------------*/

void shared_barrier(Shared *s) {
    piece_begin(s, false);
    post(s);
    wait_all(s, s->stage);
}

static void broadcast_piece(Shared *s, uint8_t *data, size_t n) {
    bool root = s->rank == 0;
    piece_begin(s, root);
    if (root && n) {
        memcpy(slot_of(s, 0), data, n);
        s->stats->shared_bytes += n;
    }
    post(s);
    if (root) return;
    wait_for(s, 0, s->stage);
    if (n) memcpy(data, slot_of(s, 0), n);
}

void shared_broadcast(Shared *s, void *data, size_t n) {
    uint8_t *at = data;
    do {
        size_t m = n < s->piece_bytes ? n : s->piece_bytes;
        broadcast_piece(s, at, m);
        if (m) at += m;
        n -= m;
    } while (n);
}

/* Bytes [from, from + piece) of each rank's n_bytes. */
static size_t piece_of(size_t n_bytes, size_t from, size_t piece) {
    return n_bytes <= from ? 0 : n_bytes - from < piece ? n_bytes - from : piece;
}

void shared_allgather(Shared *s, const void *mine, const size_t *n_bytes, uint8_t *const *to) {
    size_t most = 0, own = n_bytes[s->rank];
    for (int q = 0; q < s->size; q++) most = n_bytes[q] > most ? n_bytes[q] : most;
    for (size_t from = 0; from < most; from += s->piece_bytes) {
        size_t m = piece_of(own, from, s->piece_bytes);
        piece_begin(s, m > 0);
        if (m) memcpy(slot_of(s, s->rank), (const uint8_t *)mine + from, m);
        s->stats->shared_bytes += m;
        post(s);
        for (int i = 1; i < s->size; i++) { /* each rank starts with another neighbour */
            int q = (s->rank + i) % s->size;
            m = piece_of(n_bytes[q], from, s->piece_bytes);
            if (!m) continue;
            wait_for(s, q, s->stage);
            memcpy(to[q] + from, slot_of(s, q), m);
        }
    }
    if (own && to[s->rank] != mine) memmove(to[s->rank], mine, own);
}

/* Sum of x over the ranks, values [begin, begin + n) of the piece; each rank's but our own stand in its slot. */
static void sum_slots(Shared *s, const float *x, size_t begin, size_t n, float *dst) {
    for (int q = 0; q < s->size; q++) s->src[q] = q == s->rank ? x + begin : (const float *)slot_of(s, q) + begin;
    s->ops->sum(s->src, s->size, (int64_t)n, dst);
}

static void allreduce_one_shot(Shared *s, float *x, size_t n) {
    piece_begin(s, true);
    memcpy(slot_of(s, s->rank), x, n * sizeof *x);
    s->stats->shared_bytes += n * sizeof *x;
    post(s);
    wait_all(s, s->stage);
    sum_slots(s, x, 0, n, x);
}

/* How a piece is divided: carrier c sums slice c, in `chunks` chunks of at most `chunk` values. */
typedef struct Division {
    size_t n, chunk, chunks;
    int carriers;
} Division;

/* Chunk k of a carrier's slice; *end == *begin when it has none. */
static void chunk_range(const Division *d, int carrier, size_t k, size_t *begin, size_t *end) {
    size_t b, e;
    slice_range(d->n, d->carriers, carrier, &b, &e);
    *begin = b + k * d->chunk < e ? b + k * d->chunk : e;
    *end = e - *begin < d->chunk ? e : *begin + d->chunk;
}

static void offer_slices(Shared *s, const Division *d, const float *x) {
    float *own = (float *)slot_of(s, s->rank);
    size_t begin = 0, end = 0; /* the slice this rank sums itself needs no copy */
    if (s->rank < d->carriers) slice_range(d->n, d->carriers, s->rank, &begin, &end);
    memcpy(own, x, begin * sizeof *x);
    memcpy(own + end, x + end, (d->n - end) * sizeof *x);
    s->stats->shared_bytes += (d->n - (end - begin)) * sizeof *x;
}

/* The sum of chunk k, into our slot where the others will fetch it (nobody but us reads that part of our slot before),
 * and into x. */
static int sum_chunk(Shared *s, const Division *d, size_t k, float *x, SharedExchange *exchange, void *arg, Err *e) {
    size_t begin, end;
    chunk_range(d, s->rank, k, &begin, &end);
    if (begin == end) return 0;
    float *sum = (float *)slot_of(s, s->rank) + begin;
    sum_slots(s, x, begin, end - begin, sum);
    if (exchange && exchange(arg, sum, end - begin, e)) return -1;
    memcpy(x + begin, sum, (end - begin) * sizeof *x);
    s->stats->shared_bytes += (end - begin) * sizeof *x;
    return 0;
}

static void fetch_chunks(Shared *s, const Division *d, size_t k, uint64_t stage, float *x) {
    for (int i = 1; i < s->size; i++) {
        int q = (s->rank + i) % s->size;
        if (q >= d->carriers) continue;
        size_t begin, end;
        chunk_range(d, q, k, &begin, &end);
        if (begin == end) continue;
        wait_for(s, q, stage);
        memcpy(x + begin, (const float *)slot_of(s, q) + begin, (end - begin) * sizeof *x);
    }
}

int shared_allreduce(Shared *s, float *x, size_t n, int carriers, SharedExchange *exchange, void *arg, Err *e) {
    if (!exchange && shared_one_shot(s, n)) {
        allreduce_one_shot(s, x, n);
        return 0;
    }
    Division d = {.n = n, .chunk = exchange ? n : CHUNK_VALUES, .carriers = exchange ? carriers : s->size};
    size_t begin, end;
    slice_range(n, d.carriers, 0, &begin, &end); /* the first is a largest one */
    d.chunks = (end - begin + d.chunk - 1) / d.chunk;

    piece_begin(s, true);
    offer_slices(s, &d, x);
    post(s);
    uint64_t offered = s->stage;
    if (s->rank < d.carriers) wait_all(s, offered);
    for (size_t k = 0; k <= d.chunks; k++) { /* our chunk k, then the others' chunk k - 1 */
        if (k < d.chunks) {
            if (s->rank < d.carriers && sum_chunk(s, &d, k, x, exchange, arg, e)) return -1;
            post(s);
        }
        if (k > 0) fetch_chunks(s, &d, k - 1, offered + k, x);
    }
    return 0;
}
