/* BERT (arXiv:1810.04805), an encoder: every token sees its whole sequence, which is one step; positions and kinds of
 * token are embeddings, and norms come after the sums. The result of a sequence is the mean of the rows chosen by the
 * session (all of them, or one), as sentence encoders want it (arXiv:1908.10084). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "graph/arch.h"

/* A table of embeddings [rows][width] looked up with `ids` [T]; the first `wanted` rows of it, 0: all. */
static ValueId table(Builder *b, const char *name, ValueId ids, int64_t wanted, int64_t width) {
    const char *full = builder_name(-1, name);
    const FileTensor *t = file_tensor(b->f, full);
    int64_t rows = t && t->dims[1] <= INT32_MAX ? (int64_t)t->dims[1] : 1;
    if (t && wanted > rows && !b->failed) {
        b->failed = true;
        err_set(b->e, "%s: %s has %" PRId64 " rows, too few for a context of %" PRId64 " tokens", model_file_path(b->f),
                full, rows, wanted);
    }
    ValueId w = builder_rows(b, -1, name, rows, 0, wanted ? wanted : rows, width);
    return graph_embed(b->g, name, ids, w); /* [T][width] */
}

static ValueId norm(Builder *b, int64_t layer, const char *name, ValueId x, int64_t width, float eps) {
    char part[48];
    snprintf(part, sizeof part, "%s.weight", name);
    ValueId w = builder_weight(b, layer, part, 0, width);
    snprintf(part, sizeof part, "%s.bias", name);
    return graph_layernorm(b->g, builder_name(layer, name), x, w, builder_weight(b, layer, part, 0, width), eps);
}

int arch_bert(Builder *b, LmShape *s) {
    Graph *g = b->g;
    builder_shape(b, s);
    s->encoder = true;
    s->pooling = (Pooling)builder_int(b, "pooling_type", 0, N_POOLINGS - 1, POOLING_NONE);
    float eps = (float)builder_float(b, "attention.layer_norm_epsilon", NAN);
    if (builder_bool(b, "attention.causal", false))
        builder_refuse(b, "attention.causal", "encoders that look back only");
    int64_t heads = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    float scale = 1.0f / sqrtf((float)s->head_dim);
    AttnShape attn = {(int)s->heads, (int)s->kv_heads, (int)s->head_dim, scale, 0, WINDOW_WHOLE};

    ValueId ids = graph_input(g, "ids", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId positions = graph_input(g, "positions", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId begin = graph_input(g, "begin", QT_I32, 1, (Dim[]){dim_outputs()});
    ValueId end = graph_input(g, "end", QT_I32, 1, (Dim[]){dim_outputs()});
    ValueId x = table(b, "token_embd.weight", ids, 0, s->width); /* [T][width] */
    if (builder_has(b, -1, "token_types.weight")) {
        ValueId types = graph_input(g, "types", QT_I32, 1, (Dim[]){dim_tokens()});
        x = graph_add(g, "type_sum", x, table(b, "token_types.weight", types, 0, s->width));
    }
    x = graph_add(g, "position_sum", x, table(b, "position_embd.weight", positions, s->context, s->width));
    x = norm(b, -1, "token_embd_norm", x, s->width, eps);
    ValueId cache = graph_state(g, "kv", attn.kv_heads, attn.head_dim); /* of one step: the layers take turns */

    for (int64_t l = 0; l < s->layers && !b->failed; l++) {
        ValueId q = builder_linear(b, l, "attn_q", x, heads, s->width); /* [T][heads * head_dim] */
        ValueId k = builder_linear(b, l, "attn_k", x, kv, s->width);    /* [T][kv_heads * head_dim] */
        ValueId v = builder_linear(b, l, "attn_v", x, kv, s->width);    /* [T][kv_heads * head_dim] */
        ValueId a = graph_attention(g, builder_name(l, "attention"), q, k, v, cache, attn); /* [T][heads * head_dim] */
        ValueId o = builder_linear(b, l, "attn_output", a, s->width, heads);                /* [T][width] */
        x = graph_add(g, builder_name(l, "attn_residual"), x, o);
        x = norm(b, l, "attn_output_norm", x, s->width, eps);

        ValueId up = builder_linear(b, l, "ffn_up", x, s->ffn, s->width);     /* [T][ffn] */
        ValueId f = graph_gelu(g, builder_name(l, "gelu"), up);               /* [T][ffn] */
        ValueId down = builder_linear(b, l, "ffn_down", f, s->width, s->ffn); /* [T][width] */
        x = graph_add(g, builder_name(l, "ffn_residual"), x, down);
        x = norm(b, l, "layer_output_norm", x, s->width, eps);
    }
    g->output[0] = graph_mean_rows(g, "pool", x, begin, end); /* [R][width] */
    builder_refuse_unused(b);
    return b->failed ? -1 : 0;
}
