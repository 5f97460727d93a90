/* The graph as text. */
#include <inttypes.h>
#include <stdlib.h>

#include "graph/graph.h"

static const char *const unary_names[ND_UNARY_COUNT] = {
    [ND_IDENTITY] = "identity",
    [ND_ABS] = "abs",
    [ND_NEG] = "neg",
    [ND_SIGN] = "sign",
    [ND_CEIL] = "ceil",
    [ND_FLOOR] = "floor",
    [ND_ROUND] = "round",
    [ND_SQRT] = "sqrt",
    [ND_RECIPROCAL] = "reciprocal",
    [ND_NOT] = "not",
    [ND_BITWISE_NOT] = "bitwise_not",
    [ND_IS_NAN] = "is_nan",
    [ND_IS_INF] = "is_inf",
    [ND_CLIP] = "clip",
    [ND_RELU] = "relu",
    [ND_LEAKY_RELU] = "leaky_relu",
    [ND_THRESHOLDED] = "thresholded",
    [ND_SHRINK] = "shrink",
    [ND_HARD_SIGMOID] = "hard_sigmoid",
    [ND_HARD_SWISH] = "hard_swish",
    [ND_EXP] = "exp",
    [ND_LOG] = "log",
    [ND_SIGMOID] = "sigmoid",
    [ND_SILU] = "silu",
    [ND_TANH] = "tanh",
    [ND_ERF] = "erf",
    [ND_GELU] = "gelu",
    [ND_GELU_TANH] = "gelu_tanh",
    [ND_ELU] = "elu",
    [ND_CELU] = "celu",
    [ND_SOFTPLUS] = "softplus",
    [ND_SOFTSIGN] = "softsign",
    [ND_MISH] = "mish",
    [ND_SIN] = "sin",
    [ND_COS] = "cos",
    [ND_TAN] = "tan",
    [ND_ASIN] = "asin",
    [ND_ACOS] = "acos",
    [ND_ATAN] = "atan",
    [ND_SINH] = "sinh",
    [ND_COSH] = "cosh",
    [ND_ASINH] = "asinh",
    [ND_ACOSH] = "acosh",
    [ND_ATANH] = "atanh",
};
static const char *const binary_names[ND_BINARY_COUNT] = {
    [ND_ADD] = "add",
    [ND_SUB] = "sub",
    [ND_MUL] = "mul",
    [ND_DIV] = "div",
    [ND_POW] = "pow",
    [ND_MIN] = "min",
    [ND_MAX] = "max",
    [ND_MOD] = "mod",
    [ND_FMOD] = "fmod",
    [ND_PRELU] = "prelu",
    [ND_BIT_AND] = "bit_and",
    [ND_BIT_OR] = "bit_or",
    [ND_BIT_XOR] = "bit_xor",
    [ND_SHIFT_LEFT] = "shift_left",
    [ND_SHIFT_RIGHT] = "shift_right",
    [ND_EQUAL] = "equal",
    [ND_LESS] = "less",
    [ND_LESS_EQUAL] = "less_equal",
    [ND_GREATER] = "greater",
    [ND_GREATER_EQUAL] = "greater_equal",
    [ND_AND] = "and",
    [ND_OR] = "or",
    [ND_XOR] = "xor",
};
static const char *const reduce_names[ND_REDUCE_COUNT] = {
    [ND_SUM] = "sum",         [ND_MEAN] = "mean",
    [ND_REDUCE_MAX] = "max",  [ND_REDUCE_MIN] = "min",
    [ND_PROD] = "prod",       [ND_L1] = "l1",
    [ND_L2] = "l2",           [ND_SUM_SQUARE] = "sum_square",
    [ND_LOG_SUM] = "log_sum", [ND_LOG_SUM_EXP] = "log_sum_exp",
};
static const char *const pad_names[] = {"constant", "reflect", "edge", "wrap"};
static const char *const pool_names[] = {"max", "average", "average with padding", "l2", "argmax"};

static void add_act(const Act *act, StrBuf *out) {
    strbuf_puts(out, unary_names[act->fn]);
    if (act->a != 0 || act->b != 0) strbuf_printf(out, " %.17g %.17g", act->a, act->b);
}

static void add_list(const char *what, int n, const int64_t *x, StrBuf *out) {
    strbuf_printf(out, "%s%s ", out->len ? " " : "", what);
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%" PRId64, i ? "," : "", x[i]);
}

static bool all_are(int n, const int64_t *x, int64_t usual) {
    for (int i = 0; i < n; i++)
        if (x[i] != usual) return false;
    return true;
}

static void add_window(const NdWindow *w, StrBuf *out) {
    int n = ND_SPACE;
    while (n > 1 && !w->size[n - 1]) n--;
    add_list("window", n, w->size, out);
    if (!all_are(n, w->stride, 1)) add_list("stride", n, w->stride, out);
    if (!all_are(n, w->dilation, 1)) add_list("dilation", n, w->dilation, out);
    if (all_are(n, w->before, 0) && all_are(n, w->after, 0)) return;
    add_list("pad", n, w->before, out);
    add_list("to", n, w->after, out);
}

