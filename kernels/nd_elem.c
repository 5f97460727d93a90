/* Functions element by element. */
#include <stdlib.h>

#include "base/detmath.h"
#include "kernels/kernels.h"
#include "kernels/nd_internal.h"

/* ---- one operand ------------------------------------------------------------------------------------------------- */

static double unary_exotic(NdUnary f, double x) {
    switch (f) {
    case ND_SIN: return det_sin(x);
    case ND_COS: return det_cos(x);
    case ND_TAN: return det_sin(x) / det_cos(x);
    case ND_ASIN: return asin(x);
    case ND_ACOS: return acos(x);
    case ND_ATAN: return atan(x);
    case ND_SINH: return sinh(x);
    case ND_COSH: return cosh(x);
    case ND_ASINH: return asinh(x);
    case ND_ACOSH: return acosh(x);
    case ND_ATANH: return atanh(x);
    default: return x;
    }
}

static float sigmoid(float x) { return 1 / (1 + kernel_exp(-x)); }
static float between(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
static float softplus(float x) { return x > 20 ? x : nd_log(1 + kernel_exp(x)); }

#define EACH(EXPRESSION)                                                                                               \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        float v = x[k];                                                                                                \
        x[k] = (EXPRESSION);                                                                                           \
    }                                                                                                                  \
    break

void nd_unary_f32(NdUnary f, double a64, double b64, int64_t n, float *x) {
    const float a = (float)a64, b = (float)b64;
    switch (f) {
    case ND_IDENTITY: break;
    case ND_ABS: EACH(fabsf(v));
    case ND_NEG: EACH(-v);
    case ND_SIGN: EACH(v > 0 ? 1.0f : v < 0 ? -1.0f : v);
    case ND_CEIL: EACH(ceilf(v));
    case ND_FLOOR: EACH(floorf(v));
    case ND_ROUND: EACH(rintf(v));
    case ND_SQRT: EACH(sqrtf(v));
    case ND_RECIPROCAL: EACH(1 / v);
    case ND_NOT:
    case ND_BITWISE_NOT: break; /* not of floats */
    case ND_IS_NAN: EACH(isnan(v) ? 1.0f : 0.0f);
    case ND_IS_INF: EACH(isinf(v) && (v < 0 ? a != 0 : b != 0) ? 1.0f : 0.0f);
    case ND_CLIP: EACH(between(v, a, b));
    case ND_RELU: EACH(v < 0 ? 0.0f : v);
    case ND_LEAKY_RELU: EACH(v < 0 ? a * v : v);
    case ND_THRESHOLDED: EACH(v > a ? v : 0.0f);
    case ND_SHRINK: EACH(v < -b ? v + a : v > b ? v - a : 0.0f);
    case ND_HARD_SIGMOID: EACH(between(a * v + b, 0, 1));
    case ND_HARD_SWISH: EACH(v * between(v / 6 + 0.5f, 0, 1));
    case ND_EXP: EACH(kernel_exp(v));
    case ND_LOG: EACH(nd_log(v));
    case ND_SIGMOID: EACH(sigmoid(v));
    case ND_SILU: EACH(v * sigmoid(a * v));
    case ND_TANH: EACH(nd_tanh(v));
    case ND_ERF: EACH(nd_erf(v));
    case ND_GELU: EACH(0.5f * v * (1 + nd_erf(v * 0.70710678f)));
    case ND_GELU_TANH: EACH(0.5f * v * (1 + nd_tanh(0.79788456f * (v + 0.044715f * v * v * v))));
    case ND_ELU: EACH(v < 0 ? b * (a * (kernel_exp(v) - 1)) : b * v);
    case ND_CELU: EACH(v < 0 ? a * (kernel_exp(v / a) - 1) : v);
    case ND_SOFTPLUS: EACH(softplus(v));
    case ND_SOFTSIGN: EACH(v / (1 + fabsf(v)));
    case ND_MISH: EACH(v * nd_tanh(softplus(v)));
    default: EACH((float)unary_exotic(f, (double)v));
    }
}

