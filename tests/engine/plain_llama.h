/* The llama forward pass in plain double arithmetic, straight from its papers (arXiv:2302.13971, 2104.09864,
 * 2305.13245), for one sequence: what the engine's results are compared with. Weights are the file's, dequantised; keys
 * and values are rounded to fp16, as the KV cache holds them. */
#pragma once

#include <math.h>

#include "check.h"
#include "graph/gguf.h"

typedef struct PlainLayer {
    double *attn_norm, *q, *k, *v, *output, *ffn_norm, *gate, *up, *down;
} PlainLayer;

typedef struct PlainLlama {
    int layers, width, heads, kv_heads, head_dim, ffn, vocab;
    double base, eps;
    double *embedding, *norm, *head;
    PlainLayer *layer;
} PlainLlama;

/* A tensor of the file as doubles, malloc'ed; NULL when it is not there. */
static inline double *plain_tensor(const ModelFile *g, FILE *f, const char *name) {
    const FileTensor *t = file_tensor(g, name);
    if (!t) return NULL;
    size_t n = (size_t)(t->dims[0] * t->dims[1]);
    void *raw = malloc(t->bytes);
    float *values = malloc(n * sizeof *values);
    double *out = malloc(n * sizeof *out);
    if (!raw || !values || !out || fseek(f, (long)t->offset, SEEK_SET) || fread(raw, 1, t->bytes, f) != t->bytes)
        abort();
    qtype_dequantise((QType)t->type, raw, (int64_t)n, values);
    for (size_t i = 0; i < n; i++) out[i] = (double)values[i];
    free(raw);
    free(values);
    return out;
}

static inline int plain_number(const ModelFile *g, const char *key) {
    int64_t v = 0;
    Err e;
    if (meta_get_i64(g, key, true, 0, INT32_MAX, &v, &e)) abort();
    return (int)v;
}

static inline PlainLlama plain_load(const char *path) {
    ModelFile *g;
    Err e;
    FILE *f = fopen(path, "rb");
    if (!f || gguf_open(path, &g, &e)) abort();
    PlainLlama m = {.layers = plain_number(g, "llama.block_count"),
                    .width = plain_number(g, "llama.embedding_length"),
                    .heads = plain_number(g, "llama.attention.head_count"),
                    .kv_heads = plain_number(g, "llama.attention.head_count_kv"),
                    .ffn = plain_number(g, "llama.feed_forward_length")};
    if (meta_get_f64(g, "llama.rope.freq_base", true, &m.base, &e)) abort();
    if (meta_get_f64(g, "llama.attention.layer_norm_rms_epsilon", true, &m.eps, &e)) abort();
    m.head_dim = m.width / m.heads;
    m.vocab = (int)file_tensor(g, "token_embd.weight")->dims[1];
    m.embedding = plain_tensor(g, f, "token_embd.weight");
    m.norm = plain_tensor(g, f, "output_norm.weight");
    m.head = plain_tensor(g, f, "output.weight");
    m.layer = calloc((size_t)m.layers, sizeof *m.layer);
    for (int l = 0; l < m.layers; l++) {
        static const char *const names[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                            "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
        PlainLayer *p = &m.layer[l];
        double **to[] = {&p->attn_norm, &p->q, &p->k, &p->v, &p->output, &p->ffn_norm, &p->gate, &p->up, &p->down};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, names[i]);
            *to[i] = plain_tensor(g, f, name);
        }
    }
    model_file_close(g);
    fclose(f);
    return m;
}

static inline void plain_free(PlainLlama *m) {
    for (int l = 0; l < m->layers; l++) {
        PlainLayer *p = &m->layer[l];
        double *all[] = {p->attn_norm, p->q, p->k, p->v, p->output, p->ffn_norm, p->gate, p->up, p->down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
    free(m->layer);
    free(m->embedding);
    free(m->norm);
    free(m->head);
}

/* y[rows] = W[rows][columns] x */
static inline void plain_matmul(const double *w, int rows, int columns, const double *x, double *y) {
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < columns; c++) sum += w[(size_t)r * (size_t)columns + (size_t)c] * x[c];
        y[r] = sum;
    }
}

static inline void plain_norm(const double *x, const double *w, int n, double eps, double *y) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    double r = 1 / sqrt(squares / n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * w[i];
}

