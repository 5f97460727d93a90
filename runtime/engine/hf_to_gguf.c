/* What convert_hf_to_gguf.py of llama.cpp makes of a tokenizer.json, with one difference: which of GGUF's
 * pre-tokenizers it needs is tried out, not looked up. */
#include "engine/hf_to_gguf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/hf_model.h"
#include "engine/hf_probe.h"
#include "engine/hf_vocab.h"
#include "engine/merges.h"
#include "engine/unicode.h"
#include "engine/utf8.h"
#include "graph/model_file_internal.h"

typedef struct Export Export;

/* A kind of tokenizer that GGUF has. */
typedef struct Kind {
    const char *model; /* tokenizer.ggml.model */
    /* A token's text as GGUF has it; room for size + 3 bytes. Returns how many it has. */
    size_t (*text)(Text s, TokenType type, char *to);
    int (*more)(Export *x); /* what else it needs */
} Kind;

struct Export {
    const Kind *kind;
    const ModelFile *from;
    ModelFile *to;
    size_t room; /* for values of `to` */
    Text probe;
    cJSON *json;
    const cJSON *model; /* of the tokenizer */
    HfAdded added;
    HfVocab vocab;
    Tokenizer *theirs; /* as tokenizer.json says */
    int64_t n;         /* tokens of the GGUF */
    Text *token;       /* [n], in the memory of `to`, like the next */
    int32_t *type;     /* [n] */
    bool cannot;       /* and *why says why */
    Err *why, *e;
};

#define cannot(x, ...) ((x)->cannot = true, err_set((x)->why, __VA_ARGS__))

static int put(Export *x, const char *key, MetaType type, MetaValue v) {
    ModelFile *g = x->to;
    if (grow((void **)&g->values, g->n_values, &x->room, sizeof v)) return err_set(x->e, "out of memory");
    v.key = hf_string(key);
    v.type = type;
    g->values[g->n_values++] = v;
    return 0;
}

