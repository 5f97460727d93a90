/* Weights in memory: each rank reads its own slices from the file, straight into kernel layout in its arena. */
#pragma once

#include "base/arena.h"
#include "base/pool.h"
#include "graph/model_file.h"
#include "kernels/kernels.h"
#include "partition/plan.h"

/* One weight value as this rank holds it. */
typedef struct LocalWeight {
    PackedWeights packed; /* WEIGHT_PACKED: local rows and columns; the first of several (experts) */
    int64_t n_matrices;
    size_t matrix_bytes; /* from one to the next */
    float *values;       /* WEIGHT_F32: a vector [local rows], or filters [local o][kh][kw][local i]; else NULL */
    void *data;          /* WEIGHT_PLAIN: local elements of its type; else NULL */
} LocalWeight;

typedef struct Weights {
    LocalWeight *weight; /* [plan->graph.n_values]; zeroed for values that are no weights */
    Arena arena;
    uint64_t bytes; /* this rank's, without padding between tensors */
} Weights;

typedef void LoadProgress(void *arg, uint64_t bytes_done, uint64_t bytes_total);

/* Reads with all threads of the pool; `file` may be NULL when every weight is in memory. `progress` (or NULL) is called
 * from the calling thread. The caller frees *w with weights_free, also after an error. Local. */
int weights_load(const Plan *p, int rank, const ModelFile *file, Pool *pool, LoadProgress *progress, void *arg,
                 Weights *w, Err *e);
void weights_free(Weights *w);
