#include "base/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    POOL_MAX = 4096,
    LINE = 128,        /* two cache lines: the neighbour is prefetched with its pair */
    SPIN_NS = 3000,    /* burns the CPU: as long as a wait on other running threads usually lasts */
    YIELD_NS = 100000, /* then lets others run between looks; then sleeps: waking costs about 50 us */
};

/* A word that threads wait on to change, and how many of them sleep on it. */
typedef struct Gate {
    _Alignas(LINE) _Atomic uint32_t epoch;
    _Alignas(LINE) _Atomic uint32_t sleepers;
} Gate;

struct Pool {
    Gate start;                         /* a new job, or the end */
    Gate barrier;                       /* all have arrived */
    _Alignas(LINE) _Atomic int missing; /* threads that have not arrived at the barrier */
    _Alignas(LINE) PoolFn *fn;          /* NULL: the end */
    void *arg;
    int n, started; /* threads wanted, and those that pthread_create has made (the caller not counted) */
    bool crowded;   /* more threads than CPUs: waiting for another means giving it the CPU */
    bool pinned;
    cpu_set_t caller_mask; /* of thread 0 before it was pinned */
    struct Worker *workers;
};

typedef struct Worker {
    Pool *pool;
    int index;
    pthread_t thread;
} Worker;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value) {
    syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Stores and loads of epoch and sleepers are sequentially consistent: either the opener sees the sleeper, or the
 * sleeper sees the new epoch. */
static void gate_open(Gate *g) {
    atomic_fetch_add(&g->epoch, 1);
    if (atomic_load(&g->sleepers)) futex(&g->epoch, FUTEX_WAKE, INT32_MAX);
}

static void gate_wait(Gate *g, uint32_t before, bool crowded) {
    uint64_t begin = 0;
    for (unsigned i = 1; atomic_load_explicit(&g->epoch, memory_order_acquire) == before; i++) {
        if (!crowded && i % 32) { /* looks at the clock only now and then: it costs as much as 20 looks at the word */
            relax();
            continue;
        }
        uint64_t now = now_ns();
        if (!begin) begin = now;
        if (now - begin > YIELD_NS) break;
        if (crowded || now - begin > SPIN_NS) sched_yield();
    }
    if (atomic_load_explicit(&g->epoch, memory_order_acquire) != before) return;
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->epoch) == before) futex(&g->epoch, FUTEX_WAIT, before);
    atomic_fetch_sub(&g->sleepers, 1);
}

void pool_barrier(Pool *p) {
    if (p->n == 1) return;
    /* The epoch cannot change before this thread has arrived, so reading it first is safe. */
    uint32_t epoch = atomic_load_explicit(&p->barrier.epoch, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&p->missing, 1, memory_order_acq_rel) == 1) {
        atomic_store_explicit(&p->missing, p->n, memory_order_relaxed);
        gate_open(&p->barrier);
    } else {
        gate_wait(&p->barrier, epoch, p->crowded);
    }
}

static void *worker_main(void *arg) {
    Worker *w = arg;
    Pool *p = w->pool;
    for (uint32_t epoch = 0;; epoch++) {
        gate_wait(&p->start, epoch, p->crowded);
        if (!p->fn) return NULL;
        p->fn(p->arg, w->index, p->n);
        pool_barrier(p);
    }
}

void pool_run(Pool *p, PoolFn *fn, void *arg) {
    if (p->n > 1) {
        p->fn = fn;
        p->arg = arg;
        gate_open(&p->start);
    }
    fn(arg, 0, p->n);
    pool_barrier(p);
}

static int pin_attr(pthread_attr_t *attr, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return pthread_attr_setaffinity_np(attr, sizeof set, &set);
}

static int start_worker(Worker *w, const int *cpus, Err *e) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return err_set(e, "cannot prepare thread %d: %s", w->index, strerror(rc));
    if (cpus) rc = pin_attr(&attr, cpus[w->index]);
    /* Signals are for the caller's thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (!rc) rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc && cpus) return err_set(e, "cannot start thread %d on CPU %d: %s", w->index, cpus[w->index], strerror(rc));
    if (rc) return err_set(e, "cannot start thread %d: %s", w->index, strerror(rc));
    return 0;
}

static int pin_caller(Pool *p, int cpu, Err *e) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_getaffinity(0, sizeof p->caller_mask, &p->caller_mask))
        return err_errno(e, "cannot read the CPU affinity");
    if (sched_setaffinity(0, sizeof set, &set)) return err_errno(e, "cannot pin thread 0 to CPU %d", cpu);
    p->pinned = true;
    return 0;
}

/* Whether n threads share fewer CPUs: those named, or those this process may run on. */
static bool is_crowded(int n, const int *cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (!cpus && sched_getaffinity(0, sizeof set, &set)) return false;
    for (int i = 0; cpus && i < n; i++) CPU_SET((size_t)cpus[i], &set);
    return n > CPU_COUNT(&set);
}

int pool_create(int n_threads, const int *cpus, Pool **out, Err *e) {
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX)
        return err_set(e, "%d threads: the number must be between 1 and %d", n_threads, POOL_MAX);
    for (int i = 0; cpus && i < n_threads; i++)
        if (cpus[i] < 0 || cpus[i] >= CPU_SETSIZE) return err_set(e, "thread %d: there is no CPU %d", i, cpus[i]);
    Pool *p = aligned_alloc(LINE, sizeof *p);
    Worker *workers = calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return err_set(e, "no memory for a pool of %d threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    p->workers = workers;
    p->n = n_threads;
    p->missing = n_threads;
    p->crowded = is_crowded(n_threads, cpus);
    if (cpus && pin_caller(p, cpus[0], e)) {
        pool_free(p);
        return -1;
    }
    for (int i = 1; i < n_threads; i++) {
        workers[i] = (Worker){.pool = p, .index = i};
        if (start_worker(&workers[i], cpus, e)) {
            pool_free(p);
            return -1;
        }
        p->started++;
    }
    *out = p;
    return 0;
}

void pool_free(Pool *p) {
    if (!p) return;
    p->fn = NULL;
    gate_open(&p->start);
    for (int i = 1; i <= p->started; i++) pthread_join(p->workers[i].thread, NULL);
    if (p->pinned) sched_setaffinity(0, sizeof p->caller_mask, &p->caller_mask);
    free(p->workers);
    free(p);
}

int pool_size(const Pool *p) { return p->n; }
