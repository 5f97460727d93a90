/* Whole-graph checks. */
#include "graph/graph.h"

/* Both shapes are equal but for constants of the last axis when `columns` is false. */
static bool same_shape(const Value *a, const Value *b, bool columns) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims - (columns ? 0 : 1); i++)
        if (a->dim[i].sym != b->dim[i].sym || a->dim[i].size != b->dim[i].size) return false;
    return true;
}

static bool same_rows(const Value *a, const Value *b) {
    return a->dim[0].sym == b->dim[0].sym && a->dim[0].size == b->dim[0].size;
}

static int check_op(const Graph *g, const Op *op, Err *e) {
    static const Value none;
    const Value *v[OP_IN];
    for (int i = 0; i < OP_IN; i++) v[i] = i < op->n_in ? &g->value[op->in[i]] : &none;
    const char *what = NULL;
    switch (op->kind) {
    case OP_EMBED:
        if (v[0]->type != QT_I32 || v[1]->n_dims != 2) what = "wants ids and a matrix";
        break;
    case OP_LINEAR:
        for (int i = 0; i < op->u.linear.n_weights; i++) {
            bool pairs = v[0]->dim[0].sym == DIM_PAIRS;
            if (v[1 + i]->n_dims != (pairs ? 3 : 2))
                what = pairs ? "pairs want a matrix for each expert" : "a weight is no matrix";
            else if (value_columns(g, op->in[1 + i]) != value_columns(g, op->in[0]))
                what = "columns of input and weight differ";
            else if (op->u.linear.bias && v[linear_bias_at(op, i)]->dim[0].size != value_rows(g, op->in[1 + i]))
                what = "bias and weight differ in size";
        }
        break;
    case OP_RMSNORM:
    case OP_LAYERNORM:
        for (int i = 1; i < op->n_in; i++)
            if (v[i]->n_dims != 1 || v[i]->dim[0].size != value_columns(g, op->in[0]))
                what = "the weight's size is not the input's";
        break;
    case OP_HEADNORM:
        if (v[1]->n_dims != 1 || !op->u.rope.head_dim || value_columns(g, op->in[0]) % op->u.rope.head_dim)
            what = "heads do not fill the input";
        break;
    case OP_ROPE_TABLE:
        for (int i = 1; i < op->n_in; i++)
            if (v[i]->n_dims != 1 || v[i]->dim[0].size * 2 != op->u.rope.shape.dim)
                what = "wants one factor for each pair of rotated dimensions";
        if ((op->n_in == 3) != (op->u.rope.shape.short_context > 0))
            what = "long and short factors, and the context that divides them, go together";
        break;
    case OP_ROPE:
        if (value_columns(g, op->in[0]) != (int64_t)op->u.rope.heads * op->u.rope.head_dim)
            what = "heads do not fill the input";
        else if (op->u.rope.shape.dim > op->u.rope.head_dim || op->u.rope.shape.dim % 2 || op->u.rope.shape.dim < 2 ||
                 value_columns(g, op->in[1]) < op->u.rope.shape.dim)
            what = "rotated dimensions out of range";
        break;
    case OP_KV_STORE:
        if (!same_shape(v[0], v[1], true) || value_columns(g, op->in[0]) != v[2]->dim[0].size)
            what = "keys, values and cache differ";
        break;
    case OP_ATTENTION:
        if (op->u.attn.kv_heads < 1 || op->u.attn.heads % op->u.attn.kv_heads)
            what = "heads are no multiple of KV heads";
        else if (op->u.attn.head_dim % 16 || op->u.attn.head_dim > 256)
            what = "head size must be a multiple of 16, at most 256";
        else if (value_columns(g, op->in[0]) != (int64_t)op->u.attn.heads * op->u.attn.head_dim)
            what = "heads do not fill the input";
        break;
    case OP_MEAN_ROWS:
        if (v[0]->n_dims != 2 || v[1]->type != QT_I32 || v[2]->type != QT_I32 || !same_shape(v[1], v[2], true))
            what = "wants rows, and where those of each result begin and end";
        break;
    case OP_SILU_MUL:
    case OP_GELU_MUL:
    case OP_ADD:
        if (!same_shape(v[0], v[1], true)) what = "the inputs' shapes differ";
        break;
    case OP_ROUTE:
        if (value_columns(g, op->in[0]) != op->u.mix.experts) what = "wants a logit for each expert";
        else if (op->u.mix.used < 1 || op->u.mix.used > op->u.mix.experts)
            what = "a token's experts are more than there are";
        break;
    case OP_GROUP:
        if (value_columns(g, op->in[0]) != INT64_C(2) * op->u.mix.used) what = "wants a routing";
        break;
    case OP_DISPATCH:
        if (v[1]->type != QT_I32 || !same_rows(v[0], v[1])) what = "wants groups of the input's rows";
        break;
    case OP_COMBINE:
        if (v[0]->dim[0].sym != DIM_PAIRS || v[2]->type != QT_I32 || !same_shape(v[1], v[2], true))
            what = "wants pairs, their routing and groups";
        break;
    case OP_GATE_ROWS:
        if (!same_rows(v[0], v[1]) || value_columns(g, op->in[1]) != 1) what = "wants one gate for each row";
        break;
    default: break;
    }
    return what ? err_set(e, "%s (%s): %s", op->name, op_kind_name(op->kind), what) : 0;
}

int graph_check(const Graph *g, Err *e) {
    if (g->failed) {
        if (e) *e = g->err;
        return -1;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        for (int j = 0; j < op->n_in; j++) {
            const Value *v = &g->value[op->in[j]];
            if (v->kind == VALUE_TEMP && (v->producer < 0 || v->producer >= i))
                return err_set(e, "%s: input %s is used before it is made", op->name, v->name);
        }
        if (check_op(g, op, e)) return -1;
    }
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i] < 0) return err_set(e, "the graph has no output");
    return 0;
}
