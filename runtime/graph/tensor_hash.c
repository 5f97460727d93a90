#include "graph/tensor_hash.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/size.h"
#include "graph/model_file_internal.h"

uint64_t tensor_hash_add(uint64_t hash, Text name, uint32_t type_id, const uint64_t dims[4]) {
    const uint64_t rest[] = {type_id, dims[0], dims[1], dims[2], dims[3]};
    return XXH64(rest, sizeof rest, XXH64(name.data, name.size, hash));
}

int hash_cut(size_t tensor, uint64_t bytes, HashPiece **piece, size_t *n, size_t *room) {
    for (uint64_t at = 0; at < bytes; at += HASH_PIECE) {
        if (grow((void **)piece, *n, room, sizeof **piece)) return -1;
        (*piece)[(*n)++] = (HashPiece){tensor, at, (size_t)i64_min(HASH_PIECE, (int64_t)(bytes - at))};
    }
    return 0;
}

typedef struct Run {
    const HashJob *job;
    atomic_size_t next, done;
    atomic_bool failed;
    Err err; /* of the first thread that failed */
} Run;

static void worker(void *arg, int thread, int n_threads) {
    (void)n_threads;
    Run *r = arg;
    const HashJob *job = r->job;
    Err err = {""};
    uint8_t *buffer = malloc(HASH_PIECE);
    int failed = buffer ? 0 : err_set(&err, "out of memory for a buffer to hash tensors");
    while (!failed && !atomic_load(&r->failed)) {
        size_t i = job->first + atomic_fetch_add(&r->next, 1) * job->step;
        if (i >= job->n) break;
        failed = job->read(job->arg, &job->piece[i], buffer, &err);
        if (!failed) job->hash[i] = XXH64(buffer, job->piece[i].bytes, 0);
        size_t done = atomic_fetch_add(&r->done, job->step);
        if (thread == 0 && job->progress)
            job->progress(job->progress_arg, (uint64_t)i64_min((int64_t)done, (int64_t)job->n) * HASH_PIECE,
                          (uint64_t)job->n * HASH_PIECE);
    }
    free(buffer);
    if (failed && !atomic_exchange(&r->failed, true)) r->err = err;
}

int hash_run(const HashJob *job, Pool *pool, Err *e) {
    Run r = {.job = job};
    pool_run(pool, worker, &r);
    if (!atomic_load(&r.failed)) return 0;
    if (e) *e = r.err;
    return -1;
}
