/* Windows over images with one to three spatial axes, channels last. Fewer axes than three are leading axes of size 1:
 * the loops are written once. */
#include "kernels/nd_internal.h"

typedef struct Space { /* by spatial axis, the last one fastest */
    int64_t n, c, size[ND_SPACE];
} Space;

static Space space_of(const Nd *x) {
    Space s = {.n = x->dim[0], .c = x->dim[x->n_dims - 1], .size = {1, 1, 1}};
    for (int i = 1; i < x->n_dims - 1; i++) s.size[ND_SPACE - (x->n_dims - 1) + i] = x->dim[i];
    return s;
}

static NdWindow window_of(const NdWindow *w, int n_axes) {
    NdWindow out = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}};
    for (int i = 0; i < n_axes; i++) {
        int to = ND_SPACE - n_axes + i;
        out.size[to] = w->size[i];
        out.stride[to] = w->stride[i];
        out.dilation[to] = w->dilation[i];
        out.before[to] = w->before[i];
        out.after[to] = w->after[i];
    }
    return out;
}

/* Pixel p of the images: its image and its place on each axis. */
static void place_of(const Space *s, int64_t p, int64_t *image, int64_t at[ND_SPACE]) {
    for (int i = ND_SPACE - 1; i >= 0; i--) {
        at[i] = p % s->size[i];
        p /= s->size[i];
    }
    *image = p;
}

static int64_t pixels(const Space *s) { return s->n * s->size[0] * s->size[1] * s->size[2]; }
static int64_t taps(const NdWindow *w) { return w->size[0] * w->size[1] * w->size[2]; }

/* The pixel of x under tap t of the window at `to`, or -1: padding. */
static int64_t pixel_under(const Space *x, const NdWindow *w, int64_t image, const int64_t to[ND_SPACE], int64_t t) {
    int64_t in[ND_SPACE];
    for (int i = ND_SPACE - 1; i >= 0; i--) {
        in[i] = to[i] * w->stride[i] - w->before[i] + t % w->size[i] * w->dilation[i];
        if (in[i] < 0 || in[i] >= x->size[i]) return -1;
        t /= w->size[i];
    }
    return ((image * x->size[0] + in[0]) * x->size[1] + in[1]) * x->size[2] + in[2];
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

/* One tap joins the result of n channels. */
static void pool_f32(NdPool f, double exponent, const float *restrict in, int64_t n, float *restrict out) {
    if (f == ND_POOL_MAX)
        for (int64_t i = 0; i < n; i++) out[i] = in[i] <= out[i] ? out[i] : out[i] != out[i] ? out[i] : in[i];
    else if (f == ND_POOL_L2)
        for (int64_t i = 0; i < n; i++) out[i] += (float)pow(fabs((double)in[i]), exponent);
    else
        for (int64_t i = 0; i < n; i++) out[i] += in[i];
}

/* Taps of the window that lie inside the image with its padding; beyond it ceil_mode may reach. */
static int64_t taps_with_padding(const Space *x, const NdWindow *w, const int64_t to[ND_SPACE]) {
    int64_t n = 1;
    for (int i = 0; i < ND_SPACE; i++) {
        int64_t inside = 0;
        for (int64_t t = 0; t < w->size[i]; t++)
            inside += to[i] * w->stride[i] + t * w->dilation[i] < x->size[i] + w->before[i] + w->after[i];
        n *= inside;
    }
    return n;
}

static void pool_pixel_f32(NdPool f, double exponent, const Space *sx, const NdWindow *w, const float *x, int64_t image,
                           const int64_t *to, float *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < sx->c; i++) out[i] = f == ND_POOL_MAX ? -INFINITY : 0;
    for (int64_t t = 0; t < taps(w); t++) {
        int64_t at = pixel_under(sx, w, image, to, t);
        if (at < 0) continue;
        pool_f32(f, exponent, x + at * sx->c, sx->c, out);
        count++;
    }
    if (f == ND_POOL_AVERAGE_PAD) count = taps_with_padding(sx, w, to);
    if (f == ND_POOL_L2)
        for (int64_t i = 0; i < sx->c; i++) out[i] = (float)pow((double)out[i], 1 / exponent);
    else if (f != ND_POOL_MAX)
        for (int64_t i = 0; i < sx->c; i++) out[i] /= (float)count;
}

/* The largest of n unsigned or signed bytes so far. */
static void pool_max_bytes(bool is_signed, const uint8_t *restrict in, int64_t n, uint8_t *restrict out) {
    const uint8_t flip = is_signed ? 0x80 : 0;
    for (int64_t i = 0; i < n; i++) out[i] = (in[i] ^ flip) > (out[i] ^ flip) ? in[i] : out[i];
}

/* Any type: element by element. */
static void pool_pixel_any(NdPool f, bool columns_first, const Space *sx, const NdWindow *w, const Nd *x, int64_t image,
                           const int64_t *to, Nd *y, int64_t at_y) {
    for (int64_t c = 0; c < sx->c; c++) {
        NdBlock b;
        double best = 0, sum = 0;
        int64_t where = -1, count = 0;
        for (int64_t t = 0; t < taps(w); t++) {
            int64_t at = pixel_under(sx, w, image, to, t);
            if (at < 0) continue;
            double v = nd_get_f64(x, at * sx->c + c);
            if (where < 0 || v > best) best = nd_get_f64(x, (where = at) * sx->c + c);
            sum += v;
            count++;
        }
        if (f == ND_POOL_ARGMAX) { /* as an index into [n][c][d][h][w], or [n][c][w][h][d] */
            int64_t unused, in[ND_SPACE];
            place_of(sx, where, &unused, in);
            const int64_t *s = sx->size;
            int64_t place =
                columns_first ? (in[2] * s[1] + in[1]) * s[0] + in[0] : (in[0] * s[1] + in[1]) * s[2] + in[2];
            if (columns_first && s[0] == 1) place = in[2] * s[1] + in[1];
            b.i[0] = (image * sx->c + c) * s[0] * s[1] * s[2] + place;
            nd_store(&b, WORK_I64, 1, y, at_y + c);
            continue;
        }
        if (f == ND_POOL_AVERAGE_PAD) count = taps_with_padding(sx, w, to);
        b.d[0] = f == ND_POOL_MAX ? best : sum / (double)count;
        nd_store(&b, WORK_F64, 1, y, at_y + c);
    }
}

