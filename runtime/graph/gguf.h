/* Reader of GGUF files, versions 2 and 3 (little-endian): metadata and where the tensors lie, and tensor data on
 * request. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#pragma once

#include "graph/model_file.h"

/* Maps the file's header and reads it, checking every count, length, offset, alignment, duplicate name and key, and
 * that no two tensors overlap. One file of a model that is split into several opens them all. Errors name file, offset
 * and tensor or key. The caller owns *out. Local. */
int gguf_open(const char *path, ModelFile **out, Err *e);
/* The same from memory that stays valid (tests, fuzzing); `file_bytes` is the size the file would have. */
int gguf_from_memory(const void *data, size_t size, uint64_t file_bytes, const char *name, ModelFile **out, Err *e);
