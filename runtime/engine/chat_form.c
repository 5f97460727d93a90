#include "engine/chat_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "engine/utf8.h"
#include "graph/model_file.h"

/* The first that fits counts; the first of a name is the one that the name means. Of the templates that models were
 * published with, tests/fixtures/chat has one for each row. */
#define BAR          "\xEF\xBD\x9C" /* U+FF5C, and U+2581 for spaces: DeepSeek's special tokens */
#define DEEPSEEK_END "<" BAR "end\xE2\x96\x81of\xE2\x96\x81sentence" BAR ">"

static const ChatForm forms[] = {
    {.name = "chatml", /* Qwen, SmolLM, Yi, Hermes, ... */
     .has = {"<|im_start|>", "<|im_end|>"},
     .lacks = {"<|im_sep|>", "Reasoning Mode", "not enable_thinking", "'<think>\n' }}", "system_prompt", ".lstrip()",
               "truncate_history"}, /* Phi 4, SmolLM3, QwQ as changed by others, Qwen 3.5, LFM2, Bielik, Nemotron */
     .begin = CHAT_BOS,
     .system = {"<|im_start|>system\n", "<|im_end|>\n", TRIM_NOT},
     .user = {"<|im_start|>user\n", "<|im_end|>\n", TRIM_NOT},
     .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n", TRIM_NOT},
     .answer = "<|im_start|>assistant\n",
     .place = SYSTEM_TURN},
    {.name = "llama2",
     .has = {"[INST]", "'<<SYS>>\n'", "bos_token + '[INST] '", ".strip()"},
     .lacks = {"USE_DEFAULT_PROMPT == true", "true == true"},
     .begin = "",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n", TRIM_NOT},
     .user = {CHAT_BOS "[INST] ", " [/INST]", TRIM_WITH_SYSTEM},
     .assistant = {" ", " " CHAT_EOS, TRIM_TEXT},
     .answer = "",
     .place = SYSTEM_FIRST},
    {.name = "llama3.1", /* and 3.2, 3.3 */
     .has = {"<|start_header_id|>", "Cutting Knowledge Date: December 2023\n", "'Today Date: ' + date_string + '\n\n'",
             "<|eot_id|>"},
     .begin = CHAT_BOS,
     .system = {"<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                "Today Date: " CHAT_DATE "\n\n",
                "<|eot_id|>", TRIM_TEXT},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>", TRIM_TEXT},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", TRIM_TEXT},
     .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .place = SYSTEM_TURN,
     .no_system = ""},
    {.name = "llama3",
     .has = {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
     .lacks = {"tools", "strftime_now"},
     .begin = CHAT_BOS,
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>", TRIM_TEXT},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>", TRIM_TEXT},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", TRIM_TEXT},
     .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .place = SYSTEM_TURN},
    {.name = "gemma3",
     .has = {"<start_of_turn>", "<end_of_turn>\n", "first_user_prefix = messages[0]['content'] + '\n\n'"},
     .begin = CHAT_BOS,
     .system = {"", "\n\n", TRIM_NOT},
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n", TRIM_TEXT},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n", TRIM_TEXT},
     .answer = "<start_of_turn>model\n",
     .place = SYSTEM_FIRST},
    {.name = "gemma", /* and Gemma 2 */
     .has = {"<start_of_turn>", "<end_of_turn>\n", "System role not supported"},
     .begin = CHAT_BOS,
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n", TRIM_TEXT},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n", TRIM_TEXT},
     .answer = "<start_of_turn>model\n",
     .place = SYSTEM_NONE},
    {.name = "mistral-v0.1",
     .has = {"'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token + ' '"},
     .lacks = {"<<SYS>>", "system_message"},
     .begin = CHAT_BOS,
     .user = {"[INST] ", " [/INST]", TRIM_NOT},
     .assistant = {"", CHAT_EOS " ", TRIM_NOT},
     .answer = "",
     .place = SYSTEM_NONE},
    {.name = "mistral-v0.2", /* and Mixtral */
     .has = {"'[INST] ' + message['content'] + ' [/INST]'", "{{ message['content'] + eos_token}}"},
     .lacks = {"<<SYS>>", "system_message"},
     .begin = CHAT_BOS,
     .user = {"[INST] ", " [/INST]", TRIM_NOT},
     .assistant = {"", CHAT_EOS, TRIM_NOT},
     .answer = "",
     .place = SYSTEM_NONE},
    {.name = "mistral-v1",
     .has = {"' [INST] ' + message['content'] + ' [/INST]'", "' ' + message['content'] + eos_token",
             "' [INST] ' + system_message + '\n\n' + message['content']"},
     .begin = CHAT_BOS,
     .system = {"", "\n\n", TRIM_NOT},
     .user = {" [INST] ", " [/INST]", TRIM_NOT},
     .assistant = {" ", CHAT_EOS, TRIM_NOT},
     .answer = "",
     .place = SYSTEM_FIRST},
    {.name = "mistral-v3",
     .has = {"'[INST] ' + message['content'] + '[/INST]'", "' ' + message['content']|trim + eos_token",
             "'[INST] ' + system_message + '\n\n' + message['content']"},
     .begin = CHAT_BOS,
     .system = {"", "\n\n", TRIM_NOT},
     .user = {"[INST] ", "[/INST]", TRIM_NOT},
     .assistant = {" ", CHAT_EOS, TRIM_TEXT},
     .answer = "",
     .place = SYSTEM_LAST},
    {.name = "mistral-v3-tekken", /* Nemo */
     .has = {"'[INST]' + message['content'] + '[/INST]'", "{{- message['content'] + eos_token",
             "'[INST]' + system_message + '\n\n' + message['content']"},
     .begin = CHAT_BOS,
     .system = {"", "\n\n", TRIM_NOT},
     .user = {"[INST]", "[/INST]", TRIM_NOT},
     .assistant = {"", CHAT_EOS, TRIM_NOT},
     .answer = "",
     .place = SYSTEM_LAST},
    {.name = "mistral-v7", /* Mistral Large 2411 */
     .has = {"'[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]'",
             "'[INST] ' + message['content'] + '[/INST]'", "' ' + message['content'] + eos_token"},
     .begin = CHAT_BOS,
     .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]", TRIM_NOT},
     .user = {"[INST] ", "[/INST]", TRIM_NOT},
     .assistant = {" ", CHAT_EOS, TRIM_NOT},
     .answer = "",
     .place = SYSTEM_TURN},
    {.name = "mistral-v7-tekken", /* Mistral Small 3 */
     .has = {"'[SYSTEM_PROMPT]' + ", "'[INST]'", "'[/INST]'", "message['content'] + eos_token"},
     .begin = CHAT_BOS,
     .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", TRIM_NOT},
     .user = {"[INST]", "[/INST]", TRIM_NOT},
     .assistant = {"", CHAT_EOS, TRIM_NOT},
     .answer = "",
     .place = SYSTEM_TURN},
    {.name = "phi4",
     .has = {"<|im_start|>", "<|im_sep|>", "'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'"},
     .begin = CHAT_BOS,
     .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>", TRIM_NOT},
     .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>", TRIM_NOT},
     .assistant = {"<|im_start|>assistant<|im_sep|>", "<|im_end|>", TRIM_NOT},
     .answer = "<|im_start|>assistant<|im_sep|>",
     .place = SYSTEM_TURN},
    {.name = "phi4-mini",
     .has = {"'<|' + message['role'] + '|>' + message['content'] + '<|end|>'", "'<|assistant|>'"},
     .lacks = {"<|system|>"},
     .begin = CHAT_BOS,
     .system = {"<|system|>", "<|end|>", TRIM_NOT},
     .user = {"<|user|>", "<|end|>", TRIM_NOT},
     .assistant = {"<|assistant|>", "<|end|>", TRIM_NOT},
     .answer = "<|assistant|>",
     .place = SYSTEM_TURN},
    {.name = "phi3",
     .has = {"'<|system|>\n' + message['content'] + '<|end|>\n'", "<|user|>\n", "<|assistant|>\n"},
     .begin = CHAT_BOS,
     .system = {"<|system|>\n", "<|end|>\n", TRIM_NOT},
     .user = {"<|user|>\n", "<|end|>\n", TRIM_NOT},
     .assistant = {"<|assistant|>\n", "<|end|>\n", TRIM_NOT},
     .answer = "<|assistant|>\n",
     .place = SYSTEM_TURN},
    {.name = "phi3", /* Small */
     .has = {"'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n'", "<|assistant|>\n"},
     .begin = CHAT_BOS,
     .system = {"<|system|>\n", "<|end|>\n", TRIM_NOT},
     .user = {"<|user|>\n", "<|end|>\n", TRIM_NOT},
     .assistant = {"<|assistant|>\n", "<|end|>\n", TRIM_NOT},
     .answer = "<|assistant|>\n",
     .place = SYSTEM_TURN},
    {.name = "phi3", /* Medium, and Mini as it was first published */
     .has = {"'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'"},
     .lacks = {"system"},
     .begin = CHAT_BOS,
     .user = {"<|user|>\n", "<|end|>\n", TRIM_NOT},
     .assistant = {"<|assistant|>\n", "<|end|>\n", TRIM_NOT},
     .answer = "<|assistant|>\n",
     .place = SYSTEM_NONE},
    {.name = "zephyr", /* and TinyLlama, StableLM */
     .has = {"{{ '<|user|>\n' + message['content'] + eos_token }}\n", "{{ '<|system|>\n' + message['content']",
             "{{ '<|assistant|>' }}\n"},
     .begin = CHAT_BOS,
     .system = {"<|system|>\n", CHAT_EOS "\n", TRIM_NOT},
     .user = {"<|user|>\n", CHAT_EOS "\n", TRIM_NOT},
     .assistant = {"<|assistant|>\n", CHAT_EOS "\n", TRIM_NOT},
     .answer = "<|assistant|>\n",
     .place = SYSTEM_TURN},
    {.name = "tulu", /* and OLMo 2 */
     .has = {"{{ '<|user|>\n' + message['content'] + '\n' }}", "{{ '<|system|>\n' + message['content'] + '\n' }}",
             "message['content'] + eos_token + '\n' }}", "{{ '<|assistant|>\n' }}"},
     .begin = CHAT_BOS,
     .system = {"<|system|>\n", "\n", TRIM_NOT},
     .user = {"<|user|>\n", "\n", TRIM_NOT},
     .assistant = {"<|assistant|>\n", CHAT_EOS "\n", TRIM_NOT},
     .answer = "<|assistant|>\n",
     .place = SYSTEM_TURN},
    {.name = "deepseek-r1", /* and what was distilled from it */
     .has = {"'<" BAR "User" BAR ">' + message['content']}}", "'<" BAR "Assistant" BAR ">", DEEPSEEK_END,
             "ns.system_prompt = message['content']"},
     .lacks = {"not enable_thinking"},
     .begin = CHAT_BOS,
     .system = {"", "", TRIM_NOT},
     .user = {"<" BAR "User" BAR ">", "", TRIM_NOT},
     .assistant = {"<" BAR "Assistant" BAR ">", DEEPSEEK_END, TRIM_NOT},
     .answer = "<" BAR "Assistant" BAR ">",
     .place = SYSTEM_TURN},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* ---- reading a template's text ----------------------------------------------------------------------------------- */

