/* A growing string: text, JSON, reports. A failed allocation is remembered, so that only the end must be checked. */
#pragma once

#include "base/err.h"

typedef struct StrBuf {
    char *data;      /* owned, NUL-terminated; NULL while empty */
    size_t len, cap; /* bytes; len without the NUL */
    bool failed;     /* some memory was refused; what was added since is missing */
} StrBuf;            /* zeroed: empty */

void strbuf_add(StrBuf *s, const char *bytes, size_t n);
void strbuf_puts(StrBuf *s, const char *text);
__attribute__((format(printf, 2, 3))) void strbuf_printf(StrBuf *s, const char *fmt, ...);
void strbuf_float(StrBuf *s, float v); /* in 8 or 9 digits that read back as v */

/* A JSON string with its quotes: quotes, backslashes and control characters escaped, each byte that is not part of
 * valid UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF) replaced by U+FFFD. */
void strbuf_json(StrBuf *s, const char *bytes, size_t n);
void strbuf_json_text(StrBuf *s, const char *text); /* the same up to the NUL; NULL gives null */

/* Gives the string away: *out is malloc'ed ("" when nothing was added), the caller frees it; the buffer is empty again.
 * -1 when memory was refused at any time. */
int strbuf_take(StrBuf *s, char **out, Err *e);
void strbuf_free(StrBuf *s);

/* Length in bytes (1-4) of the valid UTF-8 character at p with n bytes left, or 0 when there is none. */
size_t utf8_length(const uint8_t *p, size_t n);
