/* Passes: each rewrites a graph in place into one that computes the same in fewer, larger operators. -1 on lack of
 * memory. All local. */
#pragma once

#include "graph/graph.h"

/* Linears that read the same value become one with several weights, their results views of its output: Q|K|V and
 * gate|up share one quantisation of x and one distribution over threads. */
int pass_fuse_linears(Graph *g, Err *e);
/* Linears with quantised weights read a value of type `act` (QT_A8 or QT_A16): an OP_QUANTISE before the first that
 * needs it. */
int pass_quantise_activations(Graph *g, QType act, Err *e);
/* A norm, gated product, GELU or dispatch whose result is only quantised gives the quantised type itself. */
int pass_fuse_quantise(Graph *g, Err *e);
/* convolution or relu pairs: conv + relu -> conv with relu. */
int pass_fuse_relu(Graph *g, Err *e);
/* linear + add -> linear with a residual, where the sum is the linear's only reader. After partitioning. */
int pass_fuse_residual(Graph *g, Err *e);
/* All those before partitioning, in order. */
int passes_run(Graph *g, QType act, Err *e);