static int put_id(Export *x, const char *key, int64_t id) { return put(x, key, META_U32, (MetaValue){.v.i = id}); }
static int put_bool(Export *x, const char *key, bool v) { return put(x, key, META_BOOL, (MetaValue){.v.u = v}); }
static int put_text(Export *x, const char *key, Text v) { return put(x, key, META_STRING, (MetaValue){.v.s = v}); }
static int put_array(Export *x, const char *key, MetaType type, int64_t n, const void *data) {
    MetaValue v = {.v.a = {.type = type, .n = (uint64_t)n}};
    if (type == META_STRING) v.v.a.strings = data;
    else v.v.a.data = data;
    return put(x, key, META_ARRAY, v);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static const char space[] = "\xE2\x96\x81"; /* U+2581, which stands for a space */
enum { SPACE = 3, PAD_NAME = 20 };

static size_t text_as_it_is(Text s, TokenType type, char *to) {
    (void)type;
    memcpy(to, s.data, s.size);
    return s.size;
}

/* SentencePiece's user-defined tokens are looked for in the text before its spaces become U+2581. */
static size_t text_of_piece(Text s, TokenType type, char *to) {
    return type == TOKEN_USER_DEFINED ? token_copy_spaced(s, to, s.size) : text_as_it_is(s, type, to);
}

/* BERT's "##ing" and "in" are "ing" and "_in", so to speak. */
static size_t text_of_word(Text s, TokenType type, char *to) {
    if (type != TOKEN_NORMAL) return text_as_it_is(s, type, to);
    if (s.size > 2 && !memcmp(s.data, "##", 2)) return text_as_it_is((Text){s.data + 2, s.size - 2}, type, to);
    memcpy(to, space, SPACE);
    return SPACE + text_as_it_is(s, type, to + SPACE);
}

static void set_types(Export *x) {
    for (int64_t i = 0; i < x->n; i++)
        x->type[i] = i < x->vocab.n && x->vocab.all[i].size ? TOKEN_NORMAL : TOKEN_UNUSED;
    for (int32_t i = 0; i < x->added.n; i++)
        if (x->added.at[i].id < x->n)
            x->type[x->added.at[i].id] = x->added.at[i].special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
}

/* Ids without a token, up to the rows of the embedding, get names. */
static int put_tokens(Export *x) {
    size_t bytes = 1;
    for (int64_t i = 0; i < x->n; i++) bytes += PAD_NAME + (i < x->vocab.n ? x->vocab.all[i].size : 0);
    char *at = model_file_alloc(x->to, bytes, x->e);
    if (!at) return -1;
    for (int64_t i = 0; i < x->n; i++) {
        size_t size = x->type[i] == TOKEN_UNUSED ? (size_t)snprintf(at, PAD_NAME, "[PAD%" PRId64 "]", i)
                                                 : x->kind->text(x->vocab.all[i], (TokenType)x->type[i], at);
        x->token[i] = (Text){at, size};
        at += size;
    }
    return put_text(x, "tokenizer.ggml.model", hf_string(x->kind->model)) ||
                   put_array(x, "tokenizer.ggml.tokens", META_STRING, x->n, x->token) ||
                   put_array(x, "tokenizer.ggml.token_type", META_I32, x->n, x->type)
               ? -1
               : 0;
}

/* ---- byte-level BPE ---------------------------------------------------------------------------------------------- */

/* The two texts of a merge: a pair, or with a space between. */
static void merge_texts(const cJSON *v, Text *left, Text *right) {
    const cJSON *pair = cJSON_IsArray(v) ? v->child : NULL;
    *left = hf_string(pair ? pair->valuestring : v->valuestring);
    const char *between = pair ? NULL : memchr(left->data, ' ', left->size);
    *right = hf_string(pair ? pair->next->valuestring : between ? between + 1 : "");
    if (between) left->size = (size_t)(between - left->data);
}

/* Copied, as "LEFT RIGHT". */
static int put_merges(Export *x) {
    const cJSON *merges = hf_json_get(x->model, "merges");
    size_t n = (size_t)cJSON_GetArraySize(merges), i = 0, bytes = 1;
    Text left, right;
    for (const cJSON *v = merges->child; v; v = v->next, bytes += left.size + right.size + 1)
        merge_texts(v, &left, &right);
    Text *text = model_file_alloc(x->to, n * sizeof *text, x->e);
    char *at = text ? model_file_alloc(x->to, bytes, x->e) : NULL;
    if (!at) return -1;
    for (const cJSON *v = merges->child; v; v = v->next) {
        merge_texts(v, &left, &right);
        if (memchr(left.data, ' ', left.size) || memchr(right.data, ' ', right.size))
            return cannot(x, "its merges have spaces in them");
        text[i++] = (Text){at, left.size + right.size + 1};
        memcpy(at, left.data, left.size);
        at[left.size] = ' ';
        memcpy(at + left.size + 1, right.data, right.size);
        at += left.size + right.size + 1;
    }
    return put_array(x, "tokenizer.ggml.merges", META_STRING, (int64_t)n, text);
}

static int more_byte_level(Export *x) {
    const cJSON *pre = hf_json_get(x->json, "pre_tokenizer");
    bool ignore = cJSON_IsTrue(hf_json_get(x->model, "ignore_merges"));
    Text name;
    if (hf_probe_pretokenizer(pre, x->probe, ignore, &name, x->e) ||
        (!name.size && hf_probe_pretokenizer(pre, x->probe, !ignore, &name, x->e)))
        return -1;
    if (!name.size) return cannot(x, "GGUF has no pre-tokenizer that cuts text as this one does");
    return put_text(x, "tokenizer.ggml.pre", name) || put_merges(x) ? -1 : 0;
}

/* ---- SentencePiece's BPE ----------------------------------------------------------------------------------------- */

/* The id of what a merge makes. */
static int32_t merged(const Vocab *v, const cJSON *merge) {
    Text left, right;
    merge_texts(merge, &left, &right);
    uint64_t hash = name_hash(name_hash(NAME_HASH_START, left.data, left.size), right.data, right.size);
    return (int32_t)name_map_find_joined(&v->ids, hash, left, right);
}

/* Scores that order tokens as the merges that make them are ordered: the same score for tokens whose merges are mixed,
 * as SentencePiece's tokens of equal score come out. */
static int put_scores(Export *x, const Vocab *v) {
    const cJSON *merges = hf_json_get(x->model, "merges");
    float *score = model_file_alloc(x->to, (size_t)x->n * sizeof *score, x->e), rank = 0;
    int32_t *last = calloc((size_t)x->n, sizeof *last); /* the number of a token's last merge */
    int32_t *made = malloc(((size_t)cJSON_GetArraySize(merges) + 1) * sizeof *made), n = 0, end = -1;
    for (const cJSON *m = merges->child; m && score && last && made; m = m->next) {
        int32_t id = merged(v, m);
        if (id < 0 || id >= x->n || x->type[id] == TOKEN_CONTROL) continue;
        made[n] = id;
        last[id] = n++;
    }
    for (int32_t i = 0; i < n; i++) {
        if (score[made[i]] < 0) continue;
        if (i > end) rank++;
        score[made[i]] = -rank;
        if (last[made[i]] > end) end = last[made[i]];
    }
    int failed = score && last && made ? put_array(x, "tokenizer.ggml.scores", META_F32, x->n, score)
                                       : err_set(x->e, "out of memory for the scores of the tokens");
    free(last);
    free(made);
    return failed;
}

/* Whether a text gets a space in front. */
static int prefix(Export *x, bool *space_before) {
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(x->theirs, "a", 1, false, false, &ids, &n, x->e)) return -1;
    Text first = n ? x->vocab.all[ids[0]] : (Text){0};
    *space_before = first.size >= SPACE && !memcmp(first.data, space, SPACE);
    free(ids);
    return 0;
}

