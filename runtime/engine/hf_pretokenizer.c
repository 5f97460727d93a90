#include "engine/hf_pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bert_text.h"
#include "engine/onig.h"
#include "engine/utf8.h"

enum { MAX_STEPS = 32 };

/* Patterns that Hugging Face's code has, in PCRE2's words. */
#define WS          "\\p{White_Space}"
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" WS "+(?!\\P{White_Space})|" WS "+"
#define WORD        "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define WORD_OR_NOT "[" WORD "]+|[^" WORD WS "]+"

typedef enum Prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } Prepend;

typedef struct Step Step;
typedef struct StepKind {
    const char *type;
    const char *keys[5];                                            /* what the object may have besides "type" */
    int (*read)(Step *s, const cJSON *o, const char *what, Err *e); /* or NULL */
    int (*run)(Step *s, const char *text, size_t n, bool first, HfPieces *out, Err *e); /* one piece */
    bool (*is)(int32_t c); /* where to cut, unless there is a pattern */
    const char *pattern;   /* ours */
    HfBehavior behavior;
    bool invert;
} StepKind;

struct Step {
    const StepKind *kind;
    Regex *pattern; /* owned */
    HfBehavior behavior;
    bool invert;
    bool split;           /* Metaspace, ByteLevel: cut too */
    bool prefix_space;    /* ByteLevel */
    Prepend prepend;      /* Metaspace */
    Text space;           /* Metaspace: what stands for a space */
    ByteLetters *letters; /* ByteLevel; owned */
    HfSegments segments;  /* scratch; owned */
    StrBuf scratch;       /* owned */
};

struct HfPretokenizer {
    Step steps[MAX_STEPS];
    int n;
    HfPieces even, odd;
};

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

/* Cuts by the step's pattern or kind of character and adds what is left. */
static int add_cut(Step *s, const char *text, size_t n, bool first, HfPieces *out, Err *e) {
    if (s->pattern ? hf_segments_by_regex(&s->segments, s->pattern, text, n, e)
                   : hf_segments_by_kind(&s->segments, s->kind->is, text, n, e))
        return -1;
    hf_segments_behave(&s->segments, s->behavior, s->invert);
    for (size_t i = 0; i < s->segments.n; i++) {
        HfSegment seg = s->segments.at[i];
        if (seg.match || seg.begin == seg.end) continue;
        if (first && out->n == 0) out->at_start = seg.begin == 0;
        strbuf_add(&out->text, text + seg.begin, seg.end - seg.begin);
        if (hf_pieces_end(out, e)) return -1;
    }
    return 0;
}

static int read_split(Step *s, const cJSON *o, const char *what, Err *e) {
    Text pattern, behavior;
    bool regex;
    if (hf_json_pattern(o, what, &pattern, &regex, e) || hf_json_string(o, what, "behavior", true, &behavior, e) ||
        hf_json_bool(o, what, "invert", true, &s->invert, e))
        return -1;
    if (hf_behavior(behavior.data, &s->behavior, e) ||
        (regex ? onig_compile(pattern.data, pattern.size, &s->pattern, e)
               : regex_compile(pattern.data, pattern.size, REGEX_LITERAL, &s->pattern, e)))
        return err_context(e, "%s", what);
    return 0;
}

static int read_delimiter(Step *s, const cJSON *o, const char *what, Err *e) {
    Text c;
    if (hf_json_string(o, what, "delimiter", true, &c, e)) return -1;
    if (!c.size || unicode_size(c.data[0]) != c.size) return err_set(e, "%s: \"delimiter\" is not one character", what);
    return regex_compile(c.data, c.size, REGEX_LITERAL, &s->pattern, e);
}

static int read_digits(Step *s, const cJSON *o, const char *what, Err *e) {
    bool individual;
    if (hf_json_bool(o, what, "individual_digits", true, &individual, e)) return -1;
    s->behavior = individual ? HF_ISOLATED : HF_CONTIGUOUS;
    return 0;
}

static int read_punctuation(Step *s, const cJSON *o, const char *what, Err *e) {
    Text name = {"Isolated", 8};
    if (hf_json_string(o, what, "behavior", false, &name, e)) return -1;
    return hf_behavior(name.data, &s->behavior, e) ? err_context(e, "%s", what) : 0;
}

static int run_bert(Step *s, const char *text, size_t n, bool first, HfPieces *out, Err *e) {
    (void)s;
    for (size_t at = 0, end; (end = bert_text_word(text, n, &at)); at = end) {
        if (first && out->n == 0) out->at_start = at == 0;
        strbuf_add(&out->text, text + at, end - at);
        if (hf_pieces_end(out, e)) return -1;
    }
    return 0;
}

