/* ONNX files: bytes, form, and tensors. The message format is protobuf
 * (https://protobuf.dev/programming-guides/encoding) and the messages those of onnx.proto; protobuf-c takes them apart.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/size.h"
#include "graph/onnx_internal.h"

enum { DEEPEST = 64 /* messages in messages: protobuf-c recurses without a limit */, MOST_INPUTS = 256 };

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* n bytes of a file from `at`. */
static int read_at(int fd, const char *path, uint64_t at, size_t n, uint8_t *to, Err *e) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, n - done, (off_t)(at + done));
        if (got < 0) return err_errno(e, "%s: reading at byte %" PRIu64, path, at + done);
        if (got == 0) return err_set(e, "%s: the file ends before byte %" PRIu64, path, at + n);
        done += (size_t)got;
    }
    return 0;
}

static int open_regular(const char *path, int *fd, uint64_t *bytes, Err *e) {
    struct stat s;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return err_errno(e, "%s", path);
    if (fstat(*fd, &s) || !S_ISREG(s.st_mode)) {
        close(*fd);
        return err_set(e, "%s: not a regular file", path);
    }
    *bytes = (uint64_t)s.st_size;
    return 0;
}

static int read_file(const char *path, uint8_t **out, size_t *n, Err *e) {
    int fd;
    uint64_t bytes;
    if (open_regular(path, &fd, &bytes, e)) return -1;
    int status = 0;
    *out = NULL;
    if (bytes > INT32_MAX) status = err_set(e, "%s: %" PRIu64 " bytes; a protobuf file has at most 2 GB", path, bytes);
    else if (!(*out = malloc((size_t)bytes + 1))) status = err_set(e, "%s: out of memory", path);
    else status = read_at(fd, path, 0, (size_t)bytes, *out, e);
    *n = (size_t)bytes;
    close(fd);
    return status;
}

/* ---- form -------------------------------------------------------------------------------------------------------- */

/* A variable-length number, protobuf's encoding. */
static int read_varint(Cursor *c, uint64_t *out, Err *e) {
    *out = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint8_t b;
        if (cursor_u8(c, &b, e)) return -1;
        if (shift < 64) *out |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) return 0;
    }
    return err_set(e, "%s: a number at byte %zu does not end", c->name, c->pos);
}

/* Whether the message and those in it are well formed and not nested too deeply. */
static int check_message(const ProtobufCMessageDescriptor *d, Cursor *c, int depth, Err *e) {
    if (depth > DEEPEST) return err_set(e, "%s: messages nested more than %d deep", c->name, DEEPEST);
    while (cursor_left(c) > 0) {
        uint64_t key, n;
        const uint8_t *bytes;
        if (read_varint(c, &key, e)) return -1;
        switch (key & 7) {
        case 0:
            if (read_varint(c, &n, e)) return -1;
            continue;
        case 1: n = 8; break;
        case 5: n = 4; break;
        case 2:
            if (read_varint(c, &n, e)) return -1;
            break;
        default:
            return err_set(e, "%s: damaged, or no ONNX file: field of kind %d at byte %zu", c->name, (int)(key & 7),
                           c->pos);
        }
        if (cursor_bytes(c, n, &bytes, e)) return -1;
        const ProtobufCFieldDescriptor *f =
            key >> 3 <= UINT_MAX ? protobuf_c_message_descriptor_get_field(d, (unsigned)(key >> 3)) : NULL;
        if ((key & 7) != 2 || !f || f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        Cursor inner = {.base = bytes, .size = (size_t)n, .name = c->name};
        if (check_message(f->descriptor, &inner, depth + 1, e)) return -1;
    }
    return 0;
}

bool onnx_is_file(const uint8_t *bytes, size_t n) {
    /* The first field written is ir_version, a small number. */
    return n >= 2 && bytes[0] == 8 && bytes[1] >= 1 && bytes[1] < 32;
}

/* ---- types, shapes, tensors -------------------------------------------------------------------------------------- */

int onnx_type(int32_t data_type) {
    static const int types[] = {
        [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT] = QT_F32 + 1,    [ONNX__TENSOR_PROTO__DATA_TYPE__UINT8] = QT_U8 + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT8] = QT_I8 + 1,      [ONNX__TENSOR_PROTO__DATA_TYPE__UINT16] = QT_U16 + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT16] = QT_I16 + 1,    [ONNX__TENSOR_PROTO__DATA_TYPE__INT32] = QT_I32 + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT64] = QT_I64 + 1,    [ONNX__TENSOR_PROTO__DATA_TYPE__BOOL] = QT_BOOL + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16] = QT_F16 + 1,  [ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE] = QT_F64 + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__UINT32] = QT_U32 + 1,   [ONNX__TENSOR_PROTO__DATA_TYPE__UINT64] = QT_U64 + 1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16] = QT_BF16 + 1};
    return data_type < 0 || data_type >= (int32_t)(sizeof types / sizeof *types) ? -1 : types[data_type] - 1;
}

