/* Tokenizers of Hugging Face's folders as GGUF has them. The names of pre-tokenizers are those that llama.cpp's
 * convert_hf_to_gguf.py gives to the models whose tokenizer.json has the pattern. */
#include "base/strbuf.h"
#include "engine/hf_probe.h"
#include "engine/hf_to_gguf.h"
#include "engine/utf8.h"
#include "engine/vocab.h"
#include "graph/model_file_internal.h"
#include "token_cases.h"

static bool skipped;

/* A model of which there is nothing but a tokenizer.json. */
static ModelFile *model_with(const char *json, size_t size) {
    Err e;
    ModelFile *g = model_file_new("some", "safetensors", &e);
    if (!g || !(g->values = calloc(2, sizeof *g->values))) abort();
    static const uint32_t ends[] = {1, 2};
    g->values[0] =
        (MetaValue){.key = hf_string("tokenizer.huggingface.json"), .type = META_STRING, .v.s = {json, size}};
    g->values[1] = (MetaValue){.key = hf_string("sheaf.end_token_ids"),
                               .type = META_ARRAY,
                               .v.a = {.type = META_U32, .n = 2, .data = (const uint8_t *)ends}};
    g->n_values = 2;
    if (model_file_map_values(g, &e)) abort();
    return g;
}

typedef struct Made {
    char *json;
    ModelFile *from, *gguf; /* gguf: NULL: it cannot be, and why.msg says why */
    Tokenizer *theirs, *ours;
    Err why;
} Made;

/* Takes the text over. */
static Made make(char *json, size_t size, int64_t rows) {
    Made m = {.json = json, .from = model_with(json, size)};
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(tokenizer_from_json_memory(json, size, "theirs", rows, &m.theirs, &e), 0);
    int failed = hf_to_gguf(m.from, rows, &m.gguf, &m.why, &e);
    if (failed || (m.gguf && tokenizer_from_gguf(m.gguf, &m.ours, &e))) {
        fprintf(stderr, "%s\n", e.msg);
        CU_FAIL_FATAL("no tokenizer");
    }
    return m;
}

static void unmake(Made *m) {
    tokenizer_free(m->theirs);
    tokenizer_free(m->ours);
    model_file_close(m->gguf);
    model_file_close(m->from);
    free(m->json);
}

static bool meta_is(const ModelFile *g, const char *key, const char *value) {
    Text t = {"", 0};
    Err e;
    return !meta_get_string(g, key, true, &t, &e) && hf_is(t, value);
}

static int64_t meta_number(const ModelFile *g, const char *key) {
    const MetaValue *v = meta_find(g, key);
    return v ? v->v.i : -1;
}

/* A real text, and the file's own tokens, are the same ids in both. */
static void check_same(Made *m) {
    size_t size, n[2];
    int32_t *ids[2];
    Err e;
    char *text = read_from("SHEAF_FIXTURES", "wiki_small.txt", &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(m->theirs, text, size, true, true, &ids[0], &n[0], &e), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(m->ours, text, size, true, true, &ids[1], &n[1], &e), 0);
    CU_ASSERT(n[0] == n[1] && n[0] > 100 && !memcmp(ids[0], ids[1], n[0] * sizeof(int32_t)));
    for (size_t i = 0; i < n[1]; i++) {
        char a[256], b[256];
        size_t size_a = tokenizer_bytes(m->theirs, ids[1][i], true, a, sizeof a);
        CU_ASSERT_FATAL(size_a == tokenizer_bytes(m->ours, ids[1][i], true, b, sizeof b) && !memcmp(a, b, size_a));
    }
    free(ids[0]);
    free(ids[1]);
    free(text);
}

