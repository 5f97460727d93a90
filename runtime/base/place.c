#include "base/place.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"

/* A set of indices of Topo.cpu. */
typedef struct CpuIndices {
    bool has[TOPO_MAX_CPUS];
} CpuIndices;

/* ---- what the launcher did -----------------------------------------------------------------------------------------
 */

/* mpirun (Open MPI 4) tells the process that it bound it; a binding that the user asked for leaves its options behind.
 */
static bool bound_by_default(void) {
    static const char *const asked[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_list",
                                        "OMPI_MCA_hwloc_base_cpu_set", "OMPI_MCA_rmaps_base_mapping_policy",
                                        "OMPI_MCA_rmaps_base_cpus_per_rank"};
    if (!getenv("OMPI_MCA_orte_bound_at_launch")) return false;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (getenv(asked[i])) return false;
    return true;
}

/* A hash (FNV-1a) of the kernel's boot id, or of the host's name where that cannot be read. */
static uint64_t machine_id(void) {
    char id[128] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    bool known = f && fgets(id, sizeof id, f);
    if (f) fclose(f);
    if (!known) gethostname(id, sizeof id - 1);
    uint64_t hash = 14695981039346656037u;
    for (const char *c = id; *c; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    return hash;
}

int binding_read(Binding *b, Err *e) {
    memset(b, 0, sizeof *b); /* the padding too: it is sent */
    if (sched_getaffinity(0, sizeof b->bound, &b->bound)) return err_errno(e, "cannot read the CPU affinity");
    pid_t parent = getppid(); /* 0: in another PID namespace */
    if (parent <= 0 || sched_getaffinity(parent, sizeof b->launcher, &b->launcher)) b->launcher = b->bound;
    b->asked = !bound_by_default();
    b->machine = machine_id();
    return 0;
}

int binding_undo(const Binding *b, Err *e) {
    if (b->asked || !sched_setaffinity(0, sizeof b->launcher, &b->launcher)) return 0;
    return err_errno(e, "cannot leave the CPUs that mpirun chose");
}

/* ---- lists of numbers ----------------------------------------------------------------------------------------------
 */

void place_list(const int *number, int n, char *buf, size_t size) {
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0, k; i < n; i = k) {
        int step = i + 2 < n ? number[i + 1] - number[i] : 1;
        for (k = i + 1; k < n && number[k] == number[k - 1] + step;) k++;
        if (step != 1 && k - i < 3) k = i + 1;
        const char *comma = i ? "," : "";
        int wrote = snprintf(buf + at, size - at,
                             k - i == 1  ? "%s%d"
                             : step == 1 ? "%s%d-%d"
                                         : "%s%d-%d:%d",
                             comma, number[i], number[k - 1], step);
        at += (size_t)wrote;
        if (at < size) continue;
        if (size > 3) memcpy(buf + size - 4, "...", 4);
        return;
    }
}

static void list_cpus(const Topo *t, const CpuIndices *s, char *buf, size_t size) {
    int id[TOPO_MAX_CPUS], n = 0;
    bool in[TOPO_MAX_CPUS] = {false};
    for (int i = 0; i < t->n_cpus; i++)
        if (s->has[i] && t->cpu[i].id < TOPO_MAX_CPUS) in[t->cpu[i].id] = true;
    for (int i = 0; i < TOPO_MAX_CPUS; i++)
        if (in[i]) id[n++] = i;
    place_list(id, n, buf, size);
}

/* A CPU's number at *at, which moves on; -1: there is none. */
static int take_number(const char **at) {
    char *end;
    if (!isdigit((unsigned char)**at)) return -1;
    long n = strtol(*at, &end, 10);
    *at = end;
    return n < TOPO_MAX_CPUS ? (int)n : TOPO_MAX_CPUS;
}

/* "3", "0-7" or "0-14:2". */
static int parse_range(const char **at, int *first, int *last, int *step) {
    *first = *last = take_number(at);
    *step = 1;
    if (*first < 0 || **at != '-') return *first < 0 ? -1 : 0;
    (*at)++;
    *last = take_number(at);
    if (*last < *first || **at != ':') return *last < *first ? -1 : 0;
    (*at)++;
    *step = take_number(at);
    return *step < 1 ? -1 : 0;
}

static int parse_cores(const Topo *t, const char *list, CpuIndices *out, Err *e) {
    char may[128];
    CpuIndices all = {{false}};
    for (int i = 0; i < t->n_cpus; i++) all.has[i] = true;
    list_cpus(t, &all, may, sizeof may);
    for (const char *at = list;; at++) {
        int first, last, step;
        if (parse_range(&at, &first, &last, &step) || (*at && *at != ','))
            return err_set(e, "--cores %.100s: must be CPUs such as 0-7,16-23 or 0-14:2", list);
        for (int id = first; id <= last; id += step) {
            int i = topo_find_cpu(t, id);
            if (i < 0) return err_set(e, "--cores %.100s: CPU %d cannot be used here (%s can)", list, id, may);
            out->has[i] = true;
        }
        if (!*at) return 0;
    }
}

