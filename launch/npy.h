/* Writes an array as a NumPy file, piece by piece. The file appears when it is complete, in place of one that was
 * there. All local. */
#pragma once

#include "base/npy.h"
#include "sheaf.h"

typedef struct NpyFile {
    const char *path; /* not owned; NULL: nothing to write */
    char *temporary;  /* owned; NULL once the file is complete */
    int fd;
} NpyFile; /* zeroed: nothing to write */

/* An array of that type and shape (its data are not looked at); all of it must be written by the end. `path` lives as
 * long as *f. After a failure too the caller ends with npy_file_close. */
int npy_file_open(NpyFile *f, const char *path, const Npy *what, SheafErr *e);
int npy_file_write(NpyFile *f, const void *data, size_t bytes, SheafErr *e);
int npy_file_finish(NpyFile *f, SheafErr *e);
void npy_file_close(NpyFile *f); /* removes what is not finished */
