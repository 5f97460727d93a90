/* The graph: an ordered list of operators over values. Builders make it, passes rewrite it, the partitioner inserts
 * collectives, the executor runs it. It knows nothing of ranks or kernels.
 *
 * Activations have their features (channels) on the last axis: [T][features] in a language model, [N][H][W][C] in a
 * convolutional net. A weight of a linear is [out][in], or [experts][out][in] where each row meets the matrix of its
 * expert; of a convolution [out][kh][kw][in / groups].
 *
 * Building never fails in the middle: graph_* return a value id, or -1 after the first error, which the graph keeps
 * (graph_check). So a builder is straight-line code with one check at the end.
 */
#pragma once

#include "base/err.h"
#include "base/strbuf.h"
#include "kernels/nd.h"
#include "quant/qtype.h"

enum { GRAPH_DIMS = ND_DIMS, GRAPH_OUTPUTS = 32, OP_IN = 8, OP_OUT = 2, LINEAR_MAX = 3, OP_BYTES = 160 };

typedef int32_t ValueId; /* -1: none */

/* Size of a dimension: a constant, or a symbol whose size a step brings. */
typedef enum DimSym {
    DIM_CONST,
    DIM_TOKENS,  /* T: tokens of the step */
    DIM_OUTPUTS, /* R: results of the step: tokens, or sequences, whose result is wanted */
    DIM_PAIRS,   /* P: pairs of a token and one of its experts, for the experts that a rank has; at most T * size */
} DimSym;
typedef struct Dim {
    DimSym sym;
    int64_t size; /* of a constant; of pairs: experts of a token */
} Dim;

typedef enum ValueKind {
    VALUE_TEMP,
    VALUE_INPUT,  /* given by each step, by name */
    VALUE_WEIGHT, /* constant: from a file, or from memory */
    VALUE_STATE,  /* kept from step to step: KV cache */
} ValueKind;

typedef struct Value {
    char name[64];
    ValueKind kind;
    QType type;
    int n_dims;
    Dim dim[GRAPH_DIMS];
    int32_t producer;   /* index of the operator that makes it, -1: none */
    int32_t tensor;     /* weight in a model file: index of its tensor there; else -1 */
    uint64_t offset;    /* bytes from the tensor's start: of a part of it */
    const void *memory; /* weight given in memory (not owned), else NULL */
    int64_t window;     /* state: positions back that are read, the newest included; 0: all */
} Value;

