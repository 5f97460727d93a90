#include "wait.h"

#include <sched.h>
#include <time.h>

enum {
    FREE_POLLS = 32,    /* before the clock is read for the first time: about half a microsecond */
    CROWDED_POLLS = 4,  /* the same when ranks share cores */
    PAUSES = 8,         /* between two readings of the clock */
    SPIN_NS = 20000,    /* then sched_yield: free of charge on an idle core, and others can run on a busy one */
    YIELD_NS = 5000000, /* then naps */
    NAP_SHARE = 32,     /* a nap lasts 1/32 of the wait so far: it adds at most 3 % to a wait */
    NAP_MIN_NS = 20000,
    NAP_MAX_NS = 1000000,
};

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void wait_step(Wait *w, bool crowded) {
    if (w->polls < (crowded ? CROWDED_POLLS : FREE_POLLS)) {
        w->polls++;
        cpu_relax();
        return;
    }
    uint64_t now = clock_ns();
    if (!w->began_ns) w->began_ns = now;
    uint64_t waited = now - w->began_ns;
    if (waited < SPIN_NS && !crowded) {
        for (int i = 0; i < PAUSES; i++) cpu_relax();
    } else if (waited < YIELD_NS) {
        sched_yield();
    } else {
        uint64_t nap = waited / NAP_SHARE;
        nap = nap < NAP_MIN_NS ? NAP_MIN_NS : nap > NAP_MAX_NS ? NAP_MAX_NS : nap;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}

uint64_t wait_ns(const Wait *w) { return w->began_ns ? clock_ns() - w->began_ns : 0; }
