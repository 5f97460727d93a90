/* A text is cut at special tokens; what lies between them the model turns into ids. */
#include "engine/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/tokenizer_internal.h"
#include "engine/unicode.h"
#include "engine/utf8.h"

/* ---- making one from a GGUF file --------------------------------------------------------------------------------- */

static const struct {
    const char *name; /* in tokenizer.ggml.model */
    TokenModelCreate *create;
} models[] = {
    {"gpt2", byte_bpe_create}, {"llama", spm_create}, {"gemma4", text_bpe_create},
    {"t5", ugm_create},        {"bert", wpm_create},
};
enum { MODELS = sizeof models / sizeof *models };

static TokenModelCreate *model_of(const ModelFile *g, Err *e) {
    Text name;
    if (meta_get_string(g, "tokenizer.ggml.model", true, &name, e)) return NULL;
    for (int i = 0; i < MODELS; i++)
        if (name.size == strlen(models[i].name) && !memcmp(name.data, models[i].name, name.size))
            return models[i].create;
    (void)err_set(e, "%s: the tokenizer model \"%s\" is not supported; gpt2, llama, gemma4, t5 and bert are",
                  model_file_path(g), text_printable(name).text);
    return NULL;
}

/* A default may be for a vocabulary larger than this one. */
static int32_t within(const Vocab *v, int32_t id) { return id < v->n ? id : -1; }

static int read_frame(Tokenizer *t, const ModelFile *g, const TokenDefaults *d, Err *e) {
    Vocab *v = &t->vocab;
    int32_t before = within(v, d->bos), after = within(v, d->eos);
    bool add_bos = d->add_bos, add_eos = d->add_eos;
    if (vocab_id_key(v, g, d->bos_key, &before, e) || vocab_id_key(v, g, d->eos_key, &after, e) ||
        meta_get_bool(g, "tokenizer.ggml.add_bos_token", false, &add_bos, e) ||
        meta_get_bool(g, "tokenizer.ggml.add_eos_token", false, &add_eos, e))
        return -1;
    t->bos = before;
    t->eos = after;
    if (d->always) add_bos = add_eos = true;
    if (add_bos && before >= 0) t->before[t->n_before++] = before;
    if (add_eos && after >= 0) t->after[t->n_after++] = after;
    return 0;
}

static int read_ends(Vocab *v, const ModelFile *g, int32_t eos, Err *e) {
    int32_t ids[] = {eos, -1, -1};
    static const char *const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    for (int i = 0; i < 3; i++) {
        if (vocab_id_key(v, g, keys[i], &ids[i], e)) return -1;
        if (ids[i] >= 0) v->ends[ids[i]] = true;
    }
    vocab_mark_ends(v);
    return 0;
}

static int read_special(Tokenizer *t, Err *e) {
    const Vocab *v = &t->vocab;
    for (int64_t i = 0; i < v->n; i++) {
        uint8_t type = v->types[i];
        if (vocab_is_text(v, i) && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED) &&
            special_add(&t->special, v->tokens[i], (int32_t)i, type == TOKEN_USER_DEFINED, e))
            return err_context(e, "%s", v->file);
    }
    return 0;
}

