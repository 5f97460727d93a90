#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "mpi_util.h"

/* ---- plain versions of the kernels, until comm_set_kernels --------------------------------------------------------*/

static void plain_sum(const float *const *src, int n_src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        float sum = src[0][i];
        for (int q = 1; q < n_src; q++) sum += src[q][i];
        dst[i] = sum;
    }
}
static void plain_to_bf16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i++) y[i] = f32_to_bf16(x[i]);
}
static void plain_from_bf16(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = bf16_to_f32(x[i]);
}

void comm_set_kernels(Comm *c, const Kernels *k) {
    c->ops = (Ops){plain_sum, plain_to_bf16, plain_from_bf16};
    if (k && k->sum) c->ops.sum = k->sum;
    if (k && k->to_bf16) c->ops.to_bf16 = k->to_bf16;
    if (k && k->from_bf16) c->ops.from_bf16 = k->from_bf16;
}

/* ---- starting -----------------------------------------------------------------------------------------------------*/

/* Whether a launcher that speaks to MPI started this process. (SLURM_PROCID says nothing: it is set in a batch script's
 * own shell too.) */
static bool launched(void) {
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (getenv(signs[i])) return true;
    return false;
}

static int start_mpi(Comm *c, Err *e) {
    int initialized, finalized, provided;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) return err_set(e, "MPI has ended in this process and cannot start again");
    if (!initialized) {
        /* Only the few blocking calls of start-up spin inside MPI; where ranks share a core, this lets them pass. */
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
        if (mpi_ok(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread", e)) return -1;
        c->owns_mpi = true;
    }
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_SERIALIZED) return err_set(e, "this MPI lets only one thread of a process call it");
    if (mpi_ok(MPI_Comm_dup(MPI_COMM_WORLD, &c->world), "MPI_Comm_dup", e)) return -1;
    MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN); /* inherited by what is split from it */
    MPI_Comm_rank(c->world, &c->job.rank);
    MPI_Comm_size(c->world, &c->job.size);
    return 0;
}

static int allocate(Comm *c, Err *e) {
    size_t n = (size_t)c->job.size;
    c->job.names = calloc(n, sizeof *c->job.names);
    c->job.host_of = calloc(n, sizeof *c->job.host_of);
    c->job.local_of = calloc(n, sizeof *c->job.local_of);
    c->ranks = calloc(n, sizeof *c->ranks);
    c->sizes = calloc(n, sizeof *c->sizes);
    c->offset = calloc(n, sizeof *c->offset);
    c->local_sizes = calloc(n, sizeof *c->local_sizes);
    c->local_to = calloc(n, sizeof *c->local_to);
    c->gathered = calloc(2 * n, sizeof *c->gathered);
    bool all = c->job.names && c->job.host_of && c->job.local_of && c->ranks && c->sizes && c->offset &&
               c->local_sizes && c->local_to && c->gathered;
    if (all) return 0;
    err_set(e, "no memory for the tables of %d ranks", c->job.size);
    return -1;
}

static void own_name(char name[COMM_NAME_BYTES]) {
    if (gethostname(name, COMM_NAME_BYTES)) snprintf(name, COMM_NAME_BYTES, "unnamed");
    name[COMM_NAME_BYTES - 1] = 0; /* a longer name is cut */
}

static int find_names(Comm *c, Err *e) {
    char name[COMM_NAME_BYTES];
    own_name(name);
    return mpi_ok(MPI_Allgather(name, sizeof name, MPI_CHAR, c->job.names, sizeof name, MPI_CHAR, c->world),
                  "MPI_Allgather", e);
}

