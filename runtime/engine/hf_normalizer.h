/* The "normalizer" of a tokenizer.json: steps that change a text before it is cut into pieces
 * (https://huggingface.co/docs/tokenizers/api/normalizers). */
#pragma once

#include "base/strbuf.h"
#include "graph/hf_json.h"

typedef struct HfNormalizer HfNormalizer;

/* `o`: the object, or NULL for none; it must stay. What is not known is an error that names it. The caller owns *out.
 * Local. */
int hf_normalizer_create(const cJSON *o, HfNormalizer **out, Err *e);
void hf_normalizer_free(HfNormalizer *n);

/* The text, changed, in memory that stays until the next call (or the text itself when there is nothing to do). Local.
 */
int hf_normalize(HfNormalizer *n, const char *text, size_t bytes, Text *out, Err *e);
