/* Reading GGUF files: what the writer put in comes out again; files that are not what they should be are named so. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "gguf_writer.h"
#include "graph/gguf.h"

/* ggml_type ids, https://github.com/ggml-org/ggml/blob/master/include/ggml.h */
enum { F32 = 0, Q4_1 = 3, Q8_0 = 8, IQ1_S = 19 };

static void expect_string(Text s, const char *want) {
    CU_ASSERT(s.size == strlen(want) && !memcmp(s.data, want, s.size));
}

/* One of everything. */
static uint8_t *build(uint32_t version, uint32_t alignment, size_t *size) {
    static const uint8_t data[3 * 40] = {7};
    GgufWriter w;
    gw_init(&w, version, alignment);
    gw_u8(&w, "u8", 200);
    gw_i8(&w, "i8", -100);
    gw_u16(&w, "u16", 60000);
    gw_i16(&w, "i16", -30000);
    gw_u32(&w, "u32", 4000000000u);
    gw_i32(&w, "i32", -2000000000);
    gw_u64(&w, "u64", UINT64_MAX);
    gw_i64(&w, "i64", INT64_MIN);
    gw_f32(&w, "f32", 0.5f);
    gw_f64(&w, "f64", -0.25);
    gw_bool(&w, "yes", true);
    gw_bool(&w, "no", false);
    gw_string(&w, "string", "text");
    gw_string(&w, "empty", "");
    gw_array(&w, "i16s", GW_I16, 3, (int16_t[]){-1, 0, 300}, 2);
    gw_array(&w, "f32s", GW_F32, 2, (float[]){1.5f, -2.0f}, 4);
    gw_array(&w, "f64s", GW_F64, 1, (double[]){1e300}, 8);
    gw_array(&w, "u64s", GW_U64, 0, NULL, 8);
    gw_strings(&w, "strings", 3, (const char *const[]){"a", "", "ccc"});
    gw_tensor(&w, "vector", F32, 1, (uint64_t[]){3}, data, 12);
    gw_tensor(&w, "matrix", Q4_1, 2, (uint64_t[]){64, 3}, data, 3 * 40);
    gw_tensor(&w, "cube", Q8_0, 3, (uint64_t[]){32, 1, 2}, data, 2 * 34);
    gw_tensor(&w, "other", IQ1_S, 4, (uint64_t[]){256, 1, 1, 1}, data, 120);
    uint8_t *bytes = gw_finish(&w, size);
    gw_free(&w);
    return bytes;
}

static void check_values(const ModelFile *g) {
    static const struct {
        const char *key;
        int64_t value;
    } whole[] = {{"u8", 200},           {"i8", -100},           {"u16", 60000},    {"i16", -30000},
                 {"u32", 4000000000LL}, {"i32", -2000000000LL}, {"i64", INT64_MIN}};
    Err e;
    int64_t i = 0;
    double f = 0;
    bool yes = false, no = true;
    Text s = {0};
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) {
        CU_ASSERT_EQUAL(meta_get_i64(g, whole[k].key, true, INT64_MIN, INT64_MAX, &i, &e), 0);
        CU_ASSERT_EQUAL(i, whole[k].value);
    }
    CU_ASSERT_EQUAL(meta_find(g, "u64")->v.u, UINT64_MAX);
    CU_ASSERT(!meta_get_f64(g, "f32", true, &f, &e) && f == 0.5);
    CU_ASSERT(!meta_get_f64(g, "f64", true, &f, &e) && f == -0.25);
    CU_ASSERT(!meta_get_bool(g, "yes", true, &yes, &e) && yes);
    CU_ASSERT(!meta_get_bool(g, "no", true, &no, &e) && !no);
    CU_ASSERT_EQUAL(meta_get_string(g, "string", true, &s, &e), 0);
    expect_string(s, "text");
    CU_ASSERT(!meta_get_string(g, "empty", true, &s, &e) && s.size == 0);
}

