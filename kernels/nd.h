/* Dense arrays of any element type with up to 8 axes, and plain functions over them: what convolutional nets and
 * encoders need beside matmuls and convolutions. The functions are those of the ONNX operators of the same name
 * (https://onnx.ai/onnx/operators/), which say what is not said here.
 *
 * Portable C without tables per ISA: a result is the same on every CPU. Whole numbers are computed in 64 bits and
 * wrapped to the type; fp16 and bf16 in fp32. Every function works on the share of `thread` out of n_threads (of its
 * result), so that threads can work together; 0 of 1 does all. Shapes must fit: callers check. All local; nothing is
 * allocated. */
#pragma once

#include "base/err.h"
#include "quant/qtype.h"

enum { ND_DIMS = 8 };

typedef struct Nd {
    QType type; /* QT_F32, QT_F16, QT_BF16, QT_I32, QT_F64 .. QT_BOOL */
    int n_dims; /* 0: one element */
    int64_t dim[ND_DIMS];
    void *data; /* row after row; not owned */
} Nd;

/* A part of the work: thread `thread` of `n_threads`. */
typedef struct NdPart {
    int thread, n_threads;
} NdPart;

bool nd_type(QType t); /* can stand in an Nd */
int64_t nd_count(const Nd *x);
static inline size_t nd_size(QType t) { return (size_t)qtype_info(t)->block_bytes; }
bool nd_is_float(QType t);
/* Element i as a number, whatever the type. */
double nd_get_f64(const Nd *x, int64_t i);
int64_t nd_get_i64(const Nd *x, int64_t i);

/* ---- element by element (nd_elem.c) ---- */
typedef enum NdUnary {
    ND_IDENTITY,
    ND_ABS,
    ND_NEG,
    ND_SIGN,
    ND_CEIL,
    ND_FLOOR,
    ND_ROUND, /* ties to even */
    ND_SQRT,
    ND_RECIPROCAL,
    ND_NOT,
    ND_BITWISE_NOT,
    ND_IS_NAN,
    ND_IS_INF, /* a: negative ones count; b: positive ones */
    ND_CLIP,   /* to [a, b]; NaN stays */
    ND_RELU,
    ND_LEAKY_RELU,   /* a x below 0 */
    ND_THRESHOLDED,  /* 0 up to a */
    ND_SHRINK,       /* towards 0 by a outside [-b, b] */
    ND_HARD_SIGMOID, /* max(0, min(1, a x + b)) */
    ND_HARD_SWISH,   /* x max(0, min(1, x / 6 + 1/2)) */
    ND_EXP,
    ND_LOG,
    ND_SIGMOID,
    ND_SILU, /* x sigmoid(a x) */
    ND_TANH,
    ND_ERF,
    ND_GELU,      /* x/2 (1 + erf(x / sqrt 2)) */
    ND_GELU_TANH, /* its approximation by tanh */
    ND_ELU,       /* b (exp(x) - 1) a below 0, b x above: ELU and SELU */
    ND_CELU,
    ND_SOFTPLUS,
    ND_SOFTSIGN,
    ND_MISH,
    ND_SIN,
    ND_COS,
    ND_TAN,
    ND_ASIN,
    ND_ACOS,
    ND_ATAN,
    ND_SINH,
    ND_COSH,
    ND_ASINH,
    ND_ACOSH,
    ND_ATANH,
    ND_UNARY_COUNT
} NdUnary;

typedef enum NdBinary {
    ND_ADD,
    ND_SUB,
    ND_MUL,
    ND_DIV, /* whole numbers: towards 0; by 0 gives 0 */
    ND_POW,
    ND_MIN,
    ND_MAX,
    ND_MOD,  /* the sign of the divisor */
    ND_FMOD, /* the sign of the dividend */
    ND_PRELU,
    ND_BIT_AND,
    ND_BIT_OR,
    ND_BIT_XOR,
    ND_SHIFT_LEFT,
    ND_SHIFT_RIGHT,
    ND_EQUAL, /* from here: the result is QT_BOOL */
    ND_LESS,
    ND_LESS_EQUAL,
    ND_GREATER,
    ND_GREATER_EQUAL,
    ND_AND,
    ND_OR,
    ND_XOR,
    ND_BINARY_COUNT
} NdBinary;

