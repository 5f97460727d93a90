/* Sessions: what is refused and with which words, on all ranks the same; that a refused call leaves everything usable;
 * files that differ between ranks; and that a step allocates nothing. */
#include <fcntl.h>
#include <stdint.h>

#include "sessions.h"

static const TinyModel tiny = {
    .layers = 2, .width = 96, .heads = 3, .kv_heads = 1, .ffn = 192, .vocab = 300, .qtype = QT_Q8_0, .seed = 1};

/* ---- malloc, counted while `watching`: by this program's own code, or by the libraries it uses. Not where a sanitizer
 * has its own malloc ---- */
#ifndef __SANITIZE_ADDRESS__
#define COUNTS_MALLOC 1
extern const char __executable_start[], etext[]; /* the program's own code lies between them */
static _Atomic bool watching;
static _Atomic long by_us, by_libraries;
static void count(const void *caller) {
    if (!watching) return;
    if ((const char *)caller >= __executable_start && (const char *)caller < etext) by_us++;
    else by_libraries++;
}
/* glibc's own names for its functions. Ours are visible, so that the libraries call them too. */
#pragma GCC visibility push(default)
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n) {
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    count(__builtin_return_address(0));
    return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n) {
    count(__builtin_return_address(0));
    return (*p = __libc_memalign(align, n)) ? 0 : 12;
}
#pragma GCC visibility pop
#endif

/* Mappings of this process: what mmap would change. */
static long mappings(void) {
    static char text[1 << 16];
    long lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    close(fd);
    return lines;
}

/* Every kind of step: prompts of several sizes, single tokens, several sequences, whole logits, targets, none at all.
 */
static void every_step(SheafSession *s, Record *r) {
    static int32_t ids[100];
    static SheafToken t[100];
    SheafErr e;
    some_ids(ids, 100, tiny.vocab, 3);
    for (int seq = 0; seq < 2; seq++) {
        for (int i = 0; i < 70; i++) t[i] = (SheafToken){ids[i], seq, i, -1, i % 10 == 0};
        sheaf_step(s, t, 70, r->step_result, seq ? r->step : NULL, &e);
        for (int i = 70; i < 75; i++) {
            t[0] = (SheafToken){ids[i], seq, i, -1, i != 72};
            sheaf_step(s, t, 1, r->step_result, i % 2 ? r->step : NULL, &e);
        }
    }
    for (int i = 0; i < 20; i++) t[i] = (SheafToken){ids[i], i % 2, 75 + i / 2, ids[i + 1], true};
    sheaf_step(s, t, 20, r->step_result, NULL, &e);
    sheaf_seq_truncate(s, 0, 10, &e);
    sheaf_seq_truncate(s, 0, 0, &e);
    sheaf_seq_truncate(s, 1, 0, &e);
    sheaf_step(s, t, 20, r->step_result, NULL, &e); /* refused: position 75 */
}

static void allocations(SheafSession *s, void *arg) {
    const bool *network = arg; /* used, through MPI, which allocates */
    Record r = record_make(2, 128, tiny.vocab);
    every_step(s, &r);
    long before = mappings();
#ifdef COUNTS_MALLOC
    by_us = by_libraries = 0;
    watching = true;
    free(malloc(10)); /* the count counts */
    CU_ASSERT_EQUAL(by_us, 1);
#endif
    for (int i = 0; i < 3; i++) every_step(s, &r);
#ifdef COUNTS_MALLOC
    watching = false;
    CU_ASSERT_EQUAL(by_us, 1);
    CU_ASSERT(*network || by_libraries == 0);
    if (by_us != 1 || (by_libraries && !*network))
        printf("\n%ld allocations of ours, %ld of libraries", by_us - 1, by_libraries);
#else
    (void)network;
    printf("not counted: the sanitizer has its own malloc ");
#endif
    CU_ASSERT_EQUAL(mappings(), before);
    record_free(&r);
}

/* tiny as a mixture: on one or two ranks each has a part of every expert, on more each has whole ones. */
static TinyModel a_mixture(void) {
    TinyModel m = tiny;
    m.ffn = 64;
    m.experts = 5;
    m.used = 2;
    return m;
}

