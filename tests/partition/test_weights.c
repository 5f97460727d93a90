/* Loading: every rank's weights, unpacked, are the slices of the file's tensors that its plan names; no rank holds, or
 * makes room for, a whole tensor that is divided; and what a file lacks is one clear line. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "graph/gguf.h"
#include "llama_header.h"
#include "partition/weights.h"

/* ---- malloc, counted: the largest block asked for while `watching`. Not where a sanitizer has its own malloc ----- */
#ifndef __SANITIZE_ADDRESS__
#define COUNTS_MALLOC 1
static _Atomic size_t largest;
static _Atomic bool watching;
static void count(size_t n) {
    size_t seen = largest;
    while (watching && n > seen &&
           !__atomic_compare_exchange_n((size_t *)&largest, &seen, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
/* glibc's own names for its functions. Ours are visible, so that the libraries call them too. */
#pragma GCC visibility push(default)
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n) {
    count(n);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    count(n * size);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    count(n);
    return __libc_realloc(p, n);
}
#pragma GCC visibility pop
#endif

/* ---- a model file and its plan ----------------------------------------------------------------------------------- */

typedef struct Model {
    char path[64];
    ModelFile *file;
    Graph graph;
    uint8_t *bytes; /* of the whole file */
    size_t size;
} Model;

static bool model_open(Model *m) {
    LmShape shape;
    Err e = {""};
    graph_init(&m->graph);
    bool ok = !gguf_open(m->path, &m->file, &e) && !arch_build(m->file, &m->graph, &shape, &e) &&
              !passes_run(&m->graph, QT_A8, &e);
    if (!ok) printf("\n%s", e.msg);
    return ok;
}

static Model model_make(const TinyModel *tiny) {
    Model m = {.path = "/tmp/sheaf_weights_XXXXXX"};
    int fd = mkstemp(m.path);
    CU_ASSERT_FATAL(fd >= 0 && tiny_model_write(m.path, tiny));
    struct stat st;
    CU_ASSERT_FATAL(!fstat(fd, &st));
    m.size = (size_t)st.st_size;
    m.bytes = malloc(m.size);
    CU_ASSERT_FATAL(read(fd, m.bytes, m.size) == (ssize_t)m.size);
    close(fd);
    CU_ASSERT_FATAL(model_open(&m));
    return m;
}

static void model_free(Model *m) {
    model_file_close(m->file);
    graph_free(&m->graph);
    free(m->bytes);
    unlink(m->path);
}

static Pool *pool;

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* The whole tensor as fp32, by the formats' definition. */
static float *whole_tensor(const Model *m, const Value *x) {
    int64_t n = 1;
    for (int i = 0; i < x->n_dims; i++) n *= x->dim[i].size;
    float *out = malloc((size_t)n * sizeof *out);
    qtype_dequantise(x->type, m->bytes + file_tensor_at(m->file, (size_t)x->tensor)->offset + x->offset, n, out);
    return out;
}

/* The ranges' indices one after the other; returns how many. */
static int64_t expand(const Plan *p, ValueId v, ShardAxis axis, int rank, int64_t *out) {
    Range r[SHARD_PARTS];
    int64_t n = 0;
    int parts = plan_local_ranges(p, v, axis, rank, r);
    for (int i = 0; i < parts; i++)
        for (int64_t k = r[i].begin; k < r[i].end; k++) out[n++] = k;
    return n;
}

static bool matrix_is_slice(const Plan *p, ValueId v, int rank, const LocalWeight *w, const float *whole) {
    const Value *x = &p->graph.value[v];
    int64_t rows = x->dim[0].size, columns = x->dim[1].size;
    int64_t *r = malloc((size_t)(2 * rows + 1) * sizeof *r), *c = malloc((size_t)(columns + 1) * sizeof *c);
    float *row = malloc((size_t)(columns + 1) * sizeof *row);
    int64_t n = expand(p, v, AXIS_FIRST, rank, r), k = expand(p, v, AXIS_LAST, rank, c);
    bool same = w->packed.n == n && w->packed.k == k && w->packed.type == x->type && !w->values;
    for (int64_t i = 0; i < n && same; i++) {
        unpack_row(&w->packed, i, row);
        for (int64_t j = 0; j < k; j++) same &= row[j] == whole[r[i] * columns + c[j]];
    }
    free(r);
    free(c);
    free(row);
    return same;
}

static bool vector_is_slice(const Plan *p, ValueId v, int rank, const LocalWeight *w, const float *whole) {
    int64_t size = p->graph.value[v].dim[0].size, *r = malloc((size_t)(size + 1) * sizeof *r);
    int64_t n = expand(p, v, AXIS_FIRST, rank, r);
    bool same = w->values != NULL;
    for (int64_t i = 0; i < n && same; i++) same &= w->values[i] == whole[r[i]];
    free(r);
    return same;
}

static uint64_t progress_done, progress_total;
static void progress(void *arg, uint64_t done, uint64_t total) {
    CU_ASSERT(arg == &pool && done <= total && done >= progress_done);
    progress_done = done;
    progress_total = total;
}

static void check_rank(const Model *m, const Plan *p, int rank) {
    Weights w;
    Err e = {""};
    progress_done = progress_total = 0;
    int status = weights_load(p, rank, m->file, pool, progress, &pool, &w, &e);
    CU_ASSERT_EQUAL(status, 0);
    if (status) printf("\n%s", e.msg);
    CU_ASSERT(progress_done == progress_total && progress_total == w.bytes);
    CU_ASSERT_EQUAL(w.bytes, plan_rank_cost(p, rank).weight_bytes);
    CU_ASSERT(w.arena.used <= w.arena.capacity);
    for (ValueId v = 0; v < p->graph.n_values && !status; v++) {
        const Value *x = &p->graph.value[v];
        if (x->kind != VALUE_WEIGHT) continue;
        float *whole = whole_tensor(m, x);
        bool same = x->n_dims == 2 ? matrix_is_slice(p, v, rank, &w.weight[v], whole)
                                   : vector_is_slice(p, v, rank, &w.weight[v], whole);
        CU_ASSERT(same);
        if (!same) printf("\nrank %d of %d: %s", rank, p->n_ranks, x->name);
        const void *at = x->n_dims == 2 ? (const void *)w.weight[v].packed.data : w.weight[v].values;
        CU_ASSERT((uintptr_t)at % 64 == 0);
        free(whole);
    }
    weights_free(&w);
}

static void test_slices(void) {
    static const TinyModel models[] = {
        {.layers = 2,
         .width = 96,
         .heads = 3,
         .kv_heads = 1,
         .ffn = 160,
         .vocab = 301,
         .qtype = QT_Q4_1,
         .tied_head = true},
        {.layers = 1, .width = 192, .heads = 12, .kv_heads = 6, .ffn = 96, .vocab = 300, .qtype = QT_Q8_0},
        {.layers = 1, .width = 128, .heads = 4, .kv_heads = 2, .ffn = 224, .vocab = 259, .qtype = QT_Q4_0},
        {.layers = 1, .width = 80, .heads = 5, .kv_heads = 5, .ffn = 100, .vocab = 277, .qtype = QT_F32},
        {.layers = 1, .width = 64, .heads = 2, .kv_heads = 2, .ffn = 52, .vocab = 259, .qtype = QT_F16},
        {.layers = 1,
         .width = 64,
         .heads = 1,
         .kv_heads = 1,
         .ffn = 36,
         .vocab = 260,
         .qtype = QT_BF16,
         .tied_head = true}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Model m = model_make(&models[i]);
        for (int n = 1; n <= 8; n++) {
            Plan *p;
            Err e;
            CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = n}, &p, &e));
            for (int rank = 0; rank < n; rank++) check_rank(&m, p, rank);
            plan_free(p);
        }
        model_free(&m);
    }
}

