/* Mixtures of experts: the graph that a builder makes of them and the passes leave, and files that are refused. */
#include "check.h"
#include "graph/arch.h"
#include "graph/gguf.h"
#include "graph/passes.h"
#include "tiny_model.h"

static const TinyModel tiny = {.layers = 1,
                               .width = 64,
                               .heads = 2,
                               .kv_heads = 1,
                               .ffn = 96,
                               .vocab = 300,
                               .qtype = QT_Q8_0,
                               .experts = 8,
                               .used = 2};

typedef struct Built {
    uint8_t *bytes;
    ModelFile *file;
    Graph graph;
    LmShape shape;
    Err e;
    int status;
} Built;

/* `keys` are added to the tiny model's; of keys given twice the file's reader takes none, so they must be others. */
static Built build(const TinyModel *m, void (*keys)(GgufWriter *w)) {
    Built b = {0};
    GgufWriter w;
    size_t size;
    gw_init(&w, 3, 32);
    tiny_model_build(&w, m);
    if (keys) keys(&w);
    b.bytes = gw_finish(&w, &size);
    gw_free(&w);
    CU_ASSERT_FATAL(!gguf_from_memory(b.bytes, size, size, "tiny.gguf", &b.file, &b.e));
    b.status = arch_build(b.file, &b.graph, &b.shape, &b.e);
    return b;
}

static void built_free(Built *b) {
    graph_free(&b->graph);
    model_file_close(b->file);
    free(b->bytes);
}

