/* Elements from place to place. */
#include "kernels/nd_internal.h"

/* n elements of `size` bytes, `step` elements apart at the source, dense at the destination. */
static void copy_run(size_t size, const uint8_t *from, int64_t step, int64_t n, uint8_t *to) {
    if (step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) { /* constant sizes become single moves */
    case 1:
        for (int64_t k = 0; k < n; k++) to[k] = from[k * step];
        return;
    case 2:
        for (int64_t k = 0; k < n; k++) memcpy(to + 2 * k, from + 2 * k * step, 2);
        return;
    case 4:
        for (int64_t k = 0; k < n; k++) memcpy(to + 4 * k, from + 4 * k * step, 4);
        return;
    default:
        for (int64_t k = 0; k < n; k++) memcpy(to + 8 * k, from + 8 * k * step, 8);
    }
}

void nd_move(const Nd *x, int64_t from0, const int64_t *from, Nd *y, NdPart p) {
    Walk w;
    size_t size = nd_size(y->type);
    for (bool more = walk_begin(&w, y, 1, &from, p); more; more = walk_next(&w))
        copy_run(size, nd_at(x, from0 + w.operand[0]), w.stride[0][w.n_dims - 1], w.run, nd_at(y, w.at));
}

static void dense_strides(const Nd *x, int64_t *s) {
    int64_t step = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        s[i] = step;
        step *= x->dim[i];
    }
}

void nd_transpose(const Nd *x, const int *perm, Nd *y, NdPart p) {
    int64_t s[ND_DIMS], from[ND_DIMS];
    dense_strides(x, s);
    for (int i = 0; i < y->n_dims; i++) from[i] = s[perm[i]];
    nd_move(x, 0, from, y, p);
}

void nd_expand(const Nd *x, Nd *y, NdPart p) {
    int64_t from[ND_DIMS];
    broadcast_strides(x, y, from);
    nd_move(x, 0, from, y, p);
}

void nd_cut(const Nd *x, const int64_t *begin, const int64_t *step, Nd *y, NdPart p) {
    int64_t s[ND_DIMS], from[ND_DIMS], from0 = 0;
    dense_strides(x, s);
    for (int i = 0; i < y->n_dims; i++) {
        from0 += begin[i] * s[i];
        from[i] = step[i] * s[i];
    }
    nd_move(x, from0, from, y, p);
}

void nd_place(const Nd *x, int axis, int64_t at, Nd *y, NdPart p) {
    int64_t outer = nd_product(x->dim, 0, axis), inner = nd_product(x->dim, axis + 1, x->n_dims);
    int64_t run = x->dim[axis] * inner, begin, end;
    part_range(outer, p, &begin, &end);
    if (outer < p.n_threads) { /* few long runs: shared out each by itself */
        int64_t b, e;
        part_range(run, p, &b, &e);
        for (int64_t i = 0; i < outer && b < e; i++)
            memcpy(nd_at(y, (i * y->dim[axis] + at) * inner + b), nd_at(x, i * run + b),
                   (size_t)(e - b) * nd_size(y->type));
        return;
    }
    for (int64_t i = begin; i < end; i++)
        memcpy(nd_at(y, (i * y->dim[axis] + at) * inner), nd_at(x, i * run), (size_t)run * nd_size(y->type));
}

/* The element of x that stands at position i of a padded axis, or -1: the constant. */
static int64_t source_of(NdPad mode, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    switch (mode) {
    case ND_PAD_EDGE: return n == 0 ? -1 : i < 0 ? 0 : n - 1;
    case ND_PAD_WRAP: return n == 0 ? -1 : ((i % n) + n) % n;
    case ND_PAD_REFLECT: {
        if (n <= 1) return n - 1;
        int64_t turn = 2 * (n - 1), k = ((i % turn) + turn) % turn;
        return k < n ? k : turn - k;
    }
    default: return -1;
    }
}

void nd_pad(NdPad mode, const Nd *x, const int64_t *before, double value, Nd *y, NdPart p) {
    int last = y->n_dims - 1;
    int64_t rows = last >= 0 ? nd_product(y->dim, 0, last) : 1, width = last >= 0 ? y->dim[last] : 1, begin, end;
    int64_t s[ND_DIMS];
    dense_strides(x, s);
    size_t size = nd_size(y->type);
    NdBlock b;
    for (int k = 0; k < ND_BLOCK; k++) b.d[k] = value;
    uint8_t element[8] = {0};
    Nd one = {.type = y->type, .data = element};
    nd_store(&b, WORK_F64, 1, &one, 0);
    part_range(rows, p, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t at = 0;
        for (int64_t i = last - 1, rest = row; i >= 0; rest /= y->dim[i--]) {
            int64_t k = source_of(mode, rest % y->dim[i] - before[i], x->dim[i]);
            if (k < 0) at = -1;
            if (at >= 0) at += k * s[i];
        }
        uint8_t *to = nd_at(y, row * width);
        for (int64_t i = 0; i < width; i++, to += size) {
            int64_t k = last < 0 ? 0 : source_of(mode, i - before[last], x->dim[last]);
            memcpy(to, at < 0 || k < 0 ? element : nd_at(x, at + k), size);
        }
    }
}

void nd_triangle(bool upper, int64_t k, const Nd *x, Nd *y, NdPart p) {
    int64_t h = x->dim[x->n_dims - 2], w = x->dim[x->n_dims - 1], begin, end;
    size_t size = nd_size(x->type);
    part_range(nd_product(x->dim, 0, x->n_dims - 2) * h, p, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t edge = row % h + k, cut = i64_min(i64_max(upper ? edge : edge + 1, 0), w); /* [0, cut) is below it */
        uint8_t *to = nd_at(y, row * w);
        memcpy(to, nd_at(x, row * w), (size_t)w * size);
        if (upper) memset(to, 0, (size_t)cut * size);
        else memset(to + (size_t)cut * size, 0, (size_t)(w - cut) * size);
    }
}
