#include "engine/pretokenizer_families.h"

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
/* What a word is made of in Oniguruma's \b. */
#define WORD    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define BEFORE  "[^\\r\\n\\p{L}\\p{N}]?"
#define STEP(n) WS "{" n "}(?!" NOT_WS ")|"
#define LINES   "|" WS "*[\\r\\n]+|" SPACES

/* Llama 3's, with so many digits together. */
#define DIGITS(how_many) SHORT "|" BEFORE "\\p{L}+|\\p{N}" how_many "|" OTHERS "[\\r\\n]*" LINES
/* GPT-4o's: words change where a capital follows a small letter. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_OF(upper, lower, contraction, digits, signs)                                                             \
    BEFORE upper "*" lower "+" contraction "|" BEFORE upper "+" lower "*" contraction "|\\p{N}" digits                 \
                 "|" OTHERS signs LINES
#define CASED(contraction, digits) CASED_OF(UPPER, LOWER, contraction, digits, "[\\r\\n/]*")
#define MAYBE_SHORT                "(?:" SHORT ")?"
#define WORDS_AND_SIGNS                                                                                                \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                \
    "| ?[\\p{P}\\p{S}]+"
/* The same without Han characters: of all categories but these. (\p{Han} by itself takes in signs that other scripts
 * use as well.) */
#define UPPER_NOT_HAN    "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NOT_HAN    "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define JAPANESE         "\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}"
#define CHINESE_JAPANESE "[\\x{4e00}-\\x{9fa5}" JAPANESE "]+"
#define CHINESE_KOREAN   "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* Chinese, Japanese, Korean and scripts of South-East Asia, as llama.cpp has AFMoE's: with all from U+8C48 to U+FAFF.
 */
#define ASIAN                                                                                                          \
    "[\\x{4e00}-\\x{faff}\\x{3400}-\\x{4dbf}" JAPANESE "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}"       \
    "\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{1100}-\\x{11ff}]+"
/* Youtu's: Korean; full-width signs; Bopomofo; Chinese and Japanese. */
#define YOUTU                                                                                                          \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}"       \
    "\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" CHINESE_JAPANESE
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
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

