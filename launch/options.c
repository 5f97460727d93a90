#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* ---- the tables -------------------------------------------------------------------------------------------------- */
typedef struct Verb {
    const char *name, *summary, *usage, *example;
    bool texts;    /* takes words after the model */
    bool no_model; /* takes no words at all */
} Verb;

static const Verb verbs[VERB_COUNT] = {
    [VERB_RUN] = {"run", "continue a text, answer a question, converse; or run a net on arrays",
                  "MODEL [-p TEXT | -f FILE | INPUT.npy ...] [--chat]",
                  "mpirun -n 2 sheaf run model.gguf -p \"The capital of France is\" -n 32\n"
                  "  mpirun -n 2 sheaf run net.onnx images.npy -o logits.npy",
                  .texts = true},
    [VERB_PERPLEXITY] = {"eval perplexity", "how well the model predicts a text", "MODEL -f FILE",
                         "mpirun -n 2 sheaf eval perplexity model.gguf -f wiki.txt --windows 16"},
    [VERB_INFO] = {"info", "what a model file holds", "MODEL", "sheaf info model.gguf"},
    [VERB_PLAN] = {"plan", "how a model would be divided over ranks; loads no weights", "MODEL [-n RANKS]",
                   "sheaf plan model.gguf -n 4"},
    [VERB_QUANTIZE] = {"quantize", "write a model file with smaller weights", "MODEL -o FILE --type TYPE",
                       "sheaf quantize model-f32.gguf -o model-q4_k.gguf --type q4_k --tensor token_embd.weight=q6_k"},
    [VERB_EMBED] = {"embed", "a vector for each text, by an encoder", "MODEL [TEXT ... | -f FILE]",
                    "mpirun -n 2 sheaf embed encoder.gguf -f lines.txt -o vectors.npy", .texts = true},
    [VERB_BENCH_COMM] = {"bench comm", "how fast sums over the ranks are, beside MPI and the machine's limit", "",
                         "mpirun -n 2 sheaf bench comm --hosts each", .no_model = true},
};

typedef enum OptionType { FLAG, INT, REAL, TEXT, LIST } OptionType;
enum {
    RUN = 1 << VERB_RUN,
    PPL = 1 << VERB_PERPLEXITY,
    INFO = 1 << VERB_INFO,
    PLAN = 1 << VERB_PLAN,
    QUANTIZE = 1 << VERB_QUANTIZE,
    EMBED = 1 << VERB_EMBED,
    WORK = RUN | PPL | EMBED, /* loads weights and computes */
    THREADS = WORK | QUANTIZE,
    BENCH = 1 << VERB_BENCH_COMM,
    RANKS = WORK | BENCH, /* its ranks exchange data */
    PLACED = THREADS | BENCH,
    ALL = RUN | PPL | INFO | PLAN | QUANTIZE | EMBED | BENCH,
};

typedef struct Option {
    const char *name; /* --name; SHEAF_NAME in the environment */
    char letter;      /* -l, or 0 */
    bool here_only;   /* not from the environment */
    OptionType type;
    size_t offset;        /* of its value in Options */
    const char *value;    /* what the help calls the value; "a|b": these only; NULL for flags */
    const char *standard; /* default, as one would type it; NULL: zero, or absent */
    double min, max;      /* numbers */
    unsigned verbs;
    const char *help;
} Option;

