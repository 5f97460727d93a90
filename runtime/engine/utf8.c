#include "engine/utf8.h"

#include <string.h>

/* The length of the well-formed character at p (n > 0 bytes left), or 0. */
static size_t character(const uint8_t *p, size_t n) {
    if (p[0] < 0x80) return 1;
    /* The second byte's range is narrower after these first bytes; all later bytes are 80..BF. */
    uint8_t low = 0x80, high = 0xBF;
    size_t size;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) size = 2;
    else if (p[0] >= 0xE0 && p[0] <= 0xEF) size = 3;
    else if (p[0] >= 0xF0 && p[0] <= 0xF4) size = 4;
    else return 0;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    if (n < size || p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < size; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return size;
}

size_t utf8_check(const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) { /* mostly ASCII: eight bytes at a time */
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                i += sizeof eight;
                continue;
            }
        }
        size_t size = character(p + i, n - i);
        if (size == 0) return i;
        i += size;
    }
    return n;
}

void byte_letters_init(ByteLetters *t) {
    memset(t->byte, 0xff, sizeof t->byte);
    int next = 0x100;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        int letter = itself ? b : next++;
        t->byte[letter] = (int16_t)b;
        if (letter < 0x80) {
            t->utf8[b][0] = (char)letter;
            t->utf8[b][1] = 0;
            t->size[b] = 1;
        } else {
            t->utf8[b][0] = (char)(0xC0 | letter >> 6);
            t->utf8[b][1] = (char)(0x80 | (letter & 0x3F));
            t->size[b] = 2;
        }
    }
}

int64_t byte_letters_decode(const ByteLetters *t, const char *text, size_t n, char *out, size_t cap) {
    const uint8_t *p = (const uint8_t *)text;
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        int letter = p[i++];
        if (letter >= 0x80) {
            if (letter < 0xC2 || letter > 0xC5 || i == n || (p[i] & 0xC0) != 0x80) return -1;
            letter = (letter & 0x1F) << 6 | (p[i++] & 0x3F);
        }
        if (letter >= BYTE_LETTERS || t->byte[letter] < 0) return -1;
        if (written < cap) out[written] = (char)t->byte[letter];
        written++;
    }
    return (int64_t)written;
}