/* The text with one kind of quotes, and line ends as they are meant. */
static char *plain(const char *text) {
    char *out = malloc(strlen(text) + 1), *to = out;
    if (!out) return NULL;
    for (const char *p = text; *p; p++) {
        if (p[0] == '\\' && p[1] == 'n') {
            *to++ = '\n';
            p++;
        } else {
            *to++ = *p == '"' ? '\'' : *p;
        }
    }
    *to = 0;
    return out;
}

static bool fits(const ChatForm *f, const char *text) {
    enum { HAS = sizeof f->has / sizeof *f->has, LACKS = sizeof f->lacks / sizeof *f->lacks };
    for (int i = 0; i < HAS && f->has[i]; i++)
        if (!strstr(text, f->has[i])) return false;
    for (int i = 0; i < LACKS && f->lacks[i]; i++)
        if (strstr(text, f->lacks[i])) return false;
    return true;
}

/* A system prompt that stands in the text as a whole, "...<|im_start|>system\n" to "<|im_end|>...", with the name of a
 * model or a greeting; NULL in *out when there is none. What is put together from pieces has a quote in it. */
static int read_no_system(const ChatForm *f, const char *text, char **out, Err *e) {
    *out = NULL;
    size_t n = f->place == SYSTEM_TURN ? strlen(f->system.before) : 0;
    for (const char *p = text; n && (p = strstr(p, f->system.before)); p += n) {
        const char *end = strstr(p + n, f->system.after), *quote = strchr(p + n, '\'');
        if (!end || (quote && quote < end)) continue;
        *out = strndup(p + n, (size_t)(end - p) - n);
        return *out ? 0 : err_set(e, "out of memory for a chat template");
    }
    return 0;
}

