/* Small vocabularies: flags and kinds of tokens, each thing that can be wrong in one, and every changed byte of one. */
#include "check.h"
#include "engine/tokenizer.h"
#include "gguf_writer.h"
#include "graph/gguf.h"
#include "tiny_model.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* A vocabulary as a table, with what a test changes. */
typedef struct Vocab {
    const char *model, *pre;
    const char *tokens[20], *merges[8]; /* NULL-terminated */
    int32_t types[20];
    int64_t bos, eos, eot; /* -1: no key */
    int add_bos, add_eos;  /* -1: no key */
    int n_types;           /* 0: as many as there are tokens; -1: no key */
} Vocab;

static const Vocab sound = {
    .model = "gpt2",
    .pre = "smollm",
    .tokens = {"<s>", "<|im_end|>", "a", "b", "c", "ab", "abc", "\304\240", "\304\240a", "<u>", "<0x0A>", "[PAD]",
               "a b", "<unk>", "<s><s>"},
    .types = {CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, USER_DEFINED, BYTE, UNUSED,
              NORMAL, UNKNOWN, CONTROL},
    .merges = {"a b", "ab c", "\xC4\xA0 a"},
    .bos = 0,
    .eos = 1,
    .eot = -1,
    .add_bos = -1,
    .add_eos = -1,
};

static uint8_t *build(const Vocab *v, size_t *size) {
    GgufWriter w;
    uint64_t n = 0, merges = 0;
    while (v->tokens[n]) n++;
    while (v->merges[merges]) merges++;
    gw_init(&w, 3, 32);
    if (v->model) gw_string(&w, "tokenizer.ggml.model", v->model);
    if (v->pre) gw_string(&w, "tokenizer.ggml.pre", v->pre);
    gw_strings(&w, "tokenizer.ggml.tokens", n, v->tokens);
    if (v->n_types >= 0)
        gw_array(&w, "tokenizer.ggml.token_type", GW_I32, v->n_types ? (uint64_t)v->n_types : n, v->types, 4);
    gw_strings(&w, "tokenizer.ggml.merges", merges, v->merges);
    if (v->bos >= 0) gw_u32(&w, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v->eos >= 0) gw_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    if (v->eot >= 0) gw_u32(&w, "tokenizer.ggml.eot_token_id", (uint32_t)v->eot);
    if (v->add_bos >= 0) gw_bool(&w, "tokenizer.ggml.add_bos_token", v->add_bos);
    if (v->add_eos >= 0) gw_bool(&w, "tokenizer.ggml.add_eos_token", v->add_eos);
    uint8_t *bytes = gw_finish(&w, size);
    gw_free(&w);
    return bytes;
}

typedef struct Loaded {
    uint8_t *bytes;
    ModelFile *g;
    Tokenizer *t;
    Err e;
} Loaded;

/* Takes over `bytes`; `name` is the file's, for errors. */
static int load_bytes(uint8_t *bytes, size_t size, const char *name, Loaded *l) {
    *l = (Loaded){.bytes = bytes};
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(l->bytes, size, size, name, &l->g, &l->e), 0);
    return tokenizer_from_gguf(l->g, &l->t, &l->e);
}

static int load(const Vocab *v, Loaded *l) {
    size_t size;
    uint8_t *bytes = build(v, &size);
    return load_bytes(bytes, size, "vocab.gguf", l);
}

static void unload(Loaded *l) {
    tokenizer_free(l->t);
    model_file_close(l->g);
    free(l->bytes);
}

/* ---- what a sound one does --------------------------------------------------------------------------------------- */

