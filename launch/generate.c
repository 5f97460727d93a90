#include "generate.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

enum { DEFAULT_BATCH = 512 }; /* tokens of a prompt in one step */

int generator_prepare(Generator *g, Job *job, SheafErr *e) {
    const Options *o = job->o;
    SheafSampling sampling = {.temperature = (float)o->temp,
                              .top_k = (int)o->top_k,
                              .top_p = (float)o->top_p,
                              .min_p = (float)o->min_p,
                              .seed = (uint64_t)o->seed};
    *g = (Generator){.job = job};
    g->n_ctx = job_ctx(job);
    if (sheaf_sampler_new(&sampling, &g->sampler, e)) return -1;
    int64_t batch = o->batch ? o->batch : DEFAULT_BATCH;
    g->batch = batch < g->n_ctx ? batch : g->n_ctx;
    g->limit = o->tokens;
    g->stop.strings = g->stop_strings;
    for (int i = 0; i < o->stop.n; i++) generator_add_stop(g, o->stop.item[i]);
    return 0;
}

void generator_add_stop(Generator *g, const char *text) { g->stop_strings[g->stop.n++] = text; }

int generator_open(Generator *g, SheafSession *s, SheafErr *e) {
    int64_t vocabulary = sheaf_model_info(g->job->m)->vocabulary;
    bool whole_rows = sheaf_sampler_wants_logits(g->sampler);
    g->session = s;
    g->tokens = job_memory(g->batch, sizeof *g->tokens, "a step", e);
    if (!g->tokens) return -1;
    if (!(g->held = job_memory(g->n_ctx, sizeof *g->held, "the context", e))) return -1;
    return whole_rows && !(g->logits = job_memory(vocabulary, sizeof *g->logits, "the logits", e)) ? -1 : 0;
}

