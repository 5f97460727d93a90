/* The integer matmul for AVX2. VPMADDUBSW multiplies unsigned by signed bytes and adds pairs into int16 with saturation;
 * both uses here stay below it, so the sums are exact:
 *   4-bit codes: 16 products of at most 15 * 127 are 30,480: a whole group of 32 is added up in int16 lanes (two products
 *     from each of 8 instructions) before one VPMADDWD by ones widens it.
 *   8-bit codes: |w| as the unsigned operand (128 for -128) and the activation with the sign of w as the signed one (never
 *     -128): 2 * 128 * 127 = 32,512. Each pair is widened at once.
 *
 * A panel is two halves of 8 columns: byte rows of 64 in its layout are 32 bytes for each half. With one row, a panel is
 * streamed with the sums in registers; with more, the codes of one group of one half stay in 8 registers while all rows of
 * the block pass by, and the sums live in an L1 tile. */
#include "kernels/lanes_avx2.h"

#include "kernels/lanes_epilogue.inc"

#include <string.h>

enum { GROUP = ACT_GROUP, Q4_CODES = GROUP / 2 * PANEL, Q8_CODES = GROUP * PANEL, HALF = PANEL / 2, AHEAD = 6144 };

/* What a weight type means for these loops; a constant wherever it is used. */
typedef struct Format {
    int codes; /* bytes of codes in a group of a panel */
    int bytes; /* and with the scales */
    int zero_point;
    bool has_min;
} Format;

static const Format q4_0 = {Q4_CODES, Q4_CODES + 32, 8, false};
static const Format q4_1 = {Q4_CODES, Q4_CODES + 64, 0, true};
static const Format q8_0 = {Q8_CODES, Q8_CODES + 32, 0, false}; /* taken as signed: no zero point */

/* One group of one half of a panel. */
typedef struct HalfGroup {
    __m256i codes[8]; /* vector j: the codes k = 4j .. 4j+3 of 8 columns: 4-bit, or |w| */
    __m256i *signs;   /* 8-bit: the signed codes, in memory, for want of registers */
    __m256 scale, min;
} HalfGroup;

LANES_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256(p); }
LANES_INLINE __m256 load_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

LANES_INLINE HalfGroup load_half_group(const Format f, const uint8_t *group, const int half, __m256i signs[8]) {
    HalfGroup w = {.signs = signs};
    const uint8_t *codes = group + 32 * half, *scales = group + f.codes + 16 * half;
    if (f.codes == Q8_CODES) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            signs[j] = _mm256_xor_si256(load_256(codes + 64 * j), _mm256_set1_epi8(-128));
            w.codes[j] = _mm256_abs_epi8(signs[j]);
        }
    } else {
        const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i both = load_256(codes + 64 * j);
            w.codes[2 * j] = _mm256_and_si256(both, low);
            w.codes[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        }
    }
    w.scale = load_halves(scales);
    w.min = f.has_min ? load_halves(scales + 32) : _mm256_setzero_ps();
    return w;
}

LANES_INLINE __m256i broadcast_codes(const int8_t *p) {
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)p));
}

/* Dot products of 8 columns with one plane of one row's 32 codes, times `weight`: 1, or 128 for a high plane, which
 * VPMADDWD takes as its factors. */
LANES_INLINE __m256i dot_plane(const Format f, const HalfGroup *w, const int8_t *a, const int16_t weight) {
    const __m256i ones = _mm256_set1_epi16(weight);
    if (f.codes == Q8_CODES) {
        __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m256i x = _mm256_sign_epi8(broadcast_codes(a + 4 * j), w->signs[j]);
            dot = _mm256_add_epi32(dot, _mm256_madd_epi16(_mm256_maddubs_epi16(w->codes[j], x), ones));
        }
        return dot;
    }
    __m256i even = _mm256_maddubs_epi16(w->codes[0], broadcast_codes(a));
    __m256i odd = _mm256_maddubs_epi16(w->codes[1], broadcast_codes(a + 4));
#pragma GCC unroll 3
    for (int j = 2; j < 8; j += 2) {
        even = _mm256_add_epi16(even, _mm256_maddubs_epi16(w->codes[j], broadcast_codes(a + 4 * j)));
        odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(w->codes[j + 1], broadcast_codes(a + 4 * j + 4)));
    }
    return _mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
}

/* The planes' dot products joined, zero point taken off. */
LANES_INLINE __m256i dot_group(const Format f, const int planes, const HalfGroup *w, const int8_t *a, int32_t sum) {
    __m256i dot = dot_plane(f, w, a, planes == 2 ? 1 << HIGH_SHIFT : 1);
    if (planes == 2) dot = _mm256_add_epi32(dot, dot_plane(f, w, a + GROUP, 1));
    return f.zero_point ? _mm256_sub_epi32(dot, _mm256_set1_epi32(f.zero_point * sum)) : dot;
}

