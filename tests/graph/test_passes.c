/* The passes, seen in the graph's text before and after each: a llama of two layers and a small convolutional net. That
 * the rewritten graphs compute the same is shown where graphs are executed (engine/test_exec.c). */
#include "check.h"
#include "graph/arch.h"
#include "graph/gguf.h"
#include "graph/passes.h"
#include "graph_named.h"
#include "tiny_model.h"

/* What is expected of a layer, with @ for "blk.LAYER" and $ for the operator that made the layer's input. */
static void add_layer(char *out, const char *lines, int layer, const char *input) {
    char *to = out + strlen(out);
    for (const char *p = lines; *p; p++) {
        if (*p == '@') to += sprintf(to, "blk.%d", layer);
        else if (*p == '$') to += sprintf(to, "%s", input);
        else *to++ = *p;
    }
    *to = 0;
}

static void expect_llama(const Graph *g, const char *layer, const char *end) {
    static char got[TEXT_MAX], want[TEXT_MAX];
    named_text(g, got);
    strcpy(want, "[T,64] F32 = embed token_embd ids token_embd.weight\n"
                 "[T,32] F32 = rope_table rope_table positions\n");
    add_layer(want, layer, 0, "token_embd");
    add_layer(want, layer, 1, strstr(layer, "add @.ffn_residual") ? "blk.0.ffn_residual" : "blk.0.ffn_down");
    strcat(want, end);
    CU_ASSERT_STRING_EQUAL(got, want);
    if (strcmp(got, want)) printf("\n-- got\n%s-- expected\n%s", got, want);
}

/* ---- a llama: 2 layers, 64 wide, 2 query heads and 1 KV head of 32, ffn 96 --------------------------------------- */

static Graph llama(QType type) {
    const TinyModel m = {.layers = 2,
                         .width = 64,
                         .heads = 2,
                         .kv_heads = 1,
                         .ffn = 96,
                         .vocab = 259,
                         .qtype = type,
                         .tied_head = true,
                         .seed = 1};
    GgufWriter w;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, &m);
    size_t size;
    uint8_t *bytes = gw_finish(&w, &size);
    gw_free(&w);
    ModelFile *file;
    Graph g;
    LmShape shape;
    Err e = {""};
    CU_ASSERT_FATAL(!gguf_from_memory(bytes, size, size, "tiny", &file, &e));
    CU_ASSERT_FATAL(!arch_build(file, &g, &shape, &e));
    model_file_close(file);
    free(bytes);
    return g;
}

static const char as_built[] = "[T,64] F32 = rmsnorm @.attn_norm %$ @.attn_norm.weight\n"
                               "[T,64] F32 = linear @.attn_q %@.attn_norm @.attn_q.weight\n"
                               "[T,32] F32 = linear @.attn_k %@.attn_norm @.attn_k.weight\n"
                               "[T,32] F32 = linear @.attn_v %@.attn_norm @.attn_v.weight\n"
                               "[T,64] F32 = rope @.rope_q %@.attn_q %rope_table\n"
                               "[T,32] F32 = rope @.rope_k %@.attn_k %rope_table\n"
                               "kv_store @.attention.store %@.rope_k %@.attn_v @.kv\n"
                               "[T,64] F32 = attention @.attention %@.rope_q @.kv\n"
                               "[T,64] F32 = linear @.attn_output %@.attention @.attn_output.weight\n"
                               "[T,64] F32 = add @.attn_residual %$ %@.attn_output\n"
                               "[T,64] F32 = rmsnorm @.ffn_norm %@.attn_residual @.ffn_norm.weight\n"
                               "[T,96] F32 = linear @.ffn_gate %@.ffn_norm @.ffn_gate.weight\n"
                               "[T,96] F32 = linear @.ffn_up %@.ffn_norm @.ffn_up.weight\n"
                               "[T,96] F32 = silu_mul @.silu %@.ffn_gate %@.ffn_up\n"
                               "[T,64] F32 = linear @.ffn_down %@.silu @.ffn_down.weight\n"
                               "[T,64] F32 = add @.ffn_residual %@.attn_residual %@.ffn_down\n";
static const char end_as_built[] = "[R,64] F32 = select select %blk.1.ffn_residual rows\n"
                                   "[R,64] F32 = rmsnorm output_norm %select output_norm.weight\n"
                                   "[R,259] F32 = linear output %output_norm token_embd.weight\n"
                                   "[R,1] F32 = stats stats %output targets\n";