static int more_pieces(Export *x) {
    Vocab v;
    bool space_before;
    const char *unknown = cJSON_GetStringValue(hf_json_get(x->model, "unk_token"));
    if (!cJSON_IsTrue(hf_json_get(x->model, "byte_fallback")))
        return cannot(x, "GGUF has no BPE without bytes, neither as letters nor as tokens");
    int failed = vocab_from_texts(&v, "tokenizer.json", x->vocab.model, x->vocab.n, "model.vocab", x->e) ||
                 put_scores(x, &v) || prefix(x, &space_before) ||
                 put_bool(x, "tokenizer.ggml.add_space_prefix", space_before) ||
                 put_text(x, "tokenizer.ggml.pre", hf_string("default"));
    for (int64_t i = 0; i < x->n && !failed; i++)
        if (x->type[i] == TOKEN_NORMAL && token_named_byte(x->token[i]) >= 0) x->type[i] = TOKEN_BYTE;
    int32_t id = !failed && unknown ? vocab_find(&v, unknown, strlen(unknown)) : -1;
    if (id >= 0 && id < x->n) {
        x->type[id] = TOKEN_UNKNOWN;
        failed = put_id(x, "tokenizer.ggml.unknown_token_id", id);
    }
    vocab_free(&v);
    return failed ? -1 : 0;
}

