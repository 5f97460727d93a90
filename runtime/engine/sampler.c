/* Choosing the next token. The random numbers are splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", 2014) started at the seed itself; one number per sampled token, none in greedy mode. The
 * exponentials are det_exp and the sums run in a fixed order, so a seed gives the same tokens on every CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/detmath.h"
#include "base/size.h"
#include "engine/sheaf.h"

typedef struct Candidate {
    float logit;
    int32_t id;
} Candidate;

struct SheafSampler {
    SheafSampling o;
    uint64_t state;
    Candidate *candidates; /* [capacity], owned */
    int64_t capacity;
};

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1): the top 53 bits. */
static double uniform(uint64_t *state) { return (double)(splitmix64(state) >> 11) * 0x1p-53; }

static int refuse(SheafErr *err, const char *name, double value, const char *range) {
    snprintf(err->msg, sizeof err->msg, "%s %g: must be %s", name, value, range);
    return -1;
}

int sheaf_sampler_new(const SheafSampling *o, SheafSampler **out, SheafErr *err) {
    *out = NULL;
    /* Written so that NaN is refused. */
    if (!(o->temperature >= 0 && o->temperature <= 1e6f))
        return refuse(err, "temperature", (double)o->temperature, "from 0 (greedy) to 1e6");
    if (o->top_k < 0) return refuse(err, "top-k", o->top_k, "at least 0 (off)");
    if (!(o->top_p > 0 && o->top_p <= 1)) return refuse(err, "top-p", (double)o->top_p, "above 0 and at most 1 (off)");
    if (!(o->min_p >= 0 && o->min_p <= 1)) return refuse(err, "min-p", (double)o->min_p, "from 0 (off) to 1");
    SheafSampler *s = calloc(1, sizeof *s);
    Candidate *c = calloc(SHEAF_TOP, sizeof *c);
    if (!s || !c) {
        free(s);
        free(c);
        snprintf(err->msg, sizeof err->msg, "out of memory for the sampler");
        return -1;
    }
    *s = (SheafSampler){.o = *o, .state = o->seed, .candidates = c, .capacity = SHEAF_TOP};
    *out = s;
    return 0;
}

void sheaf_sampler_free(SheafSampler *s) {
    if (!s) return;
    free(s->candidates);
    free(s);
}

static bool greedy(const SheafSampler *s) { return s->o.temperature == 0 || s->o.top_k == 1; }

bool sheaf_sampler_wants_logits(const SheafSampler *s) {
    return !greedy(s) && (s->o.top_k == 0 || s->o.top_k > SHEAF_TOP);
}

/* ---- a binary heap with the largest logit at the front (equal ones: the lower id) ---------------------------------
 */
static bool before(Candidate a, Candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

static void sift_down(Candidate *heap, int64_t n, int64_t i) {
    Candidate moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* The candidates in descending order, found only as far as they are asked for: what was popped off the heap stands at
 * the back of the array, the largest last. Of a vocabulary of 49152 with top-p 0.95 and min-p 0.05 a sample takes 1.0
 * ms this way; sorting it all takes 4.8 ms. */
typedef struct Ordered {
    Candidate *heap; /* [n] */
    int64_t n, popped;
} Ordered;

static Candidate nth(Ordered *o, int64_t i) {
    while (o->popped <= i) {
        int64_t last = o->n - 1 - o->popped++;
        Candidate front = o->heap[0];
        o->heap[0] = o->heap[last];
        o->heap[last] = front;
        if (last > 0) sift_down(o->heap, last, 0);
    }
    return o->heap[o->n - 1 - i];
}

/* Takes the candidates of a result, or of a whole row of logits; -1: no memory. */
static int gather(SheafSampler *s, const SheafResult *r, const float *logits, int64_t vocabulary, Ordered *out) {
    int64_t n = logits ? vocabulary : r->n_top;
    if (n > s->capacity) {
        Candidate *grown = realloc(s->candidates, (size_t)n * sizeof *grown);
        if (!grown) return -1;
        s->candidates = grown;
        s->capacity = n;
    }
    for (int64_t i = 0; i < n; i++) {
        s->candidates[i] = logits ? (Candidate){logits[i], (int32_t)i} : (Candidate){r->logit[i], r->id[i]};
    }
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(s->candidates, n, i);
    *out = (Ordered){.heap = s->candidates, .n = n};
    return 0;
}

/* What a candidate weighs against the largest one: exp((logit - max) / temperature). */
static double weight(Candidate c, float max, float temperature) {
    return det_exp(((double)c.logit - (double)max) / (double)temperature);
}

/* How many of the largest candidates top-k, top-p and min-p leave; at least 1. Each of the three leaves a beginning of
 * the descending order; top-p takes its share of the probability that top-k left, min-p compares with the largest. */
static int64_t filter(const SheafSampler *s, Ordered *o) {
    int64_t limit = s->o.top_k > 0 ? i64_min(s->o.top_k, o->n) : o->n;
    float max = nth(o, 0).logit;
    double total = 0, cumulated = 0;
    for (int64_t i = 0; i < limit && s->o.top_p < 1; i++) {
        Candidate c = limit < o->n ? nth(o, i) : o->heap[i]; /* of all of them the order does not matter */
        total += weight(c, max, 1);
    }
    for (int64_t kept = 0; kept < limit; kept++) {
        double w = weight(nth(o, kept), max, 1);
        if (kept > 0 && w < (double)s->o.min_p) return kept;
        cumulated += w;
        if (s->o.top_p < 1 && cumulated >= (double)s->o.top_p * total) return kept + 1;
    }
    return limit;
}

int32_t sheaf_sample(SheafSampler *s, const SheafResult *r, const float *logits, int64_t vocabulary) {
    if (greedy(s)) return r->n_top > 0 ? r->id[0] : -1;
    Ordered o;
    if (gather(s, r, logits, vocabulary, &o) || o.n == 0) return -1;
    int64_t kept = filter(s, &o);
    float max = nth(&o, 0).logit;
    double total = 0, cumulated = 0;
    for (int64_t i = 0; i < kept; i++) total += weight(nth(&o, i), max, s->o.temperature);
    double wanted = uniform(&s->state) * total; /* below total, so the walk finds it */
    for (int64_t i = 0; i < kept; i++) {
        cumulated += weight(nth(&o, i), max, s->o.temperature);
        if (wanted < cumulated) return nth(&o, i).id;
    }
    return nth(&o, kept - 1).id; /* logits that are no numbers */
}
