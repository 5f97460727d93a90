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
/* Transposes move behind the operators that can work on their inputs as they are, meet there, and cancel: a net of a
 * file with channels first becomes one with channels last. What is left unread goes with pass_dead. */
int pass_transposes(Graph *g, Err *e);
/* Padding with zeroes before a convolution becomes the convolution's own. */
int pass_pad(Graph *g, Err *e);
/* Factors and addends per channel behind a convolution (what is left of a batch normalisation) go into its weights and
 * bias. */
int pass_affine(Graph *g, Err *e);
/* conv, + another value of its shape, then a function -> one conv. */
int pass_fuse_conv(Graph *g, Err *e);
/* Operators whose results nobody reads go; those with no result (stores into states) stay. */
int pass_dead(Graph *g, Err *e);
/* linear + add -> linear with a residual, where the sum is the linear's only reader. After partitioning. */
int pass_fuse_residual(Graph *g, Err *e);
/* All those before partitioning, in order. */
int passes_run(Graph *g, QType act, Err *e);
