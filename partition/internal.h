/* What the files of partition/ share while a plan is being made. */
#pragma once

#include "partition/plan.h"

/* What the readers of a value would like: its last axis in units (0: no wish), or in given ranges. */
typedef struct Wish {
    int64_t unit;
    Shard split; /* n_parts 0: not given */
    bool whole;  /* wanted everywhere, and cheaper to compute there than to gather */
} Wish;

typedef struct Planner {
    Plan *p;
    const Graph *old; /* the graph before partitioning */
    const PlanOptions *o;
    Wish *wish;       /* [old->n_values] */
    ValueId *replica; /* [old->n_values] the replicated form of a value, -1: not made yet */
    int32_t cap_shards;
    Err *e;
    bool failed;
} Planner;

/* wishes.c: walks the graph backwards and fills `wish`. */
void planner_wishes(Planner *pl);
/* The ranges in which the value's readers want its last axis: n_parts 0 when they have no common wish. */
Shard planner_wanted(Planner *pl, ValueId v);
/* n indices in units, shared out evenly; units are never cut but for the last. */
Shard planner_even(Planner *pl, ShardAxis axis, int64_t n, int64_t unit);

/* How a mixture's experts are divided, from its OP_GROUP: whole ones over the ranks, or REPLICATED: every rank has its
 * part of each. */
Shard planner_experts(Planner *pl, const Op *group);

/* rules.c: pushes the operator, with what it needs before it, into the plan's graph. */
void planner_apply(Planner *pl, const Op *old);
ValueId planner_replicated(Planner *pl, ValueId v);

ValueId planner_split(Planner *pl, ValueId v, Shard to); /* v in that state: a slice when it has another */
void planner_push(Planner *pl, const Op *op, Shard out); /* the operator, its results in that state */
static inline Shard *planner_shard(Planner *pl, ValueId v) { return &pl->p->shard[v]; }

/* rules_net.c */
void planner_conv(Planner *pl, Op *op);
void planner_plain(Planner *pl, Op *op); /* plain operators and pooling */
/* The result's last axis is the last axis of its first input, element by element: a division of it passes through. */
bool op_keeps_last_axis(const Graph *g, const Op *op);
/* Weights and biases split by output, the segments of the output's shard. */
void planner_split_outputs(Planner *pl, const Op *op, int n_weights, bool bias, const Shard *out);
/* linear, or a convolution with one group. */
void planner_matmul(Planner *pl, Op *op, int n_weights, bool bias);

/* plan.c */
Range *planner_ranges(Planner *pl, int n_parts); /* zeroed [n_ranks][n_parts], owned by the plan; NULL on failure */
void planner_fail(Planner *pl, const char *name, const char *what);
void planner_set(Planner *pl, ValueId v, Shard s);
static inline Range *shard_at(const Shard *s, int rank) {
    return (Range *)s->range + (size_t)rank * (size_t)s->n_parts;
}
bool shard_equal(const Plan *p, const Shard *a, const Shard *b);