static const char *text_or(const char *s, const char *other) { return s && *s ? s : other; }

static int tensor_shape(const OnnxModel *m, const OnnxTensor *t, Nd *out, size_t *bytes, Err *e) {
    int type = onnx_type(t->data_type);
    const char *name = text_or(t->name, "constant");
    if (type < 0)
        return err_set(e, "%s: tensor %.64s has type %d, which is not supported", m->path, name, t->data_type);
    if (t->n_dims > ND_DIMS)
        return err_set(e, "%s: tensor %.64s has %zu axes; at most %d are supported", m->path, name, t->n_dims, ND_DIMS);
    *out = (Nd){.type = (QType)type, .n_dims = (int)t->n_dims};
    size_t n = nd_size(out->type);
    for (size_t i = 0; i < t->n_dims; i++) {
        out->dim[i] = t->dims[i];
        if (t->dims[i] < 0 || !size_mul(n, (size_t)t->dims[i], &n) || n > (size_t)1 << 44)
            return err_set(e, "%s: tensor %.64s: size %" PRId64 " of axis %zu is out of range", m->path, name,
                           t->dims[i], i);
    }
    *bytes = n;
    return 0;
}

/* "key" of a tensor in another file as a number. */
static int external_number(const char *text, uint64_t *out) {
    uint64_t n = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return -1;
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n)) return -1;
    }
    *out = n;
    return 0;
}

/* A file beside the model: no path may lead out of the model's folder, by names or by links. */
static int open_beside(const OnnxModel *m, const char *name, const char *location, int *fd, uint64_t *bytes, Err *e) {
    char *folder = realpath(m->folder, NULL), *joined = NULL, *file = NULL;
    int status = -1;
    if (!folder || asprintf(&joined, "%s/%s", folder, location) < 0) joined = NULL;
    if (joined) file = realpath(joined, NULL);
    if (!folder || !joined) err_set(e, "%s: out of memory", m->path);
    else if (!file) err_errno(e, "%s: data of tensor %.64s in %.128s", m->path, name, location);
    else if (*location == '/' || strncmp(file, folder, strlen(folder)) != 0 || file[strlen(folder)] != '/')
        err_set(e, "%s: data of tensor %.64s lie outside the model's folder: %.128s", m->path, name, location);
    else status = open_regular(file, fd, bytes, e);
    free(folder);
    free(joined);
    free(file);
    return status;
}

static int external_data(const OnnxModel *m, const OnnxTensor *t, size_t bytes, Graph *g, void **out, Err *e) {
    const char *location = NULL, *name = text_or(t->name, "constant");
    uint64_t offset = 0, length = bytes, size;
    int bad = 0, fd;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = text_or(t->external_data[i]->key, ""), *value = text_or(t->external_data[i]->value, "");
        if (!strcmp(key, "location")) location = value;
        else if (!strcmp(key, "offset")) bad |= external_number(value, &offset);
        else if (!strcmp(key, "length")) bad |= external_number(value, &length);
    }
    if (!location || bad) return err_set(e, "%s: tensor %.64s: unusable reference to another file", m->path, name);
    if (length != bytes)
        return err_set(e, "%s: tensor %.64s needs %zu bytes, its reference says %" PRIu64, m->path, name, bytes,
                       length);
    if (open_beside(m, name, location, &fd, &size, e)) return -1;
    int status = -1;
    if (offset > size || size - offset < bytes)
        err_set(e, "%s: tensor %.64s: %.128s ends before byte %" PRIu64, m->path, name, location, offset + bytes);
    else if (!(*out = graph_memory(g, bytes))) err_set(e, "%s: out of memory for tensor %.64s", m->path, name);
    else status = read_at(fd, location, offset, bytes, *out, e);
    close(fd);
    return status;
}

/* Elements that stand one by one in int32_data, from which narrower ones are cut. */
static void narrow(const int32_t *from, int64_t n, size_t size, uint8_t *to) {
    for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * size, &from[i], size); /* little-endian */
}

