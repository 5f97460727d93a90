/* How a convolution is shared by the threads of a rank; oneDNN (dnn.h) does each share. */
#include "kernels/conv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/dnn.h"

/* What one thread makes: output rows [row0, row1) and channels [o0, o1) of images [n0, n1). */
typedef struct Share {
    int64_t n0, n1, row0, row1, o0, o1;
    int64_t in_row0; /* first input row it reads */
    DnnConv *dnn;    /* NULL: nothing to do */
    float *slice;    /* [row1 - row0][ow][o1 - o0] when that is not all channels, else NULL */
} Share;

struct Conv {
    ConvShape s; /* of a 1x1: h * w rows of 1 pixel, to be shared pixel by pixel */
    int64_t oh, ow;
    bool pointwise, empty;
    float *bias; /* of an empty convolution only: [o], zeroes when none was given */
    int n_shares;
    Share *share; /* [n_shares], by thread */
};

enum { BLOCK = 16 /* output channels oneDNN computes together */, LARGEST = 1 << 28 /* of any dimension */ };

/* ---- the grid: threads = images x bands of rows x slices of output channels -------------------------------------- */

typedef struct Grid {
    int64_t images, bands, slices;
} Grid;

static int64_t filter_size(const ConvShape *s) { return s->win.size[0] * s->win.size[1] * (s->c / s->groups); }
/* Pixels from the first to the last tap of a window. */
static int64_t extent(const ConvShape *s, int axis) { return (s->win.size[axis] - 1) * s->win.dilation[axis] + 1; }
static int64_t slice_units(const Conv *c) { return ceil_div(c->s.o, BLOCK); }

/* Estimated time of the largest share, in ns: multiply-adds at 64 a ns (AVX2 here; AVX-512 twice that) and bytes at
 * 10 a ns, as one core of a 2021 server has them; only their ratio matters. */
static double grid_cost(const Conv *c, Grid g) {
    const ConvShape *s = &c->s;
    const double images = (double)ceil_div(s->n, g.images), rows = (double)ceil_div(c->oh, g.bands);
    const double channels = (double)i64_min(s->o, ceil_div(slice_units(c), g.slices) * BLOCK);
    const double taps = (double)filter_size(s);
    const double in_rows = (rows - 1) * (double)s->win.stride[0] + (double)extent(s, 0);
    const double in = images * in_rows * (double)(s->w * s->c), out = images * rows * (double)c->ow * channels;
    const double copies = g.slices > 1 ? 2 : 0; /* a slice is made densely, then copied between its neighbours */
    return out * taps / 64 + 4 * (in + out * (1 + copies) + channels * taps) / 10;
}

/* The cheapest grid of at most n_threads parts. Whole images come first (nothing is read twice), then bands, whose
 * borders are read twice, then slices, which read the whole image each. */
static Grid choose_grid(const Conv *c, int n_threads) {
    const ConvShape *s = &c->s;
    /* Slices of groups would have to be copied out of the source too, those of residuals likewise. Rows that see
     * nothing but padding have no band. */
    const int64_t most_slices = s->groups > 1 || s->residual ? 1 : slice_units(c);
    const int64_t most_bands = i64_max(s->win.before[0], s->win.after[0]) >= extent(s, 0) ? 1 : c->oh;
    Grid best = {1, 1, 1};
    double best_cost = grid_cost(c, best);
    for (int64_t images = i64_min(s->n, n_threads); images >= 1; images--) {
        for (int64_t bands = i64_min(most_bands, n_threads / images); bands >= 1; bands--) {
            Grid g = {images, bands, i64_min(most_slices, n_threads / (images * bands))};
            double cost = grid_cost(c, g);
            if (cost >= best_cost) continue;
            best = g;
            best_cost = cost;
        }
    }
    return best;
}

