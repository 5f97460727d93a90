/* The executor: a plan compiled for one rank into a list of steps over buffers laid out once, and a walk over that
 * list. exec_run allocates nothing. */
#pragma once

#include "base/pool.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "partition/plan.h"
#include "partition/weights.h"

/* The layers whose attention has the same window share block tables: each has `blocks` blocks of 64 positions. */
enum { KV_POOLS = 4 };
typedef struct KvPoolSize {
    int64_t window; /* 0: all positions are seen */
    int64_t blocks;
} KvPoolSize;

typedef struct ExecOptions {
    int64_t max_tokens, max_outputs; /* what T and R may be */
    KvPoolSize pool[KV_POOLS];       /* [n_pools] of different windows */
    int n_pools;
    int64_t context; /* positions a sequence may have: chooses between rotations */
    int top;         /* candidates of OP_STATS at most */
} ExecOptions;

/* Rows [row0, row0 + n_rows) of a step are one sequence's tokens at consecutive positions from pos0. */
typedef struct ExecSpan {
    int64_t row0, n_rows, pos0;
    int64_t end;                    /* positions the sequence has after this step */
    const int32_t *table[KV_POOLS]; /* the sequence's blocks in each pool, by position / 64 */
} ExecSpan;

typedef struct ExecStep {
    int64_t n_tokens, n_outputs;
    const ExecSpan *span; /* of at most ATTN_ROWS rows each, together all rows in order */
    size_t n_spans;
    int top; /* candidates wanted of OP_STATS now */
} ExecStep;

/* What OP_STATS says of a row of this rank's part of the logits; candidates stand in exec_candidates. */
typedef struct RowStats {
    float max, sum; /* sum of exp(x - max) over the part; -INFINITY and 0 for an empty part */
    float target;   /* the target's logit, NAN when it is not in this part */
    int32_t n_top;  /* candidates there are: at most step.top and the part's size */
} RowStats;
typedef struct Candidate {
    int32_t id; /* of the whole vocabulary */
    float logit;
} Candidate;

/* The index of the pool whose blocks a state has, -1: none has its window. */
int exec_pool(const ExecOptions *o, const Value *state);

typedef struct Exec Exec;

/* Collective only in that all ranks of `comm` make one from the same plan. Everything given must outlive it. `rank` is
 * the rank of the plan. The caller frees *out with exec_free. */
int exec_create(const Plan *p, int rank, const Weights *w, const Kernels *k, Pool *pool, Comm *comm,
                const ExecOptions *o, Exec **out, Err *e);
void exec_free(Exec *x);

/* The memory of an input (this rank's part, rows one after the other), to be filled before exec_run; NULL: no such
 * input. */
void *exec_input(Exec *x, const char *name);
void *exec_nth_input(Exec *x, int i); /* the i-th of the graph's values that are inputs */
/* Runs the list. Collective. An error leaves the job unusable: the ranks no longer agree. */
int exec_run(Exec *x, const ExecStep *s, Err *e);

/* Output i of the graph after exec_run, rows x columns; for OP_STATS [R] RowStats. Valid until the next run. */
const void *exec_output(const Exec *x, int i);
const Candidate *exec_candidates(const Exec *x, int64_t row); /* [top] */
/* This rank's logits of a row (the input of OP_STATS) and the index of the first; *n of them. */
const float *exec_logits(const Exec *x, int64_t row, int64_t *first, int64_t *n);

/* Bytes of activations and states that rank `rank` of a plan would need, without making anything. Local. */
int exec_plan_bytes(const Plan *p, int rank, const ExecOptions *o, uint64_t *activations, uint64_t *states, Err *e);
uint64_t exec_activation_bytes(const Exec *x);
uint64_t exec_state_bytes(const Exec *x);
