/* Finding special tokens ("<|im_end|>") in text. */
#pragma once

#include "base/err.h"
#include "graph/model_file.h"

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

/* Where special tokens stand in the text, in order, none overlapping: a longer token wins over a shorter one wherever
 * they are, a lower id over a higher one of the same length, then the leftmost. `all`: also those that do not count
 * always. *hits (malloc'ed; NULL when there are none) is the caller's. Local. */
int special_find(const Special *s, const char *text, size_t bytes, bool all, SpecialHit **hits, size_t *n, Err *e);
