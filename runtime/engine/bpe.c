#include "engine/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

int bpe_init(Bpe *b, size_t n, Err *e) {
    *b = (Bpe){0};
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    b->slots = malloc(slots * sizeof *b->slots);
    if (!b->slots) return err_set(e, "out of memory for %zu merges", n);
    for (size_t i = 0; i < slots; i++) b->slots[i].right = BPE_EMPTY;
    b->mask = slots - 1;
    return 0;
}

void bpe_free(Bpe *b) {
    free(b->slots);
    free(b->heap);
    free(b->prev);
    free(b->next);
    *b = (Bpe){0};
}

/* Fibonacci hashing of the pair (Knuth, The Art of Computer Programming 3, 6.4). */
static size_t slot_of(const Bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h ^ h >> 32) & b->mask;
}

void bpe_add(Bpe *b, int32_t left, int32_t right, int32_t id, uint32_t rank) {
    BpeMerge m = {(uint32_t)left, (uint32_t)right, rank, id};
    size_t at = slot_of(b, m.left, m.right);
    for (; b->slots[at].right != BPE_EMPTY; at = (at + 1) & b->mask)
        if (b->slots[at].left == m.left && b->slots[at].right == m.right) return;
    b->slots[at] = m;
}

static const BpeMerge *find(const Bpe *b, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return NULL;
    uint32_t l = (uint32_t)left, r = (uint32_t)right;
    for (size_t at = slot_of(b, l, r); b->slots[at].right != BPE_EMPTY; at = (at + 1) & b->mask)
        if (b->slots[at].left == l && b->slots[at].right == r) return &b->slots[at];
    return NULL;
}

/* ---- words of a few symbols: nearly all -------------------------------------------------------------------------- */

enum { SHORT_WORD = 32 };

/* The merges of all neighbours, the lowest of which is looked for again after each one: no heap, no chain. All of
 * WikiText-2 (1.3 MB) is encoded in 30 ms instead of 51 with the heap alone (SmolLM2's vocabulary, one core of a Xeon
 * with AVX-512). */
static size_t merge_short(const Bpe *b, int32_t *ids, size_t n) {
    const BpeMerge *pair[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) pair[i] = find(b, ids[i], ids[i + 1]);
    for (;;) {
        const BpeMerge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && (!best || pair[i]->rank < best->rank)) {
                best = pair[i];
                at = i;
            }
        if (!best) return n;
        ids[at] = best->id;
        n--;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 1) * sizeof *ids);
        if (at + 1 < n) {
            memmove(&pair[at + 1], &pair[at + 2], (n - at - 2) * sizeof *pair);
            pair[at] = find(b, ids[at], ids[at + 1]);
        }
        if (at > 0) pair[at - 1] = find(b, ids[at - 1], ids[at]);
    }
}

/* ---- long words: a heap of pairs over a chain of symbols --------------------------------------------------------- */

static bool before(const BpePair *x, const BpePair *y) {
    return x->rank != y->rank ? x->rank < y->rank : x->left < y->left;
}

static void heap_push(BpePair *heap, size_t *n, BpePair p) {
    size_t i = (*n)++;
    for (; i > 0 && before(&p, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = p;
}

static BpePair heap_pop(BpePair *heap, size_t *n) {
    BpePair top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* A merge takes away one symbol and finds two pairs at most: 3n pairs are ever pushed. */
static int reserve(Bpe *b, size_t n, Err *e) {
    if (n <= b->chain_cap) return 0;
    size_t pairs, bytes;
    BpePair *heap = size_mul(n, 3, &pairs) && size_mul(pairs, sizeof *heap, &bytes) ? realloc(b->heap, bytes) : NULL;
    if (heap) b->heap = heap;
    uint32_t *prev = heap ? realloc(b->prev, n * sizeof *prev) : NULL;
    if (prev) b->prev = prev;
    uint32_t *next = prev ? realloc(b->next, n * sizeof *next) : NULL;
    if (!next) return err_set(e, "out of memory for a word of %zu bytes", n);
    b->next = next;
    b->chain_cap = n;
    return 0;
}

/* The pair of two neighbours, if there is a merge for it. */
static bool find_pair(const Bpe *b, const int32_t *ids, uint32_t left, uint32_t right, BpePair *pair) {
    const BpeMerge *m = left == UINT32_MAX || right == UINT32_MAX ? NULL : find(b, ids[left], ids[right]);
    if (m) *pair = (BpePair){m->rank, left, ids[left], ids[right], m->id};
    return m;
}

static bool pop_pair(Bpe *b, size_t *n_heap, BpePair *pair) {
    if (*n_heap == 0) return false;
    *pair = heap_pop(b->heap, n_heap);
    return true;
}

/* What to merge next, when a merge has just made the symbol at `left`: one of the pairs that it is in now, or the top
 * of the heap. A pair that would come to the top and leave it at once does not go into the heap: a million letters "a"
 * take two thirds of the time (Gemma 3's vocabulary). */
static bool next_pair(Bpe *b, const int32_t *ids, uint32_t left, size_t *n_heap, BpePair *next) {
    BpePair found[2];
    int n = find_pair(b, ids, b->prev[left], left, &found[0]) ? 1 : 0;
    if (find_pair(b, ids, left, b->next[left], &found[n])) n++;
    if (n == 2 && before(&found[1], &found[0])) {
        BpePair swap = found[0];
        found[0] = found[1];
        found[1] = swap;
    }
    bool first = n && (*n_heap == 0 || before(&found[0], &b->heap[0]));
    if (first) *next = found[0];
    for (int i = first; i < n; i++) heap_push(b->heap, n_heap, found[i]);
    return first || pop_pair(b, n_heap, next);
}

static int merge_long(Bpe *b, int32_t *ids, size_t n, size_t *left_over, Err *e) {
    enum { GONE = -2 }; /* the id of a symbol that was merged into the one to its left */
    if (reserve(b, n, e)) return -1;
    size_t n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        b->prev[i] = i ? (uint32_t)i - 1 : UINT32_MAX;
        b->next[i] = i + 1 < n ? (uint32_t)i + 1 : UINT32_MAX;
    }
    BpePair p;
    for (size_t i = 0; i + 1 < n; i++)
        if (find_pair(b, ids, (uint32_t)i, (uint32_t)i + 1, &p)) heap_push(b->heap, &n_heap, p);
    for (bool more = pop_pair(b, &n_heap, &p); more;) {
        uint32_t right = b->next[p.left];
        if (ids[p.left] != p.left_id || right == UINT32_MAX || ids[right] != p.right_id) { /* out of date */
            more = pop_pair(b, &n_heap, &p);
            continue;
        }
        ids[p.left] = p.id;
        ids[right] = GONE;
        uint32_t after = b->next[right];
        b->next[p.left] = after;
        if (after != UINT32_MAX) b->prev[after] = p.left;
        more = next_pair(b, ids, p.left, &n_heap, &p);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != GONE) ids[kept++] = ids[i];
    *left_over = kept;
    return 0;
}

int bpe_merge(Bpe *b, int32_t *ids, size_t n, size_t *left_over, Err *e) {
    if (n > SHORT_WORD) return merge_long(b, ids, n, left_over, e);
    *left_over = n < 2 ? n : merge_short(b, ids, n);
    return 0;
}
