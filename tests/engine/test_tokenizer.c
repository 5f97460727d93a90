/* The tokenizer against ids that other programs made: llama.cpp's own test vocabularies (ggml-vocab-*.inp/.out in
 * SHEAF_DATA), and SmolLM2's cases and the whole of WikiText-2 (tests/fixtures/README.md says how they were made). */
#include "token_cases.h"

#include <glob.h>

static bool skipped;

/* Any that is there with its cases; these at least. */
static void test_vocabularies(void) {
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2"};
    char pattern[4096];
    glob_t found = {0};
    size_t known = 0;
    if (!check_path(pattern, sizeof pattern, "SHEAF_DATA", "vocab/ggml-vocab-*.gguf")) pattern[0] = 0;
    glob(pattern, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = strstr(found.gl_pathv[i], "vocab/ggml-vocab-");
        char inp[300], out[300];
        size_t ignored;
        snprintf(inp, sizeof inp, "%s.inp", path);
        snprintf(out, sizeof out, "%s.out", path);
        char *cases = read_from("SHEAF_DATA", inp, &ignored);
        if (!cases) continue;
        free(cases);
        Loaded l;
        Text model = {0};
        Err e;
        CU_ASSERT_FATAL(load("SHEAF_DATA", path, &l));
        CU_ASSERT_EQUAL(meta_get_string(l.g, "tokenizer.ggml.model", true, &model, &e), 0);
        bool bytes = model.size == 4 && !memcmp(model.data, "gpt2", 4);
        check_files(l.t, "SHEAF_DATA", inp, out, (CaseRules){.before = bytes ? "" : NULL});
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            known += !strncmp(path + strlen("vocab/ggml-vocab-"), names[n], strlen(names[n]));
        unload(&l);
    }
    globfree(&found);
    if (known == sizeof names / sizeof *names) return;
    printf("skipped: not all of vocab/ggml-vocab-{gpt-2,llama-bpe,qwen2}.gguf in SHEAF_DATA ");
    skipped = true;
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
    for (int i = 0; i < 2; i++)
        check_files(l.t, "SHEAF_FIXTURES", sets[i].inp, sets[i].out,
                    (CaseRules){.cases = sets[i].cases, .before = sets[i].all_bytes ? "" : NULL});
    unload(&l);
}

/* All of WikiText-2: number, hash and start of the ids as in the fixture, and back to the text. */
static void test_wikitext(void) {
    Loaded l;
    size_t size;
    char *text = read_from("SHEAF_DATA", "wikitext-2-test.raw", &size);
    if (!text || !load("SHEAF_MODELS", SMOLLM, &l)) {
        printf("skipped: no wikitext-2-test.raw in SHEAF_DATA or no " SMOLLM " in SHEAF_MODELS ");
        skipped = true;
        free(text);
        return;
    }
    check_digest(l.t, text, size, "wikitext2_ids.txt", "");
    free(text);
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
        {"ids of all vocabularies", test_vocabularies},
        {"ids of SmolLM2's cases", test_smollm_cases},
        {"ids of WikiText-2, and back", test_wikitext},
        {"SmolLM2's special tokens", test_smollm_special},
        CU_TEST_INFO_NULL,
    };
    int status = check_run("tokenizer", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
