/* The integer matmul for AVX-512 with VNNI. VPDPBUSD multiplies unsigned weight codes by signed activation codes, four
 * products to each 32-bit lane, exactly; the zero point is taken off by starting the sum at -zero * (the sum of the
 * activation codes).
 *
 * Two structures: with 1 to 3 rows a panel is streamed once with the sums in registers; with more rows the unpacked
 * codes of one group of two panels stay in 16 registers while all rows of the block pass by ("weight-stationary"), so
 * that each broadcast of activations feeds two panels. The sums then live in an L1 tile.
 *
 * Measured on Zen 5: rows go four at a time with one plane (Q8_0 0.61 -> 0.67 of the integer peak), two with two
 * planes, where four would spill (0.74 -> 0.61). Streaming two panels at once, to share broadcasts with one row, loses:
 * 0.91 -> 0.52 of a plain read for Q2_K, 0.97 -> 0.74 for Q4_0. */
#include "kernels/lanes_avx512.h"

#include "kernels/lanes_epilogue.inc"
#include "kernels/panel.h"

#include <string.h>

/* Four activation codes to every lane. */
typedef int32_t FourCodes __attribute__((may_alias));
LANES_INLINE __m512i broadcast_codes(const void *p) { return _mm512_set1_epi32(*(const FourCodes *)p); }

/* acc + the products of w with those at p, in one instruction: gcc 12 makes two. With one row, 0.87 -> 0.96 of a plain
 * read for Q3_K by 16-bit activations, others 0 to 0.02 more. */
LANES_INLINE __m512i dot_broadcast(__m512i acc, __m512i w, const void *p) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const FourCodes *)p));
    return acc;
}

enum { GROUP = ACT_GROUP, WORDS = GROUP / 4 };

/* ---- weights ---- */

/* Bits [from, from + width) of every byte, moved to start at bit `to`. All constants. */
LANES_INLINE __m512i move_bits(__m512i x, const int from, const int to, const int width) {
    if (to > from) x = _mm512_slli_epi32(x, (unsigned)(to - from));
    if (to < from) x = _mm512_srli_epi32(x, (unsigned)(from - to));
    return _mm512_and_si512(x, _mm512_set1_epi8((char)(((1 << width) - 1) << to)));
}

LANES_INLINE __m512i codebook(void) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)iq4_unsigned)); }

/* Vector v: the codes of k = 4v .. 4v+3 of 16 columns, as they are multiplied. */
LANES_INLINE void load_codes(const PanelFormat f, const uint8_t *p, __m512i w[WORDS]) {
    int done = 0; /* bits */
    if (f.bits == 8)
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = _mm512_loadu_si512(p + 64 * v);
    if (has_nibbles(f)) {
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = move_bits(_mm512_loadu_si512(p + 64 * (v / 2)), 4 * (v % 2), 0, 4);
        p += NIBBLE_BYTES;
        done = 4;
    }
    if (has_pairs(f)) {
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) {
            __m512i two = move_bits(_mm512_loadu_si512(p + 64 * (v / 4)), 2 * (v % 4), done, 2);
            w[v] = done ? _mm512_or_si512(w[v], two) : two;
        }
        p += PAIR_BYTES;
        done += 2;
    }
    if (has_single_bits(f)) {
        __m512i bits = _mm512_loadu_si512(p);
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = _mm512_or_si512(w[v], move_bits(bits, v, done, 1));
    }
    if (f.codebook)
#pragma GCC unroll 8
        for (int v = 0; v < WORDS; v++) w[v] = _mm512_shuffle_epi8(codebook(), w[v]);
}

/* The fp16 scales of a super-block; dmin with its sign changed. */
typedef struct Header {
    Vec d, dmin;
} Header;

LANES_INLINE Header load_header(const PanelFormat f, const uint8_t *p) {
    if (!f.super) return (Header){v_zero(), v_zero()};
    return (Header){v_load_f16(p), f.has_min ? v_negate(v_load_f16(p + 2 * PANEL)) : v_zero()};
}

/* d_w and min_w of a group, for each half that has its own. */
typedef struct GroupScales {
    Vec scale[2], min[2];
} GroupScales;

LANES_INLINE Vec widen_bytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }

LANES_INLINE GroupScales load_scales(const PanelFormat f, const Header *h, const uint8_t *p) {
    GroupScales s = {{v_zero(), v_zero()}, {v_zero(), v_zero()}};
    if (!f.super) {
        s.scale[0] = v_load_f16(p);
        if (f.has_min) s.min[0] = v_load_f16(p + 2 * PANEL);
        return s;
    }
#pragma GCC unroll 2
    for (int i = 0; i < f.halves; i++) {
        __m128i bytes = _mm_loadu_si128((const void *)(p + PANEL * i)), low = bytes, high = bytes;
        if (f.nibbles) {
            low = _mm_and_si128(bytes, _mm_set1_epi8(15));
            high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
        } else if (f.has_min) high = _mm_loadu_si128((const void *)(p + PANEL * (f.halves + i)));
        s.scale[i] = v_mul(h->d, widen_bytes(low));
        if (f.has_min) s.min[i] = v_mul(h->dmin, widen_bytes(high));
    }
    return s;
}

