/* The KV cache of layers with a sliding window holds a part of the positions, and nobody can tell: the logits are, bit
 * by bit, those of a cache that holds all, past many windows, however the tokens are fed, also after sequences were
 * cut. That those are right, mpi_arch.c shows. */
#include "arch_files.h"
#include "engine/sheaf.h"
#include "sessions.h"

/* Windows of 24 positions; 420 are many of them, and 7 blocks. */
enum { SEQS = 3, LENGTH = 420, N_CTX = 448, BATCH = 40 };

static const struct {
    const char *name;
    int windows, full; /* layers with a window, and without, as tiny_architectures.py has them */
} models[] = {{"mistral", 2, 0}, {"gemma2", 2, 2}, {"gemma3", 6, 1}, {"phi3", 2, 0}, {"olmo3", 4, 1}};
enum { N_MODELS = sizeof models / sizeof *models };

/* Blocks of one layer: of all positions; of the windows of n sequences, 23 positions before a step each, and together
 * 40 in the step. Where a window begins with the last position of a block, n * (23 - 1) + 40 positions are in further
 * ones (with less than a block of each that is not used). */
enum { BLOCKS_ALL = N_CTX / 64 };
static int blocks_windows(int n) { return n + (n * (23 - 1 + 63) + BATCH) / 64; }

typedef struct Windows {
    int model;
    uint64_t kv_bytes; /* of the cache that holds all */
    Record want;       /* by that */
    int32_t ids[SEQS][LENGTH];
} Windows;

static void all_at_once(SheafSession *s, void *arg) {
    Windows *w = arg;
    w->kv_bytes = sheaf_session_info(s)->kv_bytes;
    for (int seq = 0; seq < SEQS; seq++) feed_range(s, seq, w->ids[seq], 0, LENGTH, LENGTH, &w->want);
}

static void same(const Windows *w, const Record *r, int seq, int to, const char *how) {
    char what[96];
    snprintf(what, sizeof what, "%s, %s", models[w->model].name, how);
    same_bits(r, seq, &w->want, seq, 0, to, what);
}

static void check_bytes(SheafSession *s, const Windows *w, int n_seqs) {
    int windows = models[w->model].windows, full = models[w->model].full;
    double part = (double)(windows * blocks_windows(n_seqs) + full * n_seqs * BLOCKS_ALL) /
                  ((windows + full) * SEQS * BLOCKS_ALL);
    CU_ASSERT_DOUBLE_EQUAL((double)sheaf_session_info(s)->kv_bytes, part * (double)w->kv_bytes, 0.5);
}

/* The only sequence, in steps of every size. */
static void alone(SheafSession *s, void *arg) {
    Windows *w = arg;
    static const int pieces[] = {13, 24, BATCH, 1};
    check_bytes(s, w, 1);
    Record r = record_make(1, LENGTH, ARCH_VOCAB);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int slow = pieces[i] == 1 ? LENGTH - 80 : 0; /* single tokens at the end only */
        feed_range(s, 0, w->ids[0], 0, slow, BATCH, &r);
        feed_range(s, 0, w->ids[0], slow, LENGTH, pieces[i], &r);
        same(w, &r, 0, LENGTH, "in pieces");
        CU_ASSERT(sheaf_seq_earliest(s, 0) > 64); /* so something was dropped */
        forget(s, 0, 0);
    }
    record_free(&r);
}

/* Sequences in the same steps, in turns of 1 to 20 tokens, up to `length`. */
static void interleaved(SheafSession *s, Windows *w, const int *length, Record *r) {
    SheafToken t[BATCH];
    int at[SEQS] = {0}, n = 0, left = 0;
    for (int seq = 0; seq < SEQS; seq++) left += length[seq];
    for (int turn = 0; left > 0; turn++) {
        int seq = turn % SEQS;
        for (int i = turn * 7 % 20; i >= 0 && at[seq] < length[seq]; i--) {
            t[n++] = (SheafToken){w->ids[seq][at[seq]], seq, at[seq], -1, true};
            at[seq]++;
            if (n < BATCH && --left > 0) continue;
            if (n == BATCH) left--;
            if (!feed(s, t, (size_t)n, r)) return;
            n = 0;
        }
    }
    for (int seq = 0; seq < SEQS; seq++) same(w, r, seq, length[seq], "together");
}

