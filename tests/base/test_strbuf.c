/* Growing strings and JSON escaping. UTF-8 cases: the table of well-formed sequences in the Unicode standard (3-7). */
#include <float.h>

#include "base/strbuf.h"
#include "check.h"

static void test_grow(void) {
    Err e;
    StrBuf s = {0};
    char *text;
    for (int i = 0; i < 1000; i++) strbuf_printf(&s, "%d,", i);
    strbuf_puts(&s, "");
    strbuf_add(&s, "end\0!", 5);
    CU_ASSERT(s.len == 10 * 2 + 90 * 3 + 900 * 4 + 5);
    CU_ASSERT_FATAL(strbuf_take(&s, &text, &e) == 0);
    CU_ASSERT(!strncmp(text, "0,1,2,3,", 8) && !memcmp(text + 3890 - 4, "999,end\0!", 10));
    CU_ASSERT(s.data == NULL && s.len == 0);
    free(text);
    CU_ASSERT_FATAL(strbuf_take(&s, &text, &e) == 0);
    CU_ASSERT_STRING_EQUAL(text, "");
    free(text);
}

static void check_json(const char *bytes, size_t n, const char *want) {
    Err e;
    StrBuf s = {0};
    char *text;
    strbuf_json(&s, bytes, n);
    CU_ASSERT_FATAL(strbuf_take(&s, &text, &e) == 0);
    if (strcmp(text, want) != 0) printf("    got %s, want %s\n", text, want);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}
#define JSON(literal, want) check_json(literal, sizeof(literal) - 1, want)
#define BAD                 "\xef\xbf\xbd"

static void test_json(void) {
    JSON("", "\"\"");
    JSON("plain", "\"plain\"");
    JSON("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
    JSON("\n\r\t\b\f\x01\x1f\x7f\0z", "\"\\n\\r\\t\\b\\f\\u0001\\u001f\\u007f\\u0000z\"");
    JSON("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    JSON("\xf4\x8f\xbf\xbf \xed\x9f\xbf \xee\x80\x80", "\"\xf4\x8f\xbf\xbf \xed\x9f\xbf \xee\x80\x80\"");
    JSON("\xff", "\"" BAD "\"");
    JSON("a\x80z", "\"a" BAD "z\"");
    JSON("\xc0\xaf", "\"" BAD BAD "\"");                 /* overlong "/" */
    JSON("\xe0\x80\x80", "\"" BAD BAD BAD "\"");         /* overlong NUL */
    JSON("\xed\xa0\x80", "\"" BAD BAD BAD "\"");         /* a surrogate */
    JSON("\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""); /* above U+10FFFF */
    JSON("\xe2\x82", "\"" BAD BAD "\"");                 /* cut short */
    JSON("\xf0\x9f\x98", "\"" BAD BAD BAD "\"");
    JSON("\xe2\x82\"", "\"" BAD BAD "\\\"\""); /* the quote is not swallowed */
}

static void test_json_text(void) {
    Err e;
    StrBuf s = {0};
    char *text;
    strbuf_json_text(&s, "x");
    strbuf_puts(&s, ":");
    strbuf_json_text(&s, NULL);
    CU_ASSERT_FATAL(strbuf_take(&s, &text, &e) == 0);
    CU_ASSERT_STRING_EQUAL(text, "\"x\":null");
    free(text);
}

/* Every float reads back; nearby ones differ in nine digits at most (C17 5.2.4.2.2, FLT_DECIMAL_DIG). */
static void test_float(void) {
    const float some[] = {0.0f, 0.5f, 0.1f, -1.0f / 3, 16777217.0f, FLT_MAX, FLT_MIN, 0x1p-149f, 0.123456793f};
    char *text;
    Err e;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        StrBuf s = {0};
        strbuf_float(&s, some[i]);
        CU_ASSERT_FATAL(strbuf_take(&s, &text, &e) == 0);
        CU_ASSERT(strtof(text, NULL) == some[i] && strlen(text) < 16);
        if (some[i] == 0.1f) CU_ASSERT_STRING_EQUAL(text, "0.1");
        free(text);
    }
}

static void test_no_memory(void) {
    Err e;
    char *text;
    StrBuf s = {.len = SIZE_MAX - 3}; /* as if that much were there: the next byte cannot be had */
    strbuf_add(&s, "abcdef", 6);
    CU_ASSERT(s.failed);
    strbuf_puts(&s, "more");
    CU_ASSERT(strbuf_take(&s, &text, &e) == -1 && text == NULL);
    CU_ASSERT(!s.failed && s.len == 0);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"grow", test_grow},           {"json", test_json},
                                        {"json text", test_json_text}, {"floats", test_float},
                                        {"no memory", test_no_memory}, CU_TEST_INFO_NULL};
    return check_run("strbuf", tests);
}
