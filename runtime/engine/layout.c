/* Buffers: which memory each value of the plan's graph has. A value lives from the operator that makes it to its last
 * reader; memory is reused when a life is over. Views, rotations in place and single slices share their input's memory.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/exec_internal.h"

typedef struct Life {
    ValueId root;  /* whose memory it is */
    int64_t shift; /* values from the start of a row of the root's memory */
    int64_t skip;  /* rows from the start */
    int32_t last;  /* of a root: the last operator that reads it or a value in its memory */
    size_t bytes, offset;
} Life;

static bool wants_dense(OpKind k) { return op_is_plain(k) || k == OP_CONV || k == OP_POOL; }

bool slice_is_alias(const Exec *x, const Op *op) {
    const Graph *g = &x->plan->graph;
    const Shard *s = &x->plan->shard[op->out[0]];
    if (s->n_parts != 1 || s->axis == AXIS_FIRST) return s->n_parts == 1;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; j < g->op[i].n_in; j++)
            if (g->op[i].in[j] == op->out[0] && wants_dense(g->op[i].kind)) return false;
    return true;
}

static bool shares_input(const Exec *x, const Op *op) {
    const Graph *g = &x->plan->graph;
    switch (op->kind) {
    case OP_VIEW:
    case OP_ROPE: return true;
    case OP_RESHAPE: return g->value[op->in[0]].kind != VALUE_WEIGHT;
    case OP_ALLREDUCE: return graph_uses(g, op->in[0]) == 1;
    case OP_SLICE: return slice_is_alias(x, op);
    default: return false;
    }
}

/* Where an alias begins in its input. */
static void place_alias(const Exec *x, const Op *op, Life *life) {
    const Plan *p = x->plan;
    Range r[SHARD_PARTS];
    Life *to = &life[op->out[0]], *from = &life[op->in[0]];
    *to = (Life){.root = from->root, .shift = from->shift, .skip = from->skip};
    if (op->kind == OP_VIEW) { /* the local columns before the view's first */
        int n = plan_local_ranges(p, op->in[0], AXIS_LAST, x->rank, r);
        for (int i = 0; i < n; i++) {
            int64_t begin = r[i].begin, end = i64_min(r[i].end, op->u.view.begin);
            if (begin < op->u.view.begin) to->shift += i64_max(end - begin, 0);
        }
    } else if (op->kind == OP_SLICE) {
        const Shard *s = &p->shard[op->out[0]];
        plan_local_ranges(p, op->out[0], s->axis, x->rank, r);
        if (s->axis == AXIS_LAST) to->shift += r[0].begin;
        else to->skip += r[0].begin; /* of the first axis; rows of an image are h * w each: see describe */
    }
}

/* A part of the columns, with the other columns between its rows; else an alias is as dense as its root. */
static bool is_view(const Exec *x, ValueId v) {
    const Op *op = &x->plan->graph.op[x->plan->graph.value[v].producer];
    return op->kind != OP_RESHAPE;
}

/* Shape of a value on this rank. */
static Buf describe(const Exec *x, ValueId v) {
    const Plan *p = x->plan;
    const Value *val = &p->graph.value[v];
    Buf b = {.type = val->type, .sym = val->n_dims ? val->dim[0].sym : DIM_CONST, .columns = 1, .h = 1, .w = 1};
    if (val->n_dims > 1) b.columns = plan_local_size(p, v, AXIS_LAST, x->rank);
    if (val->n_dims > 2) { /* an image, or what has as many axes: those between the first and the last */
        b.w = val->dim[val->n_dims - 2].size;
        for (int i = 1; i < val->n_dims - 2; i++) b.h *= val->dim[i].size;
    }
    b.ld = b.columns;
    const Shard *s = &p->shard[v];
    bool some = s->kind == SHARD_SPLIT && s->axis == AXIS_EXPERTS;
    if (b.sym == DIM_PAIRS) {
        int64_t used = val->dim[0].size; /* at most one pair for each expert that is here */
        b.capacity = x->o.max_tokens * (some ? i64_min(used, plan_local_size(p, v, AXIS_EXPERTS, x->rank)) : used);
    } else if (b.sym == DIM_CONST) b.rows = b.capacity = plan_local_size(p, v, AXIS_FIRST, x->rank) * b.h * b.w;
    else b.capacity = b.sym == DIM_TOKENS ? x->o.max_tokens : x->o.max_outputs;
    return b;
}

static size_t bytes_of(const Exec *x, const Buf *b, const Op *producer) {
    if (producer && producer->kind == OP_GROUP) return groups_bytes(b);
    if (producer && producer->kind == OP_STATS) return (size_t)x->o.max_outputs * sizeof(RowStats);
    if (qtype_planes(b->type)) return act_bytes(b->capacity, b->columns, qtype_planes(b->type));
    return (size_t)(b->capacity * b->columns) * nd_size(b->type);
}

/* The lowest offset at which `bytes` fit beside what is alive. */
static size_t find_place(const Life *life, const ValueId *alive, int n_alive, size_t bytes) {
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n_alive; i++) {
            const Life *l = &life[alive[i]];
            if (at < l->offset + l->bytes && l->offset < at + bytes) {
                at = l->offset + l->bytes;
                moved = true;
            }
        }
    }
    return at;
}

