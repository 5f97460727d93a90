/* A program outside the tree: what someone who links libsheaf through pkg-config would write first.
 * usage: outside [MODEL.gguf] */
#include <sheaf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const SheafErr *e) {
    fprintf(stderr, "outside: %s: %s\n", what, e->msg);
    return 1;
}

int main(int argc, char **argv) {
    SheafErr e = {{0}};
    SheafRuntimeOptions options = {.threads = 1};
    SheafRuntime *rt = NULL;
    SheafModel *m = NULL;
    if (sheaf_runtime_open(&options, &rt, &e)) return fail("cannot start", &e);
    printf("libsheaf %s: rank %d of %d, %d thread, %s\n", sheaf_version(), sheaf_rank(rt), sheaf_ranks(rt),
           sheaf_threads(rt), sheaf_isa(rt));
    if (sheaf_model_open(rt, "/nonexistent/model.gguf", &m, &e) == 0)
        return fail("opened a file that is not there", &e);
    if (!strstr(e.msg, "/nonexistent/model.gguf")) return fail("the message does not name the file", &e);
    if (argc > 1) {
        int32_t *ids = NULL;
        size_t n = 0;
        if (sheaf_model_open(rt, argv[1], &m, &e)) return fail("cannot open", &e);
        printf("%s: %lld layers\n", sheaf_model_info(m)->name, (long long)sheaf_model_info(m)->layers);
        if (sheaf_tokenize(m, "Hello", 5, false, false, &ids, &n, &e) || n < 1) return fail("cannot tokenize", &e);
        free(ids);
        sheaf_model_close(m);
    }
    if (sheaf_runtime_close(rt, &e)) return fail("cannot close", &e);
    return 0;
}
