/* Convolution against plain loops with double sums, for many shapes and numbers of threads. */
#include "kernels/conv.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/size.h"
#include "check.h"

static uint32_t seed;
/* Uniform in [-1, 1). */
static float noise(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * (2.0f / 16777216.0f) - 1;
}
static float *noises(int64_t n) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = noise();
    return x;
}

/* The functions that may stand behind a convolution, as ONNX defines them. */
static double plain_act(const ConvShape *s, double v) {
    switch (s->act) {
    case ND_RELU: return v < 0 ? 0 : v;
    case ND_LEAKY_RELU: return v < 0 ? s->a * v : v;
    case ND_CLIP: return v < s->a ? s->a : v > s->b ? s->b : v;
    case ND_SIGMOID: return 1 / (1 + exp(-v));
    case ND_SILU: return v / (1 + exp(-s->a * v));
    case ND_TANH: return tanh(v);
    case ND_HARD_SWISH: return v * fmax(0, fmin(1, v / 6 + 0.5));
    case ND_GELU: return v / 2 * (1 + erf(v / sqrt(2)));
    case ND_ELU: return v < 0 ? s->a * (exp(v) - 1) : v;
    default: return v;
    }
}

static int64_t groups_of(const ConvShape *s) { return s->groups ? s->groups : 1; }

/* One output value, and in *size the sum of the absolute products: what the error of any order of summing scales with.
 */
static double plain_pixel(const ConvShape *s, const float *x, const float *w, const float *bias, float residual,
                          int64_t n, int64_t row, int64_t col, int64_t o, double *size) {
    double sum = bias ? bias[o] : 0;
    *size = fabs(sum);
    const int64_t wc = s->c / groups_of(s), first = o / (s->o / groups_of(s)) * wc;
    const NdWindow *v = &s->win;
    for (int64_t ky = 0; ky < v->size[0]; ky++) {
        for (int64_t kx = 0; kx < v->size[1]; kx++) {
            int64_t iy = row * v->stride[0] - v->before[0] + ky * v->dilation[0];
            int64_t ix = col * v->stride[1] - v->before[1] + kx * v->dilation[1];
            if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w) continue;
            for (int64_t i = 0; i < wc; i++) {
                double p = (double)x[((n * s->h + iy) * s->w + ix) * s->c + first + i] *
                           w[((o * v->size[0] + ky) * v->size[1] + kx) * wc + i];
                sum += p;
                *size += fabs(p);
            }
        }
    }
    *size += fabs((double)residual);
    if (s->act == ND_SIGMOID || s->act == ND_ELU) *size += 1; /* their error does not shrink with the argument */
    return plain_act(s, sum + residual);
}

typedef struct Run {
    const Conv *conv;
    const float *x, *residual;
    float *y;
    int failed;
} Run;

static void run_share(void *arg, int thread, int n_threads) {
    Run *r = arg;
    (void)n_threads;
    if (conv_run(r->conv, r->x, r->residual, r->y, thread)) r->failed = 1;
}

static Pool *pools[5]; /* by number of threads */

/* Runs one shape on n_threads threads into y. */
static void run_conv(const ConvShape *s, const float *x, const float *w, const float *bias, const float *residual,
                     int n_threads, float *y, bool fast) {
    Err e = {""};
    Conv *conv;
    CU_ASSERT_FATAL(conv_create(s, w, bias, n_threads, &conv, &e) == 0);
    if (fast && strncmp(conv_kernel(conv), "ref", 3) == 0) {
        printf("n%d %dx%dx%d -> %d, %dx%d: %s\n", (int)s->n, (int)s->h, (int)s->w, (int)s->c, (int)s->o,
               (int)s->win.size[0], (int)s->win.size[1], conv_kernel(conv));
        CU_FAIL("oneDNN fell back on its reference loops");
    }
    Run r = {conv, x, residual, y, 0};
    pool_run(pools[n_threads], run_share, &r);
    CU_ASSERT(r.failed == 0);
    size_t least = (size_t)(s->o * s->win.size[0] * s->win.size[1] * (s->c / groups_of(s))) * sizeof *w;
    CU_ASSERT(s->n == 0 || s->c == 0 || conv_weight_bytes(conv) >= least);
    conv_free(conv);
}

