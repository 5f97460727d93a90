/* The builders of each architecture, on the files of tests/fixtures/arch: what a file may lack or have wrong, and what
 * metadata make of rotary positions, windows and fused tensors. That the results are right, tests/engine/mpi_arch.c
 * shows. */
#include <math.h>

#include "arch_files.h"
#include "graph/arch.h"
#include "graph/gguf.h"

static const char *const models[] = {"llama3",   "llama_linear", "llama_yarn",  "mistral", "qwen2",     "qwen3",
                                     "gemma2",   "gemma3",       "gemma3_wide", "phi3",    "phi3_part", "phi3_long",
                                     "olmo2",    "olmo3",        "smollm3",     "granite", "bert",      "mixtral",
                                     "qwen2moe", "qwen3moe",     "olmoe"};
enum { N_MODELS = sizeof models / sizeof *models };

typedef struct Built {
    uint8_t *bytes;
    ModelFile *file;
    Graph graph;
    Err e;
    int status; /* of arch_build */
} Built;

static Built build_bytes(uint8_t *bytes, size_t size) {
    Built b = {.bytes = bytes};
    LmShape shape;
    if (gguf_from_memory(bytes, size, size, "tiny.gguf", &b.file, &b.e)) printf("\n%s", b.e.msg);
    CU_ASSERT_FATAL(b.file != NULL);
    b.status = arch_build(b.file, &b.graph, &shape, &b.e);
    return b;
}

static Built build(const char *model) {
    size_t size;
    uint8_t *bytes = arch_model(model, &size);
    return build_bytes(bytes, size);
}

static void built_free(Built *b) {
    graph_free(&b->graph);
    model_file_close(b->file);
    free(b->bytes);
}

/* The file was refused, by a line that names it and has both texts. */
static void refused(Built *b, const char *one, const char *two) {
    bool as_wanted = b->status && strstr(b->e.msg, "tiny.gguf") && strstr(b->e.msg, one) && strstr(b->e.msg, two);
    CU_ASSERT(as_wanted);
    if (!as_wanted) printf("\n\"%s\" lacks \"%s\" or \"%s\"", b->status ? b->e.msg : "(accepted)", one, two);
    built_free(b);
}

static void accepted(const Built *b) {
    if (b->status) printf("\n%s", b->e.msg);
    CU_ASSERT_EQUAL_FATAL(b->status, 0);
}

/* Where the text stands in the file; what describes a tensor or value follows it. */
static uint8_t *find(uint8_t *bytes, size_t size, const char *text) {
    size_t n = strlen(text);
    for (size_t i = 8; i + n <= size; i++)
        if (!memcmp(bytes + i, text, n) && bytes[i - 8] == n) return bytes + i; /* its length stands before it */
    printf("\nno %s", text);
    CU_FAIL_FATAL("the text is not in the file");
    return NULL;
}

static Built spoiled(const char *model, const char *text, size_t at, char c) {
    size_t size;
    uint8_t *bytes = arch_model(model, &size);
    find(bytes, size, text)[at] = (uint8_t)c;
    return build_bytes(bytes, size);
}

static const Op *op_named(const Graph *g, const char *name) {
    for (int32_t i = 0; i < g->n_ops; i++)
        if (!strcmp(g->op[i].name, name)) return &g->op[i];
    printf("\nno %s", name);
    CU_FAIL_FATAL("the operator is not in the graph");
    return NULL;
}

/* Each tensor of each model in turn gets another name: either it is missing, or, where a model may lack it, what stands
 * there instead is not known. */
static void test_missing_tensors(void) {
    for (int m = 0; m < N_MODELS; m++) {
        Built whole = build(models[m]);
        accepted(&whole);
        for (size_t i = 0; i < file_n_tensors(whole.file); i++) {
            char name[64];
            Text s = file_tensor_at(whole.file, i)->name;
            snprintf(name, sizeof name, "%.*s", (int)s.size, s.data);
            bool optional = (strstr(name, ".bias") && !strstr(name, "norm")) || !strcmp(name, "output.weight") ||
                            !strcmp(name, "rope_freqs.weight") || !strcmp(name, "token_types.weight") ||
                            strstr(name, "ffn_gate_inp_shexp");
            Built b = spoiled(models[m], name, 0, 'X');
            refused(&b, name + 1, optional ? "does not know" : "is missing");
        }
        built_free(&whole);
    }
}

