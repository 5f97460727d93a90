/* ONNX operators that work element by element. */
#include <math.h>
#include <string.h>

#include "graph/onnx_internal.h"

/* ---- one operand ------------------------------------------------------------------------------------------------- */

static void import_unary(OnnxImport *im) {
    onnx_out(im, 0, graph_unary(im->g, im->label, onnx_in(im, 0), (Act){.fn = (NdUnary)im->arg}));
}

/* The functions with attributes: their names and what holds without them, in the order of Act's a and b. */
static const struct {
    NdUnary fn;
    const char *a, *b;
    double standard_a, standard_b;
} parameters[] = {
    {ND_LEAKY_RELU, "alpha", NULL, 0.01, 0},
    {ND_ELU, "alpha", NULL, 1, 1},
    {ND_CELU, "alpha", NULL, 1, 0},
    {ND_THRESHOLDED, "alpha", NULL, 1, 0},
    {ND_HARD_SIGMOID, "alpha", "beta", 0.2, 0.5},
    {ND_SHRINK, "bias", "lambd", 0, 0.5},
};

static void import_with_parameters(OnnxImport *im) {
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        if ((int)parameters[i].fn != im->arg) continue;
        Act act = {.fn = parameters[i].fn, .a = onnx_float(im, parameters[i].a, parameters[i].standard_a)};
        act.b = parameters[i].b ? onnx_float(im, parameters[i].b, parameters[i].standard_b) : parameters[i].standard_b;
        onnx_out(im, 0, graph_unary(im->g, im->label, onnx_in(im, 0), act));
    }
}

static void import_selu(OnnxImport *im) {
    Act act = {.fn = ND_ELU,
               .a = onnx_float(im, "alpha", 1.67326319217681884765625),
               .b = onnx_float(im, "gamma", 1.05070102214813232421875)};
    onnx_out(im, 0, graph_unary(im->g, im->label, onnx_in(im, 0), act));
}

static void import_gelu(OnnxImport *im) {
    bool by_tanh = !strcmp(onnx_string(im, "approximate", "none"), "tanh");
    onnx_out(im, 0, graph_unary(im->g, im->label, onnx_in(im, 0), (Act){.fn = by_tanh ? ND_GELU_TANH : ND_GELU}));
}

static void import_is_inf(OnnxImport *im) {
    Act act = {.fn = ND_IS_INF,
               .a = (double)onnx_int(im, "detect_negative", 1),
               .b = (double)onnx_int(im, "detect_positive", 1)};
    onnx_out(im, 0, graph_unary(im->g, im->label, onnx_in(im, 0), act));
}

/* A limit that is known now; false when input i depends on the data. */
static bool known_limit(OnnxImport *im, int i, double *out) {
    ValueId v = onnx_maybe_in(im, i);
    if (v < 0) return true;
    Nd nd = value_nd(im->g, v);
    if (im->g->value[v].kind != VALUE_WEIGHT || nd_count(&nd) != 1) return false;
    *out = nd_get_f64(&nd, 0);
    return true;
}

static void import_clip(OnnxImport *im) {
    ValueId x = onnx_in(im, 0);
    double low = -INFINITY, high = INFINITY;
    if (im->m->opset < 11) {
        low = onnx_float(im, "min", low);
        high = onnx_float(im, "max", high);
    }
    if (known_limit(im, 1, &low) && known_limit(im, 2, &high)) {
        Act act = {.fn = ND_CLIP, .a = fmin(low, high), .b = high};
        onnx_out(im, 0, graph_unary(im->g, im->label, x, act));
        return;
    }
    if (onnx_has_in(im, 1)) x = graph_binary(im->g, im->label, x, onnx_in(im, 1), ND_MAX);
    if (onnx_has_in(im, 2)) x = graph_binary(im->g, im->label, x, onnx_in(im, 2), ND_MIN);
    onnx_out(im, 0, x);
}

static void import_identity(OnnxImport *im) { onnx_out(im, 0, onnx_in(im, 0)); }

