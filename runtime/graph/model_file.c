/* A model file: its memory, and typed access to its metadata. Tensor data: model_data.c. */
#include "graph/model_file_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"

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
const char *model_file_format(const ModelFile *g) { return g->format; }
size_t model_file_parts(const ModelFile *g) { return g->n_files; }
const char *model_file_part(const ModelFile *g, size_t i) { return g->files[i].path; }
uint64_t model_file_bytes(const ModelFile *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_files; i++) sum += g->files[i].bytes;
    return sum;
}
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

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct Block {
    Block *next;
    _Alignas(16) uint8_t bytes[];
};

static int out_of_memory(const ModelFile *g, Err *e) { return err_set(e, "%s: out of memory for its header", g->path); }

ModelFile *model_file_new(const char *path, const char *format, Err *e) {
    ModelFile *g = calloc(1, sizeof *g);
    if (g) g->path = strdup(path);
    if (!g || !g->path) {
        free(g);
        err_set(e, "%s: out of memory", path);
        return NULL;
    }
    g->format = format;
    return g;
}

static void data_file_close(DataFile *f) {
    if (f->map) munmap(f->map, f->map_bytes);
    if (f->fd >= 0) close(f->fd);
    free(f->path);
}

void model_file_close(ModelFile *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_files; i++) data_file_close(&g->files[i]);
    for (Block *b = g->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(g->files);
    free(g->values);
    free(g->tensors);
    name_map_free(&g->by_key);
    name_map_free(&g->by_name);
    free(g->path);
    free(g);
}

int model_file_add(ModelFile *g, const char *path, DataFile f, Err *e) {
    f.path = strdup(path);
    DataFile *files = f.path ? realloc(g->files, (g->n_files + 1) * sizeof *files) : NULL;
    if (!files) {
        data_file_close(&f);
        return out_of_memory(g, e);
    }
    g->files = files;
    files[g->n_files++] = f;
    return 0;
}

void *model_file_alloc(ModelFile *g, size_t bytes, Err *e) {
    Block *b = size_add(bytes, sizeof *b, &bytes) ? calloc(1, bytes) : NULL;
    if (!b) {
        out_of_memory(g, e);
        return NULL;
    }
    b->next = g->blocks;
    g->blocks = b;
    return b->bytes;
}

int model_file_join(ModelFile *g, ModelFile *from, Err *e) {
    DataFile *files = realloc(g->files, (g->n_files + from->n_files) * sizeof *files);
    if (files) g->files = files;
    size_t n = g->n_tensors + from->n_tensors;
    FileTensor *tensors = files ? realloc(g->tensors, (n + 1) * sizeof *tensors) : NULL;
    if (!tensors) {
        model_file_close(from);
        return out_of_memory(g, e);
    }
    g->tensors = tensors;
    for (size_t i = 0; i < from->n_tensors; i++) {
        tensors[g->n_tensors] = from->tensors[i];
        tensors[g->n_tensors++].file += (uint32_t)g->n_files;
    }
    for (size_t i = 0; i < from->n_files; i++) files[g->n_files++] = from->files[i];
    Block **end = &g->blocks;
    while (*end) end = &(*end)->next;
    *end = from->blocks;
    from->n_files = 0;
    from->blocks = NULL;
    model_file_close(from);
    return 0;
}

int model_file_map_values(ModelFile *g, Err *e) {
    size_t twin[2] = {0, 0};
    name_map_free(&g->by_key);
    int r = name_map_build(&g->by_key, g->values, sizeof *g->values, g->n_values, false, twin);
    if (r > 0)
        return err_set(e, "%s: the key %s is there twice (values %zu and %zu)", g->path,
                       text_printable(g->values[twin[1]].key).text, twin[0], twin[1]);
    return r ? out_of_memory(g, e) : 0;
}

int model_file_map_tensors(ModelFile *g, Err *e) {
    size_t twin[2] = {0, 0};
    name_map_free(&g->by_name);
    int r = name_map_build(&g->by_name, g->tensors, sizeof *g->tensors, g->n_tensors, false, twin);
    if (r > 0)
        return err_set(e, "%s: the tensor %s is there twice (numbers %zu and %zu)", g->path,
                       text_printable(g->tensors[twin[1]].name).text, twin[0], twin[1]);
    return r ? out_of_memory(g, e) : 0;
}

int grow(void **array, size_t n, size_t *capacity, size_t element) {
    if (n < *capacity) return 0;
    size_t wanted = *capacity ? 2 * *capacity : 64, bytes;
    if (!size_mul(wanted, element, &bytes)) return -1;
    void *p = realloc(*array, bytes);
    if (!p) return -1;
    *array = p;
    *capacity = wanted;
    return 0;
}

int open_regular(const char *path, int *fd, uint64_t *bytes, Err *e) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (*fd < 0) return err_errno(e, "%s: cannot be opened", path);
    struct stat st;
    int failed = 0;
    if (fstat(*fd, &st)) failed = err_errno(e, "%s", path);
    else if (S_ISDIR(st.st_mode)) failed = err_set(e, "%s: is a directory; give the GGUF file in it", path);
    else if (!S_ISREG(st.st_mode)) failed = err_set(e, "%s: is not a regular file", path);
    else if (st.st_size == 0) failed = err_set(e, "%s: is empty", path);
    else *bytes = (uint64_t)st.st_size;
    if (failed) close(*fd);
    return failed;
}