typedef enum OpKind {
    OP_EMBED,      /* (ids [T], W [V][D]) -> [T][D] */
    OP_LINEAR,     /* (x [..][K], W_i [N_i][K] ..., then biases [N_i] ..., then residual) -> [..][N_0 + N_1 + ..] */
    OP_RMSNORM,    /* (x [..][D], w [D]) -> the same shape; its type may be QT_A8 or QT_A16 */
    OP_LAYERNORM,  /* (x [..][D], w [D], b [D]) -> likewise, arXiv:1607.06450 */
    OP_HEADNORM,   /* (x [..][heads * head_dim], w [head_dim]): RMS norm of each head by itself */
    OP_QUANTISE,   /* (x) -> the same values as QT_A8 or QT_A16 */
    OP_ROPE_TABLE, /* (positions [T], then none, one or two of factors [rope_dim / 2]) -> [T][rope_dim]: cosine, sine
                      pairs */
    OP_ROPE,       /* (x [T][heads * head_dim], table) -> the same, in place */
    OP_KV_STORE,   /* (k, v [T][kv_heads * head_dim], state): writes into the state */
    OP_ATTENTION,  /* (q [T][heads * head_dim], state) -> [T][heads * head_dim] */
    OP_SILU_MUL,   /* (gate, up) -> silu(gate) * up; its type may be QT_A8 or QT_A16 */
    OP_GELU_MUL,   /* (gate, up) -> gelu(gate) * up, gelu by tanh; likewise */
    OP_GELU,       /* (x) -> gelu(x) by erf; its type may be QT_A8 or QT_A16 */
    OP_SCALE,      /* (x) -> factor * x */
    OP_SOFTCAP,    /* (x) -> factor * tanh(x / factor) */
    OP_ADD,        /* (a, b) of one shape */
    OP_VIEW,       /* (x): columns [begin, end) of the last axis, no copy */
    OP_SELECT,     /* (x [T][D], rows [R]) -> [R][D] */
    OP_MEAN_ROWS,  /* (x [T][D], begin [R], end [R]) -> [R][D]: the mean of rows [begin, end) of each result */
    OP_ROUTE,     /* (logits [T][experts]) -> [T][2 used]: the token's experts, ascending (int32), then their weights */
    OP_GROUP,     /* (routing) -> groups: rows for the pairs, those of an expert together and in the tokens' order */
    OP_DISPATCH,  /* (x [T][D], groups) -> [P][D], each token's row once for each pair; may be QT_A8 or QT_A16 */
    OP_COMBINE,   /* (y [P][D], routing, groups) -> [T][D]: the sum of weight * y over a token's pairs, in order */
    OP_GATE_ROWS, /* (x [T][D], g [T][1]) -> sigmoid(g) * x */
    OP_STATS,     /* (logits [R][V], targets [R]) -> per row: maximum, sum of exp, target logit, best candidates */
    OP_CONV,      /* (x [N][H][W][C], W, bias [O] or none, residual or none) -> [N][H'][W'][O]: act(conv + bias +
                     residual); one or three axes in place of H, W when x is no fp32 image or W no weight */
    OP_POOL,      /* (x [N][H][W][C]) -> [N][H'][W'][C], or [N][C] when global */
    /* plain functions of dense arrays: eval.h */
    OP_UNARY,     /* (x) */
    OP_BINARY,    /* (a, b), broadcast */
    OP_WHERE,     /* (condition, a, b), broadcast */
    OP_CAST,      /* (x): to the type of the result */
    OP_RESHAPE,   /* (x): other axes, the same elements, no copy */
    OP_TRANSPOSE, /* (x): axis i of the result is axis perm[i] */
    OP_EXPAND,    /* (x): broadcast to the result's shape */
    OP_CUT,       /* (x): element begin + i * step of each axis */
    OP_CONCAT,    /* (x, ..): along an axis */
    OP_PAD,       /* (x) */
    OP_REDUCE,    /* (x) */
    OP_SOFTMAX,   /* (x) */
    OP_MATMUL,    /* (a, b, their zero points or none): numpy's matmul */
    OP_GATHER,    /* (x, indices) */
    /* put in by the partitioner */
    OP_ALLREDUCE, /* (x partial) -> x replicated */
    OP_ALLGATHER, /* (x split) -> x replicated */
    OP_SLICE,     /* (x replicated) -> this rank's part */
    OP_COUNT
} OpKind;

typedef enum PoolKind { POOL_MAX, POOL_AVERAGE, POOL_GLOBAL_AVERAGE } PoolKind;

/* A function element by element behind an operator; ND_IDENTITY: none. */
typedef struct Act {
    NdUnary fn;
    double a, b;
} Act;

/* Rotary positions: pair i of position p turns by p * base^(-2 i / dim) * scale / factors[i], arXiv:2104.09864; cosine
 * and sine are multiplied by attention. */
typedef struct RopeShape {
    int dim;   /* rotated dimensions of a head, even */
    bool neox; /* pairs (i, i + dim/2) in place of (2i, 2i + 1) */
    double base;
    double scale; /* 1: none; linear scaling by 1 / factor */
    double attention;
    /* YaRN (arXiv:2309.00071) when original > 0: fast pairs keep their speed, slow ones are scaled, between beta_fast
     * and beta_slow turns over the `original` context. */
    int64_t original;
    double beta_fast, beta_slow;
    /* LongRoPE (arXiv:2402.13753) when above 0: the first factors serve contexts up to this length, the second longer
     * ones. The context is that which a sequence may have, not what it has: keys in the cache are turned already. */
    int64_t short_context;
} RopeShape;