static void add_axes(uint32_t axes, StrBuf *out) {
    for (int i = 0; i < GRAPH_DIMS; i++)
        if (axes >> i & 1) strbuf_printf(out, " %d", i);
}

void op_attributes(const Op *op, StrBuf *out) {
    int64_t perm[GRAPH_DIMS];
    int n = GRAPH_DIMS, last;
    switch (op->kind) {
    case OP_VIEW: strbuf_printf(out, "[%" PRId64 ", %" PRId64 ")", op->u.view.begin, op->u.view.end); break;
    case OP_CONV:
        add_window(&op->u.conv.window, out);
        if (op->u.conv.groups != 1) strbuf_printf(out, " groups %" PRId64, op->u.conv.groups);
        if (op->u.conv.residual) strbuf_puts(out, " + residual");
        if (op->u.conv.act.fn != ND_IDENTITY) {
            strbuf_puts(out, ", ");
            add_act(&op->u.conv.act, out);
        }
        break;
    case OP_POOL:
        strbuf_puts(out, pool_names[op->u.pool.kind]);
        add_window(&op->u.pool.window, out);
        if (op->u.pool.global) strbuf_puts(out, " of all");
        if (op->u.pool.kind == ND_POOL_L2) strbuf_printf(out, " exponent %.17g", op->u.pool.exponent);
        if (op->u.pool.columns_first) strbuf_puts(out, " columns first");
        break;
    case OP_UNARY: add_act(&op->u.unary, out); break;
    case OP_BINARY: strbuf_puts(out, binary_names[op->u.binary.fn]); break;
    case OP_TRANSPOSE:
        last = 0; /* of a permutation the largest */
        for (int i = 0; i < n; i++) {
            perm[i] = op->u.transpose.perm[i];
            if (perm[i] > last) last = (int)perm[i];
        }
        add_list("to", last + 1, perm, out);
        break;
    case OP_CUT:
        while (n > 1 && !op->u.cut.step[n - 1]) n--;
        add_list("from", n, op->u.cut.begin, out);
        add_list("step", n, op->u.cut.step, out);
        break;
    case OP_PAD:
        strbuf_puts(out, pad_names[op->u.pad.mode]);
        while (n > 1 && !op->u.pad.before[n - 1]) n--;
        add_list("before", n, op->u.pad.before, out);
        if (op->u.pad.value != 0) strbuf_printf(out, " with %.17g", op->u.pad.value);
        break;
    case OP_REDUCE:
        strbuf_puts(out, reduce_names[op->u.reduce.fn]);
        add_axes(op->u.reduce.axes, out);
        break;
    case OP_CONCAT:
    case OP_GATHER: strbuf_printf(out, "axis %d", op->u.along.axis); break;
    case OP_SOFTMAX:
        strbuf_printf(out, "axis %d%s", op->u.along.axis,
                      op->u.along.soft == ND_SOFTMAX   ? ""
                      : op->u.along.soft == ND_HARDMAX ? " hard"
                                                       : " log");
        break;
    case OP_MATMUL: strbuf_printf(out, "%s%s", op->u.along.a_zero ? "-a" : "", op->u.along.b_zero ? "-b" : ""); break;
    default: break;
    }
}

static void add_shape(const Value *v, StrBuf *out) {
    strbuf_add(out, "[", 1);
    for (int i = 0; i < v->n_dims; i++) {
        if (i) strbuf_add(out, ",", 1);
        if (v->dim[i].sym == DIM_CONST) strbuf_printf(out, "%" PRId64, v->dim[i].size);
        else strbuf_add(out, &"?TRP"[v->dim[i].sym], 1);
    }
    strbuf_add(out, "] ", 2);
}

char *graph_text(const Graph *g) {
    StrBuf out = {0}, what = {0};
    char *text = NULL;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        for (int j = 0; j < op->n_out; j++) {
            const Value *v = &g->value[op->out[j]];
            strbuf_printf(&out, "%%%d ", op->out[j]);
            add_shape(v, &out);
            strbuf_printf(&out, "%s = ", qtype_info(v->type)->name);
        }
        strbuf_printf(&out, "%s %s", op_kind_name(op->kind), op->name);
        what.len = 0;
        op_attributes(op, &what);
        if (what.len) strbuf_printf(&out, op->kind == OP_VIEW ? " %s" : " (%s)", what.data);
        for (int j = 0; j < op->n_in; j++) {
            const Value *v = &g->value[op->in[j]];
            if (v->kind == VALUE_TEMP) strbuf_printf(&out, " %%%d", op->in[j]);
            else strbuf_printf(&out, " %s", v->name);
        }
        strbuf_add(&out, "\n", 1);
    }
    strbuf_free(&what);
    return strbuf_take(&out, &text, NULL) ? NULL : text;
}
