/* The options of the program: one table (options.c) serves the command line, the environment, the defaults and the
 * help. All local. */
#pragma once

#include <stdint.h>

#include "base/strbuf.h"
#include "sheaf.h"

typedef enum VerbId {
    VERB_RUN,
    VERB_PERPLEXITY,
    VERB_INFO,
    VERB_PLAN,
    VERB_QUANTIZE,
    VERB_EMBED,
    VERB_BENCH_COMM,
    VERB_COUNT
} VerbId;

enum { LIST_MAX = 16, TOKENS_DEFAULT = -2 };
typedef struct TextList {
    const char *item[LIST_MAX];
    int n;
} TextList;

/* Values, by verb; those a verb does not have keep their defaults. Strings point into argv, the environment or the
 * table. */
typedef struct Options {
    VerbId verb;
    bool help, version; /* asked for: nothing else counts, `verb` is VERB_COUNT for the general help */
    const char *model;
    const char *const *text; /* [n_texts] words after the model, for a verb that takes them */
    int n_texts;

    const char *prompt, *file; /* NULL: not given */
    int64_t tokens;            /* to generate; -1: until the context is full; or TOKENS_DEFAULT */
    int64_t ranks;             /* to plan for; 0: those of the job */
    int64_t ctx;               /* positions; 0: the smaller of 4096 and the model's */
    int64_t windows;           /* 0: all */
    int64_t batch;             /* tokens, or rows of a net's inputs, in one step; 0: 512, or 16 */
    double temp, top_p, min_p;
    double deadline; /* seconds */
    int64_t rounds;  /* of a benchmark */
    int64_t top_k, seed;
    TextList stop;
    const char *system, *template;
    bool chat, no_special, ignore_eos;
    bool shards; /* a net: all ranks on the same rows */

    const char *output, *type; /* what quantize writes, and of which type */
    TextList tensor;           /* PATTERN=TYPE */

    const char *pooling, *normalize; /* of embeddings; pooling NULL: the model's */

    int64_t threads;   /* per rank; 0: the physical cores */
    const char *cores; /* CPUs of each host, NULL: not given */
    const char *bind;  /* "auto" or "none" */
    bool check, verify, json, quiet;
    const char *hosts; /* "found" or "each" */
    const char *wire, *isa, *act, *trace, *check_file;
} Options;

/* Fills `o` from the command line, then the environment (SHEAF_NAME, for options whose help says so), then defaults.
 * -1: one line that names what is wrong and, for a name that is not known, the nearest one. */
int options_parse(int argc, char **argv, Options *o, SheafErr *e);
bool options_has_model(VerbId verb); /* else `model` is NULL */
/* The general help (VERB_COUNT) or a verb's, generated from the table. */
void options_help(VerbId verb, StrBuf *out);
