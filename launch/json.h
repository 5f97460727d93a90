/* Writes one JSON value (RFC 8259) into a StrBuf, front to back. `key` is NULL for the elements of an array and for the
 * outermost value. Numbers do not depend on the locale (the program never sets one); what is not finite becomes null;
 * strings are made valid UTF-8. All local. */
#pragma once

#include <stdint.h>

#include "base/strbuf.h"

typedef struct Json {
    StrBuf *out; /* not owned */
    bool comma;  /* a value stands before the next one */
} Json;

void json_open(Json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(Json *j, char bracket);                 /* '}' or ']'; the outermost one adds no newline */
void json_string(Json *j, const char *key, const char *s, size_t n);
void json_text(Json *j, const char *key, const char *s); /* NUL-terminated; NULL gives null */
void json_int(Json *j, const char *key, int64_t v);
void json_uint(Json *j, const char *key, uint64_t v);
void json_real(Json *j, const char *key, double v); /* the shortest form that reads back as v */
void json_float(Json *j, const char *key, float v); /* likewise */
void json_bool(Json *j, const char *key, bool v);
void json_hash(Json *j, const char *key, uint64_t v); /* 16 hexadecimal digits in a string */