#define AT(field) offsetof(Options, field)
static const Option options[] = {
    {"prompt", 'p', true, TEXT, AT(prompt), "TEXT", NULL, 0, 0, RUN,
     "the text to continue; without -p and -f: standard input"},
    {"file", 'f', true, TEXT, AT(file), "FILE", NULL, 0, 0, RUN,
     "read that text from a file (-: standard input); one newline at its end is dropped"},
    {"file", 'f', true, TEXT, AT(file), "FILE", NULL, 0, 0, PPL, "the text (-: standard input)"},
    {"file", 'f', true, TEXT, AT(file), "FILE", NULL, 0, 0, EMBED,
     "the texts, one on each line (-: standard input); without -f and TEXT: standard input"},
    {"chat", 'c', false, FLAG, AT(chat), NULL, NULL, 0, 0, RUN,
     "converse: -p or -f is a question to answer; without them every line of standard input is one, and what was said "
     "before is kept in mind"},
    {"system", 0, true, TEXT, AT(system), "TEXT", NULL, 0, 0, RUN, "with --chat: what the assistant is told before"},
    {"template", 0, true, TEXT, AT(template), "NAME", NULL, 0, 0, RUN,
     "with --chat: the form of the turns, such as chatml or llama3 (a wrong name lists them); without it: the model's"},
    {"tokens", 'n', false, INT, AT(tokens), "N", NULL, -1, INT32_MAX, RUN,
     "tokens to generate at most; -1: until the context is full; without it: 128, or in a conversation -1"},
    {"ranks", 'n', false, INT, AT(ranks), "RANKS", NULL, 1, 65536, PLAN,
     "ranks to plan for; without it: those of this job"},
    {"ctx", 0, false, INT, AT(ctx), "N", NULL, 1, INT32_MAX, RUN | PLAN,
     "positions of the context; without it: the model's, 4096 at most"},
    {"ctx", 0, false, INT, AT(ctx), "N", "512", 4, INT32_MAX, PPL, "tokens of a window"},
    {"ctx", 0, false, INT, AT(ctx), "N", NULL, 1, INT32_MAX, EMBED,
     "tokens of a text at most: a longer one is cut; without it: as many as the model has positions"},
    {"windows", 0, false, INT, AT(windows), "N", "0", 0, INT32_MAX, PPL, "windows to score at most; 0: all"},
    {"batch", 'b', false, INT, AT(batch), "N", NULL, 1, 1 << 20, RUN,
     "tokens of the prompt (without it: 512), or rows of a net's inputs (16), in one step"},
    {"shards", 0, false, FLAG, AT(shards), NULL, NULL, 0, 0, RUN,
     "a net: the ranks divide its channels and work on the same rows; without it they divide the rows"},
    {"output", 'o', true, TEXT, AT(output), "FILE.npy", NULL, 0, 0, RUN,
     "a net: write its result there (several: FILE-NAME.npy)"},
    {"batch", 'b', false, INT, AT(batch), "N", "2048", 1, 1 << 20, PPL,
     "tokens in one step: as many windows as fit go together"},
    {"batch", 'b', false, INT, AT(batch), "N", "2048", 1, 1 << 20, EMBED,
     "tokens in one step: as many texts as fit go together (a text alone may have more)"},
    {"pooling", 0, false, TEXT, AT(pooling), "mean|cls|last", NULL, 0, 0, EMBED,
     "a text's vector: the mean of its tokens', that of the first, or of the last; without it: as the model says"},
    {"normalize", 0, false, TEXT, AT(normalize), "l2|none", "l2", 0, 0, EMBED, "l2: vectors of length 1"},
    {"temp", 't', false, REAL, AT(temp), "T", "0", 0, 1000, RUN, "temperature; 0: always the most probable token"},
    {"top-k", 0, false, INT, AT(top_k), "K", "40", 0, INT32_MAX, RUN,
     "sample among the K most probable tokens; 0: all"},
    {"top-p", 0, false, REAL, AT(top_p), "P", "0.95", 1e-6, 1, RUN,
     "among the fewest that have probability P together; 1: all"},
    {"min-p", 0, false, REAL, AT(min_p), "P", "0.05", 0, 1, RUN,
     "among those with P times the largest probability or more; 0: all"},
    {"seed", 's', false, INT, AT(seed), "N", "0", 0, 9007199254740992.0, RUN,
     "of the random numbers; the same seed gives the same text"},
    {"stop", 0, true, LIST, AT(stop), "TEXT", NULL, 0, 0, RUN, "end before this text; may be given up to 16 times"},
    {"no-special", 0, false, FLAG, AT(no_special), NULL, NULL, 0, 0, RUN,
     "text like <|im_end|> in the prompt is plain text, not a special token"},
    {"ignore-eos", 0, false, FLAG, AT(ignore_eos), NULL, NULL, 0, 0, RUN, "go on past the token that ends a text"},
    {"output", 'o', true, TEXT, AT(output), "FILE", NULL, 0, 0, QUANTIZE,
     "the file to write; it appears when it is complete, in place of one that was there"},
    {"output", 'o', true, TEXT, AT(output), "FILE", NULL, 0, 0, EMBED,
     "write the vectors there as a NumPy array (.npy), not on standard output; it appears when it is complete"},
    {"type", 0, false, TEXT, AT(type), "f32|f16|bf16|q4_0|q4_1|q5_0|q5_1|q8_0|q2_k|q3_k|q4_k|q5_k|q6_k|iq4_nl|iq4_xs",
     NULL, 0, 0, QUANTIZE,
     "what the matrices become; those whose rows are no whole blocks of 256 become q4_0 for q2_k and q3_k, q5_0 for "
     "q4_k, "
     "q5_1 for q5_k, q8_0 for q6_k, iq4_nl for iq4_xs"},
    {"tensor", 0, true, LIST, AT(tensor), "PATTERN=TYPE", NULL, 0, 0, QUANTIZE,
     "another type for the matrices of that name (a shell pattern), or 'keep'; the first that matches counts; may be "
     "given up to 16 times"},
    {"rounds", 0, false, INT, AT(rounds), "N", "30", 1, SHEAF_COMM_ROUNDS, BENCH,
     "how often each size is measured, in turns; the medians count"},
    {"json", 0, false, FLAG, AT(json), NULL, NULL, 0, 0, ALL, "one JSON object on standard output"},
    {"quiet", 'q', false, FLAG, AT(quiet), NULL, NULL, 0, 0, THREADS, "no progress and no figures on standard error"},
    {"threads", 0, false, INT, AT(threads), "N", NULL, 1, 1024, THREADS,
     "threads of each rank; without it: its share of the physical cores"},
    {"cores", 0, false, TEXT, AT(cores), "LIST", NULL, 0, 0, PLACED,
     "the CPUs, such as 0-7,16-23 or 0-14:2, that the ranks of each host share out; without it: as the launcher bound "
     "them"},
    {"bind", 0, false, TEXT, AT(bind), "auto|none", "auto", 0, 0, PLACED,
     "auto: each thread is pinned to a core of its own; none: the system moves threads about"},
    {"isa", 0, false, TEXT, AT(isa), "ref|avx2|avx512vnni", NULL, 0, 0, RANKS,
     "use a lower instruction set than the best that all ranks have"},
    {"act", 0, false, TEXT, AT(act), "int16|int8", "int16", 0, 0, WORK,
     "numbers that meet quantised weights: int8 is faster, int16 as good as exact"},
    {"hosts", 0, false, TEXT, AT(hosts), "found|each", "found", 0, 0, RANKS,
     "each: every rank counts as a host of its own, so that all data takes the network path"},
    {"wire", 0, false, TEXT, AT(wire), "f32|bf16", "f32", 0, 0, RANKS, "numbers between hosts"},
    {"deadline", 0, false, REAL, AT(deadline), "SECONDS", "60", 1, 86400, RANKS,
     "end when a rank is silent, or a step stands still, for so long; a link that is down for less is waited for"},
    {"check", 0, false, FLAG, AT(check), NULL, NULL, 0, 0, WORK, "compare the ranks' results after every collective"},
    {"verify", 0, false, FLAG, AT(verify), NULL, NULL, 0, 0, RANKS, "send a checksum after each message between hosts"},
    {"check-file", 0, false, TEXT, AT(check_file), "HOW", NULL, 0, 0, WORK | INFO,
     "see first whether the model's files are damaged; HOW: 'stored', by the hashes that sheaf quantize stores; a "
     "SHA-256 in 64 digits; or a file as sha256sum writes it"},
    {"trace", 0, false, TEXT, AT(trace), "FILE", NULL, 0, 0, WORK,
     "write what every thread did, in Chrome's trace format"},
    {"help", 'h', true, FLAG, AT(help), NULL, NULL, 0, 0, ALL, "this text"},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* ---- nearest names ----------------------------------------------------------------------------------------------- */
enum { NAME_MAX_LENGTH = 32 };

/* Edit distance (Levenshtein 1966): insertions, deletions and substitutions cost 1. */
static int distance(const char *a, const char *b) {
    size_t la = strnlen(a, NAME_MAX_LENGTH), lb = strnlen(b, NAME_MAX_LENGTH);
    int row[NAME_MAX_LENGTH + 1];
    for (size_t j = 0; j <= lb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= la; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= lb; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[lb];
}

static bool serves(const Option *o, VerbId verb) { return (o->verbs >> verb & 1) != 0; }

static const char *nearest_option(const char *name, VerbId verb) {
    const char *best = "help";
    for (int i = 0; i < N_OPTIONS; i++)
        if (serves(&options[i], verb) && distance(name, options[i].name) < distance(name, best)) best = options[i].name;
    return best;
}

static const char *nearest_verb(const char *name) {
    const char *best = verbs[0].name;
    for (int v = 1; v < VERB_COUNT; v++)
        if (distance(name, verbs[v].name) < distance(name, best)) best = verbs[v].name;
    return best;
}

/* ---- one value --------------------------------------------------------------------------------------------------- */
/* `as` is how the user wrote the option: "--temp", "-n", "SHEAF_CTX". */
static int set_number(const Option *o, const char *as, const char *text, void *at, SheafErr *e) {
    char *end;
    bool whole = o->type == INT;
    errno = 0;
    int64_t n = whole ? strtoll(text, &end, 10) : 0;
    double x = whole ? (double)n : strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || isnan(x))
        return fail(e, "%s %s: not a %snumber", as, text, whole ? "whole " : "");
    if (errno == ERANGE || x < o->min || x > o->max)
        return fail(e, "%s %s: must be from %.15g to %.15g", as, text, o->min, o->max);
    if (whole) *(int64_t *)at = n;
    else *(double *)at = x;
    return 0;
}

static int set_flag(const char *as, const char *text, bool *at, SheafErr *e) {
    static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *at = i % 2 != 0;
        return 0;
    }
    return fail(e, "%s %s: must be 0 or 1", as, text);
}

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, text, n) == 0 && (c[n] == 0 || c[n] == '|')) return n > 0;
    return false;
}

