/* Special tokens that take the white space beside them. In Hugging Face's files each token has flags for it ("lstrip",
 * "rstrip"); GGUF has none, and the tokens are known by the models they belong to, as in llama.cpp. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/tokenizer_internal.h"

/* A mask takes what is before it. */
static const struct {
    const char *key, *value, *token;
} masks[] = {
    {"tokenizer.ggml.pre", "roberta-bpe", "<mask>"},      {"tokenizer.ggml.pre", "jina-v2-code", "<mask>"},
    {"tokenizer.ggml.pre", "jina-v2-de", "<mask>"},       {"tokenizer.ggml.pre", "jina-v2-es", "<mask>"},
    {"general.architecture", "nomic-bert-moe", "<mask>"}, {"general.architecture", "jina-bert-v3", "<mask>"},
    {"general.architecture", "modern-bert", "[MASK]"},    {"tokenizer.ggml.pre", "modern-bert", "[MASK]"},
};

static int value_is(const ModelFile *g, const char *key, const char *value, bool *is, Err *e) {
    Text have = {0};
    if (meta_get_string(g, key, false, &have, e)) return -1;
    *is = have.size == strlen(value) && !memcmp(have.data, value, have.size);
    return 0;
}

static bool has_word(Text text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.size; i++)
        if (!strncasecmp(text.data + i, word, n)) return true;
    return false;
}

/* Phi 3's with SentencePiece's vocabulary: by architecture, or, where that is another one, by name. */
static int is_phi3(const ModelFile *g, bool *is, Err *e) {
    Text name = {0};
    bool spm, phi3, moe;
    if (value_is(g, "tokenizer.ggml.model", "llama", &spm, e) ||
        value_is(g, "general.architecture", "phi3", &phi3, e) ||
        value_is(g, "general.architecture", "phimoe", &moe, e) || meta_get_string(g, "general.name", false, &name, e))
        return -1;
    *is = spm && (phi3 || moe || has_word(name, "phi-3") || has_word(name, "phi3"));
    return 0;
}

/* All but three take what is behind them. */
static void strip_right(const Vocab *v, uint8_t *strips) {
    static const char *const none[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int64_t i = 0; i < v->n; i++)
        if (v->types[i] == TOKEN_CONTROL || v->types[i] == TOKEN_UNKNOWN || v->types[i] == TOKEN_USER_DEFINED)
            strips[i] = TOKEN_RIGHT;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        int32_t id = vocab_find(v, none[i], strlen(none[i]));
        if (id >= 0) strips[id] = 0;
    }
}

int tokenizer_strips(const ModelFile *g, const Vocab *v, uint8_t **strips, Err *e) {
    int32_t mask = -1;
    bool phi3;
    if (is_phi3(g, &phi3, e)) return -1;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        bool is;
        if (value_is(g, masks[i].key, masks[i].value, &is, e)) return -1;
        if (is) mask = vocab_find(v, masks[i].token, strlen(masks[i].token));
    }
    if (!phi3 && mask < 0) return 0;
    *strips = calloc((size_t)v->n, 1);
    if (!*strips) return err_set(e, "%s: out of memory for its tokenizer", v->file);
    if (phi3) strip_right(v, *strips);
    if (mask >= 0) (*strips)[mask] = TOKEN_LEFT;
    return 0;
}
