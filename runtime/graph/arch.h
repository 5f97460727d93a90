/* Builders: from what a model file says to a graph. One short file per architecture (arch_*.c), straight-line, the
 * shape beside every value; the table of them is in arch.c. All local; nothing here reads tensor data. */
#pragma once

#include "graph/graph.h"
#include "graph/model_file.h"

/* How an encoder's rows become one vector, with the ids of GGUF's pooling_type. */
typedef enum Pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK, N_POOLINGS } Pooling;

/* What every language model has. Filled by the builder. */
typedef struct LmShape {
    int64_t layers, width, ffn, heads, kv_heads, head_dim, vocab, context; /* context: the length it was trained for */
    double rope_base;
    bool encoder; /* its output is a vector for each sequence, not logits */
    Pooling pooling;
    MixShape mix;                   /* of the layers that are mixtures; experts 0: there are none */
    int64_t expert_ffn, shared_ffn; /* width of one expert; of the one that every token gets, 0: there is none */
} LmShape;

/* Builds the graph for the file's general.architecture; an unknown one is an error that lists those there are. Inputs:
 * "ids" [T], "positions" [T], "rows" [R], "targets" [R]; of an encoder "ids", "positions" and where there are types of
 * tokens "types" [T], and "begin" and "end" [R]: the rows whose mean is the result [R][width]. The caller frees *g with
 * graph_free, also after an error. */
int arch_build(const ModelFile *f, Graph *g, LmShape *shape, Err *e);

/* ---- for the builders ----------------------------------------------------------------------------------------------
 */
typedef struct Builder {
    const ModelFile *f;
    Graph *g;
    const char *arch; /* prefix of the metadata keys */
    Err *e;
    bool failed;
} Builder;

/* Metadata "ARCH.key". In range [min, max], or the default when `def` >= 0 and the key is missing. Sticky failure. */
int64_t builder_int(Builder *b, const char *key, int64_t min, int64_t max, int64_t def);
double builder_float(Builder *b, const char *key, double def); /* def NAN: required */
bool builder_bool(Builder *b, const char *key, bool def);
/* The tensor "blk.LAYER.NAME" (layer -1: NAME) as a weight [rows][columns] (rows 0: a vector of `columns`). A missing
 * tensor, other shape or unusable type is a failure that names it. */
ValueId builder_weight(Builder *b, int64_t layer, const char *name, int64_t rows, int64_t columns);
/* The same for [experts][rows][columns], a matrix for each expert. */
ValueId builder_experts(Builder *b, int64_t layer, const char *name, int64_t experts, int64_t rows, int64_t columns);
/* Rows [row0, row0 + rows) of a matrix [all_rows][columns] as a weight of its own: of tensors that hold several. */
ValueId builder_rows(Builder *b, int64_t layer, const char *name, int64_t all_rows, int64_t row0, int64_t rows,
                     int64_t columns);
bool builder_has(const Builder *b, int64_t layer, const char *name);
/* "blk.3.attn_q" in a buffer that lives until the next call but seven. */
const char *builder_name(int64_t layer, const char *what);

/* The metadata that most architectures share, into *s, with vocab from the embedding's rows; also checks that heads
 * fit. */
void builder_shape(Builder *b, LmShape *s);
/* The same for an architecture whose layers may be mixtures of experts, whose weights are `normalised` where the file
 * does not say. */
void builder_mix_shape(Builder *b, LmShape *s, bool normalised);
/* Rotary positions as the metadata have them: base, dimensions, linear or YaRN scaling, LongRoPE; other kinds are a
 * failure. */
RopeShape builder_rope(Builder *b, const LmShape *s, bool neox);
/* The window of a layer's attention, 0: it sees all. From attention.sliding_window and
 * attention.sliding_window_pattern, which is a list with a flag for each layer, or a period: the last layer of each
 * sees all. `period`: without that key; 0: every layer has the window. */
int64_t builder_window(Builder *b, int64_t layer, int64_t period);
/* A failure that names a metadata key (ARCH.key) whose presence this builder cannot honour. */
void builder_refuse(Builder *b, const char *key, const char *what);

typedef struct LmInputs {
    ValueId ids, positions; /* [T] */
    ValueId rows, targets;  /* [R] */
} LmInputs;
LmInputs builder_inputs(Builder *b);
/* Cosines and sines [T][rope_dim] for those positions, with the factors that the file has. */
ValueId builder_rope_table(Builder *b, const LmInputs *in, RopeShape rope);
/* A linear NAME.weight [rows][columns of x] with NAME.bias when the file has one. */
ValueId builder_linear(Builder *b, int64_t layer, const char *name, ValueId x, int64_t rows, int64_t columns);
/* An RMS norm NAME.weight over the `columns` of x. */
ValueId builder_norm(Builder *b, int64_t layer, const char *name, ValueId x, int64_t columns, float eps);
/* The feed-forward part of a layer, [T][width] -> [T][width]: ffn_gate, ffn_up and ffn_down, gated by SiLU; or, when
 * the model has experts, a mixture of them. */
ValueId builder_ffn(Builder *b, const LmShape *s, int64_t layer, ValueId x);
/* Selected rows, output_norm, head (output.weight, or the embedding) -> logits [R][vocab]. */
ValueId builder_head(Builder *b, const LmShape *s, const LmInputs *in, ValueId x, ValueId embedding, float eps);
/* Statistics of the logits, which are the graph's output. A tensor of the file that nothing used is a failure. */
void builder_end(Builder *b, const LmInputs *in, ValueId logits);
/* Both, with a soft cap of the logits when `softcap` > 0. */
void builder_finish(Builder *b, const LmShape *s, const LmInputs *in, ValueId x, ValueId embedding, float eps,
                    float softcap);

/* A tensor of the file that nothing used is a failure. */
void builder_refuse_unused(Builder *b);

typedef int ArchBuild(Builder *b, LmShape *shape);
ArchBuild arch_llama, arch_qwen2, arch_qwen3, arch_qwen2moe, arch_qwen3moe, arch_olmoe, arch_gemma2, arch_gemma3,
    arch_phi3, arch_olmo2, arch_smollm3, arch_granite, arch_bert;
