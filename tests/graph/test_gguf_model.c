/* A real file: SmolLM2's header. */
#include <stdbool.h>

#include "check.h"
#include "graph/gguf.h"

static bool skipped;

/* SmolLM2-135M: 30 layers, 576 wide, 9 query and 3 KV heads, a vocabulary of 49,152; Q8_0 embedding, Q4_1 matrices, no
 * head of its own: 1 + 1 + 30 * 9 tensors (its model card and config.json). */
static void test_smollm(void) {
    char path[4096];
    FILE *f = NULL;
    if (!check_path(path, sizeof path, "SHEAF_MODELS", "SmolLM2-135M-Instruct-Q4_1.gguf") || !(f = fopen(path, "rb"))) {
        printf("skipped: no SmolLM2-135M-Instruct-Q4_1.gguf in SHEAF_MODELS ");
        skipped = true;
        return;
    }
    fclose(f);
    ModelFile *g;
    Err e;
    CU_ASSERT_EQUAL_FATAL(gguf_open(path, &g, &e), 0);
    int64_t layers = 0, heads = 0, kv = 0;
    CU_ASSERT(!meta_get_i64(g, "llama.block_count", true, 1, 1000, &layers, &e) && layers == 30);
    CU_ASSERT(!meta_get_i64(g, "llama.attention.head_count", true, 1, 1000, &heads, &e) && heads == 9);
    CU_ASSERT(!meta_get_i64(g, "llama.attention.head_count_kv", true, 1, 1000, &kv, &e) && kv == 3);
    CU_ASSERT_EQUAL(file_n_tensors(g), 272);
    const FileTensor *embedding = file_tensor(g, "token_embd.weight"), *q = file_tensor(g, "blk.29.attn_q.weight");
    CU_ASSERT_FATAL(embedding && q);
    CU_ASSERT(embedding->type == QT_Q8_0 && embedding->dims[0] == 576 && embedding->dims[1] == 49152);
    CU_ASSERT_EQUAL(embedding->bytes, 576 / 32 * 34 * 49152);
    CU_ASSERT(q->type == QT_Q4_1 && q->bytes == 576 / 32 * 20 * 576);
    model_file_close(g);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"SmolLM2", test_smollm}, CU_TEST_INFO_NULL};
    int status = check_run("gguf of a model", tests);
    return status == 0 && skipped ? CHECK_SKIPPED : status;
}
