#include "engine/wordpiece.h"

#include "engine/unicode.h"

/* The longest token that `prefix` and text[0, n) begin with; *size is its part of the text. -1: none. */
static int32_t longest_token(const Vocab *v, Text prefix, const char *text, size_t n, size_t *size) {
    uint64_t hash = name_hash(NAME_HASH_START, prefix.data, prefix.size);
    int32_t best = -1;
    for (size_t end = 0; end < n;) {
        size_t more = unicode_size(text[end]);
        hash = name_hash(hash, text + end, more);
        end += more;
        int32_t id = (int32_t)name_map_find_joined(&v->ids, hash, prefix, (Text){text, end});
        if (id < 0) continue;
        best = id;
        *size = end;
    }
    return best;
}

int wordpiece_encode(const WordPiece *w, const char *word, size_t bytes, Ids *ids, Err *e) {
    size_t characters = 0, begin = ids->n;
    for (size_t i = 0; i < bytes && characters <= w->longest; i += unicode_size(word[i])) characters++;
    if (characters > w->longest) return ids_add(ids, w->unknown, e);
    for (size_t at = 0, size = 0; at < bytes; at += size) {
        int32_t id = longest_token(w->vocab, at ? w->continuing : w->first, word + at, bytes - at, &size);
        if (id < 0) {
            ids->n = begin;
            return ids_add(ids, w->unknown, e);
        }
        if (ids_add(ids, id, e)) return -1;
    }
    return 0;
}
