/* Descriptors of number formats, for weights and activations, and their reference conversions. */
#pragma once

#include "base/err.h"

typedef enum QType {
    QT_F32,
    QT_F16,
    QT_BF16,
    QT_Q4_0, /* 32 codes of 4 bits, zero point 8, fp16 scale */
    QT_Q4_1, /* 32 codes of 4 bits, fp16 scale and fp16 minimum */
    QT_Q8_0, /* 32 codes of 8 bits, symmetric, fp16 scale */
    QT_I32,  /* token ids and positions */
    QT_A8,   /* activations: int8 in [-127, 127], dynamic fp32 scale per 32, with the sum of each group's codes */
    QT_A16,  /* activations: codes of 16 bits as two int8 planes, otherwise like QT_A8 */
    QT_COUNT
} QType;

typedef struct QTypeInfo {
    const char *name;
    int gguf_id;     /* ggml_type in a GGUF file, -1: never in a file */
    int bits;        /* per code */
    int group;       /* values that share a scale; 1: not quantised */
    int block_bytes; /* bytes of one group in a file (1 value when group is 1) */
    int zero_point;  /* subtracted from the unsigned code: 8 for Q4_0, 0 otherwise */
    bool has_min;    /* a minimum per group is added: w = scale * code + min */
    bool quantised;  /* multiplied with QT_A8 or QT_A16 activations by integer dot products; else with fp32 ones */
} QTypeInfo;

const QTypeInfo *qtype_info(QType t);
/* int8 planes of quantised activations: 1 or 2; 0 for other types. */
static inline int qtype_planes(QType t) { return t == QT_A8 ? 1 : t == QT_A16 ? 2 : 0; }
/* The type with that id in GGUF files, or -1. */
int qtype_from_gguf(uint32_t id);

/* Bytes of n values (n a multiple of the group), or false when n is not, or on overflow. Local. */
bool qtype_bytes(QType t, uint64_t n, size_t *out);

/* Blocks as they stand in a file -> n fp32 values (n a multiple of the group). The definition of each weight format:
 * https://github.com/ggml-org/ggml (ggml-common.h describes the blocks). Types QT_F32 .. QT_Q8_0. Local. */
void qtype_dequantise(QType t, const void *blocks, int64_t n, float *out);

/* fp32 -> blocks, round to nearest, as ggml's reference quantisers do it (scale = amax/127 for Q8_0, signed-max/-8 for
 * Q4_0, (max-min)/15 for Q4_1). Used by tests and fixtures. Local. */
void qtype_quantise(QType t, const float *x, int64_t n, void *blocks);

float f16_to_f32(uint16_t h); /* exact, subnormals and NaN included */
uint16_t f32_to_f16(float f); /* round to nearest even, overflow to infinity */
static inline float bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
uint16_t f32_to_bf16(float f); /* round to nearest even; NaN stays NaN */