/* Every weight type there is. 768 columns in groups of 16 or 32 are cut within super-blocks of 256 at most rank counts.
 */
static void test_types(void) {
    int n_types = 0;
    for (int t = 0; t < QT_COUNT; t++) {
        if (!qtype_info((QType)t)->packed) continue;
        n_types++;
        const TinyModel tiny = {
            .layers = 1, .width = 256, .heads = 8, .kv_heads = 4, .ffn = 768, .vocab = 259, .qtype = (QType)t};
        Model m = model_make(&tiny);
        for (int n = 1; n <= 8; n++) {
            Plan *p;
            Err e;
            CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = n}, &p, &e));
            for (int rank = 0; rank < n; rank++) check_rank(&m, p, rank);
            plan_free(p);
        }
        model_free(&m);
    }
    CU_ASSERT(n_types >= 6);
}

/* Weights in several pieces, rows or columns, as a fused value read as a whole would ask for: put into a plan by hand.
 * A rank has neighbouring rows that are none in the file, single rows, nothing at all. */
static void test_pieces(void) {
    static const Range rows[3 * 3] = {{0, 7},   {40, 41}, {60, 90}, {7, 7},  {41, 60},
                                      {90, 91}, {7, 40},  {60, 60}, {91, 96}};
    static const Range columns[3 * 2] = {{0, 32}, {64, 96}, {0, 0}, {96, 96}, {32, 64}, {96, 96}};
    static const QType types[] = {QT_Q8_0, QT_F32, QT_Q4_1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const TinyModel tiny = {
            .layers = 1, .width = 96, .heads = 3, .kv_heads = 3, .ffn = 96, .vocab = 300, .qtype = types[i]};
        Model m = model_make(&tiny);
        Plan *p;
        Err e;
        CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = 3}, &p, &e));
        for (ValueId v = 0; v < p->graph.n_values; v++) {
            if (strstr(p->graph.value[v].name, "ffn_gate.weight"))
                p->shard[v] = (Shard){SHARD_SPLIT, AXIS_FIRST, 3, rows};
            if (strstr(p->graph.value[v].name, "ffn_down.weight"))
                p->shard[v] = (Shard){SHARD_SPLIT, AXIS_LAST, 2, columns};
        }
        for (int rank = 0; rank < 3; rank++) check_rank(&m, p, rank);
        plan_free(p);
        model_free(&m);
    }
}

