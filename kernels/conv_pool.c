/* Pooling: plain loops with the channels innermost, which compilers make vectors of. */
#include <math.h>

#include "base/size.h"
#include "kernels/conv.h"

/* One output pixel from the window [y0, y1) x [x0, x1) of an image. */
static void window_max(const float *image, int64_t w, int64_t c, int64_t y0, int64_t y1, int64_t x0, int64_t x1,
                       float *restrict out) {
    for (int64_t i = 0; i < c; i++) out[i] = -INFINITY;
    for (int64_t y = y0; y < y1; y++) {
        for (int64_t x = x0; x < x1; x++) {
            const float *restrict in = image + (y * w + x) * c;
            for (int64_t i = 0; i < c; i++) out[i] = in[i] <= out[i] ? out[i] : out[i] != out[i] ? out[i] : in[i];
        }
    }
}

static void window_average(const float *image, int64_t w, int64_t c, int64_t y0, int64_t y1, int64_t x0, int64_t x1,
                           float *restrict out) {
    for (int64_t i = 0; i < c; i++) out[i] = 0;
    for (int64_t y = y0; y < y1; y++) {
        for (int64_t x = x0; x < x1; x++) {
            const float *restrict in = image + (y * w + x) * c;
            for (int64_t i = 0; i < c; i++) out[i] += in[i];
        }
    }
    const float count = (float)((y1 - y0) * (x1 - x0));
    for (int64_t i = 0; i < c; i++) out[i] /= count;
}

void conv_pool_rows(ConvPool kind, int64_t h, int64_t w, int64_t c, int64_t size, int64_t stride, int64_t pad,
                    int64_t row0, int64_t row1, const float *x, float *y) {
    const int64_t oh = conv_out(h, size, stride, pad), ow = conv_out(w, size, stride, pad);
    for (int64_t row = row0; row < row1; row++) {
        const float *image = x + row / oh * h * w * c;
        const int64_t top = row % oh * stride - pad;
        for (int64_t col = 0; col < ow; col++) {
            const int64_t left = col * stride - pad;
            const int64_t y0 = i64_max(top, 0), y1 = i64_min(top + size, h);
            const int64_t x0 = i64_max(left, 0), x1 = i64_min(left + size, w);
            float *out = y + (row * ow + col) * c;
            if (kind == CONV_POOL_MAX) window_max(image, w, c, y0, y1, x0, x1, out);
            else window_average(image, w, c, y0, y1, x0, x1, out);
        }
    }
}

void conv_pool(ConvPool kind, int64_t h, int64_t w, int64_t c, int64_t size, int64_t stride, int64_t pad, int64_t n0,
               int64_t n1, const float *x, float *y) {
    const int64_t oh = conv_out(h, size, stride, pad);
    conv_pool_rows(kind, h, w, c, size, stride, pad, n0 * oh, n1 * oh, x, y);
}

void conv_global_average(int64_t h, int64_t w, int64_t c, int64_t n0, int64_t n1, const float *x, float *y) {
    for (int64_t i = n0; i < n1; i++) window_average(x + i * h * w * c, w, c, 0, h, 0, w, y + i * c);
}
