#include "graph/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/size.h"
#include "graph/hf_json.h"
#include "graph/name_map.h"

enum { PREFIX = 8, LARGEST_HEADER = 100 * 1000 * 1000 }; /* the format's own limit */

static const struct {
    const char *name;
    uint8_t bits;
} dtypes[] = {{"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64}, {"F32", 32},    {"I32", 32},   {"U32", 32},
              {"F16", 16},    {"BF16", 16},   {"I16", 16},    {"U16", 16}, {"I8", 8},      {"U8", 8},     {"BOOL", 8},
              {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};

/* A whole number up to 2^53: cJSON holds numbers as doubles. */
static int whole(const cJSON *v, const char *what, uint64_t *out, Err *e) {
    int64_t n;
    if (hf_json_whole(v, what, 0, INT64_C(1) << 53, &n, e)) return -1;
    *out = (uint64_t)n;
    return 0;
}

static int read_shape(const cJSON *v, SafeTensor *t, uint64_t *elements, Err *e) {
    if (!cJSON_IsArray(v)) return err_set(e, "\"shape\" is no list");
    *elements = 1;
    for (const cJSON *d = v->child; d; d = d->next) {
        if (t->n_dims == SAFETENSORS_DIMS) return err_set(e, "it has more than %d dimensions", SAFETENSORS_DIMS);
        uint64_t *dim = &t->dims[t->n_dims++];
        if (whole(d, "\"shape\"", dim, e)) return -1;
        if (__builtin_mul_overflow(*elements, *dim, elements)) return err_set(e, "its shape is too large");
    }
    return 0;
}

static int size_of(const SafeTensor *t, uint64_t elements, uint64_t *bytes, Err *e) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!hf_is(t->dtype, dtypes[i].name)) continue;
        uint64_t bits;
        if (__builtin_mul_overflow(elements, (uint64_t)dtypes[i].bits, &bits) || bits % 8)
            return err_set(e, "%" PRIu64 " values of %s are no number of bytes", elements, dtypes[i].name);
        *bytes = bits / 8;
        return 0;
    }
    return err_set(e, "its dtype \"%s\" is not known", text_printable(t->dtype).text);
}

/* One entry: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, the offsets counted from `data`. */
static int read_tensor(const cJSON *o, uint64_t data, SafeTensor *t, Err *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets", NULL};
    *t = (SafeTensor){.name = hf_string(o->string)};
    const cJSON *range = hf_json_get(o, "data_offsets");
    uint64_t begin, end, elements;
    if (hf_json_only(o, "it", keys, e) || hf_json_string(o, "it", "dtype", true, &t->dtype, e) ||
        read_shape(hf_json_get(o, "shape"), t, &elements, e) || size_of(t, elements, &t->bytes, e))
        return -1;
    if (!cJSON_IsArray(range) || cJSON_GetArraySize(range) != 2)
        return err_set(e, "\"data_offsets\" are no pair of numbers");
    if (whole(range->child, "\"data_offsets\"", &begin, e) || whole(range->child->next, "\"data_offsets\"", &end, e))
        return -1;
    if (end < begin || end - begin != t->bytes)
        return err_set(e,
                       "its data_offsets are %" PRIu64 " and %" PRIu64 ", but its shape of %s makes %" PRIu64 " bytes",
                       begin, end, text_printable(t->dtype).text, t->bytes);
    t->offset = data + begin;
    return 0;
}

