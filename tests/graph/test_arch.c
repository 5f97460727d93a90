/* The builders: what a file says becomes a graph, and what is wrong with a file becomes one line that names it. */
#include "check.h"
#include "graph/arch.h"
#include "graph/gguf.h"
#include "tiny_variants.h"

static const TinyModel tiny = {.layers = 2,
                               .width = 96,
                               .heads = 3,
                               .kv_heads = 1,
                               .ffn = 64,
                               .vocab = 300,
                               .context = 512,
                               .qtype = QT_Q8_0,
                               .seed = 1};

typedef struct Built {
    uint8_t *bytes;
    ModelFile *file;
    Graph graph;
    LmShape shape;
    Err e;
    int status; /* of arch_build */
} Built;

/* Whoever `edit`s the writer's output sees the whole file in memory. */
static Built build(GgufWriter *w, void (*edit)(uint8_t *bytes, size_t size, const void *arg), const void *arg) {
    Built b = {0};
    size_t size;
    b.bytes = gw_finish(w, &size);
    gw_free(w);
    if (edit) edit(b.bytes, size, arg);
    CU_ASSERT_FATAL(!gguf_from_memory(b.bytes, size, size, "tiny.gguf", &b.file, &b.e));
    b.status = arch_build(b.file, &b.graph, &b.shape, &b.e);
    return b;
}

static void built_free(Built *b) {
    graph_free(&b->graph);
    model_file_close(b->file);
    free(b->bytes);
}

static GgufWriter writer(const TinyModel *m) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, m);
    return w;
}

static GgufWriter variant(const TinyVariant *m) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    variant_build(&w, m);
    return w;
}

static int count(const Graph *g, OpKind kind) {
    int n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += g->op[i].kind == kind;
    return n;
}

static const Op *op_named(const Graph *g, const char *name) {
    for (int32_t i = 0; i < g->n_ops; i++)
        if (!strcmp(g->op[i].name, name)) return &g->op[i];
    return NULL;
}

/* The operators of a llama layer, from its papers: 2 norms, 7 matrices, 2 rotations, 1 attention, 1 gated product, 2
 * residual additions; then one selection, norm and head. */
static void test_llama(void) {
    GgufWriter w = writer(&tiny);
    Built b = build(&w, NULL, NULL);
    const Graph *g = &b.graph;
    CU_ASSERT_EQUAL_FATAL(b.status, 0);
    CU_ASSERT(b.shape.layers == 2 && b.shape.width == 96 && b.shape.ffn == 64 && b.shape.heads == 3 &&
              b.shape.kv_heads == 1);
    CU_ASSERT(b.shape.head_dim == 32 && b.shape.vocab == 300 && b.shape.context == 512 && b.shape.rope_base == 10000.0);
    CU_ASSERT_EQUAL(count(g, OP_LINEAR), 2 * 7 + 1);
    CU_ASSERT_EQUAL(count(g, OP_RMSNORM), 2 * 2 + 1);
    CU_ASSERT_EQUAL(count(g, OP_ROPE), 2 * 2);
    CU_ASSERT_EQUAL(count(g, OP_ATTENTION), 2);
    CU_ASSERT_EQUAL(count(g, OP_KV_STORE), 2);
    CU_ASSERT_EQUAL(count(g, OP_SILU_MUL), 2);
    CU_ASSERT_EQUAL(count(g, OP_ADD), 2 * 2);
    CU_ASSERT_EQUAL(g->op[g->value[g->output[0]].producer].kind, OP_STATS);
    const Op *a = op_named(g, "blk.1.attention"), *r = op_named(g, "blk.1.rope_k"), *n = op_named(g, "blk.0.ffn_norm");
    CU_ASSERT_FATAL(a && r && n);
    CU_ASSERT(a->u.attn.heads == 3 && a->u.attn.kv_heads == 1 && a->u.attn.head_dim == 32);
    CU_ASSERT_DOUBLE_EQUAL(a->u.attn.scale, 0.17677669529663687, 1e-8); /* 1 / sqrt(32) */
    CU_ASSERT(r->u.rope.heads == 1 && r->u.rope.shape.dim == 32 && !r->u.rope.shape.neox);
    CU_ASSERT(n->u.norm.eps == 1e-5f);
    /* every weight lies where the file says */
    int weights = 0;
    for (ValueId v = 0; v < g->n_values; v++) {
        const Value *x = &g->value[v];
        if (x->kind != VALUE_WEIGHT) continue;
        const FileTensor *t = file_tensor(b.file, x->name);
        CU_ASSERT_FATAL(t != NULL);
        CU_ASSERT(file_tensor_at(b.file, (size_t)x->tensor) == t && x->offset == 0 && (int)x->type == t->type &&
                  x->memory == NULL);
        CU_ASSERT(x->dim[x->n_dims - 1].size == (int64_t)t->dims[0]);
        weights++;
    }
    CU_ASSERT_EQUAL((size_t)weights, file_n_tensors(b.file));
    built_free(&b);
}

