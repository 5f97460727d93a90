#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/passes.h"
#include "graph/rewrite.h"

/* A value that is the transpose of another: axis i of it is axis perm[i] of `from`. */
typedef struct Origin {
    ValueId from; /* -1: it is no transpose */
    int perm[GRAPH_DIMS];
} Origin;

typedef struct Sinker {
    Rewrite r;
    Graph *g;
    Origin *origin; /* [cap] by value */
    ValueId cap;
    bool failed; /* out of memory */
} Sinker;

static Origin *origin_of(Sinker *s, ValueId v) {
    if (v >= s->cap) {
        ValueId cap = v * 2 + 64;
        Origin *more = realloc(s->origin, (size_t)cap * sizeof *more);
        if (!more) {
            s->failed = true;
            return NULL;
        }
        for (ValueId i = s->cap; i < cap; i++) more[i].from = -1;
        s->origin = more;
        s->cap = cap;
    }
    return &s->origin[v];
}

static bool transposed(Sinker *s, ValueId v, Origin *out) {
    const Origin *o = origin_of(s, v);
    if (!o || o->from < 0) return false;
    *out = *o;
    return true;
}

static bool same_perm(const Origin *a, const Origin *b, int n) {
    return memcmp(a->perm, b->perm, (size_t)n * sizeof *a->perm) == 0;
}