/* `want`: ids, ended by -1. */
static void encodes(Tokenizer *t, const char *text, bool bos, bool special, const int32_t *want) {
    int32_t *ids = NULL;
    size_t n = 0, n_want = 0;
    Err e;
    while (want[n_want] >= 0) n_want++;
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(t, text, strlen(text), bos, special, &ids, &n, &e), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ids);
    if (n != n_want || memcmp(ids, want, n * sizeof *ids)) {
        fprintf(stderr, "\"%s\":", text);
        for (size_t i = 0; i < n; i++) fprintf(stderr, " %d", ids[i]);
        fprintf(stderr, "\n");
        CU_FAIL("ids");
    }
    free(ids);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define NO_IDS   ((const int32_t[]){-1})

static void test_encode(void) {
    Loaded l;
    CU_ASSERT_EQUAL_FATAL(load(&sound, &l), 0);
    encodes(l.t, "", true, true, NO_IDS);
    encodes(l.t, "abc", false, false, IDS(6));
    encodes(l.t, "abab a", false, false, IDS(5, 5, 8));
    encodes(l.t, "ac\nb", false, false, IDS(2, 4, 3)); /* no token for a newline: left out, as llama.cpp does */
    encodes(l.t, "a<s>b", false, true, IDS(2, 0, 3));
    encodes(l.t, "a<s>b", false, false, IDS(2, 3));    /* the letters of <s>, for which there are no tokens */
    encodes(l.t, "a<u>b", false, false, IDS(2, 9, 3)); /* user-defined: always */
    encodes(l.t, "<unk>[PAD]<s>", false, true, IDS(13, 0));
    encodes(l.t, "<s><s><s>", false, true, IDS(14, 0));
    encodes(l.t, "<0x0A>a b", false, true, IDS(2, 7, 3)); /* byte and plain tokens are not looked for in text */
    unload(&l);
}

static void test_flags(void) {
    Vocab v = sound;
    Loaded l;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), -1); /* smollm adds none by itself */
    encodes(l.t, "a", true, false, IDS(2));
    unload(&l);
    v.add_bos = v.add_eos = 1;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), 0);
    encodes(l.t, "a", true, false, IDS(0, 2, 1));
    encodes(l.t, "a", false, false, IDS(2));
    encodes(l.t, "", true, false, IDS(0, 1));
    unload(&l);
    v = sound;
    v.pre = "llama-bpe"; /* adds BOS unless told not to; a piece that is a token is that token */
    v.merges[1] = NULL;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), 0);
    encodes(l.t, "abc", true, false, IDS(0, 6));
    encodes(l.t, "abca", true, false, IDS(0, 5, 4, 2));
    unload(&l);
    v.add_bos = 0;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), -1);
    unload(&l);
    v.add_bos = 1;
    v.bos = -1;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_bos(l.t), -1);
    unload(&l);
}

static void gives(const Tokenizer *t, int32_t id, bool special, const char *want) {
    char buf[16] = "";
    size_t n = tokenizer_bytes(t, id, special, buf, sizeof buf);
    CU_ASSERT(n == strlen(want) && !memcmp(buf, want, n));
    CU_ASSERT_EQUAL(tokenizer_bytes(t, id, special, NULL, 0), n);
}

static void test_bytes(void) {
    Loaded l;
    CU_ASSERT_EQUAL_FATAL(load(&sound, &l), 0);
    gives(l.t, 0, true, "<s>");
    gives(l.t, 0, false, "");
    gives(l.t, 6, false, "abc");
    gives(l.t, 8, false, " a");
    gives(l.t, 9, false, "<u>");
    gives(l.t, 10, false, "\n");
    gives(l.t, 11, true, "");
    gives(l.t, 12, false, "a b"); /* a space is no letter of a byte: the token stands for itself */
    gives(l.t, 13, true, "<unk>");
    gives(l.t, -1, true, "");
    gives(l.t, 15, true, "");
    char two[3] = "..";
    CU_ASSERT(tokenizer_bytes(l.t, 6, false, two, 2) == 3 && !strcmp(two, "ab")); /* what fits, and what is needed */
    CU_ASSERT(tokenizer_ends(l.t, 1) && !tokenizer_ends(l.t, 0) && !tokenizer_ends(l.t, -1) &&
              !tokenizer_ends(l.t, 15));
    unload(&l);
    Vocab v = sound;
    v.eos = 4;
    v.eot = 5; /* by key; and <|im_end|> by its text, as it is a control token */
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT(tokenizer_ends(l.t, 4) && tokenizer_ends(l.t, 5) && tokenizer_ends(l.t, 1) && !tokenizer_ends(l.t, 6));
    unload(&l);
    v.types[1] = NORMAL;
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    CU_ASSERT(!tokenizer_ends(l.t, 1));
    unload(&l);
}

