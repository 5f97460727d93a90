/* Trained nets of SHEAF_DATA (its README says where they are from) on 64 photographs, against the reference logits:
 * PyTorch's for fp32. The ranks divide the images; then all work on the first ones as shards. */
#include <math.h>

#include "comm/comm.h"
#include "engine/sheaf.h"
#include "npy.h"

enum { IMAGES = 64, SIDE = 224, STEP = 16, SHARDED = 4 };

typedef struct Case {
    const char *model, *logits;
    bool imagenet;    /* normalised by ImageNet's mean and deviation; else (x/255 - 0.498) / 0.502 */
    double tolerance; /* relative L2 over all logits */
} Case;

static const Case cases[] = {
    {"cnn/resnet18.onnx", "cnn/resnet18_fp32_logits_eval64.npy", true, 1e-5},
    {"cnn/efficientnet_lite0.onnx", "cnn/efficientnet_lite0_fp32_logits_eval64.npy", false, 1e-5},
    {"cnn/efficientnet_lite0_unfolded.onnx", "cnn/efficientnet_lite0_fp32_logits_eval64.npy", false, 1e-5},
};

static Comm *job;

/* Image i of [n][224][224][3] bytes as [3][224][224] floats. */
static void normalise(const uint8_t *image, bool imagenet, float *out) {
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < SIDE * SIDE; p++) {
            float v = (float)image[p * 3 + c] / 255;
            *out++ = imagenet ? (v - mean[c]) / deviation[c] : (v - 0.498f) / 0.502f;
        }
}

static int largest(const float *x, int64_t n) {
    int best = 0;
    for (int i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

typedef struct Score {
    double error, size;
    int same, n;
} Score;

/* Rows of results against the reference's rows from `at` on. */
static void compare(const SheafArray *out, const Npy *want, int64_t at, Score *s) {
    int64_t classes = want->dim[1];
    for (int64_t row = 0; row < out->dim[0]; row++) {
        float wanted[1024] = {0};
        memcpy(wanted, want->data + (size_t)((at + row) * classes) * sizeof(float), (size_t)classes * sizeof(float));
        const float *got = (const float *)out->data + row * classes;
        for (int64_t i = 0; i < classes; i++) {
            s->error += (double)(got[i] - wanted[i]) * (got[i] - wanted[i]);
            s->size += (double)wanted[i] * wanted[i];
        }
        s->same += largest(got, classes) == largest(wanted, classes);
        s->n++;
    }
}

/* Images [begin, end) in steps. */
static void run(SheafModel *m, const Case *c, bool shards, const Npy *images, const Npy *want, int64_t begin,
                int64_t end) {
    SheafNet *net;
    SheafErr e = {""};
    Score s = {0};
    static float room[STEP * 3 * SIDE * SIDE];
    CU_ASSERT_FATAL(!sheaf_net_open(m, &(SheafNetOptions){.shards = shards}, &net, &e));
    for (int64_t at = begin; at < end; at += STEP) {
        int64_t n = end - at < STEP ? end - at : STEP;
        for (int64_t i = 0; i < n; i++)
            normalise(images->data + (at + i) * 3 * SIDE * SIDE, c->imagenet, room + i * 3 * SIDE * SIDE);
        SheafArray in = {.type = SHEAF_F32, .n_dims = 4, .dim = {n, 3, SIDE, SIDE}, .data = room}, out;
        int failed = sheaf_net_run(net, &in, &out, &e);
        CU_ASSERT_FATAL(!failed);
        CU_ASSERT_FATAL(out.dim[0] == n && out.dim[1] == want->dim[1]);
        compare(&out, want, at, &s);
    }
    bool good = s.n == 0 || (sqrt(s.error / s.size) < c->tolerance && s.same == s.n);
    CU_ASSERT(good);
    if (!good || (comm_rank(job) == 0 && s.n))
        printf("\n%s, %s: relative error %.2g, same class for %d of %d ", c->model,
               shards ? "shards" : "images divided", sqrt(s.error / s.size), s.same, s.n);
    sheaf_net_close(net);
}

static void test_case(const Case *c) {
    SheafErr e = {""};
    SheafRuntime *rt;
    SheafModel *m;
    uint8_t *file[2];
    Npy images = {0}, want = {0};
    char path[512];
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_DATA", c->model));
    CU_ASSERT_FATAL(read_npy("SHEAF_DATA", "cnn/eval64_u8_nhwc.npy", &file[0], &images));
    CU_ASSERT_FATAL(read_npy("SHEAF_DATA", c->logits, &file[1], &want));
    CU_ASSERT_FATAL(images.n_bytes == (size_t)IMAGES * SIDE * SIDE * 3 && want.dim[0] == IMAGES && want.dim[1] <= 1024);
    CU_ASSERT_FATAL(!sheaf_runtime_open(&(SheafRuntimeOptions){.threads = 0}, &rt, &e));
    CU_ASSERT_FATAL(!sheaf_model_open(rt, path, &m, &e));
    int64_t ranks = sheaf_ranks(rt), rank = sheaf_rank(rt);
    run(m, c, false, &images, &want, IMAGES * rank / ranks, IMAGES * (rank + 1) / ranks);
    if (ranks > 1) run(m, c, true, &images, &want, 0, SHARDED);
    sheaf_model_close(m);
    CU_ASSERT(!sheaf_runtime_close(rt, &e));
    free(file[0]);
    free(file[1]);
}

static void test_all(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) test_case(&cases[i]);
}

int main(void) {
    char path[512];
    FILE *f = check_path(path, sizeof path, "SHEAF_DATA", "cnn/eval64_u8_nhwc.npy") ? fopen(path, "rb") : NULL;
    if (!f) {
        puts("skipped: there is no SHEAF_DATA with cnn/eval64_u8_nhwc.npy");
        return CHECK_SKIPPED;
    }
    fclose(f);
    Err e;
    if (comm_create(&(CommOptions){0}, &job, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    static const CU_TestInfo tests[] = {{"logits of real nets", test_all}, CU_TEST_INFO_NULL};
    int status = check_run("cnn data", tests);
    comm_free(job);
    return status;
}
