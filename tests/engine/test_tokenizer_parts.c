/* The tokenizer's parts, each against plain code or a definition: UTF-8 over all code points, byte letters, BPE against
 * the rule as its paper has it, special tokens against cutting the text again and again, pieces by hand. */
#include "check.h"
#include "engine/bpe.h"
#include "engine/pretokenizer.h"
#include "engine/special.h"
#include "engine/utf8.h"

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

/* By the definition (RFC 3629, section 3), without ranges of bytes. */
static size_t encode(uint32_t c, char *p) {
    if (c < 0x80) return p[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) p[i] = (char)(0x80 | (c & 0x3F));
    p[0] = (char)(0xF00 >> n | c);
    return n;
}

static void test_utf8(void) {
    char p[24];
    uint8_t *good = calloc(1 << 24 >> 3, 1); /* which of the sequences of 3 bytes are characters */
    CU_ASSERT_PTR_NOT_NULL_FATAL(good);
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        size_t n = encode(c, p);
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        if ((utf8_check(p, n) == n) == surrogate) CU_FAIL_FATAL("a code point");
        for (size_t cut = 1; cut < n; cut++)
            if (utf8_check(p, cut) != 0) CU_FAIL_FATAL("a cut character");
        if (n != 3 || surrogate) continue;
        uint32_t at = (uint32_t)(uint8_t)p[0] << 16 | (uint32_t)(uint8_t)p[1] << 8 | (uint8_t)p[2];
        good[at / 8] = (uint8_t)(good[at / 8] | 1 << at % 8);
    }
    for (uint32_t c = 0xE00000; c < 0xF00000; c++) {
        char q[3] = {(char)(c >> 16), (char)(c >> 8), (char)c};
        bool valid = utf8_check(q, 3) == 3, want = good[c / 8] >> c % 8 & 1;
        if (valid != want) CU_FAIL_FATAL("three bytes");
    }
    free(good);
    static const char *const bad[] = {
        "\xC0\x80", "\xC1\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80",
        "\xFF",     "\xC3(",    "\xE2\x82(",        "\xF0\x9F\x98("};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t before = 0; before < 20; before++) { /* behind ASCII of any length: the offset must be right */
            memset(p, 'x', sizeof p);
            memcpy(p + before, bad[i], strlen(bad[i]) < sizeof p - before ? strlen(bad[i]) : sizeof p - before);
            CU_ASSERT_EQUAL(utf8_check(p, sizeof p), before);
        }
    CU_ASSERT_EQUAL(utf8_check("", 0), 0);
}

/* Letters from the text of GPT-2's encoder.py: printable ones stand for themselves, a space is U+0120, a newline
 * U+010A. */
