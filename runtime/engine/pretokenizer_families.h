/* The pre-tokenizers that GGUF files name in tokenizer.ggml.pre: their patterns, and what else hangs on the name. */
#pragma once

#include <stdbool.h>

#include "engine/pretokenizer.h"

/* What a pattern's matches become. */
typedef enum Cut {
    CUT_WHOLE,   /* a piece each; so does what lies between them */
    CUT_THREES,  /* pieces of three characters, counted from the end of the match */
    CUT_BETWEEN, /* the same, but the match is only cut where threes begin, not from what is around it */
} Cut;

typedef struct Pattern {
    const char *regex; /* PCRE2's syntax; NULL: none */
    Cut cut;
} Pattern;

enum { MAX_PATTERNS = 6 };
typedef struct Family {
    const char *names;              /* with a space between */
    Pattern patterns[MAX_PATTERNS]; /* applied in turn, each to the pieces that those before it left */
    PretokenizerTraits traits;
} Family;

extern const Family pretokenizer_families[];
extern const int pretokenizer_n_families;