static inline bool nd_compares(NdBinary f) { return f >= ND_EQUAL; }

/* y has x's shape; its type is x's, or QT_BOOL for NOT and IS_*. */
void nd_unary(NdUnary f, double a, double b, const Nd *x, Nd *y, NdPart p);
/* The same on n fp32 values in place: an activation behind another operator. */
void nd_unary_f32(NdUnary f, double a, double b, int64_t n, float *x);
/* a and b have one type and are broadcast to y's shape, as numpy does. */
void nd_binary(NdBinary f, const Nd *a, const Nd *b, Nd *y, NdPart p);
void nd_where(const Nd *condition, const Nd *a, const Nd *b, Nd *y, NdPart p);
/* To floats: rounded; from floats to whole numbers: towards 0, into the type's range (NaN: 0). y has x's shape. */
void nd_cast(const Nd *x, Nd *y, NdPart p);

/* ---- moving elements (nd_move.c) ---- */
/* y[i0, i1, ..] = x[from0 + sum of i_k from_k], broadcasting where from_k is 0. Strides in elements. */
void nd_move(const Nd *x, int64_t from0, const int64_t *from, Nd *y, NdPart p);
void nd_transpose(const Nd *x, const int *perm, Nd *y, NdPart p);
void nd_expand(const Nd *x, Nd *y, NdPart p);
/* Element begin + i * step of each axis. */
void nd_cut(const Nd *x, const int64_t *begin, const int64_t *step, Nd *y, NdPart p);
/* x into y from position `at` of the axis: a part of a concatenation. */
void nd_place(const Nd *x, int axis, int64_t at, Nd *y, NdPart p);
typedef enum NdPad { ND_PAD_CONSTANT, ND_PAD_REFLECT, ND_PAD_EDGE, ND_PAD_WRAP } NdPad;
/* `before` elements (or, negative, that many less) in front of each axis; the rest of y's size behind. */
void nd_pad(NdPad mode, const Nd *x, const int64_t *before, double value, Nd *y, NdPart p);
/* Below (upper: above) diagonal k of the last two axes: kept, the rest zero. */
void nd_triangle(bool upper, int64_t k, const Nd *x, Nd *y, NdPart p);

/* ---- by indices (nd_index.c): whole numbers, negative ones count from the end; -1 when one is out of range ---- */
int nd_gather(int axis, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e);
int nd_gather_elements(int axis, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e);
int nd_gather_nd(int batch_dims, const Nd *x, const Nd *index, Nd *y, NdPart p, Err *e);
typedef enum NdJoin { ND_JOIN_SET, ND_JOIN_ADD, ND_JOIN_MUL, ND_JOIN_MAX, ND_JOIN_MIN } NdJoin;
/* y holds x already; thread 0 works alone. */
int nd_scatter_elements(int axis, NdJoin join, const Nd *index, const Nd *updates, Nd *y, NdPart p, Err *e);
int nd_scatter_nd(NdJoin join, const Nd *index, const Nd *updates, Nd *y, NdPart p, Err *e);
/* y[.., j, ..] = value on where index is j, else off; j runs over the new axis. */
void nd_one_hot(int axis, const Nd *index, const Nd *off_on, Nd *y, NdPart p);

/* ---- along axes (nd_reduce.c) ---- */
typedef enum NdReduce {
    ND_SUM,
    ND_MEAN,
    ND_REDUCE_MAX,
    ND_REDUCE_MIN,
    ND_PROD,
    ND_L1,
    ND_L2,
    ND_SUM_SQUARE,
    ND_LOG_SUM,
    ND_LOG_SUM_EXP,
    ND_REDUCE_COUNT
} NdReduce;
/* Over the axes whose bit is set in `axes`; y has the others in order, with or without ones between. Sums in fp64. */
void nd_reduce(NdReduce f, uint32_t axes, const Nd *x, Nd *y, NdPart p);
/* Index of the largest (smallest) along the axis, the last of equal ones when `last`. y is QT_I64. */
void nd_arg(bool smallest, bool last, int axis, const Nd *x, Nd *y, NdPart p);
typedef enum NdSoftmax { ND_SOFTMAX, ND_LOG_SOFTMAX, ND_HARDMAX } NdSoftmax;
void nd_softmax(NdSoftmax f, int axis, const Nd *x, Nd *y, NdPart p);
void nd_cumsum(int axis, bool exclusive, bool reverse, const Nd *x, Nd *y, NdPart p);
/* The k (y's size along the axis) largest or smallest in order, equal ones by lower index first: values, or indices. */
void nd_top(int axis, bool largest, bool indices, const Nd *x, Nd *y, NdPart p);
/* (x - mean) / sqrt(variance + eps) over the last `axes` axes together; then * scale + bias (NULL: none), which have
 * the shape of those axes. */
