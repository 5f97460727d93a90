/* Plans of many models for many rank counts: each is checked operator by operator (plan_check.h), its balance and its
 * collectives are those that can be derived by hand, and its hash says what matters. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "graph/gguf.h"
#include "llama_header.h"
#include "plan_check.h"
#include "tiny_variants.h"

static const LlamaSize sizes[] = {
    /* name, layers, width, heads, KV heads, head size, ffn, vocabulary, types */
    {"SmolLM2-135M", 2, 576, 9, 3, 64, 1536, 49152, QT_Q4_1, QT_Q8_0, true},
    {"12 heads, 2 KV", 2, 1536, 12, 2, 128, 8960, 151936, QT_Q4_0, QT_Q8_0, true},
    {"4 heads of 256", 2, 1024, 4, 1, 256, 2048, 1000, QT_Q8_0, QT_Q8_0, false},
    {"32 heads, 8 KV", 2, 4096, 32, 8, 128, 14336, 32000, QT_Q4_1, QT_Q8_0, false},
    {"7 heads, 7 KV", 2, 448, 7, 7, 64, 1216, 1003, QT_Q4_1, QT_Q8_0, false},
    {"float, ffn 100", 2, 96, 3, 1, 32, 100, 259, QT_F32, QT_F32, true},
    {"half, vocabulary 61", 2, 80, 5, 5, 16, 92, 61, QT_F16, QT_BF16, false},
    {"one head", 2, 64, 1, 1, 64, 64, 300, QT_Q8_0, QT_Q8_0, true},
    {"groups of two heads", 2, 96, 6, 3, 16, 224, 300, QT_Q8_0, QT_Q8_0, true},
    {"groups that cut heads of 16", 2, 96, 6, 6, 16, 96, 500, QT_Q4_1, QT_F16, false},
    {"heads of 80", 2, 320, 4, 2, 80, 384, 512, QT_Q4_0, QT_Q8_0, false},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };
