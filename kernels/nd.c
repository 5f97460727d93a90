/* Elements of any type as numbers, and walks over broadcast arrays. */
#include "kernels/nd.h"

#include "kernels/nd_internal.h"

bool nd_type(QType t) { return t <= QT_BF16 || t == QT_I32 || (t >= QT_F64 && t <= QT_BOOL); }
bool nd_is_float(QType t) { return t == QT_F32 || t == QT_F16 || t == QT_BF16 || t == QT_F64; }

int64_t nd_count(const Nd *x) { return nd_product(x->dim, 0, x->n_dims); }

/* ---- elements as numbers ----------------------------------------------------------------------------------------- */

#define LOAD(TYPE, C)                                                                                                  \
    case TYPE:                                                                                                         \
        for (int64_t k = 0; k < n; k++) to->i[k] = (int64_t)((const C *)x->data)[at + k * stride];                     \
        break;

void nd_load(const Nd *x, int64_t at, int64_t stride, int64_t n, NdBlock *to) {
    const uint16_t *half = x->data;
    switch (x->type) {
    case QT_F32:
        for (int64_t k = 0; k < n; k++) to->f[k] = ((const float *)x->data)[at + k * stride];
        break;
    case QT_F64:
        for (int64_t k = 0; k < n; k++) to->d[k] = ((const double *)x->data)[at + k * stride];
        break;
    case QT_F16:
        for (int64_t k = 0; k < n; k++) to->f[k] = f16_to_f32(half[at + k * stride]);
        break;
    case QT_BF16:
        for (int64_t k = 0; k < n; k++) to->f[k] = bf16_to_f32(half[at + k * stride]);
        break;
        ND_INTEGERS(LOAD)
    default: break;
    }
}

/* Towards 0, into the range of what stores it; NaN: 0. */
static int64_t whole(double x) {
    if (isnan(x)) return 0;
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}
static uint64_t whole_unsigned(double x) {
    if (isnan(x)) return 0;
    return x >= 0x1p64 ? UINT64_MAX : x < 0 ? (uint64_t)whole(x) : (uint64_t)x;
}

static double float_at(const NdBlock *b, NdWork work, int64_t k) {
    return work == WORK_F32   ? (double)b->f[k]
           : work == WORK_F64 ? b->d[k]
           : work == WORK_I64 ? (double)b->i[k]
                              : (double)b->u[k];
}

#define STORE(TYPE, C)                                                                                                 \
    case TYPE:                                                                                                         \
        for (int64_t k = 0; k < n; k++) ((C *)y->data)[at + k] = (C)from->u[k];                                        \
        break;

static void store_whole(const NdBlock *from, int64_t n, Nd *y, int64_t at) {
    switch (y->type) {
    case QT_BOOL:
        for (int64_t k = 0; k < n; k++) ((uint8_t *)y->data)[at + k] = from->u[k] != 0;
        break;
        STORE(QT_I8, int8_t)
        STORE(QT_U8, uint8_t)
        STORE(QT_I16, int16_t)
        STORE(QT_U16, uint16_t)
        STORE(QT_I32, int32_t)
        STORE(QT_U32, uint32_t)
        STORE(QT_I64, int64_t)
        STORE(QT_U64, uint64_t)
    default: break;
    }
}

/* The range of a whole-number type, for values that come from floats. */
static void type_range(QType t, double *low, double *high) {
    int bits = qtype_info(t)->bits;
    bool is_signed = t == QT_I8 || t == QT_I16 || t == QT_I32 || t == QT_I64;
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *high = is_signed ? ldexp(1, bits - 1) - 1 : ldexp(1, bits) - 1;
}

static void store_rounded(const NdBlock *from, NdWork work, int64_t n, Nd *y, int64_t at) {
    NdBlock b;
    double low, high;
    type_range(y->type, &low, &high);
    for (int64_t k = 0; k < n; k++) {
        double v = float_at(from, work, k);
        if (y->type == QT_BOOL) b.u[k] = v != 0;
        else if (y->type == QT_U64) b.u[k] = whole_unsigned(v < 0 ? 0 : v);
        else b.i[k] = whole(isnan(v) ? 0 : v < low ? low : v > high ? high : v);
    }
    store_whole(&b, n, y, at);
}

