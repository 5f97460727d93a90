/* tokenizer.json files that are wrong or have what is not known: each is refused with a line that names file and cause;
 * and files cut short or with a byte changed, which load or are refused but do nothing else. */
#include "check.h"
#include "engine/onig.h"
#include "engine/tokenizer.h"

/* A document from its parts; NULL: the part of a sound one. */
typedef struct Parts {
    const char *top, *added, *normalizer, *pre, *post, *decoder, *model;
} Parts;

#define BPE(more) "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<u>\":3}," more "}"
#define MERGES    "\"merges\":[\"a b\"]"
#define ADDED(id, content)                                                                                             \
    "{\"id\":" id ",\"content\":" content                                                                              \
    ",\"special\":true,\"lstrip\":false,\"rstrip\":false,\"single_word\":false,\"normalized\":false}"

static char *document(const Parts *p, char *buf, size_t size) {
    snprintf(buf, size,
             "{%s\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
             "\"decoder\":%s,\"model\":%s}",
             p->top ? p->top : "", p->added ? p->added : "[" ADDED("4", "\"<s>\"") "]",
             p->normalizer ? p->normalizer : "null", p->pre ? p->pre : "null", p->post ? p->post : "null",
             p->decoder ? p->decoder : "null", p->model ? p->model : BPE(MERGES));
    return buf;
}

static int load(const char *text, size_t n, Tokenizer **t, Err *e) {
    e->msg[0] = 0;
    return tokenizer_from_json_memory(text, n, "some.json", INT64_MAX, t, e);
}

static void refused(const char *text, const char *why) {
    Tokenizer *t = NULL;
    Err e;
    CU_ASSERT_EQUAL(load(text, strlen(text), &t, &e), -1);
    if (t || !strstr(e.msg, why) || strncmp(e.msg, "some.json: ", 11) || strchr(e.msg, '\n')) {
        fprintf(stderr, "\"%s\" should say \"%s\"\n", e.msg, why);
        CU_FAIL("the error");
    }
    tokenizer_free(t);
}

static void refused_parts(Parts p, const char *why) {
    char buf[2048];
    refused(document(&p, buf, sizeof buf), why);
}

static void test_sound(void) {
    char buf[2048];
    Parts p = {0};
    Tokenizer *t;
    Err e;
    document(&p, buf, sizeof buf);
    CU_ASSERT_EQUAL_FATAL(load(buf, strlen(buf), &t, &e), 0);
    int32_t *ids;
    size_t n;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, "ab<s>ba", 7, true, true, &ids, &n, &e), 0);
    CU_ASSERT(n == 4 && ids[0] == 2 && ids[1] == 4 && ids[2] == 1 && ids[3] == 0);
    free(ids);
    CU_ASSERT(tokenizer_bos(t) == -1 && tokenizer_size(t) == 5);
    tokenizer_free(t);
    /* a character that is left out lets its neighbours merge */
    p = (Parts){.added = "[]",
                .model = "{\"type\":\"BPE\",\"vocab\":{\"\\u2581\":0,\"\\u2581\\u2581\":1},"
                         "\"merges\":[\"\\u2581 \\u2581\"]}"};
    document(&p, buf, sizeof buf);
    CU_ASSERT_EQUAL_FATAL(load(buf, strlen(buf), &t, &e), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, "\xE2\x96\x81x\xE2\x96\x81", 7, true, true, &ids, &n, &e), 0);
    CU_ASSERT(n == 1 && ids[0] == 1);
    free(ids);
    tokenizer_free(t);
}

