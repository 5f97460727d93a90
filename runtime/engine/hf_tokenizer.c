/* Tokenizers in Hugging Face's tokenizer.json: added tokens are found, what lies between is normalised, cut into
 * pieces, and each piece goes through the model (https://huggingface.co/docs/tokenizers/pipeline). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hf_added.h"
#include "engine/hf_decoder.h"
#include "engine/hf_frame.h"
#include "engine/hf_model.h"
#include "engine/hf_normalizer.h"
#include "engine/hf_pretokenizer.h"
#include "engine/hf_vocab.h"
#include "engine/tokenizer_internal.h"

typedef struct Hf {
    TokenModel base;
    char *file;  /* owned */
    cJSON *json; /* what the parts point into; owned */
    HfVocab texts;
    Vocab vocab; /* the model's: without the tokens that were added to it */
    HfAdded added;
    HfNormalizer *normalizer;
    HfPretokenizer *pre;
    HfModel *model;
    StrBuf bytes; /* of all tokens, one after the other */
    size_t *ends; /* [vocab->n] in `bytes`; owned */
} Hf;

/* ---- text -> ids ------------------------------------------------------------------------------------------------- */

static int encode_normal(Hf *h, const char *text, size_t n, bool at_start, Ids *ids, Err *e) {
    const HfPieces *p;
    if (n == 0) return 0;
    if (hf_pretokenize(h->pre, text, n, at_start, &p, e)) return -1;
    for (size_t i = 0, begin = 0; i < p->n; begin = p->ends[i++])
        if (hf_model_encode(h->model, p->text.data + begin, p->ends[i] - begin, ids, e)) return -1;
    return 0;
}

typedef int Between(Hf *h, const char *text, size_t n, bool at_start, const SpecialPlaces *places, Ids *ids, Err *e);

/* The added tokens of one kind, and what lies between them. */
static int cut(Hf *h, const Special *kind, Between *between, const char *text, size_t n, bool at_start,
               const SpecialPlaces *places, Ids *ids, Err *e) {
    HfAddedHit hit;
    size_t at = 0, done = 0;
    while (hf_added_find(&h->added, kind, text, n, places, done, &at, &hit)) {
        size_t size = hit.begin > done ? hit.begin - done : 0;
        if (between(h, text + done, size, at_start && done == 0, places, ids, e) ||
            ids_add(ids, h->added.at[hit.token].id, e))
            return -1;
        done = hit.end;
    }
    return between(h, text + done, n - done, at_start && done == 0, places, ids, e);
}

static int between_normal(Hf *h, const char *text, size_t n, bool at_start, const SpecialPlaces *places, Ids *ids,
                          Err *e) {
    (void)places;
    return encode_normal(h, text, n, at_start, ids, e);
}

/* Normalising moves bytes, so a piece is searched for special tokens of that kind only if all of it may have them. */
static int between_raw(Hf *h, const char *text, size_t n, bool at_start, const SpecialPlaces *places, Ids *ids,
                       Err *e) {
    Text normal;
    size_t begin = (size_t)(text - places->text);
    if (n == 0) return 0;
    if (hf_normalize(h->normalizer, text, n, &normal, e)) return -1;
    SpecialPlaces within = {.any = special_wanted(places, begin, begin + n), .text = normal.data};
    return cut(h, &h->added.normal, between_normal, normal.data, normal.size, at_start, &within, ids, e);
}

static int hf_encode(TokenModel *model, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids, Err *e) {
    Hf *h = (Hf *)model;
    return cut(h, &h->added.raw, between_raw, text, bytes, true, places, ids, e);
}

static size_t hf_bytes(const TokenModel *model, int32_t id, char *buf, size_t cap) {
    const Hf *h = (const Hf *)model;
    size_t begin = id ? h->ends[id - 1] : 0;
    return token_copy(h->bytes.data + begin, h->ends[id] - begin, buf, cap);
}

static void hf_free(TokenModel *model) {
    Hf *h = (Hf *)model;
    hf_model_free(h->model);
    hf_pretokenizer_free(h->pre);
    hf_normalizer_free(h->normalizer);
    hf_added_free(&h->added);
    vocab_free(&h->vocab);
    hf_vocab_free(&h->texts);
    cJSON_Delete(h->json);
    strbuf_free(&h->bytes);
    free(h->ends);
    free(h->file);
    free(h);
}

static const TokenModelKind hf = {.encode = hf_encode, .bytes = hf_bytes, .free = hf_free, .whole = true};

/* ---- making one -------------------------------------------------------------------------------------------------- */

