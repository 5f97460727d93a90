/* A folder for the files of a test, made in /tmp and removed with all that is in it. */
#pragma once

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct TempFolder {
    char path[64];
} TempFolder;

static inline TempFolder temp_folder(void) {
    TempFolder t = {"/tmp/sheaf_test.XXXXXX"};
    if (!mkdtemp(t.path)) abort();
    return t;
}

/* FOLDER/name, in a buffer that lives until the next call but three. */
static inline const char *temp_path(const TempFolder *t, const char *name) {
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", t->path, name);
    return path;
}

static inline void temp_write(const TempFolder *t, const char *name, const void *bytes, size_t size) {
    FILE *f = fopen(temp_path(t, name), "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) abort();
}
static inline void temp_write_text(const TempFolder *t, const char *name, const char *text) {
    temp_write(t, name, text, strlen(text));
}

static inline int temp_remove_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)kind, (void)where;
    return remove(path);
}
static inline void temp_remove(TempFolder *t) { nftw(t->path, temp_remove_one, 8, FTW_DEPTH | FTW_PHYS); }
