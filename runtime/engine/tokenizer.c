/* Byte-level BPE: text is cut at special tokens, then into pieces by the pre-tokenizer; the bytes of a piece are the
 * first symbols, which the merges join. */
#include "engine/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/bpe.h"
#include "engine/pretokenizer.h"
#include "engine/special.h"
#include "engine/utf8.h"
#include "graph/name_map.h"

/* What tokenizer.ggml.token_type says of a token, with its numbers. */
enum TokenType {
    TYPE_UNDEFINED,
    TYPE_NORMAL,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER_DEFINED,
    TYPE_UNUSED,
    TYPE_BYTE,
    TYPE_COUNT
};

struct Tokenizer {
    const char *file;         /* for errors; the Gguf's */
    const GgufString *tokens; /* [n]; the Gguf's */
    int64_t n;
    uint8_t *types;   /* [n] TokenType; owned */
    bool *ends;       /* [n] ends a text or a turn; owned */
    int32_t bos, eos; /* -1: none or not to be added */
    ByteLetters letters;
    int32_t byte_id[256]; /* the token of a single byte, or -1 */
    NameMap ids;          /* text as in the file -> id */
    Bpe bpe;
    Pretokenizer *pre;
    bool ignore_merges;
    Special special;
    char *word; /* scratch: a piece in letters; owned */
    size_t word_cap;
};

/* ---- reading the vocabulary -------------------------------------------------------------------------------------- */

static int out_of_memory(const Tokenizer *t, Err *e) {
    return err_set(e, "%s: out of memory for its tokenizer", t->file);
}

static int read_tokens(Tokenizer *t, const Gguf *g, Err *e) {
    const GgufValue *v = NULL;
    if (gguf_get_array(g, "tokenizer.ggml.tokens", true, GGUF_STRING, &v, e)) return -1;
    if (v->v.a.n == 0 || v->v.a.n > INT32_MAX)
        return err_set(e, "%s: tokenizer.ggml.tokens has %" PRIu64 " tokens", t->file, v->v.a.n);
    t->tokens = v->v.a.strings;
    t->n = (int64_t)v->v.a.n;
    size_t twin[2] = {0, 0};
    int r = name_map_build(&t->ids, t->tokens, sizeof *t->tokens, (size_t)t->n, true, twin);
    if (r > 0)
        return err_set(e, "%s: tokens %zu and %zu of tokenizer.ggml.tokens are both \"%s\"", t->file, twin[0], twin[1],
                       gguf_printable(t->tokens[twin[0]]).text);
    return r ? out_of_memory(t, e) : 0;
}

static int read_types(Tokenizer *t, const Gguf *g, Err *e) {
    const GgufValue *v = NULL;
    if (gguf_get_array(g, "tokenizer.ggml.token_type", false, GGUF_I32, &v, e)) return -1;
    if (v && v->v.a.n != (uint64_t)t->n)
        return err_set(e, "%s: tokenizer.ggml.token_type has %" PRIu64 " entries for %" PRId64 " tokens", t->file,
                       v->v.a.n, t->n);
    t->types = malloc((size_t)t->n);
    t->ends = calloc((size_t)t->n, sizeof *t->ends);
    if (!t->types || !t->ends) return out_of_memory(t, e);
    for (int64_t i = 0; i < t->n; i++) {
        int64_t type = v ? gguf_array_i64(v, (uint64_t)i) : TYPE_NORMAL;
        if (type < 0 || type >= TYPE_COUNT)
            return err_set(e, "%s: tokenizer.ggml.token_type: token %" PRId64 " has type %" PRId64 ", unknown", t->file,
                           i, type);
        t->types[i] = (uint8_t)type;
    }
    return 0;
}

static void find_bytes(Tokenizer *t) {
    byte_letters_init(&t->letters);
    for (int b = 0; b < 256; b++)
        t->byte_id[b] = (int32_t)name_map_find(&t->ids, t->letters.utf8[b], t->letters.size[b]);
}

