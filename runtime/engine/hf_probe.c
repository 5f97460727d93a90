#include "engine/hf_probe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/hf_pretokenizer.h"
#include "engine/pretokenizer.h"
#include "engine/unicode.h"

/* One or two characters of each kind that a pattern of pretokenizer.c or a normalizer treats by itself. */
static const char *const characters[] = {
    " ",          "\n",     "\r",     "\t",     "\u00a0", "\u3000",                /* white space */
    "a",          "s",      "Z",      "\u00e9", "\u044f", "\u01c5", "\u02b0",      /* letters with cases, modifiers */
    "\u4e2d",     "\u3042", "\uac00", "\u05d0",                                    /* letters without */
    "1",          "\u0663", "\u00b2", "\u2167",                                    /* digits, other numbers */
    "'",          "!",      ".",      "-",      "_",      "(",      "/",      "`", /* punctuation */
    "\u2026",     "\u3002", "$",      "+",      "<",      "|",      "^",           /* and symbols */
    "\U0001f600", "\u0301", "\u200d",
};
enum { CHARACTERS = sizeof characters / sizeof *characters };

static const char lines[] =
    "I'll say we're late; they'd DON'T know he's x'S O'Re 'tis.\n"
    "1 12 123 1234 12345 1234567 3.14159 1,000,000 0x1F a1b22c333\n"
    "  indented\n\n\n\ttabs \n \n   \r\n"
    "camelCase HTTPServer snake_case __init__ \u00c0\u00c9\u00ce\u00d5\u00fc stra\u00dfe\n"
    "foo/bar//baz.c /* x */ a->b; [y] {z} ((w)) !!!??? ... \u201cquoted\u201d \u2014 #tag @name 50% \u20ac5\n"
    "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587\uff0c\u6d4b\u8bd5\u3002 \ud55c\uad6d\uc5b4 "
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e51\u0e52\u0e53 \u0939\u093f\u0928\u094d\u0926\u0940\n"
    "\U0001f600\U0001f44d\U0001f3fd \ufb01 \u00bd \u2460 the  end   ";

int hf_probe_text(StrBuf *out, Err *e) {
    StrBuf raw = {0};
    strbuf_puts(&raw, lines);
    for (int i = 0; i < CHARACTERS; i++)
        for (int j = 0; j < CHARACTERS; j++)
            for (int k = 0; k < CHARACTERS; k++) {
                strbuf_puts(&raw, characters[i]);
                strbuf_puts(&raw, characters[j]);
                strbuf_puts(&raw, characters[k]);
            }
    int failed = raw.failed ? err_set(e, "out of memory") : unicode_normalize(UNICODE_NFC, raw.data, raw.len, out, e);
    strbuf_free(&raw);
    return failed;
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

/* Whether the pieces, whose characters stand for bytes, end where the others do. */
static bool same_pieces(const HfPieces *pieces, const size_t *ends, size_t n) {
    size_t end = 0;
    if (pieces->n != n) return false;
    for (size_t i = 0, at = 0; i < n; i++) {
        for (; at < pieces->ends[i]; at += unicode_size(pieces->text.data[at])) end++;
        if (end != ends[i]) return false;
    }
    return true;
}

int hf_probe_pretokenizer(const cJSON *pre, Text text, bool ignore_merges, Text *name, Err *e) {
    HfPretokenizer *theirs = NULL;
    const HfPieces *pieces = NULL;
    int failed =
        hf_pretokenizer_create(pre, &theirs, e) || hf_pretokenize(theirs, text.data, text.size, true, &pieces, e);
    Text candidate;
    *name = (Text){"", 0};
    for (int i = 0; !failed && !name->size && pretokenizer_name(i, &candidate); i++) {
        Pretokenizer *ours;
        const size_t *ends;
        size_t n;
        if (pretokenizer_create(candidate, &ours, e)) failed = -1;
        else if (pretokenizer_traits(ours).ignore_merges == ignore_merges && !pretokenizer_traits(ours).raw) {
            failed = pretokenizer_split(ours, text.data, text.size, &ends, &n, e);
            if (!failed && same_pieces(pieces, ends, n)) *name = candidate;
        }
        pretokenizer_free(ours);
    }
    hf_pretokenizer_free(theirs);
    return failed ? -1 : 0;
}

/* ---- whole tokenizers -------------------------------------------------------------------------------------------- */

int hf_probe_same(Tokenizer *a, Tokenizer *b, Text text, bool *same, size_t *same_bytes, Err *e) {
    int32_t *ids[2] = {NULL, NULL};
    size_t n[2] = {0, 0}, i = 0;
    int failed = tokenizer_encode(a, text.data, text.size, true, true, &ids[0], &n[0], e) ||
                 tokenizer_encode(b, text.data, text.size, true, true, &ids[1], &n[1], e);
    *same_bytes = 0;
    for (; !failed && i < n[0] && i < n[1] && ids[0][i] == ids[1][i]; i++)
        *same_bytes += tokenizer_bytes(a, ids[0][i], false, NULL, 0);
    *same = i == n[0] && i == n[1];
    free(ids[0]);
    free(ids[1]);
    return failed ? -1 : 0;
}
