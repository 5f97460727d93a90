/* A Comm's inside, for the files of this folder. */
#pragma once

#include <mpi.h>

#include "network.h"
#include "shared.h"

enum { COMM_NAME_BYTES = 65 }; /* HOST_NAME_MAX and the end */

struct Comm {
    int rank, size, host, hosts, local_rank, local_size;
    int carriers; /* ranks of each host that take part in a large sum between hosts */
    bool owns_mpi, check;
    MPI_Comm world, local,
        peers; /* MPI_COMM_NULL where there is none; peers: this rank's counterparts on other hosts */
    char (*names)[COMM_NAME_BYTES]; /* [size]: each rank's host */
    int *host_of;                   /* [size] */
    int *local_of;                  /* [size]: each rank's number within its host */
    int *ranks;                     /* [local_size]: the ranks of this host */
    size_t *sizes, *offset;         /* [size]: scratch of agreements and of allgathers */
    size_t *local_sizes;            /* [local_size]: scratch */
    uint8_t **local_to;             /* [local_size]: scratch */
    uint64_t *gathered;             /* [2 size]: scratch of agreements and of the check */
    Shared *shared;                 /* NULL: alone on this host */
    Network *network;               /* NULL: one host, or this rank is no carrier */
    size_t piece_bytes;             /* of one piece of an allreduce, the same on all */
    Ops ops;
    CommStats stats;
};

/* Collectives without the check and without counting. */
int comm_raw_allgather(Comm *c, const void *mine, const size_t *n_bytes, void *out, Err *e);
/* One fixed-size item from each rank: out[size][bytes]. */
int comm_raw_gather_items(Comm *c, const void *mine, size_t bytes, void *out, Err *e);

/* With the option `check`: compares a hash of `bytes` at `result` over all ranks; an error names the collective, its
 * number and who differs. Without it: 0. Collective. */
int comm_check(Comm *c, const char *what, size_t n, const void *result, size_t bytes, Err *e);
