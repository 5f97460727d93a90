/* AVX2's integer matmul by 16-bit words: for 8-bit weights, whose products with bytes do not fit VPMADDUBSW, and for
 * 16-bit activations, whose two planes are joined into one word here. VPMADDWD multiplies words and adds pairs into
 * int32: exact, as 32 products of at most 255 * 16,256 are below 2^31. Weights stay unsigned; the zero point comes off
 * by the sum of the activation codes.
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

/* The words of 8 columns that come from the 32 bytes at row i of a group's codes, for steps 2i (4-bit: 4i) and on. */
LANES_INLINE void widen_row(const Format f, __m256i bytes, __m256i w[4]) {
    if (f.codes == Q8_CODES) {
        w[0] = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
        w[1] = _mm256_srli_epi16(bytes, 8);
        return;
    }
    const __m256i low = _mm256_set1_epi16(15);
    w[0] = _mm256_and_si256(bytes, low);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 8), low);
    w[2] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
    w[3] = _mm256_srli_epi16(bytes, 12);
}

/* ---- one row ---- */

LANES_INLINE Vec stream_panel(const Format f, const int planes, const uint8_t *panel, int64_t n_groups,
                              const ActBlock *b) {
    const int per_row = f.codes == Q8_CODES ? 2 : 4; /* steps in 64 bytes */
    Vec acc = v_zero();
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        EntryWords a;
        __m256i lo = _mm256_setzero_si256(), hi = lo;
        prefetch_group(f, panel);
        widen_entry(planes, b->codes + g * planes * GROUP, &a);
#pragma GCC unroll 8
        for (int i = 0; i < f.codes / 64; i++) {
            __m256i w0[4], w1[4];
            widen_row(f, load_256(panel + 64 * i), w0);
            widen_row(f, load_256(panel + 64 * i + 32), w1);
#pragma GCC unroll 4
            for (int s = 0; s < per_row; s++) {
                __m256i x = broadcast_step(&a, i * per_row + s);
                lo = _mm256_add_epi32(lo, _mm256_madd_epi16(w0[s], x));
                hi = _mm256_add_epi32(hi, _mm256_madd_epi16(w1[s], x));
                PIN(lo);
                PIN(hi);
            }
        }
        HalfScales s0 = load_scales(f, panel, 0), s1 = load_scales(f, panel, 1);
        acc.lo = add_dot(f, &s0, b, g, lo, acc.lo);
        acc.hi = add_dot(f, &s1, b, g, hi, acc.hi);
    }
    return acc;
}

/* ---- many rows ---- */

/* What one pass over a block keeps in L1 (25 KB): sums, and the words of one group. */
typedef struct Pass {
    _Alignas(64) float acc[PASS_PANELS][ACT_ROWS][PANEL];
    _Alignas(64) __m256i weights[STEPS][2]; /* [step][half], 8 columns each */
    EntryWords entries[ACT_ROWS];
} Pass;

LANES_INLINE void widen_group(const Format f, const uint8_t *codes, __m256i out[STEPS][2]) {
    const int per_row = f.codes == Q8_CODES ? 2 : 4;
    for (int i = 0; i < f.codes / 64; i++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i w[4];
            widen_row(f, load_256(codes + 64 * i + 32 * half), w);
#pragma GCC unroll 4
            for (int s = 0; s < per_row; s++) _mm256_store_si256(&out[i * per_row + s][half], w[s]);
        }
}

/* `rows` rows (a constant) from r of one panel's sums; entries of the group start at `first`. */
LANES_INLINE void add_rows(const Format f, const int rows, Pass *t, int panel, int64_t r, const HalfScales s[2],
                           const ActBlock *b, int64_t first) {
    __m256i dot[FEW][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 16
    for (int step = 0; step < STEPS; step++) {
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
        for (int half = 0; half < 2; half++) {
            float *acc = t->acc[panel][r + i] + HALF * half;
            _mm256_store_ps(acc, add_dot(f, &s[half], b, first + r + i, dot[i][half], _mm256_load_ps(acc)));
        }
}

LANES_INLINE void pass_panels(const Format f, const int planes, const Job *j, const ActBlock *b, int64_t panel0,
                              int panels, Pass *t) {
    const uint8_t *group = j->w->data + (size_t)panel0 * j->stride;
    memset(t->acc, 0, (size_t)panels * sizeof t->acc[0]);
    for (int64_t g = 0; g < j->n_groups; g++, group += f.bytes) {
        int64_t first = g * b->rows;
        for (int64_t r = 0; r < b->rows; r++)
            widen_entry(planes, b->codes + (first + r) * planes * GROUP, &t->entries[r]);
        for (int p = 0; p < panels; p++) {
            const uint8_t *w = group + (size_t)p * j->stride;
            HalfScales s[2] = {load_scales(f, w, 0), load_scales(f, w, 1)};
            int64_t r = 0;
            prefetch_group(f, w);
            widen_group(f, w, t->weights);
            for (; r + FEW <= b->rows; r += FEW) add_rows(f, FEW, t, p, r, s, b, first);
            for (; r + 2 <= b->rows; r += 2) add_rows(f, 2, t, p, r, s, b, first);
            if (r < b->rows) add_rows(f, 1, t, p, r, s, b, first);
        }
    }
}

LANES_INLINE void block_panels(const Format f, const int planes, const Job *j, const ActBlock *b, int64_t panel0,
                               int64_t panel1) {
    Pass t;
    if (b->rows == 1) {
        for (int64_t p = panel0; p < panel1; p++)
            finish(stream_panel(f, planes, j->w->data + (size_t)p * j->stride, j->n_groups, b), b->row0, p * PANEL,
                   j->w->n, j->y, j->ldy, j->ep);
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

#define BLOCK_FN(F, PLANES)                                                                                            \
    void avx2_words_##F##_##PLANES(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                  \
        block_panels(F, PLANES, j, b, panel0, panel1);                                                                 \
    }
BLOCK_FN(q4_0, 2)
BLOCK_FN(q4_1, 2)
BLOCK_FN(q8_0, 1)
BLOCK_FN(q8_0, 2)
