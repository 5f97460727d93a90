/* Collectives among the ranks of one host, through shared memory. All are collective over those ranks. None can fail:
 * where a rank does not come the others wait, until Pulse ends the job. */
#pragma once

#include <mpi.h>

#include "ops.h"
#include "segment.h"

typedef struct Shared Shared;

/* `local`: the ranks of this host, two or more. extra_bytes: of memory for the caller, see shared_extra. `ops`, `stats`
 * and `slowest` are the caller's and outlive *out. */
int shared_create(MPI_Comm local, SegmentKind kind, size_t extra_bytes, const Ops *ops, CommStats *stats,
                  Slowest *slowest, Shared **out, Err *e);
void shared_free(Shared *s); /* local */

/* Memory that all ranks of the host see, zero at first, aligned to 128 bytes. Local. */
void *shared_extra(const Shared *s);

bool shared_crowded(const Shared *s); /* more ranks than cores. Local */

/* As comm_force_sums, for sums without `exchange`. Local. */
void shared_force(Shared *s, SumWay way);
/* Whether a sum of n values, within one piece and without `exchange`, is one-shot. Local. */
bool shared_one_shot(const Shared *s, size_t n);

/* Bytes that fit one piece of a collective, and a lower limit to keep to (what the smallest host can do). Local. */
size_t shared_piece_bytes(const Shared *s);
void shared_limit_piece(Shared *s, size_t bytes);

/* Turns `n` values, the host's sum in fixed order, into the sum over hosts, in place. Called by carriers only, with
 * the same ranges on all hosts. */
typedef int SharedExchange(void *arg, float *x, size_t n, Err *e);

/* x[n] = sum over the host's ranks in order; n values fit one piece. Fails only when `exchange` does. With `exchange`,
 * the first `carriers` ranks sum a slice each and pass it through `exchange` before all get it; without, the work is
 * divided as is fastest. */
int shared_allreduce(Shared *s, float *x, size_t n, int carriers, SharedExchange *exchange, void *arg, Err *e);

/* `n` bytes, any number, from the host's rank 0 to the others. n = 0: the others wait for rank 0. */
void shared_broadcast(Shared *s, void *data, size_t n);
/* Rank q's n_bytes[q] bytes arrive at to[q] on all; a rank's own are copied from `mine` unless to[q] == mine. */
void shared_allgather(Shared *s, const void *mine, const size_t *n_bytes, uint8_t *const *to);
void shared_barrier(Shared *s);
