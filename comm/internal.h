/* A Comm's inside, for the files of this folder. */
#pragma once

#include <mpi.h>

#include "network.h"
#include "pulse.h"
#include "shared.h"
#include "usual.h"

struct Comm {
    Job job;
    int carriers; /* ranks of each host that take part in a large sum between hosts */
    bool owns_mpi, check;
    Wire wire;
    MPI_Comm world, local,
        peers;              /* MPI_COMM_NULL where there is none; peers: this rank's counterparts on other hosts */
    int *ranks;             /* [local_size]: the ranks of this host */
    size_t *sizes, *offset; /* [size]: scratch of agreements and of allgathers */
    size_t *local_sizes;    /* [local_size]: scratch */
    uint8_t **local_to;     /* [local_size]: scratch */
    uint64_t *gathered;     /* [2 size]: scratch of agreements and of the check */
    Shared *shared;         /* NULL: alone on this host */
    Network *network;       /* NULL: one host, or this rank is no carrier */
    size_t piece_bytes;     /* of one piece of an allreduce, the same on all */
    Pulse *pulse;           /* NULL: one rank */
    LifeTable *table;       /* what the ranks tell of themselves: in the host's shared memory, or own_table */
    LifeTable *own_table;
    Life *life;                              /* this rank's */
    void (*lost)(void *arg, const Err *why); /* the caller's, as in CommOptions */
    void (*warn)(void *arg, const Err *what);
    void *arg;
    Ops ops;
    CommStats stats;
    Slowest slowest;
    Usual usual; /* waits of sums and gathers */
    bool warned;
};

/* Ranks of each host that take part in a sum of n values between hosts, within one piece. */
int comm_carriers(const Comm *c, size_t n);

/* Collectives without the check and without counting. */
int comm_raw_allgather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e);
/* One fixed-size item from each rank: out[size][bytes]. */
int comm_raw_gather_items(Comm *c, const void *mine, size_t bytes, void *out, Err *e);

/* With the option `check`: compares a hash of `bytes` at `result` over all ranks; an error names the collective, its
 * number and who differs. Without it: 0. Collective. */
int comm_check(Comm *c, const char *what, size_t n, const void *result, size_t bytes, Err *e);
