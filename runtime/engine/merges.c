#include "engine/merges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/unicode.h"

/* ---- a list ------------------------------------------------------------------------------------------------------ */

int merges_add(Bpe *b, const Vocab *v, Text left, Text right, size_t skip, uint32_t rank, const char *list, Err *e) {
    int32_t l = vocab_find(v, left.data, left.size), r = vocab_find(v, right.data, right.size);
    Text rest = skip < right.size ? (Text){right.data + skip, right.size - skip} : (Text){0};
    uint64_t hash = name_hash(name_hash(NAME_HASH_START, left.data, left.size), rest.data, rest.size);
    int64_t both = name_map_find_joined(&v->ids, hash, left, rest);
    if (l < 0 || r < 0 || both < 0)
        return err_set(e, "%s: merge %u of %s, \"%s\" and \"%s\": %s is no token", v->file, rank, list,
                       text_printable(left).text, text_printable(right).text,
                       l < 0   ? "its left side"
                       : r < 0 ? "its right side"
                               : "what it makes");
    bpe_add(b, l, r, (int32_t)both, rank);
    return 0;
}

/* The space is the first one after the first byte. */
static int read_merge(Bpe *b, const Vocab *v, Text merge, uint32_t rank, Err *e) {
    const char *space = merge.size > 2 ? memchr(merge.data + 1, ' ', merge.size - 2) : NULL;
    if (!space)
        return err_set(e, "%s: merge %u of tokenizer.ggml.merges is \"%s\", not two texts with a space between",
                       v->file, rank, text_printable(merge).text);
    size_t left = (size_t)(space - merge.data);
    return merges_add(b, v, (Text){merge.data, left}, (Text){space + 1, merge.size - left - 1}, 0, rank,
                      "tokenizer.ggml.merges", e);
}

int merges_from_gguf(Bpe *b, const Vocab *v, const ModelFile *g, Err *e) {
    const MetaValue *a = NULL;
    if (meta_get_array(g, "tokenizer.ggml.merges", true, META_STRING, &a, e)) return -1;
    if (a->v.a.n > INT32_MAX) return err_set(e, "%s: tokenizer.ggml.merges has %" PRIu64 " merges", v->file, a->v.a.n);
    if (bpe_init(b, (size_t)a->v.a.n, e)) return err_context(e, "%s", v->file);
    for (uint64_t i = 0; i < a->v.a.n; i++)
        if (read_merge(b, v, a->v.a.strings[i], (uint32_t)i, e)) return -1;
    return 0;
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

enum { LONGEST_TOKEN = 2048 }; /* bytes; every cut is looked up, so that a longer one would take its time */

/* Each cut of a token into two tokens: counted, and added when `b` has room for them. */
static size_t cut_token(Bpe *b, const Vocab *v, int32_t id, uint32_t rank) {
    Text s = v->tokens[id];
    size_t found = 0;
    uint64_t hash = NAME_HASH_START;
    if (!merges_use(v, id) || s.size == 0) return 0;
    for (size_t at = 0; at + unicode_size(s.data[at]) < s.size;) {
        size_t size = unicode_size(s.data[at]);
        hash = name_hash(hash, s.data + at, size);
        at += size;
        int32_t left = (int32_t)name_map_find_joined(&v->ids, hash, (Text){s.data, at}, (Text){0});
        if (!merges_use(v, left)) continue;
        int32_t right = vocab_find(v, s.data + at, s.size - at);
        if (!merges_use(v, right)) continue;
        if (b) bpe_add(b, left, right, id, rank);
        found++;
    }
    return found;
}

size_t merges_count_cuts(const Vocab *v) {
    size_t cuts = 0;
    for (int64_t i = 0; i < v->n; i++) cuts += cut_token(NULL, v, (int32_t)i, 0);
    return cuts;
}

static int falling(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* How many of the n falling scores are higher. */
static uint32_t rank_of(const float *sorted, size_t n, float score) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] > score) low = middle + 1;
        else high = middle;
    }
    return (uint32_t)low;
}

int merges_from_scores(Bpe *b, const Vocab *v, const float *scores, Err *e) {
    size_t n = (size_t)v->n, bytes;
    for (int64_t i = 0; i < v->n; i++)
        if (v->tokens[i].size > LONGEST_TOKEN)
            return err_set(e, "%s: token %" PRId64 " has %zu bytes; at most %d fit", v->file, i, v->tokens[i].size,
                           (int)LONGEST_TOKEN);
    if (bpe_init(b, merges_count_cuts(v), e)) return err_context(e, "%s", v->file);
    float *sorted = size_mul(n, sizeof *sorted, &bytes) ? malloc(bytes) : NULL;
    if (!sorted) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    memcpy(sorted, scores, bytes);
    qsort(sorted, n, sizeof *sorted, falling);
    for (int64_t i = 0; i < v->n; i++) cut_token(b, v, (int32_t)i, rank_of(sorted, n, scores[i]));
    free(sorted);
    return 0;
}
