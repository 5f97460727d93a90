/* The options: the table, what goes over what, and the one line that a wrong one gives. */
#include "check.h"
#include "options.h"

enum { WORDS_MAX = 40 };

/* Parses a command line given as words between blanks. */
static int parse(const char *line, Options *o, SheafErr *e) {
    static char memory[512]; /* the options point into it */
    static char *words[WORDS_MAX];
    int n = 0;
    snprintf(memory, sizeof memory, "%s", line);
    for (char *word = strtok(memory, " "); word && n < WORDS_MAX - 1; word = strtok(NULL, " ")) words[n++] = word;
    words[n] = NULL;
    return options_parse(n, words, o, e);
}

static Options accepted(const char *line) {
    Options o;
    SheafErr e = {""};
    CU_ASSERT_EQUAL(parse(line, &o, &e), 0);
    CU_ASSERT_STRING_EQUAL(e.msg, "");
    return o;
}

/* The line must be refused with a message that has `needle` in it. */
static void refused(const char *line, const char *needle) {
    Options o;
    SheafErr e = {""};
    CU_ASSERT_EQUAL(parse(line, &o, &e), -1);
    if (!strstr(e.msg, needle)) printf("\n'%s' gives: %s\n", line, e.msg);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, needle));
}

static void all_ways_to_write_an_option(void) {
    Options o = accepted("sheaf run m.gguf -n 5 --temp=0.5 -s7 --ctx 99 --stop a --stop=b --json -q -p x");
    CU_ASSERT_EQUAL(o.verb, VERB_RUN);
    CU_ASSERT_STRING_EQUAL(o.model, "m.gguf");
    CU_ASSERT_EQUAL(o.tokens, 5);
    CU_ASSERT_EQUAL(o.temp, 0.5);
    CU_ASSERT_EQUAL(o.seed, 7);
    CU_ASSERT_EQUAL(o.ctx, 99);
    CU_ASSERT_EQUAL(o.stop.n, 2);
    CU_ASSERT_STRING_EQUAL(o.stop.item[1], "b");
    CU_ASSERT_TRUE(o.json && o.quiet);
    CU_ASSERT_FALSE(o.check);
    CU_ASSERT_STRING_EQUAL(o.bind, "auto");
    CU_ASSERT_PTR_NULL(o.cores);
    o = accepted("sheaf run -p x -n -1 -- -odd-name");
    CU_ASSERT_EQUAL(o.tokens, -1);
    CU_ASSERT_STRING_EQUAL(o.model, "-odd-name");
    o = accepted("sheaf run net.onnx a.npy -b 4 b.npy --shards c.npy"); /* files stand between options, too */
    CU_ASSERT_STRING_EQUAL(o.model, "net.onnx");
    CU_ASSERT_EQUAL_FATAL(o.n_texts, 3);
    CU_ASSERT(!strcmp(o.text[0], "a.npy") && !strcmp(o.text[1], "b.npy") && !strcmp(o.text[2], "c.npy"));
    CU_ASSERT(o.shards && o.batch == 4);
}

static void a_verb_without_a_model(void) {
    Options o = accepted("sheaf bench comm --hosts each --rounds 7");
    CU_ASSERT_EQUAL(o.verb, VERB_BENCH_COMM);
    CU_ASSERT_PTR_NULL(o.model);
    CU_ASSERT_EQUAL(o.rounds, 7);
    CU_ASSERT_STRING_EQUAL(o.hosts, "each");
    CU_ASSERT_FALSE(options_has_model(o.verb));
    CU_ASSERT_TRUE(options_has_model(VERB_RUN));
    refused("sheaf bench comm m.gguf", "takes options only");
    refused("sheaf bench", "did you mean 'bench comm'");
    refused("sheaf bench comm --check", "an option of 'run'");
    refused("sheaf eval m.gguf", "did you mean 'eval perplexity'");
}

