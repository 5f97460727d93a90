/* What the program says: results on standard output, errors, notes and progress on standard error; and reading text
 * in. Nothing goes through stdio's buffers on standard output, so no failed write is lost. All local. */
#pragma once

#include <stdint.h>

#include "base/strbuf.h"
#include "sheaf.h"

/* Writes the message (cut to fit) and returns -1. */
__attribute__((format(printf, 2, 3))) int fail(SheafErr *e, const char *fmt, ...);

/* Whether a launcher (mpirun, srun) started this process as one of several, and whether this process speaks for all:
 * it is rank 0, or was started alone. From the environment: for use before and after the runtime is open. */
bool report_launched(void);
bool report_speaks(void);

/* Whether a person sits at a terminal and types: standard input and output are terminals, or were for the launcher that
 * stands between. */
bool report_person(void);

/* One line "sheaf: message"; control characters in it become '?'. */
void report_error(const SheafErr *e);
/* A line on standard error, as printf. */
__attribute__((format(printf, 1, 2))) void report_note(const char *fmt, ...);

/* Writes all n bytes to standard output; an error says why (no space left, broken pipe, ...). */
int report_write(const char *bytes, size_t n, SheafErr *e);
/* The same for a finished text, which is freed; fails when the text is not complete. */
int report_text(StrBuf *t, SheafErr *e);
/* Appends a string that came from a file to a table: control characters become '?', what is not UTF-8 U+FFFD. */
void report_add_foreign(StrBuf *t, const char *s);

/* By how many percent the weights of a type are larger in memory than in the file; 0 for less than 0.1. */
double report_growth(const SheafTypeCount *t);

/* A whole file, or standard input for "-", into `out`; at most 1 GiB. */
int report_read(const char *path, StrBuf *out, SheafErr *e);

double report_seconds(void); /* monotonic */

/* A bar on standard error, drawn when that is a terminal and the work has taken half a second. */
typedef struct Progress {
    const char *label;
    bool on, drawn;
    double start, last; /* seconds */
} Progress;
Progress progress_start(const char *label, bool quiet);
/* `note` (or NULL) stands behind the bar. */
void progress_show(Progress *p, uint64_t done, uint64_t total, const char *note);
void progress_end(Progress *p); /* wipes the bar */
