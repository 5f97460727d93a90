#include "engine/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/pretokenizer_families.h"
#include "engine/regex.h"
#include "engine/unicode.h"

typedef struct Ends { /* a list of offsets that grows */
    size_t *at;
    size_t n, cap;
} Ends;

struct Pretokenizer {
    const Family *family;
    int n_patterns;
    Regex *patterns[MAX_PATTERNS];
    Ends ends, spare; /* what the last pattern left, and room for the next */
};

/* Pieces are never empty. */
static int add_end(Ends *ends, size_t at, Err *e) {
    if (at == (ends->n ? ends->at[ends->n - 1] : 0)) return 0;
    if (ends->n == ends->cap) {
        size_t cap = ends->cap ? 2 * ends->cap : 256, bytes;
        size_t *grown = size_mul(cap, sizeof *grown, &bytes) ? realloc(ends->at, bytes) : NULL;
        if (!grown) return err_set(e, "out of memory for the pieces of a text");
        ends->at = grown;
        ends->cap = cap;
    }
    ends->at[ends->n++] = at;
    return 0;
}

static bool has_name(const char *names, Text name) {
    while (*names) {
        size_t n = strcspn(names, " ");
        if (n == name.size && !memcmp(names, name.data, n)) return true;
        names += n + strspn(names + n, " ");
    }
    return false;
}

static const Family *family_of(Text name) {
    for (int f = 0; f < pretokenizer_n_families; f++)
        if (has_name(pretokenizer_families[f].names, name)) return &pretokenizer_families[f];
    return NULL;
}

int pretokenizer_create(Text name, Pretokenizer **out, Err *e) {
    *out = NULL;
    const Family *family = family_of(name);
    if (!family)
        return err_set(e,
                       "unknown pre-tokenizer \"%s\" (tokenizer.ggml.pre); gpt-2, llama-bpe, qwen2, smollm and many "
                       "more are known (docs/tokenizers.md)",
                       text_printable(name).text);
    Pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "out of memory for the pre-tokenizer");
    p->family = family;
    for (int i = 0; i < MAX_PATTERNS && family->patterns[i].regex; i++) {
        const char *regex = family->patterns[i].regex;
        if (regex_compile(regex, strlen(regex), REGEX_TRUSTED, &p->patterns[i], e)) {
            pretokenizer_free(p);
            return err_context(e, "pre-tokenizer");
        }
        p->n_patterns++;
    }
    *out = p;
    return 0;
}

void pretokenizer_free(Pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < MAX_PATTERNS; i++) regex_free(p->patterns[i]);
    free(p->ends.at);
    free(p->spare.at);
    free(p);
}

PretokenizerTraits pretokenizer_traits(const Pretokenizer *p) { return p->family->traits; }

bool pretokenizer_is_raw(Text name) {
    const Family *family = family_of(name);
    return family && family->traits.raw;
}

bool pretokenizer_name(int i, Text *name) {
    if (i < 0 || i >= pretokenizer_n_families) return false;
    *name = (Text){pretokenizer_families[i].names, strcspn(pretokenizer_families[i].names, " ")};
    return true;
}

/* Where pieces of three characters begin in text[from, to), counted from its end. */
static int cut_threes(const char *text, size_t from, size_t to, Ends *ends, Err *e) {
    size_t characters = 0;
    for (size_t at = from; at < to; at += unicode_size(text[at])) characters++;
    for (size_t at = from; at < to; at += unicode_size(text[at]), characters--)
        if (characters % 3 == 0 && add_end(ends, at, e)) return -1;
    return 0;
}

/* Cuts text[begin, end) at the matches of one pattern. It sees nothing outside. */
static int split_piece(Regex *pattern, Cut cut, const char *text, size_t begin, size_t end, Ends *ends, Err *e) {
    RegexIter it = {0};
    size_t from, to;
    int found;
    while ((found = regex_each(pattern, text + begin, end - begin, &it, &from, &to, e)) > 0) {
        if (cut != CUT_BETWEEN && add_end(ends, begin + from, e)) return -1;
        if (cut != CUT_WHOLE && cut_threes(text, begin + from, begin + to, ends, e)) return -1;
        if (cut != CUT_BETWEEN && add_end(ends, begin + to, e)) return -1;
    }
    return found < 0 || add_end(ends, end, e) ? -1 : 0;
}

int pretokenizer_split(Pretokenizer *p, const char *text, size_t bytes, const size_t **ends, size_t *n, Err *e) {
    p->ends.n = 0;
    if (bytes && add_end(&p->ends, bytes, e)) return -1;
    for (int i = 0; i < p->n_patterns; i++) {
        p->spare.n = 0;
        for (size_t piece = 0, begin = 0; piece < p->ends.n; begin = p->ends.at[piece++])
            if (split_piece(p->patterns[i], p->family->patterns[i].cut, text, begin, p->ends.at[piece], &p->spare, e))
                return -1;
        Ends swap = p->ends;
        p->ends = p->spare;
        p->spare = swap;
    }
    *ends = p->ends.at;
    *n = p->ends.n;
    return 0;
}
