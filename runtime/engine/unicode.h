/* Characters of UTF-8 text: what kind they are, lower case, normal forms. The tables are utf8proc's (Debian 12:
 * Unicode 15.0; tokenizers written elsewhere carry other versions, so that a character of the last years can differ).
 */
#pragma once

#include "base/err.h"
#include "base/strbuf.h"

/* The character at p, which must begin one in valid UTF-8; *size is its length. Local. */
int32_t unicode_at(const char *p, size_t *size);
/* The length of a character by its first byte. */
static inline size_t unicode_size(char first) {
    uint8_t b = (uint8_t)first;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
/* Where the character before `at` (> 0) begins. */
size_t unicode_before(const char *text, size_t at);
void unicode_add(StrBuf *out, int32_t c); /* c must be a character */

bool unicode_is_space(int32_t c);   /* the property White_Space */
bool unicode_is_punct(int32_t c);   /* ASCII's !..~ without letters and digits, or a category P* */
bool unicode_is_numeric(int32_t c); /* Nd, Nl, No */
bool unicode_is_mark(int32_t c);    /* Mn, Mc, Me */
bool unicode_is_accent(int32_t c);  /* Mn */
bool unicode_is_hidden(int32_t c);  /* control (Cc), format (Cf), private use (Co) */
bool unicode_is_word(int32_t c);    /* letters, marks, decimal digits, connectors: UTS #18's \w */
bool unicode_is_ideograph(int32_t c);

/* The lower case of every character by itself (Unicode's unconditional mappings). */
void unicode_lower(const char *text, size_t n, StrBuf *out);

typedef enum UnicodeForm { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } UnicodeForm;
/* Valid UTF-8 in a normal form (UAX #15), added to `out`. Local. */
int unicode_normalize(UnicodeForm form, const char *text, size_t n, StrBuf *out, Err *e);
