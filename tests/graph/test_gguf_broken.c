/* Hostile GGUF files: every truncation, every changed byte, absurd values field by field. The reader may load such a
 * file or refuse it with one line; it may not crash (the suite also runs under the address sanitizer), take long or
 * take memory on the word of a count. */
#include <malloc.h>

#include "check.h"
#include "gguf_writer.h"
#include "graph/gguf.h"

enum { F32 = 0, Q4_1 = 3, Q8_0 = 8, IQ1_S = 19 };

/* Reads all that there is to read, so that a pointer out of bounds shows. */
static uint64_t read_through(const ModelFile *g) {
    uint64_t sum = strlen(model_file_format(g));
    for (size_t i = 0; i < meta_count(g); i++) {
        const MetaValue *v = meta_at(g, i);
        for (size_t k = 0; k < v->key.size; k++) sum += (uint8_t)v->key.data[k];
        if (v->type == META_STRING)
            for (size_t k = 0; k < v->v.s.size; k++) sum += (uint8_t)v->v.s.data[k];
        if (v->type != META_ARRAY) continue;
        for (uint64_t n = 0; n < v->v.a.n; n++) {
            if (v->v.a.type == META_STRING)
                for (size_t k = 0; k < v->v.a.strings[n].size; k++) sum += (uint8_t)v->v.a.strings[n].data[k];
            else if (v->v.a.type == META_F32 || v->v.a.type == META_F64) sum += meta_array_f64(v, n) > 0;
            else sum += (uint64_t)meta_array_i64(v, n);
        }
    }
    for (size_t i = 0; i < file_n_tensors(g); i++) {
        const FileTensor *t = file_tensor_at(g, i);
        CU_ASSERT(t->offset < model_file_bytes(g) && t->bytes <= model_file_bytes(g) - t->offset);
        for (size_t k = 0; k < t->name.size; k++) sum += (uint8_t)t->name.data[k];
    }
    return sum;
}

static bool one_line(const Err *e) { return e->msg[0] && !strchr(e->msg, '\n') && strstr(e->msg, "broken.gguf"); }

/* Loads or refuses; in memory of exactly that size, so that a sanitizer sees a read beyond. Says whether it loads. */
static bool try_bytes(const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    if (size) memcpy(exact, bytes, size);
    ModelFile *g = NULL;
    Err e = {""};
    bool loads = gguf_from_memory(exact, size, size, "broken.gguf", &g, &e) == 0;
    if (loads) {
        CU_ASSERT(read_through(g) > 0);
        model_file_close(g);
    } else {
        CU_ASSERT(one_line(&e) && !g);
    }
    free(exact);
    return loads;
}

static uint8_t *build(size_t *size, size_t *header) {
    static const uint8_t data[120] = {1, 2, 3};
    GgufWriter w;
    gw_init(&w, 3, 64);
    gw_string(&w, "general.architecture", "llama");
    gw_u32(&w, "llama.block_count", 2);
    gw_f32(&w, "eps", 1e-5f);
    gw_bool(&w, "flag", true);
    gw_i64(&w, "big", INT64_MIN);
    gw_array(&w, "bools", GW_BOOL, 3, (uint8_t[]){0, 1, 1}, 1);
    gw_array(&w, "types", GW_I32, 4, (int32_t[]){1, 3, 1, 6}, 4);
    gw_array(&w, "floats", GW_F64, 1, (double[]){0.5}, 8);
    gw_strings(&w, "tokens", 4, (const char *const[]){"a", "b", "", "abc"});
    gw_tensor(&w, "vector", F32, 1, (uint64_t[]){3}, data, 12);
    gw_tensor(&w, "matrix", Q4_1, 2, (uint64_t[]){64, 3}, data, 120);
    gw_tensor(&w, "cube", Q8_0, 3, (uint64_t[]){32, 1, 2}, data, 68);
    gw_tensor(&w, "other", IQ1_S, 4, (uint64_t[]){256, 1, 1, 1}, data, 1);
    uint8_t *bytes = gw_finish(&w, size);
    *header = 24 + w.values.n + w.infos.n;
    gw_free(&w);
    return bytes;
}

static void test_truncated(void) {
    size_t size, header;
    uint8_t *bytes = build(&size, &header);
    CU_ASSERT(size <= 4096);
    for (size_t n = 0; n < size; n++) CU_ASSERT(!try_bytes(bytes, n));
    CU_ASSERT(try_bytes(bytes, size));
    free(bytes);
}

static void test_changed_bytes(void) {
    size_t size, header, loaded = 0;
    uint8_t *bytes = build(&size, &header);
    for (size_t at = 0; at < header; at++)
        for (unsigned change = 1; change < 256; change++) {
            bytes[at] ^= (uint8_t)change;
            loaded += try_bytes(bytes, size);
            bytes[at] ^= (uint8_t)change;
        }
    CU_ASSERT(try_bytes(bytes, size));
    CU_ASSERT(loaded > 0 && loaded < 255 * header);
    free(bytes);
}