/* Several chunks of a tensor, taken by two threads: 40000 rows of 96 are more than 1 MB. */
static void test_chunks(void) {
    const TinyModel large = {
        .layers = 1, .width = 96, .heads = 3, .kv_heads = 1, .ffn = 32, .vocab = 40003, .qtype = QT_Q8_0};
    Model m = model_make(&large);
    Plan *p;
    Err e;
    CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = 2}, &p, &e));
    for (int rank = 0; rank < 2; rank++) check_rank(&m, p, rank);
    plan_free(p);
    model_free(&m);
}

/* With 4 ranks no block of memory is as large as the smallest divided tensor would need, let alone the embedding: rows
 * are read in pieces of 1 MB of packed weights. */
static void test_no_whole_tensor(void) {
#ifdef COUNTS_MALLOC
    const TinyModel large = {
        .layers = 1, .width = 1024, .heads = 4, .kv_heads = 1, .ffn = 8192, .vocab = 12000, .qtype = QT_Q8_0};
    Model m = model_make(&large);
    Plan *p;
    Err e;
    Weights w;
    CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = 4}, &p, &e));
    largest = 0;
    watching = true;
    int status = weights_load(p, 1, m.file, pool, NULL, NULL, &w, &e);
    watching = false;
    CU_ASSERT_EQUAL(status, 0);
    const size_t embedding = 12000 * 1024 / 32 * 34, ffn_down = 8192 * 1024 / 32 * 34;
    CU_ASSERT(largest > 0 && largest < ffn_down / 4);
    CU_ASSERT(w.arena.capacity < (2 * embedding + 3 * ffn_down) * 3 / 10); /* a quarter of it all, and 2 MB pages */
    weights_free(&w);
    plan_free(p);
    model_free(&m);
#else
    printf("skipped: the sanitizer has its own malloc ");
#endif
}

/* ---- memory and other sources ------------------------------------------------------------------------------------ */

