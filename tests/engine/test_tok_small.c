/* Small vocabularies of the kinds that came later: what they make of texts, worked out by hand from the rules (merge
 * the pair of the highest score; take the cut of the highest sum; take the longest token), flags, what is refused, and
 * every changed byte. */
#include "check.h"
#include "engine/charsmap.h"
#include "engine/tokenizer.h"
#include "graph/gguf.h"
#include "small_vocab.h"

typedef struct Loaded {
    uint8_t *bytes;
    ModelFile *g;
    Tokenizer *t;
    Err e;
} Loaded;

static int load(const SmallVocab *v, Loaded *l) {
    size_t size;
    *l = (Loaded){.bytes = small_gguf(v, &size)};
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(l->bytes, size, size, "vocab.gguf", &l->g, &l->e), 0);
    return tokenizer_from_gguf(l->g, &l->t, &l->e);
}

static void unload(Loaded *l) {
    tokenizer_free(l->t);
    model_file_close(l->g);
    free(l->bytes);
}

/* A copy with one key more. */
static SmallVocab with(const SmallVocab *v, const char *key, int value) {
    SmallVocab copy = *v;
    int i = 0;
    while (copy.keys[i].key && strcmp(copy.keys[i].key, key)) i++;
    copy.keys[i].key = key;
    copy.keys[i].value = value;
    return copy;
}

/* `want`: texts of tokens with a space between, U+2581 as "_" and a line end as "|". */
static void check_ids(const SmallVocab *v, const char *text, const int32_t *ids, size_t n, const char *want) {
    size_t used = 0;
    char have[512] = "";
    for (size_t i = 0; i < n; i++) {
        if (i) have[used++] = ' ';
        for (const char *p = v->tokens[ids[i]].text; *p && used < 500;) {
            bool space = !strncmp(p, SP, 3);
            have[used++] = space ? '_' : *p == '\n' ? '|' : *p;
            p += space ? 3 : 1;
        }
    }
    have[used] = 0;
    if (strcmp(have, want) != 0) {
        fprintf(stderr, "\"%s\" gives \"%s\", not \"%s\"\n", text, have, want);
        CU_FAIL("ids");
    }
}

static void gives(const SmallVocab *v, const char *text, bool bos, bool special, const char *want) {
    Loaded l;
    int32_t *ids = NULL;
    size_t n = 0;
    CU_ASSERT_EQUAL_FATAL(load(v, &l), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, text, strlen(text), bos, special, &ids, &n, &l.e), 0);
    check_ids(v, text, ids, n, want);
    free(ids);
    unload(&l);
}

/* With special tokens everywhere but between { and }, which are not part of the text. */
static void gives_mixed(const SmallVocab *v, const char *marked, const char *want) {
    Loaded l;
    int32_t *ids = NULL;
    TextSpan plain[8];
    char text[128];
    size_t n = 0, size = 0, spans = 0;
    for (const char *p = marked; *p; p++) {
        if (*p == '{') plain[spans].begin = size;
        else if (*p == '}') plain[spans++].end = size;
        else text[size++] = *p;
    }
    CU_ASSERT_EQUAL_FATAL(load(v, &l), 0);
    CU_ASSERT_EQUAL_FATAL(tokenizer_encode_mixed(l.t, text, size, plain, spans, &ids, &n, &l.e), 0);
    check_ids(v, marked, ids, n, want);
    free(ids);
    unload(&l);
}

/* No BOS; what is plain joins what stands around it, but special tokens neither lie in it nor reach into it. */
static void test_mixed(void) {
    const SmallVocab *v = &small_spm;
    gives_mixed(v, "", "");
    gives_mixed(v, "<s>a<s>", "<s> _a <s>");
    gives_mixed(v, "<s>{a}<s>", "<s> _a <s>");
    gives_mixed(v, "<s>{<s>}", "<s> _ < s>");
    gives_mixed(v, "{<s>}<s>", "_ < s> <s>");
    gives_mixed(v, "{<}s>", "_ < s>");
    gives_mixed(v, "<{s}>", "_ < s>");
    gives_mixed(v, "<s{>}<s>", "_ < s> <s>");
    gives_mixed(v, "<s>a{b<s>}ab<s>{a}b{<s>[x]}", "<s> _ab < s> ab <s> _ab < s> [x]");
}