/* ---- field by field ---------------------------------------------------------------------------------------------- */

/* The file as it stands must be refused, and the line must say `why`. */
static void refused(const uint8_t *bytes, size_t size, const char *why) {
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL(gguf_from_memory(bytes, size, size, "broken.gguf", &g, &e), -1);
    if (g || !one_line(&e) || !strstr(e.msg, why)) {
        fprintf(stderr, "\"%s\" should say \"%s\"\n", e.msg, why);
        CU_FAIL("the error");
    }
}

static void writer_refused(GgufWriter *w, const char *why) {
    size_t size;
    uint8_t *bytes = gw_finish(w, &size);
    refused(bytes, size, why);
    free(bytes);
    gw_free(w);
}

/* Puts v's low `width` bytes `skip` bytes after the end of `name`, tries, and puts back what was there. */
static void field_refused(const char *name, size_t skip, uint64_t v, size_t width, const char *why) {
    size_t size, header;
    uint8_t *bytes = build(&size, &header);
    uint8_t *at = memmem(bytes, size, name, strlen(name));
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    at += strlen(name) + skip;
    for (size_t i = 0; i < width; i++) at[i] = (uint8_t)(v >> (8 * i));
    refused(bytes, size, why);
    free(bytes);
}

static void test_counts(void) {
    static const uint64_t absurd[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 62, UINT64_C(1) << 32, 100000, 200};
    size_t before = mallinfo2().arena + mallinfo2().hblkhd;
    for (int i = 0; i < 6; i++) {
        field_refused("GGUF", 4, absurd[i], 8, "tensors");
        field_refused("GGUF", 12, absurd[i], 8, "metadata values");
        /* after a key: type (4), then a string's length; or the element's type (4) and the count */
        field_refused("general.architecture", 4, absurd[i] + 1000, 8, "key general.architecture");
        field_refused("tokens", 8, absurd[i] + 1000, 8, "key tokens");
        field_refused("types", 8, absurd[i] + 1000, 8, "key types");
        field_refused("bools", 8, absurd[i] + 1000, 8, "key bools");
        field_refused("floats", 8, absurd[i] + 1000, 8, "key floats");
    }
    field_refused("tokens", 16, UINT64_MAX, 8, "element 0");
    /* a count that is one too high runs into what follows; one too low leaves a key that is none */
    field_refused("GGUF", 12, 11, 8, "broken.gguf");
    field_refused("GGUF", 12, 9, 8, "broken.gguf");
    field_refused("GGUF", 4, 5, 8, "broken.gguf");
    CU_ASSERT(mallinfo2().arena + mallinfo2().hblkhd < before + (1 << 20));
}

static void test_values(void) {
    field_refused("flag", 4, 2, 1, "key flag");
    field_refused("bools", 17, 255, 1, "key bools");
    field_refused("flag", 0, 13, 4, "unknown value type 13");
    field_refused("types", 4, 99, 4, "unknown value type 99");
    field_refused("types", 4, GW_ARRAY, 4, "array of arrays");
    GgufWriter w;
    gw_init(&w, 3, 32);
    gw_u32(&w, "twice", 1);
    gw_u32(&w, "once", 1);
    gw_string(&w, "twice", "x");
    writer_refused(&w, "the key twice is there twice");
    gw_init(&w, 3, 32);
    gw_u32(&w, "", 1);
    writer_refused(&w, "a key of 0 bytes");
    gw_init(&w, 3, 32);
    gw_string(&w, "two\nlines", "x");
    gw_string(&w, "two\nlines", "x");
    writer_refused(&w, "two?lines");
    char *long_key = calloc(1, 65537);
    CU_ASSERT_PTR_NOT_NULL_FATAL(long_key);
    memset(long_key, 'k', 65536);
    gw_init(&w, 3, 32);
    gw_u32(&w, long_key, 1);
    writer_refused(&w, "65536 bytes");
    free(long_key);
}

static void test_alignment(void) {
    static const uint32_t bad[] = {0, 3, 48, 0xffffffff};
    for (int i = 0; i < 4; i++) {
        GgufWriter w;
        gw_init(&w, 3, 32);
        gw_u32(&w, "general.alignment", bad[i]);
        writer_refused(&w, "general.alignment");
    }
    GgufWriter w;
    gw_init(&w, 3, 32);
    gw_string(&w, "general.alignment", "32");
    writer_refused(&w, "general.alignment");
}

/* One tensor with these dimensions, type and offset, and `bytes` of data. */
static void tensor_refused(uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset, size_t bytes,
                           const char *why) {
    GgufWriter w;
    gw_init(&w, 3, 32);
    gw_tensor_info(&w, "weight", type, n_dims, dims, offset);
    uint8_t *data = calloc(bytes + 1, 1);
    gw_put(&w.data, data, bytes);
    free(data);
    writer_refused(&w, why);
}

