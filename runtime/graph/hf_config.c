/* From config.json to GGUF's metadata. A class of transformers reads certain keys of that file and no others; what
 * differs from this build's model of it is refused by name, and keys that no class reads stay unread. Defaults are
 * those of transformers' configuration_*.py
 * (https://github.com/huggingface/transformers/tree/main/src/transformers/models).
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "graph/hf_import.h"
#include "graph/hf_json.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void import_fail(Import *i, const char *fmt, ...) {
    char text[sizeof i->e->msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!i->failed) err_set(i->e, "%s", text);
    i->failed = true;
}

int64_t config_int(Import *i, const cJSON *o, const char *key, int64_t min, int64_t max, int64_t def) {
    int64_t v = def;
    if (!i->failed && hf_json_int(o, i->path, key, def < 0, min, max, &v, i->e)) i->failed = true;
    return i->failed ? min : v;
}

double config_float(Import *i, const cJSON *o, const char *key, double def) {
    const cJSON *v = hf_json_get(o, key);
    if (!v && isnan(def)) import_fail(i, "%s: \"%s\" is missing", i->path, key);
    if (v && !(cJSON_IsNumber(v) && isfinite((float)v->valuedouble)))
        import_fail(i, "%s: \"%s\" is no number that can be used", i->path, key);
    return i->failed ? 1 : v ? v->valuedouble : def;
}

bool config_bool(Import *i, const cJSON *o, const char *key, bool def) {
    bool v = def;
    if (!i->failed && hf_json_bool(o, i->path, key, false, &v, i->e)) i->failed = true;
    return v;
}

void config_refuse(Import *i, const cJSON *o, const char *key) {
    if (hf_json_get(o, key)) import_fail(i, "%s: \"%s\" is not supported by this build", i->path, key);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* A new value with its key; NULL after a failure. */
static MetaValue *add(Import *i, const char *key, MetaType type) {
    static const char *const whole[] = {"general.", "tokenizer.", "sheaf."};
    const char *arch = i->class ? i->class->arch : "";
    size_t room = strlen(arch) + strlen(key) + 2;
    if (i->failed) return NULL;
    char *text = model_file_alloc(i->g, room, i->e);
    if (!text || grow((void **)&i->g->values, i->g->n_values, &i->room_values, sizeof(MetaValue))) {
        import_fail(i, "%s: out of memory", i->path);
        return NULL;
    }
    bool own = false;
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) own |= !strncmp(key, whole[k], strlen(whole[k]));
    int n = own ? snprintf(text, room, "%s", key) : snprintf(text, room, "%s.%s", arch, key);
    MetaValue *v = &i->g->values[i->g->n_values++];
    *v = (MetaValue){.key = {text, (size_t)n}, .type = type};
    return v;
}

void import_int(Import *i, const char *key, int64_t v) {
    MetaValue *m = add(i, key, META_U32);
    if (m) m->v.i = v;
}

void import_float(Import *i, const char *key, double v) {
    MetaValue *m = add(i, key, META_F32);
    if (m) m->v.f = (double)(float)v;
}

void import_bool(Import *i, const char *key, bool v) {
    MetaValue *m = add(i, key, META_BOOL);
    if (m) m->v.u = v;
}

static const void *copy(Import *i, const void *bytes, size_t n) {
    void *p = i->failed ? NULL : model_file_alloc(i->g, n + 1, i->e);
    if (!p) import_fail(i, "%s: out of memory", i->path);
    else if (n) memcpy(p, bytes, n);
    return p;
}

void import_text(Import *i, const char *key, const char *text, size_t n) {
    const char *p = copy(i, text, n);
    MetaValue *m = p ? add(i, key, META_STRING) : NULL;
    if (m) m->v.s = (Text){p, n};
}

void import_array(Import *i, const char *key, MetaType type, size_t n, const void *elements) {
    const uint8_t *p = copy(i, elements, n * meta_type_bytes(type));
    MetaValue *m = p ? add(i, key, META_ARRAY) : NULL;
    if (!m) return;
    m->v.a.type = type;
    m->v.a.n = n;
    m->v.a.data = p;
}

/* ---- what some classes have -------------------------------------------------------------------------------------- */

