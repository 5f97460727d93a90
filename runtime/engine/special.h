/* Finding special tokens ("<|im_end|>") in text. */
#pragma once

#include "base/err.h"
#include "engine/tokenizer.h"

typedef struct SpecialNode { /* of a trie over the tokens' bytes */
    uint32_t child, sibling; /* node numbers; 0: none */
    int32_t id;              /* the token that ends here, or -1 */
    uint8_t byte;
    bool always; /* the token counts even when special tokens were not asked for */
} SpecialNode;

typedef struct Special {
    SpecialNode *nodes; /* owned; 0 is unused */
    uint32_t n, cap;
    uint32_t first[256]; /* the nodes of first bytes */
    size_t longest;      /* bytes of the longest token */
} Special;

typedef struct SpecialHit {
    size_t pos, size; /* bytes of the text */
    int32_t id;
} SpecialHit;

/* Adds a token's text (not empty, not there yet). `s` starts zeroed. Local. */
int special_add(Special *s, Text text, int32_t id, bool always, Err *e);
void special_free(Special *s);

/* The longest token that text[0, n) begins with: its size, and which it is; 0: none. Local. */
size_t special_longest(const Special *s, const char *text, size_t n, int32_t *id);

/* Where the special tokens that do not count always are wanted in a text: everywhere but in some parts, or nowhere. */
typedef struct SpecialPlaces {
    bool any;
    const char *text; /* its beginning, for those who have a piece of it */
    const TextSpan *plain;
    size_t n_plain;
} SpecialPlaces;
/* Whether they are wanted in all of [begin, end) of the text. Local. */
bool special_wanted(const SpecialPlaces *p, size_t begin, size_t end);

/* Where special tokens stand in the text, in order, none overlapping: a longer token wins over a shorter one wherever
 * they are, a lower id over a higher one of the same length, then the leftmost. At most 2^31-1 bytes. *hits (malloc'ed;
 * NULL when there are none) is the caller's. Local. */
int special_find(const Special *s, const char *text, size_t bytes, const SpecialPlaces *places, SpecialHit **hits,
                 size_t *n, Err *e);
