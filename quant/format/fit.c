/* The scale (and minimum) of one group for which rounding to the levels of its codes makes the least squared error.
 *
 * Once the levels v are fixed, the best scale and minimum are those of a linear least-squares fit; once these are
 * fixed, the best levels are the nearest ones. Neither step makes the error larger, but where they end depends on where
 * they begin, so a range of scales around the one that the extremes suggest is tried, and the best is improved in
 * turns. */
#include "quant/internal.h"

#include <math.h>

enum { GROUP_MAX = 32, TRIES = 9, TURNS = 3 };

/* Rounds to the nearest integer for |x| < 2^22, ties to even: the sum has no bits left behind the point. (A call of
 * rintf for each value took 4 times as long, SSE2 having no instruction for it.) */
static float nearest_integer(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* A binary search between the midpoints of neighbouring values. */
int iq4_nearest(float x) {
    int code = 0;
    for (int step = 8; step; step /= 2) {
        int i = code + step;
        if (2.0f * x > (float)(iq4_codebook[i - 1] + iq4_codebook[i])) code = i;
    }
    return code;
}

static float lowest(const QTypeInfo *q) { return q->codebook ? (float)q->codebook[0] : (float)-q->zero_point; }
static float highest(const QTypeInfo *q) {
    int last = (1 << q->bits) - 1;
    return (float)(q->codebook ? q->codebook[last] : last - q->zero_point);
}

/* Each value climbs the codebook as long as it is above the next midpoint: all values go together, in vectors (twice
 * as fast as a search for each). */
static void round_to_codebook(int n, float *v) {
    float y[GROUP_MAX];
    for (int i = 0; i < n; i++) {
        y[i] = 2.0f * v[i];
        v[i] = (float)iq4_codebook[0];
    }
    for (int code = 1; code < 16; code++) {
        float middle = (float)(iq4_codebook[code - 1] + iq4_codebook[code]); /* doubled, as y is */
        float step = (float)(iq4_codebook[code] - iq4_codebook[code - 1]);
        for (int i = 0; i < n; i++) v[i] += y[i] > middle ? step : 0.0f;
    }
}

/* v[i]: the level nearest to (x[i] + shift) * inverse. */
static void round_to_levels(const QTypeInfo *q, const float *x, float shift, float inverse, float *v) {
    float low = lowest(q), high = highest(q);
    for (int i = 0; i < q->group; i++) {
        float y = (x[i] + shift) * inverse;
        v[i] = y > low ? y < high ? y : high : low; /* NaN: low */
    }
    if (q->codebook) round_to_codebook(q->group, v);
    else
        for (int i = 0; i < q->group; i++) v[i] = nearest_integer(v[i]);
}

static float squared_error(const QTypeInfo *q, const float *x, Fit f, const float *v) {
    float lanes[4] = {0};
    for (int i = 0; i < q->group; i += 4)
        for (int l = 0; l < 4; l++) {
            float e = f.scale * v[i + l] - f.min - x[i + l];
            lanes[l] += e * e;
        }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

float fit_levels(const QTypeInfo *q, const float *x, Fit f, float *v) {
    round_to_levels(q, x, f.min, f.scale != 0.0f ? 1.0f / f.scale : 0.0f, v);
    return squared_error(q, x, f, v);
}

/* The sums that a fit needs. */
typedef struct Sums {
    float v, x, vv, xv;
} Sums;

static Sums sums_of(int n, const float *x, const float *v) {
    float sv[4] = {0}, sx[4] = {0}, svv[4] = {0}, sxv[4] = {0};
    for (int i = 0; i < n; i += 4)
        for (int l = 0; l < 4; l++) {
            sv[l] += v[i + l];
            sx[l] += x[i + l];
            svv[l] += v[i + l] * v[i + l];
            sxv[l] += x[i + l] * v[i + l];
        }
    return (Sums){(sv[0] + sv[1]) + (sv[2] + sv[3]), (sx[0] + sx[1]) + (sx[2] + sx[3]),
                  (svv[0] + svv[1]) + (svv[2] + svv[3]), (sxv[0] + sxv[1]) + (sxv[2] + sxv[3])};
}

/* Scale and minimum for fixed levels. A minimum is stored unsigned: one below 0 becomes 0. */
static Fit least_squares(const QTypeInfo *q, const float *x, const float *v) {
    Sums s = sums_of(q->group, x, v);
    float n = (float)q->group, det = n * s.vv - s.v * s.v;
    Fit through_zero = {s.vv > 0.0f ? s.xv / s.vv : 0.0f, 0.0f};
    if (!q->has_min) return through_zero;
    if (!(det > 0.0f)) return s.x < 0.0f ? (Fit){0.0f, -s.x / n} : through_zero;
    float scale = (n * s.xv - s.x * s.v) / det, min = (scale * s.v - s.x) / n;
    return min > 0.0f ? (Fit){scale, min} : through_zero;
}

typedef struct Best {
    Fit fit;
    float error;
} Best;

/* Fits to the levels under `start`, and keeps that when it is the best so far. */
static void try_fit(const QTypeInfo *q, const float *x, Fit start, Best *best) {
    float v[GROUP_MAX] = {0};
    round_to_levels(q, x, start.min, start.scale != 0.0f ? 1.0f / start.scale : 0.0f, v);
    Fit f = least_squares(q, x, v);
    float error = squared_error(q, x, f, v);
    if (error < best->error) *best = (Best){f, error};
}

/* Without a minimum: the value of the largest magnitude near the level `edge`, by tenths of the step `gap` there. */
static void try_edge(const QTypeInfo *q, const float *x, float extreme, float edge, float gap, Best *best) {
    for (int i = -TRIES; i <= TRIES; i++) try_fit(q, x, (Fit){extreme / (edge + 0.1f * gap * (float)i), 0.0f}, best);
}

/* With one: the range of the values, and 0, over the levels and a little less or more. */
static void try_range(const QTypeInfo *q, const float *x, float min, float max, Best *best) {
    float low = min < 0.0f ? min : 0.0f;
    for (int i = -TRIES; i <= TRIES; i++)
        try_fit(q, x, (Fit){(max - low) / (highest(q) + 0.1f * (float)i), -low}, best);
}

Fit fit_group(const QTypeInfo *q, const float *x) {
    float min = x[0], max = x[0], nothing[GROUP_MAX] = {0};
    for (int i = 1; i < q->group; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    Best best = {{0}, 0};
    best.error = fit_levels(q, x, best.fit, nothing);
    if (q->has_min) try_range(q, x, min, max, &best);
    else {
        float extreme = max > -min ? max : min;
        const int8_t *book = q->codebook;
        try_edge(q, x, extreme, lowest(q), book ? (float)(book[1] - book[0]) : 1.0f, &best);
        try_edge(q, x, extreme, highest(q), book ? (float)(book[15] - book[14]) : 1.0f, &best);
    }
    for (int i = 0; i < TURNS; i++) try_fit(q, x, best.fit, &best);
    return best.fit;
}
