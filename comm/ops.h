/* What the parts of comm share: the arithmetic they do on values, and how a vector is cut. */
#pragma once

#include "base/size.h"
#include "comm.h"

/* The three kernels that collectives need; see kernels.h. Plain C until comm_set_kernels. */
typedef struct Ops {
    void (*sum)(const float *const *src, int n_src, int64_t n, float *dst);
    void (*to_bf16)(const float *x, int64_t n, uint16_t *y);
    void (*from_bf16)(const uint16_t *x, int64_t n, float *y);
} Ops;

/* Whom the collective that runs now has waited for the longest, in shared memory and between hosts. */
typedef struct Slowest {
    int rank, host; /* rank: among those of this host */
    uint64_t rank_ns, host_ns;
    size_t host_bytes; /* that came meanwhile, from all hosts */
} Slowest;

/* Part [*begin, *end) of n values that carrier i of `parts` sums: multiples of 32 values (two cache lines), so that no
 * line has two writers; the last part may be shorter, and parts may be empty. */
static inline void slice_range(size_t n, int parts, int i, size_t *begin, size_t *end) {
    enum { UNIT = 32 };
    int64_t b, e;
    share_range(ceil_div((int64_t)n, UNIT), parts, i, &b, &e);
    *begin = (size_t)i64_min(b * UNIT, (int64_t)n);
    *end = (size_t)i64_min(e * UNIT, (int64_t)n);
}
