/* Every pre-tokenizer that GGUF's tokenizer.ggml.pre names in llama.cpp: it gives the ids that llama.cpp or Hugging
 * Face's tokenizers give (fixtures/pretokenizers.txt, made by reference/pretokenizer_reference.py), or it is refused by
 * name; and what the documentation says of each is so. */
#include "engine/pretokenizer_families.h"
#include "gguf_writer.h"
#include "token_cases.h"

static bool skipped;

/* ---- a vocabulary in which nearly every cut shows: as pretokenizer_reference.py makes it ---------------------------
 */

typedef struct Strings { /* texts in one buffer, which they point into; owned */
    char *bytes;
    size_t used;
    const char **at;
    size_t n;
} Strings;

static void strings_init(Strings *s, size_t n) {
    *s = (Strings){.bytes = malloc(16 * n), .at = malloc(n * sizeof *s->at)};
    if (!s->bytes || !s->at) abort();
}

static void strings_add(Strings *s, const char *a, const char *between, const char *b) {
    s->at[s->n++] = s->bytes + s->used;
    s->used += (size_t)sprintf(s->bytes + s->used, "%s%s%s", a, between, b) + 1;
}

static void strings_free(Strings *s) {
    free(s->bytes);
    free(s->at);
}

/* GPT-2's letter for a byte. */
static void letter(int byte, char out[3]) {
    bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    int c = byte, others = 0;
    for (int b = 0; b < byte; b++) others += !((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE);
    if (!itself) c = 0x100 + others;
    if (c < 0x80) sprintf(out, "%c", c);
    else sprintf(out, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
}

enum { SYMBOLS = 256, ASCII = 95, MIX = 40503 };

/* Bytes, or printable ASCII characters with U+2581 for the space. */
static int symbols(bool raw, char out[SYMBOLS + 1][4]) {
    int n = raw ? ASCII : SYMBOLS;
    for (int i = 0; i < n; i++) {
        if (!raw) letter(i, out[i]);
        else if (i == 0) strcpy(out[i], "\xE2\x96\x81");
        else sprintf(out[i], "%c", ' ' + i);
    }
    if (raw) strcpy(out[n], "\n");
    return n;
}

/* The vocabulary and its merges. */
static void add_tokens(GgufWriter *w, bool raw) {
    char symbol[SYMBOLS + 1][4], twice[8], byte[8];
    int n = symbols(raw, symbol), repeated = n + raw;
    size_t pairs = (size_t)n * (size_t)n;
    Strings tokens, merges;
    strings_init(&tokens, pairs + 1024);
    strings_init(&merges, pairs + 512);
    for (int b = 0; b < 256 && raw; b++) {
        sprintf(byte, "<0x%02X>", (unsigned)b);
        strings_add(&tokens, byte, "", "");
    }
    for (int i = 0; i < repeated; i++) strings_add(&tokens, symbol[i], "", "");
    for (int i = 0; i < repeated; i++) {
        sprintf(twice, "%s%s", symbol[i], symbol[i]);
        strings_add(&tokens, twice, "", symbol[i]);
        strings_add(&merges, twice, " ", symbol[i]);
    }
    for (size_t k = 0; k < pairs; k++) {
        size_t i = k * MIX % pairs;
        const char *a = symbol[i / (size_t)n], *b = symbol[i % (size_t)n];
        strings_add(&tokens, a, "", b);
        strings_add(&merges, a, " ", b);
    }
    if (raw) {
        strings_add(&tokens, "\n", "\n", "");
        strings_add(&merges, "\n", " ", "\n");
    } else {
        strings_add(&tokens, "\xC4\xA0the", "", ""); /* U+0120 is the space's letter */
        strings_add(&tokens, "helloWorld", "", "");
        strings_add(&tokens, "Hello", "", "");
    }
    int32_t *types = malloc(tokens.n * sizeof *types);
    if (!types) abort();
    for (size_t i = 0; i < tokens.n; i++) types[i] = raw && i < 256 ? 6 : 1; /* byte, normal */
    gw_strings(w, "tokenizer.ggml.tokens", tokens.n, tokens.at);
    gw_array(w, "tokenizer.ggml.token_type", GW_I32, tokens.n, types, sizeof *types);
    gw_strings(w, "tokenizer.ggml.merges", merges.n, merges.at);
    free(types);
    strings_free(&tokens);
    strings_free(&merges);
}

static uint8_t *vocabulary(const char *pre, bool raw, size_t *size) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    gw_string(&w, "tokenizer.ggml.model", "gpt2");
    gw_string(&w, "tokenizer.ggml.pre", pre);
    add_tokens(&w, raw);
    uint8_t *bytes = gw_finish(&w, size);
    gw_free(&w);
    return bytes;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

typedef struct Texts {
    char *inp[2], *wikitext;
    size_t inp_size[2], wikitext_size;
} Texts;

static void read_texts(Texts *t) {
    t->inp[0] = read_from("SHEAF_FIXTURES", "tok_texts.inp", &t->inp_size[0]);
    t->inp[1] = read_from("SHEAF_FIXTURES", "pretokenizer_texts.inp", &t->inp_size[1]);
    CU_ASSERT_FATAL(t->inp[0] && t->inp[1]);
    t->wikitext = read_from("SHEAF_DATA", "wikitext-2-test.raw", &t->wikitext_size);
    if (t->wikitext) return;
    printf("skipped: no wikitext-2-test.raw in SHEAF_DATA ");
    skipped = true;
}

static void free_texts(Texts *t) {
    free(t->inp[0]);
    free(t->inp[1]);
    free(t->wikitext);
}

/* Ids whose hash is the next in *want; back to the text. */
static void check_text(Tokenizer *t, const char *pre, const char *text, size_t bytes, char **want) {
    int32_t *ids;
    size_t n, back;
    Err e;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, bytes, false, false, &ids, &n, &e), 0);
    if (XXH32(ids, n * sizeof *ids, 0) != strtoul(*want, want, 16)) {
        fprintf(stderr, "%s: \"%.*s\" has other ids\n", pre, bytes < 300 ? (int)bytes : 300, text);
        CU_FAIL("ids");
    }
    char *joined = join(t, ids, n, &back);
    CU_ASSERT(back == bytes && !memcmp(joined, text, bytes));
    free(joined);
    free(ids);
}

