/* The vocabulary of a tokenizer.json: the model's "vocab" (a map from texts to ids, or a list of pieces with scores)
 * and the added tokens together. */
#pragma once

#include "engine/hf_added.h"

typedef struct HfVocab {
    Text *model; /* [n] those that the model has; owned */
    Text *all;   /* [n] and the added ones; owned */
    char *bytes; /* what they point to; owned */
    int64_t n;
} HfVocab;

/* `json` may be freed afterwards. Refused: an id with two texts, ids far beyond the number of tokens. Local. */
int hf_vocab_create(HfVocab *h, const cJSON *json, const HfAdded *added, Err *e);
void hf_vocab_free(HfVocab *h); /* also of a zeroed one */

/* The largest id that there can be. */
enum { HF_MAX_ID = INT32_MAX / 4 };
