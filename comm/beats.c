#include "beats.h"

#include <stdlib.h>
#include <string.h>

#include "mpi_util.h"

enum { TAG_BEAT = 32000 }; /* MPI allows 32767 at least; Network's tags on the same communicator begin at 1 */

/* The words of a Life that travel. */
typedef struct Told {
    uint64_t calls, moves, beat, left, interrupted, place[PLACE_WORDS];
} Told;

typedef struct Message {
    uint64_t last, judged;
    Verdict verdict; /* when judged */
    Told told[];     /* [ranks of the sender's host], in rank order */
} Message;

/* What this host has with another. */
typedef struct Line {
    MPI_Request sending, receiving; /* MPI_REQUEST_NULL: nothing under way */
    Message *out, *in;
    size_t in_bytes;
    bool said_last, heard_last;
} Line;

struct Beats {
    MPI_Comm peers;
    const Job *job;
    LifeTable *table;
    size_t out_bytes;
    Line line[]; /* [hosts] */
};

void life_judge(LifeTable *t, const Verdict *v) {
    int none = VERDICT_NONE;
    if (!atomic_compare_exchange_strong(&t->verdict_state, &none, VERDICT_WRITING)) return;
    t->verdict = *v;
    atomic_store(&t->verdict_state, VERDICT_SET);
}

static int ranks_of(const Job *job, int host) {
    int n = 0;
    for (int q = 0; q < job->size; q++) n += job->host_of[q] == host;
    return n;
}

static size_t message_bytes(int ranks) { return sizeof(Message) + (size_t)ranks * sizeof(Told); }

static void receive(Beats *b, int host) {
    Line *l = &b->line[host];
    if (MPI_Irecv(l->in, (int)l->in_bytes, MPI_BYTE, host, TAG_BEAT, b->peers, &l->receiving) != MPI_SUCCESS)
        l->receiving = MPI_REQUEST_NULL; /* a host that is not heard of is found out by that */
}

int beats_create(MPI_Comm peers, const Job *job, LifeTable *table, Beats **out, Err *e) {
    Beats *b = calloc(1, sizeof *b + (size_t)job->hosts * sizeof *b->line);
    if (!b) return err_set(e, "no memory for the beats between hosts");
    b->peers = peers;
    b->job = job;
    b->table = table;
    b->out_bytes = message_bytes(job->local_size);
    bool all = true;
    for (int h = 0; h < job->hosts; h++) {
        Line *l = &b->line[h];
        l->sending = l->receiving = MPI_REQUEST_NULL;
        if (h == job->host) continue;
        l->in_bytes = message_bytes(ranks_of(job, h));
        l->in = calloc(1, l->in_bytes);
        l->out = calloc(1, b->out_bytes);
        all = all && l->in && l->out;
    }
    if (!all) {
        beats_free(b);
        return err_set(e, "no memory for the beats between hosts");
    }
    *out = b;
    return 0;
}

void beats_free(Beats *b) {
    for (int h = 0; b && h < b->job->hosts; h++) {
        free(b->line[h].in);
        free(b->line[h].out);
    }
    free(b);
}

static void tell(const Life *l, Told *t) {
    *t = (Told){.calls = life_get(&l->calls), .moves = life_get(&l->moves), .beat = life_get(&l->beat)};
    t->left = atomic_load_explicit(&l->left, memory_order_relaxed);
    t->interrupted = atomic_load_explicit(&l->interrupted, memory_order_relaxed);
    for (int i = 0; i < PLACE_WORDS; i++) t->place[i] = life_get(&l->place[i]);
}

static void take_down(Life *l, const Told *t) {
    life_set(&l->calls, t->calls);
    life_set(&l->moves, t->moves);
    life_set(&l->beat, t->beat);
    atomic_store_explicit(&l->left, t->left != 0, memory_order_relaxed);
    atomic_store_explicit(&l->interrupted, t->interrupted != 0, memory_order_relaxed);
    for (int i = 0; i < PLACE_WORDS; i++) life_set(&l->place[i], t->place[i]);
}

static void take(Beats *b, int host) {
    Line *l = &b->line[host];
    int n = 0;
    for (int q = 0; q < b->job->size; q++)
        if (b->job->host_of[q] == host) take_down(&b->table->life[q], &l->in->told[n++]);
    if (l->in->judged) {
        l->in->verdict.text[sizeof l->in->verdict.text - 1] = 0;
        life_judge(b->table, &l->in->verdict);
    }
    l->heard_last = l->in->last != 0;
    for (int q = 0; q < b->job->size && l->heard_last; q++) /* nothing more will be heard of any of them */
        if (b->job->host_of[q] == host) atomic_store_explicit(&b->table->life[q].left, 1, memory_order_relaxed);
}

static void send(Beats *b, int host, bool last) {
    Line *l = &b->line[host];
    int n = 0;
    l->out->last = last;
    l->out->judged = atomic_load(&b->table->verdict_state) == VERDICT_SET;
    if (l->out->judged) l->out->verdict = b->table->verdict;
    for (int q = 0; q < b->job->size; q++)
        if (b->job->host_of[q] == b->job->host) tell(&b->table->life[q], &l->out->told[n++]);
    if (MPI_Isend(l->out, (int)b->out_bytes, MPI_BYTE, host, TAG_BEAT, b->peers, &l->sending) != MPI_SUCCESS)
        l->sending = MPI_REQUEST_NULL;
    l->said_last = last;
}

static bool done(MPI_Request *r, MPI_Status *status) {
    int complete = 0;
    return *r == MPI_REQUEST_NULL || (MPI_Test(r, &complete, status) == MPI_SUCCESS && complete);
}

static void exchange(Beats *b, int host, bool last) {
    Line *l = &b->line[host];
    MPI_Status status;
    if (!l->heard_last && l->receiving == MPI_REQUEST_NULL) receive(b, host);
    while (l->receiving != MPI_REQUEST_NULL && done(&l->receiving, &status)) {
        int bytes;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if ((size_t)bytes == l->in_bytes) take(b, host);
        if (!l->heard_last) receive(b, host);
    }
    if (done(&l->sending, &status) && !l->said_last) send(b, host, last);
}

void beats_exchange(Beats *b, bool last) {
    if (!mpi_try_enter()) return;
    for (int h = 0; h < b->job->hosts; h++)
        if (h != b->job->host) exchange(b, h, last);
    mpi_leave();
}

bool beats_finished(const Beats *b) {
    bool finished = true;
    for (int h = 0; h < b->job->hosts; h++) {
        const Line *l = &b->line[h];
        if (h != b->job->host) finished = finished && l->said_last && l->heard_last && l->sending == MPI_REQUEST_NULL;
    }
    return finished;
}
