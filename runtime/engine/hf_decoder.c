#include "engine/hf_decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/onig.h"
#include "engine/utf8.h"
#include "engine/vocab.h"

enum { MAX_STEPS = 32 };

typedef struct Step Step;
typedef struct StepKind {
    const char *type;
    const char *keys[5];                                            /* what the object may have besides "type" */
    int (*read)(Step *s, const cJSON *o, const char *what, Err *e); /* or NULL */
    int (*run)(Step *s, Text token, StrBuf *out, Err *e);
} StepKind;

struct Step {
    const StepKind *kind;
    Regex *pattern;      /* Replace, Metaspace, BPEDecoder: what is replaced; owned */
    Text text;           /* by what; WordPiece: the prefix; Strip: the character */
    bool cleanup;        /* WordPiece */
    int64_t start, stop; /* Strip: how many */
    ByteLetters letters; /* ByteLevel */
};

struct HfDecoder {
    Step steps[MAX_STEPS];
    int n;
    bool fused; /* a Fuse step was read: what follows is for the whole text */
    StrBuf even, odd;
};

/* ---- the steps --------------------------------------------------------------------------------------------------- */

static int read_byte_level(Step *s, const cJSON *o, const char *what, Err *e) {
    byte_letters_init(&s->letters); /* the members are for offsets */
    (void)o;
    (void)what;
    (void)e;
    return 0;
}

static int run_byte_level(Step *s, Text token, StrBuf *out, Err *e) {
    char *bytes = malloc(token.size + 1);
    if (!bytes) return err_set(e, "out of memory for a token");
    int64_t n = byte_letters_decode(&s->letters, token.data, token.size, bytes, token.size);
    /* A token with anything in it that is no letter of a byte stands for itself. */
    if (n < 0) strbuf_add(out, token.data, token.size);
    else strbuf_add(out, bytes, (size_t)n);
    free(bytes);
    return 0;
}

static int read_replace(Step *s, const cJSON *o, const char *what, Err *e) {
    Text pattern;
    bool regex;
    if (hf_json_pattern(o, what, &pattern, &regex, e) || hf_json_string(o, what, "content", true, &s->text, e))
        return -1;
    return regex ? onig_compile(pattern.data, pattern.size, &s->pattern, e)
                 : regex_compile(pattern.data, pattern.size, REGEX_LITERAL, &s->pattern, e);
}

/* `key` is what stands for a space. */
static int read_space(Step *s, const cJSON *o, const char *what, const char *key, Err *e) {
    Text text;
    if (hf_json_string(o, what, key, true, &text, e)) return -1;
    if (!text.size) return err_set(e, "%s: \"%s\" is empty", what, key);
    s->text = (Text){" ", 1};
    return regex_compile(text.data, text.size, REGEX_LITERAL, &s->pattern, e);
}
static int read_metaspace(Step *s, const cJSON *o, const char *what, Err *e) {
    return read_space(s, o, what, "replacement", e);
}
static int read_bpe(Step *s, const cJSON *o, const char *what, Err *e) { return read_space(s, o, what, "suffix", e); }

static int run_replace(Step *s, Text token, StrBuf *out, Err *e) {
    RegexIter it = {0};
    size_t copied = 0, begin, end;
    int found = 0; /* an empty text has no matches */
    while (token.size && (found = regex_each(s->pattern, token.data, token.size, &it, &begin, &end, e)) > 0) {
        strbuf_add(out, token.data + copied, begin - copied);
        strbuf_add(out, s->text.data, s->text.size);
        copied = end;
        if (out->len > hf_most_bytes(token.size)) return err_set(e, "a token grows beyond bounds in the decoder");
    }
    strbuf_add(out, token.data + copied, token.size - copied);
    return found;
}

static int read_wordpiece(Step *s, const cJSON *o, const char *what, Err *e) {
    return hf_json_string(o, what, "prefix", true, &s->text, e) ||
                   hf_json_bool(o, what, "cleanup", true, &s->cleanup, e)
               ? -1
               : 0;
}