/* "layer_types": whether each layer has a window; NULL after a failure or without that key. */
static const uint8_t *layer_types(Import *i) {
    const cJSON *list = hf_json_get(i->config, "layer_types"), *v = list ? list->child : NULL;
    if (i->failed || !list) return NULL;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != i->layers) {
        import_fail(i, "%s: \"layer_types\" is no list of %lld", i->path, (long long)i->layers);
        return NULL;
    }
    uint8_t *windows = model_file_alloc(i->g, (size_t)i->layers, i->e);
    if (!windows) i->failed = true;
    for (int64_t l = 0; l < i->layers && !i->failed; l++, v = v->next) {
        const char *kind = cJSON_IsString(v) ? v->valuestring : "";
        windows[l] = !strcmp(kind, "sliding_attention");
        if (!windows[l] && strcmp(kind, "full_attention") != 0)
            import_fail(i, "%s: layer %lld is of type \"%s\", which is not supported", i->path, (long long)l,
                        text_printable(hf_string(kind)).text);
    }
    return i->failed ? NULL : windows;
}

static void read_windows(Import *i) {
    const uint8_t *windows = layer_types(i);
    if (i->class->window < 0) {
        bool used = config_bool(i, i->config, "use_sliding_window", false);
        for (int64_t l = 0; l < i->layers && windows; l++) used |= windows[l];
        if (used)
            import_fail(i, "%s: a sliding window (\"use_sliding_window\") is not supported by this build", i->path);
        return;
    }
    /* null is not the same as a missing key here */
    const cJSON *there = cJSON_GetObjectItemCaseSensitive(i->config, "sliding_window");
    int64_t window =
        cJSON_IsNull(there) ? 0 : config_int(i, i->config, "sliding_window", 0, INT32_MAX, i->class->window);
    if (window == 0) return;
    import_int(i, "attention.sliding_window", window);
    if (windows) import_array(i, "attention.sliding_window_pattern", META_BOOL, (size_t)i->layers, windows);
}

/* Gemma scales scores by this in place of the head's size; the builders know the two cases there are. */
static void check_query_scale(Import *i, int64_t large) {
    double scale = config_float(i, i->config, "query_pre_attn_scalar", 256);
    int64_t known = i->layers == large ? i->width / i->heads : i->head_dim;
    if (scale != (double)known)
        import_fail(i, "%s: \"query_pre_attn_scalar\" is %g; this build supports %lld in this model", i->path, scale,
                    (long long)known);
    if (config_bool(i, i->config, "use_bidirectional_attention", false))
        import_fail(i, "%s: \"use_bidirectional_attention\" is not supported by this build", i->path);
}

/* A soft cap, where null means none and a missing key the default. */
static void read_cap(Import *i, const char *theirs, const char *ours, double def) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(i->config, theirs);
    double cap = cJSON_IsNull(v) ? 0 : config_float(i, i->config, theirs, def);
    if (cap < 0) import_fail(i, "%s: \"%s\" is below 0", i->path, theirs);
    import_float(i, ours, cap);
}

static void gemma2(Import *i) {
    check_query_scale(i, 46);
    read_cap(i, "attn_logit_softcapping", "attn_logit_softcapping", 50);
    read_cap(i, "final_logit_softcapping", "final_logit_softcapping", 30);
}

static void gemma3(Import *i) {
    check_query_scale(i, 62);
    config_refuse(i, i->config, "attn_logit_softcapping");
    read_cap(i, "final_logit_softcapping", "final_logit_softcapping", 0);
    int64_t period = config_int(i, i->config, "sliding_window_pattern", 1, INT32_MAX, 6);
    if (!hf_json_get(i->config, "layer_types")) import_int(i, "attention.sliding_window_pattern", period);
}

/* Every fourth layer does not rotate; the builder knows no other order. */
static void smollm3(Import *i) {
    const cJSON *list = hf_json_get(i->config, "no_rope_layers");
    int64_t l = 0;
    if (list && !cJSON_IsArray(list)) import_fail(i, "%s: \"no_rope_layers\" is no list", i->path);
    for (const cJSON *v = list ? list->child : NULL; v && l < i->layers; v = v->next, l++)
        if (!cJSON_IsNumber(v) || (v->valuedouble != 0) != ((l + 1) % 4 != 0))
            import_fail(i, "%s: \"no_rope_layers\" of another order than every fourth are not supported", i->path);
    if (list ? l < i->layers : config_int(i, i->config, "no_rope_layer_interval", 1, INT32_MAX, 4) != 4)
        import_fail(i, "%s: layers without rotation that are not every fourth are not supported", i->path);
}

/* Versions of transformers save either name for the same number. `experts`, `used`: where config.json does not say. */
static void read_experts(Import *i, int64_t experts, int64_t used) {
    int64_t local = config_int(i, i->config, "num_local_experts", 1, 65536, experts);
    i->n_experts = config_int(i, i->config, "num_experts", 1, 65536, local);
    if (hf_json_get(i->config, "num_local_experts") && i->n_experts != local)
        import_fail(i, "%s: \"num_experts\" and \"num_local_experts\" differ", i->path);
    import_int(i, "expert_count", i->n_experts);
    import_int(i, "expert_used_count", config_int(i, i->config, "num_experts_per_tok", 1, i->n_experts, used));
}

