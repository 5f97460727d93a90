/* The executor by itself: fused graphs give the bits of unfused ones, buffers that live at the same time are apart, and
 * a step that fails ends the run on all threads. */
#include <unistd.h>

#include "check.h"
#include "engine/exec_internal.h"
#include "graph/arch.h"
#include "graph/gguf.h"
#include "graph/passes.h"
#include "tiny_variants.h"

static Comm *comm; /* of 1 rank */
static const Kernels *ref;
static char model_path[] = "/tmp/sheaf_exec_XXXXXX";
static ModelFile *model_file; /* the newest graph's */

/* ---- a graph, planned, loaded and compiled for one rank ---------------------------------------------------------- */

typedef struct Machine {
    Plan *plan;
    Weights weights;
    Pool *pool;
    Exec *exec;
} Machine;

static const ExecOptions options = {
    .max_tokens = 100, .max_outputs = 40, .pool = {{0, 2}, {10, 2}}, .n_pools = 2, .top = 8};

static bool machine_make(Machine *m, const Graph *g, int n_ranks, int rank, int n_threads, const ModelFile *file) {
    *m = (Machine){0};
    Err e = {""};
    bool ok = !plan_make(g, &(PlanOptions){.n_ranks = n_ranks}, &m->plan, &e) &&
              !pool_create(n_threads, NULL, &m->pool, &e) &&
              !weights_load(m->plan, rank, file, m->pool, NULL, NULL, &m->weights, &e) &&
              !exec_create(m->plan, rank, &m->weights, ref, m->pool, comm, &options, &m->exec, &e);
    CU_ASSERT(ok);
    if (!ok) printf("\n%s", e.msg);
    return ok;
}

static void machine_free(Machine *m) {
    exec_free(m->exec);
    weights_free(&m->weights);
    if (m->pool) pool_free(m->pool);
    plan_free(m->plan);
}

/* The file's graph before any pass; model_file is the file until the next call. */
static Graph file_graph(void) {
    Graph g;
    LmShape shape;
    Err e;
    model_file_close(model_file);
    CU_ASSERT_FATAL(!gguf_open(model_path, &model_file, &e) && !arch_build(model_file, &g, &shape, &e));
    return g;
}

static Graph llama_graph(const TinyModel *m) {
    CU_ASSERT_FATAL(tiny_model_write(model_path, m));
    return file_graph();
}

enum { TOKENS = 90, OUTPUTS = 30 };

/* TOKENS tokens of one sequence, the result of every third wanted; logits of those into `out`. */
static void run_llama(Machine *m, int vocab, float *out) {
    static const int32_t table[] = {1, 0};
    ExecSpan span[TOKENS];
    size_t n_spans = 0;
    int32_t *ids = exec_input(m->exec, "ids"), *positions = exec_input(m->exec, "positions");
    int32_t *rows = exec_input(m->exec, "rows"), *targets = exec_input(m->exec, "targets");
    CU_ASSERT_FATAL(ids && positions && rows && targets);
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 37 + 11) % vocab;
        positions[i] = i;
        if (i % ATTN_ROWS == 0)
            span[n_spans++] = (ExecSpan){
                .row0 = i, .n_rows = i64_min(ATTN_ROWS, TOKENS - i), .pos0 = i, .end = TOKENS, .table = {table, table}};
    }
    for (int i = 0; i < OUTPUTS; i++) {
        rows[i] = 3 * i + 2;
        targets[i] = -1;
    }
    const ExecStep step = {.n_tokens = TOKENS, .n_outputs = OUTPUTS, .span = span, .n_spans = n_spans, .top = 8};
    Err e = {""};
    CU_ASSERT_EQUAL(exec_run(m->exec, &step, &e), 0);
    for (int i = 0; i < OUTPUTS; i++) {
        int64_t first, n;
        const float *logits = exec_logits(m->exec, i, &first, &n);
        CU_ASSERT_FATAL(first == 0 && n == vocab);
        memcpy(out + (size_t)i * (size_t)vocab, logits, (size_t)vocab * sizeof *out);
    }
}

/* ---- fused and unfused ------------------------------------------------------------------------------------------- */

