#include "base/cursor.h"
#include "image.h"

/* A TIFF file says in its first two bytes which end its numbers begin with. */
typedef struct Tiff {
    Cursor c;
    bool big;
} Tiff;

static int take16(Tiff *t, uint16_t *v) {
    if (cursor_u16(&t->c, v, NULL)) return -1;
    if (t->big) *v = __builtin_bswap16(*v);
    return 0;
}

static int take32(Tiff *t, uint32_t *v) {
    if (cursor_u32(&t->c, v, NULL)) return -1;
    if (t->big) *v = __builtin_bswap32(*v);
    return 0;
}

/* Header, then the entries of the first directory: tag, type, count, value, 12 bytes each. */
int image_exif_orientation(const uint8_t *tiff, size_t n) {
    enum { FORTY_TWO = 42, ORIENTATION = 0x0112, SHORT = 3 };
    Tiff t = {.c = {.base = tiff, .size = n, .name = "EXIF"}};
    uint16_t order, version, entries;
    uint32_t directory;
    if (take16(&t, &order) || (order != 0x4949 && order != 0x4d4d)) return 1;
    t.big = order == 0x4d4d;
    if (take16(&t, &version) || version != FORTY_TWO || take32(&t, &directory) || directory > n) return 1;
    t.c.pos = directory;
    if (take16(&t, &entries)) return 1;
    for (int i = 0; i < entries; i++) {
        uint16_t tag, type, value, rest;
        uint32_t count;
        if (take16(&t, &tag) || take16(&t, &type) || take32(&t, &count) || take16(&t, &value) || take16(&t, &rest))
            return 1;
        if (tag == ORIENTATION) return type == SHORT && count == 1 && value >= 1 && value <= 8 ? value : 1;
    }
    return 1;
}