/* What an attention is, but for its inputs. */
typedef struct AttnShape {
    int heads, kv_heads, head_dim;
    float scale, softcap; /* of the scores; softcap 0: none */
    int64_t window;       /* positions a query sees, itself included; 0: all before it; or WINDOW_WHOLE */
} AttnShape;
enum { WINDOW_WHOLE = -1 }; /* a query sees its whole sequence, what comes after it too */

/* A mixture of experts: which of them a token gets. The `used` largest logits, of equal ones the first; their weights
 * are exp(logit) over the sum of these, or over the sum of all when not `normalised`. */
typedef struct MixShape {
    int experts, used;
    bool normalised;
} MixShape;

typedef struct Op {
    OpKind kind;
    char name[48]; /* for messages and traces: "blk.3.ffn_down" */
    int n_in, n_out;
    ValueId in[OP_IN], out[OP_OUT];
    union {                    /* by kind */
        uint8_t all[OP_BYTES]; /* the first, so that initialisers clear the whole */
        struct {
            NdWindow window;
            int64_t groups;
            bool bias, residual;
            Act act;
        } conv;
        struct {
            int n_weights;
            bool bias, residual;
        } linear;
        struct {
            float eps;
        } norm;
        AttnShape attn; /* attention, KV store */
        MixShape mix;   /* route, group, dispatch, combine */
        struct {
            int heads, head_dim; /* rope, headnorm: of x */
            float eps;           /* headnorm */
            RopeShape shape;     /* rope, rope table */
        } rope;
        struct {
            float factor;
        } scale; /* scale, softcap */
        struct {
            int64_t begin, end;
        } view;
        struct {
            NdWindow window;
            NdPool kind;
            bool global, columns_first;
            double exponent;
        } pool;
        Act unary;
        struct {
            NdBinary fn;
        } binary;
        struct {
            int perm[GRAPH_DIMS];
        } transpose;
        struct {
            int64_t begin[GRAPH_DIMS], step[GRAPH_DIMS];
        } cut;
        struct {
            NdPad mode;
            int64_t before[GRAPH_DIMS];
            double value;
        } pad;
        struct {
            NdReduce fn;
            uint32_t axes;
        } reduce;
        struct {
            int axis;            /* concat, gather, softmax */
            NdSoftmax soft;      /* softmax */
            bool a_zero, b_zero; /* matmul: which zero points are there */
        } along;
        struct {
            bool exact; /* allreduce: fp32 on every wire */
        } sum;
    } u;
} Op;
_Static_assert(sizeof((Op *)0)->u == OP_BYTES, "OP_BYTES is the size of the largest");

typedef struct Graph {
    Value *value;
    int32_t n_values, cap_values;
    Op *op;
    int32_t n_ops, cap_ops;
    ValueId output[GRAPH_OUTPUTS]; /* what a step is for; a language model has one */
    int n_outputs;
    struct GraphMemory *memory; /* of weights made here */
    bool failed;
    Err err; /* the first error while building */
} Graph;

void graph_init(Graph *g);
void graph_free(Graph *g);
/* -1 with the first error of the building, if there was one. Then checks the whole: every input made before it is used,
 * shapes that fit each other. Local. */
int graph_check(const Graph *g, Err *e);

/* Names and descriptions for messages. */
const char *op_kind_name(OpKind k);
/* One line per operator: "%12 [T,960] f32 = linear blk.0.attn_q ...", into a malloc'ed string the caller frees. */
char *graph_text(const Graph *g);
/* What an operator of a net is beside its kind, as text that differs when it does; "" when there is nothing to say. */
void op_attributes(const Op *op, StrBuf *out);

/* ---- building ------------------------------------------------------------------------------------------------------
 */