static void check_arrays(const ModelFile *g) {
    const MetaValue *a = NULL;
    Err e;
    CU_ASSERT_EQUAL_FATAL(meta_get_array(g, "i16s", true, META_I32, &a, &e), 0);
    CU_ASSERT(a->v.a.n == 3 && meta_array_i64(a, 0) == -1 && meta_array_i64(a, 2) == 300);
    CU_ASSERT_EQUAL_FATAL(meta_get_array(g, "f32s", true, META_F32, &a, &e), 0);
    CU_ASSERT(meta_array_f64(a, 0) == 1.5 && meta_array_f64(a, 1) == -2.0);
    CU_ASSERT_EQUAL_FATAL(meta_get_array(g, "f64s", true, META_F32, &a, &e), 0);
    CU_ASSERT_EQUAL(meta_array_f64(a, 0), 1e300);
    CU_ASSERT(!meta_get_array(g, "u64s", true, META_U64, &a, &e) && a->v.a.n == 0);
    CU_ASSERT_EQUAL_FATAL(meta_get_array(g, "strings", true, META_STRING, &a, &e), 0);
    CU_ASSERT_EQUAL_FATAL(a->v.a.n, 3);
    expect_string(a->v.a.strings[0], "a");
    expect_string(a->v.a.strings[1], "");
    expect_string(a->v.a.strings[2], "ccc");
}

/* Sizes by hand: Q4_1 has 20 bytes for 32 values, Q8_0 has 34; each tensor begins at the next multiple of the alignment
 * after the one before. */
static void check_tensors(const ModelFile *g, uint64_t alignment, uint64_t file_bytes) {
    CU_ASSERT_EQUAL_FATAL(file_n_tensors(g), 4);
    const FileTensor *t = file_tensor(g, "vector"), *m = file_tensor(g, "matrix"), *c = file_tensor(g, "cube");
    const FileTensor *o = file_tensor(g, "other");
    CU_ASSERT_FATAL(t && m && c && o && file_tensor_at(g, 1) == m);
    CU_ASSERT(t->n_dims == 1 && t->dims[0] == 3 && t->dims[1] == 1 && t->type == QT_F32 && t->bytes == 12);
    CU_ASSERT(m->n_dims == 2 && m->dims[0] == 64 && m->dims[1] == 3 && m->type == QT_Q4_1 && m->bytes == 120);
    CU_ASSERT(c->n_dims == 3 && c->dims[2] == 2 && c->type == QT_Q8_0 && c->bytes == 68);
    CU_ASSERT(o->n_dims == 4 && o->type == -1 && o->type_id == IQ1_S && o->bytes == 0);
    CU_ASSERT_EQUAL(t->offset % alignment, 0);
    CU_ASSERT_EQUAL(m->offset - t->offset, (12 + alignment - 1) / alignment * alignment);
    CU_ASSERT_EQUAL(c->offset - m->offset, (120 + alignment - 1) / alignment * alignment);
    CU_ASSERT_EQUAL(o->offset + 120, file_bytes);
    CU_ASSERT_PTR_NULL(file_tensor(g, "matri"));
    CU_ASSERT_PTR_NULL(file_tensor(g, ""));
}

static void test_round_trip(void) {
    static const uint32_t alignments[] = {1, 8, 32, 256};
    for (uint32_t version = 2; version <= 3; version++)
        for (int i = 0; i < 4; i++) {
            size_t size;
            uint8_t *bytes = build(version, alignments[i], &size);
            ModelFile *g;
            Err e = {""};
            CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, size, size, "round trip", &g, &e), 0);
            CU_ASSERT_STRING_EQUAL(model_file_format(g), version == 2 ? "GGUF 2" : "GGUF 3");
            CU_ASSERT_EQUAL(model_file_bytes(g), size);
            CU_ASSERT_EQUAL(meta_count(g), (alignments[i] == 32 ? 19 : 20));
            CU_ASSERT_STRING_EQUAL(model_file_path(g), "round trip");
            check_values(g);
            check_arrays(g);
            check_tensors(g, alignments[i], size);
            model_file_close(g);
            free(bytes);
        }
}

