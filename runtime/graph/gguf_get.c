/* Typed access to what gguf.c has read. */
#include "graph/gguf_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
    bool whole, is_signed;
} type_table[] = {
    [GGUF_U8] = {"u8", 1, true, false},          [GGUF_I8] = {"i8", 1, true, true},
    [GGUF_U16] = {"u16", 2, true, false},        [GGUF_I16] = {"i16", 2, true, true},
    [GGUF_U32] = {"u32", 4, true, false},        [GGUF_I32] = {"i32", 4, true, true},
    [GGUF_F32] = {"f32", 4, false, false},       [GGUF_BOOL] = {"bool", 1, false, false},
    [GGUF_STRING] = {"string", 0, false, false}, [GGUF_ARRAY] = {"array", 0, false, false},
    [GGUF_U64] = {"u64", 8, true, false},        [GGUF_I64] = {"i64", 8, true, true},
    [GGUF_F64] = {"f64", 8, false, false},
};

bool gguf_type_is_whole(GgufType t) { return type_table[t].whole; }
bool gguf_type_is_signed(GgufType t) { return type_table[t].is_signed; }
const char *gguf_type_name(GgufType t) { return type_table[t].name; }
size_t gguf_type_bytes(GgufType t) { return type_table[t].bytes; }

GgufPrintable gguf_printable(GgufString s) {
    GgufPrintable p;
    size_t n = s.size < 64 ? s.size : 64;
    for (size_t i = 0; i < n; i++) p.text[i] = s.data[i] > ' ' && s.data[i] < 127 ? s.data[i] : '?';
    memcpy(p.text + n, s.size > n ? "..." : "", s.size > n ? 4 : 1);
    return p;
}

const char *gguf_path(const Gguf *g) { return g->path; }
uint32_t gguf_version(const Gguf *g) { return g->version; }
uint64_t gguf_file_bytes(const Gguf *g) { return g->file_bytes; }
size_t gguf_n_values(const Gguf *g) { return g->n_values; }
const GgufValue *gguf_value_at(const Gguf *g, size_t i) { return &g->values[i]; }
size_t gguf_n_tensors(const Gguf *g) { return g->n_tensors; }
const GgufTensor *gguf_tensor_at(const Gguf *g, size_t i) { return &g->tensors[i]; }

const GgufValue *gguf_find(const Gguf *g, const char *key) {
    int64_t i = name_map_find(&g->by_key, key, strlen(key));
    return i < 0 ? NULL : &g->values[i];
}

const GgufTensor *gguf_tensor(const Gguf *g, const char *name) {
    int64_t i = name_map_find(&g->by_name, name, strlen(name));
    return i < 0 ? NULL : &g->tensors[i];
}

/* *out: the value, or NULL when it is missing and need not be there. */
static int find(const Gguf *g, const char *key, bool required, const GgufValue **out, Err *e) {
    *out = gguf_find(g, key);
    if (!*out && required) return err_set(e, "%s: the key %s is missing", g->path, key);
    return 0;
}

static int wrong_type(const Gguf *g, const GgufValue *v, const char *key, const char *wanted, Err *e) {
    bool array = v->type == GGUF_ARRAY;
    return err_set(e, "%s: the key %s should be %s, but it is of type %s%s", g->path, key, wanted,
                   array ? "array of " : "", gguf_type_name(array ? v->v.a.type : v->type));
}

int gguf_get_i64(const Gguf *g, const char *key, bool required, int64_t min, int64_t max, int64_t *out, Err *e) {
    const GgufValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (!gguf_type_is_whole(v->type)) return wrong_type(g, v, key, "a whole number", e);
    bool too_large = !gguf_type_is_signed(v->type) && v->v.u > INT64_MAX;
    if (too_large || v->v.i < min || v->v.i > max)
        return err_set(e, "%s: the key %s is %s%" PRIu64 ", not between %" PRId64 " and %" PRId64, g->path, key,
                       too_large || v->v.i >= 0 ? "" : "-", too_large || v->v.i >= 0 ? v->v.u : -v->v.u, min, max);
    *out = v->v.i;
    return 0;
}

int gguf_get_f64(const Gguf *g, const char *key, bool required, double *out, Err *e) {
    const GgufValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != GGUF_F32 && v->type != GGUF_F64) return wrong_type(g, v, key, "a float", e);
    if (!isfinite(v->v.f)) return err_set(e, "%s: the key %s is not a finite number", g->path, key);
    *out = v->v.f;
    return 0;
}

int gguf_get_bool(const Gguf *g, const char *key, bool required, bool *out, Err *e) {
    const GgufValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != GGUF_BOOL) return wrong_type(g, v, key, "a bool", e);
    *out = v->v.u != 0;
    return 0;
}

int gguf_get_string(const Gguf *g, const char *key, bool required, GgufString *out, Err *e) {
    const GgufValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != GGUF_STRING) return wrong_type(g, v, key, "a string", e);
    *out = v->v.s;
    return 0;
}

static bool serves_as(GgufType have, GgufType want) {
    if (gguf_type_is_whole(want)) return gguf_type_is_whole(have);
    if (want == GGUF_F32 || want == GGUF_F64) return have == GGUF_F32 || have == GGUF_F64;
    return have == want;
}

int gguf_get_array(const Gguf *g, const char *key, bool required, GgufType element, const GgufValue **out, Err *e) {
    const GgufValue *v;
    if (find(g, key, required, &v, e)) return -1;
    if (!v) return 0;
    if (v->type != GGUF_ARRAY || !serves_as(v->v.a.type, element)) {
        const char *wanted = gguf_type_is_whole(element)                  ? "an array of whole numbers"
                             : element == GGUF_F32 || element == GGUF_F64 ? "an array of floats"
                             : element == GGUF_STRING                     ? "an array of strings"
                                                                          : "an array of bools";
        return wrong_type(g, v, key, wanted, e);
    }
    *out = v;
    return 0;
}

int64_t gguf_array_i64(const GgufValue *a, uint64_t i) {
    GgufType t = a->v.a.type;
    size_t bytes = gguf_type_bytes(t);
    uint64_t v = 0;
    memcpy(&v, a->v.a.data + i * bytes, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return gguf_type_is_signed(t) ? (int64_t)(v << unused) >> unused : (int64_t)v;
}

double gguf_array_f64(const GgufValue *a, uint64_t i) {
    if (a->v.a.type == GGUF_F32) {
        float f;
        memcpy(&f, a->v.a.data + i * sizeof f, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, a->v.a.data + i * sizeof d, sizeof d);
    return d;
}
