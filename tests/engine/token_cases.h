/* What the tokenizer's tests share: reading files, llama.cpp's format of texts and ids (tests/fixtures/README.md), and
 * comparing with it. */
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "engine/tokenizer.h"
#include "graph/gguf.h"

static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";

/* A whole file, NUL-terminated; NULL when it is not there. The caller frees. */
static inline char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) abort();
    fclose(f);
    text[n] = 0;
    *size = (size_t)n;
    return text;
}

static inline char *read_from(const char *var, const char *name, size_t *size) {
    char path[4096];
    *size = 0;
    return check_path(path, sizeof path, var, name) ? read_file(path, size) : NULL;
}

typedef struct Loaded {
    ModelFile *g; /* NULL: from a tokenizer.json */
    Tokenizer *t;
} Loaded;

/* A .gguf or .json file in the folder that `var` names; false when it is not there. */
static inline bool load(const char *var, const char *name, Loaded *l) {
    char path[4096];
    if (!check_path(path, sizeof path, var, name)) return false;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    fclose(f);
    Err e;
    *l = (Loaded){0};
    bool json = strlen(name) > 5 && !strcmp(name + strlen(name) - 5, ".json");
    if (json ? tokenizer_from_json(path, &l->t, &e)
             : gguf_open(path, &l->g, &e) || tokenizer_from_gguf(l->g, &l->t, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        CU_FAIL_FATAL("the tokenizer does not load");
    }
    return true;
}

static inline void unload(Loaded *l) {
    tokenizer_free(l->t);
    if (l->g) model_file_close(l->g);
}

/* " 12 345\n", with a space first or without, at *p against ids; moves *p to the next line. */
static inline bool line_is(char **p, const int32_t *ids, size_t n) {
    bool same = true;
    size_t i = 0;
    while (**p == ' ' || (**p >= '0' && **p <= '9')) {
        long id = strtol(*p, p, 10);
        same = same && i < n && ids[i] == id;
        i++;
    }
    if (**p == '\r') ++*p;
    if (**p == '\n') ++*p;
    return same && i == n;
}

/* Bytes of all ids, malloc'ed. */
static inline char *join(const Tokenizer *t, const int32_t *ids, size_t n, size_t *size) {
    size_t cap = 0;
    for (size_t i = 0; i < n; i++) cap += tokenizer_bytes(t, ids[i], true, NULL, 0);
    char *text = malloc(cap + 1);
    if (!text) abort();
    *size = 0;
    for (size_t i = 0; i < n; i++) *size += tokenizer_bytes(t, ids[i], true, text + *size, cap - *size);
    text[*size] = 0;
    return text;
}

typedef struct CaseRules {
    int cases;          /* how many there must be; 0: some */
    bool bos, special;  /* as for tokenizer_encode */
    const char *before; /* the ids give back this and the text; NULL: something else */
} CaseRules;

/* Every text of `inp` gives the ids on its line of `out`. */
static inline void check_cases(Tokenizer *t, char *inp, size_t size, char *out, CaseRules rules) {
    int cases = 0;
    char *text = inp, *line = out, *end;
    Err e;
    while ((end = memmem(text, size - (size_t)(text - inp), SEPARATOR, strlen(SEPARATOR)))) {
        int32_t *ids;
        size_t n, back, bytes = (size_t)(end - text);
        if (tokenizer_encode(t, text, bytes, rules.bos, rules.special, &ids, &n, &e)) {
            fprintf(stderr, "case %d: %s\n", cases, e.msg);
            CU_FAIL_FATAL("a case does not encode");
        }
        if (!line_is(&line, ids, n)) {
            fprintf(stderr, "case %d: \"%.*s\" has other ids:", cases, (int)bytes, text);
            for (size_t i = 0; i < n; i++) fprintf(stderr, " %d", ids[i]);
            fprintf(stderr, "\n");
            CU_FAIL("ids");
        }
        char *joined = join(t, ids, n, &back);
        size_t before = rules.before && bytes ? strlen(rules.before) : 0;
        if (rules.before &&
            (back != before + bytes || memcmp(joined, rules.before, before) || memcmp(joined + before, text, bytes))) {
            fprintf(stderr, "case %d: \"%.*s\" comes back as \"%s\"\n", cases, (int)bytes, text, joined);
            CU_FAIL("text");
        }
        free(joined);
        free(ids);
        text = end + strlen(SEPARATOR);
        cases++;
    }
    CU_ASSERT(rules.cases ? cases == rules.cases : cases > 0);
}

/* The same from two files. */
static inline void check_files(Tokenizer *t, const char *var, const char *inp, const char *out, CaseRules rules) {
    size_t size, ignored;
    char *texts = read_from(var, inp, &size), *ids = read_from(var, out, &ignored);
    CU_ASSERT_FATAL(texts && ids);
    check_cases(t, texts, size, ids, rules);
    free(texts);
    free(ids);
}

/* The ids of a text against number, hash and start in a fixture, and back to the text. */
static inline void check_digest(Tokenizer *t, const char *text, size_t size, const char *fixture, const char *before) {
    size_t ignored, n, back;
    char *want = read_from("SHEAF_FIXTURES", fixture, &ignored), *p = want;
    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    int32_t *ids;
    Err e;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, size, false, false, &ids, &n, &e), 0);
    CU_ASSERT_EQUAL_FATAL(n, strtoull(p, &p, 10));
    CU_ASSERT_EQUAL(XXH64(ids, n * sizeof *ids, 0), strtoull(p, &p, 16));
    for (int i = 0; i < 256; i++) CU_ASSERT_EQUAL(ids[i], strtol(p, &p, 10));
    char *joined = join(t, ids, n, &back);
    if (before)
        CU_ASSERT(back == strlen(before) + size && !memcmp(joined, before, strlen(before)) &&
                  !memcmp(joined + strlen(before), text, size));
    free(joined);
    free(ids);
    free(want);
}
