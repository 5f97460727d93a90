#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void add_block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], x = h[4], f = h[5], g = h[6], last = h[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = turn(x, 6) ^ turn(x, 11) ^ turn(x, 25), s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
        uint32_t t1 = last + s1 + ((x & f) ^ (~x & g)) + k[i] + w[i], t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        last = g, g = f, f = x, x = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t v[8] = {a, b, c, d, x, f, g, last};
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void sha256_start(Sha256 *s) {
    /* the same of the square roots of the first 8 primes */
    *s =
        (Sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t have = s->bytes % SHA256_BLOCK;
    s->bytes += n;
    while (have + n >= SHA256_BLOCK) {
        size_t part = SHA256_BLOCK - have;
        if (have) memcpy(s->block + have, p, part);
        add_block(s->h, have ? s->block : p);
        p += part;
        n -= part;
        have = 0;
    }
    if (n) memcpy(s->block + have, p, n);
}

void sha256_end(Sha256 *s, char hex[2 * SHA256_BYTES + 1]) {
    uint64_t bits = s->bytes * 8;
    size_t have = s->bytes % SHA256_BLOCK;
    uint8_t tail[2 * SHA256_BLOCK] = {0x80}; /* a bit, zeroes, and the length at the end of a block */
    size_t n = (have < SHA256_BLOCK - 8 ? SHA256_BLOCK : 2 * SHA256_BLOCK) - have;
    for (int i = 0; i < 8; i++) tail[n - 1 - (size_t)i] = (uint8_t)(bits >> 8 * i);
    sha256_add(s, tail, n);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * (size_t)i, 9, "%08x", s->h[i]);
}
