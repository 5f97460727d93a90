/* Exchange between hosts by messages. The members are one rank of each host; `network_*` are collective over them. */
#pragma once

#include "messages.h"

typedef struct Network Network;

/* `use`: who the members are, and what their messages work with. piece_bytes: the most network_sum gets, in bytes of
 * fp32. `ops` is the caller's and outlives *out. Local. */
int network_create(const MessagesUse *use, Wire wire, size_t piece_bytes, const Ops *ops, Network **out, Err *e);
void network_free(Network *w);

/* x[n] = sum over the hosts in order, in place, the same bits on all. On a bf16 wire (unless `exact`) every host's
 * addend is rounded to bf16, and with three hosts or more the sum too; the result of an element does not depend on n.
 */
int network_sum(Network *w, float *x, size_t n, bool exact, Err *e);

void network_force(Network *w, SumWay way); /* as comm_force_sums. Local */
/* Whether a sum of n values is one-shot. Local. */
bool network_one_shot(const Network *w, size_t n, bool exact);

/* n bytes from host 0 to the others. */
int network_broadcast(Network *w, void *data, size_t n, Err *e);

/* Rank r's n_bytes[r] bytes at out + offset[r] go from host host_of[r] to the same place on all other hosts. */
int network_allgather(Network *w, const size_t *n_bytes, const size_t *offset, const int *host_of, uint8_t *out,
                      Err *e);
int network_barrier(Network *w, Err *e);