/* Groups know this rank's experts, and pairs where their groups stand. */
static void describe_experts(Exec *x, const Op *op) {
    Buf *out = &x->buf[op->out[0]];
    const Shard *s = &x->plan->shard[op->out[0]];
    if (op->kind == OP_GROUP) {
        bool some = s->kind == SHARD_SPLIT;
        out->experts = some ? (int)plan_local_size(x->plan, op->out[0], AXIS_EXPERTS, x->rank) : op->u.mix.experts;
        out->begin = (const int32_t *)(const void *)out->data;
    } else if (op->n_out && out->sym == DIM_PAIRS) {
        const Buf *groups = &x->buf[op->in[op->kind == OP_DISPATCH ? 1 : 0]];
        out->experts = groups->experts;
        out->begin = groups->begin;
    }
}

static bool in_steps(const Value *v) { return v->kind == VALUE_TEMP || v->kind == VALUE_INPUT; }

static void give_place(Exec *x, ValueId v, const Op *producer, Life *life, ValueId *alive, int *n, size_t *need) {
    Life *l = &life[v];
    l->bytes = round_up(bytes_of(x, &x->buf[v], producer) + 64, 64);
    l->offset = find_place(life, alive, *n, l->bytes);
    if (l->offset + l->bytes > *need) *need = l->offset + l->bytes;
    alive[(*n)++] = v;
}

/* Offsets for all roots; returns the bytes needed. */
static size_t assign(Exec *x, Life *life, ValueId *alive) {
    const Graph *g = &x->plan->graph;
    size_t need = 0;
    int n = 0;
    for (ValueId v = 0; v < g->n_values; v++) /* inputs stay for the whole step */
        if (g->value[v].kind == VALUE_INPUT) give_place(x, v, NULL, life, alive, &n, &need);
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int j = 0; j < g->op[i].n_out; j++)
            if (life[g->op[i].out[j]].root == g->op[i].out[j])
                give_place(x, g->op[i].out[j], &g->op[i], life, alive, &n, &need);
        int kept = 0;
        for (int k = 0; k < n; k++)
            if (life[alive[k]].last > i) alive[kept++] = alive[k];
        n = kept;
    }
    return need;
}

int exec_layout(Exec *x, Err *e) {
    const Graph *g = &x->plan->graph;
    size_t n = (size_t)g->n_values;
    x->buf = calloc(n, sizeof *x->buf);
    Life *life = calloc(n, sizeof *life);
    ValueId *alive = calloc(n, sizeof *alive);
    int status = -1;
    if (!x->buf || !life || !alive) {
        err_set(e, "out of memory while laying out buffers");
        goto done;
    }
    for (ValueId v = 0; v < g->n_values; v++) {
        life[v].root = v;
        life[v].last = g->value[v].kind == VALUE_INPUT ? g->n_ops : -1;
        if (in_steps(&g->value[v])) x->buf[v] = describe(x, v);
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        if (op->n_out && shares_input(x, op)) place_alias(x, op, life);
        for (int j = 0; j < op->n_in; j++)
            life[life[op->in[j]].root].last = i > life[life[op->in[j]].root].last ? i : life[life[op->in[j]].root].last;
        if (op->kind == OP_GROUP) describe_experts(x, op); /* how large they are; where, when all have a place */
        if (op->kind == OP_STATS) life[life[op->in[0]].root].last = g->n_ops; /* exec_logits */
    }
    for (int i = 0; i < g->n_outputs; i++) life[life[g->output[i]].root].last = g->n_ops;
    size_t need = assign(x, life, alive);
    if (arena_create(&x->activations, need + 64, -1, e)) {
        err_context(e, "memory for activations");
        goto done;
    }
    x->activations.used = need;
    for (ValueId v = 0; v < g->n_values; v++) {
        if (!in_steps(&g->value[v])) continue;
        Buf *b = &x->buf[v];
        const Buf *root = &x->buf[life[v].root];
        b->data = x->activations.base + life[life[v].root].offset;
        if (life[v].root != v) {
            b->ld = is_view(x, v) ? root->ld : b->columns;
            b->data += (size_t)(life[v].skip * b->h * b->w * root->ld + life[v].shift) * nd_size(b->type);
        }
    }
    for (int32_t i = 0; i < g->n_ops; i++) describe_experts(x, &g->op[i]);
    status = 0;
done:
    free(life);
    free(alive);
    return status;
}

int exec_pool(const ExecOptions *o, const Value *state) {
    for (int i = 0; i < o->n_pools; i++)
        if (o->pool[i].window == state->window) return i;
    return -1;
}

int exec_state_size(const Plan *p, int rank, const ExecOptions *o, ValueId v, size_t *bytes, Err *e) {
    const Value *state = &p->graph.value[v];
    int pool = exec_pool(o, state);
    if (pool < 0)
        return err_set(e, "%s: there are no blocks for a window of %lld", state->name, (long long)state->window);
    int columns = (int)plan_local_size(p, v, AXIS_LAST, rank);
    if (!size_mul((size_t)o->pool[pool].blocks, kv_block_bytes((KvShape){1, columns}), bytes))
        return err_set(e, "%s: a KV cache of %lld blocks is too large", state->name, (long long)o->pool[pool].blocks);
    *bytes = round_up(*bytes, 64);
    return 0;
}

int exec_plan_bytes(const Plan *p, int rank, const ExecOptions *o, uint64_t *activations, uint64_t *states, Err *e) {
    Exec x = {.plan = p, .rank = rank, .o = *o};
    int status = exec_layout(&x, e); /* the arena is address space only: nothing is touched */
    *activations = x.activations.used;
    *states = 0;
    for (ValueId v = 0; v < p->graph.n_values && !status; v++) {
        if (p->graph.value[v].kind != VALUE_STATE) continue;
        size_t bytes;
        status = exec_state_size(p, rank, o, v, &bytes, e);
        if (!status) *states += bytes;
    }
    arena_free(&x.activations);
    free(x.buf);
    return status;
}
