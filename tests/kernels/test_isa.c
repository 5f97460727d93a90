/* Every table that this CPU can run equals ref bit for bit, on ordinary and on extreme input. */
#include "kernel_data.h"

/* ---- rows ---- */

static const int64_t lengths[] = {1, 7, 15, 16, 17, 31, 64, 100, 576, 1001};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0], MAX_LENGTH = 1024 };

/* Calls `check` for each table on each kind of input: uniform, large and small, any bits. */
static void on_rows(void (*check)(const Kernels *k, const float *a, const float *b, int64_t n)) {
    float *a = floats(MAX_LENGTH), *b = floats(MAX_LENGTH);
    for (int i = 0; isa(i); i++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (int kind = 0; kind < 3; kind++) {
                random_floats(a, MAX_LENGTH);
                random_floats(b, MAX_LENGTH);
                if (kind == 2) wild_floats(a, MAX_LENGTH);
                for (int64_t j = 0; kind == 1 && j < MAX_LENGTH; j++) a[j] *= ldexpf(1.0f, (int)(random_u32() % 9));
                check(isa(i), a, b, lengths[l]);
            }
    free(a), free(b);
}

static void check_elementwise(const Kernels *k, const float *a, const float *b, int64_t n) {
    float want[MAX_LENGTH], got[MAX_LENGTH + 1];
    got[n] = 42.0f;
    ref()->rmsnorm(a, b, 1e-5f, n, want), k->rmsnorm(a, b, 1e-5f, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->layernorm(a, b, b, 1e-5f, n, want), k->layernorm(a, b, b, 1e-5f, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->silu_mul(a, b, n, want), k->silu_mul(a, b, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->gelu_mul(a, b, n, want), k->gelu_mul(a, b, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->gelu(a, n, want), k->gelu(a, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->softcap(a, 30.0f, n, want), k->softcap(a, 30.0f, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->scale(a, 1.7f, n, want), k->scale(a, 1.7f, n, got);
    CU_ASSERT(same(got, want, n));
    memcpy(want, b, (size_t)n * sizeof *want), memcpy(got, b, (size_t)n * sizeof *got);
    ref()->add_scaled(a, 1.7f, n, want), k->add_scaled(a, 1.7f, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->relu(a, n, want), k->relu(a, n, got);
    CU_ASSERT(same(got, want, n));
    ref()->add(a, b, n, want), k->add(a, b, n, got);
    CU_ASSERT(same(got, want, n));
    const float *src[] = {a, b, want};
    memcpy(want, b, (size_t)n * sizeof *want);
    k->sum(src, 3, n, got);
    ref()->sum(src, 3, n, want); /* dst is one of the sources */
    CU_ASSERT(same(got, want, n));
    CU_ASSERT(got[n] == 42.0f); /* nothing is written past the end */
}
static void elementwise(void) { on_rows(check_elementwise); }

static void check_logits(const Kernels *k, const float *a, const float *b, int64_t n) {
    (void)b;
    float want[2], got[2];
    ref()->logsumexp(a, n, want, want + 1), k->logsumexp(a, n, got, got + 1);
    CU_ASSERT(same(got, want, 2));
    for (int top = 0; top <= n && top <= 40; top += top < 3 ? 1 : 17) {
        int32_t want_ids[40], got_ids[40];
        float want_values[40], got_values[40];
        ref()->topk(a, n, top, 100, want_ids, want_values), k->topk(a, n, top, 100, got_ids, got_values);
        CU_ASSERT(same(got_values, want_values, top));
        CU_ASSERT(memcmp(got_ids, want_ids, (size_t)top * sizeof *got_ids) == 0);
    }
}
static void logits(void) { on_rows(check_logits); }

static void topk_orders_equals_by_index(void) {
    float x[100], values[10];
    int32_t ids[10];
    for (int i = 0; i < 100; i++) x[i] = (float)(i % 3);
    x[50] = NAN;
    bool runnable;
    for (int i = 0; kernels_at(i, &runnable); i++) {
        if (!runnable) continue;
        kernels_at(i, &runnable)->topk(x, 100, 10, 7, ids, values);
        for (int j = 0; j < 10; j++) CU_ASSERT(values[j] == 2.0f && ids[j] == 7 + 2 + 3 * j);
    }
}

static void check_bf16(const Kernels *k, const float *a, const float *b, int64_t n) {
    (void)b;
    uint16_t want[MAX_LENGTH], got[MAX_LENGTH + 1];
    float back[MAX_LENGTH], want_back[MAX_LENGTH];
    got[n] = 4242;
    ref()->to_bf16(a, n, want), k->to_bf16(a, n, got);
    CU_ASSERT(memcmp(got, want, (size_t)n * sizeof *got) == 0);
    CU_ASSERT(got[n] == 4242);
    ref()->from_bf16(want, n, want_back), k->from_bf16(want, n, back);
    CU_ASSERT(same(back, want_back, n));
}
static void bf16(void) { on_rows(check_bf16); }

static void rope(void) {
    enum { HEADS = 3, DIM = 80 };
    float cs[DIM], x[HEADS * DIM], got[HEADS * DIM], want[HEADS * DIM];
    for (int i = 0; isa(i); i++)
        for (int rope_dim = 2; rope_dim <= DIM; rope_dim += 2)
            for (int neox = 0; neox < 2; neox++) {
                random_floats(cs, DIM), random_floats(x, HEADS * DIM);
                memcpy(got, x, sizeof x), memcpy(want, x, sizeof x);
                ref()->rope(want, HEADS, DIM, rope_dim, neox, cs), isa(i)->rope(got, HEADS, DIM, rope_dim, neox, cs);
                CU_ASSERT(same(got, want, HEADS * DIM));
            }
}

static void quantise_planes(int planes) {
    int64_t m = 67, k = 352, ldx = 360;
    float *x = floats(m * ldx);
    for (int i = 0; isa(i); i++) {
        random_floats(x, m * ldx);
        for (int64_t j = 0; j < 32; j++) {
            x[j] = 0.0f;
            x[ldx + j] = (float)j * 0x1p-148f; /* subnormal: 127 / amax overflows */
            x[2 * ldx + j] = j == 9 ? NAN : (float)j;
            x[3 * ldx + j] = j == 31 ? -INFINITY : (float)j;
            x[4 * ldx + j] = j % 2 ? 3e38f : -3e38f;               /* all codes at the ends */
            x[5 * ldx + j] = ((float)j + 0.5f) * (127.0f / 31.5f); /* ties */
        }
        wild_floats(x + 6 * ldx, 4 * ldx);
        ActQ want = act_alloc(m, k, planes), got = act_alloc(m, k, planes);
        ref()->quantise(x, ldx, 0, m, &want);
        isa(i)->quantise(x, ldx, 5, m, &got);
        isa(i)->quantise(x, ldx, 0, 5, &got);
        CU_ASSERT(memcmp(got.codes, want.codes, (size_t)(m * k * planes)) == 0);
        CU_ASSERT(memcmp(got.sum, want.sum, (size_t)(m * k / 32) * 4) == 0);
        CU_ASSERT(memcmp(got.half_sum, want.half_sum, (size_t)(m * k / 32) * 4) == 0);
        CU_ASSERT(same(got.scale, want.scale, m * k / 32));
        free(want.codes), free(got.codes);
    }
    free(x);
}

static void quantise(void) {
    quantise_planes(1);
    quantise_planes(2);
}

/* ---- matmul ---- */

typedef struct Case {
    QType type;
    int planes; /* of the activations; any for fp32 weights */
    Codes codes;
    int64_t m, n, k;
} Case;

static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 13, 63, 64, 65, 99, 130};
enum { N_MS = sizeof ms / sizeof ms[0] };

/* y of the whole, by ref and by k: with bias and residual, the residual being y itself. */
static void multiply(const Kernels *k, const PackedWeights *w, const float *x, const ActQ *a, int64_t m,
                     const float *bias, float *y, int64_t ldy) {
    Epilogue ep = {.bias = bias, .residual = y, .ld_residual = ldy};
    const Epilogue *use = bias ? &ep : NULL;
    if (qtype_info(w->type)->quantised) k->matmul_q(w, a, 0, (m + 63) / 64, 0, packed_panels(w->n), y, ldy, use);
    else k->matmul_f(w, x, w->k + 3, 0, m, 0, packed_panels(w->n), y, ldy, use);
}

static void check_matmul(const Kernels *k, Case c) {
    int64_t ldx = c.k + 3, ldy = c.n + 5, block = qtype_info(c.type)->block;
    int64_t k0 = block == 256 ? 32 * (random_u32() % 12) : 0; /* first column in the file */
    int64_t columns = (k0 + c.k + block - 1) / block * block;
    uint8_t *blocks = random_blocks(c.type, c.n, columns, c.codes);
    PackedWeights w = pack_slice(c.type, c.n, columns, blocks, k0, c.k);
    float *x = floats(c.m * ldx), *bias = floats(c.n), *want = floats(c.m * ldy), *got = floats(c.m * ldy);
    random_floats(x, c.m * ldx), random_floats(bias, c.n), random_floats(want, c.m * ldy);
    if (c.codes == CODES_LOW || c.codes == CODES_HIGH) /* activation codes at +-127 too */
        for (int64_t i = 0; i < c.m * ldx; i++) x[i] = (i / ldx) % 2 ? 1.0f : i % 3 ? -1.0f : 1.0f;
    if (c.codes == CODES_WILD) x[(c.m - 1) * ldx] = NAN;
    memcpy(got, want, (size_t)(c.m * ldy) * sizeof *got);
    ActQ a = act_alloc(c.m, c.k % 32 ? 32 : c.k, c.planes);
    if (qtype_info(c.type)->quantised) ref()->quantise(x, ldx, 0, c.m, &a);
    const float *use_bias = random_u32() % 4 ? bias : NULL;
    multiply(ref(), &w, x, &a, c.m, use_bias, want, ldy);
    multiply(k, &w, x, &a, c.m, use_bias, got, ldy);
    bool right = same(got, want, c.m * ldy);
    if (!right)
        fprintf(stderr, "  %s, %s, %d planes, m %lld n %lld k %lld from %lld\n", k->name, qtype_info(c.type)->name,
                c.planes, (long long)c.m, (long long)c.n, (long long)c.k, (long long)k0);
    CU_ASSERT(right);
    free(blocks), free((void *)w.data), free(x), free(bias), free(want), free(got), free(a.codes);
}

static void matmul_shapes(void) {
    for (int i = 0; isa(i); i++)
        for (int t = 0; t < N_TYPES; t++)
            for (int m = 0; m < N_MS; m++) {
                QType type = weight_types[t];
                bool quantised = qtype_info(type)->quantised;
                int64_t n = 1 + random_u32() % 90;
                int64_t k = quantised ? 32 * (1 + random_u32() % 20) : 1 + random_u32() % 600;
                for (int planes = 1; planes <= (quantised ? 2 : 1); planes++) {
                    check_matmul(isa(i), (Case){type, planes, CODES_RANDOM, ms[m], n, k});
                    check_matmul(isa(i), (Case){type, planes, CODES_WILD, ms[m], n, k});
                }
            }
}

static void matmul_extreme_codes(void) {
    for (int i = 0; isa(i); i++)
        for (int t = 0; t < N_QUANTISED; t++)
            for (int m = 0; m < N_MS; m++) {
                for (int planes = 1; planes <= 2; planes++) {
                    check_matmul(isa(i), (Case){weight_types[t], planes, CODES_LOW, ms[m], 40, 1152});
                    check_matmul(isa(i), (Case){weight_types[t], planes, CODES_HIGH, ms[m], 40, 1152});
                }
            }
}

/* Any division of the work gives the same bits as the whole, and touches nothing else. */
static void matmul_in_pieces(void) {
    const QType types[] = {QT_Q4_1, QT_Q8_0, QT_F32, QT_Q6_K};
    int64_t m = 130, n = 70, k = 256, ldy = n;
    for (int i = 0; isa(i); i++)
        for (int t = 0; t < 4; t++) {
            uint8_t *blocks = random_blocks(types[t], n, k, CODES_RANDOM);
            PackedWeights w = pack_weights(types[t], n, k, blocks);
            float *x = floats(m * k), *want = floats(m * ldy), *got = floats(m * ldy);
            random_floats(x, m * k);
            ActQ a = act_alloc(m, k, 1 + t % 2); /* Q4_1 with one plane, Q8_0 and Q6_K with two */
            ref()->quantise(x, k, 0, m, &a);
            bool q = qtype_info(types[t])->quantised;
            for (int64_t j = 0; j < m * ldy; j++) want[j] = got[j] = NAN;
            for (int64_t p = 0; p < packed_panels(n); p++) {
                for (int64_t r = 0; r < m; r += 64) {
                    int64_t end = r + 64 < m ? r + 64 : m;
                    if (q) isa(i)->matmul_q(&w, &a, r / 64, r / 64 + 1, p, p + 1, got, ldy, NULL);
                    else isa(i)->matmul_f(&w, x, k, r, end, p, p + 1, got, ldy, NULL);
                }
                if (q) ref()->matmul_q(&w, &a, 0, 3, p, p + 1, want, ldy, NULL);
                else ref()->matmul_f(&w, x, k, 0, m, p, p + 1, want, ldy, NULL);
                CU_ASSERT(same(got, want, m * ldy)); /* NaN where nothing was written yet */
            }
            free(blocks), free((void *)w.data), free(x), free(want), free(got), free(a.codes);
        }
}

/* A row's result is the same alone as among 130. */
static void rows_alone(int planes) {
    const QType *types = weight_types;
    int64_t m = 130, n = 50, k = 256;
    for (int i = 0; isa(i); i++)
        for (int t = 0; t < N_TYPES; t++) {
            uint8_t *blocks = random_blocks(types[t], n, k, CODES_RANDOM);
            PackedWeights w = pack_weights(types[t], n, k, blocks);
            float *x = floats(m * (k + 3)), *all = floats(m * n), *one = floats(n);
            random_floats(x, m * (k + 3));
            ActQ a = act_alloc(m, k, planes), single = act_alloc(1, k, planes);
            isa(i)->quantise(x, k + 3, 0, m, &a);
            multiply(isa(i), &w, x, &a, m, NULL, all, n);
            for (int64_t r = 0; r < m; r += 13) {
                isa(i)->quantise(x + r * (k + 3), k + 3, 0, 1, &single);
                multiply(isa(i), &w, x + r * (k + 3), &single, 1, NULL, one, n);
                CU_ASSERT(same(one, all + r * n, n));
            }
            free(blocks), free((void *)w.data), free(x), free(all), free(one), free(a.codes), free(single.codes);
        }
}

static void rows_do_not_depend_on_neighbours(void) {
    rows_alone(1);
    rows_alone(2);
}

int main(void) {
    for (int i = 0; isa(i); i++) printf("checking %s against ref\n", isa(i)->name);
    CU_TestInfo tests[] = {{"element-wise rows", elementwise},
                           {"logits", logits},
                           {"topk orders equals by index", topk_orders_equals_by_index},
                           {"bf16", bf16},
                           {"rope", rope},
                           {"quantise", quantise},
                           {"matmul over shapes", matmul_shapes},
                           {"matmul of extreme codes", matmul_extreme_codes},
                           {"matmul in pieces", matmul_in_pieces},
                           {"rows do not depend on neighbours", rows_do_not_depend_on_neighbours},
                           CU_TEST_INFO_NULL};
    return check_run("isa", tests);
}
