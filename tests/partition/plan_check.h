/* Whether a plan is right, from what an operator is: for each one, may these pieces of its inputs be computed with, and
 * is the piece of the output that the plan claims what comes out? Written from the meaning of the operators, not from
 * partition/rules.c. */
#pragma once

#include "check.h"
#include "kernels/kernels.h"
#include "partition/plan.h"

typedef struct Checker {
    const Plan *p;
    const char *what; /* for messages */
    int errors;
} Checker;

static inline void wrong(Checker *c, const char *name, const char *why) {
    if (c->errors++ < 5) printf("\n%s, %d ranks: %s: %s", c->what, c->p->n_ranks, name, why);
}

static inline const Shard *state(const Checker *c, ValueId v) { return &c->p->shard[v]; }
static inline const char *name_of(const Checker *c, ValueId v) { return c->p->graph.value[v].name; }
static inline bool is_whole(const Checker *c, ValueId v) { return state(c, v)->kind == SHARD_REPLICATED; }
static inline bool is_partial(const Checker *c, ValueId v) { return state(c, v)->kind == SHARD_PARTIAL; }
static inline bool is_split(const Checker *c, ValueId v, ShardAxis axis) {
    return state(c, v)->kind == SHARD_SPLIT && state(c, v)->axis == axis;
}
static inline bool same_state(const Checker *c, ValueId a, ValueId b) {
    const Shard *s = state(c, a), *t = state(c, b);
    if (s->kind != t->kind) return false;
    if (s->kind != SHARD_SPLIT) return true;
    if (s->axis != t->axis || s->n_parts != t->n_parts) return false;
    for (int i = 0; i < s->n_parts * c->p->n_ranks; i++)
        if (s->range[i].begin != t->range[i].begin || s->range[i].end != t->range[i].end) return false;
    return true;
}

/* The indices of an axis that a rank holds, written out one by one in their order: malloc'ed, *n of them. */
static inline int64_t *indices(const Checker *c, ValueId v, ShardAxis axis, int rank, int64_t *n) {
    Range r[SHARD_PARTS];
    int parts = plan_local_ranges(c->p, v, axis, rank, r);
    int64_t size = plan_axis_size(c->p, v, axis) * SHARD_PARTS, *out = malloc((size_t)(size + 1) * sizeof *out);
    *n = 0;
    for (int i = 0; i < parts; i++)
        for (int64_t k = r[i].begin; k < r[i].end && *n < size; k++) out[(*n)++] = k;
    return out;
}

/* Ranges in order and inside the axis; together they cover it, and no index is held twice but KV heads. */
static inline void check_cover(Checker *c, ValueId v, int64_t overlap_from) {
    const Shard *s = state(c, v);
    int64_t size = plan_axis_size(c->p, v, s->axis), held = 0, twice = 0;
    uint8_t *count = calloc((size_t)size + 1, 1);
    if (s->n_parts < 1 || s->n_parts > SHARD_PARTS) wrong(c, name_of(c, v), "number of ranges");
    for (int rank = 0; rank < c->p->n_ranks; rank++) {
        const Range *r = s->range + (size_t)rank * (size_t)s->n_parts;
        for (int i = 0; i < s->n_parts; i++) {
            if (r[i].begin < 0 || r[i].end < r[i].begin || r[i].end > size)
                wrong(c, name_of(c, v), "a range outside the axis");
            else if (i && r[i].begin < r[i - 1].end) wrong(c, name_of(c, v), "a rank's ranges are not in order");
            else
                for (int64_t k = r[i].begin; k < r[i].end; k++) {
                    held += count[k] == 0;
                    twice += count[k] != 0 && !(overlap_from >= 0 && k >= overlap_from);
                    count[k] = 1;
                }
        }
    }
    if (held != size) wrong(c, name_of(c, v), "not all indices are held");
    if (twice) wrong(c, name_of(c, v), "indices are held twice");
    free(count);
}

