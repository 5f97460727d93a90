/* Builders: from what a model file says to a graph. One short file per architecture (arch_*.c), straight-line, the shape
 * beside every value; the table of them is in arch.c. All local; nothing here reads tensor data. */
#pragma once

#include "graph/gguf.h"
#include "graph/graph.h"

/* What every language model has. Filled by the builder. */
typedef struct LmShape {
    int64_t layers, width, ffn, heads, kv_heads, head_dim, vocab, context; /* context: the length it was trained for */
    double rope_base;
} LmShape;

/* Builds the graph for the file's general.architecture; an unknown one is an error that lists those there are. Inputs:
 * "ids" [T], "positions" [T], "rows" [R], "targets" [R]. The caller frees *g with graph_free, also after an error. */
int arch_build(const Gguf *f, Graph *g, LmShape *shape, Err *e);

/* ---- for the builders ---------------------------------------------------------------------------------------------- */
typedef struct Builder {
    const Gguf *f;
    Graph *g;
    const char *arch; /* prefix of the metadata keys */
    Err *e;
    bool failed;
} Builder;

/* Metadata "ARCH.key". In range [min, max], or the default when `def` >= 0 and the key is missing. Sticky failure. */
int64_t builder_int(Builder *b, const char *key, int64_t min, int64_t max, int64_t def);
double builder_float(Builder *b, const char *key, double def); /* def NAN: required */
/* The tensor "blk.LAYER.NAME" (layer -1: NAME) as a weight [rows][columns] (rows 0: a vector of `columns`). A missing
 * tensor, other shape or unusable type is a failure that names it. */
ValueId builder_weight(Builder *b, int64_t layer, const char *name, int64_t rows, int64_t columns);
bool builder_has(const Builder *b, int64_t layer, const char *name);
/* "blk.3.attn_q" in a buffer that lives until the next call but seven. */
const char *builder_name(int64_t layer, const char *what);

typedef int ArchBuild(Builder *b, LmShape *shape);
ArchBuild arch_llama;
