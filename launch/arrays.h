/* Arrays of nets in .npy files. All local. */
#pragma once

#include "base/strbuf.h"
#include "sheaf.h"

/* Reads a file into *a, whose data lie in *file (freed by the caller with strbuf_free). */
int array_read(const char *path, StrBuf *file, SheafArray *a, SheafErr *e);
/* Whether a file can be made there: to be known before the work. */
int array_may_write(const char *path, SheafErr *e);
/* Writes a file; it appears when it is complete. */
int array_write(const char *path, const SheafArray *a, SheafErr *e);
int64_t array_count(const SheafArray *a);
/* Element i as a number. */
double array_get(const SheafArray *a, int64_t i);
/* "f32 [64, 3, 224, 224]"; of a port, open sizes by their names. */
void array_describe(const SheafArray *a, StrBuf *out);
void port_describe(const SheafPort *p, StrBuf *out);
