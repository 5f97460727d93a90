/* How fast T threads, each pinned to a CPU of its own, read memory that no cache holds: the ceiling of generation.
 *
 * read_bench [T]: prints GB/s (10^9 bytes), the best of several rounds. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 12, MAX_THREADS = 256 };
static const size_t BYTES = (size_t)256 << 20; /* of each thread */

typedef uint64_t Vector __attribute__((vector_size(64)));
typedef struct Reader {
    pthread_t thread;
    pthread_barrier_t *barrier;
    int cpu;
    uint64_t seen;
    double begin[ROUNDS], end[ROUNDS];
} Reader;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `ahead`: bytes that are asked for in advance; what the hardware does by itself is not always the best. */
static uint64_t read_all(const char *memory, size_t ahead) {
    Vector a = {0}, b = {0};
    for (size_t i = 0; i < BYTES; i += 2 * sizeof(Vector)) {
        __builtin_prefetch(memory + i + ahead);
        __builtin_prefetch(memory + i + ahead + sizeof(Vector));
        a ^= *(const Vector *)(const void *)(memory + i);
        b ^= *(const Vector *)(const void *)(memory + i + sizeof(Vector));
    }
    a ^= b;
    return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

static void *reader(void *arg) {
    Reader *r = arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)r->cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    char *memory = mmap(NULL, BYTES + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("read_bench");
        exit(1);
    }
    (void)madvise(memory, BYTES, MADV_HUGEPAGE);
    memset(memory, 1, BYTES + 8192);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(r->barrier);
        r->begin[i] = now();
        r->seen ^= read_all(memory, i % 3 == 0 ? 0 : i % 3 == 1 ? 2048 : 4096);
        r->end[i] = now();
    }
    munmap(memory, BYTES + 8192);
    return NULL;
}

/* The CPUs this process may use, the first `n` of them into `cpus`; returns how many there were. */
static int allowed_cpus(int *cpus, int n) {
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < n; cpu++)
        if (CPU_ISSET((size_t)cpu, &set)) cpus[found++] = cpu;
    return found;
}

int main(int argc, char **argv) {
    static Reader readers[MAX_THREADS];
    int cpus[MAX_THREADS], n = argc > 1 ? atoi(argv[1]) : 1;
    if (n < 1 || n > MAX_THREADS || allowed_cpus(cpus, n) < n) {
        fprintf(stderr, "read_bench: there are not as many CPUs\n");
        return 2;
    }
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        readers[i] = (Reader){.barrier = &barrier, .cpu = cpus[i]};
        if (pthread_create(&readers[i].thread, NULL, reader, &readers[i])) return 1;
    }
    for (int i = 0; i < n; i++) pthread_join(readers[i].thread, NULL);
    double best = 0;
    uint64_t seen = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = readers[0].begin[round], end = readers[0].end[round];
        for (int i = 1; i < n; i++) {
            if (readers[i].begin[round] < begin) begin = readers[i].begin[round];
            if (readers[i].end[round] > end) end = readers[i].end[round];
        }
        double speed = (double)n * (double)BYTES / (end - begin) * 1e-9;
        if (speed > best) best = speed;
    }
    for (int i = 0; i < n; i++) seen ^= readers[i].seen;
    printf("%.2f\n", best);
    return seen == 1; /* never: keeps the reading from being left out */
}
