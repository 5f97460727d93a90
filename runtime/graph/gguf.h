/* Reader of GGUF files, versions 2 and 3 (little-endian): metadata and where the tensors lie, and tensor data on
 * request. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#pragma once

#include "base/err.h"
#include "quant/qtype.h"

/* Kinds of values, with their ids in the file. */
typedef enum GgufType {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
} GgufType;

typedef struct GgufString { /* not NUL-terminated; points into the file's memory */
    const char *data;
    size_t size;
} GgufString;

typedef struct GgufValue {
    GgufString key;
    GgufType type;
    union { /* by type; whole numbers are widened */
        uint64_t u;
        int64_t i;
        double f;
        GgufString s;
        struct {
            GgufType type; /* of the elements: a scalar type or GGUF_STRING; arrays of arrays are refused */
            uint64_t n;
            const uint8_t *data;       /* scalars: the elements as in the file (unaligned) */
            const GgufString *strings; /* strings: [n] */
        } a;
    } v;
} GgufValue;

typedef struct GgufTensor {
    GgufString name;
    int n_dims;       /* 1..4 */
    uint64_t dims[4]; /* dims[0] runs fastest (columns); unused ones are 1 */
    uint32_t type_id; /* ggml_type as in the file */
    int type;         /* QType, or -1: a type this build does not know */
    uint64_t offset;  /* bytes from the start of the file; checked to lie within it, with its size, for known types */
    uint64_t bytes;   /* 0 when the type is unknown */
} GgufTensor;

typedef struct Gguf Gguf;

/* Maps the file's header and reads it, checking every count, length, offset, alignment, duplicate name and key, and
 * that no two tensors overlap. Errors name file, offset and tensor or key. The caller owns *out. Local. */
int gguf_open(const char *path, Gguf **out, Err *e);
/* The same from memory that stays valid (tests, fuzzing); `file_bytes` is the size the file would have. */
int gguf_from_memory(const void *data, size_t size, uint64_t file_bytes, const char *name, Gguf **out, Err *e);
void gguf_close(Gguf *g);
/* `n` bytes of a tensor of this file, from `at` bytes after its start. Local; threads may read at the same time. */
int gguf_read(const Gguf *g, const GgufTensor *t, uint64_t at, size_t n, void *to, Err *e);

const char *gguf_path(const Gguf *g);
uint32_t gguf_version(const Gguf *g);
uint64_t gguf_file_bytes(const Gguf *g);
size_t gguf_n_values(const Gguf *g);
const GgufValue *gguf_value_at(const Gguf *g, size_t i);
const GgufValue *gguf_find(const Gguf *g, const char *key); /* NULL: not there */
size_t gguf_n_tensors(const Gguf *g);
const GgufTensor *gguf_tensor_at(const Gguf *g, size_t i);
const GgufTensor *gguf_tensor(const Gguf *g, const char *name); /* NULL: not there; by hash, fast */

/* Typed access. `required`: a missing key is an error naming key and file; otherwise *out keeps what it had. A value of
 * another type, out of range or not finite is always an error. Integers of any width and sign are accepted, floats of
 * both widths; in arrays too: `element` GGUF_I32 asks for whole numbers, GGUF_F32 for floats. */
int gguf_get_i64(const Gguf *g, const char *key, bool required, int64_t min, int64_t max, int64_t *out, Err *e);
int gguf_get_f64(const Gguf *g, const char *key, bool required, double *out, Err *e);
int gguf_get_bool(const Gguf *g, const char *key, bool required, bool *out, Err *e);
int gguf_get_string(const Gguf *g, const char *key, bool required, GgufString *out, Err *e);
int gguf_get_array(const Gguf *g, const char *key, bool required, GgufType element, const GgufValue **out, Err *e);
/* Element i of an array of whole numbers (any width), or of floats. */
int64_t gguf_array_i64(const GgufValue *a, uint64_t i);
double gguf_array_f64(const GgufValue *a, uint64_t i);

/* A name from a file made fit to stand in an error: at most 64 bytes, what is not printable ASCII replaced by '?'. */
typedef struct GgufPrintable {
    char text[72];
} GgufPrintable;
GgufPrintable gguf_printable(GgufString s);
