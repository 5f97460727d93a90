#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/kernels.h"

int kv_create(KvCache *kv, int64_t n_seqs, int64_t n_ctx, Err *e) {
    int64_t per = ceil_div(n_ctx, KV_BLOCK);
    *kv = (KvCache){.n_seqs = n_seqs, .n_ctx = n_ctx, .blocks_per_seq = per};
    size_t blocks;
    if (!size_mul((size_t)n_seqs, (size_t)per, &blocks) || blocks > INT32_MAX)
        return err_set(e, "%lld sequences of %lld tokens are more than a KV cache can have", (long long)n_seqs,
                       (long long)n_ctx);
    kv->n_blocks = kv->n_free = (int64_t)blocks;
    kv->table = calloc(blocks, sizeof *kv->table);
    kv->free_block = calloc(blocks, sizeof *kv->free_block);
    kv->length = calloc((size_t)n_seqs, sizeof *kv->length);
    kv->check = calloc((size_t)n_seqs, sizeof *kv->check);
    if (!kv->table || !kv->free_block || !kv->length || !kv->check)
        return err_set(e, "out of memory for the KV cache's tables");
    for (size_t i = 0; i < blocks; i++)
        kv->free_block[i] = (int32_t)(blocks - 1 - i); /* the first is taken last to first */
    return 0;
}

void kv_free(KvCache *kv) {
    free(kv->table);
    free(kv->free_block);
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

int kv_append(KvCache *kv, int32_t seq, int64_t pos, Err *e) {
    if (pos % KV_BLOCK == 0) {
        if (!kv->n_free) return err_set(e, "the KV cache has no free block");
        kv->table[seq * kv->blocks_per_seq + pos / KV_BLOCK] = kv->free_block[--kv->n_free];
    }
    kv->length[seq] = pos + 1;
    return 0;
}

void kv_truncate(KvCache *kv, int32_t seq, int64_t pos) {
    int64_t keep = ceil_div(pos, KV_BLOCK), have = ceil_div(kv->length[seq], KV_BLOCK);
    for (int64_t b = have - 1; b >= keep; b--) kv->free_block[kv->n_free++] = kv->table[seq * kv->blocks_per_seq + b];
    if (pos < kv->length[seq]) kv->length[seq] = pos;
}

int64_t kv_length(const KvCache *kv, int32_t seq) { return kv->length[seq]; }
const int32_t *kv_table(const KvCache *kv, int32_t seq) { return kv->table + seq * kv->blocks_per_seq; }
