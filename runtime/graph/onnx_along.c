/* ONNX operators along axes: products of matrices, reductions, softmax. */
#include <string.h>

#include "graph/onnx_internal.h"

/* ---- products ---------------------------------------------------------------------------------------------------- */

static ValueId matrix_transpose(OnnxImport *im, ValueId v) {
    return graph_transpose(im->g, im->label, v, (int[]){1, 0});
}

/* A linear for a constant fp32 matrix [K][N] (or [N][K] when `turned`); the last axis of x is K. */
static ValueId linear(OnnxImport *im, ValueId x, ValueId w, bool turned, ValueId bias) {
    if (!turned) w = matrix_transpose(im, w);
    return graph_linear(im->g, im->label, x, w, bias);
}

static bool is_linear(const OnnxImport *im, ValueId x, ValueId w) {
    const Value *xv = &im->g->value[x], *wv = &im->g->value[w];
    return xv->type == QT_F32 && wv->type == QT_F32 && wv->kind == VALUE_WEIGHT && wv->n_dims == 2 && xv->n_dims >= 2 &&
           xv->kind != VALUE_WEIGHT && value_count(im->g, w) > 0 && value_count(im->g, x) > 0;
}

static void import_matmul(OnnxImport *im) {
    ValueId a = onnx_in(im, 0), b = onnx_in(im, 1);
    if (onnx_stopped(im)) return;
    int64_t da[GRAPH_DIMS], db[GRAPH_DIMS];
    int n = onnx_dims(im, a, da);
    onnx_dims(im, b, db);
    bool fast = is_linear(im, a, b) && da[n - 1] == db[0];
    onnx_out(im, 0, fast ? linear(im, a, b, false, -1) : graph_matmul(im->g, im->label, a, b, -1, -1));
}

static ValueId scaled(OnnxImport *im, ValueId v, double factor) {
    if (factor == 1 || v < 0) return v;
    return graph_binary(im->g, im->label, v, onnx_const_f64(im, onnx_type_of(im, v), factor), ND_MUL);
}

/* alpha a b + beta c. */
static void import_gemm(OnnxImport *im) {
    ValueId a = onnx_in(im, 0), b = onnx_in(im, 1), c = onnx_maybe_in(im, 2);
    double alpha = onnx_float(im, "alpha", 1), beta = onnx_float(im, "beta", 1);
    bool turn_a = onnx_int(im, "transA", 0) != 0, turn_b = onnx_int(im, "transB", 0) != 0;
    if (onnx_stopped(im)) return;
    if (im->g->value[a].n_dims != 2 || im->g->value[b].n_dims != 2) {
        onnx_fail(im, "wants two matrices");
        return;
    }
    if (turn_a) a = matrix_transpose(im, a);
    c = scaled(im, c, beta);
    int64_t da[GRAPH_DIMS], db[GRAPH_DIMS], dc[GRAPH_DIMS];
    onnx_dims(im, a, da);
    onnx_dims(im, b, db);
    bool per_output =
        c >= 0 && im->g->value[c].kind == VALUE_WEIGHT && onnx_dims(im, c, dc) == 1 && dc[0] == db[turn_b ? 0 : 1];
    ValueId y;
    if (is_linear(im, a, b) && da[1] == db[turn_b ? 1 : 0]) {
        y = linear(im, a, scaled(im, b, alpha), turn_b, per_output ? c : -1);
        if (per_output) c = -1;
    } else y = scaled(im, graph_matmul(im->g, im->label, a, turn_b ? matrix_transpose(im, b) : b, -1, -1), alpha);
    onnx_out(im, 0, c >= 0 ? graph_binary(im->g, im->label, y, c, ND_ADD) : y);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Until opset 12 (17, but for sums) the axes are an attribute, then an input. */
static void import_reduce(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], axes[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), given = -1;
    if (onnx_has_in(im, 1)) given = onnx_constant_ints(im, 1, "the axes", GRAPH_DIMS, axes);
    else given = onnx_ints(im, "axes", GRAPH_DIMS, axes);
    bool keep = onnx_int(im, "keepdims", 1) != 0, nothing = onnx_int(im, "noop_with_empty_axes", 0) != 0;
    uint32_t mask = 0;
    for (int i = 0; i < given; i++) mask |= 1u << onnx_axis(im, axes[i], n);
    if (onnx_stopped(im)) return;
    if (given <= 0 && nothing && im->arg != ND_MEAN) { /* each element by itself: squares and logarithms too */
        onnx_out(im, 0, graph_reduce(im->g, im->label, x, (NdReduce)im->arg, 0, true));
        return;
    }
    if (given <= 0) mask = nothing ? 0 : (1u << n) - 1;
    onnx_out(im, 0, graph_reduce(im->g, im->label, x, (NdReduce)im->arg, mask, keep));
}

/* Until opset 12 over all axes from `axis` on, as one. */
static void import_softmax(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], two[2] = {1, 1};
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims);
    int axis = onnx_axis(im, onnx_int(im, "axis", im->m->opset < 13 ? 1 : -1), n);
    if (onnx_stopped(im)) return;
    if (im->m->opset >= 13 || axis == n - 1) {
        onnx_out(im, 0, graph_softmax(im->g, im->label, x, (NdSoftmax)im->arg, axis));
        return;
    }
    for (int i = 0; i < n; i++) two[i >= axis] *= dims[i];
    x = graph_reshape(im->g, im->label, x, 2, two);
    x = graph_softmax(im->g, im->label, x, (NdSoftmax)im->arg, 1);
    onnx_out(im, 0, graph_reshape(im->g, im->label, x, n, dims));
}

const OnnxRow onnx_along_rows[] = {
    {"Gemm", import_gemm, 0},
    {"Hardmax", import_softmax, ND_HARDMAX},
    {"LogSoftmax", import_softmax, ND_LOG_SOFTMAX},
    {"MatMul", import_matmul, 0},
    {"ReduceL1", import_reduce, ND_L1},
    {"ReduceL2", import_reduce, ND_L2},
    {"ReduceLogSum", import_reduce, ND_LOG_SUM},
    {"ReduceLogSumExp", import_reduce, ND_LOG_SUM_EXP},
    {"ReduceMax", import_reduce, ND_REDUCE_MAX},
    {"ReduceMean", import_reduce, ND_MEAN},
    {"ReduceMin", import_reduce, ND_REDUCE_MIN},
    {"ReduceProd", import_reduce, ND_PROD},
    {"ReduceSum", import_reduce, ND_SUM},
    {"ReduceSumSquare", import_reduce, ND_SUM_SQUARE},
    {"Softmax", import_softmax, ND_SOFTMAX},
    {NULL, NULL, 0},
};
