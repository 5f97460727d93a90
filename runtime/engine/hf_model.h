/* The "model" of a tokenizer.json: BPE, Unigram or WordPiece
 * (https://huggingface.co/docs/tokenizers/api/models). */
#pragma once

#include "engine/tokenizer_internal.h"
#include "graph/hf_json.h"

typedef struct HfModel HfModel;

/* "BPE", "Unigram", "WordPiece" or what else the file says; older files have no "type": what else they have tells. */
Text hf_model_type(const cJSON *o);

/* `o` must stay, but for its "vocab" and "merges". What is not known is an error that names it. The caller owns *out.
 * Local. */
int hf_model_create(const cJSON *o, const Vocab *v, HfModel **out, Err *e);
void hf_model_free(HfModel *m);

/* Adds the ids of a piece, which is not empty. Local. */
int hf_model_encode(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e);
