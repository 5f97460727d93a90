/* The tables of the KV cache: no block belongs to two places at once, and none is lost; with windows, what the next
 * position sees is there, and the blocks always suffice. */
#include "base/size.h"
#include "check.h"
#include "engine/kv.h"
#include "kernels/kernels.h"

enum { SEQS = 3, CTX = 200, BLOCKS = SEQS * 4 }; /* 200 positions are 4 blocks of 64 */

static void add_state(Graph *g, int64_t window) {
    ValueId v = graph_state(g, "kv", 1, 16);
    CU_ASSERT_FATAL(v >= 0);
    g->value[v].window = window;
}

/* Pool 0 sees all, pool 1 (when there is one) a window. */
static KvCache make(int64_t n_seqs, int64_t n_ctx, int64_t batch, int64_t window) {
    Graph g;
    ExecOptions o = {0};
    KvCache kv;
    Err e;
    graph_init(&g);
    add_state(&g, 0);
    if (window) add_state(&g, window);
    add_state(&g, 0);
    CU_ASSERT_FATAL(!kv_pools(&g, n_seqs, n_ctx, batch, &o, &e) && !kv_create(&kv, &o, n_seqs, n_ctx, &e));
    CU_ASSERT_EQUAL(kv.n_pools, window ? 2 : 1);
    graph_free(&g);
    return kv;
}

/* Every block of every pool belongs to one sequence, from its first block that was not dropped, or is free. */
static void check_blocks(const KvCache *kv) {
    for (int k = 0; k < kv->n_pools; k++) {
        const KvPool *p = &kv->pool[k];
        int *owner = calloc((size_t)p->n_blocks, sizeof *owner);
        int64_t used = 0;
        bool good = owner != NULL;
        for (int s = 0; s < kv->n_seqs && good; s++)
            for (int64_t i = p->dropped[s]; i < (kv_length(kv, s) + KV_BLOCK - 1) / KV_BLOCK && good; i++, used++) {
                int32_t b = kv_table(kv, k, s)[i];
                good = b >= 0 && b < p->n_blocks && !owner[b]++;
            }
        for (int64_t i = 0; i < p->n_free && good; i++) {
            int32_t b = p->free_block[i];
            good = b >= 0 && b < p->n_blocks && !owner[b]++;
        }
        CU_ASSERT(good);
        CU_ASSERT_EQUAL(used + p->n_free, p->n_blocks);
        free(owner);
    }
}

static void append(KvCache *kv, int32_t seq, int64_t n) {
    Err e;
    for (int64_t i = 0; i < n; i++) CU_ASSERT_FATAL(!kv_append(kv, seq, kv_length(kv, seq), &e));
}

static void test_append_and_truncate(void) {
    KvCache kv = make(SEQS, CTX, 512, 0);
    const KvPool *p = &kv.pool[0];
    CU_ASSERT_EQUAL(p->n_blocks, BLOCKS);
    check_blocks(&kv);
    for (int s = 0; s < SEQS; s++) append(&kv, s, CTX); /* all sequences full */
    check_blocks(&kv);
    CU_ASSERT_EQUAL(p->n_free, 0);
    int32_t first = kv_table(&kv, 0, 1)[0];
    static const int64_t cuts[] = {200, 193, 192, 191, 65, 64, 63, 1, 0};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kv_truncate(&kv, 1, cuts[i]);
        CU_ASSERT_EQUAL(kv_length(&kv, 1), cuts[i]);
        CU_ASSERT_EQUAL(p->n_free, 4 - (cuts[i] + 63) / 64);
        if (cuts[i]) CU_ASSERT_EQUAL(kv_table(&kv, 0, 1)[0], first); /* what is kept stays where it is */
        check_blocks(&kv);
    }
    kv_truncate(&kv, 0, 70);
    append(&kv, 1, 200); /* takes what sequence 0 gave back, too */
    append(&kv, 0, 130);
    check_blocks(&kv);
    CU_ASSERT_EQUAL(p->n_free, 0);
    kv_truncate(&kv, 2, 500); /* nothing to forget */
    CU_ASSERT_EQUAL(kv_length(&kv, 2), CTX);
    kv_free(&kv);
}

/* The same edits give the same tables: that is why they are not sent. */
static void test_same_everywhere(void) {
    KvCache kv[2];
    for (int i = 0; i < 2; i++) {
        kv[i] = make(SEQS, CTX, 512, 0);
        uint32_t random = 12345;
        for (int k = 0; k < 2000; k++) {
            random = random * 1664525u + 1013904223u;
            int32_t seq = (int32_t)(random >> 16) % SEQS;
            int64_t n = (random >> 8) % 40, have = kv_length(&kv[i], seq);
            if (random >> 31 || have + n > CTX) kv_truncate(&kv[i], seq, have * n / 40);
            else append(&kv[i], seq, n);
            if (k % 50 == 0) check_blocks(&kv[i]);
        }
    }
    for (int s = 0; s < SEQS; s++) {
        CU_ASSERT_EQUAL(kv_length(&kv[0], s), kv_length(&kv[1], s));
        CU_ASSERT(!memcmp(kv_table(&kv[0], 0, s), kv_table(&kv[1], 0, s),
                          (size_t)((kv_length(&kv[0], s) + 63) / 64) * sizeof(int32_t)));
    }
    kv_free(&kv[0]);
    kv_free(&kv[1]);
}

