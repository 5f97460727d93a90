/* What is typed, line by line. Local. */
#pragma once

#include "base/strbuf.h"
#include "sheaf.h"

typedef struct Lines {
    int fd;
    StrBuf held; /* read, and not given out yet; owned: lines_free */
    bool ended;
} Lines;

typedef enum LinesStatus { LINES_LINE, LINES_END, LINES_SIGNAL, LINES_FAILED } LinesStatus;
/* The next line into `line` (emptied first), without its line end. A line that ends with a backslash goes on with the
 * next one: a line end stands for the backslash. LINES_SIGNAL: one came (job_interrupted), what was typed is dropped.
 */
LinesStatus lines_next(Lines *l, StrBuf *line, SheafErr *e);
void lines_free(Lines *l);
