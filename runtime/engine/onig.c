#include "engine/onig.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "graph/model_file.h"

/* Oniguruma's \w: beyond what Unicode calls a word, five signs of Latin-1 that are numbers. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

static const struct {
    char letter;
    bool negated;
    const char *members; /* as they stand inside brackets */
} classes[] = {
    {'s', false, "\\p{White_Space}"},
    {'S', true, "\\p{White_Space}"},
    {'w', false, WORD},
    {'W', true, WORD},
    {'d', false, "\\p{Nd}"},
    {'D', true, "\\p{Nd}"},
    {'h', false, "0-9A-Fa-f"},
    {'H', true, "0-9A-Fa-f"},
};

static const struct {
    const char *name, *members;
} posix[] = {
    {"[:alpha:]", "\\p{Alphabetic}"},
    {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
    {"[:digit:]", "\\p{Nd}"},
    {"[:xdigit:]", "0-9A-Fa-f"},
    {"[:space:]", "\\p{White_Space}"},
    {"[:punct:]", "\\p{P}\\p{S}"},
    {"[:upper:]", "\\p{Uppercase}"},
    {"[:lower:]", "\\p{Lowercase}"},
    {"[:word:]", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
};

static bool starts(const char *text, size_t n, const char *with) {
    return n >= strlen(with) && !memcmp(text, with, strlen(with));
}

static int refuse(const char *pattern, size_t n, size_t at, const char *why, Err *e) {
    return err_set(e, "the pattern %s has %s at byte %zu, which is not supported",
                   text_printable((Text){pattern, n}).text, why, at);
}

/* \s and the like; 0 when it is not one of them. */
static int shorthand(const char *pattern, size_t n, size_t at, bool in_set, StrBuf *out, Err *e) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (classes[i].letter != pattern[at + 1]) continue;
        const char *members = classes[i].members;
        if (!in_set) {
            strbuf_puts(out, classes[i].negated ? "[^" : "[");
            strbuf_puts(out, members);
            strbuf_puts(out, "]");
        } else if (!classes[i].negated) {
            strbuf_puts(out, members);
        } else if (starts(members, strlen(members), "\\p{") && !strchr(members + 1, '\\')) {
            strbuf_puts(out, "\\P"); /* one property: its opposite */
            strbuf_puts(out, members + 2);
        } else {
            return refuse(pattern, n, at, "a negated class inside brackets", e);
        }
        return 1;
    }
    return 0;
}

/* Where words begin and end, and where they do not. */
#define BOUNDARY    "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_BOUNDARY "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

/* \p{Han} and the like, without which PCRE2 takes scripts for those characters too that another script shares with
 * them: what follows the "\p" at pattern[at], or 0 when it is no script. */
static size_t script(const char *pattern, size_t n, size_t at, StrBuf *out) {
    enum { LONGEST = 40 };
    size_t begin = at + 3, size = 0;
    if (n - at < 6 || (pattern[at + 1] != 'p' && pattern[at + 1] != 'P') || pattern[at + 2] != '{') return 0;
    bool negated = pattern[begin] == '^';
    begin += negated;
    while (begin + size < n && size < LONGEST &&
           (pattern[begin + size] == '_' || isalpha((unsigned char)pattern[begin + size])))
        size++;
    if (size < 3 || begin + size == n || pattern[begin + size] != '}') return 0;
    char property[LONGEST + 16];
    int length = snprintf(property, sizeof property, "\\%c{%ssc:%.*s}", pattern[at + 1], negated ? "^" : "", (int)size,
                          pattern + begin);
    Regex *known;
    Err e;
    if (regex_compile(property, (size_t)length, 0, &known, &e)) return 0;
    regex_free(known);
    strbuf_puts(out, property);
    return begin + size + 1 - at;
}

/* The backslash at *at and what belongs to it, behind which *at moves. */
static int escape(const char *pattern, size_t n, size_t *at, bool in_set, StrBuf *out, Err *e) {
    size_t i = *at, left = n - i;
    *at += left < 2 ? left : 2;
    if (left >= 2) {
        int done = shorthand(pattern, n, i, in_set, out, e);
        if (done) return done < 0 ? -1 : 0;
    }
    size_t property = left >= 2 ? script(pattern, n, i, out) : 0;
    if (property) {
        *at = i + property;
        return 0;
    }
    if (left >= 2 && !in_set && (pattern[i + 1] == 'b' || pattern[i + 1] == 'B')) {
        strbuf_puts(out, pattern[i + 1] == 'b' ? BOUNDARY : NO_BOUNDARY);
        return 0;
    }
    if (left >= 6 && pattern[i + 1] == 'u') { /* \u0061 */
        strbuf_puts(out, "\\x{");
        strbuf_add(out, pattern + i + 2, 4);
        strbuf_puts(out, "}");
        *at = i + 6;
        return 0;
    }
    strbuf_add(out, pattern + i, left < 2 ? left : 2); /* PCRE2 says what is wrong with a lone backslash */
    return 0;
}

