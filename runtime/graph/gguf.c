/* Reading a GGUF file: every number in it is taken for hostile until it has been checked against the bytes that are
 * there. Nothing is allocated on the word of a count: arrays grow with what is read, or are walked through first. */
#include "graph/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/size.h"
#include "graph/model_file_internal.h"

enum {
    KEY_MAX = 65535, /* bytes; the format's document */
    NAME_MAX_BYTES = 64,
    DEFAULT_ALIGNMENT = 32,
    VALUE_MIN = 8 + 1 + 4 + 1,          /* the smallest key and value: bounds their count */
    TENSOR_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* the smallest description of a tensor */
};

static int out_of_memory(const ModelFile *g, Err *e) { return err_set(e, "%s: out of memory for its header", g->path); }

static int read_string(Cursor *c, Text *out, Err *e) {
    size_t start = c->pos;
    uint64_t n;
    const uint8_t *p;
    if (cursor_u64(c, &n, e)) return -1;
    if (n > cursor_left(c)) {
        c->pos = start;
        return err_set(e, "%s: a string of %" PRIu64 " bytes at offset %zu, but the file ends at byte %zu", c->name, n,
                       start, c->size);
    }
    if (cursor_bytes(c, n, &p, e)) return -1;
    *out = (Text){(const char *)p, (size_t)n};
    return 0;
}

static int read_type(Cursor *c, MetaType *out, Err *e) {
    uint32_t id;
    size_t start = c->pos;
    if (cursor_u32(c, &id, e)) return -1;
    if (id > META_F64) return err_set(e, "%s: unknown value type %u at offset %zu", c->name, id, start);
    *out = (MetaType)id;
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int check_bools(const Cursor *c, const uint8_t *p, uint64_t n, Err *e) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return err_set(e, "%s: a bool is %u at offset %zu, not 0 or 1", c->name, p[i],
                           (size_t)(p - c->base) + (size_t)i);
    return 0;
}

static int read_scalar(Cursor *c, MetaValue *v, Err *e) {
    const uint8_t *p;
    size_t bytes = meta_type_bytes(v->type);
    if (cursor_bytes(c, bytes, &p, e)) return -1;
    if (v->type == META_BOOL && check_bools(c, p, 1, e)) return -1;
    MetaValue one = {.v.a = {.type = v->type, .data = p}};
    if (v->type == META_F32 || v->type == META_F64) v->v.f = meta_array_f64(&one, 0);
    else v->v.i = meta_array_i64(&one, 0);
    return 0;
}

/* Twice through the strings: once to see that they all fit, once to note where they are, in memory of that size. */
static int read_strings(ModelFile *g, Cursor *c, MetaValue *v, Err *e) {
    size_t start = c->pos;
    Text s;
    for (uint64_t i = 0; i < v->v.a.n; i++)
        if (read_string(c, &s, e)) return err_context(e, "element %" PRIu64, i);
    if (v->v.a.n == 0) return 0;
    Text *strings = model_file_alloc(g, (size_t)v->v.a.n * sizeof *strings, e);
    if (!strings) return -1;
    v->v.a.strings = strings;
    c->pos = start;
    for (uint64_t i = 0; i < v->v.a.n; i++)
        if (read_string(c, &strings[i], e)) return -1;
    return 0;
}

static int read_array(ModelFile *g, Cursor *c, MetaValue *v, Err *e) {
    size_t start = c->pos;
    MetaType type = META_U8;
    uint64_t n;
    if (read_type(c, &type, e) || cursor_u64(c, &n, e)) return -1;
    if (type == META_ARRAY) return err_set(e, "%s: an array of arrays at offset %zu is not supported", c->name, start);
    size_t least = type == META_STRING ? 8 : meta_type_bytes(type);
    if (n > cursor_left(c) / least)
        return err_set(e, "%s: an array of %" PRIu64 " elements at offset %zu, but the file has only %zu bytes more",
                       c->name, n, start, cursor_left(c));
    v->v.a.type = type;
    v->v.a.n = n;
    if (type == META_STRING) return read_strings(g, c, v, e);
    if (cursor_bytes(c, n * least, &v->v.a.data, e)) return -1;
    return type == META_BOOL ? check_bools(c, v->v.a.data, n, e) : 0;
}

static int read_value(ModelFile *g, Cursor *c, MetaValue *v, Err *e) {
    size_t start = c->pos;
    if (read_string(c, &v->key, e)) return -1;
    if (v->key.size == 0 || v->key.size > KEY_MAX)
        return err_set(e, "%s: a key of %zu bytes at offset %zu (1 to %d are allowed)", c->name, v->key.size, start,
                       KEY_MAX);
    int failed = read_type(c, &v->type, e);
    if (!failed && v->type == META_STRING) failed = read_string(c, &v->v.s, e);
    else if (!failed && v->type == META_ARRAY) failed = read_array(g, c, v, e);
    else if (!failed) failed = read_scalar(c, v, e);
    return failed ? err_context(e, "key %s", text_printable(v->key).text) : 0;
}

