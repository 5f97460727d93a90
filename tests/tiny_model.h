/* A complete model of the llama architecture, small and with random weights (fixed by a seed), written to a file: for
 * tests that run the whole engine in milliseconds. Its tokenizer is a byte-level BPE one: 3 control tokens, the 256
 * bytes, then merges. Needs the quant layer. */
#pragma once

#include <math.h>

#include "gguf_writer.h"
#include "quant/qtype.h"

typedef struct TinyModel {
    int layers, heads, kv_heads;
    int width, ffn; /* multiples of the type's group; width also of heads */
    int vocab;      /* ids; at least TINY_VOCAB_MIN */
    int context;    /* 0: 256 */
    QType qtype;    /* of the matrices and the embedding; norms are F32 */
    bool tied_head; /* no output.weight: the embedding serves */
    uint64_t seed;
    const char *chat_template; /* NULL: none */
    int window;                /* of attention; 0: none */
    int experts, used;         /* each layer is a mixture; 0: none is */
    bool fused;                /* gate and up of its experts in one tensor */
} TinyModel;

enum { TINY_VOCAB_MIN = 3 + 256, TINY_ENDOFTEXT = 0, TINY_IM_START = 1, TINY_IM_END = 2, TINY_FIRST_BYTE = 3 };

/* GPT-2's letter for a byte, as UTF-8: printable Latin-1 stands for itself, the other 68 are U+0100 onwards
 * (https://github.com/openai/gpt-2/blob/master/src/encoder.py, bytes_to_unicode). */
static inline int tiny_byte_letter(int byte, char out[3]) {
    int next = 0x100, letter = 0;
    for (int b = 0; b <= byte; b++) {
        int printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        letter = printable ? b : next++;
    }
    int n = 0;
    if (letter < 0x80) {
        out[n++] = (char)letter;
    } else {
        out[n++] = (char)(0xC0 | letter >> 6);
        out[n++] = (char)(0x80 | (letter & 63));
    }
    out[n] = 0;
    return n;
}

/* Token `id` of the tiny vocabulary into text[32], and the merge that makes it into merge[32] ("" for none). After the
 * bytes: a space with each small letter, then two small letters in alphabetical order; what is left is unused. Returns
 * the token type as in a GGUF file. */
static inline int tiny_token(int id, char *text, char *merge) {
    static const char *const control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    enum { NORMAL = 1, CONTROL = 3, UNUSED = 5 };
    merge[0] = 0;
    if (id < TINY_FIRST_BYTE) {
        strcpy(text, control[id]);
        return CONTROL;
    }
    int i = id - TINY_FIRST_BYTE;
    if (i < 256) {
        tiny_byte_letter(i, text);
        return NORMAL;
    }
    i -= 256;
    if (i < 26 + 26 * 26) {
        char first[3] = {(char)('a' + (i - 26) / 26), 0, 0};
        char second = (char)('a' + (i < 26 ? i : (i - 26) % 26));
        if (i < 26) tiny_byte_letter(' ', first);
        snprintf(text, 32, "%s%c", first, second);
        snprintf(merge, 32, "%s %c", first, second);
        return NORMAL;
    }
    snprintf(text, 32, "[UNUSED%d]", id);
    return UNUSED;
}

static inline void tiny_vocabulary(GgufWriter *w, int vocab) {
    char(*text)[32] = calloc((size_t)vocab, 32), (*merge)[32] = calloc((size_t)vocab, 32);
    const char **tokens = calloc((size_t)vocab, sizeof *tokens), **merges = calloc((size_t)vocab, sizeof *merges);
    int32_t *types = calloc((size_t)vocab, sizeof *types);
    if (!text || !merge || !tokens || !merges || !types) abort();
    uint64_t n_merges = 0;
    for (int i = 0; i < vocab; i++) {
        types[i] = tiny_token(i, text[i], merge[i]);
        tokens[i] = text[i];
        if (merge[i][0]) merges[n_merges++] = merge[i];
    }
    gw_string(w, "tokenizer.ggml.model", "gpt2");
    gw_string(w, "tokenizer.ggml.pre", "smollm");
    gw_strings(w, "tokenizer.ggml.tokens", (uint64_t)vocab, tokens);
    gw_array(w, "tokenizer.ggml.token_type", GW_I32, (uint64_t)vocab, types, sizeof *types);
    gw_strings(w, "tokenizer.ggml.merges", n_merges, merges);
    gw_u32(w, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gw_u32(w, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gw_bool(w, "tokenizer.ggml.add_bos_token", false);
    free(text);
    free(merge);
    free((void *)tokens);
    free((void *)merges);
    free(types);
}

/* Uniform in [-1, 1): splitmix64 (https://prng.di.unimi.it/splitmix64.c), its top 24 bits. */
static inline float tiny_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (float)(z >> 40) / (float)(1 << 23) - 1.0f;
}

/* rows x columns values: `centre` plus or minus `spread`, in the type asked for. rows 0: a vector. matrices > 0: so
 * many of them in one tensor of three dimensions. */
static inline void tiny_tensor(GgufWriter *w, const char *name, QType type, int matrices, int rows, int columns,
                               float centre, float spread, uint64_t *state) {
    int64_t n = (int64_t)(matrices ? matrices : 1) * (rows ? rows : 1) * columns;
    size_t bytes;
    if (!qtype_bytes(type, (uint64_t)n, &bytes)) abort();
    float *x = calloc((size_t)n, sizeof *x);
    void *data = calloc(1, bytes);
    if (!x || !data) abort();
    for (int64_t i = 0; i < n; i++) x[i] = centre + spread * tiny_random(state);
    qtype_quantise(type, x, n, data);
    uint64_t dims[3] = {(uint64_t)columns, (uint64_t)rows, (uint64_t)matrices};
    gw_tensor(w, name, (uint32_t)qtype_info(type)->gguf_id, matrices ? 3 : rows ? 2 : 1, dims, data, bytes);
    free(x);
    free(data);
}

static inline void tiny_weight(GgufWriter *w, const char *name, QType type, int rows, int columns, float centre,
                               float spread, uint64_t *state) {
    tiny_tensor(w, name, type, 0, rows, columns, centre, spread, state);
}

/* A matrix [rows][columns], as large as keeps the size of what it multiplies: variance 1/columns. */
static inline void tiny_matrix(GgufWriter *w, const TinyModel *m, const char *name, int rows, int columns,
                               uint64_t *state) {
    tiny_weight(w, name, m->qtype, rows, columns, 0.0f, sqrtf(3.0f / (float)columns), state);
}

/* What chooses is F32, and large enough to prefer some experts. */
static inline void tiny_mixture(GgufWriter *w, const TinyModel *m, int layer, uint64_t *state) {
    const struct {
        bool there;
        const char *name;
        int rows, columns;
    } experts[] = {{!m->fused, "ffn_gate_exps", m->ffn, m->width},
                   {!m->fused, "ffn_up_exps", m->ffn, m->width},
                   {m->fused, "ffn_gate_up_exps", 2 * m->ffn, m->width},
                   {true, "ffn_down_exps", m->width, m->ffn}};
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    tiny_weight(w, name, QT_F32, m->experts, m->width, 0.0f, 3.0f * sqrtf(3.0f / (float)m->width), state);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        if (!experts[i].there) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, experts[i].name);
        tiny_tensor(w, name, m->qtype, m->experts, experts[i].rows, experts[i].columns, 0.0f,
                    sqrtf(3.0f / (float)experts[i].columns), state);
    }
}

