/* tokenizer.json files against what Hugging Face's `tokenizers` makes of the same files and texts
 * (tests/fixtures/README.md says how that was made). */
#include <cjson/cJSON.h>

#include "base/strbuf.h"
#include "engine/hf_normalizer.h"
#include "engine/hf_pretokenizer.h"
#include "graph/gguf.h"
#include "token_cases.h"

static bool skipped;

/* ---- whole tokenizers -------------------------------------------------------------------------------------------- */

/* Each with all its steps on 107 texts, with the tokens before and after; `before`: as in CaseRules. */
static void test_small(void) {
    static const char *const names[] = {"byte_level", "byte_fallback", "unigram", "wordpiece", "suffixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char json[64], out[64];
        Loaded l;
        snprintf(json, sizeof json, "tok_%s.json", names[i]);
        snprintf(out, sizeof out, "tok_%s.out", names[i]);
        CU_ASSERT_FATAL(load("SHEAF_FIXTURES", json, &l));
        check_files(l.t, "SHEAF_FIXTURES", "tok_texts.inp", out,
                    (CaseRules){.cases = 107, .bos = true, .special = true});
        unload(&l);
    }
}

/* The texts of smollm_more.inp come back, with the space that Llama's normalizer puts first. */
static void test_back(void) {
    static const struct {
        const char *name, *before;
    } lossless[] = {{"tok_byte_level.json", ""}, {"tok_byte_fallback.json", " "}};
    for (int i = 0; i < 2; i++) {
        Loaded l;
        size_t size, back, n;
        int32_t *ids;
        Err e;
        CU_ASSERT_FATAL(load("SHEAF_FIXTURES", lossless[i].name, &l));
        char *text = read_from("SHEAF_FIXTURES", "wiki_small.txt", &size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, text, size, false, false, &ids, &n, &e), 0);
        char *joined = join(l.t, ids, n, &back);
        CU_ASSERT(back == strlen(lossless[i].before) + size && !memcmp(joined + back - size, text, size));
        CU_ASSERT(n < size / 2);
        free(joined);
        free(ids);
        free(text);
        unload(&l);
    }
}

static void test_special(void) {
    Loaded l;
    int32_t *ids;
    size_t n;
    Err e;
    char buf[16];
    CU_ASSERT_FATAL(load("SHEAF_FIXTURES", "tok_byte_level.json", &l));
    int32_t bos = tokenizer_bos(l.t);
    CU_ASSERT(bos >= 0 && !tokenizer_ends(l.t, bos) && tokenizer_ends(l.t, bos + 1)); /* </s> comes next in the file */
    CU_ASSERT(tokenizer_bytes(l.t, bos, true, buf, sizeof buf) == 3 && !memcmp(buf, "<s>", 3));
    CU_ASSERT_EQUAL(tokenizer_bytes(l.t, bos, false, buf, sizeof buf), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, "<s>", 3, false, true, &ids, &n, &e), 0);
    CU_ASSERT(n == 1 && ids[0] == bos);
    free(ids);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, "<s>", 3, false, false, &ids, &n, &e), 0);
    CU_ASSERT(n > 1); /* as text */
    free(ids);
    tokenizer_set_end(l.t, 5);
    tokenizer_set_end(l.t, -1);
    tokenizer_set_end(l.t, INT32_MAX);
    CU_ASSERT(tokenizer_ends(l.t, 5) && !tokenizer_ends(l.t, 4));
    CU_ASSERT(tokenizer_named_bos(l.t) == -1 && tokenizer_named_eos(l.t) == -1); /* the file does not say */
    tokenizer_set_named(l.t, 3, tokenizer_size(l.t));
    CU_ASSERT(tokenizer_named_bos(l.t) == 3 && tokenizer_named_eos(l.t) == -1);
    unload(&l);
}

