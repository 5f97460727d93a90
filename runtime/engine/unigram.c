#include "engine/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/unicode.h"

typedef struct UnigramNode { /* the best way to the byte after a token */
    double score;            /* -INFINITY: none */
    uint32_t size;           /* of the last token, bytes */
    int32_t id;              /* UNKNOWN: one character that no token is */
} UnigramNode;
enum { UNKNOWN = -1 };

/* Which beginnings of texts, at whole characters, tokens have: looking for tokens stops where none goes on. */
static void mark_beginnings(Unigram *u, Text s) {
    uint64_t hash = NAME_HASH_START;
    for (size_t i = 0, size; i < s.size; i += size) {
        size = unicode_size(s.data[i]);
        if (size > s.size - i) size = s.size - i;
        hash = name_hash(hash, s.data + i, size);
        uint64_t bit = (hash ^ hash >> 32) & u->filter_mask;
        u->filter[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

int unigram_init(Unigram *u, const Vocab *v, double *scores, double lowest, Err *e) {
    *u = (Unigram){.vocab = v, .unknown = -1, .unknown_score = lowest - 10};
    u->scores = scores;
    for (int b = 0; b < 256; b++) u->byte_id[b] = -1;
    uint64_t bits = 1024; /* 32 to 64 for a token, some of whose beginnings are shared: few false ones */
    while (bits < 32 * (uint64_t)v->n) bits *= 2;
    u->filter = calloc(bits / 64, sizeof *u->filter);
    if (!u->filter) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    u->filter_mask = bits - 1;
    for (int64_t i = 0; i < v->n; i++)
        if (scores[i] > -INFINITY) mark_beginnings(u, v->tokens[i]);
    return 0;
}

void unigram_free(Unigram *u) {
    free(u->scores);
    free(u->filter);
    free(u->best);
    *u = (Unigram){0};
}

static void offer(UnigramNode *at, double score, size_t size, int32_t id) {
    if (score > at->score) *at = (UnigramNode){score, (uint32_t)size, id};
}

/* All tokens that begin at `begin`, and the unknown one when none is just the character there. */
static void step(const Unigram *u, UnigramNode *best, const char *word, size_t begin, size_t bytes) {
    double score = best[begin].score;
    size_t first = unicode_size(word[begin]);
    bool single = false;
    uint64_t hash = NAME_HASH_START;
    for (size_t end = begin; end < bytes;) {
        size_t size = unicode_size(word[end]);
        hash = name_hash(hash, word + end, size);
        end += size;
        uint64_t bit = (hash ^ hash >> 32) & u->filter_mask;
        if (!(u->filter[bit / 64] >> bit % 64 & 1)) break;
        Text text = {word + begin, end - begin};
        int64_t id = name_map_find_joined(&u->vocab->ids, hash, text, (Text){0});
        if (id < 0 || u->scores[id] == -INFINITY) continue;
        offer(&best[end], score + u->scores[id], end - begin, (int32_t)id);
        single = single || end - begin == first;
    }
    if (!single) offer(&best[begin + first], score + u->unknown_score, first, UNKNOWN);
}

/* One unknown token for the text of one or more unknown characters, or its bytes. */
static int add_unknown(const Unigram *u, const char *text, size_t size, Ids *ids, Err *e) {
    bool bytes = u->bytes;
    for (size_t i = 0; i < size && bytes; i++) bytes = u->byte_id[(uint8_t)text[i]] >= 0;
    if (!bytes) {
        if (u->unknown < 0)
            return err_set(e, "the text has characters unknown to a vocabulary without an unknown token");
        return ids_add(ids, u->unknown, e);
    }
    for (size_t i = 0; i < size; i++)
        if (ids_add(ids, u->byte_id[(uint8_t)text[i]], e)) return -1;
    return 0;
}

/* Each node knows how long the token before it is; turned round, how long the one after it is. */
static void turn_round(UnigramNode *best, size_t bytes) {
    for (size_t at = bytes, after = 0;;) {
        size_t before = best[at].size;
        best[at].size = (uint32_t)after;
        if (at == 0) break;
        after = before;
        at -= before;
    }
}

static int collect(Unigram *u, const char *word, size_t bytes, Ids *ids, Err *e) {
    UnigramNode *best = u->best;
    turn_round(best, bytes);
    for (size_t begin = 0, size = best[0].size; begin < bytes;) {
        size_t end = begin + size;
        int32_t id = best[end].id;
        size = best[end].size;
        if (id != UNKNOWN) {
            if (ids_add(ids, id, e)) return -1;
        } else {
            for (; end < bytes && best[end + size].id == UNKNOWN; size = best[end].size) end += size;
            if (add_unknown(u, word + begin, end - begin, ids, e)) return -1;
        }
        begin = end;
    }
    return 0;
}

int unigram_encode(Unigram *u, const char *word, size_t bytes, Ids *ids, Err *e) {
    if (bytes + 1 > u->best_cap) {
        size_t size;
        UnigramNode *grown = size_mul(bytes + 1, sizeof *grown, &size) ? realloc(u->best, size) : NULL;
        if (!grown) return err_set(e, "out of memory for a text of %zu bytes", bytes);
        u->best = grown;
        u->best_cap = bytes + 1;
    }
    u->best[0] = (UnigramNode){.score = 0};
    for (size_t i = 1; i <= bytes; i++) u->best[i].score = -INFINITY;
    for (size_t i = 0; i < bytes; i += unicode_size(word[i])) step(u, u->best, word, i, bytes);
    return collect(u, word, bytes, ids, e);
}
