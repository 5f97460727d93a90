/* With CommOptions.verify a message that is damaged on its way is found out by the host that gets it, whichever
 * collective it belongs to, and undamaged ones pass. The damage: this program stands between comm and MPI_Isend (the
 * profiling interface of MPI) and changes one bit of a chosen message. */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "comm/comm.h"

enum { VALUES = 100000, LEAST_BYTES = 64 }; /* checksums and signs of life are not what is damaged */

static int countdown = -1; /* messages to let pass before the damage; -1: no damage */
static uint8_t copy[1 << 20];

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request *request) {
    if (tag < 32000 && n >= LEAST_BYTES && countdown >= 0 && countdown-- == 0) {
        memcpy(copy, data, (size_t)n);
        copy[n / 2] ^= 4;
        data = copy;
    }
    return PMPI_Isend(data, n, type, to, tag, group, request);
}

static Comm *comm;
static float x[VALUES];

static int one(int kind, Err *e) {
    size_t bytes[8];
    for (int r = 0; r < 8; r++) bytes[r] = 1000;
    for (int i = 0; i < VALUES; i++) x[i] = (float)(i % 100);
    switch (kind) {
    case 0: return comm_allreduce(comm, x, 500, false, e);
    case 1: return comm_allreduce(comm, x, VALUES, true, e);
    case 2: return comm_broadcast(comm, x, sizeof x, e);
    default: return comm_allgather(comm, (uint8_t *)x + 1000 * (size_t)comm_rank(comm), bytes, x, e);
    }
}

static void test_each_kind(void) {
    for (int kind = 0; kind < 4; kind++) {
        /* A large sum of three hosts has two rounds, and who finds damage in the first does not come to the second. */
        if (kind == 1 && comm_size(comm) > 2) continue;
        for (int damaged = 0; damaged < 2; damaged++) {
            Err e = {""};
            int sender = 0, next = (sender + 1) % comm_size(comm);
            countdown = damaged && comm_rank(comm) == sender ? 0 : -1;
            int rc = one(kind, &e);
            countdown = -1;
            /* The first message that rank 0 sends goes to rank 1. */
            bool finds_out = damaged && comm_rank(comm) == next;
            CU_ASSERT_EQUAL(rc, finds_out ? -1 : 0);
            if (finds_out) CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "was damaged on its way"));
            if (finds_out) CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, comm_host_name(comm, 0)));
        }
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"each kind of collective", test_each_kind}, CU_TEST_INFO_NULL};
    Err e = {""};
    if (comm_create(&(CommOptions){.each_rank_a_host = true, .verify = true}, &comm, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    int status = check_run("comm damage", tests);
    comm_free(comm);
    return status;
}
