/* The steps of mixtures of experts. The pairs of a token and one of its experts are sorted by expert, so that each
 * expert's weights are read once for all of its tokens; an expert's pairs are a matrix of their own. */
#include <string.h>

#include "engine/exec_internal.h"

/* ---- memory ---- */

size_t groups_bytes(const Buf *b) {
    size_t pairs = (size_t)(b->capacity * (b->columns / 2)), begins = (size_t)b->experts + 1;
    return (begins + 2 * pairs) * sizeof(int32_t);
}

Groups buf_groups(const Buf *b) {
    int32_t *begin = (int32_t *)(void *)b->data, *row = begin + b->experts + 1;
    return (Groups){begin, row, row + b->capacity * (b->columns / 2)};
}

ActQ buf_act_part(const Exec *x, const Buf *b, int expert, int64_t *row0, int64_t *row1) {
    ActQ a = buf_act(x, b);
    *row0 = 0;
    *row1 = a.m;
    if (b->sym != DIM_PAIRS) return a;
    *row0 = b->begin[expert];
    *row1 = b->begin[expert + 1];
    int64_t entries = *row0 * (a.k / ACT_GROUP); /* rows before take as much room in whatever blocks they stand */
    a.m = *row1 - *row0;
    a.codes += entries * ACT_GROUP * a.planes;
    a.scale += entries;
    a.sum += entries;
    a.half_sum += entries;
    return a;
}

ActQ buf_act_around(const Exec *x, const Buf *b, int64_t r, int64_t *row0, int64_t *row1) {
    int low = 0, high = b->sym == DIM_PAIRS ? b->experts : 0; /* begin[low] <= r < begin[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (b->begin[middle] <= r) low = middle;
        else high = middle;
    }
    return buf_act_part(x, b, low, row0, row1);
}

/* ---- which experts a token gets ---- */

/* A routing's row: `used` experts, then their weights. */
static int32_t *row_experts(const Buf *routing, int64_t r) { return (int32_t *)(void *)buf_row(routing, r); }
static float *row_weights(const Buf *routing, int64_t r) { return buf_row(routing, r) + routing->columns / 2; }

/* exp of the logits over their sum, which is that of the given ones in order, or of all. */
static void weigh(const Exec *x, MixShape mix, const float *all, float *logit) {
    float max = logit[0], sum = 0;
    if (!mix.normalised) x->k->logsumexp(all, mix.experts, &max, &sum);
    for (int i = 0; i < mix.used; i++) {
        logit[i] = kernel_exp(logit[i] - max);
        if (mix.normalised) sum += logit[i];
    }
    for (int i = 0; i < mix.used; i++) logit[i] /= sum;
}

static void sort_by_expert(int32_t *expert, float *weight, int n) {
    for (int i = 1; i < n; i++) {
        int32_t e = expert[i];
        float w = weight[i];
        int at = i;
        for (; at > 0 && expert[at - 1] > e; at--) {
            expert[at] = expert[at - 1];
            weight[at] = weight[at - 1];
        }
        expert[at] = e;
        weight[at] = w;
    }
}

void step_route(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    MixShape mix = s->op->u.mix;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        const float *logits = buf_row(&s->in[0], r);
        int32_t *expert = row_experts(&s->out, r);
        float *weight = row_weights(&s->out, r);
        x->k->topk(logits, mix.experts, mix.used, 0, expert, weight);
        weigh(x, mix, logits, weight);
        sort_by_expert(expert, weight, mix.used);
    }
}

/* Sorts this rank's pairs by expert, by counting. One thread: a few thousand pairs at most. */
void step_group(Exec *x, const Step *s, int thread, int n) {
    (void)n;
    if (thread != 0) return;
    Groups g = buf_groups(&s->out);
    int64_t tokens = buf_rows(x, &s->in[0]), used = s->op->u.mix.used, experts = s->out.experts;
    int32_t first = (int32_t)s->first;
    memset(g.begin, 0, (size_t)(experts + 1) * sizeof *g.begin);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < used; i++) {
            int32_t e = row_experts(&s->in[0], t)[i] - first;
            if (e >= 0 && e < experts) g.begin[e + 1]++;
        }
    for (int64_t e = 0; e < experts; e++) g.begin[e + 1] += g.begin[e];
    /* while rows are given out, begin[e] is the next one of e; in the end that is begin[e + 1] */
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < used; i++) {
            int32_t e = row_experts(&s->in[0], t)[i] - first, *row = &g.row[t * used + i];
            *row = e >= 0 && e < experts ? g.begin[e]++ : -1;
            if (*row >= 0) g.token[*row] = (int32_t)t;
        }
    memmove(g.begin + 1, g.begin, (size_t)experts * sizeof *g.begin);
    g.begin[0] = 0;
}