/* Special tokens lie between the plain parts only: those become what they do by themselves. */
static void test_mixed(void) {
    static const char text[] = "<s>one <s> two</s> three</s>";
    const TextSpan plain = {3, strlen(text) - 4};
    Loaded l;
    int32_t *ids, *want;
    size_t n, inner;
    Err e;
    CU_ASSERT_FATAL(load("SHEAF_FIXTURES", "tok_byte_level.json", &l));
    int32_t bos = tokenizer_bos(l.t);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode_mixed(l.t, text, strlen(text), &plain, 1, &ids, &n, &e), 0);
    CU_ASSERT_EQUAL_FATAL(
        tokenizer_encode(l.t, text + plain.begin, plain.end - plain.begin, false, false, &want, &inner, &e), 0);
    CU_ASSERT_FATAL(n == inner + 2);
    CU_ASSERT(ids[0] == bos && ids[n - 1] == bos + 1 && !memcmp(ids + 1, want, inner * sizeof *ids));
    free(ids);
    free(want);
    unload(&l);
}

/* all-MiniLM-L6-v2's own file: its ids of 20 sentences, with [CLS] and [SEP]. */
static void test_minilm(void) {
    Loaded l;
    size_t size;
    char *sentences = read_from("SHEAF_DATA", "minilm/sentences.txt", &size);
    char *want = read_from("SHEAF_DATA", "minilm/input_ids.json", &size);
    if (!sentences || !want || !load("SHEAF_DATA", "minilm/tokenizer.json", &l)) {
        printf("skipped: no minilm in SHEAF_DATA ");
        skipped = true;
        free(sentences);
        free(want);
        return;
    }
    cJSON *lists = cJSON_Parse(want);
    const cJSON *list = lists ? lists->child : NULL;
    int n_sentences = 0;
    for (char *s = strtok(sentences, "\n"); s; s = strtok(NULL, "\n"), n_sentences++) {
        int32_t *ids;
        size_t n, i = 0;
        Err e;
        CU_ASSERT_PTR_NOT_NULL_FATAL(list);
        CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, s, strlen(s), true, true, &ids, &n, &e), 0);
        CU_ASSERT_EQUAL_FATAL((int)n, cJSON_GetArraySize(list));
        for (const cJSON *v = list->child; v; v = v->next) CU_ASSERT_EQUAL(ids[i++], v->valueint);
        free(ids);
        list = list->next;
    }
    CU_ASSERT(n_sentences == 20 && !list);
    char buf[16];
    CU_ASSERT(tokenizer_bytes(l.t, 7592, false, buf, 16) == 6 && !memcmp(buf, " hello", 6));
    CU_ASSERT(tokenizer_bytes(l.t, 2015, false, buf, 16) == 1 && buf[0] == 's'); /* ##s */
    CU_ASSERT(tokenizer_bytes(l.t, 1012, false, buf, 16) == 1 && buf[0] == '.'); /* cleaned up: no space before */
    cJSON_Delete(lists);
    free(sentences);
    free(want);
    unload(&l);
}

/* ---- SmolLM2's vocabulary in the other format -------------------------------------------------------------------- */

static void add_list(StrBuf *s, const ModelFile *g, const char *key, bool map) {
    const MetaValue *a = NULL;
    Err e;
    CU_ASSERT_EQUAL_FATAL(meta_get_array(g, key, true, META_STRING, &a, &e), 0);
    for (uint64_t i = 0; i < a->v.a.n; i++) {
        strbuf_puts(s, i ? "," : "");
        strbuf_json(s, a->v.a.strings[i].data, a->v.a.strings[i].size);
        if (map) strbuf_printf(s, ":%llu", (unsigned long long)i);
    }
}

