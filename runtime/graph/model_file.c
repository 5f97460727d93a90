/* A model file: its memory, typed access to its metadata, tensor data. */
#include "graph/model_file_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint8_t bytes;
    bool whole, is_signed;
} type_table[] = {
    [META_U8] = {"u8", 1, true, false},          [META_I8] = {"i8", 1, true, true},
    [META_U16] = {"u16", 2, true, false},        [META_I16] = {"i16", 2, true, true},
    [META_U32] = {"u32", 4, true, false},        [META_I32] = {"i32", 4, true, true},
    [META_F32] = {"f32", 4, false, false},       [META_BOOL] = {"bool", 1, false, false},
    [META_STRING] = {"string", 0, false, false}, [META_ARRAY] = {"array", 0, false, false},
    [META_U64] = {"u64", 8, true, false},        [META_I64] = {"i64", 8, true, true},
    [META_F64] = {"f64", 8, false, false},
};

bool meta_type_is_whole(MetaType t) { return type_table[t].whole; }
bool meta_type_is_signed(MetaType t) { return type_table[t].is_signed; }
const char *meta_type_name(MetaType t) { return type_table[t].name; }
size_t meta_type_bytes(MetaType t) { return type_table[t].bytes; }

Printable text_printable(Text s) {
    Printable p;
    size_t n = s.size < 64 ? s.size : 64;
    for (size_t i = 0; i < n; i++) p.text[i] = s.data[i] > ' ' && s.data[i] < 127 ? s.data[i] : '?';
    memcpy(p.text + n, s.size > n ? "..." : "", s.size > n ? 4 : 1);
    return p;
}

const char *model_file_path(const ModelFile *g) { return g->path; }
uint32_t model_file_version(const ModelFile *g) { return g->version; }
uint64_t model_file_bytes(const ModelFile *g) { return g->file_bytes; }
size_t meta_count(const ModelFile *g) { return g->n_values; }
const MetaValue *meta_at(const ModelFile *g, size_t i) { return &g->values[i]; }
size_t file_n_tensors(const ModelFile *g) { return g->n_tensors; }
const FileTensor *file_tensor_at(const ModelFile *g, size_t i) { return &g->tensors[i]; }

const MetaValue *meta_find(const ModelFile *g, const char *key) {
    int64_t i = name_map_find(&g->by_key, key, strlen(key));
    return i < 0 ? NULL : &g->values[i];
}

const FileTensor *file_tensor(const ModelFile *g, const char *name) {
    int64_t i = name_map_find(&g->by_name, name, strlen(name));
    return i < 0 ? NULL : &g->tensors[i];
}

/* *out: the value, or NULL when it is missing and need not be there. */
static int find(const ModelFile *g, const char *key, bool required, const MetaValue **out, Err *e) {
    *out = meta_find(g, key);
    if (!*out && required) return err_set(e, "%s: the key %s is missing", g->path, key);
    return 0;
}

static int wrong_type(const ModelFile *g, const MetaValue *v, const char *key, const char *wanted, Err *e) {
    bool array = v->type == META_ARRAY;
    return err_set(e, "%s: the key %s should be %s, but it is of type %s%s", g->path, key, wanted,
                   array ? "array of " : "", meta_type_name(array ? v->v.a.type : v->type));
}

int meta_get_i64(const ModelFile *g, const char *key, bool required, int64_t min, int64_t max, int64_t *out, Err *e) {
    const MetaValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (!meta_type_is_whole(v->type)) return wrong_type(g, v, key, "a whole number", e);
    bool too_large = !meta_type_is_signed(v->type) && v->v.u > INT64_MAX;
    if (too_large || v->v.i < min || v->v.i > max)
        return err_set(e, "%s: the key %s is %s%" PRIu64 ", not between %" PRId64 " and %" PRId64, g->path, key,
                       too_large || v->v.i >= 0 ? "" : "-", too_large || v->v.i >= 0 ? v->v.u : -v->v.u, min, max);
    *out = v->v.i;
    return 0;
}

