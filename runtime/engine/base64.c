#include "engine/base64.h"

#include <stdlib.h>

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t n, uint8_t **out, size_t *bytes, Err *e) {
    size_t digits = n;
    *out = NULL;
    *bytes = 0;
    if (n % 4) return err_set(e, "base64 of %zu characters: not four at a time", n);
    while (digits > 0 && n - digits < 2 && text[digits - 1] == '=') digits--;
    uint8_t *to = malloc(n / 4 * 3 + 1);
    if (!to) return err_set(e, "out of memory for base64 of %zu characters", n);
    uint32_t bits = 0;
    for (size_t i = 0; i < digits; i++) {
        int d = digit(text[i]);
        if (d < 0) {
            free(to);
            *bytes = 0;
            return err_set(e, "base64: character 0x%02x at %zu is none of its", (unsigned)(uint8_t)text[i], i);
        }
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 == 1) to[(*bytes)++] = (uint8_t)(bits >> 4);
        if (i % 4 == 2) to[(*bytes)++] = (uint8_t)(bits >> 2);
        if (i % 4 == 3) to[(*bytes)++] = (uint8_t)bits;
    }
    *out = to;
    return 0;
}
