/* What a reader sees as one character (UAX #29, extended grapheme clusters). */
#pragma once

#include <stddef.h>

/* The bytes of the cluster that text[0, n), n > 0, begins with. Local. */
size_t grapheme_size(const char *text, size_t n);
