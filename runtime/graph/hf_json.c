#include "graph/hf_json.h"

#include <math.h>
#include <string.h>

#include "base/strbuf.h"

/* "\u0000" with the backslash not itself escaped, or the character itself. */
static bool has_nul(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!text[i]) return true;
        if (text[i] != '\\') continue;
        if (n - i >= 6 && !memcmp(text + i, "\\u0000", 6)) return true;
        i++; /* what follows a backslash is not one that begins an escape */
    }
    return false;
}

int hf_json_parse(const char *text, size_t n, cJSON **out, Err *e) {
    *out = NULL;
    size_t valid = 0;
    for (size_t step; valid < n && (step = utf8_length((const uint8_t *)text + valid, n - valid)); valid += step) {
    }
    if (valid < n) return err_set(e, "no UTF-8: byte 0x%02x at offset %zu", (unsigned)(uint8_t)text[valid], valid);
    if (has_nul(text, n)) return err_set(e, "a text with the character U+0000 in it is not supported");
    const char *end = text;
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    size_t at = (size_t)(end - text);
    if (!root) return err_set(e, "no JSON: at offset %zu (or out of memory)", at);
    while (at < n && strchr(" \t\r\n", text[at])) at++;
    if (at == n) {
        *out = root;
        return 0;
    }
    cJSON_Delete(root);
    return err_set(e, "no JSON: something follows the end at offset %zu", at);
}

const cJSON *hf_json_get(const cJSON *o, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNull(v) ? NULL : v;
}

static int missing(const char *what, const char *key, bool required, Err *e) {
    return required ? err_set(e, "%s: \"%s\" is missing", what, key) : 0;
}

int hf_json_string(const cJSON *o, const char *what, const char *key, bool required, Text *out, Err *e) {
    const cJSON *v = hf_json_get(o, key);
    if (!v) return missing(what, key, required, e);
    if (!cJSON_IsString(v)) return err_set(e, "%s: \"%s\" is no string", what, key);
    *out = hf_string(v->valuestring);
    return 0;
}

int hf_json_bool(const cJSON *o, const char *what, const char *key, bool required, bool *out, Err *e) {
    const cJSON *v = hf_json_get(o, key);
    if (!v) return missing(what, key, required, e);
    if (!cJSON_IsBool(v)) return err_set(e, "%s: \"%s\" is neither true nor false", what, key);
    *out = cJSON_IsTrue(v);
    return 0;
}

int hf_json_whole(const cJSON *v, const char *what, int64_t min, int64_t max, int64_t *out, Err *e) {
    double d = v ? v->valuedouble : NAN;
    if (!cJSON_IsNumber(v) || !(d >= (double)min && d <= (double)max) || d != floor(d))
        return err_set(e, "%s is no whole number from %lld to %lld", what, (long long)min, (long long)max);
    *out = (int64_t)d;
    return 0;
}

int hf_json_int(const cJSON *o, const char *what, const char *key, bool required, int64_t min, int64_t max,
                int64_t *out, Err *e) {
    const cJSON *v = hf_json_get(o, key);
    if (!v) return missing(what, key, required, e);
    return hf_json_whole(v, key, min, max, out, e) ? err_context(e, "%s", what) : 0;
}

int hf_json_pattern(const cJSON *o, const char *what, Text *pattern, bool *regex, Err *e) {
    const cJSON *p = hf_json_get(o, "pattern");
    const cJSON *v = p && cJSON_IsObject(p) ? p->child : NULL;
    *regex = v && !strcmp(v->string, "Regex");
    if (!v || v->next || !cJSON_IsString(v) || !(*regex || !strcmp(v->string, "String")))
        return err_set(e, "%s: \"pattern\" is neither {\"String\": ...} nor {\"Regex\": ...}", what);
    *pattern = hf_string(v->valuestring);
    return 0;
}

int hf_json_only(const cJSON *o, const char *what, const char *const *keys, Err *e) {
    if (!cJSON_IsObject(o)) return err_set(e, "%s is no object", what);
    for (const cJSON *v = o->child; v; v = v->next) {
        int i = 0;
        while (keys[i] && strcmp(keys[i], v->string)) i++;
        if (!keys[i] && strcmp(v->string, "type"))
            return err_set(e, "%s has \"%s\", which is not supported", what, text_printable(hf_string(v->string)).text);
    }
    return 0;
}

int hf_json_type(const cJSON *o, const char *what, Text *type, Err *e) {
    if (!cJSON_IsObject(o)) return err_set(e, "%s is no object", what);
    return hf_json_string(o, what, "type", true, type, e);
}

bool hf_is(Text s, const char *text) { return s.size == strlen(text) && !memcmp(s.data, text, s.size); }