static int read_style(const ChatForm *f, const char *text, ChatStyle *s, Err *e) {
    char thinks[64];
    snprintf(thinks, sizeof thinks, "%s<think>\n'", f->answer);
    *s = (ChatStyle){.form = f, .place = f->place};
    s->begin = strstr(text, "bos_token") != NULL;
    if (f->place == SYSTEM_LAST && strstr(text, "loop.first and system_message")) s->place = SYSTEM_FIRST;
    s->thinks = strstr(text, thinks) != NULL;
    s->cut = strstr(text, ".split('</think>')") != NULL;
    s->cut_lines = strstr(text, ".lstrip('\n')") != NULL;
    s->today = strstr(text, "strftime_now") != NULL;
    s->trims = strstr(text, "trim") != NULL || strstr(text, "strip()") != NULL;
    s->skips_empty = strstr(text, "'system' and message['content'] %") != NULL;
    s->needs_system = strstr(text, "default_system_message") != NULL;
    return read_no_system(f, text, &s->no_system, e);
}

static void add_names(StrBuf *out) {
    for (int i = 0; i < FORMS; i++)
        if (i == 0 || strcmp(forms[i].name, forms[i - 1].name) != 0)
            strbuf_printf(out, "%s%s", i ? ", " : "", forms[i].name);
}

