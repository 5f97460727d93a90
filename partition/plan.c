#include "partition/plan.h"

#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state, without an allocation */
#include <xxhash.h>

#include "base/size.h"
#include "graph/passes.h"
#include "kernels/kernels.h"
#include "partition/internal.h"

/* Ranges live as long as the plan, in a list of chunks. */
struct PlanMemory {
    struct PlanMemory *next;
    Range range[];
};

void planner_fail(Planner *pl, const char *name, const char *what) {
    if (!pl->failed) err_set(pl->e, "dividing the model over %d ranks: %s: %s", pl->p->n_ranks, name, what);
    pl->failed = true;
}

Range *planner_ranges(Planner *pl, int n_parts) {
    size_t n = (size_t)pl->p->n_ranks * (size_t)(n_parts ? n_parts : 1);
    struct PlanMemory *m = calloc(1, sizeof *m + n * sizeof(Range));
    if (!m) {
        planner_fail(pl, "ranges", "out of memory");
        return NULL;
    }
    m->next = pl->p->memory;
    pl->p->memory = m;
    return m->range;
}

/* The states of values that the planner added come after those of the old graph. */
void planner_set(Planner *pl, ValueId v, Shard s) {
    if (v >= pl->cap_shards) {
        int32_t cap = pl->cap_shards * 2 > v ? pl->cap_shards * 2 : v + 1;
        Shard *more = realloc(pl->p->shard, (size_t)cap * sizeof *more);
        if (!more) {
            planner_fail(pl, "states", "out of memory");
            return;
        }
        memset(more + pl->cap_shards, 0, (size_t)(cap - pl->cap_shards) * sizeof *more);
        pl->p->shard = more;
        pl->cap_shards = cap;
    }
    if (s.n_parts > SHARD_PARTS) planner_fail(pl, pl->p->graph.value[v].name, "too many pieces");
    pl->p->shard[v] = s;
}

bool shard_equal(const Plan *p, const Shard *a, const Shard *b) {
    if (a->kind != b->kind) return false;
    if (a->kind != SHARD_SPLIT) return true;
    return a->axis == b->axis && a->n_parts == b->n_parts &&
           (a->range == b->range || !memcmp(a->range, b->range, (size_t)(p->n_ranks * a->n_parts) * sizeof(Range)));
}

/* The plan's graph starts with the old one's values and no operators. */
static int copy_values(Planner *pl) {
    Graph *g = &pl->p->graph;
    const Graph *old = pl->old;
    graph_init(g);
    size_t n = (size_t)old->n_values;
    g->value = malloc(n * sizeof *g->value);
    pl->p->shard = calloc(n, sizeof *pl->p->shard);
    pl->wish = calloc(n, sizeof *pl->wish);
    pl->replica = malloc(n * sizeof *pl->replica);
    if (!g->value || !pl->p->shard || !pl->wish || !pl->replica) return err_set(pl->e, "out of memory while planning");
    memcpy(g->value, old->value, n * sizeof *g->value);
    for (size_t i = 0; i < n; i++) pl->replica[i] = -1;
    g->n_values = g->cap_values = pl->cap_shards = old->n_values;
    return 0;
}

/* Images divided over ranks: every 4-dimensional input is split by its first axis. */
static void split_images(Planner *pl) {
    for (ValueId v = 0; v < pl->old->n_values; v++) {
        const Value *x = &pl->old->value[v];
        if (x->kind == VALUE_INPUT && x->n_dims == 4)
            planner_set(pl, v, planner_even(pl, AXIS_FIRST, x->dim[0].size, 1));
    }
}

static void hash_text(XXH64_state_t *s, const Op *op) {
    StrBuf text = {0};
    op_attributes(op, &text);
    if (text.len) XXH64_update(s, text.data, text.len);
    strbuf_free(&text);
}

