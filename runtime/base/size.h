/* Checked arithmetic on sizes. Every product of untrusted numbers goes through here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline int64_t i64_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t i64_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The share [*begin, *end) of n items that part `i` of `parts` gets: sizes differ by at most one, larger ones first. */
static inline void share_range(int64_t n, int64_t parts, int64_t i, int64_t *begin, int64_t *end) {
    int64_t base = n / parts, extra = n % parts;
    *begin = i * base + i64_min(i, extra);
    *end = *begin + base + (i < extra ? 1 : 0);
}
