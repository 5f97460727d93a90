#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void graph_init(Graph *g) { *g = (Graph){.output = -1}; }

void graph_free(Graph *g) {
    free(g->value);
    free(g->op);
    graph_init(g);
}

static ValueId fail(Graph *g, const char *what, const char *name) {
    if (!g->failed) err_set(&g->err, "%s: %s", name, what);
    g->failed = true;
    return -1;
}

/* Room for one more element; false on lack of memory. */
static bool grow(void **array, int32_t n, int32_t *cap, size_t size) {
    if (n < *cap) return true;
    int32_t more = *cap ? *cap * 2 : 64;
    void *p = realloc(*array, (size_t)more * size);
    if (!p) return false;
    *array = p;
    *cap = more;
    return true;
}

static ValueId add_value(Graph *g, const Value *v) {
    if (g->failed) return -1;
    if (!grow((void **)&g->value, g->n_values, &g->cap_values, sizeof *g->value))
        return fail(g, "out of memory", v->name);
    g->value[g->n_values] = *v;
    return g->n_values++;
}

void graph_push(Graph *g, const Op *op) {
    if (g->failed) return;
    if (!grow((void **)&g->op, g->n_ops, &g->cap_ops, sizeof *g->op)) {
        fail(g, "out of memory", op->name);
        return;
    }
    for (int i = 0; i < op->n_out; i++) g->value[op->out[i]].producer = g->n_ops;
    g->op[g->n_ops++] = *op;
}

ValueId graph_temp_like(Graph *g, ValueId v, const char *name) {
    if (g->failed) return -1;
    Value t = g->value[v];
    t.kind = VALUE_TEMP;
    t.producer = -1;
    t.tensor = -1;
    t.memory = NULL;
    snprintf(t.name, sizeof t.name, "%s", name);
    return add_value(g, &t);
}

int graph_uses(const Graph *g, ValueId v) {
    int n = g->output == v;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; j < g->op[i].n_in; j++) n += g->op[i].in[j] == v;
    return n;
}

Dim dim_const(int64_t n) { return (Dim){DIM_CONST, n}; }
Dim dim_tokens(void) { return (Dim){DIM_TOKENS, 0}; }
Dim dim_outputs(void) { return (Dim){DIM_OUTPUTS, 0}; }

int64_t value_columns(const Graph *g, ValueId v) { return g->value[v].dim[g->value[v].n_dims - 1].size; }
int64_t value_rows(const Graph *g, ValueId v) {
    const Value *x = &g->value[v];
    return x->dim[x->n_dims > 1 ? x->n_dims - 2 : 0].size;
}

ValueId graph_input(Graph *g, const char *name, QType t, int n_dims, const Dim *dims) {
    Value v = {.kind = VALUE_INPUT, .type = t, .n_dims = n_dims, .producer = -1, .tensor = -1};
    snprintf(v.name, sizeof v.name, "%s", name);
    memcpy(v.dim, dims, (size_t)n_dims * sizeof *dims);
    return add_value(g, &v);
}

ValueId graph_state(Graph *g, const char *name, int kv_heads, int head_dim) {
    Value v = {.kind = VALUE_STATE, .type = QT_F16, .n_dims = 1, .producer = -1, .tensor = -1};
    v.dim[0] = dim_const((int64_t)kv_heads * head_dim);
    snprintf(v.name, sizeof v.name, "%s", name);
    return add_value(g, &v);
}

ValueId graph_weight(Graph *g, const char *name, QType t, int n_dims, const int64_t *dims, int32_t tensor,
                     const void *memory) {
    Value v = {.kind = VALUE_WEIGHT, .type = t, .n_dims = n_dims, .producer = -1, .tensor = tensor, .memory = memory};
    snprintf(v.name, sizeof v.name, "%s", name);
    for (int i = 0; i < n_dims; i++) v.dim[i] = dim_const(dims[i]);
    return add_value(g, &v);
}

