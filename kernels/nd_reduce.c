/* Functions along axes. */
#include "base/detmath.h"
#include "kernels/kernels.h"
#include "kernels/nd_internal.h"

/* ---- reductions -------------------------------------------------------------------------------------------------- */

typedef struct Axes { /* the axes of x, those that stay and those that go */
    int n_kept, n_gone;
    int64_t kept[ND_DIMS], kept_stride[ND_DIMS], gone[ND_DIMS], gone_stride[ND_DIMS], count;
} Axes;

static Axes split_axes(const Nd *x, uint32_t axes) {
    Axes a = {.count = 1};
    int64_t step = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) { /* fastest first */
        if (axes >> i & 1) {
            a.gone[a.n_gone] = x->dim[i];
            a.gone_stride[a.n_gone++] = step;
            a.count *= x->dim[i];
        } else {
            a.kept[a.n_kept] = x->dim[i];
            a.kept_stride[a.n_kept++] = step;
        }
        step *= x->dim[i];
    }
    return a;
}

static int64_t position(int n, const int64_t *dim, const int64_t *stride, int64_t i) {
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        at += i % dim[k] * stride[k];
        i /= dim[k];
    }
    return at;
}

typedef struct Sum {
    double value, largest;
    int64_t whole;
    uint64_t top; /* of unsigned numbers of 64 bits */
    bool any;
} Sum;

static void add_float(NdReduce f, Sum *s, double v) {
    switch (f) {
    case ND_SUM:
    case ND_MEAN:
    case ND_LOG_SUM: s->value += v; break;
    case ND_PROD: s->value = s->any ? s->value * v : v; break;
    case ND_L1: s->value += fabs(v); break;
    case ND_L2:
    case ND_SUM_SQUARE: s->value += v * v; break;
    case ND_REDUCE_MAX: s->value = !s->any || v > s->value || isnan(v) ? v : s->value; break;
    case ND_REDUCE_MIN: s->value = !s->any || v < s->value || isnan(v) ? v : s->value; break;
    case ND_LOG_SUM_EXP: /* relative to the largest so far */
        if (!s->any || v > s->largest) {
            s->value = s->any ? s->value * det_exp(s->largest - v) + 1 : 1;
            s->largest = v;
        } else s->value += det_exp(v - s->largest);
        break;
    default: break;
    }
    s->any = true;
}

static void add_whole(NdReduce f, Sum *s, int64_t v, bool is_unsigned) {
    uint64_t u = (uint64_t)v, w = (uint64_t)s->whole;
    bool more = is_unsigned ? u > w : v > s->whole;
    switch (f) {
    case ND_PROD: s->whole = s->any ? (int64_t)(w * u) : v; break;
    case ND_REDUCE_MAX: s->whole = !s->any || more ? v : s->whole; break;
    case ND_REDUCE_MIN: s->whole = !s->any || !more ? v : s->whole; break;
    case ND_L1: s->whole = (int64_t)(w + (v < 0 && !is_unsigned ? -u : u)); break;
    case ND_L2:
    case ND_SUM_SQUARE: s->whole = (int64_t)(w + u * u); break;
    default: s->whole = (int64_t)(w + u);
    }
    s->any = true;
}

static double finish_float(NdReduce f, const Sum *s, int64_t n) {
    switch (f) {
    case ND_MEAN: return s->value / (double)n;
    case ND_L2: return sqrt(s->value);
    case ND_LOG_SUM: return det_log(s->value);
    case ND_LOG_SUM_EXP: return s->any ? s->largest + det_log(s->value) : -INFINITY;
    case ND_PROD: return s->any ? s->value : 1;
    case ND_REDUCE_MAX: return s->any ? s->value : -INFINITY;
    case ND_REDUCE_MIN: return s->any ? s->value : INFINITY;
    default: return s->value;
    }
}

static void finish_whole(NdReduce f, const Sum *s, int64_t n, Nd *y, int64_t at) {
    NdBlock b;
    b.i[0] = s->whole;
    if (f == ND_MEAN) b.i[0] = n ? s->whole / n : 0;
    else if (f == ND_PROD && !s->any) b.i[0] = 1;
    else if (f == ND_L2 || f == ND_LOG_SUM || f == ND_LOG_SUM_EXP) {
        b.d[0] = f == ND_L2 ? sqrt((double)s->whole) : det_log((double)s->whole);
        nd_store(&b, WORK_F64, 1, y, at);
        return;
    }
    nd_store(&b, WORK_I64, 1, y, at);
}