static int read_values(ModelFile *g, Cursor *c, uint64_t n, Err *e) {
    size_t capacity = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (grow((void **)&g->values, g->n_values, &capacity, sizeof *g->values)) return out_of_memory(g, e);
        MetaValue *v = &g->values[g->n_values++];
        *v = (MetaValue){0};
        if (read_value(g, c, v, e)) return -1;
    }
    return model_file_map_values(g, e);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int read_dims(Cursor *c, FileTensor *t, Err *e) {
    size_t start = c->pos;
    uint32_t n;
    if (cursor_u32(c, &n, e)) return -1;
    if (n < 1 || n > 4) return err_set(e, "%s: %u dimensions at offset %zu (1 to 4 are allowed)", c->name, n, start);
    t->n_dims = (int)n;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < n && cursor_u64(c, &t->dims[i], e)) return -1;
        if (t->dims[i] == 0) return err_set(e, "%s: dimension %u is 0, at offset %zu", c->name, i, c->pos - 8);
        if (__builtin_mul_overflow(elements, t->dims[i], &elements) || elements > INT64_MAX)
            return err_set(e, "%s: the dimensions at offset %zu make more than 2^63 elements", c->name, start);
    }
    return 0;
}

static int read_tensor_body(Cursor *c, FileTensor *t, Err *e) {
    if (read_dims(c, t, e)) return -1;
    if (cursor_u32(c, &t->type_id, e) || cursor_u64(c, &t->offset, e)) return -1;
    t->type = qtype_from_gguf(t->type_id);
    if (t->type < 0) return 0;
    const QTypeInfo *info = qtype_info((QType)t->type);
    if (t->dims[0] % (uint64_t)info->block)
        return err_set(e, "%s: rows of %" PRIu64 " values are no whole number of %s blocks of %d", c->name, t->dims[0],
                       info->name, info->block);
    size_t bytes;
    if (!qtype_bytes((QType)t->type, t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3], &bytes))
        return err_set(e, "%s: its size overflows", c->name);
    t->bytes = bytes;
    return 0;
}

static int read_tensors(ModelFile *g, Cursor *c, uint64_t n, Err *e) {
    size_t capacity = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (grow((void **)&g->tensors, g->n_tensors, &capacity, sizeof *g->tensors)) return out_of_memory(g, e);
        FileTensor *t = &g->tensors[g->n_tensors++];
        *t = (FileTensor){0};
        size_t start = c->pos;
        if (read_string(c, &t->name, e)) return err_context(e, "tensor %" PRIu64, i);
        if (t->name.size == 0 || t->name.size > NAME_MAX_BYTES)
            return err_set(e, "%s: the name of tensor %" PRIu64 " at offset %zu has %zu bytes (1 to %d are allowed)",
                           g->path, i, start, t->name.size, NAME_MAX_BYTES);
        if (read_tensor_body(c, t, e)) return err_context(e, "tensor %s", text_printable(t->name).text);
    }
    return model_file_map_tensors(g, e);
}

/* Bytes that certainly belong to the tensor: of an unknown type, one. */
static uint64_t least_bytes(const FileTensor *t) { return t->bytes ? t->bytes : 1; }

