/* The tokens of a vocabulary: their texts, their kinds, and which end a text. */
#pragma once

#include "base/err.h"
#include "graph/model_file.h"
#include "graph/name_map.h"

/* What tokenizer.ggml.token_type says of a token, with its numbers. */
typedef enum TokenType {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_TYPES
} TokenType;

typedef struct Vocab {
    const char *file;   /* for errors; not owned */
    const Text *tokens; /* [n] texts as in the file, UTF-8; ids without one are empty; not owned */
    int64_t n;
    uint8_t *types; /* [n] TokenType; owned */
    bool *ends;     /* [n] ends a text or a turn; owned */
    NameMap ids;    /* text -> id; empty ones are not in it */
} Vocab;

/* tokenizer.ggml.tokens and token_type. Local. */
int vocab_from_gguf(Vocab *v, const ModelFile *g, Err *e);
/* From n > 0 texts in an array that stays where it is; all are TOKEN_NORMAL (TOKEN_UNUSED: empty). `array`: what it is
 * called in errors. Local. */
int vocab_from_texts(Vocab *v, const char *file, const Text *tokens, int64_t n, const char *array, Err *e);
void vocab_free(Vocab *v); /* also of a zeroed Vocab */

/* The id of a text, or -1. */
static inline int32_t vocab_find(const Vocab *v, const char *text, size_t n) {
    return (int32_t)name_map_find(&v->ids, text, n);
}
/* tokenizer.ggml.KEY as an id of this vocabulary; *out keeps what it had when there is no such key. */
int vocab_id_key(const Vocab *v, const ModelFile *g, const char *key, int32_t *out, Err *e);
/* tokenizer.ggml.scores as [n] numbers, malloc'ed; the caller frees. They must be there. */
int vocab_scores(const Vocab *v, const ModelFile *g, float **out, Err *e);

/* A text that is valid UTF-8 and not empty: in valid text it is found at whole characters only. */
bool vocab_is_text(const Vocab *v, int64_t id);

/* Marks those control and user-defined tokens that end a text in the models there are, by their texts. */
void vocab_mark_ends(Vocab *v);

/* The token "<0x0A>" stands for a byte that no other token has. */
int token_named_byte(Text s);                           /* the byte, or -1 */
void vocab_find_bytes(const Vocab *v, int32_t id[256]); /* each byte's token, or -1 */