/* Gives every linear a second reader, so that no residual joins it, not even while planning. */
static void keep_sums_apart(Graph *g) {
    int32_t n = g->n_ops;
    for (int32_t i = 0; i < n; i++)
        if (g->op[i].kind == OP_LINEAR) graph_relu(g, "reader", g->op[i].out[0]);
}

static int count_residuals(const Graph *g) {
    int n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += g->op[i].kind == OP_LINEAR && g->op[i].u.linear.residual;
    return n;
}

static void test_llama_fused(void) {
    static const QType types[] = {QT_F32, QT_BF16, QT_Q4_0, QT_Q4_1, QT_Q8_0}, acts[] = {QT_A8, QT_A16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t a = 0; a < 2; a++) {
            const TinyModel tiny = {.layers = 2,
                                    .width = 96,
                                    .heads = 3,
                                    .kv_heads = 1,
                                    .ffn = 160,
                                    .vocab = 270,
                                    .qtype = types[i],
                                    .seed = 5};
            Graph plain = llama_graph(&tiny), fused = llama_graph(&tiny);
            Err e = {""};
            CU_ASSERT(!pass_quantise_activations(&plain, acts[a], &e)); /* the numbers' part */
            keep_sums_apart(&plain);
            CU_ASSERT(!passes_run(&fused, acts[a], &e));
            Machine one, two;
            float *x = calloc(OUTPUTS * 270, sizeof *x), *y = calloc(OUTPUTS * 270, sizeof *y);
            if (machine_make(&one, &plain, 1, 0, 1, model_file) && machine_make(&two, &fused, 1, 0, 2, model_file)) {
                CU_ASSERT_EQUAL(count_residuals(&one.plan->graph), 0);
                CU_ASSERT_EQUAL(count_residuals(&two.plan->graph), 4);
                CU_ASSERT(one.exec->n_steps > two.exec->n_steps + 2 * 6);
                run_llama(&one, 270, x);
                run_llama(&two, 270, y);
                CU_ASSERT(!memcmp(x, y, OUTPUTS * 270 * sizeof *x));
                CU_ASSERT(x[0] != 0 && x[1] != x[2]);
            }
            machine_free(&one);
            machine_free(&two);
            free(x);
            free(y);
            graph_free(&plain);
            graph_free(&fused);
        }
}

