#include "base/arena.h"

#include "base/size.h"

#include <errno.h>
#include <numaif.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t huge_page = (size_t)2 << 20;

/* Prefers rather than forbids: a node that is full must not get the job killed, and what landed where is measured.
 * A system that does not let us (containers) leaves the arena unbound, which a->node says. */
static int bind_to_node(Arena *a, int node, Err *e) {
    unsigned long mask[16] = {0};
    enum { BITS = 8 * sizeof mask[0] };
    if ((size_t)node >= 8 * sizeof mask) return err_set(e, "there is no NUMA node %d", node);
    mask[node / BITS] |= 1ul << (node % BITS);
    if (mbind(a->base, a->capacity, MPOL_PREFERRED, mask, 8 * sizeof mask, 0) == 0) {
        a->node = node;
        return 0;
    }
    if (errno == EPERM || errno == ENOSYS) return 0;
    return err_errno(e, "cannot bind %zu bytes to NUMA node %d", a->capacity, node);
}

int arena_create(Arena *a, size_t bytes, int node, Err *e) {
    *a = (Arena){.node = -1};
    if (bytes == 0) return 0;
    size_t mapped;
    if (bytes > SIZE_MAX / 2 || !size_add(round_up(bytes, huge_page), huge_page, &mapped))
        return err_set(e, "an arena of %zu bytes is too large", bytes);
    uint8_t *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return err_errno(e, "cannot map %zu bytes", bytes);
    /* One page more than wanted was mapped; what lies before and after the aligned part goes back. */
    size_t skip = round_up((uintptr_t)p, huge_page) - (uintptr_t)p;
    if (skip) munmap(p, skip);
    if (skip < huge_page) munmap(p + mapped - (huge_page - skip), huge_page - skip);
    a->base = p + skip;
    a->capacity = mapped - huge_page;
    madvise(a->base, a->capacity, MADV_HUGEPAGE); /* a wish: without it the pages are small */
    if (node >= 0 && bind_to_node(a, node, e)) {
        arena_free(a);
        return -1;
    }
    return 0;
}

void arena_free(Arena *a) {
    if (a->capacity) munmap(a->base, a->capacity);
    *a = (Arena){.node = -1};
}

void *arena_alloc(Arena *a, size_t bytes, size_t align) {
    _Alignas(64) static uint8_t nothing[64]; /* what 0 bytes of an empty arena are */
    if (bytes == 0 && !a->capacity) return nothing;
    if (align < 64) align = 64;
    size_t begin = round_up(a->used, align), end;
    if (!size_add(begin, bytes, &end) || end > a->capacity) return NULL;
    a->used = end;
    return a->base + begin;
}

size_t arena_resident(const Arena *a) {
    enum { CHUNK = 4096 };
    unsigned char in_core[CHUNK];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), resident = 0;
    for (size_t at = 0; at < a->capacity; at += CHUNK * page) {
        size_t bytes = a->capacity - at < CHUNK * page ? a->capacity - at : CHUNK * page;
        if (mincore(a->base + at, bytes, in_core)) return resident;
        for (size_t i = 0; i < bytes / page; i++) resident += (in_core[i] & 1u) * page;
    }
    return resident;
}
