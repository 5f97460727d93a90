/* How close each kernel of each table comes to what this CPU gives one thread: a plain read of the same memory for
 * decoding, the multiply instruction's own rate for the rest. Both ceilings are measured in the same run.
 *
 * kernel_bench [TABLE [TYPE]]: all tables this CPU can run, or the named one; with a type, only its matmuls, and more
 * of them. About 20 s each. */
#include "kernels/kernels.h"

#include "base/arena.h"

#include <immintrin.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* CPU time of this thread: what other programs take does not count. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best time of fn(arg) over several calls, at least 3 and about 0.1 s. */
static double best_of(void (*fn)(void *), void *arg) {
    double best = INFINITY, begin = now();
    for (int i = 0; i < 3 || (now() - begin < 0.1 && i < 1000); i++) {
        double t = now();
        fn(arg);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

/* ---- ceilings ---- */

typedef struct Ceilings {
    double read;         /* bytes per second */
    double fma, integer; /* multiply-accumulates per second */
} Ceilings;

static uint8_t *memory; /* MEMORY bytes on 2 MB pages */
enum { MEMORY = 256 << 20, PEAK_LOOPS = 1000000, CHAINS = 10 };
static volatile int sink;

__attribute__((target("avx2"))) static void read_memory(void *arg) {
    size_t ahead = *(const size_t *)arg;
    __m256i x[4] = {_mm256_setzero_si256()};
    for (size_t i = 0; i < MEMORY; i += 128) {
        _mm_prefetch((const char *)memory + i + ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)memory + i + ahead + 64, _MM_HINT_T0);
        for (int j = 0; j < 4; j++)
            x[j] = _mm256_xor_si256(x[j], _mm256_load_si256((const __m256i *)(const void *)(memory + i) + j));
    }
    sink = _mm256_extract_epi32(_mm256_xor_si256(_mm256_xor_si256(x[0], x[1]), _mm256_xor_si256(x[2], x[3])), 0);
}

/* Ten independent chains of one instruction on registers: more than latency x units of any CPU that has it. */
#define TEN(I, R)                                                                                                      \
    I " " R "14, " R "15, " R "0\n" I " " R "14, " R "15, " R "1\n" I " " R "14, " R "15, " R "2\n" I " " R "14, " R   \
      "15, " R "3\n" I " " R "14, " R "15, " R "4\n" I " " R "14, " R "15, " R "5\n" I " " R "14, " R "15, " R "6\n" I \
      " " R "14, " R "15, " R "7\n" I " " R "14, " R "15, " R "8\n" I " " R "14, " R "15, " R "9\n"
#define CLEAR15                                                                                                        \
    "vpxor %%xmm0, %%xmm0, %%xmm0\nvpxor %%xmm1, %%xmm1, %%xmm1\nvpxor %%xmm2, %%xmm2, %%xmm2\n"                       \
    "vpxor %%xmm3, %%xmm3, %%xmm3\nvpxor %%xmm4, %%xmm4, %%xmm4\nvpxor %%xmm5, %%xmm5, %%xmm5\n"                       \
    "vpxor %%xmm6, %%xmm6, %%xmm6\nvpxor %%xmm7, %%xmm7, %%xmm7\nvpxor %%xmm8, %%xmm8, %%xmm8\n"                       \
    "vpxor %%xmm9, %%xmm9, %%xmm9\nvpxor %%xmm14, %%xmm14, %%xmm14\nvpxor %%xmm15, %%xmm15, %%xmm15\n"
#define PEAK_FN(NAME, I, R)                                                                                            \
    static void NAME(void *arg) {                                                                                      \
        (void)arg;                                                                                                     \
        long n = PEAK_LOOPS;                                                                                           \
        __asm__ volatile(CLEAR15 "1:\n" TEN(I, R) "dec %0\njnz 1b\nvzeroupper\n"                                       \
                         : "+r"(n)                                                                                     \
                         :                                                                                             \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm14",    \
                           "xmm15", "cc");                                                                             \
    }
PEAK_FN(fma_256, "vfmadd231ps", "%%ymm")
PEAK_FN(maddubs_256, "vpmaddubsw", "%%ymm")
PEAK_FN(fma_512, "vfmadd231ps", "%%zmm")
PEAK_FN(vnni_512, "vpdpbusd", "%%zmm")

static Ceilings measure_ceilings(bool wide) {
    Ceilings c = {0};
    const size_t ahead[] = {0, 2048, 4096};
    for (int i = 0; i < 3; i++) c.read = fmax(c.read, MEMORY / best_of(read_memory, (void *)&ahead[i]));
    double instructions = (double)PEAK_LOOPS * CHAINS;
    c.fma = instructions * (wide ? 16 : 8) / best_of(wide ? fma_512 : fma_256, NULL);
    c.integer = instructions * (wide ? 64 : 32) / best_of(wide ? vnni_512 : maddubs_256, NULL);
    return c;
}

/* ---- matmul ---- */

typedef struct Matmul {
    const Kernels *k;
    PackedWeights w;
    ActQ a;
    const float *x;
    float *y;
    int64_t m;
} Matmul;

static void *get(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) abort();
    memset(p, 0, (bytes + 63) / 64 * 64);
    return p;
}

static void matmul(void *arg) {
    Matmul *j = arg;
    int64_t panels = packed_panels(j->w.n);
    if (qtype_info(j->w.type)->quantised)
        j->k->matmul_q(&j->w, &j->a, 0, (j->m + ACT_ROWS - 1) / ACT_ROWS, 0, panels, j->y, j->w.n, NULL);
    else j->k->matmul_f(&j->w, j->x, j->w.k, 0, j->m, 0, panels, j->y, j->w.n, NULL);
}

/* n = 0: as many columns as fill `memory`. */
static void bench_matmul(const Kernels *k, QType type, int planes, int64_t m, int64_t n, int64_t kk, Ceilings c) {
    size_t panel;
    if (!packed_panel_bytes(type, 0, kk, &panel)) abort();
    bool stream = n == 0;
    if (stream) n = (int64_t)(MEMORY / panel) * PANEL;
    Matmul j = {.k = k, .w = {.type = type, .n = n, .k = kk, .data = memory}, .m = m};
    float *x = get((size_t)(m * kk) * sizeof *x);
    for (int64_t i = 0; i < m * kk; i++) x[i] = (float)(i * 7919 % 1000) - 500.0f;
    j.x = x;
    j.y = get((size_t)(m * n) * sizeof *j.y);
    j.a = act_view(get(act_bytes(m, kk, planes)), m, m, kk, planes);
    k->quantise(x, kk, 0, m, &j.a);
    double t = best_of(matmul, &j);
    double bytes = (double)panel * (double)packed_panels(n), macs = (double)m * (double)n * (double)kk;
    printf("%-11s matmul %-6s x %s m %4lld n %6lld k %5lld ", k->name, qtype_info(type)->name,
           !qtype_info(type)->quantised ? "F32"
           : planes == 2                ? "A16"
                                        : "A8 ",
           (long long)m, (long long)n, (long long)kk);
    if (stream) printf("%7.2f GB/s   %.2f of a plain read\n", bytes / t * 1e-9, bytes / t / c.read);
    else if (qtype_info(type)->quantised)
        printf("%7.1f GMAC/s %.2f of the integer peak\n", macs / t * 1e-9, planes * macs / t / c.integer);
    else printf("%7.1f GMAC/s %.2f of the FMA peak\n", macs / t * 1e-9, macs / t / c.fma);
    free(x), free(j.y), free(j.a.codes);
}

/* ---- attention ---- */

typedef struct Attention {
    const Kernels *k;
    AttnRun run;
    int64_t positions; /* queries at [first, positions) */
    int64_t first;
    int sequences; /* each with its own blocks, so that decoding reads from memory */
    const int32_t *tables;
    int group;
} Attention;

static void attend(void *arg) {
    Attention *j = arg;
    int64_t blocks = (j->positions + KV_BLOCK - 1) / KV_BLOCK;
    for (int s = 0; s < j->sequences; s++)
        for (int h = 0; h < j->run.shape.kv_heads; h++)
            for (int64_t p = j->first; p < j->positions; p += ATTN_ROWS) {
                AttnRun r = j->run;
                r.table = j->tables + s * blocks;
                r.kv_head = h, r.q_head0 = h * j->group, r.q_head1 = (h + 1) * j->group;
                r.pos0 = p;
                r.n_rows = j->positions - p < ATTN_ROWS ? j->positions - p : ATTN_ROWS;
                j->k->attention(&r);
            }
}

static void bench_attention(const Kernels *k, int group, int head_dim, int64_t first, int64_t positions, Ceilings c) {
    KvShape shape = {3, head_dim};
    int64_t ld = shape.kv_heads * group * head_dim, blocks = (positions + KV_BLOCK - 1) / KV_BLOCK;
    size_t cache = (size_t)blocks * kv_block_bytes(shape);
    bool decode = positions - first == 1;
    int sequences = decode ? (int)(MEMORY / cache) : 1;
    float *q = get(ATTN_ROWS * (size_t)ld * sizeof *q), *out = get(ATTN_ROWS * (size_t)ld * sizeof *out);
    int32_t *tables = get((size_t)sequences * (size_t)blocks * sizeof *tables);
    for (int i = 0; i < sequences * (int)blocks; i++) tables[i] = i;
    for (int64_t i = 0; i < ATTN_ROWS * ld; i++) q[i] = (float)(i % 13) * 0.01f;
    AttnRun run = {.q = q, .out = out, .ldq = ld, .ldo = ld, .scale = 0.125f, .shape = shape, .blocks = memory};
    Attention j = {k, run, positions, first, sequences, tables, group};
    double t = best_of(attend, &j), macs = 0.0;
    for (int64_t p = first; p < positions; p++) macs += 2.0 * (double)(p + 1) * (double)ld;
    printf("%-11s attention dim %3d x %d heads, %4lld of %4lld ", k->name, head_dim, group,
           (long long)(positions - first), (long long)positions);
    double bytes = (double)sequences * (double)cache;
    if (decode) printf("%7.2f GB/s   %.2f of a plain read\n", bytes / t * 1e-9, bytes / t / c.read);
    else printf("%7.1f GMAC/s %.2f of the FMA peak\n", macs / t * 1e-9, macs / t / c.fma);
    free(q), free(out), free(tables);
}

/* ---- rows ---- */

enum { ROWS = 64, COLUMNS = 4096 };
typedef struct Rows {
    const Kernels *k;
    float *x, *y;
    ActQ a;
} Rows;

static void run_quantise(void *arg) {
    Rows *r = arg;
    r->k->quantise(r->x, COLUMNS, 0, ROWS, &r->a);
}
static void run_rmsnorm(void *arg) {
    Rows *r = arg;
    for (int i = 0; i < ROWS; i++) r->k->rmsnorm(r->x + i * COLUMNS, r->x, 1e-5f, COLUMNS, r->y + i * COLUMNS);
}
static void run_silu(void *arg) {
    Rows *r = arg;
    r->k->silu_mul(r->x, r->x, (int64_t)ROWS * COLUMNS, r->y);
}
static void run_logsumexp(void *arg) {
    Rows *r = arg;
    float max, sum;
    r->k->logsumexp(r->x, (int64_t)ROWS * COLUMNS, &max, &sum);
}
static void run_topk(void *arg) {
    Rows *r = arg;
    int32_t ids[40];
    float values[40];
    r->k->topk(r->x, (int64_t)ROWS * COLUMNS, 40, 0, ids, values);
}

static void bench_rows(const Kernels *k) {
    const struct {
        const char *name;
        void (*run)(void *);
    } table[] = {{"quantise", run_quantise},
                 {"rmsnorm", run_rmsnorm},
                 {"silu_mul", run_silu},
                 {"logsumexp", run_logsumexp},
                 {"topk 40", run_topk}};
    size_t n = ROWS * COLUMNS;
    Rows r = {k, get(n * sizeof(float)), get(n * sizeof(float)),
              act_view(get(act_bytes(ROWS, COLUMNS, 1)), ROWS, ROWS, COLUMNS, 1)};
    for (size_t i = 0; i < n; i++) r.x[i] = (float)(i * 2654435761u % 4096) * 0.001f - 2.0f;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        printf("%-11s %-10s %.2f G elements/s\n", k->name, table[i].name, (double)n / best_of(table[i].run, &r) * 1e-9);
    free(r.x), free(r.y), free(r.a.codes);
}

/* The type of that name, or QT_COUNT. */
static QType type_named(const char *name) {
    for (int t = 0; t < QT_COUNT; t++)
        if (strcmp(name, qtype_info((QType)t)->name) == 0) return (QType)t;
    return QT_COUNT;
}

/* Few rows and many. */
static void bench_type(const Kernels *k, QType t, Ceilings c) {
    bool quantised = qtype_info(t)->quantised;
    int64_t large = quantised ? 4096 : 1024;
    for (int planes = 1; planes <= (quantised ? 2 : 1); planes++) {
        bench_matmul(k, t, planes, 1, 0, 4096, c);
        bench_matmul(k, t, planes, 512, large, large, c);
    }
}

static void bench_shapes(const Kernels *k, QType t, Ceilings c) {
    for (int planes = 1; planes <= (qtype_info(t)->quantised ? 2 : 1); planes++) {
        bench_matmul(k, t, planes, 512, 1536, 512, c);
        for (int64_t m = 1; m <= 32; m *= 2) bench_matmul(k, t, planes, m, 1536, 512, c);
        bench_matmul(k, t, planes, 63, 1536, 512, c);
    }
}

/* `type` NULL: all types, and the other kernels. */
static void bench_table(const Kernels *k, const char *type) {
    Ceilings c = measure_ceilings(strncmp(k->name, "avx512", 6) == 0);
    printf("%-11s ceilings: read %.2f GB/s, FMA %.1f GMAC/s, integer %.1f GMAC/s\n", k->name, c.read * 1e-9,
           c.fma * 1e-9, c.integer * 1e-9);
    if (type) {
        bench_type(k, type_named(type), c);
        bench_shapes(k, type_named(type), c);
        return;
    }
    size_t panel;
    for (int t = 0; t < QT_COUNT; t++)
        if (packed_panel_bytes((QType)t, 0, SUPER_BLOCK, &panel)) bench_type(k, (QType)t, c);
    bench_shapes(k, QT_Q4_K, c);
    bench_attention(k, 3, 64, 0, 512, c);
    bench_attention(k, 3, 64, 0, 2048, c);
    bench_attention(k, 4, 128, 0, 1024, c);
    bench_attention(k, 3, 64, 2047, 2048, c);
    bench_attention(k, 8, 128, 2047, 2048, c);
    bench_rows(k);
}

int main(int argc, char **argv) {
    const char *type = argc > 2 ? argv[2] : NULL;
    size_t panel;
    if (type && (type_named(type) == QT_COUNT || !packed_panel_bytes(type_named(type), 0, SUPER_BLOCK, &panel)))
        return fprintf(stderr, "no weight type '%s'\n", type), 1;
    Err e;
    Arena arena;
    if (arena_create(&arena, MEMORY + (1 << 20), -1, &e)) return fprintf(stderr, "%s\n", e.msg), 1;
    memory = arena.base;
    /* Codes at random; scales, minima and other values stay small positive numbers whatever the type. */
    for (size_t i = 0; i < MEMORY; i += 8) {
        uint64_t v = (i * 0x9e3779b97f4a7c15u) & 0x3f3f3f3f3f3f3f3fu & ~0x0400040004000400u;
        memcpy(memory + i, &v, sizeof v);
    }
    cpu_set_t one; /* stay on one CPU */
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    bool runnable, found = false;
    const Kernels *k;
    for (int i = 1; (k = kernels_at(i, &runnable)); i++) {
        if (!runnable || (argc > 1 && strcmp(argv[1], k->name) != 0)) continue;
        bench_table(k, type);
        found = true;
    }
    if (!found) fprintf(stderr, "no such table on this CPU\n");
    arena_free(&arena);
    return found ? 0 : 1;
}
