/* Granite (arXiv:2405.04324): as llama, with factors from the file (maximal update parametrisation, arXiv:2203.03466):
 * of the embeddings, of what each half of a layer adds, of the scores, and the logits divided by one. */
#include <math.h>

#include "graph/arch.h"

/* Models of this name without any rotation say that their scaling was not fine-tuned. */
static bool rotates(Builder *b) {
    bool yes = true;
    if (!b->failed) b->failed = meta_get_bool(b->f, "granite.rope.scaling.finetuned", false, &yes, b->e) != 0;
    return yes;
}

int arch_granite(Builder *b, LmShape *s) {
    Graph *g = b->g;
    builder_shape(b, s);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float eps = (float)builder_float(b, "attention.layer_norm_rms_epsilon", NAN);
    float scale = (float)builder_float(b, "attention.scale", 1 / sqrt((double)s->head_dim));
    float embedding_scale = (float)builder_float(b, "embedding_scale", 1);
    float residual_scale = (float)builder_float(b, "residual_scale", 1);
    double logit_scale = builder_float(b, "logit_scale", NAN);
    RopeShape rope = builder_rope(b, s, false);
    AttnShape attn = {(int)s->heads, (int)s->kv_heads, (int)s->head_dim, scale, 0, 0};

    LmInputs in = builder_inputs(b);
    ValueId emb = builder_weight(b, -1, "token_embd.weight", s->vocab, s->width);
    ValueId x = graph_embed(g, "token_embd", in.ids, emb);              /* [T][width] */
    x = graph_scale(g, "token_scale", x, embedding_scale);              /* [T][width] */
    ValueId table = rotates(b) ? builder_rope_table(b, &in, rope) : -1; /* [T][rope_dim] */

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        ValueId h = builder_norm(b, l, "attn_norm", x, s->width, eps); /* [T][width] */
        ValueId xq = builder_linear(b, l, "attn_q", h, q, s->width);   /* [T][heads * head_dim] */
        ValueId xk = builder_linear(b, l, "attn_k", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        ValueId xv = builder_linear(b, l, "attn_v", h, kv, s->width);  /* [T][kv_heads * head_dim] */
        if (table >= 0) {
            xq = graph_rope(g, builder_name(l, "rope_q"), xq, table, attn.heads, attn.head_dim, rope);
            xk = graph_rope(g, builder_name(l, "rope_k"), xk, table, attn.kv_heads, attn.head_dim, rope);
        }
        ValueId cache = graph_state(g, builder_name(l, "kv"), attn.kv_heads, attn.head_dim);
        ValueId a =
            graph_attention(g, builder_name(l, "attention"), xq, xk, xv, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, q);               /* [T][width] */
        o = graph_scale(g, builder_name(l, "attn_scale"), o, residual_scale);
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);

        h = builder_norm(b, l, "ffn_norm", x, s->width, eps);
        ValueId gate = builder_linear(b, l, "ffn_gate", h, s->ffn, s->width); /* [T][ffn] */
        ValueId up = builder_linear(b, l, "ffn_up", h, s->ffn, s->width);     /* [T][ffn] */
        ValueId f = graph_silu_mul(g, builder_name(l, "silu"), gate, up);     /* [T][ffn] */
        ValueId down = builder_linear(b, l, "ffn_down", f, s->width, s->ffn); /* [T][width] */
        down = graph_scale(g, builder_name(l, "ffn_scale"), down, residual_scale);
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down);
    }
    ValueId logits = builder_head(b, s, &in, x, emb, eps); /* [R][vocab] */
    logits = graph_scale(g, "output_scale", logits, (float)(1 / logit_scale));
    builder_end(b, &in, logits);
    return b->failed ? -1 : 0;
}
