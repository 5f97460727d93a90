/* fp16 (IEEE 754 binary16) and bfloat16 (the upper half of binary32), to and from fp32. */
#include "quant/qtype.h"

#include <string.h>

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* zero and subnormals: exact */
    return sign ? -tiny : tiny;
}

uint16_t f32_to_f16(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff)); /* a quiet NaN */
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);                              /* 2^16 and above */
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 rounds to steps of 2^-24, the last bits are the result */
        uint32_t rounded = bits_of(float_of(magnitude) + 0.5f);
        return (uint16_t)(sign | (rounded - 0x3f000000));
    }
    magnitude += 0xfff + ((magnitude >> 13) & 1); /* ties to even; may carry into the exponent, up to infinity */
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

uint16_t f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* a quiet NaN */
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
