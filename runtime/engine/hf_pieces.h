/* Pieces of text, and cutting them: what is shared by the steps of a pre-tokenizer. */
#pragma once

#include "base/strbuf.h"
#include "engine/regex.h"
#include "graph/model_file.h"

/* One text after the other; piece i ends at ends[i]. */
typedef struct HfPieces {
    StrBuf text;  /* owned */
    size_t *ends; /* [n]; owned */
    size_t n, cap;
    bool at_start; /* piece 0 begins where the whole text begins */
} HfPieces;
void hf_pieces_clear(HfPieces *p);
void hf_pieces_free(HfPieces *p);
/* Ends a piece with what was added to p->text since the last one; nothing when that is empty. */
int hf_pieces_end(HfPieces *p, Err *e);

/* What to do with the places where a pattern matches ("behavior" in the file). */
typedef enum HfBehavior {
    HF_REMOVED,
    HF_ISOLATED,
    HF_MERGED_WITH_PREVIOUS,
    HF_MERGED_WITH_NEXT,
    HF_CONTIGUOUS
} HfBehavior;
int hf_behavior(const char *name, HfBehavior *out, Err *e);

typedef struct HfSegment { /* of a text; matches and what lies between them, without gaps; some are empty */
    size_t begin, end;
    bool match; /* after hf_segments_behave: to be left out */
} HfSegment;
typedef struct HfSegments {
    HfSegment *at; /* owned */
    size_t n, cap;
} HfSegments;
void hf_segments_free(HfSegments *s);

/* Where a pattern matches, or each character of a kind. Local. */
int hf_segments_by_regex(HfSegments *s, Regex *pattern, const char *text, size_t n, Err *e);
int hf_segments_by_kind(HfSegments *s, bool (*is)(int32_t c), const char *text, size_t n, Err *e);
/* Joins segments as the behaviour says; `invert`: what lies between matches counts as the match. */
void hf_segments_behave(HfSegments *s, HfBehavior behavior, bool invert);
