/* Small vocabularies of each kind of tokenizer that GGUF has, for tests; with what a test changes. */
#pragma once

#include "gguf_writer.h"

typedef struct SmallVocab {
    const char *model;                     /* tokenizer.ggml.model */
    const char *architecture, *pre, *name; /* general.architecture, tokenizer.ggml.pre, general.name; NULL: no key */
    struct {
        const char *text; /* NULL ends the list */
        int type;         /* as tokenizer.ggml.token_type numbers them; 0: normal (1) */
        float score;
    } tokens[32];
    const char *merges[8]; /* NULL-terminated; none: no key */
    bool no_scores;
    struct {
        const char *key; /* after "tokenizer.ggml."; NULL ends the list */
        int value;       /* -1: false, -2: true, else an id */
    } keys[8];
} SmallVocab;

enum { SMALL_FALSE = -1, SMALL_TRUE = -2 };

#define SP "\xE2\x96\x81" /* U+2581 */

/* Merging by scores: the bytes of e with an acute accent, a user-defined token, and <s> that must not be merged. */
static const SmallVocab small_spm = {
    .model = "llama",
    .tokens = {{"<unk>", 2, 0},
               {"<s>", 3, 0},
               {"</s>", 3, 0},
               {"<0xC3>", 6, 0},
               {"<0xA9>", 6, 0},
               {SP, 0, -9},
               {"a", 0, -9},
               {"b", 0, -9},
               {"ab", 0, -1},
               {SP "a", 0, -3},
               {SP "ab", 0, -2},
               {"[x]", 4, 0},
               {"<", 0, -9},
               {"s", 0, -9},
               {">", 0, -9},
               {"s>", 0, -4},
               {"\n", 0, -9}},
};

/* A list of merges, and runs of line ends that are tokens. */
static const SmallVocab small_text_bpe = {
    .model = "gemma4",
    .tokens = {{"<pad>", 3, 0},
               {"<eos>", 3, 0},
               {"<bos>", 3, 0},
               {"<0xC3>", 6, 0},
               {"<0xA9>", 6, 0},
               {SP, 0, 0},
               {"a", 0, 0},
               {"b", 0, 0},
               {"ab", 0, 0},
               {SP "ab", 0, 0},
               {"\n", 0, 0},
               {"\n\n", 0, 0}},
    .merges = {"a b", SP " ab"},
    .no_scores = true,
    .keys = {{"bos_token_id", 2}, {"eos_token_id", 1}},
};

/* A unigram model without a table of replacements. */
static const SmallVocab small_ugm = {
    .model = "t5",
    .tokens = {{"<pad>", 3, 0},
               {"</s>", 3, 0},
               {"<unk>", 2, 0},
               {SP, 0, -2},
               {"a", 0, -3},
               {"b", 0, -3},
               {"ab", 0, -5},
               {SP "a", 0, -4},
               {"[x]", 4, 0},
               {"ba", 5, -1}},
};

static const SmallVocab small_wpm = {
    .model = "bert",
    .tokens = {{"[PAD]", 3, 0},
               {"[UNK]", 2, 0},
               {"[CLS]", 3, 0},
               {"[SEP]", 3, 0},
               {SP "he", 0, 0},
               {"llo", 0, 0},
               {SP ",", 0, 0},
               {SP "a", 0, 0},
               {"a", 0, 0},
               {SP "\xE6\x97\xA5", 0, 0},
               {SP "Hi", 0, 0}},
    .no_scores = true,
    .keys = {{"unknown_token_id", 1}, {"cls_token_id", 2}, {"seperator_token_id", 3}},
};

/* The keys of the vocabulary into `w`. */
static inline void small_vocabulary(GgufWriter *w, const SmallVocab *v) {
    const char *texts[32];
    int32_t types[32];
    float scores[32];
    uint64_t n = 0, merges = 0;
    for (; v->tokens[n].text; n++) {
        texts[n] = v->tokens[n].text;
        types[n] = v->tokens[n].type ? v->tokens[n].type : 1;
        scores[n] = v->tokens[n].score;
    }
    while (v->merges[merges]) merges++;
    if (v->architecture) gw_string(w, "general.architecture", v->architecture);
    if (v->name) gw_string(w, "general.name", v->name);
    gw_string(w, "tokenizer.ggml.model", v->model);
    if (v->pre) gw_string(w, "tokenizer.ggml.pre", v->pre);
    gw_strings(w, "tokenizer.ggml.tokens", n, texts);
    gw_array(w, "tokenizer.ggml.token_type", GW_I32, n, types, sizeof *types);
    if (!v->no_scores) gw_array(w, "tokenizer.ggml.scores", GW_F32, n, scores, sizeof *scores);
    if (merges) gw_strings(w, "tokenizer.ggml.merges", merges, v->merges);
    for (int i = 0; v->keys[i].key; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", v->keys[i].key);
        if (v->keys[i].value < 0) gw_bool(w, key, v->keys[i].value == SMALL_TRUE);
        else gw_u32(w, key, (uint32_t)v->keys[i].value);
    }
}

/* The file, malloc'ed. */
static inline uint8_t *small_gguf(const SmallVocab *v, size_t *size) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    small_vocabulary(&w, v);
    uint8_t *bytes = gw_finish(&w, size);
    gw_free(&w);
    return bytes;
}