/* A merge is "LEFT RIGHT": the space is the first one after the first byte. */
static int read_merge(Tokenizer *t, GgufString merge, uint32_t rank, Err *e) {
    const char *space = merge.size > 2 ? memchr(merge.data + 1, ' ', merge.size - 2) : NULL;
    if (!space)
        return err_set(e, "%s: merge %u of tokenizer.ggml.merges is \"%s\", not two texts with a space between",
                       t->file, rank, gguf_printable(merge).text);
    GgufString left = {merge.data, (size_t)(space - merge.data)};
    GgufString right = {space + 1, merge.size - left.size - 1};
    uint64_t hash = name_hash(NAME_HASH_START, left.data, left.size);
    int64_t l = name_map_find_joined(&t->ids, hash, left, (GgufString){0});
    int64_t r = name_map_find(&t->ids, right.data, right.size);
    int64_t both = name_map_find_joined(&t->ids, name_hash(hash, right.data, right.size), left, right);
    if (l < 0 || r < 0 || both < 0)
        return err_set(e, "%s: merge %u of tokenizer.ggml.merges, \"%s\": %s is no token", t->file, rank,
                       gguf_printable(merge).text,
                       l < 0   ? "its left side"
                       : r < 0 ? "its right side"
                               : "what it makes");
    bpe_add(&t->bpe, (int32_t)l, (int32_t)r, (int32_t)both, rank);
    return 0;
}

static int read_merges(Tokenizer *t, const Gguf *g, Err *e) {
    const GgufValue *v = NULL;
    if (gguf_get_array(g, "tokenizer.ggml.merges", true, GGUF_STRING, &v, e)) return -1;
    if (v->v.a.n > INT32_MAX) return err_set(e, "%s: tokenizer.ggml.merges has %" PRIu64 " merges", t->file, v->v.a.n);
    if (bpe_init(&t->bpe, (size_t)v->v.a.n, e)) return err_context(e, "%s", t->file);
    for (uint64_t i = 0; i < v->v.a.n; i++)
        if (read_merge(t, v->v.a.strings[i], (uint32_t)i, e)) return -1;
    return 0;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* Texts that end a text or a turn in the models that llama.cpp knows, or a piece of code to be filled in
 * (https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp), unless they are ordinary tokens. */
static const char *const end_texts[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>",   "<|eom_id|>",   "<|end|>",
    "<|return|>",    "<end_of_turn>",   "<eos>",      "</s>",         "<EOT>",        "_<EOT>",
    "<|fim_pad|>",   "<fim-pad>",       "<fim_pad>",  "<PAD>",        "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>",    "<REPO>",          "<reponame>", "<|file_sep|>",
};

static void mark_ends(Tokenizer *t, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) t->ends[ids[i]] = true;
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        int64_t id = name_map_find(&t->ids, end_texts[i], strlen(end_texts[i]));
        if (id >= 0 && (t->types[id] == TYPE_CONTROL || t->types[id] == TYPE_USER_DEFINED)) t->ends[id] = true;
    }
}

static int read_id(const Tokenizer *t, const Gguf *g, const char *key, int32_t *out, Err *e) {
    int64_t id = -1;
    if (gguf_get_i64(g, key, false, 0, t->n - 1, &id, e)) return -1;
    *out = (int32_t)id;
    return 0;
}

static int read_special(Tokenizer *t, const Gguf *g, Err *e) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    enum { KEYS = sizeof keys / sizeof *keys };
    int32_t ends[KEYS];
    for (int i = 0; i < KEYS; i++)
        if (read_id(t, g, keys[i], &ends[i], e)) return -1;
    mark_ends(t, ends, KEYS);
    bool add_bos = pretokenizer_traits(t->pre).add_bos, add_eos = false;
    if (read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e) ||
        gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &add_bos, e) ||
        gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &add_eos, e))
        return -1;
    if (!add_bos) t->bos = -1;
    t->eos = add_eos ? ends[0] : -1;
    for (int64_t i = 0; i < t->n; i++) {
        uint8_t type = t->types[i];
        if (t->tokens[i].size && (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER_DEFINED) &&
            special_add(&t->special, t->tokens[i], (int32_t)i, type == TYPE_USER_DEFINED, e))
            return err_context(e, "%s", t->file);
    }
    return 0;
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

