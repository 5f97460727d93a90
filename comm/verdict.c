#include "verdict.h"

#include <stdio.h>

typedef struct Watch {
    const Job *job;
    const Sight *sight;
    uint64_t now_ns, deadline_ns, quiet_ns; /* quiet: so long without a sign makes suspect, once something is wrong */
} Watch;

static Watch watch(const Job *job, const Sight *sight, uint64_t now_ns, uint64_t deadline_ns) {
    const uint64_t two_seconds = 2000000000u, half = deadline_ns / 2;
    return (Watch){job, sight, now_ns, deadline_ns, half < two_seconds ? half : two_seconds};
}

static uint64_t age(const Watch *w, uint64_t then_ns) { return w->now_ns > then_ns ? w->now_ns - then_ns : 0; }

static bool unheard(const Watch *w, int q, uint64_t limit_ns) {
    const Sight *s = &w->sight[q];
    return q != w->job->rank && !s->left && (s->dead || age(w, s->heard_ns) > limit_ns);
}

/* Ranks of other hosts are heard of through the messengers of this one: while those are silent nothing is known. */
static bool hidden(const Watch *w, int q) {
    const Job *job = w->job;
    if (job->host_of[q] == job->host) return false;
    for (int i = 0; i < job->size; i++)
        if (job->host_of[i] == job->host && job->local_of[i] < job->messengers && !unheard(w, i, w->quiet_ns))
            return false;
    return true;
}

static bool silent(const Watch *w, int q, uint64_t limit_ns) { return unheard(w, q, limit_ns) && !hidden(w, q); }

static bool in_step(const Sight *s) { return s->place.text[0] != 0; }

/* Outside of any step and collective, and alive: the others wait for it, and may. */
static bool takes_its_time(const Watch *w, int q) {
    const Sight *s = &w->sight[q];
    return !s->left && !in_step(s) && s->calls % 2 == 0 && !unheard(w, q, w->quiet_ns);
}

static bool all_stuck(const Watch *w) {
    for (int q = 0; q < w->job->size; q++) {
        if (takes_its_time(w, q)) return false;
        if (!w->sight[q].left && age(w, w->sight[q].moved_ns) <= w->deadline_ns) return false;
    }
    return true;
}

/* A dead rank; else a silent one; else the one that is furthest behind. Of several the lowest. */
static int culprit(const Watch *w) {
    int last = w->job->rank;
    for (int q = 0; q < w->job->size; q++)
        if (w->sight[q].dead && !w->sight[q].left) return q;
    for (int q = 0; q < w->job->size; q++)
        if (silent(w, q, w->quiet_ns)) return q;
    for (int q = w->job->size - 1; q >= 0; q--)
        if (!w->sight[q].left && w->sight[q].calls <= w->sight[last].calls) last = q;
    return last;
}

/* How many other ranks there are on a host that is silent as a whole; -1: it is not. */
static int silent_with(const Watch *w, int rank) {
    int n = 0;
    for (int q = 0; q < w->job->size; q++) {
        if (q == rank || w->job->host_of[q] != w->job->host_of[rank]) continue;
        if (!silent(w, q, w->quiet_ns)) return -1;
        n++;
    }
    return n;
}

static const char *seen_in(const Sight *s) {
    if (in_step(s)) return s->place.text;
    return s->calls % 2 ? "a wait for the other ranks between steps" : "no step";
}

static void describe(const Watch *w, Verdict *v) {
    const Sight *s = &w->sight[v->lost];
    int others = w->job->host_of[v->lost] == w->job->host ? -1 : silent_with(w, v->lost);
    char with[48] = "", why[160];
    if (others > 0) snprintf(with, sizeof with, " (and %d more of that host)", others);
    double still = 1e-9 * (double)age(w, s->moved_ns), quiet = 1e-9 * (double)age(w, s->heard_ns);
    if (s->dead) snprintf(why, sizeof why, "has died");
    else if (silent(w, v->lost, w->quiet_ns))
        snprintf(why, sizeof why, "has not been heard of for %.0f s (%s)", quiet,
                 others < 0 ? "it is stopped, or starved of CPU or memory"
                            : "it is stopped or dead, or the link to it is cut");
    else snprintf(why, sizeof why, "is alive but has not got on for %.0f s, nor has any other rank", still);
    snprintf(v->text, sizeof v->text, "rank %d on host %s%s %s; last seen in %s", v->lost, w->job->names[v->lost], with,
             why, seen_in(s));
}

int verdict_speaker(const Job *job, const Sight *sight, uint64_t now_ns, uint64_t deadline_ns, int lost) {
    Watch w = watch(job, sight, now_ns, deadline_ns);
    for (int q = 0; q < job->size; q++)
        if (q != lost && !silent(&w, q, w.quiet_ns)) return q;
    return job->rank;
}

bool verdict_find(const Job *job, const Sight *sight, uint64_t now_ns, uint64_t deadline_ns, Verdict *out) {
    Watch w = watch(job, sight, now_ns, deadline_ns);
    bool over = all_stuck(&w);
    for (int q = 0; q < job->size; q++) over = over || silent(&w, q, deadline_ns);
    if (!over) return false;
    out->lost = culprit(&w);
    out->speaker = verdict_speaker(job, sight, now_ns, deadline_ns, out->lost);
    describe(&w, out);
    return true;
}
