/* What the program does to text before it prints it: characters cut by tokens, stop strings cut by tokens, JSON. */
#include <math.h>

#include "check.h"
#include "json.h"
#include "stop.h"
#include "utf8.h"

/* `in` through the filter in pieces of n bytes. */
static void expect_utf8(const char *in, size_t size, const char *expected) {
    for (size_t n = 1; n <= size + 1; n++) {
        Utf8 u = {0};
        StrBuf out = {0};
        for (size_t at = 0; at < size; at += n) utf8_feed(&u, in + at, size - at < n ? size - at : n, &out);
        utf8_end(&u, &out);
        CU_ASSERT_EQUAL(out.len, strlen(expected));
        CU_ASSERT_STRING_EQUAL(out.len ? out.data : "", expected);
        strbuf_free(&out);
    }
}
#define FFFD                      "\xEF\xBF\xBD"
#define EXPECT_UTF8(in, expected) expect_utf8(in, sizeof in - 1, expected)

static void characters_come_whole(void) {
    EXPECT_UTF8("plain", "plain");
    EXPECT_UTF8("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    Utf8 u = {0};
    StrBuf out = {0};
    utf8_feed(&u, "a\xF0\x9F\x98", 4, &out);
    CU_ASSERT_STRING_EQUAL(out.data, "a"); /* three of four bytes are held */
    utf8_feed(&u, "\x80", 1, &out);
    CU_ASSERT_STRING_EQUAL(out.data, "a\xF0\x9F\x98\x80");
    strbuf_free(&out);
}

/* The Unicode Standard 15.0, section 3.9, tables 3-8 to 3-11: one U+FFFD for each maximal subpart. */
static void what_is_no_utf8_is_replaced(void) {
    EXPECT_UTF8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    EXPECT_UTF8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    EXPECT_UTF8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    EXPECT_UTF8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A");
    EXPECT_UTF8("a\xF0\x9F", "a" FFFD);
}

/* Cuts `in` into pieces of n bytes for every n; the text up to the stop string must be the same. */
static void expect_stop(const char *const *strings, int n_strings, const char *in, const char *expected, bool stops) {
    size_t size = strlen(in);
    for (size_t n = 1; n <= size; n++) {
        Stop s = {.strings = strings, .n = n_strings};
        StrBuf out = {0};
        bool stopped = false;
        for (size_t at = 0; at < size && !stopped; at += n)
            stopped = stop_feed(&s, in + at, size - at < n ? size - at : n, &out);
        if (!stopped) stop_end(&s, &out);
        CU_ASSERT_EQUAL(stopped, stops);
        CU_ASSERT_STRING_EQUAL(out.len ? out.data : "", expected);
        stop_free(&s);
        strbuf_free(&out);
    }
}

static void stop_strings_cut_anywhere_are_found(void) {
    static const char *const one[] = {"STOP"}, *const repeats[] = {"aab"}, *const two[] = {"world", "or"};
    static const char *const both[] = {"\n\n", "x\n\n"};
    expect_stop(one, 1, "go STOP now", "go ", true);
    expect_stop(one, 1, "go STO now", "go STO now", false);
    expect_stop(one, 1, "go STO", "go STO", false);
    expect_stop(one, 1, "STOP", "", true);
    expect_stop(one, 1, "SSTOP", "S", true);
    expect_stop(repeats, 1, "aaaab", "aa", true);
    expect_stop(two, 2, "hello world", "hello w", true); /* "or" is complete before "world" is */
    expect_stop(both, 2, "ax\n\nb", "a", true);          /* complete at the same byte: the longest */
    expect_stop(NULL, 0, "anything", "anything", false);
}

static void only_what_may_be_a_stop_string_is_held(void) {
    static const char *const strings[] = {"\nUser:"};
    Stop s = {.strings = strings, .n = 1};
    StrBuf out = {0};
    CU_ASSERT_FALSE(stop_feed(&s, "Hi.\nUs", 6, &out));
    CU_ASSERT_STRING_EQUAL(out.data, "Hi.");
    CU_ASSERT_FALSE(stop_feed(&s, "e it", 4, &out));
    CU_ASSERT_STRING_EQUAL(out.data, "Hi.\nUse it");
    stop_free(&s);
    strbuf_free(&out);
}

/* By RFC 8259. */
static void json_is_json(void) {
    StrBuf out = {0};
    Json j = {.out = &out};
    json_open(&j, NULL, '{');
    json_string(&j, "text", "a\"b\\\n\0\x01\xFFz", 9);
    json_text(&j, "none", NULL);
    json_open(&j, "list", '[');
    json_real(&j, NULL, 0.1);
    json_real(&j, NULL, -2.5e300);
    json_real(&j, NULL, 1.0 / 3.0);
    json_real(&j, NULL, NAN);
    json_real(&j, NULL, INFINITY);
    json_float(&j, NULL, 0.1f);
    json_float(&j, NULL, NAN);
    json_close(&j, ']');
    json_open(&j, "empty", '{');
    json_close(&j, '}');
    json_int(&j, "least", INT64_MIN);
    json_uint(&j, "most", UINT64_MAX);
    json_bool(&j, "yes", true);
    json_hash(&j, "hash", 0xABC);
    json_close(&j, '}');
    CU_ASSERT_STRING_EQUAL(out.data,
                           "{\"text\": \"a\\\"b\\\\\\n\\u0000\\u0001" FFFD "z\", \"none\": null, "
                           "\"list\": [0.1, -2.5e+300, 0.3333333333333333, null, null, 0.1, null], \"empty\": {}, "
                           "\"least\": -9223372036854775808, \"most\": 18446744073709551615, "
                           "\"yes\": true, \"hash\": \"0000000000000abc\"}");
    strbuf_free(&out);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"characters come whole", characters_come_whole},
        {"what is no UTF-8 is replaced", what_is_no_utf8_is_replaced},
        {"stop strings cut anywhere are found", stop_strings_cut_anywhere_are_found},
        {"only what may be a stop string is held", only_what_may_be_a_stop_string_is_held},
        {"JSON is JSON", json_is_json},
        CU_TEST_INFO_NULL,
    };
    return check_run("output", tests);
}
