#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int(err_set)(Err *e, const char *fmt, ...) {
    if (!e) return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return -1;
}

int(err_context)(Err *e, const char *fmt, ...) {
    if (!e) return -1;
    char before[sizeof e->msg];
    memcpy(before, e->msg, sizeof before);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->msg) snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", before);
    return -1;
}

int(err_errno)(Err *e, const char *fmt, ...) {
    if (!e) return -1;
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->msg) snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(saved));
    return -1;
}
