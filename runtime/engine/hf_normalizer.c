#include "engine/hf_normalizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base64.h"
#include "engine/bert_text.h"
#include "engine/charsmap.h"
#include "engine/graphemes.h"
#include "engine/onig.h"
#include "engine/unicode.h"
#include "engine/utf8.h"

enum { MAX_STEPS = 32 };

typedef struct Step Step;
typedef struct StepKind {
    const char *type;
    const char *keys[5];                                            /* what the object may have besides "type" */
    int (*read)(Step *s, const cJSON *o, const char *what, Err *e); /* or NULL */
    int (*run)(Step *s, const char *text, size_t n, StrBuf *out, Err *e);
    UnicodeForm form;
} StepKind;

struct Step {
    const StepKind *kind;
    Text text;        /* Prepend, Replace: what to put */
    Regex *pattern;   /* Replace; owned */
    bool left, right; /* Strip */
    BertText bert;
    Charsmap map;   /* Precompiled; owned */
    StrBuf scratch; /* owned */
    size_t most;    /* Replace: where to stop */
};

struct HfNormalizer {
    Step steps[MAX_STEPS];
    int n;
    StrBuf even, odd; /* what the last step made, and the one before it */
};

/* ---- the steps --------------------------------------------------------------------------------------------------- */

static int run_form(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    return unicode_normalize(s->kind->form, text, n, out, e);
}

static int run_lowercase(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    unicode_lower(text, n, out);
    return 0;
}

static int run_strip_accents(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    for (size_t i = 0, size; i < n; i += size)
        if (!unicode_is_mark(unicode_at(text + i, &size))) strbuf_add(out, text + i, size);
    return 0;
}

static int read_bert(Step *s, const cJSON *o, const char *what, Err *e) {
    if (hf_json_bool(o, what, "clean_text", true, &s->bert.clean, e) ||
        hf_json_bool(o, what, "handle_chinese_chars", true, &s->bert.spaced, e) ||
        hf_json_bool(o, what, "lowercase", true, &s->bert.lower, e))
        return -1;
    s->bert.strip_accents = s->bert.lower; /* unless it says otherwise */
    return hf_json_bool(o, what, "strip_accents", false, &s->bert.strip_accents, e);
}

static int run_bert(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    return bert_text_clean(&s->bert, text, n, &s->scratch, out, e);
}

static int read_strip(Step *s, const cJSON *o, const char *what, Err *e) {
    return hf_json_bool(o, what, "strip_left", true, &s->left, e) ||
                   hf_json_bool(o, what, "strip_right", true, &s->right, e)
               ? -1
               : 0;
}

static int run_strip(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)e;
    size_t begin = 0, size;
    while (s->left && begin < n && unicode_is_space(unicode_at(text + begin, &size))) begin += size;
    while (s->right && n > begin && unicode_is_space(unicode_at(text + unicode_before(text, n), &size))) n -= size;
    strbuf_add(out, text + begin, n - begin);
    return 0;
}

static int read_prepend(Step *s, const cJSON *o, const char *what, Err *e) {
    return hf_json_string(o, what, "prepend", true, &s->text, e);
}

static int run_prepend(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)e;
    if (n) strbuf_add(out, s->text.data, s->text.size);
    strbuf_add(out, text, n);
    return 0;
}

static int read_replace(Step *s, const cJSON *o, const char *what, Err *e) {
    Text pattern;
    bool regex;
    if (hf_json_string(o, what, "content", true, &s->text, e) || hf_json_pattern(o, what, &pattern, &regex, e))
        return -1;
    if (regex ? onig_compile(pattern.data, pattern.size, &s->pattern, e)
              : regex_compile(pattern.data, pattern.size, REGEX_LITERAL, &s->pattern, e))
        return err_context(e, "%s", what);
    return 0;
}

static int run_replace(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    RegexIter it = {0};
    size_t copied = 0, begin, end;
    int found = 0; /* an empty text has no matches */
    while (n && (found = regex_each(s->pattern, text, n, &it, &begin, &end, e)) > 0) {
        strbuf_add(out, text + copied, begin - copied);
        strbuf_add(out, s->text.data, s->text.size);
        copied = end;
        if (out->len > s->most) return 0; /* too long already: the caller says so */
    }
    strbuf_add(out, text + copied, n - copied);
    return found;
}

static int run_byte_level(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    ByteLetters letters;
    byte_letters_init(&letters);
    for (size_t i = 0; i < n; i++) strbuf_add(out, letters.utf8[(uint8_t)text[i]], letters.size[(uint8_t)text[i]]);
    return 0;
}

/* What SentencePiece does to texts for translation (its nmt_nfkc rules): some control characters go, others and what
 * has no width become spaces. */
static int run_nmt(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    for (size_t i = 0, size; i < n; i += size) {
        int32_t c = unicode_at(text + i, &size);
        if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
            continue;
        bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
        strbuf_add(out, space ? " " : text + i, space ? 1 : size);
    }
    return 0;
}

static int read_precompiled(Step *s, const cJSON *o, const char *what, Err *e) {
    Text text;
    if (hf_json_string(o, what, "precompiled_charsmap", true, &text, e)) return -1;
    uint8_t *table;
    size_t n;
    if (base64_decode(text.data, text.size, &table, &n, e)) return err_context(e, "%s", what);
    int failed = charsmap_init(&s->map, table, n, e);
    free(table);
    return failed ? err_context(e, "%s: precompiled_charsmap", what) : 0;
}

