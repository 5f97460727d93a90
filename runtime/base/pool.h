/* One pool of threads per rank. The caller of pool_run is thread 0; the others spin for a bounded time, then sleep. */
#pragma once

#include "base/err.h"

typedef struct Pool Pool;
typedef void PoolFn(void *arg, int thread, int n_threads);

/* n_threads >= 1. `cpus` (n_threads logical CPU numbers, or NULL to leave threads unpinned): thread i, the caller
 * included, is pinned to cpus[i]. The caller owns *out and frees it with pool_free. Local. */
int pool_create(int n_threads, const int *cpus, Pool **out, Err *e);
void pool_free(Pool *p);
int pool_size(const Pool *p);

/* Runs fn(arg, thread, n_threads) on every thread and returns when all have. Not reentrant. Local. */
void pool_run(Pool *p, PoolFn *fn, void *arg);

/* Inside pool_run: returns when every thread has called it; memory written before is visible after. Costs about
 * 0.1-0.2 us while all threads are running on their own cores; yields the CPU when others share it. */
void pool_barrier(Pool *p);