static void test_no_json(void) {
    refused("", "no JSON");
    refused("null", "the file is no object");
    refused("[]", "the file is no object");
    refused("{\"model\":{}} x", "offset 13");
    refused("{\"model\":", "no JSON");
    refused("{}", "\"model\" is missing");
    refused("{\"model\":\"\xFF\"}", "offset 10");
    refused("{\"a\":\"\\u0000\"}", "U+0000");
    Tokenizer *t;
    Err e;
    CU_ASSERT_EQUAL(load("{}\0", 3, &t, &e), -1);
    CU_ASSERT_EQUAL(tokenizer_from_json("/nowhere/tokenizer.json", &t, &e), -1);
    CU_ASSERT(!t && strstr(e.msg, "/nowhere/tokenizer.json: "));
    CU_ASSERT_EQUAL(tokenizer_from_json("/", &t, &e), -1);
    enum { DEPTH = 200000 };
    char *deep = malloc(DEPTH + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(deep);
    memset(deep, '[', DEPTH);
    deep[DEPTH] = 0;
    refused(deep, "no JSON");
    free(deep);
}

static void test_model(void) {
    static const struct {
        const char *model, *why;
    } cases[] = {
        {"[]", "model.vocab is neither"},
        {"null", "\"model\" is missing"},
        {"{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}", "model \"WordLevel\" is not supported"},
        {"{\"type\":7,\"vocab\":{\"a\":0}}", "\"type\" is no string"},
        {"{\"vocab\":{\"a\":0}}", "model \"(none)\""},
        {BPE(MERGES ",\"future\":1"), "model has \"future\""},
        {BPE(MERGES ",\"dropout\":0.1"), "dropout"},
        {BPE(MERGES ",\"unk_token\":\"<x>\""), "\"<x>\", which is no token"},
        {BPE(MERGES ",\"fuse_unk\":1"), "\"fuse_unk\" is neither true nor false"},
        {BPE("\"merges\":{}"), "\"merges\" is no list"},
        {BPE("\"merges\":[\"ab\"]"), "entry 0 is no two texts"},
        {BPE("\"merges\":[\"a b\",[\"a\"]]"), "entry 1 is no two texts"},
        {BPE("\"merges\":[[\"a\",2]]"), "entry 0"},
        {BPE("\"merges\":[\"a x\"]"), "its right side is no token"},
        {BPE("\"merges\":[[\"b\",\"a\"]]"), "what it makes is no token"},
        {"{\"type\":\"BPE\",\"merges\":[]}", "vocab is neither"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":1.5}}", "\"a\": an id is no whole number"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":-1}}", "an id is no whole number"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":1e300}}", "an id is no whole number"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":1e999}}", "an id is no whole number"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":\"0\"}}", "an id is no whole number"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":500000000}}", "far beyond"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":0}}", "stands for \"a\" and for \"b\""},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"a\":1}}", "are both \"a\""},
        {"{\"type\":\"Unigram\",\"vocab\":{\"a\":0}}", "no list of pieces"},
        {"{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}", "entry 0 has no score"},
        {"{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\",1e39]]}", "entry 1 has no score"},
        {"{\"type\":\"Unigram\",\"vocab\":[[1,-1]]}", "entry 0 is no piece"},
        {"{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}", "unk_id"},
        {"{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}", "\"unk_token\" is missing"},
        {"{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"[UNK]\"}", "which is no token"},
        {"{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\",\"max_input_chars_per_word\":-1}",
         "max_input_chars_per_word"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused_parts((Parts){.model = cases[i].model, .added = "[]"}, cases[i].why);
}

static void test_steps(void) {
    refused_parts((Parts){.normalizer = "{\"type\":\"Rot13\"}"}, "normalizer \"Rot13\" is not supported");
    refused_parts((Parts){.normalizer = "{}"}, "normalizer: \"type\" is missing");
    refused_parts((Parts){.normalizer = "7"}, "normalizer is no object");
    refused_parts((Parts){.normalizer = "{\"type\":\"NFC\",\"form\":1}"}, "normalizer NFC has \"form\"");
    refused_parts((Parts){.normalizer = "{\"type\":\"Strip\",\"strip_left\":true}"}, "\"strip_right\" is missing");
    refused_parts((Parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":{}}"}, "\"normalizers\" is no list");
    refused_parts((Parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"X\"}]}"}, "\"X\"");
    refused_parts((Parts){.normalizer = "{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"b\"}"}, "\"pattern\"");
    refused_parts((Parts){.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a\"},\"content\":\"b\"}"},
                  "normalizer Replace: PCRE2 refuses the pattern (a");
    refused_parts((Parts){.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\C\"},\"content\":\"b\"}"},
                  "PCRE2 refuses the pattern \\C"); /* half a character */
    refused_parts((Parts){.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A\"}"}, "base64");
    refused_parts((Parts){.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"}, "charsmap");
    refused_parts((Parts){.pre = "{\"type\":\"UnicodeScripts\"}"}, "pre_tokenizer \"UnicodeScripts\" is not supported");
    refused_parts(
        (Parts){.pre = "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Kept\",\"invert\":false}"},
        "behavior \"Kept\"");
    refused_parts((Parts){.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^a&&b]\"},\"behavior\":\"Isolated\","
                                 "\"invert\":false}"},
                  "intersection");
    refused_parts((Parts){.pre = "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"}, "not one character");
    refused_parts((Parts){.pre = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"},
                  "\"last\"");
    refused_parts((Parts){.pre = "{\"type\":\"Digits\"}"}, "\"individual_digits\" is missing");
    refused_parts((Parts){.post = "{\"type\":\"Other\"}"}, "post_processor \"Other\" is not supported");
    refused_parts((Parts){.post = "{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",5],\"sep\":[\"a\",0]}"},
                  "cls is no whole");
    refused_parts((Parts){.post = "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0]}"}, "\"sep\" is no token");
    refused_parts((Parts){.post = "{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[],\"special_tokens\":{}}"},
                  "no text");
    refused_parts((Parts){.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"},
                  "no ids for \"x\"");
    refused_parts((Parts){.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}"},
                  "\"A\"");
    refused_parts((Parts){.decoder = "{\"type\":\"CTC\"}"}, "decoder \"CTC\" is not supported");
    refused_parts((Parts){.decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\"}"}, "\"cleanup\" is missing");
}

static void test_others(void) {
    refused_parts((Parts){.top = "\"extra\":1,"}, "the file has \"extra\"");
    refused_parts((Parts){.added = "{}"}, "\"added_tokens\" is no list");
    refused_parts((Parts){.added = "[{\"id\":4}]"}, "\"content\" is missing");
    refused_parts((Parts){.added = "[" ADDED("-1", "\"x\"") "]"}, "id is no whole");
    refused_parts((Parts){.added = "[" ADDED("9e9", "\"x\"") "]"}, "whole number");
    refused_parts((Parts){.added = "[" ADDED("0", "\"x\"") "]"}, "stands for \"a\" and for \"x\"");
    refused_parts((Parts){.added = "[" ADDED("4", "\"a\"") "]"}, "are both \"a\"");
}

/* Patterns that mean the same here, and those that cannot be said. */
static void test_patterns(void) {
    static const struct {
        const char *from, *to; /* NULL: refused */
    } cases[] = {
        {"a+", "a+"},
        {"\\s", "[\\p{White_Space}]"},
        {"[^\\s\\d]", "[^\\p{White_Space}\\p{Nd}]"},
        {"[^\\S]", "[^\\P{White_Space}]"},
        {"[]a]", "[\\]a]"},
        {"[a[bc]d]", "[abcd]"},
        {"[[:digit:]]", "[\\p{Nd}]"},
        {"(?im:a)", "(?is:a)"},
        {"a{,2}", "a{0,2}"},
        {"\\u00e9", "\\x{00e9}"},
        {"\\\\s", "\\\\s"},
        {"\\", "\\"},
        {"[a&&b]", "(?:(?=[a])[b])"},
        {"[ab&&[^b]&&c]+", "(?:(?=[ab])(?=[^b])[c])+"},
        {"[\\p{L}&&[^\\p{Han}]]", "(?:(?=[\\p{L}])[^\\p{sc:Han}])"},
        {"\\P{Greek}\\p{^latin}", "\\P{sc:Greek}\\p{^sc:latin}"},
        {"\\p{Alphabetic}\\p{Lu}\\p{Nosuch}", "\\p{Alphabetic}\\p{Lu}\\p{Nosuch}"},
        {"[[^a]]", "[^a]"},
        {"[[^a", "[^a]"},
        {"[a&&", "(?:(?=[a])[])"},
        {"[^a&&b]", NULL},
        {"[a[b&&c]]", NULL},
        {"[a[^b]]", NULL},
        {"[[^a]b]", NULL},
        {"[\\W]", NULL},
        {"[[:graph:]]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        StrBuf out = {0};
        Err e = {""};
        int r = onig_translate(cases[i].from, strlen(cases[i].from), &out, &e);
        CU_ASSERT_EQUAL(r, cases[i].to ? 0 : -1);
        if (cases[i].to) {
            CU_ASSERT_STRING_EQUAL(out.data, cases[i].to);
        } else {
            CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "which is not supported"));
        }
        strbuf_free(&out);
    }
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* Loads or is refused; what loads encodes with ids that exist, or says why not. */
static bool survives(const char *text, size_t n) {
    Tokenizer *t;
    Err e;
    if (load(text, n, &t, &e)) {
        CU_ASSERT_FATAL(!strncmp(e.msg, "some.json: ", 11) && !strchr(e.msg, '\n'));
        return false;
    }
    static const char sample[] = "The cat's 12 w\xC3\xB6rd  <s> ab";
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (tokenizer_encode(t, sample, strlen(sample), true, true, &ids, &n_ids, &e)) n_ids = 0;
    for (size_t i = 0; i < n_ids; i++) {
        CU_ASSERT_FATAL(ids[i] >= 0 && ids[i] < tokenizer_size(t));
        (void)tokenizer_bytes(t, ids[i], true, NULL, 0);
    }
    free(ids);
    tokenizer_free(t);
    return true;
}

static const Parts full = {
    .added = "[" ADDED("4", "\"<s>\"") "," ADDED("5", "\"cat\"") "]",
    .normalizer =
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
        "\"\\\\s+\"},\"content\":\" \"},{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}]}",
    .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
           "\"first\",\"split\":true},{\"type\":\"Digits\",\"individual_digits\":true}]}",
    .post =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":"
        "{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[4]}}}",
    .decoder =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
        "\"stop\":0}]}",
    .model = BPE(MERGES ",\"unk_token\":\"<u>\",\"byte_fallback\":true"),
};

static void test_damaged(void) {
    char text[2048], other[2048];
    size_t n = strlen(document(&full, text, sizeof text)), loaded = 0;
    CU_ASSERT_FATAL(survives(text, n));
    for (size_t cut = 0; cut < n; cut++) {
        char *exact = malloc(cut ? cut : 1); /* so that a sanitizer sees a read past its end */
        CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
        memcpy(exact, text, cut);
        CU_ASSERT(!survives(exact, cut));
        free(exact);
    }
    static const uint8_t changes[] = {1, 2, 4, 8, 16, 32, 64, 128};
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < sizeof changes; i++) {
            memcpy(other, text, n);
            other[at] = (char)(other[at] ^ changes[i]);
            loaded += survives(other, n);
        }
    static const char *const put[] = {"null", "-1", "1e308", "[]", "{}", "\"\"", "true", "99999999999999999999"};
    for (size_t at = 0; at < n; at++) /* a value in place of each value */
        for (size_t i = 0; i < sizeof put / sizeof *put && strchr(":[,", text[at]); i++) {
            size_t end = at + 1;
            if (strchr("\"{[", text[end])) continue;
            while (end < n && !strchr(",]}", text[end])) end++;
            int size = snprintf(other, sizeof other, "%.*s%s%s", (int)at + 1, text, put[i], text + end);
            loaded += survives(other, (size_t)size);
        }
    CU_ASSERT(loaded > 0);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"a sound file", test_sound},    {"what is no JSON", test_no_json},
        {"models", test_model},          {"steps", test_steps},
        {"the rest", test_others},       {"patterns", test_patterns},
        {"damaged files", test_damaged}, CU_TEST_INFO_NULL,
    };
    return check_run("broken tokenizer.json", tests);
}