static void check_conv(const ConvShape *s, bool with_bias, bool fast) {
    const int64_t oh = conv_out(&s->win, 0, s->h), ow = conv_out(&s->win, 1, s->w);
    const int64_t size = s->n * oh * ow * s->o;
    float *x = noises(s->n * s->h * s->w * s->c);
    float *w = noises(s->o * s->win.size[0] * s->win.size[1] * (s->c / groups_of(s))), *bias = noises(s->o);
    float *residual = s->residual ? noises(size) : NULL;
    float *y = malloc((size_t)(size + 16) * sizeof *y);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        for (int64_t i = 0; i < size + 16; i++) y[i] = 12345;
        run_conv(s, x, w, with_bias ? bias : NULL, residual, n_threads, y, fast);
        double worst = 0;
        for (int64_t i = 0; i < size; i++) {
            double scale,
                want = plain_pixel(s, x, w, with_bias ? bias : NULL, residual ? residual[i] : 0, i / (oh * ow * s->o),
                                   i / (ow * s->o) % oh, i / s->o % ow, i % s->o, &scale);
            double error = fabs(y[i] - want) / (scale + 1e-30);
            worst = error > worst || isnan(error) ? error : worst;
        }
        /* K roundings of 2^-24 each, in any order, walk at random: about sqrt(K) 2^-24 of the sum of sizes at the
         * worst, 3e-6 for the largest K here (7 * 7 * 48), and usually far less as each is relative to a smaller
         * partial sum. */
        CU_ASSERT(worst < 2e-6);
        if (!(worst < 2e-6))
            printf("n%d %dx%dx%d -> %d, %dx%d, stride %d, pad %d, groups %d, function %d, threads %d: %g\n", (int)s->n,
                   (int)s->h, (int)s->w, (int)s->c, (int)s->o, (int)s->win.size[0], (int)s->win.size[1],
                   (int)s->win.stride[0], (int)s->win.before[0], (int)s->groups, (int)s->act, n_threads, worst);
        for (int64_t i = size; i < size + 16; i++) CU_ASSERT(y[i] == 12345);
    }
    free(x);
    free(w);
    free(bias);
    free(residual);
    free(y);
}

/* A window of h x w with one stride and padding. */
static NdWindow window(int64_t h, int64_t w, int64_t stride, int64_t pad) {
    return (NdWindow){{h, w}, {stride, stride}, {1, 1}, {pad, pad}, {pad, pad}};
}

/* Every window, stride, padding and odd channel count, for 1 to 3 images. */
static void test_shapes(void) {
    static const int channels[][2] = {{1, 1}, {3, 17}, {16, 16}, {5, 32}, {24, 7}, {37, 51}, {48, 80}};
    static const int windows[][2] = {{1, 0}, {3, 0}, {3, 1}, {7, 3}, {7, 0}, {7, 1}};
    int count = 0;
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (size_t j = 0; j < sizeof windows / sizeof *windows; j++) {
            for (int stride = 1; stride <= 2; stride++, count++) {
                ConvShape s = {.n = 1 + count % 3,
                               .h = 9 + count % 4,
                               .w = 11 - count % 5,
                               .c = channels[i][0],
                               .o = channels[i][1],
                               .win = window(windows[j][0], windows[j][0], stride, windows[j][1]),
                               .act = count % 2 ? ND_RELU : ND_IDENTITY};
                check_conv(&s, count % 4 < 3, true);
            }
        }
    }
}

static void test_depthwise(void) {
    static const int channels[] = {1, 8, 16, 37, 96};
    int count = 0;
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (int k = 3; k <= 7; k += 2) {
            for (int stride = 1; stride <= 2; stride++, count++) {
                ConvShape s = {.n = 1 + count % 3,
                               .h = 10 + count % 3,
                               .w = 9 + count % 4,
                               .c = channels[i],
                               .o = channels[i],
                               .win = window(k, k, stride, k / 2),
                               .groups = channels[i],
                               .act = count % 2 ? ND_RELU : ND_IDENTITY};
                check_conv(&s, count % 4 < 3, true);
            }
        }
    }
}

/* Few rows and many channels: threads take slices of the channels. Windows that are not square; an image smaller than
 * the window; rows of padding alone; stride over the window's size; a last row that no window reaches. */
