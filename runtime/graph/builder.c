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
    int64_t value_dim = builder_int(b, "attention.value_length", 1, INT32_MAX, s->head_dim);
    const FileTensor *embedding = file_tensor(b->f, "token_embd.weight");
    s->vocab = embedding && embedding->dims[1] <= INT32_MAX ? (int64_t)embedding->dims[1] : 1;
    if (!s->mix.experts && builder_int(b, "expert_count", 0, INT32_MAX, 0) > 0)
        builder_refuse(b, "expert_count", "mixtures of experts in this architecture");
    if (value_dim != s->head_dim)
        builder_refuse(b, "attention.value_length", "heads whose values differ in size from their keys");
    if (!b->failed && (s->heads % s->kv_heads || s->head_dim % 16 || s->head_dim > 256)) {
        b->failed = true;
        err_set(b->e, "%s: %" PRId64 " heads of size %" PRId64 " with %" PRId64 " KV heads are not supported",
                model_file_path(b->f), s->heads, s->head_dim, s->kv_heads);
    }
}

void builder_refuse(Builder *b, const char *key, const char *what) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    if (b->failed || !meta_find(b->f, full)) return;
    b->failed = true;
    err_set(b->e, "%s: %s (%s) are not supported by this build", model_file_path(b->f), what, full);
}

/* The kinds of scaling of rotary positions that rope.scaling.type names. */
typedef enum RopeScaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE, N_SCALINGS } RopeScaling;

static RopeScaling rope_scaling(Builder *b) {
    static const char *const names[N_SCALINGS] = {"none", "linear", "yarn", "longrope"};
    Text s = {names[SCALING_LINEAR], 6}; /* older files have a factor alone */
    char key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", b->arch);
    if (b->failed) return SCALING_NONE;
    b->failed = true;
    if (meta_get_string(b->f, key, false, &s, b->e)) return SCALING_NONE;
    for (int i = 0; i < N_SCALINGS; i++)
        if (s.size == strlen(names[i]) && !memcmp(s.data, names[i], s.size)) {
            b->failed = false;
            return (RopeScaling)i;
        }
    err_set(b->e,
            "%s: rotary positions scaled by \"%s\" (%s) are not supported by this build (none, linear, yarn and "
            "longrope are)",
            model_file_path(b->f), text_printable(s).text, key);
    return SCALING_NONE;
}

static void rope_yarn(Builder *b, const LmShape *s, RopeShape *r) {
    double factor = 1 / r->scale, usual = factor > 1 ? 1 + 0.1 * det_log(factor) : 1; /* arXiv:2309.00071, 3.4 */
    r->original = builder_int(b, "rope.scaling.original_context_length", 1, INT32_MAX, s->context);
    r->beta_fast = builder_float(b, "rope.scaling.yarn_beta_fast", 32);
    r->beta_slow = builder_float(b, "rope.scaling.yarn_beta_slow", 1);
    /* converters put transformers' attention_factor there, which stands in place of the usual one */
    r->attention *= builder_float(b, "rope.scaling.yarn_attn_factor", usual);
    builder_refuse(b, "rope.scaling.yarn_log_multiplier", "other attention factors of YaRN");
    if (builder_float(b, "rope.scaling.yarn_ext_factor", 1) != 1)
        builder_refuse(b, "rope.scaling.yarn_ext_factor", "other mixtures of YaRN");
}

static bool has_long_factors(const Builder *b) {
    return builder_has(b, -1, "rope_factors_long.weight") || builder_has(b, -1, "rope_factors_short.weight");
}

RopeShape builder_rope(Builder *b, const LmShape *s, bool neox) {
    RopeShape r = {.neox = neox, .base = s->rope_base, .scale = 1};
    r.dim = (int)builder_int(b, "rope.dimension_count", 2, s->head_dim, s->head_dim);
    r.attention = builder_float(b, "rope.scaling.attn_factor", 1);
    RopeScaling scaling = rope_scaling(b);
    if (scaling == SCALING_LONGROPE || has_long_factors(b)) {
        builder_refuse(b, "rope.scaling.factor", "long and short factors of rotary positions beside another factor");
        r.short_context = builder_int(b, "rope.scaling.original_context_length", 1, INT32_MAX, s->context);
        return r;
    }
    double factor = builder_float(b, "rope.scale_linear", 1); /* an older name */
    factor = builder_float(b, "rope.scaling.factor", factor);
    if (factor < 0 && !b->failed) {
        b->failed = true;
        err_set(b->e, "%s: rotary positions scaled by a factor below 0", model_file_path(b->f));
    }
    if (scaling != SCALING_NONE && factor > 0) r.scale = 1 / factor;
    if (scaling == SCALING_YARN) rope_yarn(b, s, &r);
    return r;
}

