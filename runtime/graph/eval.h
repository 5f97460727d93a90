/* What the plain operators of nets compute: serves the folding of constants and, as a step, the executor. */
#pragma once

#include "graph/graph.h"

/* op_is_plain, or OP_ADD, OP_CONV, OP_POOL: one share of the work. in: [op->n_in]. -1: an index in the data is out of
 * range. Local; allocates nothing. */
int op_eval(const Op *op, const Nd *in, Nd *out, NdPart p, Err *e);

/* Replaces the graph's last operator by a weight when all it reads are weights in memory. Local. */
void graph_fold_last(Graph *g);
