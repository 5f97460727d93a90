/* Writes a matrix of floats as a NumPy file, format version 1.0 (numpy.lib.format), row by row. The file appears when
 * it is complete, in place of one that was there. All local. */
#pragma once

#include <stdint.h>

#include "sheaf.h"

typedef struct Npy {
    const char *path; /* not owned; NULL: nothing to write */
    char *temporary;  /* owned; NULL once the file is complete */
    int fd;
} Npy; /* zeroed: nothing to write */

/* Rows of `columns` values in C order; there must be `rows` of them at the end. `path` lives as long as *n. After a
 * failure too the caller ends with npy_close. */
int npy_open(Npy *n, const char *path, int64_t rows, int64_t columns, SheafErr *e);
int npy_write(Npy *n, const float *values, int64_t count, SheafErr *e);
int npy_finish(Npy *n, SheafErr *e);
void npy_close(Npy *n); /* removes what is not finished */
