#include "stop.h"

#include <string.h>

/* Bytes of the longest stop string that the held bytes end with; 0: none. */
static size_t complete(const Stop *s) {
    size_t longest = 0;
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(s->strings[i]);
        if (n <= s->held.len && n > longest && memcmp(s->held.data + s->held.len - n, s->strings[i], n) == 0)
            longest = n;
    }
    return longest;
}

/* Bytes at the end of the held ones that are the start of a stop string, the most there are. */
static size_t partial(const Stop *s) {
    size_t longest = 0;
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(s->strings[i]);
        for (size_t k = n < s->held.len ? n : s->held.len; k > longest; k--)
            if (memcmp(s->held.data + s->held.len - k, s->strings[i], k) == 0) longest = k;
    }
    return longest;
}

/* The first n held bytes go to `out`. */
static void release(Stop *s, size_t n, StrBuf *out) {
    if (n == 0) return;
    strbuf_add(out, s->held.data, n);
    s->held.len -= n;
    memmove(s->held.data, s->held.data + n, s->held.len);
}

bool stop_feed(Stop *s, const char *bytes, size_t n, StrBuf *out) {
    if (s->n == 0) {
        strbuf_add(out, bytes, n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        strbuf_add(&s->held, bytes + i, 1);
        if (s->held.failed) {
            out->failed = true;
            return false;
        }
        size_t found = complete(s);
        if (found > 0) {
            release(s, s->held.len - found, out);
            return true;
        }
        release(s, s->held.len - partial(s), out);
    }
    return false;
}

void stop_end(Stop *s, StrBuf *out) { release(s, s->held.len, out); }

void stop_free(Stop *s) { strbuf_free(&s->held); }
