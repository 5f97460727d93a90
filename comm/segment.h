/* Memory that all ranks of one host see: a control page for everyone, and an area for each rank to write into. */
#pragma once

#include <mpi.h>

#include "base/err.h"

typedef struct Segment {
    uint8_t *base;        /* mapped, owned */
    size_t bytes;         /* of the whole mapping */
    size_t control_bytes; /* of the control area, whole pages */
    size_t slot_bytes;    /* what one slot holds; the same on all ranks of the host */
    int ranks;
} Segment;

/* Where the memory comes from. SEGMENT_ANY tries them in order, and smaller slots when there is not enough memory. */
typedef enum SegmentKind {
    SEGMENT_ANY,
    SEGMENT_MEMFD, /* no name, no limit but the memory; opened through /proc/PID/fd of local rank 0 */
    SEGMENT_SHM,   /* a name in /dev/shm that lives until all have mapped it: for ranks with PID namespaces of their own
                    */
} SegmentKind;

/* Collective over `local`, the ranks of one host. All pages exist when it returns (no SIGBUS later), those of a rank's
 * area allocated by that rank, hence on its NUMA node. The control area stands at base, has control_bytes at least and
 * is zero at first. All ranks succeed, or all fail with the same message. */
int segment_create(MPI_Comm local, SegmentKind kind, size_t control_bytes, Segment *out, Err *e);
void segment_free(Segment *s); /* also of a zeroed Segment. Local. */

/* Slot 0 or 1 of a rank. Local. */
uint8_t *segment_slot(const Segment *s, int rank, int slot);