static void pool_pixel_bytes(const Space *sx, const NdWindow *w, const Nd *x, int64_t image, const int64_t *to,
                             uint8_t *out) {
    memset(out, x->type == QT_I8 ? 0x80 : 0, (size_t)sx->c);
    for (int64_t t = 0; t < taps(w); t++) {
        int64_t at = pixel_under(sx, w, image, to, t);
        if (at >= 0) pool_max_bytes(x->type == QT_I8, nd_at(x, at * sx->c), sx->c, out);
    }
}

void nd_pool(NdPool f, const NdWindow *win, double exponent, bool columns_first, const Nd *x, Nd *y, NdPart p) {
    Space sx = space_of(x), sy = space_of(y);
    NdWindow w = window_of(win, x->n_dims - 2);
    int64_t begin, end, image, to[ND_SPACE];
    part_range(pixels(&sy), p, &begin, &end);
    bool bytes = f == ND_POOL_MAX && (x->type == QT_U8 || x->type == QT_I8);
    for (int64_t i = begin; i < end; i++) {
        place_of(&sy, i, &image, to);
        if (bytes) pool_pixel_bytes(&sx, &w, x, image, to, nd_at(y, i * sy.c));
        else if (x->type == QT_F32 && f != ND_POOL_ARGMAX)
            pool_pixel_f32(f, exponent, &sx, &w, x->data, image, to, (float *)y->data + i * sy.c);
        else pool_pixel_any(f, columns_first, &sx, &w, x, image, to, y, i * sy.c);
    }
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

static int64_t zero_of(const Nd *zero, int64_t o) { return zero ? nd_get_i64(zero, nd_count(zero) == 1 ? 0 : o) : 0; }

void nd_conv(const NdWindow *win, int64_t groups, const Nd *x, const Nd *w, const Nd *bias, const Nd *x_zero,
             const Nd *w_zero, Nd *y, NdPart p) {
    Space sx = space_of(x), sy = space_of(y);
    NdWindow v = window_of(win, x->n_dims - 2);
    int64_t begin, end, image, to[ND_SPACE], n_taps = taps(&v), per = sx.c / groups, outs = sy.c / groups;
    bool is_float = nd_is_float(x->type);
    part_range(pixels(&sy) * sy.c, p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i % sy.c, group = o / outs, x0 = zero_of(x_zero, 0), w0 = zero_of(w_zero, o);
        double sum = bias && is_float ? nd_get_f64(bias, o) : 0;
        uint64_t whole = bias && !is_float ? (uint64_t)nd_get_i64(bias, o) : 0;
        place_of(&sy, i / sy.c, &image, to);
        for (int64_t t = 0; t < n_taps; t++) {
            int64_t at = pixel_under(&sx, &v, image, to, t);
            if (at < 0) continue; /* padding has the value 0: the zero point */
            for (int64_t c = 0; c < per; c++) {
                int64_t at_x = at * sx.c + group * per + c, at_w = (o * n_taps + t) * per + c;
                if (is_float) sum += nd_get_f64(x, at_x) * nd_get_f64(w, at_w);
                else whole += (uint64_t)(nd_get_i64(x, at_x) - x0) * (uint64_t)(nd_get_i64(w, at_w) - w0);
            }
        }
        NdBlock b;
        if (is_float) b.d[0] = sum;
        else b.u[0] = whole;
        nd_store(&b, is_float ? WORK_F64 : WORK_U64, 1, y, i);
    }
}

/* Each result gathers what reaches it: tap t of an input pixel lands at in * stride - before + t * dilation. */
void nd_conv_transpose(const NdWindow *win, int64_t groups, const Nd *x, const Nd *w, const Nd *bias, Nd *y, NdPart p) {
    Space sx = space_of(x), sy = space_of(y);
    NdWindow v = window_of(win, x->n_dims - 2);
    int64_t begin, end, image, to[ND_SPACE], n_taps = taps(&v), per = sx.c / groups, outs = sy.c / groups;
    part_range(pixels(&sy) * sy.c, p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i % sy.c, group = o / outs;
        double sum = bias ? nd_get_f64(bias, o) : 0;
        place_of(&sy, i / sy.c, &image, to);
        for (int64_t t = 0; t < n_taps; t++) {
            int64_t at = image, rest = t, tap[ND_SPACE];
            for (int k = ND_SPACE - 1; k >= 0; rest /= v.size[k--]) tap[k] = rest % v.size[k];
            for (int k = 0; k < ND_SPACE && at >= 0; k++) {
                int64_t from = to[k] + v.before[k] - tap[k] * v.dilation[k];
                bool hits = from >= 0 && from % v.stride[k] == 0 && from / v.stride[k] < sx.size[k];
                at = hits ? at * sx.size[k] + from / v.stride[k] : -1;
            }
            for (int64_t c = 0; at >= 0 && c < per; c++)
                sum += nd_get_f64(x, at * sx.c + group * per + c) *
                       nd_get_f64(w, ((group * per + c) * n_taps + t) * outs + o % outs);
        }
        NdBlock b = {.d = {sum}};
        nd_store(&b, WORK_F64, 1, y, i);
    }
}
