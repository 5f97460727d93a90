/* What the builders of language models share: metadata, inputs, and the end of the model. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/detmath.h"
#include "graph/arch.h"

void builder_shape(Builder *b, LmShape *s) {
    s->layers = builder_int(b, "block_count", 1, 4096, -1);
    s->width = builder_int(b, "embedding_length", 1, 1 << 20, -1);
    s->ffn = builder_int(b, "feed_forward_length", 1, 1 << 24, -1);
    s->heads = builder_int(b, "attention.head_count", 1, 4096, -1);
    s->kv_heads = builder_int(b, "attention.head_count_kv", 1, s->heads, s->heads);
    s->head_dim = builder_int(b, "attention.key_length", 1, 1024, s->width / s->heads);
    s->context = builder_int(b, "context_length", 1, INT32_MAX, -1);
    s->rope_base = builder_float(b, "rope.freq_base", 10000.0);
    const GgufTensor *embedding = gguf_tensor(b->f, "token_embd.weight");
    s->vocab = embedding && embedding->dims[1] <= INT32_MAX ? (int64_t)embedding->dims[1] : 1;
    builder_refuse(b, "expert_count", "mixtures of experts");
    if (!b->failed && (s->heads % s->kv_heads || s->head_dim % 16 || s->head_dim > 256)) {
        b->failed = true;
        err_set(b->e, "%s: %" PRId64 " heads of size %" PRId64 " with %" PRId64 " KV heads are not supported", gguf_path(b->f),
                s->heads, s->head_dim, s->kv_heads);
    }
}

void builder_refuse(Builder *b, const char *key, const char *what) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    if (b->failed || !gguf_find(b->f, full)) return;
    b->failed = true;
    err_set(b->e, "%s: %s (%s) are not supported by this build", gguf_path(b->f), what, full);
}

static bool key_is(const Builder *b, const char *key, const char *text) {
    char full[128];
    GgufString s = {"", 0};
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    if (gguf_get_string(b->f, full, false, &s, NULL)) return false;
    return s.size == strlen(text) && !memcmp(s.data, text, s.size);
}

RopeShape builder_rope(Builder *b, const LmShape *s, bool neox) {
    RopeShape r = {.neox = neox, .base = s->rope_base, .scale = 1, .attention = 1};
    r.dim = (int)builder_int(b, "rope.dimension_count", 2, s->head_dim, s->head_dim);
    if (r.dim % 2) r.dim--; /* refused by graph_check when it does not fit */
    if (key_is(b, "rope.scaling.type", "linear") || key_is(b, "rope.scaling.type", "yarn")) {
        double factor = builder_float(b, "rope.scaling.factor", 1);
        if (factor > 0) r.scale = 1 / factor;
    }
    if (key_is(b, "rope.scaling.type", "yarn")) {
        r.original = builder_int(b, "rope.scaling.original_context_length", 1, INT32_MAX, s->context);
        r.beta_fast = builder_float(b, "rope.scaling.yarn_beta_fast", 32);
        r.beta_slow = builder_float(b, "rope.scaling.yarn_beta_slow", 1);
        r.attention = builder_float(b, "rope.scaling.attn_factor", 1) * (1 + 0.1 * det_log(1 / r.scale));
    }
    bool known = key_is(b, "rope.scaling.type", "linear") || key_is(b, "rope.scaling.type", "yarn") ||
                 key_is(b, "rope.scaling.type", "none");
    if (!known) builder_refuse(b, "rope.scaling.type", "rotary positions scaled in this way");
    return r;
}

LmInputs builder_inputs(Builder *b) {
    return (LmInputs){.ids = graph_input(b->g, "ids", QT_I32, 1, (Dim[]){dim_tokens()}),
                      .positions = graph_input(b->g, "positions", QT_I32, 1, (Dim[]){dim_tokens()}),
                      .rows = graph_input(b->g, "rows", QT_I32, 1, (Dim[]){dim_outputs()}),
                      .targets = graph_input(b->g, "targets", QT_I32, 1, (Dim[]){dim_outputs()})};
}

ValueId builder_linear(Builder *b, int64_t layer, const char *name, ValueId x, int64_t rows, int64_t columns) {
    char part[48];
    snprintf(part, sizeof part, "%s.weight", name);
    ValueId w = builder_weight(b, layer, part, rows, columns), bias = -1;
    snprintf(part, sizeof part, "%s.bias", name);
    if (builder_has(b, layer, part)) bias = builder_weight(b, layer, part, 0, rows);
    return graph_linear(b->g, builder_name(layer, name), x, w, bias);
}

ValueId builder_rows(Builder *b, int64_t layer, const char *name, int64_t all_rows, int64_t row0, int64_t rows, int64_t columns) {
    ValueId whole = builder_weight(b, layer, name, all_rows, columns);
    if (whole < 0 || b->g->failed) return -1;
    Value v = b->g->value[whole];
    size_t row_bytes = 0;
    qtype_bytes(v.type, (uint64_t)columns, &row_bytes); /* the file's reader has checked that rows are whole blocks */
    v.offset += (uint64_t)row0 * row_bytes;
    v.dim[0] = dim_const(rows);
    b->g->value[whole] = v; /* the part takes the place of the whole, which is no value of its own */
    return whole;
}

ValueId builder_norm(Builder *b, int64_t layer, const char *name, ValueId x, int64_t columns, float eps) {
    char part[48];
    snprintf(part, sizeof part, "%s.weight", name);
    return graph_rmsnorm(b->g, builder_name(layer, name), x, builder_weight(b, layer, part, 0, columns), eps);
}

void builder_finish(Builder *b, const LmShape *s, const LmInputs *in, ValueId x, ValueId embedding, float eps, float softcap) {
    Graph *g = b->g;
    x = graph_select(g, "select", x, in->rows);               /* [R][width] */
    x = builder_norm(b, -1, "output_norm", x, s->width, eps); /* [R][width] */
    ValueId head = builder_has(b, -1, "output.weight") ? builder_weight(b, -1, "output.weight", s->vocab, s->width) : embedding;
    ValueId logits = graph_linear(g, "output", x, head, -1); /* [R][vocab] */
    if (softcap > 0) logits = graph_softcap(g, "output_cap", logits, softcap);
    g->output = graph_stats(g, "stats", logits, in->targets);
}
