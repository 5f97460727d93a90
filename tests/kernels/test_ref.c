/* ref itself against plain double-precision mathematics written here. */
#include "kernel_data.h"

static void exp_is_within_its_bound(void) {
    double worst = 0.0;
    for (double x = -87.33; x <= 88.72; x += 0.0001) {
        float f = (float)x; /* may fall just outside */
        double want = exp((double)f), error = fabs((double)kernel_exp(f) - want) / want;
        worst = error > worst && f >= -87.33f && f <= 88.72f ? error : worst;
    }
    printf("    largest relative error of kernel_exp: %.3g\n", worst);
    CU_ASSERT(worst < 2e-7);
    CU_ASSERT(kernel_exp(0.0f) == 1.0f && kernel_exp(-0.0f) == 1.0f);
    CU_ASSERT(kernel_exp(-87.34f) == 0.0f && kernel_exp(-INFINITY) == 0.0f);
    CU_ASSERT(isnan(kernel_exp(NAN)));
    CU_ASSERT(isfinite(kernel_exp(1000.0f)) && kernel_exp(INFINITY) == kernel_exp(88.72f));
    double tiny = expm1(1e-3); /* exp(x) - 1 keeps the digits that exp shows */
    CU_ASSERT(fabs((double)kernel_exp(1e-3f) - 1.0 - tiny) < 1.2e-7);
}

static bool close_to(float got, double want, double tolerance) {
    if (fabs((double)got - want) <= tolerance) return true;
    fprintf(stderr, "  got %.9g, want %.12g +- %.3g\n", (double)got, want, tolerance);
    return false;
}

