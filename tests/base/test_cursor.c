/* Errors as values and the bounded reader. */
#include "base/cursor.h"
#include "base/size.h"
#include "check.h"

#include <errno.h>

static void test_err(void) {
    Err e;
    CU_ASSERT(err_set(&e, "tensor %s: bad %d", "w", 3) == -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "tensor w: bad 3");
    CU_ASSERT(err_context(&e, "file %s", "m.gguf") == -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "file m.gguf: tensor w: bad 3");
    errno = ENOENT;
    CU_ASSERT(err_errno(&e, "cannot open %s", "x") == -1);
    CU_ASSERT(!strncmp(e.msg, "cannot open x: ", 15) && strlen(e.msg) > 15);
    CU_ASSERT(err_set(NULL, "nobody asks") == -1 && err_context(NULL, "a") == -1 && err_errno(NULL, "b") == -1);
    char big[2000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    err_set(&e, "%s", big);
    CU_ASSERT(strlen(e.msg) == sizeof e.msg - 1);
    err_context(&e, "front");
    CU_ASSERT(!strncmp(e.msg, "front: xxx", 10) && strlen(e.msg) == sizeof e.msg - 1);
}

static void test_reads(void) {
    static const uint8_t bytes[] = {1, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12, 8, 7, 6, 5, 4, 3, 2, 1, 0xaa, 0xbb};
    Cursor c = {.base = bytes, .size = sizeof bytes, .name = "message"};
    Err e;
    uint8_t a;
    uint16_t b;
    uint32_t d;
    uint64_t f;
    const uint8_t *p;
    CU_ASSERT(cursor_u8(&c, &a, &e) == 0 && a == 1);
    CU_ASSERT(cursor_u16(&c, &b, &e) == 0 && b == 0x1234);
    CU_ASSERT(cursor_u32(&c, &d, &e) == 0 && d == 0x12345678);
    CU_ASSERT(cursor_u64(&c, &f, &e) == 0 && f == 0x0102030405060708);
    CU_ASSERT(cursor_left(&c) == 2);
    CU_ASSERT(cursor_u32(&c, &d, &e) == -1 && cursor_left(&c) == 2); /* nothing was consumed */
    CU_ASSERT_STRING_EQUAL(e.msg, "message: ends at byte 17, but 4 bytes are wanted at offset 15");
    CU_ASSERT(cursor_bytes(&c, UINT64_MAX, &p, &e) == -1);
    CU_ASSERT(cursor_bytes(&c, 2, &p, &e) == 0 && p == bytes + 15);
    CU_ASSERT(cursor_u8(&c, &a, &e) == -1);
    CU_ASSERT(cursor_bytes(&c, 0, &p, &e) == 0);
}

static void test_align(void) {
    static const uint8_t bytes[40] = {0};
    Cursor c = {.base = bytes, .size = sizeof bytes, .name = "x"};
    Err e;
    CU_ASSERT(cursor_align(&c, 32, &e) == 0 && c.pos == 0);
    c.pos = 1;
    CU_ASSERT(cursor_align(&c, 32, &e) == 0 && c.pos == 32);
    c.pos = 33;
    CU_ASSERT(cursor_align(&c, 32, &e) == -1 && c.pos == 33);
}

static void test_sizes(void) {
    size_t n;
    CU_ASSERT(size_mul(1u << 31, 1u << 31, &n) && n == (size_t)1 << 62);
    CU_ASSERT(!size_mul(SIZE_MAX / 2, 3, &n) && !size_add(SIZE_MAX, 1, &n));
    CU_ASSERT(ceil_div(10, 3) == 4 && ceil_div(9, 3) == 3 && round_up(65, 64) == 128 && round_up(0, 64) == 0);
    /* 9 heads on 4 ranks: 3 + 2 + 2 + 2; 3 on 4: the last has none. */
    int64_t b, e, covered = 0;
    static const int64_t want[] = {3, 2, 2, 2};
    for (int i = 0; i < 4; i++) {
        share_range(9, 4, i, &b, &e);
        CU_ASSERT(b == covered && e - b == want[i]);
        covered = e;
    }
    share_range(3, 4, 3, &b, &e);
    CU_ASSERT(b == 3 && e == 3);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"err", test_err}, {"reads", test_reads}, {"align", test_align}, {"sizes", test_sizes}, CU_TEST_INFO_NULL};
    return check_run("cursor", tests);
}
