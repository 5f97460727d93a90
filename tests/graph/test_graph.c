/* Building a graph, the checks of the whole, and its text. */
#include "check.h"
#include "graph/graph.h"

static ValueId matrix(Graph *g, const char *name, int64_t rows, int64_t columns) {
    return graph_weight(g, name, QT_F32, 2, (int64_t[]){rows, columns}, -1, NULL);
}
static ValueId vector(Graph *g, const char *name, int64_t n) { return graph_weight(g, name, QT_F32, 1, &n, -1, NULL); }
static ValueId tokens(Graph *g, int64_t columns) {
    return graph_input(g, "x", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(columns)});
}
static ValueId image(Graph *g, int64_t n, int64_t h, int64_t w, int64_t c) {
    return graph_input(g, "image", QT_F32, 4, (Dim[]){dim_const(n), dim_const(h), dim_const(w), dim_const(c)});
}
static ValueId filter(Graph *g, int64_t o, int64_t kh, int64_t kw, int64_t i) {
    return graph_weight(g, "filter", QT_F32, 4, (int64_t[]){o, kh, kw, i}, -1, NULL);
}

/* graph_check fails with a line that has all the given words; frees the graph. */
static void refused(Graph *g, const char *name, const char *what) {
    Err e = {""};
    CU_ASSERT_EQUAL(graph_check(g, &e), -1);
    CU_ASSERT(strstr(e.msg, name) && strstr(e.msg, what));
    if (!strstr(e.msg, name) || !strstr(e.msg, what)) printf("\n\"%s\" lacks \"%s\" or \"%s\"\n", e.msg, name, what);
    graph_free(g);
}

