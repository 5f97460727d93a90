/* The plan: a graph divided over ranks. It is a value: every rank computes the same one from the same graph and
 * options. Nothing here communicates or knows what kind of model the graph is. All local.
 *
 * Every value of the planned graph has a sharding state. One rule per kind of operator (rules.c) maps the states of its
 * inputs to that of its output, and collectives are put in where a rule wants another state than there is. */
#pragma once

#include "graph/graph.h"

typedef enum ShardKind {
    SHARD_REPLICATED, /* every rank holds all of it, with the same bits */
    SHARD_SPLIT,      /* a rank holds some index ranges of one axis, one after the other */
    SHARD_PARTIAL,    /* every rank holds an addend of the whole; the value is their sum */
} ShardKind;

typedef enum ShardAxis {
    AXIS_FIRST,   /* tokens or images of an activation; outputs of a weight */
    AXIS_LAST,    /* features or channels of an activation; inputs of a weight */
    AXIS_EXPERTS, /* experts of a mixture: of a weight; of pairs, those of these experts */
} ShardAxis;

typedef struct Range {
    int64_t begin, end;
} Range;

enum { SHARD_PARTS = 4 };

typedef struct Shard {
    ShardKind kind;
    ShardAxis axis;
    int n_parts;        /* ranges of each rank */
    const Range *range; /* [n_ranks][n_parts], ascending for a rank; of different ranks they may overlap (a KV head that
                           two ranks need) and together cover the axis. An empty range is [begin, begin) of its part.
                           Owned by the plan */
} Shard;

typedef struct PlanOptions {
    int n_ranks;
    bool split_batch; /* images are divided over ranks, weights replicated; else channels and heads are divided */
} PlanOptions;

/* How a weight lies in memory, by what reads it. */
typedef enum WeightForm {
    WEIGHT_NONE,   /* nobody reads it */
    WEIGHT_PACKED, /* a matrix of a linear or an embedding, in panels */
    WEIGHT_F32,    /* widened: vectors, and the filters of convolutions */
    WEIGHT_PLAIN,  /* as it is: operands of plain operators, and results of a net that are constants */
} WeightForm;

typedef struct Plan {
    int n_ranks;
    Graph graph;      /* with collectives in place */
    Shard *shard;     /* [graph.n_values] */
    WeightForm *form; /* [values of the graph before planning] */
    uint64_t hash;    /* over all that decides what a rank computes */
    struct PlanMemory *memory;
} Plan;

int plan_make(const Graph *g, const PlanOptions *o, Plan **out, Err *e);
void plan_free(Plan *p);

/* Indices of axis `axis` of value v that `rank` holds, in all; and its ranges (n_parts of them; the whole axis as one
 * range when it is not split there). */
int64_t plan_local_size(const Plan *p, ValueId v, ShardAxis axis, int rank);
int plan_local_ranges(const Plan *p, ValueId v, ShardAxis axis, int rank, Range out[SHARD_PARTS]);
/* Matrices of a weight that `rank` holds: 1, or those of its experts. */
int64_t plan_local_matrices(const Plan *p, ValueId v, int rank);
/* A matrix of type t can be packed from these columns of each row: cut at whole groups, and where one range follows
 * another, at whole blocks of the file. */
bool plan_can_pack(QType t, const Range *r, int n);
/* PackedWeights.skip of a matrix as the rank holds it. */
int plan_weight_skip(const Plan *p, ValueId v, int rank);
/* Size of an axis before splitting; AXIS_EXPERTS: of weights only. */
int64_t plan_axis_size(const Plan *p, ValueId v, ShardAxis axis);

/* What a rank will hold and send. */
typedef struct PlanRankCost {
    int64_t heads, kv_heads; /* of the first attention */
    int64_t ffn_rows;        /* of the first gated product or GELU */
    int64_t experts;         /* of the first mixture; 0: there is none */
    int64_t vocab_rows;      /* of the first embedding */
    uint64_t weight_bytes;   /* packed */
    uint64_t macs_per_token; /* multiplications of weights with activations, one output row per token; of experts, those
                                that a token gets when all are as popular */
} PlanRankCost;
PlanRankCost plan_rank_cost(const Plan *p, int rank);

typedef struct PlanWire {
    int64_t collectives; /* in a step */
    uint64_t
        bytes_per_token; /* that a rank passes to others: 2 (N-1)/N of a summed vector, (N-1)/N of a gathered one */
} PlanWire;
PlanWire plan_wire(const Plan *p);
