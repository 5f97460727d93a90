/* What this process may use of the machine: CPUs, their NUMA nodes, their name. */
#pragma once

#include "base/err.h"

enum { TOPO_MAX_CPUS = 1024 }; /* the most threads a rank can have */

/* The logical CPUs for the threads of one of `local_size` ranks on this host, into cpus[TOPO_MAX_CPUS]; returns how
 * many
 * (>= 1), or -1. One CPU of each physical core that the process may use (affinity, cgroup's cpuset), in the order of
 * the machine's topology, so that neighbours share caches and NUMA nodes; each rank gets a contiguous share. threads ==
 * 0: as many as the share has cores, at least 1, and no more than the cgroup's CPU quota pays for. threads > 0: that
 * many, from where the share begins; wraps around when there are not enough cores. A binding that mpirun made by itself
 * (it binds each of 2 ranks to one core) is not a limit: the ranks share out what mpirun itself may use. A binding that
 * the user asked for is one: the rank then has all of its cores. Local. */
int topo_cpus(int local_rank, int local_size, int threads, int *cpus, Err *e);

/* How many physical cores those are for all ranks of this host together, or -1. Local. */
int topo_cores(Err *e);

/* The NUMA node of a logical CPU; -1 when the system does not say. Local. */
int topo_node_of_cpu(int cpu);

/* The CPU's model name as the system gives it ("AMD EPYC 9654 96-Core Processor"), cut to fit. Local. */
void topo_cpu_name(char *buf, size_t size);