static void test_allocations(void) {
    const TinyModel models[] = {tiny, a_mixture()};
    for (int i = 0; i < 2; i++) {
        char path[64];
        shared_model(path, &models[i]);
        const SheafSessionOptions so = {.n_ctx = 128, .n_seqs = 2, .max_batch = 80, .max_outputs = 20, .logits = true};
        bool network = false;
        for (int threads = 1; threads <= 2; threads++)
            with_session(&(SheafRuntimeOptions){.threads = threads}, path, &so, allocations, &network);
        network = true;
        with_session(&(SheafRuntimeOptions){.threads = 1, .check = true}, path, &so, allocations, &network);
        with_session(&(SheafRuntimeOptions){.threads = 2, .each_rank_a_host = true}, path, &so, allocations, &network);
        remove_model(path);
    }
}

/* ---- steps that are refused -------------------------------------------------------------------------------------- */

enum { N_CTX = 70, BATCH = 100, OUTPUTS = 8 };

typedef struct Refusals {
    SheafSession *s;
    Record want, got;
    int32_t ids[N_CTX + 1];
    int length; /* positions that the sequence has */
} Refusals;

/* The call that just failed said all three, and the next good step gives what it would have given before. */
static void refused(Refusals *c, int status, const SheafErr *e, const char *one, const char *two) {
    CU_ASSERT_EQUAL(status, -1);
    CU_ASSERT(strstr(e->msg, one) && strstr(e->msg, two));
    if (!strstr(e->msg, one) || !strstr(e->msg, two)) printf("\n\"%s\" lacks \"%s\" or \"%s\"", e->msg, one, two);
    if (c->length == N_CTX) forget(c->s, 0, c->length = 30);
    feed_range(c->s, 0, c->ids, c->length, c->length + 1, 1, &c->got);
    same_bits(&c->got, 0, &c->want, 0, c->length, c->length + 1, e->msg);
    c->length++;
}

static int step(Refusals *c, int32_t id, int32_t seq, int32_t pos, int32_t target, SheafErr *e) {
    const SheafToken t = {id, seq, pos, target, true};
    e->msg[0] = 0;
    return sheaf_step(c->s, &t, 1, c->got.step_result, NULL, e);
}