Dim dim_const(int64_t n);
Dim dim_tokens(void);
Dim dim_outputs(void);
/* Elements of the trailing axis; of the one before it (rows of a weight, of each expert's). */
int64_t value_columns(const Graph *g, ValueId v);
int64_t value_rows(const Graph *g, ValueId v);

ValueId graph_input(Graph *g, const char *name, QType t, int n_dims, const Dim *dims);
/* KV cache of one layer; its window becomes that of the attention that reads it. */
ValueId graph_state(Graph *g, const char *name, int kv_heads, int head_dim);
/* A weight that is a tensor of the model file (its index), or in memory (tensor -1). dims are constants. */
ValueId graph_weight(Graph *g, const char *name, QType t, int n_dims, const int64_t *dims, int32_t tensor,
                     const void *memory);

ValueId graph_embed(Graph *g, const char *name, ValueId ids, ValueId w);
ValueId graph_linear(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias);
ValueId graph_rmsnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps);
ValueId graph_layernorm(Graph *g, const char *name, ValueId x, ValueId w, ValueId b, float eps);
ValueId graph_headnorm(Graph *g, const char *name, ValueId x, ValueId w, float eps);
/* `factors` (a weight [rope_dim / 2]) or -1. */
ValueId graph_rope_table(Graph *g, const char *name, ValueId positions, ValueId factors, RopeShape shape);
/* With factors for contexts up to shape.short_context, and for longer ones. */
ValueId graph_longrope_table(Graph *g, const char *name, ValueId positions, ValueId short_factors, ValueId long_factors,
                             RopeShape shape);
ValueId graph_rope(Graph *g, const char *name, ValueId x, ValueId table, int heads, int head_dim, RopeShape shape);
/* Stores k and v, then attends: q [T][heads * head_dim] over the state -> [T][heads * head_dim]. */
ValueId graph_attention(Graph *g, const char *name, ValueId q, ValueId k, ValueId v, ValueId state, AttnShape shape);
ValueId graph_silu_mul(Graph *g, const char *name, ValueId gate, ValueId up);
ValueId graph_gelu_mul(Graph *g, const char *name, ValueId gate, ValueId up);
ValueId graph_gelu(Graph *g, const char *name, ValueId x);
ValueId graph_scale(Graph *g, const char *name, ValueId x, float factor);
ValueId graph_softcap(Graph *g, const char *name, ValueId x, float cap);
ValueId graph_add(Graph *g, const char *name, ValueId a, ValueId b);
/* Columns [begin, end) of x; views of one value stand in ascending order. */
ValueId graph_view(Graph *g, const char *name, ValueId x, int64_t begin, int64_t end);
ValueId graph_select(Graph *g, const char *name, ValueId x, ValueId rows);
ValueId graph_mean_rows(Graph *g, const char *name, ValueId x, ValueId begin, ValueId end);
ValueId graph_route(Graph *g, const char *name, ValueId logits, MixShape mix);
ValueId graph_group(Graph *g, const char *name, ValueId routing, MixShape mix);
ValueId graph_dispatch(Graph *g, const char *name, ValueId x, ValueId groups, MixShape mix);
ValueId graph_combine(Graph *g, const char *name, ValueId y, ValueId routing, ValueId groups, MixShape mix);
ValueId graph_gate_rows(Graph *g, const char *name, ValueId x, ValueId gate);
ValueId graph_stats(Graph *g, const char *name, ValueId logits, ValueId targets);

/* ---- building nets (graph_net.c): shapes are constants; broadcasting as numpy does ---------------------------------
 */
