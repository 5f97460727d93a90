/* What the kernels' tests share: random inputs, packed random weights, and comparing results bit for bit. */
#pragma once

#include "check.h"

#include "kernels/kernels.h"

#include <math.h>

/* A fixed sequence (xorshift64*), the same in every run. */
static uint64_t random_state = 88172645463325252u;
static inline uint32_t random_u32(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 2685821657736338717u) >> 32);
}
static inline float random_float(void) { return (float)(int32_t)random_u32() * 0x1p-31f; } /* [-1, 1) */
static inline void random_floats(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = random_float();
}
/* Any bit pattern: NaNs, infinities and subnormals among them. */
static inline void wild_floats(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = random_u32();
        memcpy(x + i, &u, sizeof u);
    }
}

static inline void *test_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) abort();
    memset(p, 0x5a, (bytes + 127) / 64 * 64);
    return p;
}
static inline float *floats(int64_t n) { return test_alloc((size_t)n * sizeof(float)); }

/* Equal bit for bit; any NaN equals any NaN. Tells the first difference. */
static inline bool same(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
        fprintf(stderr, "  differs at %lld of %lld: %.9g, %.9g\n", (long long)i, (long long)n, (double)a[i],
                (double)b[i]);
        return false;
    }
    return true;
}

/* The i-th table that this CPU can run, without ref: NULL past the end. */
static inline const Kernels *isa(int i) {
    bool runnable;
    for (int at = 1;; at++) {
        const Kernels *k = kernels_at(at, &runnable);
        if (!k || (runnable && i-- == 0)) return k;
    }
}
static inline const Kernels *ref(void) {
    bool runnable;
    return kernels_at(0, &runnable);
}

typedef enum Codes { CODES_RANDOM, CODES_LOW, CODES_HIGH, CODES_WILD } Codes;

/* All weight types, quantised ones first. */
static const QType weight_types[] = {QT_Q4_0, QT_Q4_1, QT_Q8_0, QT_Q5_0,   QT_Q5_1, QT_IQ4_NL, QT_Q2_K, QT_Q3_K,
                                     QT_Q4_K, QT_Q5_K, QT_Q6_K, QT_IQ4_XS, QT_F32,  QT_F16,    QT_BF16};
enum { N_TYPES = sizeof weight_types / sizeof weight_types[0], N_QUANTISED = N_TYPES - 3 };

static inline int random_in(int low, int high) { return low + (int)(random_u32() % (uint32_t)(high - low + 1)); }

/* A block of a quantised type: group scales up to 1/8, now and then zero or subnormal; minima up to 1. */
static inline void random_block(const QTypeInfo *info, Codes codes, QBlock *b) {
    int most = (1 << info->bits) - 1, low = info->bits == 8 ? -128 : 0, high = low + most;
    int scale_high = info->scale_bits ? (1 << (info->scale_bits - !info->has_min)) - 1 : 1;
    float tiny = random_u32() % 16 == 0 ? 0x1p-16f : 1.0f;
    *b = (QBlock){.d = f32_to_f16(random_float() * tiny * 0.125f / (float)scale_high),
                  .dmin = info->has_min ? f32_to_f16(random_float() / (float)scale_high) : 0};
    for (int g = 0; g < info->block / info->group; g++) {
        b->scale[g] = (int8_t)(info->scale_bits ? random_in(info->has_min ? 0 : -scale_high - 1, scale_high) : 1);
        b->min[g] = (int8_t)(!info->has_min ? 0 : info->scale_bits ? random_in(0, scale_high) : -1);
    }
    for (int i = 0; i < info->block; i++)
        b->code[i] = (int8_t)(codes == CODES_LOW ? low : codes == CODES_HIGH ? high : random_in(low, high));
}

/* Blocks of a file, n rows of k: random codes, or all at the end of their range. CODES_WILD: any bytes at all. */
static inline uint8_t *random_blocks(QType t, int64_t n, int64_t k, Codes codes) {
    const QTypeInfo *info = qtype_info(t);
    size_t bytes;
    if (!qtype_bytes(t, (uint64_t)(n * k), &bytes)) abort();
    uint8_t *p = test_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)random_u32();
    for (size_t i = 0; i < bytes && codes != CODES_WILD; i += (size_t)info->block_bytes) {
        float f = random_float();
        QBlock b;
        if (info->quantised) {
            random_block(info, codes, &b);
            qtype_pack(t, &b, p + i);
        } else qtype_quantise(t, &f, 1, p + i);
    }
    return p;
}

/* Columns [k0, k0 + k) of those rows, of `columns` each, packed; the caller frees (void *)data. */
static inline PackedWeights pack_slice(QType t, int64_t n, int64_t columns, const uint8_t *blocks, int64_t k0,
                                       int64_t k) {
    const QTypeInfo *info = qtype_info(t);
    size_t row, panel;
    int skip = packed_skip(t, k0);
    if (!qtype_bytes(t, (uint64_t)columns, &row) || !packed_panel_bytes(t, skip, k, &panel)) abort();
    uint8_t *data = test_alloc(panel * (size_t)packed_panels(n));
    for (int64_t p = 0; p < packed_panels(n); p++) {
        const void *rows[PANEL];
        int count = n - p * PANEL < PANEL ? (int)(n - p * PANEL) : PANEL;
        for (int i = 0; i < count; i++)
            rows[i] = blocks + (size_t)(p * PANEL + i) * row + (size_t)(k0 / info->block) * (size_t)info->block_bytes;
        pack_panel(t, skip, k, rows, count, data + (size_t)p * panel);
    }
    return (PackedWeights){.type = t, .n = n, .k = k, .data = data, .skip = skip};
}

/* Whole rows. */
static inline PackedWeights pack_weights(QType t, int64_t n, int64_t k, const uint8_t *blocks) {
    return pack_slice(t, n, k, blocks, 0, k);
}

static inline ActQ act_alloc(int64_t m, int64_t k, int planes) {
    return act_view(test_alloc(act_bytes(m, k, planes)), m, m, k, planes);
}
