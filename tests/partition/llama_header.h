/* The header of a llama of any size, as a GGUF file without its data: enough for everything but loading. */
#pragma once

#include "check.h"
#include "gguf_writer.h"
#include "graph/arch.h"
#include "graph/gguf.h"
#include "graph/passes.h"
#include "tiny_model.h"

typedef struct LlamaSize {
    const char *name;
    int64_t layers, width, heads, kv_heads, head_dim, ffn, vocab;
    QType matrices, embedding; /* the head, when it is not the embedding, has the embedding's type */
    bool tied_head;
} LlamaSize;

/* One tensor's description, its data at *offset, which advances. rows 0: a vector. Returns its bytes. */
static inline uint64_t header_tensor(GgufWriter *w, const char *name, QType t, int64_t rows, int64_t columns,
                                     uint64_t *offset) {
    uint64_t dims[2] = {(uint64_t)columns, (uint64_t)rows};
    size_t bytes = 0;
    if (!qtype_bytes(t, (uint64_t)(columns * (rows ? rows : 1)), &bytes)) abort();
    gw_tensor_info(w, name, (uint32_t)qtype_info(t)->gguf_id, rows ? 2 : 1, dims, *offset);
    *offset += (bytes + 31) / 32 * 32;
    return bytes;
}

/* Metadata and tensors; returns the bytes of the data section. */
static inline uint64_t header_build(GgufWriter *w, const LlamaSize *m) {
    gw_string(w, "general.architecture", "llama");
    gw_u32(w, "llama.block_count", (uint32_t)m->layers);
    gw_u32(w, "llama.context_length", 8192);
    gw_u32(w, "llama.embedding_length", (uint32_t)m->width);
    gw_u32(w, "llama.feed_forward_length", (uint32_t)m->ffn);
    gw_u32(w, "llama.attention.head_count", (uint32_t)m->heads);
    gw_u32(w, "llama.attention.head_count_kv", (uint32_t)m->kv_heads);
    gw_u32(w, "llama.attention.key_length", (uint32_t)m->head_dim);
    gw_f32(w, "llama.rope.freq_base", 500000.0f);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    uint64_t at = 0;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    header_tensor(w, "token_embd.weight", m->embedding, m->vocab, m->width, &at);
    header_tensor(w, "output_norm.weight", QT_F32, 0, m->width, &at);
    if (!m->tied_head) header_tensor(w, "output.weight", m->embedding, m->vocab, m->width, &at);
    for (int64_t l = 0; l < m->layers; l++) {
        const struct {
            const char *name;
            int64_t rows, columns;
        } tensors[] = {{"attn_norm", 0, m->width},     {"attn_q", q, m->width},      {"attn_k", kv, m->width},
                       {"attn_v", kv, m->width},       {"attn_output", m->width, q}, {"ffn_norm", 0, m->width},
                       {"ffn_gate", m->ffn, m->width}, {"ffn_up", m->ffn, m->width}, {"ffn_down", m->width, m->ffn}};
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", (int)l, tensors[i].name);
            header_tensor(w, name, tensors[i].rows ? m->matrices : QT_F32, tensors[i].rows, tensors[i].columns, &at);
        }
    }
    return at;
}

/* The model's graph after the passes; false with a message printed when it cannot be built. */
static inline bool header_graph(const LlamaSize *m, QType act, Graph *g) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    uint64_t data = header_build(&w, m);
    size_t size;
    uint8_t *bytes = gw_finish(&w, &size);
    gw_free(&w);
    ModelFile *file = NULL;
    LmShape shape;
    Err e = {""};
    graph_init(g);
    bool ok = !gguf_from_memory(bytes, size, size + data, m->name, &file, &e) && !arch_build(file, g, &shape, &e) &&
              !passes_run(g, act, &e);
    if (!ok) printf("%s: %s\n", m->name, e.msg);
    model_file_close(file);
    free(bytes);
    return ok;
}
