/* ONNX operators that change shapes, move elements, or make constants. */
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "graph/onnx_internal.h"

/* ---- constants --------------------------------------------------------------------------------------------------- */

static void constant_tensor(OnnxImport *im, const OnnxTensor *t) {
    Nd nd;
    if (onnx_tensor_nd(im->m, t, im->g, &nd, im->e)) {
        im->failed = true;
        return;
    }
    const void *data = nd.data ? nd.data : graph_memory(im->g, 1);
    onnx_out(im, 0, graph_weight(im->g, im->label, nd.type, nd.n_dims, nd.dim, -1, data));
}

static void import_constant(OnnxImport *im) {
    const OnnxAttribute *a;
    if ((a = onnx_attribute(im, "value")) && a->t) {
        constant_tensor(im, a->t);
    } else if ((a = onnx_attribute(im, "value_int")) && a->has_i) {
        onnx_out(im, 0, onnx_const(im, QT_I64, 0, NULL, &a->i));
    } else if ((a = onnx_attribute(im, "value_ints"))) {
        onnx_out(im, 0, onnx_const(im, QT_I64, 1, (int64_t[]){(int64_t)a->n_ints}, a->ints));
    } else if ((a = onnx_attribute(im, "value_float")) && a->has_f) {
        onnx_out(im, 0, onnx_const(im, QT_F32, 0, NULL, &a->f));
    } else if ((a = onnx_attribute(im, "value_floats"))) {
        onnx_out(im, 0, onnx_const(im, QT_F32, 1, (int64_t[]){(int64_t)a->n_floats}, a->floats));
    } else onnx_fail(im, "a constant of this kind is not supported");
}

static void import_constant_of_shape(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS];
    int n = onnx_constant_ints(im, 0, "the shape", GRAPH_DIMS, dims);
    if (n < 0) return;
    const OnnxAttribute *a = onnx_attribute(im, "value");
    ValueId one = -1;
    if (a && a->t) {
        Nd nd;
        if (onnx_tensor_nd(im->m, a->t, im->g, &nd, im->e)) im->failed = true;
        else if (nd_count(&nd) != 1) onnx_fail(im, "the value must be one number");
        else one = onnx_const(im, nd.type, 0, NULL, nd.data);
    } else one = onnx_const(im, QT_F32, 0, NULL, &(float){0});
    onnx_out(im, 0, graph_expand(im->g, im->label, one, n, dims));
}

static void import_shape(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS];
    int n = onnx_dims(im, onnx_in(im, 0), dims);
    int64_t start = onnx_int(im, "start", 0), end = onnx_int(im, "end", n);
    start = i64_min(i64_max(start < 0 ? start + n : start, 0), n);
    end = i64_min(i64_max(end < 0 ? end + n : end, start), n);
    onnx_out(im, 0, onnx_const_ints(im, (int)(end - start), dims + start));
}

static void import_size(OnnxImport *im) {
    ValueId x = onnx_in(im, 0);
    if (x >= 0) onnx_out(im, 0, onnx_const(im, QT_I64, 0, NULL, &(int64_t){value_count(im->g, x)}));
}

static void import_range(OnnxImport *im) {
    Nd limit[3];
    for (int i = 0; i < 3; i++)
        if (!onnx_constant(im, i, "a range", &limit[i])) return;
    double from = nd_get_f64(&limit[0], 0), step = nd_get_f64(&limit[2], 0);
    double n = step == 0 ? -1 : (nd_get_f64(&limit[1], 0) - from) / step;
    enum { MOST = 1 << 24 };
    if (!(n <= MOST) || step == 0) {
        onnx_fail(im, "a range of too many numbers");
        return;
    }
    int64_t count = n <= 0 ? 0 : (int64_t)n + ((double)(int64_t)n < n);
    QType type = limit[0].type;
    Nd y = {.type = type, .n_dims = 1, .dim = {count}, .data = graph_memory(im->g, (size_t)count * nd_size(type))};
    for (int64_t i = 0; i < count && y.data; i++) {
        double v = from + (double)i * step;
        int64_t whole = nd_get_i64(&limit[0], 0) + i * nd_get_i64(&limit[2], 0);
        Nd value = nd_is_float(type) ? (Nd){.type = QT_F64, .data = &v} : (Nd){.type = QT_I64, .data = &whole};
        Nd to = {.type = type, .data = (uint8_t *)y.data + (size_t)i * nd_size(type)};
        nd_cast(&value, &to, (NdPart){0, 1});
    }
    onnx_out(im, 0, graph_weight(im->g, im->label, type, 1, y.dim, -1, y.data));
}

