/* Convolution and pooling against plain loops with double sums, for many shapes and numbers of threads. */
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

/* One output value, and in *size the sum of the absolute products: what the error of any order of summing scales with.
 */
static double plain_pixel(const ConvShape *s, const float *x, const float *w, const float *bias, int64_t n, int64_t row,
                          int64_t col, int64_t o, double *size) {
    double sum = bias ? bias[o] : 0;
    *size = fabs(sum);
    const int64_t wc = s->depthwise ? 1 : s->c;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            int64_t iy = row * s->stride - s->pad + ky, ix = col * s->stride - s->pad + kx;
            if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w) continue;
            for (int64_t i = 0; i < wc; i++) {
                double p = (double)x[((n * s->h + iy) * s->w + ix) * s->c + (s->depthwise ? o : i)] *
                           w[((o * s->kh + ky) * s->kw + kx) * wc + i];
                sum += p;
                *size += fabs(p);
            }
        }
    }
    return s->relu && sum < 0 ? 0 : sum;
}

typedef struct Run {
    const Conv *conv;
    const float *x;
    float *y;
    int failed;
} Run;

static void run_share(void *arg, int thread, int n_threads) {
    Run *r = arg;
    (void)n_threads;
    if (conv_run(r->conv, r->x, r->y, thread)) r->failed = 1;
}

static Pool *pools[5]; /* by number of threads */

/* Runs one shape on n_threads threads into y. */
static void run_conv(const ConvShape *s, const float *x, const float *w, const float *bias, int n_threads, float *y,
                     bool fast) {
    Err e = {""};
    Conv *conv;
    CU_ASSERT_FATAL(conv_create(s, w, bias, n_threads, &conv, &e) == 0);
    if (fast && strncmp(conv_kernel(conv), "ref", 3) == 0) {
        printf("n%d %dx%dx%d -> %d, %dx%d: %s\n", (int)s->n, (int)s->h, (int)s->w, (int)s->c, (int)s->o, (int)s->kh,
               (int)s->kw, conv_kernel(conv));
        CU_FAIL("oneDNN fell back on its reference loops");
    }
    Run r = {conv, x, y, 0};
    pool_run(pools[n_threads], run_share, &r);
    CU_ASSERT(r.failed == 0);
    size_t least = (size_t)(s->o * s->kh * s->kw * (s->depthwise ? 1 : s->c)) * sizeof *w;
    CU_ASSERT(s->n == 0 || s->c == 0 || conv_weight_bytes(conv) >= least);
    conv_free(conv);
}

static void check_conv(const ConvShape *s, bool with_bias, bool fast) {
    const int64_t oh = conv_out(s->h, s->kh, s->stride, s->pad), ow = conv_out(s->w, s->kw, s->stride, s->pad);
    const int64_t size = s->n * oh * ow * s->o;
    float *x = noises(s->n * s->h * s->w * s->c);
    float *w = noises(s->o * s->kh * s->kw * (s->depthwise ? 1 : s->c)), *bias = noises(s->o);
    float *y = malloc((size_t)(size + 16) * sizeof *y);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        for (int64_t i = 0; i < size + 16; i++) y[i] = 12345;
        run_conv(s, x, w, with_bias ? bias : NULL, n_threads, y, fast);
        double worst = 0;
        for (int64_t i = 0; i < size; i++) {
            double scale, want = plain_pixel(s, x, w, with_bias ? bias : NULL, i / (oh * ow * s->o),
                                             i / (ow * s->o) % oh, i / s->o % ow, i % s->o, &scale);
            double error = fabs(y[i] - want) / (scale + 1e-30);
            worst = error > worst || isnan(error) ? error : worst;
        }
        /* K roundings of 2^-24 each, in any order, walk at random: about sqrt(K) 2^-24 of the sum of sizes at the
         * worst, 3e-6 for the largest K here (7 * 7 * 48), and usually far less as each is relative to a smaller
         * partial sum. */
        CU_ASSERT(worst < 2e-6);
        if (!(worst < 2e-6))
            printf("n%d %dx%dx%d -> %d, %dx%d, stride %d, pad %d, depthwise %d, threads %d: %g\n", (int)s->n, (int)s->h,
                   (int)s->w, (int)s->c, (int)s->o, (int)s->kh, (int)s->kw, (int)s->stride, (int)s->pad, s->depthwise,
                   n_threads, worst);
        for (int64_t i = size; i < size + 16; i++) CU_ASSERT(y[i] == 12345);
    }
    free(x);
    free(w);
    free(bias);
    free(y);
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
                               .kh = windows[j][0],
                               .kw = windows[j][0],
                               .stride = stride,
                               .pad = windows[j][1],
                               .relu = count % 2};
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
                               .kh = k,
                               .kw = k,
                               .stride = stride,
                               .pad = k / 2,
                               .depthwise = true,
                               .relu = count % 2};
                check_conv(&s, count % 4 < 3, true);
            }
        }
    }
}