int64_t builder_window(Builder *b, int64_t layer, int64_t period) {
    char key[128];
    int64_t window = builder_int(b, "attention.sliding_window", 0, INT32_MAX, 0);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", b->arch);
    const MetaValue *v = meta_find(b->f, key);
    if (b->failed) return 0;
    if (!v || v->type != META_ARRAY) {
        period = builder_int(b, "attention.sliding_window_pattern", 0, INT32_MAX, period);
        return period && layer % period == period - 1 ? 0 : window;
    }
    b->failed = true;
    if (meta_get_array(b->f, key, true, v->v.a.type == META_BOOL ? META_BOOL : META_I32, &v, b->e)) return 0;
    if (v->v.a.n <= (uint64_t)layer) {
        err_set(b->e, "%s: %s has no element for layer %" PRId64, model_file_path(b->f), key, layer);
        return 0;
    }
    b->failed = false;
    return meta_array_i64(v, (uint64_t)layer) ? window : 0;
}

LmInputs builder_inputs(Builder *b) {
    return (LmInputs){.ids = graph_input(b->g, "ids", QT_I32, 1, (Dim[]){dim_tokens()}),
                      .positions = graph_input(b->g, "positions", QT_I32, 1, (Dim[]){dim_tokens()}),
                      .rows = graph_input(b->g, "rows", QT_I32, 1, (Dim[]){dim_outputs()}),
                      .targets = graph_input(b->g, "targets", QT_I32, 1, (Dim[]){dim_outputs()})};
}

ValueId builder_rope_table(Builder *b, const LmInputs *in, RopeShape rope) {
    ValueId factors = -1;
    if (rope.short_context > 0) {
        factors = builder_weight(b, -1, "rope_factors_short.weight", 0, rope.dim / 2);
        ValueId longer = builder_weight(b, -1, "rope_factors_long.weight", 0, rope.dim / 2);
        return graph_longrope_table(b->g, "rope_table", in->positions, factors, longer, rope);
    }
    if (builder_has(b, -1, "rope_freqs.weight")) factors = builder_weight(b, -1, "rope_freqs.weight", 0, rope.dim / 2);
    return graph_rope_table(b->g, "rope_table", in->positions, factors, rope);
}

ValueId builder_linear(Builder *b, int64_t layer, const char *name, ValueId x, int64_t rows, int64_t columns) {
    char part[48];
    snprintf(part, sizeof part, "%s.weight", name);
    ValueId w = builder_weight(b, layer, part, rows, columns), bias = -1;
    snprintf(part, sizeof part, "%s.bias", name);
    if (builder_has(b, layer, part)) bias = builder_weight(b, layer, part, 0, rows);
    return graph_linear(b->g, builder_name(layer, name), x, w, bias);
}

ValueId builder_rows(Builder *b, int64_t layer, const char *name, int64_t all_rows, int64_t row0, int64_t rows,
                     int64_t columns) {
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

/* A tensor that no builder asked for would change the result: a bias or a norm that this build does not know. */
void builder_refuse_unused(Builder *b) {
    for (size_t i = 0; i < file_n_tensors(b->f) && !b->failed; i++) {
        const FileTensor *t = file_tensor_at(b->f, i);
        bool used = false;
        for (ValueId v = 0; v < b->g->n_values && !used; v++) {
            const Value *x = &b->g->value[v];
            used = x->kind == VALUE_WEIGHT && strlen(x->name) == t->name.size &&
                   !memcmp(x->name, t->name.data, t->name.size);
        }
        if (used) continue;
        b->failed = true;
        err_set(b->e, "%s: this build does not know what tensor %s is for in a model of architecture %s",
                model_file_path(b->f), text_printable(t->name).text, b->arch);
    }
}

ValueId builder_head(Builder *b, const LmShape *s, const LmInputs *in, ValueId x, ValueId embedding, float eps) {
    x = graph_select(b->g, "select", x, in->rows);            /* [R][width] */
    x = builder_norm(b, -1, "output_norm", x, s->width, eps); /* [R][width] */
    ValueId head =
        builder_has(b, -1, "output.weight") ? builder_weight(b, -1, "output.weight", s->vocab, s->width) : embedding;
    return graph_linear(b->g, "output", x, head, -1); /* [R][vocab] */
}

void builder_end(Builder *b, const LmInputs *in, ValueId logits) {
    b->g->output[0] = graph_stats(b->g, "stats", logits, in->targets);
    builder_refuse_unused(b);
}

void builder_finish(Builder *b, const LmShape *s, const LmInputs *in, ValueId x, ValueId embedding, float eps,
                    float softcap) {
    ValueId logits = builder_head(b, s, in, x, embedding, eps);
    if (softcap > 0) logits = graph_softcap(b->g, "output_cap", logits, softcap);
    builder_end(b, in, logits);
}
