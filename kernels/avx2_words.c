/* AVX2's integer matmul by 16-bit words: for weights with codes above 63, whose products with bytes do not fit
 * VPMADDUBSW, and for 16-bit activations, whose two planes are joined into one word here. VPMADDWD multiplies words and
 * adds pairs into int32: exact, as 32 products of at most 255 * 16,256 are below 2^31. Weights stay unsigned; the zero
 * point comes off by the sum of the activation codes.
 *
 * Four bytes of a lane, k = 4i .. 4i+3, become two words twice: the even ones (k, k+2) and the odd ones (k+1, k+3),
 * which takes a mask or a shift; activations are put into the same order, so that step 2i is even and step 2i + 1 odd.
 * With many rows, a group's words go through L1: those of 64 rows once for four panels, those of a panel once for all
 * rows; four rows share each load of weights. Beside going over each plane by bytes, on Zen 5 with 16-bit activations:
 * 8-bit weights 41 -> 88 GMAC/s; 4-bit weights 84 -> 89, and with one row 24 -> 30 GB/s. */
#include "kernels/matmul_avx2.h"

#include <string.h>

enum { STEPS = GROUP / 2, PASS_PANELS = 4, FEW = 4 };

/* ---- activations ---- */

LANES_INLINE __m256i even_signed(__m256i bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); }
LANES_INLINE __m256i odd_signed(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

/* The words of one entry: step s takes 4 bytes at words[s % 2][2 * (s / 2)]. */
typedef struct EntryWords {
    _Alignas(32) int16_t words[2][STEPS];
} EntryWords;

LANES_INLINE void widen_entry(const int planes, const int8_t *codes, EntryWords *out) {
    __m256i bytes = load_256(codes), even = even_signed(bytes), odd = odd_signed(bytes);
    if (planes == 2) {
        __m256i low = load_256(codes + GROUP);
        even = _mm256_add_epi16(_mm256_slli_epi16(even, HIGH_SHIFT), even_signed(low));
        odd = _mm256_add_epi16(_mm256_slli_epi16(odd, HIGH_SHIFT), odd_signed(low));
    }
    _mm256_store_si256((void *)out->words[0], even);
    _mm256_store_si256((void *)out->words[1], odd);
}

LANES_INLINE __m256i broadcast_step(const EntryWords *a, int step) {
    return broadcast_codes(&a->words[step % 2][step / 2 * 2]);
}

/* ---- weights ---- */

/* Words of steps 2v and 2v + 1 from the codes of vector v. */
LANES_INLINE __m256i even_words(__m256i codes) { return _mm256_and_si256(codes, _mm256_set1_epi16(0xff)); }
LANES_INLINE __m256i odd_words(__m256i codes) { return _mm256_srli_epi16(codes, 8); }

/* ---- one row ---- */

/* One group of one panel to entry i of the block. */
LANES_INLINE Vec add_entry(const PanelFormat f, const int planes, const uint8_t *group, const Header header[2],
                           const ActBlock *b, int64_t i, Vec acc) {
    const int n = WORDS / f.halves;
    __m256i lo[WORDS], hi[WORDS];
    __m256 dots[2][2]; /* [side][half] */
    EntryWords a;
    widen_entry(planes, b->codes + i * planes * GROUP, &a);
    load_codes(f, group, 0, lo);
    load_codes(f, group, 1, hi);
    GroupScales s0 = load_scales(f, &header[0], group + code_bytes(f), 0);
    GroupScales s1 = load_scales(f, &header[1], group + code_bytes(f), 1);
#pragma GCC unroll 2
    for (int h = 0; h < f.halves; h++) {
        __m256i dot0 = _mm256_setzero_si256(), dot1 = dot0;
#pragma GCC unroll 8
        for (int v = h * n; v < (h + 1) * n; v++) {
            __m256i even = broadcast_step(&a, 2 * v), odd = broadcast_step(&a, 2 * v + 1);
            dot0 = _mm256_add_epi32(dot0, _mm256_madd_epi16(even_words(lo[v]), even));
            dot1 = _mm256_add_epi32(dot1, _mm256_madd_epi16(even_words(hi[v]), even));
            PIN(dot0);
            PIN(dot1);
            dot0 = _mm256_add_epi32(dot0, _mm256_madd_epi16(odd_words(lo[v]), odd));
            dot1 = _mm256_add_epi32(dot1, _mm256_madd_epi16(odd_words(hi[v]), odd));
            PIN(dot0);
            PIN(dot1);
        }
        dots[0][h] = signed_dot(f, b, i, h, dot0);
        dots[1][h] = signed_dot(f, b, i, h, dot1);
    }
    return v_pair(add_group(f, &s0, b, i, dots[0], acc.lo), add_group(f, &s1, b, i, dots[1], acc.hi));
}

LANES_INLINE Vec stream_panel(const PanelFormat f, const int planes, const PackedWeights *w, const uint8_t *panel,
                              const ActBlock *b) {
    Vec acc = v_zero();
    int64_t n_groups = w->k / GROUP;
    for (int64_t g = 0; g < n_groups;) {
        int64_t end = header_end(f, w->skip, g, n_groups);
        Header header[2] = {load_header(f, panel, 0), load_header(f, panel, 1)};
        panel += header_bytes(f);
        for (; g < end; g++, panel += group_bytes(f)) {
            prefetch_group(f, panel);
            acc = add_entry(f, planes, panel, header, b, g, acc);
        }
    }
    return acc;
}

/* ---- many rows ---- */

/* What one pass over a block keeps in L1 (25 KB): sums, and the words of one group. */
typedef struct Pass {
    _Alignas(64) float acc[PASS_PANELS][ACT_ROWS][PANEL];
    _Alignas(64) __m256i weights[STEPS][2]; /* [step][side], 8 columns each */
    GroupScales scales[2];                  /* [side] */
    EntryWords entries[ACT_ROWS];
} Pass;

LANES_INLINE void widen_group(const PanelFormat f, const uint8_t *group, Pass *t, const Header header[2]) {
#pragma GCC unroll 2
    for (int side = 0; side < 2; side++) {
        __m256i w[WORDS];
        load_codes(f, group, side, w);
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) {
            _mm256_store_si256(&t->weights[2 * v][side], even_words(w[v]));
            _mm256_store_si256(&t->weights[2 * v + 1][side], odd_words(w[v]));
        }
        t->scales[side] = load_scales(f, &header[side], group + code_bytes(f), side);
    }
}