static void test_text(void) {
    Graph g;
    graph_init(&g);
    ValueId ids = graph_input(&g, "ids", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId rows = graph_input(&g, "rows", QT_I32, 1, (Dim[]){dim_outputs()});
    ValueId x = graph_embed(&g, "embed", ids, matrix(&g, "table", 100, 32));
    x = graph_linear(&g, "layer.0", x, matrix(&g, "w", 48, 32), vector(&g, "b", 48));
    g.output[0] = graph_select(&g, "select", x, rows);
    Err e = {""};
    CU_ASSERT(!graph_check(&g, &e));
    char *text = graph_text(&g);
    CU_ASSERT_STRING_EQUAL(text, "%3 [T,32] F32 = embed embed ids table\n"
                                 "%6 [T,48] F32 = linear layer.0 %3 w b\n"
                                 "%7 [R,48] F32 = select select %6 rows\n");
    free(text);
    CU_ASSERT_EQUAL(graph_uses(&g, ids), 1);
    CU_ASSERT_EQUAL(graph_uses(&g, x), 1);
    CU_ASSERT_EQUAL(graph_uses(&g, g.output[0]), 1); /* the graph's output counts */
    CU_ASSERT_EQUAL(value_columns(&g, x), 48);
    for (int k = 0; k < OP_COUNT; k++) CU_ASSERT(op_kind_name((OpKind)k) != NULL);
    graph_free(&g);
}

/* A builder goes on after a tensor that is missing: the first error is kept, and nothing reads a value -1. */
static void test_first_error(void) {
    Graph g;
    graph_init(&g);
    ValueId x = tokens(&g, 32), none = -1;
    ValueId dims4 = image(&g, 1, 8, 8, 3);
    ValueId y = graph_linear(&g, "first", x, none, -1);
    CU_ASSERT_EQUAL(y, -1);
    CU_ASSERT_EQUAL(graph_linear(&g, "second", y, matrix(&g, "w", 7, 31), -1), -1);
    CU_ASSERT_EQUAL(graph_conv(&g, "third", dims4, filter(&g, 4, 3, 3, 99), -1, 1, 1, 1), -1);
    refused(&g, "first", "missing");
}

static RopeShape rotated(int dim) { return (RopeShape){.dim = dim, .base = 1e4, .scale = 1, .attention = 1}; }

/* Every kind with each of its inputs missing. */
static void test_missing_inputs(void) {
    for (int kind = 0; kind < 13; kind++)
        for (int which = 0; which < 4; which++) {
            Graph g;
            graph_init(&g);
            ValueId v[4] = {tokens(&g, 32), matrix(&g, "w", 32, 32), tokens(&g, 32), graph_state(&g, "kv", 1, 32)};
            v[which] = -1;
            ValueId out = 0;
            switch (kind) {
            case 0: out = graph_embed(&g, "op", v[0], v[1]); break;
            case 1: out = graph_linear(&g, "op", v[0], v[1], -1); break;
            case 2: out = graph_rmsnorm(&g, "op", v[0], v[1], 1e-5f); break;
            case 3: out = graph_rope_table(&g, "op", v[0], -1, rotated(32)); break;
            case 4: out = graph_rope(&g, "op", v[0], v[1], 1, 32, rotated(32)); break;
            case 5: out = graph_attention(&g, "op", v[0], v[1], v[2], v[3], (AttnShape){1, 1, 32, 1.0f, 0, 0}); break;
            case 6: out = graph_silu_mul(&g, "op", v[0], v[1]); break;
            case 7: out = graph_relu(&g, "op", v[0]); break;
            case 8: out = graph_add(&g, "op", v[0], v[1]); break;
            case 9: out = graph_select(&g, "op", v[0], v[1]); break;
            case 10: out = graph_stats(&g, "op", v[0], v[1]); break;
            case 11: out = graph_conv(&g, "op", v[0], v[1], -1, 1, 1, 1); break;
            default: out = graph_pool(&g, "op", v[0], POOL_MAX, 2, 2, 0); break;
            }
            static const int n_in[] = {2, 2, 2, 1, 2, 4, 2, 1, 2, 2, 2, 2, 1};
            if (which < n_in[kind]) {
                CU_ASSERT_EQUAL(out, -1);
                refused(&g, "op", "missing");
            } else graph_free(&g);
        }
}

static void test_shapes(void) {
    Graph g;
    graph_init(&g);
    graph_linear(&g, "lin", tokens(&g, 32), matrix(&g, "w", 8, 33), -1);
    refused(&g, "lin", "columns");

    graph_init(&g);
    g.output[0] = graph_linear(&g, "lin", tokens(&g, 32), matrix(&g, "w", 8, 32), vector(&g, "b", 9));
    refused(&g, "lin", "bias");

    graph_init(&g);
    g.output[0] = graph_linear(&g, "lin", tokens(&g, 32), vector(&g, "w", 32), -1);
    refused(&g, "lin", "no matrix");

    graph_init(&g);
    g.output[0] = graph_rmsnorm(&g, "norm", tokens(&g, 32), vector(&g, "w", 31), 1e-5f);
    refused(&g, "norm", "size");

    graph_init(&g);
    g.output[0] = graph_add(&g, "sum", tokens(&g, 32), tokens(&g, 16));
    refused(&g, "sum", "shapes");

    graph_init(&g);
    ValueId rows = graph_input(&g, "rows", QT_I32, 1, (Dim[]){dim_outputs()});
    ValueId x = tokens(&g, 32);
    g.output[0] = graph_silu_mul(&g, "gated", x, graph_select(&g, "some", x, rows)); /* [T] against [R] */
    refused(&g, "gated", "shapes");

    graph_init(&g);
    graph_relu(&g, "relu", tokens(&g, 32));
    refused(&g, "", "output"); /* nothing was named as the output */
}

/* Heads: 3 query heads of 32 with 2 KV heads; a head of 24; heads that do not fill the value; a cache of other size. */
static void test_heads(void) {
    static const struct {
        int heads, kv_heads, dim;
        int64_t q, kv, cache;
        const char *what;
    } bad[] = {{3, 2, 32, 96, 64, 64, "multiple of KV heads"},
               {1, 1, 24, 24, 24, 24, "multiple of 16"},
               {1, 1, 272, 272, 272, 272, "at most 256"},
               {2, 1, 32, 96, 32, 32, "do not fill"},
               {2, 1, 32, 64, 32, 64, "cache differ"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Graph g;
        graph_init(&g);
        ValueId q = tokens(&g, bad[i].q), k = tokens(&g, bad[i].kv), v = tokens(&g, bad[i].kv);
        ValueId state = graph_state(&g, "kv", 1, (int)bad[i].cache);
        g.output[0] = graph_attention(&g, "attn", q, k, v, state,
                                      (AttnShape){bad[i].heads, bad[i].kv_heads, bad[i].dim, 1.0f, 0, 0});
        refused(&g, "attn", bad[i].what);
    }
    Graph g;
    graph_init(&g);
    ValueId positions = graph_input(&g, "positions", QT_I32, 1, (Dim[]){dim_tokens()});
    ValueId table = graph_rope_table(&g, "table", positions, -1, rotated(64));
    g.output[0] = graph_rope(&g, "rope", tokens(&g, 64), table, 2, 32, rotated(64)); /* rotates 64 of 32 */
    refused(&g, "rope", "out of range");
}

/* Sizes by hand: (size + 2 pad - window) / stride + 1, rounded down. */
static void test_images(void) {
    Graph g;
    graph_init(&g);
    ValueId x = image(&g, 2, 9, 8, 3);
    ValueId c = graph_conv(&g, "conv", x, filter(&g, 5, 3, 2, 3), vector(&g, "b", 5), 2, 1, 1);
    ValueId p = graph_pool(&g, "pool", c, POOL_MAX, 2, 2, 0);
    ValueId d = graph_conv(&g, "deep", p, filter(&g, 5, 2, 2, 1), -1, 1, 0, 5);
    g.output[0] = graph_pool(&g, "mean", d, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    Err e = {""};
    CU_ASSERT(!graph_check(&g, &e));
    char *text = graph_text(&g);
    CU_ASSERT_STRING_EQUAL(text, "%3 [2,5,5,5] F32 = conv conv (window 3,2 stride 2,2 pad 1,1 to 1,1) image filter b\n"
                                 "%4 [2,2,2,5] F32 = pool pool (max window 2,2 stride 2,2) %3\n"
                                 "%6 [2,1,1,5] F32 = conv deep (window 2,2 groups 5) %4 filter\n"
                                 "%7 [2,5] F32 = pool mean (average window 1,1 of all) %6\n");
    free(text);
    graph_free(&g);
}

static void test_bad_images(void) {
    static const struct {
        int64_t h, o, k, i;
        int stride, pad, groups;
        const char *what;
    } bad[] = {{8, 4, 3, 3, 0, 1, 1, "stride"},
               {8, 4, 3, 3, 1, -1, 1, "padding"},
               {8, 4, 3, 4, 1, 1, 1, "channels"},
               {8, 4, 3, 1, 1, 1, 3, "groups"},
               {8, 4, 3, 1, 1, 1, 2, "groups"},
               {8, 6, 3, 2, 1, 1, 3, "channels"},
               {2, 4, 3, 3, 1, 0, 1, "larger than the padded image"},
               {2, 4, 3, 3, 2, 0, 1, "larger than the padded image"}, /* (2 - 3) / 2 + 1 is 1 in C */
               {2, 4, 5, 3, 4, 1, 1, "larger than the padded image"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Graph g;
        graph_init(&g);
        g.output[0] = graph_conv(&g, "conv", image(&g, 1, bad[i].h, bad[i].h, 3),
                                 filter(&g, bad[i].o, bad[i].k, bad[i].k, bad[i].i), -1, bad[i].stride, bad[i].pad,
                                 bad[i].groups);
        refused(&g, "conv", bad[i].what);
    }
    static const struct {
        int64_t h;
        int size, stride, pad;
    } pools[] = {{4, 0, 1, 0}, {4, 2, 0, 0}, {4, 2, 2, 2}, {4, 2, 2, -1}, {2, 3, 2, 0}, {1, 3, 3, 0}};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        Graph g;
        graph_init(&g);
        g.output[0] = graph_pool(&g, "pool", image(&g, 1, pools[i].h, pools[i].h, 3), POOL_AVERAGE, pools[i].size,
                                 pools[i].stride, pools[i].pad);
        refused(&g, "pool", "window");
    }
    Graph g;
    graph_init(&g);
    g.output[0] = graph_pool(&g, "pool", tokens(&g, 8), POOL_GLOBAL_AVERAGE, 0, 0, 0);
    refused(&g, "pool", "wants");
}

/* The order of operators is checked: here a reader is put before the maker. */
static void test_order(void) {
    Graph g;
    graph_init(&g);
    ValueId a = graph_relu(&g, "a", tokens(&g, 8));
    g.output[0] = graph_relu(&g, "b", a);
    Op first = g.op[0];
    g.op[0] = g.op[1];
    g.op[1] = first;
    g.value[g.op[0].out[0]].producer = 0;
    g.value[g.op[1].out[0]].producer = 1;
    refused(&g, "b", "before it is made");
}

int main(void) {
    static const CU_TestInfo tests[] = {{"text", test_text},
                                        {"the first error is kept", test_first_error},
                                        {"missing inputs", test_missing_inputs},
                                        {"shapes that do not fit", test_shapes},
                                        {"heads that do not fit", test_heads},
                                        {"sizes of images", test_images},
                                        {"bad convolutions and pools", test_bad_images},
                                        {"order", test_order},
                                        CU_TEST_INFO_NULL};
    return check_run("graph", tests);
}
