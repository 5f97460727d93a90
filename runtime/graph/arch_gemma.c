/* Gemma 2 (arXiv:2408.00118): embeddings scaled by sqrt(width), norms before and after both halves of a layer, GeGLU,
 * soft caps of scores and logits, every other layer with a sliding window. Gemma 3 (arXiv:2503.19786): norms of Q and K
 * heads in place of the caps, five layers with a window for each without one, and a rotation base of their own for
 * those. */
#include <math.h>

#include "graph/arch.h"

typedef struct Gemma {
    bool head_norms;
    int period; /* one layer in so many sees everything: the last of each */
    float score_cap, logit_cap;
    double local_base; /* of the layers with a window */
    int64_t large; /* the layer count of the 27B model, which scales scores by width / heads, not by the head's size */
} Gemma;

static int build(Builder *b, LmShape *s, const Gemma *v) {
    Graph *g = b->g;
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    RopeShape rope = builder_rope(b, s, true),
              local = {.dim = rope.dim, .neox = true, .base = v->local_base, .scale = 1, .attention = 1};
    int64_t scale_dim = s->layers == v->large ? s->width / s->heads : s->head_dim;
    AttnShape attn = {
        (int)s->heads, (int)s->kv_heads, (int)s->head_dim, 1.0f / sqrtf((float)scale_dim), v->score_cap, 0};
    bool windows = builder_int(b, "attention.sliding_window", 0, INT32_MAX, 0) > 0;

    LmInputs in = builder_inputs(b);
    ValueId emb = builder_weight(b, -1, "token_embd.weight", s->vocab, s->width);
    ValueId global_table = builder_rope_table(b, &in, rope); /* [T][rope_dim] */
    ValueId local_table = -1;                                /* the same, of layers with a window */
    if (windows) local_table = graph_rope_table(g, "rope_table_local", in.positions, -1, local);
    ValueId x = graph_embed(g, "token_embd", in.ids, emb);        /* [T][width] */
    x = graph_scale(g, "token_scale", x, sqrtf((float)s->width)); /* [T][width] */

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        attn.window = builder_window(b, l, v->period);
        ValueId table = attn.window ? local_table : global_table;
        ValueId h = builder_norm(b, l, "attn_norm", x, s->width, eps); /* [T][width] */
        ValueId xq = builder_linear(b, l, "attn_q", h, q, s->width);   /* [T][heads * head_dim] */
        ValueId xk = builder_linear(b, l, "attn_k", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        ValueId xv = builder_linear(b, l, "attn_v", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        if (v->head_norms) {
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
        o = builder_norm(b, l, "post_attention_norm", o, s->width, eps);               /* [T][width] */
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);

        h = builder_norm(b, l, "ffn_norm", x, s->width, eps);
        ValueId gate = builder_linear(b, l, "ffn_gate", h, s->ffn, s->width); /* [T][ffn] */
        ValueId up = builder_linear(b, l, "ffn_up", h, s->ffn, s->width);     /* [T][ffn] */
        ValueId f = graph_gelu_mul(g, builder_name(l, "gelu"), gate, up);     /* [T][ffn] */
        ValueId down = builder_linear(b, l, "ffn_down", f, s->width, s->ffn); /* [T][width] */
        down = builder_norm(b, l, "post_ffw_norm", down, s->width, eps);      /* [T][width] */
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down);
    }
    builder_finish(b, s, &in, x, emb, eps, v->logit_cap);
    return b->failed ? -1 : 0;
}

int arch_gemma2(Builder *b, LmShape *s) {
    builder_shape(b, s);
    builder_int(b, "attention.sliding_window", 1, INT32_MAX, -1); /* must be there */
    Gemma v = {.period = 2, .local_base = s->rope_base, .large = 46};
    v.score_cap = (float)builder_float(b, "attn_logit_softcapping", 50);
    v.logit_cap = (float)builder_float(b, "final_logit_softcapping", 30);
    return build(b, s, &v);
}

int arch_gemma3(Builder *b, LmShape *s) {
    builder_shape(b, s);
    Gemma v = {.head_norms = true, .period = 6, .local_base = 10000, .large = 62};
    v.local_base = builder_float(b, "rope.freq_base_swa", v.local_base);
    v.logit_cap = (float)builder_float(b, "final_logit_softcapping", 0);
    return build(b, s, &v);
}
