#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the header says '<f4'"
#endif

static int write_all(const Npy *n, const void *data, size_t bytes, SheafErr *e) {
    for (const char *p = data; bytes > 0;) {
        ssize_t done = write(n->fd, p, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail(e, "%s: cannot write: %s", n->temporary, strerror(errno));
        p += done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* Magic, version, the length of what follows, and a Python dictionary padded so that the data begin at 128. */
static int write_header(const Npy *n, int64_t rows, int64_t columns, SheafErr *e) {
    enum { BYTES = 128, BEFORE = 10 };
    char header[BYTES + 1];
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = BYTES - BEFORE;
    header[9] = 0;
    int used =
        snprintf(header + BEFORE, sizeof header - BEFORE,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", rows, columns);
    memset(header + BEFORE + used, ' ', (size_t)(BYTES - BEFORE - used));
    header[BYTES - 1] = '\n';
    return write_all(n, header, BYTES, e);
}

int npy_open(Npy *n, const char *path, int64_t rows, int64_t columns, SheafErr *e) {
    struct stat there;
    *n = (Npy){.path = path, .fd = -1};
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return fail(e, "%s: is there and is no file", path);
    size_t size = strlen(path) + sizeof ".part-2147483647";
    n->temporary = malloc(size);
    if (!n->temporary) return fail(e, "out of memory");
    snprintf(n->temporary, size, "%s.part-%d", path, (int)getpid());
    n->fd = open(n->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (n->fd < 0) return fail(e, "%s: cannot be made: %s", n->temporary, strerror(errno));
    return write_header(n, rows, columns, e);
}

int npy_write(Npy *n, const float *values, int64_t count, SheafErr *e) {
    return write_all(n, values, (size_t)count * sizeof *values, e);
}

int npy_finish(Npy *n, SheafErr *e) {
    int failed = close(n->fd);
    n->fd = -1;
    if (failed) return fail(e, "%s: cannot write: %s", n->temporary, strerror(errno));
    if (rename(n->temporary, n->path))
        return fail(e, "%s: cannot be given to the finished file: %s", n->path, strerror(errno));
    free(n->temporary);
    n->temporary = NULL;
    return 0;
}

void npy_close(Npy *n) {
    if (n->fd >= 0 && n->temporary) close(n->fd);
    if (n->temporary) unlink(n->temporary);
    free(n->temporary);
    *n = (Npy){0};
}
