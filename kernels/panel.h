/* The packed formats of quantised weights (laid out as kernels.h says) as constants, so that one body of code serves
 * all types and each use of it compiles to the code of one. */
#pragma once

#include "kernels/table.h"

typedef struct PanelFormat {
    int bits;      /* of a code */
    int halves;    /* scales among 32 values: 1, or 2 of 16 values each */
    int zero;      /* the zero point of the unsigned codes that are multiplied */
    bool has_min;  /* as many minima as scales */
    bool super;    /* scales (and minima) of 8 bits under fp16 ones of a super-block */
    bool nibbles;  /* such a scale and minimum share a byte */
    bool codebook; /* codes are multiplied as iq4_codebook[code] + 128 */
} PanelFormat;

/* All types with a format: TYPE of QT_TYPE. */
#define PANEL_TYPES(X)                                                                                                 \
    X(Q4_0) X(Q4_1) X(Q8_0) X(Q5_0) X(Q5_1) X(IQ4_NL) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS)

static const PanelFormat panel_formats[QT_COUNT] = {
    [QT_Q4_0] = {.bits = 4, .halves = 1, .zero = 8},
    [QT_Q4_1] = {.bits = 4, .halves = 1, .has_min = true},
    [QT_Q8_0] = {.bits = 8, .halves = 1, .zero = 128},
    [QT_Q5_0] = {.bits = 5, .halves = 1, .zero = 16},
    [QT_Q5_1] = {.bits = 5, .halves = 1, .has_min = true},
    [QT_IQ4_NL] = {.bits = 4, .halves = 1, .zero = 128, .codebook = true},
    [QT_Q2_K] = {.bits = 2, .halves = 2, .has_min = true, .super = true, .nibbles = true},
    [QT_Q3_K] = {.bits = 3, .halves = 2, .zero = 4, .super = true},
    [QT_Q4_K] = {.bits = 4, .halves = 1, .has_min = true, .super = true},
    [QT_Q5_K] = {.bits = 5, .halves = 1, .has_min = true, .super = true},
    [QT_Q6_K] = {.bits = 6, .halves = 2, .zero = 32, .super = true},
    [QT_IQ4_XS] = {.bits = 4, .halves = 1, .zero = 128, .super = true, .codebook = true},
};

enum {
    SUPER_GROUPS = SUPER_BLOCK / ACT_GROUP,
    NIBBLE_BYTES = 256, /* the planes of a group's codes: of 4 bits, of 2, of 1 */
    PAIR_BYTES = 128,
    BIT_BYTES = 64,
};

static inline bool has_nibbles(PanelFormat f) { return f.bits >= 4 && f.bits <= 6; }
static inline bool has_pairs(PanelFormat f) { return f.bits == 6 || f.bits < 4; }
static inline bool has_single_bits(PanelFormat f) { return f.bits == 5 || f.bits == 3; }

/* Bytes in a panel of a group's codes and scales, and of a super-block's own scales. */
static inline int code_bytes(PanelFormat f) { return f.bits * PANEL * ACT_GROUP / 8; }
static inline int scale_bytes(PanelFormat f) {
    if (!f.super) return 2 * PANEL * (1 + f.has_min);
    return f.halves * PANEL * (1 + (f.has_min && !f.nibbles));
}
static inline int group_bytes(PanelFormat f) { return code_bytes(f) + scale_bytes(f); }
static inline int header_bytes(PanelFormat f) { return f.super ? 2 * PANEL * (1 + f.has_min) : 0; }

/* The first group after g that stands under another header (not below n_groups: there is none). Without super-blocks
 * all stand under one, of no bytes. */
static inline int64_t header_end(PanelFormat f, int skip, int64_t g, int64_t n_groups) {
    if (!f.super) return n_groups;
    int64_t before = skip / ACT_GROUP, end = (before + g) / SUPER_GROUPS * SUPER_GROUPS + SUPER_GROUPS - before;
    return end < n_groups ? end : n_groups;
}

/* Offset in a panel of the header that group g stands under, and of the group. */
static inline size_t header_at(PanelFormat f, int skip, int64_t g) {
    if (!f.super) return 0;
    int64_t before = skip / ACT_GROUP, block = (before + g) / SUPER_GROUPS, first = block * SUPER_GROUPS - before;
    return (size_t)(block * header_bytes(f) + (first > 0 ? first : 0) * group_bytes(f));
}
static inline size_t group_at(PanelFormat f, int skip, int64_t g) {
    int64_t headers = (skip / ACT_GROUP + g) / SUPER_GROUPS + 1;
    return (size_t)(headers * header_bytes(f) + g * group_bytes(f));
}

/* What the codes of codebook types are multiplied as: the codebook + 128. */
extern const uint8_t iq4_unsigned[16]; /* pack.c */

/* One column of one group: its codes as they are multiplied, w = scale[h] * (code - f.zero) + min[h], h its half. */
typedef struct ColumnGroup {
    uint8_t codes[ACT_GROUP];
    float scale[2], min[2];
} ColumnGroup;
void read_group(PanelFormat f, const uint8_t *panel, int skip, int64_t g, int64_t c, ColumnGroup *out); /* pack.c */
