#include "engine/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/regex.h"

/* The patterns, in PCRE2's syntax, are those of the models' tokenizer.json files, which llama.cpp has together
 * (https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp; where it has a rewritten one and the
 * original, the original). In those, \s is Unicode's White_Space; PCRE2's own \s also takes in U+180E, so the property
 * is named. */
#define WS     "\\p{White_Space}"
#define NOT_WS "\\P{White_Space}"
#define SPACES WS "+(?!" NOT_WS ")|" WS "+"
#define OTHERS " ?[^" WS "\\p{L}\\p{N}]+"
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES
#define SHORT  "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define LINES  "|" WS "*[\\r\\n]+|" SPACES

/* Llama 3's, with so many digits together. */
#define DIGITS(how_many) SHORT "|" BEFORE "\\p{L}+|\\p{N}" how_many "|" OTHERS "[\\r\\n]*" LINES
/* GPT-4o's: words change where a capital follows a small letter. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(contraction, digits)                                                                                     \
    BEFORE UPPER "*" LOWER "+" contraction "|" BEFORE UPPER "+" LOWER "*" contraction "|\\p{N}" digits "|" OTHERS      \
                 "[\\r\\n/]*" LINES
#define WORDS_AND_SIGNS                                                                                                \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                \
    "| ?[\\p{P}\\p{S}]+"
#define CHINESE_JAPANESE "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CHINESE_KOREAN   "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define BLOOM            " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
/* The letters with two cases that DeepSeek's file lists: fewer than there are. */
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"                    \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"             \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                    \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                  \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                  \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"          \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"         \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                   \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                    \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"                    \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                   \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                  \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"        \
    "\\x{1e900}-\\x{1e943}"

enum { MAX_PATTERNS = 6 };
typedef struct Family {
    const char *names;                  /* in tokenizer.ggml.pre, with a space between */
    const char *patterns[MAX_PATTERNS]; /* applied in turn, each to the pieces that those before it left */
    PretokenizerTraits traits;
} Family;

