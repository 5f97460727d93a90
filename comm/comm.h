/* Ranks and collectives. The only layer that knows MPI. Inside a host data goes through shared memory, between hosts
 * through MPI. Every rank that gets the result of a collective gets the same bits: sums have one fixed order.
 * All functions are collective unless marked local; one thread per rank calls them. (A thread of comm's own calls MPI
 * too, never at the same time: MPI_THREAD_SERIALIZED.)
 *
 * No wait lasts for ever: when another rank is stopped, dead, cut off or does not get on, the process ends by itself,
 * with status 1, within the deadline and some seconds (pulse.h). */
#pragma once

#include "base/err.h"
#include "kernels/kernels.h"

typedef struct Comm Comm;

enum { COMM_NAME_BYTES = 65 }; /* HOST_NAME_MAX and the end */

typedef enum Wire { WIRE_F32, WIRE_BF16 } Wire; /* what travels between hosts; inside a host always fp32 */

typedef struct CommOptions {
    bool each_rank_a_host; /* every rank counts as a host of its own: network path between all */
    bool check; /* after every collective compare a hash of the result over all ranks; differing is an error */
    Wire wire;
    double deadline_s; /* how long a rank may be silent, or the job stand still; 0: 60. To start: 15 at least */
    /* Called before the process ends because the job cannot go on, on the one rank that is to say so, with one line
     * that names the rank to blame. From a thread of comm's own; may be NULL. */
    void (*lost)(void *arg, const Err *why);
    /* Called on rank 0, once, when a sum or gather has waited far longer than usual, with one line that says for whom.
     */
    void (*warn)(void *arg, const Err *what);
    void *arg;   /* of both */
    bool verify; /* each message between hosts is followed by its checksum; a mismatch is an error */
} CommOptions;

/* Starts MPI when needed (a process that neither mpirun nor srun --mpi=pmix started becomes 1 rank, without MPI), finds
 * hosts, maps the shared memory, which has no name any more when this returns. All ranks pass the same options. A
 * failure on one rank is everyone's, with its message. Several may exist at once; the one that started MPI is freed
 * last. */
int comm_create(const CommOptions *o, Comm **out, Err *e);
void comm_free(Comm *c); /* ends MPI when comm_create started it */

/* Local: what there is. */
int comm_rank(const Comm *c);
int comm_size(const Comm *c);
int comm_host(const Comm *c); /* number of this rank's host, 0 .. comm_hosts - 1, in order of lowest rank */
int comm_hosts(const Comm *c);
int comm_local_rank(const Comm *c); /* among the ranks of this host */
int comm_local_size(const Comm *c);
const char *comm_host_name(const Comm *c, int rank); /* of any rank */

/* For reductions and bf16 (may be NULL at creation time; set before the first allreduce): all ranks the same. Local. */
void comm_set_kernels(Comm *c, const Kernels *k);

/* x[n] = sum over ranks, in place. Order: ((r0 + r1) + r2) ... inside a host, hosts likewise in order. On a bf16 wire
 * each host's sum is rounded to bf16 before it is added, and with three hosts or more the result too: an element's
 * result depends neither on n nor on its place. `exact` keeps fp32 between hosts whatever the wire. */
int comm_allreduce(Comm *c, float *x, size_t n, bool exact, Err *e);
/* How sums are made. One-shot: everyone gets all addends and sums everything. Two-shot: everyone sums a slice, then all
 * gather the slices. Without this by size; a one-shot sum is made in two where buffers do not hold it. The result is
 * the same, but that on a bf16 wire the two-shot one is rounded for two hosts too. The same on all ranks. Local. */
typedef enum SumWay { SUM_CHOSEN, SUM_ONE_SHOT, SUM_TWO_SHOT } SumWay;
void comm_force_sums(Comm *c, SumWay way);

/* Rank r gives n_bytes[r] bytes (known to all); all get them, concatenated in rank order, in `out`. `mine` may be its
 * place in `out`. */
int comm_allgather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e);
/* `n` bytes from rank 0 to all. Waiting ranks spin for a bounded time, then sleep: a wait here may last for hours. */
int comm_broadcast(Comm *c, void *data, size_t n, Err *e);
int comm_barrier(Comm *c, Err *e);

/* Failure agreement: a rank that failed passes its Err and `failed` = true. Returns 0 when no rank failed; else -1 on
 * every rank, with the message of the lowest failing rank in *e on all ("rank 2 on host b: ..."; just the message in a
 * job of 1 rank, or when all ranks failed with the same words). */
int comm_agree(Comm *c, bool failed, const Err *mine, Err *e);
/* A rank that failed itself gets -1 whatever the others say: written out so that compilers and analysers see it too. */
static inline int comm_agree_seen(Comm *c, bool failed, const Err *mine, Err *e) {
    int status = comm_agree(c, failed, mine, e);
    return failed ? -1 : status;
}
#define comm_agree(c, failed, mine, e) comm_agree_seen(c, failed, mine, e)
/* All ranks must pass the same value; -1 on all with `what` and the ranks that differ from rank 0. */
int comm_same(Comm *c, uint64_t value, const char *what, Err *e);
/* The minimum over ranks of an integer. */
int comm_min(Comm *c, int64_t value, int64_t *out, Err *e);

/* Bytes this rank has sent or written for others since the start. Local. */
typedef struct CommStats {
    uint64_t calls, shared_bytes, network_bytes;
    uint64_t wait_ns; /* waiting for ranks of this host; single waits below about half a microsecond are not counted */
    uint64_t wire_ns; /* waiting for messages between hosts, sent and received */
} CommStats;
CommStats comm_stats(const Comm *c);

/* Local. A signal handler may say that this rank was asked for an early end; soon after all ranks know of it. What it
 * means to end early is the caller's affair. */
void comm_interrupt(Comm *c);
bool comm_interrupted(const Comm *c); /* any rank */

/* What this rank works at inside a step: words that name it when it is lost, NUL-terminated. */
typedef union CommPlace {
    char text[64];
    uint64_t word[8];
} CommPlace;
/* Local, a few nanoseconds. NULL: no longer in a step; there a rank may take any time, as long as it lives. */
void comm_place(Comm *c, const CommPlace *p);

/* A failure in the middle of a step, that cannot be agreed: every rank's process ends with status 1, after the lowest
 * rank has been told (CommOptions.lost) this one's message, with its rank and host. Local; does not return. */
_Noreturn void comm_fail(Comm *c, const Err *why);