/* One result: all elements that go into it. */
static void reduce_one(NdReduce f, const Axes *a, const Nd *x, int64_t from, Nd *y, int64_t at) {
    Sum s = {0};
    NdWork work = work_of(x->type);
    int64_t run = a->n_gone ? a->gone[0] : 1, step = a->n_gone ? a->gone_stride[0] : 1;
    int64_t outer = run ? a->count / run : 0;
    NdBlock b;
    for (int64_t o = 0; o < outer; o++) {
        int64_t base = from + position(a->n_gone - 1, a->gone + 1, a->gone_stride + 1, o);
        for (int64_t i = 0; i < run; i += ND_BLOCK) {
            int64_t n = i64_min(ND_BLOCK, run - i);
            nd_load(x, base + i * step, step, n, &b);
            for (int64_t k = 0; k < n; k++) {
                if (work == WORK_F32) add_float(f, &s, (double)b.f[k]);
                else if (work == WORK_F64) add_float(f, &s, b.d[k]);
                else add_whole(f, &s, b.i[k], work == WORK_U64);
            }
        }
    }
    if (work == WORK_I64 || work == WORK_U64) {
        finish_whole(f, &s, a->count, y, at);
        return;
    }
    b.d[0] = finish_float(f, &s, a->count);
    nd_store(&b, WORK_F64, 1, y, at);
}

void nd_reduce(NdReduce f, uint32_t axes, const Nd *x, Nd *y, NdPart p) {
    Axes a = split_axes(x, axes);
    int64_t begin, end;
    part_range(nd_count(y), p, &begin, &end);
    for (int64_t i = begin; i < end; i++) reduce_one(f, &a, x, position(a.n_kept, a.kept, a.kept_stride, i), y, i);
}

/* ---- lines along one axis ---------------------------------------------------------------------------------------- */

typedef struct Line { /* element i of line l is at first(l) + i * step */
    int64_t n, step, lines;
} Line;
static Line line_of(const Nd *x, int axis) {
    int64_t step = nd_product(x->dim, axis + 1, x->n_dims);
    return (Line){x->dim[axis], step, nd_product(x->dim, 0, axis) * step};
}
static int64_t line_first(const Line *l, int64_t i) { return i / l->step * l->step * l->n + i % l->step; }

/* a comes before b among the largest (smallest); not numbers come last. */
static bool before(const Nd *x, int64_t a, int64_t b, bool largest) {
    if (nd_is_float(x->type)) {
        double v = nd_get_f64(x, a), w = nd_get_f64(x, b);
        return largest ? v > w || (isnan(w) && !isnan(v)) : v < w || (isnan(w) && !isnan(v));
    }
    int64_t v = nd_get_i64(x, a), w = nd_get_i64(x, b);
    bool less = x->type == QT_U64 ? (uint64_t)v < (uint64_t)w : v < w;
    return largest ? !less && v != w : less;
}

void nd_arg(bool smallest, bool last, int axis, const Nd *x, Nd *y, NdPart p) {
    Line l = line_of(x, axis);
    int64_t begin, end;
    part_range(l.lines, p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = line_first(&l, i), best = 0;
        for (int64_t k = 1; k < l.n; k++) {
            int64_t at = first + k * l.step, old = first + best * l.step;
            if (before(x, at, old, !smallest) || (last && !before(x, old, at, !smallest))) best = k;
        }
        ((int64_t *)y->data)[i] = best;
    }
}

/* One line of fp32 numbers, dense or with a step. */
static void softmax_line(NdSoftmax f, const float *x, int64_t n, int64_t step, float *y) {
    float largest = -INFINITY;
    int64_t best = 0;
    for (int64_t k = 0; k < n; k++)
        if (x[k * step] > largest) largest = x[(best = k) * step];
    if (f == ND_HARDMAX) {
        for (int64_t k = 0; k < n; k++) y[k * step] = k == best ? 1 : 0;
        return;
    }
    if (isinf(largest)) largest = largest < 0 ? 0 : largest;
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        float e = kernel_exp(x[k * step] - largest);
        if (f == ND_SOFTMAX) y[k * step] = e;
        sum += (double)e;
    }
    float scale = (float)(1 / sum), shift = largest + (float)det_log(sum);
    for (int64_t k = 0; k < n; k++) y[k * step] = f == ND_SOFTMAX ? y[k * step] * scale : x[k * step] - shift;
}