static const Family families[] = {
    {.names = "gpt-2 phi-2 mpt olmo jais exaone4 trillion granite-docling jina-es jina-de jina-v2-es jina-v2-de "
              "jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum modern-bert",
     .patterns = {GPT2}},
    {.names = "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", .patterns = {"\\p{N}", GPT2}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 jina-v5-nano",
     .patterns = {DIGITS("{1,3}")},
     .traits = {.ignore_merges = true, .add_bos = true}},
    {.names = "dbrx smaug-bpe chatglm-bpe", .patterns = {DIGITS("{1,3}")}},
    {.names = "glm4 glm5", .patterns = {DIGITS("{1,3}")}, .traits = {.ignore_merges = true}},
    {.names = "minicpm5", .patterns = {"\\p{N}{1,3}", DIGITS("+")}, .traits = {.ignore_merges = true}},
    {.names = "qwen2 deepseek-r1-qwen megrez stablelm2 kormo f2llmv2 hunyuan solar-open grok-2",
     .patterns = {DIGITS("")}},
    {.names = "laguna", .patterns = {"[^\\n]+|[\\n]+", DIGITS("")}},
    {.names = "qwen35",
     .patterns = {SHORT "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES}},
    {.names = "ufakzeka", .patterns = {BEFORE "\\p{L}+|\\p{N}|" OTHERS "[\\r\\n]*" LINES}},
    {.names = "seed-coder", .patterns = {SHORT "|" BEFORE "\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+" LINES}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {SHORT "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|" WS
                        "*[\\r\\n]|" SPACES}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .patterns = {CASED("(?:" SHORT ")?", "{1,3}")}},
    {.names = "tekken", .patterns = {CASED("", "")}, .traits = {.ignore_merges = true, .add_bos = true}},
    {.names = "tiny_aya cohere2moe",
     .patterns = {"\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-"
                  "\\x{be}]))",
                  CASED("(?:" SHORT ")?", "{1,3}")}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", WS "?[" DEEPSEEK_LETTERS "]+",
                  WS "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", WS "+$",
                  CHINESE_KOREAN, "\\p{N}+"}},
    {.names = "deepseek-coder", .patterns = {"[\\r\\n]", WS "?\\p{L}+", WS "?\\p{P}+", CHINESE_KOREAN, "\\p{N}"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .patterns = {"\\p{N}{1,3}", CHINESE_JAPANESE, WORDS_AND_SIGNS "[\\r\\n]*" LINES}},
    {.names = "falcon", .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = "bloom poro-chat gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "superbpe", .patterns = {"\\p{N}+", "(?=(?:\\p{Nd}{3})+(?!\\p{Nd}))"}},
    {.names = "gemma4 granite-embed-multi-311m",
     .patterns = {"[^\\n]+|[\\n]+"},
     .traits = {.raw = true, .add_bos = true}},
    {.names = "default", .patterns = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};
enum { FAMILIES = sizeof families / sizeof *families };

typedef struct Ends { /* a list of offsets that grows */
    size_t *at;
    size_t n, cap;
} Ends;

struct Pretokenizer {
    const Family *family;
    int n_patterns;
    Regex *patterns[MAX_PATTERNS];
    Ends ends, spare; /* what the last pattern left, and room for the next */
};

/* Pieces are never empty. */
static int add_end(Ends *ends, size_t at, Err *e) {
    if (at == (ends->n ? ends->at[ends->n - 1] : 0)) return 0;
    if (ends->n == ends->cap) {
        size_t cap = ends->cap ? 2 * ends->cap : 256, bytes;
        size_t *grown = size_mul(cap, sizeof *grown, &bytes) ? realloc(ends->at, bytes) : NULL;
        if (!grown) return err_set(e, "out of memory for the pieces of a text");
        ends->at = grown;
        ends->cap = cap;
    }
    ends->at[ends->n++] = at;
    return 0;
}

static bool has_name(const char *names, Text name) {
    while (*names) {
        size_t n = strcspn(names, " ");
        if (n == name.size && !memcmp(names, name.data, n)) return true;
        names += n + strspn(names + n, " ");
    }
    return false;
}

static const Family *family_of(Text name) {
    for (int f = 0; f < FAMILIES; f++)
        if (has_name(families[f].names, name)) return &families[f];
    return NULL;
}

int pretokenizer_create(Text name, Pretokenizer **out, Err *e) {
    *out = NULL;
    const Family *family = family_of(name);
    if (!family)
        return err_set(e,
                       "unknown pre-tokenizer \"%s\" (tokenizer.ggml.pre); gpt-2, llama-bpe, qwen2, smollm and many "
                       "more are known",
                       text_printable(name).text);
    Pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "out of memory for the pre-tokenizer");
    p->family = family;
    for (int i = 0; i < MAX_PATTERNS && family->patterns[i]; i++) {
        if (regex_compile(family->patterns[i], strlen(family->patterns[i]), REGEX_TRUSTED, &p->patterns[i], e)) {
            pretokenizer_free(p);
            return err_context(e, "pre-tokenizer");
        }
        p->n_patterns++;
    }
    *out = p;
    return 0;
}

void pretokenizer_free(Pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < MAX_PATTERNS; i++) regex_free(p->patterns[i]);
    free(p->ends.at);
    free(p->spare.at);
    free(p);
}

PretokenizerTraits pretokenizer_traits(const Pretokenizer *p) { return p->family->traits; }

bool pretokenizer_is_raw(Text name) {
    const Family *family = family_of(name);
    return family && family->traits.raw;
}

/* Cuts text[begin, end) into the matches of one pattern and what lies between them. It sees nothing outside. */
static int split_piece(Regex *pattern, const char *text, size_t begin, size_t end, Ends *ends, Err *e) {
    RegexIter it = {0};
    size_t from, to;
    int found;
    while ((found = regex_each(pattern, text + begin, end - begin, &it, &from, &to, e)) > 0)
        if (add_end(ends, begin + from, e) || add_end(ends, begin + to, e)) return -1;
    return found < 0 || add_end(ends, end, e) ? -1 : 0;
}

int pretokenizer_split(Pretokenizer *p, const char *text, size_t bytes, const size_t **ends, size_t *n, Err *e) {
    p->ends.n = 0;
    if (bytes && add_end(&p->ends, bytes, e)) return -1;
    for (int i = 0; i < p->n_patterns; i++) {
        p->spare.n = 0;
        for (size_t piece = 0, begin = 0; piece < p->ends.n; begin = p->ends.at[piece++])
            if (split_piece(p->patterns[i], text, begin, p->ends.at[piece], &p->spare, e)) return -1;
        Ends swap = p->ends;
        p->ends = p->spare;
        p->spare = swap;
    }
    *ends = p->ends.at;
    *n = p->ends.n;
    return 0;
}
