/* SentencePiece's unigram models in GGUF files (tokenizer.ggml.model "t5"): the text is normalised by the file's own
 * table, white space becomes U+2581, and the model cuts all of it at once. As llama.cpp does it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/charsmap.h"
#include "engine/tokenizer_internal.h"
#include "engine/unicode.h"
#include "engine/unigram.h"

typedef struct Ugm {
    TokenModel base;
    Unigram unigram;
    Charsmap map;
    Special user_defined; /* whose text is not normalised */
    bool add_space;       /* before the first character that is no space */
    bool merge_spaces;    /* one for several; none at the end */
    StrBuf normal;        /* scratch; owned */
} Ugm;

typedef struct Spaces { /* how far the text has come */
    bool in_word, space_before;
} Spaces;

/* Adds what stands for a bit of text, with spaces as the model wants them. */
static void add_normal(Ugm *m, Spaces *at, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            at->in_word = false;
            if (!m->merge_spaces) strbuf_add(&m->normal, "\xE2\x96\x81", 3);
            continue;
        }
        if (!at->in_word && ((m->add_space && !at->space_before) || m->merge_spaces)) {
            strbuf_add(&m->normal, "\xE2\x96\x81", 3);
            at->space_before = true;
        }
        at->in_word = true;
        strbuf_add(&m->normal, text + i, 1);
    }
}

static void normalise(Ugm *m, const char *text, size_t n) {
    Spaces at = {0};
    m->normal.len = 0;
    for (size_t i = 0; i < n;) {
        int32_t id;
        Text as;
        size_t size = special_longest(&m->user_defined, text + i, n - i, &id);
        if (size) {
            as = (Text){text + i, size};
        } else if (!(size = charsmap_longest(&m->map, text + i, n - i, &as))) {
            size = unicode_size(text[i]);
            as = (Text){text + i, size};
        }
        add_normal(m, &at, as.data, as.size);
        i += size;
    }
}

static int ugm_encode(TokenModel *model, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids,
                      Err *e) {
    (void)places;
    Ugm *m = (Ugm *)model;
    normalise(m, text, bytes);
    if (m->normal.failed) return err_set(e, "out of memory for a text of %zu bytes", bytes);
    return m->normal.len ? unigram_encode(&m->unigram, m->normal.data, m->normal.len, ids, e) : 0;
}

static size_t ugm_bytes(const TokenModel *model, int32_t id, char *buf, size_t cap) {
    Text s = model->vocab->tokens[id];
    return model->vocab->types[id] == TOKEN_NORMAL ? token_copy_spaced(s, buf, cap)
                                                   : token_copy(s.data, s.size, buf, cap);
}

static void ugm_free(TokenModel *model) {
    Ugm *m = (Ugm *)model;
    unigram_free(&m->unigram);
    charsmap_free(&m->map);
    special_free(&m->user_defined);
    strbuf_free(&m->normal);
    free(m);
}

static const TokenModelKind ugm = {.encode = ugm_encode, .bytes = ugm_bytes, .free = ugm_free};

/* The scores that count: user-defined tokens are as likely as can be, control and unknown ones never. */
static int read_scores(Ugm *m, const ModelFile *g, Err *e) {
    const Vocab *v = m->base.vocab;
    float *from_file;
    if (vocab_scores(v, g, &from_file, e)) return -1;
    double *scores = malloc((size_t)v->n * sizeof *scores), lowest = INFINITY;
    for (int64_t i = 0; i < v->n && scores; i++) {
        TokenType type = (TokenType)v->types[i];
        scores[i] = type == TOKEN_NORMAL || type == TOKEN_UNUSED ? (double)from_file[i]
                    : type == TOKEN_USER_DEFINED                 ? 0.0
                                                                 : -INFINITY;
        if (type == TOKEN_NORMAL && scores[i] < lowest) lowest = scores[i];
    }
    free(from_file);
    if (!scores) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    return unigram_init(&m->unigram, v, scores, lowest < INFINITY ? lowest : 0, e);
}

static int read_map(Ugm *m, const ModelFile *g, Err *e) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const MetaValue *a = NULL;
    if (meta_get_array(g, key, false, META_I32, &a, e)) return -1;
    if (!a) return 0;
    if (a->v.a.type != META_U8 && a->v.a.type != META_I8)
        return err_set(e, "%s: %s is no array of bytes", model_file_path(g), key);
    if (charsmap_init(&m->map, a->v.a.data, (size_t)a->v.a.n, e))
        return err_context(e, "%s: %s", model_file_path(g), key);
    return 0;
}

int ugm_create(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e) {
    Ugm *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    m->base = (TokenModel){&ugm, v};
    *out = &m->base;
    int32_t unknown = v->n > 2 ? 2 : -1;
    d->eos = 1;
    d->add_eos = true;
    if (read_scores(m, g, e) || read_map(m, g, e) || vocab_id_key(v, g, "unknown_token_id", &unknown, e) ||
        meta_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &m->add_space, e) ||
        meta_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false, &m->merge_spaces, e))
        return -1;
    m->unigram.unknown = unknown;
    for (int64_t i = 0; i < v->n; i++)
        if (v->types[i] == TOKEN_USER_DEFINED && vocab_is_text(v, i) &&
            special_add(&m->user_defined, v->tokens[i], (int32_t)i, true, e))
            return err_context(e, "%s", v->file);
    return 0;
}
