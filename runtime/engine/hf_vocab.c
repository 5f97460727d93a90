#include "engine/hf_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* One entry of the model's vocabulary: number `i` of it. */
static int entry(const cJSON *v, bool list, int64_t i, Text *text, int64_t *id, Err *e) {
    const cJSON *piece = list ? v->child : NULL;
    if (list && !(cJSON_IsArray(v) && cJSON_IsString(piece)))
        return err_set(e, "model.vocab: entry %lld is no piece with a score", (long long)i);
    *text = hf_string(list ? piece->valuestring : v->string);
    *id = i;
    if (!list && hf_json_whole(v, "an id", 0, HF_MAX_ID, id, e))
        return err_context(e, "model.vocab, \"%s\"", text_printable(*text).text);
    return 0;
}

/* How many ids there must be, and how many bytes of text. */
static int measure(const cJSON *json, const HfAdded *added, int64_t *n, size_t *bytes, Err *e) {
    bool list = cJSON_IsArray(json);
    int64_t entries = 0, id, most = -1;
    Text text;
    *bytes = 0;
    for (const cJSON *v = json->child; v; v = v->next, entries++) {
        if (entry(v, list, entries, &text, &id, e)) return -1;
        most = i64_max(most, id);
        *bytes += text.size;
    }
    for (int32_t i = 0; i < added->n; i++, entries++) {
        most = i64_max(most, added->at[i].id);
        *bytes += added->at[i].text.size;
    }
    if (most < 0) return err_set(e, "there are no tokens");
    if (most >= 2 * entries + 65536)
        return err_set(e, "the id %lld is far beyond the %lld tokens that there are", (long long)most,
                       (long long)entries);
    *n = most + 1;
    return 0;
}

static int put(HfVocab *h, size_t *used, Text text, int64_t id, Err *e) {
    Text *at = &h->all[id];
    if (at->size) {
        if (at->size == text.size && !memcmp(at->data, text.data, text.size)) return 0;
        return err_set(e, "the id %lld stands for \"%s\" and for \"%s\"", (long long)id, text_printable(*at).text,
                       text_printable(text).text);
    }
    if (!text.size) return 0;
    memcpy(h->bytes + *used, text.data, text.size);
    *at = (Text){h->bytes + *used, text.size};
    *used += text.size;
    return 0;
}

static int fill(HfVocab *h, const cJSON *json, const HfAdded *added, Err *e) {
    size_t used = 0;
    int64_t i = 0, id;
    Text text;
    for (const cJSON *v = json->child; v; v = v->next, i++)
        if (entry(v, cJSON_IsArray(json), i, &text, &id, e) || put(h, &used, text, id, e)) return -1;
    memcpy(h->model, h->all, (size_t)h->n * sizeof *h->all);
    for (i = 0; i < added->n; i++)
        if (put(h, &used, added->at[i].text, added->at[i].id, e)) return -1;
    return 0;
}

int hf_vocab_create(HfVocab *h, const cJSON *json, const HfAdded *added, Err *e) {
    size_t bytes;
    if (!cJSON_IsObject(json) && !cJSON_IsArray(json)) return err_set(e, "model.vocab is neither a map nor a list");
    if (measure(json, added, &h->n, &bytes, e)) return -1;
    h->model = calloc((size_t)h->n, sizeof *h->model);
    h->all = calloc((size_t)h->n, sizeof *h->all);
    h->bytes = malloc(bytes + 1);
    if (!h->model || !h->all || !h->bytes) return err_set(e, "out of memory for %lld tokens", (long long)h->n);
    return fill(h, json, added, e);
}

void hf_vocab_free(HfVocab *h) {
    free(h->model);
    free(h->all);
    free(h->bytes);
    *h = (HfVocab){0};
}
