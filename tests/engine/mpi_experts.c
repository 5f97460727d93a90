/* Mixtures of experts on the job's ranks, against the sums written out in this file in double: which experts a token
 * gets (ties too), their weights, experts that nobody asks for, ranks without any; and that a token's result is the
 * same bits alone, among others, and on any number of threads. */
#include <math.h>

#include "base/size.h"
#include "engine/exec.h"
#include "mixture.h"

static Comm *comm;
static const Kernels *kernels;

enum { TOKENS = 70 };

static const MixtureShape shapes[] = {
    {"floats", {8, 2, true}, 64, 96, 0, QT_F32, false},
    {"rows that fill no panel", {3, 1, true}, 40, 50, 0, QT_F32, false},
    {"shares of all", {7, 4, false}, 64, 48, 0, QT_F16, false},
    {"one of one", {1, 1, true}, 32, 32, 0, QT_BF16, false},
    {"parts of each", {5, 2, true}, 96, 160, 0, QT_Q8_0, false},
    {"whole experts", {5, 3, true}, 64, 32, 0, QT_Q8_0, false},
    {"fewer than ranks", {3, 2, false}, 64, 32, 32, QT_Q4_0, false},
    {"shared", {6, 2, false}, 64, 64, 96, QT_Q8_0, false},
    {"shared, floats", {6, 2, true}, 64, 48, 80, QT_F32, false},
    {"fused", {4, 2, true}, 64, 96, 0, QT_Q5_1, true},
    {"super-blocks", {4, 2, true}, 256, 256, 0, QT_Q4_K, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* ---- written out ------------------------------------------------------------------------------------------------- */

static double dot(const float *w, const double *x, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)w[i] * x[i];
    return s;
}

/* y += weight * down (silu(gate x) * (up x)) */
static void add_network(const float *gate, const float *up, const float *down, int64_t d, int64_t f, const double *x,
                        double weight, double *y) {
    double *h = malloc((size_t)f * sizeof *h);
    for (int64_t i = 0; i < f; i++) {
        double g = dot(gate + i * d, x, d);
        h[i] = g / (1 + exp(-g)) * dot(up + i * d, x, d);
    }
    for (int64_t i = 0; i < d; i++) y[i] += weight * dot(down + i * f, h, f);
    free(h);
}

static void plain_mixture(const Mixture *m, const float *row, double *y) {
    enum { MOST = 64 };
    int64_t d = m->s.width, f = m->s.ffn, up_at = m->s.fused ? f * d : 0, each = f * d * (m->s.fused ? 2 : 1);
    double x[512], p[MOST], all = 0, chosen = 0;
    bool taken[MOST] = {false};
    for (int64_t i = 0; i < d; i++) x[i] = (double)row[i];
    for (int e = 0; e < m->s.mix.experts; e++) all += p[e] = exp(dot(m->router.values + e * d, x, d));
    for (int k = 0; k < m->s.mix.used; k++) {
        int best = -1;
        for (int e = 0; e < m->s.mix.experts; e++)
            if (!taken[e] && (best < 0 || p[e] > p[best])) best = e; /* of equal ones the first */
        taken[best] = true;
        chosen += p[best];
    }
    for (int64_t i = 0; i < d; i++) y[i] = 0;
    const float *ups = m->s.fused ? m->gate.values : m->up.values;
    for (int e = 0; e < m->s.mix.experts; e++)
        if (taken[e])
            add_network(m->gate.values + e * each, ups + e * each + up_at, m->down.values + e * d * f, d, f, x,
                        p[e] / (m->s.mix.normalised ? chosen : all), y);
    if (m->s.shared)
        add_network(m->shared_gate.values, m->shared_up.values, m->shared_down.values, d, m->s.shared, x,
                    1 / (1 + exp(-dot(m->shared_router.values, x, d))), y);
}

/* ---- on the ranks ------------------------------------------------------------------------------------------------ */

typedef struct Machine {
    Plan *plan;
    Weights weights;
    Pool *pool;
    Exec *exec;
} Machine;

static void machine_make(Machine *m, const Graph *g, int n_threads) {
    Err e = {""}, all = {""};
    *m = (Machine){0};
    const PlanOptions po = {.n_ranks = comm_size(comm)};
    const ExecOptions eo = {.max_tokens = TOKENS, .max_outputs = 1};
    bool failed = plan_make(g, &po, &m->plan, &e) || pool_create(n_threads, NULL, &m->pool, &e) ||
                  weights_load(m->plan, comm_rank(comm), NULL, m->pool, NULL, NULL, &m->weights, &e) ||
                  exec_create(m->plan, comm_rank(comm), &m->weights, kernels, m->pool, comm, &eo, &m->exec, &e);
    failed = comm_agree(comm, failed, &e, &all) != 0;
    if (failed) printf("\n%s", all.msg);
    CU_ASSERT_FATAL(!failed);
}

static void machine_free(Machine *m) {
    exec_free(m->exec);
    weights_free(&m->weights);
    pool_free(m->pool);
    plan_free(m->plan);
}

/* Rows [first, first + n) of x in one step, into the same rows of y. */
static void run(Machine *m, int64_t width, const float *x, int64_t first, int64_t n, float *y) {
    Err e = {""};
    size_t bytes = (size_t)(n * width) * sizeof *x;
    memcpy(exec_input(m->exec, "x"), x + first * width, bytes);
    bool failed = exec_run(m->exec, &(ExecStep){.n_tokens = n}, &e) != 0;
    if (failed) printf("\nrank %d: %s", comm_rank(comm), e.msg);
    CU_ASSERT_FATAL(!failed);
    memcpy(y + first * width, exec_output(m->exec, 0), bytes);
}

static void near_plain(const Mixture *m, const float *x, const float *y) {
    double want[512], worst = 0, largest = 0;
    int64_t d = m->s.width;
    for (int64_t t = 0; t < TOKENS; t++) {
        plain_mixture(m, x + t * d, want);
        for (int64_t i = 0; i < d; i++) {
            largest = fmax(largest, fabs(want[i]));
            double error = fabs((double)y[t * d + i] - want[i]);
            worst = error > worst || isnan(error) ? error : worst;
        }
    }
    /* fp32 sums of at most 256 products; activations of 16 bits, rounded twice */
    double allowed = qtype_info(m->s.type)->quantised ? 4e-4 : 4e-6;
    CU_ASSERT(largest > 0.1 && worst <= allowed * largest);
    if (!(worst <= allowed * largest) || getenv("SHEAF_SHOW"))
        printf("\n%s: error %.1e of %.1e", m->s.what, worst, largest);
}

static void same_rows(const char *what, const float *a, const float *b, int64_t width, int64_t first, int64_t n) {
    bool same = !memcmp(a + first * width, b + first * width, (size_t)(n * width) * sizeof *a);
    CU_ASSERT(same);
    if (!same) printf("\n%s: other bits in rows from %d", what, (int)first);
}

/* Everything at once; one by one; two by two; with a row beside them that is no number. */
static void check_machine(Machine *m, const Mixture *mix, float *x, const float *all) {
    int64_t d = mix->s.width;
    float *y = calloc((size_t)(TOKENS * d), sizeof *y), kept = x[3 * d];
    run(m, d, x, 0, TOKENS, y);
    same_rows(mix->s.what, all, y, d, 0, TOKENS);
    for (int64_t t = 0; t < TOKENS; t += 7) {
        memset(y, 0, (size_t)(TOKENS * d) * sizeof *y);
        run(m, d, x, t, 1, y);
        same_rows(mix->s.what, all, y, d, t, 1);
    }
    run(m, d, x, 30, 2, y);
    same_rows(mix->s.what, all, y, d, 30, 2);
    x[3 * d] = NAN;
    run(m, d, x, 0, TOKENS, y);
    x[3 * d] = kept;
    same_rows(mix->s.what, all, y, d, 0, 3);
    same_rows(mix->s.what, all, y, d, 4, TOKENS - 4);
    CU_ASSERT(isnan(y[3 * d]));
    free(y);
}

static float *tokens(int64_t width) {
    uint64_t state = 99;
    float *x = malloc((size_t)(TOKENS * width) * sizeof *x);
    for (int64_t i = 0; i < TOKENS * width; i++) x[i] = 1.7f * tiny_random(&state);
    return x;
}

static void check_mixture(const Mixture *mix) {
    int64_t d = mix->s.width;
    float *x = tokens(d), *all = calloc((size_t)(TOKENS * d), sizeof *all);
    Graph g;
    mixture_graph(mix, QT_A16, &g);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        Machine m;
        machine_make(&m, &g, n_threads);
        if (n_threads == 1) {
            run(&m, d, x, 0, TOKENS, all);
            near_plain(mix, x, all);
        }
        check_machine(&m, mix, x, all);
        machine_free(&m);
    }
    graph_free(&g);
    free(x);
    free(all);
}