static inline void check_blocks(Checker *c, ValueId v) {
    const Shard *s = state(c, v);
    int unit = packed_unit(c->p->graph.value[v].type);
    if (s->kind != SHARD_SPLIT || s->axis != AXIS_LAST || unit == 1) return;
    for (int i = 0; i < s->n_parts * c->p->n_ranks; i++)
        if (s->range[i].begin % unit || s->range[i].end % unit) {
            wrong(c, name_of(c, v), "a quantisation group is cut");
            return;
        }
}

/* Columns of the output of several weights side by side: rank's rows of each, moved behind those before it. */
static inline void check_outputs(Checker *c, const Op *op, int n_weights, bool bias) {
    for (int rank = 0; rank < c->p->n_ranks; rank++) {
        int64_t n, at = 0, begin = 0, *out = indices(c, op->out[0], AXIS_LAST, rank, &n);
        for (int i = 0; i < n_weights; i++) {
            int64_t m, *rows = indices(c, op->in[1 + i], AXIS_FIRST, rank, &m);
            for (int64_t k = 0; k < m; k++, at++)
                if (at >= n || out[at] != begin + rows[k]) {
                    wrong(c, op->name, "output columns are not the weights' rows");
                    k = m;
                }
            begin += plan_axis_size(c->p, op->in[1 + i], AXIS_FIRST);
            free(rows);
        }
        if (at != n) wrong(c, op->name, "number of output columns");
        free(out);
    }
    for (int i = 0; i < n_weights && bias; i++)
        if (!same_state(c, op->in[1 + i], op->in[1 + n_weights + i]) && state(c, op->in[1 + i])->kind == SHARD_SPLIT)
            wrong(c, op->name, "weight and bias are divided differently");
}

static inline void check_matmul(Checker *c, const Op *op, int n_weights, bool bias, ValueId residual) {
    ValueId x = op->in[0], y = op->out[0];
    if (is_partial(c, x)) wrong(c, op->name, "reads a sum that is not complete");
    if (is_split(c, x, AXIS_EXPERTS)) { /* pairs of some experts: where the matrices of these are */
        if (!same_state(c, x, y)) wrong(c, op->name, "pairs in and out differ");
        for (int i = 0; i < n_weights; i++)
            if (!same_state(c, x, op->in[1 + i])) wrong(c, op->name, "experts of pairs and weight differ");
    } else if (is_split(c, x, AXIS_FIRST)) { /* whole rows: any rank with all weights */
        if (!same_state(c, x, y)) wrong(c, op->name, "rows in and out differ");
        for (int i = 0; i < n_weights; i++)
            if (!is_whole(c, op->in[1 + i])) wrong(c, op->name, "a weight is divided");
    } else if (is_split(c, x, AXIS_LAST)) { /* each rank its terms of the sum */
        if (!is_partial(c, y)) wrong(c, op->name, "the output is a sum that is not complete");
        for (int i = 0; i < n_weights; i++)
            if (!same_state(c, x, op->in[1 + i])) wrong(c, op->name, "columns of weight and input differ");
        for (int i = 0; i < n_weights && bias; i++)
            if (!is_whole(c, op->in[1 + n_weights + i])) wrong(c, op->name, "the bias of a sum is divided");
    } else {
        if (is_partial(c, y)) wrong(c, op->name, "the output is complete");
        for (int i = 0; i < n_weights; i++)
            if (is_split(c, op->in[1 + i], AXIS_LAST)) wrong(c, op->name, "a weight lacks columns");
        check_outputs(c, op, n_weights, bias);
    }
    if (residual >= 0 && !same_state(c, residual, y)) wrong(c, op->name, "residual and output differ");
}

