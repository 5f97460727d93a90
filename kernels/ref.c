/* The definition of every kernel, in plain C: what kernels.h says, as directly as possible. The other tables must equal
 * it bit for bit (NaNs aside: their sign and payload are not defined), and run where they cannot. */
#include "kernels/table.h"

#include <math.h>
#include <string.h>

/* ---- shared pieces ---- */

enum { LANES = 16 };

static float join_lanes(float lanes[LANES]) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

static uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t load_u16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static void store_u16(uint8_t *p, uint16_t h) { memcpy(p, &h, sizeof h); }

float kernel_exp(float x) {
    if (isnan(x)) return x;
    if (x < EXP_MIN) return 0.0f;
    x = x > EXP_MAX ? EXP_MAX : x;
    float n = rintf(x * EXP_LOG2E);
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = EXP_C6;
    p = fmaf(p, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* Times 2^n by adding to the exponent field: within the clamps the result is a normal number. */
    return bits_float(float_bits(p) + ((uint32_t)(int32_t)n << 23));
}

/* ---- rows ---- */

/* Stores a code in its planes. */
static void store_code(int32_t code, int planes, int8_t *codes) {
    int32_t high = planes == 2 ? (code + (1 << (HIGH_SHIFT - 1))) >> HIGH_SHIFT : code;
    codes[0] = (int8_t)high;
    if (planes == 2) codes[ACT_GROUP] = (int8_t)(code - high * (1 << HIGH_SHIFT));
}

static void quantise_group(const float *x, ActQ *a, int64_t entry) {
    int8_t *codes = a->codes + entry * a->planes * ACT_GROUP;
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < ACT_GROUP; i++) {
        finite = finite && isfinite(x[i]);
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    float largest = act_max_code(a->planes), inverse = largest / amax;
    if (!finite || !isfinite(inverse)) inverse = 0.0f;
    int32_t sum[2] = {0}; /* of the halves */
    for (int i = 0; i < ACT_GROUP; i++) {
        int32_t code = inverse == 0.0f ? 0 : (int32_t)lrintf(x[i] * inverse);
        store_code(code, a->planes, codes + i);
        sum[i / (ACT_GROUP / 2)] += code;
    }
    a->scale[entry] = finite ? amax / largest : NAN;
    a->half_sum[entry] = sum[0];
    a->sum[entry] = sum[0] + sum[1];
}

static void quantise(const float *x, int64_t ldx, int64_t row0, int64_t row1, ActQ *a) {
    for (int64_t r = row0; r < row1; r++) {
        ActBlock b = act_block(a, r / ACT_ROWS);
        int64_t first = b.row0 * (a->k / ACT_GROUP) + (r - b.row0);
        for (int64_t g = 0; g < a->k / ACT_GROUP; g++)
            quantise_group(x + r * ldx + g * ACT_GROUP, a, first + g * b.rows);
    }
}

static void rmsnorm(const float *x, const float *w, float eps, int64_t n, float *y) {
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < n; i++) lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    float r = 1.0f / sqrtf(join_lanes(lanes) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * r * w[i];
}

static void layernorm(const float *x, const float *w, const float *b, float eps, int64_t n, float *y) {
    float sums[LANES] = {0}, squares[LANES] = {0};
    for (int64_t i = 0; i < n; i++) sums[i % LANES] += x[i];
    float mean = join_lanes(sums) / (float)n;
    for (int64_t i = 0; i < n; i++) squares[i % LANES] = fmaf(x[i] - mean, x[i] - mean, squares[i % LANES]);
    float r = 1.0f / sqrtf(join_lanes(squares) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = fmaf((x[i] - mean) * r, w[i], b[i]);
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + kernel_exp(-gate[i])) * up[i];
}

static void gelu_mul(const float *gate, const float *up, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i], t = fmaf(g * g, GELU_C1, GELU_C0);
        y[i] = g / (1.0f + kernel_exp(-(g * t))) * up[i];
    }
}