static void test_typed_access(void) {
    size_t size;
    uint8_t *bytes = build(3, 32, &size);
    ModelFile *g;
    Err e;
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, size, size, "f.gguf", &g, &e), 0);
    int64_t i = 42;
    double f = 42;
    bool b = true;
    Text s = {"kept", 4};
    const MetaValue *a = NULL;
    /* missing: an error that names it, or what was there stays */
    CU_ASSERT_EQUAL(meta_get_i64(g, "gone", true, 0, 9, &i, &e), -1);
    CU_ASSERT(strstr(e.msg, "f.gguf") && strstr(e.msg, "gone"));
    CU_ASSERT(!meta_get_i64(g, "gone", false, 0, 9, &i, &e) && i == 42);
    CU_ASSERT(!meta_get_f64(g, "gone", false, &f, &e) && f == 42);
    CU_ASSERT(!meta_get_bool(g, "gone", false, &b, &e) && b);
    CU_ASSERT(!meta_get_string(g, "gone", false, &s, &e) && s.size == 4);
    CU_ASSERT(!meta_get_array(g, "gone", false, META_STRING, &a, &e) && !a);
    /* out of range */
    CU_ASSERT_EQUAL(meta_get_i64(g, "u8", true, 0, 199, &i, &e), -1);
    CU_ASSERT(strstr(e.msg, "200") && strstr(e.msg, "199"));
    CU_ASSERT_EQUAL(meta_get_i64(g, "i8", false, 0, 10, &i, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "-100"));
    CU_ASSERT_EQUAL(meta_get_i64(g, "u64", true, INT64_MIN, INT64_MAX, &i, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "18446744073709551615"));
    /* another type */
    CU_ASSERT_EQUAL(meta_get_i64(g, "f32", false, 0, 9, &i, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "f32"));
    CU_ASSERT_EQUAL(meta_get_i64(g, "yes", false, 0, 9, &i, &e), -1);
    CU_ASSERT_EQUAL(meta_get_f64(g, "u8", false, &f, &e), -1);
    CU_ASSERT_EQUAL(meta_get_bool(g, "u8", false, &b, &e), -1);
    CU_ASSERT_EQUAL(meta_get_string(g, "strings", false, &s, &e), -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "array of string"));
    CU_ASSERT_EQUAL(meta_get_array(g, "strings", false, META_I32, &a, &e), -1);
    CU_ASSERT_EQUAL(meta_get_array(g, "string", false, META_STRING, &a, &e), -1);
    CU_ASSERT_EQUAL(meta_get_array(g, "i16s", false, META_F32, &a, &e), -1);
    CU_ASSERT(i == 42 && f == 42 && b && s.size == 4 && !a);
    model_file_close(g);
    free(bytes);
}

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) abort();
}

/* The file must be refused with one line that names it and says `why`. */
static void refused(const char *path, const char *why) {
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL(gguf_open(path, &g, &e), -1);
    CU_ASSERT_PTR_NULL(g);
    if (!strstr(e.msg, path) || !strstr(e.msg, why) || strchr(e.msg, '\n')) {
        fprintf(stderr, "\"%s\" should name %s and say \"%s\"\n", e.msg, path, why);
        CU_FAIL("the error");
    }
}

static void test_files(void) {
    char dir[] = "/tmp/test_gguf.XXXXXX", path[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f.gguf", dir);
    refused(path, strerror(ENOENT));
    refused(dir, "directory");
    write_bytes(path, "", 0);
    refused(path, "empty");
    write_bytes(path, "GG", 2);
    refused(path, "ends at byte 2");
    write_bytes(path, "PK\3\4 something else", 19);
    refused(path, "not a GGUF file");
    write_bytes(path, "GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    refused(path, "big-endian");
    write_bytes(path, "GGUF\1\0\0\0\0\0\0\0\0\0\0\0", 16);
    refused(path, "version 1");
    write_bytes(path, "GGUF\4\0\0\0\0\0\0\0\0\0\0\0", 16);
    refused(path, "version 4");
    if (geteuid() != 0) { /* root may read everything */
        CU_ASSERT_EQUAL(chmod(path, 0), 0);
        refused(path, strerror(EACCES));
    }
    unlink(path);
    CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
    refused(path, "not a regular file");
    unlink(path);

    size_t size;
    uint8_t *bytes = build(3, 32, &size);
    write_bytes(path, bytes, size - 120); /* the last tensor is gone */
    refused(path, "tensor other");
    unlink(path);
    free(bytes);
    rmdir(dir);
}

static void test_open(void) {
    char path[] = "/tmp/test_gguf.XXXXXX";
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    size_t size;
    uint8_t *bytes = build(3, 32, &size);
    write_bytes(path, bytes, size);
    ModelFile *g;
    Err e;
    CU_ASSERT_EQUAL_FATAL(gguf_open(path, &g, &e), 0);
    CU_ASSERT_STRING_EQUAL(model_file_path(g), path);
    CU_ASSERT_EQUAL(model_file_bytes(g), size);
    check_values(g);
    check_arrays(g);
    check_tensors(g, 32, size);
    model_file_close(g);
    model_file_close(NULL);
    free(bytes);
    unlink(path);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"values, arrays and tensors come out as they went in", test_round_trip},
        {"typed access", test_typed_access},
        {"files that are no GGUF files", test_files},
        {"a file on disk", test_open},
        CU_TEST_INFO_NULL,
    };
    return check_run("gguf", tests);
}
