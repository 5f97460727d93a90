/* Every architecture against Hugging Face transformers, at the ranks of the job: tiny models whose weights are F16, so
 * that nothing is rounded but keys and values (Q8_0 in one, whose activations are rounded to 16 bits as well); heads
 * that ranks share unevenly; 100 positions, of which windows of 24 leave most behind. And the same bits however a
 * sequence is cut into steps, whoever is in them beside it, on how many threads and with which instructions. Some of
 * them also from the folder that transformers saves, which must give the bits of the GGUF (graph/test_hf_folder.c
 * compares the others), and one in BF16 from several files. */
#include <math.h>

#include "arch_files.h"
#include "engine/sheaf.h"
#include "kernels/kernels.h"
#include "sessions.h"

static const char *const models[] = {
    "llama3", "llama_linear", "llama_yarn",  "llama_yarn_set", "mistral",   "qwen2",      "qwen2_window", "qwen3",
    "gemma2", "gemma3",       "gemma3_wide", "phi3",           "phi3_part", "phi3_short", "phi3_long",    "olmo2",
    "olmo3",  "smollm3",      "granite",     "mixtral",        "qwen2moe",  "qwen3moe",   "qwen3moe_q8",  "olmoe"};
enum { N_MODELS = sizeof models / sizeof *models, SEQS = 3 };

/* Largest differences allowed, over the range of the logits. At 1 to 4 ranks 2.4e-4 was measured against keys and
 * values that are rounded as here, from the few that go to the other fp16 neighbour, and 1.7e-3 against exact ones. */
static const double near_rounded = 6e-4, near_exact = 3e-3;

/* The largest difference of the stored logits, over their range; a token that is most probable here and not there must
 * have been as good as the first. */
static double difference(const Record *r, const ArchLogits *want, double allowed, const char *what) {
    double low = INFINITY, high = -INFINITY, worst = 0;
    int others = 0;
    for (int i = 0; i < ARCH_VOCAB; i++) {
        low = fmin(low, (double)want->last[i]);
        high = fmax(high, (double)want->last[i]);
        worst = fmax(worst, fabs((double)record_logits(r, 0, ARCH_TOKENS - 1)[i] - (double)want->last[i]));
    }
    for (int t = 0; t < ARCH_TOKENS; t++) {
        const ArchTop *top = want->top[t];
        const float *got = record_logits(r, 0, t);
        for (int k = 0; k < ARCH_TOP; k++) worst = fmax(worst, fabs((double)got[top[k].id] - (double)top[k].logit));
        int32_t first = r->result[record_row(r, 0, t)].id[0];
        int k = 0;
        while (k < ARCH_TOP && top[k].id != (uint32_t)first) k++;
        others += k == ARCH_TOP || (double)(top[0].logit - top[k].logit) > 2 * allowed * (high - low);
    }
    CU_ASSERT_EQUAL(others, 0);
    if (others) printf("\n%s: another token is the most probable at %d positions", what, others);
    return worst / (high - low);
}

typedef struct Model {
    const char *name;
    Record all; /* its logits, everything in one step; filled by the first session */
} Model;

/* With two other sequences in every step, in turns: a run of 1 to 7 tokens of each. */
static void among_others(SheafSession *s, Model *m, const int32_t *ids) {
    enum { STEP = 61 };
    SheafToken t[STEP];
    int at[SEQS] = {0}, n = 0;
    Record r = record_make(SEQS, ARCH_TOKENS, ARCH_VOCAB);
    for (int turn = 0; at[0] < ARCH_TOKENS; turn++) {
        int seq = turn % SEQS;
        for (int i = turn * 3 % 7; i >= 0 && at[seq] < ARCH_TOKENS; i--) {
            int pos = at[seq]++, id = seq ? ids[(pos * (seq + 2) + 5) % ARCH_TOKENS] : ids[pos];
            t[n++] = (SheafToken){id, seq, pos, -1, true};
            if (n < STEP && at[0] < ARCH_TOKENS) continue;
            if (!feed(s, t, (size_t)n, &r)) return;
            n = 0;
        }
    }
    same_bits(&m->all, 0, &r, 0, 0, ARCH_TOKENS, m->name);
    for (int seq = 0; seq < SEQS; seq++) forget(s, seq, 0);
    record_free(&r);
}

