/* One table of functions per ISA. `ref` (kernels/ref.c) defines every result, bit for bit; the others must equal it.
 *
 * The float arithmetic is fixed so that a row's result does not depend on the ISA, the number of threads, or the rows
 * beside it: products and sums are IEEE fp32 in the order written here, fused multiply-adds (fmaf) exactly where
 * written, sums over a row run in 16 virtual lanes (element i goes to lane i % 16, in order; the row is padded with
 * zeroes) joined by one tree: lane l += lane l + 8, then + 4, + 2, + 1. Nothing here is compiled with contraction.
 * A result that is NaN is NaN in every table; its sign and payload are not defined.
 *
 * All functions are local, allocate nothing (up to 256 KB of stack), and work on the given ranges only, so that threads
 * can share the work.
 */
#pragma once

#include "quant/qtype.h"

enum {
    PANEL = 16,     /* output columns of a packed weight panel */
    ACT_GROUP = 32, /* activations that share a scale */
    ACT_ROWS = 64,  /* rows in a block of quantised activations */
    KV_BLOCK = 64,  /* positions in a block of the KV cache */
};

/* ---- weights ------------------------------------------------------------------------------------------------------
 * W[n][k] in panels of 16 rows (columns of the output). A panel is contiguous; columns past n in the last one hold zero
 * scales and codes (values). F32, F16, BF16: [k][16] values. Quantised types: one group after the other, of 32 values
 * along k times 16 columns, each its codes and then its scales.
 *
 * Codes are stored unsigned (Q8_0: code + 128), bits apart by place. Value 4v + j of column c, 0 <= v < 8, 0 <= j < 4,
 * has
 *   its low four bits (4, 5 and 6 bits) in byte [v / 2][c][j] of 256: low nibble for even v, high for odd;
 *   two bits (6 bits: the high two; 2 and 3 bits: the low two) in byte [v / 4][c][j] of 128, from bit 2 * (v % 4) up;
 *   its high bit (5 and 3 bits) in byte [c][j] of 64, bit v;
 *   all eight (8 bits) in byte [v][c][j] of 512;
 * in this order.
 *
 * Scales of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL: 16 fp16 scales, then the 16 fp16 minima of Q4_1 and Q5_1. Of types
 * with super-blocks: bytes [h][16], h the half of the group (with a scale for every 16 values: Q2_K, Q3_K, Q6_K) or
 * only 0; then, with minima, the minima likewise; Q2_K: one byte for both, the scale in its low nibble. Before the
 * first group of a panel, and before each that starts a super-block of the file, stands a header: the 16 fp16 scales d
 * of the super-block, then with minima the 16 fp16 dmin.
 *
 * Bytes in memory: those of the file for F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q2_K and Q6_K; Q4_K
 * 1.028, Q5_K 1.023, Q3_K 1.036, IQ4_XS 1.015 of them (scales of 6 bits take 8), and one more header where a range of
 * columns cuts a super-block. */
typedef struct PackedWeights {
    QType type;
    int64_t n, k;        /* k is a multiple of packed_unit */
    const uint8_t *data; /* [ceil(n/16)] panels of packed_panel_bytes; 64-byte aligned; not owned */
    int skip;            /* values between the start of the first column's super-block and that column; else 0 */
} PackedWeights;

enum { SUPER_BLOCK = 256 };

static inline int64_t packed_panels(int64_t n) { return (n + PANEL - 1) / PANEL; }
/* A range of columns of the file can be packed if it starts and ends on multiples of this: 32, or 1 for types that are
 * not quantised. */
static inline int packed_unit(QType t) { return qtype_info(t)->quantised ? ACT_GROUP : 1; }
/* PackedWeights.skip of a range that starts at column k0. */
static inline int packed_skip(QType t, int64_t k0) { return (int)(k0 % qtype_info(t)->block); }
/* Bytes of one panel for k columns, or false on overflow, a type that is no weight, or k or skip no packed_unit. */
bool packed_panel_bytes(QType t, int skip, int64_t k, size_t *out);
/* Bytes in memory for each byte of a weight in the file, where no super-block is cut. */
double packed_growth(QType t);
/* Packs one panel from up to 16 rows as they stand in a file. rows[i] points at the block of row i that holds column
 * `skip`, the first of k; n_rows <= 16. `panel`: packed_panel_bytes. */
