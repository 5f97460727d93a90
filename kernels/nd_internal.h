/* What the nd_*.c files share: shares of threads, walks over broadcast arrays, elements of any type as numbers. */
#pragma once

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "kernels/nd.h"

/* X(type, C type) for the whole-number types that compute in int64_t, and all of them. */
#define ND_SIGNED_WORK(X)                                                                                              \
    X(QT_I8, int8_t)                                                                                                   \
    X(QT_U8, uint8_t)                                                                                                  \
    X(QT_I16, int16_t)                                                                                                 \
    X(QT_U16, uint16_t)                                                                                                \
    X(QT_I32, int32_t)                                                                                                 \
    X(QT_U32, uint32_t)                                                                                                \
    X(QT_I64, int64_t)                                                                                                 \
    X(QT_BOOL, uint8_t)
#define ND_INTEGERS(X) ND_SIGNED_WORK(X) X(QT_U64, uint64_t)

enum { ND_BLOCK = 256 };

/* What a type's elements are computed in. */
typedef enum NdWork { WORK_F32, WORK_F64, WORK_I64, WORK_U64 } NdWork;
static inline NdWork work_of(QType t) {
    return t == QT_F64 ? WORK_F64 : nd_is_float(t) ? WORK_F32 : t == QT_U64 ? WORK_U64 : WORK_I64;
}
typedef union NdBlock {
    float f[ND_BLOCK];
    double d[ND_BLOCK];
    int64_t i[ND_BLOCK];
    uint64_t u[ND_BLOCK];
} NdBlock;

/* n <= ND_BLOCK elements of x from element `at`, `stride` apart, as the type's work numbers; and back, dense. */
void nd_load(const Nd *x, int64_t at, int64_t stride, int64_t n, NdBlock *to);
void nd_store(const NdBlock *from, NdWork work, int64_t n, Nd *y, int64_t at);

/* A walk over the elements [begin, end) of a result, run by run along its last axis, with the positions of up to three
 * broadcast operands beside it. Axes that can be walked as one are. */
enum { WALK_OPERANDS = 3 };
typedef struct Walk {
    int n_dims, n_operands;
    int64_t dim[ND_DIMS], stride[WALK_OPERANDS][ND_DIMS];
    int64_t index[ND_DIMS];         /* of the run's first element */
    int64_t at, end;                /* elements of the result */
    int64_t operand[WALK_OPERANDS]; /* positions of the run's first element */
    int64_t run;                    /* elements of this run */
} Walk;
/* strides: [n_operands][y->n_dims], 0 where an operand is broadcast. False: nothing to do. */
bool walk_begin(Walk *w, const Nd *y, int n_operands, const int64_t *const *strides, NdPart p);
bool walk_next(Walk *w);
/* The strides of a dense array broadcast to y's shape. */
void broadcast_strides(const Nd *x, const Nd *y, int64_t *strides);

static inline int64_t nd_product(const int64_t *dim, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= dim[i];
    return n;
}
static inline void part_range(int64_t n, NdPart p, int64_t *begin, int64_t *end) {
    share_range(n, p.n_threads, p.thread, begin, end);
}
static inline uint8_t *nd_at(const Nd *x, int64_t i) { return (uint8_t *)x->data + (size_t)i * nd_size(x->type); }

/* Elementary functions as fp32 (nd_math.c). */
float nd_tanh(float x);
float nd_erf(float x);
float nd_log(float x);
