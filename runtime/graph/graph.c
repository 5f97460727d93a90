#include "graph/graph.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "graph/eval.h"

/* Memory of weights, in a list of blocks. */
struct GraphMemory {
    struct GraphMemory *next;
    max_align_t data[];
};

void graph_init(Graph *g) { *g = (Graph){.output = {-1}, .n_outputs = 1}; }

void graph_free(Graph *g) {
    free(g->value);
    free(g->op);
    while (g->memory) {
        struct GraphMemory *next = g->memory->next;
        free(g->memory);
        g->memory = next;
    }
    graph_init(g);
}

ValueId graph_fail(Graph *g, const char *name, const char *what) {
    if (!g->failed) err_set(&g->err, "%s: %s", name, what);
    g->failed = true;
    return -1;
}

void *graph_memory(Graph *g, size_t bytes) {
    struct GraphMemory *m = NULL;
    size_t all;
    if (size_add(sizeof *m, bytes ? bytes : 1, &all)) m = calloc(1, all);
    if (!m) {
        graph_fail(g, "weights", "out of memory");
        return NULL;
    }
    m->next = g->memory;
    g->memory = m;
    return m->data;
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
        return graph_fail(g, v->name, "out of memory");
    g->value[g->n_values] = *v;
    return g->n_values++;
}

void graph_push(Graph *g, const Op *op) {
    if (g->failed) return;
    if (!grow((void **)&g->op, g->n_ops, &g->cap_ops, sizeof *g->op)) {
        graph_fail(g, op->name, "out of memory");
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
    int n = 0;
    for (int i = 0; i < g->n_outputs; i++) n += g->output[i] == v;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; j < g->op[i].n_in; j++) n += g->op[i].in[j] == v;
    return n;
}

bool graph_is_output(const Graph *g, ValueId v) {
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i] == v) return true;
    return false;
}

Dim dim_const(int64_t n) { return (Dim){DIM_CONST, n}; }
Dim dim_tokens(void) { return (Dim){DIM_TOKENS, 0}; }
Dim dim_outputs(void) { return (Dim){DIM_OUTPUTS, 0}; }

int64_t value_columns(const Graph *g, ValueId v) {
    const Value *x = &g->value[v];
    return x->n_dims ? x->dim[x->n_dims - 1].size : 1;
}
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

/* A size in bytes that no machine has, or one that overflows. */
static bool too_large(const Value *v) {
    size_t n = 1;
    for (int i = 0; i < v->n_dims; i++)
        if (v->dim[i].sym == DIM_CONST && (v->dim[i].size < 0 || !size_mul(n, (size_t)v->dim[i].size, &n))) return true;
    return n > (size_t)1 << 44;
}

ValueId graph_emit(Graph *g, Op op, const char *name, int n_in, const ValueId *in, Value shape) {
    if (g->failed) return -1;
    if (too_large(&shape)) return graph_fail(g, name, "the result would be too large");
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
    graph_fold_last(g);
    return g->failed ? -1 : out;
}

bool graph_given(Graph *g, const char *name, int n_in, const ValueId *in) {
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0) graph_fail(g, name, "an input is missing");
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
    if (!graph_given(g, name, 2, (ValueId[]){ids, w})) return -1;
    Value v = {.type = QT_F32, .n_dims = 2};
    v.dim[0] = g->value[ids].dim[0];
    v.dim[1] = g->value[w].dim[1];
    return graph_emit(g, (Op){.kind = OP_EMBED}, name, 2, (ValueId[]){ids, w}, v);
}

ValueId graph_linear(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias) {
    if (!graph_given(g, name, 2, (ValueId[]){x, w})) return -1;
    if (value_columns(g, x) != value_columns(g, w)) return graph_fail(g, name, "columns of input and weight differ");
    Op op = {.kind = OP_LINEAR};
    op.u.linear.n_weights = 1;
    op.u.linear.bias = bias >= 0;
    return graph_emit(g, op, name, bias >= 0 ? 3 : 2, (ValueId[]){x, w, bias}, with_columns(g, x, value_rows(g, w)));
}

ValueId graph_rmsnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps) {
    if (!graph_given(g, name, 2, (ValueId[]){x, w})) return -1;
    Op op = {.kind = OP_RMSNORM};
    op.u.norm.eps = eps;
    return graph_emit(g, op, name, 2, (ValueId[]){x, w}, g->value[x]);
}