/* Whole heads, and for each query head its KV head. */
static inline void check_attention(Checker *c, const Op *op) {
    int64_t dim = op->u.attn.head_dim, group = op->u.attn.heads / op->u.attn.kv_heads;
    if (!same_state(c, op->in[0], op->out[0]) || is_partial(c, op->in[0]))
        wrong(c, op->name, "query and output differ");
    for (int rank = 0; rank < c->p->n_ranks; rank++) {
        int64_t n, m, *q = indices(c, op->in[0], AXIS_LAST, rank, &n), *kv = indices(c, op->in[1], AXIS_LAST, rank, &m);
        if (n % dim || m % dim) wrong(c, op->name, "a head is cut");
        bool *needed = calloc((size_t)op->u.attn.kv_heads, sizeof *needed),
             *there = calloc((size_t)op->u.attn.kv_heads, sizeof *there);
        for (int64_t i = 0; i < n; i++) needed[q[i] / dim / group] = true;
        for (int64_t i = 0; i < m; i++) there[kv[i] / dim] = true;
        for (int64_t i = 0; i + 1 < n; i++)
            if (q[i] % dim != i % dim) wrong(c, op->name, "heads do not start at heads");
        for (int h = 0; h < op->u.attn.kv_heads; h++) {
            if (needed[h] && !there[h]) wrong(c, op->name, "a KV head is missing");
            if (there[h] && !needed[h]) wrong(c, op->name, "a KV head is held for nothing");
        }
        free(needed);
        free(there);
        free(q);
        free(kv);
    }
}

/* What works on heads has whole ones. */
static inline void check_heads(Checker *c, const Op *op, int dim) {
    const Shard *s = state(c, op->in[0]);
    if (s->kind != SHARD_SPLIT || s->axis != AXIS_LAST) return;
    for (int i = 0; i < s->n_parts * c->p->n_ranks; i++)
        if (s->range[i].begin % dim || s->range[i].end % dim) {
            wrong(c, op->name, "a head is cut");
            return;
        }
}

static inline void check_view(Checker *c, const Op *op) {
    if (is_partial(c, op->in[0])) wrong(c, op->name, "a view of a sum that is not complete");
    for (int rank = 0; rank < c->p->n_ranks; rank++) {
        int64_t n, m, k = 0, *from = indices(c, op->in[0], AXIS_LAST, rank, &n),
                      *to = indices(c, op->out[0], AXIS_LAST, rank, &m);
        for (int64_t i = 0; i < n; i++)
            if (from[i] >= op->u.view.begin && from[i] < op->u.view.end &&
                (k >= m || to[k++] != from[i] - op->u.view.begin)) {
                wrong(c, op->name, "columns of the view");
                break;
            }
        if (k != m) wrong(c, op->name, "number of columns of the view");
        free(from);
        free(to);
    }
}

static inline void check_conv(Checker *c, const Op *op) {
    ValueId x = op->in[0], w = op->in[1], y = op->out[0];
    bool bias = op->u.conv.bias;
    ValueId residual = op->u.conv.residual ? op->in[op->n_in - 1] : -1;
    if (residual >= 0 && (is_partial(c, y) || !same_state(c, residual, y))) wrong(c, op->name, "residual");
    if (op->u.conv.groups == 1) {
        check_matmul(c, op, 1, bias, -1);
        if (is_partial(c, y) && op->u.conv.act.fn != ND_IDENTITY)
            wrong(c, op->name, "function of a sum that is not complete");
        return;
    }
    if (is_partial(c, x) || !same_state(c, x, y)) wrong(c, op->name, "channels in and out");
    for (int rank = 0; rank < c->p->n_ranks && !is_split(c, x, AXIS_FIRST); rank++) {
        int64_t n, m, *a = indices(c, x, AXIS_LAST, rank, &n), *b = indices(c, w, AXIS_FIRST, rank, &m);
        if (n != m || memcmp(a, b, (size_t)n * sizeof *a)) wrong(c, op->name, "filters are not the channels'");
        free(a);
        free(b);
    }
    if (bias && state(c, w)->kind == SHARD_SPLIT && !same_state(c, w, op->in[2]))
        wrong(c, op->name, "filters and bias differ");
}

/* Whether a value is made of rows of embeddings and of nothing else. */
static inline bool of_embeddings(const Checker *c, ValueId v) {
    int32_t maker = c->p->graph.value[v].producer;
    const Op *op = &c->p->graph.op[maker];
    return maker >= 0 &&
           (op->kind == OP_EMBED || (op->kind == OP_ADD && of_embeddings(c, op->in[0]) && of_embeddings(c, op->in[1])));
}