const Family pretokenizer_families[] = {
    {.names = "gpt-2 phi-2 mpt olmo jais exaone4 trillion granite-docling jina-es jina-de jina-v2-es jina-v2-de "
              "jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum modern-bert",
     .patterns = {{GPT2}}},
    {.names = "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     .patterns = {{"\\p{N}"}, {GPT2}}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 jina-v5-nano",
     .patterns = {{DIGITS("{1,3}")}},
     .traits = {.ignore_merges = true, .add_bos = true}},
    {.names = "jais-2", /* white space in powers of two; where one begins behind another, no line end follows */
     .patterns = {{SHORT "|" BEFORE "\\p{L}+|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|(?<![^" NOT_WS "\\r\\n])" WS
                         "*[\\r\\n]+|" STEP("512") STEP("256") STEP("128") STEP("64") STEP("32") STEP("16") STEP("8")
                             STEP("4") STEP("1,2") WS}}},
    {.names = "dbrx smaug-bpe chatglm-bpe", .patterns = {{DIGITS("{1,3}")}}},
    {.names = "glm4 glm5", .patterns = {{DIGITS("{1,3}")}}, .traits = {.ignore_merges = true}},
    {.names = "minicpm5", .patterns = {{"\\p{N}{1,3}"}, {DIGITS("+")}}, .traits = {.ignore_merges = true}},
    {.names = "qwen2 deepseek-r1-qwen megrez stablelm2 kormo f2llmv2 hunyuan solar-open grok-2",
     .patterns = {{DIGITS("")}}},
    {.names = "laguna", .patterns = {{"[^\\n]+|[\\n]+"}, {DIGITS("")}}},
    {.names = "qwen35",
     .patterns = {{SHORT "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES}}},
    {.names = "ufakzeka", .patterns = {{BEFORE "\\p{L}+|\\p{N}|" OTHERS "[\\r\\n]*" LINES}}},
    {.names = "seed-coder", .patterns = {{SHORT "|" BEFORE "\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+" LINES}}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {{SHORT "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|" WS
                         "*[\\r\\n]|" SPACES}}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .patterns = {{CASED(MAYBE_SHORT, "{1,3}")}}},
    {.names = "granite-embed-multi-97m",
     .patterns = {{CASED(MAYBE_SHORT, "{1,3}")}},
     .traits = {.ignore_merges = true}},
    {.names = "youtu", .patterns = {{YOUTU}, {CASED(MAYBE_SHORT, "")}}, .traits = {.ignore_merges = true}},
    {.names = "kimi-k2",
     .patterns = {{"\\p{sc:Han}+|" CASED_OF(UPPER_NOT_HAN, LOWER_NOT_HAN, MAYBE_SHORT, "{1,3}", "[\\r\\n]*")}}},
    {.names = "tekken", .patterns = {{CASED("", "")}}, .traits = {.ignore_merges = true, .add_bos = true}},
    {.names = "tiny_aya cohere2moe",
     .patterns = {{"(?<!\\p{Nd})\\p{Nd}++(?![" WORD "])", CUT_THREES}, {CASED(MAYBE_SHORT, "{1,3}")}}},
    {.names = "deepseek-llm",
     .patterns = {{"[\\r\\n]"},
                  {WS "?[" DEEPSEEK_LETTERS "]+"},
                  {WS "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"},
                  {"(?<!" WS ")" WS "+$"},
                  {CHINESE_KOREAN},
                  {"\\p{N}+"}}},
    {.names = "deepseek-coder",
     .patterns = {{"[\\r\\n]"}, {WS "?\\p{L}+"}, {WS "?\\p{P}+"}, {CHINESE_KOREAN}, {"\\p{N}"}}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .patterns = {{"\\p{N}{1,3}"}, {CHINESE_JAPANESE}, {WORDS_AND_SIGNS "[\\r\\n]*" LINES}}},
    {.names = "spark2_5",
     .patterns = {{"\\p{N}{1,3}"}, {CHINESE_JAPANESE}, {WORDS_AND_SIGNS "|[\\r\\n]|" SPACES}, {"\\p{N}"}}},
    {.names = "afmoe", .patterns = {{"\\p{N}+", CUT_THREES}, {ASIAN}, {WORDS_AND_SIGNS "[\\r\\n]*" LINES}}},
    {.names = "exaone-moe", /* words with single spaces between stay together */
     .patterns = {{SHORT "|" BEFORE "(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|" OTHERS "[\\r\\n/]?|" WS
                         "*[\\r\\n]|" SPACES}}},
    {.names = "chameleon",
     .patterns = {{"<sentinel:[0-9]+>"},
                  {"IMGIMG[A-I]{1,4}Z"},
                  {"[\\t\\n]|    |  "},
                  {"\\p{N}"},
                  {"[\\p{P}!-/:-@\\[-`{-~]"},
                  {GPT2}},
     .traits = {.add_bos = true}},
    {.names = "falcon", .patterns = {{"[\\p{P}$+<=>^~|`]+"}, {GPT2}, {"[0-9][0-9][0-9]"}}},
    {.names = "bloom poro-chat gpt3-finnish", .patterns = {{BLOOM}}},
    {.names = "viking", .patterns = {{BLOOM}, {"\\p{N}"}}},
    {.names = "superbpe", .patterns = {{"\\p{N}+"}, {"\\p{Nd}+", CUT_BETWEEN}}},
    {.names = "gemma4 granite-embed-multi-311m",
     .patterns = {{"[^\\n]+|[\\n]+"}},
     .traits = {.raw = true, .add_bos = true}},
    {.names = "sarvam-moe", .patterns = {{"[^\\n]+|[\\n]+"}}, .traits = {.raw = true}},
    {.names = "default", .patterns = {{"[\\p{P}$+<=>^~|]+"}, {GPT2}, {"\\p{N}+"}, {"[0-9][0-9][0-9]"}}},
};
const int pretokenizer_n_families = sizeof pretokenizer_families / sizeof *pretokenizer_families;
