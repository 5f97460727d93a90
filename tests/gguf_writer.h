/* Builds a GGUF file in memory, for tests: metadata of every type, arrays, tensors with data. Written from the format's
 * document (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), independent of the reader under test. It checks
 * nothing, so that broken files can be made too; running out of memory ends the test program.
 *
 *     GgufWriter w;
 *     gw_init(&w, 3, 32);
 *     gw_string(&w, "general.architecture", "llama");
 *     gw_u32(&w, "llama.block_count", 2);
 *     gw_tensor(&w, "x", 0, 1, (uint64_t[]){4}, data, sizeof data);
 *     size_t size;
 *     uint8_t *bytes = gw_finish(&w, &size);   // malloc'ed
 *     gw_free(&w);
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct GwBytes { /* a growing buffer; owned */
    uint8_t *p;
    size_t n, cap;
} GwBytes;

typedef struct GgufWriter {
    uint32_t version, alignment;
    uint64_t n_values, n_tensors;
    GwBytes values, infos, data; /* the three parts of a file, after the 24 bytes at its head */
} GgufWriter;

/* ids of value types, as in the format's document */
enum { GW_U8, GW_I8, GW_U16, GW_I16, GW_U32, GW_I32, GW_F32, GW_BOOL, GW_STRING, GW_ARRAY, GW_U64, GW_I64, GW_F64 };

static inline void gw_put(GwBytes *b, const void *p, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n) + 256;
        b->p = realloc(b->p, b->cap);
        if (!b->p) abort();
    }
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
}

/* the low `bytes` bytes of v, little-endian */
static inline void gw_put_int(GwBytes *b, uint64_t v, size_t bytes) {
    uint8_t le[8];
    for (size_t i = 0; i < 8; i++) le[i] = (uint8_t)(v >> (8 * i));
    gw_put(b, le, bytes);
}

static inline void gw_put_string(GwBytes *b, const char *s, size_t n) {
    gw_put_int(b, n, 8);
    gw_put(b, s, n);
}

static inline void gw_pad(GwBytes *b, size_t to) {
    while (b->n % to) gw_put_int(b, 0, 1);
}

/* `alignment` other than 32 (the default of the format) is written as general.alignment. */
static inline void gw_init(GgufWriter *w, uint32_t version, uint32_t alignment);

static inline void gw_free(GgufWriter *w) {
    free(w->values.p);
    free(w->infos.p);
    free(w->data.p);
    memset(w, 0, sizeof *w);
}

static inline void gw_key(GgufWriter *w, const char *key, uint32_t type) {
    gw_put_string(&w->values, key, strlen(key));
    gw_put_int(&w->values, type, 4);
    w->n_values++;
}

/* A whole number or BOOL of `bytes` bytes, of the type with that id. */
static inline void gw_int(GgufWriter *w, const char *key, uint32_t type, uint64_t v, size_t bytes) {
    gw_key(w, key, type);
    gw_put_int(&w->values, v, bytes);
}
static inline void gw_u8(GgufWriter *w, const char *key, uint8_t v) { gw_int(w, key, GW_U8, v, 1); }
static inline void gw_i8(GgufWriter *w, const char *key, int8_t v) { gw_int(w, key, GW_I8, (uint64_t)v, 1); }
static inline void gw_u16(GgufWriter *w, const char *key, uint16_t v) { gw_int(w, key, GW_U16, v, 2); }
static inline void gw_i16(GgufWriter *w, const char *key, int16_t v) { gw_int(w, key, GW_I16, (uint64_t)v, 2); }
static inline void gw_u32(GgufWriter *w, const char *key, uint32_t v) { gw_int(w, key, GW_U32, v, 4); }
static inline void gw_i32(GgufWriter *w, const char *key, int32_t v) { gw_int(w, key, GW_I32, (uint64_t)v, 4); }
static inline void gw_u64(GgufWriter *w, const char *key, uint64_t v) { gw_int(w, key, GW_U64, v, 8); }
static inline void gw_i64(GgufWriter *w, const char *key, int64_t v) { gw_int(w, key, GW_I64, (uint64_t)v, 8); }
static inline void gw_bool(GgufWriter *w, const char *key, bool v) { gw_int(w, key, GW_BOOL, v, 1); }
static inline void gw_f32(GgufWriter *w, const char *key, float v) {
    gw_key(w, key, GW_F32);
    gw_put(&w->values, &v, 4);
}
static inline void gw_f64(GgufWriter *w, const char *key, double v) {
    gw_key(w, key, GW_F64);
    gw_put(&w->values, &v, 8);
}
static inline void gw_string(GgufWriter *w, const char *key, const char *v) {
    gw_key(w, key, GW_STRING);
    gw_put_string(&w->values, v, strlen(v));
}

/* n elements of `bytes` bytes each, as they stand in memory (the machine is little-endian). */
static inline void gw_array(GgufWriter *w, const char *key, uint32_t type, uint64_t n, const void *v, size_t bytes) {
    gw_key(w, key, GW_ARRAY);
    gw_put_int(&w->values, type, 4);
    gw_put_int(&w->values, n, 8);
    gw_put(&w->values, v, (size_t)n * bytes);
}
static inline void gw_strings(GgufWriter *w, const char *key, uint64_t n, const char *const *v) {
    gw_array(w, key, GW_STRING, n, NULL, 0);
    for (uint64_t i = 0; i < n; i++) gw_put_string(&w->values, v[i], strlen(v[i]));
}

/* `type` is a ggml_type; `offset` counts from the start of the data section. Only the description. */
static inline void gw_tensor_info(GgufWriter *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                                  uint64_t offset) {
    gw_put_string(&w->infos, name, strlen(name));
    gw_put_int(&w->infos, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) gw_put_int(&w->infos, dims[i], 8);
    gw_put_int(&w->infos, type, 4);
    gw_put_int(&w->infos, offset, 8);
    w->n_tensors++;
}

/* A tensor with its data, put at the next aligned place. */
static inline void gw_tensor(GgufWriter *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, size_t bytes) {
    gw_pad(&w->data, w->alignment);
    gw_tensor_info(w, name, type, n_dims, dims, w->data.n);
    gw_put(&w->data, data, bytes);
}

static inline void gw_init(GgufWriter *w, uint32_t version, uint32_t alignment) {
    memset(w, 0, sizeof *w);
    w->version = version;
    w->alignment = alignment;
    if (alignment != 32) gw_u32(w, "general.alignment", alignment);
}

/* The whole file, malloc'ed. A file without tensors ends with its header, unpadded. */
static inline uint8_t *gw_finish(const GgufWriter *w, size_t *size) {
    GwBytes b = {0};
    gw_put(&b, "GGUF", 4);
    gw_put_int(&b, w->version, 4);
    gw_put_int(&b, w->n_tensors, 8);
    gw_put_int(&b, w->n_values, 8);
    gw_put(&b, w->values.p, w->values.n);
    gw_put(&b, w->infos.p, w->infos.n);
    if (w->n_tensors) gw_pad(&b, w->alignment);
    gw_put(&b, w->data.p, w->data.n);
    *size = b.n;
    return b.p;
}

/* The same, to a file; false when it cannot be written. */
static inline bool gw_write(const GgufWriter *w, const char *path) {
    size_t size;
    uint8_t *bytes = gw_finish(w, &size);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, size, f) == size;
    if (f && fclose(f)) ok = false;
    free(bytes);
    return ok;
}