/* English as it is written: no space before these. */
static size_t unwanted_space(Text token) {
    static const char *const without[] = {" .", " ?", " !", " ,", " n't", " 'm", " 's", " 've", " 're"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (token.size + 1 >= strlen(without[i]) && !memcmp(token.data, without[i] + 1, strlen(without[i]) - 1))
            return 1;
    return 0;
}

static int run_wordpiece(Step *s, Text token, StrBuf *out, Err *e) {
    (void)e;
    size_t n = s->text.size;
    if (n && token.size >= n && !memcmp(token.data, s->text.data, n)) {
        strbuf_add(out, token.data + n, token.size - n);
        return 0;
    }
    if (!s->cleanup || !unwanted_space(token)) strbuf_add(out, " ", 1);
    strbuf_add(out, token.data, token.size);
    return 0;
}

static int run_byte_fallback(Step *s, Text token, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    int b = token_named_byte(token);
    char c = (char)b;
    if (b >= 0) strbuf_add(out, &c, 1);
    else strbuf_add(out, token.data, token.size);
    return 0;
}

static int read_strip(Step *s, const cJSON *o, const char *what, Err *e) {
    if (hf_json_string(o, what, "content", true, &s->text, e) ||
        hf_json_int(o, what, "start", true, 0, INT32_MAX, &s->start, e) ||
        hf_json_int(o, what, "stop", true, 0, INT32_MAX, &s->stop, e))
        return -1;
    return s->text.size ? 0 : err_set(e, "%s: \"content\" is empty", what);
}

static int run_strip(Step *s, Text token, StrBuf *out, Err *e) {
    (void)e;
    size_t n = s->text.size, begin = 0, end = token.size;
    for (int64_t i = 0; i < s->start && end - begin >= n && !memcmp(token.data + begin, s->text.data, n); i++)
        begin += n;
    for (int64_t i = 0; i < s->stop && end - begin >= n && !memcmp(token.data + end - n, s->text.data, n); i++)
        end -= n;
    strbuf_add(out, token.data + begin, end - begin);
    return 0;
}

static int run_spaced(Step *s, Text token, StrBuf *out, Err *e) {
    (void)s;
    (void)e;
    strbuf_add(out, " ", 1);
    strbuf_add(out, token.data, token.size);
    return 0;
}

static const StepKind kinds[] = {
    {"ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}, read_byte_level, run_byte_level},
    {"Metaspace", {"replacement", "prepend_scheme", "add_prefix_space", "split"}, read_metaspace, run_replace},
    {"BPEDecoder", {"suffix"}, read_bpe, run_replace},
    {"Replace", {"pattern", "content"}, read_replace, run_replace},
    {"WordPiece", {"prefix", "cleanup"}, read_wordpiece, run_wordpiece},
    {"ByteFallback", {NULL}, NULL, run_byte_fallback},
    {"Strip", {"content", "start", "stop"}, read_strip, run_strip},
    {"Fuse", {NULL}, NULL, NULL},
};
static const StepKind no_decoder = {.type = "none", .run = run_spaced};

/* ---- reading and running them ------------------------------------------------------------------------------------ */

static int add_steps(HfDecoder *d, const cJSON *o, Err *e);

static int add_sequence(HfDecoder *d, const cJSON *o, Err *e) {
    static const char *const keys[] = {"decoders", NULL};
    const cJSON *list = hf_json_get(o, "decoders");
    if (hf_json_only(o, "decoder Sequence", keys, e)) return -1;
    if (!cJSON_IsArray(list)) return err_set(e, "decoder Sequence: \"decoders\" is no list");
    for (const cJSON *v = list->child; v; v = v->next)
        if (add_steps(d, v, e)) return -1;
    return 0;
}

static int add_steps(HfDecoder *d, const cJSON *o, Err *e) {
    Text type;
    if (hf_json_type(o, "decoder", &type, e)) return -1;
    if (hf_is(type, "Sequence")) return add_sequence(d, o, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const StepKind *k = &kinds[i];
        if (!hf_is(type, k->type)) continue;
        char what[64];
        snprintf(what, sizeof what, "decoder %s", k->type);
        if (hf_json_only(o, what, k->keys, e)) return -1;
        Step s = {.kind = k};
        if (k->read && k->read(&s, o, what, e)) {
            regex_free(s.pattern);
            return -1;
        }
        if (!k->run) d->fused = true;
        if (!k->run || (d->fused && k->run == run_strip)) return 0;
        if (d->n == MAX_STEPS) {
            regex_free(s.pattern);
            return err_set(e, "decoder: more than %d steps", (int)MAX_STEPS);
        }
        d->steps[d->n++] = s;
        return 0;
    }
    return err_set(e, "decoder \"%s\" is not supported", text_printable(type).text);
}

int hf_decoder_create(const cJSON *o, HfDecoder **out, Err *e) {
    *out = NULL;
    HfDecoder *d = calloc(1, sizeof *d);
    if (!d) return err_set(e, "out of memory for the decoder");
    if (!o) d->steps[d->n++].kind = &no_decoder;
    if (o && add_steps(d, o, e)) {
        hf_decoder_free(d);
        return -1;
    }
    *out = d;
    return 0;
}

void hf_decoder_free(HfDecoder *d) {
    if (!d) return;
    for (int i = 0; i < d->n; i++) regex_free(d->steps[i].pattern);
    strbuf_free(&d->even);
    strbuf_free(&d->odd);
    free(d);
}

int hf_decode(HfDecoder *d, Text token, StrBuf *out, Err *e) {
    size_t most = hf_most_bytes(token.size);
    for (int i = 0; i < d->n; i++) {
        StrBuf *to = i % 2 ? &d->odd : &d->even;
        to->len = 0;
        /* After bytes that are no text by themselves only what leaves them alone may follow. */
        if (d->steps[i].pattern && utf8_check(token.data, token.size) < token.size) continue;
        if (d->steps[i].kind->run(&d->steps[i], token, to, e)) return -1;
        if (to->failed) return err_set(e, "out of memory for a token");
        if (to->len > most) return err_set(e, "a token grows beyond %zu bytes in the decoder", most);
        token = (Text){to->data, to->len};
    }
    strbuf_add(out, token.data, token.size);
    return out->failed ? err_set(e, "out of memory for a token") : 0;
}