/* Tensors that stand in memory, a convolution's among them, at 1 and 3 ranks; no file. */
static void test_memory(void) {
    enum { O = 7, K = 3, C = 5, F = 6 };
    static float w1[O * K * K * C], b1[O], w2[C * K * K * O], deep[C * K * K], fc[F * C];
    float *all[] = {w1, b1, w2, deep, fc};
    size_t sizes[] = {O * K * K * C, O, C * K * K * O, C * K * K, F * C};
    uint64_t random = 5;
    for (int i = 0; i < 5; i++)
        for (size_t k = 0; k < sizes[i]; k++) all[i][k] = tiny_random(&random);
    Graph g;
    graph_init(&g);
    ValueId x = graph_input(&g, "image", QT_F32, 4, (Dim[]){dim_const(1), dim_const(8), dim_const(8), dim_const(C)});
    ValueId v1 = graph_weight(&g, "w1", QT_F32, 4, (int64_t[]){O, K, K, C}, -1, w1);
    x = graph_conv(&g, "c1", x, v1, graph_weight(&g, "b1", QT_F32, 1, (int64_t[]){O}, -1, b1), 1, 1, 1);
    ValueId v2 = graph_weight(&g, "w2", QT_F32, 4, (int64_t[]){C, K, K, O}, -1, w2);
    x = graph_conv(&g, "c2", x, v2, -1, 1, 1, 1);
    ValueId v3 = graph_weight(&g, "deep", QT_F32, 4, (int64_t[]){C, K, K, 1}, -1, deep);
    x = graph_conv(&g, "deep", x, v3, -1, 1, 1, C);
    x = graph_pool(&g, "mean", x, POOL_GLOBAL_AVERAGE, 0, 0, 0);
    g.output[0] = graph_linear(&g, "fc", x, graph_weight(&g, "fc.w", QT_F32, 2, (int64_t[]){F, C}, -1, fc), -1);
    const struct {
        ValueId v;
        const float *whole;
    } filters[] = {{v1, w1}, {v2, w2}, {v3, deep}};
    for (int n = 1; n <= 3; n += 2)
        for (int rank = 0; rank < n; rank++) {
            Plan *p;
            Weights w;
            Err e = {""};
            CU_ASSERT_FATAL(!plan_make(&g, &(PlanOptions){.n_ranks = n}, &p, &e));
            CU_ASSERT_FATAL(!weights_load(p, rank, NULL, pool, NULL, NULL, &w, &e));
            CU_ASSERT_EQUAL(w.bytes, plan_rank_cost(p, rank).weight_bytes);
            for (int i = 0; i < 3; i++) {
                int64_t o[2 * O], c[2 * O], all_c = plan_axis_size(p, filters[i].v, AXIS_LAST);
                int64_t n_o = expand(p, filters[i].v, AXIS_FIRST, rank, o),
                        n_c = expand(p, filters[i].v, AXIS_LAST, rank, c);
                const float *local = w.weight[filters[i].v].values;
                for (int64_t a = 0; a < n_o; a++)
                    for (int64_t t = 0; t < K * K; t++)
                        for (int64_t b = 0; b < n_c; b++)
                            CU_ASSERT_EQUAL(*local++, filters[i].whole[(o[a] * K * K + t) * all_c + c[b]]);
            }
            weights_free(&w);
            plan_free(p);
        }
    graph_free(&g);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void refused(const Plan *p, const ModelFile *file, const char *one, const char *two) {
    Weights w;
    Err e = {""};
    for (int rank = 0; rank < p->n_ranks; rank++) {
        e.msg[0] = 0;
        int status = weights_load(p, rank, file, pool, NULL, NULL, &w, &e);
        weights_free(&w);
        if (status) break;
    }
    CU_ASSERT(strstr(e.msg, one) && strstr(e.msg, two));
    if (!strstr(e.msg, one) || !strstr(e.msg, two)) printf("\n\"%s\" lacks \"%s\" or \"%s\"", e.msg, one, two);
}

/* The file is cut after its header was read: by its last byte (then the line says which one is missing), in the middle,
 * down to nothing. */
static void test_truncated(void) {
    const TinyModel tiny = {
        .layers = 1, .width = 64, .heads = 2, .kv_heads = 1, .ffn = 96, .vocab = 300, .qtype = QT_Q8_0};
    Model m = model_make(&tiny);
    Err e;
    for (int n = 1; n <= 3; n++) {
        Plan *p;
        CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = n}, &p, &e));
        const size_t cuts[] = {m.size - 1, m.size / 2, 0};
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            bool cut = truncate(m.path, (off_t)cuts[i]) == 0;
            CU_ASSERT_FATAL(cut);
            char where[64];
            snprintf(where, sizeof where, "the file ends before byte %zu, inside tensor ", cuts[i]);
            refused(p, m.file, m.path, i == 0 ? where : "the file ends before byte ");
            FILE *f = fopen(m.path, "wb");
            CU_ASSERT_FATAL(f && fwrite(m.bytes, 1, m.size, f) == m.size && !fclose(f));
        }
        plan_free(p);
    }
    model_free(&m);
}

