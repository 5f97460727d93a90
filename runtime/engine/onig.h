/* Patterns of tokenizer.json files are written for Oniguruma (https://github.com/kkos/oniguruma/blob/master/doc/RE);
 * here they are put into PCRE2's words: \s, \w, \d and \h have other members there, and brackets may hold brackets. */
#pragma once

#include "base/err.h"
#include "base/strbuf.h"
#include "engine/regex.h"

/* What has no counterpart here (a negated set inside a set, a negated intersection) is an error that shows the pattern.
 * Local. */
int onig_translate(const char *pattern, size_t n, StrBuf *out, Err *e);
/* The same, compiled; ^ and $ match at lines, as there. */
int onig_compile(const char *pattern, size_t n, Regex **out, Err *e);