/* Moving axes of size 1 about moves nothing in memory. */
static bool moves_nothing(const Graph *g, ValueId x, const int *perm) {
    const Value *v = &g->value[x];
    int last = -1;
    for (int i = 0; i < v->n_dims; i++) {
        if (v->dim[perm[i]].size == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

/* An operator with one result whose output is the given value. */
static void push_to(Graph *g, Op op, ValueId x, ValueId to, const char *name) {
    op.n_in = op.n_out = 1;
    op.in[0] = x;
    op.out[0] = to;
    memset(op.name, 0, sizeof op.name);
    snprintf(op.name, sizeof op.name, "%s", name);
    graph_push(g, &op);
}

/* Makes `to` from `o.from` as simply as that goes, and remembers it. */
static void push_transpose(Sinker *s, Origin o, ValueId to, const char *name) {
    Graph *g = s->g;
    if (g->failed) return;
    Op op = {.kind = moves_nothing(g, o.from, o.perm) ? OP_RESHAPE : OP_TRANSPOSE};
    if (op.kind == OP_TRANSPOSE) memcpy(op.u.transpose.perm, o.perm, sizeof o.perm);
    push_to(g, op, o.from, to, name);
    Origin *at = origin_of(s, to);
    if (at) *at = o;
}

/* A transpose of a padding is a padding of a transpose: so the padding comes to stand before the convolution, which
 * takes it in. */
static bool lift(Sinker *s, const Op *op) {
    Graph *g = s->g;
    int32_t maker = g->value[op->in[0]].producer;
    if (maker < 0 || g->op[maker].kind != OP_PAD || !rewrite_only_reader(&s->r, op->in[0])) return false;
    Op pad = g->op[maker];
    Op turn = *op;
    turn.in[0] = pad.in[0];
    Value shape = g->value[pad.in[0]];
    int n = shape.n_dims;
    for (int i = 0; i < n; i++) {
        shape.dim[i] = g->value[pad.in[0]].dim[op->u.transpose.perm[i]];
        pad.u.pad.before[i] = g->op[maker].u.pad.before[op->u.transpose.perm[i]];
    }
    pad.in[0] = graph_emit(g, turn, op->name, 1, turn.in, shape);
    pad.out[0] = op->out[0];
    graph_push(g, &pad);
    return true;
}

static void sink_transpose(Sinker *s, const Op *op) {
    if (lift(s, op)) return;
    Origin o = {.from = op->in[0]}, before;
    int n = s->g->value[op->in[0]].n_dims;
    memcpy(o.perm, op->u.transpose.perm, sizeof o.perm);
    if (transposed(s, op->in[0], &before)) {
        o.from = before.from;
        for (int i = 0; i < n; i++) o.perm[i] = before.perm[op->u.transpose.perm[i]];
    }
    push_transpose(s, o, op->out[0], op->name);
}

/* Axis `axis` of a transposed value is this axis of what it came from. */
static uint32_t move_axes(uint32_t axes, const int *perm, int n) {
    uint32_t moved = 0;
    for (int i = 0; i < n; i++)
        if (axes >> i & 1) moved |= 1u << perm[i];
    return moved;
}

static void move_list(int64_t *x, const int *perm, int n) {
    int64_t old[GRAPH_DIMS];
    memcpy(old, x, sizeof old);
    for (int i = 0; i < n; i++) x[perm[i]] = old[i];
}

/* The operator on untransposed inputs: attributes by axis go along. False: it cannot work that way. */
static bool move_attributes(Op *op, const int *perm, int n) {
    switch (op->kind) {
    case OP_UNARY:
    case OP_CAST:
    case OP_ADD:
    case OP_BINARY:
    case OP_WHERE: return true;
    case OP_CONCAT:
    case OP_SOFTMAX: op->u.along.axis = perm[op->u.along.axis]; return true;
    case OP_PAD: move_list(op->u.pad.before, perm, n); return true;
    case OP_CUT:
        move_list(op->u.cut.begin, perm, n);
        move_list(op->u.cut.step, perm, n);
        return true;
    case OP_REDUCE: op->u.reduce.axes = move_axes(op->u.reduce.axes, perm, n); return true;
    default: return false;
    }
}

/* Input v of an operator with `n` axes as it looks before the transpose `o`: what v came from by the same transpose, a
 * constant turned back, a single number as it is. -1: there is none without work in each step. */
static ValueId untransposed(Sinker *s, ValueId v, const Origin *o, int n) {
    Graph *g = s->g;
    Origin other;
    if (transposed(s, v, &other) && g->value[v].n_dims == n && same_perm(&other, o, n)) return other.from;
    if (value_count(g, v) == 1 && g->value[v].n_dims <= n) return v;
    int64_t dims[GRAPH_DIMS];
    int shift = n - g->value[v].n_dims, back[GRAPH_DIMS];
    if (shift < 0) return -1;
    for (int i = 0; i < n; i++) {
        dims[i] = i < shift ? 1 : g->value[v].dim[i - shift].size;
        back[o->perm[i]] = i;
    }
    if (g->value[v].kind == VALUE_WEIGHT && g->value[v].memory) {
        ValueId wide = graph_reshape(g, g->value[v].name, v, n, dims);
        wide = graph_transpose(g, g->value[v].name, wide, back);
        return wide;
    }
    /* A value of which only axes of size 1 move, such as the factors of a squeeze-and-excitation block. */
    int64_t moved[GRAPH_DIMS];
    int last = -1;
    for (int i = 0; i < n; i++) {
        moved[i] = dims[back[i]];
        if (moved[i] == 1) continue;
        if (back[i] < last) return -1;
        last = back[i];
    }
    return graph_reshape(g, g->value[v].name, v, n, moved);
}

/* The operator works on what its inputs came from; its own result becomes a transpose. False: it stays as it is. */
static bool sink_through(Sinker *s, const Op *old) {
    Graph *g = s->g;
    Op op = *old;
    Origin o = {.from = -1};
    int n = g->value[op.out[0]].n_dims, n_in = 0;
    for (int i = 0; i < op.n_in && o.from < 0; i++)
        if (transposed(s, op.in[i], &o)) n_in = g->value[op.in[i]].n_dims;
    if (o.from < 0 || !move_attributes(&op, o.perm, n_in)) return false;
    if (op.kind != OP_REDUCE && n_in != n) return false;
    for (int i = 0; i < op.n_in; i++)
        if ((op.in[i] = untransposed(s, op.in[i], &o, n_in)) < 0) return false;
    Value shape = g->value[op.out[0]];
    Origin after = {.from = -1};
    if (n == n_in) {
        memcpy(after.perm, o.perm, sizeof o.perm);
        for (int i = 0; i < n; i++) shape.dim[o.perm[i]] = g->value[old->out[0]].dim[i];
    } else { /* a reduction without the reduced axes: those that stay, in the order they have now */
        int place[GRAPH_DIMS], kept = 0, k = 0;
        for (int i = 0; i < n_in; i++) place[i] = op.u.reduce.axes >> i & 1 ? -1 : kept++;
        for (int i = 0; i < n_in; i++)
            if (!(old->u.reduce.axes >> i & 1)) {
                after.perm[k] = place[o.perm[i]];
                shape.dim[after.perm[k]] = g->value[old->out[0]].dim[k];
                k++;
            }
    }
    after.from = graph_emit(g, op, op.name, op.n_in, op.in, shape);
    push_transpose(s, after, old->out[0], op.name);
    return true;
}

/* A reshape of a value of which only axes of size 1 were moved reshapes the original. */
static void sink_reshape(Sinker *s, Op op) {
    Origin o;
    while (transposed(s, op.in[0], &o) && moves_nothing(s->g, o.from, o.perm)) op.in[0] = o.from;
    graph_push(s->g, &op);
}

/* What v is the same as: a transpose that turned another back. */
static ValueId original(Sinker *s, ValueId v) {
    Origin o;
    if (!transposed(s, v, &o)) return v;
    for (int i = 0; i < s->g->value[v].n_dims; i++)
        if (o.perm[i] != i) return v;
    return o.from;
}

int pass_transposes(Graph *g, Err *e) {
    Sinker s = {.g = g};
    bool any = false;
    for (int32_t i = 0; i < g->n_ops; i++) any |= g->op[i].kind == OP_TRANSPOSE;
    if (!any) return 0;
    if (rewrite_begin(&s.r, g, e)) return -1;
    for (int32_t i = 0; i < s.r.n_old && !s.failed; i++) {
        Op op = s.r.old[i];
        for (int k = 0; k < op.n_in; k++) op.in[k] = original(&s, op.in[k]);
        if (op.kind == OP_TRANSPOSE) sink_transpose(&s, &op);
        else if (op.kind == OP_RESHAPE) sink_reshape(&s, op);
        else if (op.n_out != 1 || !sink_through(&s, &op)) graph_push(g, &op);
    }
    free(s.origin);
    if (s.failed) {
        rewrite_free(&s.r);
        return err_set(e, "out of memory in a pass over the graph");
    }
    return rewrite_end(&s.r, e);
}