/* How many blocks a window needs: n positions in a row lie in (n + 62) / 64 + 1 blocks at most. */
static void test_window_sizes(void) {
    static const struct {
        int64_t n_seqs, n_ctx, batch, window, blocks;
    } cases[] = {{1, 4096, 512, 512, 17},  /* 1023 positions that begin with the last of a block lie in 17 */
                 {1, 32768, 512, 512, 17}, /* whatever the context */
                 {1, 4096, 1, 512, 9},     /* 512 positions */
                 {1, 4096, 1, 1, 1},       /* itself */
                 {1, 512, 512, 512, 8},    /* never more than without a window */
                 {1, 4096, 512, 100000, 64},
                 {4, 4096, 512, 512, 47}, /* 4 windows and one step: at most 4 + (4 * 573 + 512) / 64 */
                 {100, 64, 512, 32, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KvCache kv = make(cases[i].n_seqs, cases[i].n_ctx, cases[i].batch, cases[i].window);
        CU_ASSERT_EQUAL(kv.pool[0].n_blocks, cases[i].n_seqs * ((cases[i].n_ctx + 63) / 64));
        CU_ASSERT_EQUAL(kv.pool[1].n_blocks, cases[i].blocks);
        kv_free(&kv);
    }
}

/* One step: from each sequence some next tokens, together `batch` at most. */
static void step(KvCache *kv, int64_t batch, const int64_t *counts) {
    SheafToken *t = calloc((size_t)batch, sizeof *t);
    size_t n = 0;
    Err e = {""};
    CU_ASSERT_FATAL(t != NULL);
    for (int32_t s = 0; s < kv->n_seqs; s++)
        for (int64_t i = 0; i < counts[s] && n < (size_t)batch; i++)
            t[n++] = (SheafToken){.seq = s, .pos = (int32_t)(kv_length(kv, s) + i)};
    int64_t before[SEQS];
    for (int s = 0; s < kv->n_seqs; s++) before[s] = kv_length(kv, s);
    kv_make_room(kv, t, n);
    for (size_t i = 0; i < n; i++) CU_ASSERT_EQUAL_FATAL(kv_append(kv, t[i].seq, t[i].pos, &e), 0);
    for (int s = 0; s < kv->n_seqs; s++) { /* what the step's first position of the sequence saw was there */
        CU_ASSERT(kv->pool[1].dropped[s] * KV_BLOCK <=
                  (before[s] < kv->pool[1].window ? 0 : before[s] - kv->pool[1].window + 1));
        CU_ASSERT(kv_earliest(kv, s) <= before[s]);
    }
    free(t);
    check_blocks(kv);
}

/* Random steps, and cuts wherever they are possible, on pools that are as small as they may be. */
static void random_steps(int64_t window, int64_t batch, uint32_t random) {
    enum { LONG = 1000 };
    KvCache kv = make(SEQS, LONG, batch, window);
    for (int k = 0; k < 150; k++) {
        int64_t counts[SEQS];
        for (int s = 0; s < SEQS; s++) {
            random = random * 1664525u + 1013904223u;
            int64_t have = kv_length(&kv, s), earliest = kv_earliest(&kv, s);
            int64_t somewhere = earliest + (random >> 17) % (have - earliest + 1);
            if ((random >> 8) % 16 == 0) kv_truncate(&kv, s, somewhere);
            else if (have + batch > LONG) kv_truncate(&kv, s, 0);
            counts[s] = (random >> 24) % 4 ? (random >> 26) * batch / 64 + 1 : 0;
            counts[s] = i64_min(counts[s], LONG - kv_length(&kv, s));
        }
        step(&kv, batch, counts);
    }
    kv_free(&kv);
}

static void test_windows_always_fit(void) {
    static const int64_t windows[] = {1, 2, 24, 63, 64, 65, 128, 200}, batches[] = {1, 2, 3, 63, 64, 65, 130};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            random_steps(windows[w], batches[b], (uint32_t)(w * 100 + b));
}

/* Blocks are dropped when a step needs their room, and not before; then a cut has to leave what is seen. */
static void test_earliest(void) {
    KvCache kv = make(1, 1000, 64, 100); /* 1 + (161 + 64) / 64 = 4 blocks */
    CU_ASSERT_EQUAL(kv.pool[1].n_blocks, 4);
    for (int i = 0; i < 4; i++) step(&kv, 64, (int64_t[]){64});
    CU_ASSERT_EQUAL(kv_earliest(&kv, 0), 0);
    kv_truncate(&kv, 0, 10); /* anywhere, as long as everything is there */
    for (int i = 0; i < 3; i++) step(&kv, 64, (int64_t[]){64});
    CU_ASSERT_EQUAL(kv_length(&kv, 0), 202);
    step(&kv, 64, (int64_t[]){54});
    CU_ASSERT_EQUAL(kv_earliest(&kv, 0), 0);
    step(&kv, 64, (int64_t[]){1}); /* position 256 sees 157 and later: two blocks go, those before 128 */
    CU_ASSERT_EQUAL(kv.pool[1].dropped[0], 2);
    CU_ASSERT_EQUAL(kv_earliest(&kv, 0), 128 + 99); /* which sees 128 and later */
    kv_truncate(&kv, 0, 227);
    step(&kv, 64, (int64_t[]){64});
    kv_truncate(&kv, 0, 0); /* always possible, and everything is as at the beginning */
    CU_ASSERT_EQUAL(kv_earliest(&kv, 0), 0);
    CU_ASSERT_EQUAL(kv.pool[1].n_free, 4);
    check_blocks(&kv);
    kv_free(&kv);
}

static void test_check(void) {
    KvCache kv = make(SEQS, CTX, 512, 0);
    Err e = {""};
    append(&kv, 0, 10);
    const SheafToken good[] = {
        {.seq = 0, .pos = 10}, {.seq = 1, .pos = 0}, {.seq = 0, .pos = 11}, {.seq = 1, .pos = 1}};
    const SheafToken gap[] = {{.seq = 0, .pos = 10}, {.seq = 0, .pos = 12}}, again[] = {{.seq = 0, .pos = 9}};
    CU_ASSERT_EQUAL(kv_check(&kv, good, 4, &e), 0);
    CU_ASSERT_EQUAL(kv_check(&kv, good, 4, &e), 0); /* it changes nothing */
    CU_ASSERT_EQUAL(kv_check(&kv, gap, 2, &e), -1);
    CU_ASSERT(strstr(e.msg, "sequence 0") && strstr(e.msg, "11") && strstr(e.msg, "12"));
    CU_ASSERT_EQUAL(kv_check(&kv, again, 1, &e), -1);
    kv_free(&kv);
}

static void test_full(void) {
    KvCache kv;
    ExecOptions o = {.pool = {{0, 1}}, .n_pools = 1};
    Err e = {""};
    CU_ASSERT_EQUAL(kv_create(&kv, &o, 65536, INT32_MAX, &e), -1);
    CU_ASSERT(strstr(e.msg, "65536 sequences") != NULL);
    kv_free(&kv);
    CU_ASSERT_FATAL(!kv_create(&kv, &o, 1, 128, &e));
    append(&kv, 0, 64);
    CU_ASSERT_EQUAL(kv_append(&kv, 0, 64, &e), -1);
    CU_ASSERT(strstr(e.msg, "no free block") != NULL);
    kv_free(&kv);
    Graph g;
    graph_init(&g);
    for (int i = 0; i <= KV_POOLS; i++) add_state(&g, 10 + i);
    CU_ASSERT_EQUAL(kv_pools(&g, 1, 128, 1, &o, &e), -1);
    CU_ASSERT(strstr(e.msg, "more than 4 sizes") != NULL);
    graph_free(&g);
}

/* An encoder's cache lasts a step. Of texts that share 200 positions the worst case for blocks: 2 of one position, 1 of
 * the rest. */
static void test_whole(void) {
    static const struct {
        int64_t batch, blocks;
    } sizes[] = {{200, 3 + SEQS}, {100000, BLOCKS}}; /* never more than all positions take */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Graph g;
        KvCache kv;
        ExecOptions o = {0};
        Err e = {""};
        graph_init(&g);
        add_state(&g, WINDOW_WHOLE);
        CU_ASSERT_FATAL(!kv_pools(&g, SEQS, CTX, sizes[i].batch, &o, &e) && !kv_create(&kv, &o, SEQS, CTX, &e));
        CU_ASSERT(kv.n_pools == 1 && kv.pool[0].n_blocks == sizes[i].blocks && kv.pool[0].n_free == sizes[i].blocks);
        append(&kv, 0, 1);
        append(&kv, 1, 1);
        append(&kv, 2, 198);
        CU_ASSERT_EQUAL(kv.pool[0].n_free, sizes[i].blocks - 6);
        kv_make_room(&kv, &(SheafToken){.seq = 0, .pos = 64}, 1);
        CU_ASSERT_EQUAL(kv.pool[0].n_free, sizes[i].blocks - 6); /* all of it is seen */
        for (int s = 0; s < SEQS; s++) kv_truncate(&kv, s, 0);
        check_blocks(&kv);
        kv_free(&kv);
        graph_free(&g);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"append and truncate", test_append_and_truncate},
                                        {"the same edits, the same tables", test_same_everywhere},
                                        {"blocks for windows", test_window_sizes},
                                        {"windows always fit", test_windows_always_fit},
                                        {"where a sequence can be cut", test_earliest},
                                        {"check", test_check},
                                        {"full", test_full},
                                        {"of an encoder", test_whole},
                                        CU_TEST_INFO_NULL};
    return check_run("kv", tests);
}
