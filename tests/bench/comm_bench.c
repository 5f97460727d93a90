/* comm_bench: latency of comm_allreduce beside MPI_Allreduce at the sizes of decoding (576 values), of a short prompt
 * (4,608) and of a long one (307,200), in turns in the same run, and the one-way latency of a flag between the first
 * two ranks of a host, on which the first depends: it tells whether two cores share a cache just now.
 *
 *   mpirun -n 2 --bind-to core comm_bench [ROUNDS] */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

enum { SIZES = 3, LARGEST = 307200, MOST_ROUNDS = 1000, FLAG_TURNS = 5000 };
static const size_t sizes[SIZES] = {576, 4608, LARGEST};
static const int repeats[SIZES] = {2000, 500, 20};

static int rank, n_ranks;

/* The middle and the smallest of n times, in microseconds. */
typedef struct Times {
    double us[MOST_ROUNDS];
    int n;
} Times;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, Times *t) {
    if (rank || !t->n) return;
    qsort(t->us, (size_t)t->n, sizeof *t->us, by_value);
    printf("%-40s %9.2f %9.2f\n", what, t->us[t->n / 2], t->us[0]);
}

/* One-way nanoseconds of a flag between world ranks 0 and 1 through memory of their own. Negative: not on one host. */
static void time_flag(MPI_Comm host, Times *t) {
    MPI_Win window;
    char *base;
    int local;
    MPI_Comm_rank(host, &local);
    MPI_Win_allocate_shared(local ? 0 : 4096, 1, MPI_INFO_NULL, host, &base, &window);
    MPI_Aint bytes;
    int unit;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &base);
    _Atomic int *flags[2] = {(_Atomic int *)(base + 1024), (_Atomic int *)(base + 2048)};
    if (!local) *flags[0] = *flags[1] = 0;
    MPI_Barrier(host);
    double began = MPI_Wtime();
    for (int i = 1; i <= FLAG_TURNS && local < 2; i++) {
        if (local)
            while (atomic_load_explicit(flags[0], memory_order_acquire) < i) {
            }
        atomic_store_explicit(flags[local], i, memory_order_release);
        if (!local)
            while (atomic_load_explicit(flags[1], memory_order_acquire) < i) {
            }
    }
    t->us[t->n++] = 1e6 * (MPI_Wtime() - began) / (2 * FLAG_TURNS);
    MPI_Barrier(host);
    MPI_Win_free(&window);
}

static void time_comm(Comm *c, float *x, size_t n, int count, Times *t) {
    Err e = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < count; i++)
        if (comm_allreduce(c, x, n, false, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    t->us[t->n++] = 1e6 * (MPI_Wtime() - began) / count;
}

static void time_mpi(float *x, size_t n, int count, Times *t) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < count; i++) MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    t->us[t->n++] = 1e6 * (MPI_Wtime() - began) / count;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    if (rounds < 1 || rounds > MOST_ROUNDS) return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    int here;
    MPI_Comm_size(host, &here);

    Comm *c = NULL;
    const Kernels *k = NULL;
    Err e = {0};
    if (comm_create(&(CommOptions){0}, &c, &e) || kernels_select(NULL, &k, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    comm_set_kernels(c, k);

    static Times flag, ours[SIZES], mpi[SIZES];
    float *x = calloc(LARGEST, sizeof *x); /* zeroes: a sum in place stays one */
    for (int r = 0; r < rounds; r++) {
        if (here > 1) time_flag(host, &flag);
        for (int s = 0; s < SIZES; s++) {
            time_comm(c, x, sizes[s], repeats[s], &ours[s]);
            time_mpi(x, sizes[s], repeats[s], &mpi[s]);
        }
    }
    if (rank == 0)
        printf("%d ranks on %d hosts, %d rounds        median us   least us\n", n_ranks, comm_hosts(c), rounds);
    report("flag, one way", &flag);
    for (int s = 0; s < SIZES; s++) {
        char what[64];
        snprintf(what, sizeof what, "comm_allreduce, %zu bytes", sizes[s] * sizeof *x);
        report(what, &ours[s]);
        snprintf(what, sizeof what, "MPI_Allreduce,  %zu bytes", sizes[s] * sizeof *x);
        report(what, &mpi[s]);
    }
    free(x);
    comm_free(c);
    MPI_Comm_free(&host);
    MPI_Finalize();
    return 0;
}