/* A new operator with the given inputs and one output of the given shape. */
static ValueId emit(Graph *g, Op op, const char *name, int n_in, const ValueId *in, Value shape) {
    if (g->failed) return -1;
    op.n_in = n_in;
    memcpy(op.in, in, (size_t)n_in * sizeof *in);
    snprintf(op.name, sizeof op.name, "%s", name);
    shape.kind = VALUE_TEMP;
    shape.producer = -1;
    shape.tensor = -1;
    shape.memory = NULL;
    snprintf(shape.name, sizeof shape.name, "%s", name);
    ValueId out = add_value(g, &shape);
    op.n_out = 1;
    op.out[0] = out;
    graph_push(g, &op);
    return g->failed ? -1 : out;
}

/* Nothing failed before, and the values are there: a builder goes on after a weight that it did not find. */
static bool given(Graph *g, const char *name, int n_in, const ValueId *in) {
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0) fail(g, "an input is missing", name);
    return !g->failed;
}

/* A copy of x's shape with another number of columns, fp32. */
static Value with_columns(const Graph *g, ValueId x, int64_t columns) {
    Value v = g->value[x];
    v.type = QT_F32;
    v.dim[v.n_dims - 1] = dim_const(columns);
    return v;
}

ValueId graph_embed(Graph *g, const char *name, ValueId ids, ValueId w) {
    if (!given(g, name, 2, (ValueId[]){ids, w})) return -1;
    Value v = {.type = QT_F32, .n_dims = 2};
    v.dim[0] = g->value[ids].dim[0];
    v.dim[1] = g->value[w].dim[1];
    return emit(g, (Op){.kind = OP_EMBED}, name, 2, (ValueId[]){ids, w}, v);
}

ValueId graph_linear(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias) {
    if (!given(g, name, 2, (ValueId[]){x, w})) return -1;
    if (value_columns(g, x) != value_columns(g, w)) return fail(g, "columns of input and weight differ", name);
    Op op = {.kind = OP_LINEAR};
    op.u.linear.n_weights = 1;
    op.u.linear.bias = bias >= 0;
    return emit(g, op, name, bias >= 0 ? 3 : 2, (ValueId[]){x, w, bias}, with_columns(g, x, value_rows(g, w)));
}

ValueId graph_rmsnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps) {
    if (!given(g, name, 2, (ValueId[]){x, w})) return -1;
    Op op = {.kind = OP_RMSNORM};
    op.u.norm.eps = eps;
    return emit(g, op, name, 2, (ValueId[]){x, w}, g->value[x]);
}

ValueId graph_layernorm(Graph *g, const char *name, ValueId x, ValueId w, ValueId b, float eps) {
    if (!given(g, name, 3, (ValueId[]){x, w, b})) return -1;
    Op op = {.kind = OP_LAYERNORM};
    op.u.norm.eps = eps;
    return emit(g, op, name, 3, (ValueId[]){x, w, b}, g->value[x]);
}

ValueId graph_headnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps) {
    if (!given(g, name, 2, (ValueId[]){x, w})) return -1;
    Op op = {.kind = OP_HEADNORM};
    op.u.rope.head_dim = (int)g->value[w].dim[0].size;
    op.u.rope.heads = op.u.rope.head_dim ? (int)(value_columns(g, x) / op.u.rope.head_dim) : 0;
    op.u.rope.eps = eps;
    return emit(g, op, name, 2, (ValueId[]){x, w}, g->value[x]);
}

static ValueId emit_rope_table(Graph *g, const char *name, int n_in, const ValueId *in, RopeShape shape) {
    if (!given(g, name, n_in, in)) return -1;
    Op op = {.kind = OP_ROPE_TABLE};
    op.u.rope.shape = shape;
    Value v = {.type = QT_F32, .n_dims = 2};
    v.dim[0] = g->value[in[0]].dim[0];
    v.dim[1] = dim_const(shape.dim);
    return emit(g, op, name, n_in, in, v);
}

