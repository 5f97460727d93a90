/* Dense arrays: every function against plain loops over indices, in one share and in several, which must agree. */
#include "kernels/nd.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "check.h"

static uint32_t seed = 1;
static double noise(void) { /* in [-1, 1) */
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) * (2.0 / 16777216.0) - 1;
}

static uint8_t room[64][1 << 14];
static int next_room;

/* An array in a room of its own, with noise (times `scale`) in it. */
static Nd array(QType t, double scale, int n_dims, const int64_t *dims) {
    Nd x = {.type = t, .n_dims = n_dims, .data = room[next_room++ % 64]};
    for (int i = 0; i < n_dims; i++) x.dim[i] = dims[i];
    for (int64_t i = 0; i < nd_count(&x); i++) {
        double v = noise() * scale;
        Nd from = {.type = QT_F64, .data = &v}, to = x;
        to.n_dims = 0;
        to.data = (uint8_t *)x.data + (size_t)i * nd_size(t);
        nd_cast(&from, &to, (NdPart){0, 1});
    }
    return x;
}
#define DIMS(...)                                                                                                      \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* Element i of x broadcast to y's shape. */
static double element(const Nd *x, const Nd *y, int64_t i) {
    int64_t at = 0, step = 1;
    for (int k = y->n_dims - 1, j = x->n_dims - 1; k >= 0; i /= y->dim[k--], j--) {
        if (j < 0) continue;
        at += x->dim[j] == 1 ? 0 : i % y->dim[k] * step;
        step *= x->dim[j];
    }
    return nd_get_f64(x, at);
}

/* STATEMENT computes the result y in the share `p`: once alone, then by three threads into other memory, which must
 * give the same bytes. */
#define IN_SHARES(y, STATEMENT)                                                                                        \
    do {                                                                                                               \
        NdPart p = {0, 1};                                                                                             \
        STATEMENT;                                                                                                     \
        uint8_t *whole = (y).data, *parts = room[next_room++ % 64];                                                    \
        (y).data = parts;                                                                                              \
        for (p = (NdPart){0, 3}; p.thread < 3; p.thread++) STATEMENT;                                                  \
        CU_ASSERT(memcmp(whole, parts, (size_t)nd_count(&(y)) * nd_size((y).type)) == 0);                              \
        (y).data = whole;                                                                                              \
    } while (0)