/* Without output.weight the embedding serves as the head: one value, two readers. */
static void test_tied(void) {
    TinyModel m = tiny;
    m.tied_head = true;
    GgufWriter w = writer(&m);
    Built b = build(&w, NULL, NULL);
    CU_ASSERT_EQUAL_FATAL(b.status, 0);
    const Op *embed = op_named(&b.graph, "token_embd"), *head = op_named(&b.graph, "output");
    CU_ASSERT_FATAL(embed && head);
    CU_ASSERT_EQUAL(embed->in[1], head->in[1]);
    CU_ASSERT_EQUAL(graph_uses(&b.graph, head->in[1]), 2);
    built_free(&b);
}

/* What else the other architectures have: biases on Q, K and V; norms of heads; norms behind layers; scaled embeddings
 * (sqrt(96)), gated GELU, soft caps; layers that see a window only. */
static void test_others(void) {
    static const struct {
        TinyVariant file;
        int norms, headnorms, biased, gelu, softcaps, windows; /* in the whole graph */
    } cases[] = {
        {{.arch = "qwen2", .layers = 2, .pre_norms = true, .biases = true}, .norms = 5, .biased = 6},
        {{.arch = "qwen3", .layers = 2, .pre_norms = true, .norms_of = 1}, .norms = 5, .headnorms = 4},
        {{.arch = "gemma2", .layers = 4, .pre_norms = true, .post_norms = true, .window = 8},
         .norms = 17,
         .gelu = 4,
         .softcaps = 1,
         .windows = 2},
        {{.arch = "gemma3", .layers = 7, .pre_norms = true, .post_norms = true, .norms_of = 1, .window = 8},
         .norms = 29,
         .headnorms = 14,
         .gelu = 7,
         .windows = 6},
        {{.arch = "phi3", .layers = 2, .pre_norms = true, .fused = true, .window = 8}, .norms = 5, .windows = 2},
        {{.arch = "olmo2", .layers = 2, .post_norms = true, .norms_of = 2}, .norms = 9},
        {{.arch = "llama", .layers = 2, .pre_norms = true, .window = 8}, .norms = 5, .windows = 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TinyVariant m = cases[i].file;
        m.width = 96;
        m.heads = 4;
        m.kv_heads = 2;
        m.head_dim = 32;
        m.ffn = 64;
        m.vocab = 300;
        m.qtype = QT_F32;
        GgufWriter w = variant(&m);
        Built b = build(&w, NULL, NULL);
        const Graph *g = &b.graph;
        CU_ASSERT_EQUAL(b.status, 0);
        if (b.status) printf("\n%s", b.e.msg);
        int biased = 0, windows = 0, neox = 0, capped = 0;
        for (int32_t k = 0; k < g->n_ops; k++) {
            const Op *op = &g->op[k];
            biased += op->kind == OP_LINEAR && op->u.linear.bias;
            windows += op->kind == OP_ATTENTION && op->u.attn.window == m.window && m.window > 0;
            capped += op->kind == OP_ATTENTION && op->u.attn.softcap == 50.0f;
            neox += op->kind == OP_ROPE && op->u.rope.shape.neox;
        }
        CU_ASSERT_EQUAL(count(g, OP_RMSNORM), cases[i].norms);
        CU_ASSERT_EQUAL(count(g, OP_HEADNORM), cases[i].headnorms);
        CU_ASSERT_EQUAL(count(g, OP_GELU_MUL), cases[i].gelu);
        CU_ASSERT_EQUAL(count(g, OP_SILU_MUL), m.layers - cases[i].gelu);
        CU_ASSERT_EQUAL(count(g, OP_SOFTCAP), cases[i].softcaps);
        CU_ASSERT_EQUAL(count(g, OP_LINEAR), 7 * m.layers + 1);
        CU_ASSERT_EQUAL(biased, cases[i].biased);
        CU_ASSERT_EQUAL(windows, cases[i].windows);
        CU_ASSERT_EQUAL(neox, strcmp(m.arch, "llama") ? 2 * m.layers : 0);
        CU_ASSERT_EQUAL(capped, strcmp(m.arch, "gemma2") ? 0 : m.layers);
        const Op *scale = op_named(g, "token_scale");
        CU_ASSERT((scale != NULL) == (cases[i].gelu > 0));
        if (scale) CU_ASSERT_DOUBLE_EQUAL(scale->u.scale.factor, 9.797958971132712, 1e-6);
        built_free(&b);
    }
}

/* Spoils the first occurrence of the text, so that the file lacks what had that name. */
static void spoil(uint8_t *bytes, size_t size, const void *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i + n <= size; i++)
        if (!memcmp(bytes + i, name, n)) {
            bytes[i] = 'X';
            return;
        }
    CU_FAIL("the name is not in the file");
}

