/* Which blocks of the KV cache belong to which sequence. Every rank does the same edits in the same order, so the
 * tables are the same everywhere and are not sent. All local.
 *
 * Layers with the same window share a pool of blocks and its tables. Where there is a window, blocks that no later
 * position will see are given back when a step needs room, so such a pool is as large as the windows of all sequences
 * and the tokens of one step. */
#pragma once

#include "base/err.h"
#include "engine/exec.h"
#include "engine/sheaf.h"

typedef struct KvPool {
    int64_t window, n_blocks, n_free;
    int32_t *table;      /* [n_seqs][blocks_per_seq], by position / KV_BLOCK */
    int64_t *dropped;    /* [n_seqs] blocks at a sequence's beginning that were given back */
    int32_t *free_block; /* [n_blocks], n_free of them */
} KvPool;

typedef struct KvCache {
    int64_t n_seqs, n_ctx, blocks_per_seq;
    KvPool pool[KV_POOLS];
    int n_pools;
    int64_t *length; /* [n_seqs] positions there are */
    int64_t *check;  /* [n_seqs] scratch of kv_check */
} KvCache;

/* The pools that the states of a graph need for n_seqs sequences of n_ctx positions and steps of max_batch tokens. */
int kv_pools(const Graph *g, int64_t n_seqs, int64_t n_ctx, int64_t max_batch, ExecOptions *o, Err *e);
/* Tables for the pools in `o`. The caller frees with kv_free, also after an error. */
int kv_create(KvCache *kv, const ExecOptions *o, int64_t n_seqs, int64_t n_ctx, Err *e);
void kv_free(KvCache *kv);
/* The tokens of a step continue their sequences at consecutive positions. */
int kv_check(const KvCache *kv, const SheafToken *tokens, size_t n, Err *e);
/* Before the tokens of a step are appended: gives back blocks behind windows if the step needs them. */
void kv_make_room(KvCache *kv, const SheafToken *tokens, size_t n);
/* One more position of a sequence; takes a block of each pool when the last is full. */
int kv_append(KvCache *kv, int32_t seq, int64_t pos, Err *e);
/* Positions to which a sequence can be cut: 0, and those from here on, whose windows are still there. */
int64_t kv_earliest(const KvCache *kv, int32_t seq);
/* Forgets the positions >= pos and gives back the blocks that are empty then. pos: see kv_earliest. */
void kv_truncate(KvCache *kv, int32_t seq, int64_t pos);
int64_t kv_length(const KvCache *kv, int32_t seq);
const int32_t *kv_table(const KvCache *kv, int pool, int32_t seq);