static void test_tensors(void) {
    const uint64_t one[5] = {32, 1, 1, 1, 1}, zero[2] = {32, 0}, odd[2] = {33, 32};
    const uint64_t huge[4] = {UINT64_C(1) << 32, UINT64_C(1) << 32, 1, 1}, wide[1] = {UINT64_MAX - 31};
    const uint64_t near[2] = {UINT64_C(1) << 40, UINT64_C(1) << 22};
    tensor_refused(F32, 0, one, 0, 128, "0 dimensions");
    tensor_refused(F32, 5, one, 0, 128, "5 dimensions");
    field_refused("vector", 0, UINT32_MAX, 4, "4294967295 dimensions");
    tensor_refused(F32, 2, zero, 0, 128, "dimension 1 is 0");
    tensor_refused(Q8_0, 2, odd, 0, 4096, "tensor weight");
    tensor_refused(Q4_1, 2, odd, 0, 4096, "no whole number of");
    tensor_refused(F32, 4, huge, 0, 128, "tensor weight");
    tensor_refused(Q8_0, 1, wide, 0, 128, "tensor weight");
    tensor_refused(F32, 2, near, 0, 128, "tensor weight"); /* 2^62 values: their bytes overflow */
    tensor_refused(F32, 1, one, 0, 127, "does not end within");
    tensor_refused(F32, 1, one, 32, 128, "does not end within");
    tensor_refused(F32, 1, one, 8, 1024, "no multiple of the alignment");
    tensor_refused(F32, 1, one, UINT64_MAX - 31, 128, "does not end within");
    tensor_refused(F32, 1, one, UINT64_C(1) << 63, 128, "does not end within");
    tensor_refused(IQ1_S, 1, one, 128, 128, "does not end within"); /* unknown size, but not even its first byte */
    tensor_refused(0xffffffff, 1, one, 0, 0, "does not end within");
}

static void test_names_and_overlap(void) {
    const uint64_t dims[1] = {16};
    static const uint8_t data[256] = {0};
    char name[66] = "";
    GgufWriter w;
    gw_init(&w, 3, 32);
    gw_tensor(&w, "same", F32, 1, dims, data, 64);
    gw_tensor(&w, "other", F32, 1, dims, data, 64);
    gw_tensor(&w, "same", F32, 1, dims, data, 64);
    writer_refused(&w, "the tensor same is there twice");
    gw_init(&w, 3, 32);
    gw_tensor(&w, "", F32, 1, dims, data, 64);
    writer_refused(&w, "has 0 bytes");
    memset(name, 'n', 65);
    gw_init(&w, 3, 32);
    gw_tensor(&w, name, F32, 1, dims, data, 64);
    writer_refused(&w, "has 65 bytes");

    gw_init(&w, 3, 32);
    gw_tensor_info(&w, "second", F32, 1, dims, 32); /* 64 bytes each: 32..96 and 0..64 */
    gw_tensor_info(&w, "first", F32, 1, dims, 0);
    gw_put(&w.data, data, 256);
    writer_refused(&w, "first and second overlap");
    gw_init(&w, 3, 32);
    gw_tensor_info(&w, "known", F32, 1, dims, 0);
    gw_tensor_info(&w, "unknown", IQ1_S, 1, dims, 32);
    gw_put(&w.data, data, 256);
    writer_refused(&w, "known and unknown overlap");
    gw_init(&w, 3, 32);
    gw_tensor_info(&w, "one", IQ1_S, 1, dims, 64);
    gw_tensor_info(&w, "two", IQ1_S, 1, dims, 64);
    gw_put(&w.data, data, 256);
    writer_refused(&w, "overlap");
}

/* The header alone, of a file that goes on: as when only its first part was read. */
static void test_header_only(void) {
    size_t size, header;
    uint8_t *bytes = build(&size, &header);
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, header, size, "broken.gguf", &g, &e), 0);
    CU_ASSERT_EQUAL(model_file_bytes(g), size);
    model_file_close(g);
    CU_ASSERT_EQUAL(gguf_from_memory(bytes, header, size - 1, "broken.gguf", &g, &e), -1);
    CU_ASSERT_EQUAL(gguf_from_memory(bytes, size, size - 1, "broken.gguf", &g, &e), -1);
    CU_ASSERT_EQUAL(gguf_from_memory(bytes, header - 1, size, "broken.gguf", &g, &e), -1);
    free(bytes);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"every truncation is refused", test_truncated},
        {"every change of a byte loads or is refused", test_changed_bytes},
        {"absurd counts and lengths", test_counts},
        {"values and keys", test_values},
        {"alignment", test_alignment},
        {"tensors", test_tensors},
        {"names twice, tensors that overlap", test_names_and_overlap},
        {"the header alone", test_header_only},
        CU_TEST_INFO_NULL,
    };
    return check_run("broken gguf", tests);
}