/* Convolution, relu, a residual block, pooling, a classifier; weights made up here. */
static Graph cnn_graph(void) {
    static float w1[8 * 9 * 3], w2[8 * 9 * 8], b[8], fc[5 * 8];
    uint64_t random = 3;
    for (size_t i = 0; i < sizeof w1 / sizeof *w1; i++) w1[i] = tiny_random(&random) / 3;
    for (size_t i = 0; i < sizeof w2 / sizeof *w2; i++) w2[i] = tiny_random(&random) / 5;
    for (size_t i = 0; i < sizeof b / sizeof *b; i++) b[i] = tiny_random(&random) / 2;
    for (size_t i = 0; i < sizeof fc / sizeof *fc; i++) fc[i] = tiny_random(&random);
    Graph g;
    graph_init(&g);
    ValueId x = graph_input(&g, "image", QT_F32, 4, (Dim[]){dim_const(2), dim_const(9), dim_const(8), dim_const(3)});
    ValueId v1 = graph_weight(&g, "w1", QT_F32, 4, (int64_t[]){8, 3, 3, 3}, -1, w1);
    ValueId v2 = graph_weight(&g, "w2", QT_F32, 4, (int64_t[]){8, 3, 3, 8}, -1, w2);
    ValueId bias = graph_weight(&g, "b", QT_F32, 1, (int64_t[]){8}, -1, b);
    x = graph_relu(&g, "r1", graph_conv(&g, "c1", x, v1, bias, 1, 1, 1));
    ValueId y = graph_relu(&g, "r2", graph_conv(&g, "c2", x, v2, bias, 1, 1, 1));
    x = graph_relu(&g, "r3", graph_add(&g, "a", y, x));
    x = graph_pool(&g, "mean", x, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    g.output[0] = graph_linear(&g, "fc", x, graph_weight(&g, "fc", QT_F32, 2, (int64_t[]){5, 8}, -1, fc), -1);
    return g;
}

static void test_cnn_fused(void) {
    Graph g[2] = {cnn_graph(), cnn_graph()};
    Err e = {""};
    CU_ASSERT(!passes_run(&g[1], QT_A8, &e));
    float result[2][10] = {{0}};
    for (int i = 0; i < 2; i++) {
        Machine m;
        if (machine_make(&m, &g[i], 1, 0, 1, NULL)) {
            float *x = exec_input(m.exec, "image");
            uint64_t random = 9;
            for (int k = 0; k < 2 * 9 * 8 * 3; k++) x[k] = tiny_random(&random);
            CU_ASSERT_EQUAL(exec_run(m.exec, &(ExecStep){0}, &e), 0);
            memcpy(result[i], exec_output(m.exec, 0), sizeof result[i]);
        }
        machine_free(&m);
        graph_free(&g[i]);
    }
    CU_ASSERT(!memcmp(result[0], result[1], sizeof result[0]));
    CU_ASSERT(result[0][0] != 0 && result[0][0] != result[0][5]);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* First and last byte of a value; none when it has no columns. */
static bool extent(const Exec *x, ValueId v, const uint8_t **from, const uint8_t **to) {
    const Value *value = &x->plan->graph.value[v];
    const Buf *b = &x->buf[v];
    int32_t maker = value->producer;
    size_t bytes = b->capacity ? (size_t)((b->capacity - 1) * b->ld + b->columns) * sizeof(float) : 0;
    if (qtype_planes(b->type)) bytes = act_bytes(b->capacity, b->columns, qtype_planes(b->type));
    if (maker >= 0 && x->plan->graph.op[maker].kind == OP_STATS) bytes = (size_t)x->o.max_outputs * sizeof(RowStats);
    if (b->columns == 0 || bytes == 0) return false;
    *from = b->data;
    *to = b->data + bytes;
    return true;
}

static bool overlap(const Exec *x, ValueId a, ValueId b) {
    const uint8_t *a0, *a1, *b0, *b1;
    return extent(x, a, &a0, &a1) && extent(x, b, &b0, &b1) && a0 < b1 && b0 < a1;
}

/* The value in whose memory v lies: only these operators may put their result where their input is. */
static ValueId memory_of(const Exec *x, ValueId v) {
    const Graph *g = &x->plan->graph;
    for (;;) {
        int32_t maker = g->value[v].producer;
        if (maker < 0) return v;
        const Op *op = &g->op[maker];
        bool may = op->kind == OP_VIEW || op->kind == OP_ROPE || op->kind == OP_ALLREDUCE || op->kind == OP_SLICE;
        if (!may || !overlap(x, v, op->in[0])) return v;
        v = op->in[0];
    }
}

/* From plan to plan: two values that are both wanted at some operator are apart, unless one is a part of the other. */
static void check_buffers(const Exec *x, const char *what) {
    const Graph *g = &x->plan->graph;
    int32_t *born = malloc((size_t)g->n_values * sizeof *born), *last = malloc((size_t)g->n_values * sizeof *last);
    ValueId *root = malloc((size_t)g->n_values * sizeof *root);
    int errors = 0;
    for (ValueId v = 0; v < g->n_values; v++) {
        bool input = g->value[v].kind == VALUE_INPUT;
        born[v] = input ? -1 : g->value[v].producer;
        last[v] = v == g->output[0] || input ? g->n_ops : born[v]; /* inputs: filled before the first step */
        root[v] = memory_of(x, v);
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        for (int j = 0; j < op->n_in; j++) last[op->in[j]] = i > last[op->in[j]] ? i : last[op->in[j]];
        if (op->kind == OP_STATS) last[op->in[0]] = g->n_ops; /* exec_logits */
        if ((op->kind == OP_ROPE || op->kind == OP_ALLREDUCE) && root[op->out[0]] != op->out[0] &&
            graph_uses(g, op->in[0]) != 1) {
            errors++; /* overwrites what another operator reads */
            printf("\n%s: %s is overwritten by %s", what, g->value[op->in[0]].name, op->name);
        }
    }
    for (ValueId v = 0; v < g->n_values; v++) /* the memory lives as long as anything in it */
        if (last[v] > last[root[v]]) last[root[v]] = last[v];
    const uint8_t *end = x->activations.base + x->activations.capacity;
    for (ValueId a = 0; a < g->n_values; a++) {
        const uint8_t *from, *to;
        bool in_steps = g->value[a].kind == VALUE_TEMP || g->value[a].kind == VALUE_INPUT;
        if (!in_steps || (born[a] < 0 && g->value[a].kind == VALUE_TEMP) || !extent(x, a, &from, &to)) continue;
        errors += from < x->activations.base || to > end || (root[a] == a && (uintptr_t)from % 64);
        if (root[a] != a) continue;
        for (ValueId b = 0; b < a; b++) {
            bool other = (g->value[b].kind == VALUE_TEMP && born[b] >= 0) || g->value[b].kind == VALUE_INPUT;
            if (!other || root[b] != b || born[a] > last[b] || born[b] > last[a] || !overlap(x, a, b)) continue;
            if (errors++ < 5) printf("\n%s: %s and %s share memory", what, g->value[a].name, g->value[b].name);
        }
    }
    CU_ASSERT_EQUAL(errors, 0);
    free(born);
    free(last);
    free(root);
}

static void check_all_ranks(const Graph *g, const ModelFile *file, const char *what) {
    for (int n = 1; n <= 5; n++)
        for (int rank = 0; rank < n; rank++) {
            Machine m;
            char text[64];
            snprintf(text, sizeof text, "%s, rank %d of %d", what, rank, n);
            if (machine_make(&m, g, n, rank, 1, file)) {
                check_buffers(m.exec, text);
                uint64_t bytes = 0, states = 0;
                Err e;
                CU_ASSERT(!exec_plan_bytes(m.plan, rank, &options, &bytes, &states, &e));
                CU_ASSERT_EQUAL(bytes, exec_activation_bytes(m.exec));
                CU_ASSERT_EQUAL(states, exec_state_bytes(m.exec));
            }
            machine_free(&m);
        }
}

static void test_buffers(void) {
    static const TinyModel models[] = {
        {.layers = 3, .width = 96, .heads = 3, .kv_heads = 1, .ffn = 160, .vocab = 270, .qtype = QT_Q8_0, .seed = 5},
        {.layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 259, .qtype = QT_F32, .seed = 6},
        {.layers = 2,
         .width = 64,
         .heads = 1,
         .kv_heads = 1,
         .ffn = 64,
         .vocab = 260,
         .qtype = QT_Q4_1,
         .tied_head = true,
         .seed = 7}};
    Err e = {""};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Graph g = llama_graph(&models[i]);
        check_all_ranks(&g, model_file,
                        "as built"); /* fp32 activations with quantised weights: never run, but laid out */
        CU_ASSERT(!passes_run(&g, QT_A16, &e));
        check_all_ranks(&g, model_file, "fused");
        graph_free(&g);
    }
    static const TinyVariant variants[] = {{.arch = "qwen2",
                                            .layers = 2,
                                            .width = 96,
                                            .heads = 3,
                                            .kv_heads = 3,
                                            .head_dim = 32,
                                            .ffn = 96,
                                            .vocab = 260,
                                            .qtype = QT_Q8_0,
                                            .pre_norms = true,
                                            .biases = true},
                                           {.arch = "gemma3",
                                            .layers = 2,
                                            .width = 96,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = 64,
                                            .ffn = 96,
                                            .vocab = 260,
                                            .qtype = QT_Q8_0,
                                            .pre_norms = true,
                                            .post_norms = true,
                                            .norms_of = 1,
                                            .tied_head = true,
                                            .window = 10,
                                            .logit_cap = 3},
                                           {.arch = "olmo2",
                                            .layers = 2,
                                            .width = 96,
                                            .heads = 3,
                                            .kv_heads = 3,
                                            .head_dim = 32,
                                            .ffn = 96,
                                            .vocab = 260,
                                            .qtype = QT_Q8_0,
                                            .post_norms = true,
                                            .norms_of = 2}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        CU_ASSERT_FATAL(variant_write(model_path, &variants[i]));
        Graph g = file_graph();
        CU_ASSERT(!passes_run(&g, QT_A16, &e));
        check_all_ranks(&g, model_file, variants[i].arch);
        graph_free(&g);
    }
    Graph g = cnn_graph();
    check_all_ranks(&g, NULL, "net as built");
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    check_all_ranks(&g, NULL, "net");
    graph_free(&g);
}

/* Layers use the same memory again: 9 layers need as much as 4 do. */
static void test_reuse(void) {
    uint64_t bytes[2], states;
    for (int i = 0; i < 2; i++) {
        const TinyModel tiny = {
            .layers = i ? 9 : 4, .width = 96, .heads = 3, .kv_heads = 1, .ffn = 160, .vocab = 270, .qtype = QT_Q8_0};
        Graph g = llama_graph(&tiny);
        Plan *p;
        Err e;
        CU_ASSERT_FATAL(!passes_run(&g, QT_A16, &e) && !plan_make(&g, &(PlanOptions){.n_ranks = 2}, &p, &e));
        CU_ASSERT(!exec_plan_bytes(p, 0, &options, &bytes[i], &states, &e));
        plan_free(p);
        graph_free(&g);
    }
    CU_ASSERT_EQUAL(bytes[0], bytes[1]);
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static int failing_thread;
static void step_fails(Exec *x, const Step *s, int thread, int n) {
    if (thread == failing_thread % n) exec_fail(x, s, &(Err){"it broke"});
}
static void step_nothing(Exec *x, const Step *s, int thread, int n) {
    (void)x;
    (void)s;
    (void)thread;
    (void)n;
}

/* Whichever thread fails, all leave after the same step: a hang here is the test's failure. Many times, as it is a
 * matter of who is how late. */
static void test_failing_step(void) {
    Graph g = cnn_graph();
    Machine m;
    if (machine_make(&m, &g, 1, 0, 3, NULL)) {
        Exec *x = m.exec;
        for (int i = 0; i < x->n_steps; i++) x->step[i].run = step_nothing;
        for (int i = 0; i < x->n_steps; i++) {
            x->step[i].run = step_fails;
            for (int k = 0; k < 300; k++) {
                Err e = {""};
                failing_thread = k;
                CU_ASSERT_EQUAL(exec_run(x, &(ExecStep){0}, &e), -1);
                CU_ASSERT(strstr(e.msg, "it broke") && strstr(e.msg, x->step[i].op->name));
            }
            x->step[i].run = step_nothing;
            CU_ASSERT_EQUAL(exec_run(x, &(ExecStep){0}, NULL), 0);
        }
    }
    machine_free(&m);
    graph_free(&g);
}

static void test_limits(void) {
    const TinyModel tiny = {
        .layers = 1, .width = 64, .heads = 2, .kv_heads = 1, .ffn = 64, .vocab = 260, .qtype = QT_F32, .seed = 1};
    Graph g = llama_graph(&tiny);
    Machine m;
    Err e = {""};
    if (machine_make(&m, &g, 1, 0, 1, model_file)) {
        CU_ASSERT(exec_input(m.exec, "no such input") == NULL);
        CU_ASSERT_EQUAL(exec_run(m.exec, &(ExecStep){.n_tokens = 101}, &e), -1);
        CU_ASSERT(strstr(e.msg, "101 tokens") != NULL);
        CU_ASSERT_EQUAL(exec_run(m.exec, &(ExecStep){.n_tokens = 100, .n_outputs = 41}, &e), -1);
        CU_ASSERT(strstr(e.msg, "41 results") != NULL);
        CU_ASSERT_EQUAL(exec_run(m.exec, &(ExecStep){.n_tokens = 1, .top = 9}, &e), -1);
        CU_ASSERT_EQUAL(exec_state_bytes(m.exec),
                        2 * 2 * 2 * 64 * 32); /* 2 blocks, keys and values of 2 bytes, 1 head of 32 */
    }
    machine_free(&m);
    graph_free(&g);
}

int main(void) {
    Err e;
    int fd = mkstemp(model_path);
    if (fd < 0 || comm_create(&(CommOptions){0}, &comm, &e) || kernels_select("ref", &ref, &e)) {
        fprintf(stderr, "cannot start\n");
        return 2;
    }
    close(fd);
    comm_set_kernels(comm, ref);
    static const CU_TestInfo tests[] = {{"llama, fused and not", test_llama_fused},
                                        {"convolutional net, fused and not", test_cnn_fused},
                                        {"buffers are apart", test_buffers},
                                        {"buffers are used again", test_reuse},
                                        {"a step that fails", test_failing_step},
                                        {"limits", test_limits},
                                        CU_TEST_INFO_NULL};
    int status = check_run("exec", tests);
    model_file_close(model_file);
    unlink(model_path);
    comm_free(comm);
    return status;
}