/* AHEAD: how far ahead of use weights are asked for, in bytes. With one row, of a plain read: 2048 0.72-0.93, 4096
 * 0.70-0.94, 8192 0.78-0.99, 12288 0.77-1.0 over all types (Zen 5). */
enum { STREAM_ROWS = 3, STEP_ROWS = 4, AHEAD = 8192 };

LANES_INLINE void prefetch_group(const PanelFormat f, const uint8_t *group) {
#pragma GCC unroll 9
    for (int i = 0; i < group_bytes(f); i += 64) _mm_prefetch((const char *)group + AHEAD + i, _MM_HINT_T0);
}

/* ---- few rows ---- */

/* start + the sum of products of half h (or of the whole) with the codes at `a`. Two chains of dot products halve their
 * latency: of the even and odd steps, or of the two planes. */
LANES_INLINE __m512i dot_half(const PanelFormat f, const int planes, const int h, const __m512i w[WORDS],
                              const int8_t *a, __m512i start) {
    const int n = WORDS / f.halves, first = h * n;
    __m512i one = start, other = _mm512_setzero_si512();
    if (planes == 2) {
#pragma GCC unroll 8
        for (int v = first; v < first + n; v++) {
            other = dot_broadcast(other, w[v], a + 4 * v);
            one = dot_broadcast(one, w[v], a + GROUP + 4 * v);
        }
        return _mm512_add_epi32(one, _mm512_slli_epi32(other, HIGH_SHIFT));
    }
#pragma GCC unroll 4
    for (int v = first; v < first + n; v += 2) {
        one = dot_broadcast(one, w[v], a + 4 * v);
        other = dot_broadcast(other, w[v + 1], a + 4 * v + 4);
    }
    return _mm512_add_epi32(one, other);
}

/* acc with what a group contributes to entry i of the block. */
LANES_INLINE Vec add_entry(const PanelFormat f, const int planes, const __m512i w[WORDS], const GroupScales *s,
                           const ActBlock *b, int64_t i, Vec acc) {
    const int8_t *a = b->codes + i * planes * GROUP;
    const Vec d = v_set1(b->scale[i]);
    int32_t sum[2] = {f.halves == 2 ? b->half_sum[i] : b->sum[i], b->sum[i] - b->half_sum[i]};
    Vec dot[2];
#pragma GCC unroll 2
    for (int h = 0; h < f.halves; h++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): halves is 1 or 2 */
        __m512i start = f.zero ? _mm512_set1_epi32(-f.zero * sum[h]) : _mm512_setzero_si512();
        dot[h] = _mm512_cvtepi32_ps(dot_half(f, planes, h, w, a, start));
    }
    if (f.halves == 1) {
        acc = v_fma(dot[0], v_mul(s->scale[0], d), acc);
        return f.has_min ? v_fma(s->min[0], v_set1(b->scale[i] * (float)sum[0]), acc) : acc;
    }
    Vec t = v_fma(dot[1], s->scale[1], v_mul(dot[0], s->scale[0]));
    if (f.has_min) t = v_fma(s->min[1], v_set1((float)sum[1]), v_fma(s->min[0], v_set1((float)sum[0]), t));
    return v_fma(t, d, acc);
}

/* One panel times `rows` rows (a constant, at most STREAM_ROWS). */
LANES_INLINE void stream_panel(const PanelFormat f, const int rows, const int planes, const PackedWeights *w,
                               const uint8_t *panel, const ActBlock *b, Vec acc[STREAM_ROWS]) {
    int64_t n_groups = w->k / GROUP;
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++) acc[r] = v_zero();
    for (int64_t g = 0; g < n_groups;) {
        int64_t end = header_end(f, w->skip, g, n_groups);
        Header header = load_header(f, panel);
        panel += header_bytes(f);
        for (; g < end; g++, panel += group_bytes(f)) {
            __m512i codes[WORDS];
            prefetch_group(f, panel);
            load_codes(f, panel, codes);
            GroupScales s = load_scales(f, &header, panel + code_bytes(f));
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++) acc[r] = add_entry(f, planes, codes, &s, b, g * rows + r, acc[r]);
        }
    }
}

/* ---- many rows ---- */

/* The sums of a block for two panels, [row][panel][16]; for one group, by half, what its rows start from and what
 * multiplies the minima. */
