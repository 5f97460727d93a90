#include "engine/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "engine/utf8.h"

int charsmap_init(Charsmap *m, const uint8_t *data, size_t size, Err *e) {
    *m = (Charsmap){0};
    Cursor c = {.base = data, .size = size, .name = "charsmap"};
    uint32_t bytes = 0;
    if (cursor_u32(&c, &bytes, e)) return -1;
    if (bytes == 0 || bytes % 4 || bytes >= cursor_left(&c))
        return err_set(e, "the table says that it has %u bytes of %zu", bytes, cursor_left(&c));
    if (data[size - 1]) return err_set(e, "the last replacement has no end");
    m->n = bytes / 4;
    m->n_texts = cursor_left(&c) - bytes;
    m->units = malloc(bytes);
    m->texts = malloc(m->n_texts);
    if (!m->units || !m->texts) return err_set(e, "out of memory for the table");
    for (size_t i = 0; i < m->n; i++)
        if (cursor_u32(&c, &m->units[i], e)) return -1;
    memcpy(m->texts, data + c.pos, m->n_texts);
    if (utf8_check(m->texts, m->n_texts) < m->n_texts) return err_set(e, "the replacements are no UTF-8");
    return 0;
}

void charsmap_free(Charsmap *m) {
    free(m->units);
    free(m->texts);
    *m = (Charsmap){0};
}

/* The parts of a unit, as darts-clone packs them. */
static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1 << 9) >> 6); }
static uint32_t label_of(uint32_t unit) { return unit & (UINT32_C(1) << 31 | 0xFF); }
static bool has_value(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t value_of(uint32_t unit) { return unit & (UINT32_MAX >> 1); }

/* What is within a character belongs to no sound table: keys and replacements are whole ones. */
static bool inside_character(const char *text, size_t n, size_t at) {
    return at < n && ((uint8_t)text[at] & 0xC0) == 0x80;
}

static size_t find(const Charsmap *m, const char *text, size_t n, bool longest, Text *as) {
    size_t found = 0;
    if (!m->n) return 0;
    size_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        at ^= c;
        if (c == 0 || at >= m->n || label_of(m->units[at]) != c) break;
        bool ends = has_value(m->units[at]);
        at ^= offset_of(m->units[at]);
        if (at >= m->n) break; /* only in a table that is not sound */
        uint32_t value = value_of(m->units[at]);
        if (!ends || value >= m->n_texts || inside_character(m->texts, m->n_texts, value) ||
            inside_character(text, n, i + 1))
            continue;
        found = i + 1;
        *as = (Text){m->texts + value, strlen(m->texts + value)};
        if (!longest) break;
    }
    return found;
}

size_t charsmap_longest(const Charsmap *m, const char *text, size_t n, Text *as) { return find(m, text, n, true, as); }
size_t charsmap_shortest(const Charsmap *m, const char *text, size_t n, Text *as) {
    return find(m, text, n, false, as);
}