/* ---- other axes -------------------------------------------------------------------------------------------------- */

static void import_reshape(OnnxImport *im) {
    int64_t old[GRAPH_DIMS], dims[GRAPH_DIMS], known = 1, all = 1;
    ValueId x = onnx_in(im, 0);
    int n_old = onnx_dims(im, x, old), n = onnx_constant_ints(im, 1, "the new shape", GRAPH_DIMS, dims), open = -1;
    if (n < 0 || x < 0) return;
    bool zero_is_zero = onnx_int(im, "allowzero", 0) != 0;
    for (int i = 0; i < n_old; i++) all *= old[i];
    for (int i = 0; i < n; i++) {
        if (dims[i] == 0 && !zero_is_zero) dims[i] = i < n_old ? old[i] : -2;
        if (dims[i] == -1 && open < 0) open = i;
        else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known)) {
            onnx_fail(im, "size %" PRId64 " of axis %d is out of range", dims[i], i);
            return;
        }
    }
    if (open >= 0) dims[open] = known ? all / known : 0;
    onnx_out(im, 0, graph_reshape(im->g, im->label, x, n, dims));
}

static void import_flatten(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], two[2] = {1, 1};
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims);
    int64_t axis = onnx_int(im, "axis", 1);
    int at = axis == n ? n : onnx_axis(im, axis, n);
    for (int i = 0; i < n; i++) two[i >= at] *= dims[i];
    onnx_out(im, 0, graph_reshape(im->g, im->label, x, 2, two));
}

/* Axes of the node's attribute, or from opset 13 of its second input; -1: none are given. */
static int axes_of(OnnxImport *im, int64_t *axes) {
    if (im->m->opset < 13) return onnx_ints(im, "axes", GRAPH_DIMS, axes);
    return onnx_has_in(im, 1) ? onnx_constant_ints(im, 1, "the axes", GRAPH_DIMS, axes) : -1;
}

static void import_squeeze(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], out[GRAPH_DIMS], axes[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), n_axes = axes_of(im, axes), m = 0;
    uint32_t gone = 0;
    for (int i = 0; i < n_axes; i++) gone |= 1u << onnx_axis(im, axes[i], n);
    for (int i = 0; i < n; i++) {
        if (n_axes < 0 && dims[i] == 1) gone |= 1u << i;
        if (gone >> i & 1 && dims[i] != 1) onnx_fail(im, "axis %d has size %" PRId64 ", not 1", i, dims[i]);
        if (!(gone >> i & 1)) out[m++] = dims[i];
    }
    onnx_out(im, 0, graph_reshape(im->g, im->label, x, m, out));
}

static void import_unsqueeze(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], out[GRAPH_DIMS], axes[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), n_axes = axes_of(im, axes), k = 0;
    if (n_axes < 0 || n + n_axes > GRAPH_DIMS) {
        onnx_fail(im, "unusable axes");
        return;
    }
    uint32_t fresh = 0;
    for (int i = 0; i < n_axes; i++) fresh |= 1u << onnx_axis(im, axes[i], n + n_axes);
    if (__builtin_popcount(fresh) != n_axes) onnx_fail(im, "an axis is named twice");
    for (int i = 0; i < n + n_axes && !onnx_stopped(im); i++) out[i] = fresh >> i & 1 ? 1 : dims[k++];
    onnx_out(im, 0, graph_reshape(im->g, im->label, x, n + n_axes, out));
}