static void near(double got, double want, double tolerance) {
    bool good = fabs(got - want) <= tolerance * (1 + fabs(want)) || (isnan(got) && isnan(want)) || got == want;
    CU_ASSERT(good);
    if (!good) printf("\ngot %.9g, not %.9g", got, want);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static void test_casts(void) {
    static const struct {
        QType from, to;
        double value, want;
    } cases[] = {{QT_F32, QT_U8, 300, 255},   {QT_F32, QT_U8, -5, 0},          {QT_F32, QT_I8, -2.9, -2},
                 {QT_F32, QT_I32, NAN, 0},    {QT_F64, QT_I64, 1e300, 0x1p63}, {QT_F32, QT_BOOL, 0.25, 1},
                 {QT_I64, QT_I8, 257, 1},     {QT_I32, QT_F16, 3, 3},          {QT_F64, QT_F16, 1e6, INFINITY},
                 {QT_F32, QT_BF16, 1.001, 1}, {QT_I16, QT_U16, -1, 65535},     {QT_U64, QT_F32, 16777217, 16777216},
                 {QT_F32, QT_U64, -1, 0},     {QT_I8, QT_BOOL, -3, 1},         {QT_F16, QT_I32, 7.5, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t memory[2] = {0};
        double v = cases[i].value;
        Nd f = {.type = QT_F64, .data = &v}, from = {.type = cases[i].from, .data = &memory[0]};
        Nd to = {.type = cases[i].to, .data = &memory[1]};
        nd_cast(&f, &from, (NdPart){0, 1});
        nd_cast(&from, &to, (NdPart){0, 1});
        near(nd_get_f64(&to, 0), cases[i].want, 0);
    }
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static double plain_unary(NdUnary f, double a, double b, double x) {
    switch (f) {
    case ND_ABS: return fabs(x);
    case ND_NEG: return -x;
    case ND_SIGN: return (x > 0) - (x < 0);
    case ND_CEIL: return ceil(x);
    case ND_FLOOR: return floor(x);
    case ND_ROUND: return nearbyint(x);
    case ND_SQRT: return sqrt(x);
    case ND_RECIPROCAL: return 1 / x;
    case ND_CLIP: return fmin(fmax(x, a), b);
    case ND_RELU: return fmax(x, 0);
    case ND_LEAKY_RELU: return x < 0 ? a * x : x;
    case ND_THRESHOLDED: return x > a ? x : 0;
    case ND_SHRINK: return x < -b ? x + a : x > b ? x - a : 0;
    case ND_HARD_SIGMOID: return fmax(0, fmin(1, a * x + b));
    case ND_HARD_SWISH: return x * fmax(0, fmin(1, x / 6 + 0.5));
    case ND_EXP: return exp(x);
    case ND_LOG: return log(x);
    case ND_SIGMOID: return 1 / (1 + exp(-x));
    case ND_SILU: return x / (1 + exp(-a * x));
    case ND_TANH: return tanh(x);
    case ND_ERF: return erf(x);
    case ND_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
    case ND_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ND_ELU: return b * (x < 0 ? a * (exp(x) - 1) : x);
    case ND_CELU: return fmax(0, x) + fmin(0, a * (exp(x / a) - 1));
    case ND_SOFTPLUS: return log1p(exp(x));
    case ND_SOFTSIGN: return x / (1 + fabs(x));
    case ND_MISH: return x * tanh(log1p(exp(x)));
    case ND_SIN: return sin(x);
    case ND_COS: return cos(x);
    case ND_TAN: return tan(x);
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

/* All functions of real numbers, on fp32 and fp64, over [-4, 4). */
static void test_unary(void) {
    for (int f = 0; f < ND_UNARY_COUNT; f++) {
        if (f == ND_NOT || f == ND_BITWISE_NOT || f == ND_IS_NAN || f == ND_IS_INF) continue;
        for (int wide = 0; wide < 2; wide++) {
            Nd x = array(wide ? QT_F64 : QT_F32, 4, DIMS(7, 41)), y = array(x.type, 0, DIMS(7, 41));
            IN_SHARES(y, nd_unary((NdUnary)f, 0.75, 1.5, &x, &y, p));
            for (int64_t i = 0; i < nd_count(&x); i++)
                near(nd_get_f64(&y, i), plain_unary((NdUnary)f, 0.75, 1.5, nd_get_f64(&x, i)), 2e-6);
        }
    }
    Nd x = array(QT_F32, 1, DIMS(4)), y = array(QT_BOOL, 0, DIMS(4));
    memcpy(x.data, (float[]){NAN, -INFINITY, INFINITY, 0}, 16);
    nd_unary(ND_IS_NAN, 0, 0, &x, &y, (NdPart){0, 1});
    CU_ASSERT(memcmp(y.data, (uint8_t[]){1, 0, 0, 0}, 4) == 0);
    nd_unary(ND_IS_INF, 0, 1, &x, &y, (NdPart){0, 1});
    CU_ASSERT(memcmp(y.data, (uint8_t[]){0, 0, 1, 0}, 4) == 0);
}

static double plain_binary(NdBinary f, double x, double y) {
    switch (f) {
    case ND_ADD: return x + y;
    case ND_SUB: return x - y;
    case ND_MUL: return x * y;
    case ND_DIV: return x / y;
    case ND_MIN: return fmin(x, y);
    case ND_MAX: return fmax(x, y);
    case ND_MOD: return x - floor(x / y) * y;
    case ND_FMOD: return x - trunc(x / y) * y;
    case ND_PRELU: return x < 0 ? x * y : x;
    case ND_EQUAL: return x == y;
    case ND_LESS: return x < y;
    case ND_LESS_EQUAL: return x <= y;
    case ND_GREATER: return x > y;
    case ND_GREATER_EQUAL: return x >= y;
    default: return 0;
    }
}

/* Shapes that are broadcast to [2, 3, 4, 5] in every way. */
static void test_binary(void) {
    static const struct {
        int n;
        int64_t dim[4];
    } shapes[] = {{4, {2, 3, 4, 5}}, {4, {1, 3, 1, 5}}, {1, {5}}, {3, {3, 1, 1}}, {4, {2, 1, 4, 1}}, {0, {0}}};
    static const NdBinary functions[] = {ND_ADD,     ND_SUB,           ND_MUL,   ND_DIV,  ND_MIN,
                                         ND_MAX,     ND_FMOD,          ND_MOD,   ND_LESS, ND_LESS_EQUAL,
                                         ND_GREATER, ND_GREATER_EQUAL, ND_EQUAL, ND_PRELU};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int turn = 0; turn < 2; turn++) {
                bool compares = nd_compares(functions[f]);
                Nd big = array(QT_F32, 3, DIMS(2, 3, 4, 5)), small = array(QT_F32, 3, shapes[s].n, shapes[s].dim);
                Nd y = array(compares ? QT_BOOL : QT_F32, 0, DIMS(2, 3, 4, 5));
                const Nd *a = turn ? &small : &big, *b = turn ? &big : &small;
                IN_SHARES(y, nd_binary(functions[f], a, b, &y, p));
                for (int64_t i = 0; i < nd_count(&y); i++)
                    near(nd_get_f64(&y, i), plain_binary(functions[f], element(a, &y, i), element(b, &y, i)), 1e-5);
            }
}

static void test_whole_numbers(void) {
    static const struct {
        NdBinary f;
        QType type;
        int64_t a, b, want;
    } cases[] = {{ND_DIV, QT_I64, INT64_MIN, -1, INT64_MIN},
                 {ND_DIV, QT_I32, 7, 0, 0},
                 {ND_DIV, QT_I32, -7, 2, -3},
                 {ND_MOD, QT_I32, -7, 3, 2},
                 {ND_FMOD, QT_I32, -7, 3, -1},
                 {ND_MOD, QT_I64, 7, -3, -2},
                 {ND_ADD, QT_U8, 250, 10, 4},
                 {ND_MUL, QT_I8, 100, 2, -56},
                 {ND_POW, QT_I32, 3, 4, 81},
                 {ND_SHIFT_LEFT, QT_U8, 129, 1, 2},
                 {ND_SHIFT_RIGHT, QT_U64, -1, 63, 1},
                 {ND_MAX, QT_U64, -1, 5, -1}, /* the largest of its type */
                 {ND_BIT_XOR, QT_I16, 12, 10, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Nd from[2] = {{.type = QT_I64, .data = (void *)&cases[i].a}, {.type = QT_I64, .data = (void *)&cases[i].b}};
        uint64_t memory[3] = {0};
        Nd x[3];
        for (int k = 0; k < 3; k++) x[k] = (Nd){.type = cases[i].type, .data = &memory[k]};
        for (int k = 0; k < 2; k++) nd_cast(&from[k], &x[k], (NdPart){0, 1});
        nd_binary(cases[i].f, &x[0], &x[1], &x[2], (NdPart){0, 1});
        CU_ASSERT_EQUAL(nd_get_i64(&x[2], 0), cases[i].want);
    }
}

static void test_where(void) {
    Nd c = array(QT_BOOL, 1, DIMS(3, 1)), a = array(QT_I32, 99, DIMS(2, 3, 4)), b = array(QT_I32, 99, DIMS(4));
    for (int i = 0; i < 3; i++) ((uint8_t *)c.data)[i] = (uint8_t)(i % 2);
    Nd y = array(QT_I32, 0, DIMS(2, 3, 4));
    IN_SHARES(y, nd_where(&c, &a, &b, &y, p));
    for (int64_t i = 0; i < 24; i++) near(nd_get_f64(&y, i), element(element(&c, &y, i) != 0 ? &a : &b, &y, i), 0);
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

static void test_transpose(void) {
    static const int perms[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}};
    static const QType types[] = {QT_U8, QT_F16, QT_F32, QT_F64};
    for (size_t k = 0; k < sizeof perms / sizeof *perms; k++)
        for (int t = 0; t < 4; t++) {
            Nd x = array(types[t], 100, DIMS(2, 3, 5, 4));
            int64_t d[4];
            for (int i = 0; i < 4; i++) d[i] = x.dim[perms[k][i]];
            Nd y = array(types[t], 0, 4, d);
            IN_SHARES(y, nd_transpose(&x, perms[k], &y, p));
            for (int64_t i = 0; i < 120; i++) {
                int64_t at[4], rest = i, from = 0;
                for (int j = 3; j >= 0; rest /= d[j--]) at[perms[k][j]] = rest % d[j];
                for (int j = 0; j < 4; j++) from = from * x.dim[j] + at[j];
                CU_ASSERT(nd_get_f64(&y, i) == nd_get_f64(&x, from));
            }
        }
}

static void test_cut_and_place(void) {
    Nd x = array(QT_F32, 1, DIMS(6, 7)), y = array(QT_F32, 0, DIMS(3, 4));
    const int64_t begin[] = {5, 1}, step[] = {-2, 1};
    IN_SHARES(y, nd_cut(&x, begin, step, &y, p));
    for (int64_t i = 0; i < 12; i++) CU_ASSERT(nd_get_f64(&y, i) == nd_get_f64(&x, (5 - i / 4 * 2) * 7 + 1 + i % 4));
    Nd z = array(QT_F32, 0, DIMS(3, 9)), w = array(QT_F32, 1, DIMS(3, 5));
    IN_SHARES(z, {
        nd_place(&y, 1, 0, &z, p);
        nd_place(&w, 1, 4, &z, p);
    });
    for (int64_t i = 0; i < 27; i++)
        CU_ASSERT(nd_get_f64(&z, i) ==
                  (i % 9 < 4 ? nd_get_f64(&y, i / 9 * 4 + i % 9) : nd_get_f64(&w, i / 9 * 5 + i % 9 - 4)));
}

/* By hand: 1 2 3 with two in front and three behind; and with one taken away in front. */
static void test_pad(void) {
    static const int32_t want[4][8] = {
        {9, 9, 1, 2, 3, 9, 9, 9}, {3, 2, 1, 2, 3, 2, 1, 2}, {1, 1, 1, 2, 3, 3, 3, 3}, {2, 3, 1, 2, 3, 1, 2, 3}};
    int32_t numbers[] = {1, 2, 3}, out[8];
    Nd x = {QT_I32, 1, {3}, numbers}, y = {QT_I32, 1, {8}, out};
    for (int mode = 0; mode < 4; mode++) {
        nd_pad((NdPad)mode, &x, (int64_t[]){2}, 9, &y, (NdPart){0, 1});
        CU_ASSERT(memcmp(out, want[mode], sizeof out) == 0);
    }
    y.dim[0] = 3;
    nd_pad(ND_PAD_CONSTANT, &x, (int64_t[]){-1}, 9, &y, (NdPart){0, 1});
    CU_ASSERT(memcmp(out, (int32_t[]){2, 3, 9}, 12) == 0);
    Nd a = array(QT_F32, 1, DIMS(2, 3, 4)), b = array(QT_F32, 0, DIMS(3, 5, 6));
    IN_SHARES(b, nd_pad(ND_PAD_CONSTANT, &a, (int64_t[]){1, 0, 2}, 0.5, &b, p));
    for (int64_t i = 0; i < 90; i++) {
        int64_t d = i / 30 - 1, h = i / 6 % 5, w = i % 6 - 2;
        CU_ASSERT(nd_get_f64(&b, i) == (d >= 0 && h < 3 && w >= 0 ? nd_get_f64(&a, (d * 3 + h) * 4 + w) : 0.5));
    }
}

static void test_triangle(void) {
    Nd x = array(QT_I64, 100, DIMS(2, 4, 5)), y = array(QT_I64, 0, DIMS(2, 4, 5));
    for (int k = -5; k <= 6; k++)
        for (int upper = 0; upper < 2; upper++) {
            IN_SHARES(y, nd_triangle(upper, k, &x, &y, p));
            for (int64_t i = 0; i < 40; i++) {
                int64_t row = i / 5 % 4, column = i % 5;
                bool kept = upper ? column - row >= k : column - row <= k;
                CU_ASSERT(nd_get_i64(&y, i) == (kept ? nd_get_i64(&x, i) : 0));
            }
        }
}

/* ---- indices ----------------------------------------------------------------------------------------------------- */

static void test_gather(void) {
    int64_t list[] = {2, -1, 0, 1};
    Nd x = array(QT_F32, 1, DIMS(3, 4, 5)), index = {QT_I64, 2, {2, 2}, list}, y = array(QT_F32, 0, DIMS(3, 2, 2, 5));
    Err e = {""};
    int failed = 0;
    IN_SHARES(y, failed |= nd_gather(1, &x, &index, &y, p, &e));
    CU_ASSERT(!failed);
    for (int64_t i = 0; i < 60; i++) {
        int64_t k = list[i / 5 % 4];
        CU_ASSERT(nd_get_f64(&y, i) == nd_get_f64(&x, (i / 20 * 4 + (k < 0 ? k + 4 : k)) * 5 + i % 5));
    }
    list[3] = 4;
    CU_ASSERT(nd_gather(1, &x, &index, &y, (NdPart){0, 1}, &e) == -1 && strstr(e.msg, "index 4"));
    list[3] = -5;
    CU_ASSERT(nd_gather(1, &x, &index, &y, (NdPart){0, 1}, &e) == -1);
}

/* The examples of the operators' descriptions, ScatterElements and ScatterND. */
static void test_scatter(void) {
    float data[] = {1, 2, 3, 4, 5}, updates[] = {1.1f, 2.1f};
    int64_t at[] = {1, 3};
    Nd y = {QT_F32, 2, {1, 5}, data}, index = {QT_I64, 2, {1, 2}, at}, u = {QT_F32, 2, {1, 2}, updates};
    Err e;
    CU_ASSERT(!nd_scatter_elements(1, ND_JOIN_SET, &index, &u, &y, (NdPart){0, 1}, &e));
    CU_ASSERT(memcmp(data, (float[]){1, 1.1f, 3, 2.1f, 5}, sizeof data) == 0);
    float eight[] = {1, 2, 3, 4, 5, 6, 7, 8}, four[] = {9, 10, 11, 12};
    int64_t places[] = {4, 3, 1, 7};
    Nd z = {QT_F32, 1, {8}, eight}, tuples = {QT_I64, 2, {4, 1}, places}, v = {QT_F32, 1, {4}, four};
    CU_ASSERT(!nd_scatter_nd(ND_JOIN_SET, &tuples, &v, &z, (NdPart){0, 1}, &e));
    CU_ASSERT(memcmp(eight, (float[]){1, 11, 3, 10, 9, 6, 7, 12}, sizeof eight) == 0);
    CU_ASSERT(!nd_scatter_nd(ND_JOIN_ADD, &tuples, &v, &z, (NdPart){0, 1}, &e));
    CU_ASSERT(memcmp(eight, (float[]){1, 22, 3, 20, 18, 6, 7, 24}, sizeof eight) == 0);
    places[0] = 8;
    CU_ASSERT(nd_scatter_nd(ND_JOIN_SET, &tuples, &v, &z, (NdPart){0, 1}, &e) == -1);
}

/* ---- along axes -------------------------------------------------------------------------------------------------- */

static double plain_reduce(NdReduce f, int n, const double *x) {
    double sum = 0, product = 1, low = INFINITY, high = -INFINITY, size = 0, squares = 0, exps = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        product *= x[i];
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
        size += fabs(x[i]);
        squares += x[i] * x[i];
        exps += exp(x[i]);
    }
    const double all[] = {sum, sum / n, high, low, product, size, sqrt(squares), squares, log(sum), log(exps)};
    return all[f];
}

static void test_reduce(void) {
    for (int f = 0; f < ND_REDUCE_COUNT; f++)
        for (uint32_t axes = 0; axes < 8; axes++)
            for (int t = 0; t < 2; t++) {
                Nd x = array(t ? QT_F64 : QT_F32, 2, DIMS(3, 4, 5)), y = array(x.type, 0, DIMS(3, 4, 5));
                for (int i = 0; i < 3; i++) y.dim[i] = axes >> i & 1 ? 1 : x.dim[i];
                IN_SHARES(y, nd_reduce((NdReduce)f, axes, &x, &y, p));
                for (int64_t i = 0; i < nd_count(&y); i++) {
                    double list[60];
                    int n = 0;
                    for (int64_t k = 0; k < 60; k++) { /* those that y's element i stands for */
                        int64_t at[3] = {k / 20, k / 5 % 4, k % 5}, to = 0;
                        for (int j = 0; j < 3; j++) to = to * y.dim[j] + (axes >> j & 1 ? 0 : at[j]);
                        if (to == i) list[n++] = nd_get_f64(&x, k);
                    }
                    near(nd_get_f64(&y, i), plain_reduce((NdReduce)f, n, list), 1e-5);
                }
            }
    Nd x = array(QT_I64, 0, DIMS(3)), y = {QT_I64, 0, {0}, room[next_room++ % 64]};
    memcpy(x.data, (int64_t[]){7, -2, 4}, 24);
    static const int64_t want[] = {9, 3, 7, -2, -56, 13, 8, 69};
    for (int f = 0; f <= ND_SUM_SQUARE; f++) {
        nd_reduce((NdReduce)f, 1, &x, &y, (NdPart){0, 1});
        CU_ASSERT_EQUAL(nd_get_i64(&y, 0), want[f]);
    }
}

static void test_softmax(void) {
    for (int axis = 0; axis < 3; axis++)
        for (int t = 0; t < 2; t++) {
            Nd x = array(t ? QT_F64 : QT_F32, 20, DIMS(3, 6, 5)), y = array(x.type, 0, DIMS(3, 6, 5));
            Nd z = array(x.type, 0, DIMS(3, 6, 5));
            IN_SHARES(y, nd_softmax(ND_SOFTMAX, axis, &x, &y, p));
            IN_SHARES(z, nd_softmax(ND_LOG_SOFTMAX, axis, &x, &z, p));
            int64_t step = axis == 2 ? 1 : axis == 1 ? 5 : 30, n = x.dim[axis];
            for (int64_t i = 0; i < 90; i++) {
                double sum = 0;
                for (int64_t k = 0; k < n; k++) sum += exp(nd_get_f64(&x, i + (k - i / step % n) * step));
                near(nd_get_f64(&y, i), exp(nd_get_f64(&x, i)) / sum, 1e-6);
                near(nd_get_f64(&z, i), nd_get_f64(&x, i) - log(sum), 1e-5);
            }
        }
}

static void test_lines(void) {
    float numbers[] = {3, 1, 3, 2, 5, 5}, out[6];
    int64_t indices[6];
    Nd x = {QT_F32, 2, {2, 3}, numbers}, y = {QT_F32, 2, {2, 3}, out}, i = {QT_I64, 2, {2, 1}, indices};
    NdPart p = {0, 1};
    nd_arg(false, false, 1, &x, &i, p);
    CU_ASSERT(indices[0] == 0 && indices[1] == 1);
    nd_arg(false, true, 1, &x, &i, p);
    CU_ASSERT(indices[0] == 2 && indices[1] == 2);
    nd_arg(true, false, 1, &x, &i, p);
    CU_ASSERT(indices[0] == 1 && indices[1] == 0);
    nd_cumsum(1, false, false, &x, &y, p);
    CU_ASSERT(memcmp(out, (float[]){3, 4, 7, 2, 7, 12}, sizeof out) == 0);
    nd_cumsum(1, true, true, &x, &y, p);
    CU_ASSERT(memcmp(out, (float[]){4, 3, 0, 10, 5, 0}, sizeof out) == 0);
    y.dim[1] = i.dim[1] = 2;
    nd_top(1, true, false, &x, &y, p);
    CU_ASSERT(memcmp(out, (float[]){3, 3, 5, 5}, 16) == 0);
    nd_top(1, true, true, &x, &i, p);
    CU_ASSERT(memcmp(indices, (int64_t[]){0, 2, 1, 2}, 32) == 0);
    nd_top(1, false, true, &x, &i, p);
    CU_ASSERT(memcmp(indices, (int64_t[]){1, 0, 0, 1}, 32) == 0);
}

/* ---- products and windows ---------------------------------------------------------------------------------------- */

static void test_matmul(void) {
    Nd a = array(QT_F32, 1, DIMS(2, 1, 3, 4)), b = array(QT_F32, 1, DIMS(5, 4, 6)),
       y = array(QT_F32, 0, DIMS(2, 5, 3, 6));
    IN_SHARES(y, nd_matmul(&a, &b, NULL, NULL, &y, p));
    for (int64_t i = 0; i < 180; i++) {
        double sum = 0;
        for (int64_t k = 0; k < 4; k++)
            sum += nd_get_f64(&a, (i / 90 * 3 + i / 6 % 3) * 4 + k) * nd_get_f64(&b, (i / 18 % 5 * 4 + k) * 6 + i % 6);
        near(nd_get_f64(&y, i), sum, 1e-6);
    }
    Nd u = array(QT_U8, 255, DIMS(3, 4)), s = array(QT_I8, 127, DIMS(4, 6)), z = array(QT_I32, 0, DIMS(3, 6));
    Nd u0 = array(QT_U8, 255, DIMS(1)), s0 = array(QT_I8, 127, DIMS(6));
    IN_SHARES(z, nd_matmul(&u, &s, &u0, &s0, &z, p));
    for (int64_t i = 0; i < 18; i++) {
        int64_t sum = 0;
        for (int64_t k = 0; k < 4; k++)
            sum += (nd_get_i64(&u, i / 6 * 4 + k) - nd_get_i64(&u0, 0)) *
                   (nd_get_i64(&s, k * 6 + i % 6) - nd_get_i64(&s0, i % 6));
        CU_ASSERT_EQUAL(nd_get_i64(&z, i), sum);
    }
}

/* The window's tap t under position `to` of the result: the pixel's coordinates, false outside. */
static bool under(const NdWindow *w, const int64_t *to, int64_t t, int64_t h, int64_t width, int64_t *y, int64_t *x) {
    *y = to[0] * w->stride[0] - w->before[0] + t / w->size[1] * w->dilation[0];
    *x = to[1] * w->stride[1] - w->before[1] + t % w->size[1] * w->dilation[1];
    return *y >= 0 && *y < h && *x >= 0 && *x < width;
}

static const NdWindow windows[] = {{{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                   {{2, 3}, {2, 1}, {1, 1}, {0, 1}, {1, 0}},
                                   {{3, 2}, {1, 2}, {2, 1}, {1, 0}, {2, 1}}};

static int64_t out_size(const NdWindow *w, int axis, int64_t n) {
    return (n + w->before[axis] + w->after[axis] - (w->size[axis] - 1) * w->dilation[axis] - 1) / w->stride[axis] + 1;
}

static void test_conv(void) {
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
        for (int groups = 1; groups <= 2; groups++) {
            const NdWindow *w = &windows[k];
            int64_t oh = out_size(w, 0, 7), ow = out_size(w, 1, 6);
            Nd x = array(QT_F32, 1, DIMS(2, 7, 6, 4)), bias = array(QT_F32, 1, DIMS(6));
            Nd f = array(QT_F32, 1, DIMS(6, w->size[0], w->size[1], 4 / groups)),
               y = array(QT_F32, 0, DIMS(2, oh, ow, 6));
            IN_SHARES(y, nd_conv(w, groups, &x, &f, &bias, NULL, NULL, &y, p));
            for (int64_t i = 0; i < nd_count(&y); i++) {
                int64_t o = i % 6, to[2] = {i / (ow * 6) % oh, i / 6 % ow}, n = i / (oh * ow * 6), py, px;
                double sum = nd_get_f64(&bias, o);
                for (int64_t t = 0; t < w->size[0] * w->size[1]; t++)
                    for (int64_t c = 0; under(w, to, t, 7, 6, &py, &px) && c < 4 / groups; c++)
                        sum += nd_get_f64(&x, ((n * 7 + py) * 6 + px) * 4 + o / (6 / groups) * (4 / groups) + c) *
                               nd_get_f64(&f, (o * w->size[0] * w->size[1] + t) * (4 / groups) + c);
                near(nd_get_f64(&y, i), sum, 1e-6);
            }
        }
}

/* The transposed convolution is the adjoint: <conv(a), b> = <a, transposed(b)> for all a, b. */
static void test_conv_transpose(void) {
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
        const NdWindow *w = &windows[k];
        int64_t oh = out_size(w, 0, 7), ow = out_size(w, 1, 6), taps = w->size[0] * w->size[1];
        Nd a = array(QT_F64, 1, DIMS(1, 7, 6, 4)), b = array(QT_F64, 1, DIMS(1, oh, ow, 6));
        Nd f = array(QT_F64, 1, DIMS(6, w->size[0], w->size[1], 4));
        Nd conv = array(QT_F64, 0, DIMS(1, oh, ow, 6)), back = array(QT_F64, 0, DIMS(1, 7, 6, 4));
        nd_conv(w, 1, &a, &f, NULL, NULL, NULL, &conv, (NdPart){0, 1});
        IN_SHARES(back, nd_conv_transpose(w, 1, &b, &f, NULL, &back, p)); /* [6][taps][4]: its input is the 6 */
        double left = 0, right = 0;
        for (int64_t i = 0; i < nd_count(&b); i++) left += nd_get_f64(&conv, i) * nd_get_f64(&b, i);
        for (int64_t i = 0; i < nd_count(&a); i++) right += nd_get_f64(&a, i) * nd_get_f64(&back, i);
        near(left, right, 1e-9);
        CU_ASSERT(taps > 0 && fabs(left) > 1e-3);
    }
}

static void test_pool(void) {
    static const QType types[] = {QT_F32, QT_U8, QT_I8, QT_F64};
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
        for (int t = 0; t < 4; t++)
            for (int f = ND_POOL_MAX; f <= ND_POOL_AVERAGE_PAD; f++) {
                const NdWindow *w = &windows[k];
                int64_t oh = out_size(w, 0, 7), ow = out_size(w, 1, 6);
                if (f != ND_POOL_MAX && !nd_is_float(types[t])) continue;
                Nd x = array(types[t], 100, DIMS(2, 7, 6, 5)), y = array(types[t], 0, DIMS(2, oh, ow, 5));
                IN_SHARES(y, nd_pool((NdPool)f, w, 2, false, &x, &y, p));
                for (int64_t i = 0; i < nd_count(&y); i++) {
                    int64_t to[2] = {i / (ow * 5) % oh, i / 5 % ow}, n = i / (oh * ow * 5), py, px;
                    double best = -INFINITY, sum = 0;
                    int count = 0;
                    for (int64_t tap = 0; tap < w->size[0] * w->size[1]; tap++) {
                        if (!under(w, to, tap, 7, 6, &py, &px)) continue;
                        double v = nd_get_f64(&x, ((n * 7 + py) * 6 + px) * 5 + i % 5);
                        best = fmax(best, v);
                        sum += v;
                        count++;
                    }
                    if (f == ND_POOL_AVERAGE_PAD) count = (int)(w->size[0] * w->size[1]);
                    near(nd_get_f64(&y, i), f == ND_POOL_MAX ? best : sum / count, 1e-5); /* of numbers up to 100 */
                }
            }
    const float numbers[4] = {1, NAN, 2, -INFINITY};
    float out[2];
    Nd x = {QT_F32, 4, {1, 2, 2, 1}, (void *)numbers}, y = {QT_F32, 4, {1, 1, 1, 1}, out};
    nd_pool(ND_POOL_MAX, &(NdWindow){{2, 2}, {1, 1}, {1, 1}, {0}, {0}}, 2, false, &x, &y, (NdPart){0, 1});
    CU_ASSERT(isnan(out[0]));
}

int main(void) {
    static const CU_TestInfo tests[] = {{"casts", test_casts},
                                        {"functions of one number", test_unary},
                                        {"functions of two, broadcast", test_binary},
                                        {"whole numbers", test_whole_numbers},
                                        {"where", test_where},
                                        {"transpose", test_transpose},
                                        {"cut and place", test_cut_and_place},
                                        {"pad", test_pad},
                                        {"triangle", test_triangle},
                                        {"gather", test_gather},
                                        {"scatter", test_scatter},
                                        {"reductions", test_reduce},
                                        {"softmax", test_softmax},
                                        {"arg, sums, top", test_lines},
                                        {"matmul", test_matmul},
                                        {"convolution", test_conv},
                                        {"transposed convolution", test_conv_transpose},
                                        {"pooling", test_pool},
                                        CU_TEST_INFO_NULL};
    return check_run("nd", tests);
}
