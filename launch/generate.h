/* Running ids through a session and printing what the model says to them: what a single text and a conversation share.
 * On rank 0 only, but for generator_prepare. Local; steps are collective (the others follow). */
#pragma once

#include "job.h"
#include "stop.h"
#include "utf8.h"

typedef struct Generator {
    Job *job;
    SheafSession *session;
    SheafSampler *sampler;
    int64_t n_ctx, batch;
    int64_t limit;      /* tokens of one text at most; -1: until the context is full */
    bool tidy;          /* the text is an answer: without the white space it begins with */
    int32_t *held;      /* [n_ctx] the ids that were run, in their positions */
    int64_t pos;        /* how many: the position of the next one */
    SheafToken *tokens; /* [batch] */
    float *logits;      /* [vocabulary] when the sampler wants them, else NULL */
    SheafResult result; /* after the last id that was run */

    const char *stop_strings[LIST_MAX + 1];
    Stop stop;
    Utf8 utf8;
    char *bytes; /* [bytes_room] of the newest token */
    size_t bytes_room;
    StrBuf passed; /* past the stop strings */

    /* the newest text */
    StrBuf text;    /* valid UTF-8 */
    size_t printed; /* bytes of it, or passed over */
    StrBuf ids;     /* int32_t */
    const char *stop_reason;

    /* over all texts */
    int64_t prefilled, generated, decoded; /* ids run before texts; chosen; of those, run to get the next */
    double prompt_s, decode_s;
} Generator;

/* What can be known to fail before the weights are loaded. On all ranks. */
int generator_prepare(Generator *g, Job *job, SheafErr *e);
/* One more text that ends what the model says, which must live as long as the generator. */
void generator_add_stop(Generator *g, const char *text);
int generator_open(Generator *g, SheafSession *s, SheafErr *e);
void generator_free(Generator *g); /* not the session */

/* Makes the sequence that of ids[0, n), 1 .. n_ctx of them: keeps what it has in common with them and runs the rest.
 * An interruption ends it early. */
int generator_prompt(Generator *g, const int32_t *ids, size_t n, SheafErr *e);
/* What the model says next, printed as it comes, but with --json. stop_reason: "end", "stop", "length", "context", or
 * "interrupted". */
int generator_say(Generator *g, SheafErr *e);

/* The lines about both on standard error, unless --quiet. `ended`: of the last text, or NULL. */
void generator_note(const Generator *g, const char *ended);
