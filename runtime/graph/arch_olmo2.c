/* OLMo 2 (arXiv:2501.00656): norms after attention and feed-forward instead of before, and of all of Q and all of K.
 * OLMo 3 (arXiv:2512.13961) has the same name in files, and a window in three layers of four; those rotate unscaled. */
#include <math.h>

#include "graph/arch.h"

int arch_olmo2(Builder *b, LmShape *s) {
    Graph *g = b->g;
    builder_shape(b, s);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    RopeShape rope = builder_rope(b, s, true), local = {.dim = rope.dim, .neox = true, .scale = 1, .attention = 1};
    local.base = builder_float(b, "rope.freq_base_swa", s->rope_base);
    bool windows = builder_int(b, "attention.sliding_window", 0, INT32_MAX, 0) > 0;
    AttnShape attn = {(int)s->heads, (int)s->kv_heads, (int)s->head_dim, 1.0f / sqrtf((float)s->head_dim), 0, 0};

    LmInputs in = builder_inputs(b);
    ValueId emb = builder_weight(b, -1, "token_embd.weight", s->vocab, s->width);
    ValueId x = graph_embed(g, "token_embd", in.ids, emb);   /* [T][width] */
    ValueId global_table = builder_rope_table(b, &in, rope); /* [T][rope_dim] */
    ValueId local_table = -1;                                /* the same, of layers with a window */
    if (windows) local_table = graph_rope_table(g, "rope_table_local", in.positions, -1, local);

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        attn.window = builder_window(b, l, 4);
        ValueId table = attn.window ? local_table : global_table;
        ValueId xq = builder_norm(b, l, "attn_q_norm", builder_linear(b, l, "attn_q", x, q, s->width), q, eps);
        ValueId xk = builder_norm(b, l, "attn_k_norm", builder_linear(b, l, "attn_k", x, kv, s->width), kv, eps);
        ValueId xv = builder_linear(b, l, "attn_v", x, kv, s->width); /* [T][kv_heads * head_dim] */
        xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, attn.heads, attn.head_dim, rope);
        xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, attn.kv_heads, attn.head_dim, rope);
        ValueId cache = graph_state(g, builder_name(l, "kv"), attn.kv_heads, attn.head_dim);
        ValueId a =
            graph_attention(g, builder_name(l, "attention"), xq, xk, xv, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, q);               /* [T][width] */
        o = builder_norm(b, l, "post_attention_norm", o, s->width, eps);
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);

        ValueId gate = builder_linear(b, l, "ffn_gate", x, s->ffn, s->width); /* [T][ffn] */
        ValueId up = builder_linear(b, l, "ffn_up", x, s->ffn, s->width);     /* [T][ffn] */
        ValueId f = graph_silu_mul(g, builder_name(l, "silu"), gate, up);     /* [T][ffn] */
        ValueId down = builder_linear(b, l, "ffn_down", f, s->width, s->ffn); /* [T][width] */
        down = builder_norm(b, l, "post_ffw_norm", down, s->width, eps);
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down);
    }
    builder_finish(b, s, &in, x, emb, eps, 0);
    return b->failed ? -1 : 0;
}