/* Everything in an operator but its name, inputs and outputs. Field by field: padding between them is not data. */
static void hash_attributes(XXH64_state_t *s, const Op *op) {
    double f[5] = {0};
    int64_t i[8] = {0};
    switch (op->kind) {
    case OP_LINEAR:
        i[0] = op->u.linear.n_weights;
        i[1] = op->u.linear.bias;
        i[2] = op->u.linear.residual;
        break;
    case OP_RMSNORM:
    case OP_LAYERNORM: f[0] = (double)op->u.norm.eps; break;
    case OP_HEADNORM: f[0] = (double)op->u.rope.eps; break;
    case OP_ROPE_TABLE:
    case OP_ROPE:
        f[0] = op->u.rope.shape.base;
        f[1] = op->u.rope.shape.scale;
        f[2] = op->u.rope.shape.beta_fast;
        f[3] = op->u.rope.shape.beta_slow;
        f[4] = op->u.rope.shape.attention;
        i[0] = op->u.rope.heads;
        i[1] = op->u.rope.head_dim;
        i[2] = op->u.rope.shape.dim;
        i[3] = op->u.rope.shape.neox;
        i[4] = op->u.rope.shape.original;
        i[5] = op->u.rope.shape.short_context;
        break;
    case OP_KV_STORE:
    case OP_ATTENTION:
        f[0] = (double)op->u.attn.scale;
        f[1] = (double)op->u.attn.softcap;
        i[0] = op->u.attn.heads;
        i[1] = op->u.attn.kv_heads;
        i[2] = op->u.attn.head_dim;
        i[3] = op->u.attn.window;
        break;
    case OP_SCALE:
    case OP_SOFTCAP: f[0] = (double)op->u.scale.factor; break;
    case OP_ROUTE:
    case OP_GROUP:
    case OP_DISPATCH:
    case OP_COMBINE:
        i[0] = op->u.mix.experts;
        i[1] = op->u.mix.used;
        i[2] = op->u.mix.normalised;
        break;
    case OP_ALLREDUCE: i[0] = op->u.sum.exact; break;
    default: hash_text(s, op); return;
    }
    XXH64_update(s, f, sizeof f);
    XXH64_update(s, i, sizeof i);
}

static uint64_t hash_plan(const Plan *p) {
    XXH64_state_t s;
    XXH64_reset(&s, (uint64_t)p->n_ranks);
    const Graph *g = &p->graph;
    for (ValueId v = 0; v < g->n_values; v++) {
        const Value *x = &g->value[v];
        int64_t what[] = {x->kind,          x->type,          x->n_dims,          x->tensor, (int64_t)x->offset,
                          p->shard[v].kind, p->shard[v].axis, p->shard[v].n_parts};
        XXH64_update(&s, what, sizeof what);
        for (int i = 0; i < x->n_dims; i++) {
            int64_t dim[] = {x->dim[i].sym, x->dim[i].size};
            XXH64_update(&s, dim, sizeof dim);
        }
        if (p->shard[v].n_parts)
            XXH64_update(&s, p->shard[v].range, (size_t)(p->n_ranks * p->shard[v].n_parts) * sizeof(Range));
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        int32_t what[] = {(int32_t)op->kind, op->n_in, op->n_out};
        XXH64_update(&s, what, sizeof what);
        XXH64_update(&s, op->in, (size_t)op->n_in * sizeof *op->in);
        XXH64_update(&s, op->out, (size_t)op->n_out * sizeof *op->out);
        hash_attributes(&s, op);
    }
    return XXH64_digest(&s);
}

static void note_form(Plan *p, ValueId v, WeightForm form) {
    if (p->graph.value[v].kind == VALUE_WEIGHT && p->form[v] < form) p->form[v] = form;
}

/* A weight has one kind of reader: the matrices of linears are values of their own. */
static int choose_forms(Plan *p, const Graph *g, Err *e) {
    p->form = calloc((size_t)g->n_values + 1, sizeof *p->form);
    if (!p->form) return err_set(e, "out of memory while planning");
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        for (int j = 0; j < op->n_in; j++) {
            bool matrix = g->value[op->in[j]].n_dims >= 2,
                 packed = matrix && (op->kind == OP_LINEAR || op->kind == OP_EMBED);
            note_form(p, op->in[j], packed ? WEIGHT_PACKED : op_is_plain(op->kind) ? WEIGHT_PLAIN : WEIGHT_F32);
        }
    }
    for (int i = 0; i < g->n_outputs; i++) note_form(p, g->output[i], WEIGHT_PLAIN);
    return 0;
}