static int by_place(const void *a, const void *b) {
    const SafeTensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* Nothing twice, nothing between: what the format demands, and what shows a file that was cut short. */
static int check_places(const Safetensors *s, uint64_t data, uint64_t file_bytes, const char *name, Err *e) {
    uint64_t at = data;
    for (size_t i = 0; i < s->n; i++) {
        const SafeTensor *t = &s->tensor[i];
        if (t->bytes > file_bytes - data || t->offset - data > file_bytes - data - t->bytes)
            return err_set(e,
                           "%s: the tensor %s (%" PRIu64 " bytes at offset %" PRIu64 ") does not end within the file's "
                           "%" PRIu64 " bytes; is the download complete?",
                           name, text_printable(t->name).text, t->bytes, t->offset, file_bytes);
        if (t->offset != at)
            return err_set(e, "%s: the tensor %s begins at offset %" PRIu64 ", but the one before it ends at %" PRIu64,
                           name, text_printable(t->name).text, t->offset, at);
        at += t->bytes;
    }
    if (at != file_bytes)
        return err_set(e, "%s: has %" PRIu64 " bytes, but its tensors end at %" PRIu64, name, file_bytes, at);
    return 0;
}

static int check_names(const Safetensors *s, const char *name, Err *e) {
    NameMap map = {0};
    size_t twin[2] = {0, 0};
    int r = name_map_build(&map, s->tensor, sizeof *s->tensor, s->n, false, twin);
    name_map_free(&map);
    if (r > 0)
        return err_set(e, "%s: the tensor %s is there twice", name, text_printable(s->tensor[twin[1]].name).text);
    return r ? err_set(e, "%s: out of memory for its header", name) : 0;
}

static int read_entries(Safetensors *s, uint64_t data, const char *name, Err *e) {
    if (!cJSON_IsObject(s->json)) return err_set(e, "%s: its header is no JSON object", name);
    size_t n = (size_t)cJSON_GetArraySize(s->json);
    s->tensor = malloc((n + 1) * sizeof *s->tensor);
    if (!s->tensor) return err_set(e, "%s: out of memory for its header", name);
    for (const cJSON *o = s->json->child; o; o = o->next) {
        if (!strcmp(o->string, "__metadata__")) continue;
        if (read_tensor(o, data, &s->tensor[s->n], e))
            return err_context(e, "%s: tensor %s", name, text_printable(hf_string(o->string)).text);
        s->n++;
    }
    if (s->n == 0) return err_set(e, "%s: has no tensors", name);
    qsort(s->tensor, s->n, sizeof *s->tensor, by_place);
    return 0;
}

/* The length that stands before the header. */
static int header_size(const void *prefix, size_t size, uint64_t file_bytes, const char *name, uint64_t *out, Err *e) {
    Cursor c = {.base = prefix, .size = size, .name = name};
    if (cursor_u64(&c, out, e)) return err_context(e, "not a safetensors file");
    if (*out > LARGEST_HEADER)
        return err_set(e, "%s: not a safetensors file (its header would have %" PRIu64 " bytes)", name, *out);
    if (*out > file_bytes - PREFIX)
        return err_set(e, "%s: its header has %" PRIu64 " bytes, but the file ends at byte %" PRIu64, name, *out,
                       file_bytes);
    return 0;
}

static int read_header(const char *text, size_t n, uint64_t file_bytes, const char *name, Safetensors *s, Err *e) {
    uint64_t data = PREFIX + n;
    if (n == 0 || text[0] != '{') return err_set(e, "%s: not a safetensors file (no '{' at offset 8)", name);
    if (hf_json_parse(text, n, &s->json, e)) return err_context(e, "%s: its header", name);
    return read_entries(s, data, name, e) || check_names(s, name, e) || check_places(s, data, file_bytes, name, e) ? -1
                                                                                                                   : 0;
}

int safetensors_from_memory(const void *bytes, size_t size, uint64_t file_bytes, const char *name, Safetensors *s,
                            Err *e) {
    uint64_t n;
    *s = (Safetensors){0};
    if (file_bytes < size) return err_set(e, "%s: %zu bytes given of a file of %" PRIu64, name, size, file_bytes);
    if (header_size(bytes, size, file_bytes, name, &n, e)) return -1;
    if (n > size - PREFIX) return err_set(e, "%s: the bytes given end inside its header", name);
    return read_header((const char *)bytes + PREFIX, (size_t)n, file_bytes, name, s, e);
}

static int read_bytes(int fd, uint64_t from, size_t n, void *to, const char *name, Err *e) {
    for (uint8_t *p = to; n > 0;) {
        ssize_t got = pread(fd, p, n, (off_t)from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(e, "%s", name);
        if (got == 0) return err_set(e, "%s: not a safetensors file (it ends at byte %" PRIu64 ")", name, from);
        p += got;
        from += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int safetensors_from_file(int fd, uint64_t file_bytes, const char *name, Safetensors *s, Err *e) {
    uint8_t prefix[PREFIX];
    uint64_t n;
    *s = (Safetensors){0};
    if (read_bytes(fd, 0, PREFIX, prefix, name, e) || header_size(prefix, PREFIX, file_bytes, name, &n, e)) return -1;
    char *text = malloc((size_t)n + 1);
    if (!text) return err_set(e, "%s: out of memory for its header", name);
    int failed = read_bytes(fd, PREFIX, (size_t)n, text, name, e);
    if (!failed) failed = read_header(text, (size_t)n, file_bytes, name, s, e);
    free(text);
    return failed;
}

void safetensors_free(Safetensors *s) {
    cJSON_Delete(s->json);
    free(s->tensor);
    *s = (Safetensors){0};
}
