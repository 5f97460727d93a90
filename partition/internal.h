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

/* plan.c */
Range *planner_ranges(Planner *pl, int n_parts); /* zeroed [n_ranks][n_parts], owned by the plan; NULL on failure */
void planner_fail(Planner *pl, const char *name, const char *what);
void planner_set(Planner *pl, ValueId v, Shard s);
static inline Range *shard_at(const Shard *s, int rank) {
    return (Range *)s->range + (size_t)rank * (size_t)s->n_parts;
}
bool shard_equal(const Plan *p, const Shard *a, const Shard *b);
