/* GGUF's other kinds of tokenizers against ids that other programs made: llama.cpp's vocabularies and their cases, the
 * whole of WikiText-2, and a small unigram model (tests/fixtures/README.md says how those were made). */
#include "token_cases.h"

static bool skipped;

static bool load_vocabulary(const char *name, Loaded *l) {
    char path[80];
    snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf", name);
    if (load("SHEAF_DATA", path, l)) return true;
    printf("skipped: no %s in SHEAF_DATA ", path);
    skipped = true;
    return false;
}

/* Its cases and those of smollm_more.inp, and WikiText-2. `before`: what the ids give back before the text, or NULL
 * when they give back something else. */
static void check_vocabulary(const char *name, const char *more, const char *wikitext, const char *before) {
    Loaded l;
    char inp[80], out[80];
    if (!load_vocabulary(name, &l)) return;
    snprintf(inp, sizeof inp, "vocab/ggml-vocab-%s.gguf.inp", name);
    snprintf(out, sizeof out, "vocab/ggml-vocab-%s.gguf.out", name);
    check_files(l.t, "SHEAF_DATA", inp, out, (CaseRules){.cases = 46, .before = before});
    check_files(l.t, "SHEAF_FIXTURES", "smollm_more.inp", more, (CaseRules){.cases = 51, .before = before});
    size_t size;
    char *text = read_from("SHEAF_DATA", "wikitext-2-test.raw", &size);
    if (text) {
        check_digest(l.t, text, size, wikitext, before);
    } else {
        printf("skipped: no wikitext-2-test.raw in SHEAF_DATA ");
        skipped = true;
    }
    free(text);
    unload(&l);
}

static void test_spm(void) { check_vocabulary("llama-spm", "llama_spm_more.out", "wikitext2_ids_llama_spm.txt", " "); }

/* BERT's tokens do not say where spaces were, nor which letters were large. */
static void test_bert(void) { check_vocabulary("bert-bge", "bert_more.out", "wikitext2_ids_bert.txt", NULL); }

static void test_ugm(void) {
    Loaded l;
    CU_ASSERT_FATAL(load("SHEAF_FIXTURES", "tok_ugm.gguf", &l));
    check_files(l.t, "SHEAF_FIXTURES", "tok_texts.inp", "tok_ugm.out", (CaseRules){.cases = 107});
    unload(&l);
}

static void encodes(Tokenizer *t, const char *text, bool bos, bool special, const int32_t *want, size_t n_want) {
    int32_t *ids = NULL;
    size_t n = 0;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, strlen(text), bos, special, &ids, &n, &e), 0);
    CU_ASSERT(n == n_want && !memcmp(ids, want, n * sizeof *ids));
    free(ids);
}
#define ENCODES(t, text, bos, special, ...)                                                                            \
    encodes(t, text, bos, special, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

/* Special tokens. Llama 2: <s> is 1, </s> 2, "Hello" 15043 with its space and 10994 without; the text after a special
 * token gets its space. BERT: [CLS] 101, [SEP] 102, "hello" 7592. */
static void test_special(void) {
    Loaded l;
    if (load_vocabulary("llama-spm", &l)) {
        CU_ASSERT_EQUAL(tokenizer_bos(l.t), 1);
        CU_ASSERT(tokenizer_ends(l.t, 2) && !tokenizer_ends(l.t, 1));
        ENCODES(l.t, "Hello", true, false, 1, 15043);
        ENCODES(l.t, "", true, false, 1);
        ENCODES(l.t, "Hello</s>Hello", true, true, 1, 15043, 2, 15043);
        char buf[8];
        CU_ASSERT(tokenizer_bytes(l.t, 13, false, buf, 8) == 1 && buf[0] == '\n'); /* <0x0A> */
        CU_ASSERT(tokenizer_bytes(l.t, 15043, false, buf, 8) == 6 && !memcmp(buf, " Hello", 6));
        int32_t *ids;
        size_t n;
        Err e;
        /* as text it stays text: no merge makes a control token */
        CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, "</s>", 4, false, false, &ids, &n, &e), 0);
        for (size_t i = 0; i < n; i++) CU_ASSERT(ids[i] > 2);
        free(ids);
        unload(&l);
    }
    if (load_vocabulary("bert-bge", &l)) {
        CU_ASSERT_EQUAL(tokenizer_bos(l.t), 101);
        ENCODES(l.t, "Hello", true, false, 101, 7592, 102);
        ENCODES(l.t, "h\xC3\xA9llo [SEP] hello", false, true, 7592, 102, 7592);
        unload(&l);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"Llama 2's, by scores", test_spm},
        {"BERT's, WordPiece", test_bert},
        {"a unigram model", test_ugm},
        {"special tokens", test_special},
        CU_TEST_INFO_NULL,
    };
    int status = check_run("kinds of tokenizers", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