typedef struct SumTile {
    _Alignas(64) float acc[ACT_ROWS][2][PANEL];
    _Alignas(64) int32_t start[2][ACT_ROWS];
    _Alignas(64) float sum[2][ACT_ROWS];
} SumTile;

/* One group of `panels` panels: codes and scales in registers. */
typedef struct GroupWeights {
    __m512i codes[2][WORDS];
    GroupScales scales[2];
} GroupWeights;

/* The dot products of half h of `rows` rows (a constant) from row r. */
LANES_INLINE void multiply_half(const PanelFormat f, const int panels, const int rows, const int planes, const int h,
                                const GroupWeights *w, const SumTile *tile, int64_t r, const int8_t *codes,
                                Vec out[STEP_ROWS][2]) {
    const int n = WORDS / f.halves, first = h * n;
    __m512i dot[STEP_ROWS][2], high[STEP_ROWS][2]; /* high: of the first of two planes */
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        __m512i start = _mm512_setzero_si512();
        if (f.zero) start = _mm512_set1_epi32(tile->start[h][r + i]);
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            dot[i][p] = start;
            high[i][p] = _mm512_setzero_si512();
        }
    }
#pragma GCC unroll 8
    for (int v = first; v < first + n; v++) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            const int8_t *a = codes + (r + i) * planes * GROUP + 4 * v;
            __m512i one = broadcast_codes(a), last = planes == 2 ? broadcast_codes(a + GROUP) : one;
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) {
                if (planes == 2) high[i][p] = _mm512_dpbusd_epi32(high[i][p], w->codes[p][v], one);
                dot[i][p] = _mm512_dpbusd_epi32(dot[i][p], w->codes[p][v], last);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            if (planes == 2) dot[i][p] = _mm512_add_epi32(dot[i][p], _mm512_slli_epi32(high[i][p], HIGH_SHIFT));
            out[i][p] = _mm512_cvtepi32_ps(dot[i][p]);
        }
}

/* Adds the group's contribution to `rows` rows (a constant) from row r of the tile. */
LANES_INLINE void add_group(const PanelFormat f, const int panels, const int rows, const int planes,
                            const GroupWeights *w, SumTile *tile, int64_t r, const int8_t *codes, const float *scale) {
    Vec dot[STEP_ROWS][2], t[STEP_ROWS][2];
    multiply_half(f, panels, rows, planes, 0, w, tile, r, codes, dot);
    if (f.halves == 2) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) t[i][p] = v_mul(dot[i][p], w->scales[p].scale[0]);
        multiply_half(f, panels, rows, planes, 1, w, tile, r, codes, dot);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        Vec d = v_set1(scale[r + i]), sum[2] = {v_set1(tile->sum[0][r + i]), v_set1(tile->sum[1][r + i])};
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            const GroupScales *s = &w->scales[p];
            Vec acc = v_load(tile->acc[r + i][p]);
            if (f.halves == 1) {
                acc = v_fma(dot[i][p], v_mul(s->scale[0], d), acc);
                if (f.has_min) acc = v_fma(s->min[0], sum[0], acc);
            } else {
                t[i][p] = v_fma(dot[i][p], s->scale[1], t[i][p]);
                if (f.has_min) t[i][p] = v_fma(s->min[1], sum[1], v_fma(s->min[0], sum[0], t[i][p]));
                acc = v_fma(t[i][p], d, acc);
            }
            v_store(tile->acc[r + i][p], acc);
        }
    }
}

/* start and sum of the rows of a group whose entries begin at `first`, rounded up to a vector. */
LANES_INLINE void set_rows(const PanelFormat f, const ActBlock *b, int64_t first, SumTile *t) {
    for (int64_t r = 0; r < b->rows; r += 16) {
        __mmask16 some = first_lanes(b->rows - r);
        __m512i sum[2] = {_mm512_maskz_loadu_epi32(some, b->sum + first + r)};
        if (f.halves == 2) {
            __m512i half = _mm512_maskz_loadu_epi32(some, b->half_sum + first + r);
            sum[1] = _mm512_sub_epi32(sum[0], half);
            sum[0] = half;
        }
#pragma GCC unroll 2
        for (int h = 0; h < f.halves; h++) {
            if (f.zero) _mm512_store_si512(t->start[h] + r, _mm512_mullo_epi32(sum[h], _mm512_set1_epi32(-f.zero)));
            Vec codes = _mm512_cvtepi32_ps(sum[h]);
            if (f.halves == 1) codes = v_mul(codes, v_load_n(b->scale + first + r, b->rows - r));
            if (f.has_min) v_store(t->sum[h] + r, codes);
        }
    }
}