/* Sequence 0 cut as far back as possible and less far, continued with other tokens, then again with its own. */
static void cut(SheafSession *s, Windows *w, Record *r) {
    int32_t other[LENGTH];
    for (int i = 0; i < LENGTH; i++) other[i] = w->ids[1][LENGTH - 1 - i];
    for (int i = 0; i < 4; i++) {
        int earliest = (int)sheaf_seq_earliest(s, 0), from = earliest + (LENGTH - earliest) * i / 4;
        CU_ASSERT(earliest > 0 && earliest < LENGTH);
        forget(s, 0, from);
        feed_range(s, 0, other, from, LENGTH, 3 + 13 * i, r);
        if (sheaf_seq_earliest(s, 0) > from) from = 0; /* what it sees is gone: all of it again */
        forget(s, 0, from);
        feed_range(s, 0, w->ids[0], from, LENGTH, 11, r);
        same(w, r, 0, LENGTH, "cut");
    }
}

/* Further back is refused, by words that say what is possible, and changes nothing. */
static void refused(SheafSession *s, Windows *w, Record *r) {
    SheafErr e = {""};
    int earliest = (int)sheaf_seq_earliest(s, 0);
    char number[32];
    snprintf(number, sizeof number, "from %d on", earliest);
    for (int pos = 1; pos < earliest; pos += earliest / 4) {
        CU_ASSERT_EQUAL(sheaf_seq_truncate(s, 0, pos, &e), -1);
        CU_ASSERT(strstr(e.msg, "sequence 0") && strstr(e.msg, number));
    }
    CU_ASSERT_EQUAL(sheaf_seq_earliest(s, -1), 0); /* no such sequence */
    CU_ASSERT_EQUAL(sheaf_seq_earliest(s, SEQS), 0);
    forget(s, 0, earliest);
    feed_range(s, 0, w->ids[0], earliest, LENGTH, BATCH, r);
    same(w, r, 0, LENGTH, "after a refusal");
}

static void together(SheafSession *s, void *arg) {
    Windows *w = arg;
    static const int length[SEQS] = {LENGTH, 333, 200};
    check_bytes(s, w, SEQS);
    Record r = record_make(SEQS, LENGTH, ARCH_VOCAB);
    interleaved(s, w, length, &r);
    cut(s, w, &r);
    refused(s, w, &r);
    for (int seq = 1; seq < SEQS; seq++) { /* the others have what they had */
        feed_range(s, seq, w->ids[seq], length[seq], LENGTH, BATCH, &r);
        same(w, &r, seq, LENGTH, "continued");
    }
    record_free(&r);
}

static void test_windows(void) {
    for (int i = 0; i < N_MODELS; i++) {
        char path[64];
        shared_path(path);
        if (rank() == 0) arch_write(path, models[i].name);
        CU_ASSERT_FATAL(!comm_barrier(job, NULL));
        Windows w = {.model = i, .want = record_make(SEQS, LENGTH, ARCH_VOCAB)};
        for (int seq = 0; seq < SEQS; seq++) some_ids(w.ids[seq], LENGTH, ARCH_VOCAB, 50 + (uint64_t)seq);
        SheafSessionOptions so = {
            .n_ctx = N_CTX, .n_seqs = SEQS, .max_batch = 2 * N_CTX + 1, .max_outputs = N_CTX, .logits = true};
        const SheafRuntimeOptions ro = {.threads = 1, .check = true};
        with_session(&ro, path, &so, all_at_once, &w); /* 3 + (3 * 85 + 897) / 64 blocks: all */
        so.max_batch = so.max_outputs = BATCH;
        with_session(&ro, path, &so, together, &w);
        so.n_seqs = 1;
        with_session(&ro, path, &so, alone, &w);
        record_free(&w.want);
        remove_model(path);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"windows past their ends", test_windows}, CU_TEST_INFO_NULL};
    return run_on_ranks("windows", tests);
}
