/* A small convolutional net through the whole machine: graph, passes, plan, weights, executor, on the job's ranks, with
 * channels or images divided, against a forward pass written out in this file with double sums. */
#include <math.h>

#include "base/size.h"
#include "check.h"
#include "engine/exec.h"
#include "graph/passes.h"

static Comm *comm;
static const Kernels *kernels;

/* ---- the net: stem, pooling, a residual block, depthwise, 1x1, global average, a classifier ---------------------- */

typedef struct Net {
    int64_t h, w, c; /* of an image */
    int64_t stem, wide, classes;
    float *stem_w, *stem_b; /* [stem][3][3][c], stride 2 */
    float *res1_w, *res1_b; /* [stem][3][3][stem] */
    float *res2_w, *res2_b; /* [stem][3][3][stem] */
    float *deep_w, *deep_b; /* [stem][3][3][1] */
    float *point_w;         /* [wide][1][1][stem], no bias */
    float *fc_w, *fc_b;     /* [classes][wide] */
    uint64_t values;        /* weights and biases in all */
} Net;

static uint32_t seed = 20240229;
/* n values in [-size, size), the same on every rank. */
static float *noises(int64_t n, double size) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(size * ((double)(seed >> 8) / 8388608.0 - 1));
    }
    return x;
}

static float *weights(Net *net, int64_t out, int64_t taps) {
    net->values += (uint64_t)(out * taps);
    return noises(out * taps, sqrt(6.0 / (double)taps)); /* keeps the size of values through a relu */
}

static float *biases(Net *net, int64_t out) {
    net->values += (uint64_t)out;
    return noises(out, 0.3);
}

static Net net_make(int64_t h, int64_t w, int64_t c, int64_t stem, int64_t wide, int64_t classes) {
    Net n = {.h = h, .w = w, .c = c, .stem = stem, .wide = wide, .classes = classes};
    n.stem_w = weights(&n, stem, 9 * c);
    n.stem_b = biases(&n, stem);
    n.res1_w = weights(&n, stem, 9 * stem);
    n.res1_b = biases(&n, stem);
    n.res2_w = weights(&n, stem, 9 * stem);
    n.res2_b = biases(&n, stem);
    n.deep_w = weights(&n, stem, 9);
    n.deep_b = biases(&n, stem);
    n.point_w = weights(&n, wide, stem);
    n.fc_w = weights(&n, classes, wide);
    n.fc_b = biases(&n, classes);
    return n;
}

