#include "engine/hf_frame.h"

#include <stdio.h>
#include <string.h>

static int add_id(Tokenizer *t, bool after, int64_t id, Err *e) {
    int *n = after ? &t->n_after : &t->n_before;
    if (*n == TOKENIZER_FRAME) return err_set(e, "post_processor: more than %d tokens", (int)TOKENIZER_FRAME);
    (after ? t->after : t->before)[(*n)++] = (int32_t)id;
    return 0;
}

/* Outer processors come later in a sequence: what they put before a text stands before what is there. */
static int put_first(Tokenizer *t, int n_before) {
    int32_t old[TOKENIZER_FRAME];
    int n = t->n_before - n_before;
    memcpy(old, t->before, sizeof old);
    memcpy(t->before, old + n_before, (size_t)n * sizeof *old);
    memcpy(t->before + n, old, (size_t)n_before * sizeof *old);
    return 0;
}

/* ["[CLS]", 101] */
static int read_pair(const cJSON *o, const char *what, const char *key, Tokenizer *t, bool after, Err *e) {
    const cJSON *v = hf_json_get(o, key);
    int64_t id;
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 2)
        return err_set(e, "%s: \"%s\" is no token with its id", what, key);
    if (hf_json_whole(v->child->next, key, 0, t->vocab.n - 1, &id, e)) return err_context(e, "%s", what);
    return add_id(t, after, id, e);
}

static int read_cls_sep(const cJSON *o, const char *what, Tokenizer *t, Err *e) {
    return read_pair(o, what, "cls", t, false, e) || read_pair(o, what, "sep", t, true, e) ? -1 : 0;
}

/* The ids that a template's special token stands for. */
static int add_special_ids(const cJSON *o, const char *what, const char *name, Tokenizer *t, bool after, Err *e) {
    const cJSON *ids = hf_json_get(hf_json_get(hf_json_get(o, "special_tokens"), name), "ids");
    int64_t id;
    if (!cJSON_IsArray(ids))
        return err_set(e, "%s: \"special_tokens\" has no ids for \"%s\"", what, text_printable(hf_string(name)).text);
    for (const cJSON *v = ids->child; v; v = v->next)
        if (hf_json_whole(v, "an id", 0, t->vocab.n - 1, &id, e) || add_id(t, after, id, e))
            return err_context(e, "%s", what);
    return 0;
}

/* "single": special tokens with the text, sequence A, among them. What is for pairs of texts is not looked at. */
static int read_template(const cJSON *o, const char *what, Tokenizer *t, Err *e) {
    const cJSON *single = hf_json_get(o, "single");
    int texts = 0;
    if (!cJSON_IsArray(single)) return err_set(e, "%s: \"single\" is no list", what);
    for (const cJSON *v = single->child; v; v = v->next) {
        const cJSON *special = hf_json_get(v, "SpecialToken"), *text = hf_json_get(v, "Sequence");
        Text id = {"", 0};
        if (hf_json_string(special ? special : text, what, "id", true, &id, e)) return -1;
        if (special && add_special_ids(o, what, id.data, t, texts > 0, e)) return -1;
        if (!special && (!hf_is(id, "A") || texts++ > 0))
            return err_set(e, "%s: a template with other than one sequence, \"A\", is not supported", what);
    }
    return texts == 1 ? 0 : err_set(e, "%s: the template has no text", what);
}

static int read_nothing(const cJSON *o, const char *what, Tokenizer *t, Err *e) { /* offsets only */
    (void)o;
    (void)what;
    (void)t;
    (void)e;
    return 0;
}

static const struct {
    const char *type;
    const char *keys[5]; /* what the object may have besides "type" */
    int (*read)(const cJSON *o, const char *what, Tokenizer *t, Err *e);
} kinds[] = {
    {"TemplateProcessing", {"single", "pair", "special_tokens"}, read_template},
    {"BertProcessing", {"cls", "sep"}, read_cls_sep},
    {"RobertaProcessing", {"cls", "sep", "trim_offsets", "add_prefix_space"}, read_cls_sep},
    {"ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}, read_nothing},
};

static int read_sequence(const cJSON *o, Tokenizer *t, Err *e) {
    static const char *const keys[] = {"processors", NULL};
    const cJSON *list = hf_json_get(o, "processors");
    if (hf_json_only(o, "post_processor Sequence", keys, e)) return -1;
    if (!cJSON_IsArray(list)) return err_set(e, "post_processor Sequence: \"processors\" is no list");
    for (const cJSON *v = list->child; v; v = v->next)
        if (hf_frame_read(v, t, e)) return -1;
    return 0;
}

int hf_frame_read(const cJSON *o, Tokenizer *t, Err *e) {
    Text type;
    if (!o) return 0;
    if (hf_json_type(o, "post_processor", &type, e)) return -1;
    if (hf_is(type, "Sequence")) return read_sequence(o, t, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_is(type, kinds[i].type)) continue;
        char what[64];
        snprintf(what, sizeof what, "post_processor %s", kinds[i].type);
        int n_before = t->n_before;
        if (hf_json_only(o, what, kinds[i].keys, e) || kinds[i].read(o, what, t, e)) return -1;
        return put_first(t, n_before);
    }
    return err_set(e, "post_processor \"%s\" is not supported", text_printable(type).text);
}
