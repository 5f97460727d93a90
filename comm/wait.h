/* How a rank waits for another: spins, then yields its core, then naps. One Wait per condition waited for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct Wait {
    uint64_t began_ns; /* 0: still in the first few polls, where the clock is not read */
    uint32_t polls;
} Wait;

/* To be called each time the condition is found not to hold yet. `crowded`: other ranks need this core, so that to spin
 * is to keep the awaited one from running. Local. */
void wait_step(Wait *w, bool crowded);

/* Nanoseconds waited so far; waits shorter than about half a microsecond count as 0. Local. */
uint64_t wait_ns(const Wait *w);