static void test_spm(void) {
    const SmallVocab *v = &small_spm;
    gives(v, "", true, true, "<s>");
    gives(v, "ab", false, false, "_ab");        /* ab first (-1), then _ab; not _a (-3) */
    gives(v, "aab", false, false, "_a ab");     /* ab first, which leaves _ a */
    gives(v, "a  b", false, false, "_a _ _ b"); /* each space a letter like others */
    gives(v, "\xC3\xA9", false, false, "_ <0xC3> <0xA9>");
    gives(v, "\xE2\x82\xAC", false, false, "_ <unk>"); /* no tokens for its bytes */
    gives(v, "[x]ab[x]", false, false, "[x] _ab [x]"); /* user-defined: always; a space after it */
    gives(v, "<s>ab", false, true, "<s> _ab");
    gives(v, "<s>", false, false, "_ < s>"); /* no merge makes a control token */
    gives(v, "a\nb", true, false, "<s> _a | b");
    SmallVocab other = with(v, "add_space_prefix", SMALL_FALSE);
    gives(&other, "ab ab", false, false, "ab _ab");
    other = with(v, "add_bos_token", SMALL_FALSE);
    gives(&other, "a", true, false, "_a");
    other = with(v, "add_eos_token", SMALL_TRUE);
    gives(&other, "a", true, false, "<s> _a </s>");
    other = with(v, "unknown_token_id", 13);
    gives(&other, "\xE2\x82\xAC", false, false, "_ s");
    Loaded l;
    char buf[8];
    CU_ASSERT_EQUAL_FATAL(load(v, &l), 0);
    CU_ASSERT(tokenizer_bytes(l.t, 10, false, buf, 8) == 3 && !memcmp(buf, " ab", 3));
    CU_ASSERT(tokenizer_bytes(l.t, 3, false, buf, 8) == 1 && (uint8_t)buf[0] == 0xC3);
    CU_ASSERT(tokenizer_bytes(l.t, 1, false, buf, 8) == 0 && tokenizer_bytes(l.t, 1, true, buf, 8) == 3);
    CU_ASSERT(tokenizer_bytes(l.t, 10, false, buf, 2) == 3);
    CU_ASSERT(tokenizer_bos(l.t) == 1 && tokenizer_ends(l.t, 2) && !tokenizer_ends(l.t, 8));
    unload(&l);
    other = with(v, "eos_token_id", 11);
    other.tokens[2].type = 4; /* "</s>" as a text like others */
    CU_ASSERT_EQUAL_FATAL(load(&other, &l), 0);
    CU_ASSERT(!tokenizer_ends(l.t, 2) && tokenizer_ends(l.t, 11));
    unload(&l);
}

static void test_text_bpe(void) {
    const SmallVocab *v = &small_text_bpe;
    gives(v, "ab ab", true, false, "<bos> ab _ab"); /* BOS always, no space first */
    gives(v, "a\n\nb", false, false, "a || b");     /* a run that is a token, whatever the merges say */
    gives(v, "\n\n\n", false, false, "| | |");      /* and one that is none */
    gives(v, "\xC3\xA9", false, false, "<0xC3> <0xA9>");
    gives(v,
          "\xE2\x82\xAC"
          "a",
          false, false, "a"); /* no token at all: left out, as llama.cpp does */
    gives(v, "a<eos>b", false, true, "a <eos> b");
}

static void test_ugm(void) {
    const SmallVocab *v = &small_ugm;
    gives(v, "ab", true, false, "ab </s>"); /* -5 against a b: -6 */
    gives(v, " a", false, false, "_a");     /* -4 against _ a: -5 */
    gives(v, "a  b", false, false, "a _ _ b");
    gives(v, "ba", false, false, "ba"); /* unused tokens count too */
    gives(v, "a[x]b", false, false, "a [x] b");
    gives(v, "aXYb", false, false, "a <unk> b"); /* one for several */
    SmallVocab other = with(v, "add_space_prefix", SMALL_TRUE);
    gives(&other, "ab", false, false, "_ ab"); /* as good as _a b: what is found first stays */
    gives(&other, "  a", false, false, "_ _ _a");
    other = with(&other, "remove_extra_whitespaces", SMALL_TRUE);
    gives(&other, "  a  a ", false, false, "_a _a");
    other = with(v, "add_eos_token", SMALL_FALSE);
    gives(&other, "a", true, false, "a");
}

