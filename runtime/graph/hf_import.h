/* What the parts of hf_folder.c share: a model under way from Hugging Face's names to GGUF's. */
#pragma once

#include <cjson/cJSON.h>

#include "graph/model_file_internal.h"
#include "graph/safetensors.h"

/* Linears that have a bias. */
enum { BIAS_QKV = 1, BIAS_OUTPUT = 2, BIAS_FFN = 4 };

/* Which names the tensors have (hf_tensors.c). */
typedef enum HfNames { NAMES_PRE_NORM, NAMES_POST_NORM, NAMES_BERT, HF_NAMES } HfNames;

typedef struct Import Import;

/* A kind of model: what its class in transformers reads of config.json, and what it calls its tensors. */
typedef struct HfClass {
    const char *name;       /* in config.json's "architectures" */
    const char *arch;       /* general.architecture */
    const char *activation; /* what hidden_act must be */
    const char *part;       /* the object of config.json that describes the language model; NULL: the whole */
    HfNames names;
    bool tied;                         /* "tie_word_embeddings" where config.json does not say */
    bool pairs;                        /* GGUF has the rows of Q and K in the order of rotated pairs */
    bool llama3_rope, plain_rope;      /* rotary positions may be scaled as in Llama 3.1; may not be scaled at all */
    float norm_add;                    /* what GGUF's norm weights have in addition */
    double rope_base, local_rope_base; /* where config.json does not say; of layers with a window, 0: the same */
    int64_t window;          /* "sliding_window" where config.json does not say; -1: windows are not supported */
    unsigned biases;         /* those that are always there */
    void (*more)(Import *i); /* what else it has; or NULL */
} HfClass;

typedef struct Experts Experts; /* a layer's tensor of one kind (hf_tensors.c) */

struct Import {
    ModelFile *g;
    const HfClass *class;
    const cJSON *config; /* of the language model */
    const char *path;    /* of config.json */
    size_t room_values, room_tensors;
    int64_t layers, width, heads, kv_heads, head_dim, vocab, n_experts;
    bool tied;
    unsigned biases;
    Experts *experts; /* [layers][3], in the model's memory; NULL until the first one */
    Err *e;
    bool failed; /* and *e says why: nothing more is done */
};

/* A failure; the text should name file and key. The first one stays. */
void import_fail(Import *i, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- config.json (hf_config.c) ---- */
/* The class and the metadata of its model. */
void hf_config_read(Import *i, const cJSON *root);
/* A member of an object of config.json, in its range; the default when it is missing or null. A required one (def < 0,
 * NAN) fails then. */
int64_t config_int(Import *i, const cJSON *o, const char *key, int64_t min, int64_t max, int64_t def);
double config_float(Import *i, const cJSON *o, const char *key, double def);
bool config_bool(Import *i, const cJSON *o, const char *key, bool def);
/* Fails unless the member is missing or null. */
void config_refuse(Import *i, const cJSON *o, const char *key);

/* Metadata under "ARCH.KEY"; or under KEY itself when it begins with "general." or the like (import_key). */
void import_int(Import *i, const char *key, int64_t v);
void import_float(Import *i, const char *key, double v); /* as F32, as GGUF files have it */
void import_bool(Import *i, const char *key, bool v);
void import_text(Import *i, const char *key, const char *text, size_t n);                     /* copied */
void import_array(Import *i, const char *key, MetaType type, size_t n, const void *elements); /* copied */

/* Rotary positions (hf_rope.c). */
void hf_rope_read(Import *i);

/* ---- tensors (hf_tensors.c) ---- */
/* Those of a safetensors file, which is file number `file` of the model. */
void hf_tensors_add(Import *i, const Safetensors *s, uint32_t file);
/* When all have been added: whether the model is complete. */
void hf_tensors_finish(Import *i);
/* An F32 vector that is computed from config.json; copied. */
void import_vector(Import *i, const char *name, const float *values, size_t n);
