/* Where the parts of a block lie in a file: one table, and how the scales of super-blocks are squeezed into bytes. All
 * numbers are little-endian. */
#include "quant/internal.h"

#include <string.h>

/* Some bits of all codes of a block, in runs of `width` bytes: byte j of a run has the bits of the values j, width + j,
 * 2 * width + j, ... of the run, from its lowest bits up. They count 1 << shift in the code. */
typedef struct Plane {
    int at, bits, width, shift;
} Plane;

typedef void GetScales(const uint8_t *p, QBlock *b);
typedef void PutScales(const QBlock *b, uint8_t *p);
static GetScales get_q2_k, get_q3_k, get_q45_k, get_q6_k, get_iq4_xs;
static PutScales put_q2_k, put_q3_k, put_q45_k, put_q6_k, put_iq4_xs;

typedef struct Layout {
    int d, dmin; /* offset of the fp16 scale and minimum; dmin NONE: there is none */
    int n_planes;
    Plane plane[2];
    int scales; /* offset of the groups' scales */
    GetScales *get;
    PutScales *put;
} Layout;

enum { NONE = -1 };
static const Layout layouts[QT_COUNT] = {
    [QT_Q4_0] = {0, NONE, 1, {{2, 4, 16, 0}}, 0, NULL, NULL},
    [QT_Q4_1] = {0, 2, 1, {{4, 4, 16, 0}}, 0, NULL, NULL},
    [QT_Q5_0] = {0, NONE, 2, {{6, 4, 16, 0}, {2, 1, 1, 4}}, 0, NULL, NULL},
    [QT_Q5_1] = {0, 2, 2, {{8, 4, 16, 0}, {4, 1, 1, 4}}, 0, NULL, NULL},
    [QT_Q8_0] = {0, NONE, 1, {{2, 8, 32, 0}}, 0, NULL, NULL},
    [QT_IQ4_NL] = {0, NONE, 1, {{2, 4, 16, 0}}, 0, NULL, NULL},
    [QT_Q2_K] = {80, 82, 1, {{16, 2, 32, 0}}, 0, get_q2_k, put_q2_k},
    [QT_Q3_K] = {108, NONE, 2, {{32, 2, 32, 0}, {0, 1, 32, 2}}, 96, get_q3_k, put_q3_k},
    [QT_Q4_K] = {0, 2, 1, {{16, 4, 32, 0}}, 4, get_q45_k, put_q45_k},
    [QT_Q5_K] = {0, 2, 2, {{48, 4, 32, 0}, {16, 1, 32, 4}}, 4, get_q45_k, put_q45_k},
    [QT_Q6_K] = {208, NONE, 2, {{0, 4, 64, 0}, {128, 2, 32, 4}}, 192, get_q6_k, put_q6_k},
    [QT_IQ4_XS] = {0, NONE, 1, {{8, 4, 16, 0}}, 2, get_iq4_xs, put_iq4_xs},
};

/* ---- scales of the groups ---- */

/* Q2_K, 16 bytes: byte g has the scale of group g in its low nibble, the minimum in the high one. */
static void get_q2_k(const uint8_t *p, QBlock *b) {
    for (int g = 0; g < 16; g++) {
        b->scale[g] = (int8_t)(p[g] & 15);
        b->min[g] = (int8_t)(p[g] >> 4);
    }
}

static void put_q2_k(const QBlock *b, uint8_t *p) {
    for (int g = 0; g < 16; g++) p[g] = (uint8_t)(b->scale[g] | b->min[g] << 4);
}

/* Q3_K, 12 bytes, scale + 32 of 6 bits: the low four in bytes 0..7 (groups 0..7 in the low nibbles, 8..15 in the high
 * ones), the high two in bytes 8..11 (group g in byte 8 + g % 4, from bit 2 * (g / 4)). */
static void get_q3_k(const uint8_t *p, QBlock *b) {
    for (int g = 0; g < 16; g++) {
        int low = p[g % 8] >> 4 * (g / 8) & 15, high = p[8 + g % 4] >> 2 * (g / 4) & 3;
        b->scale[g] = (int8_t)((low | high << 4) - 32);
    }
}

static void put_q3_k(const QBlock *b, uint8_t *p) {
    memset(p, 0, 12);
    for (int g = 0; g < 16; g++) {
        int s = b->scale[g] + 32;
        p[g % 8] = (uint8_t)(p[g % 8] | (s & 15) << 4 * (g / 8));
        p[8 + g % 4] = (uint8_t)(p[8 + g % 4] | (s >> 4) << 2 * (g / 4));
    }
}

/* Q4_K and Q5_K, 12 bytes, scales and minima of 6 bits: those of groups 0..3 in the low six bits of bytes 0..3 and
 * 4..7; of groups 4..7 the low four bits in bytes 8..11 (scale in the low nibble), the high two above those six bits.
 */
static void get_q45_k(const uint8_t *p, QBlock *b) {
    for (int g = 0; g < 4; g++) {
        b->scale[g] = (int8_t)(p[g] & 63);
        b->min[g] = (int8_t)(p[g + 4] & 63);
        b->scale[g + 4] = (int8_t)((p[g + 8] & 15) | p[g] >> 6 << 4);
        b->min[g + 4] = (int8_t)(p[g + 8] >> 4 | p[g + 4] >> 6 << 4);
    }
}

