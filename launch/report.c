#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "utf8.h"

enum { READ_CHUNK = 1 << 16, READ_LIMIT = 1 << 30, BAR_CELLS = 24 };

int fail(SheafErr *e, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, args);
    va_end(args);
    return -1;
}

/* ---- who speaks -------------------------------------------------------------------------------------------------- */
/* Open MPI, PMIx, PMI and Slurm number the processes they start; the first that is set counts. */
static const char *launcher_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return value;
    }
    return NULL;
}

bool report_launched(void) { return launcher_rank() != NULL; }

bool report_speaks(void) {
    const char *rank = launcher_rank();
    return !rank || strcmp(rank, "0") == 0;
}

/* A standard stream of the process that started this one: mpirun gives rank 0 pipes of its own. */
static bool parent_terminal(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), fd);
    int copy = open(path, (fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    bool terminal = copy >= 0 && isatty(copy);
    if (copy >= 0) close(copy);
    return terminal;
}

bool report_person(void) {
    if (isatty(STDIN_FILENO)) return isatty(STDOUT_FILENO);
    return report_launched() && parent_terminal(STDIN_FILENO) && parent_terminal(STDOUT_FILENO);
}

/* ---- standard error ---------------------------------------------------------------------------------------------- */
static int write_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

static bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7F; }

void report_error(const SheafErr *e) {
    char line[sizeof e->msg + 16];
    int n = snprintf(line, sizeof line, "sheaf: %s\n", e->msg);
    for (int i = 0; i + 1 < n; i++)
        if (is_control(line[i])) line[i] = '?';
    (void)write_all(STDERR_FILENO, line, (size_t)n); /* nowhere left to say that this failed */
}

void report_note(const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (n < 0) return;
    size_t size = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;
    line[size++] = '\n';
    (void)write_all(STDERR_FILENO, line, size);
}

/* ---- standard output --------------------------------------------------------------------------------------------- */
int report_write(const char *bytes, size_t n, SheafErr *e) {
    if (write_all(STDOUT_FILENO, bytes, n)) return fail(e, "cannot write to standard output: %s", strerror(errno));
    return 0;
}

int report_text(StrBuf *t, SheafErr *e) {
    int r = t->failed ? fail(e, "out of memory for the output") : report_write(t->data, t->len, e);
    strbuf_free(t);
    return r;
}

void report_add_foreign(StrBuf *t, const char *s) {
    size_t start = t->len;
    Utf8 u = {0};
    utf8_feed(&u, s, strlen(s), t);
    utf8_end(&u, t);
    for (size_t i = start; i < t->len; i++)
        if (is_control(t->data[i])) t->data[i] = '?';
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
static int read_fd(int fd, const char *name, StrBuf *out, SheafErr *e) {
    char chunk[READ_CHUNK];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(e, "%s: cannot read: %s", name, strerror(errno));
        if (n == 0) return 0;
        strbuf_add(out, chunk, (size_t)n);
        if (out->failed) return fail(e, "%s: out of memory while reading", name);
        if (out->len > READ_LIMIT) return fail(e, "%s: longer than 1 GiB", name);
    }
}

int report_read(const char *path, StrBuf *out, SheafErr *e) {
    if (strcmp(path, "-") == 0) return read_fd(STDIN_FILENO, "standard input", out, e);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(e, "%s: cannot open: %s", path, strerror(errno));
    int r = read_fd(fd, path, out, e);
    close(fd);
    return r;
}

/* ---- time and progress ------------------------------------------------------------------------------------------- */
double report_growth(const SheafTypeCount *t) {
    double percent = 100 * ((double)t->memory_bytes / (double)t->bytes - 1);
    return percent >= 0.1 ? percent : 0;
}

double report_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Progress progress_start(const char *label, bool quiet) {
    double now = report_seconds();
    return (Progress){.label = label, .on = !quiet && isatty(STDERR_FILENO), .start = now, .last = now};
}

static int terminal_columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_show(Progress *p, uint64_t done, uint64_t total, const char *note) {
    if (!p->on || total == 0) return;
    double now = report_seconds(), spent = now - p->start;
    if (spent < 0.5 || now - p->last < 0.1) return;
    p->last = now;
    p->drawn = true;
    double part = done < total ? (double)done / (double)total : 1;
    char bar[BAR_CELLS + 1] = {0}, line[256];
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < (int)(part * BAR_CELLS) ? '#' : '.';
    int n = snprintf(line, sizeof line, "\r%s [%s] %3d%%", p->label, bar, (int)(100 * part));
    if (part > 0) {
        int left = (int)(spent / part - spent + 0.5);
        n += snprintf(line + n, sizeof line - (size_t)n, "  %d:%02d left", left / 60, left % 60);
    }
    if (note) n += snprintf(line + n, sizeof line - (size_t)n, "  %s", note);
    int columns = terminal_columns();
    if (n > (int)sizeof line - 4) n = (int)sizeof line - 4;
    if (n > columns) n = columns;  /* '\r' takes none */
    memcpy(line + n, "\x1b[K", 3); /* clear to the end of the line */
    (void)write_all(STDERR_FILENO, line, (size_t)n + 3);
}

void progress_end(Progress *p) {
    if (p->drawn) (void)write_all(STDERR_FILENO, "\r\x1b[K", 4);
    p->drawn = false;
}
