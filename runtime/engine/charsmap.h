/* SentencePiece's table of what to write for which text ("precompiled charsmap"): a double array over bytes
 * (https://github.com/s-yata/darts-clone), whose values are offsets of NUL-terminated replacements. */
#pragma once

#include "base/err.h"
#include "graph/model_file.h"

typedef struct Charsmap {
    uint32_t *units; /* [n]; owned */
    size_t n;
    char *texts; /* the replacements; the last one is terminated; owned */
    size_t n_texts;
} Charsmap; /* zeroed: empty */

/* Refused are replacements that are no UTF-8. A copy of the table: uint32 size of the array in bytes, the array, the
 * replacements. Local. */
int charsmap_init(Charsmap *m, const uint8_t *data, size_t size, Err *e);
void charsmap_free(Charsmap *m);

/* The longest (shortest) entry that text[0, n) begins with: its size and what is written for it, in the table's memory.
 * 0: none. Local. */
size_t charsmap_longest(const Charsmap *m, const char *text, size_t n, Text *as);
size_t charsmap_shortest(const Charsmap *m, const char *text, size_t n, Text *as);
