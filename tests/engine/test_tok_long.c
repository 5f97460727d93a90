/* Long texts (a quarter of a megabyte) of one letter, of white space, of emoji take seconds at most with every
 * pre-tokenizer and every kind of tokenizer: nothing looks at all of what is left again and again. */
#include <time.h>

#include "engine/pretokenizer_families.h"
#include "small_vocab.h"
#include "token_cases.h"

enum {
    LONG = 1 << 18,
    MOST_SECONDS = 3
}; /* bytes; of the processor's time: a fifth is much, quadratic is 20 or more */

static const char *const units[] = {
    "a",    " ",    "1", "\n",       "'",        "A",   "ab ", "-", "\xF0\x9F\x98\x80", "\xE4\xB8\xAD",
    "\r\n", "\t\t", "<", "\xCC\x81", "\xC2\xA0", "1 \n"};
enum { UNITS = sizeof units / sizeof *units };

/* The unit again and again, and an "x" or a "1" at the end, where patterns find that they looked in vain. */
static char *repeat(const char *unit, char last, size_t *size) {
    size_t n = strlen(unit), times = LONG / n;
    char *text = malloc(LONG + 1);
    if (!text) abort();
    for (size_t i = 0; i < times; i++) memcpy(text + i * n, unit, n);
    *size = times * n;
    if (last) text[(*size)++] = last;
    return text;
}

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void check_seconds(double begin, const char *what, const char *unit) {
    double took = seconds() - begin;
    if (took < MOST_SECONDS) return;
    fprintf(stderr, "%s: %.1f s for a long run of \"%s\"\n", what, took, unit);
    CU_FAIL("too slow");
}

static void test_pretokenizers(void) {
    for (int f = 0; f < pretokenizer_n_families; f++) {
        const char *names = pretokenizer_families[f].names;
        Pretokenizer *p;
        Err e;
        CU_ASSERT_EQUAL_FATAL(pretokenizer_create((Text){names, strcspn(names, " ")}, &p, &e), 0);
        for (int u = 0; u < UNITS; u++) {
            size_t size, n = 0;
            const size_t *ends = NULL;
            char *text = repeat(units[u], 'x', &size);
            double begin = seconds();
            CU_ASSERT_EQUAL(pretokenizer_split(p, text, size, &ends, &n, &e), 0);
            CU_ASSERT(n > 0 && ends[n - 1] == size);
            check_seconds(begin, names, units[u]);
            free(text);
        }
        pretokenizer_free(p);
    }
}

static void encode_all(Tokenizer *t, const char *what) {
    for (int u = 0; u < UNITS; u++)
        for (int last = 0; last < 2; last++) {
            size_t size, n = 0;
            int32_t *ids = NULL;
            Err e;
            char *text = repeat(units[u], last ? '1' : 0, &size);
            double begin = seconds();
            CU_ASSERT_EQUAL(tokenizer_encode(t, text, size, true, true, &ids, &n, &e), 0);
            check_seconds(begin, what, units[u]);
            free(ids);
            free(text);
        }
}

static void encode_with(const SmallVocab *v) {
    size_t size;
    uint8_t *bytes = small_gguf(v, &size);
    Loaded l;
    Err e;
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, size, size, "vocab.gguf", &l.g, &e), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_from_gguf(l.g, &l.t, &e), 0);
    encode_all(l.t, v->model);
    unload(&l);
    free(bytes);
}

static void test_gguf(void) {
    encode_with(&small_spm);
    encode_with(&small_text_bpe);
    encode_with(&small_ugm);
    encode_with(&small_wpm);
    /* Gemma's runs of spaces, which begin with each other. */
    static const char spaces[] = "                        ";
    SmallVocab v = small_spm;
    for (int i = 17; i < 32 - 1; i++) {
        v.tokens[i].text = spaces + sizeof spaces - 1 - (i - 15);
        v.tokens[i].type = 4;
    }
    encode_with(&v);
}

static void test_json(void) {
    static const char *const names[] = {"byte_level", "byte_fallback", "unigram", "wordpiece", "suffixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[40];
        Loaded l;
        snprintf(name, sizeof name, "tok_%s.json", names[i]);
        CU_ASSERT_FATAL(load("SHEAF_FIXTURES", name, &l));
        encode_all(l.t, name);
        unload(&l);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"every pre-tokenizer", test_pretokenizers},
        {"kinds of vocabularies in GGUF", test_gguf},
        {"tokenizer.json", test_json},
        CU_TEST_INFO_NULL,
    };
    return check_run("long texts", tests);
}