static int unknown(const char *what, Err *e) {
    StrBuf names = {0};
    add_names(&names);
    int r = names.failed ? err_set(e, "out of memory for a chat template")
                         : err_set(e, "%s; the forms known are %s", what, names.data);
    strbuf_free(&names);
    return r;
}

/* How a template begins, on one line. */
static void beginning(const char *text, char out[64]) {
    size_t n = 0;
    for (; *text && n < 60; text++) {
        bool space = *text == ' ' || *text == '\n' || *text == '\t' || *text == '\r';
        if (space && (n == 0 || out[n - 1] == ' ')) continue;
        out[n++] = space ? ' ' : '!' <= *text && *text <= '~' ? *text : '?';
    }
    memcpy(out + n, *text ? "..." : "", *text ? 4 : 1);
}

int chat_style_of(const char *text, const char *file, ChatStyle *out, Err *e) {
    if (utf8_check(text, strlen(text)) < strlen(text)) return err_set(e, "%s: its chat template is not UTF-8", file);
    char *t = plain(text), what[512], begin[64];
    if (!t) return err_set(e, "out of memory for a chat template");
    int i = 0;
    while (i < FORMS && !fits(&forms[i], t)) i++;
    int r = i < FORMS ? read_style(&forms[i], t, out, e) : -1;
    free(t);
    if (i < FORMS) return r;
    beginning(text, begin);
    if (*text) snprintf(what, sizeof what, "%s: its chat template is not known here; it begins \"%s\"", file, begin);
    else snprintf(what, sizeof what, "%s: it has no chat template", file);
    return unknown(what, e);
}

int chat_style_named(const char *name, ChatStyle *out, Err *e) {
    char what[128];
    for (int i = 0; i < FORMS; i++) {
        if (strcmp(forms[i].name, name) != 0) continue;
        *out = (ChatStyle){.form = &forms[i], .begin = true, .place = forms[i].place, .trims = true};
        return 0;
    }
    snprintf(what, sizeof what, "no chat template is called \"%s\"", text_printable((Text){name, strlen(name)}).text);
    return unknown(what, e);
}

void chat_style_free(ChatStyle *s) {
    free(s->no_system);
    *s = (ChatStyle){0};
}
