/* Nets from ONNX files through the public interface, over ranks: the fixtures' results are ONNX Runtime's
 * (tests/reference/onnx_fixtures.py). Each rank alone, and all ranks as shards; one and two threads; shapes that come
 * and go. */
#include <math.h>

#include "comm/comm.h"
#include "engine/sheaf.h"
#include "npy.h"

static Comm *job; /* the first communicator of a program starts MPI */

/* A fixture: its inputs and results whole. */
typedef struct Case {
    const char *name;
    int n_in, n_out;
    uint8_t *file[4];
    SheafArray in[2], out[2];
} Case;

static SheafArray array_of(const Npy *n) {
    SheafArray a = {.type = SHEAF_F32, .n_dims = n->n_dims, .data = malloc(n->n_bytes + 1)};
    CU_ASSERT(n->kind == 'f' && n->bytes == 4);
    for (int i = 0; i < n->n_dims; i++) a.dim[i] = n->dim[i];
    memcpy(a.data, n->data, n->n_bytes);
    return a;
}

static int64_t count(const SheafArray *a) {
    int64_t n = 1;
    for (int i = 0; i < a->n_dims; i++) n *= a->dim[i];
    return n;
}

static Case read_case(const char *name, int n_in, int n_out) {
    Case c = {.name = name, .n_in = n_in, .n_out = n_out};
    for (int i = 0; i < n_in + n_out; i++) {
        char path[64], number[8] = "";
        int k = i < n_in ? i : i - n_in;
        if (k) snprintf(number, sizeof number, "%d", k);
        snprintf(path, sizeof path, "onnx/%s.%s%s.npy", name, i < n_in ? "in" : "out", number);
        Npy n;
        CU_ASSERT_FATAL(read_npy("SHEAF_FIXTURES", path, &c.file[i], &n));
        *(i < n_in ? &c.in[k] : &c.out[k]) = array_of(&n);
    }
    return c;
}

static void case_free(Case *c) {
    for (int i = 0; i < c->n_in; i++) free(c->in[i].data);
    for (int i = 0; i < c->n_out; i++) free(c->out[i].data);
    for (int i = 0; i < 4; i++) free(c->file[i]);
}

/* Rows [from, from + n) of the first axis. */
static SheafArray rows(const SheafArray *a, int64_t from, int64_t n) {
    SheafArray part = *a;
    part.dim[0] = n;
    part.data = (float *)a->data + count(a) / a->dim[0] * from;
    return part;
}

static double relative_error(const SheafArray *got, const SheafArray *want) {
    double error = 0, size = 0;
    if (got->n_dims != want->n_dims || got->type != SHEAF_F32) return INFINITY;
    for (int i = 0; i < got->n_dims; i++)
        if (got->dim[i] != want->dim[i]) return INFINITY;
    for (int64_t i = 0; i < count(want); i++) {
        double d = (double)((const float *)got->data)[i] - ((const float *)want->data)[i];
        error += d * d;
        size += (double)((const float *)want->data)[i] * ((const float *)want->data)[i];
    }
    return sqrt(error / size);
}

typedef void Body(SheafModel *m, SheafNet *net, const Case *c);

static void with_net(const char *name, int n_in, int n_out, int threads, bool shards, Body *body) {
    SheafErr e = {""};
    SheafRuntime *rt = NULL;
    SheafModel *m = NULL;
    SheafNet *net = NULL;
    char path[512], file[64];
    Case c = read_case(name, n_in, n_out);
    snprintf(file, sizeof file, "onnx/%s.onnx", name);
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", file));
    CU_ASSERT_FATAL(!sheaf_runtime_open(&(SheafRuntimeOptions){.threads = threads, .check = true}, &rt, &e));
    bool open =
        !sheaf_model_open(rt, path, &m, &e) && !sheaf_net_open(m, &(SheafNetOptions){.shards = shards}, &net, &e);
    CU_ASSERT(open);
    if (open) body(m, net, &c);
    else printf("\n%s: %s", name, e.msg);
    sheaf_net_close(net);
    sheaf_model_close(m);
    CU_ASSERT(!sheaf_runtime_close(rt, &e));
    case_free(&c);
}

