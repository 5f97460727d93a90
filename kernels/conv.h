/* fp32 convolution of [N][H][W][C] images, by oneDNN: each thread runs primitives of its own,
 * made once, on its own part of the result: whole images, bands of rows (pixels of a 1x1), slices of the output
 * channels, or a mixture. Results of oneDNN are the same for the same shape and number of threads on the same CPU, not
 * over ISAs. A relu turns NaN into 0 there (one instruction's way with NaN). */
#pragma once

#include "base/err.h"
#include "kernels/nd.h"

typedef struct ConvShape {
    int64_t n, h, w, c; /* input */
    int64_t o;          /* output channels */
    NdWindow win;       /* of two axes */
    int64_t groups;     /* 0: 1 */
    bool residual;      /* an addend of the result's shape joins before the function */
    NdUnary act;        /* at the end, with a and b; one that conv_fuses */
    float a, b;
} ConvShape;

/* The convolution can end with that function. Local. */
bool conv_fuses(NdUnary f, double a, double b);

/* Size of the result along an axis of `size` (0: h, 1: w). */
static inline int64_t conv_out(const NdWindow *w, int axis, int64_t size) {
    return (size + w->before[axis] + w->after[axis] - (w->size[axis] - 1) * w->dilation[axis] - 1) / w->stride[axis] +
           1;
}

typedef struct Conv Conv;

/* Lets convolutions use no more than the ISA of a kernel table (its name: "ref", "avx2", "avx512vnni"; others: no
 * limit). Before the first conv_create of the process; later it fails. For jobs whose ranks must agree. Local. */
int conv_limit_isa(const char *kernels_name, Err *e);

/* Weights [o][kh][kw][c / groups] and bias [o] (or NULL) are repacked: they need not outlive the
 * call. Prepares the share of each of n_threads threads: scratchpads included, so that conv_run allocates nothing (but
 * for the few bytes oneDNN's own call takes). An empty shape (n, c or o of 0) is allowed: c of 0 gives bias alone. The
 * caller frees *out with conv_free. Local. */
int conv_create(const ConvShape *s, const float *weights, const float *bias, int n_threads, Conv **out, Err *e);
void conv_free(Conv *c); /* also of NULL */
/* Bytes of weights and bias as they are kept: the padding of oneDNN's layout included. Local. */
size_t conv_weight_bytes(const Conv *c);
/* What oneDNN calls the kernel it chose ("brgconv:avx512_core"); "none" for an empty shape. Local. */
const char *conv_kernel(const Conv *c);
/* The share of `thread`: x [n][h][w][c] -> y [n][h'][w'][o], both contiguous; `residual` as y, or NULL. All threads
 * 0 .. n_threads-1 must call it (any order). -1 when oneDNN fails. Local. */
int conv_run(const Conv *c, const float *x, const float *residual, float *y, int thread);
