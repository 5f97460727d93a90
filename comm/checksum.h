/* A checksum of bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a's step on eight bytes at a time, with the high half folded in. Each step is one-to-one in the hash, so two
 * inputs of a length that differ in one word never hash alike. */
static inline uint64_t checksum(const void *data, size_t n) {
    const uint8_t *p = data;
    uint64_t h = 0xcbf29ce484222325u ^ n;
    while (n) {
        uint64_t word = 0;
        size_t m = n < sizeof word ? n : sizeof word;
        memcpy(&word, p, m);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 32;
        p += m;
        n -= m;
    }
    return h;
}
