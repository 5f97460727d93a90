/* Conversations as text: with the templates of published models every text equals what Hugging Face's transformers
 * makes of it (tests/reference/chat_reference.py); what is told apart, and what is refused. */
#include <cjson/cJSON.h>

#include "engine/chat.h"
#include "token_cases.h"

static const time_t DAY = 1772884800; /* noon of 7 March 2026, UTC: the day that chat_reference.py tells templates */

/* ---- against transformers ---------------------------------------------------------------------------------------- */

static cJSON *read_cases(void) {
    size_t size;
    char *text = read_from("SHEAF_FIXTURES", "chat/cases.json", &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    cJSON *cases = cJSON_ParseWithLength(text, size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(cases);
    free(text);
    return cases;
}

static const char *string_of(const cJSON *o, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItem(o, key));
}

enum { MESSAGES = 8 };
static size_t read_messages(const cJSON *conversation, SheafMessage m[MESSAGES]) {
    size_t n = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, conversation) {
        CU_ASSERT_FATAL(n < MESSAGES);
        const char *role = string_of(v, "role"), *text = string_of(v, "content");
        m[n++] = (SheafMessage){.role = *role == 's'   ? SHEAF_SYSTEM
                                        : *role == 'u' ? SHEAF_USER
                                                       : SHEAF_ASSISTANT,
                                .text = text,
                                .bytes = strlen(text)};
    }
    return n;
}

/* What was said stands in the text at the places noted, and the notes are in order. */
static void check_said(const ChatText *t) {
    const TextSpan *said = (const TextSpan *)(const void *)t->said.data;
    size_t end = 0;
    for (size_t i = 0; i < t->said.len / sizeof *said; i++) {
        CU_ASSERT(said[i].begin >= end && said[i].end > said[i].begin && said[i].end <= t->text.len);
        end = said[i].end;
    }
}

/* `want` NULL: it is refused. */
static void check_text(const char *name, int i, const ChatStyle *s, const ChatTokens *k, const cJSON *conversation,
                       const char *want) {
    SheafMessage m[MESSAGES];
    size_t n = read_messages(conversation, m);
    ChatText t = {0};
    Err e = {""};
    int r = chat_render(s, k, DAY, m, n, &t, &e);
    bool right = want ? !r && t.text.len == strlen(want) && !memcmp(t.text.data, want, t.text.len)
                      : r && strstr(e.msg, "system prompt");
    CU_ASSERT(right);
    if (!right)
        printf("\n%s, conversation %d: \"%s\" (%s)\nwanted \"%s\"", name, i, t.text.data ? t.text.data : "", e.msg,
               want ? want : "a refusal");
    else if (want) check_said(&t);
    chat_text_free(&t);
}

static void test_templates(void) {
    cJSON *cases = read_cases();
    const cJSON *t, *conversations = cJSON_GetObjectItem(cases, "conversations");
    int n = 0;
    cJSON_ArrayForEach(t, cJSON_GetObjectItem(cases, "templates")) {
        char file[64];
        size_t size;
        ChatStyle s;
        Err e;
        snprintf(file, sizeof file, "chat/%s.jinja", t->string);
        char *text = read_from("SHEAF_FIXTURES", file, &size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        int r = chat_style_of(text, file, &s, &e);
        CU_ASSERT_EQUAL(r, 0);
        if (r) printf("\n%s", e.msg);
        ChatTokens k = {string_of(t, "bos"), string_of(t, "eos")};
        const cJSON *texts = cJSON_GetObjectItem(t, "texts");
        for (int i = 0; !r && i < cJSON_GetArraySize(texts); i++)
            check_text(t->string, i, &s, &k, cJSON_GetArrayItem(conversations, i),
                       cJSON_GetStringValue(cJSON_GetArrayItem(texts, i)));
        if (!r) chat_style_free(&s);
        free(text);
        n++;
    }
    CU_ASSERT_EQUAL(n, 31);
    cJSON_Delete(cases);
}

/* ---- telling apart ----------------------------------------------------------------------------------------------- */

/* The error of a template's text; "" when it is known. */
static Err style_error(const char *text) {
    ChatStyle s;
    Err e = {""};
    if (!chat_style_of(text, "m.gguf", &s, &e)) {
        chat_style_free(&s);
        e.msg[0] = 0;
    }
    return e;
}

static void test_unknown(void) {
    Err e = style_error("{% for m in messages %}\n<<{{ m.role }}>>{{ m.content }}{% endfor %} and much more to come");
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "m.gguf: its chat template is not known"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "begins \"{% for m in messages %} <<{{ m.role"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "known are chatml, llama2,"));
    CU_ASSERT(strlen(e.msg) < sizeof e.msg - 32); /* with all names, and room for who called */
    CU_ASSERT_PTR_NOT_NULL(strstr(style_error("").msg, "m.gguf: it has no chat template; the forms known are chatml"));
    CU_ASSERT_STRING_EQUAL(style_error("<|im_start|><|im_end|>\xFF").msg, "m.gguf: its chat template is not UTF-8");
}