/* ---- sharing out ---------------------------------------------------------------------------------------------------
 */

/* A rank's part of a list of cores. */
typedef struct Part {
    int begin, end;
} Part;

/* Where each rank's part begins when ranks stay inside nodes or have whole ones, into begin[ranks + 1]. core: [n]
 * indices of Topo.cpu, by node; ranks <= n. */
static void whole_nodes(const Topo *t, const int *core, int n, int ranks, int *begin) {
    int first[TOPO_MAX_NODES + 1], held[TOPO_MAX_NODES], nodes = 0, r = 0;
    for (int k = 0; k < n; k++)
        if (!k || t->cpu[core[k]].node != t->cpu[core[k - 1]].node) first[nodes++] = k;
    first[nodes] = n;
    int64_t from, to;
    begin[ranks] = n;
    for (; ranks < nodes && r < ranks; r++) {
        share_range(nodes, ranks, r, &from, &to);
        begin[r] = first[from];
    }
    if (ranks < nodes) return;
    /* One rank for each node, then each further one where its ranks then have most cores. */
    for (int k = 0; k < nodes; k++) held[k] = 1;
    for (int more = nodes; more < ranks; more++) {
        int best = 0;
        for (int k = 1; k < nodes; k++)
            if ((first[k + 1] - first[k]) * (held[best] + 1) > (first[best + 1] - first[best]) * (held[k] + 1))
                best = k;
        held[best]++;
    }
    for (int k = 0; k < nodes; k++)
        for (int i = 0; i < held[k]; i++) {
            share_range(first[k + 1] - first[k], held[k], i, &from, &to);
            begin[r++] = first[k] + (int)from;
        }
}

static Part part_of(const Topo *t, const int *core, int n, int ranks, int i) {
    int begin[TOPO_MAX_CPUS + 1], poorest = n;
    if (n < 1) return (Part){0, 0};
    if (n < ranks) { /* they share */
        int at = (int)((int64_t)i * n / ranks);
        return (Part){at, at + 1};
    }
    whole_nodes(t, core, n, ranks, begin);
    for (int r = 0; r < ranks; r++)
        if (begin[r + 1] - begin[r] < poorest) poorest = begin[r + 1] - begin[r];
    if (4 * poorest >= 3 * (n / ranks)) return (Part){begin[i], begin[i + 1]};
    int64_t from, to;
    share_range(n, ranks, i, &from, &to);
    return (Part){(int)from, (int)to};
}

/* The first CPU of each core in the set, fast or slow ones; returns how many. */
static int cores_of(const Topo *t, const CpuIndices *s, bool slow, int *core) {
    int n = 0, last = -1;
    for (int i = 0; i < t->n_cpus; i++) {
        if (!s->has[i] || t->cpu[i].core == last || t->cpu[i].slow != slow) continue;
        core[n++] = i;
        last = t->cpu[i].core;
    }
    return n;
}

static int count_cores(const Topo *t, const CpuIndices *s) {
    int core[TOPO_MAX_CPUS];
    return cores_of(t, s, false, core) + cores_of(t, s, true, core);
}

/* The CPUs for the threads of rank i of `ranks` that share a set. With fewer threads than cores these are taken from
 * all over the share, so that it is read through as many caches and nodes as there are. */
static void fill(const Topo *t, const CpuIndices *s, int ranks, int i, int threads, int quota, Placement *out) {
    int core[TOPO_MAX_CPUS], order[TOPO_MAX_CPUS] = {0}, n = 0, fast = 0;
    for (int slow = 0; slow < 2; slow++) {
        int cores = cores_of(t, s, slow, core);
        Part p = part_of(t, core, cores, ranks, i);
        for (int k = p.begin; k < p.end; k++) order[n++] = core[k];
        if (!fast) fast = n;
    }
    for (int k = 0, firsts = n; k < firsts; k++)
        for (int c = order[k] + 1; c < t->n_cpus && t->cpu[c].core == t->cpu[order[k]].core; c++)
            if (s->has[c]) order[n++] = c;
    if (n < 1) return; /* no set is empty: see read_bound */
    if (!threads) threads = quota && quota < fast ? quota : fast;
    out->n_threads = threads;
    for (int k = 0; k < threads; k++) {
        const TopoCpu *c = &t->cpu[order[threads < fast ? (int)((int64_t)k * fast / threads) : k % n]];
        out->cpu[k] = c->id;
        out->node[k] = t->node[c->node].memory;
    }
}

/* ---- judging the binding -------------------------------------------------------------------------------------------
 */

static void indices_of(const Topo *t, const cpu_set_t *set, CpuIndices *out) {
    for (int i = 0; i < t->n_cpus; i++)
        out->has[i] = t->cpu[i].id < CPU_SETSIZE && CPU_ISSET((size_t)t->cpu[i].id, set);
}

