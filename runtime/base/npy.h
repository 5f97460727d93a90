/* Arrays in numpy's .npy files, versions 1 to 3, little-endian
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). All local. */
#pragma once

#include "base/strbuf.h"

enum { NPY_DIMS = 8 };
typedef struct Npy {
    char kind; /* 'f' float, 'i' signed, 'u' unsigned, 'b' bool */
    int bytes; /* of an element: 1, 2, 4, 8 */
    int n_dims;
    int64_t dim[NPY_DIMS];
    const uint8_t *data; /* row after row, in the memory that was parsed; unaligned */
    size_t n_bytes;
} Npy;

/* What a file's n bytes say; `name` is for errors. Arrays in column order (Fortran's) are refused. */
int npy_parse(const uint8_t *file, size_t n, const char *name, Npy *out, Err *e);
/* What stands before the data of such an array in a file, appended; a multiple of 64 bytes. */
void npy_header(const Npy *a, StrBuf *out);
