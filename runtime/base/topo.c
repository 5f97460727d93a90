#include "base/topo.h"

#include <ctype.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* ---- the cgroup's quota --------------------------------------------------------------------------------------------
 */

/* The whole CPUs that the quota of this process's cgroup (version 2, "cpu.max": quota and period in us) or one above it
 * pays for; 0 without one. */
static int quota_cpus(void) {
    char line[512], path[640], quota[32];
    char group[512] = "/";
    int64_t limit = 0;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "0::%511s", group) == 1) break;
    fclose(f);
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        long long period = 0;
        if ((f = fopen(path, "r"))) {
            if (fscanf(f, "%31s %lld", quota, &period) == 2 && period > 0 && isdigit((unsigned char)quota[0])) {
                int64_t pays = i64_max(1, i64_min(strtoll(quota, NULL, 10) / period, TOPO_MAX_CPUS));
                limit = limit ? i64_min(limit, pays) : pays;
            }
            fclose(f);
        }
        char *slash = strrchr(group, '/');
        if (!slash) return (int)limit;
        *slash = 0;
    }
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------
 */

/* The node where an object's CPUs sit. Where several nodes have the same CPUs (fast memory beside the ordinary), hwloc
 * puts the one that the system takes by default first. */
static int node_index(hwloc_topology_t h, hwloc_obj_t cpu) {
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, n));)
        if (hwloc_bitmap_isset(n->cpuset, cpu->os_index)) return (int)n->logical_index;
    return 0;
}

/* How far node b is from node a: the firmware's table, or else whether they share a package, then how near they stand
 * in number. */
static uint64_t distance(hwloc_topology_t h, const struct hwloc_distances_s *table, int a, int b) {
    hwloc_obj_t from = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)a),
                to = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)b);
    uint64_t far = (uint64_t)(a < b ? b - a : a - b);
    int i = table ? hwloc_distances_obj_index((struct hwloc_distances_s *)table, from) : -1;
    int k = table ? hwloc_distances_obj_index((struct hwloc_distances_s *)table, to) : -1;
    if (i >= 0 && k >= 0) return table->values[(unsigned)i * table->nbobjs + (unsigned)k] * TOPO_MAX_NODES + far;
    hwloc_obj_t p = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_PACKAGE, from),
                q = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_PACKAGE, to);
    return far + (p == q ? 0 : TOPO_MAX_NODES);
}

static void find_memory(hwloc_topology_t h, Topo *t) {
    struct hwloc_distances_s *table = NULL;
    unsigned one = 1;
    if (hwloc_distances_get_by_type(h, HWLOC_OBJ_NUMANODE, &one, &table, HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) || !one)
        table = NULL;
    for (int i = 0; i < t->n_nodes; i++) {
        t->node[i].memory = i;
        if (t->node[i].bytes) continue;
        uint64_t nearest = UINT64_MAX;
        for (int k = 0; k < t->n_nodes; k++) {
            uint64_t d = t->node[k].bytes ? distance(h, table, i, k) : UINT64_MAX;
            if (d >= nearest) continue;
            nearest = d;
            t->node[i].memory = k;
        }
    }
    if (table) hwloc_distances_release(h, table);
}

static int read_nodes(hwloc_topology_t h, Topo *t, Err *e) {
    t->n_nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
    if (t->n_nodes < 1 || t->n_nodes > TOPO_MAX_NODES)
        return err_set(e, "this machine has %d NUMA nodes: 1 to %d are possible", t->n_nodes, TOPO_MAX_NODES);
    for (int i = 0; i < t->n_nodes; i++) {
        hwloc_obj_t n = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)i);
        t->node[i] = (TopoNode){.id = (int)n->os_index, .bytes = n->attr->numanode.local_memory};
    }
    find_memory(h, t);
    return 0;
}

/* ---- CPUs ----------------------------------------------------------------------------------------------------------
 */

static int number_of(hwloc_topology_t h, hwloc_obj_type_t type, hwloc_obj_t cpu, int otherwise) {
    hwloc_obj_t o = hwloc_get_ancestor_obj_by_type(h, type, cpu);
    return o ? (int)o->logical_index : otherwise;
}