void nd_layer_norm(int axes, double eps, const Nd *x, const Nd *scale, const Nd *bias, Nd *y, NdPart p);

/* ---- quantised numbers (nd_quant.c) ---- */
/* scale, zero_point (NULL: 0): one element, or one for each index of the axis. */
void nd_quantise(int axis, const Nd *x, const Nd *scale, const Nd *zero_point, Nd *y, NdPart p);
void nd_dequantise(int axis, const Nd *x, const Nd *scale, const Nd *zero_point, Nd *y, NdPart p);

/* ---- products (nd_matmul.c) ---- */
/* Batches of matrices as numpy's matmul has them; zero points (NULL: 0; one element, or one per row of a, column of b)
 * are subtracted first. fp32 sums in order of k by fp64; whole numbers exact. */
void nd_matmul(const Nd *a, const Nd *b, const Nd *a_zero, const Nd *b_zero, Nd *y, NdPart p);

/* ---- windows over images, channels last: [n][d][h][w][c] with d, h, w as far as there are (nd_window.c) ---- */
enum { ND_SPACE = 3 };
typedef struct NdWindow { /* by spatial axis, in the order of x's */
    int64_t size[ND_SPACE], stride[ND_SPACE], dilation[ND_SPACE], before[ND_SPACE], after[ND_SPACE]; /* padding */
} NdWindow;
/* w [o][window][c / groups], bias [o] or NULL. Zero points as in nd_matmul: of x one, of w one or one per output. */
void nd_conv(const NdWindow *win, int64_t groups, const Nd *x, const Nd *w, const Nd *bias, const Nd *x_zero,
             const Nd *w_zero, Nd *y, NdPart p);
/* Transposed: w [c][window][o / groups]; `before` is what is cut off in front. */
void nd_conv_transpose(const NdWindow *win, int64_t groups, const Nd *x, const Nd *w, const Nd *bias, Nd *y, NdPart p);
typedef enum NdPool { ND_POOL_MAX, ND_POOL_AVERAGE, ND_POOL_AVERAGE_PAD, ND_POOL_L2, ND_POOL_ARGMAX } NdPool;
/* AVERAGE leaves padding out of the count, AVERAGE_PAD counts it (but not what is beyond it). `exponent` is L2's p.
 * ARGMAX gives the index in x (QT_I64), counted with channels first, rows or columns fastest. */
void nd_pool(NdPool f, const NdWindow *win, double exponent, bool columns_first, const Nd *x, Nd *y, NdPart p);

typedef enum NdInterpolate { ND_NEAREST, ND_LINEAR, ND_CUBIC } NdInterpolate;
typedef enum NdCoordinate {
    ND_HALF_PIXEL,
    ND_HALF_PIXEL_SYMMETRIC,
    ND_PYTORCH_HALF_PIXEL,
    ND_ALIGN_CORNERS,
    ND_ASYMMETRIC,
    ND_CROP,
} NdCoordinate;
typedef enum NdNearest { ND_ROUND_FLOOR, ND_ROUND_CEIL, ND_FLOOR_DOWN, ND_CEIL_UP } NdNearest;
typedef struct NdResize {
    NdInterpolate interpolate;
    NdCoordinate coordinate;
    NdNearest nearest;
    double scale[ND_DIMS];                         /* of each axis */
    double crop_begin[ND_DIMS], crop_end[ND_DIMS]; /* ND_CROP: in parts of the axis */
    double cubic_a, extrapolation;
    bool antialias, exclude_outside;
} NdResize;
/* Axis by axis with the weights of the interpolation; y's sizes are given. */
void nd_resize(const NdResize *r, const Nd *x, Nd *y, NdPart p);
