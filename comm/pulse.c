#include "pulse.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "beats.h"

#define SECOND ((uint64_t)1000000000)

enum { DEFAULT_DEADLINE = 60, BEATS_PER_DEADLINE = 12 };
static const uint64_t longest_period = SECOND / 2, ending_period = SECOND / 20;
/* Once the verdict is there: the speaker stays to tell other hosts, the others until the speaker has surely spoken (a
 * launcher ends all ranks when the first has gone). */
static const uint64_t stay_speaker = 3 * SECOND / 10, stay_others = 3 * SECOND / 2;

/* ALONE: waits for all ranks in MPI, where nothing is known of the others. */
typedef enum Phase { ALONE, TOGETHER, LEAVING, OVER } Phase;

typedef struct Seen {
    uint64_t alive, moves; /* the words of its Life that tell it, summed */
} Seen;

struct Pulse {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what the main thread changes: */
    pthread_cond_t changed;
    Phase phase;
    const char *what; /* ALONE: in which call, and since when */
    uint64_t since_ns;
    char failed[sizeof(Err)]; /* by pulse_fail, or empty */

    uint64_t deadline_ns;
    void (*lost)(void *arg, const Err *why);
    void *arg;

    const Job *job;
    LifeTable *table;
    Life *mine;
    Beats *beats;              /* of messengers, when there are several hosts */
    Seen *seen;                /* [size] */
    Sight *sight;              /* [size] */
    _Atomic uint64_t *arrived; /* [hosts]: messages of the main thread, and how many the thread has taken note of */
    uint64_t *noted;           /* [hosts] */
    uint64_t last_look_ns, ended_ns;
};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- the end ------------------------------------------------------------------------------------------------------*/

static void say(const Pulse *p, const char *text) {
    Err why;
    snprintf(why.msg, sizeof why.msg, "%s", text);
    if (p->lost) p->lost(p->arg, &why);
}

static int launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return (int)strtol(value, NULL, 10);
    }
    return 0;
}

/* Starting and ending many processes takes its time on a busy machine, however short the deadline of steps. */
static uint64_t alone_limit_ns(const Pulse *p) {
    const uint64_t least = 15 * SECOND;
    return p->deadline_ns > least ? p->deadline_ns : least;
}

/* All ranks find this out at the same time, and none knows which others there are: they speak in turn, and with the
 * first the launcher ends the rest. */
static _Noreturn void end_alone(const Pulse *p, const char *what) {
    enum { TURNS = 3 };
    char host[COMM_NAME_BYTES] = "", text[sizeof(Err)];
    int rank = launched_rank();
    const struct timespec turn = {.tv_nsec = 800000000};
    for (int i = 0; i < rank && i < TURNS; i++) nanosleep(&turn, NULL);
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "rank %d on host %s has waited %.0f s for the other ranks in %s: not all of them came",
             rank, host, 1e-9 * (double)alone_limit_ns(p), what);
    say(p, text);
    _exit(1);
}

/* The verdict is there. */
static void end(Pulse *p, uint64_t at) {
    const Verdict *v = &p->table->verdict;
    bool speaks = v->speaker == p->job->rank;
    if (!p->ended_ns) {
        p->ended_ns = at;
        if (speaks) say(p, v->text);
    }
    if (at - p->ended_ns > (speaks ? stay_speaker : stay_others)) _exit(1);
}

/* ---- looking ------------------------------------------------------------------------------------------------------*/

/* ESRCH says that a process of the same namespace is gone. */
static bool has_died(const Pulse *p, const Life *l) {
    int pid = atomic_load_explicit(&l->pid, memory_order_relaxed);
    uint64_t space = life_get(&l->space);
    return space && space == life_get(&p->mine->space) && pid > 0 && kill(pid, 0) && errno == ESRCH;
}

/* When this process itself was stopped, or its machine, silence of the others during that time means nothing. */
static void forgive_gap(Pulse *p, uint64_t at) {
    uint64_t gap = p->last_look_ns ? at - p->last_look_ns : 0;
    for (int q = 0; gap > p->deadline_ns / 2 && q < p->job->size; q++) {
        p->sight[q].heard_ns += gap;
        p->sight[q].moved_ns += gap;
    }
    p->last_look_ns = at;
}

static void look_at(Pulse *p, int q, uint64_t at) {
    const Life *l = &p->table->life[q];
    Sight *s = &p->sight[q];
    s->calls = life_get(&l->calls);
    Seen seen = {.alive = life_get(&l->beat) + life_get(&l->traffic), .moves = s->calls + life_get(&l->moves)};
    if (seen.alive != p->seen[q].alive) s->heard_ns = at;
    if (seen.moves != p->seen[q].moves) s->moved_ns = at;
    p->seen[q] = seen;
    for (int i = 0; i < PLACE_WORDS; i++) s->place.word[i] = life_get(&l->place[i]);
    s->place.text[sizeof s->place.text - 1] = 0;
    /* In this order: who has left may be gone. */
    s->dead = has_died(p, l);
    s->left = atomic_load(&l->left) != 0;
}

static void note_traffic(Pulse *p) {
    for (int h = 0; h < p->job->hosts; h++) {
        uint64_t n = life_get(&p->arrived[h]);
        if (n == p->noted[h]) continue;
        p->noted[h] = n;
        for (int q = 0; q < p->job->size; q++)
            if (p->job->host_of[q] == h) atomic_fetch_add_explicit(&p->table->life[q].traffic, 1, memory_order_relaxed);
    }
}