/* Adjacent pairs of a head turn by position * base^(-2i/d). */
static inline void plain_rope(double *x, int heads, int dim, int position, double base) {
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < dim / 2; i++) {
            double angle = position * pow(base, -2.0 * i / dim), c = cos(angle), s = sin(angle);
            double *p = x + h * dim + 2 * i, a = p[0], b = p[1];
            p[0] = a * c - b * s;
            p[1] = a * s + b * c;
        }
}

static inline void plain_to_f16(double *x, int n) {
    for (int i = 0; i < n; i++) x[i] = (double)f16_to_f32(f32_to_f16((float)x[i]));
}

/* One query head over positions 0 .. n - 1. keys and values: [position][stride]. */
static inline void plain_attend(const double *q, const double *keys, const double *values, int n, int stride, int dim,
                                double *out) {
    double *score = malloc((size_t)n * sizeof *score), max = -INFINITY, sum = 0;
    for (int t = 0; t < n; t++) {
        score[t] = 0;
        for (int i = 0; i < dim; i++) score[t] += q[i] * keys[(size_t)t * (size_t)stride + (size_t)i];
        score[t] /= sqrt(dim);
        max = fmax(max, score[t]);
    }
    for (int t = 0; t < n; t++) sum += score[t] = exp(score[t] - max);
    for (int i = 0; i < dim; i++) {
        out[i] = 0;
        for (int t = 0; t < n; t++) out[i] += score[t] / sum * values[(size_t)t * (size_t)stride + (size_t)i];
    }
    free(score);
}

static inline void plain_layer(const PlainLlama *m, const PlainLayer *l, double *x, int n) {
    int kv = m->kv_heads * m->head_dim, w = m->width, widest = w > m->ffn ? w : m->ffn;
    double *keys = malloc((size_t)(n * kv) * sizeof *keys), *values = malloc((size_t)(n * kv) * sizeof *values);
    double *h = malloc((size_t)w * sizeof *h), *q = malloc((size_t)w * sizeof *q),
           *a = malloc((size_t)widest * sizeof *a);
    double *b = malloc((size_t)widest * sizeof *b);
    for (int t = 0; t < n; t++) {
        double *xt = x + (size_t)t * (size_t)w, *k = keys + (size_t)t * (size_t)kv,
               *v = values + (size_t)t * (size_t)kv;
        plain_norm(xt, l->attn_norm, w, m->eps, h);
        plain_matmul(l->q, w, w, h, q);
        plain_matmul(l->k, kv, w, h, k);
        plain_matmul(l->v, kv, w, h, v);
        plain_rope(q, m->heads, m->head_dim, t, m->base);
        plain_rope(k, m->kv_heads, m->head_dim, t, m->base);
        plain_to_f16(k, kv);
        plain_to_f16(v, kv);
        for (int i = 0; i < m->heads; i++) {
            int at = i / (m->heads / m->kv_heads) * m->head_dim;
            plain_attend(q + i * m->head_dim, keys + at, values + at, t + 1, kv, m->head_dim, a + i * m->head_dim);
        }
        plain_matmul(l->output, w, w, a, h);
        for (int i = 0; i < w; i++) xt[i] += h[i];
        plain_norm(xt, l->ffn_norm, w, m->eps, h);
        plain_matmul(l->gate, m->ffn, w, h, a);
        plain_matmul(l->up, m->ffn, w, h, b);
        for (int i = 0; i < m->ffn; i++) a[i] = a[i] / (1 + exp(-a[i])) * b[i];
        plain_matmul(l->down, w, m->ffn, a, h);
        for (int i = 0; i < w; i++) xt[i] += h[i];
    }
    free(keys);
    free(values);
    free(h);
    free(q);
    free(a);
    free(b);
}

/* Logits [n][vocab] after each of n tokens. */
static inline void plain_forward(const PlainLlama *m, const int32_t *ids, int n, double *logits) {
    size_t w = (size_t)m->width;
    double *x = malloc((size_t)n * w * sizeof *x), *h = malloc(w * sizeof *h);
    for (int t = 0; t < n; t++) memcpy(x + (size_t)t * w, m->embedding + (size_t)ids[t] * w, w * sizeof *x);
    for (int l = 0; l < m->layers; l++) plain_layer(m, &m->layer[l], x, n);
    for (int t = 0; t < n; t++) {
        plain_norm(x + (size_t)t * w, m->norm, m->width, m->eps, h);
        plain_matmul(m->head ? m->head : m->embedding, m->vocab, m->width, h, logits + (size_t)t * (size_t)m->vocab);
    }
    free(x);
    free(h);
}