static void test_bad_text(void) {
    Loaded l;
    int32_t *ids = NULL;
    size_t n = 0;
    CU_ASSERT_EQUAL_FATAL(load(&sound, &l), 0);
    CU_ASSERT_EQUAL(tokenizer_encode(l.t, "abc\xFF", 4, false, false, &ids, &n, &l.e), -1);
    CU_ASSERT(!ids && n == 0 && strstr(l.e.msg, "offset 3") && strstr(l.e.msg, "0xff"));
    CU_ASSERT_EQUAL(tokenizer_encode(l.t, "<s>\xE2\x82", 5, false, true, &ids, &n, &l.e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(l.e.msg, "offset 3"));
    CU_ASSERT_EQUAL(tokenizer_encode(l.t, "a\0b", 3, false, false, &ids, &n, &l.e),
                    0); /* NUL is a byte like any other */
    CU_ASSERT(n == 2 && ids[0] == 2 && ids[1] == 3);
    free(ids);
    unload(&l);
}

/* ---- what is wrong is named -------------------------------------------------------------------------------------- */

static void refused(const Vocab *v, const char *why) {
    Loaded l;
    CU_ASSERT_EQUAL(load(v, &l), -1);
    if (l.t || !strstr(l.e.msg, why) || !strstr(l.e.msg, "vocab.gguf") || strchr(l.e.msg, '\n')) {
        fprintf(stderr, "\"%s\" should say \"%s\"\n", l.e.msg, why);
        CU_FAIL("the error");
    }
    unload(&l);
}

static void test_refused(void) {
    Vocab v = sound;
    v.model = "nobody's";
    refused(&v, "\"nobody's\"");
    v.model = "llama";
    refused(&v, "tokenizer.ggml.scores is missing");
    v.model = NULL;
    refused(&v, "tokenizer.ggml.model is missing");
    v = sound;
    v.pre = "nobody's";
    refused(&v, "\"nobody's\"");
    v.pre = NULL;
    refused(&v, "tokenizer.ggml.pre is missing");
    v = sound;
    v.tokens[4] = "ab";
    refused(&v, "tokens 4 and 5");
    v = sound;
    v.tokens[0] = NULL;
    refused(&v, "0 tokens");
    v = sound;
    v.types[3] = 7;
    refused(&v, "token 3 has type 7");
    v.types[3] = -1;
    refused(&v, "type -1");
    v = sound;
    v.n_types = 14;
    refused(&v, "14 entries for 15 tokens");
    v.n_types = 16;
    refused(&v, "16 entries");
    static const char *const merges[][2] = {
        {"x b", "left"},  {"a x", "right"},  {"b a", "what it makes"}, {"ab", "merge 1"},  {"", "merge 1"},
        {" ", "merge 1"}, {"a ", "merge 1"}, {" a", "merge 1"},        {"a b c", "right"}, {"a  b", "right"}};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        v = sound;
        v.merges[1] = merges[i][0];
        refused(&v, merges[i][1]);
    }
    v = sound;
    v.bos = 15;
    refused(&v, "bos_token_id");
    v = sound;
    v.eos = UINT32_MAX;
    refused(&v, "eos_token_id");
    v = sound;
    v.eot = 15;
    refused(&v, "eot_token_id");
}

