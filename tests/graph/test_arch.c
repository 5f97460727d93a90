/* The builders: what a file says becomes a graph, and what is wrong with a file becomes one line that names it. */
#include "check.h"
#include "graph/arch.h"
#include "tiny_model.h"

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
    Gguf *file;
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
    gguf_close(b->file);
    free(b->bytes);
}

static GgufWriter writer(const TinyModel *m) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, m);
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
    CU_ASSERT_EQUAL(g->op[g->value[g->output].producer].kind, OP_STATS);
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
        const GgufTensor *t = gguf_tensor(b.file, x->name);
        CU_ASSERT_FATAL(t != NULL);
        CU_ASSERT(x->offset == t->offset && (int)x->type == t->type && x->memory == NULL);
        CU_ASSERT(x->dim[x->n_dims - 1].size == (int64_t)t->dims[0]);
        weights++;
    }
    CU_ASSERT_EQUAL((size_t)weights, gguf_n_tensors(b.file));
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
    TinyModel m = tiny;
    m.tied_head = true; /* so that none can be done without */
    GgufWriter all = writer(&m);
    Built whole = build(&all, NULL, NULL);
    for (size_t i = 0; i < gguf_n_tensors(whole.file); i++) {
        char name[64];
        GgufString s = gguf_tensor_at(whole.file, i)->name;
        snprintf(name, sizeof name, "%.*s", (int)s.size, s.data);
        GgufWriter w = writer(&m);
        Built b = build(&w, spoil, name);
        refused(&b, name, "missing");
    }
    built_free(&whole);
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

static void test_unknown_architecture(void) {
    GgufWriter w = writer(&tiny);
    Built b = build(&w, rename_architecture, "opera");
    refused(&b, "opera", "llama");
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
                                        {"each tensor missing", test_missing_tensor},
                                        {"each key missing", test_missing_key},
                                        {"unknown architecture", test_unknown_architecture},
                                        {"contradictions", test_contradictions},
                                        CU_TEST_INFO_NULL};
    return check_run("architectures", tests);
}
