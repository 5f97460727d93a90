#include "lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "report.h"

enum { LINE_LIMIT = 1 << 26 };

/* More bytes; l->ended when there are none. */
static LinesStatus read_more(Lines *l, SheafErr *e) {
    char chunk[4096];
    if (!job_wait_input(l->fd)) return LINES_SIGNAL;
    ssize_t n = read(l->fd, chunk, sizeof chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return LINES_LINE;
    if (n < 0) {
        (void)fail(e, "standard input: cannot read: %s", strerror(errno));
        return LINES_FAILED;
    }
    l->ended = n == 0;
    strbuf_add(&l->held, chunk, (size_t)n);
    if (!l->held.failed && l->held.len <= LINE_LIMIT) return LINES_LINE;
    (void)fail(e, "standard input: a line of more than %d bytes", LINE_LIMIT);
    return LINES_FAILED;
}

/* Moves the first n bytes of what is held to `line`, and drops `more`. */
static void give(Lines *l, size_t n, size_t more, StrBuf *line) {
    strbuf_add(line, l->held.data ? l->held.data : "", n);
    l->held.len -= n + more;
    if (l->held.len) memmove(l->held.data, l->held.data + n + more, l->held.len);
}

LinesStatus lines_next(Lines *l, StrBuf *line, SheafErr *e) {
    line->len = 0;
    for (;;) {
        char *end = l->held.len ? memchr(l->held.data, '\n', l->held.len) : NULL;
        if (end) {
            give(l, (size_t)(end - l->held.data), 1, line);
            if (line->len > 0 && line->data[line->len - 1] == '\r') line->len--;
            if (line->len == 0 || line->data[line->len - 1] != '\\') return LINES_LINE;
            line->data[line->len - 1] = '\n';
            continue;
        }
        if (l->ended) {
            give(l, l->held.len, 0, line);
            return line->len ? LINES_LINE : LINES_END;
        }
        LinesStatus s = read_more(l, e);
        if (s == LINES_LINE) continue;
        l->held.len = 0;
        return s;
    }
}

void lines_free(Lines *l) { strbuf_free(&l->held); }