static void test_letters(void) {
    ByteLetters t;
    byte_letters_init(&t);
    CU_ASSERT(t.size['A'] == 1 && t.utf8['A'][0] == 'A');
    CU_ASSERT(t.size[' '] == 2 && !memcmp(t.utf8[' '], "\xC4\xA0", 2));
    CU_ASSERT(!memcmp(t.utf8['\n'], "\xC4\x8A", 2) && !memcmp(t.utf8[0], "\xC4\x80", 2));
    CU_ASSERT(!memcmp(t.utf8[0xAD], "\xC5\x83", 2) && !memcmp(t.utf8[0xFF], "\xC3\xBF", 2));
    char text[512], back[256];
    size_t n = 0;
    for (int b = 0; b < 256; b++) {
        memcpy(text + n, t.utf8[b], t.size[b]);
        n += t.size[b];
    }
    CU_ASSERT_EQUAL(byte_letters_decode(&t, text, n, back, sizeof back), 256);
    for (int b = 0; b < 256; b++) CU_ASSERT_EQUAL((uint8_t)back[b], b);
    CU_ASSERT_EQUAL(byte_letters_decode(&t, text, n, back, 0), 256);
    static const char *const no[] = {" ", "\xC5\x84", "\xC2\x80", "\xC2\xAD", "\xE2\x82\xAC", "\xC4", "a\xC4"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CU_ASSERT_EQUAL(byte_letters_decode(&t, no[i], strlen(no[i]), back, sizeof back), -1);
}

/* ---- BPE --------------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n) { /* Knuth's MMIX generator, its high bits */
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

enum { LETTERS = 4, RULES = 60 };
typedef struct Rule {
    int32_t left, right, id;
} Rule;

/* The rule itself: of all neighbours that can be merged, the pair of lowest rank, the leftmost of these, until none
 * can. */
static size_t merge_plainly(const Rule *rules, int n_rules, int32_t *ids, size_t n) {
    for (;;) {
        int best = n_rules;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (int r = 0; r < best; r++)
                if (rules[r].left == ids[i] && rules[r].right == ids[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == n_rules) return n;
        ids[at] = rules[best].id;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void test_bpe(void) {
    enum { LONGEST = 300 };
    for (int round = 0; round < 200; round++) {
        Rule rules[RULES];
        Bpe b;
        Err e;
        CU_ASSERT_EQUAL_FATAL(bpe_init(&b, RULES, &e), 0);
        for (int r = 0; r < RULES; r++) {
            /* of what is there: the letters and what earlier rules make; some pairs come twice, the first then counts
             */
            uint32_t have = LETTERS + (uint32_t)r;
            rules[r] = (Rule){(int32_t)random_below(have), (int32_t)random_below(have), LETTERS + r};
            if (random_below(2)) rules[r].left = (int32_t)random_below(LETTERS);
            bpe_add(&b, rules[r].left, rules[r].right, rules[r].id, (uint32_t)r);
        }
        for (size_t n = 0; n <= LONGEST; n += 1 + n / 8) { /* both sides of the short words' limit */
            int32_t plain[LONGEST], ids[LONGEST];
            for (size_t i = 0; i < n; i++)
                plain[i] = ids[i] = (int32_t)random_below(LETTERS + 1) - (random_below(9) == 0);
            for (size_t i = 0; i < n; i++)
                if (ids[i] == LETTERS) plain[i] = ids[i] = -1; /* a byte without a token */
            size_t want = merge_plainly(rules, RULES, plain, n), got = 0;
            CU_ASSERT_EQUAL_FATAL(bpe_merge(&b, ids, n, &got, &e), 0);
            CU_ASSERT_FATAL(got == want && !memcmp(ids, plain, got * sizeof *ids));
        }
        bpe_free(&b);
    }
}

/* A word of a million letters in a second: n log n, not n^2. */
static void test_bpe_long(void) {
    enum { LONG = 1 << 20 };
    int32_t *ids = calloc(LONG, sizeof *ids);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ids);
    Bpe b;
    Err e;
    CU_ASSERT_EQUAL_FATAL(bpe_init(&b, 10, &e), 0);
    for (int32_t r = 0; r < 10; r++) bpe_add(&b, r, r, r + 1, (uint32_t)r); /* doubling: aa, aaaa, ... */
    size_t n = 0;
    CU_ASSERT_EQUAL(bpe_merge(&b, ids, LONG, &n, &e), 0);
    CU_ASSERT_EQUAL(n, LONG >> 10);
    for (size_t i = 0; i < n; i++) CU_ASSERT_FATAL(ids[i] == 10);
    bpe_free(&b);
    free(ids);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* llama.cpp's way: for each token, longest first, cut every stretch of text that is left at each place it is found,
 * from the left. `owner` of each byte: -1, or the token that took it. */
static void cut_plainly(const char *text, int n, const char *const *tokens, const int *order, int n_tokens,
                        int *owner) {
    for (int i = 0; i < n; i++) owner[i] = -1;
    for (int k = 0; k < n_tokens; k++) {
        int token = order[k], size = (int)strlen(tokens[token]);
        for (int at = 0; at + size <= n; at++) {
            bool fits = !strncmp(text + at, tokens[token], (size_t)size);
            for (int i = at; i < at + size; i++) fits = fits && owner[i] < 0;
            if (!fits) continue;
            for (int i = at; i < at + size; i++) owner[i] = token + 1000 * at;
            at += size - 1;
        }
    }
}

static void test_special(void) {
    static const char *const tokens[] = {"ab", "bcd", "aa", "c", "abab", "ddd", "cb", "aaaa", "a", "aaa"};
    static const int order[] = {4, 7, 1, 5, 9, 0, 2, 6, 3, 8}; /* by length, then id */
    enum { TOKENS = sizeof tokens / sizeof *tokens, LENGTH = 40 };
    Special s = {0};
    Err e;
    for (int i = 0; i < TOKENS; i++)
        CU_ASSERT_EQUAL(special_add(&s, (Text){tokens[i], strlen(tokens[i])}, i, i % 2 == 0, &e), 0);
    for (int round = 0; round < 3000; round++) {
        char text[LENGTH + 1] = "";
        int n = (int)random_below(LENGTH + 1), plain[LENGTH], owner[LENGTH];
        for (int i = 0; i < n; i++) text[i] = (char)('a' + random_below(4));
        bool all = round % 2;
        int used[TOKENS], n_used = 0;
        for (int k = 0; k < TOKENS; k++)
            if (all || order[k] % 2 == 0) used[n_used++] = order[k];
        cut_plainly(text, n, tokens, used, n_used, plain);
        SpecialHit *hits;
        size_t n_hits;
        CU_ASSERT_EQUAL_FATAL(special_find(&s, text, (size_t)n, &(SpecialPlaces){.any = all}, &hits, &n_hits, &e), 0);
        for (int i = 0; i < n; i++) owner[i] = -1;
        for (size_t h = 0; h < n_hits; h++) {
            CU_ASSERT_FATAL(h == 0 || hits[h].pos >= hits[h - 1].pos + hits[h - 1].size);
            for (size_t i = 0; i < hits[h].size; i++) owner[hits[h].pos + i] = hits[h].id + 1000 * (int)hits[h].pos;
        }
        CU_ASSERT_FATAL(!memcmp(owner, plain, (size_t)n * sizeof *owner));
        free(hits);
    }
    special_free(&s);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* `want`: the pieces with a bar between. */
static void pieces(const char *name, const char *text, const char *want) {
    Pretokenizer *p;
    Err e;
    const size_t *ends;
    size_t n, begin = 0, at = 0;
    char got[256];
    CU_ASSERT_EQUAL_FATAL(pretokenizer_create((Text){name, strlen(name)}, &p, &e), 0);
    CU_ASSERT_EQUAL_FATAL(pretokenizer_split(p, text, strlen(text), &ends, &n, &e), 0);
    for (size_t i = 0; i < n; begin = ends[i++]) {
        if (i) got[at++] = '|';
        memcpy(got + at, text + begin, ends[i] - begin);
        at += ends[i] - begin;
    }
    got[at] = 0;
    if (strcmp(got, want)) {
        fprintf(stderr, "%s: \"%s\" instead of \"%s\"\n", name, got, want);
        CU_FAIL("pieces");
    }
    pretokenizer_free(p);
}

/* Worked out by hand from the patterns. A later pattern sees only the piece that it cuts: for "smollm" the spaces
 * before a digit end a piece, so that they stay together; in "gpt-2" the last of them goes with the number; in the
 * others it stands alone. */
static void test_pieces(void) {
    pieces("smollm", "a  12", "a|  |1|2");
    pieces("gpt-2", "a  12", "a| | 12");
    pieces("llama-bpe", "a  12", "a| | |12");
    pieces("qwen2", "a  12", "a| | |1|2");
    pieces("smollm", "it's HTTP2go", "it|'s| HTTP|2|go");
    pieces("gpt-2", "IT'S", "IT|'|S");
    pieces("qwen2", "IT'S 'LL", "IT|'S| '|LL");
    pieces("llama-bpe", "1234567", "123|456|7");
    pieces("gpt-2", "x \n y", "x| \n| y");
    pieces("qwen2", "x \n\n y", "x| \n\n| y");
    pieces("smollm", "   ", "   ");
    pieces("smollm", "", "");
    pieces("smollm", "\xC2\xBD", "\xC2\xBD"); /* one half: \p{No}, a number */
    pieces("smollm",
           "a\xE3\x80\x80\xE3\x80\x80"
           "b",
           "a|\xE3\x80\x80|\xE3\x80\x80|b"); /* ideographic spaces */
    pieces("smollm",
           "a\xE1\xA0\x8E"
           "b",
           "a|\xE1\xA0\x8E|b"); /* U+180E is no white space (any more) */
    pieces("gpt-2", "a  \xE1\xA0\x8E", "a| | \xE1\xA0\x8E");
    pieces("default", "a=1234!", "a|=|123|4|!");
    pieces("gpt-4o", "iPhone HTTPServer's 1234/\n", "i|Phone| HTTPServer's| |123|4|/\n");
    pieces("tekken", "iPhone's 12", "i|Phone|'s| |1|2");
    pieces("deepseek-v3", "ab12345 \xE4\xB8\xAD\xE6\x96\x87x", "ab|123|45| |\xE4\xB8\xAD\xE6\x96\x87|x");
    pieces("deepseek-coder", "it's 12\n", "it|'|s| |1|2|\n");
    pieces("falcon", "a=1234!", "a|=|123|4|!");
    pieces("superbpe", "n 1234567 x", "n |1|234|567| x"); /* cut where nothing is, every three digits from the end */
    pieces("bloom", "(a, b)", "(|a|,| b|)");
    pieces("viking", "ab 12", "ab| |1|2");
    pieces("qwen35",
           "n\xCC\x83"
           "o x",
           "n\xCC\x83"
           "o| x"); /* marks belong to words */
    pieces("gemma4", "a b\n\nc", "a b|\n\n|c");
}

/* `n` times the character in one piece. */
static void one_piece(const char *name, char c, size_t n) {
    Pretokenizer *p;
    Err e = {""};
    const size_t *ends;
    size_t n_ends = 0;
    char *text = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, c, n);
    CU_ASSERT_EQUAL_FATAL(pretokenizer_create((Text){name, strlen(name)}, &p, &e), 0);
    CU_ASSERT_EQUAL_FATAL(pretokenizer_split(p, text, n, &ends, &n_ends, &e), 0);
    CU_ASSERT(n_ends == 1 && ends[0] == n);
    pretokenizer_free(p);
    free(text);
}

/* Runs in which a pattern may go back and forth. */
static void test_long_runs(void) {
    static const char *const names[] = {"smollm", "qwen2", "llama-bpe", "default"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *c = " x!"; *c; c++) one_piece(names[i], *c, 1000000);
    one_piece("qwen2", ' ', 11000000); /* more steps than PCRE2 allows by itself (10^7) */
}

static void test_unknown(void) {
    Pretokenizer *p;
    Err e = {""};
    CU_ASSERT_EQUAL(pretokenizer_create((Text){"whitespace", 10}, &p, &e), -1);
    CU_ASSERT(!p && strstr(e.msg, "whitespace") && strstr(e.msg, "smollm"));
    CU_ASSERT_EQUAL(pretokenizer_create((Text){"smollm2", 7}, &p, &e), -1);
    CU_ASSERT_EQUAL(pretokenizer_create((Text){"a\nb", 3}, &p, &e), -1);
    CU_ASSERT(!strchr(e.msg, '\n'));
    CU_ASSERT_EQUAL(pretokenizer_create((Text){NULL, 0}, &p, &e), -1);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"UTF-8", test_utf8},
        {"letters for bytes", test_letters},
        {"BPE merges as the rule says", test_bpe},
        {"BPE of a long word", test_bpe_long},
        {"special tokens in text", test_special},
        {"pieces", test_pieces},
        {"long runs of one character", test_long_runs},
        {"an unknown pre-tokenizer", test_unknown},
        CU_TEST_INFO_NULL,
    };
    return check_run("tokenizer parts", tests);
}