/* A template that does something more than the known ones is not taken for one of them. */
static void test_like_known(void) {
    static const struct {
        const char *file, *more;
    } changed[] = {
        {"qwen2.5", "{{ 'Reasoning Mode: ' }}"},
        {"qwen3", "{{- '<think>\\n' }}"},
        {"deepseek-r1-distill", "{% if not enable_thinking %}{{ '</think>' }}{% endif %}"},
        {"llama3", "{% if tools %}{{ tools }}{% endif %}"},
        {"llama2", "{% if true == true %}{% endif %}"},
        {"mistral-v0.2", "{{ system_message }}"},
        {"phi3-medium", "{{ '<|system|>' }}"},
    };
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        char file[64], both[8192];
        size_t size;
        snprintf(file, sizeof file, "chat/%s.jinja", changed[i].file);
        char *text = read_from("SHEAF_FIXTURES", file, &size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        snprintf(both, sizeof both, "%s%s", text, changed[i].more);
        CU_ASSERT(!*style_error(text).msg && *style_error(both).msg);
        free(text);
    }
}

/* The form that a name means writes what the template of that family does. */
static void test_names(void) {
    static const struct {
        const char *name, *want; /* of the conversation below, with BOS "<s>" and EOS "</s>" */
    } forms[] = {
        {"chatml", "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"},
        {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]"},
        {"gemma3", "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n"},
        {"mistral-v7", "<s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST]"},
        {"phi3", "<s><|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n"},
        {"zephyr", "<s><|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\n"},
        {"llama3",
         "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    };
    SheafMessage m[] = {{SHEAF_SYSTEM, "S", 1}, {SHEAF_USER, "U", 1}};
    ChatTokens k = {"<s>", "</s>"};
    ChatStyle s;
    Err e;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ChatText t = {0};
        CU_ASSERT_EQUAL_FATAL(chat_style_named(forms[i].name, &s, &e), 0);
        CU_ASSERT_STRING_EQUAL(s.form->name, forms[i].name);
        CU_ASSERT_EQUAL_FATAL(chat_render(&s, &k, DAY, m, 2, &t, &e), 0);
        CU_ASSERT_STRING_EQUAL(t.text.data, forms[i].want);
        chat_text_free(&t);
        chat_style_free(&s);
    }
    CU_ASSERT_EQUAL(chat_style_named("chatml2", &s, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "no chat template is called \"chatml2\"; the forms known are chatml, "));
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_messages(void) {
    static const struct {
        const char *roles, *error;
    } cases[] = {
        {"", "must end with a message by the user"},
        {"s", "must end with a message by the user"},
        {"ua", "must end with a message by the user"},
        {"a", "message 1 of the conversation must be by the user"},
        {"uu", "message 2 of the conversation must be by the assistant"},
        {"us", "message 2 of the conversation must be by the assistant"},
        {"ss", "message 2 of the conversation must be by the user"},
        {"suau", NULL},
    };
    ChatTokens k = {"", ""};
    ChatStyle s;
    Err e;
    CU_ASSERT_EQUAL_FATAL(chat_style_named("chatml", &s, &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SheafMessage m[8];
        ChatText t = {0};
        size_t n = 0;
        for (const char *p = cases[i].roles; *p; p++)
            m[n++] = (SheafMessage){*p == 's' ? SHEAF_SYSTEM : *p == 'u' ? SHEAF_USER : SHEAF_ASSISTANT, "x", 1};
        int r = chat_render(&s, &k, DAY, m, n, &t, &e);
        CU_ASSERT_EQUAL(r, cases[i].error ? -1 : 0);
        if (cases[i].error) CU_ASSERT_STRING_EQUAL(e.msg + strlen(e.msg) - strlen(cases[i].error), cases[i].error);
        chat_text_free(&t);
    }
    ChatText t = {0};
    SheafMessage half = {SHEAF_USER, "ab\xE2\x82", 4};
    CU_ASSERT_EQUAL(chat_render(&s, &k, DAY, &half, 1, &t, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "message 1 of the conversation is not UTF-8: byte 0xe2 at offset 2");
    chat_text_free(&t);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    const CU_TestInfo tests[] = {
        {"templates of published models", test_templates},
        {"unknown ones", test_unknown},
        {"those that look like known ones", test_like_known},
        {"by name", test_names},
        {"order of messages", test_messages},
        CU_TEST_INFO_NULL,
    };
    return check_run("chat", tests);
}