/* Without what need not be there; empty tokens may repeat; a merge that comes twice counts once. */
static void test_accepted(void) {
    Vocab v = sound;
    Loaded l;
    v.n_types = -1;
    v.bos = v.eos = -1;
    v.tokens[15] = "";
    v.tokens[16] = "";
    v.merges[3] = "a b";
    CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
    encodes(l.t, "abab", true, true, IDS(5, 5));
    gives(l.t, 16, true, "");
    unload(&l);
}

/* Loads or is refused by name; what loads encodes, with ids that exist. Returns whether it loads. */
static bool try_vocabulary(const uint8_t *bytes, size_t size) {
    ModelFile *g;
    Tokenizer *t;
    Err e = {""};
    if (gguf_from_memory(bytes, size, size, "vocab.gguf", &g, &e)) return false;
    bool loads = tokenizer_from_gguf(g, &t, &e) == 0;
    if (loads) {
        int32_t *ids = NULL;
        size_t n = 0;
        char buf[8];
        if (tokenizer_encode(t, "abc a<s> <u>cab", 15, true, true, &ids, &n, &e)) n = 0;
        for (size_t i = 0; i < n; i++) {
            CU_ASSERT_FATAL(ids[i] >= 0 && ids[i] < tokenizer_size(t));
            (void)tokenizer_bytes(t, ids[i], true, buf, sizeof buf);
        }
        free(ids);
        tokenizer_free(t);
    } else {
        CU_ASSERT(strstr(e.msg, "vocab.gguf") && !strchr(e.msg, '\n'));
    }
    model_file_close(g);
    return loads;
}

static void test_changed_bytes(void) {
    static const uint8_t changes[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
    size_t size, loaded = 0;
    uint8_t *bytes = build(&sound, &size);
    for (size_t at = 0; at < size; at++)
        for (size_t i = 0; i < sizeof changes; i++) {
            bytes[at] ^= changes[i];
            loaded += try_vocabulary(bytes, size);
            bytes[at] ^= changes[i];
        }
    CU_ASSERT(loaded > 0);
    free(bytes);
}

/* The vocabulary that tests/tiny_model.h gives to tiny models: ids by its description there. */
static void test_tiny_vocabulary(void) {
    GgufWriter w;
    size_t size;
    Loaded l;
    gw_init(&w, 3, 32);
    tiny_vocabulary(&w, 1000);
    uint8_t *bytes = gw_finish(&w, &size);
    gw_free(&w);
    CU_ASSERT_EQUAL_FATAL(load_bytes(bytes, size, "tiny.gguf", &l), 0);
    enum { BYTES = TINY_FIRST_BYTE, SPACED = BYTES + 256, PAIRS = SPACED + 26 };
    encodes(l.t, "<|im_start|>", true, true, IDS(TINY_IM_START));
    encodes(l.t, "A", false, false, IDS(BYTES + 'A'));
    encodes(l.t, " b", false, false, IDS(SPACED + 1));
    encodes(l.t, "cab", false, false, IDS(BYTES + 'c', PAIRS + 1)); /* "ab" comes before "ca" */
    encodes(l.t, "\xC3\xA9", false, false, IDS(BYTES + 0xC3, BYTES + 0xA9));
    CU_ASSERT(tokenizer_ends(l.t, TINY_IM_END) && tokenizer_ends(l.t, TINY_ENDOFTEXT) && tokenizer_size(l.t) == 1000);
    unload(&l);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"text to ids", test_encode},
        {"flags and names", test_flags},
        {"ids to text, and which end it", test_bytes},
        {"text that is no UTF-8", test_bad_text},
        {"vocabularies that are refused", test_refused},
        {"vocabularies that are not", test_accepted},
        {"every changed byte", test_changed_bytes},
        {"the tiny models' vocabulary", test_tiny_vocabulary},
        CU_TEST_INFO_NULL,
    };
    return check_run("small vocabularies", tests);
}
