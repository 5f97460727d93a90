/* Typed access to the parts of Hugging Face's JSON files. `what` names a part in errors: "pre_tokenizer Split". All
 * local. */
#pragma once

#include <cjson/cJSON.h>

#include "base/err.h"
#include "graph/model_file.h"

/* The whole document: the caller frees *out with cJSON_Delete. Refused are text that is no JSON or no UTF-8, and NUL
 * characters (cJSON's strings end at one), so that every string in it is valid UTF-8. */
int hf_json_parse(const char *text, size_t n, cJSON **out, Err *e);

/* A member of an object; NULL when it is not there or null. */
const cJSON *hf_json_get(const cJSON *o, const char *key);
/* Each fails with a text that names part and member when that has another type; a missing one fails when `required` and
 * else leaves *out as it was. Strings belong to the document. */
int hf_json_string(const cJSON *o, const char *what, const char *key, bool required, Text *out, Err *e);
int hf_json_bool(const cJSON *o, const char *what, const char *key, bool required, bool *out, Err *e);
int hf_json_int(const cJSON *o, const char *what, const char *key, bool required, int64_t min, int64_t max,
                int64_t *out, Err *e);
/* The number that `v` is; fails when it is none or not a whole one in that range. */
int hf_json_whole(const cJSON *v, const char *what, int64_t min, int64_t max, int64_t *out, Err *e);
/* "pattern": {"String": ...} or {"Regex": ...} */
int hf_json_pattern(const cJSON *o, const char *what, Text *pattern, bool *regex, Err *e);

/* Fails, naming it, when `o` is no object or has a member that is not in the NULL-terminated list (or "type"): what is
 * not known might change the result. */
int hf_json_only(const cJSON *o, const char *what, const char *const *keys, Err *e);

/* How long a text of n bytes may become in the steps of a file: more than any sensible ones make of it. */
static inline size_t hf_most_bytes(size_t n) { return n > SIZE_MAX >> 10 ? SIZE_MAX : 4096 + 256 * n; }

/* A part's "type". */
int hf_json_type(const cJSON *o, const char *what, Text *type, Err *e);
static inline Text hf_string(const char *text) {
    Text s = {text, 0};
    while (text && text[s.size]) s.size++;
    return s;
}
bool hf_is(Text s, const char *text);