/* All rows, one row, and some again; the same rows give the same bits whatever ran in between. */
static void run_rows(SheafModel *m, SheafNet *net, const Case *c) {
    int64_t n = c->in[0].dim[0];
    float *first = NULL;
    for (int64_t k = 0; k < 2 * n; k++) {
        int64_t size = k == n ? n : k % n + 1; /* 1, 2 .. n, n, 2 ..: more shapes than are kept */
        SheafArray in = rows(&c->in[0], n - size, size), want = rows(&c->out[0], n - size, size), out;
        SheafErr e = {""};
        int failed = sheaf_net_run(net, &in, &out, &e);
        CU_ASSERT_FATAL(!failed);
        double error = relative_error(&out, &want);
        CU_ASSERT(error < 2e-6);
        if (!(error < 2e-6)) printf("\n%s, %d rows: relative error %g", c->name, (int)size, error);
        if (size != n) continue;
        size_t bytes = (size_t)count(&out) * sizeof(float);
        if (!first) {
            first = malloc(bytes);
            memcpy(first, out.data, bytes);
        } else CU_ASSERT(memcmp(first, out.data, bytes) == 0);
    }
    free(first);
    CU_ASSERT(sheaf_n_inputs(m) == 1 && sheaf_n_results(m) == 1 && sheaf_input(m, 0)->dim[0] == -1);
}

static void test_rows(void) {
    for (int threads = 1; threads <= 2; threads++)
        for (int shards = 0; shards < 2; shards++) {
            with_net("net", 1, 1, threads, shards, run_rows);
            with_net("chain", 1, 1, threads, shards, run_rows);
        }
}

static void run_parts(SheafModel *m, SheafNet *net, const Case *c) {
    SheafErr e = {""};
    SheafArray out[2];
    CU_ASSERT_FATAL(!sheaf_net_run(net, c->in, out, &e));
    for (int i = 0; i < 2; i++) CU_ASSERT(relative_error(&out[i], &c->out[i]) < 2e-6);
    CU_ASSERT_STRING_EQUAL(sheaf_result(m, 1)->name, "ends");
}

static void test_parts(void) {
    for (int shards = 0; shards < 2; shards++) with_net("parts", 2, 2, 2, shards, run_parts);
}

/* Wrong arrays are errors on all ranks, and the net goes on working. */
static void run_wrong(SheafModel *m, SheafNet *net, const Case *c) {
    SheafErr e = {""};
    SheafArray in[2] = {c->in[0], c->in[1]}, out[2];
    (void)m;
    in[0].dim[1] = 5;
    CU_ASSERT(sheaf_net_run(net, in, out, &e) == -1 &&
              strstr(e.msg, "input a has shape [n, 6, h, w], not [2, 5, 4, 5]"));
    in[0] = c->in[0];
    in[0].type = SHEAF_I32;
    CU_ASSERT(sheaf_net_run(net, in, out, &e) == -1 && strstr(e.msg, "type F32, not I32"));
    in[0] = c->in[0];
    in[1].dim[0] = 3; /* the same symbol as the height of a */
    CU_ASSERT(sheaf_net_run(net, in, out, &e) == -1 && strstr(e.msg, "differ in h: 4 and 3"));
    in[1] = c->in[1];
    in[0].data = NULL;
    CU_ASSERT(sheaf_net_run(net, in, out, &e) == -1 && strstr(e.msg, "no data"));
    run_parts(m, net, c);
}

static void test_wrong(void) {
    for (int shards = 0; shards < 2; shards++) with_net("parts", 2, 2, 1, shards, run_wrong);
}

/* A rank's weights are its share of the channels. */
static void run_weights(SheafModel *m, SheafNet *net, const Case *c) {
    SheafErr e = {""};
    SheafArray out;
    CU_ASSERT_FATAL(!sheaf_net_run(net, c->in, &out, &e));
    uint64_t all = sheaf_model_info(m)->weight_bytes, mine = sheaf_net_info(net).weight_bytes;
    CU_ASSERT(mine > 0 && mine < all / (uint64_t)comm_size(job) + all / 3);
    CU_ASSERT(sheaf_net_info(net).plan_hash != 0);
}

static void test_weights(void) { with_net("net", 1, 1, 1, true, run_weights); }

int main(void) {
    Err e;
    if (comm_create(&(CommOptions){0}, &job, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    static const CU_TestInfo tests[] = {{"rows", test_rows},
                                        {"inputs and results", test_parts},
                                        {"wrong arrays", test_wrong},
                                        {"divided weights", test_weights},
                                        CU_TEST_INFO_NULL};
    int status = check_run("net", tests);
    comm_free(job);
    return status;
}
