/* The llama architecture: pre-norm, rotary positions in adjacent pairs, grouped-query attention, SwiGLU.
 * "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971; GQA: arXiv:2305.13245. */
#include <math.h>

#include "graph/arch.h"

int arch_llama(Builder *b, LmShape *s) {
    Graph *g = b->g;
    s->layers = builder_int(b, "block_count", 1, 4096, -1);
    s->width = builder_int(b, "embedding_length", 1, 1 << 20, -1);
    s->ffn = builder_int(b, "feed_forward_length", 1, 1 << 24, -1);
    s->heads = builder_int(b, "attention.head_count", 1, 4096, -1);
    s->kv_heads = builder_int(b, "attention.head_count_kv", 1, s->heads, s->heads);
    s->head_dim = builder_int(b, "attention.key_length", 16, 256, s->width / s->heads);
    s->context = builder_int(b, "context_length", 1, INT32_MAX, -1);
    s->rope_base = builder_float(b, "rope.freq_base", 10000.0);
    int64_t rope_dim = builder_int(b, "rope.dimension_count", 2, s->head_dim, s->head_dim);
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    const GgufTensor *embedding = gguf_tensor(b->f, "token_embd.weight");
    s->vocab = embedding && embedding->dims[1] <= INT32_MAX ? (int64_t)embedding->dims[1] : 1;
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    if (!b->failed && (s->heads % s->kv_heads || s->head_dim % 16 || rope_dim % 2)) {
        b->failed = true;
        return err_set(b->e, "%s: %d heads of size %d with %d KV heads are not supported", gguf_path(b->f), (int)s->heads,
                       (int)s->head_dim, (int)s->kv_heads);
    }

    if (!b->failed && (gguf_find(b->f, "llama.rope.scaling.type") || builder_has(b, -1, "rope_freqs.weight") ||
                       gguf_find(b->f, "llama.expert_count"))) {
        b->failed = true;
        return err_set(b->e, "%s: scaled rotary positions and mixtures of experts are not supported yet", gguf_path(b->f));
    }

    ValueId ids = graph_input(g, "ids", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId positions = graph_input(g, "positions", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId rows = graph_input(g, "rows", QT_I32, 1, (Dim[]){dim_outputs()});
    ValueId targets = graph_input(g, "targets", QT_I32, 1, (Dim[]){dim_outputs()});

    ValueId emb = builder_weight(b, -1, "token_embd.weight", s->vocab, s->width);
    ValueId x = graph_embed(g, "token_embd", ids, emb);                                       /* [T][width] */
    ValueId table = graph_rope_table(g, "rope_table", positions, (int)rope_dim, s->rope_base); /* [T][rope_dim] */
    float scale = 1.0f / sqrtf((float)s->head_dim);

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        ValueId h = graph_rmsnorm(g, builder_name(l, "attn_norm"), x, builder_weight(b, l, "attn_norm.weight", 0, s->width), eps);
        ValueId wq = builder_weight(b, l, "attn_q.weight", q, s->width);
        ValueId wk = builder_weight(b, l, "attn_k.weight", kv, s->width);
        ValueId wv = builder_weight(b, l, "attn_v.weight", kv, s->width);
        ValueId xq = graph_linear(g, builder_name(l, "attn_q"), h, wq, -1); /* [T][heads * head_dim] */
        ValueId xk = graph_linear(g, builder_name(l, "attn_k"), h, wk, -1); /* [T][kv_heads * head_dim] */
        ValueId xv = graph_linear(g, builder_name(l, "attn_v"), h, wv, -1); /* [T][kv_heads * head_dim] */
        xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, (int)s->heads, (int)s->head_dim, false);
        xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, (int)s->kv_heads, (int)s->head_dim, false);
        ValueId state = graph_state(g, builder_name(l, "kv"), (int)s->kv_heads, (int)s->head_dim);
        ValueId a = graph_attention(g, builder_name(l, "attention"), xq, xk, xv, state, (int)s->heads, (int)s->kv_heads,
                                    (int)s->head_dim, scale); /* [T][heads * head_dim] */
        ValueId o = graph_linear(g, builder_name(l, "attn_output"), a, builder_weight(b, l, "attn_output.weight", s->width, q), -1);
        x = graph_add(g, builder_name(l, "attn_residual"), x, o); /* [T][width] */

        h = graph_rmsnorm(g, builder_name(l, "ffn_norm"), x, builder_weight(b, l, "ffn_norm.weight", 0, s->width), eps);
        ValueId gate = graph_linear(g, builder_name(l, "ffn_gate"), h, builder_weight(b, l, "ffn_gate.weight", s->ffn, s->width), -1);
        ValueId up = graph_linear(g, builder_name(l, "ffn_up"), h, builder_weight(b, l, "ffn_up.weight", s->ffn, s->width), -1);
        ValueId f = graph_silu_mul(g, builder_name(l, "silu"), gate, up); /* [T][ffn] */
        ValueId down = graph_linear(g, builder_name(l, "ffn_down"), f, builder_weight(b, l, "ffn_down.weight", s->width, s->ffn), -1);
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down); /* [T][width] */
    }

    x = graph_select(g, "select", x, rows); /* [R][width] */
    x = graph_rmsnorm(g, "output_norm", x, builder_weight(b, -1, "output_norm.weight", 0, s->width), eps);
    ValueId head = builder_has(b, -1, "output.weight") ? builder_weight(b, -1, "output.weight", s->vocab, s->width) : emb;
    ValueId logits = graph_linear(g, "output", x, head, -1); /* [R][vocab] */
    g->output = graph_stats(g, "stats", logits, targets);
    return b->failed ? -1 : 0;
}
