/* The ranks of a job, their threads and kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/trace.h"
#include "engine/engine.h"
#include "kernels/conv.h"

enum { TRACE_EVENTS = 1 << 20 }; /* per thread: about a thousand steps of a small model */

const char *sheaf_version(void) { return SHEAF_VERSION; }

/* The best table that every rank's CPU can run, or the forced one. */
static int choose_kernels(SheafRuntime *rt, const char *isa, Err *e) {
    Err mine = {""};
    int64_t lowest;
    bool runnable;
    bool failed = kernels_select(isa, &rt->k, &mine) != 0;
    if (comm_agree(rt->comm, failed, &mine, e)) return -1;
    if (comm_min(rt->comm, kernels_index(rt->k), &lowest, e)) return -1;
    rt->k = kernels_at((int)lowest, &runnable);
    comm_set_kernels(rt->comm, rt->k);
    conv_limit_isa(rt->k->name, NULL); /* refused when this process has made convolutions already: then it holds */
    return 0;
}

static int choose_activations(SheafRuntime *rt, const char *name, Err *e) {
    if (!name || !*name || !strcmp(name, "int16")) rt->activations = QT_A16;
    else if (!strcmp(name, "int8")) rt->activations = QT_A8;
    else return err_set(e, "activations \"%s\" are not known (int16, int8)", name);
    return 0;
}

static int start_trace(SheafRuntime *rt, const char *path, Err *e) {
    Err mine = {""};
    rt->trace = strdup(path);
    bool failed = !rt->trace || trace_start(pool_size(rt->pool), TRACE_EVENTS, &mine) != 0;
    if (!rt->trace) err_set(&mine, "out of memory");
    FILE *f = !failed && comm_rank(rt->comm) == 0 ? fopen(path, "w") : NULL; /* found out now, not after the run */
    if (f) fclose(f);
    else if (!failed && comm_rank(rt->comm) == 0) failed = err_errno(&mine, "trace file %s", path) != 0;
    if (comm_agree(rt->comm, failed, &mine, e) || comm_barrier(rt->comm, e)) return -1;
    rt->trace_zero = trace_now();
    return 0;
}

static void tell_lost(void *arg, const Err *why) {
    const SheafRuntime *rt = arg;
    if (rt->lost) rt->lost(rt->arg, (const SheafErr *)(const void *)why);
}

static void tell_warning(void *arg, const Err *what) {
    const SheafRuntime *rt = arg;
    if (rt->warn) rt->warn(rt->arg, (const SheafErr *)(const void *)what);
}

static void runtime_free(SheafRuntime *rt) {
    pool_free(rt->pool);
    comm_free(rt->comm);
    free(rt->place);
    free(rt->warning);
    free(rt->trace);
    free(rt);
}

int sheaf_runtime_open(const SheafRuntimeOptions *o, SheafRuntime **out, SheafErr *err) {
    Err *e = err_of(err);
    *out = NULL;
    SheafRuntime *rt = calloc(1, sizeof *rt);
    if (!rt) return err_set(e, "out of memory");
    rt->lost = o->lost;
    rt->warn = o->warn;
    rt->arg = o->arg;
    CommOptions c = {.each_rank_a_host = o->each_rank_a_host,
                     .check = o->check,
                     .verify = o->verify,
                     .deadline_s = o->deadline_s,
                     .lost = tell_lost,
                     .warn = tell_warning,
                     .arg = rt};
    int status = 0;
    if (!o->wire || !*o->wire || !strcmp(o->wire, "f32")) c.wire = WIRE_F32;
    else if (!strcmp(o->wire, "bf16")) c.wire = WIRE_BF16;
    else status = err_set(e, "wire format \"%s\" is not known (f32, bf16)", o->wire);
    if (!status) status = choose_activations(rt, o->activations, e);
    if (!status) status = comm_create(&c, &rt->comm, e);
    if (!status) status = choose_kernels(rt, o->isa, e);
    if (!status) status = runtime_place(rt, o, e);
    if (!status && o->trace && *o->trace) status = start_trace(rt, o->trace, e);
    if (status) {
        runtime_free(rt);
        return -1;
    }
    *out = rt;
    return 0;
}

/* Every rank's events, joined by rank 0 into one file. */
static int write_trace(SheafRuntime *rt, Err *e) {
    int n = comm_size(rt->comm), rank = comm_rank(rt->comm);
    char *mine = NULL, *all = NULL;
    Err local = {""};
    size_t *sizes = calloc((size_t)n, sizeof *sizes), *eight = calloc((size_t)n, sizeof *eight), total = 0;
    bool failed =
        !sizes || !eight || trace_json(rank, comm_host_name(rt->comm, rank), rt->trace_zero, &mine, &local) != 0;
    int status = comm_agree(rt->comm, failed, &local, e);
    if (!status) {
        for (int i = 0; i < n; i++) eight[i] = sizeof(size_t);
        size_t size = strlen(mine);
        status = comm_allgather(rt->comm, &size, eight, sizes, e);
    }
    if (!status) {
        for (int i = 0; i < n; i++) total += sizes[i];
        all = malloc(total + 1);
        status = comm_agree(rt->comm, !all, &(Err){"out of memory for the trace"}, e);
    }
    if (!status) status = comm_allgather(rt->comm, mine, sizes, all, e);
    if (!status && rank == 0) {
        FILE *f = fopen(rt->trace, "w");
        if (!f) status = err_errno(e, "trace file %s", rt->trace);
        const char *part = all;
        if (f) fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", f);
        for (int i = 0, written = 0; f && i < n; part += sizes[i++]) {
            if (sizes[i] && written++) fputs(",\n", f);
            fwrite(part, 1, sizes[i], f);
        }
        if (f) fputs("\n]}\n", f);
        if (f && (ferror(f) | fclose(f))) status = err_errno(e, "trace file %s", rt->trace);
    }
    free(mine);
    free(all);
    free(sizes);
    free(eight);
    return status;
}

int sheaf_runtime_close(SheafRuntime *rt, SheafErr *err) {
    if (!rt) return 0;
    Err *e = err_of(err);
    int status = rt->trace ? write_trace(rt, e) : 0;
    if (rt->trace) trace_stop();
    runtime_free(rt);
    return status;
}

int sheaf_rank(const SheafRuntime *rt) { return comm_rank(rt->comm); }
int sheaf_ranks(const SheafRuntime *rt) { return comm_size(rt->comm); }
int sheaf_hosts(const SheafRuntime *rt) { return comm_hosts(rt->comm); }
int sheaf_threads(const SheafRuntime *rt) { return pool_size(rt->pool); }
const char *sheaf_isa(const SheafRuntime *rt) { return rt->k->name; }
const SheafPlace *sheaf_place(const SheafRuntime *rt, int rank) { return &rt->place[rank]; }
const char *sheaf_place_warning(const SheafRuntime *rt) { return rt->warning; }

void sheaf_interrupt(SheafRuntime *rt) { comm_interrupt(rt->comm); }
bool sheaf_interrupted(const SheafRuntime *rt) { return comm_interrupted(rt->comm); }

int sheaf_agree(SheafRuntime *rt, bool failed, const SheafErr *mine, SheafErr *err) {
    return comm_agree(rt->comm, failed, err_of_const(mine), err_of(err));
}