/* Whether two sets meet in a core, and whether they have the same cores. */
static void compare(const Topo *t, const CpuIndices *a, const CpuIndices *b, bool *meet, bool *same) {
    *meet = *same = true;
    if (!memcmp(a, b, sizeof *a)) return;
    *meet = false;
    for (int i = 0, k; i < t->n_cpus; i = k) {
        bool in_a = false, in_b = false;
        for (k = i; k < t->n_cpus && t->cpu[k].core == t->cpu[i].core; k++) {
            in_a = in_a || a->has[k];
            in_b = in_b || b->has[k];
        }
        *meet = *meet || (in_a && in_b);
        *same = *same && in_a == in_b;
    }
}

/* The ranks of the machine, as bound. */
typedef struct Bound {
    CpuIndices *set; /* [ranks] */
    CpuIndices all;  /* of all ranks together */
    CpuIndices mine; /* what this rank and `sharers` - 1 others share out, this one being the `place`th of them */
    int sharers, place;
} Bound;

/* The first two ranks that are in each other's way; false: there are none. Ranks bound like an earlier one have been
 * seen with it. */
static bool find_clash(const Topo *t, const Bound *b, int ranks, int *one, int *other) {
    for (int i = 0; i < ranks; i++) {
        int sharers = 1, cores = count_cores(t, &b->set[i]);
        if (i && !memcmp(&b->set[i], &b->set[i - 1], sizeof *b->set)) continue;
        for (int k = i + 1; k < ranks; k++) {
            bool meet, same;
            compare(t, &b->set[i], &b->set[k], &meet, &same);
            sharers += same;
            *one = i;
            *other = k;
            if ((meet && !same) || sharers > cores) return true;
        }
    }
    return false;
}

/* All ranks share what the launcher may use, where that is more than they were given, else what they were given. */
static void put_right(const Topo *t, const PlaceRequest *q, Bound *b, int one, int other, char *note, size_t size) {
    CpuIndices more;
    char list[64], cpus[72];
    indices_of(t, &q->binding[0].launcher, &more);
    int given = count_cores(t, &b->all), there = count_cores(t, &more);
    bool wider = there > given;
    b->mine = wider ? more : b->all;
    b->sharers = q->ranks;
    b->place = q->index;
    list_cpus(t, &b->all, list, sizeof list);
    snprintf(cpus, sizeof cpus, "CPU%s %s", strpbrk(list, ",-") ? "s" : "", list);
    if (wider)
        snprintf(note, size, "ranks %d and %d were bound to the same cores (all ranks: %s): spread over %d cores",
                 q->binding[one].rank, q->binding[other].rank, cpus, there);
    else if (q->ranks > given)
        snprintf(note, size, "%d ranks have %d core%s (%s): they slow each other down, start fewer or allow more",
                 q->ranks, given, given == 1 ? "" : "s", cpus);
    else
        snprintf(note, size, "ranks %d and %d were bound to the same cores: %s shared out anew", q->binding[one].rank,
                 q->binding[other].rank, cpus);
}

static int read_bound(const Topo *t, const PlaceRequest *q, Bound *b, Err *e) {
    CpuIndices chosen = {{false}};
    if (q->cores && parse_cores(t, q->cores, &chosen, e)) return -1;
    memset(&b->all, 0, sizeof b->all);
    for (int r = 0; r < q->ranks; r++) {
        const Binding *g = &q->binding[r];
        if (q->cores) b->set[r] = chosen;
        else indices_of(t, g->asked ? &g->bound : &g->launcher, &b->set[r]);
        if (count_cores(t, &b->set[r]) < 1)
            return err_set(e, "rank %d may use none of the CPUs that hwloc finds here", g->rank);
        for (int i = 0; i < t->n_cpus; i++) b->all.has[i] = b->all.has[i] || b->set[r].has[i];
    }
    return 0;
}

static void judge(const Topo *t, const PlaceRequest *q, Bound *b, Placement *out) {
    int one, other;
    out->note[0] = 0;
    if (find_clash(t, b, q->ranks, &one, &other)) {
        put_right(t, q, b, one, other, out->note, sizeof out->note);
        return;
    }
    b->mine = b->set[q->index];
    for (int r = 0; r < q->ranks; r++) {
        bool meet, same;
        compare(t, &b->mine, &b->set[r], &meet, &same);
        b->sharers += same;
        b->place += same && r < q->index;
    }
}

int place_rank(const Topo *t, const PlaceRequest *q, Placement *out, Err *e) {
    if (q->ranks < 1 || q->index < 0 || q->index >= q->ranks)
        return err_set(e, "there is no rank %d among %d on this host", q->index, q->ranks);
    if (q->threads < 0 || q->threads > TOPO_MAX_CPUS)
        return err_set(e, "%d threads: the number must be between 1 and %d, or 0 for one on each core", q->threads,
                       TOPO_MAX_CPUS);
    Bound *b = calloc(1, sizeof *b);
    if (b) b->set = calloc((size_t)q->ranks, sizeof *b->set);
    int status = b && b->set ? read_bound(t, q, b, e) : err_set(e, "out of memory while placing threads");
    if (!status) {
        judge(t, q, b, out);
        int quota = t->quota ? (int)i64_max(1, t->quota / q->ranks) : 0;
        fill(t, &b->mine, b->sharers, b->place, q->threads, quota, out);
    }
    if (b) free(b->set);
    free(b);
    return status;
}
