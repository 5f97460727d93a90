/* Errors as values: a function that can fail returns 0 or -1 and fills an Err. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Err {
    char msg[512]; /* one line: what happened, where (file, offset, tensor, rank, host), what to do */
} Err;

/* Writes the message (cut to fit) and returns -1. `e` may be NULL. Local. */
__attribute__((format(printf, 2, 3))) int err_set(Err *e, const char *fmt, ...);

/* Puts "context: " before the message that is there and returns -1. `e` may be NULL. Local. */
__attribute__((format(printf, 2, 3))) int err_context(Err *e, const char *fmt, ...);

/* The same for a failed system call: adds ": " and strerror(errno). Returns -1. Local. */
__attribute__((format(printf, 2, 3))) int err_errno(Err *e, const char *fmt, ...);

/* All three return -1, which a compiler that sees only this header cannot know; told so, it can follow what a failed
 * call left unset, and neither it nor clang-tidy warns of that. */
static inline int err_minus_one(int ignored) {
    (void)ignored;
    return -1;
}
#define err_set(...)     err_minus_one((err_set)(__VA_ARGS__))
#define err_context(...) err_minus_one((err_context)(__VA_ARGS__))
#define err_errno(...)   err_minus_one((err_errno)(__VA_ARGS__))