static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64};
enum { N_RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

static Plan *plan(const Graph *g, int n_ranks) {
    Plan *p = NULL;
    Err e = {""};
    CU_ASSERT(!plan_make(g, &(PlanOptions){.n_ranks = n_ranks}, &p, &e));
    if (!p) printf("\n%s", e.msg);
    return p;
}

/* Both ways of quantising activations ask for the same groups. */
static void test_rules(void) {
    static const QType acts[] = {QT_A8, QT_A16};
    for (int i = 0; i < N_SIZES; i++)
        for (int a = 0; a < 2; a++) {
            Graph g;
            CU_ASSERT_FATAL(header_graph(&sizes[i], acts[a], &g));
            for (int k = 0; k < N_RANK_COUNTS; k++) {
                Plan *p = plan(&g, rank_counts[k]);
                if (p) CU_ASSERT_EQUAL(check_plan(p, sizes[i].name), 0);
                plan_free(p);
            }
            graph_free(&g);
        }
}

/* A layer sums twice, after attention and after the ffn; the embedding once. Nothing else travels: with heads of whole
 * groups a plan that does more is a bad one. Rows of `width` fp32 values, of which a rank gives 2 (N-1)/N. */
static void test_wire(void) {
    for (int i = 0; i < N_SIZES; i++) {
        Graph g;
        CU_ASSERT_FATAL(header_graph(&sizes[i], QT_A8, &g));
        for (int k = 0; k < N_RANK_COUNTS; k++) {
            Plan *p = plan(&g, rank_counts[k]);
            PlanWire w = plan_wire(p);
            int64_t sums = rank_counts[k] > 1 ? 2 * sizes[i].layers + 1 : 0;
            uint64_t n = (uint64_t)rank_counts[k], row = (uint64_t)sizes[i].width * 4;
            CU_ASSERT_EQUAL(w.collectives, sums);
            CU_ASSERT_EQUAL(w.bytes_per_token, (uint64_t)sums * (2 * row * (n - 1) / n));
            plan_free(p);
        }
        graph_free(&g);
    }
}

/* Columns of a rank's KV caches together. */
static int64_t cache_columns(const Plan *p, int rank) {
    int64_t n = 0;
    for (ValueId v = 0; v < p->graph.n_values; v++)
        if (p->graph.value[v].kind == VALUE_STATE) n += plan_local_size(p, v, AXIS_LAST, rank);
    return n;
}

/* Heads of a rank when `heads` units of one head, or of one KV head with its query heads, are dealt out: what is
 * smaller. */
static void test_balance(void) {
    for (int i = 0; i < N_SIZES; i++) {
        const LlamaSize *m = &sizes[i];
        bool whole_heads = m->head_dim % qtype_info(m->matrices)->group == 0;
        Graph g;
        CU_ASSERT_FATAL(header_graph(m, QT_A8, &g));
        for (int k = 0; k < N_RANK_COUNTS; k++) {
            int n = rank_counts[k];
            Plan *p = plan(&g, n);
            int64_t heads = 0, most = 0, most_kv = 0, ffn = 0, ffn_most = 0, vocab = 0;
            int64_t kv_columns = 0; /* of all layers' caches */
            for (int r = 0; r < n; r++) {
                PlanRankCost c = plan_rank_cost(p, r);
                heads += c.heads;
                ffn += c.ffn_rows;
                vocab += c.vocab_rows;
                most = i64_max(most, c.heads);
                most_kv = i64_max(most_kv, c.kv_heads);
                ffn_most = i64_max(ffn_most, c.ffn_rows);
                int64_t columns = cache_columns(p, r);
                kv_columns += columns;
                CU_ASSERT((c.heads == 0) == (c.kv_heads == 0));
                CU_ASSERT_EQUAL(columns, c.kv_heads * m->head_dim * m->layers);
            }
            int64_t group = m->heads / m->kv_heads;
            int64_t by_head = ceil_div(m->heads, n), by_kv = ceil_div(m->kv_heads, n) * group;
            CU_ASSERT_EQUAL(heads, m->heads);
            CU_ASSERT_EQUAL(ffn, m->ffn);
            CU_ASSERT_EQUAL(vocab, m->vocab);
            if (whole_heads) CU_ASSERT_EQUAL(most, i64_min(by_head, by_kv));
            /* no KV head is held twice when whole ones balance as well */
            if (whole_heads && by_kv <= by_head) CU_ASSERT_EQUAL(kv_columns, m->kv_heads * m->head_dim * m->layers);
            CU_ASSERT(most_kv <= ceil_div(most, group) + 1);
            CU_ASSERT(ffn_most <= ceil_div(ceil_div(m->ffn, 32), n) * 32);
            plan_free(p);
        }
        graph_free(&g);
    }
}

/* 9 query heads with 3 KV heads, by hand. 2 ranks: 5 + 4 heads need KV heads 0-1 and 1-2. 3 and 4 ranks: whole KV
 * heads, as single heads would leave somebody with 3 too. 5 ranks: heads 0-1, 2-3, 4-5, 6-7, 8 need KV heads 0, 0-1, 1,
 * 2, 2. 16 ranks: seven have none. */
static void test_smollm_heads(void) {
    static const struct {
        int n;
        int64_t heads[5], kv[5];
    } want[] = {{2, {5, 4}, {2, 2}},
                {3, {3, 3, 3}, {1, 1, 1}},
                {4, {3, 3, 3, 0}, {1, 1, 1, 0}},
                {5, {2, 2, 2, 2, 1}, {1, 2, 1, 1, 1}}};
    Graph g;
    CU_ASSERT_FATAL(header_graph(&sizes[0], QT_A8, &g));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        Plan *p = plan(&g, want[i].n);
        for (int r = 0; r < want[i].n; r++) {
            PlanRankCost c = plan_rank_cost(p, r);
            CU_ASSERT_EQUAL(c.heads, want[i].heads[r]);
            CU_ASSERT_EQUAL(c.kv_heads, want[i].kv[r]);
        }
        plan_free(p);
    }
    Plan *p = plan(&g, 16);
    int without = 0;
    for (int r = 0; r < 16; r++) without += plan_rank_cost(p, r).heads == 0;
    CU_ASSERT_EQUAL(without, 7);
    plan_free(p);
    graph_free(&g);
}

/* At 1 rank the cost is that of the file: all tensors but the norms hold as many bytes packed as they do there (rows
 * are multiples of 16), and every value of a matrix is multiplied once but the embedding's when there is a head beside
 * it. */
