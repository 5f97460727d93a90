/* The passes over nets, each seen in the graph's text before and after. That rewritten nets compute the same is shown
 * where they are executed (engine/mpi_net.c). */
#include "graph/passes.h"
#include "graph_named.h"

static const float zeroes[4096];

static ValueId image(Graph *g, int64_t n, int64_t a, int64_t b, int64_t c) {
    return graph_input(g, "x", QT_F32, 4, (Dim[]){dim_const(n), dim_const(a), dim_const(b), dim_const(c)});
}
static ValueId weight(Graph *g, const char *name, int n_dims, const int64_t *dims) {
    return graph_weight(g, name, QT_F32, n_dims, dims, -1, zeroes);
}
#define DIMS(...)                                                                                                      \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

static const int last[] = {0, 2, 3, 1}, first[] = {0, 3, 1, 2};

/* A convolution as a file with channels first has it. */
static ValueId conv_first(Graph *g, const char *name, ValueId x, ValueId w) {
    char turn[32], back[32];
    snprintf(turn, sizeof turn, "%s.turn", name);
    snprintf(back, sizeof back, "%s.back", name);
    ValueId y = graph_conv(g, name, graph_transpose(g, turn, x, last), w, -1, 1, 1, 1);
    return graph_transpose(g, back, y, first);
}

static void passed(int (*pass)(Graph *, Err *), Graph *g) {
    Err e = {""};
    int failed = pass(g, &e);
    CU_ASSERT_EQUAL(failed, 0);
    if (failed) printf("\n%s", e.msg);
    CU_ASSERT_EQUAL(pass_dead(g, &e), 0);
}

/* Transposes meet behind a function, a sum with a constant per channel, and a concatenation, and cancel. */
static void test_transposes(void) {
    Graph g;
    graph_init(&g);
    ValueId x = image(&g, 1, 4, 8, 8);
    ValueId a = graph_relu(&g, "relu", conv_first(&g, "c1", x, weight(&g, "w1", DIMS(6, 3, 3, 4))));
    a = graph_binary(&g, "shift", a, weight(&g, "s", DIMS(6, 1, 1)), ND_ADD);
    ValueId b = conv_first(&g, "c2", a, weight(&g, "w2", DIMS(6, 3, 3, 6)));
    ValueId both = graph_concat(&g, "both", 2, (ValueId[]){a, b}, 1);
    g.output[0] = conv_first(&g, "c3", both, weight(&g, "w3", DIMS(5, 3, 3, 12)));
    expect(&g, "[1,8,8,4] F32 = transpose c1.turn (to 0,2,3,1) x\n"
               "[1,8,8,6] F32 = conv c1 (window 3,3 pad 1,1 to 1,1) %c1.turn w1\n"
               "[1,6,8,8] F32 = transpose c1.back (to 0,3,1,2) %c1\n"
               "[1,6,8,8] F32 = unary relu (relu) %c1.back\n"
               "[1,6,8,8] F32 = binary shift (add) %relu s\n"
               "[1,8,8,6] F32 = transpose c2.turn (to 0,2,3,1) %shift\n"
               "[1,8,8,6] F32 = conv c2 (window 3,3 pad 1,1 to 1,1) %c2.turn w2\n"
               "[1,6,8,8] F32 = transpose c2.back (to 0,3,1,2) %c2\n"
               "[1,12,8,8] F32 = concat both (axis 1) %shift %c2.back\n"
               "[1,8,8,12] F32 = transpose c3.turn (to 0,2,3,1) %both\n"
               "[1,8,8,5] F32 = conv c3 (window 3,3 pad 1,1 to 1,1) %c3.turn w3\n"
               "[1,5,8,8] F32 = transpose c3.back (to 0,3,1,2) %c3\n");
    passed(pass_transposes, &g);
    expect(&g, "[1,8,8,4] F32 = transpose c1.turn (to 0,2,3,1) x\n"
               "[1,8,8,6] F32 = conv c1 (window 3,3 pad 1,1 to 1,1) %c1.turn w1\n"
               "[1,8,8,6] F32 = unary relu (relu) %c1\n"
               "[1,8,8,6] F32 = binary shift (add) %relu s\n"
               "[1,8,8,6] F32 = conv c2 (window 3,3 pad 1,1 to 1,1) %shift w2\n"
               "[1,8,8,12] F32 = concat both (axis 3) %shift %c2\n"
               "[1,8,8,5] F32 = conv c3 (window 3,3 pad 1,1 to 1,1) %both w3\n"
               "[1,5,8,8] F32 = transpose c3.back (to 0,3,1,2) %c3\n");
    graph_free(&g);
}

