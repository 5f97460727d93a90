/* Builders for nets: shapes worked out and checked. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "graph/graph.h"

int64_t value_count(const Graph *g, ValueId v) {
    int64_t n = 1;
    for (int i = 0; i < g->value[v].n_dims; i++) n *= g->value[v].dim[i].size;
    return n;
}

Nd value_nd(const Graph *g, ValueId v) {
    const Value *x = &g->value[v];
    Nd n = {.type = x->type, .n_dims = x->n_dims};
    for (int i = 0; i < x->n_dims; i++) n.dim[i] = x->dim[i].size;
    if (x->memory) n.data = (uint8_t *)x->memory + x->offset; /* read only */
    return n;
}

static Value shaped(QType t, int n_dims, const int64_t *dims) {
    Value v = {.type = t, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) v.dim[i] = dim_const(dims[i]);
    return v;
}

static int64_t dim_of(const Graph *g, ValueId v, int i) { return g->value[v].dim[i].size; }

/* The shape two values have together; false: they do not fit. */
static bool broadcast(const Value *a, const Value *b, Value *out) {
    int n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims;
    *out = (Value){.type = a->type, .n_dims = n};
    for (int i = 0; i < n; i++) {
        int ia = i - (n - a->n_dims), ib = i - (n - b->n_dims);
        Dim da = ia >= 0 ? a->dim[ia] : dim_const(1), db = ib >= 0 ? b->dim[ib] : dim_const(1);
        if (da.sym != db.sym || (da.size != db.size && da.size != 1 && db.size != 1)) return false;
        out->dim[i] = da.size == 1 ? db : da;
    }
    return true;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Positions of a window along one axis; NULL, or what is wrong. */
static const char *positions(const NdWindow *w, int axis, int64_t size, bool ceil_mode, int64_t *out) {
    enum { LARGEST = 1 << 28 };
    if (w->size[axis] < 1 || w->size[axis] > LARGEST) return "the window's size is out of range";
    if (w->stride[axis] < 1 || w->stride[axis] > LARGEST) return "the window's stride is out of range";
    if (w->dilation[axis] < 1 || w->dilation[axis] > LARGEST) return "the window's dilation is out of range";
    if (w->before[axis] < 0 || w->before[axis] > LARGEST || w->after[axis] < 0 || w->after[axis] > LARGEST)
        return "the window's padding is out of range";
    int64_t padded = size + w->before[axis] + w->after[axis], extent = (w->size[axis] - 1) * w->dilation[axis] + 1;
    if (extent > padded) return "the window is larger than the padded image";
    int64_t n = (padded - extent) / w->stride[axis] + 1;
    if (ceil_mode && (n - 1) * w->stride[axis] + extent < padded && n * w->stride[axis] < size + w->before[axis]) n++;
    *out = n;
    return NULL;
}

/* The result's shape, but for its channels; NULL, or what is wrong. */
static const char *window_shape(const Graph *g, ValueId x, const NdWindow *w, bool ceil_mode, Value *out) {
    *out = g->value[x];
    const char *wrong = NULL;
    for (int i = 0; i < out->n_dims - 2 && !wrong; i++)
        wrong = positions(w, i, dim_of(g, x, 1 + i), ceil_mode, &out->dim[1 + i].size);
    return wrong;
}

static bool is_image(const Value *v) { return v->n_dims >= 3 && v->n_dims <= 2 + ND_SPACE; }

ValueId graph_conv_window(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias, NdWindow win,
                          int64_t groups) {
    if (!graph_given(g, name, 2, (ValueId[]){x, w})) return -1;
    const Value *xv = &g->value[x], *wv = &g->value[w];
    if (!is_image(xv) || wv->n_dims != xv->n_dims)
        return graph_fail(g, name, "a convolution wants [N][H][W][C] and [O][kh][kw][I]");
    int last = xv->n_dims - 1;
    int64_t channels = xv->dim[last].size, outputs = wv->dim[0].size;
    if (groups < 1 || channels % groups || outputs % groups)
        return graph_fail(g, name, "channels cannot be divided into these groups");
    if (wv->dim[last].size * groups != channels) return graph_fail(g, name, "channels of input and weight differ");
    if (bias >= 0 && (g->value[bias].n_dims != 1 || dim_of(g, bias, 0) != outputs))
        return graph_fail(g, name, "bias and weight differ in size");
    for (int i = 0; i < last - 1; i++) win.size[i] = wv->dim[1 + i].size;
    Op op = {.kind = OP_CONV};
    op.u.conv.window = win;
    op.u.conv.groups = groups;
    op.u.conv.bias = bias >= 0;
    Value v;
    const char *wrong = window_shape(g, x, &win, false, &v);
    if (wrong) return graph_fail(g, name, wrong);
    v.dim[last].size = outputs;
    return graph_emit(g, op, name, bias >= 0 ? 3 : 2, (ValueId[]){x, w, bias}, v);
}

ValueId graph_conv(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias, int stride, int pad, int groups) {
    return graph_conv_window(g, name, x, w, bias, window_square(0, stride, pad), groups);
}

ValueId graph_pool_window(Graph *g, const char *name, ValueId x, NdPool kind, NdWindow win, bool ceil_mode) {
    if (!graph_given(g, name, 1, &x)) return -1;
    if (!is_image(&g->value[x])) return graph_fail(g, name, "pooling wants [N][H][W][C]");
    Op op = {.kind = OP_POOL};
    op.u.pool.kind = kind;
    op.u.pool.window = win;
    op.u.pool.exponent = 2;
    Value v;
    const char *wrong = window_shape(g, x, &win, ceil_mode, &v);
    for (int i = 0; i < g->value[x].n_dims - 2 && !wrong; i++)
        if (i64_max(win.before[i], win.after[i]) > (win.size[i] - 1) * win.dilation[i])
            wrong = "a window lies in the padding alone";
    if (wrong) return graph_fail(g, name, wrong);
    if (kind == ND_POOL_ARGMAX) v.type = QT_I64;
    return graph_emit(g, op, name, 1, &x, v);
}

ValueId graph_pool(Graph *g, const char *name, ValueId x, PoolKind kind, int size, int stride, int pad) {
    if (!graph_given(g, name, 1, &x)) return -1;
    const Value *in = &g->value[x];
    if (!is_image(in)) return graph_fail(g, name, "pooling wants [N][H][W][C]");
    if (kind != POOL_GLOBAL_AVERAGE)
        return graph_pool_window(g, name, x, kind == POOL_MAX ? ND_POOL_MAX : ND_POOL_AVERAGE,
                                 window_square(size, stride, pad), false);
    Op op = {.kind = OP_POOL};
    op.u.pool.kind = ND_POOL_AVERAGE;
    op.u.pool.global = true;
    for (int i = 0; i < in->n_dims - 2; i++) {
        op.u.pool.window.size[i] = in->dim[1 + i].size;
        op.u.pool.window.stride[i] = op.u.pool.window.dilation[i] = 1;
    }
    Value v = shaped(in->type, 2, (int64_t[]){in->dim[0].size, in->dim[in->n_dims - 1].size});
    return graph_emit(g, op, name, 1, &x, v);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static bool makes_bool(NdUnary fn) { return fn == ND_NOT || fn == ND_IS_NAN || fn == ND_IS_INF; }

ValueId graph_unary(Graph *g, const char *name, ValueId x, Act act) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_UNARY};
    op.u.unary = act;
    Value v = g->value[x];
    if (makes_bool(act.fn)) v.type = QT_BOOL;
    return graph_emit(g, op, name, 1, &x, v);
}

