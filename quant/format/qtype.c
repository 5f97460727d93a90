#include "quant/qtype.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

static const QTypeInfo infos[QT_COUNT] = {
    [QT_F32] = {.name = "F32", .gguf_id = 0, .bits = 32, .group = 1, .block_bytes = 4},
    [QT_F16] = {.name = "F16", .gguf_id = 1, .bits = 16, .group = 1, .block_bytes = 2},
    [QT_BF16] = {.name = "BF16", .gguf_id = 30, .bits = 16, .group = 1, .block_bytes = 2},
    [QT_Q4_0] =
        {.name = "Q4_0", .gguf_id = 2, .bits = 4, .group = 32, .block_bytes = 18, .zero_point = 8, .quantised = true},
    [QT_Q4_1] =
        {.name = "Q4_1", .gguf_id = 3, .bits = 4, .group = 32, .block_bytes = 20, .has_min = true, .quantised = true},
    [QT_Q8_0] = {.name = "Q8_0", .gguf_id = 8, .bits = 8, .group = 32, .block_bytes = 34, .quantised = true},
    [QT_I32] = {.name = "I32", .gguf_id = 26, .bits = 32, .group = 1, .block_bytes = 4},
    [QT_A8] = {.name = "A8", .gguf_id = -1, .bits = 8, .group = 32},
    [QT_A16] = {.name = "A16", .gguf_id = -1, .bits = 16, .group = 32},
};

const QTypeInfo *qtype_info(QType t) { return &infos[t]; }

int qtype_from_gguf(uint32_t id) {
    for (int t = 0; t < QT_COUNT; t++)
        if (infos[t].gguf_id >= 0 && (uint32_t)infos[t].gguf_id == id) return t;
    return -1;
}

bool qtype_bytes(QType t, uint64_t n, size_t *out) {
    const QTypeInfo *q = &infos[t];
    if (!q->block_bytes || n % (uint64_t)q->group) return false;
    return size_mul((size_t)(n / (uint64_t)q->group), (size_t)q->block_bytes, out);
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* zero and subnormals: exact */
    return sign ? -tiny : tiny;
}

uint16_t f32_to_f16(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff)); /* a quiet NaN */
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);                              /* 2^16 and above */
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 rounds to steps of 2^-24, the last bits are the result */
        uint32_t rounded = bits_of(float_of(magnitude) + 0.5f);
        return (uint16_t)(sign | (rounded - 0x3f000000));
    }
    magnitude += 0xfff + ((magnitude >> 13) & 1); /* ties to even; may carry into the exponent, up to infinity */
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

uint16_t f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* a quiet NaN */
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* ---- blocks of a file: scale first, then the minimum, then the codes; a byte of 4-bit codes j holds value j in its
 * low nibble and value j + 16 in its high one ---- */

static uint16_t get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void dequantise_group(QType t, const uint8_t *b, float *out) {
    float scale = f16_to_f32(get_u16(b));
    if (t == QT_Q8_0) {
        for (int j = 0; j < 32; j++) out[j] = scale * (float)(int8_t)b[2 + j];
        return;
    }
    float min = t == QT_Q4_1 ? f16_to_f32(get_u16(b + 2)) : 0.0f;
    const uint8_t *codes = b + (t == QT_Q4_1 ? 4 : 2);
    int zero_point = infos[t].zero_point;
    for (int j = 0; j < 16; j++) {
        out[j] = scale * (float)((codes[j] & 15) - zero_point);
        out[j + 16] = scale * (float)((codes[j] >> 4) - zero_point);
    }
    for (int j = 0; t == QT_Q4_1 && j < 32; j++) out[j] += min;
}

void qtype_dequantise(QType t, const void *blocks, int64_t n, float *out) {
    const uint8_t *b = blocks;
    if (t == QT_F32) {
        memcpy(out, b, (size_t)n * sizeof *out);
        return;
    }
    const QTypeInfo *q = &infos[t];
    for (int64_t i = 0; i < n; i += q->group, b += q->block_bytes) {
        if (t == QT_F16) out[i] = f16_to_f32(get_u16(b));
        else if (t == QT_BF16) out[i] = bf16_to_f32(get_u16(b));
        else dequantise_group(t, b, out + i);
    }
}

/* The code of a value that is already scaled: cut to an integer in 0..15; NaN gives 0. */
static uint8_t nibble(float x) { return (uint8_t)(x >= 15.0f ? 15 : x > 0.0f ? (int)x : 0); }

static void quantise_q8_0(const float *x, uint8_t *b) {
    float amax = 0.0f;
    for (int j = 0; j < 32; j++) amax = fabsf(x[j]) > amax ? fabsf(x[j]) : amax;
    float scale = amax / 127.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    put_u16(b, f32_to_f16(scale));
    for (int j = 0; j < 32; j++) {
        float c = roundf(x[j] * inverse);
        b[2 + j] = (uint8_t)(int8_t)(c >= 127.0f ? 127 : c > -127.0f ? (int)c : c <= -127.0f ? -127 : 0);
    }
}

static void quantise_q4_0(const float *x, uint8_t *b) {
    float extreme = 0.0f; /* the value of the largest magnitude, with its sign: it becomes code 0 */
    for (int j = 0; j < 32; j++) extreme = fabsf(x[j]) > fabsf(extreme) ? x[j] : extreme;
    float scale = extreme / -8.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    put_u16(b, f32_to_f16(scale));
    for (int j = 0; j < 16; j++)
        b[2 + j] = (uint8_t)(nibble(x[j] * inverse + 8.5f) | nibble(x[j + 16] * inverse + 8.5f) << 4);
}

static void quantise_q4_1(const float *x, uint8_t *b) {
    float min = x[0], max = x[0];
    for (int j = 1; j < 32; j++) {
        min = x[j] < min ? x[j] : min;
        max = x[j] > max ? x[j] : max;
    }
    float scale = (max - min) / 15.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    put_u16(b, f32_to_f16(scale));
    put_u16(b + 2, f32_to_f16(min));
    for (int j = 0; j < 16; j++)
        b[4 + j] = (uint8_t)(nibble((x[j] - min) * inverse + 0.5f) | nibble((x[j + 16] - min) * inverse + 0.5f) << 4);
}

void qtype_quantise(QType t, const float *x, int64_t n, void *blocks) {
    uint8_t *b = blocks;
    if (t == QT_F32) {
        memcpy(b, x, (size_t)n * sizeof *x);
        return;
    }
    const QTypeInfo *q = &infos[t];
    for (int64_t i = 0; i < n; i += q->group, b += q->block_bytes) {
        if (t == QT_F16) put_u16(b, f32_to_f16(x[i]));
        if (t == QT_BF16) put_u16(b, f32_to_bf16(x[i]));
        if (t == QT_Q4_0) quantise_q4_0(x + i, b);
        if (t == QT_Q4_1) quantise_q4_1(x + i, b);
        if (t == QT_Q8_0) quantise_q8_0(x + i, b);
    }
}
