/* The tokenizer against ids that other programs made: llama.cpp's own test vocabularies (ggml-vocab-*.inp/.out in
 * SHEAF_DATA), and SmolLM2's cases and the whole of WikiText-2 (tests/fixtures/README.md says how they were made). */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "engine/tokenizer.h"

static bool skipped;
static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";

/* A whole file, NUL-terminated; NULL when it is not there. The caller frees. */
static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) abort();
    fclose(f);
    text[n] = 0;
    *size = (size_t)n;
    return text;
}

static char *read_from(const char *var, const char *name, size_t *size) {
    char path[4096];
    return check_path(path, sizeof path, var, name) ? read_file(path, size) : NULL;
}

typedef struct Loaded {
    Gguf *g;
    Tokenizer *t;
} Loaded;

static bool load(const char *var, const char *name, Loaded *l) {
    char path[4096];
    if (!check_path(path, sizeof path, var, name)) return false;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    fclose(f);
    Err e;
    if (gguf_open(path, &l->g, &e) || tokenizer_from_gguf(l->g, &l->t, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        CU_FAIL_FATAL("the model does not load");
    }
    return true;
}

static void unload(Loaded *l) {
    tokenizer_free(l->t);
    gguf_close(l->g);
}

/* " 12 345\n" at *p against ids; moves *p to the next line. */
static bool line_is(char **p, const int32_t *ids, size_t n) {
    bool same = true;
    size_t i = 0;
    while (**p == ' ') {
        long id = strtol(*p, p, 10);
        same = same && i < n && ids[i] == id;
        i++;
    }
    if (**p == '\r') ++*p;
    if (**p == '\n') ++*p;
    return same && i == n;
}

/* Bytes of all ids, malloc'ed. */
static char *join(const Tokenizer *t, const int32_t *ids, size_t n, size_t *size) {
    size_t cap = 0;
    for (size_t i = 0; i < n; i++) cap += tokenizer_bytes(t, ids[i], true, NULL, 0);
    char *text = malloc(cap + 1);
    if (!text) abort();
    *size = 0;
    for (size_t i = 0; i < n; i++) *size += tokenizer_bytes(t, ids[i], true, text + *size, cap - *size);
    return text;
}

/* Every text of `inp` gives the ids on its line of `out`, and these give it back where all bytes have tokens. */
static void check_cases(Tokenizer *t, char *inp, size_t size, char *out, int expected, bool all_bytes) {
    int cases = 0;
    char *text = inp, *line = out, *end;
    Err e;
    while ((end = memmem(text, size - (size_t)(text - inp), SEPARATOR, strlen(SEPARATOR)))) {
        int32_t *ids;
        size_t n, back;
        if (tokenizer_encode(t, text, (size_t)(end - text), false, false, &ids, &n, &e)) {
            CU_FAIL_FATAL("a case does not encode");
        }
        if (!line_is(&line, ids, n)) {
            fprintf(stderr, "case %d: \"%.*s\" has other ids\n", cases, (int)(end - text), text);
            CU_FAIL("ids");
        }
        char *joined = join(t, ids, n, &back);
        if (all_bytes) CU_ASSERT(back == (size_t)(end - text) && !memcmp(joined, text, back));
        free(joined);
        free(ids);
        text = end + strlen(SEPARATOR);
        cases++;
    }
    CU_ASSERT_EQUAL(cases, expected);
}

static void test_vocabularies(void) {
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        Loaded l;
        snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf", names[i]);
        if (!load("SHEAF_DATA", path, &l)) {
            printf("skipped: no %s in SHEAF_DATA ", path);
            skipped = true;
            return;
        }
        size_t size, ignored;
        snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf.inp", names[i]);
        char *inp = read_from("SHEAF_DATA", path, &size);
        snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf.out", names[i]);
        char *out = read_from("SHEAF_DATA", path, &ignored);
        CU_ASSERT_FATAL(inp && out);
        check_cases(l.t, inp, size, out, 46, true);
        free(inp);
        free(out);
        unload(&l);
    }
}

#define SMOLLM "SmolLM2-135M-Instruct-Q4_1.gguf"

