/* Arrays of .npy files for tests. */
#pragma once

#include "base/npy.h"
#include "check.h"

/* DIR/name from the environment variable `var`, or false. The data are *file's, which the caller frees. */
static inline bool read_npy(const char *var, const char *name, uint8_t **file, Npy *out) {
    char path[512];
    *file = NULL;
    if (!check_path(path, sizeof path, var, name)) return false;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool good = fseek(f, 0, SEEK_END) == 0;
    long size = good ? ftell(f) : -1;
    good = size > 0 && fseek(f, 0, SEEK_SET) == 0 && (*file = malloc((size_t)size)) &&
           fread(*file, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    Err e = {""};
    if (good && npy_parse(*file, (size_t)size, path, out, &e)) {
        printf("%s\n", e.msg);
        good = false;
    }
    return good;
}
