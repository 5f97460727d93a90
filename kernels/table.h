/* Inside this layer: the tables, and what every table's code needs to know about the memory it walks. */
#pragma once

#include "kernels/kernels.h"

extern const Kernels kernels_ref;
extern const Kernels kernels_avx2;       /* needs AVX2, FMA, F16C */
extern const Kernels kernels_avx512vnni; /* needs AVX-512 F, BW, DQ, VL, VNNI and those above */

/* The matmuls that have files of their own. */
void matmul_q_ref(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0, int64_t panel1,
                  float *y, int64_t ldy, const Epilogue *ep);
void matmul_f_ref(const PackedWeights *w, const float *x, int64_t ldx, int64_t row0, int64_t row1, int64_t panel0,
                  int64_t panel1, float *y, int64_t ldy, const Epilogue *ep);
void matmul_q_avx2(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                   int64_t panel1, float *y, int64_t ldy, const Epilogue *ep);
void matmul_q_avx512vnni(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                         int64_t panel1, float *y, int64_t ldy, const Epilogue *ep);

/* The largest code of quantised activations, by planes; and the weight of the high plane of two. */
static inline float act_max_code(int planes) { return planes == 2 ? 16256.0f : 127.0f; }
enum { HIGH_SHIFT = 7 };

/* gelu by tanh, 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) = g / (1 + exp(-2 sqrt(2/pi) (g + 0.044715 g^3)));
 * Hendrycks and Gimpel, arXiv:1606.08415. */
#define GELU_C0 1.5957691216f
#define GELU_C1 0.0713548163f

/* 1 - Phi(a) = exp(-a^2 / 2) q(a) for a >= 0, Phi the normal distribution; q(a) / t with t = 1 / (1 + TAIL_P a) is the
 * polynomial TAIL_C0 + TAIL_C1 t + ... + TAIL_C7 t^7: the minimax fit (Remez) for the relative error on 0 <= a <= 14,
 * 1.5e-7 before rounding to fp32. The form is that of Abramowitz and Stegun, 7.1.25. */
#define TAIL_P  0.3f
#define TAIL_C0 0.11962930113077164f
#define TAIL_C1 0.12075395882129669f
#define TAIL_C2 0.09991348534822464f
#define TAIL_C3 0.12856167554855347f
#define TAIL_C4 (-0.05368373170495033f)
#define TAIL_C5 0.20635360479354858f
#define TAIL_C6 (-0.15720316767692566f)
#define TAIL_C7 0.035674799233675f

/* exp: x = n ln 2 + r with |r| <= ln(2)/2, exp(r) = 1 + r + r^2 (EXP_C2 + EXP_C3 r + ... + EXP_C6 r^4). EXP_LN2_HI is
 * ln 2 rounded to fp32 and EXP_LN2_LO what is left. The C's are the minimax fit (Remez) for the relative error of
 * exp(r) with the first two terms fixed: 3.1e-9 before rounding to fp32. */
#define EXP_MIN    (-87.33f)
#define EXP_MAX    88.72f
#define EXP_LOG2E  0x1.715476p+0f
#define EXP_LN2_HI 0x1.62e430p-1f
#define EXP_LN2_LO (-0x1.05c610p-29f)
#define EXP_C2     0x1.fffffcp-2f
#define EXP_C3     0x1.555492p-3f
#define EXP_C4     0x1.5558f2p-5f
#define EXP_C5     0x1.123a20p-7f
#define EXP_C6     0x1.6a23d0p-10f

/* Bytes between two panels of w: packed_panel_bytes of matrices that exist cannot overflow. */
static inline size_t panel_stride(const PackedWeights *w) {
    size_t bytes = 0;
    packed_panel_bytes(w->type, w->skip, w->k, &bytes);
    return bytes;
}

/* Block b of quantised rows: rows [row0, row0 + rows), entries (row - row0, group) at [group * rows + row - row0]. */
typedef struct ActBlock {
    int64_t row0, rows;
    int planes;
    const int8_t *codes; /* [k/32][rows][planes][32] */
    const float *scale;
    const int32_t *sum, *half_sum;
} ActBlock;

static inline ActBlock act_block(const ActQ *a, int64_t b) {
    int64_t row0 = b * ACT_ROWS, entry = row0 * (a->k / ACT_GROUP);
    int64_t rows = a->m - row0 < ACT_ROWS ? a->m - row0 : ACT_ROWS;
    return (ActBlock){.row0 = row0,
                      .rows = rows,
                      .planes = a->planes,
                      .codes = a->codes + entry * ACT_GROUP * a->planes,
                      .scale = a->scale + entry,
                      .sum = a->sum + entry,
                      .half_sum = a->half_sum + entry};
}

/* The k largest, in order: values[0 .. *count) so far. A value that comes later in the row goes behind its equals; NaN
 * is below everything. Insertion, because k is small. */
static inline bool topk_beats(float later, float earlier) {
    return later > earlier || (earlier != earlier && later == later);
}
static inline void topk_insert(float x, int32_t id, int k, int *count, int32_t *ids, float *values) {
    if (*count == k && !topk_beats(x, values[k - 1])) return;
    int at = *count < k ? (*count)++ : k - 1;
    for (; at > 0 && topk_beats(x, values[at - 1]); at--) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
    }
    values[at] = x;
    ids[at] = id;
}