/* `panels` panels, a constant 1 or 2, `stride` bytes apart, times one block. */
LANES_INLINE void block_panels(const PanelFormat f, const int panels, const int planes, const PackedWeights *w,
                               const uint8_t *panel, size_t stride, const ActBlock *b, SumTile *t) {
    int64_t n_groups = w->k / GROUP;
    memset(t->acc, 0, (size_t)b->rows * sizeof t->acc[0]);
    for (int64_t g = 0; g < n_groups;) {
        int64_t end = header_end(f, w->skip, g, n_groups);
        Header header[2];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) header[p] = load_header(f, panel + (size_t)p * stride);
        panel += header_bytes(f);
        for (; g < end; g++, panel += group_bytes(f)) {
            GroupWeights group;
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) {
                const uint8_t *from = panel + (size_t)p * stride;
                prefetch_group(f, from);
                load_codes(f, from, group.codes[p]);
                group.scales[p] = load_scales(f, &header[p], from + code_bytes(f));
            }
            int64_t first = g * b->rows, r = 0;
            const int8_t *codes = b->codes + first * planes * GROUP;
            if (f.zero || f.has_min) set_rows(f, b, first, t);
            for (; planes == 1 && r + STEP_ROWS <= b->rows; r += STEP_ROWS)
                add_group(f, panels, STEP_ROWS, planes, &group, t, r, codes, b->scale + first);
            for (; r + 2 <= b->rows; r += 2) add_group(f, panels, 2, planes, &group, t, r, codes, b->scale + first);
            if (r < b->rows) add_group(f, panels, 1, planes, &group, t, r, codes, b->scale + first);
        }
    }
}

/* ---- one function per weight type and planes ---- */

typedef struct Job {
    const PackedWeights *w;
    size_t stride; /* bytes of a panel */
    float *y;
    int64_t ldy;
    const Epilogue *ep;
} Job;

LANES_INLINE void stream_block(const PanelFormat f, const int rows, const int planes, const Job *j, const ActBlock *b,
                               int64_t panel0, int64_t panel1) {
    Vec acc[STREAM_ROWS];
    for (int64_t p = panel0; p < panel1; p++) {
        stream_panel(f, rows, planes, j->w, j->w->data + (size_t)p * j->stride, b, acc);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) finish(acc[r], b->row0 + r, p * PANEL, j->w->n, j->y, j->ldy, j->ep);
    }
}

LANES_INLINE void stationary_block(const PanelFormat f, const int planes, const Job *j, const ActBlock *b,
                                   int64_t panel0, int64_t panel1) {
    SumTile t;
    for (int64_t p = panel0; p < panel1; p += 2) {
        const uint8_t *panel = j->w->data + (size_t)p * j->stride;
        int panels = p + 1 < panel1 ? 2 : 1;
        if (panels == 2) block_panels(f, 2, planes, j->w, panel, j->stride, b, &t);
        else block_panels(f, 1, planes, j->w, panel, j->stride, b, &t);
        for (int64_t r = 0; r < b->rows; r++)
            for (int i = 0; i < panels; i++)
                finish(v_load(t.acc[r][i]), b->row0 + r, (p + i) * PANEL, j->w->n, j->y, j->ldy, j->ep);
    }
}

typedef void BlockFn(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1);

#define BLOCK_FN(TYPE, PLANES)                                                                                         \
    static void block_##TYPE##_##PLANES(const Job *j, const ActBlock *b, int64_t panel0, int64_t panel1) {             \
        const PanelFormat f = panel_formats[QT_##TYPE];                                                                \
        if (b->rows == 1) stream_block(f, 1, PLANES, j, b, panel0, panel1);                                            \
        else if (b->rows == 2) stream_block(f, 2, PLANES, j, b, panel0, panel1);                                       \
        else if (b->rows == 3) stream_block(f, 3, PLANES, j, b, panel0, panel1);                                       \
        else stationary_block(f, PLANES, j, b, panel0, panel1);                                                        \
    }
#define BLOCK_FNS(TYPE)                                                                                                \
    BLOCK_FN(TYPE, 1)                                                                                                  \
    BLOCK_FN(TYPE, 2)
PANEL_TYPES(BLOCK_FNS)

/* By weight type and planes - 1. */
#define BLOCK_ENTRY(TYPE) [QT_##TYPE] = {block_##TYPE##_1, block_##TYPE##_2},
static BlockFn *const block_fn[QT_COUNT][2] = {PANEL_TYPES(BLOCK_ENTRY)};

void matmul_q_avx512vnni(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                         int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    Job j = {.w = w, .stride = panel_stride(w), .y = y, .ldy = ldy, .ep = ep};
    for (int64_t i = block0; i < block1; i++) {
        ActBlock b = act_block(a, i);
        block_fn[w->type][a->planes - 1](&j, &b, panel0, panel1);
    }
}