static void import_transpose(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], given[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), perm[GRAPH_DIMS], m = onnx_ints(im, "perm", GRAPH_DIMS, given);
    if (m >= 0 && m != n) onnx_fail(im, "a permutation of %d axes for a value with %d", m, n);
    for (int i = 0; i < n && !onnx_stopped(im); i++) perm[i] = m < 0 ? n - 1 - i : onnx_axis(im, given[i], n);
    onnx_out(im, 0, graph_transpose(im->g, im->label, x, perm));
}

static void import_expand(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_constant_ints(im, 1, "the new shape", GRAPH_DIMS, dims);
    if (n >= 0) onnx_out(im, 0, graph_expand(im->g, im->label, x, n, dims));
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Operators take up to OP_IN inputs: more are joined in groups, and the groups again. */
static ValueId concat(OnnxImport *im, ValueId *x, size_t n, int axis) {
    while (n > 1 && !onnx_stopped(im)) {
        size_t m = 0;
        for (size_t i = 0; i < n; i += OP_IN, m++) {
            size_t k = n - i < OP_IN ? n - i : OP_IN;
            x[m] = k == 1 ? x[i] : graph_concat(im->g, im->label, (int)k, x + i, axis);
        }
        n = m;
    }
    return x[0];
}

static void import_concat(OnnxImport *im) {
    enum { MOST = 4096 };
    static const size_t most = MOST;
    ValueId x[MOST];
    size_t n = im->node->n_input;
    if (n < 1 || n > most) {
        onnx_fail(im, "%zu inputs; 1 to %zu are supported", n, most);
        return;
    }
    for (size_t i = 0; i < n; i++) x[i] = onnx_in(im, (int)i);
    if (onnx_stopped(im)) return;
    int axis = onnx_axis(im, onnx_int(im, "axis", 0), im->g->value[x[0]].n_dims);
    if (!onnx_stopped(im)) onnx_out(im, 0, concat(im, x, n, axis));
}

static void import_split(OnnxImport *im) {
    enum { MOST = 1024 };
    int64_t dims[GRAPH_DIMS], sizes[MOST], begin[GRAPH_DIMS] = {0}, step[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), parts = (int)i64_min((int64_t)im->node->n_output, MOST), given = -1;
    int axis = onnx_axis(im, onnx_int(im, "axis", 0), n);
    if (onnx_stopped(im)) return;
    if (im->m->opset < 13) given = onnx_ints(im, "split", MOST, sizes);
    else if (onnx_has_in(im, 1)) given = onnx_constant_ints(im, 1, "the sizes", MOST, sizes);
    if (given >= 0 && given != parts) onnx_fail(im, "%d sizes for %d results", given, parts);
    int64_t each = parts ? ceil_div(dims[axis], parts) : 0, left = dims[axis];
    for (int i = 0; i < GRAPH_DIMS; i++) step[i] = 1;
    for (int i = 0; i < parts && !onnx_stopped(im); i++) {
        dims[axis] = given >= 0 ? sizes[i] : i64_min(each, left);
        if (dims[axis] < 0 || dims[axis] > left) {
            onnx_fail(im, "the sizes do not fit");
            return;
        }
        onnx_out(im, i, graph_cut(im->g, im->label, x, begin, step, dims));
        begin[axis] += dims[axis];
        left -= dims[axis];
    }
    if (left && !onnx_stopped(im)) onnx_fail(im, "the sizes do not fit");
}

/* Where a slice begins and how many elements it has, from numbers that may lie outside the axis. */
static bool slice_range(int64_t start, int64_t end, int64_t step, int64_t n, int64_t *begin, int64_t *size) {
    if (step == 0) return false;
    if (step == INT64_MIN) step++;
    if (start < 0) start = start < -n ? -1 - (step > 0 ? -1 : 0) : start + n; /* before the first: 0, or -1 backwards */
    if (end < 0) end = end < -n ? (step > 0 ? 0 : -1) : end + n;
    if (step > 0) {
        start = i64_min(start, n);
        end = i64_min(end, n);
        *size = start < end ? (end - start - 1) / step + 1 : 0;
    } else {
        start = i64_min(start, n - 1);
        end = i64_min(end, n - 1);
        *size = start > end ? (start - end - 1) / -step + 1 : 0;
    }
    *begin = start;
    return true;
}

static void import_slice(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], starts[GRAPH_DIMS], ends[GRAPH_DIMS], axes[GRAPH_DIMS], steps[GRAPH_DIMS];
    int64_t begin[GRAPH_DIMS] = {0}, step[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), given, n_ends, n_axes = -1, n_steps = -1;
    if (im->m->opset < 10) {
        given = onnx_ints(im, "starts", GRAPH_DIMS, starts);
        n_ends = onnx_ints(im, "ends", GRAPH_DIMS, ends);
        n_axes = onnx_ints(im, "axes", GRAPH_DIMS, axes);
    } else {
        given = onnx_constant_ints(im, 1, "the start of a slice", GRAPH_DIMS, starts);
        n_ends = onnx_constant_ints(im, 2, "the end of a slice", GRAPH_DIMS, ends);
        if (onnx_has_in(im, 3)) n_axes = onnx_constant_ints(im, 3, "the axes of a slice", GRAPH_DIMS, axes);
        if (onnx_has_in(im, 4)) n_steps = onnx_constant_ints(im, 4, "the step of a slice", GRAPH_DIMS, steps);
    }
    if (given < 0 || given != n_ends || (n_axes >= 0 && n_axes != given) || (n_steps >= 0 && n_steps != given))
        onnx_fail(im, "starts, ends, axes and steps do not fit");
    for (int i = 0; i < GRAPH_DIMS; i++) step[i] = 1;
    for (int i = 0; i < given && !onnx_stopped(im); i++) {
        int axis = onnx_axis(im, n_axes < 0 ? i : axes[i], n);
        if (onnx_stopped(im)) return;
        step[axis] = n_steps < 0 ? 1 : steps[i];
        if (!slice_range(starts[i], ends[i], step[axis], dims[axis], &begin[axis], &dims[axis]))
            onnx_fail(im, "a step of 0");
    }
    if (!onnx_stopped(im)) onnx_out(im, 0, graph_cut(im->g, im->label, x, begin, step, dims));
}