void pack_panel(QType t, int skip, int64_t k, const void *const *rows, int n_rows, uint8_t *panel);
/* Row n of the matrix back as k fp32 values, equal to qtype_dequantise of the file's row. */
void unpack_row(const PackedWeights *w, int64_t n, float *out);

/* ---- quantised activations ----------------------------------------------------------------------------------------
 * m rows of k values, k a multiple of 32. Per row and group of 32: amax = max |x|; scale = amax / 127;
 * code = rint(x * (127 / amax)) (ties to even), so in [-127, 127], or 0 when 127 / amax is infinite (amax below
 * 3.8e-37); sum = sum of the codes, half_sum = of the first 16. A row with a non-finite value: scale NaN, codes 0,
 * for the groups that hold one.
 *
 * With two planes a code has 16 bits: scale = amax / 16256, code = rint(x * (16256 / amax)) = 128 * high + low, high =
 * (code + 64) >> 7 in [-127, 127], low in [-64, 63]; the products of both planes are int8 ones, and the dot product is
 * 128 * dot(w, high) + dot(w, low), an exact integer. (127 * 128 = 16256.)
 *
 * Rows stand in blocks of 64 (the last has m % 64): entry (row r, group g) has index
 *   i = 64 * b * (k/32) + g * rows_in_block + (r - 64 b),  b = r / 64;  codes at codes + 32 planes i, high first. */
typedef struct ActQ {
    int64_t m, k;
    int planes;        /* 1: QT_A8, 2: QT_A16 */
    int8_t *codes;     /* [m][k][planes], in the order above */
    float *scale;      /* [m][k/32] */
    int32_t *sum;      /* [m][k/32] */
    int32_t *half_sum; /* [m][k/32] */
} ActQ;

/* Bytes of memory for an ActQ of m rows and k columns (64-byte aligned parts), and the struct laid over that memory. */
size_t act_bytes(int64_t m, int64_t k, int planes);
ActQ act_view(void *memory, int64_t m_capacity, int64_t m, int64_t k, int planes);

/* ---- epilogue of a matmul: y = acc; then + bias[column] when given; then + residual[row][column] when given ---- */
typedef struct Epilogue {
    const float *bias;     /* [n] or NULL */
    const float *residual; /* [m][ld_residual] or NULL; may be y itself */
    int64_t ld_residual;
} Epilogue;

/* ---- attention ------------------------------------------------------------------------------------------------------
 * The KV cache of one layer is an array of blocks of 64 positions. A block, fp16 (round to nearest even):
 *   K [kv_heads][head_dim][64], then V [kv_heads][64][head_dim].
 * head_dim is a multiple of 16 up to 256. Position p of a sequence is slot p % 64 of block table[p / 64]. */
typedef struct KvShape {
    int kv_heads, head_dim;
} KvShape;
static inline size_t kv_block_bytes(KvShape s) {
    return (size_t)2 * 2 * KV_BLOCK * (size_t)s.kv_heads * (size_t)s.head_dim;
}

/* A run of rows of one sequence at consecutive positions, against one KV head and query heads [q_head0, q_head1) that
 * share it. For each row t (0 <= t < n_rows) and head h, with position p = pos0 + t, or p = n_keys - 1 when n_keys is
 * given, over the blocks b that hold positions w..p, in order, where w = 0, or max(0, p - window + 1) with a window;
 * slots outside w..p are skipped:
 *   s[j] = scale * dot(q, k_j): fmaf over d = 0 .. head_dim-1 from 0, then one multiplication by scale; with a softcap
 *          then s[j] = softcap(s[j]) as in Kernels.softcap;
 *   mb = max over the block's j; e[j] = kernel exp(s[j] - mb), 0 for skipped slots; lb = the lane sum of e[0..64);
 *   ob[d] = fmaf(e[j], v_j[d], .) over j in order from 0;
 *   from M = -infinity, L = 0, O = 0: N = max(M, mb), a = exp(M - N), c = exp(mb - N),
 *   L = fmaf(L, a, lb * c), O[d] = fmaf(O[d], a, ob[d] * c), M = N.
 * out[t][h] = O / L (division). q and out: row t, head h at q + t*ldq + h*head_dim. */
