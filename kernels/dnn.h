/* oneDNN behind a small wall: one convolution of one image by one thread. Only dnn.c includes dnnl.h. */
#pragma once

#include "base/err.h"
#include "kernels/nd.h"

typedef struct DnnShape {
    int64_t h, w, c, o; /* input [h][w][c] */
    int64_t oh, ow;     /* output [oh][ow][o] */
    NdWindow win;       /* of two axes */
    int64_t groups;
    bool residual;
    NdUnary act;
    float a, b;
} DnnShape;

/* The function can stand at the end of a convolution. */
bool dnn_fuses(NdUnary f, double a, double b);

typedef struct DnnConv DnnConv;

/* Weights [o][kh][kw][c / groups], bias [o] or NULL; both copied. When `like` (or NULL) has the
 * same weights and oneDNN wants them in the same layout here, its copy is used: `like` must then be freed after this
 * one. No dimension is 0. The caller frees *out. Local. */
int dnn_conv_create(const DnnShape *s, const float *weights, const float *bias, const DnnConv *like, DnnConv **out,
                    Err *e);
void dnn_conv_free(DnnConv *d);              /* also of NULL */
size_t dnn_conv_bytes(const DnnConv *d);     /* of weights and bias it owns */
const char *dnn_conv_name(const DnnConv *d); /* oneDNN's name of the kernel */
/* One image, on the calling thread alone; one thread at a time per DnnConv. -1 when oneDNN fails. Local. */
int dnn_conv_run(const DnnConv *d, const float *x, const float *residual, float *y);

/* See conv_limit_isa. */
int dnn_limit_isa(const char *kernels_name, Err *e);
