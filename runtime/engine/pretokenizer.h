/* Cutting text into the pieces within which BPE merges, by the regular expressions that a model was trained with. */
#pragma once

#include "base/err.h"
#include "graph/model_file.h"

typedef struct Pretokenizer Pretokenizer;

/* What else hangs on the name in a GGUF file. */
typedef struct PretokenizerTraits {
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    bool add_bos;       /* unless the file has a flag */
    bool raw;           /* the text itself is merged, with U+2581 for spaces, not letters for its bytes */
} PretokenizerTraits;

/* By the name in tokenizer.ggml.pre; an unknown one is an error that names it. The caller owns *out. Local. */
int pretokenizer_create(Text name, Pretokenizer **out, Err *e);
void pretokenizer_free(Pretokenizer *p);
PretokenizerTraits pretokenizer_traits(const Pretokenizer *p);
bool pretokenizer_is_raw(Text name);
/* A name of family i = 0, 1, ..., each of which cuts in another way or has other traits; false: there are no more. */
bool pretokenizer_name(int i, Text *name);

/* Valid UTF-8 -> *ends[*n]: where each piece ends; the first begins at 0, the last ends at `bytes`, none is empty. The
 * list is p's and stays until the next call. Local. */
int pretokenizer_split(Pretokenizer *p, const char *text, size_t bytes, const size_t **ends, size_t *n, Err *e);