static void refuse_steps(SheafSession *s, void *arg) {
    (void)arg;
    Refusals c = {.s = s, .want = record_make(2, N_CTX, tiny.vocab), .got = record_make(2, N_CTX, tiny.vocab)};
    SheafErr e = {""};
    some_ids(c.ids, N_CTX + 1, tiny.vocab, 11);
    feed_range(s, 0, c.ids, 0, N_CTX, 8, &c.want);
    CU_ASSERT_EQUAL(step(&c, 1, 0, N_CTX, -1, &e), -1); /* the context is full */
    CU_ASSERT(strstr(e.msg, "context of 70") != NULL);
    forget(s, 0, 0);
    feed_range(s, 0, c.ids, 0, c.length = 5, 8, &c.got);

    refused(&c, step(&c, 300, 0, 5, -1, &e), &e, "300", "vocabulary");
    refused(&c, step(&c, -1, 0, 6, -1, &e), &e, "-1", "vocabulary");
    refused(&c, step(&c, 1, 2, 0, -1, &e), &e, "sequence 2", "0 to 1");
    refused(&c, step(&c, 1, -1, 0, -1, &e), &e, "sequence -1", "0 to 1");
    refused(&c, step(&c, 1, 0, 10, -1, &e), &e, "position 9", "10"); /* goes on at 9 */
    refused(&c, step(&c, 1, 0, 9, -1, &e), &e, "position 10", "9");
    refused(&c, step(&c, 1, 1, 1, -1, &e), &e, "sequence 1", "position 0");
    refused(&c, step(&c, 1, 0, -1, -1, &e), &e, "-1", "context");
    refused(&c, step(&c, 1, 0, N_CTX, -1, &e), &e, "70", "context");
    refused(&c, step(&c, 1, 0, 14, 300, &e), &e, "target", "300");
    refused(&c, step(&c, 1, 0, 15, -2, &e), &e, "target", "-2");

    static SheafToken t[BATCH + 1];
    for (int i = 0; i <= BATCH; i++)
        t[i] = (SheafToken){1, i < OUTPUTS ? 0 : 1, i < OUTPUTS ? 16 + i : i - OUTPUTS, -1, i <= OUTPUTS};
    refused(&c, sheaf_step(s, t, 0, c.got.step_result, NULL, &e), &e, "0 tokens", "1 to 100");
    for (int i = 0; i < OUTPUTS; i++) t[i].pos = 17 + i;
    refused(&c, sheaf_step(s, t, BATCH + 1, c.got.step_result, NULL, &e), &e, "101 tokens", "1 to 100");
    for (int i = 0; i < OUTPUTS; i++) t[i].pos = 18 + i;
    refused(&c, sheaf_step(s, t, OUTPUTS + 1, c.got.step_result, NULL, &e), &e, "9 results", "8");
    t[0].pos = t[1].pos = 19; /* the same position twice in a step */
    refused(&c, sheaf_step(s, t, 2, c.got.step_result, NULL, &e), &e, "position 20", "19");
    t[0].pos = 21; /* in the wrong order */
    t[1].pos = 20;
    refused(&c, sheaf_step(s, t, 2, c.got.step_result, NULL, &e), &e, "position 20", "21");

    refused(&c, sheaf_seq_truncate(s, 2, 0, &e), &e, "sequence 2", "0 to 1");
    refused(&c, sheaf_seq_truncate(s, -1, 0, &e), &e, "sequence -1", "0 to 1");
    refused(&c, sheaf_seq_truncate(s, 0, 25, &e), &e, "25", "23 positions");
    refused(&c, sheaf_seq_truncate(s, 0, -1, &e), &e, "-1", "24 positions");
    CU_ASSERT_EQUAL(c.length, 25);
    /* every position so far is what it was, so nothing was stored by what was refused */
    same_bits(&c.got, 0, &c.want, 0, 0, c.length, "after refusals");
    record_free(&c.want);
    record_free(&c.got);
}

static void refuse_logits(SheafSession *s, void *arg) {
    (void)arg;
    SheafErr e = {""};
    SheafResult r[1];
    float logits[300];
    const SheafToken t = {1, 0, 0, -1, true};
    CU_ASSERT_EQUAL(sheaf_step(s, &t, 1, r, logits, &e), -1);
    CU_ASSERT(strstr(e.msg, "logits") != NULL);
    CU_ASSERT_EQUAL(sheaf_step(s, &t, 1, r, NULL, &e), 0);
}

static void nothing(SheafSession *s, void *arg) {
    (void)s;
    (void)arg;
}

static void test_refusals(void) {
    char path[64];
    shared_model(path, &tiny);
    const SheafSessionOptions so = {
        .n_ctx = N_CTX, .n_seqs = 2, .max_batch = BATCH, .max_outputs = OUTPUTS, .logits = true};
    const SheafRuntimeOptions ro = {.threads = 1, .check = true};
    with_session(&ro, path, &so, refuse_steps, NULL);
    with_session(&ro, path, &(SheafSessionOptions){.n_ctx = 16}, refuse_logits, NULL);
    with_session(&ro, path, &(SheafSessionOptions){.n_ctx = 1}, nothing, NULL);
    remove_model(path);
}

/* ---- opening that fails ------------------------------------------------------------------------------------------ */

/* All ranks got this line, with these words in it. */
static void same_words(const SheafErr *e, const char *one, const char *two) {
    uint64_t h = 14695981039346656037u;
    for (const char *p = e->msg; *p; p++) h = (h ^ (uint8_t)*p) * 1099511628211u;
    Err differ = {""};
    CU_ASSERT_EQUAL(comm_same(job, h, "the message", &differ), 0);
    CU_ASSERT(strstr(e->msg, one) && strstr(e->msg, two));
    if (!strstr(e->msg, one) || !strstr(e->msg, two)) printf("\n\"%s\" lacks \"%s\" or \"%s\"", e->msg, one, two);
}

