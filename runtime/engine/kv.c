#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/kernels.h"

/* Blocks that hold what n_seqs sequences see of before a step, and the step's tokens. A sequence with n of these
 * touches at most (window - 1 + n + 62) / 64 + 1 blocks, where its first position is the last of a block. */
static int64_t blocks_needed(int64_t window, int64_t n_seqs, int64_t n_ctx, int64_t max_batch) {
    int64_t all = n_seqs * ceil_div(n_ctx, KV_BLOCK);
    if (window == 0) return all;
    if (window == WINDOW_WHOLE) return i64_min(all, n_seqs + max_batch / KV_BLOCK); /* nothing outlives a step */
    return i64_min(all, n_seqs + (n_seqs * (window + KV_BLOCK - 3) + max_batch) / KV_BLOCK);
}

int kv_pools(const Graph *g, int64_t n_seqs, int64_t n_ctx, int64_t max_batch, ExecOptions *o, Err *e) {
    o->n_pools = 0;
    for (ValueId v = 0; v < g->n_values; v++) {
        const Value *state = &g->value[v];
        if (state->kind != VALUE_STATE || exec_pool(o, state) >= 0) continue;
        if (o->n_pools == KV_POOLS) return err_set(e, "attention windows of more than %d sizes in a model", KV_POOLS);
        o->pool[o->n_pools++] = (KvPoolSize){state->window, blocks_needed(state->window, n_seqs, n_ctx, max_batch)};
    }
    return 0;
}

static bool tables_create(KvPool *p, KvPoolSize size, size_t n_seqs, size_t entries) {
    *p = (KvPool){.window = size.window, .n_blocks = size.blocks, .n_free = size.blocks};
    p->table = calloc(entries, sizeof *p->table);
    p->dropped = calloc(n_seqs, sizeof *p->dropped);
    p->free_block = calloc((size_t)size.blocks, sizeof *p->free_block);
    if (!p->table || !p->dropped || !p->free_block) return false;
    for (int64_t i = 0; i < size.blocks; i++)
        p->free_block[i] = (int32_t)(size.blocks - 1 - i); /* the first is taken last to first */
    return true;
}

int kv_create(KvCache *kv, const ExecOptions *o, int64_t n_seqs, int64_t n_ctx, Err *e) {
    int64_t per = ceil_div(n_ctx, KV_BLOCK);
    *kv = (KvCache){.n_seqs = n_seqs, .n_ctx = n_ctx, .blocks_per_seq = per};
    size_t entries;
    if (!size_mul((size_t)n_seqs, (size_t)per, &entries) || entries > INT32_MAX)
        return err_set(e, "%lld sequences of %lld tokens are more than a KV cache can have", (long long)n_seqs,
                       (long long)n_ctx);
    kv->length = calloc((size_t)n_seqs, sizeof *kv->length);
    kv->check = calloc((size_t)n_seqs, sizeof *kv->check);
    bool ok = kv->length && kv->check;
    for (; ok && kv->n_pools < o->n_pools; kv->n_pools++)
        ok = tables_create(&kv->pool[kv->n_pools], o->pool[kv->n_pools], (size_t)n_seqs, entries);
    return ok ? 0 : err_set(e, "out of memory for the KV cache's tables");
}

void kv_free(KvCache *kv) {
    for (int i = 0; i < kv->n_pools; i++) {
        free(kv->pool[i].table);
        free(kv->pool[i].dropped);
        free(kv->pool[i].free_block);
    }
    free(kv->length);
    free(kv->check);
    *kv = (KvCache){0};
}

int kv_check(const KvCache *kv, const SheafToken *tokens, size_t n, Err *e) {
    memcpy(kv->check, kv->length, (size_t)kv->n_seqs * sizeof *kv->check);
    for (size_t i = 0; i < n; i++) {
        int64_t *next = &kv->check[tokens[i].seq];
        if (tokens[i].pos != *next)
            return err_set(e, "sequence %d goes on at position %lld, not at %d", tokens[i].seq, (long long)*next,
                           tokens[i].pos);
        ++*next;
    }
    return 0;
}

/* Gives back the blocks before the first position that the next token of the sequence sees. */
static void drop_unseen(const KvCache *kv, KvPool *p, int64_t seq) {
    int64_t *dropped = &p->dropped[seq], unseen = (kv->length[seq] - p->window + 1) / KV_BLOCK;
    while (*dropped < unseen) p->free_block[p->n_free++] = p->table[seq * kv->blocks_per_seq + (*dropped)++];
}

/* Blocks stay as long as there is room without them: a sequence can be cut further back then. */
void kv_make_room(KvCache *kv, const SheafToken *tokens, size_t n) {
    int64_t wanted = 0;
    for (size_t i = 0; i < n; i++) wanted += tokens[i].pos % KV_BLOCK == 0;
    for (KvPool *p = kv->pool; p < kv->pool + kv->n_pools; p++) {
        if (p->window <= 0 || p->n_free >= wanted) continue;
        for (int64_t seq = 0; seq < kv->n_seqs; seq++) drop_unseen(kv, p, seq);
    }
}

int kv_append(KvCache *kv, int32_t seq, int64_t pos, Err *e) {
    for (KvPool *p = kv->pool; p < kv->pool + kv->n_pools && pos % KV_BLOCK == 0; p++) {
        if (!p->n_free) return err_set(e, "the KV cache has no free block");
        p->table[seq * kv->blocks_per_seq + pos / KV_BLOCK] = p->free_block[--p->n_free];
    }
    kv->length[seq] = pos + 1;
    return 0;
}

int64_t kv_earliest(const KvCache *kv, int32_t seq) {
    int64_t pos = 0;
    for (const KvPool *p = kv->pool; p < kv->pool + kv->n_pools; p++)
        if (p->dropped[seq]) pos = i64_max(pos, p->dropped[seq] * KV_BLOCK + p->window - 1);
    return pos;
}

void kv_truncate(KvCache *kv, int32_t seq, int64_t pos) {
    int64_t keep = ceil_div(pos, KV_BLOCK), have = ceil_div(kv->length[seq], KV_BLOCK);
    for (KvPool *p = kv->pool; p < kv->pool + kv->n_pools; p++) {
        for (int64_t b = have - 1; b >= i64_max(keep, p->dropped[seq]); b--)
            p->free_block[p->n_free++] = p->table[seq * kv->blocks_per_seq + b];
        if (pos == 0) p->dropped[seq] = 0;
    }
    if (pos < kv->length[seq]) kv->length[seq] = pos;
}

int64_t kv_length(const KvCache *kv, int32_t seq) { return kv->length[seq]; }
const int32_t *kv_table(const KvCache *kv, int pool, int32_t seq) {
    return kv->pool[pool].table + seq * kv->blocks_per_seq;
}
