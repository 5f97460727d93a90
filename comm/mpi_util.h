/* Small helpers around MPI, which is told to return its errors. */
#pragma once

#include <mpi.h>

#include "base/err.h"

/* 0 when code is MPI_SUCCESS; else "what: MPI's text" and -1. Local. */
int mpi_ok(int code, const char *what, Err *e);

/* Waits for all of n requests (they become MPI_REQUEST_NULL), yielding and sleeping like every wait here, and adds the
 * time to *waited_ns. Local. */
int mpi_wait(MPI_Request *requests, int n, uint64_t *waited_ns, Err *e);

/* 0 when rc is 0 on all ranks of the group; else -1 and the message of the lowest rank that failed, on all. For
 * start-up, where the group's own collectives are not there yet. Collective. */
int mpi_agree(MPI_Comm group, int rc, Err *e);
