#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "image.h"

enum { BITS = 22, HALF = 1 << (BITS - 1) }; /* behind the point: 8 bits of value and 2 of headroom are before it */

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef struct Filter {
    double radius;
    double (*at)(double x); /* x >= 0 */
} Filter;

static double triangle(double x) { return x < 1 ? 1 - x : 0; }

static double cubic(double x) {
    const double a = -0.5;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* For each new pixel along one axis: which old ones it is made of, and their weights. */
typedef struct Taps {
    int64_t most;    /* of one pixel */
    int64_t *first;  /* [size] */
    int64_t *n;      /* [size] */
    int32_t *weight; /* [size][most] */
} Taps;

static void taps_free(Taps *t) {
    free(t->first);
    free(t->n);
    free(t->weight);
}

static void weigh(const Filter *f, double centre, double stretch, int64_t first, int64_t n, int32_t *weight) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += f->at(fabs(((double)(first + i) - centre + 0.5) / stretch));
    for (int64_t i = 0; i < n; i++) {
        double share = f->at(fabs(((double)(first + i) - centre + 0.5) / stretch)) / sum;
        weight[i] = (int32_t)lround(share * (1 << BITS));
    }
}

/* From `before` pixels to `after`. */
static int taps_make(int64_t before, int64_t after, bool is_cubic, Taps *t, Err *e) {
    const Filter f = is_cubic ? (Filter){2, cubic} : (Filter){1, triangle};
    const double scale = (double)before / (double)after, stretch = scale > 1 ? scale : 1, radius = f.radius * stretch;
    size_t n = (size_t)after, all;
    *t = (Taps){.most = i64_min((int64_t)ceil(radius) * 2 + 1, before)};
    if (size_mul(n, (size_t)t->most, &all) && size_mul(all, sizeof *t->weight, &all)) {
        t->first = malloc(n * sizeof *t->first);
        t->n = malloc(n * sizeof *t->n);
        t->weight = malloc(all);
    }
    if (!t->first || !t->n || !t->weight) return err_set(e, "out of memory");
    for (int64_t i = 0; i < after; i++) {
        double centre = ((double)i + 0.5) * scale;
        t->first[i] = i64_max((int64_t)(centre - radius + 0.5), 0);
        t->n[i] = i64_min((int64_t)(centre + radius + 0.5), before) - t->first[i];
        weigh(&f, centre, stretch, t->first[i], t->n[i], t->weight + i * t->most);
    }
    return 0;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static uint8_t round8(int32_t sum) {
    int32_t v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void along_row(const uint8_t *in, const Taps *t, int64_t width, uint8_t *out) {
    for (int64_t x = 0; x < width; x++, out += 3) {
        const uint8_t *p = in + t->first[x] * 3;
        const int32_t *w = t->weight + x * t->most;
        int32_t red = HALF, green = HALF, blue = HALF;
        for (int64_t i = 0; i < t->n[x]; i++, p += 3) {
            red += w[i] * p[0];
            green += w[i] * p[1];
            blue += w[i] * p[2];
        }
        out[0] = round8(red);
        out[1] = round8(green);
        out[2] = round8(blue);
    }
}

/* Row y of the result from rows of n values; `sums` [n]: the compiler's vectors run along it. */
static void across_rows(const uint8_t *in, int64_t n, const Taps *t, int64_t y, int32_t *restrict sums, uint8_t *out) {
    for (int64_t k = 0; k < n; k++) sums[k] = HALF;
    for (int64_t i = 0; i < t->n[y]; i++) {
        const uint8_t *row = in + (t->first[y] + i) * n;
        const int32_t w = t->weight[y * t->most + i];
        for (int64_t k = 0; k < n; k++) sums[k] += w * row[k];
    }
    for (int64_t k = 0; k < n; k++) out[k] = round8(sums[k]);
}

static int pass_horizontal(const SheafImage *in, int64_t width, bool is_cubic, SheafImage *out, Err *e) {
    Taps t;
    int failed = taps_make(in->width, width, is_cubic, &t, e);
    *out = (SheafImage){.width = width, .height = in->height, .rgb = malloc((size_t)width * (size_t)in->height * 3)};
    if (!failed && !out->rgb) failed = err_set(e, "out of memory");
    for (int64_t y = 0; !failed && y < in->height; y++)
        along_row(in->rgb + y * in->width * 3, &t, width, out->rgb + y * width * 3);
    if (failed) sheaf_image_free(out);
    taps_free(&t);
    return failed;
}

static int pass_vertical(const SheafImage *in, int64_t height, bool is_cubic, SheafImage *out, Err *e) {
    Taps t;
    const int64_t n = in->width * 3;
    int failed = taps_make(in->height, height, is_cubic, &t, e);
    int32_t *sums = malloc((size_t)n * sizeof *sums);
    *out = (SheafImage){.width = in->width, .height = height, .rgb = malloc((size_t)n * (size_t)height)};
    if (!failed && (!sums || !out->rgb)) failed = err_set(e, "out of memory");
    for (int64_t y = 0; !failed && y < height; y++) across_rows(in->rgb, n, &t, y, sums, out->rgb + y * n);
    if (failed) sheaf_image_free(out);
    free(sums);
    taps_free(&t);
    return failed;
}

int image_resize(const SheafImage *in, int64_t width, int64_t height, bool is_cubic, SheafImage *out, Err *e) {
    const bool columns_first = height < in->height && in->height - height > 2 * (in->width - width);
    SheafImage half;
    if (columns_first ? pass_vertical(in, height, is_cubic, &half, e) : pass_horizontal(in, width, is_cubic, &half, e))
        return -1;
    int failed = columns_first ? pass_horizontal(&half, width, is_cubic, out, e)
                               : pass_vertical(&half, height, is_cubic, out, e);
    sheaf_image_free(&half);
    return failed;
}