/* Infinities and NaNs where a type has its scale and minimum (offsets in a block as in ggml-common.h) or its values:
 * named with tensor and byte, whichever rank reads it. */
static void test_damaged(void) {
    static const struct {
        QType type;
        int at[2], bytes;
        uint32_t bits;
    } cases[] = {
        {QT_Q4_0, {0, -1}, 2, 0x7c00},    {QT_Q4_1, {0, 2}, 2, 0xfc00},     {QT_Q5_0, {0, -1}, 2, 0x7e01},
        {QT_Q5_1, {0, 2}, 2, 0x7c01},     {QT_Q8_0, {0, -1}, 2, 0xffff},    {QT_IQ4_NL, {0, -1}, 2, 0x7c00},
        {QT_Q2_K, {80, 82}, 2, 0x7fff},   {QT_Q3_K, {108, -1}, 2, 0x7c00},  {QT_Q4_K, {0, 2}, 2, 0x7c00},
        {QT_Q5_K, {0, 2}, 2, 0xfd00},     {QT_Q6_K, {208, -1}, 2, 0x7c00},  {QT_IQ4_XS, {0, -1}, 2, 0x7c00},
        {QT_F32, {0, -1}, 4, 0x7f800000}, {QT_F32, {0, -1}, 4, 0xffc00000}, {QT_F16, {0, -1}, 2, 0x7c00},
        {QT_BF16, {0, -1}, 2, 0x7f80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool mixture = i % 2;
        const char *down = mixture ? "blk.0.ffn_down_exps.weight" : "blk.0.ffn_down.weight";
        const char *const tensors[] = {"token_embd.weight", "blk.0.attn_k.weight", down};
        const TinyModel tiny = {.layers = 1,
                                .width = 256,
                                .heads = 8,
                                .kv_heads = 4,
                                .ffn = mixture ? 256 : 768,
                                .vocab = 259,
                                .qtype = cases[i].type,
                                .experts = mixture ? 4 : 0,
                                .used = mixture ? 2 : 0};
        Model m = model_make(&tiny);
        int fd = open(m.path, O_RDWR);
        CU_ASSERT_FATAL(fd >= 0);
        for (size_t k = 0; k < 6; k++) {
            const FileTensor *t = file_tensor(m.file, tensors[k / 2]);
            int within = cases[i].at[k % 2], block = qtype_info(cases[i].type)->block_bytes;
            if (within < 0) continue;
            CU_ASSERT_EQUAL_FATAL(t->type, (int)cases[i].type);
            uint64_t begin = t->offset + t->bytes / 3 * 2 / (uint64_t)block * (uint64_t)block,
                     at = begin + (uint64_t)within;
            char name[80], where[80];
            snprintf(name, sizeof name, "tensor %s has ", tensors[k / 2]);
            snprintf(where, sizeof where, "not finite, at byte %llu of the file", (unsigned long long)begin);
            CU_ASSERT_FATAL(pwrite(fd, &cases[i].bits, (size_t)cases[i].bytes, (off_t)at) == cases[i].bytes);
            for (int n = 1; n <= 3; n += 2) {
                Plan *p;
                Err e;
                CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = n}, &p, &e));
                refused(p, m.file, name, where);
                plan_free(p);
            }
            CU_ASSERT_FATAL(pwrite(fd, m.bytes + at, (size_t)cases[i].bytes, (off_t)at) == cases[i].bytes);
        }
        /* a norm, which is a vector of F32 */
        const FileTensor *norm = file_tensor(m.file, "blk.0.ffn_norm.weight");
        uint64_t at = norm->offset + 4 * 100;
        char where[80];
        Plan *p;
        Err e;
        snprintf(where, sizeof where, "has a value that is not finite, at byte %llu of", (unsigned long long)at);
        CU_ASSERT_FATAL(pwrite(fd, (uint8_t[]){0, 0, 0xc0, 0x7f}, 4, (off_t)at) == 4);
        CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = 2}, &p, &e));
        refused(p, m.file, "blk.0.ffn_norm.weight", where);
        plan_free(p);
        close(fd);
        model_free(&m);
    }
}

