/* Byte-pair encoding: merging the symbols of a word, lowest rank first (Sennrich et al. 2016,
 * https://arxiv.org/abs/1508.07909). */
#pragma once

#include "base/err.h"

typedef struct BpeMerge {
    uint32_t left, right; /* the ids that are merged; right == BPE_EMPTY: no merge here */
    uint32_t rank;
    int32_t id; /* what they become */
} BpeMerge;
#define BPE_EMPTY UINT32_MAX

typedef struct BpePair { /* two neighbours that can be merged, as they were when they were found */
    uint32_t rank, left; /* `left`: position of the left one in the word */
    int32_t left_id, right_id, id;
} BpePair;

typedef struct Bpe {
    BpeMerge *slots; /* hash table; owned */
    size_t mask;     /* slots - 1 */
    BpePair *heap;   /* scratch for the longest word so far; owned */
    uint32_t *prev, *next;
    size_t chain_cap;
} Bpe;

/* Sized once for n merges. Local. */
int bpe_init(Bpe *b, size_t n, Err *e);
void bpe_free(Bpe *b); /* also of a zeroed Bpe */

/* left, right -> id, of that rank (lower is earlier). Of two merges of one pair the first stays. Ids are >= 0. */
void bpe_add(Bpe *b, int32_t left, int32_t right, int32_t id, uint32_t rank);

/* Merges the n < 2^31 symbols in place; *left_over is how many remain. A symbol of -1 merges with nothing. At equal
 * rank the leftmost pair goes first. O(n log n). Local. */
int bpe_merge(Bpe *b, int32_t *ids, size_t n, size_t *left_over, Err *e);
