/* What the readers of files and model_file.c share. */
#pragma once

#include "graph/model_file.h"
#include "graph/name_map.h"

struct ModelFile {
    char *path; /* owned */
    void *map;  /* a copy of the file's header, mmap'ed; NULL when read from memory */
    size_t map_bytes;
    int fd;                /* the file, for tensor data; -1 when read from memory, which is then */
    const uint8_t *memory; /* [memory_bytes], not owned */
    size_t memory_bytes;
    uint64_t file_bytes;
    uint32_t version;
    uint64_t alignment;
    size_t n_values, n_tensors;
    MetaValue *values;   /* [n_values], owned, with the arrays of strings in them */
    FileTensor *tensors; /* [n_tensors], owned */
    NameMap by_key, by_name;
};

bool meta_type_is_whole(MetaType t);  /* U8 .. I64 without BOOL */
bool meta_type_is_signed(MetaType t); /* of those: I8 .. I64 */
const char *meta_type_name(MetaType t);
size_t meta_type_bytes(MetaType t); /* of a scalar; 0: STRING, ARRAY */
/* An empty one, with no file open; NULL with an error when out of memory. Freed with model_file_close. */
ModelFile *model_file_new(const char *path, uint64_t file_bytes, Err *e);