ValueId graph_rope_table(Graph *g, const char *name, ValueId positions, ValueId factors, RopeShape shape) {
    return emit_rope_table(g, name, factors >= 0 ? 2 : 1, (ValueId[]){positions, factors}, shape);
}

ValueId graph_longrope_table(Graph *g, const char *name, ValueId positions, ValueId short_factors, ValueId long_factors,
                             RopeShape shape) {
    return emit_rope_table(g, name, 3, (ValueId[]){positions, short_factors, long_factors}, shape);
}

ValueId graph_rope(Graph *g, const char *name, ValueId x, ValueId table, int heads, int head_dim, RopeShape shape) {
    if (!given(g, name, 2, (ValueId[]){x, table})) return -1;
    Op op = {.kind = OP_ROPE};
    op.u.rope.heads = heads;
    op.u.rope.head_dim = head_dim;
    op.u.rope.shape = shape;
    return emit(g, op, name, 2, (ValueId[]){x, table}, g->value[x]);
}

ValueId graph_attention(Graph *g, const char *name, ValueId q, ValueId k, ValueId v, ValueId state, AttnShape shape) {
    if (!given(g, name, 4, (ValueId[]){q, k, v, state})) return -1;
    Op op = {.kind = OP_KV_STORE, .n_in = 3, .in = {k, v, state}};
    op.u.attn = shape;
    snprintf(op.name, sizeof op.name, "%.40s.store", name);
    graph_push(g, &op);
    g->value[state].window = shape.window;
    op.kind = OP_ATTENTION;
    return emit(g, op, name, 2, (ValueId[]){q, state}, g->value[q]);
}

ValueId graph_silu_mul(Graph *g, const char *name, ValueId gate, ValueId up) {
    if (!given(g, name, 2, (ValueId[]){gate, up})) return -1;
    return emit(g, (Op){.kind = OP_SILU_MUL}, name, 2, (ValueId[]){gate, up}, g->value[gate]);
}

ValueId graph_gelu_mul(Graph *g, const char *name, ValueId gate, ValueId up) {
    if (!given(g, name, 2, (ValueId[]){gate, up})) return -1;
    return emit(g, (Op){.kind = OP_GELU_MUL}, name, 2, (ValueId[]){gate, up}, g->value[gate]);
}

static ValueId emit_factor(Graph *g, OpKind kind, const char *name, ValueId x, float factor) {
    if (!given(g, name, 1, &x)) return -1;
    Op op = {.kind = kind};
    op.u.scale.factor = factor;
    return emit(g, op, name, 1, &x, g->value[x]);
}

ValueId graph_scale(Graph *g, const char *name, ValueId x, float factor) {
    return emit_factor(g, OP_SCALE, name, x, factor);
}

ValueId graph_softcap(Graph *g, const char *name, ValueId x, float cap) {
    return emit_factor(g, OP_SOFTCAP, name, x, cap);
}

ValueId graph_gelu(Graph *g, const char *name, ValueId x) {
    if (!given(g, name, 1, &x)) return -1;
    return emit(g, (Op){.kind = OP_GELU}, name, 1, &x, g->value[x]);
}

ValueId graph_relu(Graph *g, const char *name, ValueId x) {
    if (!given(g, name, 1, &x)) return -1;
    return emit(g, (Op){.kind = OP_RELU}, name, 1, &x, g->value[x]);
}

ValueId graph_add(Graph *g, const char *name, ValueId a, ValueId b) {
    if (!given(g, name, 2, (ValueId[]){a, b})) return -1;
    return emit(g, (Op){.kind = OP_ADD}, name, 2, (ValueId[]){a, b}, g->value[a]);
}

ValueId graph_view(Graph *g, const char *name, ValueId x, int64_t begin, int64_t end) {
    if (!given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_VIEW};
    op.u.view.begin = begin;
    op.u.view.end = end;
    return emit(g, op, name, 1, &x, with_columns(g, x, end - begin));
}

