/* SentencePiece's BPE in GGUF files: the text, with U+2581 for spaces, is one word. tokenizer.ggml.model "llama" merges
 * by the scores of the tokens, "gemma4" by a list of merges and within lines. As llama.cpp does it, with one
 * difference: merging cannot make control tokens ("<" and "s>" do not become the token <s>), as in SentencePiece. */
#include <stdlib.h>
#include <string.h>

#include "engine/char_bpe.h"
#include "engine/merges.h"
#include "engine/pretokenizer.h"
#include "engine/tokenizer_internal.h"

typedef struct Spm {
    TokenModel base;
    CharBpe bpe;
    bool add_space;    /* before each piece of text */
    Pretokenizer *pre; /* or NULL; owned */
    StrBuf escaped;    /* scratch; owned */
} Spm;

/* Runs of line ends that are tokens are those tokens, whatever the merges say. */
static int encode_piece(Spm *m, const char *text, size_t bytes, Ids *ids, Err *e) {
    if (m->pre && text[0] == '\n') {
        int32_t id = vocab_find(m->base.vocab, text, bytes);
        if (id >= 0) return ids_add(ids, id, e);
    }
    return char_bpe_encode(&m->bpe, text, bytes, ids, e);
}

static int spm_encode(TokenModel *model, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids,
                      Err *e) {
    (void)places;
    Spm *m = (Spm *)model;
    StrBuf *s = &m->escaped;
    s->len = 0;
    if (m->add_space) strbuf_add(s, "\xE2\x96\x81", 3);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == ' ') strbuf_add(s, "\xE2\x96\x81", 3);
        else strbuf_add(s, text + i, 1);
    if (s->failed) return err_set(e, "out of memory for a text of %zu bytes", bytes);
    if (!m->pre) return encode_piece(m, s->data, s->len, ids, e);
    const size_t *ends;
    size_t n;
    if (pretokenizer_split(m->pre, s->data, s->len, &ends, &n, e)) return -1;
    for (size_t i = 0, begin = 0; i < n; begin = ends[i++])
        if (encode_piece(m, s->data + begin, ends[i] - begin, ids, e)) return -1;
    return 0;
}

static size_t spm_bytes(const TokenModel *model, int32_t id, char *buf, size_t cap) {
    Text s = model->vocab->tokens[id];
    return model->vocab->types[id] == TOKEN_NORMAL ? token_copy_spaced(s, buf, cap)
                                                   : token_copy(s.data, s.size, buf, cap);
}

static void spm_free(TokenModel *model) {
    Spm *m = (Spm *)model;
    char_bpe_free(&m->bpe);
    pretokenizer_free(m->pre);
    strbuf_free(&m->escaped);
    free(m);
}

static const TokenModelKind spm = {.encode = spm_encode, .bytes = spm_bytes, .free = spm_free};

static Spm *create(const Vocab *v, TokenModel **out, Err *e) {
    Spm *m = calloc(1, sizeof *m);
    if (!m) {
        (void)err_set(e, "%s: out of memory for its tokenizer", v->file);
        return NULL;
    }
    m->base = (TokenModel){&spm, v};
    m->bpe = (CharBpe){.vocab = v, .unknown = -1, .bytes = true};
    vocab_find_bytes(v, m->bpe.byte_id);
    *out = &m->base;
    return m;
}

int spm_create(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e) {
    Spm *m = create(v, out, e);
    if (!m) return -1;
    float *scores;
    if (vocab_scores(v, g, &scores, e)) return -1;
    int failed = merges_from_scores(&m->bpe.bpe, v, scores, e);
    free(scores);
    if (failed) return -1;
    m->add_space = true;
    m->bpe.only_usable = true;
    m->bpe.unknown = 0;
    char_bpe_find_cuts(&m->bpe);
    d->bos = 1;
    d->eos = 2;
    d->add_bos = true;
    return meta_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &m->add_space, e) ||
                   vocab_id_key(v, g, "unknown_token_id", &m->bpe.unknown, e)
               ? -1
               : 0;
}

int text_bpe_create(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e) {
    Text pre = {0};
    Spm *m = create(v, out, e);
    if (!m || meta_get_string(g, "tokenizer.ggml.pre", false, &pre, e)) return -1;
    /* "gpt2" comes here with a name that says so; with "gemma4" the name, often "default", means nothing. */
    if (!pretokenizer_is_raw(pre)) pre = (Text){"gemma4", 6};
    if (pretokenizer_create(pre, &m->pre, e)) return err_context(e, "%s", v->file);
    d->add_bos = pretokenizer_traits(m->pre).add_bos;
    char_bpe_find_cuts(&m->bpe);
    return merges_from_gguf(&m->bpe.bpe, v, g, e);
}