/* Attributes by axis move along: padding, cutting, sums; a sum over space leaves no transpose. */
static void test_transposed_axes(void) {
    Graph g;
    graph_init(&g);
    ValueId x = conv_first(&g, "c", image(&g, 2, 4, 8, 8), weight(&g, "w", DIMS(6, 3, 3, 4)));
    x = graph_pad(&g, "pad", x, ND_PAD_EDGE, (int64_t[]){0, 1, 2, 3}, (int64_t[]){0, 0, 0, 0}, 0);
    x = graph_cut(&g, "cut", x, (int64_t[]){0, 0, 9, 0}, (int64_t[]){1, 1, -1, 1}, (int64_t[]){2, 7, 10, 11});
    x = graph_softmax(&g, "soft", x, ND_SOFTMAX, 1);
    g.output[0] = graph_reduce(&g, "sum", x, ND_SUM, 1u << 2 | 1u << 3, false);
    passed(pass_transposes, &g);
    expect(&g, "[2,8,8,4] F32 = transpose c.turn (to 0,2,3,1) x\n"
               "[2,8,8,6] F32 = conv c (window 3,3 pad 1,1 to 1,1) %c.turn w\n"
               "[2,10,11,7] F32 = pad pad (edge before 0,2,3,1) %c\n"
               "[2,10,11,7] F32 = cut cut (from 0,9,0,0 step 1,-1,1,1) %pad\n"
               "[2,10,11,7] F32 = softmax soft (axis 3) %cut\n"
               "[2,7] F32 = reduce sum (sum 1 2) %soft\n"
               "[2,7] F32 = reshape sum %sum\n");
    graph_free(&g);
}

/* Squeeze and excitation: the factors are a reshape, not a transpose. */
static void test_excitation(void) {
    Graph g;
    graph_init(&g);
    ValueId x = conv_first(&g, "c", image(&g, 1, 4, 8, 8), weight(&g, "w", DIMS(6, 3, 3, 4)));
    ValueId s = graph_reduce(&g, "mean", x, ND_MEAN, 1u << 2 | 1u << 3, false);
    s = graph_linear(&g, "fc", s, weight(&g, "fc.w", DIMS(6, 6)), -1);
    s = graph_reshape(&g, "wide", s, DIMS(1, 6, 1, 1));
    g.output[0] = conv_first(&g, "d", graph_binary(&g, "scale", x, s, ND_MUL), weight(&g, "v", DIMS(6, 3, 3, 6)));
    passed(pass_transposes, &g);
    expect(&g, "[1,8,8,4] F32 = transpose c.turn (to 0,2,3,1) x\n"
               "[1,8,8,6] F32 = conv c (window 3,3 pad 1,1 to 1,1) %c.turn w\n"
               "[1,6] F32 = reduce mean (mean 1 2) %c\n"
               "[1,6] F32 = linear fc %mean fc.w\n"
               "[1,6,1,1] F32 = reshape wide %fc\n"
               "[1,1,1,6] F32 = reshape wide %wide\n"
               "[1,8,8,6] F32 = binary scale (mul) %c %wide\n"
               "[1,8,8,6] F32 = conv d (window 3,3 pad 1,1 to 1,1) %scale v\n"
               "[1,6,8,8] F32 = transpose d.back (to 0,3,1,2) %d\n");
    graph_free(&g);
}

/* What cannot be turned stays: a product with a value of another layout, an axis that a reshape has taken apart. */
static void test_transposes_stay(void) {
    Graph g;
    graph_init(&g);
    ValueId in = image(&g, 1, 6, 8, 8);
    ValueId x = conv_first(&g, "c", in, weight(&g, "w", DIMS(6, 3, 3, 6)));
    x = graph_binary(&g, "mix", x, in, ND_MUL);
    g.output[0] = graph_reshape(&g, "flat", x, DIMS(1, 384));
    const char *same = "[1,8,8,6] F32 = transpose c.turn (to 0,2,3,1) x\n"
                       "[1,8,8,6] F32 = conv c (window 3,3 pad 1,1 to 1,1) %c.turn w\n"
                       "[1,6,8,8] F32 = transpose c.back (to 0,3,1,2) %c\n"
                       "[1,6,8,8] F32 = binary mix (mul) %c.back x\n"
                       "[1,384] F32 = reshape flat %mix\n";
    expect(&g, same);
    passed(pass_transposes, &g);
    expect(&g, same);
    graph_free(&g);
}

