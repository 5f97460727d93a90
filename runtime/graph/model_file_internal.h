/* What the readers of files and model_file.c share. */
#pragma once

#include "graph/model_file.h"
#include "graph/name_map.h"

/* One of a model's files. */
typedef struct DataFile {
    char *path;            /* owned */
    int fd;                /* -1: it is in memory */
    const uint8_t *memory; /* [memory_bytes], not owned */
    size_t memory_bytes;
    uint64_t bytes; /* of the file */
    void *map;      /* a copy of its header, mmap'ed; or NULL */
    size_t map_bytes;
} DataFile;

typedef struct Block Block; /* of memory */

struct ModelFile {
    char *path; /* owned */
    const char *format;
    size_t n_files, n_values, n_tensors;
    DataFile *files;     /* [n_files], owned */
    MetaValue *values;   /* [n_values], owned */
    FileTensor *tensors; /* [n_tensors], owned */
    NameMap by_key, by_name;
    Block *blocks; /* owned: what texts, arrays and Stored may point into */
};

/* A tensor that does not lie in a file as it is. */
typedef struct FilePlace {
    uint32_t file;
    uint64_t offset;
} FilePlace;
typedef struct Stored {
    QType type;         /* in the file; where the tensor has another, F32, values are converted, and `add` is added */
    float add;          /* after the conversion */
    uint32_t head_rows; /* 0, or rows of a head: stored are first all even ones of a head, then its odd ones */
    uint32_t n_pieces;  /* equal parts of the tensor, each at a place of its own */
    FilePlace piece[];
} Stored;

bool meta_type_is_whole(MetaType t);  /* U8 .. I64 without BOOL */
bool meta_type_is_signed(MetaType t); /* of those: I8 .. I64 */
const char *meta_type_name(MetaType t);
size_t meta_type_bytes(MetaType t); /* of a scalar; 0: STRING, ARRAY */
/* An empty one; NULL with an error when out of memory. Freed with model_file_close. */
ModelFile *model_file_new(const char *path, const char *format, Err *e);
/* Takes the file over, but for its path, which is copied; also when it fails, which is when memory is out. Its number
 * is n_files - 1. */
int model_file_add(ModelFile *g, const char *path, DataFile f, Err *e);
/* Zeroed memory that lives as long as the model; NULL with an error when there is none. */
void *model_file_alloc(ModelFile *g, size_t bytes, Err *e);
/* Moves the files and tensors of `from` to the end of those of `g` and frees the rest of it, also after an error. The
 * map of names is not made new. */
int model_file_join(ModelFile *g, ModelFile *from, Err *e);
/* The maps of names, when all values or tensors are there; an error names one that is there twice. */
int model_file_map_values(ModelFile *g, Err *e);
int model_file_map_tensors(ModelFile *g, Err *e);
/* Room for one element more in an array that doubles. 0 or -1. */
int grow(void **array, size_t n, size_t *capacity, size_t element);
/* `n` bytes of a file. `what`: for whom, in errors. Threads may read at the same time. */
int data_file_read(const DataFile *f, uint64_t from, size_t n, void *to, const char *what, Err *e);
/* Opens the file for reading, if it is a regular one that is not empty: *fd and its size. */
int open_regular(const char *path, int *fd, uint64_t *bytes, Err *e);

/* One GGUF file by itself, a piece of a model perhaps. */
int gguf_open_one(const char *path, ModelFile **out, Err *e);