static void place_share(const Conv *c, Grid g, int64_t thread, Share *sh) {
    *sh = (Share){0};
    if (thread >= g.images * g.bands * g.slices) return;
    share_range(c->s.n, g.images, thread / (g.bands * g.slices), &sh->n0, &sh->n1);
    share_range(c->oh, g.bands, thread / g.slices % g.bands, &sh->row0, &sh->row1);
    share_range(slice_units(c), g.slices, thread % g.slices, &sh->o0, &sh->o1);
    sh->o0 *= BLOCK;
    sh->o1 = i64_min(sh->o1 * BLOCK, c->s.o);
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

/* The band of a share as an image of its own: only the rows it reads, and padding where the image ends. */
static DnnShape band_shape(const Conv *c, Share *sh) {
    const ConvShape *s = &c->s;
    const NdWindow *w = &s->win;
    const int64_t begin = sh->row0 * w->stride[0] - w->before[0];
    const int64_t end = (sh->row1 - 1) * w->stride[0] - w->before[0] + extent(s, 0);
    const int64_t right = (c->ow - 1) * w->stride[1] - w->before[1] + extent(s, 1) - s->w;
    sh->in_row0 = i64_max(begin, 0);
    DnnShape d = {.h = i64_min(end, s->h) - sh->in_row0,
                  .w = s->w,
                  .c = s->c,
                  .o = sh->o1 - sh->o0,
                  .oh = sh->row1 - sh->row0,
                  .ow = c->ow,
                  .win = *w,
                  .groups = s->groups,
                  .residual = s->residual,
                  .act = s->act,
                  .a = s->a,
                  .b = s->b};
    d.win.before[0] = i64_max(-begin, 0);
    d.win.after[0] = i64_max(end - s->h, 0);
    d.win.after[1] = i64_max(right, 0);
    if (c->pointwise) {
        d.w = d.h;
        d.ow = d.oh;
        d.h = d.oh = 1;
    }
    return d;
}

/* The primitive of share i; weights packed for an earlier share of the same channels serve again. */
static int prepare_share(Conv *c, int i, const float *weights, const float *bias, Err *e) {
    Share *sh = &c->share[i];
    const int64_t filter = filter_size(&c->s);
    const DnnConv *like = NULL;
    for (int j = 0; j < i && !like; j++)
        if (c->share[j].dnn && c->share[j].o0 == sh->o0) like = c->share[j].dnn;
    DnnShape d = band_shape(c, sh);
    if (sh->o1 - sh->o0 != c->s.o) {
        size_t bytes = (size_t)((sh->row1 - sh->row0) * c->ow * (sh->o1 - sh->o0)) * sizeof(float);
        sh->slice = aligned_alloc(64, round_up(bytes, 64));
        if (!sh->slice) return err_set(e, "convolution: out of memory: %zu bytes", bytes);
    }
    return dnn_conv_create(&d, weights + sh->o0 * filter, bias ? bias + sh->o0 : NULL, like, &sh->dnn, e);
}

static int check_shape(const ConvShape *s, Err *e) {
    const NdWindow *v = &s->win;
    bool good = s->h > 0 && s->w > 0 && s->groups > 0 && s->c % s->groups == 0 && s->o % s->groups == 0;
    const int64_t dims[] = {s->n, s->h, s->w, s->c, s->o};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) good = good && dims[i] >= 0 && dims[i] <= LARGEST;
    for (int i = 0; i < 2; i++) {
        const int64_t axis[] = {v->size[i], v->stride[i], v->dilation[i], v->before[i], v->after[i]};
        for (int k = 0; k < 5; k++) good = good && axis[k] >= (k < 3 ? 1 : 0) && axis[k] <= LARGEST;
        good = good && conv_out(v, i, i ? s->w : s->h) > 0 && extent(s, i) <= LARGEST;
    }
    size_t in = sizeof(float), out = in, filters = in; /* no size in bytes may overflow */
    if (good) {
        const int64_t in_dims[] = {s->n, s->h, s->w, s->c};
        const int64_t out_dims[] = {s->n, conv_out(v, 0, s->h), conv_out(v, 1, s->w), s->o};
        const int64_t filter_dims[] = {s->o, v->size[0], v->size[1], s->c / s->groups};
        for (int i = 0; i < 4; i++)
            good = good && size_mul(in, (size_t)in_dims[i], &in) && size_mul(out, (size_t)out_dims[i], &out) &&
                   size_mul(filters, (size_t)filter_dims[i], &filters);
    }
    if (good && in <= PTRDIFF_MAX && out <= PTRDIFF_MAX && filters <= PTRDIFF_MAX) return 0;
    return err_set(e,
                   "convolution of [%" PRId64 "][%" PRId64 "][%" PRId64 "][%" PRId64 "] to %" PRId64
                   " channels in %" PRId64 " groups, window %" PRId64 "x%" PRId64 ", stride %" PRId64
                   ", padding %" PRId64 ": sizes out of range",
                   s->n, s->h, s->w, s->c, s->o, s->groups, v->size[0], v->size[1], v->stride[0], v->before[0]);
}

