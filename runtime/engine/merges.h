/* Where the merges of BPE come from: a list in the file, or the scores of the tokens. */
#pragma once

#include "engine/bpe.h"
#include "engine/vocab.h"

/* Adds the merge of two texts, the second without its first `skip` bytes when they are joined. `rank` is its number in
 * the list, which errors call `list`. Local. */
int merges_add(Bpe *b, const Vocab *v, Text left, Text right, size_t skip, uint32_t rank, const char *list, Err *e);

/* tokenizer.ggml.merges: "LEFT RIGHT", earlier ones first. *b is made. Local. */
int merges_from_gguf(Bpe *b, const Vocab *v, const ModelFile *g, Err *e);

/* SentencePiece's BPE (https://github.com/google/sentencepiece, bpe_model.cc) merges any two neighbours that together
 * are a token, that of the highest score first. So each way to cut a token into two tokens is a merge, ranked by the
 * token's score. Only normal, user-defined and unused tokens count, not those that stand for control or bytes. *b is
 * made. Local. */
int merges_from_scores(Bpe *b, const Vocab *v, const float *scores, Err *e);
/* How many merges that are. Local. */
size_t merges_count_cuts(const Vocab *v);
/* A token that takes part in those. */
static inline bool merges_use(const Vocab *v, int32_t id) {
    return id >= 0 &&
           (v->types[id] == TOKEN_NORMAL || v->types[id] == TOKEN_USER_DEFINED || v->types[id] == TOKEN_UNUSED);
}