/* The same for other float types, in fp64. */
static void softmax_wide(NdSoftmax f, const Nd *x, int64_t first, int64_t n, int64_t step, Nd *y) {
    double largest = -INFINITY, sum = 0;
    int64_t best = 0;
    for (int64_t k = 0; k < n; k++)
        if (nd_get_f64(x, first + k * step) > largest) largest = nd_get_f64(x, first + (best = k) * step);
    for (int64_t k = 0; k < n; k++) sum += det_exp(nd_get_f64(x, first + k * step) - largest);
    for (int64_t k = 0; k < n; k++) {
        NdBlock b;
        double v = nd_get_f64(x, first + k * step) - largest;
        b.d[0] = f == ND_HARDMAX ? k == best : f == ND_SOFTMAX ? det_exp(v) / sum : v - det_log(sum);
        nd_store(&b, WORK_F64, 1, y, first + k * step);
    }
}

void nd_softmax(NdSoftmax f, int axis, const Nd *x, Nd *y, NdPart p) {
    Line l = line_of(x, axis);
    int64_t begin, end;
    part_range(l.lines, p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = line_first(&l, i);
        if (x->type == QT_F32) softmax_line(f, (const float *)x->data + first, l.n, l.step, (float *)y->data + first);
        else softmax_wide(f, x, first, l.n, l.step, y);
    }
}

void nd_cumsum(int axis, bool exclusive, bool reverse, const Nd *x, Nd *y, NdPart p) {
    Line l = line_of(x, axis);
    int64_t begin, end;
    part_range(l.lines, p, &begin, &end);
    NdWork work = work_of(x->type);
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < l.n; k++) {
            int64_t at = line_first(&l, i) + (reverse ? l.n - 1 - k : k) * l.step;
            double v = nd_get_f64(x, at);
            uint64_t u = (uint64_t)nd_get_i64(x, at);
            NdBlock b;
            bool is_float = work == WORK_F32 || work == WORK_F64;
            if (is_float) b.d[0] = exclusive ? sum : sum + v;
            else b.u[0] = exclusive ? whole : whole + u;
            sum += v;
            whole += u;
            nd_store(&b, is_float ? WORK_F64 : WORK_U64, 1, y, at);
        }
    }
}

/* Insertion into the result, which holds indices while it grows; values come from x by them. */
void nd_top(int axis, bool largest, bool indices, const Nd *x, Nd *y, NdPart p) {
    Line l = line_of(x, axis), ly = line_of(y, axis);
    int64_t begin, end, k = y->dim[axis];
    part_range(l.lines, p, &begin, &end);
    for (int64_t i = begin; i < end && k > 0; i++) {
        int64_t first = line_first(&l, i), to = line_first(&ly, i), last = -1;
        for (int64_t r = 0; r < k; r++) { /* the r-th: the first of those that come after the one before it */
            int64_t best = -1;
            for (int64_t j = 0; j < l.n; j++) {
                int64_t at = first + j * l.step, was = first + last * l.step;
                if (last >= 0 && (before(x, at, was, largest) || (!before(x, was, at, largest) && j <= last))) continue;
                if (best < 0 || before(x, at, first + best * l.step, largest)) best = j;
            }
            last = best;
            if (indices) ((int64_t *)y->data)[to + r * ly.step] = best;
            else memcpy(nd_at(y, to + r * ly.step), nd_at(x, first + best * l.step), nd_size(x->type));
        }
    }
}

/* ---- layer norm -------------------------------------------------------------------------------------------------- */

void nd_layer_norm(int axes, double eps, const Nd *x, const Nd *scale, const Nd *bias, Nd *y, NdPart p) {
    int64_t n = nd_product(x->dim, x->n_dims - axes, x->n_dims), begin, end;
    part_range(nd_product(x->dim, 0, x->n_dims - axes), p, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < n; k++) sum += nd_get_f64(x, row * n + k);
        double mean = n ? sum / (double)n : 0;
        for (int64_t k = 0; k < n; k++) {
            double d = nd_get_f64(x, row * n + k) - mean;
            squares += d * d;
        }
        double inverse = 1 / sqrt(squares / (double)n + eps);
        for (int64_t k = 0; k < n; k++) {
            double v = (nd_get_f64(x, row * n + k) - mean) * inverse;
            if (scale) v *= nd_get_f64(scale, k);
            if (bias) v += nd_get_f64(bias, k);
            NdBlock b = {.d = {v}};
            nd_store(&b, WORK_F64, 1, y, row * n + k);
        }
    }
}
