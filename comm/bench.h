/* How fast sums over the ranks are, beside MPI's own and what the machine can do. */
#pragma once

#include "comm.h"

enum { COMM_BENCH_ROUNDS = 1000, COMM_BENCH_ROWS = 32 };

typedef struct CommTiming {
    bool between_hosts; /* over all ranks, through the network; else over those of rank 0's host, in shared memory */
    bool two_shot;      /* everyone sums a slice, then all gather the slices; else everyone sums everything */
    bool chosen;        /* comm_allreduce does it this way for this size */
    size_t bytes;
    double us, least_us; /* of a sum: the median of the rounds, and the least */
    double mpi_us;       /* of MPI_Allreduce over the same ranks, in turns with it: the median */
    /* What a sum cannot be faster than. In a host: a cache line's way from one core to another, and copying the
     * 2 (R-1) / R of the bytes that each of R ranks must have from others, each having just written them. Between H
     * hosts: a bare MPI message of 2 (H-1) / H of them (on a bf16 wire of half that) each way, divided over the ranks
     * that carry it; or the limit in the host, where that is more. */
    double limit_us;
} CommTiming;

typedef struct CommBench {
    double flag_us;    /* one way, half a round trip; 0: rank 0 is alone on its host */
    double message_us; /* the same of an empty MPI message between the first two hosts; 0: one host */
    int n;
    CommTiming row[COMM_BENCH_ROWS];
} CommBench;

/* `rounds`: 1 to COMM_BENCH_ROUNDS. Sizes after one that takes half a second are left out. What is measured is filled
 * in on rank 0. Collective, with two ranks or more; a failure that cannot be agreed ends the job (comm_fail). */
int comm_bench(Comm *c, int rounds, CommBench *out, Err *e);
