/* Signs of life: a thread of each rank that beats, watches the others, and ends the process when the job cannot go on.
 *
 * Every rank tells what it does in its Life, in memory that the ranks of its host share; its first two ranks
 * (messengers) send those of the host to the other hosts a few times a second. The job cannot go on when a rank is
 * dead, when nothing was heard of one for the deadline, or when for that long no rank has got on although each is
 * inside a step or a collective (verdict.h). Whoever finds that out writes the verdict; then each rank's thread ends
 * its process by itself, whatever the main thread is stuck in, and one rank says why. So no wait elsewhere looks at the
 * clock for this, or can fail. */
#pragma once

#include <mpi.h>

#include "life.h"

typedef struct Pulse Pulse;

/* Starts the thread. Until pulse_connect it watches that the deadline does not pass in `what`, in calls of MPI that
 * wait for all ranks. Local. */
int pulse_start(const CommOptions *o, const char *what, Pulse **out, Err *e);
void pulse_free(Pulse *p); /* joins the thread; NULL is allowed. Local */

/* Gets ready to watch the ranks of the job. `table` (life_table_bytes, zero at first) is shared by the host's ranks;
 * `peers`: on messengers, when there are several hosts, the messengers of the same
 * number, by host. All is the caller's and outlives the
 * connection. Local. */
int pulse_connect(Pulse *p, const Job *job, LifeTable *table, MPI_Comm peers, Err *e);
/* Begins to watch them, when pulse_connect has succeeded on all. Local. */
void pulse_begin(Pulse *p);
/* This rank leaves: from now on only `what` is watched, as after pulse_start. Collective when pulse_begin was called.
 */
void pulse_disconnect(Pulse *p, const char *what);

/* Something has come from another host: a sign of life of all its ranks. Local, cheap, main thread. */
void pulse_traffic(Pulse *p, int host);

/* This rank cannot go on: the job ends with its message, on every rank. Local; does not return. */
_Noreturn void pulse_fail(Pulse *p, const char *message);
