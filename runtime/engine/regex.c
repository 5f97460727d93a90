#include "engine/regex.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/unicode.h"
#include "graph/model_file.h"

enum { UNTRUSTED_STEPS = 2000000 }; /* for one match: tens of milliseconds */

struct Regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static int compile(Regex *r, const char *pattern, size_t n, unsigned flags, Err *e) {
    uint32_t options = PCRE2_UTF | PCRE2_NO_UTF_CHECK;
    options |= flags & REGEX_LITERAL ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C; /* \C cuts characters */
    if (flags & REGEX_MULTILINE) options |= PCRE2_MULTILINE;
    int code;
    PCRE2_SIZE where;
    r->code = pcre2_compile((PCRE2_SPTR)pattern, n, options, &code, &where, NULL);
    if (!r->code) {
        PCRE2_UCHAR text[128] = {0};
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, "PCRE2 refuses the pattern %s at byte %zu: %s", text_printable((Text){pattern, n}).text,
                       where, (char *)text);
    }
    /* Where the system forbids compiled code, matching goes on without. */
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    r->match = pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    r->stack = pcre2_jit_stack_create(32 << 10, 64 << 20, NULL); /* address space; it takes what it uses */
    if (!r->match || !r->context) return err_set(e, "out of memory for a pattern");
    if (r->stack) pcre2_jit_stack_assign(r->context, NULL, r->stack);
    /* Our patterns may go back once over a run of white space as long as the text; PCRE2's own limit of 10^7 steps
     * would refuse one of 10 MB. */
    pcre2_set_match_limit(r->context, flags & REGEX_TRUSTED ? UINT32_MAX : UNTRUSTED_STEPS);
    return 0;
}

int regex_compile(const char *pattern, size_t n, unsigned flags, Regex **out, Err *e) {
    *out = NULL;
    Regex *r = calloc(1, sizeof *r);
    if (!r) return err_set(e, "out of memory for a pattern");
    if (compile(r, pattern, n, flags, e)) {
        regex_free(r);
        return -1;
    }
    *out = r;
    return 0;
}

void regex_free(Regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->context);
    pcre2_jit_stack_free(r->stack);
    free(r);
}

int regex_next(Regex *r, const char *text, size_t n, size_t from, size_t *begin, size_t *end, Err *e) {
    int found = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, r->match, r->context);
    if (found == PCRE2_ERROR_NOMATCH) return 0;
    if (found < 0) {
        PCRE2_UCHAR why[128] = {0};
        pcre2_get_error_message(found, why, sizeof why);
        return err_set(e, "the text cannot be cut into pieces at byte %zu: %s", from, (char *)why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    *begin = at[0];
    *end = at[1];
    return 1;
}

int regex_each(Regex *r, const char *text, size_t n, RegexIter *it, size_t *begin, size_t *end, Err *e) {
    while (it->from <= n) {
        int found = regex_next(r, text, n, it->from, begin, end, e);
        if (found <= 0) return found;
        bool empty = *begin == *end, repeated = empty && it->any && *begin == it->last_end;
        it->from = *end;
        if (empty) it->from += *end < n ? unicode_size(text[*end]) : 1;
        if (repeated) continue;
        it->last_end = *end;
        it->any = true;
        return 1;
    }
    return 0;
}
