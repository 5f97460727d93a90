#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "mpi_util.h"
#include "wait.h"

/* From a value of each rank, over what a token and a prompt need, to what no cache near the core holds. */
static const size_t sizes[] = {64, 2304, 18432, 131072, 1228800, 8388608};

enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = 8388608 };
enum { ONE_SHOT, TWO_SHOT, MPI, LIMIT, SERIES }; /* what is measured for each size */
enum { IN_HOST, BETWEEN_HOSTS, SCOPES };

typedef struct Bench {
    Comm *c;
    float *x; /* LARGEST bytes of zeroes: a sum in place stays zero */
    uint8_t *copy;
    Segment segment; /* memory of the bench's own, where this host has several ranks */
    int turns;       /* of the flags so far */
    int rounds;
    double *samples; /* [SCOPES][SIZES][SERIES][rounds] microseconds */
    double flag[COMM_BENCH_ROUNDS], message[COMM_BENCH_ROUNDS];
    int repeats[SCOPES][SIZES][SERIES];  /* in one sample; 0: not measured */
    bool chosen_one_shot[SCOPES][SIZES]; /* on rank 0 */
} Bench;

static double now_us(void) { return 1e6 * MPI_Wtime(); }

/* ---- the limits ---------------------------------------------------------------------------------------------------*/

static void await(_Atomic int *flag, int value, bool crowded) {
    enum { SPINS = 1000 };
    Wait w = {0};
    for (int i = 0; atomic_load_explicit(flag, memory_order_acquire) < value; i++)
        if (crowded || i > SPINS) wait_step(&w, crowded);
}

/* One way of a flag between the first two ranks of a host. */
static double time_flag(Bench *b) {
    enum { TURNS = 2000, CROWDED_TURNS = 100, APART = 512 };
    bool crowded = shared_crowded(b->c->shared);
    int rank = b->c->job.local_rank, turns = crowded ? CROWDED_TURNS : TURNS;
    _Atomic int *mine = (_Atomic int *)(void *)(b->segment.base + (rank ? APART : 0));
    _Atomic int *other = (_Atomic int *)(void *)(b->segment.base + (rank ? 0 : APART));
    shared_barrier(b->c->shared);
    double began = now_us();
    for (int i = 1; i <= turns && rank < 2; i++) {
        if (rank) await(other, b->turns + i, crowded);
        atomic_store_explicit(mine, b->turns + i, memory_order_release);
        if (!rank) await(other, b->turns + i, crowded);
    }
    double took = now_us() - began;
    b->turns += turns;
    shared_barrier(b->c->shared);
    return took / (2 * turns);
}

/* One way of an empty message between the first ranks of the first two hosts. */
static double time_message(Bench *b) {
    enum { TURNS = 50 };
    int rank = b->c->job.host;
    if (b->c->job.local_rank || rank > 1) return 0;
    mpi_enter();
    double began = now_us();
    for (int i = 0; i < TURNS; i++) {
        if (rank) MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, b->c->peers, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_BYTE, !rank, 0, b->c->peers);
        if (!rank) MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, b->c->peers, MPI_STATUS_IGNORE);
    }
    double took = now_us() - began;
    mpi_leave();
    return took / (2 * TURNS);
}

/* What each of `parts` must have from the others. */
static size_t must_come(size_t bytes, int parts) { return 2 * bytes / (size_t)parts * (size_t)(parts - 1); }

/* All ranks of the host at once copy what the neighbour has just written. */
static double time_copy(Bench *b, size_t bytes) {
    const Job *j = &b->c->job;
    double took = 0;
    size_t n = must_come(bytes, j->local_size);
    for (size_t at = 0; at < n; at += b->segment.slot_bytes) {
        size_t m = n - at < b->segment.slot_bytes ? n - at : b->segment.slot_bytes;
        memset(segment_slot(&b->segment, j->local_rank, 0), (int)at, m);
        shared_barrier(b->c->shared);
        double before = now_us(), began = now_us(); /* to read the clock takes as long as to copy little */
        memcpy(b->copy, segment_slot(&b->segment, (j->local_rank + 1) % j->local_size, 0), m);
        took += now_us() - began - (began - before);
        shared_barrier(b->c->shared);
    }
    return took > 0 ? took : 0;
}

/* All carriers at once send to the next host and receive from the one before. */
static int time_wire(Bench *b, size_t bytes, Err *e) {
    const Job *j = &b->c->job;
    int carriers = comm_carriers(b->c, bytes / sizeof *b->x);
    size_t n = must_come(bytes, j->hosts) / (size_t)carriers / (b->c->wire == WIRE_BF16 ? 2 : 1);
    if (j->local_rank >= carriers) return 0;
    for (size_t at = 0; at < n; at += LARGEST) {
        int m = (int)(n - at < LARGEST ? n - at : LARGEST);
        mpi_enter();
        int code = MPI_Sendrecv(b->x, m, MPI_BYTE, (j->host + 1) % j->hosts, 0, b->copy, m, MPI_BYTE,
                                (j->host + j->hosts - 1) % j->hosts, 0, b->c->peers, MPI_STATUS_IGNORE);
        mpi_leave();
        if (mpi_ok(code, "MPI_Sendrecv", e)) return -1;
    }
    return 0;
}

