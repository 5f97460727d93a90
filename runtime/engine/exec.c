#include "engine/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/trace.h"
#include "engine/exec_internal.h"

static void walk(void *arg, int thread, int n_threads) {
    Exec *x = arg;
    bool tracing = trace_on();
    for (int32_t i = 0; i < x->n_steps; i++) {
        const Step *s = &x->step[i];
        if (thread == 0) comm_place(x->comm, &s->place);
        uint64_t t0 = tracing ? trace_now() : 0;
        s->run(x, s, thread, n_threads);
        if (tracing) {
            trace_add(thread, s->op->name, op_kind_name(s->op->kind), t0, 0);
            t0 = trace_now();
        }
        pool_barrier(x->pool);
        if (tracing) trace_add(thread, "wait for threads", "wait", t0, 0);
        /* Another thread may be in the next step by now, and that may fail: all threads must leave after the same one.
         */
        if (atomic_load_explicit(&x->failed_at, memory_order_relaxed) <= i) return;
    }
}

void exec_fail(Exec *x, const Step *s, const Err *e) {
    int none = x->n_steps;
    if (!atomic_compare_exchange_strong(&x->failed_at, &none, (int)(s - x->step))) return;
    x->err = *e;
    err_context(&x->err, "%s", s->op->name);
}

int exec_run(Exec *x, const ExecStep *s, Err *e) {
    if (s->n_tokens > x->o.max_tokens || s->n_outputs > x->o.max_outputs || s->top > x->o.top)
        return err_set(e, "a step of %lld tokens with %lld results exceeds what was compiled for (%lld, %lld)",
                       (long long)s->n_tokens, (long long)s->n_outputs, (long long)x->o.max_tokens,
                       (long long)x->o.max_outputs);
    x->now = s;
    atomic_store(&x->failed_at, x->n_steps);
    pool_run(x->pool, walk, x);
    comm_place(x->comm, NULL);
    if (atomic_load(&x->failed_at) == x->n_steps) return 0;
    if (e) *e = x->err;
    return -1;
}

void *exec_input(Exec *x, const char *name) {
    const Graph *g = &x->plan->graph;
    for (ValueId v = 0; v < g->n_values; v++)
        if (g->value[v].kind == VALUE_INPUT && !strcmp(g->value[v].name, name)) return x->buf[v].data;
    return NULL;
}

void *exec_nth_input(Exec *x, int i) {
    const Graph *g = &x->plan->graph;
    for (ValueId v = 0; v < g->n_values; v++)
        if (g->value[v].kind == VALUE_INPUT && i-- == 0) return x->buf[v].data;
    return NULL;
}

const void *exec_output(const Exec *x, int i) {
    ValueId v = x->plan->graph.output[i];
    const LocalWeight *w = &x->weights->weight[v];
    return x->plan->graph.value[v].kind == VALUE_WEIGHT ? w->data : x->buf[v].data;
}

const Candidate *exec_candidates(const Exec *x, int64_t row) { return x->candidate + row * x->o.top; }

const float *exec_logits(const Exec *x, int64_t row, int64_t *first, int64_t *n) {
    const Step *s = &x->step[x->stats_step];
    *first = s->first;
    *n = s->in[0].columns;
    return buf_row(&s->in[0], row);
}

uint64_t exec_activation_bytes(const Exec *x) { return x->activations.used; }
uint64_t exec_state_bytes(const Exec *x) { return x->states.used; }