static void judge(Pulse *p, uint64_t at, const char *failed) {
    Verdict v = {.lost = p->job->rank};
    if (*failed) {
        v.speaker = verdict_speaker(p->job, p->sight, at, p->deadline_ns, -1);
        snprintf(v.text, sizeof v.text, "rank %d on host %s: %s", p->job->rank, p->job->names[p->job->rank], failed);
        life_judge(p->table, &v);
    } else if (verdict_find(p->job, p->sight, at, p->deadline_ns, &v)) {
        life_judge(p->table, &v);
    }
}

/* One look around. Returns whether this rank, LEAVING, may go. */
static bool look(Pulse *p, bool leaving, const char *failed) {
    uint64_t at = now();
    life_add(&p->mine->beat);
    note_traffic(p);
    if (p->beats) beats_exchange(p->beats, leaving);
    forgive_gap(p, at);
    for (int q = 0; q < p->job->size; q++) look_at(p, q, at);
    if (atomic_load(&p->table->verdict_state) == VERDICT_NONE) judge(p, at, failed);
    if (atomic_load(&p->table->verdict_state) == VERDICT_SET) end(p, at);
    return leaving && (!p->beats || beats_finished(p->beats));
}

/* ---- the thread ---------------------------------------------------------------------------------------------------*/

static void sleep_until_changed(Pulse *p, uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(nanoseconds / SECOND);
    until.tv_nsec = (long)(nanoseconds % SECOND);
    pthread_cond_timedwait(&p->changed, &p->mutex, &until);
}

static uint64_t period(const Pulse *p) {
    uint64_t ns = p->deadline_ns / BEATS_PER_DEADLINE;
    bool short_one = p->ended_ns || p->phase == LEAVING;
    return short_one ? ending_period : ns < longest_period ? ns : longest_period;
}

/* With the mutex held, which is given up meanwhile. */
static void beat(Pulse *p) {
    if (p->phase == ALONE) {
        const char *what = p->what;
        if (now() - p->since_ns <= alone_limit_ns(p)) return;
        pthread_mutex_unlock(&p->mutex);
        end_alone(p, what);
    }
    bool leaving = p->phase == LEAVING;
    char failed[sizeof p->failed];
    memcpy(failed, p->failed, sizeof failed);
    pthread_mutex_unlock(&p->mutex);
    bool may_go = look(p, leaving, failed);
    pthread_mutex_lock(&p->mutex);
    if (!may_go) return;
    atomic_store(&p->mine->left, 1);
    p->phase = ALONE;
    p->since_ns = now();
    pthread_cond_broadcast(&p->changed);
}

static void *thread_main(void *arg) {
    Pulse *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (p->phase != OVER) {
        beat(p);
        if (p->phase != OVER) sleep_until_changed(p, period(p));
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

int pulse_start(const CommOptions *o, const char *what, Pulse **out, Err *e) {
    Pulse *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, "no memory for the watch over the ranks");
    double deadline = o->deadline_s > 0 ? o->deadline_s : DEFAULT_DEADLINE;
    p->deadline_ns = (uint64_t)(1e9 * deadline);
    p->lost = o->lost;
    p->arg = o->arg;
    p->phase = ALONE;
    p->what = what;
    p->since_ns = now();
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, &clock);
    pthread_condattr_destroy(&clock);
    /* Signals are for the caller's thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&p->thread, NULL, thread_main, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free(p);
        return err_set(e, "cannot start the thread that watches the ranks: %s", strerror(rc));
    }
    *out = p;
    return 0;
}

static void change_phase(Pulse *p, Phase phase, const char *what) {
    pthread_mutex_lock(&p->mutex);
    p->phase = phase;
    p->what = what;
    p->since_ns = now();
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void pulse_free(Pulse *p) {
    if (!p) return;
    change_phase(p, OVER, "");
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    beats_free(p->beats);
    free(p->seen);
    free(p->sight);
    free(p->arrived);
    free(p->noted);
    free(p);
}

int pulse_connect(Pulse *p, const Job *job, LifeTable *table, MPI_Comm peers, Err *e) {
    size_t size = (size_t)job->size, hosts = (size_t)job->hosts;
    p->job = job;
    p->table = table;
    p->mine = &table->life[job->rank];
    p->seen = calloc(size, sizeof *p->seen);
    p->sight = calloc(size, sizeof *p->sight);
    p->arrived = calloc(hosts, sizeof *p->arrived);
    p->noted = calloc(hosts, sizeof *p->noted);
    if (!p->seen || !p->sight || !p->arrived || !p->noted) return err_set(e, "no memory to watch %zu ranks", size);
    if (peers != MPI_COMM_NULL && beats_create(peers, job, table, &p->beats, e)) return -1;
    struct stat space;
    if (!stat("/proc/self/ns/pid", &space)) {
        life_set(&p->mine->space, space.st_ino);
        atomic_store(&p->mine->pid, getpid());
    }
    return 0;
}

void pulse_begin(Pulse *p) {
    uint64_t at = now();
    for (int q = 0; q < p->job->size; q++) p->sight[q].heard_ns = p->sight[q].moved_ns = at;
    change_phase(p, TOGETHER, "");
}

void pulse_disconnect(Pulse *p, const char *what) {
    bool alone = p->phase == ALONE; /* which the thread does not change */
    change_phase(p, alone ? ALONE : LEAVING, what);
    pthread_mutex_lock(&p->mutex);
    while (p->phase == LEAVING) pthread_cond_wait(&p->changed, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

void pulse_traffic(Pulse *p, int host) { life_add(&p->arrived[host]); }

_Noreturn void pulse_fail(Pulse *p, const char *message) {
    pthread_mutex_lock(&p->mutex);
    snprintf(p->failed, sizeof p->failed, "%s", message);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    for (;;) pause();
}
