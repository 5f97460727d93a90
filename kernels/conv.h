/* fp32 convolution and pooling on [N][H][W][C] images. Convolution by oneDNN: each thread runs primitives of its own,
 * made once, on its own part of the result: whole images, bands of rows (pixels of a 1x1), slices of the output
 * channels, or a mixture. Results of oneDNN are the same for the same shape and number of threads on the same CPU, not
 * over ISAs. A relu turns NaN into 0 there (one instruction's way with NaN). */
#pragma once

#include "base/err.h"

typedef struct ConvShape {
    int64_t n, h, w, c; /* input */
    int64_t o;          /* output channels */
    int64_t kh, kw, stride, pad;
    bool depthwise; /* one filter per channel, o == c */
    bool relu;      /* max(., 0) at the end */
} ConvShape;

static inline int64_t conv_out(int64_t size, int64_t k, int64_t stride, int64_t pad) {
    return (size + 2 * pad - k) / stride + 1;
}

typedef struct Conv Conv;

/* Lets convolutions use no more than the ISA of a kernel table (its name: "ref", "avx2", "avx512vnni"; others: no
 * limit). Before the first conv_create of the process; later it fails. For jobs whose ranks must agree. Local. */
int conv_limit_isa(const char *kernels_name, Err *e);

/* Weights [o][kh][kw][c] ([o][kh][kw][1] when depthwise) and bias [o] (or NULL) are repacked: they need not outlive the
 * call. Prepares the share of each of n_threads threads: scratchpads included, so that conv_run allocates nothing (but
 * for the few bytes oneDNN's own call takes). An empty shape (n, c or o of 0) is allowed: c of 0 gives bias alone. The
 * caller frees *out with conv_free. Local. */
int conv_create(const ConvShape *s, const float *weights, const float *bias, int n_threads, Conv **out, Err *e);
void conv_free(Conv *c); /* also of NULL */
/* Bytes of weights and bias as they are kept: the padding of oneDNN's layout included. Local. */
size_t conv_weight_bytes(const Conv *c);
/* What oneDNN calls the kernel it chose ("brgconv:avx512_core"); "none" for an empty shape. Local. */
const char *conv_kernel(const Conv *c);
/* The share of `thread`: x [n][h][w][c] -> y [n][h'][w'][o], both contiguous. All threads 0 .. n_threads-1 must call it
 * (any order). -1 when oneDNN fails. Local. */
int conv_run(const Conv *c, const float *x, float *y, int thread);

typedef enum { CONV_POOL_MAX, CONV_POOL_AVERAGE } ConvPool; /* the average counts the padding's zeroes out */
/* Images [n0, n1) of x [n][h][w][c] -> y [n][h'][w'][c]. Padding is smaller than the window. Plain C. A NaN in a window
 * gives NaN. Local. */
void conv_pool(ConvPool kind, int64_t h, int64_t w, int64_t c, int64_t size, int64_t stride, int64_t pad, int64_t n0,
               int64_t n1, const float *x, float *y);
/* The same for rows [row0, row1) of the n * h' output rows: so that threads can share one image. Local. */
void conv_pool_rows(ConvPool kind, int64_t h, int64_t w, int64_t c, int64_t size, int64_t stride, int64_t pad,
                    int64_t row0, int64_t row1, const float *x, float *y);
/* Mean over h and w: y [n][c]. Local. */
void conv_global_average(int64_t h, int64_t w, int64_t c, int64_t n0, int64_t n1, const float *x, float *y);
