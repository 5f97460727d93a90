/* Where the threads of each rank run: the ranks tell each other how they were bound, each works out its own part, and
 * then all know all parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/place.h"
#include "base/strbuf.h"
#include "engine/engine.h"

/* What a rank tells the others of its placement. */
typedef struct Told {
    SheafPlace place;
    uint64_t machine;
    char note[sizeof((Placement *)0)->note];
} Told;

/* One item of `bytes` from each rank; out[size][bytes] is allocated here, the caller's. NULL on failure, everywhere. */
static void *gather(Comm *c, const void *mine, size_t bytes, Err *e) {
    size_t n = (size_t)comm_size(c), *sizes = calloc(n, sizeof *sizes);
    void *all = calloc(n, bytes);
    int status = comm_agree(c, !sizes || !all, &(Err){"out of memory while placing threads"}, e);
    for (size_t i = 0; sizes && i < n; i++) sizes[i] = bytes;
    if (!status) status = comm_allgather(c, mine, sizes, all, e);
    free(sizes);
    if (!status) return all;
    free(all);
    return NULL;
}

/* The bindings of the ranks on this rank's machine come first in all[]; returns how many, *mine: this rank's place. */
static int keep_machine(Binding *all, int n, int rank, int *mine) {
    uint64_t machine = all[rank].machine;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].machine != machine) continue;
        if (i == rank) *mine = kept;
        all[kept++] = all[i];
    }
    return kept;
}

/* With --bind none and a number of threads the machine need not be known. */
static int find_place(SheafRuntime *rt, const SheafRuntimeOptions *o, Binding *all, Topo *t, Placement *p, Err *e) {
    int mine = 0, ranks = keep_machine(all, comm_size(rt->comm), comm_rank(rt->comm), &mine);
    p->n_threads = o->threads;
    if (o->pin || !o->threads) {
        if (topo_load(t, e)) return -1;
        if (t->pretended)
            return err_set(e, "HWLOC_SYNTHETIC or HWLOC_XMLFILE pretend another machine: only 'plan' can use it, unset "
                              "the variable to run here");
        PlaceRequest q = {.binding = all, .ranks = ranks, .index = mine, .threads = o->threads, .cores = o->cores};
        if (place_rank(t, &q, p, e)) return -1;
    }
    return o->pin ? 0 : binding_undo(&all[mine], e);
}

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void list_distinct(int *number, int n, char *buf, size_t size) {
    int kept = 0;
    qsort(number, (size_t)n, sizeof *number, compare_ints);
    for (int i = 0; i < n; i++)
        if (!i || number[i] != number[i - 1]) number[kept++] = number[i];
    place_list(number, kept, buf, size);
}

static void describe(const Topo *t, const Placement *p, bool pinned, SheafPlace *place) {
    int number[TOPO_MAX_CPUS];
    place->threads = p->n_threads;
    if (!pinned) return;
    memcpy(number, p->cpu, sizeof number);
    list_distinct(number, p->n_threads, place->cpus, sizeof place->cpus);
    for (int i = 0; i < p->n_threads; i++) number[i] = t->node[p->node[i]].id;
    list_distinct(number, p->n_threads, place->nodes, sizeof place->nodes);
}

/* What the ranks told, kept: all places, and each machine's note once. */
static int keep_told(SheafRuntime *rt, const Told *told, Err *e) {
    int n = comm_size(rt->comm);
    StrBuf text = {0};
    rt->place = calloc((size_t)n, sizeof *rt->place);
    for (int i = 0; i < n; i++) {
        bool said = !told[i].note[0];
        if (rt->place) rt->place[i] = told[i].place;
        for (int k = 0; k < i && !said; k++) said = told[k].machine == told[i].machine;
        if (said) continue;
        if (text.len) strbuf_puts(&text, "; ");
        if (comm_hosts(rt->comm) > 1) strbuf_printf(&text, "host %s: ", told[i].place.host);
        strbuf_puts(&text, told[i].note);
    }
    bool failed = strbuf_take(&text, &rt->warning, e) != 0 || !rt->place;
    return comm_agree(rt->comm, failed, &(Err){"out of memory while placing threads"}, e);
}

int runtime_place(SheafRuntime *rt, const SheafRuntimeOptions *o, Err *e) {
    Err mine = {""};
    Binding own;
    Told said;
    Topo *t = calloc(1, sizeof *t);
    Placement *p = calloc(1, sizeof *p);
    bool failed = binding_read(&own, &mine) != 0;
    own.rank = comm_rank(rt->comm);
    if (!t || !p) failed = err_set(&mine, "out of memory while placing threads") != 0;
    if (o->threads < 0 || o->threads > TOPO_MAX_CPUS)
        failed = err_set(&mine, "threads per rank: %d is not in 0 .. %d", o->threads, TOPO_MAX_CPUS) != 0;
    int status = comm_agree(rt->comm, failed, &mine, e);
    Binding *all = status ? NULL : gather(rt->comm, &own, sizeof own, e);
    if (all) {
        failed = find_place(rt, o, all, t, p, &mine) != 0 ||
                 pool_create(p->n_threads, o->pin ? p->cpu : NULL, &rt->pool, &mine) != 0;
        status = comm_agree(rt->comm, failed, &mine, e);
    } else status = -1;
    free(all);
    if (!status) {
        memset(&said, 0, sizeof said);
        said.machine = own.machine;
        snprintf(said.place.host, sizeof said.place.host, "%s", comm_host_name(rt->comm, own.rank));
        snprintf(said.note, sizeof said.note, "%s", p->note);
        describe(t, p, o->pin, &said.place);
        Told *told = gather(rt->comm, &said, sizeof said, e);
        status = told ? keep_told(rt, told, e) : -1;
        free(told);
    }
    free(t);
    free(p);
    return status;
}

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static void describe_machine(const Topo *t, char *text, size_t size) {
    uint64_t bytes = 0;
    for (int i = 0; i < t->n_nodes; i++) bytes += t->node[i].bytes;
    snprintf(text, size, "%d socket%s, %d NUMA node%s, %d core%s, %d CPU%s, %.1f GB%s", t->n_packages,
             plural(t->n_packages), t->n_nodes, plural(t->n_nodes), t->n_cores, plural(t->n_cores), t->n_cpus,
             plural(t->n_cpus), 1e-9 * (double)bytes, t->pretended ? " (pretended)" : "");
}

int placement_plan(int ranks, SheafPlanRank *places, char *machine, size_t size, Err *e) {
    Topo *t = calloc(1, sizeof *t);
    Placement *p = calloc(1, sizeof *p);
    Binding *all = calloc((size_t)ranks, sizeof *all);
    int status = t && p && all ? topo_load(t, e) : err_set(e, "out of memory while placing threads");
    for (int r = 0; !status && r < ranks; r++) {
        memset(&all[r].bound, 0xFF, sizeof all[r].bound);
        all[r].launcher = all[r].bound;
    }
    for (int r = 0; !status && r < ranks; r++) {
        PlaceRequest q = {.binding = all, .ranks = ranks, .index = r};
        status = place_rank(t, &q, p, e);
        if (!status) describe(t, p, true, &places[r].place);
    }
    if (!status) describe_machine(t, machine, size);
    free(t);
    free(p);
    free(all);
    return status;
}