static int set_value(const Option *o, const char *as, const char *text, Options *out, SheafErr *e) {
    void *at = (char *)out + o->offset;
    switch (o->type) {
    case FLAG: return set_flag(as, text, at, e);
    case INT:
    case REAL: return set_number(o, as, text, at, e);
    case TEXT:
        if (strchr(o->value, '|') && !is_choice(o->value, text))
            return fail(e, "%s %s: must be one of %s", as, text, o->value);
        *(const char **)at = text;
        return 0;
    case LIST: {
        TextList *list = at;
        if (!*text) return fail(e, "%s: an empty text", as);
        if (list->n == LIST_MAX) return fail(e, "%s: given more than %d times", as, LIST_MAX);
        list->item[list->n++] = text;
        return 0;
    }
    }
    return 0;
}

/* ---- command line ------------------------------------------------------------------------------------------------ */
typedef struct Words {
    char **word;
    int n, next;
    bool given[N_OPTIONS];
} Words;

static int unknown_option(const char *word, size_t n, VerbId verb, SheafErr *e) {
    char name[NAME_MAX_LENGTH + 1];
    snprintf(name, sizeof name, "%.*s", (int)(n < NAME_MAX_LENGTH ? n : NAME_MAX_LENGTH), word + strspn(word, "-"));
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options[i].name, name) != 0) continue;
        for (int v = 0; v < VERB_COUNT; v++)
            if (serves(&options[i], (VerbId)v))
                return fail(e, "--%s is an option of '%s', not of '%s'", name, verbs[v].name, verbs[verb].name);
    }
    return fail(e, "unknown option %.40s for '%s': did you mean --%s?", word, verbs[verb].name,
                nearest_option(name, verb));
}