/* As Hugging Face applies the table: to what a reader sees as one character when that is short, with the shortest entry
 * for all of it, else to each code point. */
static int run_precompiled(Step *s, const char *text, size_t n, StrBuf *out, Err *e) {
    (void)e;
    enum { LONG = 6 }; /* bytes */
    for (size_t i = 0; i < n;) {
        size_t cluster = grapheme_size(text + i, n - i);
        Text as;
        if (cluster < LONG && charsmap_shortest(&s->map, text + i, cluster, &as)) {
            strbuf_add(out, as.data, as.size);
            i += cluster;
            continue;
        }
        for (size_t end = i + cluster, size; i < end; i += size) {
            size = unicode_size(text[i]);
            if (charsmap_shortest(&s->map, text + i, size, &as)) strbuf_add(out, as.data, as.size);
            else strbuf_add(out, text + i, size);
        }
    }
    return 0;
}

static const StepKind kinds[] = {
    {.type = "NFC", .run = run_form, .form = UNICODE_NFC},
    {.type = "NFD", .run = run_form, .form = UNICODE_NFD},
    {.type = "NFKC", .run = run_form, .form = UNICODE_NFKC},
    {.type = "NFKD", .run = run_form, .form = UNICODE_NFKD},
    {.type = "Lowercase", .run = run_lowercase},
    {.type = "StripAccents", .run = run_strip_accents},
    {.type = "BertNormalizer",
     .keys = {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
     .read = read_bert,
     .run = run_bert},
    {.type = "Strip", .keys = {"strip_left", "strip_right"}, .read = read_strip, .run = run_strip},
    {.type = "Prepend", .keys = {"prepend"}, .read = read_prepend, .run = run_prepend},
    {.type = "Replace", .keys = {"pattern", "content"}, .read = read_replace, .run = run_replace},
    {.type = "ByteLevel", .run = run_byte_level},
    {.type = "Nmt", .run = run_nmt},
    {.type = "Precompiled", .keys = {"precompiled_charsmap"}, .read = read_precompiled, .run = run_precompiled},
};

/* ---- reading and running them ------------------------------------------------------------------------------------ */

static int add_steps(HfNormalizer *n, const cJSON *o, Err *e);

static int add_sequence(HfNormalizer *n, const cJSON *o, Err *e) {
    static const char *const keys[] = {"normalizers", NULL};
    const cJSON *list = hf_json_get(o, "normalizers");
    if (hf_json_only(o, "normalizer Sequence", keys, e)) return -1;
    if (!cJSON_IsArray(list)) return err_set(e, "normalizer Sequence: \"normalizers\" is no list");
    for (const cJSON *v = list->child; v; v = v->next)
        if (add_steps(n, v, e)) return -1;
    return 0;
}

static int add_steps(HfNormalizer *n, const cJSON *o, Err *e) {
    Text type;
    if (hf_json_type(o, "normalizer", &type, e)) return -1;
    if (hf_is(type, "Sequence")) return add_sequence(n, o, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_is(type, kinds[i].type)) continue;
        char what[64];
        snprintf(what, sizeof what, "normalizer %s", kinds[i].type);
        if (hf_json_only(o, what, kinds[i].keys, e)) return -1;
        if (n->n == MAX_STEPS) return err_set(e, "normalizer: more than %d steps", (int)MAX_STEPS);
        Step *s = &n->steps[n->n++];
        s->kind = &kinds[i];
        return kinds[i].read ? kinds[i].read(s, o, what, e) : 0;
    }
    return err_set(e, "normalizer \"%s\" is not supported", text_printable(type).text);
}

int hf_normalizer_create(const cJSON *o, HfNormalizer **out, Err *e) {
    *out = NULL;
    HfNormalizer *n = calloc(1, sizeof *n);
    if (!n) return err_set(e, "out of memory for the normalizer");
    if (o && add_steps(n, o, e)) {
        hf_normalizer_free(n);
        return -1;
    }
    *out = n;
    return 0;
}

void hf_normalizer_free(HfNormalizer *n) {
    if (!n) return;
    for (int i = 0; i < n->n; i++) {
        regex_free(n->steps[i].pattern);
        charsmap_free(&n->steps[i].map);
        strbuf_free(&n->steps[i].scratch);
    }
    strbuf_free(&n->even);
    strbuf_free(&n->odd);
    free(n);
}

int hf_normalize(HfNormalizer *n, const char *text, size_t bytes, Text *out, Err *e) {
    size_t most = hf_most_bytes(bytes);
    *out = (Text){text, bytes};
    for (int i = 0; i < n->n; i++) {
        StrBuf *to = i % 2 ? &n->odd : &n->even;
        to->len = 0;
        n->steps[i].most = most;
        if (n->steps[i].kind->run(&n->steps[i], out->data, out->size, to, e)) return -1;
        if (to->failed) return err_set(e, "out of memory for a text of %zu bytes", bytes);
        if (to->len > most) return err_set(e, "a text of %zu bytes grows beyond %zu in the normalizer", bytes, most);
        *out = (Text){to->data, to->len};
    }
    return 0;
}
