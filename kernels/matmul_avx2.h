/* The two halves of AVX2's integer matmul: by bytes (avx2_matmul.c) and by 16-bit words (avx2_words.c).
 *
 * A panel has two sides of 8 columns: rows of 64 bytes in its layout are 32 bytes for each side. */
#pragma once

#include "kernels/lanes_avx2.h"

#include "kernels/lanes_epilogue.inc"
#include "kernels/panel.h"

enum { GROUP = ACT_GROUP, WORDS = GROUP / 4, SIDE = PANEL / 2 };

/* How far ahead of use weights are asked for, in bytes. With one row of 8 bits, of a plain read: 4096 0.75-0.88, 6144
 * 0.81-0.94, 8192 0.83-0.97 over Q4_0, Q4_K, Q5_0, Q6_K, Q8_0; other pairs are bound by computing (Zen 5). */
enum { AHEAD = 8192 };

/* Types whose codes are below 64, so that products with bytes go through bytes; and the others. */
#define NARROW_TYPES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)
#define WIDE_TYPES(X)   X(Q8_0) X(IQ4_NL) X(IQ4_XS)

typedef struct Job {
    const PackedWeights *w;
    size_t stride; /* bytes of a panel */
    float *y;
    int64_t ldy;
    const Epilogue *ep;
} Job;

/* Panels [panel0, panel1) times one block of rows. */
typedef void BlockFn(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1);

/* By words, with one or two planes. */
#define WORDS_1(TYPE)         avx2_words_##TYPE##_1
#define WORDS_2(TYPE)         avx2_words_##TYPE##_2
#define DECLARE_WORDS_1(TYPE) BlockFn WORDS_1(TYPE);
#define DECLARE_WORDS_2(TYPE) BlockFn WORDS_2(TYPE);
WIDE_TYPES(DECLARE_WORDS_1)
PANEL_TYPES(DECLARE_WORDS_2)

LANES_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256(p); }
LANES_INLINE __m256 load_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

LANES_INLINE void prefetch_group(const PanelFormat f, const uint8_t *group) {
#pragma GCC unroll 9
    for (int i = 0; i < group_bytes(f); i += 64) _mm_prefetch((const char *)group + AHEAD + i, _MM_HINT_T0);
}

/* Keeps a value in its register at this point: gcc 12 would otherwise load weights again for every row, turn a chain of
 * integer sums into a tree, and spill most of it. */
#define PIN(X) __asm__ volatile("" : "+x"(X))

/* Four activation codes (or two 16-bit ones) to every lane. */
LANES_INLINE __m256i broadcast_codes(const void *p) { return _mm256_castps_si256(_mm256_broadcast_ss(p)); }

/* ---- codes ---- */

/* Bits [from, from + width) of every byte, moved to start at bit `to`. All constants. */
LANES_INLINE __m256i move_bits(__m256i x, const int from, const int to, const int width) {
    if (to > from) x = _mm256_slli_epi16(x, to - from);
    if (to < from) x = _mm256_srli_epi16(x, from - to);
    return _mm256_and_si256(x, _mm256_set1_epi8((char)(((1 << width) - 1) << to)));
}

/* Vector v: the codes of k = 4v .. 4v+3 of the 8 columns of a side, as they are multiplied. */
LANES_INLINE void load_codes(const PanelFormat f, const uint8_t *group, const int side, __m256i w[WORDS]) {
    const uint8_t *p = group + 4 * SIDE * side;
    int done = 0; /* bits */
    if (f.bits == 8)
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = load_256(p + 64 * v);
    if (has_nibbles(f)) {
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = move_bits(load_256(p + 64 * (v / 2)), 4 * (v % 2), 0, 4);
        p += NIBBLE_BYTES;
        done = 4;
    }
    if (has_pairs(f)) {
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) {
            __m256i two = move_bits(load_256(p + 64 * (v / 4)), 2 * (v % 4), done, 2);
            w[v] = done ? _mm256_or_si256(w[v], two) : two;
        }
        p += PAIR_BYTES;
        done += 2;
    }
    if (has_single_bits(f)) {
        __m256i bits = load_256(p);
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = _mm256_or_si256(w[v], move_bits(bits, v, done, 1));
    }
    if (f.codebook) {
        __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)iq4_unsigned));
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = _mm256_shuffle_epi8(table, w[v]);
    }
}