ValueId graph_select(Graph *g, const char *name, ValueId x, ValueId rows) {
    if (!given(g, name, 2, (ValueId[]){x, rows})) return -1;
    Value v = g->value[x];
    v.dim[0] = g->value[rows].dim[0];
    return emit(g, (Op){.kind = OP_SELECT}, name, 2, (ValueId[]){x, rows}, v);
}

ValueId graph_mean_rows(Graph *g, const char *name, ValueId x, ValueId begin, ValueId end) {
    if (!given(g, name, 3, (ValueId[]){x, begin, end})) return -1;
    Value v = g->value[x];
    v.dim[0] = g->value[begin].dim[0];
    return emit(g, (Op){.kind = OP_MEAN_ROWS}, name, 3, (ValueId[]){x, begin, end}, v);
}

ValueId graph_route(Graph *g, const char *name, ValueId logits, MixShape mix) {
    if (!given(g, name, 1, &logits)) return -1;
    Op op = {.kind = OP_ROUTE};
    op.u.mix = mix;
    return emit(g, op, name, 1, &logits, with_columns(g, logits, INT64_C(2) * mix.used));
}

ValueId graph_group(Graph *g, const char *name, ValueId routing, MixShape mix) {
    if (!given(g, name, 1, &routing)) return -1;
    Op op = {.kind = OP_GROUP};
    op.u.mix = mix;
    Value v = g->value[routing];
    v.type = QT_I32;
    return emit(g, op, name, 1, &routing, v);
}

ValueId graph_dispatch(Graph *g, const char *name, ValueId x, ValueId groups, MixShape mix) {
    if (!given(g, name, 2, (ValueId[]){x, groups})) return -1;
    Op op = {.kind = OP_DISPATCH};
    op.u.mix = mix;
    Value v = g->value[x];
    v.dim[0] = (Dim){DIM_PAIRS, mix.used};
    return emit(g, op, name, 2, (ValueId[]){x, groups}, v);
}

ValueId graph_combine(Graph *g, const char *name, ValueId y, ValueId routing, ValueId groups, MixShape mix) {
    if (!given(g, name, 3, (ValueId[]){y, routing, groups})) return -1;
    Op op = {.kind = OP_COMBINE};
    op.u.mix = mix;
    Value v = g->value[y];
    v.dim[0] = g->value[routing].dim[0];
    return emit(g, op, name, 3, (ValueId[]){y, routing, groups}, v);
}

ValueId graph_gate_rows(Graph *g, const char *name, ValueId x, ValueId gate) {
    if (!given(g, name, 2, (ValueId[]){x, gate})) return -1;
    return emit(g, (Op){.kind = OP_GATE_ROWS}, name, 2, (ValueId[]){x, gate}, g->value[x]);
}

ValueId graph_stats(Graph *g, const char *name, ValueId logits, ValueId targets) {
    if (!given(g, name, 2, (ValueId[]){logits, targets})) return -1;
    return emit(g, (Op){.kind = OP_STATS}, name, 2, (ValueId[]){logits, targets}, with_columns(g, logits, 1));
}

/* Positions of a window along one axis of a padded image. */
static int64_t window_positions(int64_t size, int64_t window, int64_t stride, int64_t pad) {
    return (size + 2 * pad - window) / stride + 1;
}

