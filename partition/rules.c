/* One rule per kind of operator: from the sharding states of its inputs to that of its output. */
#include <string.h>

#include "base/size.h"
#include "partition/internal.h"

static Shard *shard(Planner *pl, ValueId v) { return &pl->p->shard[v]; }
static const Shard replicated = {SHARD_REPLICATED, AXIS_FIRST, 0, NULL};

/* A row of an embedding, or a sum of such rows. */
static bool is_embedding(const Graph *g, ValueId v) {
    int32_t maker = g->value[v].producer;
    const Op *op = maker < 0 ? NULL : &g->op[maker];
    if (!op || op->kind != OP_ADD) return op && op->kind == OP_EMBED;
    return is_embedding(g, op->in[0]) && is_embedding(g, op->in[1]);
}

/* A new value made from v by an operator that the planner puts in. */
static ValueId convert(Planner *pl, ValueId v, OpKind kind, Shard to) {
    Graph *g = &pl->p->graph;
    Op op = {.kind = kind, .n_in = 1, .in = {v}, .n_out = 1};
    memcpy(op.name, g->value[v].name, sizeof op.name - 1);
    if (kind == OP_ALLREDUCE) {
        op.u.sum.exact = is_embedding(g, v);
    }
    op.out[0] = graph_temp_like(g, v, op.name);
    if (op.out[0] < 0) {
        planner_fail(pl, op.name, "out of memory");
        return v;
    }
    graph_push(g, &op);
    planner_set(pl, op.out[0], to);
    return op.out[0];
}

ValueId planner_replicated(Planner *pl, ValueId v) {
    Shard *s = shard(pl, v);
    if (s->kind == SHARD_REPLICATED) return v;
    bool known = v < pl->old->n_values;
    if (known && pl->replica[v] >= 0) return pl->replica[v];
    ValueId r = convert(pl, v, s->kind == SHARD_PARTIAL ? OP_ALLREDUCE : OP_ALLGATHER, replicated);
    if (known) pl->replica[v] = r;
    return r;
}

ValueId planner_split(Planner *pl, ValueId v, Shard to) {
    if (shard_equal(pl->p, shard(pl, v), &to)) return v;
    return convert(pl, planner_replicated(pl, v), OP_SLICE, to);
}

void planner_push(Planner *pl, const Op *op, Shard out) {
    graph_push(&pl->p->graph, op);
    for (int i = 0; i < op->n_out; i++) planner_set(pl, op->out[i], out);
}

/* The part of a fused output's ranges that falls into columns [begin, begin + n). */
static Shard segment(Planner *pl, const Shard *all, int64_t begin, int64_t n) {
    Shard s = {SHARD_SPLIT, all->axis, 0, NULL};
    for (int i = 0; i < all->n_parts; i++) s.n_parts += all->range[i].begin >= begin && all->range[i].begin < begin + n;
    Range *r = planner_ranges(pl, s.n_parts);
    if (!r) return s;
    for (int rank = 0; rank < pl->p->n_ranks; rank++) {
        int k = 0;
        for (int i = 0; i < all->n_parts; i++) {
            const Range *from = &shard_at(all, rank)[i];
            if (from->begin >= begin && from->begin < begin + n && k < s.n_parts)
                r[rank * s.n_parts + k++] = (Range){from->begin - begin, from->end - begin};
        }
    }
    s.range = r;
    return s;
}

void planner_split_outputs(Planner *pl, const Op *op, int n_weights, bool bias, const Shard *out) {
    int64_t begin = 0;
    for (int i = 0; i < n_weights; i++) {
        ValueId w = op->in[1 + i];
        int64_t n = plan_axis_size(pl->p, w, AXIS_FIRST);
        Shard s = segment(pl, out, begin, n);
        s.axis = AXIS_FIRST;
        planner_set(pl, w, s);
        if (bias) planner_set(pl, op->in[1 + n_weights + i], s);
        begin += n;
    }
}

static bool can_pack_all(Planner *pl, const Op *op, int n_weights, const Shard *s) {
    for (int i = 0; i < n_weights; i++)
        for (int rank = 0; rank < pl->p->n_ranks; rank++)
            if (!plan_can_pack(pl->p->graph.value[op->in[1 + i]].type, shard_at(s, rank), s->n_parts)) return false;
    return true;
}

