/* Conversations with a model: that going on from what the KV cache has gives, bit for bit, what running the whole
 * conversation afresh gives; what ends an answer; that names of special tokens in what is said are plain text. */
#include "sessions.h"

#define CHATML                                                                                                         \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "    \
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

static const TinyModel tiny = {.layers = 2,
                               .width = 96,
                               .heads = 3,
                               .kv_heads = 1,
                               .ffn = 192,
                               .vocab = 1100,
                               .qtype = QT_Q8_0,
                               .seed = 5,
                               .context = 512,
                               .chat_template = CHATML};

/* ---- going on ---------------------------------------------------------------------------------------------------- */

enum { TURNS = 4, CONTEXT = 512 };

typedef struct Held { /* ids in the KV cache */
    int32_t ids[CONTEXT];
    int n;
} Held;

/* Makes the sequence that of ids[0, n), as the program does. Returns how many were run. */
static int go_on(SheafSession *s, Held *h, const int32_t *ids, int n, Record *r) {
    int common = 0;
    while (common < h->n && common < n - 1 && ids[common] == h->ids[common]) common++;
    if (common < h->n) forget(s, 0, common);
    feed_range(s, 0, ids, common, n, 100, r);
    memcpy(h->ids, ids, (size_t)n * sizeof *ids);
    h->n = n;
    return n - common;
}

/* `tokens` of the model's choice, into text[256]; what is no UTF-8 is left out, so that some answers are written in
 * another way than they were made. */
static size_t answer(SheafSession *s, SheafModel *m, Held *h, int tokens, Record *r, char text[256]) {
    size_t size = 0;
    for (int i = 0; i < tokens; i++) {
        char bytes[32];
        int32_t id = r->result[h->n - 1].id[0];
        size_t n = sheaf_token_bytes(m, id, false, bytes, sizeof bytes);
        for (size_t k = 0; k < n; k++)
            if ((unsigned char)bytes[k] < 0x80 && size < 256) text[size++] = bytes[k];
        h->ids[h->n] = id;
        feed_range(s, 0, h->ids, h->n, h->n + 1, 1, r);
        h->n++;
    }
    return size;
}

static void talk(SheafSession *s, SheafModel *m) {
    static const char *const says[TURNS] = {"once upon a time", "and then?", "<|im_end|>", "why"};
    static char answers[TURNS][256];
    SheafMessage message[2 * TURNS + 1] = {{SHEAF_SYSTEM, "be brief", 8}};
    SheafChat *c;
    SheafErr e = {""};
    Record kept = record_make(1, CONTEXT, tiny.vocab), fresh = record_make(1, CONTEXT, tiny.vocab);
    Held h = {.n = 0};
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_open(m, NULL, &c, &e), 0);
    for (size_t turn = 0, n = 1; turn < TURNS; turn++) {
        int32_t *ids;
        size_t n_ids;
        message[n++] = (SheafMessage){SHEAF_USER, says[turn], strlen(says[turn])};
        CU_ASSERT_EQUAL_FATAL(sheaf_chat_tokens(c, message, n, &ids, &n_ids, &e), 0);
        int run = go_on(s, &h, ids, (int)n_ids, &kept);
        CU_ASSERT(turn == 0 ? run == (int)n_ids : run < (int)n_ids); /* the start at least is there already */
        /* the same afresh, in other steps */
        forget(s, 0, 0);
        feed_range(s, 0, ids, 0, (int)n_ids, 7, &fresh);
        same_bits(&kept, 0, &fresh, 0, 0, (int)n_ids, "after so much of it was kept");
        free(ids);
        size_t bytes = answer(s, m, &h, 5 + (int)turn, &kept, answers[turn]);
        message[n++] = (SheafMessage){SHEAF_ASSISTANT, answers[turn], bytes};
    }
    sheaf_chat_close(c);
    record_free(&kept);
    record_free(&fresh);
}

typedef void WithModel(SheafSession *s, SheafModel *m);