ValueId graph_layernorm(Graph *g, const char *name, ValueId x, ValueId w, ValueId b, float eps) {
    if (!graph_given(g, name, 3, (ValueId[]){x, w, b})) return -1;
    Op op = {.kind = OP_LAYERNORM};
    op.u.norm.eps = eps;
    return graph_emit(g, op, name, 3, (ValueId[]){x, w, b}, g->value[x]);
}

ValueId graph_headnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps) {
    if (!graph_given(g, name, 2, (ValueId[]){x, w})) return -1;
    Op op = {.kind = OP_HEADNORM};
    op.u.rope.head_dim = (int)g->value[w].dim[0].size;
    op.u.rope.heads = op.u.rope.head_dim ? (int)(value_columns(g, x) / op.u.rope.head_dim) : 0;
    op.u.rope.eps = eps;
    return graph_emit(g, op, name, 2, (ValueId[]){x, w}, g->value[x]);
}

static ValueId emit_rope_table(Graph *g, const char *name, int n_in, const ValueId *in, RopeShape shape) {
    if (!graph_given(g, name, n_in, in)) return -1;
    Op op = {.kind = OP_ROPE_TABLE};
    op.u.rope.shape = shape;
    Value v = {.type = QT_F32, .n_dims = 2};
    v.dim[0] = g->value[in[0]].dim[0];
    v.dim[1] = dim_const(shape.dim);
    return graph_emit(g, op, name, n_in, in, v);
}

ValueId graph_rope_table(Graph *g, const char *name, ValueId positions, ValueId factors, RopeShape shape) {
    return emit_rope_table(g, name, factors >= 0 ? 2 : 1, (ValueId[]){positions, factors}, shape);
}

ValueId graph_longrope_table(Graph *g, const char *name, ValueId positions, ValueId short_factors, ValueId long_factors,
                             RopeShape shape) {
    return emit_rope_table(g, name, 3, (ValueId[]){positions, short_factors, long_factors}, shape);
}

ValueId graph_rope(Graph *g, const char *name, ValueId x, ValueId table, int heads, int head_dim, RopeShape shape) {
    if (!graph_given(g, name, 2, (ValueId[]){x, table})) return -1;
    Op op = {.kind = OP_ROPE};
    op.u.rope.heads = heads;
    op.u.rope.head_dim = head_dim;
    op.u.rope.shape = shape;
    return graph_emit(g, op, name, 2, (ValueId[]){x, table}, g->value[x]);
}

ValueId graph_attention(Graph *g, const char *name, ValueId q, ValueId k, ValueId v, ValueId state, AttnShape shape) {
    if (!graph_given(g, name, 4, (ValueId[]){q, k, v, state})) return -1;
    Op op = {.kind = OP_KV_STORE, .n_in = 3, .in = {k, v, state}};
    op.u.attn = shape;
    snprintf(op.name, sizeof op.name, "%.40s.store", name);
    graph_push(g, &op);
    g->value[state].window = shape.window;
    op.kind = OP_ATTENTION;
    return graph_emit(g, op, name, 2, (ValueId[]){q, state}, g->value[q]);
}

ValueId graph_silu_mul(Graph *g, const char *name, ValueId gate, ValueId up) {
    if (!graph_given(g, name, 2, (ValueId[]){gate, up})) return -1;
    return graph_emit(g, (Op){.kind = OP_SILU_MUL}, name, 2, (ValueId[]){gate, up}, g->value[gate]);
}

ValueId graph_gelu_mul(Graph *g, const char *name, ValueId gate, ValueId up) {
    if (!graph_given(g, name, 2, (ValueId[]){gate, up})) return -1;
    return graph_emit(g, (Op){.kind = OP_GELU_MUL}, name, 2, (ValueId[]){gate, up}, g->value[gate]);
}

static ValueId emit_factor(Graph *g, OpKind kind, const char *name, ValueId x, float factor) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = kind};
    op.u.scale.factor = factor;
    return graph_emit(g, op, name, 1, &x, g->value[x]);
}

ValueId graph_scale(Graph *g, const char *name, ValueId x, float factor) {
    return emit_factor(g, OP_SCALE, name, x, factor);
}

ValueId graph_softcap(Graph *g, const char *name, ValueId x, float cap) {
    return emit_factor(g, OP_SOFTCAP, name, x, cap);
}

ValueId graph_gelu(Graph *g, const char *name, ValueId x) {
    if (!graph_given(g, name, 1, &x)) return -1;
    return graph_emit(g, (Op){.kind = OP_GELU}, name, 1, &x, g->value[x]);
}

