/* Models in several GGUF files: those that llama.cpp's llama-gguf-split made (tests/reference/split_reference.py) hold
 * what the whole file holds; pieces that do not belong together are refused. */
#include <errno.h>

#include "check.h"
#include "gguf_writer.h"
#include "graph/gguf.h"
#include "temp_folder.h"

static const char *fixture(const char *name) {
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];
    if (!check_path(path, sizeof paths[0], "SHEAF_FIXTURES", name)) abort();
    return path;
}

static ModelFile *open_file(const char *path) {
    ModelFile *g = NULL;
    Err e = {""};
    if (gguf_open(path, &g, &e)) printf("\n%s", e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    return g;
}

static void same_content(const ModelFile *a, const ModelFile *b) {
    uint8_t x[1024], y[1024];
    Err e;
    CU_ASSERT_EQUAL_FATAL(file_n_tensors(a), file_n_tensors(b));
    for (size_t i = 0; i < file_n_tensors(a); i++) {
        const FileTensor *s = file_tensor_at(a, i);
        char name[65] = "";
        memcpy(name, s->name.data, s->name.size);
        const FileTensor *t = file_tensor(b, name);
        CU_ASSERT_FATAL(t && s->type == t->type && s->bytes == t->bytes && s->bytes <= sizeof x);
        CU_ASSERT(!memcmp(s->dims, t->dims, sizeof s->dims));
        CU_ASSERT(!model_file_read(a, s, 0, s->bytes, x, &e) && !model_file_read(b, t, 0, t->bytes, y, &e));
        CU_ASSERT(!memcmp(x, y, s->bytes));
    }
    for (size_t i = 0; i < meta_count(a); i++) {
        char key[128] = "";
        memcpy(key, meta_at(a, i)->key.data, meta_at(a, i)->key.size);
        const MetaValue *v = meta_find(b, key);
        CU_ASSERT_FATAL(v && v->type == meta_at(a, i)->type);
        if (v->type == META_ARRAY) CU_ASSERT_EQUAL(v->v.a.n, meta_at(a, i)->v.a.n);
    }
}

static void test_against_whole(void) {
    static const char *const pieces[] = {"split-00001-of-00003.gguf", "split-00002-of-00003.gguf",
                                         "split-00003-of-00003.gguf"};
    ModelFile *whole = open_file(fixture("split.gguf"));
    uint64_t sample, first = 0, other;
    Err e;
    CU_ASSERT(file_n_tensors(whole) == 5 && !model_file_sample(whole, &other, &e));
    for (int i = 0; i < 3; i++) {
        ModelFile *g = open_file(fixture(pieces[i]));
        CU_ASSERT_EQUAL(model_file_parts(g), 3);
        for (size_t k = 0; k < 3; k++) CU_ASSERT_PTR_NOT_NULL(strstr(model_file_part(g, k), pieces[k]));
        CU_ASSERT_PTR_NOT_NULL(strstr(model_file_path(g), pieces[0]));
        same_content(whole, g);
        CU_ASSERT(!model_file_sample(g, &sample, &e) && sample != other);
        if (i == 0) first = sample;
        CU_ASSERT_EQUAL(sample, first);
        model_file_close(g);
    }
    model_file_close(whole);
}

/* ---- pieces made here -------------------------------------------------------------------------------------------- */

typedef struct Piece {
    int no, count, tensors; /* split.*; -1: without it */
    const char *tensor;     /* the one that lies in it */
} Piece;

static void write_piece(const TempFolder *t, const char *name, Piece p) {
    static const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    GgufWriter w;
    size_t size;
    gw_init(&w, 3, 32);
    if (p.no >= 0) gw_u16(&w, "split.no", (uint16_t)p.no);
    gw_u16(&w, "split.count", (uint16_t)p.count);
    if (p.tensors >= 0) gw_i32(&w, "split.tensors.count", p.tensors);
    gw_tensor(&w, p.tensor, 0, 1, (uint64_t[]){8}, data, sizeof data);
    uint8_t *bytes = gw_finish(&w, &size);
    temp_write(t, name, bytes, size);
    free(bytes);
    gw_free(&w);
}

/* Refused with one line that names the two files and says why. */
static void refused(const TempFolder *t, const char *path, const char *other, const char *why) {
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL(gguf_open(temp_path(t, path), &g, &e), -1);
    CU_ASSERT_PTR_NULL(g);
    bool right = strstr(e.msg, path) && strstr(e.msg, other) && strstr(e.msg, why) && !strchr(e.msg, '\n');
    CU_ASSERT(right);
    if (!right) printf("\n\"%s\" should name %s and %s, and say \"%s\"\n", e.msg, path, other, why);
}

static void test_broken(void) {
    TempFolder t = temp_folder();
    const char *one = "m-00001-of-00002.gguf", *two = "m-00002-of-00002.gguf";
    write_piece(&t, one, (Piece){0, 2, 2, "a"});
    refused(&t, one, two, strerror(ENOENT));
    write_piece(&t, two, (Piece){1, 2, -1, "b"});
    ModelFile *g = open_file(temp_path(&t, two));
    CU_ASSERT(file_tensor(g, "a") && file_tensor(g, "b") && model_file_parts(g) == 2);
    model_file_close(g);

    write_piece(&t, two, (Piece){1, 2, -1, "a"});
    refused(&t, one, "", "the tensor a is there twice");
    write_piece(&t, two, (Piece){0, 2, -1, "b"});
    refused(&t, one, two, "piece 1 of 2");
    write_piece(&t, two, (Piece){1, 3, -1, "b"});
    refused(&t, one, two, "piece 2 of 3");
    refused(&t, two, "-00002-of-00003.gguf", "its name does not end");
    write_piece(&t, two, (Piece){-1, 2, -1, "b"});
    refused(&t, one, two, "split.no is missing");
    write_piece(&t, two, (Piece){2, 2, -1, "b"});
    refused(&t, one, two, "split.no is 2");
    temp_write_text(&t, two, "GGUF");
    refused(&t, one, two, "ends at byte 4");
    write_piece(&t, one, (Piece){0, 2, 3, "a"});
    write_piece(&t, two, (Piece){1, 2, -1, "b"});
    refused(&t, one, "", "split.tensors.count is 3, but there are 2");
    temp_remove(&t);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"pieces by llama.cpp against the whole file", test_against_whole},
        {"pieces that do not fit", test_broken},
        CU_TEST_INFO_NULL,
    };
    return check_run("split GGUF files", tests);
}