static inline NdWindow window_square(int64_t size, int64_t stride, int64_t pad) {
    return (NdWindow){{size, size}, {stride, stride}, {1, 1}, {pad, pad}, {pad, pad}};
}
/* `win` without its size, which is that of w. */
ValueId graph_conv_window(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias, NdWindow win, int64_t groups);
ValueId graph_conv(Graph *g, const char *name, ValueId x, ValueId w, ValueId bias, int stride, int pad, int groups);
/* `ceil_mode`: positions whose window ends beyond the padding count too. */
ValueId graph_pool_window(Graph *g, const char *name, ValueId x, NdPool kind, NdWindow win, bool ceil_mode);
ValueId graph_pool(Graph *g, const char *name, ValueId x, PoolKind kind, int size, int stride, int pad);
ValueId graph_unary(Graph *g, const char *name, ValueId x, Act act);
ValueId graph_relu(Graph *g, const char *name, ValueId x);
ValueId graph_binary(Graph *g, const char *name, ValueId a, ValueId b, NdBinary fn);
ValueId graph_where(Graph *g, const char *name, ValueId condition, ValueId a, ValueId b);
ValueId graph_cast(Graph *g, const char *name, ValueId x, QType t);
ValueId graph_reshape(Graph *g, const char *name, ValueId x, int n_dims, const int64_t *dims);
ValueId graph_transpose(Graph *g, const char *name, ValueId x, const int *perm);
ValueId graph_expand(Graph *g, const char *name, ValueId x, int n_dims, const int64_t *dims);
/* `size` elements of each axis. */
ValueId graph_cut(Graph *g, const char *name, ValueId x, const int64_t *begin, const int64_t *step,
                  const int64_t *size);
ValueId graph_concat(Graph *g, const char *name, int n, const ValueId *x, int axis);
ValueId graph_pad(Graph *g, const char *name, ValueId x, NdPad mode, const int64_t *before, const int64_t *after,
                  double value);
/* Over the axes of the mask; `keep`: they stay, with size 1. */
ValueId graph_reduce(Graph *g, const char *name, ValueId x, NdReduce fn, uint32_t axes, bool keep);
ValueId graph_softmax(Graph *g, const char *name, ValueId x, NdSoftmax fn, int axis);
/* Zero points or -1; those of whole-number matrices, whose product is QT_I32. */
ValueId graph_matmul(Graph *g, const char *name, ValueId a, ValueId b, ValueId a_zero, ValueId b_zero);
ValueId graph_gather(Graph *g, const char *name, ValueId x, ValueId index, int axis);

/* Memory for a weight, zeroed, which lives as long as the graph; NULL (and the graph has failed) when there is none. */
void *graph_memory(Graph *g, size_t bytes);
int64_t value_count(const Graph *g, ValueId v); /* elements, of constant dimensions */
/* The value as an array (constant dimensions; data: a weight's memory). */
Nd value_nd(const Graph *g, ValueId v);

/* ---- for passes ----------------------------------------------------------------------------------------------------
 */
/* Adds an operator (copied; outputs' producers set) at the end. */
void graph_push(Graph *g, const Op *op);
/* The first error of the building, for builders outside this file; returns -1. */
ValueId graph_fail(Graph *g, const char *name, const char *what);
/* A new operator with the given inputs and one output of the given shape (and type): returns the output. */
ValueId graph_emit(Graph *g, Op op, const char *name, int n_in, const ValueId *in, Value shape);
/* Nothing failed before, and the values are there: a builder goes on after a weight that it did not find. */
bool graph_given(Graph *g, const char *name, int n_in, const ValueId *in);
/* A new temporary like `v`, with another name. */
ValueId graph_temp_like(Graph *g, ValueId v, const char *name);
/* How many operators read v (the graph's outputs count too). */
int graph_uses(const Graph *g, ValueId v);
bool graph_is_output(const Graph *g, ValueId v);
/* A plain function of dense arrays, which op_eval (eval.h) carries out. */
static inline bool op_is_plain(OpKind k) { return k >= OP_UNARY && k <= OP_GATHER; }
/* The input of an operator at which biases and the residual of a linear stand. */
static inline int linear_bias_at(const Op *op, int i) { return 1 + op->u.linear.n_weights + i; }
static inline int linear_residual_at(const Op *op) { return 1 + op->u.linear.n_weights * (op->u.linear.bias ? 2 : 1); }