static void refused(Built *b, const char *one, const char *two) {
    CU_ASSERT_EQUAL(b->status, -1);
    CU_ASSERT(strstr(b->e.msg, "tiny.gguf") && strstr(b->e.msg, one) && strstr(b->e.msg, two));
    if (!strstr(b->e.msg, one) || !strstr(b->e.msg, two))
        printf("\n\"%s\" lacks \"%s\" or \"%s\"\n", b->e.msg, one, two);
    built_free(b);
}

static void test_missing_tensor(void) {
    static const TinyVariant models[] = {
        {.arch = "llama", .layers = 1, .pre_norms = true},
        {.arch = "qwen2", .layers = 1, .pre_norms = true, .biases = true},
        {.arch = "qwen3", .layers = 1, .pre_norms = true, .norms_of = 1},
        {.arch = "gemma2", .layers = 1, .pre_norms = true, .post_norms = true, .window = 8},
        {.arch = "phi3", .layers = 1, .pre_norms = true, .fused = true},
        {.arch = "olmo2", .layers = 1, .post_norms = true, .norms_of = 2}};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        TinyVariant m = models[k];
        m.width = 96;
        m.heads = 3;
        m.kv_heads = 1;
        m.head_dim = 32;
        m.ffn = 64;
        m.vocab = 300;
        m.qtype = QT_Q8_0;
        m.tied_head = true; /* the head is one of two that can be done without; biases are the others */
        GgufWriter all = variant(&m);
        Built whole = build(&all, NULL, NULL);
        CU_ASSERT_EQUAL(whole.status, 0);
        for (size_t i = 0; i < file_n_tensors(whole.file); i++) {
            char name[64];
            Text s = file_tensor_at(whole.file, i)->name;
            snprintf(name, sizeof name, "%.*s", (int)s.size, s.data);
            GgufWriter w = variant(&m);
            Built b = build(&w, spoil, name);
            /* a bias can be done without, but then there is one that nobody asked for */
            bool bias = strstr(name, ".bias") != NULL;
            refused(&b, bias ? name + 1 : name, bias ? "does not know what tensor" : "missing");
        }
        built_free(&whole);
    }
}