static void test_smollm_cases(void) {
    static const struct {
        const char *inp, *out;
        int cases;
        bool all_bytes;
    } sets[] = {{"smollm_cases.inp", "smollm_cases.out", 46, true}, {"smollm_more.inp", "smollm_more.out", 51, false}};
    Loaded l;
    if (!load("SHEAF_MODELS", SMOLLM, &l)) {
        printf("skipped: no " SMOLLM " in SHEAF_MODELS ");
        skipped = true;
        return;
    }
    for (int i = 0; i < 2; i++) {
        size_t size, ignored;
        char *inp = read_from("SHEAF_FIXTURES", sets[i].inp, &size);
        char *out = read_from("SHEAF_FIXTURES", sets[i].out, &ignored);
        CU_ASSERT_FATAL(inp && out);
        check_cases(l.t, inp, size, out, sets[i].cases, sets[i].all_bytes);
        free(inp);
        free(out);
    }
    unload(&l);
}

/* All of WikiText-2: number, hash and start of the ids as in the fixture, and back to the text. */
static void test_wikitext(void) {
    Loaded l;
    size_t size, ignored, n, back;
    char *text = read_from("SHEAF_DATA", "wikitext-2-test.raw", &size);
    char *want = read_from("SHEAF_FIXTURES", "wikitext2_ids.txt", &ignored);
    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    if (!text || !load("SHEAF_MODELS", SMOLLM, &l)) {
        printf("skipped: no wikitext-2-test.raw in SHEAF_DATA or no " SMOLLM " in SHEAF_MODELS ");
        skipped = true;
        free(text);
        free(want);
        return;
    }
    int32_t *ids;
    Err e;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, text, size, false, false, &ids, &n, &e), 0);
    char *p = want;
    CU_ASSERT_EQUAL_FATAL(n, strtoull(p, &p, 10));
    CU_ASSERT_EQUAL(XXH64(ids, n * sizeof *ids, 0), strtoull(p, &p, 16));
    for (int i = 0; i < 256; i++) CU_ASSERT_EQUAL(ids[i], strtol(p, &p, 10));
    char *joined = join(l.t, ids, n, &back);
    CU_ASSERT(back == size && !memcmp(joined, text, size));
    free(joined);
    free(ids);
    free(text);
    free(want);
    unload(&l);
}

/* What SmolLM2's file says of its special tokens: <|im_start|> is BOS, not to be added; <|im_end|> is EOS. */
static void test_smollm_special(void) {
    Loaded l;
    if (!load("SHEAF_MODELS", SMOLLM, &l)) {
        printf("skipped: no " SMOLLM " in SHEAF_MODELS ");
        skipped = true;
        return;
    }
    CU_ASSERT_EQUAL(tokenizer_size(l.t), 49152);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), -1);
    CU_ASSERT(tokenizer_ends(l.t, 0) && tokenizer_ends(l.t, 2) && !tokenizer_ends(l.t, 1) && !tokenizer_ends(l.t, 100));
    static const char chat[] = "<|im_start|>user\nHi<|im_end|>\n";
    int32_t *ids;
    size_t n;
    Err e;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, chat, strlen(chat), true, true, &ids, &n, &e), 0);
    CU_ASSERT_EQUAL_FATAL(n, 6);
    CU_ASSERT(ids[0] == 1 && ids[4] == 2); /* <|im_start|> user \n Hi <|im_end|> \n */
    char buf[32];
    CU_ASSERT_EQUAL(tokenizer_bytes(l.t, 1, false, buf, sizeof buf), 0);
    CU_ASSERT_EQUAL(tokenizer_bytes(l.t, 1, true, buf, sizeof buf), strlen("<|im_start|>"));
    free(ids);
    unload(&l);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"ids of gpt-2, llama-bpe and qwen2", test_vocabularies},
        {"ids of SmolLM2's cases", test_smollm_cases},
        {"ids of WikiText-2, and back", test_wikitext},
        {"SmolLM2's special tokens", test_smollm_special},
        CU_TEST_INFO_NULL,
    };
    int status = check_run("tokenizer", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