static void test_shapes(void) {
    for (int i = 0; i < N_SHAPES; i++) {
        Mixture m = mixture_make(&shapes[i]);
        check_mixture(&m);
        mixture_free(&m);
    }
}

/* Experts 2k and 2k + 1 have the same logit for every token, so that the third of three is one of two equal ones. */
static void test_ties(void) {
    for (int whole = 0; whole < 2; whole++) {
        const MixtureShape s = {"ties", {8, 3, true}, 64, whole ? 32 : 96, 0, QT_Q8_0, false};
        Mixture m = mixture_make(&s);
        for (int e = 0; e < 8; e += 2)
            memcpy(m.router.values + (e + 1) * 64, m.router.values + e * 64, 64 * sizeof(float));
        memcpy(m.router.data, m.router.values, 8 * 64 * sizeof(float));
        check_mixture(&m);
        mixture_free(&m);
    }
}

/* Everyone wants the same experts: what chooses says nothing, and the first are taken. */
static void test_all_the_same(void) {
    const MixtureShape s = {"all the same", {6, 2, true}, 64, 96, 0, QT_Q8_0, false};
    Mixture m = mixture_make(&s);
    memset(m.router.values, 0, 6 * 64 * sizeof(float));
    memset(m.router.data, 0, 6 * 64 * sizeof(float));
    check_mixture(&m);
    mixture_free(&m);
}

int main(void) {
    const CommOptions options = {.check = true};
    Err e;
    if (kernels_select(getenv("SHEAF_ISA"), &kernels, &e) || comm_create(&options, &comm, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    comm_set_kernels(comm, kernels);
    static const CU_TestInfo tests[] = {{"shapes", test_shapes},
                                        {"equal logits", test_ties},
                                        {"the same experts for all", test_all_the_same},
                                        CU_TEST_INFO_NULL};
    int status = check_run("mixtures", tests);
    comm_free(comm);
    return status;
}
