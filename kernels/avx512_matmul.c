/* The integer matmul for AVX-512 with VNNI. VPDPBUSD multiplies unsigned weight codes by signed activation codes, four
 * products to each 32-bit lane, exactly; the zero point is taken off by starting the sum at -zero_point * (the group's
 * sum of activation codes).
 *
 * Two structures: with 1 to 3 rows a panel is streamed once with the sums in registers; with more rows the unpacked
 * codes of one group of two panels stay in 16 registers while all rows of the block pass by ("weight-stationary"), so
 * that each broadcast of activations feeds two panels. The sums then live in an L1 tile. */
#include "kernels/lanes_avx512.h"

#include "kernels/lanes_epilogue.inc"

#include <string.h>

/* Four activation codes to every lane. */
typedef int32_t FourCodes __attribute__((may_alias));
LANES_INLINE __m512i broadcast_codes(const void *p) { return _mm512_set1_epi32(*(const FourCodes *)p); }

enum { GROUP = ACT_GROUP, Q4_CODES = GROUP / 2 * PANEL, Q8_CODES = GROUP * PANEL };

/* What a weight type means for these loops; a constant wherever it is used. */
typedef struct Format {
    int codes;      /* bytes of codes in a group of a panel */
    int bytes;      /* and with the scales */
    int zero_shift; /* log2 of the zero point of the unsigned codes, 0: none */
    bool has_min;
} Format;

static const Format q4_0 = {Q4_CODES, Q4_CODES + 32, 3, false};
static const Format q4_1 = {Q4_CODES, Q4_CODES + 64, 0, true};
static const Format q8_0 = {Q8_CODES, Q8_CODES + 32, 7, false};

/* Vector i: the four codes k = 4i .. 4i+3 of 16 columns. */
LANES_INLINE void load_codes(const Format f, const uint8_t *group, __m512i w[8]) {
    if (f.codes == Q8_CODES) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) w[i] = _mm512_loadu_si512(group + 64 * i);
        return;
    }
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i both = _mm512_loadu_si512(group + 64 * i);
        w[2 * i] = _mm512_and_si512(both, low);
        w[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

/* ---- few rows ---- */

enum { STREAM_ROWS = 3, AHEAD = 4096 };

/* One panel times `rows` rows (a constant, at most STREAM_ROWS). Two chains of dot products halve their latency: of the
 * even and odd steps, or of the two planes. */
LANES_INLINE void stream_panel(const Format f, const int rows, const int planes, const uint8_t *panel, int64_t n_groups,
                               const ActBlock *b, Vec acc[STREAM_ROWS]) {
    const int8_t *codes = b->codes;
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++) acc[r] = v_zero();
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes, codes += rows * planes * GROUP) {
#pragma GCC unroll 9
        for (int i = 0; i < f.bytes; i += 64) _mm_prefetch((const char *)panel + AHEAD + i, _MM_HINT_T0);
        __m512i w[8];
        load_codes(f, panel, w);
        Vec scale = v_load_f16(panel + f.codes);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            int64_t i = g * rows + r;
            __m512i one = _mm512_setzero_si512(), other = one;
            const int8_t *a = codes + r * planes * GROUP;
            if (f.zero_shift)
                one = _mm512_sub_epi32(one, _mm512_slli_epi32(_mm512_set1_epi32(b->sum[i]), (unsigned)f.zero_shift));
            if (planes == 2) {
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    other = _mm512_dpbusd_epi32(other, w[j], broadcast_codes(a + 4 * j));
                    one = _mm512_dpbusd_epi32(one, w[j], broadcast_codes(a + GROUP + 4 * j));
                }
                other = _mm512_slli_epi32(other, HIGH_SHIFT);
            } else {
#pragma GCC unroll 4
                for (int j = 0; j < 8; j += 2) {
                    one = _mm512_dpbusd_epi32(one, w[j], broadcast_codes(a + 4 * j));
                    other = _mm512_dpbusd_epi32(other, w[j + 1], broadcast_codes(a + 4 * j + 4));
                }
            }
            Vec dot = _mm512_cvtepi32_ps(_mm512_add_epi32(one, other));
            acc[r] = v_fma(dot, v_mul(scale, v_set1(b->scale[i])), acc[r]);
            if (f.has_min) acc[r] = v_fma(v_load_f16(panel + f.codes + 32), v_set1(b->scaled_sum[i]), acc[r]);
        }
    }
}

/* ---- many rows ---- */

/* The sums of a block for two panels, [row][panel][16], and the integer starts of its rows for one group. */
typedef struct SumTile {
    _Alignas(64) float acc[ACT_ROWS][2][PANEL];
    _Alignas(64) int32_t start[ACT_ROWS];
} SumTile;

/* One group of `panels` panels: codes and scales in registers. */
typedef struct GroupWeights {
    __m512i codes[2][8];
    Vec scale[2], min[2];
} GroupWeights;

