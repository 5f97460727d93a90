/* Regular expressions over UTF-8 text: PCRE2, compiled to machine code where the system allows. */
#pragma once

#include "base/err.h"

typedef struct Regex Regex;

typedef enum RegexFlags {
    REGEX_LITERAL = 1,   /* the pattern stands for itself */
    REGEX_MULTILINE = 2, /* ^ and $ match at line ends too */
    REGEX_TRUSTED = 4,   /* ours, not a file's: it may try as long as it likes */
} RegexFlags;

/* The caller owns *out. An error has the pattern, the place in it and what is wrong. Local. */
int regex_compile(const char *pattern, size_t n, unsigned flags, Regex **out, Err *e);
void regex_free(Regex *r);

/* The next match in text[0, n), which must be valid UTF-8, from `from` on: 1 and where it is, 0 when there is none, -1
 * on error (too many steps). A match may be empty. Local. */
int regex_next(Regex *r, const char *text, size_t n, size_t from, size_t *begin, size_t *end, Err *e);

/* All matches, one after the other: none is empty right where the last one ended, and the search always gets on. Start
 * with a zeroed *it; 1, 0, -1 as above. */
typedef struct RegexIter {
    size_t from, last_end; /* where to look; where the last match ended */
    bool any;
} RegexIter;
int regex_each(Regex *r, const char *text, size_t n, RegexIter *it, size_t *begin, size_t *end, Err *e);