static void mixtral(Import *i) { read_experts(i, 8, 2); }

static void olmoe(Import *i) {
    read_experts(i, 64, 8);
    import_bool(i, "expert_weights_norm", config_bool(i, i->config, "norm_topk_prob", false));
    config_refuse(i, i->config, "clip_qkv");
}

static void qwen_moe(Import *i, int64_t experts, int64_t used, int64_t width) {
    const cJSON *dense = hf_json_get(i->config, "mlp_only_layers");
    read_experts(i, experts, used);
    import_int(i, "expert_feed_forward_length", config_int(i, i->config, "moe_intermediate_size", 1, 1 << 24, width));
    import_bool(i, "expert_weights_norm", config_bool(i, i->config, "norm_topk_prob", false));
    if (config_int(i, i->config, "decoder_sparse_step", 1, INT32_MAX, 1) != 1 || (dense && dense->child))
        import_fail(i,
                    "%s: layers without experts among others (\"decoder_sparse_step\", \"mlp_only_layers\") are not "
                    "supported by this build",
                    i->path);
}

static void qwen2_moe(Import *i) {
    qwen_moe(i, 60, 4, 1408);
    import_int(i, "expert_shared_feed_forward_length",
               config_int(i, i->config, "shared_expert_intermediate_size", 1, 1 << 24, 5632));
    if (!config_bool(i, i->config, "qkv_bias", true)) i->biases &= ~(unsigned)BIAS_QKV;
}

static void qwen3_moe(Import *i) { qwen_moe(i, 128, 8, 768); }

static void bert(Import *i) {
    Text positions = hf_string("absolute");
    import_float(i, "attention.layer_norm_epsilon", config_float(i, i->config, "layer_norm_eps", 1e-12));
    import_bool(i, "attention.causal", false);
    if (hf_json_string(i->config, i->path, "position_embedding_type", false, &positions, i->e)) i->failed = true;
    if (!hf_is(positions, "absolute"))
        import_fail(i, "%s: \"position_embedding_type\" \"%s\" is not supported", i->path,
                    text_printable(positions).text);
    if (config_bool(i, i->config, "is_decoder", false))
        import_fail(i, "%s: a BERT that is a decoder (\"is_decoder\") is not supported", i->path);
}

/* ---- the classes ------------------------------------------------------------------------------------------------- */

