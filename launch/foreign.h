/* Variables of other programs' thread pools (OMP_, GOMP_, KMP_, MKL_) have no effect here. A library that we load,
 * OpenMP's runtime, would take them at the program's start to bind the first thread to a core, or to start threads
 * beside ours, so they are taken out of the environment before any library is initialised. */
#pragma once

/* The names of those that were taken out, "OMP_NUM_THREADS, OMP_PROC_BIND", cut to fit; "": there were none that
 * would have brought more than one thread or a binding. Local. */
const char *foreign_variables(void);
