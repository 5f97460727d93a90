/* From the nodes of an ONNX file to a graph: names, constants, and node after node. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/strbuf.h"
#include "graph/onnx_internal.h"

static const OnnxRow *const tables[] = {onnx_element_rows, onnx_shape_rows, onnx_window_rows, onnx_along_rows};

static Text text_of(const char *s) { return (Text){s ? s : "", s ? strlen(s) : 0}; }

int onnx_fail(OnnxImport *im, const char *fmt, ...) {
    if (onnx_stopped(im)) return -1;
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    im->failed = true;
    const OnnxNode *n = im->node;
    if (!n) return err_set(im->e, "%s: %s", im->m->path, what);
    return err_set(im->e, "%s: node %zu, %s (%s): %s", im->m->path, im->node_index,
                   text_printable(text_of(n->name)).text, text_printable(text_of(n->op_type)).text, what);
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static bool is_standard(const OnnxNode *n) { return !n->domain || !*n->domain || !strcmp(n->domain, "ai.onnx"); }

static const OnnxRow *find_operator(const OnnxNode *n) {
    if (!n->op_type || !is_standard(n)) return NULL;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const OnnxRow *r = tables[t]; r->name; r++)
            if (!strcmp(r->name, n->op_type)) return r;
    return NULL;
}

/* One error for all of them. */
static int check_operators(OnnxImport *im) {
    enum { MOST = 24 };
    const Onnx__GraphProto *g = im->m->proto->graph;
    const OnnxNode *kinds[MOST];
    int count[MOST] = {0}, n = 0;
    bool more = false;
    for (size_t i = 0; i < g->n_node; i++) {
        const OnnxNode *node = g->node[i];
        if (find_operator(node)) continue;
        int k = 0;
        while (k < n && (strcmp(kinds[k]->op_type ? kinds[k]->op_type : "", node->op_type ? node->op_type : "") != 0 ||
                         is_standard(kinds[k]) != is_standard(node)))
            k++;
        if (k == MOST) more = true;
        else kinds[k] = node;
        if (k < MOST) count[k]++;
        if (k == n && n < MOST) n++;
    }
    if (!n) return 0;
    StrBuf list = {0};
    for (int k = 0; k < n; k++) {
        strbuf_printf(&list, "%s", k ? ", " : "");
        if (!is_standard(kinds[k])) strbuf_printf(&list, "%.40s.", text_printable(text_of(kinds[k]->domain)).text);
        strbuf_printf(&list, "%.40s", text_printable(text_of(kinds[k]->op_type)).text);
        if (count[k] > 1) strbuf_printf(&list, " (%d times)", count[k]);
    }
    im->failed = true;
    err_set(im->e, "%s: operators that are not supported: %s%s", im->m->path, list.data ? list.data : "",
            more ? ", ..." : "");
    strbuf_free(&list);
    return -1;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static size_t count_names(const OnnxModel *m) {
    const Onnx__GraphProto *g = m->proto->graph;
    size_t n = (size_t)m->n_inputs + g->n_initializer;
    for (size_t i = 0; i < g->n_node; i++) n += g->node[i]->n_output;
    return n;
}

/* Into im->names, which has room for all of them. */
static int collect_names(OnnxImport *im) {
    const Onnx__GraphProto *g = im->m->proto->graph;
    size_t twin[2];
    NameMap map;
    for (int i = 0; i < im->m->n_inputs; i++) im->names[im->n_names++].name = text_of(im->m->input[i].name);
    for (size_t i = 0; i < g->n_initializer; i++) im->names[im->n_names++].name = text_of(g->initializer[i]->name);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            im->names[im->n_names++].name = text_of(g->node[i]->output[k]);
    for (size_t i = 0; i < im->n_names; i++) im->names[i].value = -1;
    int status = name_map_build(&map, im->names, sizeof *im->names, im->n_names, true, twin);
    im->by_name = map;
    if (status > 0)
        return onnx_fail(im, "the name %s is given to two values", text_printable(im->names[twin[1]].name).text);
    return status ? onnx_fail(im, "out of memory") : 0;
}

static OnnxName *find_name(const OnnxImport *im, const char *name) {
    int64_t i = name && *name ? name_map_find(&im->by_name, name, strlen(name)) : -1;
    return i < 0 ? NULL : &im->names[i];
}

/* ---- inputs and constants ---------------------------------------------------------------------------------------- */

static int bind_input(OnnxImport *im, int i) {
    const OnnxPort *p = &im->m->input[i];
    const Nd *b = &im->bound[i];
    if (b->n_dims < 0 || b->n_dims > GRAPH_DIMS) return onnx_fail(im, "input %.64s: %d axes", p->name, b->n_dims);
    if (b->type != p->type)
        return onnx_fail(im, "input %.64s has type %s, not %s", p->name, qtype_info(p->type)->name,
                         qtype_info(b->type)->name);
    bool fits = p->n_dims < 0 || p->n_dims == b->n_dims;
    for (int k = 0; k < b->n_dims && fits; k++) fits = p->n_dims < 0 || p->dim[k] < 0 || p->dim[k] == b->dim[k];
    if (!fits) {
        StrBuf text = {0};
        for (int k = 0; k < p->n_dims; k++) {
            strbuf_puts(&text, k ? ", " : "");
            if (p->dim[k] >= 0) strbuf_printf(&text, "%" PRId64, p->dim[k]);
            else strbuf_puts(&text, *p->symbol[k] ? p->symbol[k] : "?");
        }
        strbuf_puts(&text, "], not [");
        for (int k = 0; k < b->n_dims; k++) strbuf_printf(&text, "%s%" PRId64, k ? ", " : "", b->dim[k]);
        onnx_fail(im, "input %.64s has shape [%s]", p->name, text.data ? text.data : "");
        strbuf_free(&text);
        return -1;
    }
    /* The same symbol is the same size everywhere. */
    for (int j = 0; j <= i; j++)
        for (int a = 0; a < im->m->input[j].n_dims; a++)
            for (int k = 0; k < p->n_dims; k++)
                if (p->dim[k] < 0 && *p->symbol[k] && im->m->input[j].dim[a] < 0 &&
                    !strcmp(im->m->input[j].symbol[a], p->symbol[k]) && im->bound[j].dim[a] != b->dim[k])
                    return onnx_fail(im, "inputs %.64s and %.64s differ in %.64s: %" PRId64 " and %" PRId64,
                                     im->m->input[j].name, p->name, p->symbol[k], im->bound[j].dim[a], b->dim[k]);
    Dim dims[GRAPH_DIMS];
    for (int k = 0; k < b->n_dims; k++) dims[k] = dim_const(b->dim[k]);
    im->input[i] = graph_input(im->g, p->name, p->type, b->n_dims, dims);
    im->names[i].value = im->input[i];
    if (im->by_value) im->by_value[i] = false;
    return 0;
}

static ValueId weight_of(OnnxImport *im, const char *name, const Nd *nd) {
    const void *data = nd->data ? nd->data : graph_memory(im->g, 1); /* without elements */
    return graph_weight(im->g, name ? name : "", nd->type, nd->n_dims, nd->dim, -1, data);
}

static int read_initialisers(OnnxImport *im) {
    const Onnx__GraphProto *g = im->m->proto->graph;
    for (size_t i = 0; i < g->n_initializer && !onnx_stopped(im); i++) {
        Nd nd;
        if (onnx_tensor_nd(im->m, g->initializer[i], im->g, &nd, im->e)) {
            im->failed = true;
            return -1;
        }
        im->names[(size_t)im->m->n_inputs + i].value = weight_of(im, g->initializer[i]->name, &nd);
    }
    return 0;
}

bool onnx_has_in(const OnnxImport *im, int i) {
    return (size_t)i < im->node->n_input && im->node->input[i] && *im->node->input[i];
}

ValueId onnx_maybe_in(OnnxImport *im, int i) {
    if (onnx_stopped(im) || !onnx_has_in(im, i)) return -1;
    const char *name = im->node->input[i];
    const OnnxName *n = find_name(im, name);
    if (!n) return onnx_fail(im, "input %s is no value of the graph", text_printable(text_of(name)).text);
    if (n->value < 0)
        return onnx_fail(im, "input %s is not made by a node before: the nodes are not in order, or in a circle",
                         text_printable(text_of(name)).text);
    const Value *v = &im->g->value[n->value];
    if (v->kind != VALUE_WEIGHT) return n->value;
    Value copy = *v; /* of one operator alone: it may be divided as that one wants */
    int64_t dims[GRAPH_DIMS];
    for (int k = 0; k < copy.n_dims; k++) dims[k] = copy.dim[k].size;
    return graph_weight(im->g, copy.name, copy.type, copy.n_dims, dims, -1, copy.memory);
}

ValueId onnx_in(OnnxImport *im, int i) {
    if (!onnx_stopped(im) && !onnx_has_in(im, i)) return onnx_fail(im, "input %d is missing", i);
    return onnx_maybe_in(im, i);
}

bool onnx_wants_out(const OnnxImport *im, int i) {
    return (size_t)i < im->node->n_output && im->node->output[i] && *im->node->output[i];
}

void onnx_out(OnnxImport *im, int i, ValueId v) {
    if (onnx_stopped(im) || !onnx_wants_out(im, i)) return;
    OnnxName *n = find_name(im, im->node->output[i]);
    if (n && v >= 0) n->value = v;
}

ValueId onnx_const(OnnxImport *im, QType t, int n_dims, const int64_t *dims, const void *data) {
    if (onnx_stopped(im)) return -1;
    Nd nd = {.type = t, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) nd.dim[i] = dims[i];
    size_t bytes = (size_t)nd_count(&nd) * nd_size(t);
    nd.data = graph_memory(im->g, bytes);
    if (!nd.data) return -1;
    if (bytes) memcpy(nd.data, data, bytes);
    return weight_of(im, im->label, &nd);
}

ValueId onnx_const_f64(OnnxImport *im, QType t, double x) {
    uint64_t room = 0;
    Nd from = {.type = QT_F64, .data = &x}, to = {.type = t, .data = &room};
    nd_cast(&from, &to, (NdPart){0, 1});
    return onnx_const(im, t, 0, NULL, &room);
}

ValueId onnx_const_ints(OnnxImport *im, int n, const int64_t *x) {
    return onnx_const(im, QT_I64, 1, (int64_t[]){n}, x);
}

bool onnx_constant(OnnxImport *im, int i, const char *what, Nd *out) {
    ValueId v = onnx_in(im, i);
    if (v < 0) return false;
    *out = value_nd(im->g, v);
    if (im->g->value[v].kind == VALUE_WEIGHT) return true;
    for (int k = 0; k < im->m->n_inputs; k++)
        if (im->input[k] == v && im->bound[k].data) {
            *out = im->bound[k];
            if (im->by_value) im->by_value[k] = true;
            return true;
        }
    onnx_fail(im, "%s must be constant: here it depends on the data", what);
    return false;
}

int onnx_constant_ints(OnnxImport *im, int i, const char *what, int room, int64_t *out) {
    Nd nd;
    if (!onnx_constant(im, i, what, &nd)) return -1;
    int64_t n = nd_count(&nd);
    if (nd.n_dims > 1 || nd_is_float(nd.type)) return onnx_fail(im, "%s must be a list of whole numbers", what);
    if (n > room) return onnx_fail(im, "%s has %" PRId64 " numbers; at most %d are supported", what, n, room);
    for (int64_t k = 0; k < n; k++) out[k] = nd_get_i64(&nd, k);
    return (int)n;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

const OnnxAttribute *onnx_attribute(const OnnxImport *im, const char *name) {
    for (size_t i = 0; i < im->node->n_attribute; i++)
        if (im->node->attribute[i]->name && !strcmp(im->node->attribute[i]->name, name)) return im->node->attribute[i];
    return NULL;
}

int64_t onnx_int(OnnxImport *im, const char *name, int64_t standard) {
    const OnnxAttribute *a = onnx_attribute(im, name);
    if (!a) return standard;
    if (!a->has_i) return onnx_fail(im, "attribute %s is no whole number", name);
    return a->i;
}

double onnx_float(OnnxImport *im, const char *name, double standard) {
    const OnnxAttribute *a = onnx_attribute(im, name);
    if (!a) return standard;
    if (!a->has_f) return onnx_fail(im, "attribute %s is no number", name);
    return (double)a->f;
}

/* Texts are short: the bytes of the file are not NUL-terminated, so they are compared with those there are. */
const char *onnx_string(OnnxImport *im, const char *name, const char *standard) {
    static const char *const known[] = {"NOTSET",
                                        "SAME_UPPER",
                                        "SAME_LOWER",
                                        "VALID",
                                        "constant",
                                        "reflect",
                                        "edge",
                                        "wrap",
                                        "nearest",
                                        "linear",
                                        "cubic",
                                        "half_pixel",
                                        "half_pixel_symmetric",
                                        "pytorch_half_pixel",
                                        "align_corners",
                                        "asymmetric",
                                        "tf_crop_and_resize",
                                        "round_prefer_floor",
                                        "round_prefer_ceil",
                                        "floor",
                                        "ceil",
                                        "none",
                                        "add",
                                        "mul",
                                        "max",
                                        "min",
                                        "tanh",
                                        "LEFT",
                                        "RIGHT",
                                        "DCR",
                                        "CRD",
                                        "stretch",
                                        "not_larger",
                                        "not_smaller"};
    const OnnxAttribute *a = onnx_attribute(im, name);
    if (!a) return standard;
    for (size_t i = 0; a->has_s && i < sizeof known / sizeof *known; i++)
        if (a->s.len == strlen(known[i]) && !memcmp(a->s.data, known[i], a->s.len)) return known[i];
    onnx_fail(im, "attribute %s is \"%s\", which is not supported", name,
              text_printable((Text){(const char *)a->s.data, a->has_s ? a->s.len : 0}).text);
    return standard;
}

int onnx_ints(OnnxImport *im, const char *name, int room, int64_t *out) {
    const OnnxAttribute *a = onnx_attribute(im, name);
    if (!a) return -1;
    if (a->n_ints > (size_t)room)
        return onnx_fail(im, "attribute %s has %zu numbers; at most %d are supported", name, a->n_ints, room);
    if (a->n_ints) memcpy(out, a->ints, a->n_ints * sizeof *out);
    return (int)a->n_ints;
}

int onnx_floats(OnnxImport *im, const char *name, int room, double *out) {
    const OnnxAttribute *a = onnx_attribute(im, name);
    if (!a) return -1;
    if (a->n_floats > (size_t)room)
        return onnx_fail(im, "attribute %s has %zu numbers; at most %d are supported", name, a->n_floats, room);
    for (size_t i = 0; i < a->n_floats; i++) out[i] = (double)a->floats[i];
    return (int)a->n_floats;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

int onnx_axis(OnnxImport *im, int64_t axis, int n) {
    if (axis >= -n && axis < n) return (int)(axis < 0 ? axis + n : axis);
    onnx_fail(im, "axis %" PRId64 " of a value with %d axes", axis, n);
    return 0;
}

int onnx_dims(const OnnxImport *im, ValueId v, int64_t *dims) {
    if (v < 0) return 0;
    const Value *x = &im->g->value[v];
    for (int i = 0; i < x->n_dims; i++) dims[i] = x->dim[i].size;
    return x->n_dims;
}

ValueId onnx_channels_last(OnnxImport *im, ValueId v) {
    if (v < 0) return -1;
    int n = im->g->value[v].n_dims, perm[GRAPH_DIMS] = {0};
    if (n < 2) return onnx_fail(im, "wants an image with channels");
    for (int i = 1; i < n; i++) perm[i] = i + 1 < n ? i + 1 : 1;
    return graph_transpose(im->g, im->label, v, perm);
}

ValueId onnx_channels_first(OnnxImport *im, ValueId v) {
    if (v < 0) return -1;
    int n = im->g->value[v].n_dims, perm[GRAPH_DIMS] = {0};
    for (int i = 1; i < n; i++) perm[i] = i == 1 ? n - 1 : i - 1;
    return graph_transpose(im->g, im->label, v, perm);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void import_node(OnnxImport *im, size_t i) {
    im->node = im->m->proto->graph->node[i];
    im->node_index = i;
    const OnnxRow *row = find_operator(im->node);
    const char *name = im->node->name && *im->node->name ? im->node->name
                       : im->node->n_output              ? im->node->output[0]
                                                         : row->name;
    snprintf(im->label, sizeof im->label, "%s", name);
    im->arg = row->arg;
    row->import(im);
    if (im->g->failed && !im->failed) {
        im->failed = true;
        err_set(im->e, "%s: node %zu (%s): %s", im->m->path, i, row->name, im->g->err.msg);
    }
    for (size_t k = 0; k < im->node->n_output && !onnx_stopped(im); k++) {
        const OnnxName *n = find_name(im, im->node->output[k]);
        if (n && n->value < 0) onnx_fail(im, "result %zu of this operator is not supported", k);
    }
}

static int import_all(OnnxImport *im) {
    const Onnx__GraphProto *g = im->m->proto->graph;
    if (check_operators(im) || collect_names(im)) return -1;
    for (int i = 0; i < im->m->n_inputs; i++)
        if (bind_input(im, i)) return -1;
    if (read_initialisers(im)) return -1;
    for (size_t i = 0; i < g->n_node && !onnx_stopped(im); i++) import_node(im, i);
    im->node = NULL;
    im->g->n_outputs = im->m->n_outputs;
    for (int i = 0; i < im->m->n_outputs && !onnx_stopped(im); i++) {
        const OnnxName *n = find_name(im, im->m->output[i].name);
        if (!n || n->value < 0) return onnx_fail(im, "nothing makes the result %.64s", im->m->output[i].name);
        im->g->output[i] = n->value;
    }
    if (im->g->failed && !im->failed) return err_set(im->e, "%s: %s", im->m->path, im->g->err.msg);
    return im->failed ? -1 : graph_check(im->g, im->e);
}

int onnx_build(const OnnxModel *m, const Nd *bound, bool *by_value, Graph *g, Err *e) {
    graph_init(g);
    OnnxImport im = {.m = m, .g = g, .bound = bound, .e = e};
    im.by_value = by_value;
    im.input = calloc((size_t)m->n_inputs + 1, sizeof *im.input);
    im.names = calloc(count_names(m) + 1, sizeof *im.names);
    int status = im.input && im.names ? import_all(&im) : err_set(e, "%s: out of memory", m->path);
    name_map_free(&im.by_name);
    free(im.names);
    free(im.input);
    return status;
}