/* Each tensor in turn with half its columns. */
static void test_wrong_shapes(void) {
    for (int m = 0; m < N_MODELS; m++) {
        Built whole = build(models[m]);
        accepted(&whole);
        for (size_t i = 0; i < file_n_tensors(whole.file); i++) {
            const FileTensor *t = file_tensor_at(whole.file, i);
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
            size_t size;
            uint8_t *bytes = arch_model(models[m], &size);
            uint64_t half = t->dims[0] / 2;
            memcpy(find(bytes, size, name) + strlen(name) + 4, &half, 8); /* after the count of dimensions */
            Built b = build_bytes(bytes, size);
            refused(&b, name, "but the metadata want");
        }
        built_free(&whole);
    }
}

/* A tiny llama with more metadata, from `add`. */
static Built with_metadata(void (*add)(GgufWriter *w)) {
    const TinyModel tiny = {
        .layers = 2, .width = 64, .heads = 2, .kv_heads = 1, .ffn = 64, .vocab = 300, .qtype = QT_F16};
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, &tiny);
    add(&w);
    size_t size;
    uint8_t *bytes = gw_finish(&w, &size);
    gw_free(&w);
    return build_bytes(bytes, size);
}

static void factor_alone(GgufWriter *w) { gw_f32(w, "llama.rope.scaling.factor", 4); }
static void old_factor(GgufWriter *w) { gw_f32(w, "llama.rope.scale_linear", 2); }
static void none(GgufWriter *w) {
    gw_string(w, "llama.rope.scaling.type", "none");
    gw_f32(w, "llama.rope.scaling.factor", 4);
}
static void linear(GgufWriter *w) {
    gw_string(w, "llama.rope.scaling.type", "linear");
    gw_f32(w, "llama.rope.scaling.factor", 8);
}
static void attention_factor(GgufWriter *w) { gw_f32(w, "llama.rope.scaling.attn_factor", 1.25F); }
static void yarn(GgufWriter *w) {
    gw_string(w, "llama.rope.scaling.type", "yarn");
    gw_f32(w, "llama.rope.scaling.factor", 4);
    gw_u32(w, "llama.rope.scaling.original_context_length", 64);
}
static void yarn_set(GgufWriter *w) {
    yarn(w);
    gw_f32(w, "llama.rope.scaling.yarn_attn_factor", 1.5F);
    gw_f32(w, "llama.rope.scaling.yarn_beta_fast", 16);
    gw_f32(w, "llama.rope.scaling.yarn_beta_slow", 2);
    gw_f32(w, "llama.rope.scaling.yarn_ext_factor", 1);
}

static void longrope(GgufWriter *w) { gw_string(w, "llama.rope.scaling.type", "longrope"); }

