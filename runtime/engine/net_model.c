/* A net's file: what goes in and comes out, and what there is to say about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

static const QType types[SHEAF_TYPES] = {
    [SHEAF_F32] = QT_F32, [SHEAF_F64] = QT_F64, [SHEAF_F16] = QT_F16,   [SHEAF_BF16] = QT_BF16, [SHEAF_I8] = QT_I8,
    [SHEAF_U8] = QT_U8,   [SHEAF_I16] = QT_I16, [SHEAF_U16] = QT_U16,   [SHEAF_I32] = QT_I32,   [SHEAF_U32] = QT_U32,
    [SHEAF_I64] = QT_I64, [SHEAF_U64] = QT_U64, [SHEAF_BOOL] = QT_BOOL,
};

QType net_qtype(SheafType t) { return types[t]; }

SheafType net_type(QType t) {
    for (int i = 0; i < SHEAF_TYPES; i++)
        if (types[i] == t) return (SheafType)i;
    return SHEAF_TYPES;
}

const char *sheaf_type_name(SheafType t) {
    static const char *const names[SHEAF_TYPES] = {"f32", "f64", "f16", "bf16", "i8",  "u8",  "i16",
                                                   "u16", "i32", "u32", "i64",  "u64", "bool"};
    return t >= 0 && t < SHEAF_TYPES ? names[t] : "?";
}

size_t sheaf_type_bytes(SheafType t) { return t >= 0 && t < SHEAF_TYPES ? nd_size(types[t]) : 0; }

static SheafPort port_of(const OnnxPort *p) {
    SheafPort s = {.name = p->name, .type = net_type(p->type), .n_dims = p->n_dims};
    for (int i = 0; i < p->n_dims; i++) {
        s.dim[i] = p->dim[i];
        s.symbol[i] = p->symbol[i];
    }
    return s;
}

int net_model_open(SheafModel *m, const char *path, Err *e) {
    if (onnx_open(path, &m->onnx, e)) return -1;
    int n_in = onnx_n_inputs(m->onnx), n_out = onnx_n_outputs(m->onnx);
    m->input = calloc((size_t)n_in + 1, sizeof *m->input);
    m->result = calloc((size_t)n_out + 1, sizeof *m->result);
    enum { FORMAT = 32 };
    const char *producer = onnx_producer(m->onnx);
    m->strings = malloc(FORMAT + strlen(producer) + 1);
    if (!m->input || !m->result || !m->strings) return err_set(e, "%s: out of memory", path);
    for (int i = 0; i < n_in; i++) m->input[i] = port_of(onnx_input(m->onnx, i));
    for (int i = 0; i < n_out; i++) m->result[i] = port_of(onnx_output(m->onnx, i));
    snprintf(m->strings, FORMAT, "ONNX, operator set %d", (int)onnx_opset(m->onnx));
    memcpy(m->strings + FORMAT, producer, strlen(producer) + 1);
    m->content = onnx_sample(m->onnx);
    int64_t values;
    uint64_t bytes = onnx_tensor_bytes(m->onnx, &values);
    m->info = (SheafModelInfo){.net = true,
                               .operators = onnx_n_nodes(m->onnx),
                               .format = m->strings,
                               .architecture = "",
                               .name = m->strings + FORMAT,
                               .license = "",
                               .size_label = "",
                               .tokenizer = "",
                               .pre_tokenizer = "",
                               .chat_template = "",
                               .file_bytes = onnx_file_bytes(m->onnx),
                               .weight_bytes = bytes,
                               .parameters = (uint64_t)values,
                               .tensors = onnx_n_tensors(m->onnx)};
    return 0;
}

void net_model_close(SheafModel *m) {
    onnx_close(m->onnx);
    free(m->input);
    free(m->result);
}

int sheaf_n_inputs(const SheafModel *m) { return m->onnx ? onnx_n_inputs(m->onnx) : 0; }
int sheaf_n_results(const SheafModel *m) { return m->onnx ? onnx_n_outputs(m->onnx) : 0; }
const SheafPort *sheaf_input(const SheafModel *m, int i) { return &m->input[i]; }
const SheafPort *sheaf_result(const SheafModel *m, int i) { return &m->result[i]; }
