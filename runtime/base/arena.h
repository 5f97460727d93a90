/* Large blocks of memory on a NUMA node, with 2 MB pages where the system gives them, handed out front to back. */
#pragma once

#include "base/err.h"

typedef struct Arena {
    uint8_t *base;         /* 2 MB aligned; owned; anonymous memory, zero until written */
    size_t capacity, used; /* bytes */
    int node;              /* the NUMA node it is bound to, or -1 */
} Arena;

/* Maps `bytes` (rounded up to 2 MB), asks for 2 MB pages, binds to `node` (-1: no binding) before the first touch;
 * nothing is touched: whoever writes first places the page when unbound. 0 bytes is allowed. Local. */
int arena_create(Arena *a, size_t bytes, int node, Err *e);
void arena_free(Arena *a); /* also of a zeroed Arena */

/* 64-byte aligned (or `align`, a power of two >= 64); NULL when the arena is full. Local. */
void *arena_alloc(Arena *a, size_t bytes, size_t align);

/* How many bytes of the arena are resident now (mincore), whatever their node. Local. */
size_t arena_resident(const Arena *a);
