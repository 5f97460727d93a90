/* The two halves of AVX2's integer matmul: by bytes (avx2_matmul.c) and by 16-bit words (avx2_words.c). */
#pragma once

#include "kernels/lanes_avx2.h"

#include "kernels/lanes_epilogue.inc"

enum { GROUP = ACT_GROUP, Q4_CODES = GROUP / 2 * PANEL, Q8_CODES = GROUP * PANEL, HALF = PANEL / 2 };

/* How far ahead of use weights are asked for, in bytes: 0.94 of a plain read with one row, 0.83 with 3072 (Zen 5). */
enum { AHEAD = 6144 };

/* What a weight type means for these loops; a constant wherever it is used. */
typedef struct Format {
    int codes;      /* bytes of codes in a group of a panel */
    int bytes;      /* and with the scales */
    int zero_point; /* of the unsigned codes */
    bool has_min;
} Format;

static const Format q4_0 __attribute__((unused)) = {Q4_CODES, Q4_CODES + 32, 8, false};
static const Format q4_1 __attribute__((unused)) = {Q4_CODES, Q4_CODES + 64, 0, true};
static const Format q8_0 __attribute__((unused)) = {Q8_CODES, Q8_CODES + 32, 128, false};

typedef struct Job {
    const PackedWeights *w;
    int64_t n_groups;
    size_t stride; /* bytes of a panel */
    float *y;
    int64_t ldy;
    const Epilogue *ep;
} Job;

/* Panels [panel0, panel1) times one block of rows. */
typedef void BlockFn(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1);

BlockFn avx2_words_q4_0_2, avx2_words_q4_1_2, avx2_words_q8_0_1, avx2_words_q8_0_2; /* type, planes */

LANES_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256(p); }
LANES_INLINE __m256 load_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

LANES_INLINE void prefetch_group(const Format f, const uint8_t *group) {
#pragma GCC unroll 9
    for (int i = 0; i < f.bytes; i += 64) _mm_prefetch((const char *)group + AHEAD + i, _MM_HINT_T0);
}

/* Keeps a value in its register at this point: gcc 12 would otherwise load weights again for every row, turn a chain of
 * integer sums into a tree, and spill most of it. */
#define PIN(X) __asm__ volatile("" : "+x"(X))

/* Four activation codes (or two 16-bit ones) to every lane. */
LANES_INLINE __m256i broadcast_codes(const void *p) { return _mm256_castps_si256(_mm256_broadcast_ss(p)); }

/* Scale and minimum of 8 columns. */
typedef struct HalfScales {
    __m256 scale, min;
} HalfScales;

LANES_INLINE HalfScales load_scales(const Format f, const uint8_t *group, const int half) {
    const uint8_t *p = group + f.codes + 16 * half;
    return (HalfScales){load_halves(p), f.has_min ? load_halves(p + 32) : _mm256_setzero_ps()};
}

/* acc with the contribution of a group to entry i of the block: dot products of the unsigned codes. */
LANES_INLINE __m256 add_dot(const Format f, const HalfScales *s, const ActBlock *b, int64_t i, __m256i dot,
                            __m256 acc) {
    if (f.zero_point) dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(f.zero_point * b->sum[i]));
    __m256 scale = _mm256_mul_ps(s->scale, _mm256_broadcast_ss(b->scale + i));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc);
    if (f.has_min) acc = _mm256_fmadd_ps(s->min, _mm256_broadcast_ss(b->scaled_sum + i), acc);
    return acc;
}