/* Q|K|V and gate|up share one operator; its columns come apart again in views. */
static const char joined[] =
    "[T,64] F32 = rmsnorm @.attn_norm %$ @.attn_norm.weight\n"
    "[T,128] F32 = linear @.attn_q+attn_v %@.attn_norm @.attn_q.weight @.attn_k.weight @.attn_v.weight\n"
    "[T,64] F32 = view @.attn_q [0, 64) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_k [64, 96) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_v [96, 128) %@.attn_q+attn_v\n"
    "[T,64] F32 = rope @.rope_q %@.attn_q %rope_table\n"
    "[T,32] F32 = rope @.rope_k %@.attn_k %rope_table\n"
    "kv_store @.attention.store %@.rope_k %@.attn_v @.kv\n"
    "[T,64] F32 = attention @.attention %@.rope_q @.kv\n"
    "[T,64] F32 = linear @.attn_output %@.attention @.attn_output.weight\n"
    "[T,64] F32 = add @.attn_residual %$ %@.attn_output\n"
    "[T,64] F32 = rmsnorm @.ffn_norm %@.attn_residual @.ffn_norm.weight\n"
    "[T,192] F32 = linear @.ffn_gate+ffn_up %@.ffn_norm @.ffn_gate.weight @.ffn_up.weight\n"
    "[T,96] F32 = view @.ffn_gate [0, 96) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = view @.ffn_up [96, 192) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = silu_mul @.silu %@.ffn_gate %@.ffn_up\n"
    "[T,64] F32 = linear @.ffn_down %@.silu @.ffn_down.weight\n"
    "[T,64] F32 = add @.ffn_residual %@.attn_residual %@.ffn_down\n";

/* One conversion of each value that meets quantised weights. */
static const char quantised[] =
    "[T,64] F32 = rmsnorm @.attn_norm %$ @.attn_norm.weight\n"
    "[T,64] A8 = quantise @.attn_q+attn_v.x8 %@.attn_norm\n"
    "[T,128] F32 = linear @.attn_q+attn_v %@.attn_q+attn_v.x8 @.attn_q.weight @.attn_k.weight @.attn_v.weight\n"
    "[T,64] F32 = view @.attn_q [0, 64) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_k [64, 96) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_v [96, 128) %@.attn_q+attn_v\n"
    "[T,64] F32 = rope @.rope_q %@.attn_q %rope_table\n"
    "[T,32] F32 = rope @.rope_k %@.attn_k %rope_table\n"
    "kv_store @.attention.store %@.rope_k %@.attn_v @.kv\n"
    "[T,64] F32 = attention @.attention %@.rope_q @.kv\n"
    "[T,64] A8 = quantise @.attn_output.x8 %@.attention\n"
    "[T,64] F32 = linear @.attn_output %@.attn_output.x8 @.attn_output.weight\n"
    "[T,64] F32 = add @.attn_residual %$ %@.attn_output\n"
    "[T,64] F32 = rmsnorm @.ffn_norm %@.attn_residual @.ffn_norm.weight\n"
    "[T,64] A8 = quantise @.ffn_gate+ffn_up.x8 %@.ffn_norm\n"
    "[T,192] F32 = linear @.ffn_gate+ffn_up %@.ffn_gate+ffn_up.x8 @.ffn_gate.weight @.ffn_up.weight\n"
    "[T,96] F32 = view @.ffn_gate [0, 96) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = view @.ffn_up [96, 192) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = silu_mul @.silu %@.ffn_gate %@.ffn_up\n"
    "[T,96] A8 = quantise @.ffn_down.x8 %@.silu\n"
    "[T,64] F32 = linear @.ffn_down %@.ffn_down.x8 @.ffn_down.weight\n"
    "[T,64] F32 = add @.ffn_residual %@.attn_residual %@.ffn_down\n";
static const char end_quantised[] = "[R,64] F32 = select select %blk.1.ffn_residual rows\n"
                                    "[R,64] F32 = rmsnorm output_norm %select output_norm.weight\n"
                                    "[R,64] A8 = quantise output.x8 %output_norm\n"
                                    "[R,259] F32 = linear output %output.x8 token_embd.weight\n"
                                    "[R,1] F32 = stats stats %output targets\n";

