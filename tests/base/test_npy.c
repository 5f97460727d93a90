/* .npy files: headers as numpy writes them, and what is refused. */
#include "base/npy.h"

#include <string.h>

#include "check.h"

/* A file with that header text and n bytes of data. */
static size_t make(uint8_t *to, const char *header, size_t n) {
    size_t length = strlen(header);
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    to[8] = (uint8_t)(length & 255);
    to[9] = (uint8_t)(length >> 8);
    memcpy(to + 10, header, length);
    for (size_t i = 0; i < n; i++) to[10 + length + i] = (uint8_t)i;
    return 10 + length + n;
}

static void test_read(void) {
    static const struct {
        const char *header;
        size_t bytes;
        char kind;
        int size, n_dims;
        int64_t dim[3];
    } cases[] = {{"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24, 'f', 4, 2, {2, 3}},
                 {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n", 5, 'u', 1, 1, {5}},
                 {"{'shape': (), 'fortran_order': False, 'descr': '<i8'}\n", 8, 'i', 8, 0, {0}},
                 {"{'descr': '|b1', 'fortran_order': True, 'shape': (7,), }", 7, 'b', 1, 1, {7}},
                 {"{'descr': '<f2', 'fortran_order': False, 'shape': (0, 9, 2), }", 0, 'f', 2, 3, {0, 9, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[256];
        Npy a;
        Err e = {""};
        size_t n = make(file, cases[i].header, cases[i].bytes);
        CU_ASSERT_FATAL(!npy_parse(file, n, "file", &a, &e));
        CU_ASSERT(a.kind == cases[i].kind && a.bytes == cases[i].size && a.n_dims == cases[i].n_dims);
        for (int k = 0; k < a.n_dims; k++) CU_ASSERT_EQUAL(a.dim[k], cases[i].dim[k]);
        CU_ASSERT(a.n_bytes == cases[i].bytes && (!a.n_bytes || a.data[a.n_bytes - 1] == a.n_bytes - 1));
        for (size_t cut = 0; cut < n; cut++) CU_ASSERT(npy_parse(file, cut, "file", &a, &e) == -1 && e.msg[0]);
        CU_ASSERT(npy_parse(file, n + 1, "file", &a, &e) == -1);
    }
}

static void test_refused(void) {
    static const char *const headers[] = {
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }",
        "{'descr': '<f4', 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2), }",
        "",
        "nonsense"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        uint8_t file[256];
        Npy a;
        Err e = {""};
        size_t n = make(file, headers[i], 8);
        int status = npy_parse(file, n, "name of the file", &a, &e);
        CU_ASSERT_EQUAL(status, -1);
        CU_ASSERT(strstr(e.msg, "name of the file") != NULL);
        if (!status) printf("\naccepted: %s", headers[i]);
    }
}

/* A header that is written is read again. */
static void test_write(void) {
    const uint8_t data[24] = {1, 2, 3};
    const Npy arrays[] = {{'f', 4, 2, {2, 3}, data, 24}, {'u', 1, 0, {0}, data, 1}, {'i', 2, 1, {9}, data, 18}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        StrBuf out = {0};
        Npy a;
        Err e = {""};
        npy_header(&arrays[i], &out);
        CU_ASSERT_EQUAL(out.len % 64, 0);
        strbuf_add(&out, (const char *)data, arrays[i].n_bytes);
        CU_ASSERT_FATAL(!out.failed && !npy_parse((const uint8_t *)out.data, out.len, "file", &a, &e));
        CU_ASSERT(a.kind == arrays[i].kind && a.bytes == arrays[i].bytes && a.n_dims == arrays[i].n_dims);
        CU_ASSERT(memcmp(a.dim, arrays[i].dim, sizeof a.dim) == 0);
        CU_ASSERT(a.n_bytes == arrays[i].n_bytes && memcmp(a.data, data, a.n_bytes) == 0);
        strbuf_free(&out);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"read", test_read}, {"refused", test_refused}, {"written", test_write}, CU_TEST_INFO_NULL};
    return check_run("npy", tests);
}