/* Finds the option that a word names. *value: what stands behind it in the same word, or NULL. */
static int find_option(const char *word, VerbId verb, const char **value, SheafErr *e) {
    bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t n = !is_long ? 0 : equals ? (size_t)(equals - word - 2) : strlen(word + 2);
    *value = equals ? equals + 1 : !is_long && word[2] ? word + 2 : NULL;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!serves(&options[i], verb)) continue;
        if (is_long ? strlen(options[i].name) == n && strncmp(options[i].name, word + 2, n) == 0
                    : options[i].letter == word[1])
            return i;
    }
    return unknown_option(word, is_long ? n : 1, verb, e);
}

static int take_option(Words *w, Options *out, SheafErr *e) {
    const char *word = w->word[w->next++], *value;
    int i = find_option(word, out->verb, &value, e);
    if (i < 0) return -1;
    const Option *o = &options[i];
    char as[NAME_MAX_LENGTH + 4];
    if (word[1] == '-') snprintf(as, sizeof as, "--%s", o->name);
    else snprintf(as, sizeof as, "-%c", o->letter);
    if (o->type == FLAG && value) return fail(e, "%s takes no value", as);
    if (o->type != FLAG && !value) {
        if (w->next == w->n) return fail(e, "%s needs a value: %s %s", as, as, o->value);
        value = w->word[w->next++];
    }
    if (w->given[i] && o->type != LIST && o->type != FLAG) return fail(e, "%s is given twice", as);
    w->given[i] = true;
    return set_value(o, as, value ? value : "1", out, e);
}

