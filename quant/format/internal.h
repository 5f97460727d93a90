/* What the files of this layer share. */
#pragma once

#include "quant/qtype.h"

static inline uint16_t get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline void put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* The values of the codes of IQ4_NL and IQ4_XS, and the code whose value is nearest to x (NaN: 0). */
extern const int8_t iq4_codebook[16];
int iq4_nearest(float x);

/* ---- quantisers of one block: q->block values -> scales, minima, codes: all of `out` ---- */
typedef void QuantiseBlock(const QTypeInfo *q, const float *x, QBlock *out);
QuantiseBlock quantise_by_extremes; /* of blocks of one linear group (quantise.c) */
QuantiseBlock quantise_by_search;   /* of any block (super.c) */

/* ---- least-squares fits of one group (fit.c): x ~ scale * v - min, v the levels of q's codes, min >= 0 ---- */
typedef struct Fit {
    float scale, min; /* min 0 without minima */
} Fit;
/* The fit with the least squared error found. */
Fit fit_group(const QTypeInfo *q, const float *x);
/* v[group]: the levels nearest to the values under `f`; returns the squared error. */
float fit_levels(const QTypeInfo *q, const float *x, Fit f, float *v);