/* The field of the tensor that holds its elements when they are not raw bytes. */
static int typed_data(const OnnxModel *m, const OnnxTensor *t, size_t bytes, Graph *g, Nd *nd, Err *e) {
    size_t given = 0, size = nd_size(nd->type);
    const void *from = NULL;
    bool by_int32 = false;
    switch (nd->type) {
    case QT_F32:
        from = t->float_data;
        given = t->n_float_data;
        break;
    case QT_F64:
        from = t->double_data;
        given = t->n_double_data;
        break;
    case QT_I64:
        from = t->int64_data;
        given = t->n_int64_data;
        break;
    case QT_U32:
    case QT_U64:
        from = t->uint64_data;
        given = t->n_uint64_data;
        break;
    default:
        from = t->int32_data;
        given = t->n_int32_data;
        by_int32 = true;
    }
    if (given != bytes / size)
        return err_set(e, "%s: tensor %.64s has %zu elements, its shape %zu", m->path, text_or(t->name, "constant"),
                       given, bytes / size);
    if (!by_int32 && nd->type != QT_U32) {
        nd->data = (void *)from; /* read only */
        return 0;
    }
    if (!(nd->data = graph_memory(g, bytes))) return err_set(e, "%s: out of memory", m->path);
    if (by_int32) narrow(from, (int64_t)given, size, nd->data);
    for (size_t i = 0; nd->type == QT_U32 && i < given; i++) ((uint32_t *)nd->data)[i] = (uint32_t)t->uint64_data[i];
    return 0;
}

