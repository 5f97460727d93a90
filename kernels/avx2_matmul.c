/* The integer matmul for AVX2: weights with codes below 64 by 8-bit activations here, the other pairs in avx2_words.c.
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs into int16 with saturation, which is not reached:
 * products of 4-bit codes are at most 15 * 127, and 16 of them 30,480, so that a whole group of 32 is added up in int16
 * lanes (two products from each of 8 instructions) before one VPMADDWD by ones widens it; of 5-bit codes 8 products
 * (31,496), of 6-bit codes 4 (32,004), so that two chains of instructions are widened apart.
 *
 * With one row, a panel is streamed with the sums in registers; with more, the codes of one group of one side stay in 8
 * registers while all rows of the block pass by, and the sums live in an L1 tile. */
#include "kernels/matmul_avx2.h"

#include <string.h>

/* One group of one side of a panel. */
typedef struct SideGroup {
    __m256i codes[WORDS];
    GroupScales scales;
} SideGroup;

LANES_INLINE SideGroup load_group(const PanelFormat f, const Header *h, const uint8_t *group, const int side) {
    SideGroup w;
    load_codes(f, group, side, w.codes);
    w.scales = load_scales(f, h, group + code_bytes(f), side);
    return w;
}

LANES_INLINE __m256i multiply_bytes(const __m256i *w, const int8_t *a, const int v) {
    return _mm256_maddubs_epi16(w[v], broadcast_codes(a + 4 * v));
}

/* acc with the group's contribution to 8 columns: entry i of the block. */
LANES_INLINE __m256 add_entry(const PanelFormat f, const SideGroup *w, const ActBlock *b, int64_t i, __m256 acc) {
    const int8_t *a = b->codes + i * GROUP;
    const __m256i ones = _mm256_set1_epi16(1);
    const int n = WORDS / f.halves;
    __m256 dots[2];
#pragma GCC unroll 2
    for (int h = 0; h < f.halves; h++) {
        __m256i even = multiply_bytes(w->codes, a, h * n), odd = multiply_bytes(w->codes, a, h * n + 1), dot;
#pragma GCC unroll 3
        for (int v = h * n + 2; v < (h + 1) * n; v += 2) {
            even = _mm256_add_epi16(even, multiply_bytes(w->codes, a, v));
            odd = _mm256_add_epi16(odd, multiply_bytes(w->codes, a, v + 1));
            PIN(even);
            PIN(odd);
        }
        if (f.bits <= 4) dot = _mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
        else dot = _mm256_add_epi32(_mm256_madd_epi16(even, ones), _mm256_madd_epi16(odd, ones));
        dots[h] = signed_dot(f, b, i, h, dot);
    }
    return add_group(f, &w->scales, b, i, dots, acc);
}

/* One panel times a block of one row. */
LANES_INLINE Vec stream_panel(const PanelFormat f, const PackedWeights *w, const uint8_t *panel, const ActBlock *b) {
    Vec acc = v_zero();
    int64_t n_groups = w->k / GROUP;
    for (int64_t g = 0; g < n_groups;) {
        int64_t end = header_end(f, w->skip, g, n_groups);
        Header h0 = load_header(f, panel, 0), h1 = load_header(f, panel, 1);
        panel += header_bytes(f);
        for (; g < end; g++, panel += group_bytes(f)) {
            prefetch_group(f, panel);
            SideGroup lo = load_group(f, &h0, panel, 0);
            acc.lo = add_entry(f, &lo, b, g, acc.lo);
            SideGroup hi = load_group(f, &h1, panel, 1);
            acc.hi = add_entry(f, &hi, b, g, acc.hi);
        }
    }
    return acc;
}

/* The sums of a block for one panel, [side][row][8]. */
typedef struct SumTile {
    _Alignas(64) float acc[2][ACT_ROWS][SIDE];
} SumTile;

LANES_INLINE void block_panel(const PanelFormat f, const PackedWeights *w, const uint8_t *panel, const ActBlock *b,
                              SumTile *t) {
    int64_t n_groups = w->k / GROUP;
    memset(t->acc, 0, sizeof t->acc);
    for (int64_t g = 0; g < n_groups;) {
        int64_t end = header_end(f, w->skip, g, n_groups);
        Header header[2] = {load_header(f, panel, 0), load_header(f, panel, 1)};
        panel += header_bytes(f);
        for (; g < end; g++, panel += group_bytes(f)) {
            prefetch_group(f, panel);
#pragma GCC unroll 2
            for (int side = 0; side < 2; side++) {
                SideGroup group = load_group(f, &header[side], panel, side);
                for (int64_t r = 0; r < b->rows; r++) {
                    float *acc = t->acc[side][r];
                    _mm256_store_ps(acc, add_entry(f, &group, b, g * b->rows + r, _mm256_load_ps(acc)));
                }
            }
        }
    }
}

LANES_INLINE void block_panels(const PanelFormat f, const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {
    SumTile t;
    for (int64_t p = panel0; p < panel1; p++) {
        const uint8_t *panel = j->w->data + (size_t)p * j->stride;
        if (b->rows == 1) {
            finish(stream_panel(f, j->w, panel, b), b->row0, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
            continue;
        }
        block_panel(f, j->w, panel, b, &t);
        for (int64_t r = 0; r < b->rows; r++) {
            Vec acc = v_pair(_mm256_load_ps(t.acc[0][r]), _mm256_load_ps(t.acc[1][r]));
            finish(acc, b->row0 + r, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
        }
    }
}

#define BYTES_FN(TYPE)                                                                                                 \
    static void bytes_##TYPE(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                        \
        block_panels(panel_formats[QT_##TYPE], j, b, panel0, panel1);                                                  \
    }
NARROW_TYPES(BYTES_FN)

/* By weight type and planes - 1. */
#define NARROW_ENTRY(TYPE) [QT_##TYPE] = {bytes_##TYPE, WORDS_2(TYPE)},
#define WIDE_ENTRY(TYPE)   [QT_##TYPE] = {WORDS_1(TYPE), WORDS_2(TYPE)},
static BlockFn *const block_fn[QT_COUNT][2] = {NARROW_TYPES(NARROW_ENTRY) WIDE_TYPES(WIDE_ENTRY)};

void matmul_q_avx2(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                   int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    Job j = {.w = w, .stride = panel_stride(w), .y = y, .ldy = ldy, .ep = ep};
    for (int64_t i = block0; i < block1; i++) {
        ActBlock b = act_block(a, i);
        block_fn[w->type][a->planes - 1](&j, &b, panel0, panel1);
    }
}