static void import_gather(OnnxImport *im) {
    ValueId x = onnx_in(im, 0), index = onnx_in(im, 1);
    if (onnx_stopped(im)) return;
    int axis = onnx_axis(im, onnx_int(im, "axis", 0), im->g->value[x].n_dims);
    if (!onnx_stopped(im)) onnx_out(im, 0, graph_gather(im->g, im->label, x, index, axis));
}

static NdPad pad_mode(OnnxImport *im) {
    const char *mode = onnx_string(im, "mode", "constant");
    return !strcmp(mode, "reflect") ? ND_PAD_REFLECT
           : !strcmp(mode, "edge")  ? ND_PAD_EDGE
           : !strcmp(mode, "wrap")  ? ND_PAD_WRAP
                                    : ND_PAD_CONSTANT;
}

static void import_pad(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], pads[2 * GRAPH_DIMS], before[GRAPH_DIMS] = {0}, after[GRAPH_DIMS] = {0}, axes[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), n_axes = -1;
    double value = 0;
    bool by_input = im->m->opset >= 11;
    int given = by_input ? onnx_constant_ints(im, 1, "the padding", 2 * GRAPH_DIMS, pads)
                         : onnx_ints(im, "pads", 2 * GRAPH_DIMS, pads);
    if (by_input && onnx_has_in(im, 2)) {
        Nd nd;
        if (!onnx_constant(im, 2, "the padding's value", &nd) || nd_count(&nd) != 1) {
            onnx_fail(im, "the padding's value must be one number");
            return;
        }
        value = nd_get_f64(&nd, 0);
    } else if (!by_input) value = onnx_float(im, "value", 0);
    if (onnx_has_in(im, 3)) n_axes = onnx_constant_ints(im, 3, "the axes", GRAPH_DIMS, axes);
    int m = n_axes < 0 ? n : n_axes;
    if (given != 2 * m) onnx_fail(im, "%d numbers of padding for %d axes", given, m);
    for (int i = 0; i < m && !onnx_stopped(im); i++) {
        int axis = n_axes < 0 ? i : onnx_axis(im, axes[i], n);
        before[axis] = pads[i];
        after[axis] = pads[m + i];
    }
    if (!onnx_stopped(im)) onnx_out(im, 0, graph_pad(im->g, im->label, x, pad_mode(im), before, after, value));
}

