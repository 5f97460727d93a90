/* The real model, teacher-forced, through sheaf.h: the logits after each of the 1,514 tokens of 20 texts against those
 * of a plain forward pass in fp32 (teacher_forced.bin; tests/fixtures/README.md says how it was made, and how near
 * llama.cpp comes). Two texts go together, as two sequences of a step. */
#include <math.h>

#include "check.h"
#include "engine/sheaf.h"

enum { TEXTS = 20, TOGETHER = 2, MAX_TOKENS = 200, STORED = 8 };

/* ---- the reference ----------------------------------------------------------------------------------------------- */
typedef struct Stored { /* as in the file */
    uint32_t id;
    float logit;
} Stored;
typedef struct Text {
    uint32_t n;
    uint32_t ids[MAX_TOKENS];
    Stored top[MAX_TOKENS][STORED]; /* falling */
} Text;
static Text texts[TEXTS];

static void take(FILE *f, void *to, size_t bytes) {
    if (fread(to, 1, bytes, f) == bytes) return;
    fprintf(stderr, "teacher_forced.bin ends too early\n");
    exit(2);
}

static void read_reference(void) {
    char path[4096], magic[4];
    uint32_t version, n_texts;
    FILE *f = check_path(path, sizeof path, "SHEAF_FIXTURES", "teacher_forced.bin") ? fopen(path, "rb") : NULL;
    if (!f) {
        fprintf(stderr, "SHEAF_FIXTURES has no teacher_forced.bin\n");
        exit(2);
    }
    take(f, magic, 4);
    take(f, &version, 4);
    take(f, &n_texts, 4);
    if (memcmp(magic, "SHTF", 4) != 0 || version != 1 || n_texts != TEXTS) exit(2);
    for (int i = 0; i < TEXTS; i++) {
        Text *t = &texts[i];
        take(f, &t->n, 4);
        if (t->n > MAX_TOKENS) exit(2);
        take(f, t->ids, t->n * sizeof t->ids[0]);
        take(f, t->top, t->n * sizeof t->top[0]);
    }
    fclose(f);
}

/* ---- one model in one arithmetic ----------------------------------------------------------------------------------
 */
typedef struct Case {
    const char *file, *activations;
    double same;    /* part of the positions where the most probable token must be the reference's */
    float gap;      /* elsewhere the reference's own logits of the two tokens may be this far apart */
    float nearly;   /* 99 of 100 logits are this near or nearer */
    float furthest; /* all are */
} Case;

/* The weights are the same values in both files. What was measured, at 1 to 4 ranks: with 16-bit activations and with
 * F32 weights 1,511 to 1,513 of 1,514 the same, gap 0.001, 0.013 and 0.046, which is what a cache of 16-bit floats
 * costs (llama.cpp with F32 weights: 0.013 and 0.040); with 8 bits 95.2 % or more, gap 0.64, 0.72 and 2.2
 * (llama.cpp: 95.8 %, 0.36, 0.65 and 2.1). */
static const Case cases[] = {
    {"Q4_1", "int16", 0.995, 0.02F, 0.017F, 0.1F},
    {"F32", "int16", 0.995, 0.02F, 0.017F, 0.1F},
    {"Q4_1", "int8", 0.94, 1.0F, 1.2F, 4.0F},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct Score {
    int positions, same;
    float gap;         /* the largest */
    double logsumexp;  /* the largest error */
    int n_differences; /* of logits */
    float differences[TEXTS * MAX_TOKENS * STORED];
} Score;

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* What a step says about a row must be true of its logits. */
static void check_result(const SheafResult *r, const float *logits, int64_t vocabulary, Score *score) {
    double sum = 0;
    float largest = -INFINITY;
    for (int64_t i = 0; i < vocabulary; i++) {
        largest = fmaxf(largest, logits[i]);
        sum += exp((double)logits[i]);
    }
    CU_ASSERT(r->n_top == SHEAF_TOP && r->logit[0] == largest);
    score->logsumexp = fmax(score->logsumexp, fabs(r->logsumexp - log(sum)));
    for (int i = 0; i < r->n_top; i++) {
        CU_ASSERT_FATAL(r->id[i] >= 0 && r->id[i] < vocabulary);
        CU_ASSERT(r->logit[i] == logits[r->id[i]] && (i == 0 || r->logit[i] <= r->logit[i - 1]));
    }
}

static void score_position(const Stored *expected, const SheafResult *r, const float *logits, Score *score) {
    score->positions++;
    for (int i = 0; i < STORED; i++)
        score->differences[score->n_differences++] = fabsf(logits[expected[i].id] - expected[i].logit);
    uint32_t mine = (uint32_t)r->id[0];
    score->same += mine == expected[0].id;
    int at = 0;
    while (at < STORED && expected[at].id != mine) at++;
    CU_ASSERT(at < STORED);
    if (at < STORED) score->gap = fmaxf(score->gap, expected[0].logit - expected[at].logit);
}

/* Runs two texts together, their tokens in turn, and scores them. */
static int run_texts(SheafSession *s, const Text *pair, float *logits, int64_t vocabulary, Score *score, SheafErr *e) {
    static SheafToken tokens[TOGETHER * MAX_TOKENS];
    static SheafResult results[TOGETHER * MAX_TOKENS];
    size_t n = 0;
    for (uint32_t pos = 0; pos < MAX_TOKENS; pos++)
        for (int seq = 0; seq < TOGETHER; seq++)
            if (pos < pair[seq].n)
                tokens[n++] = (SheafToken){
                    .id = (int32_t)pair[seq].ids[pos], .seq = seq, .pos = (int32_t)pos, .target = -1, .output = true};
    if (sheaf_step(s, tokens, n, results, logits, e)) return -1;
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + (int64_t)i * vocabulary;
        check_result(&results[i], row, vocabulary, score);
        score_position(pair[tokens[i].seq].top[tokens[i].pos], &results[i], row, score);
    }
    for (int32_t seq = 0; seq < TOGETHER; seq++)
        if (sheaf_seq_truncate(s, seq, 0, e)) return -1;
    return 0;
}

