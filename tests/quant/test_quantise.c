/* The quantisers: their errors beside those of ggml's quantisers on the same data, and the bound that theory gives. */
#include "check.h"
#include "quant/qtype.h"

#include <math.h>

enum { N = 64 * 256, DATA = 5 };
static const char *const data_names[DATA] = {"uniform", "bell", "long tails", "one side", "small"};

/* Value i of a series: splitmix64 (https://prng.di.unimi.it/splitmix64.c), its top 24 bits, uniform in [-1, 1). */
static double uniform(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 40) / (1 << 23) - 1;
}

/* A sum of 12 uniform values: nearly normal, of variance 1. */
static double bell(uint64_t i) {
    double sum = 0;
    for (uint64_t k = 0; k < 12; k++) sum += uniform(7, 12 * i + k);
    return sum / 2;
}

static void make_data(int which, float *x) {
    for (uint64_t i = 0; i < N; i++) {
        double b = bell(i);
        double value[DATA] = {uniform(5, i), b, b * b * b, 0.3 + 0.05 * b, 1e-3 * b};
        x[i] = (float)value[which];
    }
}

/* Root of the mean squared error over that of the mean square. */
static double relative_error(QType t, const float *x) {
    static uint8_t blocks[N * sizeof(float)];
    static float y[N];
    double error = 0, all = 0;
    qtype_quantise(t, x, N, blocks);
    qtype_dequantise(t, blocks, N, y);
    for (int i = 0; i < N; i++) {
        error += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(error / all);
}

/* ggml's errors without an importance matrix, from tests/reference/qtype_errors.py (llama.cpp of llama-cpp-python
 * 0.3.36). "One side" is 0.3 +- 0.05; "small", of size 0.001, has scales that are subnormal as fp16. */
static void test_beside_ggml(void) {
    static const struct {
        QType t;
        double error[DATA];
    } ggml[] = {
        {QT_Q4_0, {0.064902, 0.084531, 0.110932, 0.047043, 0.084531}},
        {QT_Q4_1, {0.060745, 0.076935, 0.111123, 0.012619, 0.076946}},
        {QT_Q8_0, {0.003770, 0.005233, 0.008468, 0.002979, 0.005321}},
        {QT_Q5_0, {0.031108, 0.042084, 0.060132, 0.023626, 0.042085}},
        {QT_Q5_1, {0.029253, 0.037387, 0.054087, 0.006130, 0.037377}},
        {QT_IQ4_NL, {0.063797, 0.074842, 0.092385, 0.056680, 0.074848}},
        {QT_Q2_K, {0.232489, 0.293160, 0.396461, 0.102746, 0.293241}},
        {QT_Q3_K, {0.124532, 0.149077, 0.156637, 0.086127, 0.149073}},
        {QT_Q4_K, {0.054487, 0.070196, 0.090461, 0.022993, 0.070448}},
        {QT_Q5_K, {0.027675, 0.035596, 0.049675, 0.011431, 0.036507}},
        {QT_Q6_K, {0.013189, 0.017388, 0.024591, 0.009941, 0.019888}},
        {QT_IQ4_XS, {0.064401, 0.075430, 0.093486, 0.057134, 0.079253}},
    };
    static float x[N];
    for (int d = 0; d < DATA; d++) {
        make_data(d, x);
        for (size_t i = 0; i < sizeof ggml / sizeof *ggml; i++) {
            double ratio = relative_error(ggml[i].t, x) / ggml[i].error[d];
            if (!(ratio <= 1.001)) printf("    %s, %s: %.4f\n", qtype_info(ggml[i].t)->name, data_names[d], ratio);
            CU_ASSERT(ratio <= 1.001);
        }
    }
}

/* Steps of size s between the levels make an error of s / sqrt(12); values uniform in [-1, 1] have the mean square 1/3,
 * and 2^bits levels over that range are 2 / (2^bits - 1) apart. */
static void test_theory(void) {
    static float x[N];
    make_data(0, x);
    for (QType t = QT_Q4_0; t <= QT_IQ4_XS; t++) {
        double error = relative_error(t, x), bound = 1.0 / ((1 << qtype_info(t)->bits) - 1);
        if (!(error < bound)) printf("    %s: %.6f, bound %.6f\n", qtype_info(t)->name, error, bound);
        CU_ASSERT(error < bound);
    }
}

/* Zeroes stay zeroes; a constant needs one level only, so that only the rounding of scales is left: half a unit in the
 * last of fp16's 11 bits, a few times over. */
static void test_constants(void) {
    float x[256], y[256];
    uint8_t blocks[QBLOCK_MAX * 2];
    for (QType t = QT_Q4_0; t <= QT_IQ4_XS; t++) {
        for (int sign = -1; sign <= 1; sign++) {
            for (int i = 0; i < 256; i++) x[i] = (float)sign * 0.7f;
            qtype_quantise(t, x, 256, blocks);
            qtype_dequantise(t, blocks, 256, y);
            int wrong = 0;
            for (int i = 0; i < 256; i++) wrong += fabsf(y[i] - x[i]) > 0.7f * 0x1p-9f;
            if (wrong) printf("    %s: %.3f became %.9g\n", qtype_info(t)->name, (double)x[0], (double)y[0]);
            CU_ASSERT(wrong == 0);
        }
    }
}

/* A block depends on its own values only, so rows can be shared out among threads. */
static void test_blocks_are_independent(void) {
    static float x[N];
    static uint8_t all[N * 2], one[QBLOCK_MAX * 2];
    make_data(1, x);
    for (QType t = QT_Q4_0; t <= QT_IQ4_XS; t++) {
        const QTypeInfo *q = qtype_info(t);
        size_t bytes = (size_t)q->block_bytes;
        qtype_quantise(t, x, N, all);
        for (int i = 0; i < 50; i++) {
            qtype_quantise(t, x + i * q->block, q->block, one);
            CU_ASSERT(memcmp(one, all + (size_t)i * bytes, bytes) == 0);
        }
    }
}

/* Values that no weight should have give some block, not undefined behaviour. */
static void test_odd_values(void) {
    static const float odd[][6] = {{NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f},
                                   {NAN, NAN, NAN, NAN, NAN, NAN},
                                   {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY},
                                   {3e38f, -3e38f, 3e38f, 3e38f, 1e20f, -1e20f},
                                   {1e-45f, -1e-45f, 1e-40f, 0, 1e-38f, 1e-44f},
                                   {-0.0f, 0.0f, 65504.0f, 1e-8f, -65504.0f, 70000.0f}};
    float x[256], y[256];
    uint8_t blocks[256 * sizeof(float)];
    for (QType t = QT_F32; t <= QT_IQ4_XS; t++)
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            for (int i = 0; i < 256; i++) x[i] = odd[k][i % 6];
            qtype_quantise(t, x, 256, blocks);
            qtype_dequantise(t, blocks, 256, y);
        }
    CU_PASS("no trap");
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"beside ggml's", test_beside_ggml}, {"theory", test_theory},
        {"constants", test_constants},       {"blocks are independent", test_blocks_are_independent},
        {"odd values", test_odd_values},     CU_TEST_INFO_NULL};
    return check_run("quantise", tests);
}