/* ---- the sums -----------------------------------------------------------------------------------------------------*/

/* Whether this rank has a part in what is measured. */
static bool takes_part(const Bench *b, int scope) { return scope == BETWEEN_HOSTS || b->c->shared; }

static int barrier(Bench *b, int scope, Err *e) {
    if (scope == BETWEEN_HOSTS) return comm_barrier(b->c, e);
    shared_barrier(b->c->shared);
    return 0;
}

/* On rank 0, which is a carrier and has the largest slice: how a sum is made just now. */
static bool one_shot(const Bench *b, int scope, size_t bytes) {
    size_t piece = bytes < b->c->piece_bytes ? bytes : b->c->piece_bytes, n = piece / sizeof(float), begin, end;
    if (scope == IN_HOST) return shared_one_shot(b->c->shared, n);
    slice_range(n, b->c->shared ? comm_carriers(b->c, n) : 1, 0, &begin, &end);
    return network_one_shot(b->c->network, end - begin, false);
}

static int sum_in_host(Bench *b, size_t n, Err *e) {
    size_t piece = shared_piece_bytes(b->c->shared) / sizeof *b->x;
    for (size_t i = 0; i < n; i += piece)
        if (shared_allreduce(b->c->shared, b->x + i, n - i < piece ? n - i : piece, 0, NULL, NULL, e)) return -1;
    return 0;
}

static int sum(Bench *b, int scope, size_t bytes, Err *e) {
    size_t n = bytes / sizeof *b->x;
    bool part = scope == IN_HOST && b->c->job.hosts > 1;
    return part ? sum_in_host(b, n, e) : comm_allreduce(b->c, b->x, n, false, e);
}

static int sum_by_mpi(Bench *b, int scope, size_t bytes, int repeats, Err *e) {
    MPI_Comm group = scope == IN_HOST ? b->c->local : b->c->world;
    int code = MPI_SUCCESS;
    mpi_enter();
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Allreduce(MPI_IN_PLACE, b->x, (int)(bytes / sizeof *b->x), MPI_FLOAT, MPI_SUM, group);
    mpi_leave();
    return mpi_ok(code, "MPI_Allreduce", e);
}