static int take_words(Words *w, Options *o, SheafErr *e) {
    bool only_names = false;
    o->text = (const char *const *)w->word;
    while (w->next < w->n) {
        const char *word = w->word[w->next];
        if (!only_names && strcmp(word, "--") == 0) {
            only_names = true;
            w->next++;
        } else if (!only_names && word[0] == '-' && word[1]) {
            if (take_option(w, o, e)) return -1;
            if (o->help) return 0;
        } else if (verbs[o->verb].no_model) {
            return fail(e, "'%.80s' is one argument too many: '%s' takes options only", word, verbs[o->verb].name);
        } else if (o->model && verbs[o->verb].texts) {
            w->word[o->n_texts++] = w->word[w->next++]; /* in place of words that have been taken */
        } else if (o->model) {
            return fail(e, "'%.80s' is one argument too many: '%s' takes one MODEL", word, verbs[o->verb].name);
        } else {
            o->model = word;
            w->next++;
        }
    }
    return 0;
}

/* The verb, of one word or two. 0: found, or help or version asked for. */
static int take_verb(Words *w, Options *o, SheafErr *e) {
    o->verb = VERB_COUNT;
    if (w->next == w->n) return fail(e, "no verb: sheaf VERB MODEL [options]; 'sheaf --help' lists the verbs");
    const char *first = w->word[w->next++], *second = w->next < w->n ? w->word[w->next] : "";
    o->help = strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0;
    o->version = strcmp(first, "--version") == 0;
    if (o->help || o->version) return 0;
    if (first[0] == '-') return fail(e, "%.40s stands before the verb: sheaf VERB MODEL [options]", first);
    char two[2 * NAME_MAX_LENGTH];
    snprintf(two, sizeof two, "%.30s %.30s", first, second);
    for (int v = 0; v < VERB_COUNT; v++) {
        bool is_two = strcmp(verbs[v].name, two) == 0;
        if (!is_two && strcmp(verbs[v].name, first) != 0) continue;
        o->verb = (VerbId)v;
        w->next += is_two;
        return 0;
    }
    for (int v = 0; v < VERB_COUNT; v++) {
        size_t n = strcspn(verbs[v].name, " ");
        if (!verbs[v].name[n] || strlen(first) != n || strncmp(verbs[v].name, first, n) != 0) continue;
        o->help = strcmp(second, "--help") == 0 || strcmp(second, "-h") == 0;
        if (o->help) return 0;
        return fail(e, "unknown verb '%s %.40s': did you mean '%s'?", first, second, verbs[v].name);
    }
    return fail(e, "unknown verb '%.40s': did you mean '%s'?", first, nearest_verb(first));
}

/* ---- defaults and environment ------------------------------------------------------------------------------------ */
static int set_defaults(Options *o, SheafErr *e) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *d = &options[i];
        if (serves(d, o->verb) && d->standard && set_value(d, d->name, d->standard, o, e)) return -1;
    }
    return 0;
}

static void environment_name(const Option *o, char *name, size_t size) {
    snprintf(name, size, "SHEAF_%s", o->name);
    for (char *c = name; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* For the options that the command line did not give. */
static int set_from_environment(const Words *w, Options *o, SheafErr *e) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *d = &options[i];
        char name[NAME_MAX_LENGTH + 8];
        if (d->here_only || w->given[i] || !serves(d, o->verb)) continue;
        environment_name(d, name, sizeof name);
        const char *value = getenv(name);
        if (value && *value && set_value(d, name, value, o, e)) return -1;
    }
    return 0;
}

/* What one option alone can not say. */
static int check_together(const Options *o, SheafErr *e) {
    const char *verb = verbs[o->verb].name;
    if (!o->model && !verbs[o->verb].no_model)
        return fail(e, "'%s' needs a model file: sheaf %s %s", verb, verb, verbs[o->verb].usage);
    if (o->cores && strcmp(o->bind, "none") == 0) return fail(e, "--cores and --bind none exclude each other");
    if (o->n_texts && o->file) return fail(e, "texts and -f exclude each other: give one of them");
    if (o->prompt && o->file) return fail(e, "-p and -f exclude each other: give one of them");
    if (o->tokens == 0 && o->verb == VERB_RUN)
        return fail(e, "-n 0: must be 1 or more, or -1 (until the context is full)");
    if (o->chat && o->no_special)
        return fail(e, "--chat and --no-special exclude each other: turns begin with special tokens");
    if (o->system && !o->chat) return fail(e, "--system needs --chat");
    if (o->template && !o->chat) return fail(e, "--template needs --chat");
    if (o->chat && o->json && !o->prompt && !o->file)
        return fail(e, "--chat with --json needs a question: -p TEXT or -f FILE (-f - is standard input)");
    if (o->verb == VERB_QUANTIZE && !o->output) return fail(e, "'%s' needs a file to write: -o FILE", verb);
    if (o->verb == VERB_QUANTIZE && !o->type) return fail(e, "'%s' needs a type: --type TYPE, such as q8_0", verb);
    if (o->verb == VERB_PERPLEXITY && !o->file) return fail(e, "'%s' needs a text: -f FILE", verb);
    return 0;
}

