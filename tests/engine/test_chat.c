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

int main(void) {
    setenv("TZ", "UTC", 1);
    const CU_TestInfo tests[] = {
        {"templates of published models", test_templates},
        CU_TEST_INFO_NULL,
    };
    return check_run("chat", tests);
}
