/* The llama architecture: pre-norm, rotary positions in adjacent pairs, grouped-query attention, SwiGLU.
 * "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971; GQA: arXiv:2305.13245. Mistral's files
 * carry the same name, Mixtral's too (arXiv:2401.04088). Llama 3.1's slowed rotations come as a tensor of factors.
 * SmolLM3 rotates in three layers of four (https://huggingface.co/blog/smollm3; layers without positions:
 * arXiv:2501.18795). */
#include <math.h>

#include "graph/arch.h"

/* `period`: one layer in so many does not rotate, the last of each; 0: all do. */
static int build(Builder *b, LmShape *s, int64_t period) {
    Graph *g = b->g;
    builder_mix_shape(b, s, true);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    RopeShape rope = builder_rope(b, s, false);
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
        if (!period || l % period != period - 1) {
            xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, attn.heads, attn.head_dim, rope);
            xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, attn.kv_heads, attn.head_dim, rope);
        }
        ValueId cache = graph_state(g, builder_name(l, "kv"), attn.kv_heads, attn.head_dim);
        ValueId a =
            graph_attention(g, builder_name(l, "attention"), xq, xk, xv, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, q);               /* [T][width] */
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);                      /* [T][width] */

        h = builder_norm(b, l, "ffn_norm", x, s->width, eps);
        ValueId f = builder_ffn(b, s, l, h); /* [T][width] */
        x = graph_add(g, builder_name(l, "ffn_residual"), x, f);
    }
    builder_finish(b, s, &in, x, emb, eps, 0);
    return b->failed ? -1 : 0;
}

int arch_llama(Builder *b, LmShape *s) { return build(b, s, 0); }
int arch_smollm3(Builder *b, LmShape *s) { return build(b, s, 4); }
