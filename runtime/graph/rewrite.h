/* What the passes share: a pass takes the operators out of the graph and pushes their successors back. All local. */
#pragma once

#include "graph/graph.h"

typedef struct Rewrite {
    Graph *g;
    Op *old; /* [n_old], owned; one that was merged into another is marked OP_COUNT */
    int32_t n_old;
    int32_t *reader; /* [values then] index of the old operator that alone reads a value, -1: none, -2: several */
} Rewrite;

/* -1 on lack of memory. */
int rewrite_begin(Rewrite *r, Graph *g, Err *e);
/* Frees, and checks the new graph. */
int rewrite_end(Rewrite *r, Err *e);
void rewrite_free(Rewrite *r);

static inline bool op_merged(const Op *op) { return op->kind == OP_COUNT; }
/* The only reader of v among the old operators, or NULL when there is none, more than one, or v is an output. */
Op *rewrite_only_reader(const Rewrite *r, ValueId v);
/* v is there before the next operator is pushed. */
bool rewrite_is_made(const Rewrite *r, ValueId v);
