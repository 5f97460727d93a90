/* From a plan to this rank's list of steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/detmath.h"
#include "engine/exec_internal.h"

StepFn *step_function(OpKind k) {
    static StepFn *const table[OP_COUNT] = {
        [OP_EMBED] = step_embed,
        [OP_LINEAR] = step_linear,
        [OP_RMSNORM] = step_norm,
        [OP_LAYERNORM] = step_norm,
        [OP_HEADNORM] = step_headnorm,
        [OP_QUANTISE] = step_quantise,
        [OP_ROPE_TABLE] = step_rope_table,
        [OP_ROPE] = step_rope,
        [OP_KV_STORE] = step_kv_store,
        [OP_ATTENTION] = step_attention,
        [OP_SILU_MUL] = step_gated,
        [OP_GELU_MUL] = step_gated,
        [OP_GELU] = step_gelu,
        [OP_SCALE] = step_scale,
        [OP_SOFTCAP] = step_scale,
        [OP_ADD] = step_add,
        [OP_VIEW] = NULL,
        [OP_SELECT] = step_select,
        [OP_MEAN_ROWS] = step_mean_rows,
        [OP_ROUTE] = step_route,
        [OP_GROUP] = step_group,
        [OP_DISPATCH] = step_dispatch,
        [OP_COMBINE] = step_combine,
        [OP_GATE_ROWS] = step_gate_rows,
        [OP_STATS] = step_stats,
        [OP_CONV] = step_conv,
        [OP_POOL] = step_plain,
        [OP_ALLREDUCE] = step_allreduce,
        [OP_ALLGATHER] = step_allgather,
        [OP_SLICE] = step_slice,
    };
    return op_is_plain(k) && k != OP_RESHAPE ? step_plain : table[k];
}

static int out_of_memory(Err *e) { return err_set(e, "out of memory while compiling the plan"); }

static Range only_range(const Exec *x, ValueId v, ShardAxis axis) {
    Range r[SHARD_PARTS];
    plan_local_ranges(x->plan, v, axis, x->rank, r);
    return r[0];
}

/* Weights, biases and the residual of a linear or convolution. A bias joins a sum over ranks once. */
static void compile_weights(Exec *x, const Op *op, Step *s, int n_weights, bool bias) {
    s->n_weights = n_weights;
    bool once = x->plan->shard[op->out[0]].kind == SHARD_PARTIAL && x->rank != 0;
    for (int i = 0; i < n_weights; i++) {
        s->w[i] = &x->weights->weight[op->in[1 + i]];
        s->panel_pairs += ceil_div(packed_panels(s->w[i]->packed.n), 2);
        if (bias && !once) s->bias[i] = x->weights->weight[op->in[1 + n_weights + i]].values;
    }
}

static int compile_attention(Exec *x, const Op *op, Step *s, Err *e) {
    const Plan *p = x->plan;
    int64_t dim = op->u.attn.head_dim, group = op->u.attn.heads / op->u.attn.kv_heads;
    ValueId state = op->in[op->kind == OP_KV_STORE ? 2 : 1];
    Range kv = only_range(x, state, p->graph.value[state].n_dims == 1 ? p->shard[state].axis : AXIS_LAST);
    s->kv = (KvShape){(int)((kv.end - kv.begin) / dim), (int)dim};
    s->state = x->buf[state].data;
    s->pool = exec_pool(&x->o, &p->graph.value[state]);
    if (op->kind == OP_KV_STORE) return 0;
    Range q = only_range(x, op->in[0], AXIS_LAST);
    int64_t q0 = q.begin / dim, q1 = q.end / dim, kv0 = kv.begin / dim;
    s->n_heads = (int)(q1 - q0);
    s->group = calloc((size_t)s->kv.kv_heads + 1, sizeof *s->group);
    if (!s->group) return out_of_memory(e);
    for (int j = 0; j < s->kv.kv_heads && s->n_heads; j++) {
        int64_t h0 = i64_max((kv0 + j) * group, q0), h1 = i64_min((kv0 + j + 1) * group, q1);
        if (h0 < h1) s->group[s->n_groups++] = (HeadGroup){j, (int)(h0 - q0), (int)(h1 - q0)};
    }
    return 0;
}

/* The dimension, as a real number, whose pair makes `turns` turns over the original context; arXiv:2309.00071, 3.2. */
static double yarn_dimension(const RopeShape *r, double turns) {
    return r->dim * det_log((double)r->original / (turns * 2 * M_PI)) / (2 * det_log(r->base));
}