/* Zeroes around the image go into the window; other values, and channels, do not. */
static void test_pad(void) {
    static const struct {
        double value;
        int64_t before[4], after[4];
        bool goes;
    } cases[] = {{0, {0, 1, 0, 0}, {0, 2, 3, 0}, true},
                 {1, {0, 1, 0, 0}, {0, 2, 3, 0}, false},
                 {0, {0, 0, 0, 0}, {0, 0, 0, 2}, false},
                 {0, {0, -1, 0, 0}, {0, 0, 0, 0}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph g;
        graph_init(&g);
        ValueId x = graph_pad(&g, "pad", image(&g, 1, 8, 8, 3), ND_PAD_CONSTANT, cases[i].before, cases[i].after,
                              cases[i].value);
        g.output[0] = graph_conv(&g, "conv", x, weight(&g, "w", DIMS(4, 3, 3, 3 + cases[i].after[3])), -1, 1, 1, 1);
        passed(pass_pad, &g);
        CU_ASSERT_EQUAL(g.n_ops, cases[i].goes ? 1 : 2);
        if (cases[i].goes) expect(&g, "[1,11,11,4] F32 = conv conv (window 3,3 pad 2,1 to 3,4) x w\n");
        graph_free(&g);
    }
}

/* Two convolutions with the same weights: each factor goes into weights of its own. w' = 3 (2 w), b' = 3 (2 b - 1) + 4
 * by hand; the other convolution is left as it is. */
static void test_affine(void) {
    static const float w[4] = {1, 2, 3, 4}, b[2] = {10, 20}, factor[2] = {2, 2}, one[1] = {1}, three[1] = {3},
                       four[2] = {4, 4};
    Graph g;
    graph_init(&g);
    ValueId x = image(&g, 1, 2, 2, 2);
    ValueId wv = graph_weight(&g, "w", QT_F32, 4, (int64_t[]){2, 1, 1, 2}, -1, w);
    ValueId bv = graph_weight(&g, "b", QT_F32, 1, (int64_t[]){2}, -1, b);
    ValueId y = graph_conv(&g, "conv", x, wv, bv, 1, 0, 1), z = graph_conv(&g, "other", x, wv, bv, 1, 0, 1);
    y = graph_binary(&g, "mul", graph_weight(&g, "f", QT_F32, 1, (int64_t[]){2}, -1, factor), y, ND_MUL);
    y = graph_binary(&g, "sub", y, graph_weight(&g, "one", QT_F32, 0, NULL, -1, one), ND_SUB);
    y = graph_binary(&g, "scale", y, graph_weight(&g, "three", QT_F32, 1, (int64_t[]){1}, -1, three), ND_MUL);
    y = graph_binary(&g, "add", y, graph_weight(&g, "four", QT_F32, 4, (int64_t[]){1, 1, 1, 2}, -1, four), ND_ADD);
    g.output[0] = graph_add(&g, "end", y, z);
    passed(pass_affine, &g);
    expect(&g, "[1,2,2,2] F32 = conv conv (window 1,1) x w b\n"
               "[1,2,2,2] F32 = conv other (window 1,1) x w b\n"
               "[1,2,2,2] F32 = add end %conv %other\n");
    const float *folded = value_nd(&g, g.op[0].in[1]).data, *bias = value_nd(&g, g.op[0].in[2]).data;
    CU_ASSERT(memcmp(folded, (float[]){6, 12, 18, 24}, 16) == 0);
    CU_ASSERT(memcmp(bias, (float[]){61, 121}, 8) == 0);
    CU_ASSERT(w[3] == 4 && g.op[1].in[1] == wv && g.op[1].in[2] == bv);
    graph_free(&g);
}

/* A factor per pixel, a second reader, a result of the net, and one divided by the convolution stay. */
static void test_affine_stays(void) {
    for (int kind = 0; kind < 4; kind++) {
        Graph g;
        graph_init(&g);
        ValueId x = graph_conv(&g, "conv", image(&g, 1, 2, 2, 2), weight(&g, "w", DIMS(2, 1, 1, 2)), -1, 1, 0, 1);
        ValueId by = kind == 0 ? weight(&g, "f", DIMS(2, 2, 1)) : weight(&g, "f", DIMS(2));
        ValueId y = kind == 3 ? graph_binary(&g, "div", by, x, ND_DIV) : graph_binary(&g, "mul", x, by, ND_MUL);
        g.output[0] = kind == 1 ? graph_add(&g, "sum", x, y) : y;
        if (kind == 2) g.output[g.n_outputs++] = x;
        int32_t n = g.n_ops;
        passed(pass_affine, &g);
        CU_ASSERT_EQUAL(g.n_ops, n);
        graph_free(&g);
    }
}

/* The sum goes into the convolution that runs later: the other addend is there by then. */
static void test_fuse(void) {
    Graph g;
    graph_init(&g);
    ValueId x = image(&g, 1, 4, 4, 4);
    ValueId a = graph_conv(&g, "a", x, weight(&g, "wa", DIMS(4, 1, 1, 4)), -1, 1, 0, 1);
    ValueId b = graph_conv(&g, "b", x, weight(&g, "wb", DIMS(4, 1, 1, 4)), -1, 1, 0, 1);
    x = graph_unary(&g, "clip", graph_add(&g, "sum", a, b), (Act){.fn = ND_CLIP, .a = 0, .b = 6});
    x = graph_conv(&g, "c", x, weight(&g, "wc", DIMS(4, 1, 1, 4)), -1, 1, 0, 1);
    x = graph_unary(&g, "erf", x, (Act){.fn = ND_ERF}); /* no convolution ends with it */
    g.output[0] = graph_unary(&g, "tanh", x, (Act){.fn = ND_TANH});
    passed(pass_fuse_conv, &g);
    expect(&g, "[1,4,4,4] F32 = conv a (window 1,1) x wa\n"
               "[1,4,4,4] F32 = conv b (window 1,1 + residual, clip 0 6) x wb %a\n"
               "[1,4,4,4] F32 = conv c (window 1,1) %b wc\n"
               "[1,4,4,4] F32 = unary erf (erf) %c\n"
               "[1,4,4,4] F32 = unary tanh (tanh) %erf\n");
    graph_free(&g);
}

static void test_dead(void) {
    Graph g;
    graph_init(&g);
    ValueId x = image(&g, 1, 2, 2, 2);
    ValueId a = graph_relu(&g, "a", x);
    graph_relu(&g, "nobody", graph_relu(&g, "only_for_nobody", a));
    g.output[0] = graph_relu(&g, "b", a);
    g.output[g.n_outputs++] = graph_relu(&g, "c", x);
    passed(pass_dead, &g);
    expect(&g, "[1,2,2,2] F32 = unary a (relu) x\n"
               "[1,2,2,2] F32 = unary b (relu) %a\n"
               "[1,2,2,2] F32 = unary c (relu) x\n");
    graph_free(&g);
}

/* Operators on constants are gone as soon as they are built. */
static void test_fold(void) {
    static const int64_t shape[4] = {7, 3, 8, 8}, minus_one[1] = {-1};
    Graph g;
    graph_init(&g);
    ValueId s = graph_weight(&g, "shape", QT_I64, 1, (int64_t[]){4}, -1, shape);
    ValueId batch = graph_cut(&g, "batch", s, (int64_t[]){0}, (int64_t[]){1}, (int64_t[]){1});
    ValueId rest = graph_weight(&g, "rest", QT_I64, 1, (int64_t[]){1}, -1, minus_one);
    ValueId to = graph_concat(&g, "to", 2, (ValueId[]){batch, rest}, 0);
    to = graph_binary(&g, "twice", to, to, ND_ADD);
    CU_ASSERT_EQUAL(g.n_ops, 0);
    CU_ASSERT(g.value[to].kind == VALUE_WEIGHT && nd_get_i64(&(Nd){QT_I64, 1, {2}, value_nd(&g, to).data}, 0) == 14);
    CU_ASSERT_EQUAL(((const int64_t *)value_nd(&g, to).data)[1], -2);
    graph_free(&g);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"transposes cancel", test_transposes},
                                        {"attributes by axis", test_transposed_axes},
                                        {"squeeze and excitation", test_excitation},
                                        {"transposes that stay", test_transposes_stay},
                                        {"padding", test_pad},
                                        {"factors and addends", test_affine},
                                        {"factors that stay", test_affine_stays},
                                        {"residuals and functions", test_fuse},
                                        {"dead operators", test_dead},
                                        {"constants", test_fold},
                                        CU_TEST_INFO_NULL};
    return check_run("net passes", tests);
}
