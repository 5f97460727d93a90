/* Reader of the header of a safetensors file: which tensors there are and where they lie. The data begin behind it, in
 * C order, little-endian. Format: https://github.com/huggingface/safetensors#format. All local. */
#pragma once

#include <cjson/cJSON.h>

#include "graph/model_file.h"

enum { SAFETENSORS_DIMS = 8 };

typedef struct SafeTensor {
    Text name, dtype;                /* "BF16"; both point into the header's document */
    int n_dims;                      /* 0: a scalar */
    uint64_t dims[SAFETENSORS_DIMS]; /* as in the file: the last one runs fastest */
    uint64_t offset, bytes;          /* offset: from the start of the file */
} SafeTensor;

typedef struct Safetensors {
    cJSON *json; /* owned */
    size_t n;
    SafeTensor *tensor; /* [n], owned; in the order of their data */
} Safetensors;

/* Reads the header at the beginning of a file of `file_bytes` bytes of which `size` are here; they may be freed
 * afterwards. Checked: lengths, dtypes, that shapes and sizes fit, that the data of all tensors fill the file with
 * neither overlap nor hole, and that no name is there twice. Errors name file and tensor. The caller frees *s with
 * safetensors_free, also after an error. */
int safetensors_from_memory(const void *bytes, size_t size, uint64_t file_bytes, const char *name, Safetensors *s,
                            Err *e);
/* The same from an open file of that name. */
int safetensors_from_file(int fd, uint64_t file_bytes, const char *name, Safetensors *s, Err *e);
void safetensors_free(Safetensors *s); /* also of a zeroed one */
