/* Small helpers around MPI, which is told to return its errors. */
#pragma once

#include <mpi.h>

#include "base/err.h"

/* MPI is started with MPI_THREAD_SERIALIZED: whoever calls it while other threads might holds this lock, one for the
 * process as MPI is one. The thread of Pulse gives up after a while (mpi_try_enter: false), as the main thread may sit
 * inside a call that waits for other ranks. Local. */
void mpi_enter(void);
bool mpi_try_enter(void);
void mpi_leave(void);

/* 0 when code is MPI_SUCCESS; else "what: MPI's text" and -1. Local. */
int mpi_ok(int code, const char *what, Err *e);

/* Waits for all of n requests (they become MPI_REQUEST_NULL), yielding and sleeping like every wait here; `arrived` (or
 * NULL) is called with the index of each that completes. Enters MPI itself. Local. */
typedef void MpiArrived(void *arg, int index);
int mpi_wait(MPI_Request *requests, int n, MpiArrived *arrived, void *arg, Err *e);

/* 0 when rc is 0 on all ranks of the group; else -1 and the message of the lowest rank that failed, on all. For
 * start-up, where the group's own collectives are not there yet. Collective. */
int mpi_agree(MPI_Comm group, int rc, Err *e);