static void test_cost(void) {
    Graph g;
    CU_ASSERT_FATAL(header_graph(&sizes[3], QT_A8, &g));
    const LlamaSize *m = &sizes[3];
    Plan *p = plan(&g, 1);
    PlanRankCost c = plan_rank_cost(p, 0);
    uint64_t per_layer = (uint64_t)(m->width * (2 * m->width + 2 * 1024 + 3 * m->ffn)),
             head = (uint64_t)(m->vocab * m->width);
    CU_ASSERT_EQUAL(c.macs_per_token, 2 * per_layer + head);
    CU_ASSERT_EQUAL(c.weight_bytes, 2 * per_layer / 32 * 20 + 2 * head / 32 * 34 + 5 * (uint64_t)m->width * 4);
    plan_free(p);
    p = plan(&g, 8); /* divides evenly: an eighth of the multiplications each */
    for (int r = 0; r < 8; r++) CU_ASSERT_EQUAL(plan_rank_cost(p, r).macs_per_token, (2 * per_layer + head) / 8);
    plan_free(p);
    graph_free(&g);
}

/* ---- the hash ---------------------------------------------------------------------------------------------------- */

enum { MAX_HASHES = 512 };
typedef struct Hashes {
    uint64_t seen[MAX_HASHES];
    int n;
} Hashes;

/* This plan's hash is new; the same plan made again has it too. */
static void new_hash(Hashes *h, const Graph *g, const PlanOptions *o, const char *what) {
    Plan *p = NULL, *again = NULL;
    Err e;
    CU_ASSERT_FATAL(!plan_make(g, o, &p, &e) && !plan_make(g, o, &again, &e));
    CU_ASSERT_EQUAL(p->hash, again->hash);
    for (int i = 0; i < h->n; i++)
        if (h->seen[i] == p->hash) {
            CU_FAIL("hash seen before");
            printf("\n%s: hash seen before", what);
        }
    CU_ASSERT_FATAL(h->n < MAX_HASHES);
    h->seen[h->n++] = p->hash;
    plan_free(p);
    plan_free(again);
}

static Op *first_op(Graph *g, OpKind kind) {
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->op[i].kind == kind) return &g->op[i];
    CU_FAIL_FATAL("no such operator");
    return NULL;
}

static void test_hash_of_models(void) {
    Hashes h = {.n = 0};
    for (int i = 0; i < N_SIZES; i++) {
        Graph g;
        CU_ASSERT_FATAL(header_graph(&sizes[i], QT_A8, &g));
        for (int k = 0; k < N_RANK_COUNTS; k++)
            new_hash(&h, &g, &(PlanOptions){.n_ranks = rank_counts[k]}, sizes[i].name);
        graph_free(&g);
    }
    /* one size changed at a time */
    const LlamaSize base = sizes[0];
    for (int change = 0; change < 7; change++) {
        LlamaSize m = base;
        switch (change) {
        case 0: m.layers = 3; break;
        case 1: m.kv_heads = 9; break;
        case 2: m.ffn += 32; break;
        case 3: m.vocab += 1; break;
        case 4: m.matrices = QT_Q4_0; break;
        case 5: m.embedding = QT_F16; break;
        default: m.tied_head = false; break;
        }
        Graph g;
        CU_ASSERT_FATAL(header_graph(&m, QT_A8, &g));
        for (int n = 1; n <= 2; n++) new_hash(&h, &g, &(PlanOptions){.n_ranks = n}, "changed size");
        graph_free(&g);
    }
    Graph g;
    CU_ASSERT_FATAL(header_graph(&base, QT_A16, &g));
    new_hash(&h, &g, &(PlanOptions){.n_ranks = 1}, "activations");
    graph_free(&g);
}

/* Two tensors of factors for rotations, for contexts up to a length and beyond it. */
static void add_long_factors(Graph *g, int64_t short_context) {
    int64_t n = first_op(g, OP_ROPE_TABLE)->u.rope.shape.dim / 2;
    ValueId factors = graph_weight(g, "factors", QT_F32, 1, &n, 0, NULL);
    Op *op = first_op(g, OP_ROPE_TABLE);
    op->in[op->n_in++] = factors;
    op->in[op->n_in++] = factors;
    op->u.rope.shape.short_context = short_context;
}

