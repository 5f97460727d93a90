/* Running out of memory: loading a vocabulary and encoding a text with the first, second, third, ... allocation
 * failing. Each must end with an error and give back all that it had. */
#include "check.h"
#include "graph/gguf.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 /* as GCC says it */
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
int main(void) {
    printf("skipped: the address sanitizer has its own malloc\n");
    return CHECK_SKIPPED;
}
#else

#include "engine/tokenizer.h"
#include "small_vocab.h"
#include "tiny_model.h"

/* glibc lets a program replace malloc (its manual, "Replacing malloc"); its own keep these names. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

#define EXPORTED __attribute__((visibility("default")))

static bool counting;
static long left, alive; /* allocations until one fails; allocated and not yet freed */

static bool fails(void) { return counting && left-- == 0; }

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): glibc's have reserved ones */
EXPORTED void *malloc(size_t n) {
    void *p = fails() ? NULL : __libc_malloc(n);
    if (counting && p) alive++;
    return p;
}
EXPORTED void *calloc(size_t n, size_t size) {
    void *p = fails() ? NULL : __libc_calloc(n, size);
    if (counting && p) alive++;
    return p;
}
EXPORTED void *realloc(void *old, size_t n) {
    void *p = fails() ? NULL : __libc_realloc(old, n);
    if (counting && p && !old) alive++;
    return p;
}
EXPORTED void free(void *p) {
    if (counting && p) alive--;
    __libc_free(p);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* A GGUF file, or a tokenizer.json. */
typedef struct Source {
    uint8_t *bytes; /* owned */
    size_t size;
    bool json;
} Source;

/* All that a text goes through; the text has a special token and a long word. */
static int run(const Source *s, const char *text, Err *e) {
    ModelFile *g = NULL;
    Tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int failed =
        s->json ? tokenizer_from_json_memory((const char *)s->bytes, s->size, "memory.json", INT64_MAX, &t, e)
                : gguf_from_memory(s->bytes, s->size, s->size, "memory.gguf", &g, e) || tokenizer_from_gguf(g, &t, e);
    failed = failed || tokenizer_encode(t, text, strlen(text), true, true, &ids, &n, e);
    free(ids);
    tokenizer_free(t);
    model_file_close(g);
    return failed;
}

/* Every allocation fails once; takes over the source. From the 500th on every 13th: a vocabulary in JSON has thousands.
 */
static void check(Source s, int at_least) {
    char text[1100] = "<|im_start|>user\n<s>h\xC3\xA9 12 ";
    size_t start = strlen(text);
    for (size_t i = 0; i < 1000; i++) text[start + i] = (char)('a' + i % 26);
    int failures = 0;
    for (long at = 0;; at += at < 500 ? 1 : 13) {
        Err e = {""};
        left = at;
        alive = 0;
        counting = true;
        int failed = run(&s, text, &e);
        counting = false;
        CU_ASSERT_EQUAL(alive, 0);
        if (left >= 0) { /* the end was reached before the failure */
            CU_ASSERT_EQUAL(failed, 0);
            break;
        }
        if (failed) CU_ASSERT(e.msg[0] && !strchr(e.msg, '\n'));
        failures += failed != 0;
    }
    CU_ASSERT(failures > at_least); /* not all: code compiled by PCRE2 at run time can be done without */
    free(s.bytes);
}

static void test_bytes(void) {
    GgufWriter w;
    Source s = {0};
    gw_init(&w, 3, 32);
    gw_strings(&w, "some", 2, (const char *const[]){"a", "b"});
    gw_tensor(&w, "x", 0, 1, (uint64_t[]){1}, "1234", 4);
    tiny_vocabulary(&w, 600);
    s.bytes = gw_finish(&w, &s.size);
    gw_free(&w);
    check(s, 20);
}

static void test_kinds(void) {
    static const SmallVocab *const vocabularies[] = {&small_spm, &small_text_bpe, &small_ugm, &small_wpm};
    for (int i = 0; i < 4; i++) {
        Source s = {0};
        s.bytes = small_gguf(vocabularies[i], &s.size);
        check(s, 10);
    }
}

static void test_json(void) {
    static const char *const names[] = {"tok_byte_level.json", "tok_byte_fallback.json", "tok_unigram.json",
                                        "tok_wordpiece.json", "tok_suffixed.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", names[i]));
        FILE *f = fopen(path, "rb");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        enum { MOST = 1 << 16 };
        Source s = {.bytes = malloc(MOST), .json = true};
        if (!s.bytes) abort();
        s.size = fread(s.bytes, 1, MOST, f);
        fclose(f);
        CU_ASSERT_FATAL(s.size > 0 && s.size < MOST);
        check(s, 500);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"byte-level BPE", test_bytes},
        {"GGUF's other kinds", test_kinds},
        {"tokenizer.json", test_json},
        CU_TEST_INFO_NULL,
    };
    return check_run("out of memory", tests);
}
#endif