static void each_verb_has_its_defaults(void) {
    Options o = accepted("sheaf run m -p x");
    CU_ASSERT_EQUAL(o.tokens, TOKENS_DEFAULT); /* run.c: 128, or until the end */
    CU_ASSERT_EQUAL(o.batch, 0);               /* by the kind of model */
    CU_ASSERT_EQUAL(o.ctx, 0);
    CU_ASSERT_EQUAL(o.temp, 0);
    CU_ASSERT_STRING_EQUAL(o.hosts, "found");
    CU_ASSERT_STRING_EQUAL(o.wire, "f32");
    CU_ASSERT_PTR_NULL(o.isa);
    o = accepted("sheaf eval perplexity m -f t");
    CU_ASSERT_EQUAL(o.verb, VERB_PERPLEXITY);
    CU_ASSERT_EQUAL(o.ctx, 512);
    CU_ASSERT_EQUAL(o.batch, 2048);
    CU_ASSERT_EQUAL(o.windows, 0);
    o = accepted("sheaf plan m -n 8");
    CU_ASSERT_EQUAL(o.ranks, 8);
    o = accepted("sheaf quantize m -o n --type q4_k --tensor *.ffn_*=q6_k --tensor token_embd.weight=keep --threads 3");
    CU_ASSERT_STRING_EQUAL(o.output, "n");
    CU_ASSERT_STRING_EQUAL(o.type, "q4_k");
    CU_ASSERT_EQUAL(o.tensor.n, 2);
    CU_ASSERT_EQUAL(o.threads, 3);
}

