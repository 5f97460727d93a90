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

/* Blocks of a file, n rows of k: random codes, or all at the end of their range; scales up to 1/8, now and then zero or
 * subnormal. CODES_WILD: any bytes at all. */
static inline uint8_t *random_blocks(QType t, int64_t n, int64_t k, Codes codes) {
    const QTypeInfo *info = qtype_info(t);
    size_t bytes;
    if (!qtype_bytes(t, (uint64_t)(n * k), &bytes)) abort();
    uint8_t *p = test_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)random_u32();
    if (codes == CODES_WILD) return p;
    for (size_t i = 0; i < bytes; i += (size_t)info->block_bytes) {
        uint16_t scale = f32_to_f16(random_float() * (random_u32() % 16 == 0 ? 0x1p-16f : 0.125f));
        uint16_t min = f32_to_f16(random_float());
        float f = random_float();
        uint16_t h = t == QT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
        if (!info->quantised) {
            memcpy(p + i, info->block_bytes == 4 ? (void *)&f : (void *)&h, (size_t)info->block_bytes);
            continue;
        }
        size_t head = info->has_min ? 4 : 2;
        uint8_t low = t == QT_Q8_0 ? 0x80 : 0x00, high = t == QT_Q8_0 ? 0x7f : 0xff;
        if (codes != CODES_RANDOM)
            memset(p + i + head, codes == CODES_LOW ? low : high, (size_t)info->block_bytes - head);
        memcpy(p + i, &scale, 2);
        if (info->has_min) memcpy(p + i + 2, &min, 2);
    }
    return p;
}

/* Those rows packed; the caller frees (void *)data. */
static inline PackedWeights pack_weights(QType t, int64_t n, int64_t k, const uint8_t *blocks) {
    size_t row, panel;
    if (!qtype_bytes(t, (uint64_t)k, &row) || !packed_panel_bytes(t, k, &panel)) abort();
    uint8_t *data = test_alloc(panel * (size_t)packed_panels(n));
    for (int64_t p = 0; p < packed_panels(n); p++) {
        const void *rows[PANEL];
        int count = n - p * PANEL < PANEL ? (int)(n - p * PANEL) : PANEL;
        for (int i = 0; i < count; i++) rows[i] = blocks + (size_t)(p * PANEL + i) * row;
        pack_panel(t, k, rows, count, data + (size_t)p * panel);
    }
    return (PackedWeights){.type = t, .n = n, .k = k, .data = data};
}

static inline ActQ act_alloc(int64_t m, int64_t k, int planes) {
    return act_view(test_alloc(act_bytes(m, k, planes)), m, m, k, planes);
}
