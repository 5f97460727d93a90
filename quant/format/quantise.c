/* Quantisers of single groups with linear codes, which take the scale from the group's extreme values, as ggml's
 * reference quantisers do: the blocks come out the same to the bit. */
#include "quant/internal.h"

#include <math.h>

/* The code of a value that is already scaled and shifted: cut to an integer in 0..most; NaN gives 0. */
static int8_t cut(float x, int most) { return (int8_t)(x >= (float)most ? most : x > 0.0f ? (int)x : 0); }

static float inverse_of(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

/* Q8_0: scale = amax / 127, codes rounded half away from zero. */
static void quantise_signed(const float *x, QBlock *out) {
    float amax = 0.0f;
    for (int j = 0; j < 32; j++) amax = fabsf(x[j]) > amax ? fabsf(x[j]) : amax;
    float scale = amax / 127.0f, inverse = inverse_of(scale);
    out->d = f32_to_f16(scale);
    for (int j = 0; j < 32; j++) {
        float c = roundf(x[j] * inverse);
        out->code[j] = (int8_t)(c >= 127.0f ? 127 : c > -127.0f ? (int)c : c <= -127.0f ? -127 : 0);
    }
}

/* Q4_0, Q5_0: the value of the largest magnitude becomes code 0, whatever its sign. */
static void quantise_about_zero_point(const QTypeInfo *q, const float *x, QBlock *out) {
    float extreme = 0.0f, zero = (float)q->zero_point;
    for (int j = 0; j < 32; j++) extreme = fabsf(x[j]) > fabsf(extreme) ? x[j] : extreme;
    float scale = extreme / -zero, inverse = inverse_of(scale);
    out->d = f32_to_f16(scale);
    for (int j = 0; j < 32; j++) out->code[j] = cut(x[j] * inverse + (zero + 0.5f), (1 << q->bits) - 1);
}

/* Q4_1, Q5_1: the codes divide the range from the least value to the largest. */
static void quantise_range(const QTypeInfo *q, const float *x, QBlock *out) {
    float min = x[0], max = x[0];
    for (int j = 1; j < 32; j++) {
        min = x[j] < min ? x[j] : min;
        max = x[j] > max ? x[j] : max;
    }
    int most = (1 << q->bits) - 1;
    float scale = (max - min) / (float)most, inverse = inverse_of(scale);
    out->d = f32_to_f16(scale);
    out->dmin = f32_to_f16(min);
    for (int j = 0; j < 32; j++) out->code[j] = cut((x[j] - min) * inverse + 0.5f, most);
}

void quantise_by_extremes(const QTypeInfo *q, const float *x, QBlock *out) {
    *out = (QBlock){.scale = {1}, .min = {q->has_min ? -1 : 0}};
    if (q->has_min) quantise_range(q, x, out);
    else if (q->zero_point) quantise_about_zero_point(q, x, out);
    else quantise_signed(x, out);
}