/* Few rows and many channels: threads take slices of the channels. Windows that are not square; an image smaller than
 * the window; rows of padding alone; stride over the window's size; a last row that no window reaches. */
static void test_edges(void) {
    const ConvShape shapes[] = {
        {.n = 1, .h = 1, .w = 1, .c = 40, .o = 100, .kh = 1, .kw = 1, .stride = 1},
        {.n = 1, .h = 2, .w = 2, .c = 64, .o = 130, .kh = 3, .kw = 3, .stride = 1, .pad = 1, .relu = true},
        {.n = 2, .h = 1, .w = 3, .c = 64, .o = 128, .kh = 3, .kw = 3, .stride = 2, .pad = 1},
        {.n = 2, .h = 6, .w = 9, .c = 4, .o = 6, .kh = 3, .kw = 1, .stride = 1},
        {.n = 1, .h = 6, .w = 9, .c = 4, .o = 6, .kh = 2, .kw = 5, .stride = 1, .pad = 1},
        {.n = 1, .h = 2, .w = 2, .c = 3, .o = 4, .kh = 5, .kw = 5, .stride = 1, .pad = 2},
        {.n = 3, .h = 7, .w = 8, .c = 3, .o = 4, .kh = 1, .kw = 1, .stride = 2},
        {.n = 1, .h = 8, .w = 8, .c = 19, .o = 21, .kh = 2, .kw = 2, .stride = 3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_conv(&shapes[i], true, true);
    const ConvShape padded = {.n = 1, .h = 4, .w = 4, .c = 3, .o = 5, .kh = 1, .kw = 1, .stride = 1, .pad = 1};
    check_conv(&padded, true, false);
}

static void test_empty(void) {
    const ConvShape shapes[] = {
        {.n = 0, .h = 5, .w = 5, .c = 3, .o = 4, .kh = 3, .kw = 3, .stride = 1, .pad = 1},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 4, .kh = 3, .kw = 3, .stride = 1, .pad = 1},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 4, .kh = 1, .kw = 1, .stride = 1, .relu = true},
        {.n = 2, .h = 5, .w = 5, .c = 3, .o = 0, .kh = 3, .kw = 3, .stride = 1, .pad = 1},
        {.n = 2, .h = 5, .w = 5, .c = 0, .o = 0, .kh = 3, .kw = 3, .stride = 1, .pad = 1, .depthwise = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_conv(&shapes[i], true, true);
        check_conv(&shapes[i], false, true);
    }
}

/* An image's result does not depend on its neighbours in the batch when the threads share it in the same way. */
static void test_batch(void) {
    ConvShape one = {.n = 1, .h = 14, .w = 14, .c = 32, .o = 48, .kh = 3, .kw = 3, .stride = 1, .pad = 1}, three = one;
    three.n = 3;
    const int64_t in = 14 * 14 * 32, out = 14 * 14 * 48;
    float *x = noises(3 * in), *w = noises(48 * 9 * 32), *y = malloc(3 * (size_t)out * 4), *z = malloc((size_t)out * 4);
    run_conv(&three, x, w, NULL, 1, y, true);
    for (int i = 0; i < 3; i++) {
        run_conv(&one, x + i * in, w, NULL, 1, z, true);
        CU_ASSERT(memcmp(y + i * out, z, (size_t)out * 4) == 0);
    }
    free(x);
    free(w);
    free(y);
    free(z);
}

static void test_refused(void) {
    const ConvShape good = {.n = 1, .h = 5, .w = 5, .c = 3, .o = 4, .kh = 3, .kw = 3, .stride = 1};
    ConvShape bad[6] = {good, good, good, good, good, good};
    bad[0].kh = 6;
    bad[1].stride = 0;
    bad[2].pad = -1;
    bad[3].depthwise = true;
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
    const ConvShape s = {.n = 1, .h = 8, .w = 8, .c = 16, .o = 16, .kh = 3, .kw = 3, .stride = 1, .pad = 1};
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
    ConvShape s = {.n = 2, .h = 56, .w = 56, .c = 64, .o = 64, .kh = 3, .kw = 3, .stride = 1, .pad = 1};
    float *x = noises(s.n * s.h * s.w * s.c), *w = noises(s.o * 9 * s.c),
          *y = malloc((size_t)(s.n * 56 * 56 * s.o) * 4);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        run_conv(&s, x, w, NULL, n_threads, y, true);
        CU_ASSERT_EQUAL(count_threads(), before);
    }
    free(x);
    free(w);
    free(y);
}

