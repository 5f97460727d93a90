/* Arenas: alignment, limits, residency. */
#include "base/arena.h"
#include "check.h"

#include <unistd.h>

static const size_t mb = (size_t)1 << 20;

static void test_alloc(void) {
    Err e = {0};
    Arena a;
    CU_ASSERT_FATAL(arena_create(&a, 3 * mb, -1, &e) == 0);
    CU_ASSERT(a.capacity == 4 * mb && a.node == -1);
    CU_ASSERT((uintptr_t)a.base % (2 * mb) == 0);
    uint8_t *p = arena_alloc(&a, 10, 0), *q = arena_alloc(&a, 100, 64), *r = arena_alloc(&a, 1, 4096);
    CU_ASSERT(p == a.base && q == a.base + 64 && r == a.base + 4096);
    CU_ASSERT(arena_alloc(&a, 4 * mb, 64) == NULL);
    CU_ASSERT(arena_alloc(&a, SIZE_MAX - 100, 64) == NULL);
    uint8_t *rest = arena_alloc(&a, 4 * mb - 4096 - 64, 64);
    CU_ASSERT_FATAL(rest == a.base + 4096 + 64);
    rest[4 * mb - 4096 - 64 - 1] = 7; /* the last byte is ours */
    CU_ASSERT(arena_alloc(&a, 1, 64) == NULL);
    arena_free(&a);
    CU_ASSERT(a.base == NULL && a.capacity == 0);
    arena_free(&a);
}

static void test_empty(void) {
    Err e = {0};
    Arena a, zero = {0};
    CU_ASSERT_FATAL(arena_create(&a, 0, 0, &e) == 0);
    CU_ASSERT(arena_alloc(&a, 0, 64) != NULL); /* a rank that holds nothing is no error */
    CU_ASSERT(arena_alloc(&a, 1, 64) == NULL);
    CU_ASSERT(arena_resident(&a) == 0);
    arena_free(&a);
    arena_free(&zero);
}

static void test_resident(void) {
    Err e = {0};
    Arena a;
    CU_ASSERT_FATAL(arena_create(&a, 64 * mb, 0, &e) == 0);
    CU_ASSERT(a.node == 0 || a.node == -1); /* -1 where the system forbids it */
    CU_ASSERT(arena_resident(&a) == 0);
    memset(a.base, 1, 10 * mb);
    size_t resident = arena_resident(&a);
    CU_ASSERT(resident >= 10 * mb && resident <= 12 * mb);
    a.base[40 * mb] = 1;
    size_t more = arena_resident(&a);
    CU_ASSERT(more > resident && more <= resident + 2 * mb);
    arena_free(&a);
}

static void test_refusals(void) {
    Err e = {0};
    Arena a;
    CU_ASSERT(arena_create(&a, SIZE_MAX - 5, -1, &e) == -1);
    CU_ASSERT(arena_create(&a, (size_t)1 << 60, -1, &e) == -1); /* beyond the address space */
    CU_ASSERT(strstr(e.msg, "cannot map") != NULL);
    CU_ASSERT(arena_create(&a, mb, 100000, &e) == -1);
    CU_ASSERT(strstr(e.msg, "no NUMA node 100000") != NULL);
    CU_ASSERT(a.base == NULL);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"alloc", test_alloc},
                                        {"empty", test_empty},
                                        {"resident", test_resident},
                                        {"refusals", test_refusals},
                                        CU_TEST_INFO_NULL};
    return check_run("arena", tests);
}