/* `first`: the long text too, which for others with the same name in the table would say nothing new. */
static void check_name(const char *pre, bool raw, const Texts *texts, char *want, bool first) {
    size_t size;
    uint8_t *bytes = vocabulary(pre, raw, &size);
    ModelFile *g;
    Tokenizer *t;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, size, size, "vocab.gguf", &g, &e), 0);
    if (tokenizer_from_gguf(g, &t, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        CU_FAIL_FATAL("the vocabulary does not load");
    }
    for (int i = 0; i < 2; i++) {
        char *text = texts->inp[i], *stop = text + texts->inp_size[i], *end;
        for (; (end = memmem(text, (size_t)(stop - text), SEPARATOR, strlen(SEPARATOR)));
             text = end + strlen(SEPARATOR))
            check_text(t, pre, text, (size_t)(end - text), &want);
    }
    if (first && texts->wikitext) check_text(t, pre, texts->wikitext, texts->wikitext_size, &want);
    tokenizer_free(t);
    model_file_close(g);
    free(bytes);
}

static void check_refused(const char *pre) {
    Pretokenizer *p;
    Err e = {""};
    CU_ASSERT_EQUAL(pretokenizer_create((Text){pre, strlen(pre)}, &p, &e), -1);
    CU_ASSERT(strstr(e.msg, pre) && !strchr(e.msg, '\n'));
}

/* Groups of names: "llama.cpp: gpt-2 mpt ...", then the hashes of their ids of each text. */
static void test_ids(void) {
    size_t size;
    Texts texts = {0};
    char *groups = read_from("SHEAF_FIXTURES", "pretokenizers.txt", &size), *line = groups;
    CU_ASSERT_PTR_NOT_NULL_FATAL(groups);
    read_texts(&texts);
    int names = 0;
    while (*line) {
        char *head = line, *want = strchr(line, '\n') + 1;
        line = strchr(want, '\n') + 1;
        want[-1] = 0;
        bool raw = !strncmp(head, "tokenizers raw:", 15), refused = !strncmp(head, "refused:", 8), first = true;
        for (char *name = strtok(strchr(head, ':') + 1, " "); name; name = strtok(NULL, " "), names++) {
            if (refused) check_refused(name);
            else check_name(name, raw, &texts, want, first);
            first = false;
        }
    }
    CU_ASSERT_EQUAL(names, 91); /* as many as llama.cpp has */
    free_texts(&texts);
    free(groups);
}

/* ---- documentation ----------------------------------------------------------------------------------------------- */

enum { MOST_NAMES = 200 };

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Sorted; points into `words`, which it cuts. */
static size_t cut_names(char *words, const char *marks, char *names[MOST_NAMES]) {
    size_t n = 0;
    for (char *name = strtok(words, marks); name && n < MOST_NAMES; name = strtok(NULL, marks)) names[n++] = name;
    qsort(names, n, sizeof *names, compare_names);
    return n;
}

/* The names in the first column of the tables of a section: between "`", which become spaces. */
static char *documented(const char *section) {
    size_t size, used = 0;
    char *page = read_from("SHEAF_SOURCE", "docs/tokenizers.md", &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(page);
    char *out = calloc(1, size + 1), *at = strstr(page, section), *stop;
    CU_ASSERT_FATAL(out && at);
    at += strlen(section);
    stop = strstr(at, "\n## ");
    if (stop) *stop = 0;
    for (char *line = strtok(at, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "| `", 3))
            for (const char *p = line + 1; *p != '|'; p++) out[used++] = *p == '`' ? ' ' : *p;
    free(page);
    return out;
}

/* The tables have the names that there are, each once. */
static void test_documentation(void) {
    char *words = documented("## GGUF: `tokenizer.ggml.pre`"), *in_code = calloc(1, 4096);
    char *names[MOST_NAMES], *ours[MOST_NAMES];
    CU_ASSERT_PTR_NOT_NULL_FATAL(in_code);
    for (int f = 0; f < pretokenizer_n_families; f++) strcat(strcat(in_code, pretokenizer_families[f].names), " ");
    size_t n = cut_names(words, " ", names), n_ours = cut_names(in_code, " ", ours);
    CU_ASSERT_EQUAL_FATAL(n, n_ours);
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], ours[i]) != 0) {
            fprintf(stderr, "documented: %s, known: %s\n", names[i], ours[i]);
            CU_FAIL_FATAL("names");
        }
    free(words);
    free(in_code);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"ids of every name", test_ids},
        {"names in the documentation", test_documentation},
        CU_TEST_INFO_NULL,
    };
    int status = check_run("pre-tokenizers", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