static void test_pool(void) {
    static const int shapes[][6] = {/* h, w, c, size, stride, pad */
                                    {8, 9, 5, 3, 2, 1}, {7, 7, 17, 2, 2, 0}, {5, 6, 16, 3, 1, 1}, {6, 5, 3, 5, 3, 2},
                                    {1, 1, 4, 1, 1, 0}, {2, 2, 1, 3, 2, 1},  {9, 8, 33, 2, 3, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int *v = shapes[i];
        const int64_t n = 3, h = v[0], w = v[1], c = v[2], k = v[3], stride = v[4], pad = v[5];
        const int64_t oh = conv_out(h, k, stride, pad), ow = conv_out(w, k, stride, pad);
        float *x = noises(n * h * w * c), *max = noises(n * oh * ow * c), *mean = noises(n * oh * ow * c);
        conv_pool(CONV_POOL_MAX, h, w, c, k, stride, pad, 0, 1, x, max);
        conv_pool(CONV_POOL_MAX, h, w, c, k, stride, pad, 1, n, x, max);
        conv_pool_rows(CONV_POOL_AVERAGE, h, w, c, k, stride, pad, 0, oh + 1, x, mean);
        conv_pool_rows(CONV_POOL_AVERAGE, h, w, c, k, stride, pad, oh + 1, n * oh, x, mean);
        for (int64_t j = 0; j < n * oh * ow * c; j++) {
            double best = -HUGE_VAL, sum = 0;
            int count = 0;
            for (int64_t p = 0; p < k * k; p++) {
                int64_t iy = j / (ow * c) % oh * stride - pad + p / k, ix = j / c % ow * stride - pad + p % k;
                if (iy < 0 || iy >= h || ix < 0 || ix >= w) continue;
                double value = x[((j / (oh * ow * c) * h + iy) * w + ix) * c + j % c];
                best = value > best ? value : best;
                sum += value;
                count++;
            }
            CU_ASSERT(max[j] == best);
            CU_ASSERT(fabs(mean[j] - sum / count) < 1e-6);
        }
        free(x);
        free(max);
        free(mean);
    }
}

static void test_pool_nan(void) {
    const float x[4] = {1, NAN, 2, -INFINITY}, low[2] = {-INFINITY, -INFINITY};
    float y;
    conv_pool(CONV_POOL_MAX, 2, 2, 1, 2, 2, 0, 0, 1, x, &y);
    CU_ASSERT(isnan(y));
    conv_pool(CONV_POOL_MAX, 1, 2, 1, 1, 2, 0, 0, 1, low, &y);
    CU_ASSERT(y == -INFINITY);
    conv_global_average(2, 2, 1, 0, 1, x, &y);
    CU_ASSERT(isnan(y));
}

static void test_global_average(void) {
    const int64_t n = 3, h = 7, w = 5, c = 19;
    float *x = noises(n * h * w * c), y[3 * 19];
    conv_global_average(h, w, c, 0, 2, x, y);
    conv_global_average(h, w, c, 2, 3, x, y);
    for (int64_t j = 0; j < n * c; j++) {
        double sum = 0;
        for (int64_t p = 0; p < h * w; p++) sum += x[(j / c * h * w + p) * c + j % c];
        CU_ASSERT(fabs(y[j] - sum / (double)(h * w)) < 1e-6);
    }
    free(x);
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
                                        {"empty shapes", test_empty},
                                        {"batch", test_batch},
                                        {"refused shapes", test_refused},
                                        {"max and average pooling", test_pool},
                                        {"NaN in pooling", test_pool_nan},
                                        {"global average", test_global_average},
                                        CU_TEST_INFO_NULL};
    int status = check_run("conv", tests);
    for (int i = 1; i <= 4; i++) pool_free(pools[i]);
    return status;
}
