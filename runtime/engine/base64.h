/* Base64 (RFC 4648, section 4). */
#pragma once

#include "base/err.h"

/* The caller frees *out (never NULL on success). Anything but the alphabet and the padding at the end is refused. */
int base64_decode(const char *text, size_t n, uint8_t **out, size_t *bytes, Err *e);
