/* The table of number formats, and the conversions of whole rows. */
#include "quant/internal.h"

#include "base/size.h"

#include <string.h>

const int8_t iq4_codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

#define GROUPS_OF_32 .group = 32, .block = 32, .quantised = true
#define SUPER_BLOCK .block = 256, .quantised = true
static const QTypeInfo infos[QT_COUNT] = {
    [QT_F32] = {.name = "F32", .gguf_id = 0, .bits = 32, .group = 1, .block = 1, .block_bytes = 4, .packed = true},
    [QT_F16] = {.name = "F16", .gguf_id = 1, .bits = 16, .group = 1, .block = 1, .block_bytes = 2, .packed = true},
    [QT_BF16] = {.name = "BF16", .gguf_id = 30, .bits = 16, .group = 1, .block = 1, .block_bytes = 2, .packed = true},
    [QT_Q4_0] =
        {.name = "Q4_0", .gguf_id = 2, .bits = 4, GROUPS_OF_32, .block_bytes = 18, .zero_point = 8, .packed = true},
    [QT_Q4_1] =
        {.name = "Q4_1", .gguf_id = 3, .bits = 4, GROUPS_OF_32, .block_bytes = 20, .has_min = true, .packed = true},
    [QT_Q8_0] = {.name = "Q8_0", .gguf_id = 8, .bits = 8, GROUPS_OF_32, .block_bytes = 34, .packed = true},
    [QT_Q5_0] = {.name = "Q5_0", .gguf_id = 6, .bits = 5, GROUPS_OF_32, .block_bytes = 22, .zero_point = 16},
    [QT_Q5_1] = {.name = "Q5_1", .gguf_id = 7, .bits = 5, GROUPS_OF_32, .block_bytes = 24, .has_min = true},
    [QT_IQ4_NL] =
        {.name = "IQ4_NL", .gguf_id = 20, .bits = 4, GROUPS_OF_32, .block_bytes = 18, .codebook = iq4_codebook},
    [QT_Q2_K] =
        {.name = "Q2_K", .gguf_id = 10, .bits = 2, .group = 16, SUPER_BLOCK, .block_bytes = 84, .scale_bits = 4, .has_min = true},
    [QT_Q3_K] =
        {.name = "Q3_K", .gguf_id = 11, .bits = 3, .group = 16, SUPER_BLOCK, .block_bytes = 110, .scale_bits = 6, .zero_point = 4},
    [QT_Q4_K] =
        {.name = "Q4_K", .gguf_id = 12, .bits = 4, .group = 32, SUPER_BLOCK, .block_bytes = 144, .scale_bits = 6, .has_min = true},
    [QT_Q5_K] =
        {.name = "Q5_K", .gguf_id = 13, .bits = 5, .group = 32, SUPER_BLOCK, .block_bytes = 176, .scale_bits = 6, .has_min = true},
    [QT_Q6_K] =
        {.name = "Q6_K", .gguf_id = 14, .bits = 6, .group = 16, SUPER_BLOCK, .block_bytes = 210, .scale_bits = 8, .zero_point = 32},
    [QT_IQ4_XS] =
        {.name = "IQ4_XS", .gguf_id = 23, .bits = 4, .group = 32, SUPER_BLOCK, .block_bytes = 136, .scale_bits = 6, .codebook = iq4_codebook},
    [QT_I32] = {.name = "I32", .gguf_id = 26, .bits = 32, .group = 1, .block = 1, .block_bytes = 4},
    [QT_A8] = {.name = "A8", .gguf_id = -1, .bits = 8, .group = 32, .block = 32},
    [QT_A16] = {.name = "A16", .gguf_id = -1, .bits = 16, .group = 32, .block = 32},
};

const QTypeInfo *qtype_info(QType t) { return &infos[t]; }

int qtype_from_gguf(uint32_t id) {
    for (int t = 0; t < QT_COUNT; t++)
        if (infos[t].gguf_id >= 0 && (uint32_t)infos[t].gguf_id == id) return t;
    return -1;
}

bool qtype_bytes(QType t, uint64_t n, size_t *out) {
    const QTypeInfo *q = &infos[t];
    if (!q->block_bytes || n % (uint64_t)q->block) return false;
    return size_mul((size_t)(n / (uint64_t)q->block), (size_t)q->block_bytes, out);
}

static void dequantise_block(const QTypeInfo *q, const QBlock *b, float *out) {
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    for (int g = 0; g < q->block / q->group; g++) {
        float scale = d * (float)b->scale[g], min = dmin * (float)b->min[g];
        for (int i = g * q->group; i < (g + 1) * q->group; i++) {
            float w = scale * (float)(q->codebook ? q->codebook[b->code[i]] : b->code[i] - q->zero_point);
            out[i] = q->has_min ? w - min : w;
        }
    }
}

void qtype_dequantise(QType t, const void *blocks, int64_t n, float *out) {
    const uint8_t *b = blocks;
    if (t == QT_F32) {
        memcpy(out, b, (size_t)n * sizeof *out);
        return;
    }
    const QTypeInfo *q = &infos[t];
    QBlock parts;
    for (int64_t i = 0; i < n; i += q->block, b += q->block_bytes) {
        if (t == QT_F16) out[i] = f16_to_f32(get_u16(b));
        else if (t == QT_BF16) out[i] = bf16_to_f32(get_u16(b));
        else {
            qtype_unpack(t, b, &parts);
            dequantise_block(q, &parts, out + i);
        }
    }
}

void qtype_quantise(QType t, const float *x, int64_t n, void *blocks) {
    uint8_t *b = blocks;
    if (t == QT_F32) {
        memcpy(b, x, (size_t)n * sizeof *x);
        return;
    }
    const QTypeInfo *q = &infos[t];
    bool linear_group = q->block == q->group && !q->codebook;
    QBlock parts;
    for (int64_t i = 0; i < n; i += q->block, b += q->block_bytes) {
        if (t == QT_F16) put_u16(b, f32_to_f16(x[i]));
        else if (t == QT_BF16) put_u16(b, f32_to_bf16(x[i]));
        else {
            if (linear_group) quantise_by_extremes(q, x + i, &parts);
            else quantise_by_search(q, x + i, &parts);
            qtype_pack(t, &parts, b);
        }
    }
}
