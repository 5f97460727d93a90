/* Finds stop strings in bytes that arrive in pieces, wherever the pieces are cut: bytes that may be the start of a stop
 * string are held back until it is clear. The first stop string to be complete ends the text; of those complete at the
 * same byte, the longest. All local. */
#pragma once

#include "base/strbuf.h"

typedef struct Stop {
    const char *const *strings; /* [n], none empty; not owned */
    int n;
    StrBuf held; /* owned: stop_free */
} Stop;

/* Takes n bytes and appends to `out` those that belong to no stop string for certain. True: a stop string is complete,
 * `out` has all that came before it, and the text is over. */
bool stop_feed(Stop *s, const char *bytes, size_t n, StrBuf *out);
/* The text ended without a stop string: releases what was held. */
void stop_end(Stop *s, StrBuf *out);
void stop_free(Stop *s);