/* Norms and the gated product write quantised rows themselves; attention's result is converted on its own. */
static const char fused[] =
    "[T,64] A8 = rmsnorm @.attn_norm %$ @.attn_norm.weight\n"
    "[T,128] F32 = linear @.attn_q+attn_v %@.attn_norm @.attn_q.weight @.attn_k.weight @.attn_v.weight\n"
    "[T,64] F32 = view @.attn_q [0, 64) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_k [64, 96) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_v [96, 128) %@.attn_q+attn_v\n"
    "[T,64] F32 = rope @.rope_q %@.attn_q %rope_table\n"
    "[T,32] F32 = rope @.rope_k %@.attn_k %rope_table\n"
    "kv_store @.attention.store %@.rope_k %@.attn_v @.kv\n"
    "[T,64] F32 = attention @.attention %@.rope_q @.kv\n"
    "[T,64] A8 = quantise @.attn_output.x8 %@.attention\n"
    "[T,64] F32 = linear @.attn_output %@.attn_output.x8 @.attn_output.weight\n"
    "[T,64] F32 = add @.attn_residual %$ %@.attn_output\n"
    "[T,64] A8 = rmsnorm @.ffn_norm %@.attn_residual @.ffn_norm.weight\n"
    "[T,192] F32 = linear @.ffn_gate+ffn_up %@.ffn_norm @.ffn_gate.weight @.ffn_up.weight\n"
    "[T,96] F32 = view @.ffn_gate [0, 96) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = view @.ffn_up [96, 192) %@.ffn_gate+ffn_up\n"
    "[T,96] A8 = silu_mul @.silu %@.ffn_gate %@.ffn_up\n"
    "[T,64] F32 = linear @.ffn_down %@.silu @.ffn_down.weight\n"
    "[T,64] F32 = add @.ffn_residual %@.attn_residual %@.ffn_down\n";
static const char end_fused[] = "[R,64] F32 = select select %blk.1.ffn_residual rows\n"
                                "[R,64] A8 = rmsnorm output_norm %select output_norm.weight\n"
                                "[R,259] F32 = linear output %output_norm token_embd.weight\n"
                                "[R,1] F32 = stats stats %output targets\n";

/* The residual stream is added by the linear whose result joins it. */
static const char with_residual[] =
    "[T,64] A8 = rmsnorm @.attn_norm %$ @.attn_norm.weight\n"
    "[T,128] F32 = linear @.attn_q+attn_v %@.attn_norm @.attn_q.weight @.attn_k.weight @.attn_v.weight\n"
    "[T,64] F32 = view @.attn_q [0, 64) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_k [64, 96) %@.attn_q+attn_v\n"
    "[T,32] F32 = view @.attn_v [96, 128) %@.attn_q+attn_v\n"
    "[T,64] F32 = rope @.rope_q %@.attn_q %rope_table\n"
    "[T,32] F32 = rope @.rope_k %@.attn_k %rope_table\n"
    "kv_store @.attention.store %@.rope_k %@.attn_v @.kv\n"
    "[T,64] F32 = attention @.attention %@.rope_q @.kv\n"
    "[T,64] A8 = quantise @.attn_output.x8 %@.attention\n"
    "[T,64] F32 = linear @.attn_output %@.attn_output.x8 @.attn_output.weight %$\n"
    "[T,64] A8 = rmsnorm @.ffn_norm %@.attn_output @.ffn_norm.weight\n"
    "[T,192] F32 = linear @.ffn_gate+ffn_up %@.ffn_norm @.ffn_gate.weight @.ffn_up.weight\n"
    "[T,96] F32 = view @.ffn_gate [0, 96) %@.ffn_gate+ffn_up\n"
    "[T,96] F32 = view @.ffn_up [96, 192) %@.ffn_gate+ffn_up\n"
    "[T,96] A8 = silu_mul @.silu %@.ffn_gate %@.ffn_up\n"
    "[T,64] F32 = linear @.ffn_down %@.silu @.ffn_down.weight %@.attn_output\n";
static const char end_with_residual[] = "[R,64] F32 = select select %blk.1.ffn_down rows\n"
                                        "[R,64] A8 = rmsnorm output_norm %select output_norm.weight\n"
                                        "[R,259] F32 = linear output %output_norm token_embd.weight\n"
                                        "[R,1] F32 = stats stats %output targets\n";

static void test_llama(void) {
    Graph g = llama(QT_Q8_0);
    Err e = {""};
    expect_llama(&g, as_built, end_as_built);
    CU_ASSERT(!pass_fuse_linears(&g, &e));
    expect_llama(&g, joined, end_as_built);
    CU_ASSERT(!pass_quantise_activations(&g, QT_A8, &e));
    expect_llama(&g, quantised, end_quantised);
    CU_ASSERT(!pass_fuse_quantise(&g, &e));
    expect_llama(&g, fused, end_fused);
    CU_ASSERT(!pass_fuse_conv(&g, &e)); /* nothing to do */
    expect_llama(&g, fused, end_fused);
    CU_ASSERT(!pass_fuse_residual(&g, &e));
    expect_llama(&g, with_residual, end_with_residual);
    graph_free(&g);
}