int plan_make(const Graph *g, const PlanOptions *o, Plan **out, Err *e) {
    *out = NULL;
    if (o->n_ranks < 1) return err_set(e, "a plan for %d ranks: at least 1 is needed", o->n_ranks);
    Plan *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "out of memory while planning");
    p->n_ranks = o->n_ranks;
    Planner pl = {.p = p, .old = g, .o = o, .e = e};
    pl.failed = copy_values(&pl) != 0 || choose_forms(p, g, e) != 0;
    if (!pl.failed) {
        if (o->split_batch && o->n_ranks > 1) split_images(&pl);
        else if (o->n_ranks > 1) planner_wishes(&pl);
        for (int32_t i = 0; i < g->n_ops && !pl.failed && !p->graph.failed; i++) planner_apply(&pl, &g->op[i]);
        p->graph.n_outputs = g->n_outputs;
        memcpy(p->graph.output, g->output, sizeof g->output);
        for (int i = 0; i < g->n_outputs && !pl.failed && !p->graph.failed; i++)
            p->graph.output[i] = planner_replicated(&pl, g->output[i]);
        if (!pl.failed) pl.failed = pass_fuse_residual(&p->graph, e) != 0;
    }
    free(pl.wish);
    free(pl.replica);
    if (pl.failed) {
        plan_free(p);
        return -1;
    }
    p->hash = hash_plan(p);
    *out = p;
    return 0;
}

void plan_free(Plan *p) {
    if (!p) return;
    while (p->memory) {
        struct PlanMemory *next = p->memory->next;
        free(p->memory);
        p->memory = next;
    }
    graph_free(&p->graph);
    free(p->shard);
    free(p->form);
    free(p);
}

int64_t plan_axis_size(const Plan *p, ValueId v, ShardAxis axis) {
    const Value *x = &p->graph.value[v];
    bool mixture = x->kind == VALUE_WEIGHT && x->n_dims == 3 && p->form[v] == WEIGHT_PACKED;
    if (x->n_dims == 0) return 1;
    return x->dim[axis == AXIS_LAST ? x->n_dims - 1 : axis == AXIS_FIRST && mixture ? 1 : 0].size;
}

int plan_local_ranges(const Plan *p, ValueId v, ShardAxis axis, int rank, Range out[SHARD_PARTS]) {
    const Shard *s = &p->shard[v];
    if (s->kind != SHARD_SPLIT || s->axis != axis) {
        out[0] = (Range){0, plan_axis_size(p, v, axis)};
        return 1;
    }
    memcpy(out, shard_at(s, rank), (size_t)s->n_parts * sizeof *out);
    return s->n_parts;
}

bool plan_can_pack(QType t, const Range *r, int n) {
    int unit = packed_unit(t), block = qtype_info(t)->block;
    const Range *last = NULL;
    for (int i = 0; i < n; i++) {
        if (r[i].begin == r[i].end) continue;
        if (last ? last->end % block || r[i].begin % block : r[i].begin % unit) return false;
        last = &r[i];
    }
    return !last || last->end % unit == 0;
}

int plan_weight_skip(const Plan *p, ValueId v, int rank) {
    Range r[SHARD_PARTS];
    int n = plan_local_ranges(p, v, AXIS_LAST, rank, r);
    for (int i = 0; i < n; i++)
        if (r[i].begin < r[i].end) return packed_skip(p->graph.value[v].type, r[i].begin);
    return 0;
}

int64_t plan_local_matrices(const Plan *p, ValueId v, int rank) {
    bool mixture = p->graph.value[v].n_dims == 3 && p->form[v] == WEIGHT_PACKED;
    return mixture ? plan_local_size(p, v, AXIS_EXPERTS, rank) : 1;
}

int64_t plan_local_size(const Plan *p, ValueId v, ShardAxis axis, int rank) {
    Range r[SHARD_PARTS];
    int64_t n = 0;
    for (int i = plan_local_ranges(p, v, axis, rank, r) - 1; i >= 0; i--) n += r[i].end - r[i].begin;
    return n;
}
