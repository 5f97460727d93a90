/* Text <-> token ids. From GGUF files: byte-level BPE ("gpt2", with the pre-tokenizers known by name), SentencePiece's
 * BPE and unigram models ("llama", "gemma4", "t5") and WordPiece ("bert"); from Hugging Face's tokenizer.json: BPE,
 * Unigram and WordPiece with their steps. What is not known is an error that names it. All local; a Tokenizer is
 * read-only after creation but for its scratch memory (one thread at a time). */
#pragma once

#include "base/err.h"
#include "graph/model_file.h"

typedef struct Tokenizer Tokenizer;

/* Reads tokenizer.ggml.*; keeps pointers into `g`, which must outlive it. Checks that ids, merges and types fit. */
int tokenizer_from_gguf(const ModelFile *g, Tokenizer **out, Err *e);
/* Reads a tokenizer.json, or one in memory, which may be freed afterwards; `name` stands for it in errors. "truncation"
 * and "padding" are left to the caller. `rows`: of the model's embedding; added tokens beyond them, which some files
 * have, are left out: their text is plain text. */
int tokenizer_from_json(const char *path, Tokenizer **out, Err *e);
int tokenizer_from_json_memory(const char *text, size_t n, const char *name, int64_t rows, Tokenizer **out, Err *e);
void tokenizer_free(Tokenizer *t);

int64_t tokenizer_size(const Tokenizer *t); /* ids are 0 .. size-1 */
int32_t tokenizer_bos(const Tokenizer *t);  /* -1: none, or the model's flags say not to add it */
/* What the file calls BOS and EOS, whether or not they are put around texts; -1: nothing. */
int32_t tokenizer_named_bos(const Tokenizer *t);
int32_t tokenizer_named_eos(const Tokenizer *t);
/* For a tokenizer.json, which does not name them: the model's configuration does. Out of range: none. */
void tokenizer_set_named(Tokenizer *t, int64_t bos, int64_t eos);
bool tokenizer_ends(const Tokenizer *t, int32_t id); /* end of text, of turn */
void tokenizer_set_end(Tokenizer *t, int32_t id); /* one that the model's configuration names; out of range: nothing */

/* UTF-8 text -> ids in a new malloc'ed array (*ids, caller frees; never NULL on success). Invalid UTF-8 is an error
 * naming the byte offset. `special`: the text of control and unknown tokens becomes those tokens (that of user-defined
 * ones always does), the longest token first, as in llama.cpp. `bos`: put BOS before and EOS after where the model's
 * flags say so. A byte for which the vocabulary has no token (SmolLM2 lacks U+0004, for one) is left out, as llama.cpp
 * and Hugging Face's tokenizers do. */
int tokenizer_encode(Tokenizer *t, const char *text, size_t bytes, bool bos, bool special, int32_t **ids, size_t *n,
                     Err *e);
/* The same without BOS and EOS, and with special tokens everywhere but in the parts called `plain`, which are in order
 * and do not overlap: what people said within the text of a template. */
typedef struct TextSpan {
    size_t begin, end; /* bytes of the text */
} TextSpan;
int tokenizer_encode_mixed(Tokenizer *t, const char *text, size_t bytes, const TextSpan *plain, size_t n_plain,
                           int32_t **ids, size_t *n, Err *e);
/* Bytes of one token into buf; returns their number (or the number needed if > cap). Control and unknown tokens: their
 * text when `special`, else nothing. Unused tokens and ids out of range give 0. */
size_t tokenizer_bytes(const Tokenizer *t, int32_t id, bool special, char *buf, size_t cap);
