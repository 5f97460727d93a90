#include "base/cursor.h"

#include <inttypes.h>
#include <string.h>

int cursor_bytes(Cursor *c, uint64_t n, const uint8_t **out, Err *e) {
    if (n > cursor_left(c))
        return err_set(e, "%s: ends at byte %zu, but %" PRIu64 " bytes are wanted at offset %zu", c->name, c->size, n,
                       c->pos);
    *out = c->base + c->pos;
    c->pos += (size_t)n;
    return 0;
}

static int read_le(Cursor *c, size_t n, uint64_t *out, Err *e) {
    const uint8_t *p;
    if (cursor_bytes(c, n, &p, e)) return -1;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    *out = v;
    return 0;
}

int cursor_u8(Cursor *c, uint8_t *out, Err *e) {
    uint64_t v;
    if (read_le(c, 1, &v, e)) return -1;
    *out = (uint8_t)v;
    return 0;
}

int cursor_u16(Cursor *c, uint16_t *out, Err *e) {
    uint64_t v;
    if (read_le(c, 2, &v, e)) return -1;
    *out = (uint16_t)v;
    return 0;
}

int cursor_u32(Cursor *c, uint32_t *out, Err *e) {
    uint64_t v;
    if (read_le(c, 4, &v, e)) return -1;
    *out = (uint32_t)v;
    return 0;
}

int cursor_u64(Cursor *c, uint64_t *out, Err *e) { return read_le(c, 8, out, e); }

int cursor_align(Cursor *c, size_t to, Err *e) {
    size_t skip = (to - c->pos % to) % to;
    const uint8_t *ignored;
    return cursor_bytes(c, skip, &ignored, e);
}
