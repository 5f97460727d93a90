/* Descriptors of number formats, for weights and activations, and their reference conversions.
 *
 * A weight format of a GGUF file is a row of blocks. A block holds `block` values in groups of `group`; with d and dmin
 * fp16 numbers of the block, scale[g] and min[g] small integers of each group, the value of a code is
 *     w = (d * scale[g]) * v - dmin * min[g],   v = codebook[code], or code - zero_point without a codebook,
 * each operation rounded to fp32, and the second term only where has_min. Where a block is one group, scale is 1, and
 * min is -1 (Q4_1, Q5_1: the minimum is added there). Where the bytes lie: layout.c. Source: ggml-common.h and the
 * reference conversions of https://github.com/ggml-org/ggml. */
#pragma once

#include "base/err.h"

typedef enum QType {
    QT_F32,
    QT_F16,
    QT_BF16,
    QT_Q4_0,   /* 32 codes of 4 bits, zero point 8, fp16 scale */
    QT_Q4_1,   /* 32 codes of 4 bits, fp16 scale and fp16 minimum */
    QT_Q8_0,   /* 32 codes of 8 bits, symmetric, fp16 scale */
    QT_Q5_0,   /* 32 codes of 5 bits, zero point 16, fp16 scale */
    QT_Q5_1,   /* 32 codes of 5 bits, fp16 scale and fp16 minimum */
    QT_IQ4_NL, /* 32 codes of 4 bits into a codebook, fp16 scale */
    QT_Q2_K,   /* super-block of 256: 16 groups of 16 codes of 2 bits; scale and minimum of 4 bits */
    QT_Q3_K,   /* 16 groups of 16 codes of 3 bits, zero point 4; signed scale of 6 bits */
    QT_Q4_K,   /* 8 groups of 32 codes of 4 bits; scale and minimum of 6 bits */
    QT_Q5_K,   /* 8 groups of 32 codes of 5 bits; scale and minimum of 6 bits */
    QT_Q6_K,   /* 16 groups of 16 codes of 6 bits, zero point 32; signed scale of 8 bits */
    QT_IQ4_XS, /* 8 groups of 32 codes of 4 bits into a codebook; signed scale of 6 bits */
    QT_I32,    /* token ids and positions */
    QT_A8,     /* activations: int8 in [-127, 127], dynamic fp32 scale per 32, with the sum of each group's codes */
    QT_A16,    /* activations: codes of 16 bits as two int8 planes, otherwise like QT_A8 */
    QT_F64,    /* from here: plain elements of the arrays in nets (kernels/nd.h) */
    QT_I8,
    QT_U8,
    QT_I16,
    QT_U16,
    QT_U32,
    QT_I64,
    QT_U64,
    QT_BOOL, /* a byte, 0 or 1 */
    QT_COUNT
} QType;

typedef struct QTypeInfo {
    const char *name;
    int gguf_id;            /* ggml_type in a GGUF file, -1: never in a file */
    int bits;               /* per code */
    int group;              /* values that share a scale; 1: not quantised */
    int block;              /* values of a block in a file, which is never cut: one group, or 256 in several */
    int block_bytes;        /* of such a block (of 1 value when the type is not quantised); 0: never in a file */
    int zero_point;         /* subtracted from the unsigned code: 8 for Q4_0; 0: none (Q8_0's codes are signed) */
    int scale_bits;         /* of each group's scale (and minimum) in a super-block: unsigned with minima, else signed;
                               0: the block is one group */
    const int8_t *codebook; /* [1 << bits], ascending: what each code stands for; NULL: code - zero_point */
    bool has_min;           /* each group has a minimum */
    bool quantised; /* multiplied with QT_A8 or QT_A16 activations by integer dot products; else with fp32 ones */
    bool packed;    /* a weight type that the kernels of this build run */
} QTypeInfo;

const QTypeInfo *qtype_info(QType t);
/* int8 planes of quantised activations: 1 or 2; 0 for other types. */
static inline int qtype_planes(QType t) { return t == QT_A8 ? 1 : t == QT_A16 ? 2 : 0; }
/* The type with that id in GGUF files, or -1. */
int qtype_from_gguf(uint32_t id);

/* Bytes of n values (n a multiple of the block), or false when n is not, or on overflow. Local. */
bool qtype_bytes(QType t, uint64_t n, size_t *out);

/* Blocks as they stand in a file -> n fp32 values (n a multiple of the block). Types QT_F32 .. QT_IQ4_XS. Local. */
void qtype_dequantise(QType t, const void *blocks, int64_t n, float *out);

/* fp32 -> blocks, the same types; a block depends on its own values only. Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 as ggml's
 * reference quantisers do it (quantise.c); the others search for the scales of least squared error (fit.c). Values that
 * are not finite, or too large for the type's fp16 scale, give blocks that stand for nothing, and no error. Local. */
void qtype_quantise(QType t, const float *x, int64_t n, void *blocks);

/* The first of `n` blocks whose scale or minimum is not finite (of a type that is not quantised: the first such value),
 * or -1. It stands for no numbers, so that the file must be damaged. Other impossible blocks there are not: codes and
 * the groups' small scales may have all their bit patterns. Types QT_F32 .. QT_IQ4_XS. Local. */
int64_t qtype_first_broken(QType t, const void *blocks, int64_t n);

/* ---- one block taken apart: what packers and kernels are made from ---- */
enum { QBLOCK_MAX = 256, QBLOCK_GROUPS = 16 };
typedef struct QBlock {
    uint16_t d, dmin;            /* fp16; dmin 0 without minima */
    int8_t scale[QBLOCK_GROUPS]; /* [block / group] */
    int8_t min[QBLOCK_GROUPS];
    int8_t code[QBLOCK_MAX]; /* [block]: 0 .. 2^bits - 1; Q8_0: -128 .. 127 */
} QBlock;
/* Types QT_Q4_0 .. QT_IQ4_XS; packing is the exact inverse. Local. */
void qtype_unpack(QType t, const void *block, QBlock *out);
void qtype_pack(QType t, const QBlock *b, void *block);

/* ---- half precision (half.c) ---- */
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