static void unary_f64(NdUnary f, double a, double b, int64_t n, double *x) {
    for (int64_t k = 0; k < n; k++) {
        double v = x[k];
        switch (f) {
        case ND_ABS: v = fabs(v); break;
        case ND_NEG: v = -v; break;
        case ND_SIGN: v = v > 0 ? 1 : v < 0 ? -1 : v; break;
        case ND_CEIL: v = ceil(v); break;
        case ND_FLOOR: v = floor(v); break;
        case ND_ROUND: v = rint(v); break;
        case ND_SQRT: v = sqrt(v); break;
        case ND_RECIPROCAL: v = 1 / v; break;
        case ND_IS_NAN: v = isnan(v) != 0; break;
        case ND_IS_INF: v = isinf(v) && (v < 0 ? a != 0 : b != 0); break;
        case ND_CLIP: v = v < a ? a : v > b ? b : v; break;
        case ND_RELU: v = v < 0 ? 0 : v; break;
        case ND_LEAKY_RELU: v = v < 0 ? a * v : v; break;
        case ND_EXP: v = det_exp(v); break;
        case ND_LOG: v = det_log(v); break;
        case ND_SIGMOID: v = 1 / (1 + det_exp(-v)); break;
        case ND_TANH: v = tanh(v); break;
        case ND_ERF: v = erf(v); break;
        default: { /* the rest in fp32 */
            float narrow = (float)v;
            if (f >= ND_SIN) v = unary_exotic(f, v);
            else {
                nd_unary_f32(f, a, b, 1, &narrow);
                v = (double)narrow;
            }
        }
        }
        x[k] = v;
    }
}

static int64_t clip_whole(int64_t v, double a, double b) {
    return (double)v < a ? (int64_t)a : (double)v > b ? (int64_t)b : v;
}

static void unary_i64(NdUnary f, double a, double b, int64_t n, int64_t *x) {
    for (int64_t k = 0; k < n; k++) {
        int64_t v = x[k];
        switch (f) {
        case ND_ABS: x[k] = v < 0 ? (int64_t) - (uint64_t)v : v; break;
        case ND_NEG: x[k] = (int64_t) - (uint64_t)v; break;
        case ND_SIGN: x[k] = (v > 0) - (v < 0); break;
        case ND_NOT: x[k] = !v; break;
        case ND_BITWISE_NOT: x[k] = ~v; break;
        case ND_CLIP: x[k] = clip_whole(v, a, b); break;
        case ND_RELU: x[k] = v < 0 ? 0 : v; break;
        case ND_IS_NAN:
        case ND_IS_INF: x[k] = 0; break;
        default: break;
        }
    }
}

/* Whole numbers above INT64_MAX only differ for these. */
static void unary_u64(NdUnary f, double a, double b, int64_t n, uint64_t *x) {
    for (int64_t k = 0; k < n; k++) {
        if (f == ND_SIGN) x[k] = x[k] != 0;
        else if (f == ND_NEG) x[k] = -x[k];
        else if (f == ND_BITWISE_NOT) x[k] = ~x[k];
        else if (f == ND_CLIP) x[k] = (double)x[k] < a ? (uint64_t)a : (double)x[k] > b ? (uint64_t)b : x[k];
    }
}

void nd_unary(NdUnary f, double a, double b, const Nd *x, Nd *y, NdPart p) {
    int64_t begin, end;
    part_range(nd_count(y), p, &begin, &end);
    NdWork work = work_of(x->type);
    if (x->type == QT_F32 && y->type == QT_F32) { /* in place in the result: no blocks */
        float *to = (float *)y->data + begin;
        if (begin < end && y->data != x->data)
            memcpy(to, (const float *)x->data + begin, (size_t)(end - begin) * sizeof *to);
        for (; begin < end; begin += ND_BLOCK)
            nd_unary_f32(f, a, b, i64_min(ND_BLOCK, end - begin), (float *)y->data + begin);
        return;
    }
    for (; begin < end; begin += ND_BLOCK) {
        NdBlock v;
        int64_t n = i64_min(ND_BLOCK, end - begin);
        nd_load(x, begin, 1, n, &v);
        if (work == WORK_F32) nd_unary_f32(f, a, b, n, v.f);
        else if (work == WORK_F64) unary_f64(f, a, b, n, v.d);
        else if (work == WORK_I64) unary_i64(f, a, b, n, v.i);
        else unary_u64(f, a, b, n, v.u);
        nd_store(&v, work, n, y, begin);
    }
}

/* ---- two operands ------------------------------------------------------------------------------------------------ */