void generator_free(Generator *g) {
    free(g->held);
    free(g->tokens);
    free(g->logits);
    free(g->bytes);
    sheaf_sampler_free(g->sampler);
    stop_free(&g->stop);
    strbuf_free(&g->passed);
    strbuf_free(&g->text);
    strbuf_free(&g->ids);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
/* Runs n ids; the result is that after the last one, when `wanted`. */
static int step(Generator *g, const int32_t *ids, int64_t n, bool wanted, SheafErr *e) {
    for (int64_t i = 0; i < n; i++)
        g->tokens[i] = (SheafToken){.id = ids[i], .pos = (int32_t)(g->pos + i), .target = -1};
    g->tokens[n - 1].output = wanted;
    if (sheaf_step(g->session, g->tokens, (size_t)n, &g->result, wanted ? g->logits : NULL, e)) return -1;
    memcpy(g->held + g->pos, ids, (size_t)n * sizeof *ids);
    g->pos += n;
    if (wanted && isnan(g->result.logsumexp))
        return fail(e, "%s: the logits after position %" PRId64 " are not numbers: the file's weights may be damaged",
                    g->job->o->model, g->pos - 1);
    return 0;
}

int generator_prompt(Generator *g, const int32_t *ids, size_t n, SheafErr *e) {
    double start = report_seconds();
    Progress bar = progress_start("prompt", g->job->o->quiet);
    int64_t total = (int64_t)n, common = 0;
    while (common < g->pos && common < total - 1 && ids[common] == g->held[common]) common++;
    if (common < g->pos && common < sheaf_seq_earliest(g->session, 0)) common = 0; /* a window has moved on */
    int status = common < g->pos ? sheaf_seq_truncate(g->session, 0, common, e) : 0;
    g->pos = common;
    while (!status && g->pos < total && !job_interrupted()) {
        int64_t left = total - g->pos, part = left < g->batch ? left : g->batch;
        status = step(g, ids + g->pos, part, part == left, e);
        progress_show(&bar, (uint64_t)(g->pos - common), (uint64_t)(total - common), NULL);
    }
    progress_end(&bar);
    g->prefilled += g->pos - common;
    g->prompt_s += report_seconds() - start;
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
/* Prints what is certain by now; with --json it is kept for the end. */
static int print_text(Generator *g, SheafErr *e) {
    if (g->text.failed || g->passed.failed || g->ids.failed) return fail(e, "out of memory for the text");
    if (g->tidy && g->printed == 0) {
        size_t skip = 0;
        while (skip < g->text.len && isspace((unsigned char)g->text.data[skip])) skip++;
        g->text.len -= skip;
        if (skip) memmove(g->text.data, g->text.data + skip, g->text.len);
    }
    if (g->job->o->json || g->text.len == g->printed) return 0;
    size_t from = g->printed;
    g->printed = g->text.len;
    return report_write(g->text.data + from, g->text.len - from, e);
}

/* The bytes of a token into g->bytes; returns their number, or -1. */
static int64_t token_bytes(Generator *g, int32_t id, SheafErr *e) {
    for (;;) {
        size_t n = sheaf_token_bytes(g->job->m, id, false, g->bytes, g->bytes_room);
        if (n <= g->bytes_room) return (int64_t)n;
        char *grown = realloc(g->bytes, n);
        if (!grown) return fail(e, "out of memory for the text");
        g->bytes = grown;
        g->bytes_room = n;
    }
}

/* Takes the text of a token. *ended: a stop string is complete. */
static int take_token(Generator *g, int32_t id, bool *ended, SheafErr *e) {
    int64_t n = token_bytes(g, id, e);
    if (n < 0) return -1;
    strbuf_add(&g->ids, (const char *)&id, sizeof id);
    g->passed.len = 0;
    *ended = stop_feed(&g->stop, g->bytes, (size_t)n, &g->passed);
    utf8_feed(&g->utf8, g->passed.data, g->passed.len, &g->text);
    return print_text(g, e);
}

static void start_text(Generator *g) {
    g->text.len = g->ids.len = g->printed = 0;
    g->stop.held.len = 0;
    g->utf8 = (Utf8){0};
}

static int end_text(Generator *g, bool at_stop, SheafErr *e) {
    g->passed.len = 0;
    if (!at_stop) stop_end(&g->stop, &g->passed);
    utf8_feed(&g->utf8, g->passed.data, g->passed.len, &g->text);
    utf8_end(&g->utf8, &g->text);
    if (print_text(g, e)) return -1;
    bool ended = g->text.len > 0 && g->text.data[g->text.len - 1] == '\n';
    return g->job->o->json || ended ? 0 : report_write("\n", 1, e);
}

int generator_say(Generator *g, SheafErr *e) {
    const Options *o = g->job->o;
    int64_t vocabulary = sheaf_model_info(g->job->m)->vocabulary, chosen = 0;
    bool at_stop = false;
    double start = report_seconds();
    start_text(g);
    for (;;) {
        g->stop_reason = "interrupted";
        if (job_interrupted()) break;
        int32_t id = sheaf_sample(g->sampler, &g->result, g->logits, vocabulary);
        if (id < 0) return fail(e, "out of memory for sampling");
        g->stop_reason = "end";
        if (!o->ignore_eos && sheaf_token_ends(g->job->m, id)) break;
        g->generated++;
        if (take_token(g, id, &at_stop, e)) return -1;
        g->stop_reason = "stop";
        if (at_stop) break;
        g->stop_reason = "length";
        if (++chosen == g->limit) break;
        g->stop_reason = "context";
        if (g->pos == g->n_ctx) break;
        if (step(g, &id, 1, true, e)) return -1;
        g->decoded++;
    }
    g->decode_s += report_seconds() - start;
    return end_text(g, at_stop, e);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */
void generator_note(const Generator *g, const char *ended) {
    if (g->job->o->quiet || g->prefilled == 0) return;
    char speed[32] = "", reason[48] = "";
    report_note("prompt     %" PRId64 " tokens, %.2f s, %.1f tokens/s", g->prefilled, g->prompt_s,
                job_rate(g->prefilled, g->prompt_s));
    if (g->decoded > 0) snprintf(speed, sizeof speed, ", %.1f tokens/s", job_rate(g->decoded, g->decode_s));
    if (ended) snprintf(reason, sizeof reason, " (ended by: %s)", ended);
    report_note("generated  %" PRId64 " tokens, %.2f s%s%s", g->generated, g->decode_s, speed, reason);
}