static void rows(void) {
    enum { N = 1000 };
    float x[N], w[N], y[N], max, total;
    random_floats(x, N), random_floats(w, N);
    double squares = 0.0, exps = 0.0, top = -INFINITY;
    for (int i = 0; i < N; i++) squares += (double)x[i] * x[i], top = fmax(top, x[i]);
    for (int i = 0; i < N; i++) exps += exp((double)x[i] - top);
    ref()->rmsnorm(x, w, 1e-5f, N, y);
    for (int i = 0; i < N; i++) CU_ASSERT(close_to(y[i], x[i] / sqrt(squares / N + 1e-5) * w[i], 1e-6));
    ref()->silu_mul(x, w, N, y);
    for (int i = 0; i < N; i++) CU_ASSERT(close_to(y[i], x[i] / (1.0 + exp(-(double)x[i])) * w[i], 1e-6));
    ref()->gelu_mul(x, w, N, y);
    for (int i = 0; i < N; i++) {
        double u = sqrt(2 / acos(-1)) * ((double)x[i] + 0.044715 * pow((double)x[i], 3));
        CU_ASSERT(close_to(y[i], 0.5 * x[i] * (1 + tanh(u)) * w[i], 1e-6));
    }
    double mean = 0.0, variance = 0.0;
    for (int i = 0; i < N; i++) mean += (double)x[i] / N;
    for (int i = 0; i < N; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / N;
    ref()->layernorm(x, w, x, 1e-5f, N, y);
    for (int i = 0; i < N; i++)
        CU_ASSERT(close_to(y[i], (x[i] - mean) / sqrt(variance + 1e-5) * w[i] + (double)x[i], 1e-6));
    ref()->softcap(x, 0.5f, N, y);
    for (int i = 0; i < N; i++) CU_ASSERT(close_to(y[i], 0.5 * tanh(x[i] / 0.5), 1e-6));
    ref()->scale(x, 24.0f, N, y);
    for (int i = 0; i < N; i++) CU_ASSERT(y[i] == 24.0f * x[i]);
    ref()->logsumexp(x, N, &max, &total);
    CU_ASSERT(close_to(max, top, 0.0) && close_to(total, exps, 1e-3));
    x[500] = NAN;
    ref()->logsumexp(x, N, &max, &total);
    CU_ASSERT(isnan(max) && isnan(total));
}

/* 0.5 x (1 + erf(x / sqrt 2)), for x < 0 by erfc, which keeps the digits; and its limits. */
static void gelu_is_within_its_bounds(void) {
    double worst = 0.0, worst_relative = 0.0;
    for (double at = -15.0; at <= 15.0; at += 0.0001) {
        float x = (float)at, y;
        ref()->gelu(&x, 1, &y);
        double want = 0.5 * x * erfc(-(double)x / sqrt(2)), error = fabs((double)y - want);
        if (x < 1) worst = fmax(worst, error);
        if (x > -4 && x != 0) worst_relative = fmax(worst_relative, error / fabs(want));
    }
    printf("    largest error of gelu: %.3g; relative for x > -4: %.3g\n", worst, worst_relative);
    CU_ASSERT(worst < 1e-7 && worst_relative < 7e-7);
    float x[] = {0.0f, -0.0f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN}, y[7];
    ref()->gelu(x, 7, y);
    CU_ASSERT(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1e30f && y[3] == 0.0f);
    CU_ASSERT(y[4] == INFINITY && y[5] == 0.0f && isnan(y[6]));
}

/* Rotation of the complex number x0 + i x1 by the angle. */
static void rope(void) {
    for (int neox = 0; neox < 2; neox++) {
        float x[16], cs[8], y[16];
        random_floats(x, 16);
        for (int i = 0; i < 4; i++) cs[2 * i] = (float)cos(0.3 * i), cs[2 * i + 1] = (float)sin(0.3 * i);
        memcpy(y, x, sizeof x);
        ref()->rope(y, 1, 16, 8, neox, cs);
        for (int i = 0; i < 4; i++) {
            int a = neox ? i : 2 * i, b = neox ? i + 4 : 2 * i + 1;
            CU_ASSERT(close_to(y[a], x[a] * cos(0.3 * i) - x[b] * sin(0.3 * i), 1e-6));
            CU_ASSERT(close_to(y[b], x[a] * sin(0.3 * i) + x[b] * cos(0.3 * i), 1e-6));
        }
        CU_ASSERT(memcmp(x + 8, y + 8, 32) == 0);
    }
}

/* Code k of entry i, from its planes. */
static double code_of(const ActQ *a, int64_t i, int k) {
    const int8_t *codes = a->codes + 32 * a->planes * i + k;
    return a->planes == 2 ? 128.0 * codes[0] + codes[32] : codes[0];
}

/* The weights as dequantised times the activations as quantised, in double. */
static void matmul_planes(int planes) {
    enum { M = 70, N = 20, K = 256 };
    for (int t = 0; t < N_TYPES; t++) {
        uint8_t *blocks = random_blocks(weight_types[t], N, K, CODES_RANDOM);
        PackedWeights w = pack_weights(weight_types[t], N, K, blocks);
        float *x = floats(M * K), *y = floats(M * N), *wide = floats(N * K), bias[N], *residual = floats(M * N);
        random_floats(x, M * K), random_floats(bias, N), random_floats(residual, M * N);
        qtype_dequantise(weight_types[t], blocks, N * K, wide);
        ActQ a = act_alloc(M, K, planes);
        ref()->quantise(x, K, 0, M, &a);
        Epilogue ep = {bias, residual, N};
        bool q = qtype_info(weight_types[t])->quantised;
        if (q) ref()->matmul_q(&w, &a, 0, 2, 0, 2, y, N, &ep);
        else ref()->matmul_f(&w, x, K, 0, M, 0, 2, y, N, &ep);
        for (int r = 0; r < M; r++)
            for (int n = 0; n < N; n++) {
                double want = (double)bias[n] + residual[r * N + n];
                for (int k = 0; k < K; k++) {
                    int64_t rows_in_block = r < 64 ? 64 : M - 64;
                    int64_t i = (r < 64 ? 0 : 64 * (K / 32)) + k / 32 * rows_in_block + r % 64;
                    double v = q ? (double)a.scale[i] * code_of(&a, i, k % 32) : (double)x[r * K + k];
                    want += v * wide[n * K + k];
                }
                CU_ASSERT(close_to(y[r * N + n], want, 4e-5));
            }
        free(blocks), free((void *)w.data), free(x), free(y), free(wide), free(residual), free(a.codes);
    }
}

static void matmul(void) {
    matmul_planes(1);
    matmul_planes(2);
}

static void near_with(int planes, double largest) {
    enum { K = 320 };
    float x[K];
    random_floats(x, K);
    ActQ a = act_alloc(1, K, planes);
    ref()->quantise(x, K, 0, 1, &a);
    for (int g = 0; g < K / 32; g++) {
        double amax = 0.0;
        int sum = 0, half_sum = 0;
        for (int i = 0; i < 32; i++) amax = fmax(amax, fabs((double)x[32 * g + i])), sum += (int)code_of(&a, g, i);
        for (int i = 0; i < 16; i++) half_sum += (int)code_of(&a, g, i);
        CU_ASSERT(close_to(a.scale[g], amax / largest, 1e-9) && a.sum[g] == sum && a.half_sum[g] == half_sum);
        for (int i = 0; i < 32; i++)
            CU_ASSERT(close_to(x[32 * g + i], amax / largest * code_of(&a, g, i),
                               amax / largest * (planes == 2 ? 0.51 : 0.5001)));
    }
    free(a.codes);
}

static void quantised_activations_are_near(void) {
    near_with(1, 127);
    near_with(2, 16256);
}

static void attention_with(int window, float cap, int n_keys) {
    enum { DIM = 32, P = 150 };
    KvShape shape = {1, DIM};
    float q[DIM], out[DIM];
    static float keys[P][DIM], values[P][DIM];
    uint8_t *blocks = test_alloc(3 * kv_block_bytes(shape));
    const int32_t table[] = {1, 2, 0};
    for (int p = 0; p < P; p++) {
        random_floats(keys[p], DIM), random_floats(values[p], DIM);
        ref()->kv_store(blocks + (size_t)table[p / 64] * kv_block_bytes(shape), shape, p % 64, keys[p], values[p]);
        for (int d = 0; d < DIM; d++) { /* what the cache keeps */
            keys[p][d] = f16_to_f32(f32_to_f16(keys[p][d]));
            values[p][d] = f16_to_f32(f32_to_f16(values[p][d]));
        }
    }
    random_floats(q, DIM);
    for (int position = 0; position < P; position += 37) {
        AttnRun run = {q, out, DIM, DIM, 0, 1, 0, 0.7f, shape, blocks, table, position, 1, window, cap, n_keys};
        ref()->attention(&run);
        double sum = 0.0, want[DIM] = {0};
        int last = n_keys ? n_keys - 1 : position;
        for (int j = window && position >= window ? position - window + 1 : 0; j <= last; j++) {
            double s = 0.0;
            for (int d = 0; d < DIM; d++) s += (double)q[d] * keys[j][d];
            s *= 0.7f;
            if (cap > 0) s = cap * tanh(s / cap);
            sum += exp(s);
            for (int d = 0; d < DIM; d++) want[d] += exp(s) * values[j][d];
        }
        for (int d = 0; d < DIM; d++) CU_ASSERT(close_to(out[d], want[d] / sum, 2e-6));
    }
    free(blocks);
}

static void attention(void) {
    attention_with(0, 0, 0);
    attention_with(70, 0, 0);
    attention_with(9, 2, 0);
    attention_with(0, 0, 150);
    attention_with(0, 0, 70); /* whether a query's own position is among them or not */
}

static void selection(void) {
    const Kernels *k;
    Err e;
    bool runnable;
    CU_ASSERT(kernels_select(NULL, &k, &e) == 0);
    int best = kernels_index(k);
    for (int i = 0; kernels_at(i, &runnable); i++) {
        CU_ASSERT(kernels_index(kernels_at(i, &runnable)) == i);
        CU_ASSERT((kernels_select(kernels_at(i, &runnable)->name, &k, &e) == 0) == runnable);
        CU_ASSERT(!runnable || i <= best);
    }
    CU_ASSERT(kernels_select("nonesuch", &k, &e) == -1);
    CU_ASSERT(strstr(e.msg, "nonesuch") && strstr(e.msg, "ref"));
    CU_ASSERT(kernels_at(-1, &runnable) == NULL);
}

int main(void) {
    CU_TestInfo tests[] = {{"exp is within its bound", exp_is_within_its_bound},
                           {"rows", rows},
                           {"gelu is within its bounds", gelu_is_within_its_bounds},
                           {"rope", rope},
                           {"matmul", matmul},
                           {"quantised activations are near", quantised_activations_are_near},
                           {"attention", attention},
                           {"selection", selection},
                           CU_TEST_INFO_NULL};
    return check_run("ref", tests);
}
