/* A bounded reader over untrusted bytes, little-endian. Every read is checked; nothing is ever read past `size`. */
#pragma once

#include "base/err.h"

typedef struct Cursor {
    const uint8_t *base; /* not owned */
    size_t size, pos;    /* bytes; pos <= size always */
    const char *name;    /* the file or message, for errors; not owned */
} Cursor;

/* Each reads one value and advances, or fails with name, offset and what was wanted, leaving pos as it was. Local. */
int cursor_u8(Cursor *c, uint8_t *out, Err *e);
int cursor_u16(Cursor *c, uint16_t *out, Err *e);
int cursor_u32(Cursor *c, uint32_t *out, Err *e);
int cursor_u64(Cursor *c, uint64_t *out, Err *e);
/* n bytes in place: *out points into the cursor's memory. */
int cursor_bytes(Cursor *c, uint64_t n, const uint8_t **out, Err *e);
/* Advances to the next multiple of `to` (a power of two, from the base). */
int cursor_align(Cursor *c, size_t to, Err *e);
static inline size_t cursor_left(const Cursor *c) { return c->size - c->pos; }
