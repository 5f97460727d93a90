/* Which CPUs each rank's threads get, and on which NUMA nodes their memory lies: a pure function of the machine, of how
 * the launcher bound the machine's ranks, and of what the user asked for. All local. */
#pragma once

#include <sched.h>

#include "base/topo.h"

/* How the launcher bound a rank, read before the rank pins itself; the ranks exchange theirs. Plain bytes. */
typedef struct Binding {
    int rank;           /* its number in the job, for messages; the caller's to set */
    uint64_t machine;   /* the same for all ranks of one machine, whatever container they are in */
    cpu_set_t bound;    /* CPUs the rank may run on */
    cpu_set_t launcher; /* those its parent may run on; `bound` when that is not known */
    bool asked;         /* the user asked for this binding; mpirun binds also unasked (2 ranks to one core each) */
} Binding;
int binding_read(Binding *b, Err *e);
/* Undoes a binding that nobody asked for: this thread may then run wherever the launcher may. */
int binding_undo(const Binding *b, Err *e);

typedef struct PlaceRequest {
    const Binding *binding; /* [ranks] of this machine's ranks, in their order */
    int ranks, index;       /* how many, and which of them is this rank */
    int threads;            /* 0: one on each core of the rank's share, but not more than the cgroup's quota pays for */
    const char *cores;      /* CPUs for all ranks of the machine together, as "0-7,16-23" or "0-14:2"; NULL: as bound */
} PlaceRequest;

typedef struct Placement {
    int n_threads;
    int cpu[TOPO_MAX_CPUS];  /* [n_threads] the system's numbers */
    int node[TOPO_MAX_CPUS]; /* [n_threads] the node that thread's memory belongs to, an index of Topo.node */
    char note[256];          /* what was wrong with the binding and what was made of it, the same on all ranks of the
                                machine; "": nothing */
} Placement;

/* Ranks bound to different cores keep to them; ranks bound alike, or unbound, share them out: each gets neighbouring
 * cores of its own. No NUMA node is cut between ranks that need not be: with as many ranks as nodes or more each stays
 * inside a node, with fewer a rank spans neighbouring nodes; but where nodes have so unequal numbers of cores that the
 * poorest rank would have less than three quarters of an even share, the cores are divided evenly. A core gets one
 * thread; slow cores, then further hardware threads are used only when `threads` asks for more than there are fast
 * cores, and when those are not enough, threads share them.
 *
 * A binding that makes ranks share cores is put right where the launcher may use more cores than the ranks were given;
 * in any case `note` says it. */
int place_rank(const Topo *t, const PlaceRequest *q, Placement *out, Err *e);

/* Numbers in ascending order as "0-3,8,10-16:2": cut to fit. */
void place_list(const int *number, int n, char *buf, size_t size);
