/* Rotary positions in config.json: "rope_parameters" (also for each type of layers), or in older files "rope_theta",
 * "rope_scaling" and a few keys beside them. Source: transformers' modeling_rope_utils.py. */
#include <math.h>
#include <string.h>

#include "base/detmath.h"
#include "graph/hf_import.h"
#include "graph/hf_json.h"

enum { LARGEST_DIM = 1024 };
static const double two_pi = 6.283185307179586;

/* The kind of scaling, which older files call "type". */
static Text kind_of(Import *i, const cJSON *p) {
    Text kind = hf_string("default");
    if (i->failed || !p) return kind;
    if (hf_json_string(p, i->path, "type", false, &kind, i->e) ||
        hf_json_string(p, i->path, "rope_type", false, &kind, i->e))
        i->failed = true;
    return kind;
}

static double factor_of(Import *i, const cJSON *p) {
    double factor = config_float(i, p, "factor", NAN);
    if (!(factor > 0)) import_fail(i, "%s: rotary positions with the factor %g", i->path, factor);
    return factor;
}

static int64_t original_context(Import *i, const cJSON *p) {
    int64_t now = config_int(i, i->config, "max_position_embeddings", 1, INT32_MAX, -1);
    return config_int(i, p, "original_max_position_embeddings", 1, INT32_MAX, now);
}

static double yarn_mscale(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * det_log(factor) + 1; }

static void read_yarn(Import *i, const cJSON *p) {
    double factor = factor_of(i, p), m = config_float(i, p, "mscale", 0), all = config_float(i, p, "mscale_all_dim", 0);
    import_text(i, "rope.scaling.type", "yarn", 4);
    import_float(i, "rope.scaling.factor", factor);
    import_int(i, "rope.scaling.original_context_length", original_context(i, p));
    if (hf_json_get(p, "attention_factor"))
        import_float(i, "rope.scaling.yarn_attn_factor", config_float(i, p, "attention_factor", NAN));
    else if (m != 0 && all != 0)
        import_float(i, "rope.scaling.yarn_attn_factor", yarn_mscale(factor, m) / yarn_mscale(factor, all));
    if (hf_json_get(p, "beta_fast"))
        import_float(i, "rope.scaling.yarn_beta_fast", config_float(i, p, "beta_fast", NAN));
    if (hf_json_get(p, "beta_slow"))
        import_float(i, "rope.scaling.yarn_beta_slow", config_float(i, p, "beta_slow", NAN));
    if (!config_bool(i, p, "truncate", true))
        import_fail(i, "%s: YaRN with \"truncate\": false is not supported by this build", i->path);
}

/* Llama 3.1 slows the pairs that turn seldom over the original context by `factor`, the fast ones not at all, those
 * between by something between. GGUF has what each is slowed by as the tensor rope_freqs. */
static void read_llama3(Import *i, const cJSON *p, double base, int64_t dim) {
    double factor = factor_of(i, p), original = (double)original_context(i, p);
    double low = config_float(i, p, "low_freq_factor", NAN), high = config_float(i, p, "high_freq_factor", NAN);
    if (!(low > 0 && high > low))
        import_fail(i, "%s: \"low_freq_factor\" %g and \"high_freq_factor\" %g are no range", i->path, low, high);
    if (i->failed) return;
    float slowed[LARGEST_DIM / 2];
    for (int64_t k = 0; k < dim / 2; k++) {
        double turns = original / two_pi * det_pow(base, -2.0 * (double)k / (double)dim);
        double smooth = (turns - low) / (high - low);
        slowed[k] = (float)(turns < low ? factor : turns > high ? 1 : 1 / ((1 - smooth) / factor + smooth));
    }
    import_vector(i, "rope_freqs.weight", slowed, (size_t)dim / 2);
}

static double base_of(Import *i, const cJSON *p, const char *older, double def) {
    double base = config_float(i, p, "rope_theta", config_float(i, i->config, older, def));
    if (!(base > 0)) import_fail(i, "%s: \"rope_theta\" is %g", i->path, base);
    return base;
}

/* Those of the layers with a window: unscaled. */
static void read_local(Import *i, const cJSON *p, double def) {
    import_float(i, "rope.freq_base_swa", base_of(i, p, "rope_local_base_freq", def));
    if (!hf_is(kind_of(i, p), "default"))
        import_fail(i, "%s: scaled rotary positions of layers with a window are not supported", i->path);
}

void hf_rope_read(Import *i) {
    const cJSON *p = hf_json_get(i->config, "rope_parameters"), *scaling = hf_json_get(i->config, "rope_scaling");
    const cJSON *local = hf_json_get(p, "sliding_attention"), *full = hf_json_get(p, "full_attention");
    if (local || full) p = full;
    if (!p) p = scaling;
    if ((p && !cJSON_IsObject(p)) || (local && !cJSON_IsObject(local)))
        import_fail(i, "%s: the parameters of rotary positions are no object", i->path);
    if (i->failed) return;
    double base = base_of(i, p, "rope_theta", i->class->rope_base);
    double part = config_float(i, p, "partial_rotary_factor", config_float(i, i->config, "partial_rotary_factor", 1));
    int64_t dim = part > 0 && part <= 1 ? (int64_t)(part * (double)i->head_dim) : 0;
    if (dim < 2 || dim > LARGEST_DIM || dim % 2 || (part != 1 && i->class->pairs))
        import_fail(i,
                    "%s: rotary positions of a part of %g (\"partial_rotary_factor\") are not supported in this model",
                    i->path, part);
    import_float(i, "rope.freq_base", base);
    import_int(i, "rope.dimension_count", dim);
    if (local || i->class->local_rope_base > 0)
        read_local(i, local, i->class->local_rope_base > 0 ? i->class->local_rope_base : base);
    Text kind = kind_of(i, p);
    bool scaled = !i->class->plain_rope;
    if (hf_is(kind, "default")) return;
    if (scaled && hf_is(kind, "linear")) {
        import_text(i, "rope.scaling.type", "linear", 6);
        import_float(i, "rope.scaling.factor", factor_of(i, p));
    } else if (scaled && hf_is(kind, "yarn")) read_yarn(i, p);
    else if (i->class->llama3_rope && hf_is(kind, "llama3")) read_llama3(i, p, base, dim);
    else
        import_fail(i, "%s: rotary positions of the kind \"%s\" are not supported by this build in this model", i->path,
                    text_printable(kind).text);
}