/* Attributes of operators and places of weights, one changed at a time. */
static void test_hash_of_attributes(void) {
    Hashes h = {.n = 0};
    for (int change = 0; change < 18; change++) {
        Graph g;
        CU_ASSERT_FATAL(header_graph(&sizes[0], QT_A8, &g));
        switch (change) {
        case 0: break;
        case 1: first_op(&g, OP_RMSNORM)->u.norm.eps = 1e-6f; break;
        case 2: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.base = 10000; break;
        case 3: first_op(&g, OP_ROPE)->u.rope.shape.neox = true; break;
        case 4: first_op(&g, OP_ATTENTION)->u.attn.scale *= 2; break;
        case 5: first_op(&g, OP_ATTENTION)->u.attn.softcap = 50; break;
        case 6: first_op(&g, OP_ATTENTION)->u.attn.window = 64; break;
        case 7: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.scale = 0.5; break;
        case 8: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.original = 4096; break;
        case 9: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.beta_fast = 32; break;
        case 10: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.beta_slow = 2; break;
        case 11: first_op(&g, OP_ROPE_TABLE)->u.rope.shape.attention = 1.5; break;
        case 12: g.value[first_op(&g, OP_LINEAR)->in[1]].offset += 32; break;
        case 13: first_op(&g, OP_LINEAR)->in[2] = first_op(&g, OP_LINEAR)->in[3]; break;
        case 14: first_op(&g, OP_SILU_MUL)->kind = OP_GELU_MUL; break;
        case 15:
        case 16: add_long_factors(&g, change * 1000); break;
        default: first_op(&g, OP_ADD)->in[0] = first_op(&g, OP_ADD)->in[1]; break;
        }
        new_hash(&h, &g, &(PlanOptions){.n_ranks = 2}, "changed attribute");
        graph_free(&g);
    }
}

/* ---- other architectures ----------------------------------------------------------------------------------------- */

/* Biases, norms of heads and behind layers, several matrices in a tensor, scaled embeddings, soft caps: all are checked
 * operator by operator, and none makes a layer sum more than twice. */
static void test_variants(void) {
    static const TinyVariant models[] = {
        {.arch = "qwen2", .heads = 7, .kv_heads = 7, .head_dim = 64, .pre_norms = true, .biases = true},
        {.arch = "qwen2",
         .heads = 14,
         .kv_heads = 2,
         .head_dim = 64,
         .pre_norms = true,
         .biases = true,
         .tied_head = true},
        {.arch = "qwen3", .heads = 8, .kv_heads = 4, .head_dim = 128, .pre_norms = true, .norms_of = 1},
        {.arch = "gemma2",
         .heads = 8,
         .kv_heads = 4,
         .head_dim = 256,
         .pre_norms = true,
         .post_norms = true,
         .tied_head = true,
         .window = 64},
        {.arch = "gemma3",
         .heads = 4,
         .kv_heads = 1,
         .head_dim = 256,
         .pre_norms = true,
         .post_norms = true,
         .norms_of = 1,
         .window = 64},
        {.arch = "phi3", .heads = 9, .kv_heads = 3, .head_dim = 96, .pre_norms = true, .fused = true},
        {.arch = "olmo2", .heads = 6, .kv_heads = 6, .head_dim = 32, .post_norms = true, .norms_of = 2}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        TinyVariant m = models[i];
        m.layers = 2;
        m.width = 192;
        m.ffn = 352;
        m.vocab = 511;
        m.qtype = i % 2 ? QT_Q4_0 : QT_Q8_0;
        GgufWriter w;
        gw_init(&w, 3, 32);
        variant_build(&w, &m);
        size_t size;
        uint8_t *bytes = gw_finish(&w, &size);
        gw_free(&w);
        ModelFile *file = NULL;
        Graph g;
        LmShape shape;
        Err e = {""};
        bool ok = !gguf_from_memory(bytes, size, size, m.arch, &file, &e) && !arch_build(file, &g, &shape, &e) &&
                  !passes_run(&g, QT_A16, &e);
        CU_ASSERT(ok);
        if (!ok) printf("\n%s", e.msg);
        for (int k = 0; k < N_RANK_COUNTS && ok; k++) {
            Plan *p = plan(&g, rank_counts[k]);
            CU_ASSERT_EQUAL(check_plan(p, m.arch), 0);
            CU_ASSERT_EQUAL(plan_wire(p).collectives, rank_counts[k] > 1 ? 2 * m.layers + 1 : 0);
            plan_free(p);
        }
        if (ok) graph_free(&g);
        model_file_close(file);
        free(bytes);
    }
}

