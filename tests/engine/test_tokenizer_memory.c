/* Running out of memory: loading a vocabulary and encoding a text with the first, second, third, ... allocation
 * failing. Each must end with an error and give back all that it had. */
#include "check.h"

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

/* All that a text goes through; the text has a special token and a long word. */
static int run(const uint8_t *bytes, size_t size, const char *text, Err *e) {
    Gguf *g = NULL;
    Tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int failed = gguf_from_memory(bytes, size, size, "memory.gguf", &g, e) || tokenizer_from_gguf(g, &t, e) ||
                 tokenizer_encode(t, text, strlen(text), true, true, &ids, &n, e);
    free(ids);
    tokenizer_free(t);
    gguf_close(g);
    return failed;
}

static void test_failing(void) {
    GgufWriter w;
    size_t size;
    gw_init(&w, 3, 32);
    gw_strings(&w, "some", 2, (const char *const[]){"a", "b"});
    gw_tensor(&w, "x", 0, 1, (uint64_t[]){1}, "1234", 4);
    tiny_vocabulary(&w, 600);
    uint8_t *bytes = gw_finish(&w, &size);
    gw_free(&w);
    char text[1100] = "<|im_start|>user\n";
    size_t start = strlen(text);
    for (size_t i = 0; i < 1000; i++) text[start + i] = (char)('a' + i % 26);
    int failures = 0;
    for (long at = 0;; at++) {
        Err e = {""};
        left = at;
        alive = 0;
        counting = true;
        int failed = run(bytes, size, text, &e);
        counting = false;
        CU_ASSERT_EQUAL(alive, 0);
        if (left >= 0) { /* the end was reached before the failure */
            CU_ASSERT_EQUAL(failed, 0);
            break;
        }
        if (failed) CU_ASSERT(e.msg[0] && !strchr(e.msg, '\n'));
        failures += failed != 0;
    }
    CU_ASSERT(failures > 20); /* not all: code compiled by PCRE2 at run time can be done without */
    free(bytes);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"each allocation fails once", test_failing}, CU_TEST_INFO_NULL};
    return check_run("out of memory", tests);
}
#endif