static void gelu(const float *x, int64_t n, float *y) {
    static const float c[] = {TAIL_C6, TAIL_C5, TAIL_C4, TAIL_C3, TAIL_C2, TAIL_C1, TAIL_C0};
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]) < 14.0f || isnan(x[i]) ? fabsf(x[i]) : 14.0f, t = 1.0f / fmaf(a, TAIL_P, 1.0f);
        float p = TAIL_C7;
        for (size_t j = 0; j < sizeof c / sizeof *c; j++) p = fmaf(p, t, c[j]);
        float h = kernel_exp(a * a * -0.5f) * (p * t);
        y[i] = fmaf(-a, h, 0.0f > x[i] ? 0.0f : x[i]);
    }
}

static float softcap_of(float x, float cap) { return cap * (1.0f - 2.0f / (kernel_exp(x * (2.0f / cap)) + 1.0f)); }

static void softcap(const float *x, float cap, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = softcap_of(x[i], cap);
}

static void scale(const float *x, float factor, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

static void add_scaled(const float *x, float factor, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = fmaf(x[i], factor, y[i]);
}

static void relu(const float *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = 0.0f > x[i] ? 0.0f : x[i];
}

static void add(const float *a, const float *b, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void rope(float *x, int n_heads, int head_dim, int rope_dim, bool neox, const float *cs) {
    int half = rope_dim / 2;
    for (int h = 0; h < n_heads; h++, x += head_dim)
        for (int i = 0; i < half; i++) {
            float *p0 = neox ? x + i : x + 2 * i, *p1 = neox ? x + i + half : x + 2 * i + 1;
            float x0 = *p0, x1 = *p1, c = cs[2 * i], s = cs[2 * i + 1];
            *p0 = fmaf(x0, c, -(x1 * s));
            *p1 = fmaf(x0, s, x1 * c);
        }
}

/* ---- attention ---- */

/* Element offsets inside a block of the cache; each element is 2 bytes. */
static size_t key_at(KvShape s, int head, int d, int slot) {
    return 2 * (((size_t)head * (size_t)s.head_dim + (size_t)d) * KV_BLOCK + (size_t)slot);
}

static size_t value_at(KvShape s, int head, int slot, int d) {
    size_t keys = (size_t)s.kv_heads * (size_t)s.head_dim * KV_BLOCK;
    return 2 * (keys + ((size_t)head * KV_BLOCK + (size_t)slot) * (size_t)s.head_dim + (size_t)d);
}

static void kv_store(uint8_t *block, KvShape s, int slot, const float *k, const float *v) {
    for (int h = 0; h < s.kv_heads; h++)
        for (int d = 0; d < s.head_dim; d++) {
            store_u16(block + key_at(s, h, d, slot), f32_to_f16(k[h * s.head_dim + d]));
            store_u16(block + value_at(s, h, slot, d), f32_to_f16(v[h * s.head_dim + d]));
        }
}

enum { MAX_HEAD_DIM = 256 };

/* What one query has gathered from the blocks so far, or from one block. */
typedef struct Softmax {
    float max, sum, out[MAX_HEAD_DIM];
} Softmax;

/* Slots [first, visible) of one block. */
static void attend_block(const AttnRun *run, const uint8_t *block, const float *q, int first, int visible, Softmax *b) {
    float e[KV_BLOCK], lanes[LANES] = {0};
    b->max = -INFINITY;
    for (int j = first; j < visible; j++) {
        float s = 0.0f;
        for (int d = 0; d < run->shape.head_dim; d++)
            s = fmaf(q[d], f16_to_f32(load_u16(block + key_at(run->shape, run->kv_head, d, j))), s);
        e[j] = s * run->scale;
        if (run->softcap > 0.0f) e[j] = softcap_of(e[j], run->softcap);
        b->max = b->max > e[j] ? b->max : e[j];
    }
    for (int j = first; j < visible; j++) {
        e[j] = kernel_exp(e[j] - b->max);
        lanes[j % LANES] += e[j];
    }
    b->sum = join_lanes(lanes);
    for (int d = 0; d < run->shape.head_dim; d++) {
        float o = 0.0f;
        for (int j = first; j < visible; j++)
            o = fmaf(e[j], f16_to_f32(load_u16(block + value_at(run->shape, run->kv_head, j, d))), o);
        b->out[d] = o;
    }
}

static void merge(Softmax *all, const Softmax *b, int head_dim) {
    float max = all->max > b->max ? all->max : b->max;
    float old = kernel_exp(all->max - max), new = kernel_exp(b->max - max);
    all->sum = fmaf(all->sum, old, b->sum * new);
    for (int d = 0; d < head_dim; d++) all->out[d] = fmaf(all->out[d], old, b->out[d] * new);
    all->max = max;
}

/* A query that sees positions up to `position`. */
static void attend(const AttnRun *run, const float *q, int64_t position, float *out) {
    Softmax all = {.max = -INFINITY}, b;
    int64_t start = run->window > 0 && position >= run->window ? position - run->window + 1 : 0;
    for (int64_t i = start / KV_BLOCK; i <= position / KV_BLOCK; i++) {
        const uint8_t *block = run->blocks + (size_t)run->table[i] * kv_block_bytes(run->shape);
        int64_t left = position + 1 - i * KV_BLOCK, skip = start - i * KV_BLOCK;
        attend_block(run, block, q, skip > 0 ? (int)skip : 0, left < KV_BLOCK ? (int)left : KV_BLOCK, &b);
        merge(&all, &b, run->shape.head_dim);
    }
    for (int d = 0; d < run->shape.head_dim; d++) out[d] = all.out[d] / all.sum;
}

static void attention(const AttnRun *run) {
    for (int64_t t = 0; t < run->n_rows; t++)
        for (int h = run->q_head0; h < run->q_head1; h++) {
            int64_t column = (int64_t)h * run->shape.head_dim;
            int64_t last = run->n_keys ? run->n_keys - 1 : run->pos0 + t;
            attend(run, run->q + t * run->ldq + column, last, run->out + t * run->ldo + column);
        }
}

/* ---- logits, sums, bf16 ---- */

static void logsumexp(const float *x, int64_t n, float *max, float *sum) {
    float m = -INFINITY, lanes[LANES] = {0};
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        nan = nan || isnan(x[i]);
        m = m > x[i] ? m : x[i];
    }
    for (int64_t i = 0; i < n; i++) lanes[i % LANES] += kernel_exp(x[i] - m);
    *max = nan ? NAN : m + 0.0f; /* never -0 */
    *sum = nan ? NAN : join_lanes(lanes);
}

static void topk(const float *x, int64_t n, int k, int32_t id0, int32_t *ids, float *values) {
    int count = 0;
    for (int64_t i = 0; i < n && k > 0; i++) topk_insert(x[i], id0 + (int32_t)i, k, &count, ids, values);
}

static void sum(const float *const *src, int n_src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        float s = src[0][i];
        for (int j = 1; j < n_src; j++) s += src[j][i];
        dst[i] = s;
    }
}

static void to_bf16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i++) y[i] = f32_to_bf16(x[i]);
}

static void from_bf16(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = bf16_to_f32(x[i]);
}

const Kernels kernels_ref = {.name = "ref",
                             .quantise = quantise,
                             .rmsnorm = rmsnorm,
                             .layernorm = layernorm,
                             .matmul_q = matmul_q_ref,
                             .matmul_f = matmul_f_ref,
                             .silu_mul = silu_mul,
                             .gelu_mul = gelu_mul,
                             .gelu = gelu,
                             .softcap = softcap,
                             .scale = scale,
                             .add_scaled = add_scaled,
                             .relu = relu,
                             .add = add,
                             .rope = rope,
                             .kv_store = kv_store,
                             .attention = attention,
                             .logsumexp = logsumexp,
                             .topk = topk,
                             .sum = sum,
                             .to_bf16 = to_bf16,
                             .from_bf16 = from_bf16};