ValueId graph_conv(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias, int stride, int pad, int groups) {
    if (!given(g, name, 2, (ValueId[]){x, w})) return -1;
    const Value *xv = &g->value[x], *wv = &g->value[w];
    int64_t channels = xv->dim[3].size;
    if (xv->n_dims != 4 || wv->n_dims != 4) return fail(g, "a convolution wants [N][H][W][C] and [O][kh][kw][I]", name);
    if (stride < 1 || pad < 0) return fail(g, "stride or padding out of range", name);
    if (groups != 1 && !(groups == channels && wv->dim[0].size == channels))
        return fail(g, "groups must be 1, or as many as channels (depthwise)", name);
    if (wv->dim[3].size * groups != channels) return fail(g, "channels of input and weight differ", name);
    Op op = {.kind = OP_CONV};
    op.u.conv.kh = (int)wv->dim[1].size;
    op.u.conv.kw = (int)wv->dim[2].size;
    op.u.conv.stride = stride;
    op.u.conv.pad = pad;
    op.u.conv.groups = groups;
    if (window_positions(xv->dim[1].size, op.u.conv.kh, 1, pad) < 1 ||
        window_positions(xv->dim[2].size, op.u.conv.kw, 1, pad) < 1)
        return fail(g, "the kernel is larger than the padded image", name);
    Value v = with_columns(g, x, wv->dim[0].size);
    v.dim[1].size = window_positions(xv->dim[1].size, op.u.conv.kh, stride, pad);
    v.dim[2].size = window_positions(xv->dim[2].size, op.u.conv.kw, stride, pad);
    return emit(g, op, name, bias >= 0 ? 3 : 2, (ValueId[]){x, w, bias}, v);
}

ValueId graph_pool(Graph *g, const char *name, ValueId x, PoolKind kind, int size, int stride, int pad) {
    if (!given(g, name, 1, &x)) return -1;
    if (g->value[x].n_dims != 4) return fail(g, "pooling wants [N][H][W][C]", name);
    Op op = {.kind = OP_POOL};
    op.u.conv.pool = kind;
    op.u.conv.kh = op.u.conv.kw = size;
    op.u.conv.stride = stride;
    op.u.conv.pad = pad;
    Value v = g->value[x];
    if (kind == POOL_GLOBAL_AVERAGE) {
        v.n_dims = 2;
        v.dim[1] = v.dim[3];
    } else {
        if (size < 1 || stride < 1 || pad < 0 || pad >= size) return fail(g, "pooling window out of range", name);
        if (window_positions(v.dim[1].size, size, 1, pad) < 1 || window_positions(v.dim[2].size, size, 1, pad) < 1)
            return fail(g, "the window is larger than the padded image", name);
        v.dim[1].size = window_positions(v.dim[1].size, size, stride, pad);
        v.dim[2].size = window_positions(v.dim[2].size, size, stride, pad);
    }
    return emit(g, op, name, 1, &x, v);
}

const char *op_kind_name(OpKind k) {
    static const char *const names[OP_COUNT] = {
        [OP_EMBED] = "embed",
        [OP_LINEAR] = "linear",
        [OP_RMSNORM] = "rmsnorm",
        [OP_LAYERNORM] = "layernorm",
        [OP_HEADNORM] = "headnorm",
        [OP_QUANTISE] = "quantise",
        [OP_ROPE_TABLE] = "rope_table",
        [OP_ROPE] = "rope",
        [OP_KV_STORE] = "kv_store",
        [OP_ATTENTION] = "attention",
        [OP_SILU_MUL] = "silu_mul",
        [OP_GELU_MUL] = "gelu_mul",
        [OP_GELU] = "gelu",
        [OP_SCALE] = "scale",
        [OP_SOFTCAP] = "softcap",
        [OP_RELU] = "relu",
        [OP_ADD] = "add",
        [OP_VIEW] = "view",
        [OP_SELECT] = "select",
        [OP_MEAN_ROWS] = "mean_rows",
        [OP_ROUTE] = "route",
        [OP_GROUP] = "group",
        [OP_DISPATCH] = "dispatch",
        [OP_COMBINE] = "combine",
        [OP_GATE_ROWS] = "gate_rows",
        [OP_STATS] = "stats",
        [OP_CONV] = "conv",
        [OP_POOL] = "pool",
        [OP_ALLREDUCE] = "allreduce",
        [OP_ALLGATHER] = "allgather",
        [OP_SLICE] = "slice",
    };
    return names[k];
}
