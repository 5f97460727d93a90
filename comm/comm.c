#include "comm.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"

/* How the host's part and the network's part make one collective. The network's members are the carriers: local rank 0
 * of every host for most; for large sums all ranks, where all hosts have the same number of them. */

enum { SMALL_BYTES = 8192 }; /* sums up to this size go through one carrier a host: more messages would cost more */

int comm_carriers(const Comm *c, size_t n) { return n * sizeof(float) <= SMALL_BYTES ? 1 : c->carriers; }

static int exchange(void *arg, float *x, size_t n, Err *e) {
    Comm *c = arg;
    return network_sum(c->network, x, n, false, e);
}
static int exchange_exact(void *arg, float *x, size_t n, Err *e) {
    Comm *c = arg;
    return network_sum(c->network, x, n, true, e);
}

void comm_force_sums(Comm *c, SumWay way) {
    if (c->shared) shared_force(c->shared, way);
    if (c->network) network_force(c->network, way);
}

static int allreduce_piece(Comm *c, float *x, size_t n, bool exact, Err *e) {
    if (!c->shared) return network_sum(c->network, x, n, exact, e);
    if (c->job.hosts == 1) return shared_allreduce(c->shared, x, n, 0, NULL, NULL, e);
    return shared_allreduce(c->shared, x, n, comm_carriers(c, n), exact ? exchange_exact : exchange, c, e);
}

/* Every collective begins and ends with these: others can see whether this rank has come to it. */
static void begin(Comm *c) {
    life_add(&c->life->calls);
    c->slowest.rank_ns = c->slowest.host_ns = 0;
}
static int end(Comm *c, int status) {
    life_add(&c->life->calls);
    return status;
}

/* Alone on its host a carrier that is not local rank 0 cannot be, so without shared memory there is a network. */
/* Waits of hosts count before those for ranks of this host, which may themselves have waited for a host. */
static void warn_of(Comm *c, size_t bytes, uint64_t waited_ns, uint64_t usual_ns) {
    const Slowest *s = &c->slowest;
    bool host = 3 * s->host_ns > s->rank_ns;
    int rank = 0;
    while (host ? c->job.host_of[rank] != s->host : rank != c->ranks[s->rank]) rank++;
    char whom[COMM_NAME_BYTES + 64];
    double rate = 1e3 * (double)s->host_bytes / (double)(s->host_ns + 1);
    if (host) snprintf(whom, sizeof whom, "host %s (%.3g MB/s came)", c->job.names[rank], rate);
    else snprintf(whom, sizeof whom, "rank %d on host %s", rank, c->job.names[rank]);
    Err what;
    err_set(&what, "a collective of %zu bytes waited %.3f s for %s; %.2g s is usual", bytes, 1e-9 * (double)waited_ns,
            whom, 1e-9 * (double)usual_ns);
    c->warned = true;
    c->warn(c->arg, &what);
}

/* After a collective of the size that began when stats were `before`. */
static void watch(Comm *c, const CommStats *before, size_t bytes) {
    uint64_t usual, waited = c->stats.wait_ns + c->stats.wire_ns - before->wait_ns - before->wire_ns;
    if (usual_exceeded(&c->usual, bytes, waited, &usual) && !c->warned && c->warn && c->job.rank == 0)
        warn_of(c, bytes, waited, usual);
}

static int allreduce(Comm *c, float *x, size_t n, bool exact, Err *e) {
    size_t piece = c->piece_bytes / sizeof *x;
    for (size_t i = 0; c->job.size > 1 && i < n; i += piece)
        if (allreduce_piece(c, x + i, n - i < piece ? n - i : piece, exact, e)) return -1;
    return comm_check(c, "allreduce", n, x, n * sizeof *x, e);
}

int comm_allreduce(Comm *c, float *x, size_t n, bool exact, Err *e) {
    CommStats before = c->stats;
    c->stats.calls++;
    begin(c);
    int status = allreduce(c, x, n, exact, e);
    watch(c, &before, n * sizeof *x);
    return end(c, status);
}

/* Ranks of other hosts, from `r` on, whose data stand one behind the other: returns the first rank after them. */
static int foreign_run(const Comm *c, int r) {
    while (r < c->job.size && c->job.host_of[r] != c->job.host) r++;
    return r;
}

static int gather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e) {
    uint8_t *to = out;
    size_t at = 0;
    for (int r = 0; r < c->job.size; at += n_bytes[r++]) c->offset[r] = at;
    if (!c->shared) {
        uint8_t *own = to + c->offset[c->job.rank];
        if (n_bytes[c->job.rank] && own != mine) memmove(own, mine, n_bytes[c->job.rank]);
    } else {
        for (int l = 0; l < c->job.local_size; l++) {
            c->local_sizes[l] = n_bytes[c->ranks[l]];
            c->local_to[l] = to + c->offset[c->ranks[l]];
        }
        shared_allgather(c->shared, mine, c->local_sizes, c->local_to);
    }
    if (c->job.hosts == 1) return 0;
    if (c->job.local_rank == 0 && network_allgather(c->network, n_bytes, c->offset, c->job.host_of, to, e)) return -1;
    for (int r = 0, end; c->shared && r < c->job.size; r = end) {
        end = foreign_run(c, r);
        size_t n = (end < c->job.size ? c->offset[end] : at) - c->offset[r];
        if (n) shared_broadcast(c->shared, to + c->offset[r], n);
        while (end < c->job.size && c->job.host_of[end] == c->job.host) end++;
    }
    return 0;
}

int comm_raw_allgather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e) {
    begin(c);
    return end(c, gather(c, mine, n_bytes, out, e));
}

int comm_raw_gather_items(Comm *c, const void *mine, size_t bytes, void *out, Err *e) {
    for (int r = 0; r < c->job.size; r++) c->sizes[r] = bytes;
    return comm_raw_allgather(c, mine, c->sizes, out, e);
}

int comm_allgather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e) {
    CommStats before = c->stats;
    c->stats.calls++;
    begin(c);
    int status = gather(c, mine, n_bytes, out, e);
    size_t all = 0;
    for (int r = 0; r < c->job.size; r++) all += n_bytes[r];
    watch(c, &before, all);
    if (!status) status = comm_check(c, "allgather", all, out, all, e);
    return end(c, status);
}

static int broadcast(Comm *c, void *data, size_t n, Err *e) {
    for (size_t at = 0; c->job.size > 1 && at < n; at += c->piece_bytes) {
        size_t m = n - at < c->piece_bytes ? n - at : c->piece_bytes;
        uint8_t *p = (uint8_t *)data + at;
        if (c->job.hosts > 1 && c->job.local_rank == 0 && network_broadcast(c->network, p, m, e)) return -1;
        if (c->shared) shared_broadcast(c->shared, p, m);
    }
    return comm_check(c, "broadcast", n, data, n, e);
}

int comm_broadcast(Comm *c, void *data, size_t n, Err *e) {
    c->stats.calls++;
    begin(c);
    return end(c, broadcast(c, data, n, e));
}

static int barrier(Comm *c, Err *e) {
    if (c->shared) shared_barrier(c->shared);
    if (c->job.hosts == 1) return 0;
    if (c->job.local_rank == 0 && network_barrier(c->network, e)) return -1;
    if (c->shared) shared_broadcast(c->shared, NULL, 0);
    return 0;
}

int comm_barrier(Comm *c, Err *e) {
    c->stats.calls++;
    begin(c);
    return end(c, barrier(c, e));
}
