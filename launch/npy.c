#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the header says little-endian"
#endif

static int write_all(const NpyFile *f, const void *data, size_t bytes, SheafErr *e) {
    for (const char *p = data; bytes > 0;) {
        ssize_t done = write(f->fd, p, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail(e, "%s: cannot write: %s", f->temporary, strerror(errno));
        p += done;
        bytes -= (size_t)done;
    }
    return 0;
}

int npy_file_open(NpyFile *f, const char *path, const Npy *what, SheafErr *e) {
    struct stat there;
    *f = (NpyFile){.path = path, .fd = -1};
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return fail(e, "%s: is there and is no file", path);
    size_t size = strlen(path) + sizeof ".part-2147483647";
    f->temporary = malloc(size);
    if (!f->temporary) return fail(e, "out of memory");
    snprintf(f->temporary, size, "%s.part-%d", path, (int)getpid());
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0) return fail(e, "%s: cannot be made: %s", f->temporary, strerror(errno));
    StrBuf header = {0};
    npy_header(what, &header);
    int status = header.failed ? fail(e, "out of memory") : write_all(f, header.data, header.len, e);
    strbuf_free(&header);
    return status;
}

int npy_file_write(NpyFile *f, const void *data, size_t bytes, SheafErr *e) { return write_all(f, data, bytes, e); }

int npy_file_finish(NpyFile *f, SheafErr *e) {
    int failed = close(f->fd);
    f->fd = -1;
    if (failed) return fail(e, "%s: cannot write: %s", f->temporary, strerror(errno));
    if (rename(f->temporary, f->path))
        return fail(e, "%s: cannot be given to the finished file: %s", f->path, strerror(errno));
    free(f->temporary);
    f->temporary = NULL;
    return 0;
}

void npy_file_close(NpyFile *f) {
    if (f->fd >= 0 && f->temporary) close(f->fd);
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    *f = (NpyFile){0};
}
