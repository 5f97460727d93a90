/* Tiny models of the architectures beside llama, with random weights: which metadata and tensors a file of each has. */
#pragma once

#include "tiny_model.h"

typedef struct TinyVariant {
    const char *arch;
    int layers, width, heads, kv_heads, head_dim, ffn, vocab;
    QType qtype;
    bool biases;                /* of Q, K, V */
    int norms_of;               /* Q and K have norms: 1 of each head, 2 of all; 0: none */
    bool pre_norms, post_norms; /* of attention and feed-forward */
    bool fused;                 /* Q, K, V in one tensor; gate and up in one */
    bool tied_head;
    int window;                 /* 0: no such key */
    const char *scaling;        /* "linear", "yarn"; NULL: none */
    double factor;              /* of the scaling */
    int original;               /* context before YaRN */
    const float *rope_factors;  /* [head_dim / 2] or NULL */
    float score_cap, logit_cap; /* 0: no such key */
    double base, window_base;   /* 0: no such key */
} TinyVariant;

static inline const char *variant_key(const TinyVariant *m, const char *key) {
    static char full[96];
    snprintf(full, sizeof full, "%s.%s", m->arch, key);
    return full;
}

static inline void variant_metadata(GgufWriter *w, const TinyVariant *m) {
    const struct {
        const char *key;
        int value;
    } numbers[] = {{"block_count", m->layers},
                   {"context_length", 512},
                   {"embedding_length", m->width},
                   {"feed_forward_length", m->ffn},
                   {"attention.head_count", m->heads},
                   {"attention.head_count_kv", m->kv_heads},
                   {"attention.key_length", m->head_dim},
                   {"rope.dimension_count", m->head_dim},
                   {"attention.sliding_window", m->window},
                   {"rope.scaling.original_context_length", m->original}};
    const struct {
        const char *key;
        double value;
    } reals[] = {{"attention.layer_norm_rms_epsilon", 1e-5},       {"rope.freq_base", m->base},
                 {"rope.freq_base_swa", m->window_base},           {"rope.scaling.factor", m->factor},
                 {"attn_logit_softcapping", (double)m->score_cap}, {"final_logit_softcapping", (double)m->logit_cap}};
    gw_string(w, "general.architecture", m->arch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value) gw_u32(w, variant_key(m, numbers[i].key), (uint32_t)numbers[i].value);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (reals[i].value != 0) gw_f32(w, variant_key(m, reals[i].key), (float)reals[i].value);
    if (m->scaling) gw_string(w, variant_key(m, "rope.scaling.type"), m->scaling);
}

/* rows 0: a vector of `columns` around 1, or around 0 when it is a bias. */
static inline void variant_tensor(GgufWriter *w, const TinyVariant *m, int layer, const char *what, int rows,
                                  int columns, uint64_t *state) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, what);
    bool bias = strstr(what, "bias") != NULL;
    if (rows) tiny_weight(w, name, m->qtype, rows, columns, 0, sqrtf(3.0f / (float)columns), state);
    else tiny_weight(w, name, QT_F32, 0, columns, bias ? 0 : 1.0f, bias ? 0.5f : 0.2f, state);
}

static inline void variant_layer(GgufWriter *w, const TinyVariant *m, int l, uint64_t *state) {
    int q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim, d = m->width;
    const struct {
        bool there;
        const char *name;
        int rows, columns;
    } tensors[] = {{m->pre_norms, "attn_norm.weight", 0, d},
                   {m->fused, "attn_qkv.weight", q + 2 * kv, d},
                   {!m->fused, "attn_q.weight", q, d},
                   {!m->fused, "attn_k.weight", kv, d},
                   {!m->fused, "attn_v.weight", kv, d},
                   {m->biases, "attn_q.bias", 0, q},
                   {m->biases, "attn_k.bias", 0, kv},
                   {m->biases, "attn_v.bias", 0, kv},
                   {m->norms_of != 0, "attn_q_norm.weight", 0, m->norms_of == 1 ? m->head_dim : q},
                   {m->norms_of != 0, "attn_k_norm.weight", 0, m->norms_of == 1 ? m->head_dim : kv},
                   {true, "attn_output.weight", d, q},
                   {m->post_norms, "post_attention_norm.weight", 0, d},
                   {m->pre_norms, "ffn_norm.weight", 0, d},
                   {!m->fused, "ffn_gate.weight", m->ffn, d},
                   {true, "ffn_up.weight", m->fused ? 2 * m->ffn : m->ffn, d},
                   {true, "ffn_down.weight", d, m->ffn},
                   {m->post_norms, "post_ffw_norm.weight", 0, d}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].there) variant_tensor(w, m, l, tensors[i].name, tensors[i].rows, tensors[i].columns, state);
}

/* Everything into the writer, which the caller has initialised. */
static inline void variant_build(GgufWriter *w, const TinyVariant *m) {
    uint64_t state = 42, half = (uint64_t)m->head_dim / 2;
    float size = sqrtf(3.0f / (float)m->width);
    variant_metadata(w, m);
    tiny_vocabulary(w, m->vocab);
    tiny_weight(w, "token_embd.weight", m->qtype, m->vocab, m->width, 0, size, &state);
    tiny_weight(w, "output_norm.weight", QT_F32, 0, m->width, 4.0f, 0.8f, &state);
    if (!m->tied_head) tiny_weight(w, "output.weight", m->qtype, m->vocab, m->width, 0, size, &state);
    if (m->rope_factors) gw_tensor(w, "rope_freqs.weight", 0, 1, &half, m->rope_factors, half * sizeof(float));
    for (int l = 0; l < m->layers; l++) variant_layer(w, m, l, &state);
}

/* Writes the model; false when the file cannot be written. */
static inline bool variant_write(const char *path, const TinyVariant *m) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    variant_build(&w, m);
    bool ok = gw_write(&w, path);
    gw_free(&w);
    return ok;
}