/* White space beside special tokens, as Hugging Face's flags of those models say. */
static void test_strips(void) {
    SmallVocab v = small_spm;
    gives(&v, "[x] a </s>  b", false, true, "[x] _ _a _ </s> _ _ _ b");
    for (int i = 0; i < 2; i++) {
        v.architecture = i ? "llama" : "phi3";
        v.name = i ? "A Phi-3 of mine" : NULL;
        gives(&v, "[x] a </s>  b", false, true, "[x] _a _ </s> _ b"); /* a space first, as always */
        gives(&v, "[x] a </s>  b", false, false, "[x] _a _ < <unk> s> _ _ b");
        gives(&v, "<s>  a</s>\n", false, true, "<s> _ _ _a </s>"); /* not <s> */
        gives(&v, "</s> \xC2\xA0\n", false, true, "</s>");
    }
    static const struct {
        const char *architecture, *pre;
        bool strips;
    } models[] = {{"nomic-bert-moe", "default", true},
                  {"jina-bert-v3", NULL, true},
                  {"bert", "jina-v2-de", true},
                  {"bert", "default", false}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        v = small_ugm;
        v.tokens[10].text = "<mask>";
        v.tokens[10].type = 3;
        v.architecture = models[i].architecture;
        v.pre = models[i].pre;
        gives(&v, "a \t<mask> b", false, true, models[i].strips ? "a <mask> _ b" : "a _ <unk> <mask> _ b");
        gives(&v, " <mask>", false, true, models[i].strips ? "<mask>" : "_ <mask>");
    }
}

/* A token that is half a character is found in no text. */
static void test_halves(void) {
    static const SmallVocab *const kinds[] = {&small_spm, &small_ugm, &small_text_bpe};
    for (int i = 0; i < 3; i++) {
        SmallVocab v = *kinds[i];
        int n = 0;
        while (v.tokens[n].text) n++;
        v.tokens[n].text = "\xC3";
        v.tokens[n].type = 4;
        Loaded l;
        int32_t *ids;
        size_t n_ids;
        char *text = malloc(2); /* so that a sanitizer sees a read past its end */
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        memcpy(text, "\xC3\xA9", 2);
        CU_ASSERT_EQUAL_FATAL(load(&v, &l), 0);
        CU_ASSERT_EQUAL_FATAL(tokenizer_encode(l.t, text, 2, false, true, &ids, &n_ids, &l.e), 0);
        for (size_t j = 0; j < n_ids; j++) CU_ASSERT_NOT_EQUAL(ids[j], n);
        free(ids);
        free(text);
        unload(&l);
    }
}

static void test_wpm(void) {
    const SmallVocab *v = &small_wpm;
    gives(v, "H\xC3\xA9llo, A", true, false, "[CLS] _he llo _, _a [SEP]");
    gives(v,
          "hello\xE6\x97\xA5"
          "a",
          false, false, "_he llo _\xE6\x97\xA5 _a"); /* ideographs stand alone */
    gives(v, "hex aaa", false, false, "[UNK] _a a a");
    gives(v, "a\x07[SEP] a", false, true, "_a [SEP] _a");
    char word[102];
    memset(word, 'a', sizeof word);
    word[101] = 0;
    gives(v, word, false, false, "[UNK]"); /* more than 100 characters */
    SmallVocab other = with(v, "normalizer.lowercase", SMALL_FALSE);
    gives(&other, "Hi hello", false, false, "_Hi _he llo");
    gives(v, "Hi", false, false, "[UNK]");
    /* llama.cpp puts both around every text, whatever the flags say */
    static const char *const flags[] = {"add_sep_token", "add_bos_token", "add_eos_token"};
    for (int i = 0; i < 3; i++) {
        other = with(v, flags[i], SMALL_FALSE);
        gives(&other, "a", true, false, "[CLS] _a [SEP]");
    }
}

static void refused(const SmallVocab *v, const char *why) {
    Loaded l;
    CU_ASSERT_EQUAL(load(v, &l), -1);
    if (l.t || !strstr(l.e.msg, why) || !strstr(l.e.msg, "vocab.gguf") || strchr(l.e.msg, '\n')) {
        fprintf(stderr, "\"%s\" should say \"%s\"\n", l.e.msg, why);
        CU_FAIL("the error");
    }
    unload(&l);
}

static void test_refused(void) {
    SmallVocab v = small_spm;
    v.no_scores = true;
    refused(&v, "tokenizer.ggml.scores is missing");
    v = small_spm;
    v.tokens[7].score = 0.0f / 0.0f;
    refused(&v, "token 7 has no finite score");
    v = small_ugm;
    v.no_scores = true;
    refused(&v, "tokenizer.ggml.scores is missing");
    v = with(&small_ugm, "precompiled_charsmap", 1);
    refused(&v, "precompiled_charsmap");
    v = with(&small_wpm, "seperator_token_id", 11);
    refused(&v, "seperator_token_id");
    v = with(&small_wpm, "cls_token_id", SMALL_TRUE);
    refused(&v, "cls_token_id");
    static const char *const others[] = {"rwkv", "plamo2", "hybriddna", "whitespace", "none", "no_vocab", "test"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        v = small_spm;
        v.model = others[i];
        refused(&v, others[i]);
    }
    v = small_text_bpe;
    v.merges[0] = NULL;
    refused(&v, "tokenizer.ggml.merges is missing");
    v = small_text_bpe;
    v.merges[1] = "a a";
    refused(&v, "what it makes");
    static char longest[2100];
    memset(longest, 'a', sizeof longest - 1);
    v = small_spm;
    v.tokens[6].text = longest;
    refused(&v, "token 6 has 2099 bytes");
}

