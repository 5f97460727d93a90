#include "messages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "checksum.h"
#include "mpi_util.h"

enum { MESSAGE_BYTES = 128 << 10 };

/* One message, or the checksum of the one before it. */
typedef struct Part {
    int from; /* host it comes from; -1: it is sent */
    bool is_sum;
    const uint8_t *data;
    size_t n;
    uint64_t sum;
} Part;

struct Messages {
    MessagesUse use;
    MPI_Request *requests; /* [room]; the first n are begun */
    Part *part;            /* [room] */
    size_t room, n;
    int last; /* host of the message that arrived last */
    size_t received;
};

int messages_create(const MessagesUse *use, size_t most, size_t parts, Messages **out, Err *e) {
    Messages *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, "no memory for messages between hosts");
    m->use = *use;
    m->room = (most / MESSAGE_BYTES + parts) * (use->verify ? 2 : 1);
    m->requests = calloc(m->room, sizeof *m->requests);
    m->part = calloc(m->room, sizeof *m->part);
    if (m->requests && m->part) {
        *out = m;
        return 0;
    }
    messages_free(m);
    return err_set(e, "no memory for %zu messages between hosts", parts);
}

void messages_free(Messages *m) {
    if (!m) return;
    free(m->requests);
    free(m->part);
    free(m);
}

static const char *host_name(const Messages *m, int host) {
    int r = 0;
    while (m->use.job->host_of[r] != host) r++;
    return m->use.job->names[r];
}

static int begin_send(Messages *m, int host, int tag, Part part, Err *e) {
    size_t i = m->n++;
    m->part[i] = part;
    if (part.is_sum) m->part[i].data = (const uint8_t *)&m->part[i].sum;
    mpi_enter();
    int code = MPI_Isend(m->part[i].data, (int)part.n, MPI_BYTE, host, tag, m->use.peers, &m->requests[i]);
    mpi_leave();
    return mpi_ok(code, "sending to another host", e) ? err_context(e, "host %s", host_name(m, host)) : 0;
}

static int begin_receive(Messages *m, int host, int tag, void *data, Part part, Err *e) {
    size_t i = m->n++;
    m->part[i] = part;
    m->part[i].data = data;
    if (part.is_sum) data = &m->part[i].sum;
    mpi_enter();
    int code = MPI_Irecv(data, (int)part.n, MPI_BYTE, host, tag, m->use.peers, &m->requests[i]);
    mpi_leave();
    return mpi_ok(code, "receiving from another host", e) ? err_context(e, "host %s", host_name(m, host)) : 0;
}

int messages_send(Messages *m, int host, int tag, const void *data, size_t n, Err *e) {
    const uint8_t *p = data;
    m->use.stats->network_bytes += n;
    do {
        Part part = {.from = -1, .data = p, .n = n < MESSAGE_BYTES ? n : MESSAGE_BYTES};
        if (begin_send(m, host, tag, part, e)) return -1;
        Part sum = {.from = -1, .is_sum = true, .n = sizeof sum.sum};
        if (m->use.verify) sum.sum = checksum(p, part.n);
        if (m->use.verify && begin_send(m, host, tag, sum, e)) return -1;
        if (part.n) p += part.n;
        n -= part.n;
    } while (n);
    return 0;
}

int messages_receive(Messages *m, int host, int tag, void *data, size_t n, Err *e) {
    uint8_t *p = data;
    do {
        Part part = {.from = host, .n = n < MESSAGE_BYTES ? n : MESSAGE_BYTES};
        Part sum = {.from = host, .is_sum = true, .n = sizeof sum.sum};
        if (begin_receive(m, host, tag, p, part, e)) return -1;
        if (m->use.verify && begin_receive(m, host, tag, NULL, sum, e)) return -1;
        if (part.n) p += part.n;
        n -= part.n;
    } while (n);
    return 0;
}

static void arrived(void *arg, int index) {
    Messages *m = arg;
    int from = m->part[index].from;
    life_add(&m->use.life->moves);
    if (from < 0) return;
    pulse_traffic(m->use.pulse, from);
    m->last = from;
    m->received += m->part[index].n;
}

/* Each checksum stands behind the message that it is of. */
static int verify(const Messages *m, size_t n, Err *e) {
    for (size_t i = 1; i < n; i++) {
        const Part *sum = &m->part[i], *part = sum - 1;
        if (sum->from < 0 || !sum->is_sum) continue;
        uint64_t here = checksum(part->data, part->n);
        if (here != sum->sum)
            return err_set(e,
                           "a message of %zu bytes from host %s was damaged on its way: its checksum was %016" PRIx64
                           " and is %016" PRIx64,
                           part->n, host_name(m, sum->from), sum->sum, here);
    }
    return 0;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int messages_finish(Messages *m, Err *e) {
    size_t n = m->n;
    uint64_t began = now();
    m->n = m->received = 0;
    if (mpi_wait(m->requests, (int)n, arrived, m, e)) return -1;
    uint64_t took = now() - began;
    m->use.stats->wire_ns += took;
    if (took > m->use.slowest->host_ns)
        *m->use.slowest = (Slowest){.rank = m->use.slowest->rank,
                                    .rank_ns = m->use.slowest->rank_ns,
                                    .host = m->last,
                                    .host_ns = took,
                                    .host_bytes = m->received};
    return m->use.verify ? verify(m, n, e) : 0;
}
