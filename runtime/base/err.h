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
