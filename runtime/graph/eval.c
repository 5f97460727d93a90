#include "graph/eval.h"

#include <string.h>

static void eval_concat(const Op *op, const Nd *in, Nd *out, NdPart p) {
    int64_t at = 0;
    for (int i = 0; i < op->n_in; i++) {
        nd_place(&in[i], op->u.along.axis, at, out, p);
        at += in[i].dim[op->u.along.axis];
    }
}

static void eval_conv(const Op *op, const Nd *in, Nd *out, NdPart p) {
    const Nd *bias = op->u.conv.bias ? &in[2] : NULL;
    nd_conv(&op->u.conv.window, op->u.conv.groups, &in[0], &in[1], bias, NULL, NULL, out, p);
}

static void eval_matmul(const Op *op, const Nd *in, Nd *out, NdPart p) {
    const Nd *a_zero = op->u.along.a_zero ? &in[2] : NULL;
    const Nd *b_zero = op->u.along.b_zero ? &in[2 + op->u.along.a_zero] : NULL;
    nd_matmul(&in[0], &in[1], a_zero, b_zero, out, p);
}

/* The whole image as one window gives [N][C]: the same elements as [N][1][1][C]. */
static void eval_pool(const Op *op, const Nd *in, Nd *out, NdPart p) {
    Nd y = *out;
    if (op->u.pool.global) {
        y.n_dims = in->n_dims;
        for (int i = 0; i < y.n_dims; i++) y.dim[i] = i == 0 || i == y.n_dims - 1 ? in->dim[i] : 1;
    }
    nd_pool(op->u.pool.kind, &op->u.pool.window, op->u.pool.exponent, op->u.pool.columns_first, in, &y, p);
}

int op_eval(const Op *op, const Nd *in, Nd *out, NdPart p, Err *e) {
    const Act *act = &op->u.unary;
    switch (op->kind) {
    case OP_UNARY: nd_unary(act->fn, act->a, act->b, in, out, p); return 0;
    case OP_ADD: nd_binary(ND_ADD, &in[0], &in[1], out, p); return 0;
    case OP_BINARY: nd_binary(op->u.binary.fn, &in[0], &in[1], out, p); return 0;
    case OP_WHERE: nd_where(&in[0], &in[1], &in[2], out, p); return 0;
    case OP_CAST: nd_cast(in, out, p); return 0;
    case OP_RESHAPE:
        if (p.thread == 0 && out->data != in->data && nd_count(in) > 0)
            memcpy(out->data, in->data, (size_t)nd_count(in) * nd_size(in->type));
        return 0;
    case OP_TRANSPOSE: nd_transpose(in, op->u.transpose.perm, out, p); return 0;
    case OP_EXPAND: nd_expand(in, out, p); return 0;
    case OP_CUT: nd_cut(in, op->u.cut.begin, op->u.cut.step, out, p); return 0;
    case OP_CONCAT: eval_concat(op, in, out, p); return 0;
    case OP_PAD: nd_pad(op->u.pad.mode, in, op->u.pad.before, op->u.pad.value, out, p); return 0;
    case OP_REDUCE: nd_reduce(op->u.reduce.fn, op->u.reduce.axes, in, out, p); return 0;
    case OP_SOFTMAX: nd_softmax(op->u.along.soft, op->u.along.axis, in, out, p); return 0;
    case OP_MATMUL: eval_matmul(op, in, out, p); return 0;
    case OP_GATHER: return nd_gather(op->u.along.axis, &in[0], &in[1], out, p, e);
    case OP_CONV: eval_conv(op, in, out, p); return 0;
    case OP_POOL: eval_pool(op, in, out, p); return 0;
    default: return err_set(e, "%s is no plain operator", op_kind_name(op->kind));
    }
}

static bool can_fold(const Graph *g, const Op *op) {
    enum { MOST_BYTES = 1 << 30 }; /* an expansion can be larger than memory */
    if (!op_is_plain(op->kind) && op->kind != OP_ADD && op->kind != OP_CONV && op->kind != OP_POOL) return false;
    for (int i = 0; i < op->n_in; i++) {
        const Value *v = &g->value[op->in[i]];
        if (v->kind != VALUE_WEIGHT || (!v->memory && value_count(g, op->in[i]) > 0)) return false;
    }
    return value_count(g, op->out[0]) * (int64_t)nd_size(g->value[op->out[0]].type) <= MOST_BYTES;
}

void graph_fold_last(Graph *g) {
    if (g->failed || g->n_ops == 0) return;
    const Op *op = &g->op[g->n_ops - 1];
    if (!can_fold(g, op)) return;
    Nd in[OP_IN] = {{.n_dims = 0}}, out = value_nd(g, op->out[0]);
    for (int i = 0; i < op->n_in; i++) in[i] = value_nd(g, op->in[i]);
    Err e = {""};
    out.data = op->kind == OP_RESHAPE ? in[0].data : graph_memory(g, (size_t)nd_count(&out) * nd_size(out.type));
    if (g->failed) return;
    if (op_eval(op, in, &out, (NdPart){0, 1}, &e)) {
        graph_fail(g, op->name, e.msg);
        return;
    }
    Value *v = &g->value[op->out[0]];
    v->kind = VALUE_WEIGHT;
    v->memory = out.data;
    v->offset = 0;
    v->producer = -1;
    g->n_ops--;
}
