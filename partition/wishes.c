/* Which divisions of a value its readers can use: a backward walk. Linears want whole quantisation groups, attention
 * wants whole heads; element-wise operators pass on what is wanted of their result. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/kernels.h"
#include "partition/internal.h"

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }
static int64_t lcm(int64_t a, int64_t b) { return a > 0 && b > 0 ? a / gcd(a, b) * b : 1; }

static void want_unit(Planner *pl, ValueId v, int64_t unit) {
    Wish *w = &pl->wish[v];
    if (unit > 0) w->unit = w->unit ? lcm(w->unit, unit) : unit;
}

static void pass_on(Planner *pl, ValueId from, ValueId to) {
    want_unit(pl, to, pl->wish[from].unit);
    if (pl->wish[from].split.n_parts) pl->wish[to].split = pl->wish[from].split;
}

Shard planner_even(Planner *pl, ShardAxis axis, int64_t n, int64_t unit) {
    Shard s = {SHARD_SPLIT, axis, 1, NULL};
    Range *r = planner_ranges(pl, 1);
    if (!r) return (Shard){0};
    int64_t units = ceil_div(n, unit);
    for (int i = 0; i < pl->p->n_ranks; i++) {
        share_range(units, pl->p->n_ranks, i, &r[i].begin, &r[i].end);
        r[i].begin *= unit;
        r[i].end = i64_min(r[i].end * unit, n);
        if (r[i].begin >= r[i].end) r[i] = (Range){0, 0};
    }
    s.range = r;
    return s;
}

/* Query heads of each rank: in units of a KV head with its query heads, or of query heads when that makes the largest
 * share smaller; `unit` heads (a common multiple with the readers' groups) stay together. */
static void divide_heads(Planner *pl, const Op *op) {
    int64_t heads = op->u.attn.heads, kv = op->u.attn.kv_heads, dim = op->u.attn.head_dim, group = heads / kv;
    int64_t wanted = i64_max(pl->wish[op->out[0]].unit, 1);
    int64_t unit = wanted / gcd(wanted, dim);
    int64_t ranks = pl->p->n_ranks;
    int64_t kv_unit = lcm(group, unit);
    if (heads % unit) {
        unit = kv_unit = heads; /* cannot be divided: one rank has them all */
    } else if (heads % kv_unit) {
        kv_unit = unit;
    }
    bool by_kv = ceil_div(heads / kv_unit, ranks) * kv_unit <= ceil_div(heads / unit, ranks) * unit;
    if (by_kv) unit = kv_unit;
    Range *q = planner_ranges(pl, 1), *k = planner_ranges(pl, 1);
    if (!q || !k) return;
    for (int r = 0; r < ranks; r++) {
        int64_t b, e;
        share_range(heads / unit, ranks, r, &b, &e);
        if (b == e) continue; /* a rank without heads */
        q[r] = (Range){b * unit * dim, e * unit * dim};
        k[r] = (Range){b * unit / group * dim, ((e * unit - 1) / group + 1) * dim};
    }
    pl->wish[op->in[0]].split = (Shard){SHARD_SPLIT, AXIS_LAST, 1, q};
    pl->wish[op->in[1]].split = (Shard){SHARD_SPLIT, AXIS_LAST, 1, k};
}

/* Without groups any index can be a boundary; whole vectors of 16 are faster, where that leaves the ranks' shares
 * within a quarter of each other. */
static int64_t float_unit(int64_t columns, int n_ranks) {
    return columns % 16 == 0 && columns >= INT64_C(64) * n_ranks ? 16 : 1;
}

/* The common unit in which a linear can take its input divided. */
static int64_t linear_unit(const Graph *g, const Op *op, int n_ranks) {
    int64_t unit = 1;
    for (int i = 0; i < op->u.linear.n_weights; i++) {
        int64_t group = packed_unit(g->value[op->in[1 + i]].type);
        unit = lcm(unit, group);
    }
    return unit == 1 ? float_unit(value_columns(g, op->in[0]), n_ranks) : unit;
}

/* In how many units the experts of a mixture can be cut inside: those of the last linear before they are combined. */
static int64_t units_of_experts(Planner *pl, const Op *group) {
    const Graph *g = pl->old;
    int64_t units = 1;
    for (const Op *op = group; op < g->op + g->n_ops && op->kind != OP_COMBINE; op++)
        if (op->kind == OP_LINEAR && g->value[op->in[1]].n_dims == 3)
            units = value_columns(g, op->in[0]) / linear_unit(g, op, pl->p->n_ranks);
    return units;
}

