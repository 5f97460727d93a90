/* The tokenizer of a Hugging Face folder under GGUF's keys, for programs that read no tokenizer.json. Local. */
#pragma once

#include "engine/tokenizer.h"

/* `m`: a model with a tokenizer.json (tokenizer.huggingface.json) and no tokenizer of GGUF's kind; `rows`: of its
 * embedding, which there must be as many tokens as.
 *
 * *out has tokenizer.ggml.* and no other keys; the caller closes it. A tokenizer read from it gives the same ids as the
 * tokenizer.json for every token's text and for a text in which characters of all kinds stand next to each other
 * (hf_probe.h). When GGUF cannot say what the file says, or not exactly, *out is NULL and `why` says why. */
int hf_to_gguf(const ModelFile *m, int64_t rows, ModelFile **out, Err *why, Err *e);