/* A type whose size is known but which no kernel runs: I32, the size of the F32 that the file has. */
static void make_i32(uint8_t *bytes, size_t size, const void *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i + n + 24 <= size; i++)
        if (!memcmp(bytes + i, name, n)) {
            bytes[i + n + 4 + 2 * 8] = 26; /* after the number of dimensions and two of them */
            return;
        }
}

static void test_type_that_is_not_run(void) {
    TinyModel m = tiny;
    m.qtype = QT_F32;
    GgufWriter w = writer(&m);
    Built b = build(&w, make_i32, "blk.1.ffn_up.weight");
    refused(&b, "blk.1.ffn_up.weight", "type I32, which is not run by this build yet");
}

static void test_missing_key(void) {
    static const char *const keys[] = {"llama.block_count",         "llama.embedding_length",
                                       "llama.feed_forward_length", "llama.attention.head_count",
                                       "llama.context_length",      "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        GgufWriter w = writer(&tiny);
        Built b = build(&w, spoil, keys[i]);
        refused(&b, keys[i], "");
    }
    GgufWriter w = writer(&tiny);
    Built b = build(&w, spoil, "general.architecture");
    refused(&b, "general.architecture", "");
}

static void rename_architecture(uint8_t *bytes, size_t size, const void *name) {
    for (size_t i = 0; i + 5 <= size; i++)
        if (!memcmp(bytes + i, "llama", 5) && bytes[i - 8] == 5) { /* the value: its length stands before it */
            memcpy(bytes + i, name, 5);
            return;
        }
}

static const TinyVariant plain = {.arch = "llama",
                                  .layers = 1,
                                  .width = 96,
                                  .heads = 3,
                                  .kv_heads = 1,
                                  .head_dim = 32,
                                  .ffn = 64,
                                  .vocab = 300,
                                  .qtype = QT_F32,
                                  .pre_norms = true};

/* Names that begin like one that is known, too. */
static void test_unknown_architecture(void) {
    GgufWriter w = writer(&tiny);
    Built b = build(&w, rename_architecture, "opera");
    refused(&b, "opera", "llama");
    static const char *const others[] = {"llama4", "gemma3n", "gemma", "qwen", "granitemoe", "phi2"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        TinyVariant m = plain;
        char name[32];
        m.arch = others[i];
        w = variant(&m);
        b = build(&w, NULL, NULL);
        snprintf(name, sizeof name, "\"%s\" is not supported", m.arch);
        refused(&b, name, "granite");
    }
}

/* Granite's factors: 0 rotations where the file says so, the logits divided; each is 1 where the file has none, but for
 * the logits' one. */
static void test_granite(void) {
    TinyVariant m = plain;
    m.arch = "granite";
    for (int rotates = 0; rotates < 2; rotates++) {
        GgufWriter w = variant(&m);
        gw_f32(&w, "granite.logit_scale", 8);
        gw_f32(&w, "granite.residual_scale", 0.25F);
        gw_bool(&w, "granite.rope.scaling.finetuned", rotates);
        Built b = build(&w, NULL, NULL);
        CU_ASSERT_EQUAL_FATAL(b.status, 0);
        CU_ASSERT_EQUAL(count(&b.graph, OP_ROPE), 2 * rotates);
        CU_ASSERT_EQUAL(count(&b.graph, OP_ROPE_TABLE), rotates);
        CU_ASSERT_EQUAL(op_named(&b.graph, "token_scale")->u.scale.factor, 1.0F);
        CU_ASSERT_EQUAL(op_named(&b.graph, "blk.0.attn_scale")->u.scale.factor, 0.25F);
        CU_ASSERT_EQUAL(op_named(&b.graph, "blk.0.ffn_scale")->u.scale.factor, 0.25F);
        CU_ASSERT_EQUAL(op_named(&b.graph, "output_scale")->u.scale.factor, 0.125F);
        CU_ASSERT_DOUBLE_EQUAL(op_named(&b.graph, "blk.0.attention")->u.attn.scale, 0.1767766953, 1e-8); /* 32^-1/2 */
        built_free(&b);
    }
    GgufWriter w = variant(&m);
    Built b = build(&w, NULL, NULL);
    refused(&b, "granite.logit_scale", "");
}

