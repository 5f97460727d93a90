/* What the onnx_*.c files share. */
#pragma once

#include <onnx.pb-c.h>

#include "graph/name_map.h"
#include "graph/onnx.h"

struct OnnxModel {
    char *path, *folder;
    uint64_t file_bytes, sample;
    Onnx__ModelProto *proto;
    int64_t opset;
    OnnxPort *input, *output; /* owned; strings belong to proto */
    int n_inputs, n_outputs;
};

typedef Onnx__NodeProto OnnxNode;
typedef Onnx__AttributeProto OnnxAttribute;
typedef Onnx__TensorProto OnnxTensor;

/* The library's name for a type of the file, or -1. */
int onnx_type(int32_t data_type);
/* A tensor's elements: in the file's own memory, or (converted, or from another file) in the graph's. */
int onnx_tensor_nd(const OnnxModel *m, const OnnxTensor *t, Graph *g, Nd *out, Err *e);

/* ---- while a graph is built (onnx_import.c) ---- */

/* A name of the file and the value that has it. */
typedef struct OnnxName {
    Text name;
    ValueId value; /* -1: not made yet */
} OnnxName;

typedef struct OnnxImport {
    const OnnxModel *m;
    Graph *g;
    OnnxName *names; /* [n_names] inputs, initialisers, results of nodes */
    size_t n_names;
    NameMap by_name;
    const Nd *bound;
    bool *by_value;
    ValueId *input;       /* [n_inputs] */
    const OnnxNode *node; /* the one being imported, number node_index */
    size_t node_index;
    char label[48]; /* its name, for operators */
    int arg;        /* of the operator's row in the table */
    bool failed;
    Err *e;
} OnnxImport;

typedef void OnnxOperator(OnnxImport *im);
typedef struct OnnxRow {
    const char *name;
    OnnxOperator *import;
    int arg; /* im->arg */
} OnnxRow;
/* Tables by topic, each ended by a row without a name. */
extern const OnnxRow onnx_element_rows[], onnx_shape_rows[], onnx_window_rows[], onnx_along_rows[];

/* Fails the import with a line that names node and operator; only the first counts. Returns -1. */
__attribute__((format(printf, 2, 3))) int onnx_fail(OnnxImport *im, const char *fmt, ...);
static inline bool onnx_stopped(const OnnxImport *im) { return im->failed || im->g->failed; }

/* Input i of the node; -1 when it is not given (which is a failure for onnx_in). A constant is a new value each time.
 */
ValueId onnx_in(OnnxImport *im, int i);
ValueId onnx_maybe_in(OnnxImport *im, int i);
bool onnx_has_in(const OnnxImport *im, int i);
/* The result: output i of the node. */
void onnx_out(OnnxImport *im, int i, ValueId v);
bool onnx_wants_out(const OnnxImport *im, int i);

/* Attributes, with what holds when they are missing. A wrong kind is a failure. */
const OnnxAttribute *onnx_attribute(const OnnxImport *im, const char *name);
int64_t onnx_int(OnnxImport *im, const char *name, int64_t standard);
double onnx_float(OnnxImport *im, const char *name, double standard);
const char *onnx_string(OnnxImport *im, const char *name, const char *standard);
/* At most `room` numbers; returns how many there are, or -1: none are given. */
int onnx_ints(OnnxImport *im, const char *name, int room, int64_t *out);
int onnx_floats(OnnxImport *im, const char *name, int room, double *out);

/* Constants: a value whose elements are known now, or an input whose contents were given. False is a failure of the
 * import that says `what` must be constant. */
bool onnx_constant(OnnxImport *im, int i, const char *what, Nd *out);
int onnx_constant_ints(OnnxImport *im, int i, const char *what, int room, int64_t *out); /* their number, or -1 */
ValueId onnx_const(OnnxImport *im, QType t, int n_dims, const int64_t *dims, const void *data); /* copies data */
ValueId onnx_const_f64(OnnxImport *im, QType t, double x);                                      /* one number */
ValueId onnx_const_ints(OnnxImport *im, int n, const int64_t *x);                               /* QT_I64 [n] */

/* An axis counted from the end when negative, in [0, n). */
int onnx_axis(OnnxImport *im, int64_t axis, int n);
int onnx_dims(const OnnxImport *im, ValueId v, int64_t *dims); /* returns n_dims */
static inline QType onnx_type_of(const OnnxImport *im, ValueId v) { return v < 0 ? QT_F32 : im->g->value[v].type; }
/* [N][C][H][W] to [N][H][W][C] and back; any number of axes in between. */
ValueId onnx_channels_last(OnnxImport *im, ValueId v);
ValueId onnx_channels_first(OnnxImport *im, ValueId v);
