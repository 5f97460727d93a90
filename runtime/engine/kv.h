/* Which blocks of the KV cache belong to which sequence. Every rank does the same edits in the same order, so the
 * tables are the same everywhere and are not sent. All local. */
#pragma once

#include "base/err.h"
#include "engine/sheaf.h"

typedef struct KvCache {
    int64_t n_seqs, n_ctx, blocks_per_seq, n_blocks;
    int32_t *table;  /* [n_seqs][blocks_per_seq] */
    int64_t *length; /* [n_seqs] positions there are */
    int32_t *free_block;
    int64_t n_free;
    int64_t *check; /* [n_seqs] scratch of kv_check */
} KvCache;

/* Room for n_seqs sequences of n_ctx positions in blocks of KV_BLOCK. The caller frees with kv_free. */
int kv_create(KvCache *kv, int64_t n_seqs, int64_t n_ctx, Err *e);
void kv_free(KvCache *kv);
/* The tokens of a step continue their sequences at consecutive positions. */
int kv_check(const KvCache *kv, const SheafToken *tokens, size_t n, Err *e);
/* One more position of a sequence; takes a block when the last is full. */
int kv_append(KvCache *kv, int32_t seq, int64_t pos, Err *e);
/* Forgets the positions >= pos and gives back the blocks that are empty then. */
void kv_truncate(KvCache *kv, int32_t seq, int64_t pos);
int64_t kv_length(const KvCache *kv, int32_t seq);
const int32_t *kv_table(const KvCache *kv, int32_t seq);