static void test_edges(void) {
    const ConvShape shapes[] = {
        {.n = 1, .h = 1, .w = 1, .c = 40, .o = 100, .win = window(1, 1, 1, 0)},
        {.n = 1, .h = 2, .w = 2, .c = 64, .o = 130, .win = window(3, 3, 1, 1), .act = ND_RELU},
        {.n = 2, .h = 1, .w = 3, .c = 64, .o = 128, .win = window(3, 3, 2, 1)},
        {.n = 2, .h = 6, .w = 9, .c = 4, .o = 6, .win = window(3, 1, 1, 0)},
        {.n = 1, .h = 6, .w = 9, .c = 4, .o = 6, .win = window(2, 5, 1, 1)},
        {.n = 1, .h = 2, .w = 2, .c = 3, .o = 4, .win = window(5, 5, 1, 2)},
        {.n = 3, .h = 7, .w = 8, .c = 3, .o = 4, .win = window(1, 1, 2, 0)},
        {.n = 1, .h = 8, .w = 8, .c = 19, .o = 21, .win = window(2, 2, 3, 0)},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_conv(&shapes[i], true, true);
    const ConvShape padded = {.n = 1, .h = 4, .w = 4, .c = 3, .o = 5, .win = window(1, 1, 1, 1)};
    check_conv(&padded, true, false);
}

/* Sides that differ in stride, dilation and padding; groups between one and all channels. */
static void test_windows(void) {
    const ConvShape shapes[] = {
        {.n = 2, .h = 12, .w = 13, .c = 16, .o = 24, .win = {{3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}}},
        {.n = 1, .h = 12, .w = 13, .c = 32, .o = 32, .win = {{3, 5}, {1, 2}, {1, 1}, {0, 3}, {2, 1}}, .groups = 32},
        {.n = 1, .h = 14, .w = 11, .c = 16, .o = 16, .win = {{3, 3}, {1, 1}, {2, 3}, {2, 3}, {2, 3}}},
        {.n = 3, .h = 9, .w = 9, .c = 32, .o = 48, .win = {{3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}}, .groups = 2},
        {.n = 1, .h = 9, .w = 9, .c = 12, .o = 6, .win = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, .groups = 3},
        {.n = 1, .h = 6, .w = 6, .c = 8, .o = 24, .win = {{3, 3}, {1, 1}, {1, 1}, {2, 2}, {0, 0}}, .groups = 8},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_conv(&shapes[i], i % 2 == 0, i < 4);
}

/* Every function that fuses, with and without a residual, and what does not fuse. */
static void test_functions(void) {
    static const struct {
        NdUnary f;
        float a, b;
    } functions[] = {{ND_IDENTITY, 0, 0}, {ND_RELU, 0, 0},       {ND_LEAKY_RELU, 0.1f, 0}, {ND_CLIP, 0, 6},
                     {ND_CLIP, -1, 0.5f}, {ND_SIGMOID, 0, 0},    {ND_SILU, 1, 0},          {ND_TANH, 0, 0},
                     {ND_ELU, 0.7f, 1},   {ND_HARD_SWISH, 0, 0}, {ND_GELU, 0, 0}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (int residual = 0; residual < 2; residual++)
            for (int groups = 0; groups <= 32; groups += 32) {
                ConvShape s = {.n = 2, .h = 7, .w = 6, .c = 32, .o = 32, .win = window(3, 3, 1, 1), .groups = groups};
                s.residual = residual;
                s.act = functions[i].f;
                s.a = functions[i].a;
                s.b = functions[i].b;
                CU_ASSERT(conv_fuses(s.act, s.a, s.b));
                check_conv(&s, true, true);
                s.win = window(1, 1, 1, 0);
                check_conv(&s, false, true);
            }
    CU_ASSERT(!conv_fuses(ND_ERF, 0, 0) && !conv_fuses(ND_ELU, 1, 1.05));
}

static void test_empty(void) {
    const ConvShape shapes[] = {
        {.n = 0, .h = 5, .w = 5, .c = 3, .o = 4, .win = window(3, 3, 1, 1)},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 4, .win = window(3, 3, 1, 1)},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 4, .win = window(1, 1, 1, 0), .act = ND_RELU},
        {.n = 2, .h = 5, .w = 5, .c = 3, .o = 0, .win = window(3, 3, 1, 1)},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 0, .win = window(3, 3, 1, 1)},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_conv(&shapes[i], true, true);
        check_conv(&shapes[i], false, true);
    }
}