/* Marks the CPUs of slow cores: Intel's are called so, elsewhere the kernel gives each CPU a capacity, and one below
 * seven tenths of the best makes the fast ones wait. Cores that only differ in their highest frequency are equals. */
static void mark_slow(hwloc_topology_t h, Topo *t) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int n = set ? hwloc_cpukinds_get_nr(h, 0) : 0;
    long best = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int kind = 0; kind < n; kind++) {
            unsigned n_infos;
            struct hwloc_info_s *info;
            if (hwloc_cpukinds_get_info(h, (unsigned)kind, set, NULL, &n_infos, &info, 0)) continue;
            bool slow = false;
            for (unsigned i = 0; i < n_infos; i++) {
                long capacity = strcmp(info[i].name, "LinuxCapacity") == 0 ? strtol(info[i].value, NULL, 10) : 0;
                if (capacity > best) best = capacity;
                slow = slow || strcmp(info[i].value, "IntelAtom") == 0 || (capacity > 0 && capacity < best * 7 / 10);
            }
            for (int i = 0; pass && i < t->n_cpus; i++)
                if (hwloc_bitmap_isset(set, (unsigned)t->cpu[i].id)) t->cpu[i].slow = slow;
        }
    hwloc_bitmap_free(set);
    bool all = true;
    for (int i = 0; i < t->n_cpus; i++) all = all && t->cpu[i].slow;
    for (int i = 0; all && i < t->n_cpus; i++) t->cpu[i].slow = false; /* slow only beside faster ones */
}

static int read_cpus(hwloc_topology_t h, Topo *t, Err *e) {
    int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
    if (n < 1) return err_set(e, "hwloc finds no CPU that this process may use");
    if (n > TOPO_MAX_CPUS) return err_set(e, "this machine has %d CPUs: at most %d are possible", n, TOPO_MAX_CPUS);
    for (int i = 0; i < n; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(h, HWLOC_OBJ_PU, (unsigned)i);
        TopoCpu *c = &t->cpu[i];
        *c = (TopoCpu){.id = (int)pu->os_index,
                       .core = number_of(h, HWLOC_OBJ_CORE, pu, i),
                       .l3 = number_of(h, HWLOC_OBJ_L3CACHE, pu, -1),
                       .package = number_of(h, HWLOC_OBJ_PACKAGE, pu, 0),
                       .node = node_index(h, pu)};
        if (i && c->core == c[-1].core) c->sibling = c[-1].sibling + 1;
        t->n_cores += c->sibling == 0;
        t->node[c->node].n_cpus++;
    }
    t->n_cpus = n;
    t->n_l3 = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_L3CACHE);
    t->n_packages = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE);
    mark_slow(h, t);
    return 0;
}

static const char *pretence(void) {
    static const char *const names[] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return names[i];
    }
    return NULL;
}

int topo_load(Topo *t, Err *e) {
    hwloc_topology_t h;
    const char *pretended = pretence();
    memset(t, 0, sizeof *t);
    if (hwloc_topology_init(&h)) return err_set(e, "hwloc does not start");
    int status = 0;
    if (hwloc_topology_load(h)) status = err_set(e, "hwloc cannot read this machine's topology");
    else if (pretended && !getenv("HWLOC_THISSYSTEM") && hwloc_topology_is_thissystem(h)) /* it takes the real one */
        status = err_set(e, "%s: hwloc finds no machine in \"%.200s\"", pretended, getenv(pretended));
    if (!status) status = read_nodes(h, t, e);
    if (!status) status = read_cpus(h, t, e);
    t->pretended = !status && !hwloc_topology_is_thissystem(h);
    if (!t->pretended) t->quota = quota_cpus();
    hwloc_topology_destroy(h);
    return status;
}

int topo_find_cpu(const Topo *t, int id) {
    for (int i = 0; i < t->n_cpus; i++)
        if (t->cpu[i].id == id) return i;
    return -1;
}

void topo_cpu_name(char *buf, size_t size) {
    char line[512];
    snprintf(buf, size, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(buf, size, "%s", colon);
        break;
    }
    fclose(f);
}
