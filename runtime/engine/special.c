#include "engine/special.h"

#include <stdlib.h>

#include "base/size.h"

/* The node for `byte` in the list that starts at *link, made if need be; 0 when out of memory. *link may move with the
 * nodes, so it is named by its parent: 0 for the first byte. */
static uint32_t node_for(Special *s, uint32_t parent, uint8_t byte) {
    uint32_t first = parent ? s->nodes[parent].child : s->first[byte];
    for (uint32_t i = first; i; i = s->nodes[i].sibling)
        if (s->nodes[i].byte == byte) return i;
    if (s->n + 1 >= s->cap) {
        if (s->cap > UINT32_MAX / 4) return 0;
        uint32_t cap = s->cap ? 2 * s->cap : 256;
        SpecialNode *grown = realloc(s->nodes, cap * sizeof *grown);
        if (!grown) return 0;
        s->nodes = grown;
        s->cap = cap;
    }
    uint32_t made = ++s->n;
    s->nodes[made] = (SpecialNode){.byte = byte, .id = -1, .sibling = first};
    if (parent) s->nodes[parent].child = made;
    else s->first[byte] = made;
    return made;
}

int special_add(Special *s, Text text, int32_t id, bool always, Err *e) {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size; i++) {
        node = node_for(s, node, (uint8_t)text.data[i]);
        if (!node) return err_set(e, "out of memory for the special tokens");
    }
    if (node) {
        s->nodes[node].id = id;
        s->nodes[node].always = always;
    }
    return 0;
}

void special_free(Special *s) {
    free(s->nodes);
    *s = (Special){0};
}

size_t special_longest(const Special *s, const char *text, size_t n, int32_t *id) {
    const uint8_t *p = (const uint8_t *)text;
    size_t found = 0;
    uint32_t node = n ? s->first[p[0]] : 0;
    for (size_t i = 0; node;) {
        if (s->nodes[node].id >= 0) {
            found = i + 1;
            *id = s->nodes[node].id;
        }
        if (++i == n) break;
        for (node = s->nodes[node].child; node && s->nodes[node].byte != p[i];) node = s->nodes[node].sibling;
    }
    return found;
}

bool special_wanted(const SpecialPlaces *p, size_t begin, size_t end) {
    size_t low = 0, high = p->n_plain; /* the first plain part that ends after `begin` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->plain[middle].end <= begin) low = middle + 1;
        else high = middle;
    }
    return p->any && (low == p->n_plain || p->plain[low].begin >= end);
}

typedef struct Hits {
    SpecialHit *at;
    size_t n, cap;
} Hits;

static int add_hit(Hits *h, SpecialHit hit, Err *e) {
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 64, bytes;
        SpecialHit *grown = size_mul(cap, sizeof *grown, &bytes) ? realloc(h->at, bytes) : NULL;
        if (!grown) return err_set(e, "out of memory for the special tokens of a text");
        h->at = grown;
        h->cap = cap;
    }
    h->at[h->n++] = hit;
    return 0;
}

/* Every token at every place, overlapping or not. */
static int find_all(const Special *s, const char *text, size_t bytes, const SpecialPlaces *places, Hits *hits, Err *e) {
    const uint8_t *p = (const uint8_t *)text;
    for (size_t pos = 0; pos < bytes; pos++) {
        uint32_t node = s->first[p[pos]];
        for (size_t i = pos; node;) {
            const SpecialNode *at = &s->nodes[node];
            if (at->id >= 0 && (at->always || special_wanted(places, pos, i + 1)) &&
                add_hit(hits, (SpecialHit){.pos = pos, .size = i + 1 - pos, .id = at->id}, e))
                return -1;
            if (++i == bytes) break;
            for (node = at->child; node && s->nodes[node].byte != p[i];) node = s->nodes[node].sibling;
        }
    }
    return 0;
}

static int by_precedence(const void *a, const void *b) {
    const SpecialHit *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static int by_position(const void *a, const void *b) {
    const SpecialHit *x = a, *y = b;
    return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/* Keeps those that no hit of higher precedence overlaps. A hit kept earlier is at least as long, so it overlaps this
 * one only if it covers its first or its last byte: two bits to look at. */
static int keep_best(Hits *h, size_t bytes, Err *e) {
    uint8_t *taken = calloc(bytes / 8 + 1, 1);
    if (!taken) return err_set(e, "out of memory for the special tokens of a text");
    qsort(h->at, h->n, sizeof *h->at, by_precedence);
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        SpecialHit hit = h->at[i];
        size_t last = hit.pos + hit.size - 1;
        if ((taken[hit.pos / 8] >> hit.pos % 8 | taken[last / 8] >> last % 8) & 1) continue;
        for (size_t b = hit.pos; b <= last; b++) taken[b / 8] = (uint8_t)(taken[b / 8] | 1 << b % 8);
        h->at[kept++] = hit;
    }
    h->n = kept;
    free(taken);
    qsort(h->at, h->n, sizeof *h->at, by_position);
    return 0;
}

int special_find(const Special *s, const char *text, size_t bytes, const SpecialPlaces *places, SpecialHit **hits,
                 size_t *n, Err *e) {
    Hits h = {0};
    *hits = NULL;
    *n = 0;
    if (find_all(s, text, bytes, places, &h, e) || (h.n && keep_best(&h, bytes, e))) {
        free(h.at);
        return -1;
    }
    *hits = h.at;
    *n = h.n;
    return 0;
}