/* ---- changing ---------------------------------------------------------------------------------------------------- */

static int read_byte_level(Step *s, const cJSON *o, const char *what, Err *e) {
    bool ignored; /* it moves offsets, not tokens */
    s->split = true;
    if (hf_json_bool(o, what, "add_prefix_space", true, &s->prefix_space, e) ||
        hf_json_bool(o, what, "trim_offsets", true, &ignored, e) ||
        hf_json_bool(o, what, "use_regex", false, &s->split, e))
        return -1;
    s->letters = malloc(sizeof *s->letters);
    if (!s->letters) return err_set(e, "out of memory for the pre-tokenizer");
    byte_letters_init(s->letters);
    return 0;
}

/* The text with a space before it when it should have one and has none; in scratch when it is another. */
static Text spaced(Step *s, const char *text, size_t n) {
    if (!s->prefix_space || (n && text[0] == ' ')) return (Text){text, n};
    s->scratch.len = 0;
    strbuf_add(&s->scratch, " ", 1);
    strbuf_add(&s->scratch, text, n);
    return (Text){s->scratch.data, s->scratch.len};
}

static int run_byte_level(Step *s, const char *text, size_t n, bool first, HfPieces *out, Err *e) {
    Text t = spaced(s, text, n);
    if (s->scratch.failed) return err_set(e, "out of memory for the pieces of a text");
    size_t begin = 0, i = 0, end;
    if (s->split && hf_segments_by_regex(&s->segments, s->pattern, t.data, t.size, e)) return -1;
    if (first && out->n == 0) out->at_start = true;
    do {
        end = s->split ? s->segments.at[i].end : t.size;
        for (size_t at = begin; at < end; at++) {
            uint8_t b = (uint8_t)t.data[at];
            strbuf_add(&out->text, s->letters->utf8[b], s->letters->size[b]);
        }
        if (hf_pieces_end(out, e)) return -1;
        begin = end;
    } while (s->split && ++i < s->segments.n);
    return 0;
}

static int read_metaspace(Step *s, const cJSON *o, const char *what, Err *e) {
    static const char *const schemes[] = {
        [PREPEND_NEVER] = "never", [PREPEND_FIRST] = "first", [PREPEND_ALWAYS] = "always"};
    Text scheme = {"always", 6};
    bool old = true; /* what older files have in place of the scheme */
    s->split = true;
    if (hf_json_string(o, what, "replacement", true, &s->space, e) ||
        hf_json_string(o, what, "prepend_scheme", false, &scheme, e) ||
        hf_json_bool(o, what, "add_prefix_space", false, &old, e) ||
        hf_json_bool(o, what, "split", false, &s->split, e))
        return -1;
    if (!s->space.size || unicode_size(s->space.data[0]) != s->space.size)
        return err_set(e, "%s: \"replacement\" is not one character", what);
    int i = 0;
    while (i < 3 && !hf_is(scheme, schemes[i])) i++;
    if (i == 3) return err_set(e, "%s: prepend_scheme \"%s\" is not supported", what, text_printable(scheme).text);
    s->prepend = (Prepend)i;
    if (!old && hf_json_get(o, "prepend_scheme") && s->prepend != PREPEND_NEVER)
        return err_set(e, "%s: \"add_prefix_space\" does not fit \"prepend_scheme\"", what);
    if (!old) s->prepend = PREPEND_NEVER;
    s->behavior = HF_MERGED_WITH_NEXT;
    return regex_compile(s->space.data, s->space.size, REGEX_LITERAL, &s->pattern, e);
}

static int run_metaspace(Step *s, const char *text, size_t n, bool first, HfPieces *out, Err *e) {
    StrBuf *t = &s->scratch;
    t->len = 0;
    bool has = n && (text[0] == ' ' || (n >= s->space.size && !memcmp(text, s->space.data, s->space.size)));
    if (!has && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first)))
        strbuf_add(t, s->space.data, s->space.size);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ') strbuf_add(t, s->space.data, s->space.size);
        else strbuf_add(t, text + i, 1);
    if (t->failed) return err_set(e, "out of memory for the pieces of a text");
    if (s->split) return add_cut(s, t->data, t->len, first, out, e);
    if (first && out->n == 0) out->at_start = true;
    strbuf_add(&out->text, t->data, t->len);
    return hf_pieces_end(out, e);
}