/* `rows` rows (a constant) from r of one panel's sums; entries of the group start at `first`. */
LANES_INLINE void add_rows(const PanelFormat f, const int rows, Pass *t, int panel, int64_t r, const ActBlock *b,
                           int64_t first) {
    const int n = STEPS / f.halves;
    __m256 dots[FEW][2][2]; /* [row][side][half] */
#pragma GCC unroll 2
    for (int h = 0; h < f.halves; h++) {
        __m256i dot[FEW][2];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (int step = h * n; step < (h + 1) * n; step++) {
            __m256i w0 = _mm256_load_si256(&t->weights[step][0]), w1 = _mm256_load_si256(&t->weights[step][1]);
            PIN(w0);
            PIN(w1);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                __m256i x = broadcast_step(&t->entries[r + i], step);
                dot[i][0] = _mm256_add_epi32(dot[i][0], _mm256_madd_epi16(w0, x));
                dot[i][1] = _mm256_add_epi32(dot[i][1], _mm256_madd_epi16(w1, x));
                PIN(dot[i][0]);
                PIN(dot[i][1]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int side = 0; side < 2; side++) dots[i][side][h] = signed_dot(f, b, first + r + i, h, dot[i][side]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int side = 0; side < 2; side++) {
            float *acc = t->acc[panel][r + i] + SIDE * side;
            _mm256_store_ps(acc, add_group(f, &t->scales[side], b, first + r + i, dots[i][side], _mm256_load_ps(acc)));
        }
}

/* Group g of one panel, at `group`, under the scales of `header`, for all rows. */
LANES_INLINE void pass_group(const PanelFormat f, const uint8_t *header, const uint8_t *group, int panel,
                             const ActBlock *b, int64_t first, Pass *t) {
    int64_t r = 0;
    Header h[2] = {load_header(f, header, 0), load_header(f, header, 1)};
    prefetch_group(f, group);
    widen_group(f, group, t, h);
    for (; r + FEW <= b->rows; r += FEW) add_rows(f, FEW, t, panel, r, b, first);
    for (; r + 2 <= b->rows; r += 2) add_rows(f, 2, t, panel, r, b, first);
    if (r < b->rows) add_rows(f, 1, t, panel, r, b, first);
}

LANES_INLINE void pass_panels(const PanelFormat f, const int planes, const Job *j, const ActBlock *b, int64_t panel0,
                              int panels, Pass *t) {
    const uint8_t *panel = j->w->data + (size_t)panel0 * j->stride;
    memset(t->acc, 0, (size_t)panels * sizeof t->acc[0]);
    for (int64_t g = 0; g < j->w->k / GROUP; g++) {
        size_t header = header_at(f, j->w->skip, g), group = group_at(f, j->w->skip, g);
        int64_t first = g * b->rows;
        for (int64_t r = 0; r < b->rows; r++)
            widen_entry(planes, b->codes + (first + r) * planes * GROUP, &t->entries[r]);
        for (int p = 0; p < panels; p++)
            pass_group(f, panel + (size_t)p * j->stride + header, panel + (size_t)p * j->stride + group, p, b, first,
                       t);
    }
}

LANES_INLINE void block_panels(const PanelFormat f, const int planes, const Job *j, const ActBlock *b, int64_t panel0,
                               int64_t panel1) {
    Pass t;
    if (b->rows == 1) {
        for (int64_t p = panel0; p < panel1; p++)
            finish(stream_panel(f, planes, j->w, j->w->data + (size_t)p * j->stride, b), b->row0, p * PANEL, j->w->n,
                   j->y, j->ldy, j->ep);
        return;
    }
    for (int64_t p0 = panel0; p0 < panel1; p0 += PASS_PANELS) {
        int panels = panel1 - p0 < PASS_PANELS ? (int)(panel1 - p0) : PASS_PANELS;
        pass_panels(f, planes, j, b, p0, panels, &t);
        for (int64_t r = 0; r < b->rows; r++)
            for (int p = 0; p < panels; p++)
                finish(v_load(t.acc[p][r]), b->row0 + r, (p0 + p) * PANEL, j->w->n, j->y, j->ldy, j->ep);
    }
}

#define WORDS_1_FN(TYPE)                                                                                               \
    void WORDS_1(TYPE)(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                              \
        block_panels(panel_formats[QT_##TYPE], 1, j, b, panel0, panel1);                                               \
    }
#define WORDS_2_FN(TYPE)                                                                                               \
    void WORDS_2(TYPE)(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                              \
        block_panels(panel_formats[QT_##TYPE], 2, j, b, panel0, panel1);                                               \
    }
WIDE_TYPES(WORDS_1_FN)
PANEL_TYPES(WORDS_2_FN)
