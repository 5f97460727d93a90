#include "engine/hf_added.h"

#include <stdlib.h>

#include "base/size.h"
#include "engine/unicode.h"

static int read_token(HfAddedToken *t, const cJSON *o, int64_t max, Err *e) {
    static const char what[] = "added_tokens";
    static const char *const keys[] = {"id",     "content",     "special",    "lstrip",
                                       "rstrip", "single_word", "normalized", NULL};
    int64_t id;
    if (hf_json_only(o, what, keys, e) || hf_json_int(o, what, "id", true, 0, max, &id, e) ||
        hf_json_string(o, what, "content", true, &t->text, e) ||
        hf_json_bool(o, what, "special", true, &t->special, e) ||
        hf_json_bool(o, what, "lstrip", true, &t->lstrip, e) || hf_json_bool(o, what, "rstrip", true, &t->rstrip, e) ||
        hf_json_bool(o, what, "single_word", true, &t->single_word, e))
        return -1;
    t->id = (int32_t)id;
    t->normalized = !t->special;
    return hf_json_bool(o, what, "normalized", false, &t->normalized, e);
}

int hf_added_read(HfAdded *a, const cJSON *list, int64_t max, Err *e) {
    if (!list) return 0;
    if (!cJSON_IsArray(list)) return err_set(e, "\"added_tokens\" is no list");
    size_t n = (size_t)cJSON_GetArraySize(list);
    a->at = calloc(n ? n : 1, sizeof *a->at);
    if (!a->at) return err_set(e, "out of memory for %zu added tokens", n);
    for (const cJSON *v = list->child; v; v = v->next)
        if (read_token(&a->at[a->n++], v, max, e)) return -1;
    return 0;
}

void hf_added_limit(HfAdded *a, int64_t n) {
    int32_t kept = 0;
    for (int32_t i = 0; i < a->n; i++)
        if (a->at[i].id < n) a->at[kept++] = a->at[i];
    a->n = kept;
}

/* Of two tokens with the same text, which normalizing can make, the first counts. */
static int index_token(HfAdded *a, int32_t i, HfNormalizer *n, Err *e) {
    Special *in = a->at[i].normalized ? &a->normal : &a->raw;
    Text text = a->at[i].text;
    int32_t other;
    if (a->at[i].normalized && hf_normalize(n, text.data, text.size, &text, e)) return -1;
    if (text.size && special_longest(in, text.data, text.size, &other) == text.size) return 0;
    return special_add(in, text, i, !a->at[i].special, e);
}

int hf_added_index(HfAdded *a, HfNormalizer *n, Err *e) {
    for (int special = 1; special >= 0; special--)
        for (int32_t i = 0; i < a->n; i++)
            if (a->at[i].special == (special == 1) && index_token(a, i, n, e)) return -1;
    return 0;
}

void hf_added_free(HfAdded *a) {
    special_free(&a->raw);
    special_free(&a->normal);
    free(a->at);
    *a = (HfAdded){0};
}

static bool touches_word(const char *text, size_t n, size_t begin, size_t end) {
    size_t size;
    return (begin > 0 && unicode_is_word(unicode_at(text + unicode_before(text, begin), &size))) ||
           (end < n && unicode_is_word(unicode_at(text + end, &size)));
}

/* Takes in the white space that belongs to the token. */
static void strip(const HfAddedToken *t, const char *text, size_t n, size_t done, HfAddedHit *hit) {
    size_t size;
    while (t->lstrip && hit->begin > done) {
        size_t before = unicode_before(text, hit->begin);
        if (!unicode_is_space(unicode_at(text + before, &size))) break;
        hit->begin = before;
    }
    while (t->rstrip && hit->end < n && unicode_is_space(unicode_at(text + hit->end, &size))) hit->end += size;
}

int hf_added_find(const HfAdded *a, const Special *in, const char *text, size_t n, const SpecialPlaces *places,
                  size_t done, size_t *at, HfAddedHit *hit) {
    size_t i = *at;
    while (i < n) {
        int32_t token;
        size_t size = special_longest(in, text + i, n - i, &token);
        if (!size) {
            i++;
            continue;
        }
        const HfAddedToken *t = &a->at[token];
        *hit = (HfAddedHit){i, i + size, token};
        i += size;
        if ((t->special && !special_wanted(places, hit->begin, hit->end)) ||
            (t->single_word && touches_word(text, n, hit->begin, hit->end)))
            continue;
        strip(t, text, n, done, hit);
        *at = i;
        return 1;
    }
    *at = n;
    return 0;
}
