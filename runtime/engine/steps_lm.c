/* The steps of language models, but for attention. Each runs on all threads and takes this thread's share. */
#include <math.h>
#include <string.h>

#include "base/detmath.h"
#include "engine/exec_internal.h"

void step_embed(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    const PackedWeights *w = &s->w[0]->packed;
    const int32_t *ids = (const int32_t *)(const void *)s->in[0].data;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        int64_t i = ids[r] - s->first; /* a row of another rank's part: it adds zero to the sum */
        if (i >= 0 && i < w->n) unpack_row(w, i, buf_row(&s->out, r));
        else memset(buf_row(&s->out, r), 0, (size_t)s->out.columns * sizeof(float));
    }
}

/* Threads form a grid: pairs of panels (weights stay in one core's cache) times blocks of rows, when there are more
 * threads than pairs. */
void step_linear(Exec *x, const Step *s, int thread, int n) {
    const Buf *in = &s->in[0];
    int64_t m = buf_rows(x, in), blocks = ceil_div(m, ACT_ROWS);
    int64_t across = i64_max(i64_min(n, s->panel_pairs), 1), down = i64_max(i64_min(n / across, blocks), 1);
    if (thread >= across * down) return;
    int64_t pair0, pair1, block0, block1;
    share_range(s->panel_pairs, across, thread % across, &pair0, &pair1);
    share_range(blocks, down, thread / across, &block0, &block1);
    bool quantised = qtype_planes(in->type) > 0;
    ActQ a = {0};
    if (quantised) a = buf_act(x, in);
    const Buf *residual = s->op->u.linear.residual ? &s->in[linear_residual_at(s->op)] : NULL;
    int64_t column = 0, pairs_before = 0;
    for (int i = 0; i < s->n_weights; i++) {
        const PackedWeights *w = &s->w[i]->packed;
        int64_t panels = packed_panels(w->n), pairs = ceil_div(panels, 2);
        int64_t p0 = 2 * i64_max(pair0 - pairs_before, 0), p1 = i64_min(2 * (pair1 - pairs_before), panels);
        Epilogue ep = {.bias = s->bias[i]};
        if (residual) {
            ep.residual = buf_row(residual, 0) + column;
            ep.ld_residual = residual->ld;
        }
        float *y = buf_row(&s->out, 0) + column;
        if (p0 < p1 && quantised) x->k->matmul_q(w, &a, block0, block1, p0, p1, y, s->out.ld, &ep);
        else if (p0 < p1)
            x->k->matmul_f(w, buf_row(in, 0), in->ld, block0 * ACT_ROWS, i64_min(block1 * ACT_ROWS, m), p0, p1, y,
                           s->out.ld, &ep);
        column += w->n;
        pairs_before += pairs;
    }
}

/* Where a step writes rows, in order: into the buffer, or when that is quantised into scratch memory and from there. */
typedef struct RowWriter {
    const Buf *out;
    float *tmp; /* NULL: not quantised */
    ActQ a;     /* where row r is row r - first, up to `last` */
    int64_t first, last;
} RowWriter;

static RowWriter row_writer(const Exec *x, const Step *s, int thread) {
    bool quantised = qtype_planes(s->out.type) > 0;
    return (RowWriter){.out = &s->out, .tmp = quantised ? x->scratch + thread * x->scratch_columns : NULL};
}

static float *row_begin(const RowWriter *w, int64_t r) { return w->tmp ? w->tmp : buf_row(w->out, r); }

static void row_end(const Exec *x, RowWriter *w, int64_t r) {
    if (!w->tmp) return;
    if (r >= w->last) w->a = buf_act_around(x, w->out, r, &w->first, &w->last);
    r -= w->first;
    x->k->quantise(w->tmp, 0, r, r + 1, &w->a); /* stride 0 makes every row index mean that one row */
}

void step_norm(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    float eps = s->op->u.norm.eps;
    const float *w = s->w[0]->values, *b = s->bias[0];
    RowWriter out = row_writer(x, s, thread);
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        float *y = row_begin(&out, r);
        if (b) x->k->layernorm(buf_row(&s->in[0], r), w, b, eps, s->in[0].columns, y);
        else x->k->rmsnorm(buf_row(&s->in[0], r), w, eps, s->in[0].columns, y);
        row_end(x, &out, r);
    }
}