void nd_store(const NdBlock *from, NdWork work, int64_t n, Nd *y, int64_t at) {
    float *f = y->data;
    double *d = y->data;
    uint16_t *half = y->data;
    switch (y->type) {
    case QT_F32:
        if (work == WORK_F32) memcpy(f + at, from->f, (size_t)n * sizeof *f);
        else
            for (int64_t k = 0; k < n; k++) f[at + k] = (float)float_at(from, work, k);
        return;
    case QT_F64:
        for (int64_t k = 0; k < n; k++) d[at + k] = float_at(from, work, k);
        return;
    case QT_F16:
        for (int64_t k = 0; k < n; k++) half[at + k] = f32_to_f16((float)float_at(from, work, k));
        return;
    case QT_BF16:
        for (int64_t k = 0; k < n; k++) half[at + k] = f32_to_bf16((float)float_at(from, work, k));
        return;
    default:
        if (work == WORK_F32 || work == WORK_F64) store_rounded(from, work, n, y, at);
        else store_whole(from, n, y, at);
    }
}

double nd_get_f64(const Nd *x, int64_t i) {
    NdBlock b;
    b.u[0] = 0;
    nd_load(x, i, 1, 1, &b);
    return float_at(&b, work_of(x->type), 0);
}

int64_t nd_get_i64(const Nd *x, int64_t i) {
    NdBlock b;
    b.u[0] = 0;
    nd_load(x, i, 1, 1, &b);
    NdWork work = work_of(x->type);
    return work == WORK_I64 || work == WORK_U64 ? b.i[0] : whole(float_at(&b, work, 0));
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

void broadcast_strides(const Nd *x, const Nd *y, int64_t *strides) {
    int64_t step = 1;
    for (int i = y->n_dims - 1, k = x->n_dims - 1; i >= 0; i--, k--) {
        int64_t dim = k >= 0 ? x->dim[k] : 1;
        strides[i] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

bool walk_begin(Walk *w, const Nd *y, int n_operands, const int64_t *const *strides, NdPart p) {
    int64_t begin;
    *w = (Walk){.n_operands = n_operands};
    part_range(nd_count(y), p, &begin, &w->end);
    if (begin >= w->end) return false;
    int64_t reversed[WALK_OPERANDS][ND_DIMS]; /* last axis first, while they are joined */
    int64_t dims[ND_DIMS];
    for (int i = y->n_dims - 1; i >= 0; i--) {
        if (y->dim[i] == 1) continue;
        bool together = w->n_dims > 0;
        for (int o = 0; o < n_operands && together; o++)
            together = strides[o][i] == reversed[o][w->n_dims - 1] * dims[w->n_dims - 1];
        if (together) {
            dims[w->n_dims - 1] *= y->dim[i];
            continue;
        }
        dims[w->n_dims] = y->dim[i];
        for (int o = 0; o < n_operands; o++) reversed[o][w->n_dims] = strides[o][i];
        w->n_dims++;
    }
    if (w->n_dims == 0) {
        dims[0] = 1;
        for (int o = 0; o < n_operands; o++) reversed[o][0] = 0;
        w->n_dims = 1;
    }
    for (int i = 0; i < w->n_dims; i++) {
        w->dim[i] = dims[w->n_dims - 1 - i];
        for (int o = 0; o < n_operands; o++) w->stride[o][i] = reversed[o][w->n_dims - 1 - i];
    }
    int64_t rest = begin;
    for (int i = w->n_dims - 1; i >= 0; i--) {
        w->index[i] = rest % w->dim[i];
        rest /= w->dim[i];
        for (int o = 0; o < n_operands; o++) w->operand[o] += w->index[i] * w->stride[o][i];
    }
    w->at = begin;
    w->run = i64_min(w->dim[w->n_dims - 1] - w->index[w->n_dims - 1], w->end - begin);
    return true;
}

bool walk_next(Walk *w) {
    w->at += w->run;
    if (w->at >= w->end) return false;
    int last = w->n_dims - 1;
    for (int o = 0; o < w->n_operands; o++) w->operand[o] -= w->index[last] * w->stride[o][last];
    w->index[last] = 0;
    for (int i = last - 1; i >= 0; i--) {
        w->index[i]++;
        for (int o = 0; o < w->n_operands; o++) w->operand[o] += w->stride[o][i];
        if (w->index[i] < w->dim[i]) break;
        for (int o = 0; o < w->n_operands; o++) w->operand[o] -= w->dim[i] * w->stride[o][i];
        w->index[i] = 0;
    }
    w->run = i64_min(w->dim[last], w->end - w->at);
    return true;
}
