/* Whether collectives wait far longer than those of their size usually do. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { USUAL_CLASSES = 64 }; /* of sizes: one for each power of two */

typedef struct Usual {
    uint64_t ns[USUAL_CLASSES];   /* average of the waits that were not far over it */
    uint32_t seen[USUAL_CLASSES]; /* waits in it, up to the number that makes it known */
    uint64_t excess_ns;           /* what waits far over the usual have cost lately */
} Usual;

/* Takes note of a wait. True: waits far over the usual have cost a second, with few usual ones between; *usual_ns is
 * what is usual for this size. */
bool usual_exceeded(Usual *u, size_t bytes, uint64_t wait_ns, uint64_t *usual_ns);
