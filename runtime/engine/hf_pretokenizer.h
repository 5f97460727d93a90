/* The "pre_tokenizer" of a tokenizer.json: steps that cut a text into the pieces that the model sees, and may change
 * them (https://huggingface.co/docs/tokenizers/api/pre-tokenizers). */
#pragma once

#include "engine/hf_pieces.h"
#include "graph/hf_json.h"

typedef struct HfPretokenizer HfPretokenizer;

/* `o`: the object, or NULL for none; it must stay. What is not known is an error that names it. The caller owns *out.
 * Local. */
int hf_pretokenizer_create(const cJSON *o, HfPretokenizer **out, Err *e);
void hf_pretokenizer_free(HfPretokenizer *p);

/* The pieces of a text, in memory that stays until the next call; none is empty. `at_start`: the text begins where the
 * whole one does (for Metaspace's "first"; Hugging Face asks where the first character left by the normalizer came
 * from, so that after one that took away the start of the text nothing is put there). Local. */
int hf_pretokenize(HfPretokenizer *p, const char *text, size_t n, bool at_start, const HfPieces **out, Err *e);