int onnx_tensor_nd(const OnnxModel *m, const OnnxTensor *t, Graph *g, Nd *out, Err *e) {
    size_t bytes;
    if (tensor_shape(m, t, out, &bytes, e)) return -1;
    if (t->segment) return err_set(e, "%s: tensor %.64s is in segments", m->path, text_or(t->name, "constant"));
    if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return external_data(m, t, bytes, g, &out->data, e);
    if (!t->has_raw_data) return typed_data(m, t, bytes, g, out, e);
    if (t->raw_data.len != bytes)
        return err_set(e, "%s: tensor %.64s has %zu bytes of data, its shape needs %zu", m->path,
                       text_or(t->name, "constant"), t->raw_data.len, bytes);
    out->data = t->raw_data.data;
    return 0;
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

static int read_port(const OnnxModel *m, const Onnx__ValueInfoProto *v, OnnxPort *port, Err *e) {
    *port = (OnnxPort){.name = v->name ? v->name : "", .n_dims = -1};
    const Onnx__TypeProto *type = v->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return err_set(e, "%s: %.64s is no tensor", m->path, port->name);
    int t = onnx_type(type->tensor_type->elem_type);
    if (t < 0)
        return err_set(e, "%s: %.64s has type %d, which is not supported", m->path, port->name,
                       type->tensor_type->elem_type);
    port->type = (QType)t;
    const Onnx__TensorShapeProto *s = type->tensor_type->shape;
    if (!s) return 0;
    if (s->n_dim > ND_DIMS)
        return err_set(e, "%s: %.64s has %zu axes; at most %d are supported", m->path, port->name, s->n_dim, ND_DIMS);
    port->n_dims = (int)s->n_dim;
    for (size_t i = 0; i < s->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *d = s->dim[i];
        bool known = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        port->dim[i] = known ? d->dim_value : -1;
        port->symbol[i] =
            d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ? text_or(d->dim_param, "") : "";
        if (known && d->dim_value < 0)
            return err_set(e, "%s: %.64s: size %" PRId64 " of axis %zu is out of range", m->path, port->name,
                           d->dim_value, i);
    }
    return 0;
}

static int is_same_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Inputs without an initialiser of their name: those that must be given. */
static int read_ports(OnnxModel *m, Err *e) {
    const Onnx__GraphProto *g = m->proto->graph;
    const char **known = malloc((g->n_initializer + 1) * sizeof *known);
    m->input = calloc(g->n_input + 1, sizeof *m->input);
    m->output = calloc(g->n_output + 1, sizeof *m->output);
    int status = known && m->input && m->output ? 0 : err_set(e, "%s: out of memory", m->path);
    for (size_t i = 0; known && i < g->n_initializer; i++) known[i] = text_or(g->initializer[i]->name, "");
    if (known) qsort(known, g->n_initializer, sizeof *known, is_same_text);
    for (size_t i = 0; !status && i < g->n_input; i++) {
        const char *name = text_or(g->input[i]->name, "");
        if (bsearch(&name, known, g->n_initializer, sizeof *known, is_same_text)) continue;
        status = read_port(m, g->input[i], &m->input[m->n_inputs++], e);
    }
    for (size_t i = 0; !status && i < g->n_output; i++)
        status = read_port(m, g->output[i], &m->output[m->n_outputs++], e);
    free(known);
    if (status) return -1;
    if (m->n_inputs > MOST_INPUTS)
        return err_set(e, "%s: %d inputs; at most %d are supported", m->path, m->n_inputs, MOST_INPUTS);
    if (m->n_outputs < 1 || m->n_outputs > GRAPH_OUTPUTS)
        return err_set(e, "%s: %d results; 1 to %d are supported", m->path, m->n_outputs, GRAPH_OUTPUTS);
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int check_opset(OnnxModel *m, Err *e) {
    for (size_t i = 0; i < m->proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = m->proto->opset_import[i];
        if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx")) m->opset = o->version;
    }
    if (m->opset < ONNX_OLDEST || m->opset > ONNX_NEWEST)
        return err_set(e, "%s: operator set %" PRId64 "; %d to %d are supported", m->path, m->opset, ONNX_OLDEST,
                       ONNX_NEWEST);
    return 0;
}

static uint64_t sample(const uint8_t *bytes, size_t n) {
    enum { PIECES = 64, PIECE = 4096 };
    uint64_t hash = NAME_HASH_START;
    for (size_t i = 0; i < PIECES; i++) {
        size_t at = n > PIECE ? (n - PIECE) / (PIECES - 1) * i : 0;
        hash = name_hash(hash, (const char *)bytes + at, n - at < PIECE ? n - at : PIECE);
    }
    return hash;
}

static int parse(OnnxModel *m, Err *e) {
    uint8_t *bytes = NULL;
    size_t n = 0;
    int status = read_file(m->path, &bytes, &n, e);
    m->file_bytes = n;
    if (!status) m->sample = sample(bytes, n);
    Cursor c = {.base = bytes, .size = n, .name = m->path};
    if (!status) status = check_message(&onnx__model_proto__descriptor, &c, 0, e);
    if (!status && !(m->proto = onnx__model_proto__unpack(NULL, n, bytes)))
        status = err_set(e, "%s: damaged, no ONNX file, or out of memory", m->path);
    free(bytes);
    if (status) return -1;
    if (!m->proto->graph) return err_set(e, "%s: an ONNX file without a graph", m->path);
    return check_opset(m, e) || read_ports(m, e) ? -1 : 0;
}

int onnx_open(const char *path, OnnxModel **out, Err *e) {
    *out = NULL;
    OnnxModel *m = calloc(1, sizeof *m);
    if (m) m->path = strdup(path);
    if (m) m->folder = strdup(path);
    if (!m || !m->path || !m->folder) {
        onnx_close(m);
        return err_set(e, "%s: out of memory", path);
    }
    char *slash = strrchr(m->folder, '/');
    if (slash == m->folder) slash[1] = 0;
    else if (slash) *slash = 0;
    else if (*path) memcpy(m->folder, ".", 2);
    if (parse(m, e)) {
        onnx_close(m);
        return -1;
    }
    *out = m;
    return 0;
}

void onnx_close(OnnxModel *m) {
    if (!m) return;
    if (m->proto) onnx__model_proto__free_unpacked(m->proto, NULL);
    free(m->input);
    free(m->output);
    free(m->path);
    free(m->folder);
    free(m);
}

const char *onnx_path(const OnnxModel *m) { return m->path; }
uint64_t onnx_file_bytes(const OnnxModel *m) { return m->file_bytes; }
uint64_t onnx_sample(const OnnxModel *m) { return m->sample; }
int64_t onnx_opset(const OnnxModel *m) { return m->opset; }
const char *onnx_producer(const OnnxModel *m) { return text_or(m->proto->producer_name, ""); }
int onnx_n_inputs(const OnnxModel *m) { return m->n_inputs; }
int onnx_n_outputs(const OnnxModel *m) { return m->n_outputs; }
const OnnxPort *onnx_input(const OnnxModel *m, int i) { return &m->input[i]; }
const OnnxPort *onnx_output(const OnnxModel *m, int i) { return &m->output[i]; }
int64_t onnx_n_nodes(const OnnxModel *m) { return (int64_t)m->proto->graph->n_node; }
int64_t onnx_n_tensors(const OnnxModel *m) { return (int64_t)m->proto->graph->n_initializer; }

uint64_t onnx_tensor_bytes(const OnnxModel *m, int64_t *n_values) {
    uint64_t sum = 0;
    *n_values = 0;
    for (size_t i = 0; i < m->proto->graph->n_initializer; i++) {
        Nd nd;
        size_t bytes;
        if (tensor_shape(m, m->proto->graph->initializer[i], &nd, &bytes, NULL)) continue;
        sum += bytes;
        *n_values += nd_count(&nd);
    }
    return sum;
}
