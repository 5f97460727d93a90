/* Headers of safetensors files, written here by the format's document
 * (https://github.com/huggingface/safetensors#format): sound ones, and hostile ones, which are refused with one line
 * that names file and tensor. */
#include "check.h"
#include "graph/safetensors.h"

typedef struct Made {
    uint8_t *bytes; /* exactly that many, so that a sanitizer sees a read beyond */
    size_t size;
} Made;

/* 8 bytes of length, the header, and `data` bytes. */
static Made make(const char *header, size_t data) {
    size_t n = strlen(header);
    Made m = {calloc(1, 8 + n + data), 8 + n + data};
    if (!m.bytes) abort();
    for (size_t i = 0; i < 8; i++) m.bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(m.bytes + 8, header, n);
    return m;
}

static void test_sound(void) {
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"data_offsets\":[8,32]},"
                                 "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"none\":{\"shape\":[0,7],\"data_offsets\":[32,32],\"dtype\":\"I64\"},"
                                 "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[32,33]}}   ";
    Made m = make(header, 33);
    Safetensors s;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(safetensors_from_memory(m.bytes, m.size, m.size, "f.safetensors", &s, &e), 0);
    free(m.bytes); /* nothing points there */
    size_t data = 8 + strlen(header);
    CU_ASSERT_EQUAL_FATAL(s.n, 4);
    const SafeTensor *a = &s.tensor[0], *b = &s.tensor[1], *scalar = &s.tensor[3];
    CU_ASSERT(a->name.size == 8 && !memcmp(a->name.data, "a.weight", 8) && a->n_dims == 1 && a->dims[0] == 2);
    CU_ASSERT(a->offset == data && a->bytes == 8 && a->dtype.size == 3 && !memcmp(a->dtype.data, "F32", 3));
    CU_ASSERT(b->n_dims == 2 && b->dims[0] == 3 && b->dims[1] == 4 && b->offset == data + 8 && b->bytes == 24);
    CU_ASSERT(scalar->n_dims == 0 && scalar->offset == data + 32 && scalar->bytes == 1);
    safetensors_free(&s);
    safetensors_free(&s);
}

/* Refused with one line that has the words. */
static void refused(Made m, uint64_t file_bytes, const char *why) {
    Safetensors s;
    Err e = {""};
    CU_ASSERT_EQUAL(safetensors_from_memory(m.bytes, m.size, file_bytes, "f.safetensors", &s, &e), -1);
    bool right = strstr(e.msg, "f.safetensors") && strstr(e.msg, why) && !strchr(e.msg, '\n');
    CU_ASSERT(right);
    if (!right) printf("\n\"%s\" should name f.safetensors and say \"%s\"\n", e.msg, why);
    safetensors_free(&s);
    free(m.bytes);
}

static void refused_header(const char *header, size_t data, const char *why) {
    Made m = make(header, data);
    refused(m, m.size, why);
}

/* `inner`: what stands in the entry of tensor "x", with 8 bytes of data. */
static void refused_entry(const char *inner, const char *why) {
    char header[512];
    snprintf(header, sizeof header, "{\"x\":{%s}}", inner);
    refused_header(header, 8, why);
}

static void test_entries(void) {
    refused_entry("\"dtype\":\"F32\",\"shape\":[2]", "tensor x: \"data_offsets\" are no pair");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]", "no pair");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]", "no pair");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]", "no whole number");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-1,7]", "no whole number");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.5,8.5]", "no whole number");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1e300,1e300]", "no whole number");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]", "makes 8 bytes");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]", "makes 8 bytes");
    refused_entry("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]", "makes 12 bytes");
    refused_entry("\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]", "makes 4 bytes");
    refused_entry("\"dtype\":\"F7\",\"shape\":[2],\"data_offsets\":[0,8]", "dtype \"F7\" is not known");
    refused_entry("\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]", "\"dtype\" is no string");
    refused_entry("\"shape\":[2],\"data_offsets\":[0,8]", "\"dtype\" is missing");
    refused_entry("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]", "no number of bytes");
    refused_entry("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]", "\"shape\" is no list");
    refused_entry("\"dtype\":\"F32\",\"data_offsets\":[0,8]", "\"shape\" is no list");
    refused_entry("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]", "no whole number");
    refused_entry("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]", "more than 8 dimensions");
    refused_entry("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]", "too large");
    refused_entry("\"dtype\":\"F64\",\"shape\":[9007199254740992,64],\"data_offsets\":[0,8]", "no number of bytes");
    refused_entry("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"stride\":[1]", "\"stride\"");
    refused_header("{\"x\":[]}", 8, "tensor x: it is no object");
}