/* Its tokenizer.json, but for the special tokens: single digits, GPT-2's pattern, byte letters. */
static char *smollm_json(const ModelFile *g) {
    StrBuf s = {0};
    Err e;
    char *text;
    strbuf_puts(&s,
                "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                "\"trim_offsets\":true,\"use_regex\":true}]},\"post_processor\":null,\"decoder\":{\"type\":"
                "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    add_list(&s, g, "tokenizer.ggml.tokens", true);
    strbuf_puts(&s, "},\"merges\":[");
    add_list(&s, g, "tokenizer.ggml.merges", false);
    strbuf_puts(&s, "]}}");
    CU_ASSERT_EQUAL_FATAL(strbuf_take(&s, &text, &e), 0);
    return text;
}

/* The same fixtures as for the GGUF file: made by llama.cpp, and equal to what `tokenizers` makes. */
static void test_smollm(void) {
    char path[4096];
    size_t size;
    Loaded l = {0};
    Err e;
    char *text = read_from("SHEAF_DATA", "wikitext-2-test.raw", &size);
    if (!text || !check_path(path, sizeof path, "SHEAF_MODELS", "SmolLM2-135M-Instruct-Q4_1.gguf") ||
        gguf_open(path, &l.g, &e)) {
        printf("skipped: no wikitext-2-test.raw in SHEAF_DATA or no SmolLM2 in SHEAF_MODELS ");
        skipped = true;
        free(text);
        return;
    }
    char *json = smollm_json(l.g);
    CU_ASSERT_EQUAL_FATAL(tokenizer_from_json_memory(json, strlen(json), "smollm", INT64_MAX, &l.t, &e), 0);
    memset(json, 0, strlen(json)); /* it keeps nothing of it */
    free(json);
    check_files(l.t, "SHEAF_FIXTURES", "smollm_cases.inp", "smollm_cases.out", (CaseRules){.cases = 46, .before = ""});
    check_files(l.t, "SHEAF_FIXTURES", "smollm_more.inp", "smollm_more.out", (CaseRules){.cases = 51});
    check_digest(l.t, text, size, "wikitext2_ids.txt", "");
    free(text);
    unload(&l);
}

/* ---- single steps ------------------------------------------------------------------------------------------------ */

static void check_normalizer(const cJSON *object, const cJSON *cases) {
    HfNormalizer *n;
    Err e;
    CU_ASSERT_EQUAL_FATAL(hf_normalizer_create(object, &n, &e), 0);
    for (const cJSON *c = cases->child; c; c = c->next) {
        const char *text = c->child->valuestring, *want = c->child->next->valuestring;
        Text have;
        CU_ASSERT_EQUAL_FATAL(hf_normalize(n, text, strlen(text), &have, &e), 0);
        if (have.size == strlen(want) && !memcmp(have.data, want, have.size)) continue;
        char *which = cJSON_PrintUnformatted(object);
        fprintf(stderr, "%s makes of \"%s\" \"%.*s\", not \"%s\"\n", which, text, (int)have.size, have.data, want);
        free(which);
        CU_FAIL("normalizer");
    }
    hf_normalizer_free(n);
}

static void check_pretokenizer(const cJSON *object, const cJSON *cases) {
    HfPretokenizer *p;
    Err e;
    CU_ASSERT_EQUAL_FATAL(hf_pretokenizer_create(object, &p, &e), 0);
    for (const cJSON *c = cases->child; c; c = c->next) {
        const char *text = c->child->valuestring;
        const HfPieces *pieces;
        CU_ASSERT_EQUAL_FATAL(hf_pretokenize(p, text, strlen(text), true, &pieces, &e), 0);
        const cJSON *want = c->child->next->child;
        size_t i = 0, begin = 0;
        for (; i < pieces->n && want; begin = pieces->ends[i++], want = want->next)
            if (pieces->ends[i] - begin != strlen(want->valuestring) ||
                memcmp(pieces->text.data + begin, want->valuestring, pieces->ends[i] - begin))
                break;
        if (i == pieces->n && !want) continue;
        char *which = cJSON_PrintUnformatted(object);
        fprintf(stderr, "%s: piece %zu of \"%s\"\n", which, i, text);
        free(which);
        CU_FAIL("pre_tokenizer");
    }
    hf_pretokenizer_free(p);
}

static void test_steps(void) {
    size_t size;
    char *text = read_from("SHEAF_FIXTURES", "tok_steps.json", &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    cJSON *steps = cJSON_Parse(text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(steps);
    int n = 0;
    for (const cJSON *s = steps->child; s; s = s->next, n++) {
        const cJSON *cases = cJSON_GetObjectItem(s, "cases"), *normalizer = cJSON_GetObjectItem(s, "normalizer");
        if (normalizer) check_normalizer(normalizer, cases);
        else check_pretokenizer(cJSON_GetObjectItem(s, "pre_tokenizer"), cases);
    }
    CU_ASSERT_EQUAL(n, 65);
    cJSON_Delete(steps);
    free(text);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"five small tokenizers", test_small}, {"and back to the text", test_back},
        {"special tokens", test_special},      {"special tokens around plain text", test_mixed},
        {"MiniLM's sentences", test_minilm},   {"SmolLM2's vocabulary", test_smollm},
        {"single steps", test_steps},          CU_TEST_INFO_NULL,
    };
    int status = check_run("tokenizer.json", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
