/* The table of number formats, and the conversions of whole rows. */
#include "quant/internal.h"

#include "base/size.h"

#include <string.h>

const int8_t iq4_codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* clang-format off */
static const QTypeInfo infos[QT_COUNT] = {
    /*             name    GGUF id, bits, group, block, bytes, zero point, scale bits, codebook,  has_min quantised packed */
    [QT_F32] =    {"F32",        0,   32,     1,     1,     4,          0,          0, NULL,         false, false, true},
    [QT_F16] =    {"F16",        1,   16,     1,     1,     2,          0,          0, NULL,         false, false, true},
    [QT_BF16] =   {"BF16",      30,   16,     1,     1,     2,          0,          0, NULL,         false, false, true},
    [QT_Q4_0] =   {"Q4_0",       2,    4,    32,    32,    18,          8,          0, NULL,         false, true,  true},
    [QT_Q4_1] =   {"Q4_1",       3,    4,    32,    32,    20,          0,          0, NULL,         true,  true,  true},
    [QT_Q8_0] =   {"Q8_0",       8,    8,    32,    32,    34,          0,          0, NULL,         false, true,  true},
    [QT_Q5_0] =   {"Q5_0",       6,    5,    32,    32,    22,         16,          0, NULL,         false, true,  true},
    [QT_Q5_1] =   {"Q5_1",       7,    5,    32,    32,    24,          0,          0, NULL,         true,  true,  true},
    [QT_IQ4_NL] = {"IQ4_NL",    20,    4,    32,    32,    18,          0,          0, iq4_codebook, false, true,  true},
    [QT_Q2_K] =   {"Q2_K",      10,    2,    16,   256,    84,          0,          4, NULL,         true,  true,  true},
    [QT_Q3_K] =   {"Q3_K",      11,    3,    16,   256,   110,          4,          6, NULL,         false, true,  true},
    [QT_Q4_K] =   {"Q4_K",      12,    4,    32,   256,   144,          0,          6, NULL,         true,  true,  true},
    [QT_Q5_K] =   {"Q5_K",      13,    5,    32,   256,   176,          0,          6, NULL,         true,  true,  true},
    [QT_Q6_K] =   {"Q6_K",      14,    6,    16,   256,   210,         32,          8, NULL,         false, true,  true},
    [QT_IQ4_XS] = {"IQ4_XS",    23,    4,    32,   256,   136,          0,          6, iq4_codebook, false, true,  true},
    [QT_I32] =    {"I32",       26,   32,     1,     1,     4,          0,          0, NULL,         false, false, false},
    [QT_A8] =     {"A8",        -1,    8,    32,    32,     0,          0,          0, NULL,         false, false, false},
    [QT_A16] =    {"A16",       -1,   16,    32,    32,     0,          0,          0, NULL,         false, false, false},
    [QT_F64] =    {"F64",       -1,   64,     1,     1,     8,          0,          0, NULL,         false, false, false},
    [QT_I8] =     {"I8",        -1,    8,     1,     1,     1,          0,          0, NULL,         false, false, false},
    [QT_U8] =     {"U8",        -1,    8,     1,     1,     1,          0,          0, NULL,         false, false, false},
    [QT_I16] =    {"I16",       -1,   16,     1,     1,     2,          0,          0, NULL,         false, false, false},
    [QT_U16] =    {"U16",       -1,   16,     1,     1,     2,          0,          0, NULL,         false, false, false},
    [QT_U32] =    {"U32",       -1,   32,     1,     1,     4,          0,          0, NULL,         false, false, false},
    [QT_I64] =    {"I64",       -1,   64,     1,     1,     8,          0,          0, NULL,         false, false, false},
    [QT_U64] =    {"U64",       -1,   64,     1,     1,     8,          0,          0, NULL,         false, false, false},
    [QT_BOOL] =   {"BOOL",      -1,    8,     1,     1,     1,          0,          0, NULL,         false, false, false},
};
/* clang-format on */

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
    QuantiseBlock *make = q->block == q->group && !q->codebook ? quantise_by_extremes : quantise_by_search;
    QBlock parts;
    for (int64_t i = 0; i < n; i += q->block, b += q->block_bytes) {
        if (t == QT_F16) put_u16(b, f32_to_f16(x[i]));
        else if (t == QT_BF16) put_u16(b, f32_to_bf16(x[i]));
        else {
            make(q, x + i, &parts);
            qtype_pack(t, &parts, b);
        }
    }
}