static void refused(Built b, const char *one, const char *two) {
    bool as_wanted = b.status && strstr(b.e.msg, "tiny.gguf") && strstr(b.e.msg, one) && strstr(b.e.msg, two);
    CU_ASSERT(as_wanted);
    if (!as_wanted) printf("\n\"%s\" lacks \"%s\" or \"%s\"", b.status ? b.e.msg : "(accepted)", one, two);
    built_free(&b);
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* The text of the operators from `first` to `last`, values by the name of what made them in place of their numbers. */
static void named_text(const Graph *g, const char *first, const char *last, char *out, size_t size) {
    char *text = graph_text(g), *line = text;
    size_t n = 0;
    bool in = false;
    CU_ASSERT_FATAL(text != NULL);
    for (int32_t i = 0; i < g->n_ops; i++) {
        char *end = strchr(line, '\n');
        in |= !strcmp(g->op[i].name, first);
        for (const char *p = strchr(line, ' ') + 1; in && p < end && n + 100 < size; p++) {
            char *after;
            long v = *p == '%' ? strtol(p + 1, &after, 10) : -1;
            if (v < 0) {
                out[n++] = *p;
                continue;
            }
            n += (size_t)snprintf(out + n, size - n, "%%%s", g->op[g->value[v].producer].name);
            p = after - 1;
        }
        if (in) out[n++] = '\n';
        if (!strcmp(g->op[i].name, last)) break;
        line = end + 1;
    }
    out[n] = 0;
    free(text);
}

static void expect(const Graph *g, const char *want) {
    static char got[8192];
    named_text(g, "blk.0.ffn_norm", "blk.0.ffn_residual", got, sizeof got);
    CU_ASSERT_STRING_EQUAL(got, want);
    if (strcmp(got, want) != 0) printf("\n-- got\n%s-- expected\n%s", got, want);
}

/* What chooses stays by itself and reads the norm in fp32; the rows of the pairs are quantised as they are handed out.
 */
static void test_graph(void) {
    Built b = build(&tiny, NULL);
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(b.status, 0);
    CU_ASSERT(b.shape.mix.experts == 8 && b.shape.mix.used == 2 && b.shape.mix.normalised);
    CU_ASSERT(b.shape.expert_ffn == 96 && b.shape.shared_ffn == 0);
    CU_ASSERT(!passes_run(&b.graph, QT_A16, &e));
    expect(&b.graph, "[T,64] F32 = rmsnorm blk.0.ffn_norm %blk.0.attn_residual blk.0.ffn_norm.weight\n"
                     "[T,8] F32 = linear blk.0.ffn_gate_inp %blk.0.ffn_norm blk.0.ffn_gate_inp.weight\n"
                     "[T,4] F32 = route blk.0.route %blk.0.ffn_gate_inp\n"
                     "[T,4] I32 = group blk.0.group %blk.0.route\n"
                     "[P,64] A16 = dispatch blk.0.dispatch %blk.0.ffn_norm %blk.0.group\n"
                     "[P,192] F32 = linear blk.0.ffn_gate_exps+ffn_up_exps %blk.0.dispatch blk.0.ffn_gate_exps.weight "
                     "blk.0.ffn_up_exps.weight\n"
                     "[P,96] F32 = view blk.0.ffn_gate_exps [0, 96) %blk.0.ffn_gate_exps+ffn_up_exps\n"
                     "[P,96] F32 = view blk.0.ffn_up_exps [96, 192) %blk.0.ffn_gate_exps+ffn_up_exps\n"
                     "[P,96] A16 = silu_mul blk.0.silu_exps %blk.0.ffn_gate_exps %blk.0.ffn_up_exps\n"
                     "[P,64] F32 = linear blk.0.ffn_down_exps %blk.0.silu_exps blk.0.ffn_down_exps.weight\n"
                     "[T,64] F32 = combine blk.0.combine %blk.0.ffn_down_exps %blk.0.route %blk.0.group\n"
                     "[T,64] F32 = add blk.0.ffn_residual %blk.0.attn_residual %blk.0.combine\n");
    built_free(&b);
}

static void shared_expert(GgufWriter *w) {
    static const float zero[64 * 80];
    gw_u32(w, "llama.expert_shared_feed_forward_length", 80);
    gw_tensor(w, "blk.0.ffn_gate_shexp.weight", 0, 2, (uint64_t[]){64, 80}, zero, sizeof zero);
    gw_tensor(w, "blk.0.ffn_up_shexp.weight", 0, 2, (uint64_t[]){64, 80}, zero, sizeof zero);
    gw_tensor(w, "blk.0.ffn_down_shexp.weight", 0, 2, (uint64_t[]){80, 64}, zero, sizeof zero);
    gw_tensor(w, "blk.0.ffn_gate_inp_shexp.weight", 0, 1, (uint64_t[]){64}, zero, 64 * sizeof *zero);
}

/* Of F32 everything reads the same norm, but what is wanted whole (two routers) does not join what is divided; gate and
 * up in one tensor are views of one linear. */
static void test_shared_and_fused(void) {
    TinyModel m = tiny;
    m.qtype = QT_F32;
    m.fused = true;
    Built b = build(&m, shared_expert);
    Err e = {""};
    if (b.status) printf("\n%s", b.e.msg);
    CU_ASSERT_EQUAL_FATAL(b.status, 0);
    CU_ASSERT(!passes_run(&b.graph, QT_A16, &e));
    expect(&b.graph,
           "[T,64] F32 = rmsnorm blk.0.ffn_norm %blk.0.attn_residual blk.0.ffn_norm.weight\n"
           "[T,9] F32 = linear blk.0.ffn_gate_inp+ffn_gate_inp_s %blk.0.ffn_norm blk.0.ffn_gate_inp.weight "
           "blk.0.ffn_gate_inp_shexp.weight\n"
           "[T,8] F32 = view blk.0.ffn_gate_inp [0, 8) %blk.0.ffn_gate_inp+ffn_gate_inp_s\n"
           "[T,1] F32 = view blk.0.ffn_gate_inp_shexp [8, 9) %blk.0.ffn_gate_inp+ffn_gate_inp_s\n"
           "[T,4] F32 = route blk.0.route %blk.0.ffn_gate_inp\n"
           "[T,4] I32 = group blk.0.group %blk.0.route\n"
           "[P,64] F32 = dispatch blk.0.dispatch %blk.0.ffn_norm %blk.0.group\n"
           "[P,192] F32 = linear blk.0.ffn_gate_up_exps %blk.0.dispatch blk.0.ffn_gate_up_exps.weight\n"
           "[P,96] F32 = view blk.0.ffn_gate_exps [0, 96) %blk.0.ffn_gate_up_exps\n"
           "[P,96] F32 = view blk.0.ffn_up_exps [96, 192) %blk.0.ffn_gate_up_exps\n"
           "[P,96] F32 = silu_mul blk.0.silu_exps %blk.0.ffn_gate_exps %blk.0.ffn_up_exps\n"
           "[P,64] F32 = linear blk.0.ffn_down_exps %blk.0.silu_exps blk.0.ffn_down_exps.weight\n"
           "[T,64] F32 = combine blk.0.combine %blk.0.ffn_down_exps %blk.0.route %blk.0.group\n"
           "[T,160] F32 = linear blk.0.ffn_gate_shexp+ffn_up_shexp %blk.0.ffn_norm blk.0.ffn_gate_shexp.weight "
           "blk.0.ffn_up_shexp.weight\n"
           "[T,80] F32 = view blk.0.ffn_gate_shexp [0, 80) %blk.0.ffn_gate_shexp+ffn_up_shexp\n"
           "[T,80] F32 = view blk.0.ffn_up_shexp [80, 160) %blk.0.ffn_gate_shexp+ffn_up_shexp\n"
           "[T,80] F32 = silu_mul blk.0.silu_shexp %blk.0.ffn_gate_shexp %blk.0.ffn_up_shexp\n"
           "[T,64] F32 = linear blk.0.ffn_down_shexp %blk.0.silu_shexp blk.0.ffn_down_shexp.weight\n"
           "[T,64] F32 = gate_rows blk.0.shared_gate %blk.0.ffn_down_shexp %blk.0.ffn_gate_inp_shexp\n"
           "[T,64] F32 = add blk.0.add_shexp %blk.0.combine %blk.0.shared_gate\n"
           "[T,64] F32 = add blk.0.ffn_residual %blk.0.attn_residual %blk.0.add_shexp\n");
    built_free(&b);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void shares(GgufWriter *w) { gw_bool(w, "llama.expert_weights_norm", false); }
static void usual(GgufWriter *w) {
    gw_u32(w, "llama.expert_gating_func", 1);
    gw_u32(w, "llama.expert_group_count", 1);
    gw_f32(w, "llama.expert_weights_scale", 1);
}
static void sigmoid(GgufWriter *w) { gw_u32(w, "llama.expert_gating_func", 2); }
static void in_groups(GgufWriter *w) { gw_u32(w, "llama.expert_group_count", 4); }
static void scaled(GgufWriter *w) { gw_f32(w, "llama.expert_weights_scale", 2.5f); }
static void other_width(GgufWriter *w) { gw_u32(w, "llama.expert_feed_forward_length", 64); }
static void no_number(GgufWriter *w) { gw_string(w, "llama.expert_weights_norm", "yes"); }
static void one_by_one(GgufWriter *w) {
    static const float zero[64 * 96];
    gw_tensor(w, "blk.0.ffn_gate.0.weight", 0, 2, (uint64_t[]){64, 96}, zero, sizeof zero);
}
static void no_shared(GgufWriter *w) { gw_u32(w, "llama.expert_shared_feed_forward_length", 80); }
static void with_bias(GgufWriter *w) {
    static const float zero[8];
    gw_tensor(w, "blk.0.exp_probs_b.bias", 0, 1, (uint64_t[]){8}, zero, sizeof zero);
}

static void test_metadata(void) {
    Built b = build(&tiny, shares);
    CU_ASSERT(!b.status && !b.shape.mix.normalised);
    built_free(&b);
    b = build(&tiny, usual);
    CU_ASSERT(!b.status && b.shape.mix.normalised);
    built_free(&b);
    refused(build(&tiny, sigmoid), "llama.expert_gating_func", "not supported");
    refused(build(&tiny, in_groups), "llama.expert_group_count", "not supported");
    refused(build(&tiny, scaled), "llama.expert_weights_scale", "not supported");
    refused(build(&tiny, no_number), "llama.expert_weights_norm", "should be a bool");
    refused(build(&tiny, other_width), "blk.0.ffn_gate_exps.weight", "[8][96][64], but the metadata want [8][64][64]");
    refused(build(&tiny, one_by_one), "blk.0.ffn_gate.0.weight", "a tensor for each expert");
    refused(build(&tiny, no_shared), "blk.0.ffn_gate_shexp.weight", "missing");
    refused(build(&tiny, with_bias), "blk.0.exp_probs_b.bias", "does not know");
}

static void test_counts(void) {
    static const struct {
        int experts, used;
        const char *one, *two;
    } bad[] = {{8, 9, "llama.expert_used_count", "not between 1 and 8"},
               {8, 0, "llama.expert_used_count", "not between 1 and 8"},
               {100, 65, "llama.expert_used_count", "not between 1 and 64"},
               {4097, 2, "llama.expert_count", "not between 0 and 4096"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        TinyModel m = tiny;
        m.experts = bad[i].experts;
        m.used = bad[i].used;
        m.width = m.ffn = 32;
        m.heads = 1;
        refused(build(&m, NULL), bad[i].one, bad[i].two);
    }
}

/* Operators that do not fit each other are refused before anything runs. */
static void test_checks(void) {
    const MixShape mix = {4, 2, true}, more = {4, 5, true}, eight = {8, 2, true};
    Graph g;
    Err e;
    for (int i = 0; i < 5; i++) {
        graph_init(&g);
        ValueId x = graph_input(&g, "x", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(32)});
        ValueId l = graph_input(&g, "l", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(4)});
        ValueId w = graph_weight(&g, "w", QT_F32, 2, (int64_t[]){16, 32}, -1, NULL);
        ValueId r = graph_route(&g, "route", l, i == 0 ? eight : i == 1 ? more : mix);
        ValueId groups = graph_group(&g, "group", r, i == 1 ? more : mix);
        ValueId p = graph_dispatch(&g, "dispatch", x, i == 2 ? r : groups, mix);
        if (i == 3) p = graph_linear(&g, "linear", p, w, -1);
        g.output[0] = graph_combine(&g, "combine", i == 4 ? x : p, r, groups, mix);
        static const char *const want[] = {"logit for each expert", "more than there are", "wants groups",
                                           "matrix for each expert", "wants pairs"};
        CU_ASSERT_EQUAL(graph_check(&g, &e), -1);
        CU_ASSERT(strstr(e.msg, want[i]) != NULL);
        if (!strstr(e.msg, want[i])) printf("\n\"%s\" lacks \"%s\"", e.msg, want[i]);
        graph_free(&g);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"a mixture's graph", test_graph}, {"a shared expert, fused tensors", test_shared_and_fused},
        {"metadata", test_metadata},       {"counts", test_counts},
        {"checks", test_checks},           CU_TEST_INFO_NULL};
    return check_run("experts", tests);
}
