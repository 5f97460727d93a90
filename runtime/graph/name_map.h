/* A hash map from strings to the indices of the array that holds them. Built once, then read-only; copies no string. */
#pragma once

#include "graph/model_file.h"

typedef struct NameMapSlot {
    uint32_t hash, index; /* index + 1; 0: empty */
} NameMapSlot;

typedef struct NameMap {
    const uint8_t *base; /* element i begins at base + i * stride, with its Text; not owned */
    size_t stride, mask; /* slots - 1 */
    NameMapSlot *slots;  /* owned; NULL: empty map */
} NameMap;

/* Indexes n elements. Empty strings are left out when `skip_empty`. Returns 0; 1 when two are equal (their indices in
 * twin[0] < twin[1], the map freed); -1 when out of memory. Local. */
int name_map_build(NameMap *m, const void *base, size_t stride, size_t n, bool skip_empty, size_t twin[2]);
void name_map_free(NameMap *m); /* also of a zeroed map */

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), in pieces: start with NAME_HASH_START; the hash of a+b is that
 * of b continued from that of a. */
#define NAME_HASH_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t name_hash(uint64_t hash, const char *data, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The index of the string, or -1. */
int64_t name_map_find(const NameMap *m, const char *data, size_t size);
/* The same for the concatenation a+b whose hash is known. */
int64_t name_map_find_joined(const NameMap *m, uint64_t hash, Text a, Text b);