#define SILU  .activation = "silu"
#define GEMMA .activation = "gelu_pytorch_tanh", .names = NAMES_POST_NORM, .tied = true, .norm_add = 1, .window = 4096
static const HfClass classes[] = {
    {"LlamaForCausalLM", "llama", SILU, .pairs = true, .llama3_rope = true, .rope_base = 10000},
    {"MistralForCausalLM", "llama", SILU, .pairs = true, .llama3_rope = true, .rope_base = 10000, .window = 4096},
    {"MixtralForCausalLM", "llama", SILU, .pairs = true, .llama3_rope = true, .rope_base = 1000000, .more = mixtral},
    {"Qwen2ForCausalLM", "qwen2", SILU, .rope_base = 10000, .window = -1, .biases = BIAS_QKV},
    {"Qwen2MoeForCausalLM", "qwen2moe", SILU, .rope_base = 10000, .window = -1, .biases = BIAS_QKV, .more = qwen2_moe},
    {"Qwen3ForCausalLM", "qwen3", SILU, .rope_base = 10000, .window = -1},
    {"Qwen3MoeForCausalLM", "qwen3moe", SILU, .rope_base = 10000, .window = -1, .more = qwen3_moe},
    {"Gemma2ForCausalLM", "gemma2", GEMMA, .rope_base = 10000, .more = gemma2},
    {"Gemma3ForCausalLM", "gemma3", GEMMA, .rope_base = 1000000, .local_rope_base = 10000, .more = gemma3},
    {"Gemma3ForConditionalGeneration", "gemma3", GEMMA, .part = "text_config", .rope_base = 1000000,
     .local_rope_base = 10000, .more = gemma3},
    {"Phi3ForCausalLM", "phi3", SILU, .plain_rope = true, .rope_base = 10000},
    {"Olmo2ForCausalLM", "olmo2", SILU, .names = NAMES_POST_NORM, .rope_base = 10000},
    {"OlmoeForCausalLM", "olmoe", SILU, .rope_base = 10000, .more = olmoe},
    {"Olmo3ForCausalLM", "olmo2", SILU, .names = NAMES_POST_NORM, .rope_base = 500000, .window = 4096},
    {"SmolLM3ForCausalLM", "smollm3", SILU, .tied = true, .pairs = true, .llama3_rope = true, .rope_base = 2000000,
     .window = -1, .more = smollm3},
    {"BertModel", "bert", .activation = "gelu", .names = NAMES_BERT, .tied = true,
     .biases = BIAS_QKV | BIAS_OUTPUT | BIAS_FFN, .more = bert},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

static void find_class(Import *i, const cJSON *root) {
    const cJSON *list = hf_json_get(root, "architectures"), *first = cJSON_IsArray(list) ? list->child : NULL;
    const char *name = cJSON_GetStringValue(first);
    StrBuf known = {0};
    for (int k = 0; k < N_CLASSES && name; k++) {
        if (!strcmp(name, classes[k].name)) i->class = &classes[k];
        strbuf_printf(&known, "%s%s", k ? ", " : "", classes[k].name);
    }
    if (!cJSON_IsObject(root)) import_fail(i, "%s: is no JSON object", i->path);
    else if (!name) import_fail(i, "%s: \"architectures\" names none", i->path);
    else if (!i->class)
        import_fail(i, "%s: architecture \"%s\" is not supported (this build reads: %s)", i->path,
                    text_printable(hf_string(name)).text, known.data ? known.data : "");
    strbuf_free(&known);
}

static void check_activation(Import *i) {
    static const char *const keys[] = {"hidden_act", "hidden_activation"};
    for (int k = 0; k < 2; k++) {
        Text act = hf_string(i->class->activation);
        if (!i->failed && hf_json_string(i->config, i->path, keys[k], false, &act, i->e)) i->failed = true;
        if (!hf_is(act, i->class->activation))
            import_fail(i, "%s: \"%s\" is \"%s\"; this build supports %s in this model", i->path, keys[k],
                        text_printable(act).text, i->class->activation);
    }
}

/* What all of them have. */
static void read_shape(Import *i) {
    const cJSON *c = i->config;
    i->layers = config_int(i, c, "num_hidden_layers", 1, 4096, -1);
    i->width = config_int(i, c, "hidden_size", 1, 1 << 20, -1);
    i->heads = config_int(i, c, "num_attention_heads", 1, 4096, -1);
    i->kv_heads = config_int(i, c, "num_key_value_heads", 1, i->heads, i->heads);
    i->head_dim = config_int(i, c, "head_dim", 1, 1024, i->width / i->heads);
    i->vocab = config_int(i, c, "vocab_size", 1, INT32_MAX, -1);
    import_int(i, "block_count", i->layers);
    import_int(i, "embedding_length", i->width);
    import_int(i, "feed_forward_length", config_int(i, c, "intermediate_size", 1, 1 << 24, -1));
    import_int(i, "attention.head_count", i->heads);
    import_int(i, "attention.head_count_kv", i->kv_heads);
    import_int(i, "context_length", config_int(i, c, "max_position_embeddings", 1, INT32_MAX, -1));
    import_int(i, "vocab_size", i->vocab);
    if (i->class->names == NAMES_BERT) return;
    import_int(i, "attention.key_length", i->head_dim);
    import_int(i, "attention.value_length", i->head_dim);
    import_float(i, "attention.layer_norm_rms_epsilon", config_float(i, c, "rms_norm_eps", NAN));
}

void hf_config_read(Import *i, const cJSON *root) {
    find_class(i, root);
    if (i->failed) return;
    const cJSON *quantised = hf_json_get(root, "quantization_config"), *method = hf_json_get(quantised, "quant_method");
    if (quantised)
        import_fail(
            i, "%s: weights quantised by \"%s\" (\"quantization_config\") are not supported; F32, F16 and BF16 are",
            i->path, cJSON_IsString(method) ? text_printable(hf_string(method->valuestring)).text : "?");
    i->config = i->class->part ? hf_json_get(root, i->class->part) : root;
    if (!cJSON_IsObject(i->config)) import_fail(i, "%s: \"%s\" is no object", i->path, i->class->part);
    import_text(i, "general.architecture", i->class->arch, strlen(i->class->arch));
    check_activation(i);
    read_shape(i);
    i->tied =
        config_bool(i, root, "tie_word_embeddings", config_bool(i, i->config, "tie_word_embeddings", i->class->tied));
    i->biases = i->class->biases;
    if (config_bool(i, i->config, "attention_bias", false)) i->biases |= BIAS_QKV | BIAS_OUTPUT;
    if (config_bool(i, i->config, "mlp_bias", false)) i->biases |= BIAS_FFN;
    if (i->class->names != NAMES_BERT) {
        read_windows(i);
        hf_rope_read(i);
    }
    if (i->class->more && !i->failed) i->class->more(i);
}