static Made make_fixture(const char *name, int64_t rows) {
    size_t size;
    char *json = read_from("SHEAF_FIXTURES", name, &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    return make(json, size, rows);
}

/* ---- whole tokenizers -------------------------------------------------------------------------------------------- */

static void test_byte_level(void) {
    Made m = make_fixture("tok_byte_level.json", 710);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.gguf);
    CU_ASSERT(meta_is(m.gguf, "tokenizer.ggml.model", "gpt2"));
    CU_ASSERT(meta_is(m.gguf, "tokenizer.ggml.pre", "llama-bpe"));
    CU_ASSERT_EQUAL(tokenizer_size(m.ours), 710); /* 703 of the file, and names for the rest of the embedding */
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.bos_token_id"), 700);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.eos_token_id"), 701);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.add_bos_token"), 1);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.add_eos_token"), 1);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.eot_token_id"), 2);
    const MetaValue *tokens = meta_find(m.gguf, "tokenizer.ggml.tokens");
    CU_ASSERT(hf_is(tokens->v.a.strings[709], "[PAD709]"));
    CU_ASSERT_EQUAL(tokenizer_bytes(m.ours, 709, true, NULL, 0), 0); /* and no text */
    check_same(&m);
    unmake(&m);
}

/* This one was trained as it is: each token has one merge, where SentencePiece would have several. */
static void test_trained_pieces(void) {
    Made m = make_fixture("tok_byte_fallback.json", 910);
    CU_ASSERT_PTR_NULL(m.gguf);
    CU_ASSERT_PTR_NOT_NULL(strstr(m.why.msg, "merges do not follow from its tokens"));
    unmake(&m);
}

/* SentencePiece's scores th > he > an > nd > the = and, as Hugging Face's converter (convert_slow_tokenizer.py) makes
 * merges of them: every way to cut a piece in two, by score and then by the length of the left side. */
#define SPACE "\xE2\x96\x81"
static char *pieces_json(size_t *size) {
    static const char *const pieces[] = {SPACE, "t", "h", "e", "a", "n", "d", "th", "he", "an", "nd", "the", "and"};
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    StrBuf s = {0};
    strbuf_puts(&s, "{\"added_tokens\":[");
    for (int i = 0; i < 3; i++)
        strbuf_printf(&s,
                      "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"lstrip\":false,\"rstrip\":false,"
                      "\"single_word\":false,\"normalized\":false}",
                      i ? "," : "", i, special[i]);
    strbuf_puts(
        &s, "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" SPACE
            "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}]},"
            "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SPACE
            "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
            "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
            "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}},"
            "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"fuse_unk\":true,"
            "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (unsigned b = 0; b < 256; b++) strbuf_printf(&s, ",\"<0x%02X>\":%u", b, 3 + b);
    for (int i = 0; i < PIECES; i++) strbuf_printf(&s, ",\"%s\":%d", pieces[i], 259 + i);
    strbuf_puts(&s, "},\"merges\":[\"t h\",\"h e\",\"a n\",\"n d\",\"th e\",\"an d\",\"t he\",\"a nd\"]}}");
    char *text;
    Err e;
    *size = s.len;
    if (strbuf_take(&s, &text, &e)) abort();
    return text;
}

static void test_pieces(void) {
    static const float scores[] = {0, 0, 0, 0, 0, 0, 0, -1, -2, -3, -4, -5, -5};
    size_t size;
    char *json = pieces_json(&size);
    Made m = make(json, size, 272);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.gguf);
    CU_ASSERT(meta_is(m.gguf, "tokenizer.ggml.model", "llama"));
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.add_space_prefix"), 1);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.unknown_token_id"), 0);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.bos_token_id"), 1);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.add_eos_token"), 0);
    const MetaValue *score = meta_find(m.gguf, "tokenizer.ggml.scores"),
                    *type = meta_find(m.gguf, "tokenizer.ggml.token_type");
    for (uint64_t i = 0; i < 13; i++) CU_ASSERT_EQUAL(meta_array_f64(score, 259 + i), (double)scores[i]);
    CU_ASSERT_EQUAL(meta_array_i64(type, 0), TOKEN_UNKNOWN);
    CU_ASSERT_EQUAL(meta_array_i64(type, 1), TOKEN_CONTROL);
    CU_ASSERT_EQUAL(meta_array_i64(type, 3), TOKEN_BYTE);
    CU_ASSERT_EQUAL(meta_array_i64(type, 271), TOKEN_NORMAL);
    check_same(&m);
    unmake(&m);
}