static int by_offset(const void *a, const void *b) {
    const FileTensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) return (*x)->offset < (*y)->offset ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static int check_overlap(const ModelFile *g, Err *e) {
    const FileTensor **order = calloc(g->n_tensors, sizeof(FileTensor *));
    if (!order) return out_of_memory(g, e);
    for (size_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
    qsort(order, g->n_tensors, sizeof *order, by_offset);
    int failed = 0;
    for (size_t i = 1; i < g->n_tensors && !failed; i++)
        if (order[i]->offset - order[i - 1]->offset < least_bytes(order[i - 1]))
            failed =
                err_set(e, "%s: the tensors %s and %s overlap at offset %" PRIu64, g->path,
                        text_printable(order[i - 1]->name).text, text_printable(order[i]->name).text, order[i]->offset);
    free(order);
    return failed;
}

/* Offsets in the file count from the data section, which begins at `data`; here they become offsets in the file. */
static int place_tensors(ModelFile *g, uint64_t data, uint64_t alignment, Err *e) {
    uint64_t file_bytes = g->files[0].bytes;
    if (g->n_tensors == 0) return 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        FileTensor *t = &g->tensors[i];
        if (t->offset % alignment)
            return err_set(e, "%s: the tensor %s has offset %" PRIu64 ", no multiple of the alignment %" PRIu64,
                           g->path, text_printable(t->name).text, t->offset, alignment);
        uint64_t end;
        if (__builtin_add_overflow(t->offset, data, &t->offset) ||
            __builtin_add_overflow(t->offset, least_bytes(t), &end) || end > file_bytes)
            return err_set(e,
                           "%s: the tensor %s (%" PRIu64 " bytes at offset %" PRIu64 ") does not end within the file's "
                           "%" PRIu64 " bytes; is the download complete?",
                           g->path, text_printable(t->name).text, t->bytes, t->offset, file_bytes);
    }
    return check_overlap(g, e);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int read_alignment(const ModelFile *g, uint64_t *alignment, Err *e) {
    int64_t a = DEFAULT_ALIGNMENT;
    if (meta_get_i64(g, "general.alignment", false, 1, INT64_C(1) << 31, &a, e)) return -1;
    if (a & (a - 1)) return err_set(e, "%s: general.alignment is %" PRId64 ", no power of two", g->path, a);
    *alignment = (uint64_t)a;
    return 0;
}

static int read_head(ModelFile *g, Cursor *c, uint64_t *n_tensors, uint64_t *n_values, Err *e) {
    const uint8_t *magic;
    if (cursor_bytes(c, 4, &magic, e)) return -1;
    if (memcmp(magic, "GGUF", 4)) return err_set(e, "%s: not a GGUF file (it does not begin with \"GGUF\")", g->path);
    uint32_t version;
    if (cursor_u32(c, &version, e)) return -1;
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 0xffff && version > 0xffff)
        return err_set(e, "%s: a big-endian GGUF file (version %u); only little-endian ones are supported", g->path,
                       swapped);
    if (version != 2 && version != 3)
        return err_set(e, "%s: GGUF version %u at offset 4; versions 2 and 3 are supported", g->path, version);
    g->format = version == 2 ? "GGUF 2" : "GGUF 3";
    if (cursor_u64(c, n_tensors, e)) return -1;
    if (cursor_u64(c, n_values, e)) return -1;
    if (*n_values > cursor_left(c) / VALUE_MIN)
        return err_set(e, "%s: %" PRIu64 " metadata values (offset 16) do not fit in the %zu bytes that follow",
                       g->path, *n_values, cursor_left(c));
    if (*n_tensors > cursor_left(c) / TENSOR_MIN)
        return err_set(e, "%s: %" PRIu64 " tensors (offset 8) do not fit in the %zu bytes that follow", g->path,
                       *n_tensors, cursor_left(c));
    return 0;
}

/* Reads the header from the cursor; *header is its size. */
static int read_all(ModelFile *g, Cursor *c, size_t *header, Err *e) {
    uint64_t n_tensors, n_values, alignment;
    if (read_head(g, c, &n_tensors, &n_values, e) || read_values(g, c, n_values, e) ||
        read_alignment(g, &alignment, e) || read_tensors(g, c, n_tensors, e))
        return -1;
    *header = c->pos;
    return place_tensors(g, ((uint64_t)c->pos + alignment - 1) / alignment * alignment, alignment, e);
}

int gguf_from_memory(const void *data, size_t size, uint64_t file_bytes, const char *name, ModelFile **out, Err *e) {
    *out = NULL;
    if (file_bytes < size) return err_set(e, "%s: %zu bytes given of a file of %" PRIu64, name, size, file_bytes);
    ModelFile *g = model_file_new(name, "", e);
    if (!g) return -1;
    DataFile f = {.fd = -1, .memory = data, .memory_bytes = size, .bytes = file_bytes};
    Cursor c = {.base = data, .size = size, .name = g->path};
    size_t header;
    if (model_file_add(g, name, f, e) || read_all(g, &c, &header, e)) {
        model_file_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

/* Gives back the pages after the header, and puts memory of our own in place of the header's: a file that is cut short
 * while we run must not take what is pointed to away (SIGBUS). */
static int keep_header(const ModelFile *g, DataFile *f, size_t header, Err *e) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), keep = round_up(header, page);
    if (keep < f->map_bytes) {
        munmap((char *)f->map + keep, f->map_bytes - keep);
        f->map_bytes = keep;
    }
    void *own = mmap(NULL, keep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return out_of_memory(g, e);
    memcpy(own, f->map, header);
    if (mremap(own, keep, keep, MREMAP_MAYMOVE | MREMAP_FIXED, f->map) == MAP_FAILED) {
        munmap(own, keep);
        return out_of_memory(g, e);
    }
    return 0;
}

static int read_file(ModelFile *g, const char *path, Err *e) {
    DataFile f = {.fd = -1};
    if (open_regular(path, &f.fd, &f.bytes, e) || model_file_add(g, path, f, e)) return -1;
    DataFile *in = &g->files[0];
    void *map = mmap(NULL, (size_t)in->bytes, PROT_READ, MAP_PRIVATE, in->fd, 0);
    if (map == MAP_FAILED) return err_errno(e, "%s: cannot be mapped", path);
    in->map = map;
    in->map_bytes = (size_t)in->bytes;
    Cursor c = {.base = map, .size = in->map_bytes, .name = g->path};
    size_t header = 0;
    return read_all(g, &c, &header, e) || keep_header(g, in, header, e) ? -1 : 0;
}

int gguf_open_one(const char *path, ModelFile **out, Err *e) {
    *out = NULL;
    ModelFile *g = model_file_new(path, "", e);
    if (!g) return -1;
    if (read_file(g, path, e)) {
        model_file_close(g);
        return -1;
    }
    *out = g;
    return 0;
}
