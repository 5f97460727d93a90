#include "engine/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/utf8.h"

static int out_of_memory(const Vocab *v, Err *e) { return err_set(e, "%s: out of memory for its tokenizer", v->file); }

int vocab_from_texts(Vocab *v, const char *file, const Text *tokens, int64_t n, const char *array, Err *e) {
    *v = (Vocab){.file = file, .tokens = tokens, .n = n};
    size_t twin[2] = {0, 0};
    int r = name_map_build(&v->ids, tokens, sizeof *tokens, (size_t)n, true, twin);
    if (r > 0)
        return err_set(e, "%s: tokens %zu and %zu of %s are both \"%s\"", file, twin[0], twin[1], array,
                       text_printable(tokens[twin[0]]).text);
    if (r) return out_of_memory(v, e);
    v->types = malloc((size_t)n);
    v->ends = calloc((size_t)n, sizeof *v->ends);
    if (!v->types || !v->ends) return out_of_memory(v, e);
    for (int64_t i = 0; i < n; i++) v->types[i] = tokens[i].size ? TOKEN_NORMAL : TOKEN_UNUSED;
    return 0;
}

static int read_types(Vocab *v, const ModelFile *g, Err *e) {
    const MetaValue *a = NULL;
    if (meta_get_array(g, "tokenizer.ggml.token_type", false, META_I32, &a, e)) return -1;
    if (a && a->v.a.n != (uint64_t)v->n)
        return err_set(e, "%s: tokenizer.ggml.token_type has %" PRIu64 " entries for %" PRId64 " tokens", v->file,
                       a->v.a.n, v->n);
    for (int64_t i = 0; i < v->n; i++) {
        int64_t type = a ? meta_array_i64(a, (uint64_t)i) : TOKEN_NORMAL;
        if (type < 0 || type >= TOKEN_TYPES)
            return err_set(e, "%s: tokenizer.ggml.token_type: token %" PRId64 " has type %" PRId64 ", unknown", v->file,
                           i, type);
        v->types[i] = (uint8_t)type;
    }
    return 0;
}

int vocab_from_gguf(Vocab *v, const ModelFile *g, Err *e) {
    const MetaValue *a = NULL;
    if (meta_get_array(g, "tokenizer.ggml.tokens", true, META_STRING, &a, e)) return -1;
    if (a->v.a.n == 0 || a->v.a.n > INT32_MAX)
        return err_set(e, "%s: tokenizer.ggml.tokens has %" PRIu64 " tokens", model_file_path(g), a->v.a.n);
    if (vocab_from_texts(v, model_file_path(g), a->v.a.strings, (int64_t)a->v.a.n, "tokenizer.ggml.tokens", e))
        return -1;
    return read_types(v, g, e);
}

void vocab_free(Vocab *v) {
    name_map_free(&v->ids);
    free(v->types);
    free(v->ends);
    *v = (Vocab){0};
}

int vocab_id_key(const Vocab *v, const ModelFile *g, const char *key, int32_t *out, Err *e) {
    char name[64];
    int64_t id = *out;
    snprintf(name, sizeof name, "tokenizer.ggml.%s", key);
    if (meta_get_i64(g, name, false, 0, v->n - 1, &id, e)) return -1;
    *out = (int32_t)id;
    return 0;
}

int vocab_scores(const Vocab *v, const ModelFile *g, float **out, Err *e) {
    const MetaValue *a = NULL;
    *out = NULL;
    if (meta_get_array(g, "tokenizer.ggml.scores", true, META_F32, &a, e)) return -1;
    if (a->v.a.n != (uint64_t)v->n)
        return err_set(e, "%s: tokenizer.ggml.scores has %" PRIu64 " entries for %" PRId64 " tokens", v->file, a->v.a.n,
                       v->n);
    float *scores = malloc((size_t)v->n * sizeof *scores);
    if (!scores) return out_of_memory(v, e);
    for (int64_t i = 0; i < v->n; i++) {
        scores[i] = (float)meta_array_f64(a, (uint64_t)i);
        if (isfinite(scores[i])) continue;
        free(scores);
        return err_set(e, "%s: tokenizer.ggml.scores: token %" PRId64 " has no finite score", v->file, i);
    }
    *out = scores;
    return 0;
}

bool vocab_is_text(const Vocab *v, int64_t id) {
    Text s = v->tokens[id];
    return s.size > 0 && utf8_check(s.data, s.size) == s.size;
}

/* Texts that end a text or a turn in the models that llama.cpp knows, or a piece of code to be filled in
 * (https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp), unless they are ordinary tokens. */
static const char *const end_texts[] = {
    "<|endoftext|>", "<|end_of_text|>",
    "<|im_end|>",    "<|eot_id|>",
    "<|eom_id|>",    "<|end|>",
    "<|return|>",    "<end_of_turn>",
    "<eos>",         "</s>",
    "<EOT>",         "_<EOT>",
    "<|fim_pad|>",   "<fim-pad>",
    "<fim_pad>",     "<PAD>",
    "<|fim_repo|>",  "<|repo_name|>",
    "<fim-repo>",    "<REPO>",
    "<reponame>",    "<|file_sep|>",
    "[EOT]",         "[EOS]",
    "<turn|>",       "<end_of_utterance>",
};

void vocab_mark_ends(Vocab *v) {
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        int32_t id = vocab_find(v, end_texts[i], strlen(end_texts[i]));
        /* As user-defined tokens, "</s>" is HTML's in Gemma and nothing in Phi 3. */
        bool other = !strcmp(end_texts[i], "</s>");
        if (id >= 0 && (v->types[id] == TOKEN_CONTROL || (v->types[id] == TOKEN_USER_DEFINED && !other)))
            v->ends[id] = true;
    }
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int token_named_byte(Text s) {
    if (s.size != 6 || memcmp(s.data, "<0x", 3) || s.data[5] != '>') return -1;
    int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

void vocab_find_bytes(const Vocab *v, int32_t id[256]) {
    char name[8];
    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        id[b] = vocab_find(v, name, 6);
    }
}