/* An image's result does not depend on its neighbours in the batch when the threads share it in the same way. */
static void test_batch(void) {
    ConvShape one = {.n = 1, .h = 14, .w = 14, .c = 32, .o = 48, .win = window(3, 3, 1, 1)}, three = one;
    three.n = 3;
    const int64_t in = 14 * 14 * 32, out = 14 * 14 * 48;
    float *x = noises(3 * in), *w = noises(48 * 9 * 32), *y = malloc(3 * (size_t)out * 4), *z = malloc((size_t)out * 4);
    run_conv(&three, x, w, NULL, NULL, 1, y, true);
    for (int i = 0; i < 3; i++) {
        run_conv(&one, x + i * in, w, NULL, NULL, 1, z, true);
        CU_ASSERT(memcmp(y + i * out, z, (size_t)out * 4) == 0);
    }
    free(x);
    free(w);
    free(y);
    free(z);
}

static void test_refused(void) {
    const ConvShape good = {.n = 1, .h = 5, .w = 5, .c = 3, .o = 4, .win = window(3, 3, 1, 0)};
    ConvShape bad[6] = {good, good, good, good, good, good};
    bad[0].win.size[0] = 6;
    bad[1].win.stride[1] = 0;
    bad[2].win.before[0] = -1;
    bad[3].groups = 3;
    bad[4].n = bad[4].h = bad[4].w = 1 << 28;
    bad[5].o = INT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Err e = {""};
        Conv *conv;
        CU_ASSERT(conv_create(&bad[i], NULL, NULL, 1, &conv, &e) == -1);
        CU_ASSERT(conv == NULL && strstr(e.msg, "out of range") != NULL);
    }
}

/* In a process of its own, since the limit holds for good: exit status 0 when the limit took and came in time only. */
static int limited_process(void) {
    const ConvShape s = {.n = 1, .h = 8, .w = 8, .c = 16, .o = 16, .win = window(3, 3, 1, 1)};
    float *w = noises(16 * 9 * 16);
    Err e;
    Conv *conv = NULL;
    int bad = conv_limit_isa("avx2", &e) || conv_create(&s, w, NULL, 1, &conv, &e);
    if (!bad) bad = strstr(conv_kernel(conv), "avx512") != NULL;
    if (!bad) bad = conv_limit_isa("avx512vnni", &e) == 0 ? 2 : 0;
    conv_free(conv);
    free(w);
    return bad;
}

/* Comes first: no convolution may have been made before the fork. */
static void test_limit(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(limited_process());
    int status = -1;
    CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int count_threads(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *f; d && (f = readdir(d));) n += f->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* oneDNN's OpenMP starts no threads beside ours: neither where weights are packed nor where a share is run. Large
 * enough that OpenMP would share it. */
static void test_one_pool(void) {
    const int before = count_threads();
    ConvShape s = {.n = 2, .h = 56, .w = 56, .c = 64, .o = 64, .win = window(3, 3, 1, 1)};
    float *x = noises(s.n * s.h * s.w * s.c), *w = noises(s.o * 9 * s.c),
          *y = malloc((size_t)(s.n * 56 * 56 * s.o) * 4);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        run_conv(&s, x, w, NULL, NULL, n_threads, y, true);
        CU_ASSERT_EQUAL(count_threads(), before);
    }
    free(x);
    free(w);
    free(y);
}

int main(void) {
    Err e;
    for (int i = 1; i <= 4; i++)
        if (pool_create(i, NULL, &pools[i], &e)) return 2;
    static const CU_TestInfo tests[] = {{"limit of the ISA", test_limit},
                                        {"one pool of threads", test_one_pool},
                                        {"windows, strides, paddings, channels", test_shapes},
                                        {"depthwise", test_depthwise},
                                        {"edges", test_edges},
                                        {"windows with sides of their own", test_windows},
                                        {"functions and residuals", test_functions},
                                        {"empty shapes", test_empty},
                                        {"batch", test_batch},
                                        {"refused shapes", test_refused},
                                        CU_TEST_INFO_NULL};
    int status = check_run("conv", tests);
    for (int i = 1; i <= 4; i++) pool_free(pools[i]);
    return status;
}
