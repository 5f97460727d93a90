/* What convolutions take in: padding before them, factors and addends, residuals and functions behind them. */
#include <stdlib.h>
#include <string.h>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "kernels/conv.h"

/* A convolution that kernels/conv.h carries out. */
static bool is_fast(const Graph *g, const Op *op) {
    return op->kind == OP_CONV && g->value[op->in[0]].type == QT_F32 && g->value[op->in[0]].n_dims == 4 &&
           g->value[op->in[1]].kind == VALUE_WEIGHT;
}

/* ---- padding ----------------------------------------------------------------------------------------------------- */

/* The padding's own operator: nothing but zeroes, before and behind the spatial axes. */
static bool pads_image(const Graph *g, const Op *pad, int64_t *after) {
    const Value *x = &g->value[pad->in[0]], *y = &g->value[pad->out[0]];
    if (pad->kind != OP_PAD || pad->u.pad.mode != ND_PAD_CONSTANT || pad->u.pad.value != 0) return false;
    for (int i = 0; i < x->n_dims; i++) {
        after[i] = y->dim[i].size - x->dim[i].size - pad->u.pad.before[i];
        bool space = i > 0 && i < x->n_dims - 1;
        if (pad->u.pad.before[i] < 0 || after[i] < 0 || (!space && (pad->u.pad.before[i] || after[i]))) return false;
    }
    return true;
}

int pass_pad(Graph *g, Err *e) {
    Rewrite r;
    int64_t after[GRAPH_DIMS] = {0};
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        if (op.kind == OP_CONV) {
            int32_t maker = g->value[op.in[0]].producer;
            const Op *pad = maker >= 0 ? &g->op[maker] : NULL;
            if (pad && pads_image(g, pad, after)) {
                for (int k = 1; k < g->value[op.in[0]].n_dims - 1; k++) {
                    op.u.conv.window.before[k - 1] += pad->u.pad.before[k];
                    op.u.conv.window.after[k - 1] += after[k];
                }
                op.in[0] = pad->in[0];
            }
        }
        graph_push(g, &op);
    }
    return rewrite_end(&r, e);
}

/* ---- factors and addends ----------------------------------------------------------------------------------------- */

/* Operand `v` of y as one number per channel: false when it is no constant or differs from pixel to pixel. */
static bool per_channel(const Graph *g, ValueId v, int64_t channels, float *out) {
    const Value *x = &g->value[v];
    if (x->kind != VALUE_WEIGHT || !x->memory || x->type != QT_F32) return false;
    int64_t n = value_count(g, v);
    if (n != 1 && (n != channels || value_columns(g, v) != channels)) return false;
    Nd nd = value_nd(g, v);
    for (int64_t i = 0; i < channels; i++) out[i] = ((const float *)nd.data)[n == 1 ? 0 : i];
    return true;
}

/* y = conv * factor, or conv + addend, or with the operands of - and / in their order. */
static bool is_affine(const Op *op, ValueId conv, NdBinary *fn, ValueId *operand) {
    if (op->kind != OP_BINARY && op->kind != OP_ADD) return false;
    *fn = op->kind == OP_ADD ? ND_ADD : op->u.binary.fn;
    bool first = op->in[0] == conv;
    *operand = op->in[first ? 1 : 0];
    return *fn == ND_ADD || *fn == ND_MUL || (first && (*fn == ND_SUB || *fn == ND_DIV));
}

/* Weights and bias of the convolution as memory of their own, since others may have the same: made at its first change.
 */
typedef struct Folded {
    float *w, *b;
    int64_t channels, filter;
} Folded;

static bool copy_weights(Graph *g, Op *conv, Folded *f) {
    Nd w = value_nd(g, conv->in[1]);
    f->channels = w.dim[0];
    f->filter = f->channels ? nd_count(&w) / f->channels : 0;
    f->w = graph_memory(g, (size_t)nd_count(&w) * sizeof(float));
    f->b = graph_memory(g, (size_t)f->channels * sizeof(float));
    if (!f->w || !f->b) return false;
    memcpy(f->w, w.data, (size_t)nd_count(&w) * sizeof(float));
    if (conv->u.conv.bias) memcpy(f->b, value_nd(g, conv->in[2]).data, (size_t)f->channels * sizeof(float));
    const char *name = g->value[conv->in[1]].name;
    ValueId bias =
        graph_weight(g, conv->u.conv.bias ? g->value[conv->in[2]].name : name, QT_F32, 1, &f->channels, -1, f->b);
    conv->in[1] = graph_weight(g, name, QT_F32, w.n_dims, w.dim, -1, f->w);
    conv->in[2] = bias;
    conv->n_in = 3;
    conv->u.conv.bias = true;
    return !g->failed;
}