static void fail_open(SheafRuntime *rt, const char *path, const char *one, const char *two) {
    SheafModel *m = NULL;
    SheafErr e = {""};
    CU_ASSERT_EQUAL(sheaf_model_open(rt, path, &m, &e), -1);
    CU_ASSERT(m == NULL);
    same_words(&e, one, two);
    sheaf_model_close(m);
}

static void test_files(void) {
    TinyModel other = tiny, wider = tiny;
    other.seed = 2; /* another fine-tuning: same header, same size */
    wider.ffn = 224;
    char path[64], other_path[64], wider_path[64];
    shared_model(path, &tiny);
    shared_model(other_path, &other);
    shared_model(wider_path, &wider);
    SheafRuntime *rt;
    SheafErr e = {""};
    CU_ASSERT_FATAL(!sheaf_runtime_open(&(SheafRuntimeOptions){.threads = 1}, &rt, &e));
    fail_open(rt, "/nowhere/model.gguf", "/nowhere/model.gguf", "No such file");
    for (int odd = 1; odd < sheaf_ranks(rt); odd++) { /* one rank has not what the others have */
        char who[32];
        snprintf(who, sizeof who, "rank %d on host ", odd);
        bool is_me = sheaf_rank(rt) == odd;
        fail_open(rt, is_me ? "/nowhere/model.gguf" : path, who, "/nowhere/model.gguf");
        snprintf(who, sizeof who, "rank %d", odd);
        fail_open(rt, is_me ? wider_path : path, who, "size");
        fail_open(rt, is_me ? other_path : path, who, "content");
    }
    SheafModel *m; /* the runtime is none the worse for it */
    CU_ASSERT_EQUAL(sheaf_model_open(rt, path, &m, &e), 0);
    static const struct {
        SheafSessionOptions o;
        const char *one, *two;
    } bad[] = {{{.n_ctx = -1}, "context of -1", "1 to"},
               {{.n_ctx = INT64_C(1) << 31}, "context of 2147483648", "1 to"},
               {{.n_seqs = -1}, "-1 sequences", "65536"},
               {{.n_seqs = 65537}, "65537 sequences", "65536"},
               {{.max_batch = -2}, "-2 tokens", "1048576"},
               {{.max_batch = 2000000}, "2000000 tokens", "1048576"},
               {{.n_ctx = INT32_MAX, .n_seqs = 65536}, "65536 sequences", "KV cache"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SheafSession *s = NULL;
        CU_ASSERT_EQUAL(sheaf_session_open(m, &bad[i].o, &s, &e), -1);
        CU_ASSERT(s == NULL);
        same_words(&e, bad[i].one, bad[i].two);
    }
    /* a file cut after it was opened */
    CU_ASSERT(!comm_barrier(job, NULL));
    if (rank() == 0) {
        int status = truncate(path, 30000);
        CU_ASSERT_EQUAL(status, 0);
    }
    CU_ASSERT(!comm_barrier(job, NULL));
    SheafSession *s = NULL;
    CU_ASSERT_EQUAL(sheaf_session_open(m, &(SheafSessionOptions){0}, &s, &e), -1);
    same_words(&e, "the file ends before byte", "tensor");
    sheaf_model_close(m);
    CU_ASSERT_EQUAL(sheaf_runtime_close(rt, &e), 0);
    remove_model(path);
    remove_model(other_path);
    remove_model(wider_path);
}

static void test_bad_runtime(void) {
    static const struct {
        SheafRuntimeOptions o;
        const char *one;
    } bad[] = {{{.wire = "f16"}, "f16"},
               {{.isa = "sse9"}, "sse9"},
               {{.threads = -1}, "-1"},
               {{.activations = "int4"}, "int4"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SheafRuntime *rt = NULL;
        SheafErr e = {""};
        CU_ASSERT_EQUAL(sheaf_runtime_open(&bad[i].o, &rt, &e), -1);
        CU_ASSERT(rt == NULL);
        same_words(&e, bad[i].one, "");
    }
}

/* The lowest instruction set that any rank wants is everyone's. */
static void test_lowest_isa(void) {
    for (int low = 0; low < comm_size(job); low++) {
        SheafRuntime *rt;
        SheafErr e = {""};
        const SheafRuntimeOptions ro = {.threads = 1, .isa = rank() == low ? "ref" : NULL};
        CU_ASSERT_FATAL(!sheaf_runtime_open(&ro, &rt, &e));
        CU_ASSERT_STRING_EQUAL(sheaf_isa(rt), "ref");
        CU_ASSERT_EQUAL(sheaf_runtime_close(rt, &e), 0);
    }
}

/* ---- what a session says of itself ------------------------------------------------------------------------------- */

static uint64_t loaded, to_load;
static void progress(void *arg, uint64_t done, uint64_t total) {
    CU_ASSERT(arg == &tiny && done >= loaded && done <= total);
    loaded = done;
    to_load = total;
}

/* The plan without weights foretells the session: hash, weights, cache, buffers (a plan assumes steps of 512 tokens and
 * one result). */
static void check_info(const TinyModel *model) {
    char path[64];
    shared_model(path, model);
    SheafRuntime *rt;
    SheafModel *m;
    SheafSession *s;
    SheafPlan *p;
    SheafErr e = {""};
    CU_ASSERT_FATAL(!sheaf_runtime_open(&(SheafRuntimeOptions){.threads = 1}, &rt, &e));
    CU_ASSERT_FATAL(!sheaf_model_open(rt, path, &m, &e));
    const SheafSessionOptions so = {
        .n_ctx = 100, .max_batch = 512, .max_outputs = 1, .progress = progress, .progress_arg = (void *)&tiny};
    loaded = to_load = 0;
    CU_ASSERT_FATAL(!sheaf_session_open(m, &so, &s, &e));
    CU_ASSERT_FATAL(!sheaf_plan(m, sheaf_ranks(rt), 100, &p, &e));
    const SheafSessionInfo *i = sheaf_session_info(s);
    const SheafPlanRank *mine = &p->rank[sheaf_rank(rt)];
    CU_ASSERT_EQUAL(p->hash, i->plan_hash);
    CU_ASSERT_EQUAL(mine->weight_bytes, i->weight_bytes);
    CU_ASSERT_EQUAL(mine->kv_bytes, i->kv_bytes);
    CU_ASSERT_EQUAL(mine->activation_bytes, i->activation_bytes);
    CU_ASSERT(mine->experts <= model->experts && sheaf_model_info(m)->experts == model->experts);
    CU_ASSERT_EQUAL(mine->kv_bytes, (uint64_t)(mine->kv_heads * 32 * 2 * 2 * 2 * 128)); /* 2 layers, 2 blocks of 64 */
    CU_ASSERT(i->weight_bytes_resident >= i->weight_bytes && i->weight_bytes_all_ranks >= p->weight_bytes_total);
    CU_ASSERT(i->n_ctx == 100 && i->n_seqs == 1 && i->max_batch == 512);
    CU_ASSERT(sheaf_rank(rt) != 0 || (loaded == to_load && to_load == i->weight_bytes));
    sheaf_plan_free(p);
    if (sheaf_rank(rt)) CU_ASSERT_EQUAL(sheaf_follow(s, &e), 0);
    sheaf_session_close(s);
    sheaf_model_close(m);
    CU_ASSERT_EQUAL(sheaf_runtime_close(rt, &e), 0);
    remove_model(path);
}

static void test_info(void) {
    const TinyModel mixture = a_mixture();
    check_info(&tiny);
    check_info(&mixture);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"a step allocates nothing", test_allocations},
                                        {"steps that are refused", test_refusals},
                                        {"files", test_files},
                                        {"bad options of a runtime", test_bad_runtime},
                                        {"the lowest instruction set", test_lowest_isa},
                                        {"what a session says of itself", test_info},
                                        CU_TEST_INFO_NULL};
    return run_on_ranks("session", tests);
}
