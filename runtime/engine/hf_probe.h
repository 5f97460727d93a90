/* Whether two tokenizers, or what they cut texts with, are the same: tried out on a text in which every three kinds of
 * characters that patterns tell apart stand next to each other, and on lines of what people write. Local. */
#pragma once

#include "base/strbuf.h"
#include "engine/tokenizer.h"
#include "graph/hf_json.h"

/* Adds the text, in Unicode's normal form C. */
int hf_probe_text(StrBuf *out, Err *e);

/* The first name in tokenizer.ggml.pre that cuts the text as the "pre_tokenizer" of a tokenizer.json does, of those
 * with and without `ignore_merges`; *name is empty when there is none. */
int hf_probe_pretokenizer(const cJSON *pre, Text text, bool ignore_merges, Text *name, Err *e);

/* Whether both turn the text into the same ids; *same_bytes: how far they do. */
int hf_probe_same(Tokenizer *a, Tokenizer *b, Text text, bool *same, size_t *same_bytes, Err *e);
