#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine.h"
#include "image.h"

enum { LARGEST_SIDE = 1 << 14 }; /* that an image is resized to: 2^28 pixels */

/* ---- size -------------------------------------------------------------------------------------------------------- */

static int resized_size(const SheafImage *in, const SheafPreprocess *p, int64_t *width, int64_t *height, Err *e) {
    *width = in->width;
    *height = in->height;
    if (p->resize_width || p->resize_height) {
        if (p->resize) return err_set(e, "an image is resized by its short side or to a width and height, not both");
        *width = p->resize_width;
        *height = p->resize_height;
    } else if (p->resize) {
        int64_t small = i64_min(in->width, in->height), large = i64_max(in->width, in->height), product;
        if (__builtin_mul_overflow(p->resize, large, &product))
            return err_set(e, "resize %" PRId64 " is too large", p->resize);
        *width = small == in->width ? p->resize : product / small;
        *height = small == in->width ? product / small : p->resize;
    } else {
        return 0;
    }
    if (*width < 1 || *height < 1 || *width > LARGEST_SIDE || *height > LARGEST_SIDE)
        return err_set(e,
                       "an image of %" PRId64 " x %" PRId64 " would be resized to %" PRId64 " x %" PRId64
                       "; sides from 1 to %d are possible",
                       in->width, in->height, *width, *height, LARGEST_SIDE);
    return 0;
}

/* Half of what is left over, halves to even numbers as torchvision (Python's round) has it. */
static int64_t margin(int64_t left) { return left / 2 + (left % 4 == 3); }

/* ---- resize and crop --------------------------------------------------------------------------------------------- */

static int find_filter(const char *name, bool *cubic, Err *e) {
    *cubic = name && strcmp(name, "bicubic") == 0;
    if (!name || *cubic || strcmp(name, "bilinear") == 0) return 0;
    return err_set(e, "unknown interpolation '%.40s': bilinear or bicubic", name);
}

static int crop(const SheafImage *in, const SheafPreprocess *p, SheafImage *out, Err *e) {
    int64_t w = p->crop_width ? p->crop_width : in->width, h = p->crop_height ? p->crop_height : in->height;
    if (w < 1 || h < 1 || w > in->width || h > in->height)
        return err_set(e,
                       "%" PRId64 " x %" PRId64 " pixels cannot be cut from an image of %" PRId64 " x %" PRId64
                       ": resize it first",
                       w, h, in->width, in->height);
    *out = (SheafImage){.width = w, .height = h, .rgb = malloc((size_t)w * (size_t)h * 3)};
    if (!out->rgb) return err_set(e, "no memory for an image of %" PRId64 " x %" PRId64, w, h);
    int64_t left = margin(in->width - w), top = margin(in->height - h);
    for (int64_t y = 0; y < h; y++)
        memcpy(out->rgb + y * w * 3, in->rgb + ((top + y) * in->width + left) * 3, (size_t)w * 3);
    return 0;
}

int sheaf_image_fit(const SheafImage *in, const SheafPreprocess *p, SheafImage *out, SheafErr *err) {
    Err *e = err_of(err);
    int64_t width, height;
    bool cubic;
    *out = (SheafImage){0};
    if (find_filter(p->interpolation, &cubic, e) || resized_size(in, p, &width, &height, e)) return -1;
    if (width == in->width && height == in->height) return crop(in, p, out, e);
    SheafImage resized;
    if (image_resize(in, width, height, cubic, &resized, e)) return -1;
    int failed = crop(&resized, p, out, e);
    sheaf_image_free(&resized);
    return failed;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The operations of torchvision's ToTensor and Normalize, each rounded to fp32; there are only 256 values. */
void sheaf_image_normalise(const SheafImage *in, const SheafPreprocess *p, float *out) {
    float value[3][256];
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++) value[c][v] = ((float)(v * p->scale) - (float)p->mean[c]) / (float)p->std[c];
    const int64_t n = in->width * in->height;
    if (p->nhwc) {
        for (int64_t i = 0; i < 3 * n; i++) out[i] = value[i % 3][in->rgb[i]];
        return;
    }
    for (int c = 0; c < 3; c++)
        for (int64_t i = 0; i < n; i++) out[c * n + i] = value[c][in->rgb[3 * i + c]];
}
