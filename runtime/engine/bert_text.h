/* What BERT's tokenizer does to a text before WordPiece
 * (https://github.com/google-research/bert/blob/master/tokenization.py, BasicTokenizer). */
#pragma once

#include "engine/unicode.h"

typedef struct BertText {
    bool clean;         /* drop control characters, make white space spaces */
    bool spaced;        /* spaces around Chinese characters */
    bool strip_accents; /* decompose (NFD), drop what is combining (Mn) */
    bool lower;
} BertText;

/* Adds the cleaned text to `out`; `scratch` is emptied. Local. */
int bert_text_clean(const BertText *b, const char *text, size_t n, StrBuf *scratch, StrBuf *out, Err *e);

/* The next word from *at on: a run without white space and punctuation, or one punctuation character. *at becomes its
 * start; returns its end, or 0 when there is none. Local. */
size_t bert_text_word(const char *text, size_t n, size_t *at);
