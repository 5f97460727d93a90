/* Hashes of tensors' data. A GGUF file that Sheaf writes has, under the key sheaf.xxh64, an array of U64: first a hash
 * of the tensors' names, types and sizes (when another program wrote the tensors anew and kept the key, it differs);
 * then the XXH64 (seed 0) of every piece of 1 MiB of every tensor's data, the last one of a tensor shorter, in the
 * order of the file's tensors. All local. */
#pragma once

#include "base/pool.h"
#include "graph/model_file.h"

#define TENSOR_HASHES "sheaf.xxh64"
enum { HASH_PIECE = 1 << 20 };

/* The hash of the table of tensors, one after the other; 0 before the first. */
uint64_t tensor_hash_add(uint64_t hash, Text name, uint32_t type_id, const uint64_t dims[4]);

typedef struct HashPiece {
    size_t tensor;
    uint64_t at; /* bytes from the tensor's start */
    size_t bytes;
} HashPiece;
/* The pieces of one tensor more, behind the *n that there are, in an array that the caller frees. 0 or -1: no memory.
 */
int hash_cut(size_t tensor, uint64_t bytes, HashPiece **piece, size_t *n, size_t *room);

typedef int HashRead(void *arg, const HashPiece *p, void *to, Err *e); /* by any thread */
typedef void HashProgress(void *arg, uint64_t done, uint64_t total);   /* from the calling thread */
typedef struct HashJob {
    const HashPiece *piece; /* [n] */
    size_t n;
    size_t first, step; /* the pieces first, first + step, ... are hashed */
    HashRead *read;
    void *arg;
    uint64_t *hash;         /* [n] */
    HashProgress *progress; /* or NULL */
    void *progress_arg;
} HashJob;
int hash_run(const HashJob *job, Pool *pool, Err *e);