static void fold(const Folded *f, NdBinary fn, const float *operand) {
    for (int64_t o = 0; o < f->channels; o++) {
        const float v = operand[o], factor = fn == ND_MUL ? v : fn == ND_DIV ? 1 / v : 1;
        for (int64_t i = 0; i < f->filter && factor != 1; i++) f->w[o * f->filter + i] *= factor;
        f->b[o] = f->b[o] * factor + (fn == ND_ADD ? v : fn == ND_SUB ? -v : 0);
    }
}

static bool has_memory(const Graph *g, const Op *conv) {
    for (int i = 1; i < conv->n_in; i++)
        if (!g->value[conv->in[i]].memory || g->value[conv->in[i]].type != QT_F32) return false;
    return true;
}

/* Takes in the operators behind the convolution for as long as they can be. */
static void take_affine(Rewrite *r, Op *conv, float *operand) {
    Folded f = {.w = NULL};
    NdBinary fn;
    ValueId v;
    for (Op *next; (next = rewrite_only_reader(r, conv->out[0])) && !r->g->failed;) {
        if (!is_affine(next, conv->out[0], &fn, &v)) return;
        if (!per_channel(r->g, v, value_columns(r->g, conv->out[0]), operand)) return;
        const Value *y = &r->g->value[next->out[0]];
        if (y->n_dims != 4 || value_count(r->g, next->out[0]) != value_count(r->g, conv->out[0])) return;
        if (!f.w && !copy_weights(r->g, conv, &f)) return;
        fold(&f, fn, operand);
        conv->out[0] = next->out[0];
        next->kind = OP_COUNT;
    }
}

int pass_affine(Graph *g, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        if (op_merged(&op)) continue;
        if (is_fast(g, &op) && op.u.conv.act.fn == ND_IDENTITY && !op.u.conv.residual && has_memory(g, &op)) {
            float *operand = calloc((size_t)value_columns(g, op.out[0]) + 1, sizeof *operand);
            if (!operand) graph_fail(g, op.name, "out of memory");
            else take_affine(&r, &op, operand);
            free(operand);
        }
        graph_push(g, &op);
    }
    return rewrite_end(&r, e);
}

/* ---- residuals and functions ------------------------------------------------------------------------------------- */

static void take_residual(Rewrite *r, Op *conv) {
    Op *next = rewrite_only_reader(r, conv->out[0]);
    if (!next || next->kind != OP_ADD || conv->u.conv.act.fn != ND_IDENTITY || conv->u.conv.residual) return;
    ValueId other = next->in[0] == conv->out[0] ? next->in[1] : next->in[0];
    if (other == conv->out[0] || r->g->value[other].kind == VALUE_WEIGHT || !rewrite_is_made(r, other)) return;
    conv->u.conv.residual = true;
    conv->in[conv->n_in++] = other;
    conv->out[0] = next->out[0];
    next->kind = OP_COUNT;
}

static void take_function(Rewrite *r, Op *conv) {
    Op *next = rewrite_only_reader(r, conv->out[0]);
    if (!next || next->kind != OP_UNARY || conv->u.conv.act.fn != ND_IDENTITY) return;
    Act act = next->u.unary;
    if (!conv_fuses(act.fn, act.a, act.b)) return;
    conv->u.conv.act = act;
    conv->out[0] = next->out[0];
    next->kind = OP_COUNT;
}

int pass_fuse_conv(Graph *g, Err *e) {
    Rewrite r;
    if (rewrite_begin(&r, g, e)) return -1;
    for (int32_t i = 0; i < r.n_old; i++) {
        Op op = r.old[i];
        if (op_merged(&op)) continue;
        if (is_fast(g, &op)) {
            take_residual(&r, &op);
            take_function(&r, &op);
        }
        graph_push(g, &op);
    }
    return rewrite_end(&r, e);
}

/* ---- what nobody reads ------------------------------------------------------------------------------------------- */

int pass_dead(Graph *g, Err *e) {
    Rewrite r;
    bool *needed = calloc((size_t)g->n_values + 1, sizeof *needed),
         *alive = calloc((size_t)g->n_ops + 1, sizeof *alive);
    if (!needed || !alive || rewrite_begin(&r, g, e)) {
        free(needed);
        free(alive);
        return err_set(e, "out of memory in a pass over the graph");
    }
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i] >= 0) needed[g->output[i]] = true;
    for (int32_t i = r.n_old - 1; i >= 0; i--) {
        const Op *op = &r.old[i];
        alive[i] = op->n_out == 0;
        for (int j = 0; j < op->n_out; j++) alive[i] |= needed[op->out[j]];
        for (int j = 0; j < op->n_in && alive[i]; j++) needed[op->in[j]] = true;
    }
    for (int32_t i = 0; i < r.n_old; i++)
        if (alive[i]) graph_push(g, &r.old[i]);
    free(needed);
    free(alive);
    return rewrite_end(&r, e);
}
