#include "engine/char_bpe.h"

#include <string.h>

#include "engine/merges.h"
#include "engine/unicode.h"
#include "engine/utf8.h"

void char_bpe_free(CharBpe *b) {
    bpe_free(&b->bpe);
    strbuf_free(&b->scratch);
    *b = (CharBpe){0};
}

/* One character with what belongs around it. */
static Text symbol_text(CharBpe *b, const char *text, size_t size, bool first, bool last) {
    if ((first || !b->continuing.size) && (!last || !b->ending.size)) return (Text){text, size};
    b->scratch.len = 0;
    if (!first) strbuf_add(&b->scratch, b->continuing.data, b->continuing.size);
    strbuf_add(&b->scratch, text, size);
    if (last) strbuf_add(&b->scratch, b->ending.data, b->ending.size);
    return (Text){b->scratch.data, b->scratch.len};
}

/* Its bytes as tokens; 0 when one of them has none. */
static int add_bytes(const CharBpe *b, Text s, Ids *ids, Err *e) {
    for (size_t i = 0; i < s.size; i++)
        if (b->byte_id[(uint8_t)s.data[i]] < 0) return 0;
    if (ids_reserve(ids, s.size, e)) return -1;
    for (size_t i = 0; i < s.size; i++) ids->at[ids->n++] = b->byte_id[(uint8_t)s.data[i]];
    return 1;
}

/* The symbols of a word; -1 when memory runs out. */
static int add_symbols(CharBpe *b, const char *word, size_t bytes, Ids *ids, Err *e) {
    bool unknown_before = false;
    for (size_t i = 0, size; i < bytes; i += size) {
        size = unicode_size(word[i]);
        Text s = symbol_text(b, word + i, size, i == 0, i + size == bytes);
        int32_t id = b->scratch.failed ? -1 : vocab_find(b->vocab, s.data, s.size);
        if (b->only_usable && !merges_use(b->vocab, id)) id = -1;
        int in_bytes = id < 0 && b->bytes ? add_bytes(b, s, ids, e) : 0;
        if (in_bytes < 0) return -1;
        bool unknown = id < 0 && !in_bytes;
        if (unknown && !(unknown_before && b->fuse_unknown)) id = b->unknown;
        if (ids_add(ids, id, e)) return -1;
        unknown_before = unknown;
    }
    return b->scratch.failed ? err_set(e, "out of memory for a word of %zu bytes", bytes) : 0;
}

/* ---- where a word can be cut ------------------------------------------------------------------------------------- */

static bool space_at(const char *text, size_t n) { return n >= 3 && !memcmp(text, "\xE2\x96\x81", 3); }

/* A character that is left out would let its neighbours meet. */
static bool keeps_all(const CharBpe *b) {
    for (int byte = 0; byte < 256 && b->unknown < 0; byte++)
        if (!b->bytes || b->byte_id[byte] < 0) return false;
    return true;
}

void char_bpe_find_cuts(CharBpe *b) {
    const Vocab *v = b->vocab;
    int32_t space = vocab_find(v, "\xE2\x96\x81", 3);
    b->cuts = keeps_all(b) && space >= 0 && (!b->only_usable || merges_use(v, space)) && !b->continuing.size &&
              !b->ending.size;
    for (int64_t id = 0; id < v->n && b->cuts; id++) {
        Text s = v->tokens[id];
        if (utf8_check(s.data, s.size) < s.size) continue; /* no merge can make it */
        for (size_t i = 0, size; i < s.size; i += size) {
            int32_t c = unicode_at(s.data + i, &size);
            if (space_at(s.data + i + size, s.size - i - size)) b->before_space[c % 1024 / 64] |= UINT64_C(1) << c % 64;
        }
    }
}

/* How much of text[0, n) can be merged by itself. */
static size_t part_size(const CharBpe *b, const char *text, size_t n) {
    if (!b->cuts) return n;
    for (size_t i = 0, size; i < n;) {
        int32_t c = unicode_at(text + i, &size);
        i += size;
        if (i < n && space_at(text + i, n - i) && !(b->before_space[c % 1024 / 64] >> c % 64 & 1)) return i;
    }
    return n;
}

int char_bpe_encode(CharBpe *b, const char *word, size_t bytes, Ids *ids, Err *e) {
    int32_t whole = b->ignore_merges ? vocab_find(b->vocab, word, bytes) : -1;
    if (whole >= 0) return ids_add(ids, whole, e);
    for (size_t at = 0, size, left; at < bytes; at += size) {
        size_t begin = ids->n;
        size = part_size(b, word + at, bytes - at);
        if (add_symbols(b, word + at, size, ids, e) || bpe_merge(&b->bpe, ids->at + begin, ids->n - begin, &left, e))
            return -1;
        ids->n = begin + left;
    }
    return 0;
}
