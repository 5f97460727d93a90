#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands before a value. */
static void begin(Json *j, const char *key) {
    if (j->comma) strbuf_add(j->out, ", ", 2);
    j->comma = true;
    if (!key) return;
    strbuf_json_text(j->out, key);
    strbuf_add(j->out, ": ", 2);
}

void json_open(Json *j, const char *key, char bracket) {
    begin(j, key);
    strbuf_add(j->out, &bracket, 1);
    j->comma = false;
}

void json_close(Json *j, char bracket) {
    strbuf_add(j->out, &bracket, 1);
    j->comma = true;
}

void json_string(Json *j, const char *key, const char *s, size_t n) {
    begin(j, key);
    strbuf_json(j->out, s, n);
}

void json_text(Json *j, const char *key, const char *s) {
    begin(j, key);
    strbuf_json_text(j->out, s);
}

void json_int(Json *j, const char *key, int64_t v) {
    begin(j, key);
    strbuf_printf(j->out, "%" PRId64, v);
}

void json_uint(Json *j, const char *key, uint64_t v) {
    begin(j, key);
    strbuf_printf(j->out, "%" PRIu64, v);
}

void json_real(Json *j, const char *key, double v) {
    begin(j, key);
    if (!isfinite(v)) {
        strbuf_add(j->out, "null", 4);
        return;
    }
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, v);
        if (strtod(digits, NULL) == v) break;
    }
    strbuf_add(j->out, digits, strlen(digits));
}

void json_float(Json *j, const char *key, float v) {
    begin(j, key);
    if (isfinite(v)) strbuf_float(j->out, v);
    else strbuf_add(j->out, "null", 4);
}

void json_bool(Json *j, const char *key, bool v) {
    begin(j, key);
    strbuf_printf(j->out, "%s", v ? "true" : "false");
}

void json_hash(Json *j, const char *key, uint64_t v) {
    begin(j, key);
    strbuf_printf(j->out, "\"%016" PRIx64 "\"", v);
}
