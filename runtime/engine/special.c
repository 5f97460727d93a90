#include "engine/special.h"

#include <stdlib.h>
#include <string.h>

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
        if (text.size > s->longest) s->longest = text.size;
    }
    return 0;
}

void special_free(Special *s) {
    free(s->nodes);
    *s = (Special){0};
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

/* The longest token, of those that count there, that text[pos, end) begins with. */
static size_t longest(const Special *s, const char *text, size_t pos, size_t end, const SpecialPlaces *places,
                      int32_t *id) {
    const uint8_t *p = (const uint8_t *)text;
    size_t found = 0;
    uint32_t node = pos < end ? s->first[p[pos]] : 0;
    for (size_t i = pos; node;) {
        const SpecialNode *at = &s->nodes[node];
        if (at->id >= 0 && (at->always || special_wanted(places, pos, i + 1))) {
            found = i + 1 - pos;
            *id = at->id;
        }
        if (++i == end) break;
        for (node = at->child; node && s->nodes[node].byte != p[i];) node = s->nodes[node].sibling;
    }
    return found;
}

size_t special_longest(const Special *s, const char *text, size_t n, int32_t *id) {
    return longest(s, text, 0, n, &(SpecialPlaces){.any = true}, id);
}

/* ---- all of a text ----------------------------------------------------------------------------------------------- */

/* A place where a token stands, for now the longest one. A token may begin with shorter ones, and those with shorter
 * ones (runs of spaces do), so that all of them would be many times the text: they are looked for when needed. */
typedef struct Place {
    uint32_t pos, size; /* size 0: none is left */
    int32_t id;
    uint32_t next; /* the next place whose token is as long, or NO_PLACE */
} Place;

#define NO_PLACE UINT32_MAX

typedef struct Order { /* among places whose tokens are as long */
    uint32_t id, pos, place;
} Order;

typedef struct Search {
    const Special *s;
    const char *text;
    size_t bytes;
    const SpecialPlaces *wanted;
    Place *places; /* [n], by position; owned */
    uint32_t n;
    uint32_t *of_size; /* by size: the first place of a list; owned */
    Order *same;       /* [n] scratch: the places of one size; owned */
    uint8_t *taken;    /* a bit for each byte that a token covers; owned */
} Search;

static void put(Search *r, uint32_t place) {
    uint32_t *first = &r->of_size[r->places[place].size];
    r->places[place].next = *first;
    *first = place;
}

static int find_places(Search *r, Err *e) {
    size_t cap = 0, bytes;
    int32_t id;
    for (size_t pos = 0; pos < r->bytes; pos++) {
        size_t size = longest(r->s, r->text, pos, r->bytes, r->wanted, &id);
        if (!size) continue;
        if (r->n == cap) {
            cap = cap ? 2 * cap : 64;
            Place *grown = size_mul(cap, sizeof *grown, &bytes) ? realloc(r->places, bytes) : NULL;
            if (!grown) return err_set(e, "out of memory for the special tokens of a text");
            r->places = grown;
        }
        r->places[r->n++] = (Place){.pos = (uint32_t)pos, .size = (uint32_t)size, .id = id};
    }
    return 0;
}

static bool is_taken(const Search *r, size_t at) { return r->taken[at / 8] >> at % 8 & 1; }

/* The token of a place stays when nothing covers a part of it; else a shorter one may come later. */
static void settle(Search *r, uint32_t place) {
    Place *p = &r->places[place];
    uint32_t room = 0;
    while (room < p->size && !is_taken(r, p->pos + room)) room++;
    if (room == p->size) {
        for (size_t at = p->pos; at < p->pos + room; at++) r->taken[at / 8] = (uint8_t)(r->taken[at / 8] | 1 << at % 8);
        return;
    }
    p->size = (uint32_t)longest(r->s, r->text, p->pos, p->pos + room, r->wanted, &p->id);
    if (p->size) put(r, place); /* into a list whose turn comes later */
}

static int by_precedence(const void *a, const void *b) {
    const Order *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->pos > y->pos) - (x->pos < y->pos);
}

/* From the longest tokens to the shortest. */
static int settle_all(Search *r, Err *e) {
    size_t sizes = (r->s->longest < r->bytes ? r->s->longest : r->bytes) + 1;
    r->of_size = malloc(sizes * sizeof *r->of_size);
    r->same = malloc(r->n * sizeof *r->same);
    r->taken = calloc(r->bytes / 8 + 1, 1);
    if (!r->of_size || !r->same || !r->taken) return err_set(e, "out of memory for the special tokens of a text");
    memset(r->of_size, 0xFF, sizes * sizeof *r->of_size);
    for (uint32_t i = 0; i < r->n; i++) put(r, i);
    for (size_t size = sizes - 1; size > 0; size--) {
        size_t n = 0;
        for (uint32_t i = r->of_size[size]; i != NO_PLACE; i = r->places[i].next)
            r->same[n++] = (Order){(uint32_t)r->places[i].id, r->places[i].pos, i};
        qsort(r->same, n, sizeof *r->same, by_precedence);
        for (size_t i = 0; i < n; i++) settle(r, r->same[i].place);
    }
    return 0;
}

int special_find(const Special *s, const char *text, size_t bytes, const SpecialPlaces *places, SpecialHit **hits,
                 size_t *n, Err *e) {
    Search r = {.s = s, .text = text, .bytes = bytes, .wanted = places};
    int failed = find_places(&r, e) || (r.n && settle_all(&r, e));
    *hits = NULL;
    *n = 0;
    for (uint32_t i = 0; i < r.n && !failed; i++) *n += r.places[i].size > 0;
    if (*n && !(*hits = malloc(*n * sizeof **hits)))
        failed = err_set(e, "out of memory for the special tokens of a text");
    for (uint32_t i = 0, kept = 0; i < r.n && *hits; i++)
        if (r.places[i].size) (*hits)[kept++] = (SpecialHit){r.places[i].pos, r.places[i].size, r.places[i].id};
    free(r.places);
    free(r.of_size);
    free(r.same);
    free(r.taken);
    return failed ? -1 : 0;
}