/* Fills host_of, local_of and the numbers from each rank's leader, the lowest rank of its host. */
static void number_hosts(Comm *c, const int *leader) {
    int *count = c->ranks; /* scratch for now: ranks of each host so far */
    for (int r = 0; r < c->job.size; r++) {
        if (leader[r] == r) c->job.host_of[r] = c->job.hosts++;
        else c->job.host_of[r] = c->job.host_of[leader[r]];
        c->job.local_of[r] = count[c->job.host_of[r]]++;
    }
    bool even = true;
    for (int h = 1; h < c->job.hosts; h++) even = even && count[h] == count[0];
    c->job.host = c->job.host_of[c->job.rank];
    c->job.local_rank = c->job.local_of[c->job.rank];
    c->job.local_size = count[c->job.host];
    c->carriers = even ? c->job.local_size : 1;
    c->job.messengers = c->carriers > 1 ? 2 : 1; /* a second one where it has counterparts */
    for (int r = 0; r < c->job.size; r++)
        if (c->job.host_of[r] == c->job.host) c->ranks[c->job.local_of[r]] = r;
}

static int find_hosts(Comm *c, bool each_alone, Err *e) {
    int leader = c->job.rank, *leaders = (int *)c->gathered;
    int rc = 0;
    if (!each_alone) {
        rc = mpi_ok(MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->job.rank, MPI_INFO_NULL, &c->local),
                    "MPI_Comm_split_type", e);
        if (!rc) rc = mpi_ok(MPI_Bcast(&leader, 1, MPI_INT, 0, c->local), "MPI_Bcast", e);
    }
    if (!rc) rc = mpi_ok(MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, c->world), "MPI_Allgather", e);
    if (!rc) number_hosts(c, leaders);
    if (rc || c->job.hosts == 1) return rc;
    int carrier = c->job.local_rank < c->carriers;
    return mpi_ok(MPI_Comm_split(c->world, carrier ? c->job.local_rank : MPI_UNDEFINED, c->job.host, &c->peers),
                  "MPI_Comm_split", e);
}

/* Where the ranks of this host tell of themselves: in the memory they share, else in this rank's own. */
static int make_table(Comm *c, Err *e) {
    size_t bytes = round_up(life_table_bytes(c->job.size), _Alignof(LifeTable));
    if (c->shared) {
        c->table = shared_extra(c->shared);
    } else {
        c->table = c->own_table = aligned_alloc(_Alignof(LifeTable), bytes);
        if (!c->table) return err_set(e, "no memory for the table of %d ranks", c->job.size);
        memset(c->table, 0, bytes);
    }
    c->life = &c->table->life[c->job.rank];
    return 0;
}

/* The memory of each host, then the buffers between hosts: a failure anywhere is everyone's. */
static int connect_ranks(Comm *c, const CommOptions *o, Err *e) {
    int rc = 0;
    size_t table = life_table_bytes(c->job.size);
    if (c->job.local_size > 1 &&
        (rc = shared_create(c->local, SEGMENT_ANY, table, &c->ops, &c->stats, &c->slowest, &c->shared, e)))
        err_context(e, "shared memory on host %s", c->job.names[c->job.rank]);
    if (!rc) rc = make_table(c, e);
    if (mpi_agree(c->world, rc, e)) return -1;
    uint64_t piece = c->shared ? shared_piece_bytes(c->shared) : 1u << 20, lowest;
    if (mpi_ok(MPI_Allreduce(&piece, &lowest, 1, MPI_UINT64_T, MPI_MIN, c->world), "MPI_Allreduce", e)) return -1;
    c->piece_bytes = lowest;
    if (c->shared) shared_limit_piece(c->shared, c->piece_bytes);
    MessagesUse use = {.peers = c->peers,
                       .job = &c->job,
                       .stats = &c->stats,
                       .slowest = &c->slowest,
                       .life = c->life,
                       .pulse = c->pulse,
                       .verify = o->verify};
    if (c->peers != MPI_COMM_NULL) rc = network_create(&use, o->wire, c->piece_bytes, &c->ops, &c->network, e);
    if (!rc && c->pulse)
        rc = pulse_connect(c->pulse, &c->job, c->table,
                           c->job.local_rank < c->job.messengers ? c->peers : MPI_COMM_NULL, e);
    if (mpi_agree(c->world, rc, e)) return -1;
    if (c->pulse) pulse_begin(c->pulse);
    return 0;
}