/* Types that cannot stand where they are. */
static void test_bad_types(void) {
    Graph g;
    Plan *p;
    Err e;
    static const uint8_t zeroes[4096];
    graph_init(&g);
    ValueId x = graph_input(&g, "x", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(48)});
    g.output[0] = graph_linear(&g, "l", x, graph_weight(&g, "odd", QT_Q8_0, 2, (int64_t[]){8, 48}, -1, zeroes), -1);
    CU_ASSERT_FATAL(!plan_make(&g, &(PlanOptions){.n_ranks = 1}, &p, &e));
    refused(p, NULL, "odd", "48"); /* a row is no whole number of groups */
    plan_free(p);
    graph_free(&g);
    graph_init(&g);
    x = graph_input(&g, "image", QT_F32, 4, (Dim[]){dim_const(1), dim_const(4), dim_const(4), dim_const(32)});
    g.output[0] = graph_conv(&g, "c", x, graph_weight(&g, "filter", QT_Q8_0, 4, (int64_t[]){2, 1, 1, 32}, -1, zeroes),
                             -1, 1, 0, 1);
    CU_ASSERT_FATAL(!plan_make(&g, &(PlanOptions){.n_ranks = 1}, &p, &e));
    refused(p, NULL, "filter", "Q8_0");
    plan_free(p);
    graph_free(&g);
}

/* ---- a real model ------------------------------------------------------------------------------------------------ */

/* What is resident, measured: 4 ranks together hold at most 1.1 times what one alone does. */
static void test_smollm(void) {
    static const char *const names[] = {"SmolLM2-135M-Instruct-Q4_1.gguf", "SmolLM2-135M-Instruct-Q8_0.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Model m = {0};
        char path[4096];
        if (!check_path(path, sizeof path, "SHEAF_MODELS", names[i]) || access(path, R_OK)) {
            printf("skipped: no %s in SHEAF_MODELS ", names[i]);
            continue;
        }
        Err e = {""};
        LmShape shape;
        CU_ASSERT_FATAL(!gguf_open(path, &m.file, &e) && !arch_build(m.file, &m.graph, &shape, &e) &&
                        !passes_run(&m.graph, QT_A16, &e));
        size_t resident[5] = {0};
        for (int n = 1; n <= 4; n += 3) {
            Plan *p;
            CU_ASSERT_FATAL(!plan_make(&m.graph, &(PlanOptions){.n_ranks = n}, &p, &e));
            for (int rank = 0; rank < n; rank++) {
                Weights w;
                CU_ASSERT_FATAL(!weights_load(p, rank, m.file, pool, NULL, NULL, &w, &e));
                CU_ASSERT_EQUAL(w.bytes, plan_rank_cost(p, rank).weight_bytes);
                resident[n] += arena_resident(&w.arena);
                weights_free(&w);
            }
            plan_free(p);
        }
        printf("%s: %.1f MB resident on 1 rank, %.1f on 4 ", names[i], 1e-6 * (double)resident[1],
               1e-6 * (double)resident[4]);
        CU_ASSERT(resident[1] > 80 << 20);
        CU_ASSERT((double)resident[4] <= 1.1 * (double)resident[1]);
        model_file_close(m.file);
        graph_free(&m.graph);
    }
}

int main(void) {
    Err e;
    if (pool_create(2, NULL, &pool, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    static const CU_TestInfo tests[] = {{"slices", test_slices},
                                        {"every type", test_types},
                                        {"several pieces", test_pieces},
                                        {"many chunks", test_chunks},
                                        {"no whole tensor in memory", test_no_whole_tensor},
                                        {"weights in memory", test_memory},
                                        {"truncated files", test_truncated},
                                        {"damaged blocks", test_damaged},
                                        {"types out of place", test_bad_types},
                                        {"SmolLM2", test_smollm},
                                        CU_TEST_INFO_NULL};
    int status = check_run("weights", tests);
    pool_free(pool);
    return status;
}
