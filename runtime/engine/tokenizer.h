/* Text <-> token ids. This version: byte-level BPE (tokenizer.ggml.model "gpt2") with the pre-tokenizers that it knows by
 * name; an unknown model or pre-tokenizer is an error that names it. All local; a Tokenizer is read-only after creation
 * but for its scratch memory (one thread at a time). */
#pragma once

#include "base/err.h"
#include "graph/gguf.h"

typedef struct Tokenizer Tokenizer;

/* Reads tokenizer.ggml.*; keeps pointers into `g`, which must outlive it. Checks that ids, merges and types fit. */
int tokenizer_from_gguf(const Gguf *g, Tokenizer **out, Err *e);
void tokenizer_free(Tokenizer *t);

int64_t tokenizer_size(const Tokenizer *t); /* ids are 0 .. size-1 */
int32_t tokenizer_bos(const Tokenizer *t);  /* -1: none, or the model's flags say not to add it */
bool tokenizer_ends(const Tokenizer *t, int32_t id); /* end of text, of turn */

/* UTF-8 text -> ids appended to a malloc'ed array (*ids, caller frees). Invalid UTF-8 is an error naming the byte offset.
 * `special`: the text of control and user-defined tokens becomes those tokens (user-defined ones always do, as in
 * llama.cpp). `bos`: add it when the model's flags say so. */
int tokenizer_encode(Tokenizer *t, const char *text, size_t bytes, bool bos, bool special, int32_t **ids, size_t *n, Err *e);
/* Bytes of one token into buf; returns their number (or the number needed if > cap). Control tokens: their text when
 * `special`, else nothing. An id out of range gives 0. */
size_t tokenizer_bytes(const Tokenizer *t, int32_t id, bool special, char *buf, size_t cap);
