/* Byte-level BPE (tokenizer.ggml.model "gpt2"): a text is cut into pieces by the pre-tokenizer; the bytes of a piece
 * are the first symbols, which the merges join. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bpe.h"
#include "engine/merges.h"
#include "engine/pretokenizer.h"
#include "engine/tokenizer_internal.h"
#include "engine/utf8.h"

typedef struct ByteBpe {
    TokenModel base;
    ByteLetters letters;
    int32_t byte_id[256]; /* the token of a single byte, or -1 */
    Bpe bpe;
    Pretokenizer *pre;
    bool ignore_merges;
    char *word; /* scratch: a piece in letters; owned */
    size_t word_cap;
} ByteBpe;

/* The token that is the whole piece, or -1. */
static int whole_piece(ByteBpe *m, const char *piece, size_t bytes, int32_t *id, Err *e) {
    if (m->word_cap < 2 * bytes) {
        char *grown = realloc(m->word, 2 * bytes);
        if (!grown) return err_set(e, "out of memory for a piece of %zu bytes", bytes);
        m->word = grown;
        m->word_cap = 2 * bytes;
    }
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)piece[i];
        memcpy(m->word + n, m->letters.utf8[b], 2);
        n += m->letters.size[b];
    }
    *id = vocab_find(m->base.vocab, m->word, n);
    return 0;
}

static int encode_piece(ByteBpe *m, const char *piece, size_t bytes, Ids *ids, Err *e) {
    if (ids_reserve(ids, bytes, e)) return -1;
    int32_t *out = ids->at + ids->n;
    if (m->ignore_merges) {
        int32_t id = -1;
        if (whole_piece(m, piece, bytes, &id, e)) return -1;
        if (id >= 0) {
            out[0] = id;
            ids->n++;
            return 0;
        }
    }
    for (size_t i = 0; i < bytes; i++) out[i] = m->byte_id[(uint8_t)piece[i]];
    size_t n;
    if (bpe_merge(&m->bpe, out, bytes, &n, e)) return -1;
    for (size_t i = 0; i < n; i++)
        if (out[i] >= 0) ids->at[ids->n++] = out[i];
    return 0;
}

static int byte_bpe_encode(TokenModel *model, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids,
                           Err *e) {
    (void)places;
    ByteBpe *m = (ByteBpe *)model;
    const size_t *ends;
    size_t n;
    if (pretokenizer_split(m->pre, text, bytes, &ends, &n, e)) return -1;
    for (size_t i = 0, begin = 0; i < n; begin = ends[i++])
        if (encode_piece(m, text + begin, ends[i] - begin, ids, e)) return -1;
    return 0;
}

static size_t byte_bpe_bytes(const TokenModel *model, int32_t id, char *buf, size_t cap) {
    const ByteBpe *m = (const ByteBpe *)model;
    Text s = m->base.vocab->tokens[id];
    TokenType type = (TokenType)m->base.vocab->types[id];
    /* A token with anything in it that is no letter of a byte stands for itself, as in Hugging Face's decoder. */
    int64_t n =
        type == TOKEN_NORMAL || type == TOKEN_BYTE ? byte_letters_decode(&m->letters, s.data, s.size, buf, cap) : -1;
    return n < 0 ? token_copy(s.data, s.size, buf, cap) : (size_t)n;
}

static void byte_bpe_free(TokenModel *model) {
    ByteBpe *m = (ByteBpe *)model;
    pretokenizer_free(m->pre);
    bpe_free(&m->bpe);
    free(m->word);
    free(m);
}

static const TokenModelKind byte_bpe = {.encode = byte_bpe_encode, .bytes = byte_bpe_bytes, .free = byte_bpe_free};

int byte_bpe_create(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e) {
    Text pre = {0};
    if (meta_get_string(g, "tokenizer.ggml.pre", false, &pre, e)) return -1;
    if (!pre.size)
        return err_set(e,
                       "%s: tokenizer.ggml.pre is missing, so that it is not known how to cut texts; convert the model "
                       "again, or write the name of its pre-tokenizer into the file (docs/tokenizers.md has them)",
                       v->file);
    if (pretokenizer_is_raw(pre)) return text_bpe_create(g, v, out, d, e);
    ByteBpe *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    m->base = (TokenModel){&byte_bpe, v};
    *out = &m->base;
    if (pretokenizer_create(pre, &m->pre, e)) return err_context(e, "%s", v->file);
    PretokenizerTraits traits = pretokenizer_traits(m->pre);
    m->ignore_merges = traits.ignore_merges;
    d->add_bos = traits.add_bos;
    byte_letters_init(&m->letters);
    for (int b = 0; b < 256; b++) m->byte_id[b] = vocab_find(v, m->letters.utf8[b], m->letters.size[b]);
    return merges_from_gguf(&m->bpe, v, g, e);
}
