/* Signs of life between hosts: a messenger sends what the ranks of its host tell (life.h) to the messengers of the same
 * number on the other hosts, and takes theirs down in the table that its own host reads. Where there are two of them,
 * what one rank tells comes twice, and still when the other messenger is lost. Never waits for another rank. */
#pragma once

#include <mpi.h>

#include "life.h"

typedef struct Beats Beats;

/* `peers`: the messengers, by host. Everything given outlives *out. Local, without MPI. */
int beats_create(MPI_Comm peers, const Job *job, LifeTable *table, Beats **out, Err *e);
/* Takes down what has come, and sends to each host unless the last message is still on its way (a link that is cut
 * fills no memory). `last`: this rank leaves, and will send nothing more. Local; does nothing while another thread is
 * inside MPI for long. */
void beats_exchange(Beats *b, bool last);
/* After an exchange with `last`: all messages of both sides have arrived, and nothing is left in MPI. */
bool beats_finished(const Beats *b);
void beats_free(Beats *b); /* NULL is allowed */

/* The verdict is set, unless there is one already. Local. */
void life_judge(LifeTable *t, const Verdict *v);