static int lead(SheafSession *s, int64_t vocabulary, const Case *c, SheafErr *e) {
    static Score score;
    score = (Score){0};
    float *logits = malloc((size_t)(TOGETHER * MAX_TOKENS * vocabulary) * sizeof *logits);
    int status = logits ? 0 : -1;
    for (int i = 0; !status && i < TEXTS; i += TOGETHER)
        status = run_texts(s, &texts[i], logits, vocabulary, &score, e);
    free(logits);
    if (status) return -1;
    qsort(score.differences, (size_t)score.n_differences, sizeof(float), by_size);
    float nearly = score.differences[score.n_differences * 99 / 100],
          furthest = score.differences[score.n_differences - 1];
    printf("\n%s %s: %d of %d the same, largest gap %.3f, 99 %% of the logits within %.5f, all within %.4f, logsumexp "
           "within %.1e ",
           c->file, c->activations, score.same, score.positions, (double)score.gap, (double)nearly, (double)furthest,
           score.logsumexp);
    CU_ASSERT_EQUAL(score.positions, 1514);
    CU_ASSERT(score.same >= c->same * score.positions);
    CU_ASSERT(score.gap <= c->gap);
    CU_ASSERT(nearly <= c->nearly);
    CU_ASSERT(furthest <= c->furthest);
    CU_ASSERT(score.logsumexp < 1e-4);
    return 0;
}

static int run_session(SheafRuntime *rt, const char *path, const Case *c, SheafErr *e) {
    SheafModel *m;
    SheafSession *s;
    const SheafSessionOptions options = {.n_ctx = MAX_TOKENS,
                                         .n_seqs = TOGETHER,
                                         .max_batch = TOGETHER * MAX_TOKENS,
                                         .max_outputs = TOGETHER * MAX_TOKENS,
                                         .logits = true};
    if (sheaf_model_open(rt, path, &m, e)) return -1;
    int status = sheaf_session_open(m, &options, &s, e);
    if (!status) {
        status = sheaf_rank(rt) == 0 ? lead(s, sheaf_model_info(m)->vocabulary, c, e) : sheaf_follow(s, e);
        sheaf_session_close(s);
    }
    sheaf_model_close(m);
    return status;
}

static void model_path(char *path, size_t size, const char *file) {
    const char *models = getenv("SHEAF_MODELS"), *source = getenv("SHEAF_SOURCE");
    if (models && *models) snprintf(path, size, "%s/SmolLM2-135M-Instruct-%s.gguf", models, file);
    else snprintf(path, size, "%s/models/SmolLM2-135M-Instruct-%s.gguf", source ? source : ".", file);
}

static void run_case(const Case *c) {
    char path[4096];
    SheafErr e = {""};
    SheafRuntime *rt;
    model_path(path, sizeof path, c->file);
    int status = sheaf_runtime_open(&(SheafRuntimeOptions){.activations = c->activations, .check = true}, &rt, &e);
    if (!status) {
        status = run_session(rt, path, c, &e);
        if (sheaf_runtime_close(rt, &e)) status = -1;
    }
    if (status) fprintf(stderr, "%s\n", e.msg);
    CU_ASSERT_EQUAL(status, 0);
}

static void test_q4_1(void) { run_case(&cases[0]); }
static void test_f32(void) { run_case(&cases[1]); }
static void test_int8(void) { run_case(&cases[2]); }

int main(void) {
    for (int i = 0; i < N_CASES; i++) {
        char path[4096];
        model_path(path, sizeof path, cases[i].file);
        FILE *f = fopen(path, "rb");
        if (!f) {
            printf("skipped: there is no %s\n", path);
            return CHECK_SKIPPED;
        }
        fclose(f);
    }
    read_reference();
    /* MPI starts with the first runtime of a process and ends with it: this one stays open around the others. */
    SheafErr e;
    SheafRuntime *job;
    if (sheaf_runtime_open(&(SheafRuntimeOptions){.threads = 1}, &job, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    static const CU_TestInfo tests[] = {
        {"Q4_1", test_q4_1}, {"F32", test_f32}, {"Q4_1 with int8", test_int8}, CU_TEST_INFO_NULL};
    int status = check_run("teacher", tests);
    return sheaf_runtime_close(job, &e) ? 2 : status;
}