/* acc with the group's contribution: entry i of the block. */
LANES_INLINE __m256 add_group(const Format f, const int planes, const HalfGroup *w, const ActBlock *b, int64_t i,
                              __m256 acc) {
    __m256 dot = _mm256_cvtepi32_ps(dot_group(f, planes, w, b->codes + i * planes * GROUP, b->sum[i]));
    acc = _mm256_fmadd_ps(dot, _mm256_mul_ps(w->scale, _mm256_broadcast_ss(b->scale + i)), acc);
    if (f.has_min) acc = _mm256_fmadd_ps(w->min, _mm256_broadcast_ss(b->scaled_sum + i), acc);
    return acc;
}

LANES_INLINE void prefetch_group(const Format f, const uint8_t *group) {
#pragma GCC unroll 9
    for (int i = 0; i < f.bytes; i += 64) _mm_prefetch((const char *)group + AHEAD + i, _MM_HINT_T0);
}

/* One panel times a block of one row. */
LANES_INLINE Vec stream_panel(const Format f, const int planes, const uint8_t *panel, int64_t n_groups, const ActBlock *b) {
    Vec acc = v_zero();
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        __m256i signs[8];
        prefetch_group(f, panel);
        HalfGroup lo = load_half_group(f, panel, 0, signs);
        acc.lo = add_group(f, planes, &lo, b, g, acc.lo);
        HalfGroup hi = load_half_group(f, panel, 1, signs);
        acc.hi = add_group(f, planes, &hi, b, g, acc.hi);
    }
    return acc;
}

/* The sums of a block for one panel, [half][row][8]. */
typedef struct SumTile {
    _Alignas(64) float acc[2][ACT_ROWS][HALF];
} SumTile;

LANES_INLINE void block_panel(const Format f, const int planes, const uint8_t *panel, int64_t n_groups,
                              const ActBlock *b, SumTile *t) {
    memset(t->acc, 0, sizeof t->acc);
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        prefetch_group(f, panel);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i signs[8];
            HalfGroup w = load_half_group(f, panel, half, signs);
            for (int64_t r = 0; r < b->rows; r++) {
                float *acc = t->acc[half][r];
                _mm256_store_ps(acc, add_group(f, planes, &w, b, g * b->rows + r, _mm256_load_ps(acc)));
            }
        }
    }
}

/* ---- one function per weight type ----------------------------------------------------------------------------------*/

typedef struct Job {
    const PackedWeights *w;
    int64_t n_groups;
    size_t stride; /* bytes of a panel */
    float *y;
    int64_t ldy;
    const Epilogue *ep;
} Job;

LANES_INLINE void block_panels(const Format f, const int planes, const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {
    SumTile t;
    for (int64_t p = panel0; p < panel1; p++) {
        const uint8_t *panel = j->w->data + (size_t)p * j->stride;
        if (b->rows == 1) {
            finish(stream_panel(f, planes, panel, j->n_groups, b), b->row0, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
            continue;
        }
        block_panel(f, planes, panel, j->n_groups, b, &t);
        for (int64_t r = 0; r < b->rows; r++) {
            Vec acc = v_pair(_mm256_load_ps(t.acc[0][r]), _mm256_load_ps(t.acc[1][r]));
            finish(acc, b->row0 + r, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
        }
    }
}

#define FORMAT_FN(F, PLANES)                                                                                           \
    static void F##_##PLANES(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                        \
        block_panels(F, PLANES, j, b, panel0, panel1);                                                                 \
    }
FORMAT_FN(q4_0, 1)
FORMAT_FN(q4_1, 1)
FORMAT_FN(q8_0, 1)
FORMAT_FN(q4_0, 2)
FORMAT_FN(q4_1, 2)
FORMAT_FN(q8_0, 2)

typedef void BlockFn(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1);

/* By weight type and planes - 1. */
static BlockFn *const block_fn[QT_COUNT][2] = {
    [QT_Q4_0] = {q4_0_1, q4_0_2}, [QT_Q4_1] = {q4_1_1, q4_1_2}, [QT_Q8_0] = {q8_0_1, q8_0_2}};

void matmul_q_avx2(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                   int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    Job j = {.w = w, .n_groups = w->k / GROUP, .stride = panel_stride(w), .y = y, .ldy = ldy, .ep = ep};
    for (int64_t i = block0; i < block1; i++) {
        ActBlock b = act_block(a, i);
        block_fn[w->type][a->planes - 1](&j, &b, panel0, panel1);
    }
}
