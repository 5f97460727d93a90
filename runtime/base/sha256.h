/* SHA-256 (FIPS 180-4). Local. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct Sha256 {
    uint32_t h[8];
    uint64_t bytes;              /* taken so far */
    uint8_t block[SHA256_BLOCK]; /* the last bytes % 64 of them */
} Sha256;

void sha256_start(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t n);
/* 64 lower-case hexadecimal digits and the end. */
void sha256_end(Sha256 *s, char hex[2 * SHA256_BYTES + 1]);