static void put_q45_k(const QBlock *b, uint8_t *p) {
    for (int g = 0; g < 4; g++) {
        p[g] = (uint8_t)(b->scale[g] | b->scale[g + 4] >> 4 << 6);
        p[g + 4] = (uint8_t)(b->min[g] | b->min[g + 4] >> 4 << 6);
        p[g + 8] = (uint8_t)((b->scale[g + 4] & 15) | (b->min[g + 4] & 15) << 4);
    }
}

/* Q6_K: 16 signed bytes. */
static void get_q6_k(const uint8_t *p, QBlock *b) { memcpy(b->scale, p, 16); }
static void put_q6_k(const QBlock *b, uint8_t *p) { memcpy(p, b->scale, 16); }

/* IQ4_XS, scale + 32 of 6 bits: the high two of group g in a 16-bit number from bit 2 * g, then 4 bytes with the low
 * four, group 2 * i in the low nibble of byte i, group 2 * i + 1 in the high one. */
static void get_iq4_xs(const uint8_t *p, QBlock *b) {
    for (int g = 0; g < 8; g++) {
        int high = get_u16(p) >> 2 * g & 3, low = p[2 + g / 2] >> 4 * (g % 2) & 15;
        b->scale[g] = (int8_t)((low | high << 4) - 32);
    }
}

static void put_iq4_xs(const QBlock *b, uint8_t *p) {
    int high = 0;
    memset(p, 0, 6);
    for (int g = 0; g < 8; g++) {
        int s = b->scale[g] + 32;
        high |= (s >> 4) << 2 * g;
        p[2 + g / 2] = (uint8_t)(p[2 + g / 2] | (s & 15) << 4 * (g % 2));
    }
    put_u16(p, (uint16_t)high);
}

/* ---- whole blocks ---- */

static void get_plane(const Plane *f, const uint8_t *block, int n, int8_t *code) {
    const uint8_t *p = block + f->at;
    int mask = (1 << f->bits) - 1;
    for (int i = 0; i < n; p += f->width)
        for (int low = 0; low < 8; low += f->bits)
            for (int j = 0; j < f->width; j++, i++) code[i] = (int8_t)(code[i] | (p[j] >> low & mask) << f->shift);
}

static void put_plane(const Plane *f, const int8_t *code, int n, uint8_t *block) {
    uint8_t *p = block + f->at;
    int mask = (1 << f->bits) - 1;
    for (int i = 0; i < n; p += f->width)
        for (int low = 0; low < 8; low += f->bits)
            for (int j = 0; j < f->width; j++, i++) p[j] = (uint8_t)(p[j] | (code[i] >> f->shift & mask) << low);
}

void qtype_unpack(QType t, const void *block, QBlock *out) {
    const QTypeInfo *q = qtype_info(t);
    const Layout *l = &layouts[t];
    const uint8_t *p = block;
    *out = (QBlock){.d = get_u16(p + l->d)};
    if (l->dmin != NONE) out->dmin = get_u16(p + l->dmin);
    if (l->get) l->get(p + l->scales, out);
    else {
        out->scale[0] = 1;
        out->min[0] = q->has_min ? -1 : 0;
    }
    for (int i = 0; i < l->n_planes; i++) get_plane(&l->plane[i], p, q->block, out->code);
}

void qtype_pack(QType t, const QBlock *b, void *block) {
    const QTypeInfo *q = qtype_info(t);
    const Layout *l = &layouts[t];
    uint8_t *p = block;
    memset(p, 0, (size_t)q->block_bytes);
    put_u16(p + l->d, b->d);
    if (l->dmin != NONE) put_u16(p + l->dmin, b->dmin);
    if (l->put) l->put(b, p + l->scales);
    for (int i = 0; i < l->n_planes; i++) put_plane(&l->plane[i], b->code, q->block, p);
}

/* ---- blocks that stand for no numbers ---- */

/* Whether one of `n` numbers of 16 bits, `stride` bytes apart, has all the bits of `exponent`: infinity or NaN. */
static bool any_16(const uint8_t *p, int64_t n, int64_t stride, uint16_t exponent) {
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= (get_u16(p + i * stride) & exponent) == exponent;
    return found;
}

static bool any_32(const uint8_t *p, int64_t n) {
    enum { EXPONENT = 0x7f800000 };
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);
        found |= (v & EXPONENT) == EXPONENT;
    }
    return found;
}

static bool any_broken(QType t, const uint8_t *p, int64_t n) {
    enum { F16_EXPONENT = 0x7c00, BF16_EXPONENT = 0x7f80 };
    const Layout *l = &layouts[t];
    int64_t stride = qtype_info(t)->block_bytes;
    if (t == QT_F32) return any_32(p, n);
    if (t == QT_F16) return any_16(p, n, sizeof(uint16_t), F16_EXPONENT);
    if (t == QT_BF16) return any_16(p, n, sizeof(uint16_t), BF16_EXPONENT);
    return any_16(p + l->d, n, stride, F16_EXPONENT) ||
           (l->dmin != NONE && any_16(p + l->dmin, n, stride, F16_EXPONENT));
}

int64_t qtype_first_broken(QType t, const void *blocks, int64_t n) {
    const uint8_t *p = blocks;
    if (!any_broken(t, p, n)) return -1; /* without a branch for each, so that it costs next to nothing */
    int64_t i = 0;
    while (!any_broken(t, p + i * qtype_info(t)->block_bytes, 1)) i++;
    return i;
}
