/* Exchange between hosts by MPI messages. The members are one rank of each host; `network_*` are collective over them.
 * Only non-blocking calls are used, waited for in one place. */
#pragma once

#include <mpi.h>

#include "ops.h"
#include "pulse.h"

typedef struct Network Network;

/* `peers`: one rank of each host, member number = host number; not owned. piece_bytes: the most network_sum gets, in
 * bytes of fp32. n_ranks: of the job. `ops` and `stats` are the caller's and outlive *out. Local. */
int network_create(MPI_Comm peers, Wire wire, size_t piece_bytes, int n_ranks, const Ops *ops, CommStats *stats,
                   Network **out, Err *e);
void network_free(Network *w);
/* Each message that arrives is told to this rank's Life and Pulse, which outlive *w. Local. */
void network_on_arrival(Network *w, Life *life, Pulse *pulse);

/* x[n] = sum over the hosts in order, in place, the same bits on all. On a bf16 wire (unless `exact`) every host's
 * addend is rounded to bf16, and with three hosts or more the sum too; the result of an element does not depend on n.
 */
int network_sum(Network *w, float *x, size_t n, bool exact, Err *e);

/* n bytes from host 0 to the others. */
int network_broadcast(Network *w, void *data, size_t n, Err *e);

/* Rank r's n_bytes[r] bytes at out + offset[r] go from host host_of[r] to the same place on all other hosts. */
int network_allgather(Network *w, const size_t *n_bytes, const size_t *offset, const int *host_of, uint8_t *out,
                      Err *e);
int network_barrier(Network *w, Err *e);