/* Repeats of axis i: a new axis of size r before it, broadcast, then both as one. */
static void import_tile(OnnxImport *im) {
    int64_t dims[GRAPH_DIMS], repeats[GRAPH_DIMS];
    ValueId x = onnx_in(im, 0);
    int n = onnx_dims(im, x, dims), given = onnx_constant_ints(im, 1, "the repeats", GRAPH_DIMS, repeats);
    if (given != n) onnx_fail(im, "%d repeats for %d axes", given, n);
    for (int i = 0; i < n && !onnx_stopped(im); i++) {
        int64_t wide[3] = {1, 1, 1};
        if (repeats[i] < 0) onnx_fail(im, "a number of repeats below 0");
        if (repeats[i] == 1) continue;
        for (int k = 0; k < n; k++) wide[k < i ? 0 : 2] *= dims[k];
        x = graph_reshape(im->g, im->label, x, 3, wide);
        wide[1] = repeats[i];
        x = graph_expand(im->g, im->label, x, 3, wide);
        dims[i] *= repeats[i];
        x = graph_reshape(im->g, im->label, x, n, dims);
    }
    onnx_out(im, 0, x);
}

/* Blocks of b x b pixels from channels, and back; arg 1: to space. */
static void import_depth_space(OnnxImport *im) {
    int64_t d[GRAPH_DIMS], b = onnx_int(im, "blocksize", 0);
    ValueId x = onnx_in(im, 0);
    bool columns = strcmp(onnx_string(im, "mode", "DCR"), "CRD") == 0;
    if (onnx_dims(im, x, d) != 4 || b < 1 || b > 1 << 20 || (im->arg ? d[1] % (b * b) : d[2] % b || d[3] % b)) {
        onnx_fail(im, "an image of other sizes is needed");
        return;
    }
    if (im->arg) {
        int64_t c = d[1] / (b * b);
        const int64_t split[6] = {d[0], columns ? c : b, b, columns ? b : c, d[2], d[3]};
        const int by_depth[6] = {0, 3, 4, 1, 5, 2}, by_column[6] = {0, 1, 4, 2, 5, 3};
        x = graph_reshape(im->g, im->label, x, 6, split);
        x = graph_transpose(im->g, im->label, x, columns ? by_column : by_depth);
        x = graph_reshape(im->g, im->label, x, 4, (int64_t[]){d[0], c, d[2] * b, d[3] * b});
    } else {
        x = graph_reshape(im->g, im->label, x, 6, (int64_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b});
        x = graph_transpose(im->g, im->label, x, (int[]){0, 3, 5, 1, 2, 4});
        x = graph_reshape(im->g, im->label, x, 4, (int64_t[]){d[0], d[1] * b * b, d[2] / b, d[3] / b});
    }
    onnx_out(im, 0, x);
}

const OnnxRow onnx_shape_rows[] = {
    {"Concat", import_concat, 0},
    {"Constant", import_constant, 0},
    {"ConstantOfShape", import_constant_of_shape, 0},
    {"DepthToSpace", import_depth_space, 1},
    {"Expand", import_expand, 0},
    {"Flatten", import_flatten, 0},
    {"Gather", import_gather, 0},
    {"Pad", import_pad, 0},
    {"Range", import_range, 0},
    {"Reshape", import_reshape, 0},
    {"Shape", import_shape, 0},
    {"Size", import_size, 0},
    {"Slice", import_slice, 0},
    {"SpaceToDepth", import_depth_space, 0},
    {"Split", import_split, 0},
    {"Squeeze", import_squeeze, 0},
    {"Tile", import_tile, 0},
    {"Transpose", import_transpose, 0},
    {"Unsqueeze", import_unsqueeze, 0},
    {NULL, NULL, 0},
};
