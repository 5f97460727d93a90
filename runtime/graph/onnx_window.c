/* ONNX operators over windows of images, and normalisation per channel. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "graph/onnx_internal.h"

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Padding that makes the result ceil(size / stride) long, the odd pixel in front (SAME_LOWER) or behind. */
static void pad_same(NdWindow *w, int axis, int64_t size, bool lower) {
    int64_t extent = (w->size[axis] - 1) * w->dilation[axis] + 1;
    int64_t all = i64_max((ceil_div(size, w->stride[axis]) - 1) * w->stride[axis] + extent - size, 0);
    w->before[axis] = lower ? all - all / 2 : all / 2;
    w->after[axis] = all - w->before[axis];
}

/* Stride, dilation and padding of the node; sizes are there already. dims: of x as the file has it. */
static bool read_window(OnnxImport *im, int space, const int64_t *dims, NdWindow *w) {
    int64_t strides[ND_SPACE], dilations[ND_SPACE], pads[2 * ND_SPACE];
    int n_strides = onnx_ints(im, "strides", ND_SPACE, strides), n_pads = onnx_ints(im, "pads", 2 * ND_SPACE, pads);
    int n_dilations = onnx_ints(im, "dilations", ND_SPACE, dilations);
    if ((n_strides >= 0 && n_strides != space) || (n_dilations >= 0 && n_dilations != space) ||
        (n_pads >= 0 && n_pads != 2 * space)) {
        onnx_fail(im, "strides, dilations or pads do not fit %d axes", space);
        return false;
    }
    const char *automatic = onnx_string(im, "auto_pad", "NOTSET");
    bool same = !strncmp(automatic, "SAME", 4), by_pads = !strcmp(automatic, "NOTSET") && n_pads > 0;
    for (int i = 0; i < space; i++) {
        w->stride[i] = n_strides > 0 ? strides[i] : 1;
        w->dilation[i] = n_dilations > 0 ? dilations[i] : 1;
        w->before[i] = by_pads ? pads[i] : 0;
        w->after[i] = by_pads ? pads[space + i] : 0;
        if (w->stride[i] < 1 || w->dilation[i] < 1 || w->stride[i] > INT32_MAX || w->dilation[i] > INT32_MAX ||
            w->size[i] < 1 || w->size[i] > INT32_MAX) {
            onnx_fail(im, "window, stride or dilation out of range");
            return false;
        }
        if (same) pad_same(w, i, dims[2 + i], !strcmp(automatic, "SAME_LOWER"));
    }
    return !onnx_stopped(im);
}

/* Spatial axes of an image [N][C][..]; 0 after a failure. */
static int space_of(OnnxImport *im, ValueId x, int64_t *dims) {
    int n = onnx_dims(im, x, dims);
    if (n >= 3 && n <= 2 + ND_SPACE) return n - 2;
    onnx_fail(im, "an image with %d axes is not supported", n);
    return 0;
}

static void import_conv(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], filter[GRAPH_DIMS], kernel[ND_SPACE];
    ValueId x = onnx_in(im, 0), w = onnx_in(im, 1), bias = onnx_maybe_in(im, 2);
    int space = space_of(im, x, dims);
    NdWindow win = {{0}, {0}, {0}, {0}, {0}};
    if (!space || onnx_dims(im, w, filter) != space + 2) {
        onnx_fail(im, "image and filters have other numbers of axes");
        return;
    }
    int n_kernel = onnx_ints(im, "kernel_shape", ND_SPACE, kernel);
    for (int i = 0; i < space; i++) {
        win.size[i] = filter[2 + i];
        if (n_kernel >= 0 && (n_kernel != space || kernel[i] != filter[2 + i]))
            onnx_fail(im, "kernel_shape is not that of the filters");
    }
    if (!read_window(im, space, dims, &win)) return;
    ValueId y = graph_conv_window(im->g, im->label, onnx_channels_last(im, x), onnx_channels_last(im, w), bias, win,
                                  onnx_int(im, "group", 1));
    onnx_out(im, 0, onnx_channels_first(im, y));
}

