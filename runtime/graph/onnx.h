/* ONNX files (https://onnx.ai): reading them, and building the graph of a net from one, for inputs of given shapes. All
 * local. */
#pragma once

#include "graph/graph.h"

enum { ONNX_OLDEST = 7, ONNX_NEWEST = 21 }; /* operator sets */

typedef struct OnnxModel OnnxModel;

/* An input or output as the file declares it. */
typedef struct OnnxPort {
    const char *name;
    QType type;
    int n_dims;                  /* -1: the file does not say */
    int64_t dim[ND_DIMS];        /* -1: any size */
    const char *symbol[ND_DIMS]; /* the name of such a size; "" when it has none */
} OnnxPort;

/* Whether a file that begins with these bytes may be ONNX: a protobuf message of that kind. */
bool onnx_is_file(const uint8_t *bytes, size_t n);
/* Reads the whole file and checks its form; tensors in other files are read by onnx_build. The caller frees *out. */
int onnx_open(const char *path, OnnxModel **out, Err *e);
void onnx_close(OnnxModel *m); /* also of NULL */

const char *onnx_path(const OnnxModel *m);
uint64_t onnx_file_bytes(const OnnxModel *m);
uint64_t onnx_sample(const OnnxModel *m); /* a hash of pieces all over the file, to notice different ones */
int64_t onnx_opset(const OnnxModel *m);
const char *onnx_producer(const OnnxModel *m); /* "" when the file does not say */
int onnx_n_inputs(const OnnxModel *m);         /* those that must be given: without defaults */
int onnx_n_outputs(const OnnxModel *m);
const OnnxPort *onnx_input(const OnnxModel *m, int i);
const OnnxPort *onnx_output(const OnnxModel *m, int i);
int64_t onnx_n_nodes(const OnnxModel *m);
int64_t onnx_n_tensors(const OnnxModel *m); /* initialisers */
uint64_t onnx_tensor_bytes(const OnnxModel *m, int64_t *n_values);

/* The graph for inputs like `bound` [onnx_n_inputs]: their types and shapes must fit the declared ones. Where a shape
 * depends on the contents of an input, its data are read (so the graph holds for them only), and by_value[i] is set;
 * without data that is an error. Operators that this library does not know are one error that lists them all. The
 * graph's inputs and outputs have the order of the file's, and channels stand where the file has them. The graph points
 * into m. The caller frees *g with graph_free, also after an error. */
int onnx_build(const OnnxModel *m, const Nd *bound, bool *by_value, Graph *g, Err *e);