int meta_get_f64(const ModelFile *g, const char *key, bool required, double *out, Err *e) {
    const MetaValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != META_F32 && v->type != META_F64) return wrong_type(g, v, key, "a float", e);
    if (!isfinite(v->v.f)) return err_set(e, "%s: the key %s is not a finite number", g->path, key);
    *out = v->v.f;
    return 0;
}

int meta_get_bool(const ModelFile *g, const char *key, bool required, bool *out, Err *e) {
    const MetaValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != META_BOOL) return wrong_type(g, v, key, "a bool", e);
    *out = v->v.u != 0;
    return 0;
}

int meta_get_string(const ModelFile *g, const char *key, bool required, Text *out, Err *e) {
    const MetaValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != META_STRING) return wrong_type(g, v, key, "a string", e);
    *out = v->v.s;
    return 0;
}

static bool serves_as(MetaType have, MetaType want) {
    if (meta_type_is_whole(want)) return meta_type_is_whole(have);
    if (want == META_F32 || want == META_F64) return have == META_F32 || have == META_F64;
    return have == want;
}

int meta_get_array(const ModelFile *g, const char *key, bool required, MetaType element, const MetaValue **out,
                   Err *e) {
    const MetaValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != META_ARRAY || !serves_as(v->v.a.type, element)) {
        const char *wanted = meta_type_is_whole(element)                  ? "an array of whole numbers"
                             : element == META_F32 || element == META_F64 ? "an array of floats"
                             : element == META_STRING                     ? "an array of strings"
                                                                          : "an array of bools";
        return wrong_type(g, v, key, wanted, e);
    }
    *out = v;
    return 0;
}

int64_t meta_array_i64(const MetaValue *a, uint64_t i) {
    MetaType t = a->v.a.type;
    size_t bytes = meta_type_bytes(t);
    uint64_t v = 0;
    memcpy(&v, a->v.a.data + i * bytes, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return meta_type_is_signed(t) ? (int64_t)(v << unused) >> unused : (int64_t)v;
}

double meta_array_f64(const MetaValue *a, uint64_t i) {
    if (a->v.a.type == META_F32) {
        float f;
        memcpy(&f, a->v.a.data + i * sizeof f, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, a->v.a.data + i * sizeof d, sizeof d);
    return d;
}

ModelFile *model_file_new(const char *path, uint64_t file_bytes, Err *e) {
    ModelFile *g = calloc(1, sizeof *g);
    if (g) g->path = strdup(path);
    if (!g || !g->path) {
        free(g);
        err_set(e, "%s: out of memory", path);
        return NULL;
    }
    g->file_bytes = file_bytes;
    g->fd = -1;
    return g;
}

void model_file_close(ModelFile *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].type == META_ARRAY) free((void *)g->values[i].v.a.strings);
    free(g->values);
    free(g->tensors);
    name_map_free(&g->by_key);
    name_map_free(&g->by_name);
    if (g->map) munmap(g->map, g->map_bytes);
    if (g->fd >= 0) close(g->fd);
    free(g->path);
    free(g);
}

int model_file_read(const ModelFile *g, const FileTensor *t, uint64_t at, size_t n, void *to, Err *e) {
    Printable name = text_printable(t->name);
    if (at > t->bytes || n > t->bytes - at)
        return err_set(e, "%s: bytes %" PRIu64 " and %zu more of tensor %s, which has %" PRIu64, g->path, at, n,
                       name.text, t->bytes);
    uint64_t from = t->offset + at;
    if (g->memory) {
        if (from > g->memory_bytes || n > g->memory_bytes - from)
            return err_set(e, "%s: tensor %s is not in memory", g->path, name.text);
        if (n) memcpy(to, g->memory + from, n);
        return 0;
    }
    for (uint8_t *p = to; n > 0;) {
        ssize_t got = pread(g->fd, p, n, (off_t)from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(e, "%s: reading tensor %s at byte %" PRIu64, g->path, name.text, from);
        if (got == 0)
            return err_set(e, "%s: the file ends before byte %" PRIu64 ", inside tensor %s", g->path, from, name.text);
        p += got;
        from += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}
