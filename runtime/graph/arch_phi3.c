/* Phi-3 (arXiv:2404.14219): as llama, with Q, K and V in one tensor, gate and up in another, rotations of halves. */
#include <math.h>

#include "graph/arch.h"

int arch_phi3(Builder *b, LmShape *s) {
    Graph *g = b->g;
    builder_shape(b, s);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, all = q + 2 * kv;
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
        ValueId wq = builder_rows(b, l, "attn_qkv.weight", all, 0, q, s->width);
        ValueId wk = builder_rows(b, l, "attn_qkv.weight", all, q, kv, s->width);
        ValueId wv = builder_rows(b, l, "attn_qkv.weight", all, q + kv, kv, s->width);
        ValueId xq = graph_linear(g, builder_name(l, "attn_q"), h, wq, -1); /* [T][heads * head_dim] */
        ValueId xk = graph_linear(g, builder_name(l, "attn_k"), h, wk, -1); /* [T][kv_heads * head_dim] */
        ValueId xv = graph_linear(g, builder_name(l, "attn_v"), h, wv, -1); /* [T][kv_heads * head_dim] */
        xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, attn.heads, attn.head_dim, rope);
        xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, attn.kv_heads, attn.head_dim, rope);
        ValueId cache = graph_state(g, builder_name(l, "kv"), attn.kv_heads, attn.head_dim);
        ValueId a =
            graph_attention(g, builder_name(l, "attention"), xq, xk, xv, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, q);               /* [T][width] */
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);

        h = builder_norm(b, l, "ffn_norm", x, s->width, eps);
        ValueId wgate = builder_rows(b, l, "ffn_up.weight", 2 * s->ffn, 0, s->ffn, s->width);
        ValueId wup = builder_rows(b, l, "ffn_up.weight", 2 * s->ffn, s->ffn, s->ffn, s->width);
        ValueId gate = graph_linear(g, builder_name(l, "ffn_gate"), h, wgate, -1); /* [T][ffn] */
        ValueId up = graph_linear(g, builder_name(l, "ffn_up"), h, wup, -1);       /* [T][ffn] */
        ValueId f = graph_silu_mul(g, builder_name(l, "silu"), gate, up);          /* [T][ffn] */
        ValueId down = builder_linear(b, l, "ffn_down", f, s->width, s->ffn);      /* [T][width] */
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down);
    }
    builder_finish(b, s, &in, x, emb, eps, 0);
    return b->failed ? -1 : 0;
}
