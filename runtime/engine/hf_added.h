/* The "added_tokens" of a tokenizer.json: tokens that are found in the text before the model sees it. */
#pragma once

#include "engine/hf_normalizer.h"
#include "engine/special.h"
#include "graph/hf_json.h"

typedef struct HfAddedToken {
    int32_t id;
    Text text;
    bool special;        /* only when special tokens are wanted */
    bool lstrip, rstrip; /* white space before, after it belongs to it */
    bool single_word;    /* no word may touch it */
    bool normalized;     /* it is looked for in normalised text, itself normalised */
} HfAddedToken;

typedef struct HfAdded {
    HfAddedToken *at; /* [n]; owned */
    int32_t n;
    Special raw, normal; /* their ids: numbers in `at` */
} HfAdded;

/* `list`: the array, or NULL; it must stay. Ids are 0 .. max. Local. */
int hf_added_read(HfAdded *a, const cJSON *list, int64_t max, Err *e);
/* Leaves out those with ids of n and more. Local. */
void hf_added_limit(HfAdded *a, int64_t n);
/* Makes it ready to be looked for, once the normalizer is there. Local. */
int hf_added_index(HfAdded *a, HfNormalizer *n, Err *e);
void hf_added_free(HfAdded *a);

/* The next token of text[0, n) from *at on: 1, with its place and number in `at`; or 0. As Hugging Face has it: at the
 * first place where any begins the longest; what is refused is passed over as a whole. `done`: what is before belongs
 * to an earlier token, which may have taken the white space that a later one begins with. Local. */
typedef struct HfAddedHit {
    size_t begin, end; /* with the white space that belongs to it */
    int32_t token;
} HfAddedHit;
int hf_added_find(const HfAdded *a, const Special *in, const char *text, size_t n, const SpecialPlaces *places,
                  size_t done, size_t *at, HfAddedHit *hit);