static void check_model(SheafSession *s, void *arg) {
    Model *m = arg;
    const char *name = m->name;
    static const int pieces[] = {1, 7, 23, 24, 25, 64};
    ArchReference ref = arch_reference(name);
    CU_ASSERT_FATAL(ref.n == ARCH_TOKENS && ref.vocab == ARCH_VOCAB);
    int32_t ids[ARCH_TOKENS];
    for (int i = 0; i < ARCH_TOKENS; i++) ids[i] = (int32_t)ref.ids[i];
    Record again = record_make(1, ARCH_TOKENS, ARCH_VOCAB);
    feed_range(s, 0, ids, 0, ARCH_TOKENS, ARCH_TOKENS, &m->all);
    double rounded = difference(&m->all, &ref.fp16_cache, near_rounded, name),
           exact = difference(&m->all, &ref.exact, near_exact, name);
    double allowed = strstr(name, "_q8") ? near_exact : near_rounded;
    CU_ASSERT(rounded < allowed && exact < near_exact);
    if (!(rounded < allowed && exact < near_exact) || getenv("SHEAF_SHOW"))
        printf("\n%s: differences of %.1e and %.1e of the range", name, rounded, exact);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        forget(s, 0, 0);
        int slow = pieces[i] == 1 ? ARCH_TOKENS - 40 : 0; /* single tokens at the end only */
        feed_range(s, 0, ids, 0, slow, slow, &again);
        feed_range(s, 0, ids, slow, ARCH_TOKENS, pieces[i], &again);
        char what[96];
        snprintf(what, sizeof what, "%s, pieces of %d", name, pieces[i]);
        same_bits(&m->all, 0, &again, 0, 0, ARCH_TOKENS, what);
    }
    forget(s, 0, 0);
    among_others(s, m, ids);
    record_free(&again);
}

/* The same bits on one thread, other instructions, or by way of the network. */
static void check_same(SheafSession *s, void *arg) {
    Model *m = arg;
    ArchReference ref = arch_reference(m->name);
    int32_t ids[ARCH_TOKENS];
    for (int i = 0; i < ARCH_TOKENS; i++) ids[i] = (int32_t)ref.ids[i];
    among_others(s, m, ids);
}

static const SheafSessionOptions so = {
    .n_ctx = 128, .n_seqs = SEQS, .max_batch = 128, .max_outputs = 128, .logits = true};

/* The folder of the same model: rows in another order in the file, norms without the 1 that a GGUF adds. */
static void check_folder(Model *m) {
    static const char *const with_folder[] = {"llama3", "gemma3", "phi3", "olmo3"};
    bool wanted = false;
    for (size_t i = 0; i < sizeof with_folder / sizeof *with_folder; i++) wanted |= !strcmp(with_folder[i], m->name);
    if (!wanted) return;
    TempFolder folder = {""};
    if (rank() == 0) {
        folder = temp_folder();
        arch_folder(m->name, &folder);
    }
    CU_ASSERT_FATAL(!comm_broadcast(job, &folder, sizeof folder, NULL));
    with_session(&(SheafRuntimeOptions){.threads = 2, .check = true}, folder.path, &so, check_same, m);
    CU_ASSERT_FATAL(!comm_barrier(job, NULL));
    if (rank() == 0) temp_remove(&folder);
}

static void test_against_transformers(void) {
    for (int i = 0; i < N_MODELS; i++) {
        char path[64];
        Model m = {models[i], record_make(1, ARCH_TOKENS, ARCH_VOCAB)};
        shared_path(path);
        if (rank() == 0) arch_write(path, m.name);
        CU_ASSERT_FATAL(!comm_barrier(job, NULL));
        with_session(&(SheafRuntimeOptions){.threads = 2, .check = true}, path, &so, check_model, &m);
        bool runnable;
        for (int k = 0; kernels_at(k, &runnable); k++) {
            const SheafRuntimeOptions ro = {.threads = 1, .isa = kernels_at(k, &runnable)->name, .each_rank_a_host = k};
            if (runnable) with_session(&ro, path, &so, check_same, &m);
        }
        check_folder(&m);
        record_free(&m.all);
        remove_model(path);
    }
}

static void test_sharded(void) {
    char path[4096];
    Model m = {"sharded", record_make(1, ARCH_TOKENS, ARCH_VOCAB)};
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", "hf_sharded"));
    with_session(&(SheafRuntimeOptions){.threads = 2, .check = true}, path, &so, check_model, &m);
    record_free(&m.all);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"against transformers", test_against_transformers},
                                        {"a folder in BF16, in several files", test_sharded},
                                        CU_TEST_INFO_NULL};
    return run_on_ranks("architectures", tests);
}
