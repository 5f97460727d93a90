/* The tables of the KV cache: no block belongs to two places at once, and none is lost. */
#include "check.h"
#include "engine/kv.h"
#include "kernels/kernels.h"

enum { SEQS = 3, CTX = 200, BLOCKS = SEQS * 4 }; /* 200 positions are 4 blocks of 64 */

static void check_blocks(const KvCache *kv) {
    int owner[BLOCKS];
    int64_t used = 0;
    bool good = true;
    for (int b = 0; b < BLOCKS; b++) owner[b] = -1;
    for (int s = 0; s < SEQS; s++)
        for (int64_t i = 0; i < (kv_length(kv, s) + KV_BLOCK - 1) / KV_BLOCK; i++, used++) {
            int32_t b = kv_table(kv, s)[i];
            good &= b >= 0 && b < BLOCKS && owner[b] < 0;
            if (b >= 0 && b < BLOCKS) owner[b] = s;
        }
    for (int64_t i = 0; i < kv->n_free; i++) {
        int32_t b = kv->free_block[i];
        good &= b >= 0 && b < BLOCKS && owner[b] < 0;
        if (b >= 0 && b < BLOCKS) owner[b] = SEQS;
    }
    CU_ASSERT(good);
    CU_ASSERT_EQUAL(used + kv->n_free, BLOCKS);
}

static void append(KvCache *kv, int32_t seq, int64_t n) {
    Err e;
    for (int64_t i = 0; i < n; i++) CU_ASSERT_FATAL(!kv_append(kv, seq, kv_length(kv, seq), &e));
}

static void test_append_and_truncate(void) {
    KvCache kv;
    Err e;
    CU_ASSERT_FATAL(!kv_create(&kv, SEQS, CTX, &e));
    CU_ASSERT_EQUAL(kv.n_blocks, BLOCKS);
    check_blocks(&kv);
    for (int s = 0; s < SEQS; s++) append(&kv, s, CTX); /* all sequences full */
    check_blocks(&kv);
    CU_ASSERT_EQUAL(kv.n_free, 0);
    int32_t first = kv_table(&kv, 1)[0];
    static const int64_t cuts[] = {200, 193, 192, 191, 65, 64, 63, 1, 0};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kv_truncate(&kv, 1, cuts[i]);
        CU_ASSERT_EQUAL(kv_length(&kv, 1), cuts[i]);
        CU_ASSERT_EQUAL(kv.n_free, 4 - (cuts[i] + 63) / 64);
        if (cuts[i]) CU_ASSERT_EQUAL(kv_table(&kv, 1)[0], first); /* what is kept stays where it is */
        check_blocks(&kv);
    }
    kv_truncate(&kv, 0, 70);
    append(&kv, 1, 200); /* takes what sequence 0 gave back, too */
    append(&kv, 0, 130);
    check_blocks(&kv);
    CU_ASSERT_EQUAL(kv.n_free, 0);
    kv_truncate(&kv, 2, 500); /* nothing to forget */
    CU_ASSERT_EQUAL(kv_length(&kv, 2), CTX);
    kv_free(&kv);
}

/* The same edits give the same tables: that is why they are not sent. */
static void test_same_everywhere(void) {
    KvCache kv[2];
    Err e;
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_FATAL(!kv_create(&kv[i], SEQS, CTX, &e));
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
        CU_ASSERT(!memcmp(kv_table(&kv[0], s), kv_table(&kv[1], s),
                          (size_t)((kv_length(&kv[0], s) + 63) / 64) * sizeof(int32_t)));
    }
    kv_free(&kv[0]);
    kv_free(&kv[1]);
}

static void test_check(void) {
    KvCache kv;
    Err e = {""};
    CU_ASSERT_FATAL(!kv_create(&kv, SEQS, CTX, &e));
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
    Err e = {""};
    CU_ASSERT_EQUAL(kv_create(&kv, 65536, INT32_MAX, &e), -1);
    CU_ASSERT(strstr(e.msg, "65536 sequences") != NULL);
    kv_free(&kv);
    CU_ASSERT_FATAL(!kv_create(&kv, 1, 64, &e));
    append(&kv, 0, 64);
    CU_ASSERT_EQUAL(kv_append(&kv, 0, 64, &e), -1);
    CU_ASSERT(strstr(e.msg, "no free block") != NULL);
    kv_free(&kv);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"append and truncate", test_append_and_truncate},
                                        {"the same edits, the same tables", test_same_everywhere},
                                        {"check", test_check},
                                        {"full", test_full},
                                        CU_TEST_INFO_NULL};
    return check_run("kv", tests);
}
