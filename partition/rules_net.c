/* The rules of convolutional nets: channels, the last axis, are what is divided. */
#include <string.h>

#include "kernels/conv.h"
#include "partition/internal.h"

static const Shard replicated = {SHARD_REPLICATED, AXIS_FIRST, 0, NULL};

bool op_keeps_last_axis(const Graph *g, const Op *op) {
    if (op->n_out != 1 || op->n_in < 1) return false;
    const Value *x = &g->value[op->in[0]], *y = &g->value[op->out[0]];
    int last = x->n_dims - 1, last_out = y->n_dims - 1;
    if (last < 0 || last_out < 0 || x->dim[last].size != y->dim[last_out].size) return false;
    if (last == 0 && op_is_plain(op->kind)) return false; /* of a vector the first axis is divided */
    switch (op->kind) {
    case OP_POOL:
    case OP_UNARY:
    case OP_CAST: return true;
    case OP_RESHAPE: return last_out > 0;
    case OP_PAD: return op->u.pad.before[last] == 0;
    case OP_CUT: return op->u.cut.begin[last] == 0 && op->u.cut.step[last] == 1;
    case OP_REDUCE: return !(op->u.reduce.axes >> last & 1) && last_out > 0;
    case OP_SOFTMAX: return op->u.along.axis != last;
    default: return false;
    }
}

static bool is_divided(Planner *pl, ValueId v) {
    const Shard *s = planner_shard(pl, v);
    return s->kind == SHARD_SPLIT && s->axis == AXIS_LAST;
}

static ValueId whole_unless(Planner *pl, ValueId v, bool divided) { return divided ? v : planner_replicated(pl, v); }