static const StepKind kinds[] = {
    {.type = "Split", .keys = {"pattern", "behavior", "invert"}, .read = read_split, .run = add_cut},
    {.type = "CharDelimiterSplit", .keys = {"delimiter"}, .read = read_delimiter, .run = add_cut},
    {.type = "Digits", .keys = {"individual_digits"}, .read = read_digits, .run = add_cut, .is = unicode_is_numeric},
    {.type = "Punctuation", .keys = {"behavior"}, .read = read_punctuation, .run = add_cut, .is = unicode_is_punct},
    {.type = "Whitespace", .run = add_cut, .pattern = WORD_OR_NOT, .invert = true},
    {.type = "WhitespaceSplit", .run = add_cut, .is = unicode_is_space},
    {.type = "BertPreTokenizer", .run = run_bert},
    {.type = "ByteLevel",
     .keys = {"add_prefix_space", "trim_offsets", "use_regex"},
     .read = read_byte_level,
     .run = run_byte_level,
     .pattern = GPT2},
    {.type = "Metaspace",
     .keys = {"replacement", "prepend_scheme", "add_prefix_space", "split"},
     .read = read_metaspace,
     .run = run_metaspace},
};

/* ---- reading and running them ------------------------------------------------------------------------------------ */

static int add_steps(HfPretokenizer *p, const cJSON *o, Err *e);

static int add_sequence(HfPretokenizer *p, const cJSON *o, Err *e) {
    static const char *const keys[] = {"pretokenizers", NULL};
    const cJSON *list = hf_json_get(o, "pretokenizers");
    if (hf_json_only(o, "pre_tokenizer Sequence", keys, e)) return -1;
    if (!cJSON_IsArray(list)) return err_set(e, "pre_tokenizer Sequence: \"pretokenizers\" is no list");
    for (const cJSON *v = list->child; v; v = v->next)
        if (add_steps(p, v, e)) return -1;
    return 0;
}

static int add_steps(HfPretokenizer *p, const cJSON *o, Err *e) {
    Text type;
    if (hf_json_type(o, "pre_tokenizer", &type, e)) return -1;
    if (hf_is(type, "Sequence")) return add_sequence(p, o, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const StepKind *k = &kinds[i];
        if (!hf_is(type, k->type)) continue;
        char what[64];
        snprintf(what, sizeof what, "pre_tokenizer %s", k->type);
        if (hf_json_only(o, what, k->keys, e)) return -1;
        if (p->n == MAX_STEPS) return err_set(e, "pre_tokenizer: more than %d steps", (int)MAX_STEPS);
        Step *s = &p->steps[p->n++];
        *s = (Step){.kind = k, .behavior = k->behavior, .invert = k->invert};
        if (k->pattern && regex_compile(k->pattern, strlen(k->pattern), REGEX_TRUSTED, &s->pattern, e)) return -1;
        return k->read ? k->read(s, o, what, e) : 0;
    }
    return err_set(e, "pre_tokenizer \"%s\" is not supported", text_printable(type).text);
}

int hf_pretokenizer_create(const cJSON *o, HfPretokenizer **out, Err *e) {
    *out = NULL;
    HfPretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "out of memory for the pre-tokenizer");
    if (o && add_steps(p, o, e)) {
        hf_pretokenizer_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void hf_pretokenizer_free(HfPretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        regex_free(p->steps[i].pattern);
        hf_segments_free(&p->steps[i].segments);
        strbuf_free(&p->steps[i].scratch);
        free(p->steps[i].letters);
    }
    hf_pieces_free(&p->even);
    hf_pieces_free(&p->odd);
    free(p);
}

int hf_pretokenize(HfPretokenizer *p, const char *text, size_t n, bool at_start, const HfPieces **out, Err *e) {
    HfPieces *from = &p->odd, *to = &p->even;
    hf_pieces_clear(from);
    strbuf_add(&from->text, text, n);
    if (hf_pieces_end(from, e)) return -1;
    from->at_start = at_start;
    for (int i = 0; i < p->n; i++) {
        hf_pieces_clear(to);
        for (size_t piece = 0, begin = 0; piece < from->n; begin = from->ends[piece++]) {
            bool first = piece == 0 && from->at_start;
            if (p->steps[i].kind->run(&p->steps[i], from->text.data + begin, from->ends[piece] - begin, first, to, e))
                return -1;
            if (to->text.len > hf_most_bytes(n))
                return err_set(e, "a text of %zu bytes grows beyond %zu in the pre_tokenizer", n, hf_most_bytes(n));
        }
        HfPieces *swap = from;
        from = to;
        to = swap;
    }
    *out = from;
    return 0;
}
