/* Plans of an encoder, checked operator by operator; what travels and who holds what, derived by hand. */
#include "arch_files.h"
#include "graph/arch.h"
#include "graph/passes.h"
#include "plan_check.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 12};
enum { N_RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts, LAYERS = 3, WIDTH = 96, HEADS = 6, FFN = 160 };

/* The fixture's graph with its matrices in another type. */
static void make_graph(QType matrices, Graph *g) {
    size_t size;
    uint8_t *bytes = arch_model("bert", &size);
    ModelFile *f;
    LmShape shape;
    Err e = {""};
    CU_ASSERT_FATAL(!gguf_from_memory(bytes, size, size, "bert.gguf", &f, &e));
    CU_ASSERT_FATAL(!arch_build(f, g, &shape, &e));
    for (ValueId v = 0; v < g->n_values; v++)
        if (g->value[v].kind == VALUE_WEIGHT && g->value[v].n_dims == 2) g->value[v].type = matrices;
    CU_ASSERT_FATAL(!passes_run(g, QT_A16, &e));
    model_file_close(f);
    free(bytes);
}

static Plan *make_plan(const Graph *g, int n_ranks) {
    Plan *p = NULL;
    Err e = {""};
    CU_ASSERT_FATAL(!plan_make(g, &(PlanOptions){.n_ranks = n_ranks}, &p, &e));
    return p;
}

/* Of the largest share when `units` of `size` are dealt out. */
static int64_t largest(int64_t units, int64_t size, int n) { return (units + n - 1) / n * size; }

/* A layer sums twice, the three embeddings together once. Heads of 16 stay in pairs where groups of 32 hold two. */
static void check_type(QType matrices, const char *what, int64_t heads_together) {
    Graph g;
    make_graph(matrices, &g);
    for (int k = 0; k < N_RANK_COUNTS; k++) {
        int n = rank_counts[k];
        Plan *p = make_plan(&g, n);
        CU_ASSERT_EQUAL(check_plan(p, what), 0);
        CU_ASSERT_EQUAL(plan_wire(p).collectives, n > 1 ? 2 * LAYERS + 1 : 0);
        int64_t heads = 0, most = 0, ffn = 0, ffn_most = 0, vocab = 0;
        for (int r = 0; r < n; r++) {
            PlanRankCost c = plan_rank_cost(p, r);
            CU_ASSERT_EQUAL(c.heads, c.kv_heads);
            heads += c.heads;
            ffn += c.ffn_rows;
            vocab += c.vocab_rows;
            most = c.heads > most ? c.heads : most;
            ffn_most = c.ffn_rows > ffn_most ? c.ffn_rows : ffn_most;
        }
        CU_ASSERT(heads == HEADS && ffn == FFN && vocab == ARCH_VOCAB);
        CU_ASSERT_EQUAL(most, largest(HEADS / heads_together, heads_together, n));
        if (heads_together == 2) CU_ASSERT_EQUAL(ffn_most, largest(FFN / 32, 32, n));
        plan_free(p);
    }
    graph_free(&g);
}

static void floats(void) { check_type(QT_F16, "bert, F16", 1); }
static void groups(void) { check_type(QT_Q8_0, "bert, Q8_0", 2); }

static int count(const Graph *g, OpKind kind) {
    int n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += g->op[i].kind == kind;
    return n;
}

/* GELU gives what the next linear reads; the norms' results are also residuals, so they are quantised apart. */
static void fused(void) {
    Graph g;
    make_graph(QT_Q8_0, &g);
    for (int32_t i = 0; i < g.n_ops; i++)
        if (g.op[i].kind == OP_GELU) CU_ASSERT_EQUAL(g.value[g.op[i].out[0]].type, QT_A16);
    CU_ASSERT_EQUAL(count(&g, OP_GELU), LAYERS);
    CU_ASSERT_EQUAL(count(&g, OP_QUANTISE), 3 * LAYERS); /* for Q|K|V, attention's output, the ffn */
    CU_ASSERT_EQUAL(count(&g, OP_LINEAR), 4 * LAYERS);
    graph_free(&g);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"whole heads", floats}, {"pairs of heads", groups}, {"fused", fused}, CU_TEST_INFO_NULL};
    return check_run("plan of an encoder", tests);
}