static inline void tiny_layer(GgufWriter *w, const TinyModel *m, int layer, uint64_t *state) {
    int kv_width = m->width / m->heads * m->kv_heads;
    const struct {
        const char *name;
        int rows, columns;
    } matrices[] = {
        {"attn_q", m->width, m->width},      {"attn_k", kv_width, m->width}, {"attn_v", kv_width, m->width},
        {"attn_output", m->width, m->width}, {"ffn_gate", m->ffn, m->width}, {"ffn_up", m->ffn, m->width},
        {"ffn_down", m->width, m->ffn},
    };
    char name[64];
    size_t n = sizeof matrices / sizeof *matrices - (m->experts ? 3 : 0); /* the last three are the feed-forward part */
    if (m->experts) tiny_mixture(w, m, layer, state);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[i].name);
        tiny_matrix(w, m, name, matrices[i].rows, matrices[i].columns, state);
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    tiny_weight(w, name, QT_F32, 0, m->width, 1.0f, 0.2f, state);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    tiny_weight(w, name, QT_F32, 0, m->width, 1.0f, 0.2f, state);
}

/* Everything into the writer, which the caller has initialised and may add to. */
static inline void tiny_model_build(GgufWriter *w, const TinyModel *m) {
    uint64_t state = m->seed;
    gw_string(w, "general.architecture", "llama");
    gw_string(w, "general.name", "tiny");
    gw_u32(w, "llama.block_count", (uint32_t)m->layers);
    gw_u32(w, "llama.context_length", m->context ? (uint32_t)m->context : 256);
    gw_u32(w, "llama.embedding_length", (uint32_t)m->width);
    gw_u32(w, "llama.feed_forward_length", (uint32_t)m->ffn);
    gw_u32(w, "llama.attention.head_count", (uint32_t)m->heads);
    gw_u32(w, "llama.attention.head_count_kv", (uint32_t)m->kv_heads);
    gw_u32(w, "llama.rope.dimension_count", (uint32_t)(m->width / m->heads));
    gw_f32(w, "llama.rope.freq_base", 10000.0f);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (m->window) gw_u32(w, "llama.attention.sliding_window", (uint32_t)m->window);
    gw_u32(w, "llama.vocab_size", (uint32_t)m->vocab);
    if (m->experts) {
        gw_u32(w, "llama.expert_count", (uint32_t)m->experts);
        gw_u32(w, "llama.expert_used_count", (uint32_t)m->used);
    }
    tiny_vocabulary(w, m->vocab);
    if (m->chat_template) gw_string(w, "tokenizer.chat_template", m->chat_template);
    /* small embeddings, so that the layers, not the last token alone, decide the next one; the large last norm spreads
     * the logits over several units, with either head */
    tiny_weight(w, "token_embd.weight", m->qtype, m->vocab, m->width, 0.0f, sqrtf(3.0f / (float)m->width), &state);
    tiny_weight(w, "output_norm.weight", QT_F32, 0, m->width, 4.0f, 0.8f, &state);
    if (!m->tied_head) tiny_matrix(w, m, "output.weight", m->vocab, m->width, &state);
    for (int i = 0; i < m->layers; i++) tiny_layer(w, m, i, &state);
}

/* Writes the model to `path`; false when the file cannot be written. */
static inline bool tiny_model_write(const char *path, const TinyModel *m) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, m);
    bool ok = gw_write(&w, path);
    gw_free(&w);
    return ok;
}