ValueId graph_relu(Graph *g, const char *name, ValueId x) { return graph_unary(g, name, x, (Act){.fn = ND_RELU}); }

ValueId graph_binary(Graph *g, const char *name, ValueId a, ValueId b, NdBinary fn) {
    if (!graph_given(g, name, 2, (ValueId[]){a, b})) return -1;
    Value v;
    if (g->value[a].type != g->value[b].type) return graph_fail(g, name, "the inputs' types differ");
    if (!broadcast(&g->value[a], &g->value[b], &v)) return graph_fail(g, name, "the inputs' shapes do not fit");
    if (nd_compares(fn)) v.type = QT_BOOL;
    Op op = {.kind = OP_BINARY};
    op.u.binary.fn = fn;
    return graph_emit(g, op, name, 2, (ValueId[]){a, b}, v);
}

ValueId graph_where(Graph *g, const char *name, ValueId condition, ValueId a, ValueId b) {
    if (!graph_given(g, name, 3, (ValueId[]){condition, a, b})) return -1;
    Value two, v;
    if (g->value[condition].type != QT_BOOL || g->value[a].type != g->value[b].type)
        return graph_fail(g, name, "wants a condition and two values of one type");
    if (!broadcast(&g->value[a], &g->value[b], &two) || !broadcast(&two, &g->value[condition], &v))
        return graph_fail(g, name, "the inputs' shapes do not fit");
    v.type = g->value[a].type;
    return graph_emit(g, (Op){.kind = OP_WHERE}, name, 3, (ValueId[]){condition, a, b}, v);
}