/* The bytes of all tokens, worked out once. */
static int decode_all(Hf *h, const Vocab *v, const cJSON *o, Err *e) {
    HfDecoder *d;
    if (hf_decoder_create(o, &d, e)) return -1;
    h->ends = malloc((size_t)v->n * sizeof *h->ends);
    int failed = h->ends ? 0 : err_set(e, "out of memory for %lld tokens", (long long)v->n);
    for (int64_t i = 0; i < v->n && !failed; i++) {
        if (v->tokens[i].size) failed = hf_decode(d, v->tokens[i], &h->bytes, e);
        h->ends[i] = h->bytes.len;
    }
    hf_decoder_free(d);
    return failed;
}

static int read_parts(Hf *h, int64_t rows, Tokenizer *t, Err *e) {
    /* Cutting texts short and filling up batches is left to the caller. */
    static const char *const keys[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                       "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const cJSON *root = h->json, *model = hf_json_get(root, "model");
    if (hf_json_only(root, "the file", keys, e)) return -1;
    if (!model) return err_set(e, "\"model\" is missing");
    if (hf_added_read(&h->added, hf_json_get(root, "added_tokens"), HF_MAX_ID, e)) return -1;
    hf_added_limit(&h->added, rows);
    if (hf_vocab_create(&h->texts, hf_json_get(model, "vocab"), &h->added, e) ||
        vocab_from_texts(&h->vocab, h->file, h->texts.model, h->texts.n, "model.vocab", e) ||
        vocab_from_texts(&t->vocab, h->file, h->texts.all, h->texts.n, "the vocabulary", e) ||
        hf_model_create(model, &h->vocab, &h->model, e) ||
        hf_normalizer_create(hf_json_get(root, "normalizer"), &h->normalizer, e) ||
        hf_pretokenizer_create(hf_json_get(root, "pre_tokenizer"), &h->pre, e) ||
        hf_added_index(&h->added, h->normalizer, e) || hf_frame_read(hf_json_get(root, "post_processor"), t, e) ||
        decode_all(h, &t->vocab, hf_json_get(root, "decoder"), e))
        return -1;
    cJSON *large = cJSON_GetObjectItemCaseSensitive(root, "model"); /* nothing points into its lists */
    cJSON_DeleteItemFromObjectCaseSensitive(large, "vocab");
    cJSON_DeleteItemFromObjectCaseSensitive(large, "merges");
    for (int32_t i = 0; i < h->added.n; i++)
        t->vocab.types[h->added.at[i].id] = h->added.at[i].special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    vocab_mark_ends(&t->vocab);
    return 0;
}

static int read_json(Tokenizer *t, const char *text, size_t n, const char *name, int64_t rows, Err *e) {
    Hf *h = calloc(1, sizeof *h);
    if (!h) return err_set(e, "out of memory");
    h->base = (TokenModel){&hf, &t->vocab};
    t->bos = t->eos = -1; /* such a file has no names for them */
    t->model = &h->base;
    h->file = strdup(name);
    if (!h->file) return err_set(e, "out of memory");
    return hf_json_parse(text, n, &h->json, e) || read_parts(h, rows, t, e) ? -1 : 0;
}

int tokenizer_from_json_memory(const char *text, size_t n, const char *name, int64_t rows, Tokenizer **out, Err *e) {
    *out = NULL;
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_set(e, "%s: out of memory for its tokenizer", name);
    if (read_json(t, text, n, name, rows, e)) {
        tokenizer_free(t);
        return strncmp(e ? e->msg : name, name, strlen(name)) ? err_context(e, "%s", name) : -1;
    }
    *out = t;
    return 0;
}

enum { LARGEST_FILE = 1 << 30 };

int tokenizer_from_json(const char *path, Tokenizer **out, Err *e) {
    *out = NULL;
    FILE *f = fopen(path, "rb");
    if (!f) return err_errno(e, "%s", path);
    char *text = NULL;
    off_t size = fseeko(f, 0, SEEK_END) ? -1 : ftello(f);
    int failed = 0;
    if (size < 0) failed = err_errno(e, "%s", path);
    else if (size > LARGEST_FILE) failed = err_set(e, "%s: %lld bytes are too many", path, (long long)size);
    else if (!(text = malloc((size_t)size + 1))) failed = err_set(e, "%s: out of memory", path);
    rewind(f);
    if (!failed && fread(text, 1, (size_t)size, f) != (size_t)size)
        failed =
            ferror(f) ? err_errno(e, "%s", path) : err_set(e, "%s: ends before its %lld bytes", path, (long long)size);
    (void)fclose(f);
    if (!failed) failed = tokenizer_from_json_memory(text, (size_t)size, path, INT64_MAX, out, e);
    free(text);
    return failed;
}