/* GGUF makes a merge of every way to cut a token in two; a tokenizer that was trained to have fewer is another one. */
static int check_merges(Export *x, const Tokenizer *made) {
    const cJSON *merges = hf_json_get(x->model, "merges");
    if (merges_count_cuts(&made->vocab) > (size_t)cJSON_GetArraySize(merges))
        return cannot(x, "its merges do not follow from its tokens");
    return 0;
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

static int more_words(Export *x) {
    const cJSON *n = hf_json_get(x->json, "normalizer");
    const FileTensor *kinds = file_tensor(x->from, "token_types.weight");
    const char *unknown = cJSON_GetStringValue(hf_json_get(x->model, "unk_token"));
    int32_t id = -1;
    for (int64_t i = 0; unknown && i < x->vocab.n && id < 0; i++)
        if (hf_is(x->vocab.all[i], unknown)) id = (int32_t)i;
    if (put_text(x, "tokenizer.ggml.pre", hf_string("default")) ||
        put_bool(x, "tokenizer.ggml.normalizer.lowercase", !cJSON_IsFalse(hf_json_get(n, "lowercase"))) ||
        (id >= 0 && put_id(x, "tokenizer.ggml.unknown_token_id", id)))
        return -1;
    return kinds ? put_id(x, "tokenizer.ggml.token_type_count", (int64_t)kinds->dims[1]) : 0;
}

/* ---- which kind -------------------------------------------------------------------------------------------------- */

static const Kind byte_level = {"gpt2", text_as_it_is, more_byte_level};
static const Kind pieces = {"llama", text_of_piece, more_pieces};
static const Kind words = {"bert", text_of_word, more_words};

static bool has_byte_level(const cJSON *pre) {
    const char *type = cJSON_GetStringValue(hf_json_get(pre, "type"));
    const cJSON *list = hf_json_get(pre, "pretokenizers");
    if (type && !strcmp(type, "ByteLevel")) return true;
    for (const cJSON *v = list ? list->child : NULL; v; v = v->next)
        if (has_byte_level(v)) return true;
    return false;
}

static int find_kind(Export *x) {
    Text type = hf_model_type(x->model);
    if (hf_is(type, "BPE")) x->kind = has_byte_level(hf_json_get(x->json, "pre_tokenizer")) ? &byte_level : &pieces;
    else if (hf_is(type, "WordPiece")) x->kind = &words;
    else return cannot(x, "a model of kind %s is not written", text_printable(type).text);
    return 0;
}

/* ---- what stands around a text ----------------------------------------------------------------------------------- */

static int put_frame(Export *x) {
    const Tokenizer *t = x->theirs;
    bool is_words = x->kind == &words;
    if (t->n_before > 1 || t->n_after > 1) return cannot(x, "it puts more than one token before or after a text");
    if (put_bool(x, "tokenizer.ggml.add_bos_token", t->n_before == 1) ||
        put_bool(x, is_words ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token", t->n_after == 1) ||
        (t->n_before && put_id(x, "tokenizer.ggml.bos_token_id", t->before[0])) ||
        (t->n_after &&
         put_id(x, is_words ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id", t->after[0])))
        return -1;
    return 0;
}

/* What ends a turn besides a text: programs that know of no list know of these two. */
static int put_ends(Export *x) {
    static const char *const keys[] = {NULL, "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const MetaValue *ends = NULL;
    if (meta_get_array(x->from, "sheaf.end_token_ids", false, META_I32, &ends, x->e)) return -1;
    for (uint64_t i = 1; ends && i < ends->v.a.n && i < sizeof keys / sizeof *keys; i++) {
        int64_t id = meta_array_i64(ends, i);
        if (id < x->n && put_id(x, keys[i], id)) return -1;
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int compare(Export *x, Tokenizer *made, Text text) {
    bool same;
    size_t at;
    if (hf_probe_same(x->theirs, made, text, &same, &at, x->e)) return -1;
    if (same) return 0;
    size_t end = at < text.size ? at : text.size, begin = end > 8 ? end - 8 : 0;
    return cannot(x, "GGUF's tokenizer would give other tokens for a text with \"%s\"",
                  text_printable((Text){text.data + begin, (size_t)i64_min((int64_t)(text.size - begin), 24)}).text);
}

/* The text of every token, as far as it is text. */
static int compare_tokens(Export *x, Tokenizer *made) {
    char bytes[1024];
    StrBuf normal = {0};
    int failed = 0;
    for (int64_t i = 0; i < x->n && !failed; i++) {
        size_t n = tokenizer_bytes(x->theirs, (int32_t)i, true, bytes, sizeof bytes);
        if (n == 0 || n > sizeof bytes || utf8_check(bytes, n) < n) continue;
        normal.len = 0;
        failed = unicode_normalize(UNICODE_NFC, bytes, n, &normal, x->e) ||
                 compare(x, made, (Text){normal.data, normal.len});
    }
    strbuf_free(&normal);
    return failed ? -1 : 0;
}

static int check(Export *x) {
    Tokenizer *made = NULL;
    Err err;
    if (model_file_map_values(x->to, x->e)) return -1;
    if (tokenizer_from_gguf(x->to, &made, &err)) return cannot(x, "%s", err.msg);
    int failed = (x->kind == &pieces && check_merges(x, made)) || compare(x, made, x->probe) || compare_tokens(x, made);
    tokenizer_free(made);
    return failed ? -1 : 0;
}

static int export(Export *x, Text json, int64_t rows) {
    StrBuf probe = {0};
    const char *name = "tokenizer.json";
    x->n = rows;
    x->token = model_file_alloc(x->to, (size_t)x->n * sizeof *x->token, x->e);
    x->type = model_file_alloc(x->to, (size_t)x->n * sizeof *x->type, x->e);
    if (!x->token || !x->type || tokenizer_from_json_memory(json.data, json.size, name, rows, &x->theirs, x->e) ||
        hf_json_parse(json.data, json.size, &x->json, x->e))
        return -1;
    x->model = hf_json_get(x->json, "model");
    if (hf_added_read(&x->added, hf_json_get(x->json, "added_tokens"), HF_MAX_ID, x->e) ||
        hf_vocab_create(&x->vocab, hf_json_get(x->model, "vocab"), &x->added, x->e) || find_kind(x))
        return -1;
    set_types(x);
    int failed = hf_probe_text(&probe, x->e);
    x->probe = (Text){probe.data, probe.len};
    if (!failed) failed = put_tokens(x) || x->kind->more(x) || put_frame(x) || put_ends(x) || check(x);
    strbuf_free(&probe);
    return failed ? -1 : 0;
}

int hf_to_gguf(const ModelFile *m, int64_t rows, ModelFile **out, Err *why, Err *e) {
    Text json;
    *out = NULL;
    if (meta_get_string(m, "tokenizer.huggingface.json", true, &json, e)) return -1;
    Export x = {.from = m, .why = why, .e = e, .to = model_file_new(model_file_path(m), "GGUF", e)};
    int failed = !x.to || export(&x, json, rows);
    hf_added_free(&x.added);
    hf_vocab_free(&x.vocab);
    cJSON_Delete(x.json);
    tokenizer_free(x.theirs);
    if (!failed) *out = x.to;
    else model_file_close(x.to);
    return failed && !x.cannot ? -1 : 0;
}
