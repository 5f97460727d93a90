/* Sessions on all ranks of a test's job: rank 0 runs the body, the others follow; and a record of logits by sequence
 * and position, so that the same tokens fed in different ways can be compared bit by bit. */
#pragma once

#include <math.h>
#include <unistd.h>

#include "check.h"
#include "comm/comm.h"
#include "engine/sheaf.h"
#include "tiny_model.h"

static Comm *job; /* the first communicator of a program starts MPI, so it lives as long as the program */

static inline int rank(void) { return comm_rank(job); }

/* Runs the table on all ranks. mpirun's status is not 0 when that of any rank is not. */
static inline int run_on_ranks(const char *suite, const CU_TestInfo *tests) {
    Err e;
    if (comm_create(&(CommOptions){0}, &job, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    int status = check_run(suite, tests);
    comm_free(job);
    return status;
}

/* A file name that all ranks of this job know and no other job has. */
static inline void shared_path(char path[64]) {
    static int count;
    int32_t pid = (int32_t)getpid();
    CU_ASSERT_FATAL(!comm_broadcast(job, &pid, sizeof pid, NULL));
    snprintf(path, 64, "/tmp/sheaf_model_%d_%d.gguf", pid, count++);
}

/* A file of that name that rank 0 writes. */
static inline void shared_model(char path[64], const TinyModel *m) {
    shared_path(path);
    if (rank() == 0) CU_ASSERT_FATAL(tiny_model_write(path, m));
    CU_ASSERT_FATAL(!comm_barrier(job, NULL));
}

static inline void remove_model(const char *path) {
    CU_ASSERT_FATAL(!comm_barrier(job, NULL));
    if (rank() == 0) unlink(path);
}

typedef void Body(SheafSession *s, void *arg); /* on rank 0 */

static inline bool opened(int status, const char *what, const SheafErr *e) {
    CU_ASSERT_EQUAL(status, 0);
    if (status && rank() == 0) printf("\n%s: %s", what, e->msg);
    return status == 0;
}

/* Opens everything on all ranks, runs the body, closes everything. */
static inline void with_session(const SheafRuntimeOptions *ro, const char *path, const SheafSessionOptions *so,
                                Body *body, void *arg) {
    SheafRuntime *rt;
    SheafModel *m;
    SheafSession *s;
    SheafErr e = {""};
    if (!opened(sheaf_runtime_open(ro, &rt, &e), "runtime", &e)) return;
    if (opened(sheaf_model_open(rt, path, &m, &e), path, &e)) {
        if (opened(sheaf_session_open(m, so, &s, &e), "session", &e)) {
            if (rank() == 0) body(s, arg);
            else opened(sheaf_follow(s, &e), "follow", &e);
            sheaf_session_close(s);
        }
        sheaf_model_close(m);
    }
    CU_ASSERT_EQUAL(sheaf_runtime_close(rt, &e), 0);
}

/* ---- logits by sequence and position ----------------------------------------------------------------------------- */

typedef struct Record {
    int n_seqs, n_ctx, vocab;
    float *logits;       /* [n_seqs][n_ctx][vocab] */
    SheafResult *result; /* [n_seqs][n_ctx] */
    float *step;         /* [n_seqs * n_ctx][vocab]: of one step */
    SheafResult *step_result;
} Record;

static inline Record record_make(int n_seqs, int n_ctx, int vocab) {
    size_t rows = (size_t)n_seqs * (size_t)n_ctx;
    return (Record){n_seqs,
                    n_ctx,
                    vocab,
                    calloc(rows * (size_t)vocab, sizeof(float)),
                    calloc(rows, sizeof(SheafResult)),
                    calloc(rows * (size_t)vocab, sizeof(float)),
                    calloc(rows, sizeof(SheafResult))};
}
static inline void record_free(Record *r) {
    free(r->logits);
    free(r->result);
    free(r->step);
    free(r->step_result);
}
static inline size_t record_row(const Record *r, int seq, int64_t pos) {
    return (size_t)seq * (size_t)r->n_ctx + (size_t)pos;
}
static inline float *record_logits(const Record *r, int seq, int64_t pos) {
    return r->logits + record_row(r, seq, pos) * (size_t)r->vocab;
}

/* One step; its outputs go to their places in the record. */
static inline bool feed(SheafSession *s, const SheafToken *t, size_t n, Record *r) {
    SheafErr e = {""};
    int status = sheaf_step(s, t, n, r->step_result, r->step, &e);
    CU_ASSERT_EQUAL(status, 0);
    if (status) printf("\nstep of %zu tokens: %s", n, e.msg);
    size_t row = 0;
    for (size_t i = 0; i < n && !status; i++) {
        if (!t[i].output) continue;
        memcpy(record_logits(r, t[i].seq, t[i].pos), r->step + row * (size_t)r->vocab,
               (size_t)r->vocab * sizeof(float));
        r->result[record_row(r, t[i].seq, t[i].pos)] = r->step_result[row++];
    }
    return status == 0;
}

/* Positions [from, to) of a sequence in steps of at most `chunk` tokens, every position an output. */
static inline void feed_range(SheafSession *s, int seq, const int32_t *ids, int from, int to, int chunk, Record *r) {
    SheafToken t[1024];
    for (int at = from; at < to;) {
        int n = 0;
        for (; n < chunk && at < to; n++, at++)
            t[n] = (SheafToken){.id = ids[at], .seq = seq, .pos = at, .target = -1, .output = true};
        if (!feed(s, t, (size_t)n, r)) return;
    }
}

static inline void forget(SheafSession *s, int seq, int64_t pos) {
    SheafErr e = {""};
    int status = sheaf_seq_truncate(s, seq, pos, &e);
    CU_ASSERT_EQUAL(status, 0);
    if (status) printf("\ntruncate: %s", e.msg);
}

/* The same bits for positions [from, to) of two records' sequences. */
static inline bool same_bits(const Record *a, int seq_a, const Record *b, int seq_b, int from, int to,
                             const char *what) {
    int wrong = -1;
    for (int p = from; p < to && wrong < 0; p++)
        if (memcmp(record_logits(a, seq_a, p), record_logits(b, seq_b, p), (size_t)a->vocab * sizeof(float))) wrong = p;
    CU_ASSERT(wrong < 0);
    if (wrong >= 0) printf("\n%s: position %d of sequence %d differs", what, wrong, seq_a);
    return wrong < 0;
}

/* Root mean square of the errors of positions 0 .. n - 1 of sequence 0, over that of the logits around their mean. */
static inline double record_error(const Record *r, const double *want, int n) {
    double errors = 0, squares = 0, mean = 0;
    for (int i = 0; i < n * r->vocab; i++) mean += want[i] / (n * r->vocab);
    for (int i = 0; i < n * r->vocab; i++) {
        double d = (double)record_logits(r, 0, i / r->vocab)[i % r->vocab] - want[i];
        errors += d * d;
        squares += (want[i] - mean) * (want[i] - mean);
    }
    return sqrt(errors / squares);
}

/* Token ids without order, from a seed. */
static inline void some_ids(int32_t *ids, int n, int vocab, uint64_t seed) {
    for (int i = 0; i < n; i++) ids[i] = (int32_t)((tiny_random(&seed) + 1.0f) / 2.0f * (float)vocab * 0.9999f);
}