/* A value as the images are divided, or whole. */
static bool by_image(Planner *pl, ValueId v) {
    const Shard *s = planner_shard(pl, v);
    return pl->o->split_batch && s->kind == SHARD_SPLIT && s->axis == AXIS_FIRST;
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* A filter per channel goes where its channel is. */
static void rule_depthwise(Planner *pl, Op *op) {
    if (planner_shard(pl, op->in[0])->kind == SHARD_PARTIAL) op->in[0] = planner_replicated(pl, op->in[0]);
    Shard wanted = pl->p->n_ranks > 1 ? planner_wanted(pl, op->out[0]) : replicated;
    if (planner_shard(pl, op->in[0])->kind == SHARD_REPLICATED && wanted.n_parts)
        op->in[0] = planner_split(pl, op->in[0], wanted);
    Shard x = *planner_shard(pl, op->in[0]);
    if (x.kind == SHARD_SPLIT && x.axis == AXIS_LAST) planner_split_outputs(pl, op, 1, op->u.conv.bias, &x);
    ValueId *last = &op->in[op->n_in - 1];
    if (op->u.conv.residual)
        *last = x.kind == SHARD_SPLIT ? planner_split(pl, *last, x) : planner_replicated(pl, *last);
    planner_push(pl, op, x);
}

static ValueId temp_like(Planner *pl, ValueId v, const char *name) {
    ValueId t = graph_temp_like(&pl->p->graph, v, name);
    if (t < 0) planner_fail(pl, name, "out of memory");
    return t;
}

/* A sum over ranks has to be whole before the residual joins it and before the function: they come apart again. */
static void rule_partial_conv(Planner *pl, Op *op) {
    ValueId out = op->out[0], residual = op->u.conv.residual ? op->in[--op->n_in] : -1;
    Act act = op->u.conv.act;
    ValueId sum = temp_like(pl, out, op->name), joined = act.fn != ND_IDENTITY ? temp_like(pl, out, op->name) : out;
    if (sum < 0 || joined < 0) return;
    op->u.conv.residual = false;
    op->u.conv.act = (Act){.fn = ND_IDENTITY};
    op->out[0] = sum;
    planner_set(pl, op->in[1], *planner_shard(pl, op->in[0]));
    planner_push(pl, op, (Shard){SHARD_PARTIAL, AXIS_FIRST, 0, NULL});
    sum = planner_replicated(pl, sum);
    Op next = {.n_in = 1, .in = {sum}, .n_out = 1, .out = {out}};
    memcpy(next.name, op->name, sizeof next.name);
    if (residual >= 0) {
        next.kind = OP_ADD;
        next.in[next.n_in++] = planner_replicated(pl, residual);
        next.out[0] = joined;
        planner_push(pl, &next, replicated);
        next.in[0] = joined;
        next.n_in = 1;
    }
    if (act.fn == ND_IDENTITY) return;
    next.kind = OP_UNARY;
    next.u.unary = act;
    next.out[0] = out;
    planner_push(pl, &next, replicated);
}

void planner_conv(Planner *pl, Op *op) {
    const Graph *g = pl->old;
    int64_t channels = value_columns(g, op->in[0]), outputs = value_columns(g, op->out[0]);
    bool weights = g->value[op->in[1]].kind == VALUE_WEIGHT;
    if (op->u.conv.groups == channels && outputs == channels && channels > 1 && weights) {
        rule_depthwise(pl, op);
        return;
    }
    if (op->u.conv.groups != 1 || !weights || g->value[op->in[0]].type != QT_F32) {
        bool images = by_image(pl, op->in[0]);
        for (int i = 0; i < op->n_in; i++) op->in[i] = whole_unless(pl, op->in[i], images && i == 0);
        planner_push(pl, op, images ? *planner_shard(pl, op->in[0]) : replicated);
        return;
    }
    bool last = op->u.conv.residual || op->u.conv.act.fn != ND_IDENTITY;
    if (is_divided(pl, op->in[0]) && last) rule_partial_conv(pl, op);
    else planner_matmul(pl, op, 1, op->u.conv.bias);
}

/* ---- plain operators --------------------------------------------------------------------------------------------- */

/* An operand of a divided one: a number for all channels stays, a constant per channel is divided along, a value of the
 * same state is as it should be. False: the operands must be gathered. */
static bool joins_divided(Planner *pl, ValueId v, ValueId with, ValueId out) {
    const Graph *g = pl->old;
    const Value *x = &g->value[v];
    if (v >= g->n_values) return false;
    if (value_count(g, v) == 1) return planner_shard(pl, v)->kind == SHARD_REPLICATED;
    if (x->n_dims > g->value[out].n_dims) return false;
    if (is_divided(pl, v)) return shard_equal(pl->p, planner_shard(pl, v), planner_shard(pl, with));
    if (x->kind != VALUE_WEIGHT || value_columns(g, v) != value_columns(g, with)) return false;
    Shard s = *planner_shard(pl, with);
    if (x->n_dims == 1) s.axis = AXIS_FIRST;
    planner_set(pl, v, s);
    return true;
}

static void rule_binary(Planner *pl, Op *op) {
    for (int i = 0; i < 2; i++)
        if (planner_shard(pl, op->in[i])->kind == SHARD_PARTIAL) op->in[i] = planner_replicated(pl, op->in[i]);
    int k = is_divided(pl, op->in[0]) ? 0 : is_divided(pl, op->in[1]) ? 1 : -1;
    bool in_old = k >= 0 && op->in[k] < pl->old->n_values;
    if (in_old && value_columns(pl->old, op->in[k]) == value_columns(pl->old, op->out[0]) &&
        joins_divided(pl, op->in[1 - k], op->in[k], op->out[0])) {
        planner_push(pl, op, *planner_shard(pl, op->in[k]));
        return;
    }
    for (int i = 0; i < 2; i++) op->in[i] = planner_replicated(pl, op->in[i]);
    planner_push(pl, op, replicated);
}

void planner_plain(Planner *pl, Op *op) {
    if (op->kind == OP_BINARY) {
        rule_binary(pl, op);
        return;
    }
    if (planner_shard(pl, op->in[0])->kind == SHARD_PARTIAL) op->in[0] = planner_replicated(pl, op->in[0]);
    bool images = by_image(pl, op->in[0]) && (op->kind == OP_POOL || op->kind == OP_UNARY);
    bool passes = images || (is_divided(pl, op->in[0]) && op_keeps_last_axis(&pl->p->graph, op));
    for (int i = 0; i < op->n_in; i++) op->in[i] = whole_unless(pl, op->in[i], passes && i == 0);
    planner_push(pl, op, passes ? *planner_shard(pl, op->in[0]) : replicated);
}
