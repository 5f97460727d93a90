/* What the programs that run on several ranks share: communicators of each kind over the same job, vectors that any
 * rank can compute for any other, and the sum that comm.h promises, computed here in plain scalar code. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "check.h"
#include "comm/comm.h"

enum { MAX_RANKS = 64 };

/* The first communicator of a program starts MPI and so is freed last; tests make others beside it. */
static Comm *job;

static inline void print_lost(void *arg, const Err *why) {
    (void)arg;
    fprintf(stderr, "lost: %s\n", why->msg);
}

static inline Comm *make_comm(bool each_rank_a_host, bool check, Wire wire) {
    Comm *c = NULL;
    Err e = {0};
    CommOptions o = {.each_rank_a_host = each_rank_a_host, .check = check, .wire = wire, .lost = print_lost};
    if (comm_create(&o, &c, &e)) {
        fprintf(stderr, "comm_create: %s\n", e.msg);
        exit(1);
    }
    return c;
}

/* Runs the table on all ranks; the status is that of this rank, and mpirun's is not 0 when any rank's is not. */
static inline int run_on_ranks(const char *suite, const CU_TestInfo *tests) {
    job = make_comm(false, false, WIRE_F32);
    int status = check_run(suite, tests);
    comm_free(job);
    return status;
}

/* An assertion that shows the message of the Err beside it. */
static inline void check_ok(int rc, const Err *e, const char *what) {
    if (rc) fprintf(stderr, "rank %d: %s: %s\n", comm_rank(job), what, e->msg);
    CU_ASSERT_EQUAL(rc, 0);
}

/* splitmix64, https://prng.di.unimi.it/splitmix64.c (public domain), written anew. */
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Element i of rank r's vector: magnitudes over six decades and both signs, so that the order of a sum shows. */
static inline float element(uint64_t seed, int r, size_t i) {
    uint64_t h = mix(seed * 0x10001u + (uint64_t)r * 0x9e3779b1u + i * 0x85ebca6bu);
    float f = (float)((double)(h >> 40) / 16777216.0 - 0.5);
    return ldexpf(f, (int)(h & 15) - 8);
}
static inline uint8_t byte_of(uint64_t seed, int r, size_t i) { return (uint8_t)mix(seed + (uint64_t)r * 7919u + i); }

/* Each rank's host, in order of first appearance, from the names alone. Returns how many. */
static inline int hosts_of(const Comm *c, bool each_rank_a_host, int *host) {
    int n = 0;
    for (int r = 0; r < comm_size(c); r++) {
        int q = 0;
        while (q < r && (each_rank_a_host || strcmp(comm_host_name(c, q), comm_host_name(c, r)))) q++;
        host[r] = q < r ? host[q] : n++;
    }
    return n;
}

/* Round to nearest even by the bits: half a unit, less one when the last kept bit is 0. */
static inline float as_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u += 0x7fffu + ((u >> 16) & 1);
    u &= 0xffff0000u;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The sum over ranks of element i as comm.h defines it. `wire`: what the network carries, if there is a network. */
static inline float expected_sum(const Comm *c, const int *host, int hosts, Wire wire, uint64_t seed, size_t i) {
    float sum = 0;
    for (int h = 0; h < hosts; h++) {
        float part = 0;
        bool first = true;
        for (int r = 0; r < comm_size(c); r++) {
            if (host[r] != h) continue;
            part = first ? element(seed, r, i) : part + element(seed, r, i);
            first = false;
        }
        if (hosts > 1 && wire == WIRE_BF16) part = as_bf16(part);
        sum = h ? sum + part : part;
    }
    return hosts > 2 && wire == WIRE_BF16 ? as_bf16(sum) : sum;
}
