#include "base/topo.h"

#include "base/size.h"

#include <ctype.h>
#include <hwloc.h>
#include <numa.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The CPUs this process shares out, and among how many ranks. */
typedef struct Share {
    cpu_set_t set;
    int ranks, index; /* ranks that share the set, and this one's place among them */
} Share;

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

/* A set narrower than the parent's was made for this rank (--bind-to, srun); how many others have the same one is not
 * known here, so it is taken that the ranks fill the machine evenly. A set as wide as the parent's is everybody's. */
static int find_share(int local_rank, int local_size, Share *s, Err *e) {
    cpu_set_t outer;
    CPU_ZERO(&s->set);
    CPU_ZERO(&outer);
    if (sched_getaffinity(0, sizeof s->set, &s->set)) return err_errno(e, "cannot read the CPU affinity");
    s->ranks = local_size;
    s->index = local_rank;
    if (sched_getaffinity(getppid(), sizeof outer, &outer) || CPU_EQUAL(&s->set, &outer)) return 0;
    int mine = CPU_COUNT(&s->set), all = CPU_COUNT(&outer);
    if (mine >= all) return 0;
    if (bound_by_default()) {
        s->set = outer;
        return 0;
    }
    int64_t sharers = ((int64_t)local_size * mine + all / 2) / all;
    s->ranks = (int)i64_max(1, sharers);
    s->index = local_rank % s->ranks;
    return 0;
}

/* The first usable CPU of each core, in hwloc's logical order; returns how many. */
static int cores_of(hwloc_topology_t topology, const cpu_set_t *set, int *cpus) {
    int n = 0;
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t core = NULL; n < TOPO_MAX_CPUS && (core = hwloc_get_next_obj_by_type(topology, type, core));) {
        int cpu = -1;
        while ((cpu = hwloc_bitmap_next(core->cpuset, cpu)) >= 0)
            if (cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, set)) break;
        if (cpu >= 0) cpus[n++] = cpu;
    }
    return n;
}

static int load_cores(const cpu_set_t *set, int *cpus, Err *e) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology)) return err_set(e, "hwloc does not start");
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return err_set(e, "hwloc cannot read this machine's topology");
    }
    int n = cores_of(topology, set, cpus);
    hwloc_topology_destroy(topology);
    if (n < 1) return err_set(e, "hwloc finds no core among the CPUs that this process may use");
    return n;
}

/* The whole CPUs that the quota of this process's cgroup (version 2, "cpu.max": quota and period in us) or one above it
 * pays for; INT_MAX without one. */
static int quota_cpus(void) {
    char line[512], path[640], quota[32];
    char group[512] = "/";
    int limit = INT32_MAX;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return limit;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "0::%511s", group) == 1) break;
    fclose(f);
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        long long period = 0;
        if ((f = fopen(path, "r"))) {
            if (fscanf(f, "%31s %lld", quota, &period) == 2 && period > 0 && isdigit((unsigned char)quota[0]))
                limit = (int)i64_min(limit, i64_max(1, strtoll(quota, NULL, 10) / period));
            fclose(f);
        }
        char *slash = strrchr(group, '/');
        if (!slash) return limit;
        *slash = 0;
    }
}

int topo_cpus(int local_rank, int local_size, int threads, int *cpus, Err *e) {
    int cores[TOPO_MAX_CPUS];
    Share share;
    if (local_size < 1 || local_rank < 0 || local_rank >= local_size)
        return err_set(e, "there is no rank %d among %d on this host", local_rank, local_size);
    if (threads < 0 || threads > TOPO_MAX_CPUS)
        return err_set(e, "%d threads: the number must be between 1 and %d, or 0 for one on each core", threads,
                       TOPO_MAX_CPUS);
    if (find_share(local_rank, local_size, &share, e)) return -1;
    int n = load_cores(&share.set, cores, e);
    if (n < 0) return -1;
    int64_t begin, end;
    share_range(n, share.ranks, share.index, &begin, &end);
    if (threads == 0) threads = (int)i64_max(1, i64_min(end - begin, quota_cpus() / local_size));
    /* Not enough cores for all: one rank after the other around the machine. */
    if ((int64_t)threads * share.ranks > n) begin = (int64_t)threads * share.index % n;
    for (int i = 0; i < threads; i++) cpus[i] = cores[(begin + i) % n];
    return threads;
}

int topo_cores(Err *e) {
    int cores[TOPO_MAX_CPUS];
    Share share;
    if (find_share(0, 1, &share, e)) return -1;
    return load_cores(&share.set, cores, e);
}

int topo_node_of_cpu(int cpu) { return numa_available() < 0 ? -1 : numa_node_of_cpu(cpu); }

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
