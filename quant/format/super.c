/* Quantisers of blocks that search for their scales: every group gets the scale (and minimum) that fits it best; then
 * the block's d and dmin and the groups' small integers are chosen in turns so that the squared error gets less. */
#include "quant/internal.h"

#include <math.h>

enum { TURNS = 3 };

/* A choice for a whole block, with the level v[i] of every value. */
typedef struct Choice {
    QBlock parts;
    float v[QBLOCK_MAX];
    float error;
} Choice;

/* What a group's scale and minimum can be. */
typedef struct Range {
    int low, high;
} Range;

static Range scale_range(const QTypeInfo *q) {
    if (!q->scale_bits) return (Range){1, 1};
    if (q->has_min) return (Range){0, (1 << q->scale_bits) - 1};
    return (Range){-(1 << (q->scale_bits - 1)), (1 << (q->scale_bits - 1)) - 1};
}

/* fp16, but not 0 for what is not: the integers of the groups then do what they can. */
static uint16_t to_scale(float d) {
    uint16_t h = f32_to_f16(d);
    return (h & 0x7fff) || d == 0.0f || isnan(d) ? h : (uint16_t)(h | 1);
}

/* The integer nearest to x / d, within `r`. */
static int ratio(float x, float d, Range r) {
    float y = d != 0.0f ? rintf(x / d) : 0.0f;
    return y >= (float)r.high ? r.high : y > (float)r.low ? (int)y : r.low;
}

static int at_least(int x, int low) { return x > low ? x : low; }
static int at_most(int x, int high) { return x < high ? x : high; }

/* Group g's integers for given d and dmin: the nearest to what fits it best, or their neighbours. */
static void choose_group(const QTypeInfo *q, const float *x, Fit best, int g, Choice *c) {
    QBlock *b = &c->parts;
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin), v[QBLOCK_MAX], least = INFINITY;
    Range r = scale_range(q);
    int scale = ratio(best.scale, d, r), min = q->has_min ? ratio(best.min, dmin, r) : 0, reach = q->has_min;
    b->scale[g] = (int8_t)scale;
    b->min[g] = (int8_t)min;
    for (int s = at_least(scale - 1, r.low); s <= at_most(scale + 1, r.high); s++)
        for (int m = at_least(min - reach, 0); m <= at_most(min + reach, q->has_min ? r.high : 0); m++) {
            float error = fit_levels(q, x, (Fit){d * (float)s, dmin * (float)m}, v);
            if (!(error < least)) continue;
            least = error;
            b->scale[g] = (int8_t)s;
            b->min[g] = (int8_t)m;
            for (int i = 0; i < q->group; i++) c->v[g * q->group + i] = v[i];
        }
    c->error += least;
}

/* d and dmin that fit the block best with the groups' integers and levels as they are: x ~ d * (s v) - dmin * m. */
static void refit(const QTypeInfo *q, const float *x, Choice *c) {
    double uu = 0, um = 0, mm = 0, xu = 0, xm = 0;
    for (int i = 0; i < q->block; i++) {
        int g = i / q->group;
        double u = (double)c->parts.scale[g] * (double)c->v[i], m = c->parts.min[g];
        uu += u * u;
        um += u * m;
        mm += m * m;
        xu += (double)x[i] * u;
        xm += (double)x[i] * m;
    }
    double det = uu * mm - um * um;
    if (q->has_min && det > 0) {
        c->parts.d = to_scale((float)((xu * mm - xm * um) / det));
        c->parts.dmin = to_scale((float)((xu * um - xm * uu) / det));
    } else if (uu > 0) c->parts.d = to_scale((float)(xu / uu));
}

/* The largest scale and minimum of the groups set d and dmin: the largest integers stand for them. */
static void start(const QTypeInfo *q, const Fit *fit, QBlock *b) {
    float scale = 0, min = 0;
    for (int g = 0; g < q->block / q->group; g++) {
        scale = fabsf(fit[g].scale) > fabsf(scale) ? fit[g].scale : scale;
        min = fit[g].min > min ? fit[g].min : min;
    }
    Range r = scale_range(q);
    b->d = to_scale(scale / (float)(r.low < 0 ? r.low : r.high));
    b->dmin = to_scale(min / (float)r.high);
}

static void set_codes(const QTypeInfo *q, Choice *c) {
    for (int i = 0; i < q->block; i++)
        c->parts.code[i] = (int8_t)(q->codebook ? iq4_nearest(c->v[i]) : (int)c->v[i] + q->zero_point);
}

void quantise_by_search(const QTypeInfo *q, const float *x, QBlock *out) {
    Fit fit[QBLOCK_GROUPS];
    int groups = q->block / q->group;
    for (int g = 0; g < groups; g++) fit[g] = fit_group(q, x + (ptrdiff_t)g * q->group);
    Choice c = {0}, best = {.error = INFINITY};
    start(q, fit, &c.parts);
    for (int turn = 0; turn < TURNS; turn++) {
        c.error = 0;
        for (int g = 0; g < groups; g++) choose_group(q, x + (ptrdiff_t)g * q->group, fit[g], g, &c);
        if (turn == 0 || c.error < best.error) best = c;
        refit(q, x, &c);
    }
    set_codes(q, &best);
    *out = best.parts;
}
