/* Qwen 2 (arXiv:2407.10671): as llama, with biases on Q, K and V and rotations of halves. Qwen 3 (arXiv:2505.09388): no
 * biases, but an RMS norm of every head of Q and K before the rotation. OLMoE (arXiv:2409.02060): norms of the whole of
 * Q and of K. Biases are taken where the file has them. In the mixtures of Qwen 2 and OLMoE the weights of a token's
 * experts are their shares among all; in Qwen 3's they sum to 1. */
#include <math.h>

#include "graph/arch.h"

typedef enum Norms { NORMS_NONE, NORMS_OF_HEADS, NORMS_OF_ALL } Norms; /* of Q and K */

static int build(Builder *b, LmShape *s, Norms norms) {
    Graph *g = b->g;
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    RopeShape rope = builder_rope(b, s, true);
    AttnShape attn = {(int)s->heads, (int)s->kv_heads, (int)s->head_dim, 1.0f / sqrtf((float)s->head_dim), 0, 0};

    LmInputs in = builder_inputs(b);
    ValueId emb = builder_weight(b, -1, "token_embd.weight", s->vocab, s->width);
    ValueId x = graph_embed(g, "token_embd", in.ids, emb); /* [T][width] */
    ValueId table = builder_rope_table(b, &in, rope);      /* [T][rope_dim] */

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        attn.window = builder_window(b, l, 0);
        ValueId h = builder_norm(b, l, "attn_norm", x, s->width, eps); /* [T][width] */
        ValueId xq = builder_linear(b, l, "attn_q", h, q, s->width);   /* [T][heads * head_dim] */
        ValueId xk = builder_linear(b, l, "attn_k", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        ValueId xv = builder_linear(b, l, "attn_v", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        if (norms == NORMS_OF_ALL) {
            xq = builder_norm(b, l, "attn_q_norm", xq, q, eps);
            xk = builder_norm(b, l, "attn_k_norm", xk, kv, eps);
        } else if (norms == NORMS_OF_HEADS) {
            xq = graph_headnorm(g, builder_name(l, "attn_q_norm"), xq,
                                builder_weight(b, l, "attn_q_norm.weight", 0, s->head_dim), eps);
            xk = graph_headnorm(g, builder_name(l, "attn_k_norm"), xk,
                                builder_weight(b, l, "attn_k_norm.weight", 0, s->head_dim), eps);
        }
        xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, attn.heads, attn.head_dim, rope);
        xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, attn.kv_heads, attn.head_dim, rope);
        ValueId cache = graph_state(g, builder_name(l, "kv"), attn.kv_heads, attn.head_dim);
        ValueId a =
            graph_attention(g, builder_name(l, "attention"), xq, xk, xv, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, q);               /* [T][width] */
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);

        h = builder_norm(b, l, "ffn_norm", x, s->width, eps);
        ValueId f = builder_ffn(b, s, l, h); /* [T][width] */
        x = graph_add(g, builder_name(l, "ffn_residual"), x, f);
    }
    builder_finish(b, s, &in, x, emb, eps, 0);
    return b->failed ? -1 : 0;
}

int arch_qwen2(Builder *b, LmShape *s) {
    builder_shape(b, s);
    return build(b, s, NORMS_NONE);
}

int arch_qwen3(Builder *b, LmShape *s) {
    builder_shape(b, s);
    return build(b, s, NORMS_OF_HEADS);
}

int arch_qwen2moe(Builder *b, LmShape *s) {
    builder_mix_shape(b, s, false);
    if (!s->shared_ffn) s->shared_ffn = s->ffn; /* older files do not say */
    return build(b, s, NORMS_NONE);
}

int arch_qwen3moe(Builder *b, LmShape *s) {
    builder_mix_shape(b, s, true);
    return build(b, s, NORMS_OF_HEADS);
}

int arch_olmoe(Builder *b, LmShape *s) {
    builder_mix_shape(b, s, false);
    return build(b, s, NORMS_OF_ALL);
}