ValueId graph_add(Graph *g, const char *name, ValueId a, ValueId b) {
    if (!graph_given(g, name, 2, (ValueId[]){a, b})) return -1;
    return graph_emit(g, (Op){.kind = OP_ADD}, name, 2, (ValueId[]){a, b}, g->value[a]);
}

ValueId graph_view(Graph *g, const char *name, ValueId x, int64_t begin, int64_t end) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_VIEW};
    op.u.view.begin = begin;
    op.u.view.end = end;
    return graph_emit(g, op, name, 1, &x, with_columns(g, x, end - begin));
}

ValueId graph_select(Graph *g, const char *name, ValueId x, ValueId rows) {
    if (!graph_given(g, name, 2, (ValueId[]){x, rows})) return -1;
    Value v = g->value[x];
    v.dim[0] = g->value[rows].dim[0];
    return graph_emit(g, (Op){.kind = OP_SELECT}, name, 2, (ValueId[]){x, rows}, v);
}

ValueId graph_mean_rows(Graph *g, const char *name, ValueId x, ValueId begin, ValueId end) {
    if (!graph_given(g, name, 3, (ValueId[]){x, begin, end})) return -1;
    Value v = g->value[x];
    v.dim[0] = g->value[begin].dim[0];
    return graph_emit(g, (Op){.kind = OP_MEAN_ROWS}, name, 3, (ValueId[]){x, begin, end}, v);
}

ValueId graph_route(Graph *g, const char *name, ValueId logits, MixShape mix) {
    if (!graph_given(g, name, 1, &logits)) return -1;
    Op op = {.kind = OP_ROUTE};
    op.u.mix = mix;
    return graph_emit(g, op, name, 1, &logits, with_columns(g, logits, INT64_C(2) * mix.used));
}

ValueId graph_group(Graph *g, const char *name, ValueId routing, MixShape mix) {
    if (!graph_given(g, name, 1, &routing)) return -1;
    Op op = {.kind = OP_GROUP};
    op.u.mix = mix;
    Value v = g->value[routing];
    v.type = QT_I32;
    return graph_emit(g, op, name, 1, &routing, v);
}

ValueId graph_dispatch(Graph *g, const char *name, ValueId x, ValueId groups, MixShape mix) {
    if (!graph_given(g, name, 2, (ValueId[]){x, groups})) return -1;
    Op op = {.kind = OP_DISPATCH};
    op.u.mix = mix;
    Value v = g->value[x];
    v.dim[0] = (Dim){DIM_PAIRS, mix.used};
    return graph_emit(g, op, name, 2, (ValueId[]){x, groups}, v);
}

ValueId graph_combine(Graph *g, const char *name, ValueId y, ValueId routing, ValueId groups, MixShape mix) {
    if (!graph_given(g, name, 3, (ValueId[]){y, routing, groups})) return -1;
    Op op = {.kind = OP_COMBINE};
    op.u.mix = mix;
    Value v = g->value[y];
    v.dim[0] = g->value[routing].dim[0];
    return graph_emit(g, op, name, 3, (ValueId[]){y, routing, groups}, v);
}

ValueId graph_gate_rows(Graph *g, const char *name, ValueId x, ValueId gate) {
    if (!graph_given(g, name, 2, (ValueId[]){x, gate})) return -1;
    return graph_emit(g, (Op){.kind = OP_GATE_ROWS}, name, 2, (ValueId[]){x, gate}, g->value[x]);
}

ValueId graph_stats(Graph *g, const char *name, ValueId logits, ValueId targets) {
    if (!graph_given(g, name, 2, (ValueId[]){logits, targets})) return -1;
    return graph_emit(g, (Op){.kind = OP_STATS}, name, 2, (ValueId[]){logits, targets}, with_columns(g, logits, 1));
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
        [OP_UNARY] = "unary",
        [OP_BINARY] = "binary",
        [OP_WHERE] = "where",
        [OP_CAST] = "cast",
        [OP_RESHAPE] = "reshape",
        [OP_TRANSPOSE] = "transpose",
        [OP_EXPAND] = "expand",
        [OP_CUT] = "cut",
        [OP_CONCAT] = "concat",
        [OP_PAD] = "pad",
        [OP_REDUCE] = "reduce",
        [OP_SOFTMAX] = "softmax",
        [OP_MATMUL] = "matmul",
        [OP_GATHER] = "gather",
        [OP_ALLREDUCE] = "allreduce",
        [OP_ALLGATHER] = "allgather",
        [OP_SLICE] = "slice",
    };
    return names[k];
}
