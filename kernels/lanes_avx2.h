/* The 16 virtual lanes of kernels.h as two AVX2 registers. Same names and meanings as in lanes_avx512.h, so that the
 * code in lanes_*.inc is written once. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef struct Vec {
    __m256 lo, hi; /* lanes 0..7 and 8..15 */
} Vec;

/* Shapes of the fp32 multiply tile (lanes_tile.inc), rows x vectors: at most 6 x 1 accumulators (12 registers), 1
 * vector of weights (2) and 1 broadcast of 16 registers; FEW_*: with b straight from memory. */
enum { TILE_ROWS = 6, TILE_VECS = 1, FEW_ROWS = 4, FEW_VECS = 2 };
#define TILE_SHAPES(X, ...)                                                                                            \
    X(1, 1, __VA_ARGS__)                                                                                               \
    X(2, 1, __VA_ARGS__) X(3, 1, __VA_ARGS__) X(4, 1, __VA_ARGS__) X(5, 1, __VA_ARGS__) X(6, 1, __VA_ARGS__)
#define FEW_SHAPES(X, ...)                                                                                             \
    X(1, 1, __VA_ARGS__)                                                                                               \
    X(2, 1, __VA_ARGS__) X(3, 1, __VA_ARGS__) X(4, 1, __VA_ARGS__) X(1, 2, __VA_ARGS__) X(2, 2, __VA_ARGS__)

