#include "base/strbuf.h"

#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for n more bytes and the NUL. */
static bool reserve(StrBuf *s, size_t n) {
    size_t need;
    if (s->failed) return false;
    if (!size_add(s->len, n, &need) || !size_add(need, 1, &need)) {
        s->failed = true;
        return false;
    }
    if (need <= s->cap) return true;
    size_t cap = s->cap < 64 ? 64 : s->cap;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : 2 * cap;
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void strbuf_add(StrBuf *s, const char *bytes, size_t n) {
    if (!n || !reserve(s, n)) return;
    memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = 0;
}

void strbuf_puts(StrBuf *s, const char *text) { strbuf_add(s, text, strlen(text)); }

void strbuf_printf(StrBuf *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) s->failed = true;
    if (n > 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void strbuf_float(StrBuf *s, float v) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.8g", (double)v);
    if (strtof(digits, NULL) != v) snprintf(digits, sizeof digits, "%.9g", (double)v);
    strbuf_puts(s, digits);
}

/* RFC 3629, section 4: what may follow a first byte, as the range of the second byte. */
size_t utf8_length(const uint8_t *p, size_t n) {
    static const struct {
        uint8_t first, last, length, second_low, second_high;
    } forms[] = {
        {0x00, 0x7f, 1, 0, 0},       {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
        {0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
        {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
    };
    if (!n) return 0;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if (p[0] < forms[f].first || p[0] > forms[f].last) continue;
        if (forms[f].length > n) return 0;
        if (forms[f].length > 1 && (p[1] < forms[f].second_low || p[1] > forms[f].second_high)) return 0;
        for (size_t i = 2; i < forms[f].length; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        return forms[f].length;
    }
    return 0;
}

static void add_escaped(StrBuf *s, uint8_t c) {
    static const char named[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                    {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if ((uint8_t)named[i][0] == c) {
            strbuf_printf(s, "\\%c", named[i][1]);
            return;
        }
    strbuf_printf(s, "\\u%04x", c);
}

void strbuf_json(StrBuf *s, const char *bytes, size_t n) {
    const uint8_t *p = (const uint8_t *)bytes;
    strbuf_puts(s, "\"");
    size_t done = 0, at = 0; /* bytes [done, at) go out as they are */
    while (at < n) {
        size_t len = utf8_length(p + at, n - at);
        if (len > 1 || (len == 1 && p[at] >= 0x20 && p[at] != '"' && p[at] != '\\' && p[at] != 0x7f)) {
            at += len;
            continue;
        }
        strbuf_add(s, bytes + done, at - done);
        if (len == 0) strbuf_puts(s, "\xef\xbf\xbd");
        else add_escaped(s, p[at]);
        done = ++at;
    }
    strbuf_add(s, bytes + done, at - done);
    strbuf_puts(s, "\"");
}

void strbuf_json_text(StrBuf *s, const char *text) {
    if (text) strbuf_json(s, text, strlen(text));
    else strbuf_puts(s, "null");
}

int strbuf_take(StrBuf *s, char **out, Err *e) {
    *out = NULL;
    if (s->failed || !reserve(s, 0)) {
        strbuf_free(s);
        return err_set(e, "no memory for a text");
    }
    s->data[s->len] = 0;
    *out = s->data;
    *s = (StrBuf){0};
    return 0;
}

void strbuf_free(StrBuf *s) {
    free(s->data);
    *s = (StrBuf){0};
}
