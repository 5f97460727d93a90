#include "graph/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/rewrite.h"

/* Rows of a joined linear's part have the other parts between them: plain operators and results want dense rows. */
static bool may_have_gaps(const Rewrite *r, ValueId v) {
    if (graph_is_output(r->g, v)) return false;
    for (int32_t i = 0; i < r->n_old; i++)
        for (int j = 0; j < r->old[i].n_in; j++)
            if (r->old[i].in[j] == v && op_is_plain(r->old[i].kind)) return false;
    return true;
}

/* Its result must be whole on every rank: a fused linear must not divide it with another's. */
static bool wanted_whole(const Rewrite *r, const Op *op) {
    const Op *reader = rewrite_only_reader(r, op->out[0]);
    return reader && (reader->kind == OP_ROUTE || (reader->kind == OP_GATE_ROWS && reader->in[1] == op->out[0]));
}

static bool joins(const Rewrite *r, const Op *a, const Op *b) {
    const Value *v = r->g->value;
    return b->kind == OP_LINEAR && b->in[0] == a->in[0] && b->u.linear.n_weights == 1 &&
           b->u.linear.bias == a->u.linear.bias && !b->u.linear.residual &&
           qtype_info(v[a->in[1]].type)->quantised == qtype_info(v[b->in[1]].type)->quantised &&
           wanted_whole(r, a) == wanted_whole(r, b) && may_have_gaps(r, b->out[0]);
}

/* Pushes one linear with n >= 2 weights and a view of its output for each. */
static void push_joined(Graph *g, Op *const *part, int n) {
    Op op = *part[0];
    op.u.linear.n_weights = n;
    int64_t columns = 0, begin = 0;
    for (int i = 0; i < n; i++) {
        op.in[1 + i] = part[i]->in[1];
        if (op.u.linear.bias) op.in[1 + n + i] = part[i]->in[2];
        columns += value_columns(g, part[i]->out[0]);
    }
    op.n_in = 1 + n * (op.u.linear.bias ? 2 : 1);
    const char *last = strrchr(part[n - 1]->name, '.');
    snprintf(op.name, sizeof op.name, "%.30s+%.14s", part[0]->name, last ? last + 1 : part[n - 1]->name);
    ValueId all = graph_temp_like(g, part[0]->out[0], op.name);
    if (all < 0) return;
    g->value[all].dim[g->value[all].n_dims - 1] = dim_const(columns);
    op.out[0] = all;
    graph_push(g, &op);
    for (int i = 0; i < n; i++) {
        Op view = {.kind = OP_VIEW, .n_in = 1, .in = {all}, .n_out = 1, .out = {part[i]->out[0]}};
        memcpy(view.name, part[i]->name, sizeof view.name);
        view.u.view.begin = begin;
        view.u.view.end = begin += value_columns(g, part[i]->out[0]);
        graph_push(g, &view);
    }
}

int pass_fuse_linears(Graph *g, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op *part[LINEAR_MAX] = {&r.old[i]};
        if (op_merged(part[0])) continue;
        int n = 1;
        if (part[0]->kind == OP_LINEAR && part[0]->u.linear.n_weights == 1 && !part[0]->u.linear.residual &&
            may_have_gaps(&r, part[0]->out[0]))
            for (int32_t j = i + 1; j < r.n_old && n < LINEAR_MAX; j++)
                if (joins(&r, part[0], &r.old[j])) part[n++] = &r.old[j];
        if (n == 1) {
            graph_push(g, part[0]);
            continue;
        }
        push_joined(g, part, n);
        for (int k = 1; k < n; k++) part[k]->kind = OP_COUNT;
    }
    return rewrite_end(&r, e);
}

int pass_quantise_activations(Graph *g, QType act, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    ValueId *quantised = malloc((size_t)g->n_values * sizeof *quantised);
    int32_t n_values = g->n_values;
    if (!quantised) {
        rewrite_free(&r);
        return err_set(e, "out of memory in a pass over the graph");
    }
    for (int32_t i = 0; i < n_values; i++) quantised[i] = -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        ValueId x = op.in[0];
        if (op.kind == OP_LINEAR && qtype_info(g->value[op.in[1]].type)->quantised && g->value[x].type == QT_F32) {
            if (quantised[x] < 0) {
                Op q = {.kind = OP_QUANTISE, .n_in = 1, .in = {x}, .n_out = 1};
                snprintf(q.name, sizeof q.name, "%.40s.x8", op.name);
                q.out[0] = graph_temp_like(g, x, q.name);
                if (q.out[0] >= 0) {
                    g->value[q.out[0]].type = act;
                    graph_push(g, &q);
                }
                quantised[x] = q.out[0];
            }
            op.in[0] = quantised[x];
        }
        graph_push(g, &op);
    }
    free(quantised);
    return rewrite_end(&r, e);
}

static bool gives_quantised(OpKind k) {
    return k == OP_RMSNORM || k == OP_LAYERNORM || k == OP_SILU_MUL || k == OP_GELU_MUL || k == OP_GELU ||
           k == OP_DISPATCH;
}

int pass_fuse_quantise(Graph *g, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        if (op_merged(&op)) continue;
        if (gives_quantised(op.kind)) {
            Op *reader = rewrite_only_reader(&r, op.out[0]);
            if (reader && reader->kind == OP_QUANTISE) {
                op.out[0] = reader->out[0];
                reader->kind = OP_COUNT;
            }
        }
        graph_push(g, &op);
    }
    return rewrite_end(&r, e);
}

int pass_fuse_residual(Graph *g, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        if (op_merged(&op)) continue;
        if (op.kind == OP_LINEAR && op.u.linear.n_weights == 1 && !op.u.linear.residual) {
            Op *reader = rewrite_only_reader(&r, op.out[0]);
            /* The other addend must be there before this operator runs. */
            if (reader && reader->kind == OP_ADD) {
                ValueId other = reader->in[0] == op.out[0] ? reader->in[1] : reader->in[0];
                bool ready = other != op.out[0] && rewrite_is_made(&r, other);
                if (ready) {
                    op.u.linear.residual = true;
                    op.in[op.n_in++] = other;
                    op.out[0] = reader->out[0];
                    reader->kind = OP_COUNT;
                }
            }
        }
        graph_push(g, &op);
    }
    return rewrite_end(&r, e);
}

int passes_run(Graph *g, QType act, Err *e) {
    int (*const passes[])(Graph *, Err *) = {pass_transposes, pass_dead,      pass_pad,         pass_dead,
                                             pass_affine,     pass_fuse_conv, pass_fuse_linears};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        if (passes[i](g, e)) return -1;
    return pass_quantise_activations(g, act, e) || pass_fuse_quantise(g, e) ? -1 : 0;
}
