/* Writes a model of tests/fixtures/arch for the tests of the program: make_arch NAME FILE. */
#include "arch_files.h"

int main(int argc, char **argv) {
    size_t size;
    if (argc != 3) {
        fprintf(stderr, "make_arch NAME FILE\n");
        return 2;
    }
    uint8_t *bytes = arch_model(argv[1], &size);
    FILE *f = fopen(argv[2], "wb");
    bool ok = f && fwrite(bytes, 1, size, f) == size;
    if (f && fclose(f)) ok = false;
    free(bytes);
    if (!ok) fprintf(stderr, "make_arch: cannot write %s\n", argv[2]);
    return ok ? 0 : 1;
}
