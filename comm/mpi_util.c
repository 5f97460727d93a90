#include "mpi_util.h"

#include "wait.h"

int mpi_ok(int code, const char *what, Err *e) {
    if (code == MPI_SUCCESS) return 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return err_set(e, "%s: %s", what, text);
}

int mpi_wait(MPI_Request *requests, int n, uint64_t *waited_ns, Err *e) {
    Wait w = {0};
    for (;;) {
        int index, done;
        if (mpi_ok(MPI_Testany(n, requests, &index, &done, MPI_STATUS_IGNORE), "waiting for a message", e)) return -1;
        if (done && index == MPI_UNDEFINED) return 0;
        if (!done) {
            wait_step(&w, true); /* as if cores were shared: a poll of MPI costs more than a sched_yield */
            continue;
        }
        *waited_ns += wait_ns(&w);
        w = (Wait){0}; /* something moves: naps start small again */
    }
}

int mpi_agree(MPI_Comm group, int rc, Err *e) {
    Err none = {0};
    int rank, size, lowest;
    if (!e) e = &none;
    MPI_Comm_rank(group, &rank);
    MPI_Comm_size(group, &size);
    int mine = rc ? rank : size;
    if (mpi_ok(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce", e)) return -1;
    if (lowest == size) return 0;
    mpi_ok(MPI_Bcast(e->msg, sizeof e->msg, MPI_CHAR, lowest, group), "MPI_Bcast", e);
    return -1;
}