#define X                       "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"
#define ENTRY(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

static void test_places(void) {
    refused_header("{" X "," ENTRY("y", 2, 6) "}", 6, "tensor y begins at offset");
    refused_header("{" X "," ENTRY("y", 0, 4) "}", 4, "begins at offset");
    refused_header("{" X "," ENTRY("y", 5, 9) "}", 9, "tensor y begins at offset");
    refused_header("{" ENTRY("y", 1, 5) "}", 5, "tensor y begins at offset");
    refused_header("{" X "}", 5, "its tensors end at");
    refused_header("{" X "}", 3, "is the download complete?");
    refused_header("{" X "," ENTRY("y", 4, 8) "}", 4, "tensor y (4 bytes");
    refused_header("{" X "," ENTRY("y", 9007199254740988, 9007199254740992) "}", 8, "is the download complete?");
    refused_header("{" X "," ENTRY("x", 4, 8) "}", 8, "tensor x is there twice");
}

static void test_headers(void) {
    refused_header("", 0, "no '{'");
    refused_header("[]", 0, "no '{'");
    refused_header("{}", 0, "has no tensors");
    refused_header("{\"__metadata__\":{}}", 0, "has no tensors");
    refused_header("{" X, 4, "no JSON");
    refused_header("{" X "}}", 4, "something follows");
    refused_header("{\"\xff\":1}", 0, "no UTF-8");
    refused_header("{\"a\\u0000b\":1}", 0, "U+0000");
    Made m = make("{" X "}", 4);
    refused((Made){calloc(1, 7), 7}, 7, "ends at byte 7");
    memset(m.bytes, 0xff, 8);
    refused(m, m.size, "its header would have 18446744073709551615 bytes");
    m = make("{" X "}", 4);
    m.bytes[0] = 200;
    refused(m, m.size, "its header has 200 bytes");
    m = make("{" X "}", 4);
    m.size -= 10;
    refused(m, m.size + 10, "end inside its header");
    m = make("{" X "}", 4);
    refused(m, m.size - 1, "bytes given of a file");
}

/* Deep nesting and many entries end soon and take no more memory than their bytes warrant. */
static void test_absurd(void) {
    enum { DEEP = 1 << 20 };
    char *text = malloc(DEEP + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, '[', DEEP);
    memcpy(text, "{\"a\":", 5);
    text[DEEP] = 0;
    refused_header(text, 0, "no JSON");
    free(text);
}

static void test_cuts(void) {
    Made m = make("{" X "," ENTRY("y", 4, 8) "}", 8);
    for (size_t n = 0; n < m.size; n++) {
        uint8_t *exact = malloc(n + 1);
        Safetensors s;
        Err e = {""};
        if (!exact) abort();
        memcpy(exact, m.bytes, n);
        CU_ASSERT_EQUAL(safetensors_from_memory(exact, n, n, "f.safetensors", &s, &e), -1);
        CU_ASSERT(e.msg[0] && !strchr(e.msg, '\n') && strstr(e.msg, "f.safetensors"));
        safetensors_free(&s);
        free(exact);
    }
    free(m.bytes);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"a sound header", test_sound},
        {"broken entries", test_entries},
        {"overlaps and holes", test_places},
        {"broken headers", test_headers},
        {"deep nesting", test_absurd},
        {"every length", test_cuts},
        CU_TEST_INFO_NULL,
    };
    return check_run("safetensors", tests);
}
