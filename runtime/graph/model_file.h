/* A model as the builders and tokenizers see it, whatever its format and however many files it is in: metadata under
 * GGUF's names, and tensors as a GGUF file has them. Made by the readers (gguf.h). All local. */
#pragma once

#include "base/err.h"
#include "quant/qtype.h"

/* Kinds of metadata values, with their ids in GGUF files. */
typedef enum MetaType {
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_F64,
} MetaType;

typedef struct Text { /* not NUL-terminated; points into the file's memory */
    const char *data;
    size_t size;
} Text;

typedef struct MetaValue {
    Text key;
    MetaType type;
    union { /* by type; whole numbers are widened */
        uint64_t u;
        int64_t i;
        double f;
        Text s;
        struct {
            MetaType type; /* of the elements: a scalar type or META_STRING; arrays of arrays are refused */
            uint64_t n;
            const uint8_t *data; /* scalars: the elements as in the file (unaligned) */
            const Text *strings; /* strings: [n] */
        } a;
    } v;
} MetaValue;

enum { TENSOR_DIMS = 4 };
typedef struct FileTensor {
    Text name;
    int n_dims;                 /* 1 .. TENSOR_DIMS */
    uint64_t dims[TENSOR_DIMS]; /* dims[0] runs fastest (columns); unused ones are 1 */
    uint32_t type_id;           /* ggml_type */
    int type;                   /* QType, or -1: a type this build does not know */
    uint64_t bytes;             /* 0 when the type is unknown */
    uint32_t file;              /* which of the model's files it lies in */
    uint64_t offset; /* bytes from that file's start; checked to lie within it, with its size, for known types */
    const struct Stored *stored; /* NULL: it lies there as it is; else how it is made from what lies in files, ... */
} FileTensor;                    /* ... which model_file_read knows (model_file_internal.h) */

typedef struct ModelFile ModelFile;

/* A GGUF file (of one that is split into several: any), or a model as Hugging Face's transformers saves it: the folder,
 * or its config.json, model.safetensors.index.json or a .safetensors file in it (hf_folder.c). The caller owns *out. */
int model_file_open(const char *path, ModelFile **out, Err *e);
void model_file_close(ModelFile *g);
/* `n` bytes of a tensor of this model, from `at` bytes after its start (whole values of one that is not stored as it
 * is). Threads may read at the same time. */
int model_file_read(const ModelFile *g, const FileTensor *t, uint64_t at, size_t n, void *to, Err *e);
/* Where byte `at` of the tensor is stored (the first byte of its value, where values are converted): in which file, and
 * how far from its start. */
const char *model_file_place(const ModelFile *g, const FileTensor *t, uint64_t at, uint64_t *offset);
/* A hash of the sizes of all its files and of pieces all over them: two fine-tunings of one model have the same sizes
 * and names of tensors, but hardly a piece of weights in common. */
int model_file_sample(const ModelFile *g, uint64_t *hash, Err *e);

const char *model_file_path(const ModelFile *g);   /* of the first file, or of the folder */
const char *model_file_format(const ModelFile *g); /* "GGUF 3" */
uint64_t model_file_bytes(const ModelFile *g);     /* of all its files */
size_t model_file_parts(const ModelFile *g);       /* its files */
const char *model_file_part(const ModelFile *g, size_t i);
size_t meta_count(const ModelFile *g);
const MetaValue *meta_at(const ModelFile *g, size_t i);
const MetaValue *meta_find(const ModelFile *g, const char *key); /* NULL: not there */
size_t file_n_tensors(const ModelFile *g);
const FileTensor *file_tensor_at(const ModelFile *g, size_t i);
const FileTensor *file_tensor(const ModelFile *g, const char *name); /* NULL: not there; by hash, fast */

/* Typed access. `required`: a missing key is an error naming key and file; otherwise *out keeps what it had. A value of
 * another type, out of range or not finite is always an error. Integers of any width and sign are accepted, floats of
 * both widths; in arrays too: `element` META_I32 asks for whole numbers, META_F32 for floats. */
int meta_get_i64(const ModelFile *g, const char *key, bool required, int64_t min, int64_t max, int64_t *out, Err *e);
int meta_get_f64(const ModelFile *g, const char *key, bool required, double *out, Err *e);
int meta_get_bool(const ModelFile *g, const char *key, bool required, bool *out, Err *e);
int meta_get_string(const ModelFile *g, const char *key, bool required, Text *out, Err *e);
int meta_get_array(const ModelFile *g, const char *key, bool required, MetaType element, const MetaValue **out, Err *e);
/* Element i of an array of whole numbers (any width), or of floats. */
int64_t meta_array_i64(const MetaValue *a, uint64_t i);
double meta_array_f64(const MetaValue *a, uint64_t i);

/* A name from a file made fit to stand in an error: at most 64 bytes, what is not printable ASCII replaced by '?'. */
typedef struct Printable {
    char text[72];
} Printable;
Printable text_printable(Text s);
