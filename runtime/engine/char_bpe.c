#include "engine/char_bpe.h"

#include "engine/merges.h"
#include "engine/unicode.h"

void char_bpe_free(CharBpe *b) {
    bpe_free(&b->bpe);
    strbuf_free(&b->scratch);
    *b = (CharBpe){0};
}

/* The token of one character, with what belongs around it; -1: none. */
static int32_t symbol_of(CharBpe *b, const char *text, size_t size, bool first, bool last) {
    int32_t id;
    if ((first || !b->continuing.size) && (!last || !b->ending.size)) {
        id = vocab_find(b->vocab, text, size);
    } else {
        b->scratch.len = 0;
        if (!first) strbuf_add(&b->scratch, b->continuing.data, b->continuing.size);
        strbuf_add(&b->scratch, text, size);
        if (last) strbuf_add(&b->scratch, b->ending.data, b->ending.size);
        id = vocab_find(b->vocab, b->scratch.data, b->scratch.len);
    }
    return b->only_usable && !merges_use(b->vocab, id) ? -1 : id;
}

/* The bytes of a character as tokens; false when one has none. */
static bool add_bytes(const CharBpe *b, const char *text, size_t size, Ids *ids) {
    for (size_t i = 0; i < size; i++)
        if (b->byte_id[(uint8_t)text[i]] < 0) return false;
    for (size_t i = 0; i < size; i++) ids->at[ids->n++] = b->byte_id[(uint8_t)text[i]];
    return true;
}

int char_bpe_encode(CharBpe *b, const char *word, size_t bytes, Ids *ids, Err *e) {
    if (ids_reserve(ids, bytes, e)) return -1; /* a symbol for each byte at most */
    int32_t whole = b->ignore_merges ? vocab_find(b->vocab, word, bytes) : -1;
    if (whole >= 0) {
        ids->at[ids->n++] = whole;
        return 0;
    }
    size_t begin = ids->n, left;
    bool unknown_before = false;
    for (size_t i = 0, size; i < bytes; i += size) {
        size = unicode_size(word[i]);
        int32_t id = symbol_of(b, word + i, size, i == 0, i + size == bytes);
        bool unknown = id < 0 && !(b->bytes && add_bytes(b, word + i, size, ids));
        if (unknown && !(unknown_before && b->fuse_unknown)) id = b->unknown;
        if (id >= 0) ids->at[ids->n++] = id;
        unknown_before = unknown;
    }
    if (b->scratch.failed) return err_set(e, "out of memory for a word of %zu bytes", bytes);
    if (bpe_merge(&b->bpe, ids->at + begin, ids->n - begin, &left, e)) return -1;
    ids->n = begin + left;
    return 0;
}