/* BERT's words have a mark at their beginning in a GGUF, in place of one at the others'. */
static void test_words(void) {
    char *json, path[4096];
    size_t size;
    if (!check_path(path, sizeof path, "SHEAF_DATA", "minilm/tokenizer.json") || !(json = read_file(path, &size))) {
        skipped = true;
        return;
    }
    Made m = make(json, size, 30522);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.gguf);
    CU_ASSERT(meta_is(m.gguf, "tokenizer.ggml.model", "bert"));
    const MetaValue *tokens = meta_find(m.gguf, "tokenizer.ggml.tokens");
    CU_ASSERT(hf_is(tokens->v.a.strings[101], "[CLS]"));
    CU_ASSERT(hf_is(tokens->v.a.strings[1996], SPACE "the"));
    CU_ASSERT(hf_is(tokens->v.a.strings[2075], "ing"));
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.seperator_token_id"), 102);
    CU_ASSERT_EQUAL(meta_number(m.gguf, "tokenizer.ggml.unknown_token_id"), 100);
    size_t n[2];
    int32_t *ids[2];
    Err e;
    static const char text[] = "Tokenization of \xC3\xBC"
                               "ber-long words, e.g. 12345!";
    CU_ASSERT_EQUAL(tokenizer_encode(m.theirs, text, sizeof text - 1, true, true, &ids[0], &n[0], &e), 0);
    CU_ASSERT_EQUAL(tokenizer_encode(m.ours, text, sizeof text - 1, true, true, &ids[1], &n[1], &e), 0);
    CU_ASSERT(n[0] == n[1] && n[0] > 10 && !memcmp(ids[0], ids[1], n[0] * sizeof(int32_t)));
    free(ids[0]);
    free(ids[1]);
    unmake(&m);
}

/* ---- what GGUF cannot say ---------------------------------------------------------------------------------------- */

#define BYTE_LEVEL(use_regex)                                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" use_regex "}"
#define SPLIT(regex)                                                                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"

/* A tokenizer of the 256 letters of bytes and a merge, with these parts. */
static char *letters_json(const char *pre, const char *normalizer, const char *post, size_t *size) {
    ByteLetters letters;
    StrBuf s = {0};
    byte_letters_init(&letters);
    strbuf_printf(
        &s, "{\"pre_tokenizer\":%s,\"normalizer\":%s,\"post_processor\":%s,\"model\":{\"type\":\"BPE\",\"vocab\":{",
        pre, normalizer, post);
    for (unsigned b = 0; b < 256; b++) {
        strbuf_puts(&s, b ? "," : "");
        strbuf_json(&s, letters.utf8[b], letters.size[b]);
        strbuf_printf(&s, ":%u", b);
    }
    strbuf_puts(&s, ",\"ab\":256},\"merges\":[[\"a\",\"b\"]]}}");
    char *text;
    Err e;
    *size = s.len;
    if (strbuf_take(&s, &text, &e)) abort();
    return text;
}

