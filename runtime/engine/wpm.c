/* WordPiece in GGUF files (tokenizer.ggml.model "bert"), whose vocabularies have U+2581 before tokens that begin a word
 * and nothing before those that go on, where BERT has nothing and "##". The text is treated as BERT's own tokenizer
 * does (with whole decompositions, and words of more than 100 characters unknown); llama.cpp differs there. [CLS] and
 * [SEP] stand around every text: llama.cpp adds them without a look at the flags, and its converter writes
 * add_sep_token = false for some of these models (it is about pairs of texts). */
#include <stdlib.h>
#include <string.h>

#include "engine/bert_text.h"
#include "engine/tokenizer_internal.h"
#include "engine/wordpiece.h"

typedef struct Wpm {
    TokenModel base;
    BertText text;
    WordPiece pieces;
    StrBuf clean, scratch; /* owned */
} Wpm;

static int wpm_encode(TokenModel *model, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids,
                      Err *e) {
    (void)places;
    Wpm *m = (Wpm *)model;
    m->clean.len = 0;
    if (bert_text_clean(&m->text, text, bytes, &m->scratch, &m->clean, e)) return -1;
    for (size_t at = 0, end; (end = bert_text_word(m->clean.data, m->clean.len, &at)); at = end)
        if (wordpiece_encode(&m->pieces, m->clean.data + at, end - at, ids, e)) return -1;
    return 0;
}

static size_t wpm_bytes(const TokenModel *model, int32_t id, char *buf, size_t cap) {
    Text s = model->vocab->tokens[id];
    return model->vocab->types[id] == TOKEN_NORMAL ? token_copy_spaced(s, buf, cap)
                                                   : token_copy(s.data, s.size, buf, cap);
}

static void wpm_free(TokenModel *model) {
    Wpm *m = (Wpm *)model;
    strbuf_free(&m->clean);
    strbuf_free(&m->scratch);
    free(m);
}

static const TokenModelKind wpm = {.encode = wpm_encode, .bytes = wpm_bytes, .free = wpm_free};

int wpm_create(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e) {
    Wpm *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    m->base = (TokenModel){&wpm, v};
    *out = &m->base;
    int32_t unknown = v->n > 100 ? 100 : 0; /* BERT's own numbers, unless the file has others */
    *d = (TokenDefaults){.bos = 101,
                         .eos = 102,
                         .always = true,
                         .bos_key = d->bos_key,
                         .eos_key = "seperator_token_id"}; /* so spelled */
    bool lower = true;
    if (vocab_id_key(v, g, "cls_token_id", &d->bos, e) || vocab_id_key(v, g, "unknown_token_id", &unknown, e) ||
        meta_get_bool(g, "tokenizer.ggml.normalizer.lowercase", false, &lower, e))
        return -1;
    m->text = (BertText){.clean = true, .spaced = true, .strip_accents = lower, .lower = lower};
    m->pieces = (WordPiece){.vocab = v, .first = {"\xE2\x96\x81", 3}, .longest = 100, .unknown = unknown};
    return meta_get_bool(g, "tokenizer.ggml.normalizer.strip_accents", false, &m->text.strip_accents, e);
}