ValueId graph_cast(Graph *g, const char *name, ValueId x, QType t) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Value v = g->value[x];
    v.type = t;
    return graph_emit(g, (Op){.kind = OP_CAST}, name, 1, &x, v);
}

/* ---- other shapes ------------------------------------------------------------------------------------------------ */

ValueId graph_reshape(Graph *g, const char *name, ValueId x, int n_dims, const int64_t *dims) {
    if (!graph_given(g, name, 1, &x)) return -1;
    size_t n = 1;
    for (int i = 0; i < n_dims; i++)
        if (dims[i] < 0 || !size_mul(n, (size_t)dims[i], &n)) return graph_fail(g, name, "dimensions out of range");
    if ((int64_t)n != value_count(g, x)) return graph_fail(g, name, "the new shape has another number of elements");
    return graph_emit(g, (Op){.kind = OP_RESHAPE}, name, 1, &x, shaped(g->value[x].type, n_dims, dims));
}

ValueId graph_transpose(Graph *g, const char *name, ValueId x, const int *perm) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_TRANSPOSE};
    Value v = g->value[x];
    uint32_t seen = 0;
    for (int i = 0; i < v.n_dims; i++) {
        if (perm[i] < 0 || perm[i] >= v.n_dims || seen >> perm[i] & 1)
            return graph_fail(g, name, "is no permutation of the axes");
        seen |= 1u << perm[i];
        op.u.transpose.perm[i] = perm[i];
        v.dim[i] = g->value[x].dim[perm[i]];
    }
    return graph_emit(g, op, name, 1, &x, v);
}

ValueId graph_expand(Graph *g, const char *name, ValueId x, int n_dims, const int64_t *dims) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Value to = shaped(g->value[x].type, n_dims, dims), v;
    if (!broadcast(&g->value[x], &to, &v)) return graph_fail(g, name, "the shape cannot be broadcast to that");
    return graph_emit(g, (Op){.kind = OP_EXPAND}, name, 1, &x, v);
}

ValueId graph_cut(Graph *g, const char *name, ValueId x, const int64_t *begin, const int64_t *step,
                  const int64_t *size) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_CUT};
    Value v = g->value[x];
    for (int i = 0; i < v.n_dims; i++) {
        int64_t n = v.dim[i].size, last;
        bool good = size[i] >= 0 && size[i] <= n && !__builtin_mul_overflow(size[i] - 1, step[i], &last) &&
                    !__builtin_add_overflow(last, begin[i], &last);
        if (!good || (size[i] > 0 && (begin[i] < 0 || begin[i] >= n || last < 0 || last >= n)))
            return graph_fail(g, name, "the part is not inside");
        op.u.cut.begin[i] = size[i] > 0 ? begin[i] : 0;
        op.u.cut.step[i] = step[i];
        v.dim[i].size = size[i];
    }
    return graph_emit(g, op, name, 1, &x, v);
}

ValueId graph_concat(Graph *g, const char *name, int n, const ValueId *x, int axis) {
    if (n < 1 || n > OP_IN) return graph_fail(g, name, "number of inputs out of range");
    if (!graph_given(g, name, n, x)) return -1;
    Value v = g->value[x[0]];
    if (axis < 0 || axis >= v.n_dims) return graph_fail(g, name, "axis out of range");
    for (int k = 1; k < n; k++) {
        const Value *o = &g->value[x[k]];
        if (o->n_dims != v.n_dims || o->type != v.type) return graph_fail(g, name, "the inputs do not fit");
        for (int i = 0; i < v.n_dims; i++)
            if (i != axis && o->dim[i].size != v.dim[i].size) return graph_fail(g, name, "the inputs' shapes differ");
        v.dim[axis].size += o->dim[axis].size;
    }
    Op op = {.kind = OP_CONCAT};
    op.u.along.axis = axis;
    return graph_emit(g, op, name, n, x, v);
}

ValueId graph_pad(Graph *g, const char *name, ValueId x, NdPad mode, const int64_t *before, const int64_t *after,
                  double value) {
    if (!graph_given(g, name, 1, &x)) return -1;
    Op op = {.kind = OP_PAD};
    op.u.pad.mode = mode;
    op.u.pad.value = value;
    Value v = g->value[x];
    for (int i = 0; i < v.n_dims; i++) {
        op.u.pad.before[i] = before[i];
        int64_t n = v.dim[i].size;
        if (__builtin_add_overflow(n, before[i], &n) || __builtin_add_overflow(n, after[i], &n) || n < 0)
            return graph_fail(g, name, "padding out of range");
        if (mode != ND_PAD_CONSTANT && v.dim[i].size == 0 && n > 0)
            return graph_fail(g, name, "padding of nothing by itself");
        v.dim[i].size = n;
    }
    return graph_emit(g, op, name, 1, &x, v);
}

