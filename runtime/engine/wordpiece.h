/* WordPiece: a word is cut into the longest token that begins it, the longest one that goes on from there, and so on;
 * when that fails, all of it is the unknown token
 * (https://github.com/google-research/bert/blob/master/tokenization.py). */
#pragma once

#include "engine/tokenizer_internal.h"

typedef struct WordPiece {
    const Vocab *vocab;
    Text first, continuing; /* what tokens have in front at the start of a word, and inside; not owned */
    size_t longest;         /* words of more characters are unknown */
    int32_t unknown;
} WordPiece;

/* Adds the ids of a word, which is not empty. Local. */
int wordpiece_encode(const WordPiece *w, const char *word, size_t bytes, Ids *ids, Err *e);