static double power(double x, double y) { return y == 2 ? x * x : y == 0.5 ? sqrt(x) : pow(x, y); }
static double modulus(double x, double y) {
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

#undef EACH
#define EACH(EXPRESSION)                                                                                               \
    for (int64_t k = 0; k < n; k++) z[k] = (EXPRESSION);                                                               \
    break

#define BINARY_FLOAT(NAME, T)                                                                                          \
    static void NAME(NdBinary f, int64_t n, const T *x, const T *y, T *z) {                                            \
        switch (f) {                                                                                                   \
        case ND_ADD: EACH(x[k] + y[k]);                                                                                \
        case ND_SUB: EACH(x[k] - y[k]);                                                                                \
        case ND_MUL: EACH(x[k] * y[k]);                                                                                \
        case ND_DIV: EACH(x[k] / y[k]);                                                                                \
        case ND_POW: EACH((T)power((double)x[k], (double)y[k]));                                                       \
        case ND_MIN: EACH(isnan(x[k]) || x[k] < y[k] ? x[k] : y[k]);                                                   \
        case ND_MAX: EACH(isnan(x[k]) || x[k] > y[k] ? x[k] : y[k]);                                                   \
        case ND_MOD: EACH((T)modulus((double)x[k], (double)y[k]));                                                     \
        case ND_FMOD: EACH((T)fmod((double)x[k], (double)y[k]));                                                       \
        case ND_PRELU: EACH(x[k] < 0 ? y[k] * x[k] : x[k]);                                                            \
        case ND_EQUAL: EACH((T)(x[k] == y[k]));                                                                        \
        case ND_LESS: EACH((T)(x[k] < y[k]));                                                                          \
        case ND_LESS_EQUAL: EACH((T)(x[k] <= y[k]));                                                                   \
        case ND_GREATER: EACH((T)(x[k] > y[k]));                                                                       \
        case ND_GREATER_EQUAL: EACH((T)(x[k] >= y[k]));                                                                \
        default: break;                                                                                                \
        }                                                                                                              \
    }
BINARY_FLOAT(binary_f32, float)
BINARY_FLOAT(binary_f64, double)

static int64_t divide_i64(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? (int64_t) - (uint64_t)x : x / y; }
static uint64_t divide_u64(uint64_t x, uint64_t y) { return y ? x / y : 0; }
static int64_t remainder_i64(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
static uint64_t remainder_u64(uint64_t x, uint64_t y) { return y ? x % y : 0; }
static int64_t modulus_i64(int64_t x, int64_t y) {
    int64_t r = remainder_i64(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

#define UNSIGNED(EXPRESSION) ((uint64_t)(EXPRESSION))
/* Sums and products wrap, so they are computed without a sign. */
#define BINARY_WHOLE(NAME, T, DIVIDE, REMAINDER, MODULUS)                                                              \
    static void NAME(NdBinary f, int64_t n, const T *x, const T *y, T *z) {                                            \
        switch (f) {                                                                                                   \
        case ND_ADD: EACH((T)(UNSIGNED(x[k]) + UNSIGNED(y[k])));                                                       \
        case ND_SUB: EACH((T)(UNSIGNED(x[k]) - UNSIGNED(y[k])));                                                       \
        case ND_MUL: EACH((T)(UNSIGNED(x[k]) * UNSIGNED(y[k])));                                                       \
        case ND_DIV: EACH(DIVIDE(x[k], y[k]));                                                                         \
        case ND_POW: EACH((T)llrint(fmax(-0x1p62, fmin(0x1p62, pow((double)x[k], (double)y[k])))));                    \
        case ND_MIN: EACH(x[k] < y[k] ? x[k] : y[k]);                                                                  \
        case ND_MAX: EACH(x[k] > y[k] ? x[k] : y[k]);                                                                  \
        case ND_MOD: EACH(MODULUS(x[k], y[k]));                                                                        \
        case ND_FMOD: EACH(REMAINDER(x[k], y[k]));                                                                     \
        case ND_PRELU: EACH((T)(x[k] < 1 && x[k] != 0 ? UNSIGNED(y[k]) * UNSIGNED(x[k]) : UNSIGNED(x[k])));            \
        case ND_BIT_AND: EACH(x[k] & y[k]);                                                                            \
        case ND_BIT_OR: EACH(x[k] | y[k]);                                                                             \
        case ND_BIT_XOR: EACH(x[k] ^ y[k]);                                                                            \
        case ND_SHIFT_LEFT: EACH(UNSIGNED(y[k]) < 64 ? (T)(UNSIGNED(x[k]) << y[k]) : 0);                               \
        case ND_SHIFT_RIGHT: EACH(UNSIGNED(y[k]) < 64 ? (T)(x[k] >> y[k]) : 0);                                        \
        case ND_EQUAL: EACH(x[k] == y[k]);                                                                             \
        case ND_LESS: EACH(x[k] < y[k]);                                                                               \
        case ND_LESS_EQUAL: EACH(x[k] <= y[k]);                                                                        \
        case ND_GREATER: EACH(x[k] > y[k]);                                                                            \
        case ND_GREATER_EQUAL: EACH(x[k] >= y[k]);                                                                     \
        case ND_AND: EACH(x[k] && y[k]);                                                                               \
        case ND_OR: EACH(x[k] || y[k]);                                                                                \
        case ND_XOR: EACH(!x[k] != !y[k]);                                                                             \
        default: break;                                                                                                \
        }                                                                                                              \
    }
BINARY_WHOLE(binary_i64, int64_t, divide_i64, remainder_i64, modulus_i64)
BINARY_WHOLE(binary_u64, uint64_t, divide_u64, remainder_u64, remainder_u64)

/* A run of operands as work numbers: fp32 that stand one after the other are read where they are. */
static const void *run_of(const Nd *x, int64_t at, int64_t stride, int64_t n, NdBlock *room) {
    if (x->type == QT_F32 && stride == 1) return (const float *)x->data + at;
    nd_load(x, at, stride, n, room);
    return room;
}

static void binary_run(NdBinary f, NdWork work, int64_t n, const void *x, const void *y, NdBlock *z) {
    if (work == WORK_F32) binary_f32(f, n, x, y, z->f);
    else if (work == WORK_F64) binary_f64(f, n, x, y, z->d);
    else if (work == WORK_I64) binary_i64(f, n, x, y, z->i);
    else binary_u64(f, n, x, y, z->u);
}

void nd_binary(NdBinary f, const Nd *a, const Nd *b, Nd *y, NdPart p) {
    int64_t sa[ND_DIMS], sb[ND_DIMS];
    broadcast_strides(a, y, sa);
    broadcast_strides(b, y, sb);
    Walk w;
    NdBlock room_a, room_b, z;
    NdWork work = work_of(a->type);
    for (bool more = walk_begin(&w, y, 2, (const int64_t *const[]){sa, sb}, p); more; more = walk_next(&w)) {
        int64_t step_a = w.stride[0][w.n_dims - 1], step_b = w.stride[1][w.n_dims - 1];
        for (int64_t i = 0; i < w.run; i += ND_BLOCK) {
            int64_t n = i64_min(ND_BLOCK, w.run - i);
            const void *x0 = run_of(a, w.operand[0] + i * step_a, step_a, n, &room_a);
            const void *x1 = run_of(b, w.operand[1] + i * step_b, step_b, n, &room_b);
            binary_run(f, work, n, x0, x1, &z);
            nd_store(&z, work, n, y, w.at + i);
        }
    }
}

void nd_where(const Nd *condition, const Nd *a, const Nd *b, Nd *y, NdPart p) {
    int64_t s[WALK_OPERANDS][ND_DIMS];
    broadcast_strides(condition, y, s[0]);
    broadcast_strides(a, y, s[1]);
    broadcast_strides(b, y, s[2]);
    Walk w;
    size_t size = nd_size(y->type);
    for (bool more = walk_begin(&w, y, 3, (const int64_t *const[]){s[0], s[1], s[2]}, p); more; more = walk_next(&w)) {
        int last = w.n_dims - 1;
        for (int64_t k = 0; k < w.run; k++) {
            bool yes = ((const uint8_t *)condition->data)[w.operand[0] + k * w.stride[0][last]] != 0;
            const Nd *from = yes ? a : b;
            int64_t at = w.operand[yes ? 1 : 2] + k * w.stride[yes ? 1 : 2][last];
            memcpy(nd_at(y, w.at + k), nd_at(from, at), size);
        }
    }
}

void nd_cast(const Nd *x, Nd *y, NdPart p) {
    int64_t begin, end;
    part_range(nd_count(y), p, &begin, &end);
    for (; begin < end; begin += ND_BLOCK) {
        NdBlock v;
        int64_t n = i64_min(ND_BLOCK, end - begin);
        nd_load(x, begin, 1, n, &v);
        nd_store(&v, work_of(x->type), n, y, begin);
    }
}
