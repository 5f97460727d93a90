/* Elements by indices that stand in another array. */
#include <inttypes.h>

#include "kernels/nd_internal.h"

/* Index k of an array of indices into an axis of n elements; -1 and an error when it is out of range. */
static int64_t index_at(const Nd *index, int64_t k, int64_t n, Err *e) {
    int64_t i = nd_get_i64(index, k), j = i < 0 ? i + n : i;
    if (j >= 0 && j < n) return j;
    return err_set(e, "index %" PRId64 " is out of range: the axis has %" PRId64 " elements", i, n);
}

int nd_gather(int axis, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e) {
    int64_t outer = nd_product(x->dim, 0, axis), inner = nd_product(x->dim, axis + 1, x->n_dims), n = x->dim[axis];
    int64_t indices = nd_count(index), begin, end;
    size_t bytes = (size_t)inner * nd_size(x->type);
    part_range(outer * indices, p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t k = index_at(index, i % indices, n, e);
        if (k < 0) return -1;
        memcpy(nd_at(y, i * inner), nd_at(x, (i / indices * n + k) * inner), bytes);
    }
    return 0;
}

/* The position in x of element i of an array of shape `index`, with its place on the axis replaced by k. */
static int64_t with_axis(const Nd *x, const Nd *index, int axis, int64_t i, int64_t k) {
    int64_t at = 0, step = 1;
    for (int d = index->n_dims - 1; d >= 0; d--) {
        at += (d == axis ? k : i % index->dim[d]) * step;
        step *= x->dim[d];
        i /= index->dim[d];
    }
    return at;
}

int nd_gather_elements(int axis, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e) {
    int64_t begin, end;
    part_range(nd_count(y), p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t k = index_at(index, i, x->dim[axis], e);
        if (k < 0) return -1;
        memcpy(nd_at(y, i), nd_at(x, with_axis(x, index, axis, i, k)), nd_size(x->type));
    }
    return 0;
}

/* Where tuple t of indices points in x, behind `from` axes; the inner size is that of the axes after the tuple's. */
static int64_t tuple_at(const Nd *x, int from, const Nd *index, int64_t t, int64_t depth, Err *e) {
    int64_t at = 0;
    for (int64_t d = 0; d < depth; d++) {
        int64_t k = index_at(index, t * depth + d, x->dim[from + d], e);
        if (k < 0) return -1;
        at = at * x->dim[from + d] + k;
    }
    return at;
}

int nd_gather_nd(int batch_dims, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e) {
    int64_t depth = index->dim[index->n_dims - 1], tuples = nd_product(index->dim, 0, index->n_dims - 1);
    int64_t batches = nd_product(x->dim, 0, batch_dims), per = batches > 0 ? i64_max(tuples / batches, 1) : 1;
    int64_t inner = nd_product(x->dim, batch_dims + (int)depth, x->n_dims);
    int64_t places = nd_product(x->dim, batch_dims, batch_dims + (int)depth), begin, end;
    part_range(tuples, p, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t at = tuple_at(x, batch_dims, index, t, depth, e);
        if (at < 0) return -1;
        memcpy(nd_at(y, t * inner), nd_at(x, (t / per * places + at) * inner), (size_t)inner * nd_size(x->type));
    }
    return 0;
}

/* y[at] = y[at] joined with element k of the updates. */
static void join_element(NdJoin how, const Nd *updates, int64_t k, Nd *y, int64_t at) {
    static const NdBinary functions[] = {
        [ND_JOIN_ADD] = ND_ADD, [ND_JOIN_MUL] = ND_MUL, [ND_JOIN_MAX] = ND_MAX, [ND_JOIN_MIN] = ND_MIN};
    if (how == ND_JOIN_SET) {
        memcpy(nd_at(y, at), nd_at(updates, k), nd_size(y->type));
        return;
    }
    Nd to = {.type = y->type, .data = nd_at(y, at)}, from = {.type = y->type, .data = nd_at(updates, k)};
    nd_binary(functions[how], &to, &from, &to, (NdPart){0, 1});
}

int nd_scatter_elements(int axis, NdJoin join, const Nd *index, const Nd *updates, Nd *y, NdPart p, Err *e) {
    for (int64_t i = 0; p.thread == 0 && i < nd_count(index); i++) {
        int64_t k = index_at(index, i, y->dim[axis], e);
        if (k < 0) return -1;
        join_element(join, updates, i, y, with_axis(y, index, axis, i, k));
    }
    return 0;
}

int nd_scatter_nd(NdJoin join, const Nd *index, const Nd *updates, Nd *y, NdPart p, Err *e) {
    int64_t depth = index->dim[index->n_dims - 1], tuples = nd_product(index->dim, 0, index->n_dims - 1);
    int64_t inner = nd_product(y->dim, (int)depth, y->n_dims);
    for (int64_t t = 0; p.thread == 0 && t < tuples; t++) {
        int64_t at = tuple_at(y, 0, index, t, depth, e);
        if (at < 0) return -1;
        for (int64_t i = 0; i < inner; i++) join_element(join, updates, t * inner + i, y, at * inner + i);
    }
    return 0;
}

void nd_one_hot(int axis, const Nd *index, const Nd *off_on, Nd *y, NdPart p) {
    int64_t inner = nd_product(y->dim, axis + 1, y->n_dims), n = y->dim[axis], begin, end;
    part_range(nd_count(y), p, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t j = i / inner % n, k = nd_get_i64(index, i / (inner * n) * inner + i % inner);
        memcpy(nd_at(y, i), nd_at(off_on, (k < 0 ? k + n : k) == j), nd_size(y->type));
    }
}