static int create_pre(Tokenizer *t, const Gguf *g, Err *e) {
    GgufString model, pre;
    if (gguf_get_string(g, "tokenizer.ggml.model", true, &model, e)) return -1;
    if (model.size != 4 || memcmp(model.data, "gpt2", 4))
        return err_set(e, "%s: the tokenizer model \"%s\" is not supported; \"gpt2\" (byte-level BPE) is", t->file,
                       gguf_printable(model).text);
    if (gguf_get_string(g, "tokenizer.ggml.pre", true, &pre, e)) return -1;
    if (pretokenizer_create(pre, &t->pre, e)) return err_context(e, "%s", t->file);
    t->ignore_merges = pretokenizer_traits(t->pre).ignore_merges;
    return 0;
}

int tokenizer_from_gguf(const Gguf *g, Tokenizer **out, Err *e) {
    *out = NULL;
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_set(e, "%s: out of memory for its tokenizer", gguf_path(g));
    t->file = gguf_path(g);
    int failed = create_pre(t, g, e) || read_tokens(t, g, e) || read_types(t, g, e);
    if (!failed) {
        find_bytes(t);
        failed = read_merges(t, g, e) || read_special(t, g, e);
    }
    if (failed) {
        tokenizer_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_free(Tokenizer *t) {
    if (!t) return;
    pretokenizer_free(t->pre);
    bpe_free(&t->bpe);
    special_free(&t->special);
    name_map_free(&t->ids);
    free(t->types);
    free(t->ends);
    free(t->word);
    free(t);
}

int64_t tokenizer_size(const Tokenizer *t) { return t->n; }
int32_t tokenizer_bos(const Tokenizer *t) { return t->bos; }
bool tokenizer_ends(const Tokenizer *t, int32_t id) { return id >= 0 && id < t->n && t->ends[id]; }

/* ---- text -> ids ------------------------------------------------------------------------------------------------- */

typedef struct Ids {
    int32_t *at;
    size_t n, cap;
} Ids;

/* Room for `more` ids after the n there. */
static int reserve_ids(Ids *ids, size_t more, Err *e) {
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

/* The token that is the whole piece, or -1. */
static int whole_piece(Tokenizer *t, const char *piece, size_t bytes, int32_t *id, Err *e) {
    if (t->word_cap < 2 * bytes) {
        char *grown = realloc(t->word, 2 * bytes);
        if (!grown) return err_set(e, "out of memory for a piece of %zu bytes", bytes);
        t->word = grown;
        t->word_cap = 2 * bytes;
    }
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)piece[i];
        memcpy(t->word + n, t->letters.utf8[b], 2);
        n += t->letters.size[b];
    }
    *id = (int32_t)name_map_find(&t->ids, t->word, n);
    return 0;
}

static int encode_piece(Tokenizer *t, const char *piece, size_t bytes, Ids *ids, Err *e) {
    if (reserve_ids(ids, bytes, e)) return -1;
    int32_t *out = ids->at + ids->n;
    if (t->ignore_merges) {
        int32_t id = -1;
        if (whole_piece(t, piece, bytes, &id, e)) return -1;
        if (id >= 0) {
            out[0] = id;
            ids->n++;
            return 0;
        }
    }
    for (size_t i = 0; i < bytes; i++) out[i] = t->byte_id[(uint8_t)piece[i]];
    size_t n;
    if (bpe_merge(&t->bpe, out, bytes, &n, e)) return -1;
    for (size_t i = 0; i < n; i++)
        if (out[i] >= 0) ids->at[ids->n++] = out[i];
    return 0;
}

static int encode_text(Tokenizer *t, const char *text, size_t bytes, Ids *ids, Err *e) {
    const size_t *ends;
    size_t n;
    if (pretokenizer_split(t->pre, text, bytes, &ends, &n, e)) return -1;
    for (size_t i = 0, begin = 0; i < n; begin = ends[i++])
        if (encode_piece(t, text + begin, ends[i] - begin, ids, e)) return -1;
    return 0;
}

/* One id, where it is one. */
static int add_id(Ids *ids, int32_t id, Err *e) {
    if (id < 0) return 0;
    if (reserve_ids(ids, 1, e)) return -1;
    ids->at[ids->n++] = id;
    return 0;
}

static int encode_between(Tokenizer *t, const char *text, size_t bytes, const SpecialHit *hits, size_t n_hits, Ids *ids,
                          Err *e) {
    size_t begin = 0;
    for (size_t i = 0; i < n_hits; i++) {
        if (encode_text(t, text + begin, hits[i].pos - begin, ids, e) || add_id(ids, hits[i].id, e)) return -1;
        begin = hits[i].pos + hits[i].size;
    }
    return encode_text(t, text + begin, bytes - begin, ids, e);
}

int tokenizer_encode(Tokenizer *t, const char *text, size_t bytes, bool bos, bool special, int32_t **ids, size_t *n,
                     Err *e) {
    *ids = NULL;
    *n = 0;
    if (bytes > INT32_MAX)
        return err_set(e, "a text of %zu bytes is too long: at most 2^31-1 are tokenised at once", bytes);
    size_t valid = utf8_check(text, bytes);
    if (valid < bytes)
        return err_set(e, "the text is not UTF-8: byte 0x%02x at offset %zu", (unsigned)(uint8_t)text[valid], valid);
    SpecialHit *hits;
    size_t n_hits;
    if (special_find(&t->special, text, bytes, special, &hits, &n_hits, e)) return -1;
    Ids list = {0};
    int failed = reserve_ids(&list, bytes / 3 + 8, e) || (bos && add_id(&list, t->bos, e)) ||
                 encode_between(t, text, bytes, hits, n_hits, &list, e) || (bos && add_id(&list, t->eos, e));
    free(hits);
    if (failed) {
        free(list.at);
        return -1;
    }
    *ids = list.at;
    *n = list.n;
    return 0;
}

/* ---- ids -> text ------------------------------------------------------------------------------------------------- */

static size_t copy(const char *from, size_t n, char *buf, size_t cap) {
    if (n && cap) memcpy(buf, from, n < cap ? n : cap);
    return n;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* "<0x0A>" -> the byte, or -1. */
static int named_byte(GgufString s) {
    if (s.size != 6 || memcmp(s.data, "<0x", 3) || s.data[5] != '>') return -1;
    int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

size_t tokenizer_bytes(const Tokenizer *t, int32_t id, bool special, char *buf, size_t cap) {
    if (id < 0 || id >= t->n) return 0;
    GgufString s = t->tokens[id];
    switch ((enum TokenType)t->types[id]) {
    case TYPE_CONTROL:
    case TYPE_UNKNOWN: return special ? copy(s.data, s.size, buf, cap) : 0;
    case TYPE_USER_DEFINED: return copy(s.data, s.size, buf, cap);
    case TYPE_BYTE: {
        int b = named_byte(s);
        char c = (char)b;
        if (b >= 0) return copy(&c, 1, buf, cap);
        break;
    }
    case TYPE_NORMAL: break;
    default: return 0;
    }
    /* A token with anything in it that is no letter of a byte stands for itself, as in Hugging Face's decoder. */
    int64_t n = byte_letters_decode(&t->letters, s.data, s.size, buf, cap);
    return n < 0 ? copy(s.data, s.size, buf, cap) : (size_t)n;
}