/* YaRN's attention factor is 1 + 0.1 ln(factor), arXiv:2309.00071, 3.4; its betas 32 and 1. */
static void test_rope_scaling(void) {
    static const struct {
        void (*add)(GgufWriter *w);
        double scale, attention, fast, slow;
        int64_t original;
    } cases[] = {
        {factor_alone, 0.25, 1, 0, 0, 0}, {old_factor, 0.5, 1, 0, 0, 0},        {none, 1, 1, 0, 0, 0},
        {linear, 0.125, 1, 0, 0, 0},      {attention_factor, 1, 1.25, 0, 0, 0}, {yarn, 0.25, 1.1386294361, 32, 1, 64},
        {yarn_set, 0.25, 1.5, 16, 2, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Built b = with_metadata(cases[i].add);
        accepted(&b);
        const RopeShape *r = &op_named(&b.graph, "rope_table")->u.rope.shape;
        CU_ASSERT(r->scale == cases[i].scale && r->original == cases[i].original && r->dim == 32 && r->base == 10000);
        CU_ASSERT_DOUBLE_EQUAL(r->attention, cases[i].attention, 1e-9);
        CU_ASSERT(r->beta_fast == cases[i].fast && r->beta_slow == cases[i].slow);
        built_free(&b);
    }
}

static void other_type(GgufWriter *w) { gw_string(w, "llama.rope.scaling.type", "spiral\x1b"); }
static void type_no_string(GgufWriter *w) { gw_u32(w, "llama.rope.scaling.type", 1); }
static void longrope_factor(GgufWriter *w) {
    longrope(w);
    gw_f32(w, "llama.rope.scaling.factor", 4);
}
static void negative(GgufWriter *w) { gw_f32(w, "llama.rope.scaling.factor", -4); }
static void yarn_multiplier(GgufWriter *w) {
    yarn(w);
    gw_f32(w, "llama.rope.scaling.yarn_log_multiplier", 0.1F);
}
static void yarn_mixture(GgufWriter *w) {
    yarn(w);
    gw_f32(w, "llama.rope.scaling.yarn_ext_factor", 0.5F);
}
static void long_factors(GgufWriter *w) {
    static const float one[16];
    gw_tensor(w, "rope_factors_long.weight", 0, 1, (uint64_t[]){16}, one, sizeof one);
}
static void short_freqs(GgufWriter *w) {
    static const float one[8];
    gw_tensor(w, "rope_freqs.weight", 0, 1, (uint64_t[]){8}, one, sizeof one);
}
static void unknown_tensor(GgufWriter *w) {
    static const float one[64];
    gw_tensor(w, "blk.1.attn_sinks.weight", 0, 1, (uint64_t[]){64}, one, sizeof one);
}
static void no_experts(GgufWriter *w) { gw_u32(w, "llama.expert_count", 0); }
static void value_size(GgufWriter *w) { gw_u32(w, "llama.attention.value_length", 16); }

static void test_refusals(void) {
    static const struct {
        void (*add)(GgufWriter *w);
        const char *one, *two;
    } cases[] = {{longrope, "rope_factors_short.weight", "is missing"},
                 {longrope_factor, "long and short factors", "llama.rope.scaling.factor"},
                 {other_type, "\"spiral?\"", "llama.rope.scaling.type"},
                 {type_no_string, "llama.rope.scaling.type", "string"},
                 {negative, "factor", "below 0"},
                 {yarn_multiplier, "yarn_log_multiplier", "not supported"},
                 {yarn_mixture, "yarn_ext_factor", "not supported"},
                 {long_factors, "rope_factors_short.weight", "is missing"},
                 {short_freqs, "rope_freqs.weight", "but the metadata want"},
                 {unknown_tensor, "blk.1.attn_sinks.weight", "architecture llama"},
                 {value_size, "llama.attention.value_length", "not supported"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Built b = with_metadata(cases[i].add);
        refused(&b, cases[i].one, cases[i].two);
    }
    Built b = with_metadata(no_experts);
    accepted(&b);
    built_free(&b);
    b = spoiled("llama_linear", "linear", 3, 'x');
    refused(&b, "\"linxar\"", "llama.rope.scaling.type");
    b = spoiled("gemma2", "gemma2.attention.sliding_window", 0, 'X');
    refused(&b, "gemma2.attention.sliding_window", "");
}

/* Where a value of 4 bytes or a flag stands behind its key and type. */
static Built changed(const char *model, const char *key, uint32_t value, size_t bytes) {
    size_t size;
    uint8_t *at = arch_model(model, &size), *file = at;
    memcpy(find(at, size, key) + strlen(key) + 4, &value, bytes);
    return build_bytes(file, size);
}

static void test_bert(void) {
    Built b = build("bert");
    accepted(&b);
    int states = 0;
    for (ValueId v = 0; v < b.graph.n_values; v++) states += b.graph.value[v].kind == VALUE_STATE;
    CU_ASSERT_EQUAL(states, 1); /* the layers take turns */
    CU_ASSERT_EQUAL(op_named(&b.graph, "blk.2.attention")->u.attn.window, WINDOW_WHOLE);
    CU_ASSERT_EQUAL(op_named(&b.graph, "pool")->out[0], b.graph.output[0]);
    built_free(&b);
    b = changed("bert", "bert.context_length", 64, 4); /* fewer than there are positions */
    accepted(&b);
    CU_ASSERT_EQUAL(b.graph.value[op_named(&b.graph, "position_embd.weight")->in[1]].dim[0].size, 64);
    built_free(&b);
    b = changed("bert", "bert.context_length", 81, 4);
    refused(&b, "position_embd.weight has 80 rows", "81 tokens");
    b = changed("bert", "bert.attention.causal", 1, 1);
    refused(&b, "bert.attention.causal", "not supported");
    b = changed("bert", "bert.pooling_type", 5, 4);
    refused(&b, "bert.pooling_type", "5");
    b = spoiled("bert", "bert.attention.layer_norm_epsilon", 5, 'X');
    refused(&b, "bert.attention.layer_norm_epsilon", "");
}

static void window(GgufWriter *w) { gw_u32(w, "llama.attention.sliding_window", 24); }
static void window_period(GgufWriter *w) {
    window(w);
    gw_u32(w, "llama.attention.sliding_window_pattern", 2);
}
static void window_numbers(GgufWriter *w) {
    window(w);
    gw_array(w, "llama.attention.sliding_window_pattern", GW_U32, 2, (uint32_t[]){0, 1}, 4);
}
static void window_flags(GgufWriter *w) {
    window(w);
    gw_array(w, "llama.attention.sliding_window_pattern", GW_BOOL, 2, (uint8_t[]){1, 0}, 1);
}
static void window_flag(GgufWriter *w) {
    window(w);
    gw_array(w, "llama.attention.sliding_window_pattern", GW_BOOL, 1, (uint8_t[]){1}, 1);
}
static void window_floats(GgufWriter *w) {
    window(w);
    gw_array(w, "llama.attention.sliding_window_pattern", GW_F32, 2, (float[]){1, 1}, 4);
}

static void test_window_keys(void) {
    static const struct {
        void (*add)(GgufWriter *w);
        int64_t window[2];
    } cases[] = {{no_experts, {0, 0}},
                 {window, {24, 24}},
                 {window_period, {24, 0}},
                 {window_numbers, {0, 24}},
                 {window_flags, {24, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Built b = with_metadata(cases[i].add);
        accepted(&b);
        CU_ASSERT_EQUAL(op_named(&b.graph, "blk.0.attention")->u.attn.window, cases[i].window[0]);
        CU_ASSERT_EQUAL(op_named(&b.graph, "blk.1.attention")->u.attn.window, cases[i].window[1]);
        built_free(&b);
    }
    Built b = with_metadata(window_flag);
    refused(&b, "sliding_window_pattern", "layer 1");
    b = with_metadata(window_floats);
    refused(&b, "sliding_window_pattern", "whole numbers");
}

/* Which layers have a window, and that they rotate by a table of their own: Gemma 2 every other one, Gemma 3 five of
 * six, OLMo 3 three of four (the papers in arch_*.c). */
static void test_windows(void) {
    static const struct {
        const char *model, *pattern; /* w: window */
    } cases[] = {{"mistral", "ww"},  {"phi3", "ww"},        {"phi3_part", ".."},
                 {"gemma2", "w.w."}, {"gemma3", "wwwww.w"}, {"olmo3", "www.w"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Built b = build(cases[i].model);
        accepted(&b);
        bool tables = strstr("gemma2 gemma3 olmo3", cases[i].model);
        for (int l = 0; cases[i].pattern[l]; l++) {
            char name[48];
            bool windowed = cases[i].pattern[l] == 'w';
            snprintf(name, sizeof name, "blk.%d.attention", l);
            CU_ASSERT_EQUAL(op_named(&b.graph, name)->u.attn.window, windowed ? 24 : 0);
            snprintf(name, sizeof name, "blk.%d.rope_k", l);
            const Value *table = &b.graph.value[op_named(&b.graph, name)->in[1]];
            CU_ASSERT_STRING_EQUAL(table->name, windowed && tables ? "rope_table_local" : "rope_table");
        }
        built_free(&b);
    }
    Built b = spoiled("gemma3", "gemma3.attention.sliding_window", 0, 'X'); /* without a window every layer sees all */
    accepted(&b);
    for (int32_t i = 0; i < b.graph.n_ops; i++) {
        if (b.graph.op[i].kind == OP_ATTENTION) CU_ASSERT_EQUAL(b.graph.op[i].u.attn.window, 0);
        CU_ASSERT(strcmp(b.graph.op[i].name, "rope_table_local") != 0);
    }
    built_free(&b);
}

/* LongRoPE: both tensors of factors, the context that divides them, and the factor of cosine and sine, which is
 * sqrt(1 + ln(512 / 64) / ln(64)) = sqrt(1.5); arXiv:2402.13753, as transformers has it. */
static void test_longrope(void) {
    Built b = build("phi3_long");
    accepted(&b);
    const Op *table = op_named(&b.graph, "rope_table");
    CU_ASSERT_EQUAL_FATAL(table->n_in, 3);
    CU_ASSERT_STRING_EQUAL(b.graph.value[table->in[1]].name, "rope_factors_short.weight");
    CU_ASSERT_STRING_EQUAL(b.graph.value[table->in[2]].name, "rope_factors_long.weight");
    const RopeShape *r = &table->u.rope.shape;
    CU_ASSERT(r->short_context == 64 && r->scale == 1 && r->original == 0);
    CU_ASSERT_DOUBLE_EQUAL(r->attention, 1.2247448714, 1e-7);
    built_free(&b);
}

static int count_ropes(const Graph *g, int layer) {
    char name[48];
    int n = 0;
    snprintf(name, sizeof name, "blk.%d.rope", layer);
    for (int32_t i = 0; i < g->n_ops; i++) n += g->op[i].kind == OP_ROPE && !strncmp(g->op[i].name, name, strlen(name));
    return n;
}

/* SmolLM3 does not rotate in every fourth layer; Granite in none, where a file says so. */
static void test_layers_without_rotation(void) {
    Built b = build("smollm3");
    accepted(&b);
    for (int l = 0; l < 5; l++) CU_ASSERT_EQUAL(count_ropes(&b.graph, l), l == 3 ? 0 : 2);
    built_free(&b);
    b = build("granite");
    accepted(&b);
    for (int l = 0; l < 2; l++) CU_ASSERT_EQUAL(count_ropes(&b.graph, l), 2);
    built_free(&b);
}

/* Gemma's scores are scaled by the size of a head; those of the 27B models, known by their layers, by width / heads:
 * https://github.com/google/gemma_pytorch/blob/main/gemma/config.py, query_pre_attn_scalar. */
static void test_gemma_scale(void) {
    static const struct {
        const char *model, *key;
        int layers;
        double scale;
    } cases[] = {{"gemma2", "gemma2.block_count", 4, 0.17677669529663687},
                 {"gemma2", "gemma2.block_count", 46, 0.25},
                 {"gemma3", "gemma3.block_count", 7, 0.17677669529663687},
                 {"gemma3", "gemma3.block_count", 62, 0.25},
                 {"gemma3_wide", "gemma3.block_count", 7, 0.0625}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) { /* with too many layers the first ones are built */
        Built b = spoiled(cases[i].model, cases[i].key, strlen(cases[i].key) + 4, (char)cases[i].layers);
        CU_ASSERT_DOUBLE_EQUAL((double)op_named(&b.graph, "blk.0.attention")->u.attn.scale, cases[i].scale, 1e-8);
        built_free(&b);
    }
}

/* Phi-3's tensors hold several matrices: 96 rows of queries, 32 of keys, 32 of values; 160 of gate, 160 of up. */
static void test_fused_tensors(void) {
    static const struct {
        const char *op, *tensor;
        int64_t row, rows;
    } parts[] = {{"blk.1.attn_q", "blk.1.attn_qkv.weight", 0, 96},
                 {"blk.1.attn_k", "blk.1.attn_qkv.weight", 96, 32},
                 {"blk.1.attn_v", "blk.1.attn_qkv.weight", 128, 32},
                 {"blk.1.ffn_gate", "blk.1.ffn_up.weight", 0, 160},
                 {"blk.1.ffn_up", "blk.1.ffn_up.weight", 160, 160}};
    static const struct {
        char gguf_id;
        uint64_t row_bytes;                              /* of 96 columns */
    } types[] = {{1, 2 * 96}, {8, 3 * 34}, {3, 3 * 20}}; /* F16, Q8_0, Q4_1 */
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        size_t size;
        uint8_t *bytes = arch_model("phi3", &size);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) /* name, count, two dimensions, type */
            find(bytes, size, parts[i].tensor)[strlen(parts[i].tensor) + 4 + 16] = (uint8_t)types[k].gguf_id;
        Built b = build_bytes(bytes, size);
        accepted(&b);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            const Value *w = &b.graph.value[op_named(&b.graph, parts[i].op)->in[1]];
            const FileTensor *t = file_tensor(b.file, parts[i].tensor);
            CU_ASSERT(w->dim[0].size == parts[i].rows && w->dim[1].size == 96);
            CU_ASSERT(file_tensor_at(b.file, (size_t)w->tensor) == t);
            CU_ASSERT_EQUAL(w->offset, (uint64_t)parts[i].row * types[k].row_bytes);
        }
        built_free(&b);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"each tensor missing", test_missing_tensors},
                                        {"each tensor of another shape", test_wrong_shapes},
                                        {"scaled rotations", test_rope_scaling},
                                        {"what is refused", test_refusals},
                                        {"keys of windows", test_window_keys},
                                        {"windows by layer", test_windows},
                                        {"long and short factors", test_longrope},
                                        {"layers without rotation", test_layers_without_rotation},
                                        {"Gemma's scale", test_gemma_scale},
                                        {"fused tensors", test_fused_tensors},
                                        {"BERT", test_bert},
                                        CU_TEST_INFO_NULL};
    return check_run("architectures' files", tests);
}
