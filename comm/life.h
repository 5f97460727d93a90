/* What each rank tells of itself, in memory that the ranks of a host share. Words have one writer and are read now and
 * then by the others' Pulse; all accesses are relaxed but for the verdict. */
#pragma once

#include <stdatomic.h>

#include "comm.h"
#include "verdict.h"

enum { PLACE_WORDS = sizeof(CommPlace) / sizeof(uint64_t) };

typedef struct Life {
    /* by the main thread */
    _Alignas(128) _Atomic uint64_t calls; /* 2 n + 1 inside collective n, else 2 n */
    _Atomic uint64_t moves;               /* grows with each place come to and each message that arrived */
    _Atomic uint64_t place[PLACE_WORDS];  /* a CommPlace; the first word is 0 outside of a step */
    _Atomic uint32_t interrupted;         /* 1: a signal asked this rank for an early end */
    /* by the Pulse; of ranks of other hosts all is written by the Pulse of this host's messengers */
    _Atomic uint64_t beat;
    _Atomic uint64_t traffic; /* grows when messages come from that rank's host; by any rank */
    _Atomic uint64_t space;   /* the inode of its process namespace, in which pid counts; 0: another host's */
    _Atomic int32_t pid;
    _Atomic uint32_t left; /* 1: it has freed its Comm, and beats no more */
} Life;

typedef struct LifeTable {
    _Alignas(128) _Atomic int verdict_state; /* VERDICT_* */
    Verdict verdict;                         /* set once, by whoever got from NONE to WRITING */
    Life life[];                             /* [ranks of the job] */
} LifeTable;
enum { VERDICT_NONE, VERDICT_WRITING, VERDICT_SET };

static inline size_t life_table_bytes(int ranks) { return sizeof(LifeTable) + (size_t)ranks * sizeof(Life); }

static inline uint64_t life_get(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}
static inline void life_set(_Atomic uint64_t *word, uint64_t v) {
    atomic_store_explicit(word, v, memory_order_relaxed);
}
/* Of a word that this thread alone writes. */
static inline void life_add(_Atomic uint64_t *word) { life_set(word, life_get(word) + 1); }

static inline void life_place(Life *l, const CommPlace *p) {
    for (int i = 0; p && i < PLACE_WORDS; i++) life_set(&l->place[i], p->word[i]);
    if (!p) life_set(&l->place[0], 0);
    life_add(&l->moves);
}
