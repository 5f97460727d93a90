/* Whether a model's files still are what they were. All local. */
#pragma once

#include "graph/tensor_hash.h"

typedef struct FileCheck {
    /* "stored": with the hashes in the file itself (tensor_hash.h); 64 hexadecimal digits: the SHA-256 of the one
     * file that all tensors are in; else a file as sha256sum writes it, which has a line for each file with tensors,
     * and may have some for the model's others; they are found by their names without folders. */
    const char *how;
    size_t share, shares; /* which part of the work is done here, of how many */
    HashProgress *progress;
    void *arg;
} FileCheck;
/* 0: everything that was looked at is right. What differs is named: tensor and bytes, or file. */
int file_check(const ModelFile *g, const FileCheck *c, Pool *pool, Err *e);