/* Without training nothing is dropped. */
static void import_dropout(OnnxImport *im) {
    ValueId x = onnx_in(im, 0);
    if (onnx_has_in(im, 2)) {
        Nd training;
        if (onnx_constant(im, 2, "training_mode", &training) && nd_count(&training) == 1 && nd_get_i64(&training, 0))
            onnx_fail(im, "training is not supported");
    }
    onnx_out(im, 0, x);
    if (x < 0 || !onnx_wants_out(im, 1)) return;
    int64_t dims[GRAPH_DIMS];
    int n = onnx_dims(im, x, dims);
    ValueId yes = onnx_const(im, QT_BOOL, 0, NULL, &(uint8_t){1});
    onnx_out(im, 1, graph_expand(im->g, im->label, yes, n, dims));
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static ValueId cast(OnnxImport *im, ValueId x, QType t) {
    return x >= 0 && im->g->value[x].type == t ? x : graph_cast(im->g, im->label, x, t);
}

static void import_cast(OnnxImport *im) {
    int64_t to = onnx_int(im, "to", 0);
    int t = to < 0 || to > 100 ? -1 : onnx_type((int32_t)to);
    if (t < 0) onnx_fail(im, "a cast to type %lld is not supported", (long long)to);
    else onnx_out(im, 0, cast(im, onnx_in(im, 0), (QType)t));
}

static void import_cast_like(OnnxImport *im) {
    ValueId like = onnx_in(im, 1);
    onnx_out(im, 0, cast(im, onnx_in(im, 0), onnx_type_of(im, like)));
}

/* ---- two and more operands --------------------------------------------------------------------------------------- */

static bool same_shape(const OnnxImport *im, ValueId a, ValueId b) {
    int64_t da[GRAPH_DIMS], db[GRAPH_DIMS];
    int n = onnx_dims(im, a, da);
    return n == onnx_dims(im, b, db) && !memcmp(da, db, (size_t)n * sizeof *da);
}

/* A sum of two fp32 values of one shape is an operator that others take in. */
static ValueId binary(OnnxImport *im, ValueId a, ValueId b, NdBinary fn) {
    if (a < 0 || b < 0) return -1;
    bool weights = im->g->value[a].kind == VALUE_WEIGHT || im->g->value[b].kind == VALUE_WEIGHT;
    bool plain_sum = fn == ND_ADD && !weights && onnx_type_of(im, a) == QT_F32 && onnx_type_of(im, b) == QT_F32 &&
                     same_shape(im, a, b);
    return plain_sum ? graph_add(im->g, im->label, a, b) : graph_binary(im->g, im->label, a, b, fn);
}

static void import_binary(OnnxImport *im) {
    ValueId a = onnx_in(im, 0);
    onnx_out(im, 0, binary(im, a, onnx_in(im, 1), (NdBinary)im->arg));
}

static void import_mod(OnnxImport *im) {
    ValueId a = onnx_in(im, 0);
    onnx_out(im, 0, binary(im, a, onnx_in(im, 1), onnx_int(im, "fmod", 0) ? ND_FMOD : ND_MOD));
}

/* The exponent may have another type than the base, whose type is the result's. */
static void import_pow(OnnxImport *im) {
    ValueId a = onnx_in(im, 0), b = onnx_in(im, 1);
    if (onnx_stopped(im)) return;
    QType type = onnx_type_of(im, a);
    bool wider = nd_is_float(onnx_type_of(im, b)) && !nd_is_float(type);
    if (wider) a = cast(im, a, QT_F64);
    ValueId y = binary(im, a, cast(im, b, onnx_type_of(im, a)), ND_POW);
    onnx_out(im, 0, cast(im, y, type));
}

static void import_shift(OnnxImport *im) {
    ValueId a = onnx_in(im, 0);
    bool left = !strcmp(onnx_string(im, "direction", "LEFT"), "LEFT");
    onnx_out(im, 0, binary(im, a, onnx_in(im, 1), left ? ND_SHIFT_LEFT : ND_SHIFT_RIGHT));
}

/* One or more operands, joined from the left. */
static ValueId join_all(OnnxImport *im, NdBinary fn) {
    ValueId x = onnx_in(im, 0);
    for (size_t i = 1; i < im->node->n_input && !onnx_stopped(im); i++) x = binary(im, x, onnx_in(im, (int)i), fn);
    return x;
}

static void import_variadic(OnnxImport *im) { onnx_out(im, 0, join_all(im, (NdBinary)im->arg)); }

static void import_mean(OnnxImport *im) {
    ValueId sum = join_all(im, ND_ADD);
    if (onnx_stopped(im)) return;
    ValueId n = onnx_const_f64(im, onnx_type_of(im, sum), (double)im->node->n_input);
    onnx_out(im, 0, graph_binary(im->g, im->label, sum, n, ND_DIV));
}

static void import_where(OnnxImport *im) {
    ValueId c = onnx_in(im, 0), a = onnx_in(im, 1);
    onnx_out(im, 0, graph_where(im->g, im->label, c, a, onnx_in(im, 2)));
}

const OnnxRow onnx_element_rows[] = {
    {"Abs", import_unary, ND_ABS},
    {"Acos", import_unary, ND_ACOS},
    {"Acosh", import_unary, ND_ACOSH},
    {"Add", import_binary, ND_ADD},
    {"And", import_binary, ND_AND},
    {"Asin", import_unary, ND_ASIN},
    {"Asinh", import_unary, ND_ASINH},
    {"Atan", import_unary, ND_ATAN},
    {"Atanh", import_unary, ND_ATANH},
    {"BitShift", import_shift, 0},
    {"BitwiseAnd", import_binary, ND_BIT_AND},
    {"BitwiseNot", import_unary, ND_BITWISE_NOT},
    {"BitwiseOr", import_binary, ND_BIT_OR},
    {"BitwiseXor", import_binary, ND_BIT_XOR},
    {"Cast", import_cast, 0},
    {"CastLike", import_cast_like, 0},
    {"Ceil", import_unary, ND_CEIL},
    {"Celu", import_with_parameters, ND_CELU},
    {"Clip", import_clip, 0},
    {"Cos", import_unary, ND_COS},
    {"Cosh", import_unary, ND_COSH},
    {"Div", import_binary, ND_DIV},
    {"Dropout", import_dropout, 0},
    {"Elu", import_with_parameters, ND_ELU},
    {"Equal", import_binary, ND_EQUAL},
    {"Erf", import_unary, ND_ERF},
    {"Exp", import_unary, ND_EXP},
    {"Floor", import_unary, ND_FLOOR},
    {"Gelu", import_gelu, 0},
    {"Greater", import_binary, ND_GREATER},
    {"GreaterOrEqual", import_binary, ND_GREATER_EQUAL},
    {"HardSigmoid", import_with_parameters, ND_HARD_SIGMOID},
    {"HardSwish", import_unary, ND_HARD_SWISH},
    {"Identity", import_identity, 0},
    {"IsInf", import_is_inf, 0},
    {"IsNaN", import_unary, ND_IS_NAN},
    {"LeakyRelu", import_with_parameters, ND_LEAKY_RELU},
    {"Less", import_binary, ND_LESS},
    {"LessOrEqual", import_binary, ND_LESS_EQUAL},
    {"Log", import_unary, ND_LOG},
    {"Max", import_variadic, ND_MAX},
    {"Mean", import_mean, 0},
    {"Min", import_variadic, ND_MIN},
    {"Mish", import_unary, ND_MISH},
    {"Mod", import_mod, 0},
    {"Mul", import_binary, ND_MUL},
    {"Neg", import_unary, ND_NEG},
    {"Not", import_unary, ND_NOT},
    {"Or", import_binary, ND_OR},
    {"PRelu", import_binary, ND_PRELU},
    {"Pow", import_pow, 0},
    {"Reciprocal", import_unary, ND_RECIPROCAL},
    {"Relu", import_unary, ND_RELU},
    {"Round", import_unary, ND_ROUND},
    {"Selu", import_selu, 0},
    {"Shrink", import_with_parameters, ND_SHRINK},
    {"Sigmoid", import_unary, ND_SIGMOID},
    {"Sign", import_unary, ND_SIGN},
    {"Sin", import_unary, ND_SIN},
    {"Sinh", import_unary, ND_SINH},
    {"Softplus", import_unary, ND_SOFTPLUS},
    {"Softsign", import_unary, ND_SOFTSIGN},
    {"Sqrt", import_unary, ND_SQRT},
    {"Sub", import_binary, ND_SUB},
    {"Sum", import_variadic, ND_ADD},
    {"Tan", import_unary, ND_TAN},
    {"Tanh", import_unary, ND_TANH},
    {"ThresholdedRelu", import_with_parameters, ND_THRESHOLDED},
    {"Where", import_where, 0},
    {"Xor", import_binary, ND_XOR},
    {NULL, NULL, 0},
};
