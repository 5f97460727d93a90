/* Collectives among the ranks of one host, through shared memory. All are collective over those ranks; an error is
 * returned only when a rank of the host has ended the job (shared_tell_aborted). */
#pragma once

#include <mpi.h>

#include "ops.h"
#include "segment.h"

typedef struct Shared Shared;

/* `local`: the ranks of this host, two or more. `ops` and `stats` are the caller's and outlive *out. */
int shared_create(MPI_Comm local, SegmentKind kind, const Ops *ops, CommStats *stats, Shared **out, Err *e);
void shared_free(Shared *s); /* local */

/* Bytes that fit one piece of a collective, and a lower limit to keep to (what the smallest host can do). Local. */
size_t shared_piece_bytes(const Shared *s);
void shared_limit_piece(Shared *s, size_t bytes);

/* Turns `n` values, the host's sum in fixed order, into the sum over hosts, in place. Called by carriers only, with
 * the same ranges on all hosts. */
typedef int SharedExchange(void *arg, float *x, size_t n, Err *e);

/* x[n] = sum over the host's ranks in order; n values fit one piece. With `exchange`, the first `carriers` ranks sum a
 * slice each and pass it through `exchange` before all get it; without, the work is divided as is fastest. */
int shared_allreduce(Shared *s, float *x, size_t n, int carriers, SharedExchange *exchange, void *arg, Err *e);

/* `n` bytes, any number, from the host's rank 0 to the others. n = 0: the others wait for rank 0. */
int shared_broadcast(Shared *s, void *data, size_t n, Err *e);
/* Rank q's n_bytes[q] bytes arrive at to[q] on all; a rank's own are copied from `mine` unless to[q] == mine. */
int shared_allgather(Shared *s, const void *mine, const size_t *n_bytes, uint8_t *const *to, Err *e);
int shared_barrier(Shared *s, Err *e);

/* Makes the waits of the host's other ranks fail, now and later. Local. */
void shared_tell_aborted(Shared *s);