void step_dispatch(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1, first = 0, last = 0;
    const int32_t *token = buf_groups(&s->in[1]).token;
    bool quantised = qtype_planes(s->out.type) > 0;
    ActQ a = {0};
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        const float *row = buf_row(&s->in[0], token[r]);
        if (quantised && r >= last) a = buf_act_around(x, &s->out, r, &first, &last);
        if (quantised) x->k->quantise(row, 0, r - first, r - first + 1, &a);
        else memcpy(buf_row(&s->out, r), row, (size_t)s->out.columns * sizeof *row);
    }
}

/* ---- the experts ---- */

/* What a pair of panels costs beside its rows, in rows: it is read and unpacked once for all of them. From memory, with
 * 2048 columns on AVX-512, one row took 3 to 4 times what one more among 64 does (4 and 6 bits; 8 bits: 7). */
enum { PANEL_COST = 4 };

/* Panels of one weight of one expert, against all pairs of it. */
static void multiply(Exec *x, const Step *s, int weight, int64_t column, int expert, int64_t panel0, int64_t panel1) {
    const Buf *in = &s->in[0];
    PackedWeights w = s->w[weight]->packed;
    w.data += (size_t)expert * s->w[weight]->matrix_bytes;
    int64_t row0 = in->begin[expert], row1 = in->begin[expert + 1];
    Epilogue none = {0};
    if (qtype_planes(in->type)) {
        ActQ a = buf_act_part(x, in, expert, &row0, &row1);
        x->k->matmul_q(&w, &a, 0, ceil_div(a.m, ACT_ROWS), panel0, panel1, buf_row(&s->out, row0) + column, s->out.ld,
                       &none);
    } else
        x->k->matmul_f(&w, buf_row(in, 0), in->ld, row0, row1, panel0, panel1, buf_row(&s->out, 0) + column, s->out.ld,
                       &none);
}

/* The pairs of panels of all experts that have tokens stand in one row, each as long as it costs; every thread takes
 * an equal piece of that row. */
void step_expert_linear(Exec *x, const Step *s, int thread, int n) {
    const Buf *in = &s->in[0];
    int64_t total = 0, at = 0, begin, end;
    for (int e = 0; e < in->experts; e++) {
        int64_t rows = in->begin[e + 1] - in->begin[e];
        if (rows) total += s->panel_pairs * (PANEL_COST + rows);
    }
    share_range(total, n, thread, &begin, &end);
    for (int e = 0; e < in->experts && at < end; e++) {
        int64_t rows = in->begin[e + 1] - in->begin[e], cost = PANEL_COST + rows, column = 0;
        for (int i = 0; rows && i < s->n_weights; i++) {
            int64_t panels = packed_panels(s->w[i]->packed.n), pairs = ceil_div(panels, 2);
            int64_t p0 = ceil_div(i64_max(begin - at, 0), cost),
                    p1 = i64_min(ceil_div(i64_max(end - at, 0), cost), pairs);
            if (p0 < p1) multiply(x, s, i, column, e, 2 * p0, i64_min(2 * p1, panels));
            at += pairs * cost;
            column += s->w[i]->packed.n;
        }
    }
}

/* Threads take rows; with few of them, each a piece of the columns, in whole vectors. */
void step_combine(Exec *x, const Step *s, int thread, int n) {
    const Buf *y = &s->in[0], *out = &s->out;
    const int32_t *row = buf_groups(&s->in[2]).row;
    int64_t rows = buf_rows(x, out), across = rows < n ? n : 1, r0 = 0, r1 = rows, c0, c1;
    if (across == 1) share_range(rows, n, thread, &r0, &r1);
    share_range(ceil_div(out->columns, 16), across, thread % across, &c0, &c1);
    c0 *= 16;
    c1 = i64_min(16 * c1, out->columns);
    if (c0 >= c1) return;
    for (int64_t r = r0; r < r1; r++) {
        float *to = buf_row(out, r) + c0;
        const float *weight = row_weights(&s->in[1], r);
        bool any = false;
        for (int i = 0; i < s->op->u.mix.used; i++) {
            int32_t from = row[r * s->op->u.mix.used + i];
            if (from < 0) continue;
            if (any) x->k->add_scaled(buf_row(y, from) + c0, weight[i], c1 - c0, to);
            else x->k->scale(buf_row(y, from) + c0, weight[i], c1 - c0, to);
            any = true;
        }
        if (!any) memset(to, 0, (size_t)(c1 - c0) * sizeof *to);
    }
}

void step_gate_rows(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        float gate = 1.0f / (1.0f + kernel_exp(-*buf_row(&s->in[1], r)));
        x->k->scale(buf_row(&s->in[0], r), gate, s->in[0].columns, buf_row(&s->out, r));
    }
}