static int prepare(Conv *c, const float *weights, const float *bias, int n_threads, Err *e) {
    if (c->empty) {
        c->bias = calloc((size_t)i64_max(c->s.o, 1), sizeof *c->bias);
        if (!c->bias) return err_set(e, "convolution: out of memory");
        if (bias) memcpy(c->bias, bias, (size_t)c->s.o * sizeof *bias);
    }
    Grid g = c->empty ? (Grid){0, 0, 0} : choose_grid(c, n_threads);
    for (int i = 0; i < n_threads; i++) {
        place_share(c, g, i, &c->share[i]);
        if (c->share[i].n1 > c->share[i].n0 && prepare_share(c, i, weights, bias, e)) return -1;
    }
    return 0;
}

int conv_create(const ConvShape *shape, const float *weights, const float *bias, int n_threads, Conv **out, Err *e) {
    *out = NULL;
    ConvShape with_groups = *shape, *s = &with_groups;
    if (s->groups == 0) s->groups = 1;
    if (check_shape(s, e)) return -1;
    if (n_threads < 1) return err_set(e, "convolution: %d threads", n_threads);
    if (!conv_fuses(s->act, (double)s->a, (double)s->b))
        return err_set(e, "convolution: cannot end with that function");
    Conv *c = calloc(1, sizeof *c);
    if (c) c->share = calloc((size_t)n_threads, sizeof *c->share);
    if (!c || !c->share) {
        conv_free(c);
        return err_set(e, "convolution: out of memory");
    }
    c->s = *s;
    c->n_shares = n_threads;
    c->oh = conv_out(&s->win, 0, s->h);
    c->ow = conv_out(&s->win, 1, s->w);
    c->empty = s->n == 0 || s->c == 0 || s->o == 0;
    c->pointwise = s->win.size[0] == 1 && s->win.size[1] == 1 && c->oh == s->h && c->ow == s->w &&
                   s->win.stride[0] == 1 && s->win.stride[1] == 1 && s->groups == 1;
    if (c->pointwise) {
        c->s.h = c->oh = s->h * s->w;
        c->s.w = c->ow = 1;
    }
    if (prepare(c, weights, bias, n_threads, e)) {
        conv_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void conv_free(Conv *c) {
    if (!c) return;
    for (int i = c->n_shares - 1; i >= 0; i--) { /* later shares may use weights of earlier ones */
        dnn_conv_free(c->share[i].dnn);
        free(c->share[i].slice);
    }
    free(c->share);
    free(c->bias);
    free(c);
}

size_t conv_weight_bytes(const Conv *c) {
    size_t bytes = c->empty ? (size_t)c->s.o * sizeof(float) : 0;
    for (int i = 0; i < c->n_shares; i++) bytes += c->share[i].dnn ? dnn_conv_bytes(c->share[i].dnn) : 0;
    return bytes;
}

const char *conv_kernel(const Conv *c) { return c->empty ? "none" : dnn_conv_name(c->share[0].dnn); }

bool conv_fuses(NdUnary f, double a, double b) { return dnn_fuses(f, a, b); }

int conv_limit_isa(const char *kernels_name, Err *e) { return dnn_limit_isa(kernels_name, e); }

/* ---- execution --------------------------------------------------------------------------------------------------- */

/* No input channels: every pixel is the bias, and what joins it. */
static void fill_bias(const Conv *c, const float *residual, float *y, int thread) {
    const ConvShape *s = &c->s;
    int64_t begin, end;
    share_range(s->n * c->oh * c->ow, c->n_shares, thread, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        for (int64_t o = 0; o < s->o; o++) y[i * s->o + o] = c->bias[o] + (residual ? residual[i * s->o + o] : 0);
    nd_unary_f32(s->act, (double)s->a, (double)s->b, (end - begin) * s->o, y + begin * s->o);
}

int conv_run(const Conv *c, const float *x, const float *residual, float *y, int thread) {
    if (c->empty) {
        fill_bias(c, residual, y, thread);
        return 0;
    }
    const ConvShape *s = &c->s;
    const Share *sh = &c->share[thread];
    const int64_t width = sh->o1 - sh->o0, pixels = (sh->row1 - sh->row0) * c->ow;
    for (int64_t n = sh->n0; n < sh->n1; n++) {
        const float *in = x + (n * s->h + sh->in_row0) * s->w * s->c;
        const int64_t at = (n * c->oh + sh->row0) * c->ow * s->o + sh->o0;
        const float *addend = residual ? residual + at : NULL;
        if (dnn_conv_run(sh->dnn, in, addend, sh->slice ? sh->slice : y + at)) return -1;
        if (!sh->slice) continue;
        for (int64_t p = 0; p < pixels; p++)
            memcpy(y + at + p * s->o, sh->slice + p * width, (size_t)width * sizeof *y);
    }
    return 0;
}