/* Microseconds of one of `repeats`, begun by all ranks together. */
static int time_series(Bench *b, int scope, size_t bytes, int series, int repeats, double *us, Err *e) {
    int status = 0;
    *us = 0;
    if (!takes_part(b, scope)) return 0;
    if (series < MPI) comm_force_sums(b->c, series == ONE_SHOT ? SUM_ONE_SHOT : SUM_TWO_SHOT);
    if (barrier(b, scope, e)) return -1;
    double began = now_us(), copies = 0;
    if (series == MPI) status = sum_by_mpi(b, scope, bytes, repeats, e);
    for (int i = 0; i < repeats && !status && series != MPI; i++) {
        if (series < MPI) status = sum(b, scope, bytes, e);
        else if (scope == BETWEEN_HOSTS) status = time_wire(b, bytes, e);
        else copies += time_copy(b, bytes);
    }
    *us = (series == LIMIT && scope == IN_HOST ? copies : now_us() - began) / repeats;
    comm_force_sums(b->c, SUM_CHOSEN);
    return status;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------*/

/* What rank 0 says about a series before it is measured. */
typedef struct Way {
    int repeats;
    bool slow, chosen_one_shot;
} Way;

/* So many repeats that a sample takes about two milliseconds. Collective. */
static int find_way(Bench *b, int scope, size_t bytes, int series, Way *way, Err *e) {
    enum { SAMPLE_US = 2000, TRIES = 2, MOST = 2000, SLOW_US = 500000 };
    double us;
    if (time_series(b, scope, bytes, series, 1, &us, e) || /* the first one is slower than the others */
        time_series(b, scope, bytes, series, TRIES, &us, e))
        return -1;
    *way = (Way){.slow = us > SLOW_US, .repeats = us * MOST > SAMPLE_US ? (int)(SAMPLE_US / us) + 1 : MOST};
    if (b->c->job.rank == 0) {
        way->chosen_one_shot = one_shot(b, scope, bytes);
        if (series == ONE_SHOT) {
            comm_force_sums(b->c, SUM_ONE_SHOT);
            if (!one_shot(b, scope, bytes)) way->repeats = 0; /* does not fit */
            comm_force_sums(b->c, SUM_CHOSEN);
        }
    }
    return comm_broadcast(b->c, way, sizeof *way, e);
}

static int find_ways(Bench *b, int scope, Err *e) {
    bool slow = false;
    for (int s = 0; s < SIZES && !slow; s++)
        for (int series = 0; series < SERIES; series++) {
            Way way;
            if (find_way(b, scope, sizes[s], series, &way, e)) return -1;
            b->repeats[scope][s][series] = way.repeats;
            b->chosen_one_shot[scope][s] = way.chosen_one_shot;
            slow = slow || way.slow;
        }
    return 0;
}

static double *samples_of(const Bench *b, int scope, int s, int series) {
    return b->samples + ((scope * SIZES + s) * SERIES + series) * (ptrdiff_t)b->rounds;
}

static int measure_round(Bench *b, const bool *has, int round, Err *e) {
    if (has[IN_HOST] && b->c->shared) b->flag[round] = time_flag(b);
    if (has[BETWEEN_HOSTS]) b->message[round] = time_message(b);
    for (int scope = 0; scope < SCOPES; scope++)
        for (int s = 0; s < SIZES; s++)
            for (int series = 0; series < SERIES; series++) {
                int repeats = b->repeats[scope][s][series];
                double *us = samples_of(b, scope, s, series) + round;
                if (repeats && time_series(b, scope, sizes[s], series, repeats, us, e)) return -1;
            }
    return 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *us, int n) {
    qsort(us, (size_t)n, sizeof *us, by_value);
    return us[n / 2];
}

static void add_row(Bench *b, int scope, int s, int series, double limit_us, CommBench *out) {
    double *ours = samples_of(b, scope, s, series);
    CommTiming *row = &out->row[out->n++];
    *row = (CommTiming){.between_hosts = scope == BETWEEN_HOSTS,
                        .two_shot = series == TWO_SHOT,
                        .chosen = b->chosen_one_shot[scope][s] == (series == ONE_SHOT),
                        .bytes = sizes[s],
                        .us = median(ours, b->rounds),
                        .mpi_us = median(samples_of(b, scope, s, MPI), b->rounds),
                        .limit_us = limit_us};
    row->least_us = ours[0]; /* in order now */
}

static void conclude(Bench *b, CommBench *out) {
    double in_host[SIZES] = {0};
    out->flag_us = median(b->flag, b->rounds);
    out->message_us = median(b->message, b->rounds);
    for (int scope = 0; scope < SCOPES; scope++)
        for (int s = 0; s < SIZES; s++) {
            double limit = median(samples_of(b, scope, s, LIMIT), b->rounds);
            if (scope == IN_HOST) limit = in_host[s] = limit + out->flag_us;
            else if (limit < in_host[s]) limit = in_host[s];
            for (int series = ONE_SHOT; series <= TWO_SHOT; series++)
                if (b->repeats[scope][s][series]) add_row(b, scope, s, series, limit, out);
        }
}

static int measure(Bench *b, CommBench *out, Err *e) {
    const Job *j = &b->c->job;
    bool has[SCOPES] = {[IN_HOST] = false, [BETWEEN_HOSTS] = j->hosts > 1};
    for (int r = 1; r < j->size; r++) has[IN_HOST] = has[IN_HOST] || j->host_of[r] == 0; /* rank 0's host */
    for (int scope = 0; scope < SCOPES; scope++)
        if (has[scope] && find_ways(b, scope, e)) return -1;
    for (int round = 0; round < b->rounds; round++)
        if (measure_round(b, has, round, e)) return -1;
    if (j->rank == 0) conclude(b, out);
    return comm_barrier(b->c, e);
}

/* Memory whose pages are there. */
static void *touched(size_t bytes) {
    void *p = aligned_alloc(128, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

static void release(Bench *b) {
    if (!b) return;
    segment_free(&b->segment);
    free(b->x);
    free(b->copy);
    free(b->samples);
    free(b);
}

int comm_bench(Comm *c, int rounds, CommBench *out, Err *e) {
    Err mine = {""};
    *out = (CommBench){0};
    if (c->job.size == 1) return err_set(e, "one rank has no other to speak with: start two or more with mpirun -n 2");
    if (rounds < 1 || rounds > COMM_BENCH_ROUNDS)
        return err_set(e, "%d rounds: from 1 to %d can be measured", rounds, COMM_BENCH_ROUNDS);
    Bench *b = calloc(1, sizeof *b);
    if (b) {
        *b = (Bench){.c = c, .rounds = rounds, .x = touched(LARGEST), .copy = touched(LARGEST)};
        b->samples = calloc((size_t)(SCOPES * SIZES * SERIES) * (size_t)rounds, sizeof *b->samples);
    }
    bool failed = !b || !b->x || !b->copy || !b->samples;
    if (failed) err_set(&mine, "no memory for the measurements");
    if (comm_agree(c, failed, &mine, e)) {
        release(b);
        return -1;
    }
    if (c->shared) {
        mpi_enter();
        failed = segment_create(c->local, SEGMENT_ANY, 4096, &b->segment, &mine) != 0;
        mpi_leave();
    }
    int status = comm_agree(c, failed, &mine, e);
    if (!status && measure(b, out, &mine)) comm_fail(c, &mine);
    release(b);
    return status;
}
