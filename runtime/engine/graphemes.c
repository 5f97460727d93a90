#include "engine/graphemes.h"

#include <utf8proc.h>

#include "engine/unicode.h"

size_t grapheme_size(const char *text, size_t n) {
    size_t at, size;
    utf8proc_int32_t state = 0, before = unicode_at(text, &at);
    for (; at < n; at += size) {
        int32_t c = unicode_at(text + at, &size);
        if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
        before = c;
    }
    return at;
}
