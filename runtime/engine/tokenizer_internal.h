/* What a tokenizer is made of: a vocabulary, a model that turns text into its ids, and what stands around a text. */
#pragma once

#include "engine/special.h"
#include "engine/tokenizer.h"
#include "engine/vocab.h"

/* A growing list of ids. */
typedef struct Ids {
    int32_t *at; /* owned */
    size_t n, cap;
} Ids;
int ids_reserve(Ids *ids, size_t more, Err *e); /* room for `more` after the n there */
int ids_add(Ids *ids, int32_t id, Err *e);      /* nothing when id < 0 */

typedef struct TokenModel TokenModel;
typedef struct TokenModelKind {
    /* Adds the ids of valid UTF-8. With `whole` the text is all of it and the model looks for special tokens by itself;
     * else it is what lies between two of them (or the ends), never empty. */
    int (*encode)(TokenModel *m, const char *text, size_t bytes, const SpecialPlaces *places, Ids *ids, Err *e);
    /* The bytes of a token that is neither control, unknown nor unused, as tokenizer_bytes gives them. */
    size_t (*bytes)(const TokenModel *m, int32_t id, char *buf, size_t cap);
    void (*free)(TokenModel *m); /* not of NULL */
    bool whole;
} TokenModelKind;

struct TokenModel { /* the first member of each model */
    const TokenModelKind *kind;
    const Vocab *vocab;
};

/* What a kind of model does where the file says nothing. */
typedef struct TokenDefaults {
    int32_t bos, eos; /* ids, or -1; those outside the vocabulary count as none */
    bool add_bos, add_eos;
    const char *bos_key, *eos_key; /* under tokenizer.ggml: what is put before and after a text, ... */
    bool always;                   /* whatever the file's add_bos_token and add_eos_token say */
} TokenDefaults;

/* The models of GGUF files, by tokenizer.ggml.model. Each reads its keys; the caller owns *out; *d holds the defaults
 * of "gpt2". */
typedef int TokenModelCreate(const ModelFile *g, const Vocab *v, TokenModel **out, TokenDefaults *d, Err *e);
TokenModelCreate byte_bpe_create; /* "gpt2" */
TokenModelCreate spm_create;      /* "llama" */
TokenModelCreate text_bpe_create; /* "gemma4" */
TokenModelCreate ugm_create;      /* "t5" */
TokenModelCreate wpm_create;      /* "bert" */

typedef enum TokenSide { TOKEN_LEFT = 1, TOKEN_RIGHT = 2 } TokenSide;
/* Which special tokens of a GGUF file take white space: the format has no flag for it, so it hangs on the model.
 * *strips as in Tokenizer. Local. */
int tokenizer_strips(const ModelFile *g, const Vocab *v, uint8_t **strips, Err *e);

enum { TOKENIZER_FRAME = 16 }; /* the most tokens before or after a text */
struct Tokenizer {
    Vocab vocab;
    TokenModel *model; /* owned */
    Special special;   /* unless the model looks for them */
    int32_t bos, eos;  /* as the file names them, or -1 */
    uint8_t *strips;   /* [vocab.n] which side's white space a special token takes, TokenSide; NULL: none does; owned */
    int32_t before[TOKENIZER_FRAME], after[TOKENIZER_FRAME];
    int n_before, n_after;
};

/* Copies what fits; returns n. */
size_t token_copy(const char *from, size_t n, char *buf, size_t cap);
/* The same with every U+2581, which stands for a space, made one. */
size_t token_copy_spaced(Text text, char *buf, size_t cap);