void step_quantise(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0, first, last; r < r1; r = last) {
        ActQ a = buf_act_around(x, &s->out, r, &first, &last);
        x->k->quantise(buf_row(&s->in[0], first), s->in[0].ld, r - first, i64_min(last, r1) - first, &a);
    }
}

void step_gated(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    RowWriter out = row_writer(x, s, thread);
    void (*gate)(const float *, const float *, int64_t, float *) =
        s->op->kind == OP_GELU_MUL ? x->k->gelu_mul : x->k->silu_mul;
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        gate(buf_row(&s->in[0], r), buf_row(&s->in[1], r), s->in[0].columns, row_begin(&out, r));
        row_end(x, &out, r);
    }
}

void step_gelu(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    RowWriter out = row_writer(x, s, thread);
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        x->k->gelu(buf_row(&s->in[0], r), s->in[0].columns, row_begin(&out, r));
        row_end(x, &out, r);
    }
}

void step_rope_table(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    const int32_t *positions = (const int32_t *)(const void *)s->in[0].data;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        float *row = buf_row(&s->out, r);
        for (int64_t i = 0; i < s->out.columns / 2; i++) {
            double angle = positions[r] * s->freq[i];
            row[2 * i] = (float)det_cos(angle) * s->table_scale;
            row[2 * i + 1] = (float)det_sin(angle) * s->table_scale;
        }
    }
}

void step_rope(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    int dim = s->op->u.rope.head_dim, heads = (int)(s->in[0].columns / dim);
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++)
        x->k->rope(buf_row(&s->out, r), heads, dim, s->op->u.rope.shape.dim, s->op->u.rope.shape.neox,
                   buf_row(&s->in[1], r));
}

void step_headnorm(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    int dim = s->op->u.rope.head_dim;
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = 0; c < s->in[0].columns; c += dim)
            x->k->rmsnorm(buf_row(&s->in[0], r) + c, s->w[0]->values, s->op->u.rope.eps, dim, buf_row(&s->out, r) + c);
}

/* Scales, or caps softly. */
void step_scale(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    void (*fn)(const float *, float, int64_t, float *) = s->op->kind == OP_SCALE ? x->k->scale : x->k->softcap;
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++)
        fn(buf_row(&s->in[0], r), s->op->u.scale.factor, s->in[0].columns, buf_row(&s->out, r));
}

void step_select(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    const int32_t *rows = (const int32_t *)(const void *)s->in[1].data;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++)
        memcpy(buf_row(&s->out, r), buf_row(&s->in[0], rows[r]), (size_t)s->out.columns * sizeof(float));
}

/* Rows in order, then times 1 / their number: of one row, that row. */
void step_mean_rows(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1, columns = s->out.columns;
    const int32_t *begin = (const int32_t *)(const void *)s->in[1].data;
    const int32_t *end = (const int32_t *)(const void *)s->in[2].data;
    buf_share(x, &s->out, thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        float *y = buf_row(&s->out, r);
        memcpy(y, buf_row(&s->in[0], begin[r]), (size_t)columns * sizeof *y);
        for (int32_t i = begin[r] + 1; i < end[r]; i++) x->k->add(y, buf_row(&s->in[0], i), columns, y);
        x->k->scale(y, 1.0f / (float)(end[r] - begin[r]), columns, y);
    }
}

static void stats_of_row(Exec *x, const Step *s, int64_t r, int thread) {
    const Buf *in = &s->in[0];
    const float *logits = buf_row(in, r);
    int32_t target = ((const int32_t *)(const void *)s->in[1].data)[r];
    RowStats *out = (RowStats *)(void *)s->out.data + r;
    *out = (RowStats){.max = -INFINITY, .target = NAN};
    if (in->columns == 0) return;
    x->k->logsumexp(logits, in->columns, &out->max, &out->sum);
    if (target >= s->first && target < s->first + in->columns) out->target = logits[target - s->first];
    int top = (int)i64_min(x->now->top, in->columns);
    int32_t *ids = x->top_ids + (size_t)thread * (size_t)x->o.top;
    float *values = x->top_values + (size_t)thread * (size_t)x->o.top;
    x->k->topk(logits, in->columns, top, (int32_t)s->first, ids, values);
    Candidate *c = x->candidate + r * x->o.top;
    for (int i = 0; i < top; i++) c[i] = (Candidate){ids[i], values[i]};
    out->n_top = top;
}

void step_stats(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    buf_share(x, &s->in[0], thread, n, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) stats_of_row(x, s, r, thread);
}
