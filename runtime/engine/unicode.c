#include "engine/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

int32_t unicode_at(const char *p, size_t *size) {
    const uint8_t *b = (const uint8_t *)p;
    *size = unicode_size(*p);
    switch (*size) {
    case 1: return b[0];
    case 2: return (b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    case 3: return (b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    default: return (b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F);
    }
}

size_t unicode_before(const char *text, size_t at) {
    do at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

void unicode_add(StrBuf *out, int32_t c) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char(c, bytes);
    strbuf_add(out, (const char *)bytes, (size_t)n);
}

bool unicode_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Sets of general categories as bits. */
#define BIT(category) (UINT32_C(1) << UTF8PROC_CATEGORY_##category)
static bool category_in(int32_t c, uint32_t set) { return set >> utf8proc_category(c) & 1; }

bool unicode_is_punct(int32_t c) {
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    return category_in(c, BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO));
}
bool unicode_is_numeric(int32_t c) { return category_in(c, BIT(ND) | BIT(NL) | BIT(NO)); }
bool unicode_is_mark(int32_t c) { return category_in(c, BIT(MN) | BIT(MC) | BIT(ME)); }
bool unicode_is_accent(int32_t c) { return category_in(c, BIT(MN)); }
bool unicode_is_hidden(int32_t c) { return category_in(c, BIT(CC) | BIT(CF) | BIT(CO)); }

bool unicode_is_word(int32_t c) {
    if (c == 0x200C || c == 0x200D) return true; /* Join_Control */
    if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189))
        return true; /* symbols that are alphabetic: letters in circles and squares */
    return category_in(c, BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO) | BIT(NL) | BIT(MN) | BIT(MC) | BIT(ME) |
                              BIT(ND) | BIT(PC));
}

/* The blocks that BERT's tokenizer calls Chinese (https://github.com/google-research/bert/blob/master/tokenization.py);
 * the last range of extension E begins at U+2B920 there and in all that follow it, not at U+2B820. */
bool unicode_is_ideograph(int32_t c) {
    static const struct {
        int32_t first, last;
    } blocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                  {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    if (c < 0x3400) return false;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (c >= blocks[i].first && c <= blocks[i].last) return true;
    return false;
}

void unicode_lower(const char *text, size_t n, StrBuf *out) {
    for (size_t i = 0, size; i < n; i += size) {
        int32_t c = unicode_at(text + i, &size);
        if (c < 0x80) {
            char lower = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
            strbuf_add(out, &lower, 1);
        } else if (c == 0x130) { /* SpecialCasing.txt: the one character whose lower case is two */
            strbuf_add(out, "i\xCC\x87", 3);
        } else {
            unicode_add(out, utf8proc_tolower(c));
        }
    }
}

int unicode_normalize(UnicodeForm form, const char *text, size_t n, StrBuf *out, Err *e) {
    static const utf8proc_option_t options[] = {
        [UNICODE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [UNICODE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [UNICODE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [UNICODE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    size_t ascii = 0; /* which every form leaves as it is */
    while (ascii < n && (uint8_t)text[ascii] < 0x80) ascii++;
    if (ascii == n) {
        strbuf_add(out, text, n);
        return 0;
    }
    utf8proc_uint8_t *normal = NULL;
    utf8proc_ssize_t size = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &normal, options[form]);
    if (size < 0) return err_set(e, "a text of %zu bytes cannot be normalised: %s", n, utf8proc_errmsg(size));
    strbuf_add(out, (const char *)normal, (size_t)size);
    free(normal);
    return 0;
}