/* ---- a convolutional net ----------------------------------------------------------------------------------------- */

static ValueId filter(Graph *g, const char *name, int64_t o, int64_t k, int64_t i) {
    return graph_weight(g, name, QT_F32, 4, (int64_t[]){o, k, k, i}, -1, NULL);
}
static ValueId bias(Graph *g, const char *name, int64_t n) { return graph_weight(g, name, QT_F32, 1, &n, -1, NULL); }

static void cnn_graph(Graph *g, int64_t batch, int64_t c) {
    graph_init(g);
    ValueId x =
        graph_input(g, "image", QT_F32, 4, (Dim[]){dim_const(batch), dim_const(16), dim_const(16), dim_const(3)});
    x = graph_relu(g, "r1", graph_conv(g, "c1", x, filter(g, "w1", c, 3, 3), bias(g, "b1", c), 1, 1, 1));
    ValueId y = graph_relu(g, "r2", graph_conv(g, "c2", x, filter(g, "w2", c, 3, c), bias(g, "b2", c), 1, 1, 1));
    y = graph_conv(g, "c3", y, filter(g, "w3", c, 3, c), bias(g, "b3", c), 1, 1, 1);
    x = graph_relu(g, "r3", graph_add(g, "a", x, y));
    x = graph_relu(g, "r4", graph_conv(g, "deep", x, filter(g, "w4", c, 3, 1), bias(g, "b4", c), 2, 1, (int)c));
    x = graph_pool(g, "max", x, POOL_MAX, 2, 2, 0);
    x = graph_conv(g, "point", x, filter(g, "w5", 2 * c, 1, c), -1, 1, 0, 1);
    x = graph_pool(g, "mean", x, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    ValueId w = graph_weight(g, "w6", QT_F32, 2, (int64_t[]){10, 2 * c}, -1, NULL);
    g->output[0] = graph_linear(g, "fc", x, w, bias(g, "b6", 10));
}

static void test_cnn(void) {
    static const int64_t channels[] = {1, 3, 20, 64};
    Hashes h = {.n = 0};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int fused = 0; fused < 2; fused++) {
            Graph g;
            Err e = {""};
            cnn_graph(&g, 5, channels[i]);
            CU_ASSERT_FATAL(!graph_check(&g, &e));
            if (fused) CU_ASSERT_FATAL(!passes_run(&g, QT_A8, &e));
            for (int k = 0; k < N_RANK_COUNTS; k++)
                for (int images = 0; images < 2; images++) {
                    const PlanOptions o = {.n_ranks = rank_counts[k], .split_batch = images};
                    Plan *p = NULL;
                    CU_ASSERT_FATAL(!plan_make(&g, &o, &p, &e));
                    CU_ASSERT_EQUAL(check_plan(p, images ? "net, images" : "net, channels"), 0);
                    if (images && o.n_ranks > 1) CU_ASSERT_EQUAL(plan_wire(p).collectives, 1); /* the result's rows */
                    plan_free(p);
                    if (o.n_ranks > 1 || !images) new_hash(&h, &g, &o, "net");
                }
            graph_free(&g);
        }
}

static void test_errors(void) {
    Graph g;
    Plan *p;
    Err e = {""};
    CU_ASSERT_FATAL(header_graph(&sizes[7], QT_A8, &g));
    CU_ASSERT_EQUAL(plan_make(&g, &(PlanOptions){.n_ranks = 0}, &p, &e), -1);
    CU_ASSERT(p == NULL && strstr(e.msg, "0 ranks"));
    graph_free(&g);
}

/* ---- 70 billion weights ------------------------------------------------------------------------------------------ */

static const LlamaSize large = {"70B", 80, 8192, 64, 8, 128, 28672, 128256, QT_Q4_1, QT_Q8_0, false};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t matrix_bytes(QType t, int64_t rows, int64_t columns) {
    size_t n = 0;
    CU_ASSERT(qtype_bytes(t, (uint64_t)(rows * columns), &n));
    return n;
}

/* All rows divide into whole panels, so what the ranks hold is the file's tensors, the norms once each, and, past 8
 * ranks, each KV head on n / 8 of them. */