/* With MPI entered. */
static int create_in_mpi(Comm *c, const CommOptions *o, Err *e) {
    if (start_mpi(c, e) || mpi_agree(c->world, allocate(c, e), e) || find_names(c, e)) return -1;
    if (c->job.size == 1) {
        pulse_free(c->pulse);
        c->pulse = NULL;
    }
    return find_hosts(c, o->each_rank_a_host, e) ? -1 : connect_ranks(c, o, e);
}

static int create(Comm *c, const CommOptions *o, Err *e) {
    int initialized;
    MPI_Initialized(&initialized);
    comm_set_kernels(c, NULL);
    c->check = o->check;
    c->wire = o->wire;
    c->lost = o->lost;
    c->warn = o->warn;
    c->arg = o->arg;
    if (!initialized && !launched()) {
        c->job.size = 1;
        if (allocate(c, e)) return -1;
        own_name(c->job.names[0]);
        number_hosts(c, &c->job.rank);
        return make_table(c, e);
    }
    if (pulse_start(o, "the start of the job", &c->pulse, e)) return -1;
    mpi_enter();
    int status = create_in_mpi(c, o, e);
    mpi_leave();
    return status;
}

int comm_create(const CommOptions *o, Comm **out, Err *e) {
    Err own;
    Comm *c = calloc(1, sizeof *c);
    if (!e) e = &own;
    if (!c) return err_set(e, "no memory for the communicator");
    c->world = c->local = c->peers = MPI_COMM_NULL;
    if (create(c, o, e)) {
        comm_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void comm_free(Comm *c) {
    if (!c) return;
    if (c->pulse) pulse_disconnect(c->pulse, "the end of the job");
    shared_free(c->shared);
    network_free(c->network);
    MPI_Comm *groups[] = {&c->peers, &c->local, &c->world};
    mpi_enter();
    for (size_t i = 0; i < 3; i++)
        if (*groups[i] != MPI_COMM_NULL) MPI_Comm_free(groups[i]);
    if (c->owns_mpi) MPI_Finalize();
    mpi_leave();
    pulse_free(c->pulse);
    free(c->own_table);
    free(c->job.names);
    free(c->job.host_of);
    free(c->job.local_of);
    free(c->ranks);
    free(c->sizes);
    free(c->offset);
    free(c->local_sizes);
    free(c->local_to);
    free(c->gathered);
    free(c);
}

/* ---- what there is ------------------------------------------------------------------------------------------------*/

int comm_rank(const Comm *c) { return c->job.rank; }
int comm_size(const Comm *c) { return c->job.size; }
int comm_host(const Comm *c) { return c->job.host; }
int comm_hosts(const Comm *c) { return c->job.hosts; }
int comm_local_rank(const Comm *c) { return c->job.local_rank; }
int comm_local_size(const Comm *c) { return c->job.local_size; }
const char *comm_host_name(const Comm *c, int rank) { return c->job.names[rank]; }
CommStats comm_stats(const Comm *c) { return c->stats; }

void comm_interrupt(Comm *c) { atomic_store_explicit(&c->life->interrupted, 1, memory_order_relaxed); }

bool comm_interrupted(const Comm *c) {
    bool any = false;
    for (int q = 0; q < c->job.size; q++)
        any = any || atomic_load_explicit(&c->table->life[q].interrupted, memory_order_relaxed);
    return any;
}

/* ---- a step -------------------------------------------------------------------------------------------------------*/

void comm_place(Comm *c, const CommPlace *p) { life_place(c->life, p); }

_Noreturn void comm_fail(Comm *c, const Err *why) {
    if (c->pulse) pulse_fail(c->pulse, why->msg);
    if (c->lost) c->lost(c->arg, why);
    _exit(1);
}
