#include "usual.h"

enum {
    KNOWN = 32,             /* waits of a size, before anything is said of one */
    FAR_OVER = 20,          /* times the usual wait, and */
    AT_LEAST_NS = 1000000,  /* this much: below, the scheduler may be to blame */
    ENOUGH_NS = 1000000000, /* in all */
    FOLLOWS = 16,           /* how many waits the average looks back */
};

bool usual_exceeded(Usual *u, size_t bytes, uint64_t wait_ns, uint64_t *usual_ns) {
    int class = bytes ? 63 - __builtin_clzll(bytes) : 0;
    uint64_t usual = *usual_ns = u->ns[class];
    if (u->seen[class] == KNOWN && wait_ns > AT_LEAST_NS && wait_ns / FAR_OVER > usual) {
        u->excess_ns += wait_ns;
        return u->excess_ns > ENOUGH_NS;
    }
    u->excess_ns /= 2;
    if (u->seen[class] < KNOWN) u->seen[class]++;
    uint32_t n = u->seen[class] < FOLLOWS ? u->seen[class] : FOLLOWS;
    u->ns[class] = (usual * (n - 1) + wait_ns) / n;
    return false;
}