static void command_line_goes_over_environment_goes_over_default(void) {
    setenv("SHEAF_CTX", "33", 1);
    setenv("SHEAF_TOP_K", "5", 1);
    setenv("SHEAF_BIND", "none", 1);
    setenv("SHEAF_JSON", "0", 1);
    setenv("SHEAF_ISA", "", 1);     /* empty: as if not set */
    setenv("SHEAF_PROMPT", "y", 1); /* not from the environment */
    Options o = accepted("sheaf run m -p x --ctx 44");
    CU_ASSERT_EQUAL(o.ctx, 44);
    CU_ASSERT_EQUAL(o.top_k, 5);
    CU_ASSERT_STRING_EQUAL(o.bind, "none");
    CU_ASSERT_FALSE(o.json);
    CU_ASSERT_PTR_NULL(o.isa);
    CU_ASSERT_STRING_EQUAL(o.prompt, "x");
    setenv("SHEAF_CTX", "many", 1);
    accepted("sheaf run m -p x --ctx 44");
    accepted("sheaf info m"); /* does not have that option */
    refused("sheaf run m -p x", "SHEAF_CTX many: not a whole number");
    static const char *const names[] = {"SHEAF_CTX",  "SHEAF_TOP_K", "SHEAF_BIND",
                                        "SHEAF_JSON", "SHEAF_ISA",   "SHEAF_PROMPT"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

static void wrong_words_name_the_nearest(void) {
    refused("sheaf", "no verb");
    refused("sheaf rnu m", "unknown verb 'rnu': did you mean 'run'?");
    refused("sheaf eval perlexity m", "did you mean 'eval perplexity'?");
    refused("sheaf run m --tmep 1", "unknown option --tmep for 'run': did you mean --temp?");
    refused("sheaf run m --thread=3", "did you mean --threads?");
    refused("sheaf run m -z", "unknown option -z");
    refused("sheaf run m --windows 3", "--windows is an option of 'eval perplexity', not of 'run'");
    refused("sheaf --json run m", "stands before the verb");
}

static void wrong_values_are_named(void) {
    refused("sheaf run", "needs a model file");
    refused("sheaf info a b", "'b' is one argument too many");
    refused("sheaf run m -p", "-p needs a value");
    refused("sheaf run m -p x -p y", "-p is given twice");
    refused("sheaf run m -p x -f y", "exclude each other");
    refused("sheaf run m -p x --chat --no-special", "exclude each other");
    refused("sheaf run m -p x --system y", "--system needs --chat");
    refused("sheaf run m -p x --template llama3", "--template needs --chat");
    refused("sheaf run m --chat --json", "needs a question");
    refused("sheaf run m -p x -n 0", "-n 0");
    refused("sheaf run m -p x -n -2", "-n -2: must be from -1");
    refused("sheaf run m -p x -n 3x", "-n 3x: not a whole number");
    refused("sheaf run m -p x -n 99999999999999999999", "must be from");
    refused("sheaf run m -p x --ctx 0", "--ctx 0: must be from 1");
    refused("sheaf run m -p x --temp -1", "--temp -1: must be from 0");
    refused("sheaf run m -p x --temp nan", "--temp nan: not a number");
    refused("sheaf run m -p x --top-p 2", "--top-p 2: must be from");
    refused("sheaf run m -p x --wire f16", "--wire f16: must be one of f32|bf16");
    refused("sheaf run m -p x --isa avx", "--isa avx: must be one of"); /* the start of a name is not the name */
    refused("sheaf run m -p x --json=1", "--json takes no value");
    refused("sheaf run m -p x --stop=", "--stop: an empty text");
    refused("sheaf eval perplexity m", "needs a text");
    refused("sheaf plan m -n 0", "-n 0: must be from 1");
    refused("sheaf quantize m --type q8_0", "needs a file to write");
    refused("sheaf quantize m -o n", "needs a type");
    refused("sheaf quantize m -o n --type q4", "--type q4: must be one of f32|"); /* a part of a name */
    refused("sheaf quantize m -o n --type q8_0 --wire f32", "--wire is an option of 'run', not of 'quantize'");
}

/* Words after the model, for the verb that takes them. */
static void texts_follow_the_model(void) {
    Options o = accepted("sheaf embed m one --json two -q -- --three");
    CU_ASSERT_STRING_EQUAL(o.model, "m");
    CU_ASSERT_EQUAL_FATAL(o.n_texts, 3);
    CU_ASSERT_STRING_EQUAL(o.text[0], "one");
    CU_ASSERT_STRING_EQUAL(o.text[1], "two");
    CU_ASSERT_STRING_EQUAL(o.text[2], "--three");
    CU_ASSERT_TRUE(o.json && o.quiet);
    CU_ASSERT_STRING_EQUAL(o.normalize, "l2");
    CU_ASSERT_PTR_NULL(o.pooling);
    CU_ASSERT_EQUAL(accepted("sheaf embed m --pooling cls").n_texts, 0);
    refused("sheaf embed", "needs a model file");
    refused("sheaf embed m one -f file", "exclude each other");
    refused("sheaf embed m --pooling max", "--pooling max: must be one of mean|cls|last");
    refused("sheaf embed m --normalize 1", "--normalize 1: must be one of l2|none");
    refused("sheaf embed m -p x", "unknown option -p");
    refused("sheaf run m --pooling cls", "--pooling is an option of 'embed', not of 'run'");
}

static void help_can_be_asked_for_anywhere(void) {
    CU_ASSERT_TRUE(accepted("sheaf --help").help);
    CU_ASSERT_TRUE(accepted("sheaf run --help").help);
    CU_ASSERT_TRUE(accepted("sheaf run m -n 3 -h").help);
    CU_ASSERT_TRUE(accepted("sheaf --version").version);
    CU_ASSERT_EQUAL(accepted("sheaf eval --help").verb, VERB_COUNT);
    StrBuf text = {0};
    options_help(VERB_PERPLEXITY, &text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text.data, "--windows N"));
    CU_ASSERT_PTR_NULL(strstr(text.data, "--temp"));
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) CU_ASSERT(strlen(line) <= 120);
    strbuf_free(&text);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"all ways to write an option", all_ways_to_write_an_option},
        {"a verb without a model", a_verb_without_a_model},
        {"each verb has its defaults", each_verb_has_its_defaults},
        {"command line over environment over default", command_line_goes_over_environment_goes_over_default},
        {"wrong words name the nearest", wrong_words_name_the_nearest},
        {"wrong values are named", wrong_values_are_named},
        {"texts follow the model", texts_follow_the_model},
        {"help can be asked for anywhere", help_can_be_asked_for_anywhere},
        CU_TEST_INFO_NULL,
    };
    return check_run("options", tests);
}