/* Float weights take float activations. */
static void test_llama_float(void) {
    Graph g = llama(QT_F32);
    Err e = {""};
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    expect_llama(&g, joined, end_as_built);
    graph_free(&g);
}

/* passes_run is those before partitioning, in order; each pass run again finds nothing more. */
static void test_all(void) {
    Graph g = llama(QT_Q8_0);
    Err e = {""};
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    expect_llama(&g, fused, end_fused);
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    expect_llama(&g, fused, end_fused);
    graph_free(&g);
}

/* ---- small graphs by hand ---------------------------------------------------------------------------------------- */

static ValueId matrix(Graph *g, const char *name, QType t, int64_t rows, int64_t columns) {
    return graph_weight(g, name, t, 2, (int64_t[]){rows, columns}, -1, NULL);
}
static ValueId input(Graph *g, int64_t columns) {
    return graph_input(g, "x", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(columns)});
}

static void test_cnn(void) {
    Graph g;
    graph_init(&g);
    ValueId x = graph_input(&g, "image", QT_F32, 4, (Dim[]){dim_const(1), dim_const(8), dim_const(8), dim_const(3)});
    ValueId w = graph_weight(&g, "w1", QT_F32, 4, (int64_t[]){4, 3, 3, 3}, -1, NULL);
    x = graph_relu(&g, "relu1", graph_conv(&g, "conv1", x, w, -1, 1, 1, 1));
    w = graph_weight(&g, "w2", QT_F32, 4, (int64_t[]){4, 3, 3, 4}, -1, NULL);
    ValueId y = graph_conv(&g, "conv2", x, w, -1, 1, 1, 1);
    x = graph_relu(&g, "relu2", graph_add(&g, "add", y, x)); /* the relu of a sum, not of the convolution */
    x = graph_pool(&g, "mean", x, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    g.output[0] = graph_linear(&g, "fc", x, matrix(&g, "fc.w", QT_F32, 5, 4), -1);
    Err e = {""};
    CU_ASSERT(!graph_check(&g, &e));
    expect(&g, "[1,8,8,4] F32 = conv conv1 (window 3,3 pad 1,1 to 1,1) image w1\n"
               "[1,8,8,4] F32 = unary relu1 (relu) %conv1\n"
               "[1,8,8,4] F32 = conv conv2 (window 3,3 pad 1,1 to 1,1) %relu1 w2\n"
               "[1,8,8,4] F32 = add add %conv2 %relu1\n"
               "[1,8,8,4] F32 = unary relu2 (relu) %add\n"
               "[1,4] F32 = pool mean (average window 8,8 of all) %relu2\n"
               "[1,5] F32 = linear fc %mean fc.w\n");
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    expect(&g, "[1,8,8,4] F32 = conv conv1 (window 3,3 pad 1,1 to 1,1, relu) image w1\n"
               "[1,8,8,4] F32 = conv conv2 (window 3,3 pad 1,1 to 1,1 + residual, relu) %conv1 w2 %conv1\n"
               "[1,4] F32 = pool mean (average window 8,8 of all) %conv2\n"
               "[1,5] F32 = linear fc %mean fc.w\n");
    graph_free(&g);
}

/* Four readers: three join, the fourth stays alone. Biases follow all weights, in the same order. */
static void test_join_biases(void) {
    Graph g;
    graph_init(&g);
    ValueId x = input(&g, 32), sum = -1;
    for (int i = 0; i < 4; i++) {
        char name[3][8];
        snprintf(name[0], 8, "l%d", i);
        snprintf(name[1], 8, "w%d", i);
        snprintf(name[2], 8, "b%d", i);
        ValueId b = graph_weight(&g, name[2], QT_F32, 1, (int64_t[]){16}, -1, NULL);
        ValueId y = graph_linear(&g, name[0], x, matrix(&g, name[1], QT_F32, 16, 32), b);
        sum = i ? graph_add(&g, "sum", sum, y) : y;
    }
    g.output[0] = sum;
    Err e = {""};
    CU_ASSERT(!pass_fuse_linears(&g, &e));
    expect(&g, "[T,48] F32 = linear l0+l2 x w0 w1 w2 b0 b1 b2\n"
               "[T,16] F32 = view l0 [0, 16) %l0+l2\n"
               "[T,16] F32 = view l1 [16, 32) %l0+l2\n"
               "[T,16] F32 = view l2 [32, 48) %l0+l2\n"
               "[T,16] F32 = add sum %l0 %l1\n"
               "[T,16] F32 = add sum %sum %l2\n"
               "[T,16] F32 = linear l3 x w3 b3\n"
               "[T,16] F32 = add sum %sum %l3\n");
    graph_free(&g);
}

/* What must not join: with and without a bias, float and quantised weights. */
static void test_join_not(void) {
    Graph g;
    graph_init(&g);
    ValueId x = input(&g, 32), b = graph_weight(&g, "b", QT_F32, 1, (int64_t[]){16}, -1, NULL);
    ValueId one = graph_linear(&g, "one", x, matrix(&g, "w1", QT_F32, 16, 32), -1);
    ValueId two = graph_linear(&g, "two", x, matrix(&g, "w2", QT_F32, 16, 32), b);
    ValueId three = graph_linear(&g, "three", x, matrix(&g, "w3", QT_Q8_0, 16, 32), -1);
    g.output[0] = graph_add(&g, "b", graph_add(&g, "a", one, two), three);
    Err e = {""};
    int32_t n = g.n_ops;
    CU_ASSERT(!pass_fuse_linears(&g, &e));
    CU_ASSERT_EQUAL(g.n_ops, n);
    CU_ASSERT(!pass_quantise_activations(&g, QT_A8, &e));
    expect(&g, "[T,16] F32 = linear one x w1\n"
               "[T,16] F32 = linear two x w2 b\n"
               "[T,32] A8 = quantise three.x8 x\n"
               "[T,16] F32 = linear three %three.x8 w3\n"
               "[T,16] F32 = add a %one %two\n"
               "[T,16] F32 = add b %a %three\n");
    graph_free(&g);
}

/* A norm read also as it is stays in fp32; its conversion is shared by its quantised readers, here two that do not
 * join. */
static void test_quantise_shared(void) {
    Graph g;
    graph_init(&g);
    ValueId x = input(&g, 32), n = graph_weight(&g, "n", QT_F32, 1, (int64_t[]){32}, -1, NULL);
    ValueId bias = graph_weight(&g, "bias", QT_F32, 1, (int64_t[]){32}, -1, NULL);
    ValueId h = graph_rmsnorm(&g, "norm", x, n, 1e-5f);
    ValueId a = graph_linear(&g, "a", h, matrix(&g, "wa", QT_Q4_1, 32, 32), -1);
    ValueId b = graph_linear(&g, "b", h, matrix(&g, "wb", QT_Q8_0, 32, 32), bias);
    g.output[0] = graph_add(&g, "sum", graph_add(&g, "both", a, b), h);
    Err e = {""};
    CU_ASSERT(!passes_run(&g, QT_A8, &e));
    expect(&g, "[T,32] F32 = rmsnorm norm x n\n"
               "[T,32] A8 = quantise a.x8 %norm\n"
               "[T,32] F32 = linear a %a.x8 wa\n"
               "[T,32] F32 = linear b %a.x8 wb bias\n"
               "[T,32] F32 = add both %a %b\n"
               "[T,32] F32 = add sum %both %norm\n");
    graph_free(&g);
}

/* The residual has to be there before the linear runs, and the sum has to be the linear's only reader. */
static void test_residual_not(void) {
    Graph g;
    graph_init(&g);
    ValueId x = input(&g, 32);
    ValueId a = graph_linear(&g, "a", x, matrix(&g, "wa", QT_F32, 32, 32), -1);
    ValueId late = graph_relu(&g, "late", x);
    ValueId sum = graph_add(&g, "sum", a, late);
    ValueId b = graph_linear(&g, "b", sum, matrix(&g, "wb", QT_F32, 32, 32), -1);
    ValueId twice = graph_add(&g, "twice", b, b);
    ValueId c = graph_linear(&g, "c", twice, matrix(&g, "wc", QT_F32, 32, 32), -1);
    ValueId d = graph_add(&g, "d", c, x);
    g.output[0] = graph_add(&g, "e", d, c);
    Err e = {""};
    int32_t n = g.n_ops;
    CU_ASSERT(!pass_fuse_residual(&g, &e));
    CU_ASSERT_EQUAL(g.n_ops, n);
    graph_free(&g);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"llama, pass by pass", test_llama},
                                        {"llama of float weights", test_llama_float},
                                        {"all passes, and again", test_all},
                                        {"convolutional net", test_cnn},
                                        {"linears with biases join", test_join_biases},
                                        {"linears that do not join", test_join_not},
                                        {"one conversion for all readers", test_quantise_shared},
                                        {"residuals that cannot be fused", test_residual_not},
                                        CU_TEST_INFO_NULL};
    return check_run("passes", tests);
}