/* A convolution's residual comes in the state of its result. */
static void push_with_residual(Planner *pl, Op *op, Shard out) {
    ValueId *last = &op->in[op->n_in - 1];
    if (op->kind == OP_CONV && op->u.conv.residual)
        *last = out.kind == SHARD_SPLIT ? planner_split(pl, *last, out) : planner_replicated(pl, *last);
    planner_push(pl, op, out);
}

/* linear, and conv with one group: (replicated, weight split by output) -> split; (split, weight split by input) ->
 * partial; (rows split, weight replicated) -> rows split; (pairs of some experts, these experts' weights) -> the same
 * pairs. */
void planner_matmul(Planner *pl, Op *op, int n_weights, bool bias) {
    if (shard(pl, op->in[0])->kind == SHARD_PARTIAL) op->in[0] = planner_replicated(pl, op->in[0]);
    Shard x = *shard(pl, op->in[0]);
    int64_t n = value_columns(pl->old, op->out[0]);
    if (x.kind == SHARD_SPLIT && x.axis != AXIS_LAST) {
        for (int i = 0; i < n_weights && x.axis == AXIS_EXPERTS; i++) planner_set(pl, op->in[1 + i], x);
        push_with_residual(pl, op, x);
        return;
    }
    if (x.kind == SHARD_SPLIT && can_pack_all(pl, op, n_weights, &x)) {
        for (int i = 0; i < n_weights; i++) planner_set(pl, op->in[1 + i], x);
        planner_push(pl, op, (Shard){SHARD_PARTIAL, AXIS_FIRST, 0, NULL});
        return;
    }
    op->in[0] = planner_replicated(pl, op->in[0]);
    if (pl->p->n_ranks == 1 || pl->wish[op->out[0]].whole) {
        push_with_residual(pl, op, replicated);
        return;
    }
    Shard out = planner_wanted(pl, op->out[0]);
    const Shard *tied = shard(pl, op->in[1]); /* a weight that another operator has divided already */
    if (n_weights == 1 && tied->kind == SHARD_SPLIT && tied->axis == AXIS_FIRST) out = *tied;
    else if (!out.n_parts && n_weights == 1)
        out = planner_even(pl, AXIS_LAST, n, n >= INT64_C(16) * pl->p->n_ranks ? 16 : 1);
    if (!out.n_parts) {
        push_with_residual(pl, op, replicated); /* nobody can use a part of it: computed everywhere */
        return;
    }
    out.axis = AXIS_LAST;
    planner_split_outputs(pl, op, n_weights, bias, &out);
    push_with_residual(pl, op, out);
}

static bool summed(const Planner *pl, ValueId v) { return v < pl->old->n_values && pl->replica[v] >= 0; }

/* Both addends in one state; two partial sums may stay partial, unless one was summed already for another reader: the
 * residual stream would travel again with every sum that joins it, embedding rows and all, on a wire that may be lossy.
 * A partial one meets anything else as a whole. */
static void rule_elementwise2(Planner *pl, Op *op, bool linear) {
    Shard a = *shard(pl, op->in[0]), b = *shard(pl, op->in[1]);
    bool partial = a.kind == SHARD_PARTIAL && b.kind == SHARD_PARTIAL;
    if (partial && linear && !summed(pl, op->in[0]) && !summed(pl, op->in[1])) {
        planner_push(pl, op, a);
        return;
    }
    if (a.kind == SHARD_PARTIAL) a = *shard(pl, op->in[0] = planner_replicated(pl, op->in[0]));
    if (b.kind == SHARD_PARTIAL) b = *shard(pl, op->in[1] = planner_replicated(pl, op->in[1]));
    if (a.kind == SHARD_SPLIT) op->in[1] = planner_split(pl, op->in[1], a);
    else if (b.kind == SHARD_SPLIT) op->in[0] = planner_split(pl, op->in[0], a = b);
    planner_push(pl, op, a);
}

static void rule_view(Planner *pl, Op *op) {
    if (shard(pl, op->in[0])->kind == SHARD_PARTIAL) op->in[0] = planner_replicated(pl, op->in[0]);
    Shard x = *shard(pl, op->in[0]);
    bool columns = x.kind == SHARD_SPLIT && x.axis == AXIS_LAST;
    planner_push(pl, op, columns ? segment(pl, &x, op->u.view.begin, op->u.view.end - op->u.view.begin) : x);
}

