/* The machine as this process may use it: CPUs and NUMA nodes, in plain tables. */
#pragma once

#include "base/err.h"

enum { TOPO_MAX_CPUS = 1024, TOPO_MAX_NODES = 64 }; /* CPUs are also the most threads a rank can have */

/* A logical CPU. Objects are numbered from 0 in the machine's order: neighbours in number share caches and nodes. */
typedef struct TopoCpu {
    int id;                      /* the system's number */
    int core, l3, package, node; /* l3: -1 when the system does not say. node: where it sits, an index of Topo.node */
    int sibling;                 /* which of its core's hardware threads it is, 0: the first */
    bool slow;                   /* of a core built to save power, beside faster ones */
} TopoCpu;

typedef struct TopoNode {
    int id;         /* the system's number */
    uint64_t bytes; /* of memory, 0: a node of CPUs only */
    int n_cpus;     /* that sit there, 0: a node of memory only */
    int memory;     /* the node (an index) where its CPUs' memory should lie: itself, or the nearest that has memory */
} TopoNode;

typedef struct Topo {
    int n_cpus, n_cores, n_l3, n_packages, n_nodes;
    TopoCpu cpu[TOPO_MAX_CPUS]; /* without those that the cgroup forbids; by core, then hardware thread */
    TopoNode node[TOPO_MAX_NODES];
    int quota;      /* whole CPUs that the cgroup's CPU quota pays for (at least 1), 0: no limit */
    bool pretended; /* HWLOC_SYNTHETIC or HWLOC_XMLFILE describe another machine than this one */
} Topo;

/* Reads this machine, or the one that hwloc's environment variables describe: HWLOC_SYNTHETIC (such as "package:2
 * numa:1 core:4 pu:2") or HWLOC_XMLFILE. Local. */
int topo_load(Topo *t, Err *e);

/* The index in t->cpu of the CPU with that number, -1: there is none or it is forbidden. */
int topo_find_cpu(const Topo *t, int id);

/* The CPU's model name as the system gives it ("AMD EPYC 9654 96-Core Processor"), cut to fit. Local. */
void topo_cpu_name(char *buf, size_t size);
