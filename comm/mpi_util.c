#include "mpi_util.h"

#include <pthread.h>
#include <time.h>

#include "wait.h"

static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER;

void mpi_enter(void) { pthread_mutex_lock(&inside); }
void mpi_leave(void) { pthread_mutex_unlock(&inside); }

bool mpi_try_enter(void) {
    enum { PATIENCE_NS = 20000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* the clock of pthread_mutex_timedlock */
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(&inside, &until) == 0;
}

int mpi_ok(int code, const char *what, Err *e) {
    if (code == MPI_SUCCESS) return 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return err_set(e, "%s: %s", what, text);
}

int mpi_wait(MPI_Request *requests, int n, MpiArrived *arrived, void *arg, Err *e) {
    Wait w = {0};
    for (;;) {
        int index, done;
        mpi_enter();
        int code = MPI_Testany(n, requests, &index, &done, MPI_STATUS_IGNORE);
        mpi_leave();
        if (mpi_ok(code, "waiting for a message", e)) return -1;
        if (done && index == MPI_UNDEFINED) return 0;
        if (!done) {
            wait_step(&w, true); /* as if cores were shared: a poll of MPI costs more than a sched_yield */
            continue;
        }
        if (arrived) arrived(arg, index);
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