typedef struct AttnRun {
    const float *q;
    float *out;
    int64_t ldq, ldo;
    int q_head0, q_head1; /* local query heads */
    int kv_head;          /* local KV head */
    float scale;
    KvShape shape;
    const uint8_t *blocks; /* the layer's cache: block i at blocks + i * kv_block_bytes */
    const int32_t *table;  /* the sequence's blocks */
    int64_t pos0, n_rows;  /* n_rows <= ATTN_ROWS */
    int64_t window;        /* positions a query sees, itself included; 0: all before it */
    float softcap;         /* 0: none */
    int64_t n_keys;        /* positions that every row sees, whatever its own; 0: those up to its own (causal) */
} AttnRun;
enum { ATTN_ROWS = 16 };

typedef struct Kernels {
    const char *name; /* "ref", "avx2", "avx512vnni" */

    /* Rows [row0, row1) of x (row r at x + r*ldx, a->k values) into `a` (a->m rows in all). */
    void (*quantise)(const float *x, int64_t ldx, int64_t row0, int64_t row1, ActQ *a);

    /* One row: s = lane sum of fmaf(x, x, .); r = 1 / sqrtf(s / n + eps); y = (x * r) * w. y may be x. */
    void (*rmsnorm)(const float *x, const float *w, float eps, int64_t n, float *y);
    /* One row: mean = lane sum of x / n; d = x - mean; s = lane sum of fmaf(d, d, .); r = 1 / sqrtf(s / n + eps);
     * y = fmaf(d * r, w, b). y may be x. */
    void (*layernorm)(const float *x, const float *w, const float *b, float eps, int64_t n, float *y);

    /* For quantised weight types, y[r][c] = acc after all groups g of 32 in order, from 0. dot: the exact integer sum
     * of v_w * code_a over the values that share a scale, v_w = code - zero_point, or codebook[code]; sum_a: of their
     * code_a. A group with one scale:
     *   acc = fmaf((float)dot, d_w * d_a, acc);
     *   with minima, then acc = fmaf(min_w, d_a * (float)sum_a, acc).
     * With a scale for each half of 16:
     *   t = (float)dot[0] * d_w[0]; t = fmaf((float)dot[1], d_w[1], t);
     *   with minima, then t = fmaf(min_w[h], (float)sum_a[h], t) for h = 0 and 1;
     *   acc = fmaf(t, d_a, acc).
     * Then the epilogue. d_w: the file's fp16 scale, or under super-blocks d * (float)scale; min_w: the fp16 minimum,
     * or
     * -(dmin * (float)min). Row blocks of 64 [block0, block1) of `a`, panels [panel0, panel1). y: row r at y + r*ldy;
     * only columns < w->n are written. */
    void (*matmul_q)(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0,
                     int64_t panel1, float *y, int64_t ldy, const Epilogue *ep);

    /* The same for F32, F16, BF16 weights (widened exactly): acc = fmaf(w, x, acc) over k in order, from 0; rows
     * [row0, row1) of x. */
    void (*matmul_f)(const PackedWeights *w, const float *x, int64_t ldx, int64_t row0, int64_t row1, int64_t panel0,
                     int64_t panel1, float *y, int64_t ldy, const Epilogue *ep);

    /* y = silu(gate) * up, element-wise over n: silu(g) = g / (1 + exp(-g)). y may be gate or up. */
    void (*silu_mul)(const float *gate, const float *up, int64_t n, float *y);
    /* gelu(g) * up with gelu by tanh: g / (1 + exp(-(g * t))), t = fmaf(g * g, GELU_C1, GELU_C0) (kernels/table.h). */
    void (*gelu_mul)(const float *gate, const float *up, int64_t n, float *y);
    /* x Phi(x), Phi the normal distribution: gelu by erf (arXiv:1606.08415). With a = min(|x|, 14), t = 1 / fmaf(a,
     * TAIL_P, 1): h = exp(a * a * -0.5) * (t * polynomial in t by fmaf); y = fmaf(-a, h, max(x, 0)). Error below 1e-7
     * for x < 1, and below 7e-7 of the result for x > -4. y may be x. */
    void (*gelu)(const float *x, int64_t n, float *y);
    /* cap * tanh(x / cap): cap * (1 - 2 / (exp(x * (2 / cap)) + 1)). y may be x. */
    void (*softcap)(const float *x, float cap, int64_t n, float *y);
    void (*scale)(const float *x, float factor, int64_t n, float *y);      /* y may be x */
    void (*add_scaled)(const float *x, float factor, int64_t n, float *y); /* y = fmaf(x, factor, y) */
    void (*relu)(const float *x, int64_t n, float *y);                     /* 0 > x ? 0 : x; NaN -> NaN, -0 -> -0 */
    void (*add)(const float *a, const float *b, int64_t n, float *y);      /* y may be a or b */

    /* In place on n_heads heads of one row: pairs (x0, x1) -> (x0*c - x1*s, x0*s + x1*c), each as
     * fmaf(x0, c, -(x1 * s)) and fmaf(x0, s, x1 * c). cs: [rope_dim/2][2] cosine, sine. Pairs are (2i, 2i+1), or
     * (i, i + rope_dim/2) when neox. Dimensions >= rope_dim are left alone. */
    void (*rope)(float *x, int n_heads, int head_dim, int rope_dim, bool neox, const float *cs);

    /* One position's keys and values, [kv_heads][head_dim] each, into slot 0..63 of a block. */
    void (*kv_store)(uint8_t *block, KvShape s, int slot, const float *k, const float *v);
    void (*attention)(const AttnRun *run);

    /* Over n logits: *max (never -0), and *sum = lane sum of exp(x - max). NaN if any is NaN. */
    void (*logsumexp)(const float *x, int64_t n, float *max, float *sum);
    /* The k largest of n (k <= n), descending, equal values by lower index first, NaN below everything. ids are offsets
     * into x + id0. Meant for small k: time grows with k times the number of values that ever were among the k largest.
     */
    void (*topk)(const float *x, int64_t n, int k, int32_t id0, int32_t *ids, float *values);

    /* dst[i] = ((src[0][i] + src[1][i]) + src[2][i]) + ...; dst may be one of src. n_src >= 1. */
    void (*sum)(const float *const *src, int n_src, int64_t n, float *dst);
    void (*to_bf16)(const float *x, int64_t n, uint16_t *y);
    void (*from_bf16)(const uint16_t *x, int64_t n, float *y);
} Kernels;

/* exp as all kernels compute it, the definition for the vector versions (kernels/ref.c): n = rint(x * log2e) after
 * clamping x to at most 88.72; r = fmaf(n, -ln2_hi, x), fmaf(n, -ln2_lo, r); a polynomial in r by fmaf; times 2^n.
 * Below -87.33 the result is 0; NaN -> NaN. Relative error < 2e-7 (largest found: 7.7e-8). */
float kernel_exp(float x);

/* The best table this CPU can run, or the one that `forced` names (NULL or "": best). Error when the name is unknown or
 * the CPU cannot run it, listing those that it can. Local. */
int kernels_select(const char *forced, const Kernels **out, Err *e);
/* Tables this build has, in ascending order of preference; *n how many; `runnable` whether this CPU can. */
const Kernels *kernels_at(int i, bool *runnable); /* NULL past the end */
/* Index of a table in that order, to agree on the lowest over ranks. */
int kernels_index(const Kernels *k);