/* What a file may ask for that this build does not have is named, not guessed at. */
static void test_not_supported(void) {
    TinyVariant m = plain;
    for (int i = 0; i < 2; i++) {
        GgufWriter w;
        gw_init(&w, 3, 32);
        m.scaling = i == 0 ? "dynamic" : NULL;
        m.arch = i ? "phi3" : "llama";
        m.fused = i > 0;
        if (i == 1) gw_u32(&w, "phi3.expert_count", 8);
        variant_build(&w, &m);
        Built b = build(&w, NULL, NULL);
        refused(&b, i == 0 ? "llama.rope.scaling.type" : "phi3.expert_count", "not supported");
    }
}

/* Metadata that contradict the tensors or each other. Keys given first win: the file's own follow, so they are left
 * out. */
static void test_contradictions(void) {
    static const struct {
        int layers, width, heads, kv_heads, ffn;
        const char *one, *two;
    } bad[] = {{3, 96, 3, 1, 64, "blk.2.", "missing"},       /* one layer more than there is */
               {2, 64, 2, 1, 64, "token_embd", "[300][96]"}, /* another width */
               {2, 96, 6, 1, 64, "attn_k", "[32][96]"},      /* heads of 16 */
               {2, 96, 3, 3, 64, "attn_k", "[32][96]"},
               {2, 96, 3, 1, 96, "ffn_gate", "[64][96]"},
               {2, 96, 3, 2, 64, "heads", "not supported"}, /* 3 heads with 2 KV heads */
               {2, 96, 4, 1, 64, "heads", "not supported"}, /* heads of 24 */
               {2, 96, 200, 1, 64, "", ""},                 /* heads of 0 */
               {2, 96, 3, 4, 64, "head_count_kv", ""},
               {0, 96, 3, 1, 64, "block_count", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GgufWriter w, tensors = writer(&tiny);
        gw_init(&w, 3, 32);
        gw_string(&w, "general.architecture", "llama");
        gw_u32(&w, "llama.block_count", (uint32_t)bad[i].layers);
        gw_u32(&w, "llama.context_length", 512);
        gw_u32(&w, "llama.embedding_length", (uint32_t)bad[i].width);
        gw_u32(&w, "llama.feed_forward_length", (uint32_t)bad[i].ffn);
        gw_u32(&w, "llama.attention.head_count", (uint32_t)bad[i].heads);
        gw_u32(&w, "llama.attention.head_count_kv", (uint32_t)bad[i].kv_heads);
        gw_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
        GwBytes infos = w.infos, data = w.data;
        w.infos = tensors.infos;
        w.data = tensors.data;
        w.n_tensors = tensors.n_tensors;
        tensors.infos = infos;
        tensors.data = data;
        gw_free(&tensors);
        Built b = build(&w, NULL, NULL);
        refused(&b, bad[i].one, bad[i].two);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"llama", test_llama},
                                        {"tied head", test_tied},
                                        {"the other architectures", test_others},
                                        {"what is not supported", test_not_supported},
                                        {"each tensor missing", test_missing_tensor},
                                        {"a type that is not run", test_type_that_is_not_run},
                                        {"each key missing", test_missing_key},
                                        {"unknown architecture", test_unknown_architecture},
                                        {"Granite's factors", test_granite},
                                        {"contradictions", test_contradictions},
                                        CU_TEST_INFO_NULL};
    return check_run("architectures", tests);
}
