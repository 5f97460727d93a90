/* The "decoder" of a tokenizer.json: from a token's text to its bytes
 * (https://huggingface.co/docs/tokenizers/api/decoders). A token is decoded by itself. What a decoder does to the start
 * or the end of a whole text (taking away the space in front of the first word) is left out, so that the first token
 * may have a space in front. */
#pragma once

#include "base/strbuf.h"
#include "graph/hf_json.h"

typedef struct HfDecoder HfDecoder;

/* `o`: the object, or NULL for none (a space is put before each token); it must stay. What is not known is an error
 * that names it. The caller owns *out. Local. */
int hf_decoder_create(const cJSON *o, HfDecoder **out, Err *e);
void hf_decoder_free(HfDecoder *d);

/* Adds the bytes of a token to `out`. Local. */
int hf_decode(HfDecoder *d, Text token, StrBuf *out, Err *e);
