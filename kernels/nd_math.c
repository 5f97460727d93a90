/* Elementary functions as fp32, by steps that are the same on every CPU (libm picks code by CPU for some of them). */
#include "base/detmath.h"
#include "kernels/kernels.h"
#include "kernels/nd_internal.h"

float nd_tanh(float x) {
    float a = fabsf(x), s = x * x;
    /* x - x^3/3 + 2x^5/15: the next term is below 1e-8 of x there; the quotient would lose digits. */
    if (a < 0.1f) return x + x * s * (-1.0f / 3 + s * (2.0f / 15 - s * (17.0f / 315)));
    float e = kernel_exp(-2 * a), t = (1 - e) / (1 + e);
    return x < 0 ? -t : t; /* NaN: t is NaN */
}

/* Below 1 the Maclaurin series (Abramowitz and Stegun 7.1.5), above it the rational approximation 7.1.26, whose error
 * is at most 1.5e-7. */
float nd_erf(float x) {
    float a = fabsf(x);
    if (a < 1) {
        float s = -x * x, term = x, sum = x;
        for (int n = 1; n <= 10; n++) {
            term *= s / (float)n;
            sum += term / (float)(2 * n + 1);
        }
        return 1.1283791671f * sum;
    }
    float t = 1 / (1 + 0.3275911f * a);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float y = 1 - p * kernel_exp(-a * a);
    return x < 0 ? -y : y;
}

float nd_log(float x) { return (float)det_log((double)x); }