static inline void check_operator(Checker *c, const Op *op) {
    ValueId x = op->in[0], y = op->n_out ? op->out[0] : -1;
    bool alone = c->p->n_ranks == 1;
    switch (op->kind) {
    case OP_EMBED:
        if (!is_whole(c, x)) wrong(c, op->name, "ids are not everywhere");
        if (is_split(c, op->in[1], AXIS_FIRST) ? !is_partial(c, y) : !is_whole(c, y))
            wrong(c, op->name, "state of the rows");
        if (is_split(c, op->in[1], AXIS_LAST)) wrong(c, op->name, "rows are cut");
        break;
    case OP_LINEAR:
        check_matmul(c, op, op->u.linear.n_weights, op->u.linear.bias,
                     op->u.linear.residual ? op->in[linear_residual_at(op)] : -1);
        break;
    case OP_CONV: check_conv(c, op); break;
    case OP_RMSNORM:
        if (is_partial(c, x) || is_split(c, x, AXIS_LAST) || !is_whole(c, op->in[1]) || !same_state(c, x, y))
            wrong(c, op->name, "a norm needs whole rows");
        break;
    case OP_LAYERNORM:
        if (is_partial(c, x) || is_split(c, x, AXIS_LAST) || !is_whole(c, op->in[1]) || !is_whole(c, op->in[2]) ||
            !same_state(c, x, y))
            wrong(c, op->name, "a norm needs whole rows");
        break;
    case OP_MEAN_ROWS:
        if (!is_whole(c, x) || !is_whole(c, op->in[1]) || !is_whole(c, op->in[2]) || !is_whole(c, y))
            wrong(c, op->name, "needs all rows");
        break;
    case OP_SELECT:
    case OP_ROPE_TABLE:
        if (!is_whole(c, x) || !is_whole(c, y)) wrong(c, op->name, "needs whole values");
        if (op->n_in == 2 && !is_whole(c, op->in[1])) wrong(c, op->name, "needs all rows or factors");
        break;
    case OP_ROPE:
        if (is_partial(c, x) || !same_state(c, x, y) || !is_whole(c, op->in[1])) wrong(c, op->name, "state");
        check_heads(c, op, op->u.rope.head_dim);
        break;
    case OP_QUANTISE:
    case OP_UNARY:
    case OP_GELU:
    case OP_SOFTCAP:
    case OP_POOL:
        if (is_partial(c, x) || !same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_SCALE: /* of a partial sum, too: factors come out of sums */
        if (!same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_HEADNORM:
        if (is_partial(c, x) || !same_state(c, x, y) || !is_whole(c, op->in[1])) wrong(c, op->name, "state");
        check_heads(c, op, op->u.rope.head_dim);
        break;
    case OP_SILU_MUL:
    case OP_GELU_MUL:
        if (is_partial(c, x)) wrong(c, op->name, "a product of sums that are not complete");
        if (!same_state(c, x, op->in[1]) || !same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_ADD:
        if (!same_state(c, x, op->in[1]) || !same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_KV_STORE:
        if (is_partial(c, x) || !same_state(c, x, op->in[1]) || !same_state(c, x, op->in[2]))
            wrong(c, op->name, "keys, values, cache");
        break;
    case OP_ATTENTION: check_attention(c, op); break;
    case OP_VIEW: check_view(c, op); break;
    case OP_ROUTE:
        if (!is_whole(c, x) || !is_whole(c, y)) wrong(c, op->name, "needs all logits");
        break;
    case OP_GROUP:
        if (!is_whole(c, x) || is_partial(c, y) || (!is_whole(c, y) && !is_split(c, y, AXIS_EXPERTS)))
            wrong(c, op->name, "a rank has whole experts, or a part of each");
        break;
    case OP_DISPATCH:
        if (!is_whole(c, x) || !same_state(c, op->in[1], y)) wrong(c, op->name, "pairs are not the groups'");
        break;
    case OP_COMBINE: /* some pairs' sum, or sums of parts: an addend of the whole */
        if (!is_whole(c, op->in[1])) wrong(c, op->name, "needs all of the routing");
        if (is_split(c, x, AXIS_EXPERTS) ? !same_state(c, x, op->in[2]) : !is_whole(c, op->in[2]))
            wrong(c, op->name, "pairs are not the groups'");
        if (is_split(c, x, AXIS_EXPERTS) ? !is_partial(c, y) : !same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_GATE_ROWS:
        if (!is_whole(c, op->in[1]) || !same_state(c, x, y)) wrong(c, op->name, "state");
        break;
    case OP_STATS:
        if (alone ? !is_whole(c, x) : !is_split(c, x, AXIS_LAST) || state(c, x)->n_parts != 1)
            wrong(c, op->name, "logits");
        break;
    case OP_ALLREDUCE: {
        if (!is_partial(c, x) || !is_whole(c, y)) wrong(c, op->name, "sums what is no partial sum");
        if (of_embeddings(c, x) && !op->u.sum.exact) wrong(c, op->name, "embedding rows on a lossy wire");
        break;
    }
    case OP_ALLGATHER:
        if (state(c, x)->kind != SHARD_SPLIT || !is_whole(c, y)) wrong(c, op->name, "gathers what is not divided");
        break;
    case OP_SLICE:
        if (!is_whole(c, x) || state(c, y)->kind != SHARD_SPLIT) wrong(c, op->name, "slices what is not whole");
        break;
    default: wrong(c, op->name, "unknown operator");
    }
}

/* Values that hold KV heads may be on several ranks: caches, keys, values, and what they are made of. overlap[v]: the
 * index from which on that holds; of a fused Q|K|V those of K and V. Columns [begin, ..) of v hold KV heads. */
static inline void may_overlap(const Checker *c, ValueId v, int64_t begin, int64_t *overlap) {
    const Graph *g = &c->p->graph;
    if (overlap[v] >= 0 && overlap[v] <= begin) return;
    overlap[v] = begin;
    const Op *op = g->value[v].producer >= 0 ? &g->op[g->value[v].producer] : NULL;
    if (op && op->kind == OP_VIEW) may_overlap(c, op->in[0], begin + op->u.view.begin, overlap);
    if (op && (op->kind == OP_ROPE || op->kind == OP_HEADNORM)) may_overlap(c, op->in[0], begin, overlap);
    int64_t row = 0;
    for (int i = 0; op && op->kind == OP_LINEAR && i < op->u.linear.n_weights; i++) {
        if (row >= begin) overlap[op->in[1 + i]] = 0;
        if (row >= begin && op->u.linear.bias) overlap[op->in[linear_bias_at(op, i)]] = 0;
        row += plan_axis_size(c->p, op->in[1 + i], AXIS_FIRST);
    }
}

/* Errors found, printed. */
static inline int check_plan(const Plan *p, const char *what) {
    Checker c = {p, what, 0};
    const Graph *g = &p->graph;
    int64_t *overlap = malloc((size_t)g->n_values * sizeof *overlap);
    for (ValueId v = 0; v < g->n_values; v++) overlap[v] = -1;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; g->op[i].kind == OP_KV_STORE && j < 3; j++) may_overlap(&c, g->op[i].in[j], 0, overlap);
    for (ValueId v = 0; v < g->n_values; v++) {
        if (p->n_ranks == 1 && !is_whole(&c, v)) wrong(&c, name_of(&c, v), "divided over one rank");
        if (state(&c, v)->kind != SHARD_SPLIT) continue;
        if (state(&c, v)->axis == AXIS_EXPERTS && g->value[v].kind != VALUE_WEIGHT) continue; /* as the weights are */
        check_cover(&c, v, overlap[v]);
        check_blocks(&c, v);
    }
    for (int32_t i = 0; i < g->n_ops; i++) check_operator(&c, &g->op[i]);
    free(overlap);
    if (!is_whole(&c, g->output[0])) wrong(&c, "output", "is not whole");
    Err e = {""};
    if (graph_check(g, &e)) wrong(&c, "graph", e.msg);
    return c.errors;
}
