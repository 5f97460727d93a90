/* What gguf.c (reading) and gguf_get.c (access) share. */
#pragma once

#include "graph/gguf.h"
#include "graph/name_map.h"

struct Gguf {
    char *path; /* owned */
    void *map;  /* the header's pages of the file, mapped; NULL when read from memory */
    size_t map_bytes;
    int fd;                /* the file, for tensor data; -1 when read from memory, which is then */
    const uint8_t *memory; /* [memory_bytes], not owned */
    size_t memory_bytes;
    uint64_t file_bytes;
    uint32_t version;
    uint64_t alignment;
    size_t n_values, n_tensors;
    GgufValue *values;   /* [n_values], owned, with the arrays of strings in them */
    GgufTensor *tensors; /* [n_tensors], owned */
    NameMap by_key, by_name;
};

bool gguf_type_is_whole(GgufType t);  /* U8 .. I64 without BOOL */
bool gguf_type_is_signed(GgufType t); /* of those: I8 .. I64 */
const char *gguf_type_name(GgufType t);
size_t gguf_type_bytes(GgufType t); /* of a scalar; 0: STRING, ARRAY */