/* How much of a pair's speed is scaled: 0 for fast pairs, 1 for slow ones. */
static double yarn_scaled(const RopeShape *r, int pair) {
    double low = fmax(floor(yarn_dimension(r, r->beta_fast)), 0);
    double high = fmin(ceil(yarn_dimension(r, r->beta_slow)), r->dim - 1);
    double y = (pair - low) / fmax(0.001, high - low);
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

static int compile_rope_table(Exec *x, const Op *op, Step *s, Err *e) {
    const RopeShape *r = &op->u.rope.shape;
    int pairs = r->dim / 2;
    int which = op->n_in == 3 && x->o.context > r->short_context ? 2 : 1;
    const float *factors = op->n_in > 1 ? x->weights->weight[op->in[which]].values : NULL;
    s->freq = malloc((size_t)pairs * sizeof *s->freq);
    if (!s->freq) return out_of_memory(e);
    for (int i = 0; i < pairs; i++) {
        double speed = det_pow(r->base, -2.0 * i / r->dim), scaled = r->original ? yarn_scaled(r, i) : 1;
        s->freq[i] = speed * (1 - scaled + scaled * r->scale) / (factors ? (double)factors[i] : 1);
    }
    s->table_scale = (float)r->attention;
    return 0;
}

static int compile_gather(Exec *x, const Op *op, Step *s, Err *e) {
    const Plan *p = x->plan;
    ShardAxis axis = p->shard[op->in[0]].axis;
    int64_t parts = 0, per = axis == AXIS_FIRST ? s->out.h * s->out.w * s->out.columns : s->out.capacity;
    for (int r = 0; r < p->n_ranks; r++) parts += plan_local_size(p, op->in[0], axis, r);
    s->gather_bytes = calloc((size_t)p->n_ranks, sizeof *s->gather_bytes);
    size_t bytes = (size_t)(parts * per + 1) * nd_size(s->out.type);
    s->gather = malloc(bytes);
    return s->gather && s->gather_bytes ? 0 : out_of_memory(e);
}

/* Operands and result as arrays; a weight lies where the loader put it. */
static int compile_plain(Exec *x, const Op *op, Step *s, Err *e) {
    const Plan *p = x->plan;
    s->nd = calloc((size_t)op->n_in + 1, sizeof *s->nd);
    if (!s->nd) return out_of_memory(e);
    for (int i = 0; i <= op->n_in; i++) {
        ValueId v = i < op->n_in ? op->in[i] : op->out[0];
        const LocalWeight *w = &x->weights->weight[v];
        Nd nd = value_nd(&p->graph, v);
        nd.data = p->graph.value[v].kind != VALUE_WEIGHT ? x->buf[v].data : w->data ? w->data : (void *)w->values;
        if (nd.n_dims > 0) nd.dim[0] = plan_local_size(p, v, AXIS_FIRST, x->rank);
        if (nd.n_dims > 1) nd.dim[nd.n_dims - 1] = plan_local_size(p, v, AXIS_LAST, x->rank);
        s->nd[i] = nd;
    }
    return 0;
}

static int compile_conv(Exec *x, const Op *op, Step *s, Err *e) {
    const Buf *in = &s->in[0];
    const Graph *g = &x->plan->graph;
    if (g->value[op->in[0]].type != QT_F32 || g->value[op->in[0]].n_dims != 4 ||
        g->value[op->in[1]].kind != VALUE_WEIGHT) {
        s->run = step_plain;
        return compile_plain(x, op, s, e);
    }
    compile_weights(x, op, s, 1, op->u.conv.bias);
    int64_t groups = op->u.conv.groups, whole = value_columns(g, op->in[0]);
    ConvShape c = {.n = in->rows / (in->h * in->w),
                   .h = in->h,
                   .w = in->w,
                   .c = in->columns,
                   .o = s->out.columns,
                   .win = op->u.conv.window,
                   .groups = groups == whole ? in->columns : groups, /* depthwise: of the local channels */
                   .residual = op->u.conv.residual,
                   .act = op->u.conv.act.fn,
                   .a = (float)op->u.conv.act.a,
                   .b = (float)op->u.conv.act.b};
    return conv_create(&c, s->w[0]->values, s->bias[0], pool_size(x->pool), &s->conv, e)
               ? err_context(e, "%s", op->name)
               : 0;
}

static int compile_op(Exec *x, const Op *op, Step *s, Err *e) {
    const Plan *p = x->plan;
    *s = (Step){.run = step_function(op->kind), .op = op};
    snprintf(s->place.text, sizeof s->place.text, "%s (%s)", op->name, op_kind_name(op->kind));
    for (int i = 0; i < op->n_in; i++) s->in[i] = x->buf[op->in[i]];
    if (op->n_out) s->out = x->buf[op->out[0]];
    switch (op->kind) {
    case OP_EMBED:
        s->w[0] = &x->weights->weight[op->in[1]];
        s->first = only_range(x, op->in[1], AXIS_FIRST).begin;
        return 0;
    case OP_LAYERNORM:
        s->w[0] = &x->weights->weight[op->in[1]];
        s->bias[0] = x->weights->weight[op->in[2]].values;
        return 0;
    case OP_HEADNORM:
    case OP_RMSNORM: s->w[0] = &x->weights->weight[op->in[1]]; return 0;
    case OP_STATS: s->first = only_range(x, op->in[0], AXIS_LAST).begin; return 0;
    case OP_LINEAR:
        compile_weights(x, op, s, op->u.linear.n_weights, op->u.linear.bias);
        if (s->in[0].sym == DIM_PAIRS) s->run = step_expert_linear;
        return 0;
    case OP_GROUP: {
        const Shard *mine = &p->shard[op->out[0]];
        s->first = mine->kind == SHARD_SPLIT ? mine->range[x->rank].begin : 0;
        return 0;
    }
    case OP_CONV: return compile_conv(x, op, s, e);
    case OP_POOL: return compile_plain(x, op, s, e);
    case OP_ROPE_TABLE: return compile_rope_table(x, op, s, e);
    case OP_KV_STORE:
    case OP_ATTENTION: return compile_attention(x, op, s, e);
    case OP_ALLGATHER: return compile_gather(x, op, s, e);
    case OP_SLICE: s->n_parts = plan_local_ranges(p, op->out[0], p->shard[op->out[0]].axis, x->rank, s->part); return 0;
    default: return op_is_plain(op->kind) ? compile_plain(x, op, s, e) : 0;
    }
}

/* Most slices that are one piece, and views, are no work: their buffers lie in their input's. */
static bool needs_step(const Exec *x, const Op *op) {
    if (op->kind == OP_SLICE && slice_is_alias(x, op)) return false;
    return step_function(op->kind) != NULL;
}

/* Memory of the states: each KV cache has its pool's blocks of this rank's heads. */
static int make_states(Exec *x, Err *e) {
    const Graph *g = &x->plan->graph;
    for (int pass = 0; pass < 2; pass++) {
        size_t need = 0;
        for (ValueId v = 0; v < g->n_values; v++) {
            if (g->value[v].kind != VALUE_STATE) continue;
            size_t bytes;
            if (exec_state_size(x->plan, x->rank, &x->o, v, &bytes, e)) return -1;
            if (pass) x->buf[v].data = x->states.base + need;
            need += bytes;
        }
        if (!pass && arena_create(&x->states, need + 64, -1, e)) return err_context(e, "memory for the KV cache");
        x->states.used = need;
    }
    return 0;
}

static int make_scratch(Exec *x, Err *e) {
    const Graph *g = &x->plan->graph;
    for (ValueId v = 0; v < g->n_values; v++)
        if (g->value[v].kind == VALUE_TEMP) x->scratch_columns = i64_max(x->scratch_columns, x->buf[v].columns);
    x->scratch_columns = (int64_t)round_up((size_t)x->scratch_columns, 16) + 16;
    size_t threads = (size_t)pool_size(x->pool), top = (size_t)x->o.top;
    x->scratch = aligned_alloc(64, round_up(threads * (size_t)x->scratch_columns * sizeof(float), 64));
    x->candidate = calloc((size_t)x->o.max_outputs * top + 1, sizeof *x->candidate);
    x->top_ids = calloc(threads * top + 1, sizeof *x->top_ids);
    x->top_values = calloc(threads * top + 1, sizeof *x->top_values);
    return x->scratch && x->candidate && x->top_ids && x->top_values ? 0 : out_of_memory(e);
}

static int compile(Exec *x, Err *e) {
    const Graph *g = &x->plan->graph;
    if (exec_layout(x, e) || make_states(x, e) || make_scratch(x, e)) return -1;
    x->step = calloc((size_t)g->n_ops + 1, sizeof *x->step);
    if (!x->step) return out_of_memory(e);
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (!needs_step(x, &g->op[i])) continue;
        if (g->op[i].kind == OP_STATS) x->stats_step = x->n_steps;
        if (compile_op(x, &g->op[i], &x->step[x->n_steps++], e)) return -1;
    }
    return 0;
}

int exec_create(const Plan *p, int rank, const Weights *w, const Kernels *k, Pool *pool, Comm *comm,
                const ExecOptions *o, Exec **out, Err *e) {
    *out = NULL;
    Exec *x = calloc(1, sizeof *x);
    if (!x) return out_of_memory(e);
    *x = (Exec){.plan = p, .rank = rank, .weights = w, .k = k, .pool = pool, .comm = comm, .o = *o, .stats_step = -1};
    if (compile(x, e)) {
        exec_free(x);
        return -1;
    }
    *out = x;
    return 0;
}

void exec_free(Exec *x) {
    if (!x) return;
    for (int32_t i = 0; i < x->n_steps; i++) {
        free(x->step[i].group);
        free(x->step[i].freq);
        free(x->step[i].gather_bytes);
        free(x->step[i].gather);
        free(x->step[i].nd);
        conv_free(x->step[i].conv);
    }
    free(x->step);
    free(x->buf);
    free(x->scratch);
    free(x->candidate);
    free(x->top_ids);
    free(x->top_values);
    arena_free(&x->activations);
    arena_free(&x->states);
    free(x);
}