static uint64_t large_bytes(int n) {
    const LlamaSize *m = &large;
    uint64_t kv = 2 * matrix_bytes(m->matrices, 1024, m->width),
             norms = (uint64_t)(2 * m->layers + 1) * (uint64_t)m->width * 4;
    uint64_t layer =
        2 * matrix_bytes(m->matrices, m->width, m->width) + 3 * matrix_bytes(m->matrices, m->ffn, m->width);
    uint64_t ends = 2 * matrix_bytes(m->embedding, m->vocab, m->width), copies = (uint64_t)(n > 8 ? n / 8 : 1);
    return ends + (uint64_t)m->layers * (layer + kv * copies) + norms * (uint64_t)n;
}

static void test_large(void) {
    Graph g;
    CU_ASSERT_FATAL(header_graph(&large, QT_A8, &g));
    static const int counts[] = {8, 32};
    for (int i = 0; i < 2; i++) {
        double began = seconds();
        Plan *p = plan(&g, counts[i]);
        CU_ASSERT(seconds() - began < 1.0);
        uint64_t sum = 0, most = 0;
        for (int r = 0; r < counts[i]; r++) {
            PlanRankCost c = plan_rank_cost(p, r);
            sum += c.weight_bytes;
            most = c.weight_bytes > most ? c.weight_bytes : most;
            CU_ASSERT(c.heads == 64 / counts[i] && c.kv_heads == 1 && c.ffn_rows == 28672 / counts[i]);
        }
        CU_ASSERT_EQUAL(sum, large_bytes(counts[i]));
        CU_ASSERT((double)most < 1.01 * (double)sum / counts[i]);
        CU_ASSERT_EQUAL(check_plan(p, large.name), 0);
        plan_free(p);
    }
    graph_free(&g);
}

/* The program plans it from a file of 44 GB that has no data: a hole. */
static void test_large_program(void) {
    const char *program = getenv("SHEAF_PROGRAM");
    if (!program || access(program, X_OK)) {
        printf("skipped: no program at SHEAF_PROGRAM ");
        return;
    }
    char path[] = "/tmp/sheaf_70b_XXXXXX";
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_vocabulary(&w, (int)large.vocab);
    uint64_t data = header_build(&w, &large);
    CU_ASSERT(gw_write(&w, path));
    gw_free(&w);
    struct stat st;
    CU_ASSERT(!fstat(fd, &st));
    off_t whole = (off_t)(((uint64_t)st.st_size + 31) / 32 * 32 + data);
    bool room = ftruncate(fd, whole) == 0;
    CU_ASSERT(room);
    for (int n = 8; n <= 32 && room; n *= 4) {
        char command[8192], out[65536], want[64];
        snprintf(command, sizeof command, "'%s' plan %s --ranks %d --json", program, path, n);
        double began = seconds();
        FILE *f = popen(command, "r");
        CU_ASSERT_FATAL(f != NULL);
        size_t got = fread(out, 1, sizeof out - 1, f);
        out[got] = 0;
        CU_ASSERT_EQUAL(pclose(f), 0);
        double took = seconds() - began; /* with reading 128,256 tokens of text; far less than reading the weights */
        CU_ASSERT(took < 10);
        snprintf(want, sizeof want, "\"weight_bytes\":%llu", (unsigned long long)large_bytes(n));
        char *at = out; /* without blanks */
        for (const char *p = out; *p; p++)
            if (*p != ' ' && *p != '\n') *at++ = *p;
        *at = 0;
        CU_ASSERT(strstr(out, want) != NULL);
        if (!strstr(out, want)) printf("\n%s lacks %s", out, want);
    }
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    CU_ASSERT(children.ru_maxrss < 1024 * 1024); /* KB */
    close(fd);
    unlink(path);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"every operator's pieces", test_rules},
                                        {"what travels", test_wire},
                                        {"balance", test_balance},
                                        {"SmolLM2's heads", test_smollm_heads},
                                        {"cost", test_cost},
                                        {"hash of models", test_hash_of_models},
                                        {"hash of attributes", test_hash_of_attributes},
                                        {"other architectures", test_variants},
                                        {"convolutional net", test_cnn},
                                        {"errors", test_errors},
                                        {"70B", test_large},
                                        {"70B, the program", test_large_program},
                                        CU_TEST_INFO_NULL};
    return check_run("plan", tests);
}
