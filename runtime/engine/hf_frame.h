/* The "post_processor" of a tokenizer.json: the tokens that stand before and after a text by itself
 * (https://huggingface.co/docs/tokenizers/api/post-processors). */
#pragma once

#include "engine/tokenizer_internal.h"
#include "graph/hf_json.h"

/* `o`: the object, or NULL for none. Adds to the tokenizer's `before` and `after`. What is not known is an error that
 * names it. Local. */
int hf_frame_read(const cJSON *o, Tokenizer *t, Err *e);
