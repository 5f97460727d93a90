/* A unigram language model: of all ways to cut a word into tokens, the one whose scores, logarithms of probabilities,
 * add up to the most (Kudo 2018, https://arxiv.org/abs/1804.10959; SentencePiece's unigram_model.cc). */
#pragma once

#include "engine/tokenizer_internal.h"

typedef struct Unigram {
    const Vocab *vocab;
    double *scores; /* [vocab->n]; -INFINITY: not to be used; owned */
    double unknown_score;
    int32_t unknown; /* or -1: a text that needs it is an error */
    bool bytes;      /* write unknown characters in bytes, where all have tokens */
    int32_t byte_id[256];
    uint64_t *filter; /* bit h & mask of a hash: some token begins so; owned */
    uint64_t filter_mask;
    struct UnigramNode *best; /* scratch: the best way to each byte; owned */
    size_t best_cap;
} Unigram;

/* `scores` as above, none beyond +-1e38; taken over, also on error. An unknown character counts 10 less than `lowest`.
 * Local. */
int unigram_init(Unigram *u, const Vocab *v, double *scores, double lowest, Err *e);
void unigram_free(Unigram *u); /* also of a zeroed one */

/* Adds the ids of a word; neighbouring unknown characters become one unknown token. Local. */
int unigram_encode(Unigram *u, const char *word, size_t bytes, Ids *ids, Err *e);