int options_parse(int argc, char **argv, Options *o, SheafErr *e) {
    Words w = {.word = argv, .n = argc, .next = 1};
    *o = (Options){.tokens = TOKENS_DEFAULT};
    if (take_verb(&w, o, e)) return -1;
    if (o->help || o->version) return 0;
    if (set_defaults(o, e) || take_words(&w, o, e)) return -1;
    if (o->help) return 0;
    if (set_from_environment(&w, o, e)) return -1;
    return check_together(o, e);
}

/* ---- help -------------------------------------------------------------------------------------------------------- */
enum { HELP_COLUMN = 27, HELP_WIDTH = 100 };

/* Words of `text` from the column on, wrapped; the cursor stands at `at`. */
static void add_wrapped(StrBuf *out, int at, const char *text) {
    if (at >= HELP_COLUMN) {
        strbuf_printf(out, "\n");
        at = 0;
    }
    strbuf_printf(out, "%*s", HELP_COLUMN - at, "");
    for (int column = HELP_COLUMN; *text;) {
        int n = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            strbuf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        strbuf_printf(out, "%s%.*s", column > HELP_COLUMN ? " " : "", n, text);
        column += n + (column > HELP_COLUMN);
        text += n + (text[n] == ' ');
    }
    strbuf_printf(out, "\n");
}

static void add_option(StrBuf *out, const Option *o) {
    char head[96], body[256], letter[8] = "    ", range[64] = "";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int n = snprintf(head, sizeof head, "  %s--%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
    strbuf_add(out, head, (size_t)n);
    if (o->type == REAL && o->standard)
        snprintf(range, sizeof range, " (%.15g to %.15g; default %s)", o->min, o->max, o->standard);
    else if (o->standard) snprintf(range, sizeof range, " (default %s)", o->standard);
    snprintf(body, sizeof body, "%s%s", o->help, range);
    add_wrapped(out, n, body);
}

static void add_general_help(StrBuf *out) {
    strbuf_printf(out, "sheaf %s: one model over all the sockets and hosts that mpirun gives, on CPUs\n\n",
                  sheaf_version());
    strbuf_printf(out, "  sheaf VERB MODEL [options]              alone\n");
    strbuf_printf(out, "  mpirun -n RANKS sheaf VERB MODEL ...    over several ranks; rank 0 speaks\n\nVerbs:\n");
    for (int v = 0; v < VERB_COUNT; v++) strbuf_printf(out, "  %-18s%s\n", verbs[v].name, verbs[v].summary);
    strbuf_printf(out, "\n'sheaf VERB --help' lists the options of a verb. 'sheaf --version' prints the version.\n"
                       "Results go to standard output, all else to standard error.\n"
                       "Exit status: 0 done, 1 failed, 2 wrong use, 130 interrupted.\n");
}

void options_help(VerbId verb, StrBuf *out) {
    if (verb == VERB_COUNT) {
        add_general_help(out);
        return;
    }
    const Verb *v = &verbs[verb];
    strbuf_printf(out, "sheaf %s %s [options]: %s\n\n  %s\n\nOptions:\n", v->name, v->usage, v->summary, v->example);
    for (int i = 0; i < N_OPTIONS; i++)
        if (serves(&options[i], verb)) add_option(out, &options[i]);
    strbuf_printf(
        out, "\nAn option --some-name is also read from the environment, as SHEAF_SOME_NAME (flags: 0 or 1), but for");
    const char *before = " ";
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!serves(&options[i], verb) || !options[i].here_only) continue;
        strbuf_printf(out, "%s--%s", before, options[i].name);
        before = ", ";
    }
    strbuf_printf(out, ".\nThe command line goes first, then the environment, then the default.\n");
}

bool options_has_model(VerbId verb) { return !verbs[verb].no_model; }