/* With a part of each expert on every rank, a token's few experts keep all ranks as busy as any others; whole experts
 * do not: 8 of 128 over 16 ranks leave the busiest about 2.4 of them where the mean is 0.5. So experts stay whole only
 * where there are too few units inside for all ranks to have a part. */
Shard planner_experts(Planner *pl, const Op *group) {
    int64_t ranks = pl->p->n_ranks, experts = group->u.mix.experts, units = units_of_experts(pl, group);
    if (ranks == 1 || units >= ranks || units >= experts) return (Shard){0};
    return planner_even(pl, AXIS_EXPERTS, experts, 1);
}

void planner_wishes(Planner *pl) {
    const Graph *g = pl->old;
    for (int32_t i = g->n_ops - 1; i >= 0 && !pl->failed; i--) {
        const Op *op = &g->op[i];
        switch (op->kind) {
        case OP_LINEAR: want_unit(pl, op->in[0], linear_unit(g, op, pl->p->n_ranks)); break;
        case OP_CONV:
            if (op->u.conv.groups == 1)
                want_unit(pl, op->in[0], float_unit(value_columns(g, op->in[0]), pl->p->n_ranks));
            else if (op->u.conv.groups == value_columns(g, op->out[0])) pass_on(pl, op->out[0], op->in[0]);
            if (op->u.conv.residual) pass_on(pl, op->out[0], op->in[op->n_in - 1]);
            break;
        case OP_ATTENTION: divide_heads(pl, op); break;
        case OP_ROUTE: pl->wish[op->in[0]].whole = true; break;
        case OP_GATE_ROWS:
            pass_on(pl, op->out[0], op->in[0]);
            pl->wish[op->in[1]].whole = true;
            break;
        case OP_KV_STORE:
            pass_on(pl, op->in[2], op->in[0]);
            pass_on(pl, op->in[2], op->in[1]);
            break;
        case OP_SILU_MUL:
        case OP_GELU_MUL:
        case OP_ADD:
            pass_on(pl, op->out[0], op->in[0]);
            pass_on(pl, op->out[0], op->in[1]);
            break;
        case OP_ROPE:
        case OP_HEADNORM:
        case OP_GELU:
        case OP_SCALE:
        case OP_SOFTCAP:
        case OP_QUANTISE: pass_on(pl, op->out[0], op->in[0]); break;
        default:
            if (op_keeps_last_axis(g, op)) pass_on(pl, op->out[0], op->in[0]);
        }
    }
}

/* The value's own wish as ranges. */
static Shard resolve(Planner *pl, ValueId v) {
    const Wish *w = &pl->wish[v];
    if (w->split.n_parts) return w->split;
    if (!w->unit) return (Shard){0};
    return planner_even(pl, AXIS_LAST, value_columns(pl->old, v), w->unit);
}

Shard planner_wanted(Planner *pl, ValueId v) {
    const Graph *g = pl->old;
    const Op *view[SHARD_PARTS];
    int n = 0, readers = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; j < g->op[i].n_in; j++)
            if (g->op[i].in[j] == v) {
                readers++;
                if (g->op[i].kind == OP_VIEW && n < SHARD_PARTS) view[n++] = &g->op[i];
            }
    if (!n) return resolve(pl, v);
    if (n != readers) return (Shard){0};
    /* Views stand in ascending order (pass_fuse_linears); each contributes its ranges, moved to its place. */
    Shard all = {SHARD_SPLIT, AXIS_LAST, n, NULL};
    Range *r = planner_ranges(pl, n);
    if (!r) return (Shard){0};
    for (int i = 0; i < n; i++) {
        Shard s = resolve(pl, view[i]->out[0]);
        if (s.n_parts != 1) return (Shard){0};
        for (int rank = 0; rank < pl->p->n_ranks; rank++) {
            r[rank * n + i].begin = s.range[rank].begin + view[i]->u.view.begin;
            r[rank * n + i].end = s.range[rank].end + view[i]->u.view.begin;
        }
    }
    all.range = r;
    return all;
}
