/* Mixtures of experts divided over ranks: every operator's pieces fit, one sum travels, the weights that a rank loads
 * are the ones its plan names, and what it costs. */
#include "kernels/kernels.h"
#include "mixture.h"
#include "partition/weights.h"
#include "plan_check.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 8, 13, 64};
enum { N_RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

/* Units inside an expert: 1 of F32 columns, 32 of Q8_0 and of Q4_K. */
static const MixtureShape shapes[] = {
    {"floats", {8, 2, true}, 64, 96, 0, QT_F32, false},
    {"one of one", {1, 1, true}, 64, 48, 0, QT_F16, false},
    {"units of 32", {5, 2, true}, 96, 160, 0, QT_Q8_0, false},
    {"one unit", {5, 3, false}, 64, 32, 0, QT_Q8_0, false},
    {"fewer experts than units", {3, 2, false}, 64, 128, 64, QT_Q8_0, false},
    {"shared, floats", {6, 2, false}, 64, 48, 80, QT_F32, false},
    {"fused", {4, 2, true}, 64, 64, 0, QT_Q8_0, true},
    {"fused floats", {4, 2, true}, 64, 40, 64, QT_F16, true},
    {"super-blocks", {7, 2, true}, 256, 256, 0, QT_Q4_K, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static Plan *plan_for(const Graph *g, int ranks) {
    Plan *p = NULL;
    Err e = {""};
    bool ok = !plan_make(g, &(PlanOptions){.n_ranks = ranks}, &p, &e);
    if (!ok) printf("\n%s", e.msg);
    CU_ASSERT_FATAL(ok);
    return p;
}

static ValueId value_named(const Plan *p, const char *name) {
    for (ValueId v = 0; v < p->graph.n_values; v++)
        if (!strcmp(p->graph.value[v].name, name)) return v;
    CU_FAIL_FATAL("no such value");
    return -1;
}

static void test_rules(void) {
    for (int i = 0; i < N_SHAPES; i++) {
        Mixture m = mixture_make(&shapes[i]);
        Graph g;
        mixture_graph(&m, QT_A16, &g);
        for (int k = 0; k < N_RANK_COUNTS; k++) {
            Plan *p = plan_for(&g, rank_counts[k]);
            CU_ASSERT_EQUAL(check_plan(p, shapes[i].what), 0);
            /* what chooses is computed everywhere, and a shared expert joins the same sum */
            CU_ASSERT_EQUAL(plan_wire(p).collectives, rank_counts[k] > 1);
            CU_ASSERT(p->shard[value_named(p, "router.w")].kind == SHARD_REPLICATED);
            plan_free(p);
        }
        graph_free(&g);
        mixture_free(&m);
    }
}

/* Inside every expert while there is a unit for each rank; whole ones when not, and more of them than units. */
static void test_choice(void) {
    static const struct {
        const char *what;
        int ranks;
        bool whole;
        int64_t most, least; /* experts of a rank */
    } cases[] = {{"units of 32", 5, false, 5, 5},
                 {"units of 32", 8, false, 5, 5}, /* 5 units, 5 experts */
                 {"one unit", 1, false, 5, 5},
                 {"one unit", 2, true, 3, 2},
                 {"one unit", 5, true, 1, 1},
                 {"one unit", 8, true, 1, 0},
                 {"fewer experts than units", 64, false, 3, 3},
                 {"floats", 64, false, 8, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const MixtureShape *s = shapes;
        while (strcmp(s->what, cases[i].what) != 0) s++;
        Mixture m = mixture_make(s);
        Graph g;
        mixture_graph(&m, QT_A16, &g);
        Plan *p = plan_for(&g, cases[i].ranks);
        const Shard *down = &p->shard[value_named(p, "down.w")];
        CU_ASSERT_EQUAL(down->kind == SHARD_SPLIT && down->axis == AXIS_EXPERTS, cases[i].whole);
        int64_t most = 0, least = s->mix.experts;
        for (int r = 0; r < cases[i].ranks; r++) {
            int64_t n = plan_rank_cost(p, r).experts;
            most = n > most ? n : most;
            least = n < least ? n : least;
        }
        CU_ASSERT(most == cases[i].most && least == cases[i].least);
        plan_free(p);
        graph_free(&g);
        mixture_free(&m);
    }
}

/* Multiplications: the router's, and of the experts what a token gets; memory: all of them. */
static void test_cost(void) {
    Mixture m = mixture_make(&shapes[0]); /* F32: 64 x 96, 2 of 8 */
    Graph g;
    mixture_graph(&m, QT_A16, &g);
    Plan *p = plan_for(&g, 1);
    PlanRankCost c = plan_rank_cost(p, 0);
    CU_ASSERT_EQUAL(c.macs_per_token, 8 * 64 + 2 * 3 * 64 * 96);
    CU_ASSERT_EQUAL(c.weight_bytes, 4 * (16 * 64 + 8 * 3 * 64 * 96)); /* the router's rows fill one panel of 16 */
    plan_free(p);
    p = plan_for(&g, 2);
    for (int r = 0; r < 2; r++) CU_ASSERT_EQUAL(plan_rank_cost(p, r).macs_per_token, 8 * 64 + 3 * 64 * 96);
    plan_free(p);
    graph_free(&g);
    mixture_free(&m);
    m = mixture_make(&shapes[3]); /* 3 of 5 whole experts, 64 x 32, on 2 ranks: 3 and 2 of them */
    mixture_graph(&m, QT_A16, &g);
    p = plan_for(&g, 2);
    CU_ASSERT_EQUAL(plan_rank_cost(p, 0).macs_per_token, 5 * 64 + 3 * (3 * 3 * 64 * 32 / 5));
    CU_ASSERT_EQUAL(plan_rank_cost(p, 1).macs_per_token, 5 * 64 + 3 * (3 * 2 * 64 * 32 / 5));
    plan_free(p);
    graph_free(&g);
    mixture_free(&m);
}

static const float *values_of(const Mixture *m, const char *name) {
    return !strncmp(name, "down", 4) ? m->down.values : !strncmp(name, "up", 2) ? m->up.values : m->gate.values;
}

/* Ranges written out; returns how many indices. */
static int64_t expand(const Plan *p, ValueId v, ShardAxis axis, int rank, int64_t *out) {
    Range r[SHARD_PARTS];
    int64_t n = 0;
    int parts = plan_local_ranges(p, v, axis, rank, r);
    for (int i = 0; i < parts; i++)
        for (int64_t k = r[i].begin; k < r[i].end; k++) out[n++] = k;
    return n;
}

static bool experts_are_slices(const Plan *p, ValueId v, int rank, const LocalWeight *w, const float *whole) {
    enum { MOST = 1024 };
    const Value *x = &p->graph.value[v];
    int64_t e[MOST], r[MOST], c[MOST], rows = x->dim[1].size, columns = x->dim[2].size;
    float row[MOST];
    int64_t n_e = expand(p, v, AXIS_EXPERTS, rank, e), n = expand(p, v, AXIS_FIRST, rank, r),
            k = expand(p, v, AXIS_LAST, rank, c);
    bool same = w->n_matrices == n_e && w->packed.n == n && w->packed.k == k && w->packed.type == x->type;
    for (int64_t i = 0; i < n_e && same; i++) {
        PackedWeights one = w->packed;
        one.data += (size_t)i * w->matrix_bytes;
        for (int64_t j = 0; j < n; j++) {
            unpack_row(&one, j, row);
            for (int64_t l = 0; l < k; l++) same &= row[l] == whole[(e[i] * rows + r[j]) * columns + c[l]];
        }
    }
    return same;
}

static void test_loading(void) {
    Pool *pool;
    CU_ASSERT_FATAL(!pool_create(2, NULL, &pool, NULL));
    for (int i = 0; i < N_SHAPES; i++) {
        Mixture m = mixture_make(&shapes[i]);
        Graph g;
        mixture_graph(&m, QT_A16, &g);
        for (int k = 0; k < N_RANK_COUNTS; k++) {
            Plan *p = plan_for(&g, rank_counts[k]);
            for (int rank = 0; rank < rank_counts[k]; rank++) {
                Weights w;
                Err e = {""};
                CU_ASSERT_FATAL(!weights_load(p, rank, NULL, pool, NULL, NULL, &w, &e));
                CU_ASSERT_EQUAL(w.bytes, plan_rank_cost(p, rank).weight_bytes);
                for (ValueId v = 0; v < g.n_values; v++)
                    if (g.value[v].kind == VALUE_WEIGHT && g.value[v].n_dims == 3)
                        CU_ASSERT(experts_are_slices(p, v, rank, &w.weight[v], values_of(&m, g.value[v].name)));
                weights_free(&w);
            }
            plan_free(p);
        }
        graph_free(&g);
        mixture_free(&m);
    }
    pool_free(pool);
}

/* Each attribute decides what a rank computes, so the plans' hashes differ. */
static void test_hash(void) {
    static const MixtureShape changed[] = {{"", {8, 2, true}, 64, 96, 0, QT_F32, false},
                                           {"", {8, 3, true}, 64, 96, 0, QT_F32, false},
                                           {"", {8, 2, false}, 64, 96, 0, QT_F32, false},
                                           {"", {7, 2, true}, 64, 96, 0, QT_F32, false}};
    enum { N = sizeof changed / sizeof *changed };
    uint64_t seen[N];
    for (int i = 0; i < N; i++) {
        Mixture m = mixture_make(&changed[i]);
        Graph g;
        mixture_graph(&m, QT_A16, &g);
        Plan *p = plan_for(&g, 2);
        seen[i] = p->hash;
        for (int k = 0; k < i; k++) CU_ASSERT(seen[k] != seen[i]);
        plan_free(p);
        graph_free(&g);
        mixture_free(&m);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"every operator's pieces", test_rules},
                                        {"whole experts or parts of each", test_choice},
                                        {"cost", test_cost},
                                        {"loaded slices", test_loading},
                                        {"hash", test_hash},
                                        CU_TEST_INFO_NULL};
    return check_run("experts", tests);
}