static void test_refused(void) {
    static const struct {
        const char *pre, *normalizer, *post, *why; /* NULL: it can be */
    } cases[] = {
        {BYTE_LEVEL("true"), "null", "null", NULL},
        {BYTE_LEVEL("true"), "{\"type\":\"NFC\"}", "null", NULL},
        {BYTE_LEVEL("true"), "{\"type\":\"Lowercase\"}", "null", "other tokens for a text with"},
        {BYTE_LEVEL("true"), "{\"type\":\"NFKC\"}", "null", "other tokens for a text with"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true}", "null", "null",
         "no pre-tokenizer"},
        {SEQUENCE(SPLIT("[abc]+") "," BYTE_LEVEL("false")), "null", "null", "no pre-tokenizer"},
        {BYTE_LEVEL("true"), "null",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}]"
         ","
         "\"special_tokens\":{\"x\":{\"ids\":[1,2]}}}",
         "more than one token before"},
        {"null", "null", "null", "no BPE without bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        char *json = letters_json(cases[i].pre, cases[i].normalizer, cases[i].post, &size);
        Made m = make(json, size, 257);
        CU_ASSERT_EQUAL(m.gguf != NULL, cases[i].why == NULL);
        if (cases[i].why && !strstr(m.why.msg, cases[i].why)) {
            fprintf(stderr, "case %zu: %s\n", i, m.why.msg);
            CU_FAIL("another reason");
        }
        unmake(&m);
    }
}

static void test_unigram(void) {
    Made m = make_fixture("tok_unigram.json", 280);
    CU_ASSERT_PTR_NULL(m.gguf);
    CU_ASSERT_PTR_NOT_NULL(strstr(m.why.msg, "Unigram"));
    unmake(&m);
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

#define DIGITS(many)                                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" many                               \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static void test_names(void) {
    static const struct {
        const char *pre;
        bool ignore_merges;
        const char *name;
    } cases[] = {
        {BYTE_LEVEL("true"), false, "gpt-2"},
        {SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL("true")), false, "smollm"},
        {SEQUENCE(SPLIT(DIGITS("{1,3}")) "," BYTE_LEVEL("false")), true, "llama-bpe"},
        {SEQUENCE(SPLIT(DIGITS("{1,3}")) "," BYTE_LEVEL("false")), false, "dbrx"},
        {SEQUENCE(SPLIT(DIGITS("")) "," BYTE_LEVEL("false")), false, "qwen2"},
        {SEQUENCE(SPLIT("\\\\p{N}{1,3}") "," SPLIT("[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+") "," SPLIT(
             "[!\\\"#$%&'()*+,\\\\-./"
             ":;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~]["
             "A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p{P}"
             "\\\\p{S}]?"
             "[\\\\p{L}\\\\p{M}]+| "
             "?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|"
             "\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|"
             "\\\\s+") "," BYTE_LEVEL("false")),
         false, "deepseek-v3"},
        {SEQUENCE(SPLIT("[a-z]+") "," BYTE_LEVEL("false")), false, ""},
        {"{\"type\":\"Whitespace\"}", false, ""},
    };
    StrBuf text = {0};
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(hf_probe_text(&text, &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *pre;
        Text name;
        CU_ASSERT_EQUAL_FATAL(hf_json_parse(cases[i].pre, strlen(cases[i].pre), &pre, &e), 0);
        CU_ASSERT_EQUAL(hf_probe_pretokenizer(pre, (Text){text.data, text.len}, cases[i].ignore_merges, &name, &e), 0);
        if (!hf_is(name, cases[i].name)) {
            fprintf(stderr, "case %zu: %.*s, not %s\n", i, (int)name.size, name.data, cases[i].name);
            CU_FAIL("name");
        }
        cJSON_Delete(pre);
    }
    strbuf_free(&text);
}

static const CU_TestInfo tests[] = {{"byte-level BPE", test_byte_level},
                                    {"SentencePiece's BPE", test_pieces},
                                    {"BPE that SentencePiece would not have", test_trained_pieces},
                                    {"WordPiece", test_words},
                                    {"Unigram", test_unigram},
                                    {"what GGUF cannot say", test_refused},
                                    {"names of pre-tokenizers", test_names},
                                    CU_TEST_INFO_NULL};
int main(void) {
    int status = check_run("tokenizers of folders in GGUF", tests);
    if (status || !skipped) return status;
    puts("skipped: WordPiece: SHEAF_DATA/minilm is not there");
    return CHECK_SKIPPED;
}