int tokenizer_from_gguf(const ModelFile *g, Tokenizer **out, Err *e) {
    *out = NULL;
    TokenModelCreate *create = model_of(g, e);
    if (!create) return -1;
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_set(e, "%s: out of memory for its tokenizer", model_file_path(g));
    TokenDefaults d = {.bos = -1, .eos = -1, .bos_key = "bos_token_id", .eos_key = "eos_token_id"};
    if (vocab_from_gguf(&t->vocab, g, e) || create(g, &t->vocab, &t->model, &d, e) || read_frame(t, g, &d, e) ||
        read_ends(&t->vocab, g, within(&t->vocab, d.eos), e) || read_special(t, e) ||
        tokenizer_strips(g, &t->vocab, &t->strips, e)) {
        tokenizer_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_free(Tokenizer *t) {
    if (!t) return;
    if (t->model) t->model->kind->free(t->model);
    special_free(&t->special);
    free(t->strips);
    vocab_free(&t->vocab);
    free(t);
}

int64_t tokenizer_size(const Tokenizer *t) { return t->vocab.n; }
int32_t tokenizer_bos(const Tokenizer *t) { return t->n_before ? t->before[0] : -1; }
int32_t tokenizer_named_bos(const Tokenizer *t) { return t->bos; }
int32_t tokenizer_named_eos(const Tokenizer *t) { return t->eos; }
void tokenizer_set_named(Tokenizer *t, int64_t bos, int64_t eos) {
    int64_t size = tokenizer_size(t);
    t->bos = bos >= 0 && bos < size ? (int32_t)bos : -1;
    t->eos = eos >= 0 && eos < size ? (int32_t)eos : -1;
}
bool tokenizer_ends(const Tokenizer *t, int32_t id) { return id >= 0 && id < t->vocab.n && t->vocab.ends[id]; }
void tokenizer_set_end(Tokenizer *t, int32_t id) {
    if (id >= 0 && id < t->vocab.n) t->vocab.ends[id] = true;
}

/* ---- text -> ids ------------------------------------------------------------------------------------------------- */

int ids_reserve(Ids *ids, size_t more, Err *e) {
    size_t wanted, bytes;
    if (!size_add(ids->n, more, &wanted)) return err_set(e, "out of memory for the tokens of a text");
    if (ids->at && wanted <= ids->cap) return 0;
    if (wanted < 2 * ids->cap) wanted = 2 * ids->cap;
    int32_t *grown = size_mul(wanted, sizeof *grown, &bytes) ? realloc(ids->at, bytes) : NULL;
    if (!grown) return err_set(e, "out of memory for the tokens of a text");
    ids->at = grown;
    ids->cap = wanted;
    return 0;
}

int ids_add(Ids *ids, int32_t id, Err *e) {
    if (id < 0) return 0;
    if (ids_reserve(ids, 1, e)) return -1;
    ids->at[ids->n++] = id;
    return 0;
}

static int add_all(Ids *ids, const int32_t *more, int n, Err *e) {
    for (int i = 0; i < n; i++)
        if (ids_add(ids, more[i], e)) return -1;
    return 0;
}

static int encode_piece(Tokenizer *t, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids, Err *e) {
    return bytes ? t->model->kind->encode(t->model, text, bytes, places, ids, e) : 0;
}

/* text[begin, end) without the white space that the tokens beside it take; -1: none there. */
static void strip(const Tokenizer *t, const char *text, int32_t before, int32_t after, size_t *begin, size_t *end) {
    size_t size;
    if (!t->strips) return;
    if (before >= 0 && t->strips[before] & TOKEN_RIGHT)
        while (*begin < *end && unicode_is_space(unicode_at(text + *begin, &size))) *begin += size;
    if (after >= 0 && t->strips[after] & TOKEN_LEFT)
        for (size_t at; *begin < *end; *end = at) {
            at = unicode_before(text, *end);
            if (!unicode_is_space(unicode_at(text + at, &size))) break;
        }
}

/* Special tokens, and what lies between them. */
static int encode_cut(Tokenizer *t, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids, Err *e) {
    SpecialHit *hits;
    size_t n_hits, next = 0;
    int32_t before = -1;
    if (special_find(&t->special, text, bytes, places, &hits, &n_hits, e)) return -1;
    int failed = 0;
    for (size_t i = 0; i <= n_hits && !failed; i++) {
        SpecialHit hit = i < n_hits ? hits[i] : (SpecialHit){.pos = bytes, .id = -1};
        size_t begin = next, end = hit.pos;
        strip(t, text, before, hit.id, &begin, &end);
        failed = encode_piece(t, text + begin, end - begin, places, ids, e) || ids_add(ids, hit.id, e);
        next = hit.pos + hit.size;
        before = hit.id;
    }
    free(hits);
    return failed ? -1 : 0;
}

static int encode(Tokenizer *t, const char *text, size_t bytes, bool bos, const SpecialPlaces *places, int32_t **ids,
                  size_t *n, Err *e) {
    *ids = NULL;
    *n = 0;
    if (bytes > INT32_MAX)
        return err_set(e, "a text of %zu bytes is too long: at most 2^31-1 are tokenised at once", bytes);
    size_t valid = utf8_check(text, bytes);
    if (valid < bytes)
        return err_set(e, "the text is not UTF-8: byte 0x%02x at offset %zu", (unsigned)(uint8_t)text[valid], valid);
    Ids list = {0};
    int (*encode_text)(Tokenizer *, const char *, size_t, const SpecialPlaces *, Ids *, Err *) =
        t->model->kind->whole ? encode_piece : encode_cut;
    if (ids_reserve(&list, bytes / 3 + 8, e) || (bos && add_all(&list, t->before, t->n_before, e)) ||
        encode_text(t, text, bytes, places, &list, e) || (bos && add_all(&list, t->after, t->n_after, e))) {
        free(list.at);
        return -1;
    }
    *ids = list.at;
    *n = list.n;
    return 0;
}

int tokenizer_encode(Tokenizer *t, const char *text, size_t bytes, bool bos, bool special, int32_t **ids, size_t *n,
                     Err *e) {
    return encode(t, text, bytes, bos, &(SpecialPlaces){.any = special, .text = text}, ids, n, e);
}

int tokenizer_encode_mixed(Tokenizer *t, const char *text, size_t bytes, const TextSpan *plain, size_t n_plain,
                           int32_t **ids, size_t *n, Err *e) {
    SpecialPlaces places = {.any = true, .text = text, .plain = plain, .n_plain = n_plain};
    return encode(t, text, bytes, false, &places, ids, n, e);
}

/* ---- ids -> text ------------------------------------------------------------------------------------------------- */

size_t token_copy(const char *from, size_t n, char *buf, size_t cap) {
    if (n && cap) memcpy(buf, from, n < cap ? n : cap);
    return n;
}

size_t token_copy_spaced(Text text, char *buf, size_t cap) {
    size_t written = 0;
    for (size_t i = 0; i < text.size; written++) {
        bool space = text.size - i >= 3 && !memcmp(text.data + i, "\xE2\x96\x81", 3);
        if (written < cap) buf[written] = space ? ' ' : text.data[i];
        i += space ? 3 : 1;
    }
    return written;
}

size_t tokenizer_bytes(const Tokenizer *t, int32_t id, bool special, char *buf, size_t cap) {
    const Vocab *v = &t->vocab;
    if (id < 0 || id >= v->n) return 0;
    switch ((TokenType)v->types[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (!special) return 0;
        break;
    case TOKEN_NORMAL:
    case TOKEN_USER_DEFINED: break;
    case TOKEN_BYTE: {
        int b = token_named_byte(v->tokens[id]);
        char c = (char)b;
        if (b >= 0) return token_copy(&c, 1, buf, cap);
        break;
    }
    default: return 0;
    }
    return t->model->kind->bytes(t->model, id, buf, cap);
}
