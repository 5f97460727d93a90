/* Writer of GGUF files, version 3 (little-endian). Everything is declared first, then the tensors' data come in any
 * order and from any thread. The file has a temporary name beside its own until it is complete.
 *
 *     gguf_out_create(path, &w, e);
 *     gguf_out_copy(w, source, e);                        // all metadata of another file, then
 *     gguf_out_set(w, gguf_u32("general.file_type", 7), e); // what is to be different
 *     gguf_out_add(w, name, type, n_dims, dims, e);       // each tensor: number 0, 1, ...
 *     gguf_out_begin(w, e);
 *     gguf_out_write(w, tensor, at, data, n, e);          // until all is there
 *     gguf_out_finish(w, pool, e);
 *     gguf_out_free(w);
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. All local. */
#pragma once

#include "graph/gguf.h"
#include "graph/tensor_hash.h"

typedef struct GgufOut GgufOut;

/* Makes the temporary file PATH.partN; what may stand at PATH is left alone until gguf_out_finish. */
int gguf_out_create(const char *path, GgufOut **out, Err *e);
/* Removes the temporary file, unless gguf_out_finish has been reached. NULL is allowed. */
void gguf_out_free(GgufOut *w);

/* Metadata. Keys, texts and arrays are not copied: they stay where they are until gguf_out_finish. What says that
 * `from` is in several files is left out. Copying comes before the first gguf_out_set, which replaces the value of the
 * same key or adds one. */
int gguf_out_copy(GgufOut *w, const ModelFile *from, Err *e);
int gguf_out_set(GgufOut *w, MetaValue v, Err *e);
void gguf_out_drop(GgufOut *w, const char *key); /* also one that is not there */
MetaValue gguf_u32(const char *key, uint32_t v);
MetaValue gguf_text(const char *key, const char *v);

/* A tensor; `dims` as in FileTensor; rows are whole blocks. The name is not copied. */
int gguf_out_add(GgufOut *w, Text name, QType type, int n_dims, const uint64_t *dims, Err *e);

/* Adds hashes of the tensors' data to the metadata (tensor_hash.h), and lays the file out (general.alignment of the
 * metadata, or 32), reserves room for all of it, so that a full disk is found out now, and writes the header. */
int gguf_out_begin(GgufOut *w, Err *e);
uint64_t gguf_out_bytes(const GgufOut *w); /* of the whole file; after gguf_out_begin */

/* `n` bytes of a tensor's data, from `at` bytes after its start. Threads may write at the same time. */
int gguf_out_write(GgufOut *w, size_t tensor, uint64_t at, const void *data, size_t n, Err *e);

/* Checks that as many bytes were written as the tensors have, reads them back for their hashes with all threads of the
 * pool, makes the file durable, and gives it its name. */
int gguf_out_finish(GgufOut *w, Pool *pool, Err *e);