/* ---- along axes -------------------------------------------------------------------------------------------------- */

ValueId graph_reduce(Graph *g, const char *name, ValueId x, NdReduce fn, uint32_t axes, bool keep) {
    if (!graph_given(g, name, 1, &x)) return -1;
    const Value *in = &g->value[x];
    Value v = {.type = in->type};
    for (int i = 0; i < in->n_dims; i++) {
        bool gone = axes >> i & 1;
        if (!gone || keep) v.dim[v.n_dims++] = gone ? dim_const(1) : in->dim[i];
    }
    Op op = {.kind = OP_REDUCE};
    op.u.reduce.fn = fn;
    op.u.reduce.axes = axes;
    return graph_emit(g, op, name, 1, &x, v);
}

ValueId graph_softmax(Graph *g, const char *name, ValueId x, NdSoftmax fn, int axis) {
    if (!graph_given(g, name, 1, &x)) return -1;
    if (axis < 0 || axis >= g->value[x].n_dims) return graph_fail(g, name, "axis out of range");
    Op op = {.kind = OP_SOFTMAX};
    op.u.along.axis = axis;
    op.u.along.soft = fn;
    return graph_emit(g, op, name, 1, &x, g->value[x]);
}

ValueId graph_matmul(Graph *g, const char *name, ValueId a, ValueId b, ValueId a_zero, ValueId b_zero) {
    if (!graph_given(g, name, 2, (ValueId[]){a, b})) return -1;
    const Value *av = &g->value[a], *bv = &g->value[b];
    if (av->n_dims < 1 || bv->n_dims < 1) return graph_fail(g, name, "a matrix product of single numbers");
    /* A vector is a row on the left, a column on the right, and that axis goes again. */
    Value left = *av, right = *bv, v;
    int64_t inner = av->dim[av->n_dims - 1].size, rows = av->n_dims > 1 ? av->dim[av->n_dims - 2].size : 1;
    int64_t inner_b = bv->dim[bv->n_dims > 1 ? bv->n_dims - 2 : 0].size;
    int64_t columns = bv->n_dims > 1 ? bv->dim[bv->n_dims - 1].size : 1;
    left.n_dims = av->n_dims > 2 ? av->n_dims - 2 : 0;
    right.n_dims = bv->n_dims > 2 ? bv->n_dims - 2 : 0;
    if (inner != inner_b || !broadcast(&left, &right, &v)) return graph_fail(g, name, "the matrices do not fit");
    if (v.n_dims + 2 > GRAPH_DIMS) return graph_fail(g, name, "too many axes");
    if (av->n_dims > 1) v.dim[v.n_dims++] = dim_const(rows);
    if (bv->n_dims > 1) v.dim[v.n_dims++] = dim_const(columns);
    v.type = nd_is_float(av->type) ? av->type : av->type == QT_I8 || av->type == QT_U8 ? QT_I32 : av->type;
    Op op = {.kind = OP_MATMUL};
    ValueId in[4] = {a, b};
    int n = 2;
    if ((op.u.along.a_zero = a_zero >= 0)) in[n++] = a_zero;
    if ((op.u.along.b_zero = b_zero >= 0)) in[n++] = b_zero;
    return graph_emit(g, op, name, n, in, v);
}

ValueId graph_gather(Graph *g, const char *name, ValueId x, ValueId index, int axis) {
    if (!graph_given(g, name, 2, (ValueId[]){x, index})) return -1;
    const Value *xv = &g->value[x], *iv = &g->value[index];
    if (axis < 0 || axis >= xv->n_dims) return graph_fail(g, name, "axis out of range");
    if (xv->n_dims - 1 + iv->n_dims > GRAPH_DIMS) return graph_fail(g, name, "too many axes");
    if (nd_is_float(iv->type)) return graph_fail(g, name, "indices must be whole numbers");
    Value v = {.type = xv->type};
    for (int i = 0; i < axis; i++) v.dim[v.n_dims++] = xv->dim[i];
    for (int i = 0; i < iv->n_dims; i++) v.dim[v.n_dims++] = iv->dim[i];
    for (int i = axis + 1; i < xv->n_dims; i++) v.dim[v.n_dims++] = xv->dim[i];
    Op op = {.kind = OP_GATHER};
    op.u.along.axis = axis;
    return graph_emit(g, op, name, 2, (ValueId[]){x, index}, v);
}
