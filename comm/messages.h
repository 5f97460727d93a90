/* Messages between the hosts' ranks of one number: begun one by one, finished all together. Long data are cut, so that
 * on a slow link each part that arrives tells that something moves. */
#pragma once

#include <mpi.h>

#include "ops.h"
#include "pulse.h"

typedef struct Messages Messages;

/* What they work with; all of it is the caller's and outlives *out. */
typedef struct MessagesUse {
    MPI_Comm peers; /* one rank of each host, by host */
    const Job *job;
    CommStats *stats;
    Slowest *slowest;
    Life *life; /* of this rank */
    Pulse *pulse;
    bool verify; /* each message is followed by its checksum */
} MessagesUse;

/* Room for transfers of `most` bytes in all, and `parts` of them, begun before they are finished. Local. */
int messages_create(const MessagesUse *use, size_t most, size_t parts, Messages **out, Err *e);
void messages_free(Messages *m);

/* Begin to send or to receive n bytes, which stay untouched until messages_finish. Between two hosts they arrive in the
 * order in which they are sent. Local. */
int messages_send(Messages *m, int host, int tag, const void *data, size_t n, Err *e);
int messages_receive(Messages *m, int host, int tag, void *data, size_t n, Err *e);
/* Waits for all that were begun. With `verify` a message that does not match its checksum is an error that names the
 * host. */
int messages_finish(Messages *m, Err *e);