/* ---- scales ---- */

/* The fp16 scales of a super-block, of one side; dmin with its sign changed. */
typedef struct Header {
    __m256 d, dmin;
} Header;

LANES_INLINE Header load_header(const PanelFormat f, const uint8_t *p, const int side) {
    const __m256 zero = _mm256_setzero_ps();
    if (!f.super) return (Header){zero, zero};
    p += 2 * SIDE * side;
    return (Header){load_halves(p),
                    f.has_min ? _mm256_xor_ps(load_halves(p + 2 * PANEL), _mm256_set1_ps(-0.0f)) : zero};
}

/* d_w and min_w of one side of a group, for each half along k that has its own. */
typedef struct GroupScales {
    __m256 scale[2], min[2];
} GroupScales;

LANES_INLINE __m256 widen_bytes(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

/* The group's scales start at p. */
LANES_INLINE GroupScales load_scales(const PanelFormat f, const Header *h, const uint8_t *p, const int side) {
    const __m256 zero = _mm256_setzero_ps();
    GroupScales s = {{zero, zero}, {zero, zero}};
    if (!f.super) {
        s.scale[0] = load_halves(p + 2 * SIDE * side);
        if (f.has_min) s.min[0] = load_halves(p + 2 * PANEL + 2 * SIDE * side);
        return s;
    }
    p += SIDE * side;
#pragma GCC unroll 2
    for (int i = 0; i < f.halves; i++) {
        __m128i bytes = _mm_loadl_epi64((const void *)(p + PANEL * i)), low = bytes, high = bytes;
        if (f.nibbles) {
            low = _mm_and_si128(bytes, _mm_set1_epi8(15));
            high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
        } else if (f.has_min) high = _mm_loadl_epi64((const void *)(p + PANEL * (f.halves + i)));
        s.scale[i] = _mm256_mul_ps(h->d, widen_bytes(low));
        if (f.has_min) s.min[i] = _mm256_mul_ps(h->dmin, widen_bytes(high));
    }
    return s;
}

/* ---- what a group adds to entry i of the block ---- */

/* The sum of the activation codes of half h, or of all where there are no halves. */
LANES_INLINE int32_t half_sum(const PanelFormat f, const ActBlock *b, int64_t i, const int h) {
    if (f.halves == 1) return b->sum[i];
    return h == 0 ? b->half_sum[i] : b->sum[i] - b->half_sum[i];
}

/* The dot product of half h from that of the unsigned codes. */
LANES_INLINE __m256 signed_dot(const PanelFormat f, const ActBlock *b, int64_t i, const int h, __m256i dot) {
    if (f.zero) dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(f.zero * half_sum(f, b, i, h)));
    return _mm256_cvtepi32_ps(dot);
}

/* acc with the group, from the dot products of its halves. */
LANES_INLINE __m256 add_group(const PanelFormat f, const GroupScales *s, const ActBlock *b, int64_t i,
                              const __m256 dot[2], __m256 acc) {
    const __m256 d = _mm256_broadcast_ss(b->scale + i);
    if (f.halves == 1) {
        acc = _mm256_fmadd_ps(dot[0], _mm256_mul_ps(s->scale[0], d), acc);
        if (f.has_min) acc = _mm256_fmadd_ps(s->min[0], _mm256_set1_ps(b->scale[i] * (float)b->sum[i]), acc);
        return acc;
    }
    __m256 t = _mm256_fmadd_ps(dot[1], s->scale[1], _mm256_mul_ps(dot[0], s->scale[0]));
    if (f.has_min)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) t = _mm256_fmadd_ps(s->min[h], _mm256_set1_ps((float)half_sum(f, b, i, h)), t);
    return _mm256_fmadd_ps(t, d, acc);
}