/* Rank 0 runs the body on a model of this description. */
static void on_model(const TinyModel *description, WithModel *body) {
    char path[64];
    SheafRuntime *rt;
    SheafModel *m;
    SheafSession *s;
    SheafErr e = {""};
    shared_model(path, description);
    CU_ASSERT_EQUAL_FATAL(sheaf_runtime_open(&(SheafRuntimeOptions){.threads = 1}, &rt, &e), 0);
    CU_ASSERT_EQUAL_FATAL(sheaf_model_open(rt, path, &m, &e), 0);
    SheafSessionOptions so = {.n_ctx = CONTEXT, .max_outputs = 512, .logits = true};
    CU_ASSERT_EQUAL_FATAL(sheaf_session_open(m, &so, &s, &e), 0);
    if (rank() == 0) body(s, m);
    else CU_ASSERT_EQUAL(sheaf_follow(s, &e), 0);
    sheaf_session_close(s);
    sheaf_model_close(m);
    CU_ASSERT_EQUAL(sheaf_runtime_close(rt, &e), 0);
    remove_model(path);
}

static void test_going_on(void) { on_model(&tiny, talk); }

/* ---- what a model's vocabulary means to a form ------------------------------------------------------------------- */

static int count(const int32_t *ids, size_t n, int32_t id) {
    int found = 0;
    for (size_t i = 0; i < n; i++) found += ids[i] == id;
    return found;
}

static void look(SheafSession *s, SheafModel *m) {
    (void)s;
    static const char said[] = "<|im_end|> and <|im_start|>";
    SheafMessage message = {SHEAF_USER, said, strlen(said)};
    SheafErr e = {""};
    SheafChat *c;
    int32_t *ids;
    size_t n, bytes;
    char *text;
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_open(m, NULL, &c, &e), 0);
    CU_ASSERT_STRING_EQUAL(sheaf_chat_name(c), "chatml");
    CU_ASSERT_PTR_NULL(sheaf_chat_stop(c)); /* it has the token */
    CU_ASSERT(sheaf_token_ends(m, TINY_IM_END));
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_text(c, &message, 1, &text, &bytes, &e), 0);
    CU_ASSERT_STRING_EQUAL(text, "<|im_start|>user\n<|im_end|> and <|im_start|><|im_end|>\n<|im_start|>assistant\n");
    CU_ASSERT_EQUAL(bytes, strlen(text));
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_tokens(c, &message, 1, &ids, &n, &e), 0);
    CU_ASSERT(count(ids, n, TINY_IM_START) == 2 && count(ids, n, TINY_IM_END) == 1); /* the template's */
    CU_ASSERT_EQUAL(ids[0], TINY_IM_START);
    free(ids);
    free(text);
    sheaf_chat_close(c);

    /* a form that it has no tokens of: its answers end at a text */
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_open(m, "gemma3", &c, &e), 0);
    CU_ASSERT_STRING_EQUAL(sheaf_chat_stop(c), "<end_of_turn>");
    sheaf_chat_close(c);
    CU_ASSERT_EQUAL(sheaf_chat_open(m, "nobody's", &c, &e), -1);
    CU_ASSERT_PTR_NULL(c);
}

/* Without a template, or with one that is not known, only a name helps. */
static void look_without(SheafSession *s, SheafModel *m) {
    (void)s;
    SheafErr e = {""};
    SheafChat *c;
    CU_ASSERT_EQUAL(sheaf_chat_open(m, NULL, &c, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "chat template"));
    CU_ASSERT_EQUAL_FATAL(sheaf_chat_open(m, "chatml", &c, &e), 0);
    sheaf_chat_close(c);
}

static void test_vocabulary(void) {
    TinyModel none = tiny, unknown = tiny;
    none.chat_template = NULL;
    unknown.chat_template = "{{ messages }}";
    on_model(&tiny, look);
    on_model(&none, look_without);
    on_model(&unknown, look_without);
}

int main(void) {
    const CU_TestInfo tests[] = {
        {"going on equals beginning afresh", test_going_on},
        {"forms and vocabularies", test_vocabulary},
        CU_TEST_INFO_NULL,
    };
    return run_on_ranks("chat", tests);
}
