#include "engine/pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/size.h"

/* The patterns, in PCRE2's syntax, are those of the models' tokenizer.json files as llama.cpp reads them
 * (https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp). In those, \s is Unicode's White_Space;
 * PCRE2's own \s also takes in U+180E, so the property is named. */
#define WS     "\\p{White_Space}"
#define NOT_WS "\\P{White_Space}"
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" WS "+(?!" NOT_WS ")|" WS "+"
#define DIGITS(how_many)                                                                                               \
    "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" how_many "| ?[^" WS              \
    "\\p{L}\\p{N}]+[\\r\\n]*|" WS "*[\\r\\n]+|" WS "+(?!" NOT_WS ")|" WS "+"

enum { MAX_PATTERNS = 4 };
typedef struct Family {
    const char *names[12];              /* in tokenizer.ggml.pre; NULL-terminated */
    const char *patterns[MAX_PATTERNS]; /* applied in turn, each to the pieces that those before it left */
    PretokenizerTraits traits;
} Family;

static const Family families[] = {
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
     .patterns = {"\\p{N}", GPT2}},
    {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling"}, .patterns = {GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"},
     .patterns = {DIGITS("{1,3}")},
     .traits = {.ignore_merges = true, .add_bos = true}},
    {.names = {"dbrx", "smaug-bpe"}, .patterns = {DIGITS("{1,3}")}},
    {.names = {"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"}, .patterns = {DIGITS("")}},
    {.names = {"default"}, .patterns = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};
enum { FAMILIES = sizeof families / sizeof *families };

typedef struct Ends { /* a list of offsets that grows */
    size_t *at;
    size_t n, cap;
} Ends;

struct Pretokenizer {
    const Family *family;
    int n_patterns;
    pcre2_code *code[MAX_PATTERNS];
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    Ends ends, spare; /* what the last pattern left, and room for the next */
};

static int add_end(Ends *ends, size_t at, Err *e) {
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

static const Family *family_of(GgufString name) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; families[f].names[i]; i++)
            if (strlen(families[f].names[i]) == name.size && !memcmp(families[f].names[i], name.data, name.size))
                return &families[f];
    return NULL;
}

static int unknown(GgufString name, Err *e) {
    char list[400];
    size_t n = 0;
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; families[f].names[i] && n + 32 < sizeof list; i++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", families[f].names[i]);
    return err_set(e, "unknown pre-tokenizer \"%s\" (tokenizer.ggml.pre); known are %s", gguf_printable(name).text,
                   list);
}

static int compile(const char *pattern, pcre2_code **out, Err *e) {
    int code;
    PCRE2_SIZE where;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code,
                         &where, NULL);
    if (!*out) {
        PCRE2_UCHAR text[128] = {0};
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, "pre-tokenizer: PCRE2 refuses the pattern %s at %zu: %s", pattern, where, (char *)text);
    }
    /* Where the system forbids compiled code, matching goes on without. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return 0;
}

int pretokenizer_create(GgufString name, Pretokenizer **out, Err *e) {
    *out = NULL;
    const Family *family = family_of(name);
    if (!family) return unknown(name, e);
    Pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "out of memory for the pre-tokenizer");
    p->family = family;
    int failed = 0;
    for (; !failed && p->n_patterns < MAX_PATTERNS && family->patterns[p->n_patterns]; p->n_patterns++)
        failed = compile(family->patterns[p->n_patterns], &p->code[p->n_patterns], e);
    if (!failed) {
        p->match = pcre2_match_data_create(1, NULL);
        p->context = pcre2_match_context_create(NULL);
        p->stack = pcre2_jit_stack_create(32 << 10, 1 << 20, NULL);
        if (p->context && p->stack) pcre2_jit_stack_assign(p->context, NULL, p->stack);
        /* The patterns are ours and go back over a run of white space once at most; PCRE2's limit of 10^7 steps would
         * only refuse such a run of 10 MB. */
        if (p->context) pcre2_set_match_limit(p->context, UINT32_MAX);
        if (!p->match || !p->context) failed = err_set(e, "out of memory for the pre-tokenizer");
    }
    if (failed) {
        pretokenizer_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void pretokenizer_free(Pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < MAX_PATTERNS; i++) pcre2_code_free(p->code[i]);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    free(p->ends.at);
    free(p->spare.at);
    free(p);
}

PretokenizerTraits pretokenizer_traits(const Pretokenizer *p) { return p->family->traits; }

/* Cuts text[begin, end) into the matches of one pattern and what lies between them. It sees nothing outside. */
static int split_piece(Pretokenizer *p, const pcre2_code *code, const char *text, size_t begin, size_t end, Ends *ends,
                       Err *e) {
    size_t at = begin; /* all before it is in pieces */
    while (at < end) {
        int r = pcre2_match(code, (PCRE2_SPTR)text + begin, end - begin, at - begin, PCRE2_NO_UTF_CHECK, p->match,
                            p->context);
        if (r == PCRE2_ERROR_NOMATCH) break;
        if (r < 0) {
            PCRE2_UCHAR why[128] = {0};
            pcre2_get_error_message(r, why, sizeof why);
            return err_set(e, "the text cannot be cut into pieces at byte %zu: %s", at, (char *)why);
        }
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(p->match);
        size_t from = begin + found[0], to = begin + found[1];
        if (from > at && add_end(ends, from, e)) return -1;
        if (add_end(ends, to, e)) return -1;
        at = to; /* no pattern matches the empty string */
    }
    return at < end ? add_end(ends, end, e) : 0;
}

int pretokenizer_split(Pretokenizer *p, const char *text, size_t bytes, const size_t **ends, size_t *n, Err *e) {
    p->ends.n = 0;
    if (bytes && add_end(&p->ends, bytes, e)) return -1;
    for (int i = 0; i < p->n_patterns; i++) {
        p->spare.n = 0;
        for (size_t piece = 0, begin = 0; piece < p->ends.n; begin = p->ends.at[piece++])
            if (split_piece(p, p->code[i], text, begin, p->ends.at[piece], &p->spare, e)) return -1;
        Ends swap = p->ends;
        p->ends = p->spare;
        p->spare = swap;
    }
    *ends = p->ends.at;
    *n = p->ends.n;
    return 0;
}