/* A table of one entry, "a" -> "xy", in darts-clone's bits: the root leads by 'a' to unit 'a' ^ 2, that one to its
 * value. */
static void test_charsmap(void) {
    enum { UNITS = 128, A = 'a' ^ 2 };
    uint8_t table[4 + 4 * UNITS + 3] = {(uint8_t)(4 * UNITS & 0xFF), (uint8_t)(4 * UNITS >> 8)};
    uint32_t units[UNITS] = {[0] = 2 << 10, [A] = 'a' | 1 << 8 | 1 << 10, [A ^ 1] = UINT32_C(1) << 31};
    memcpy(table + 4, units, sizeof units);
    memcpy(table + 4 + sizeof units, "xy", 3);
    Charsmap m;
    Err e;
    Text as;
    CU_ASSERT_EQUAL_FATAL(charsmap_init(&m, table, sizeof table, &e), 0);
    CU_ASSERT(charsmap_longest(&m, "ab", 2, &as) == 1 && as.size == 2 && !memcmp(as.data, "xy", 2));
    CU_ASSERT(charsmap_longest(&m, "ba", 2, &as) == 0 && charsmap_longest(&m, "", 0, &as) == 0);
    charsmap_free(&m);
    table[sizeof table - 3] = 0xC3; /* half a character */
    CU_ASSERT_EQUAL(charsmap_init(&m, table, sizeof table, &e), -1);
    charsmap_free(&m);
    table[sizeof table - 3] = 'x';
    for (size_t n = 0; n < sizeof table; n++) { /* cut short */
        CU_ASSERT_EQUAL(charsmap_init(&m, table, n, &e), n > 4 + sizeof units && !table[n - 1] ? 0 : -1);
        charsmap_free(&m);
    }
    for (size_t at = 0; at < sizeof table - 1; at++) /* damaged: an answer within the table or none */
        for (int bit = 0; bit < 8; bit++) {
            table[at] = (uint8_t)(table[at] ^ 1 << bit);
            if (charsmap_init(&m, table, sizeof table, &e) == 0 && charsmap_longest(&m, "ab", 2, &as))
                CU_ASSERT(as.data >= m.texts && as.data + as.size < m.texts + m.n_texts);
            charsmap_free(&m);
            table[at] = (uint8_t)(table[at] ^ 1 << bit);
        }
}

/* Loads or is refused by name; what loads encodes, with ids that exist. */
static bool survives(const uint8_t *bytes, size_t size) {
    ModelFile *g;
    Tokenizer *t;
    Err e = {""};
    if (gguf_from_memory(bytes, size, size, "vocab.gguf", &g, &e)) return false;
    bool loads = tokenizer_from_gguf(g, &t, &e) == 0;
    if (loads) {
        static const char sample[] = "h\xC3\xA9llo, ab [x]<s> ba\n\na";
        int32_t *ids = NULL;
        size_t n = 0;
        if (tokenizer_encode(t, sample, strlen(sample), true, true, &ids, &n, &e)) n = 0;
        for (size_t i = 0; i < n; i++) {
            CU_ASSERT_FATAL(ids[i] >= 0 && ids[i] < tokenizer_size(t));
            (void)tokenizer_bytes(t, ids[i], true, NULL, 0);
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
    static const SmallVocab *const vocabularies[] = {&small_spm, &small_text_bpe, &small_ugm, &small_wpm};
    static const uint8_t changes[] = {1, 4, 32, 128, 255};
    for (int v = 0; v < 4; v++) {
        size_t size, loaded = 0;
        uint8_t *bytes = small_gguf(vocabularies[v], &size);
        for (size_t at = 0; at < size; at++)
            for (size_t i = 0; i < sizeof changes; i++) {
                bytes[at] ^= changes[i];
                loaded += survives(bytes, size);
                bytes[at] ^= changes[i];
            }
        CU_ASSERT(loaded > 0);
        free(bytes);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"merging by scores", test_spm},
        {"merging text by a list", test_text_bpe},
        {"special tokens around plain text", test_mixed},
        {"unigram", test_ugm},
        {"WordPiece", test_wpm},
        {"white space beside special tokens", test_strips},
        {"half a character as a token", test_halves},
        {"vocabularies that are refused", test_refused},
        {"a table of replacements", test_charsmap},
        {"every changed byte", test_changed_bytes},
        CU_TEST_INFO_NULL,
    };
    return check_run("small vocabularies of other kinds", tests);
}