/* Attention by heads: the cache of a rank holds its KV heads only. */
static void rule_attention(Planner *pl, Op *op) {
    if (pl->p->n_ranks > 1) {
        Shard heads = pl->wish[op->in[0]].split;
        if (op->kind == OP_KV_STORE) {
            heads = pl->wish[op->in[2]].split;
            op->in[1] = planner_split(pl, op->in[1], heads);
            planner_set(pl, op->in[2], heads);
        }
        op->in[0] = planner_split(pl, op->in[0], heads);
    }
    planner_push(pl, op, *shard(pl, op->in[0]));
}

/* Passes through what is split; a sum has to be whole first. Quantisation groups are not cut. */
static void rule_pass_through(Planner *pl, Op *op) {
    Shard x = *shard(pl, op->in[0]);
    bool cut = false;
    int group = qtype_info(pl->p->graph.value[op->out[0]].type)->group;
    if (x.kind == SHARD_SPLIT && x.axis == AXIS_LAST)
        for (int i = 0; i < x.n_parts * pl->p->n_ranks; i++) cut |= x.range[i].begin % group || x.range[i].end % group;
    if (x.kind == SHARD_PARTIAL || cut) op->in[0] = planner_replicated(pl, op->in[0]);
    planner_push(pl, op, *shard(pl, op->in[0]));
}

/* A rank's pairs are of its experts, or of all with its part of each expert: then their sums are partial already. */
static void rule_combine(Planner *pl, Op *op) {
    Shard y = *shard(pl, op->in[0]);
    bool some = y.kind == SHARD_SPLIT && y.axis == AXIS_EXPERTS;
    planner_push(pl, op, some ? (Shard){SHARD_PARTIAL, AXIS_FIRST, 0, NULL} : y);
}

/* A factor for each row goes into partial sums as well. */
static void rule_gate_rows(Planner *pl, Op *op) {
    op->in[1] = planner_replicated(pl, op->in[1]);
    planner_push(pl, op, *shard(pl, op->in[0]));
}

void planner_apply(Planner *pl, const Op *old) {
    Op op = *old;
    switch (op.kind) {
    case OP_EMBED:
        if (pl->p->n_ranks > 1) {
            planner_set(pl, op.in[1], planner_even(pl, AXIS_FIRST, pl->old->value[op.in[1]].dim[0].size, 16));
            planner_push(pl, &op, (Shard){SHARD_PARTIAL, AXIS_FIRST, 0, NULL});
        } else planner_push(pl, &op, replicated);
        break;
    case OP_LINEAR: planner_matmul(pl, &op, op.u.linear.n_weights, op.u.linear.bias); break;
    case OP_CONV: planner_conv(pl, &op); break;
    case OP_ADD: rule_elementwise2(pl, &op, true); break;
    case OP_SILU_MUL:
    case OP_GELU_MUL: rule_elementwise2(pl, &op, false); break;
    case OP_VIEW: rule_view(pl, &op); break;
    case OP_GROUP: planner_push(pl, &op, planner_experts(pl, old)); break;
    case OP_DISPATCH:
        op.in[0] = planner_replicated(pl, op.in[0]);
        planner_push(pl, &op, *shard(pl, op.in[1]));
        break;
    case OP_COMBINE: rule_combine(pl, &op); break;
    case OP_GATE_ROWS: rule_gate_rows(pl, &op); break;
    case OP_KV_STORE:
    case OP_ATTENTION: rule_attention(pl, &op); break;
    case OP_ROPE:
    case OP_HEADNORM: /* heads are never cut */
    case OP_GELU:
    case OP_SCALE:
    case OP_SOFTCAP:
    case OP_QUANTISE: rule_pass_through(pl, &op); break;
    case OP_STATS: /* a rank looks at its own part of the vocabulary; the session joins the results */
        if (pl->p->n_ranks > 1 && shard(pl, op.in[0])->kind != SHARD_SPLIT)
            op.in[0] = planner_split(pl, op.in[0], planner_even(pl, AXIS_LAST, value_columns(pl->old, op.in[0]), 1));
        planner_push(pl, &op, replicated);
        break;
    case OP_POOL: planner_plain(pl, &op); break;
    default:
        if (op_is_plain(op.kind)) {
            planner_plain(pl, &op);
            break;
        }
        /* an operator without a rule gathers first, unless whole rows are split */
        for (int i = 0; i < op.n_in; i++) {
            const Shard *s = shard(pl, op.in[i]);
            if (s->kind != SHARD_SPLIT || s->axis != AXIS_FIRST) op.in[i] = planner_replicated(pl, op.in[i]);
        }
        planner_push(pl, &op, *shard(pl, op.in[0]));
    }
}
