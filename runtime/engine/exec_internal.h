/* What the executor's files share: steps, buffers, and the functions that carry out a step. */
#pragma once

#include <stdatomic.h>

#include "base/arena.h"
#include "base/size.h"
#include "engine/exec.h"
#include "kernels/conv.h"

/* A value on this rank: rows x columns with a row stride, or quantised rows. */
typedef struct Buf {
    uint8_t *data;
    int64_t rows;     /* when constant */
    DimSym sym;       /* of the rows */
    int64_t columns;  /* local */
    int64_t ld;       /* values from row to row */
    int64_t capacity; /* rows the memory has room for */
    QType type;
    int64_t h, w;         /* of an image; rows are n * h * w */
    int experts;          /* of pairs and their groups: the experts of this rank */
    const int32_t *begin; /* [experts + 1] the pairs of each are rows [begin[i], begin[i + 1]) */
} Buf;

/* What stands in the memory of groups, of which a step's OP_GROUP fills what it needs. */
typedef struct Groups {
    int32_t *begin; /* [experts + 1], of this rank's experts */
    int32_t *row;   /* [T][used] of each pair, as in the routing; -1: another rank's */
    int32_t *token; /* [P] of each row */
} Groups;

/* Heads that share a KV head on this rank. */
typedef struct HeadGroup {
    int kv_head, q_head0, q_head1;
} HeadGroup;

typedef struct Step Step;
typedef void StepFn(Exec *x, const Step *s, int thread, int n_threads);

struct Step {
    StepFn *run;
    const Op *op;
    CommPlace place; /* what comm says this rank was last seen in */
    Buf in[OP_IN], out;
    const LocalWeight *w[LINEAR_MAX]; /* linear, embed, conv, norm */
    const float *bias[LINEAR_MAX];
    int n_weights;
    int64_t panel_pairs;     /* linear: over all weights */
    int64_t first;           /* embed, stats: first index of the local part of the vocabulary */
    Range part[SHARD_PARTS]; /* slice: columns of the input */
    int n_parts;
    KvShape kv;
    uint8_t *state;
    int pool; /* KV store, attention: whose blocks the state has */
    HeadGroup *group;
    int n_groups, n_heads; /* local query heads */
    Conv *conv;
    Nd *nd;               /* plain operators: [n_in + 1] operands, then the result */
    float table_scale;    /* rope table: of cosine and sine */
    double *freq;         /* rope table: [rope_dim / 2] angles per position */
    size_t *gather_bytes; /* allgather: [n_ranks], scratch of a run */
    uint8_t *gather;      /* all ranks' parts, one after the other */
};

struct Exec {
    const Plan *plan;
    int rank;
    const Weights *weights;
    const Kernels *k;
    Pool *pool;
    Comm *comm;
    ExecOptions o;
    Step *step;
    int32_t n_steps;
    Buf *buf; /* [plan->graph.n_values] */
    Arena activations, states;
    float *scratch; /* [threads][scratch_columns] */
    int64_t scratch_columns;
    Candidate *candidate; /* [max_outputs][o.top] */
    int32_t *top_ids;     /* [threads][o.top] */
    float *top_values;
    int32_t stats_step; /* index of the OP_STATS step, -1: none */
    /* of the step that runs now */
    const ExecStep *now;
    atomic_int failed_at; /* the first step that failed, n_steps: none */
    Err err;              /* of that step */
};

static inline int64_t buf_rows(const Exec *x, const Buf *b) {
    switch (b->sym) {
    case DIM_TOKENS: return x->now->n_tokens;
    case DIM_OUTPUTS: return x->now->n_outputs;
    case DIM_PAIRS: return b->begin[b->experts];
    default: return b->rows;
    }
}
/* This thread's rows [*r0, *r1) of a buffer. */
static inline void buf_share(const Exec *x, const Buf *b, int thread, int n, int64_t *r0, int64_t *r1) {
    share_range(buf_rows(x, b), n, thread, r0, r1);
}
static inline float *buf_row(const Buf *b, int64_t r) { return (float *)(void *)b->data + r * b->ld; }
static inline ActQ buf_act(const Exec *x, const Buf *b) {
    return act_view(b->data, b->capacity, buf_rows(x, b), b->columns, qtype_planes(b->type));
}
/* Quantised rows that stand by themselves, [*row0, *row1) of the buffer: the pairs of an expert, which its matmul reads
 * alone; else all rows. */
ActQ buf_act_part(const Exec *x, const Buf *b, int expert, int64_t *row0, int64_t *row1);
/* The same, where row r is among them. */
ActQ buf_act_around(const Exec *x, const Buf *b, int64_t r, int64_t *row0, int64_t *row1);
/* Of the value that an OP_GROUP makes; and its bytes. */
Groups buf_groups(const Buf *b);
size_t groups_bytes(const Buf *b);
/* Values from buf to buf that stand one after the other. */
static inline bool buf_dense(const Buf *b) { return b->ld == b->columns; }

/* A step of the list failed, on any thread: the run ends after it. The first failure counts. */
void exec_fail(Exec *x, const Step *s, const Err *e);

/* layout.c: buffers for every value, from the lives of values; and the bytes of a state. */
int exec_layout(Exec *x, Err *e);
/* A slice that is one piece needs no copy, unless a reader wants its rows without the other columns between them. */
bool slice_is_alias(const Exec *x, const Op *op);
int exec_state_size(const Plan *p, int rank, const ExecOptions *o, ValueId v, size_t *bytes, Err *e);
/* compile.c fills the steps; step_function names what carries one out, NULL: the operator needs no step. */
StepFn *step_function(OpKind k);

StepFn step_embed, step_linear, step_norm, step_quantise, step_rope_table, step_rope, step_kv_store, step_attention,
    step_gated, step_gelu, step_headnorm, step_scale, step_select, step_mean_rows,
    step_stats; /* steps_lm.c, steps_attention.c */
StepFn step_route, step_group, step_dispatch, step_combine, step_gate_rows, step_expert_linear; /* steps_experts.c */
StepFn step_add, step_plain, step_conv, step_allreduce, step_allgather, step_slice; /* steps_cnn.c, steps_comm.c */
