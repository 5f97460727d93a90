/* Turns bytes that arrive in pieces into valid UTF-8: the bytes of an incomplete character are held until the rest has
 * come; what can not become a character is replaced by U+FFFD, one for each maximal part, as the Unicode Standard
 * recommends (section 3.9, table 3-7 and "U+FFFD Substitution of Maximal Subparts"). All local. */
#pragma once

#include "base/strbuf.h"

typedef struct Utf8 {
    unsigned char held[4]; /* the start of a character */
    int n_held;            /* 0 .. 3 */
    int n_wanted;          /* bytes of that character in all */
} Utf8;                    /* all zero: nothing held */

/* Takes n bytes and appends to `out` every character that is complete. */
void utf8_feed(Utf8 *u, const char *bytes, size_t n, StrBuf *out);
/* The end: what is still held becomes U+FFFD. */
void utf8_end(Utf8 *u, StrBuf *out);