/* arg: NdPool. */
static void import_pool(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int space = space_of(im, x, dims);
    NdWindow win = {{0}, {0}, {0}, {0}, {0}};
    if (!space) return;
    if (onnx_ints(im, "kernel_shape", ND_SPACE, win.size) != space) {
        onnx_fail(im, "kernel_shape does not fit %d axes", space);
        return;
    }
    if (!read_window(im, space, dims, &win)) return;
    NdPool kind = (NdPool)im->arg;
    if (kind == ND_POOL_AVERAGE && onnx_int(im, "count_include_pad", 0)) kind = ND_POOL_AVERAGE_PAD;
    bool ceil_mode = onnx_int(im, "ceil_mode", 0) != 0;
    x = onnx_channels_last(im, x);
    ValueId y = graph_pool_window(im->g, im->label, x, kind, win, ceil_mode);
    if (y >= 0 && kind == ND_POOL_L2) im->g->op[im->g->n_ops - 1].u.pool.exponent = (double)onnx_int(im, "p", 2);
    onnx_out(im, 0, onnx_channels_first(im, y));
    if (!onnx_wants_out(im, 1) || kind != ND_POOL_MAX) return;
    y = graph_pool_window(im->g, im->label, x, ND_POOL_ARGMAX, win, ceil_mode);
    if (y >= 0) im->g->op[im->g->n_ops - 1].u.pool.columns_first = onnx_int(im, "storage_order", 0) != 0;
    onnx_out(im, 1, onnx_channels_first(im, y));
}

/* arg: NdPool, over the whole image. */
static void import_global_pool(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], one[GRAPH_DIMS] = {0};
    ValueId x = onnx_in(im, 0);
    int space = space_of(im, x, dims);
    if (!space) return;
    NdWindow win = {{0}, {1, 1, 1}, {1, 1, 1}, {0}, {0}};
    one[0] = dims[0];
    for (int i = 0; i < space; i++) {
        win.size[i] = dims[2 + i];
        one[1 + i] = 1;
    }
    one[1 + space] = dims[1];
    x = onnx_channels_last(im, x);
    ValueId y = im->arg == ND_POOL_AVERAGE ? graph_pool(im->g, im->label, x, POOL_GLOBAL_AVERAGE, 0, 0, 0)
                                           : graph_pool_window(im->g, im->label, x, (NdPool)im->arg, win, false);
    if (y >= 0 && im->arg == ND_POOL_L2) im->g->op[im->g->n_ops - 1].u.pool.exponent = (double)onnx_int(im, "p", 2);
    y = graph_reshape(im->g, im->label, y, space + 2, one);
    onnx_out(im, 0, onnx_channels_first(im, y));
}

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

/* A vector [C] so that it meets axis 1 of a value with n axes. */
static ValueId by_channel(OnnxImport *im, ValueId v, int n) {
    int64_t dims[GRAPH_DIMS];
    if (v < 0) return -1;
    dims[0] = value_count(im->g, v);
    for (int i = 1; i < n - 1; i++) dims[i] = 1;
    return graph_reshape(im->g, im->label, v, n > 1 ? n - 1 : 1, dims);
}

/* (x - mean) / sqrt(variance + eps) * scale + bias as one factor and one addend per channel. The factor of constants is
 * rounded once. */
static void import_batch_norm(OnnxImport *im) {
    ValueId x = onnx_in(im, 0), v[4];
    if (onnx_int(im, "training_mode", 0)) onnx_fail(im, "training is not supported");
    for (int i = 0; i < 4; i++) v[i] = onnx_in(im, 1 + i);
    if (onnx_stopped(im)) return;
    int n = im->g->value[x].n_dims;
    Graph *g = im->g;
    QType type = onnx_type_of(im, x);
    for (int i = 0; i < 4; i++) v[i] = graph_cast(g, im->label, v[i], QT_F64);
    ValueId eps = onnx_const_f64(im, QT_F64, onnx_float(im, "epsilon", 1e-5));
    ValueId root = graph_unary(g, im->label, graph_binary(g, im->label, v[3], eps, ND_ADD), (Act){.fn = ND_SQRT});
    ValueId factor = graph_binary(g, im->label, v[0], root, ND_DIV);
    ValueId addend = graph_binary(g, im->label, v[1], graph_binary(g, im->label, v[2], factor, ND_MUL), ND_SUB);
    factor = by_channel(im, graph_cast(g, im->label, factor, type), n);
    addend = by_channel(im, graph_cast(g, im->label, addend, type), n);
    x = graph_binary(g, im->label, x, factor, ND_MUL);
    onnx_out(im, 0, graph_binary(g, im->label, x, addend, ND_ADD));
}

const OnnxRow onnx_window_rows[] = {
    {"AveragePool", import_pool, ND_POOL_AVERAGE},
    {"BatchNormalization", import_batch_norm, 0},
    {"Conv", import_conv, 0},
    {"GlobalAveragePool", import_global_pool, ND_POOL_AVERAGE},
    {"GlobalLpPool", import_global_pool, ND_POOL_L2},
    {"GlobalMaxPool", import_global_pool, ND_POOL_MAX},
    {"LpPool", import_pool, ND_POOL_L2},
    {"MaxPool", import_pool, ND_POOL_MAX},
    {NULL, NULL, 0},
};
