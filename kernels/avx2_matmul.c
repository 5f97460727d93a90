/* The integer matmul for AVX2: 4-bit weights by 8-bit activations here, the other pairs in avx2_words.c.
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs into int16 with saturation, which is not reached: 16
 * products of at most 15 * 127 are 30,480, so that a whole group of 32 is added up in int16 lanes (two products from
 * each of 8 instructions) before one VPMADDWD by ones widens it.
 *
 * A panel is two halves of 8 columns: byte rows of 64 in its layout are 32 bytes for each half. With one row, a panel
 * is streamed with the sums in registers; with more, the codes of one group of one half stay in 8 registers while all
 * rows of the block pass by, and the sums live in an L1 tile. */
#include "kernels/matmul_avx2.h"

#include <string.h>

/* One group of one half of a panel. */
typedef struct HalfGroup {
    __m256i codes[8]; /* vector j: the codes k = 4j .. 4j+3 of 8 columns */
    HalfScales scales;
} HalfGroup;

LANES_INLINE HalfGroup load_half_group(const Format f, const uint8_t *group, const int half) {
    const __m256i low = _mm256_set1_epi8(15);
    HalfGroup w;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i both = load_256(group + 32 * half + 64 * j);
        w.codes[2 * j] = _mm256_and_si256(both, low);
        w.codes[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
    w.scales = load_scales(f, group, half);
    return w;
}

/* acc with the group's contribution to 8 columns: entry i of the block. */
LANES_INLINE __m256 add_group(const Format f, const HalfGroup *w, const ActBlock *b, int64_t i, __m256 acc) {
    const int8_t *a = b->codes + i * GROUP;
    __m256i even = _mm256_maddubs_epi16(w->codes[0], broadcast_codes(a));
    __m256i odd = _mm256_maddubs_epi16(w->codes[1], broadcast_codes(a + 4));
#pragma GCC unroll 3
    for (int j = 2; j < 8; j += 2) {
        even = _mm256_add_epi16(even, _mm256_maddubs_epi16(w->codes[j], broadcast_codes(a + 4 * j)));
        odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(w->codes[j + 1], broadcast_codes(a + 4 * j + 4)));
        PIN(even);
        PIN(odd);
    }
    __m256i dot = _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
    return add_dot(f, &w->scales, b, i, dot, acc);
}

/* One panel times a block of one row. */
LANES_INLINE Vec stream_panel(const Format f, const uint8_t *panel, int64_t n_groups, const ActBlock *b) {
    Vec acc = v_zero();
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        prefetch_group(f, panel);
        HalfGroup lo = load_half_group(f, panel, 0);
        acc.lo = add_group(f, &lo, b, g, acc.lo);
        HalfGroup hi = load_half_group(f, panel, 1);
        acc.hi = add_group(f, &hi, b, g, acc.hi);
    }
    return acc;
}

/* The sums of a block for one panel, [half][row][8]. */
typedef struct SumTile {
    _Alignas(64) float acc[2][ACT_ROWS][HALF];
} SumTile;

LANES_INLINE void block_panel(const Format f, const uint8_t *panel, int64_t n_groups, const ActBlock *b, SumTile *t) {
    memset(t->acc, 0, sizeof t->acc);
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        prefetch_group(f, panel);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            HalfGroup w = load_half_group(f, panel, half);
            for (int64_t r = 0; r < b->rows; r++) {
                float *acc = t->acc[half][r];
                _mm256_store_ps(acc, add_group(f, &w, b, g * b->rows + r, _mm256_load_ps(acc)));
            }
        }
    }
}

LANES_INLINE void block_panels(const Format f, const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {
    SumTile t;
    for (int64_t p = panel0; p < panel1; p++) {
        const uint8_t *panel = j->w->data + (size_t)p * j->stride;
        if (b->rows == 1) {
            finish(stream_panel(f, panel, j->n_groups, b), b->row0, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
            continue;
        }
        block_panel(f, panel, j->n_groups, b, &t);
        for (int64_t r = 0; r < b->rows; r++) {
            Vec acc = v_pair(_mm256_load_ps(t.acc[0][r]), _mm256_load_ps(t.acc[1][r]));
            finish(acc, b->row0 + r, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
        }
    }
}

static void bytes_q4_0(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {
    block_panels(q4_0, j, b, panel0, panel1);
}
static void bytes_q4_1(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {
    block_panels(q4_1, j, b, panel0, panel1);
}

/* By weight type and planes - 1. */
static BlockFn *const block_fn[QT_COUNT][2] = {[QT_Q4_0] = {bytes_q4_0, avx2_words_q4_0_2},
                                               [QT_Q4_1] = {bytes_q4_1, avx2_words_q4_1_2},
                                               [QT_Q8_0] = {avx2_words_q8_0_1, avx2_words_q8_0_2}};

void matmul_q_avx2(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                   int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    Job j = {.w = w, .n_groups = w->k / GROUP, .stride = panel_stride(w), .y = y, .ldy = ldy, .ep = ep};
    for (int64_t i = block0; i < block1; i++) {
        ActBlock b = act_block(a, i);
        block_fn[w->type][a->planes - 1](&j, &b, panel0, panel1);
    }
}