/* Adds the group's contribution to `rows` rows (a constant) from row r of the tile. */
LANES_INLINE void add_group(const Format f, const int panels, const int rows, const int planes, const GroupWeights *w,
                            SumTile *t, int64_t r, const int8_t *codes, const float *scale, const float *scaled_sum) {
    __m512i dot[2][2], high[2][2]; /* high: of the first of two planes */
#pragma GCC unroll 2
    for (int i = 0; i < rows; i++) {
        __m512i start = _mm512_setzero_si512();
        if (f.zero_shift) start = _mm512_set1_epi32(t->start[r + i]);
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            dot[i][p] = start;
            high[i][p] = _mm512_setzero_si512();
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++) {
            const int8_t *a = codes + (r + i) * planes * GROUP + 4 * j;
            __m512i first = broadcast_codes(a), last = planes == 2 ? broadcast_codes(a + GROUP) : first;
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) {
                if (planes == 2) high[i][p] = _mm512_dpbusd_epi32(high[i][p], w->codes[p][j], first);
                dot[i][p] = _mm512_dpbusd_epi32(dot[i][p], w->codes[p][j], last);
            }
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < rows; i++) {
        Vec d = v_set1(scale[r + i]), s = v_set1(scaled_sum[r + i]);
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            Vec acc = v_load(t->acc[r + i][p]);
            if (planes == 2) dot[i][p] = _mm512_add_epi32(dot[i][p], _mm512_slli_epi32(high[i][p], HIGH_SHIFT));
            acc = v_fma(_mm512_cvtepi32_ps(dot[i][p]), v_mul(w->scale[p], d), acc);
            if (f.has_min) acc = v_fma(w->min[p], s, acc);
            v_store(t->acc[r + i][p], acc);
        }
    }
}

/* start[r] = -zero_point * sum[r], for rows rounded up to a vector. */
LANES_INLINE void set_starts(const Format f, const int32_t *sum, int64_t rows, int32_t *start) {
    for (int64_t r = 0; r < rows; r += 16) {
        __m512i s = _mm512_maskz_loadu_epi32(first_lanes(rows - r), sum + r);
        s = _mm512_slli_epi32(s, (unsigned)f.zero_shift);
        _mm512_store_si512(start + r, _mm512_sub_epi32(_mm512_setzero_si512(), s));
    }
}

/* `panels` panels, a constant 1 or 2, `stride` bytes apart, times one block. */
LANES_INLINE void block_panels(const Format f, const int panels, const int planes, const uint8_t *panel, size_t stride,
                               int64_t n_groups, const ActBlock *b, SumTile *t) {
    memset(t->acc, 0, (size_t)b->rows * sizeof t->acc[0]);
    for (int64_t g = 0; g < n_groups; g++, panel += f.bytes) {
        GroupWeights w;
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            const uint8_t *group = panel + (size_t)p * stride;
#pragma GCC unroll 9
            for (int i = 0; i < f.bytes; i += 64) _mm_prefetch((const char *)group + AHEAD + i, _MM_HINT_T0);
            load_codes(f, group, w.codes[p]);
            w.scale[p] = v_load_f16(group + f.codes);
            w.min[p] = f.has_min ? v_load_f16(group + f.codes + 32) : v_zero();
        }
        int64_t first = g * b->rows, r = 0;
        const int8_t *codes = b->codes + first * planes * GROUP;
        if (f.zero_shift) set_starts(f, b->sum + first, b->rows, t->start);
        for (; r + 2 <= b->rows; r += 2)
            add_group(f, panels, 2, planes, &w, t, r, codes, b->scale + first, b->scaled_sum + first);
        if (r < b->rows) add_group(f, panels, 1, planes, &w, t, r, codes, b->scale + first, b->scaled_sum + first);
    }
}

/* ---- one function per weight type ---- */

typedef struct Job {
    const PackedWeights *w;
    int64_t n_groups;
    size_t stride; /* bytes of a panel */
    float *y;
    int64_t ldy;
    const Epilogue *ep;
} Job;

LANES_INLINE void stream_block(const Format f, const int rows, const int planes, const Job *j, const ActBlock *b,
                               int64_t panel0, int64_t panel1) {
    Vec acc[STREAM_ROWS];
    for (int64_t p = panel0; p < panel1; p++) {
        stream_panel(f, rows, planes, j->w->data + (size_t)p * j->stride, j->n_groups, b, acc);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) finish(acc[r], b->row0 + r, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
    }
}

LANES_INLINE void stationary_block(const Format f, const int planes, const Job *j, const ActBlock *b, int64_t panel0,
                                   int64_t panel1) {
    SumTile t;
    for (int64_t p = panel0; p < panel1; p += 2) {
        const uint8_t *panel = j->w->data + (size_t)p * j->stride;
        int panels = p + 1 < panel1 ? 2 : 1;
        if (panels == 2) block_panels(f, 2, planes, panel, j->stride, j->n_groups, b, &t);
        else block_panels(f, 1, planes, panel, j->stride, j->n_groups, b, &t);
        for (int64_t r = 0; r < b->rows; r++)
            for (int i = 0; i < panels; i++)
                finish(v_load(t.acc[r][i]), b->row0 + r, (p + i) * PANEL, j->w->n, j->y, j->ldy, j->ep);
    }
}

#define FORMAT_FN(F, PLANES)                                                                                           \
    static void F##_##PLANES(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {                        \
        if (b->rows == 1) stream_block(F, 1, PLANES, j, b, panel0, panel1);                                            \
        else if (b->rows == 2) stream_block(F, 2, PLANES, j, b, panel0, panel1);                                       \
        else if (b->rows == 3) stream_block(F, 3, PLANES, j, b, panel0, panel1);                                       \
        else stationary_block(F, PLANES, j, b, panel0, panel1);                                                        \
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

void matmul_q_avx512vnni(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                         int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    Job j = {.w = w, .n_groups = w->k / GROUP, .stride = panel_stride(w), .y = y, .ldy = ldy, .ep = ep};
    for (int64_t i = block0; i < block1; i++) {
        ActBlock b = act_block(a, i);
        block_fn[w->type][a->planes - 1](&j, &b, panel0, panel1);
    }
}
