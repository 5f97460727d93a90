/* Gives every file of the folders named on the command line to a fuzz target, once: the corpus as a regression test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    size_t size = 0, cap = 0;
    uint8_t *data = NULL;
    for (;;) {
        if (size == cap) {
            cap = cap ? 2 * cap : 4096;
            uint8_t *more = realloc(data, cap);
            if (!more) abort();
            data = more;
        }
        size_t n = fread(data + size, 1, cap - size, f);
        if (n == 0) break;
        size += n;
    }
    fclose(f);
    /* Exactly as large as the input, so that a sanitizer sees a read past its end. */
    uint8_t *exact = realloc(data, size ? size : 1);
    LLVMFuzzerTestOneInput(exact ? exact : data, size);
    free(exact ? exact : data);
    return 0;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            fprintf(stderr, "%s: cannot be opened\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(d));) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (replay(path) == 0) n++;
        }
        closedir(d);
    }
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1;
}
