/* The 16 virtual lanes of kernels.h as one AVX-512 register. Same names and meanings as in lanes_avx2.h, so that the
 * code in lanes_*.inc is written once. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef __m512 Vec; /* lane i is element i */

/* Shapes of the fp32 multiply tile (lanes_tile.inc), rows x vectors: at most 12 x 2 accumulators, 2 weights and 1
 * broadcast of 32 registers; FEW_*: with b straight from memory. */
enum { TILE_ROWS = 12, TILE_VECS = 2, FEW_ROWS = 4, FEW_VECS = 4 };
#define ROWS_1_TO_4(X, V, ...)  X(1, V, __VA_ARGS__) X(2, V, __VA_ARGS__) X(3, V, __VA_ARGS__) X(4, V, __VA_ARGS__)
#define ROWS_5_TO_8(X, V, ...)  X(5, V, __VA_ARGS__) X(6, V, __VA_ARGS__) X(7, V, __VA_ARGS__) X(8, V, __VA_ARGS__)
#define ROWS_9_TO_12(X, V, ...) X(9, V, __VA_ARGS__) X(10, V, __VA_ARGS__) X(11, V, __VA_ARGS__) X(12, V, __VA_ARGS__)
#define ROWS_1_TO_12(X, V, ...)                                                                                        \
    ROWS_1_TO_4(X, V, __VA_ARGS__) ROWS_5_TO_8(X, V, __VA_ARGS__) ROWS_9_TO_12(X, V, __VA_ARGS__)
#define TILE_SHAPES(X, ...) ROWS_1_TO_12(X, 1, __VA_ARGS__) ROWS_1_TO_12(X, 2, __VA_ARGS__)
#define FEW_SHAPES(X, ...)  ROWS_1_TO_4(X, 1, __VA_ARGS__) ROWS_1_TO_4(X, 2, __VA_ARGS__) ROWS_1_TO_4(X, 4, __VA_ARGS__)

LANES_INLINE __mmask16 first_lanes(int64_t n) { return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u); }

LANES_INLINE Vec v_zero(void) { return _mm512_setzero_ps(); }
LANES_INLINE Vec v_set1(float x) { return _mm512_set1_ps(x); }
LANES_INLINE Vec v_load(const float *p) { return _mm512_loadu_ps(p); }
LANES_INLINE void v_store(float *p, Vec a) { _mm512_storeu_ps(p, a); }
/* The first n lanes (all when n >= 16; the rest are zero, or not written). */
LANES_INLINE Vec v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
LANES_INLINE void v_store_n(float *p, Vec a, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }

LANES_INLINE Vec v_add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
LANES_INLINE Vec v_sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
LANES_INLINE Vec v_mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
LANES_INLINE Vec v_div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
LANES_INLINE Vec v_fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
LANES_INLINE Vec v_max(Vec a, Vec b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
LANES_INLINE Vec v_min(Vec a, Vec b) { return _mm512_min_ps(a, b); } /* a < b ? a : b */
LANES_INLINE Vec v_rint(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LANES_INLINE Vec v_negate(Vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

/* a * 2^n for integral n, by adding to the exponent field. */
LANES_INLINE Vec v_add_exponent(Vec a, Vec n) {
    __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), shifted));
}
/* a, or zero where x < limit. */
LANES_INLINE Vec v_zero_below(Vec a, Vec x, Vec limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a);
}
/* The first n lanes of a, then lanes of b. */
LANES_INLINE Vec v_first(Vec a, int64_t n, Vec b) { return _mm512_mask_mov_ps(b, first_lanes(n), a); }
/* Bit i: a[i] > b[i], false for NaN; bit i: a[i] is NaN. */
LANES_INLINE unsigned v_greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
LANES_INLINE unsigned v_is_nan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

/* Lane l += lane l + 8, then + 4, + 2, + 1. */
LANES_INLINE float v_join(Vec a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
LANES_INLINE float v_join_max(Vec a) { return _mm512_reduce_max_ps(a); }

/* ---- other number formats ---- */
LANES_INLINE Vec v_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
LANES_INLINE void v_store_f16(uint8_t *p, Vec a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANES_INLINE Vec v_load_bf16(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* Round to nearest even; a NaN keeps its upper bits and becomes quiet. */
LANES_INLINE void v_store_bf16(uint8_t *p, Vec a) {
    __m512i u = _mm512_castps_si512(a), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(rounded));
}

/* ---- quantising 32 values to int8 ---- */
/* The bits of the largest |x| of both: as integers they order like the magnitudes, with infinity and NaN on top. */
LANES_INLINE uint32_t v_max_abs_bits(Vec a, Vec b) {
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i x = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
    __m512i y = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(x, y));
}
/* Stores rint of both as 32 codes (each within int8); sum: of the codes of each. */
LANES_INLINE void v_store_codes(int8_t *p, Vec a, Vec b, int32_t sum[2]) {
    __m512i x = _mm512_cvtps_epi32(a), y = _mm512_cvtps_epi32(b);
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(x));
    _mm_storeu_si128((void *)(p + 16), _mm512_cvtepi32_epi8(y));
    sum[0] = _mm512_reduce_add_epi32(x);
    sum[1] = _mm512_reduce_add_epi32(y);
}
/* The same as two planes of 32: code = 128 * high + low. */
LANES_INLINE void v_store_planes(int8_t *p, Vec a, Vec b, int32_t sum[2]) {
    const __m512i half = _mm512_set1_epi32(64);
    __m512i x = _mm512_cvtps_epi32(a), y = _mm512_cvtps_epi32(b);
    __m512i xh = _mm512_srai_epi32(_mm512_add_epi32(x, half), 7), yh = _mm512_srai_epi32(_mm512_add_epi32(y, half), 7);
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(xh));
    _mm_storeu_si128((void *)(p + 16), _mm512_cvtepi32_epi8(yh));
    _mm_storeu_si128((void *)(p + 32), _mm512_cvtepi32_epi8(_mm512_sub_epi32(x, _mm512_slli_epi32(xh, 7))));
    _mm_storeu_si128((void *)(p + 48), _mm512_cvtepi32_epi8(_mm512_sub_epi32(y, _mm512_slli_epi32(yh, 7))));
    sum[0] = _mm512_reduce_add_epi32(x);
    sum[1] = _mm512_reduce_add_epi32(y);
}

/* ---- pairs of lanes (2i, 2i + 1) ---- */
LANES_INLINE Vec v_even_twice(Vec a) { return _mm512_moveldup_ps(a); } /* a0 a0 a2 a2 ... */
LANES_INLINE Vec v_odd_twice(Vec a) { return _mm512_movehdup_ps(a); }  /* a1 a1 a3 a3 ... */
LANES_INLINE Vec v_swap_pairs(Vec a) { return _mm512_permute_ps(a, 0xb1); }
LANES_INLINE Vec v_fma_sub_add(Vec a, Vec b, Vec c) { return _mm512_fmaddsub_ps(a, b, c); } /* even -, odd + */
/* The even and the odd elements of the 32 of (a, b). */
LANES_INLINE void v_split_pairs(Vec a, Vec b, Vec *even, Vec *odd) {
    __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