static void net_free(Net *n) {
    float *all[] = {n->stem_w, n->stem_b, n->res1_w,  n->res1_b, n->res2_w, n->res2_b,
                    n->deep_w, n->deep_b, n->point_w, n->fc_w,   n->fc_b};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static ValueId filter(Graph *g, const char *name, int64_t o, int64_t k, int64_t i, const float *w) {
    return graph_weight(g, name, QT_F32, 4, (int64_t[]){o, k, k, i}, -1, w);
}
static ValueId vector(Graph *g, const char *name, int64_t n, const float *b) {
    return graph_weight(g, name, QT_F32, 1, &n, -1, b);
}

static void net_graph(const Net *n, int64_t batch, Graph *g) {
    graph_init(g);
    const Dim image[] = {dim_const(batch), dim_const(n->h), dim_const(n->w), dim_const(n->c)};
    ValueId x = graph_input(g, "image", QT_F32, 4, image);
    x = graph_conv(g, "stem", x, filter(g, "stem.w", n->stem, 3, n->c, n->stem_w),
                   vector(g, "stem.b", n->stem, n->stem_b), 2, 1, 1);
    x = graph_relu(g, "stem.relu", x);
    x = graph_pool(g, "pool", x, POOL_MAX, 3, 2, 1);
    ValueId y = graph_conv(g, "res1", x, filter(g, "res1.w", n->stem, 3, n->stem, n->res1_w),
                           vector(g, "res1.b", n->stem, n->res1_b), 1, 1, 1);
    y = graph_relu(g, "res1.relu", y);
    y = graph_conv(g, "res2", y, filter(g, "res2.w", n->stem, 3, n->stem, n->res2_w),
                   vector(g, "res2.b", n->stem, n->res2_b), 1, 1, 1);
    x = graph_relu(g, "res.relu", graph_add(g, "res.add", y, x));
    x = graph_conv(g, "deep", x, filter(g, "deep.w", n->stem, 3, 1, n->deep_w), vector(g, "deep.b", n->stem, n->deep_b),
                   1, 1, (int)n->stem);
    x = graph_relu(g, "deep.relu", x);
    x = graph_conv(g, "point", x, filter(g, "point.w", n->wide, 1, n->stem, n->point_w), -1, 1, 0, 1);
    x = graph_pool(g, "mean", x, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    ValueId w = graph_weight(g, "fc.w", QT_F32, 2, (int64_t[]){n->classes, n->wide}, 0, n->fc_w);
    g->output[0] = graph_linear(g, "fc", x, w, vector(g, "fc.b", n->classes, n->fc_b));
}

/* ---- the plain forward pass, one image at a time ----------------------------------------------------------------- */

typedef struct Image {
    int64_t h, w, c;
    double *x; /* [h][w][c], owned */
} Image;

static Image image_make(int64_t h, int64_t w, int64_t c) {
    return (Image){h, w, c, calloc((size_t)(h * w * c + 1), sizeof(double))};
}
static double image_at(const Image *m, int64_t y, int64_t x, int64_t c) {
    bool inside = y >= 0 && y < m->h && x >= 0 && x < m->w;
    return inside ? m->x[(y * m->w + x) * m->c + c] : 0;
}
static void image_relu(Image *m) {
    for (int64_t i = 0; i < m->h * m->w * m->c; i++) m->x[i] = m->x[i] > 0 ? m->x[i] : 0;
}

/* k x k, padding k / 2; bias may be NULL. Frees the input unless `keep`. */
static Image plain_conv(Image in, bool keep, int64_t o, int64_t k, int64_t stride, bool deep, const float *w,
                        const float *bias) {
    const int64_t pad = k / 2, taps = deep ? 1 : in.c;
    Image out = image_make((in.h + 2 * pad - k) / stride + 1, (in.w + 2 * pad - k) / stride + 1, o);
    for (int64_t i = 0; i < out.h * out.w * o; i++) {
        const int64_t f = i % o, x = i / o % out.w * stride - pad, y = i / o / out.w * stride - pad;
        double sum = bias ? bias[f] : 0;
        for (int64_t p = 0; p < k * k; p++)
            for (int64_t c = 0; c < taps; c++)
                sum += w[(f * k * k + p) * taps + c] * image_at(&in, y + p / k, x + p % k, deep ? f : c);
        out.x[i] = sum;
    }
    if (!keep) free(in.x);
    return out;
}

/* 3x3, stride 2, padding 1. Values are not negative here, so the padding's zeroes change nothing. */
static Image plain_max(Image in) {
    Image out = image_make((in.h - 1) / 2 + 1, (in.w - 1) / 2 + 1, in.c);
    for (int64_t i = 0; i < out.h * out.w * in.c; i++)
        for (int64_t p = 0; p < 9; p++)
            out.x[i] = fmax(
                out.x[i], image_at(&in, i / in.c / out.w * 2 - 1 + p / 3, i / in.c % out.w * 2 - 1 + p % 3, i % in.c));
    free(in.x);
    return out;
}

/* One image x [h][w][c] to `classes` values. */
static void plain_forward(const Net *n, const float *x, double *out) {
    Image a = image_make(n->h, n->w, n->c);
    for (int64_t i = 0; i < n->h * n->w * n->c; i++) a.x[i] = x[i];
    a = plain_conv(a, false, n->stem, 3, 2, false, n->stem_w, n->stem_b);
    image_relu(&a);
    a = plain_max(a);
    Image b = plain_conv(a, true, n->stem, 3, 1, false, n->res1_w, n->res1_b);
    image_relu(&b);
    b = plain_conv(b, false, n->stem, 3, 1, false, n->res2_w, n->res2_b);
    for (int64_t i = 0; i < a.h * a.w * a.c; i++) a.x[i] += b.x[i];
    free(b.x);
    image_relu(&a);
    a = plain_conv(a, false, n->stem, 3, 1, true, n->deep_w, n->deep_b);
    image_relu(&a);
    a = plain_conv(a, false, n->wide, 1, 1, false, n->point_w, NULL);
    for (int64_t f = 0; f < n->classes; f++) {
        out[f] = n->fc_b[f];
        for (int64_t c = 0; c < n->wide; c++) {
            double mean = 0;
            for (int64_t p = 0; p < a.h * a.w; p++) mean += a.x[p * a.c + c];
            out[f] += mean / (double)(a.h * a.w) * n->fc_w[f * n->wide + c];
        }
    }
    free(a.x);
}

/* ---- one run on all ranks ---------------------------------------------------------------------------------------- */

typedef struct Machine { /* everything made for one graph on this rank */
    Graph graph;
    Plan *plan;
    Weights weights;
    Pool *pool;
    Exec *exec;
} Machine;

static int machine_make(Machine *m, const Net *net, int64_t batch, bool split_batch, int n_threads, Err *e) {
    *m = (Machine){0};
    net_graph(net, batch, &m->graph);
    const PlanOptions po = {.n_ranks = comm_size(comm), .split_batch = split_batch};
    if (graph_check(&m->graph, e) || passes_run(&m->graph, QT_A8, e)) return -1;
    if (plan_make(&m->graph, &po, &m->plan, e) || pool_create(n_threads, NULL, &m->pool, e)) return -1;
    if (weights_load(m->plan, comm_rank(comm), NULL, m->pool, NULL, NULL, &m->weights, e)) return -1;
    const ExecOptions eo = {.max_tokens = 1, .max_outputs = 1};
    return exec_create(m->plan, comm_rank(comm), &m->weights, kernels, m->pool, comm, &eo, &m->exec, e);
}

static void machine_free(Machine *m) {
    if (m->exec) exec_free(m->exec);
    weights_free(&m->weights);
    if (m->pool) pool_free(m->pool);
    plan_free(m->plan);
    graph_free(&m->graph);
}

static ValueId find_value(const Plan *p, const char *name) {
    for (ValueId v = 0; v < p->graph.n_values; v++)
        if (strcmp(p->graph.value[v].name, name) == 0 && p->graph.value[v].kind != VALUE_TEMP) return v;
    return -1;
}

/* This rank's images into its input buffer. */
static void give_images(Machine *m, const Net *net, const float *x) {
    const int64_t size = net->h * net->w * net->c;
    float *to = exec_input(m->exec, "image");
    Range r[SHARD_PARTS];
    int parts = plan_local_ranges(m->plan, find_value(m->plan, "image"), AXIS_FIRST, comm_rank(comm), r);
    CU_ASSERT(to != NULL || r[0].begin == r[0].end);
    for (int i = 0; to && i < parts; i++) {
        int64_t n = r[i].end - r[i].begin;
        memcpy(to, x + r[i].begin * size, (size_t)(n * size) * sizeof *x);
        to += n * size;
    }
}

/* FNV-1a, so that ranks can compare results. */
static uint64_t hash_bytes(const void *p, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

/* Runs `batch` images; the largest error relative to the largest value is at most 2e-6 (fp32 sums of at most 200
 * products, five layers deep), and all ranks have the same bits. */
static void check_run_of(Machine *m, const Net *net, int64_t batch, const char *what) {
    float *x = noises(batch * net->h * net->w * net->c, 1);
    double *want = malloc((size_t)(batch * net->classes) * sizeof *want), largest = 0, worst = 0;
    for (int64_t i = 0; i < batch; i++) plain_forward(net, x + i * net->h * net->w * net->c, want + i * net->classes);
    give_images(m, net, x);
    Err e = {""};
    int failed = exec_run(m->exec, &(ExecStep){0}, &e);
    CU_ASSERT(failed == 0);
    if (failed) printf("rank %d, %s: %s\n", comm_rank(comm), what, e.msg);
    const float *got = failed ? NULL : exec_output(m->exec, 0);
    for (int64_t i = 0; got && i < batch * net->classes; i++) {
        double error = fabs(got[i] - want[i]);
        largest = fmax(largest, fabs(want[i]));
        worst = error > worst || isnan(error) ? error : worst;
    }
    CU_ASSERT(largest > 0.01);
    CU_ASSERT(worst <= 2e-6 * largest);
    if (!(worst <= 2e-6 * largest)) printf("rank %d, %s: error %g of %g\n", comm_rank(comm), what, worst, largest);
    if (got) {
        int differ = comm_same(comm, hash_bytes(got, (size_t)(batch * net->classes) * sizeof *got), what, &e);
        CU_ASSERT(differ == 0);
        if (differ) printf("rank %d: %s\n", comm_rank(comm), e.msg);
    }
    free(x);
    free(want);
}

/* The weights on this rank are its slices and no more; together the ranks hold the net about once. */
static void check_slices(const Machine *m, const Net *net) {
    uint64_t mine = m->weights.bytes, sum = 0, most = 0, all[64];
    size_t n_bytes[64];
    const int n = comm_size(comm);
    for (int i = 0; i < n; i++) n_bytes[i] = sizeof mine;
    Err e;
    CU_ASSERT(comm_allgather(comm, &mine, n_bytes, all, &e) == 0);
    for (int i = 0; i < n; i++) {
        sum += all[i];
        most = all[i] > most ? all[i] : most;
    }
    /* What a rank may hold beyond its share: up to 16 rows of padding in the classifier's last panel, and all of the
     * biases of replicated sums. */
    const double whole = (double)(net->values * sizeof(float));
    const double beyond = (double)((size_t)(16 * net->wide + 4 * net->stem + net->classes) * sizeof(float));
    const double share = 1.15 * whole / n; /* channels do not divide evenly */
    CU_ASSERT((double)sum >= whole);
    CU_ASSERT((double)sum <= whole + n * beyond);
    CU_ASSERT((double)most <= share + beyond);
    if (!((double)sum <= whole + n * beyond && (double)most <= share + beyond))
        printf("ranks hold %g bytes of %g, one of them %g\n", (double)sum, whole, (double)most);
    CU_ASSERT(n == 1 || plan_wire(m->plan).collectives > 0);
}

/* Filter by filter: the values on this rank are those of the ranges that the plan names. */
static void check_filter(const Machine *m, const char *name, const float *w, int64_t k, int64_t in) {
    ValueId v = find_value(m->plan, name);
    CU_ASSERT_FATAL(v >= 0);
    Range o[SHARD_PARTS], c[SHARD_PARTS];
    int n_o = plan_local_ranges(m->plan, v, AXIS_FIRST, comm_rank(comm), o);
    int n_c = plan_local_ranges(m->plan, v, AXIS_LAST, comm_rank(comm), c);
    const float *local = m->weights.weight[v].values;
    bool same = true;
    for (int a = 0; a < n_o; a++)
        for (int64_t f = o[a].begin; f < o[a].end; f++)
            for (int64_t p = 0; p < k * k; p++)
                for (int b = 0; b < n_c; b++)
                    for (int64_t i = c[b].begin; i < c[b].end; i++) same &= *local++ == w[(f * k * k + p) * in + i];
    CU_ASSERT(same);
}

static void check_net(Net *net, bool split_batch, bool slices) {
    static const int64_t batches[] = {1, 3, 5};
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            Machine m;
            Err e = {""}, all = {""};
            bool failed = machine_make(&m, net, batches[i], split_batch, n_threads, &e) != 0;
            failed = comm_agree(comm, failed, &e, &all) != 0;
            CU_ASSERT(!failed);
            if (failed) printf("%s\n", all.msg);
            char what[64];
            snprintf(what, sizeof what, "%s divided, %d images, %d threads", split_batch ? "images" : "channels",
                     (int)batches[i], n_threads);
            for (int again = 0; again < 2 && !failed; again++) check_run_of(&m, net, batches[i], what);
            if (!failed && slices && !split_batch) check_slices(&m, net);
            if (!failed) {
                check_filter(&m, "stem.w", net->stem_w, 3, net->c);
                check_filter(&m, "res1.w", net->res1_w, 3, net->stem);
                check_filter(&m, "res2.w", net->res2_w, 3, net->stem);
                check_filter(&m, "deep.w", net->deep_w, 3, 1);
                check_filter(&m, "point.w", net->point_w, 1, net->stem);
            }
            if (!failed && split_batch) CU_ASSERT(m.weights.bytes >= net->values * sizeof(float));
            machine_free(&m);
        }
    }
}

/* 20 channels: not whole vectors, and shared unevenly by 3 ranks. */
static void test_channels(void) {
    Net net = net_make(19, 17, 3, 20, 44, 10);
    check_net(&net, false, true);
    net_free(&net);
}

static void test_images(void) {
    Net net = net_make(19, 17, 3, 20, 44, 10);
    check_net(&net, true, true);
    net_free(&net);
}

/* Fewer channels than ranks: at 3 and 4 ranks some hold nothing of most layers. */
static void test_few_channels(void) {
    Net net = net_make(13, 14, 1, 2, 3, 2);
    check_net(&net, false, false);
    check_net(&net, true, false);
    net_free(&net);
}

/* Enough channels for whole vectors on every rank. */
static void test_many_channels(void) {
    Net net = net_make(16, 16, 3, 64, 80, 33);
    check_net(&net, false, true);
    net_free(&net);
}

int main(void) {
    const CommOptions options = {.check = true};
    Err e;
    if (kernels_select(getenv("SHEAF_ISA"), &kernels, &e) || comm_create(&options, &comm, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    comm_set_kernels(comm, kernels);
    static const CU_TestInfo tests[] = {{"channels divided", test_channels},
                                        {"images divided", test_images},
                                        {"fewer channels than ranks", test_few_channels},
                                        {"many channels", test_many_channels},
                                        CU_TEST_INFO_NULL};
    int status = check_run("cnn", tests);
    comm_free(comm);
    return status;
}