/* All ones in the first n of 8 lanes (n may be below 0 or above 8). */
LANES_INLINE __m256i first_of_8(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LANES_INLINE Vec v_pair(__m256 lo, __m256 hi) { return (Vec){lo, hi}; }
LANES_INLINE Vec v_zero(void) { return v_pair(_mm256_setzero_ps(), _mm256_setzero_ps()); }
LANES_INLINE Vec v_set1(float x) { return v_pair(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
LANES_INLINE Vec v_load(const float *p) { return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
LANES_INLINE void v_store(float *p, Vec a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
/* The first n lanes (all when n >= 16; the rest are zero, or not written). */
LANES_INLINE Vec v_load_n(const float *p, int64_t n) {
    if (n >= 16) return v_load(p);
    return v_pair(_mm256_maskload_ps(p, first_of_8(n)), _mm256_maskload_ps(p + 8, first_of_8(n - 8)));
}
LANES_INLINE void v_store_n(float *p, Vec a, int64_t n) {
    if (n >= 16) {
        v_store(p, a);
        return;
    }
    _mm256_maskstore_ps(p, first_of_8(n), a.lo);
    _mm256_maskstore_ps(p + 8, first_of_8(n - 8), a.hi);
}

LANES_INLINE Vec v_add(Vec a, Vec b) { return v_pair(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_sub(Vec a, Vec b) { return v_pair(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_mul(Vec a, Vec b) { return v_pair(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_div(Vec a, Vec b) { return v_pair(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_fma(Vec a, Vec b, Vec c) {
    return v_pair(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
LANES_INLINE Vec v_max(Vec a, Vec b) { return v_pair(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_min(Vec a, Vec b) { return v_pair(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)); }
LANES_INLINE Vec v_rint(Vec a) {
    return v_pair(_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANES_INLINE Vec v_negate(Vec a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return v_pair(_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign));
}

/* a * 2^n for integral n, by adding to the exponent field. */
LANES_INLINE __m256 add_exponent_8(__m256 a, __m256 n) {
    __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shifted));
}
LANES_INLINE Vec v_add_exponent(Vec a, Vec n) { return v_pair(add_exponent_8(a.lo, n.lo), add_exponent_8(a.hi, n.hi)); }
/* a, or zero where x < limit. */
LANES_INLINE Vec v_zero_below(Vec a, Vec x, Vec limit) {
    return v_pair(_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_NLT_UQ)),
                  _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_NLT_UQ)));
}
/* The first n lanes of a, then lanes of b. */
LANES_INLINE Vec v_first(Vec a, int64_t n, Vec b) {
    return v_pair(_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(first_of_8(n))),
                  _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(first_of_8(n - 8))));
}
/* Bit i: a[i] > b[i], false for NaN; bit i: a[i] is NaN. */
LANES_INLINE unsigned mask_bits(__m256 lo, __m256 hi) {
    return (unsigned)_mm256_movemask_ps(lo) | (unsigned)_mm256_movemask_ps(hi) << 8;
}
LANES_INLINE unsigned v_greater(Vec a, Vec b) {
    return mask_bits(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
}
LANES_INLINE unsigned v_is_nan(Vec a) {
    return mask_bits(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q));
}

/* Lane l += lane l + 8, then + 4, + 2, + 1. */
LANES_INLINE float v_join(Vec a) {
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
LANES_INLINE float v_join_max(Vec a) {
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

/* ---- other number formats ---- */
LANES_INLINE Vec v_load_f16(const uint8_t *p) {
    return v_pair(_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 16))));
}
LANES_INLINE void v_store_f16(uint8_t *p, Vec a) {
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((void *)(p + 16), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANES_INLINE __m256 load_bf16_8(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
LANES_INLINE Vec v_load_bf16(const uint8_t *p) { return v_pair(load_bf16_8(p), load_bf16_8(p + 16)); }
/* Round to nearest even; a NaN keeps its upper bits and becomes quiet. The result is in the low half of each lane. */
LANES_INLINE __m256i round_bf16_8(__m256 a) {
    __m256i u = _mm256_castps_si256(a), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
LANES_INLINE void v_store_bf16(uint8_t *p, Vec a) {
    __m256i packed = _mm256_packus_epi32(round_bf16_8(a.lo), round_bf16_8(a.hi));
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(packed, 0xd8)); /* packing went by halves */
}

/* ---- quantising 32 values to int8 ---- */
/* The bits of the largest |x| of both: as integers they order like the magnitudes, with infinity and NaN on top. */
LANES_INLINE uint32_t v_max_abs_bits(Vec a, Vec b) {
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i x = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a.lo), magnitude),
                                 _mm256_and_si256(_mm256_castps_si256(a.hi), magnitude));
    __m256i y = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(b.lo), magnitude),
                                 _mm256_and_si256(_mm256_castps_si256(b.hi), magnitude));
    x = _mm256_max_epi32(x, y);
    __m128i z = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    z = _mm_max_epi32(z, _mm_shuffle_epi32(z, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(z, _mm_shuffle_epi32(z, 0xb1)));
}
/* rint of two vectors: 32 codes, each within int8. */
typedef struct Codes {
    __m256i v[4];
} Codes;
LANES_INLINE Codes v_round_codes(Vec a, Vec b) {
    return (Codes){
        {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi), _mm256_cvtps_epi32(b.lo), _mm256_cvtps_epi32(b.hi)}};
}
LANES_INLINE void v_store_bytes(int8_t *p, const Codes *c) {
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c->v[0], c->v[1]), _mm256_packs_epi32(c->v[2], c->v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* undo the halves */
    _mm256_storeu_si256((void *)p, bytes);
}
LANES_INLINE int32_t v_sum_16(__m256i a, __m256i b) {
    __m256i s = _mm256_add_epi32(a, b);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
LANES_INLINE void v_sum_codes(const Codes *c, int32_t sum[2]) {
    sum[0] = v_sum_16(c->v[0], c->v[1]);
    sum[1] = v_sum_16(c->v[2], c->v[3]);
}
/* Stores them; sum: of the codes of each. */
LANES_INLINE void v_store_codes(int8_t *p, Vec a, Vec b, int32_t sum[2]) {
    Codes c = v_round_codes(a, b);
    v_store_bytes(p, &c);
    v_sum_codes(&c, sum);
}
/* The same as two planes of 32: code = 128 * high + low. */
LANES_INLINE void v_store_planes(int8_t *p, Vec a, Vec b, int32_t sum[2]) {
    Codes c = v_round_codes(a, b), high, low;
    for (int i = 0; i < 4; i++) {
        high.v[i] = _mm256_srai_epi32(_mm256_add_epi32(c.v[i], _mm256_set1_epi32(64)), 7);
        low.v[i] = _mm256_sub_epi32(c.v[i], _mm256_slli_epi32(high.v[i], 7));
    }
    v_store_bytes(p, &high);
    v_store_bytes(p + 32, &low);
    v_sum_codes(&c, sum);
}

/* ---- pairs of lanes (2i, 2i + 1) ---- */
LANES_INLINE Vec v_even_twice(Vec a) { return v_pair(_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)); }
LANES_INLINE Vec v_odd_twice(Vec a) { return v_pair(_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)); }
LANES_INLINE Vec v_swap_pairs(Vec a) { return v_pair(_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)); }
LANES_INLINE Vec v_fma_sub_add(Vec a, Vec b, Vec c) { /* even lanes - c, odd + c */
    return v_pair(_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi));
}
/* The even and the odd elements of 16; then of the 32 of (a, b). */
LANES_INLINE __m256 quarters_in_order(__m256 a) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
}
LANES_INLINE void v_split_pairs(Vec a, Vec b, Vec *even, Vec *odd) {
    *even = v_pair(quarters_in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88)),
                   quarters_in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88)));
    *odd = v_pair(quarters_in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xdd)),
                  quarters_in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xdd)));
}