static int posix_class(const char *pattern, size_t n, size_t *at, StrBuf *out, Err *e) {
    for (size_t i = 0; i < sizeof posix / sizeof *posix; i++) {
        if (!starts(pattern + *at, n - *at, posix[i].name)) continue;
        strbuf_puts(out, posix[i].members);
        *at += strlen(posix[i].name);
        return 0;
    }
    return refuse(pattern, n, *at, "an unknown [:class:]", e);
}

/* Members, up to "&&" or the bracket that ends them, where *at is left. Sets inside are as good as their members. */
static int members(const char *pattern, size_t n, size_t *at, StrBuf *out, Err *e) {
    size_t i = *at;
    for (int depth = 0; i < n && (depth > 0 || pattern[i] != ']');) {
        if (pattern[i] == '\\') {
            if (escape(pattern, n, &i, true, out, e)) return -1;
        } else if (starts(pattern + i, n - i, "[:")) {
            if (posix_class(pattern, n, &i, out, e)) return -1;
        } else if (starts(pattern + i, n - i, "&&")) {
            if (depth == 0) break;
            return refuse(pattern, n, i, "an intersection (&&) in a set inside a set", e);
        } else if (starts(pattern + i, n - i, "[^")) {
            return refuse(pattern, n, i, "a negated set inside a set", e);
        } else if (pattern[i] == '[' || pattern[i] == ']') {
            depth += pattern[i++] == '[' ? 1 : -1;
        } else {
            strbuf_add(out, pattern + i++, 1);
        }
    }
    *at = i;
    return 0;
}

/* One side of an intersection, or all of a set: members, or a negated set by itself. */
static int side(const char *pattern, size_t n, size_t *at, StrBuf *out, Err *e) {
    bool negated = starts(pattern + *at, n - *at, "[^");
    size_t begin = *at;
    strbuf_puts(out, negated ? "[^" : "[");
    if (negated) *at += 2;
    if (members(pattern, n, at, out, e)) return -1;
    strbuf_puts(out, "]");
    if (!negated) return 0;
    *at += *at < n;
    if (*at < n && pattern[*at] != ']' && !starts(pattern + *at, n - *at, "&&"))
        return refuse(pattern, n, begin, "a negated set inside a set", e);
    return 0;
}

/* The set that begins with the bracket at *at, which moves behind it. [a&&b] is a character with two classes, of which
 * all but the last one look ahead. */
static int set(const char *pattern, size_t n, size_t *at, StrBuf *out, Err *e) {
    size_t i = *at + 1;
    StrBuf one = {0};
    bool negated = i < n && pattern[i] == '^', several = false;
    int failed = 0;
    if (negated) i++;
    bool bracket = i < n && pattern[i] == ']'; /* first, it is a member */
    if (negated || bracket) {
        strbuf_puts(&one, negated ? "[^" : "[");
        if (bracket) strbuf_puts(&one, "\\]");
        i += bracket;
        failed = members(pattern, n, &i, &one, e);
        strbuf_puts(&one, "]");
    } else {
        failed = side(pattern, n, &i, &one, e);
    }
    for (; !failed && starts(pattern + i, n - i, "&&"); several = true) {
        if (negated) failed = refuse(pattern, n, i, "a negated intersection (&&)", e);
        strbuf_puts(out, several ? "(?=" : "(?:(?=");
        strbuf_add(out, one.data, one.len);
        strbuf_puts(out, ")");
        one.len = 0;
        i += 2;
        if (!failed) failed = side(pattern, n, &i, &one, e);
    }
    strbuf_add(out, one.data, one.len);
    if (several) strbuf_puts(out, ")");
    out->failed = out->failed || one.failed;
    strbuf_free(&one);
    *at = i < n ? i + 1 : n;
    return failed ? -1 : 0;
}

/* "(?im-x": what is m there is s here. What comes after the options is not looked at. */
static void options(const char *pattern, size_t n, size_t *at, StrBuf *out) {
    strbuf_puts(out, "(?");
    for (*at += 2; *at < n && strchr("imx-", pattern[*at]); ++*at)
        strbuf_add(out, pattern[*at] == 'm' ? "s" : pattern + *at, 1);
}

int onig_translate(const char *pattern, size_t n, StrBuf *out, Err *e) {
    for (size_t i = 0; i < n;) {
        if (pattern[i] == '\\') {
            if (escape(pattern, n, &i, false, out, e)) return -1;
        } else if (pattern[i] == '[') {
            if (set(pattern, n, &i, out, e)) return -1;
        } else if (starts(pattern + i, n - i, "(?")) {
            options(pattern, n, &i, out);
        } else if (starts(pattern + i, n - i, "{,")) { /* {,3} is {0,3} */
            strbuf_puts(out, "{0,");
            i += 2;
        } else {
            strbuf_add(out, pattern + i++, 1);
        }
    }
    return out->failed ? err_set(e, "out of memory for a pattern") : 0;
}

int onig_compile(const char *pattern, size_t n, Regex **out, Err *e) {
    StrBuf text = {0};
    *out = NULL;
    int failed = onig_translate(pattern, n, &text, e) ||
                 regex_compile(text.data ? text.data : "", text.len, REGEX_MULTILINE, out, e);
    strbuf_free(&text);
    return failed ? -1 : 0;
}
