/* sheaf run: continues a text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "json.h"
#include "report.h"
#include "stop.h"
#include "utf8.h"

/* One generation on rank 0. */
typedef struct Run {
    Job *job;
    SheafSession *session;
    SheafSampler *sampler;
    int32_t *prompt; /* [n_prompt] ids, from sheaf_tokenize */
    size_t n_prompt;
    int64_t n_ctx, batch;

    SheafToken *tokens; /* [batch] */
    float *logits;      /* [vocabulary] when the sampler wants them, else NULL */
    SheafResult result; /* after the last token that was run */
    int64_t pos;        /* tokens that were run: the position of the next one */

    Stop stop;
    Utf8 utf8;
    char *bytes; /* [bytes_room] of the newest token */
    size_t bytes_room;
    StrBuf passed, text; /* past the stop strings; valid, to be printed */
    char last;           /* the last byte that was printed */
    StrBuf ids;          /* int32_t, those generated */

    int64_t generated, decoded; /* tokens chosen; of those, run through the model to get the next */
    double prompt_s, decode_s;
    const char *stop_reason;
} Run;

/* ---- the prompt -------------------------------------------------------------------------------------------------- */
static int read_prompt(const Options *o, StrBuf *text, SheafErr *e) {
    if (o->prompt) {
        strbuf_add(text, o->prompt, strlen(o->prompt));
        return text->failed ? fail(e, "out of memory for the prompt") : 0;
    }
    if (!o->file && isatty(STDIN_FILENO))
        return fail(e, "no prompt: give -p TEXT, -f FILE, or the text on standard input (-f - to type it)");
    if (report_read(o->file ? o->file : "-", text, e)) return -1;
    if (text->len > 0 && text->data[text->len - 1] == '\n') text->len--;
    return 0;
}

/* The prompt as the user's turn of a conversation, in the form called ChatML. A model that was trained on another form
 * is refused: its template is a program (Jinja) that nothing here runs. */
static int make_turn(const Job *job, StrBuf *text, SheafErr *e) {
    if (!strstr(sheaf_model_info(job->m)->chat_template, "<|im_start|>"))
        return fail(e, "--chat: %s has no chat template of the ChatML form; write its turns into the prompt",
                    job->o->model);
    StrBuf turn = {0};
    if (job->o->system) strbuf_printf(&turn, "<|im_start|>system\n%s<|im_end|>\n", job->o->system);
    strbuf_printf(&turn, "<|im_start|>user\n");
    strbuf_add(&turn, text->data, text->len);
    strbuf_printf(&turn, "<|im_end|>\n<|im_start|>assistant\n");
    bool failed = turn.failed || text->failed;
    strbuf_free(text);
    *text = turn;
    return failed ? fail(e, "out of memory for the prompt") : 0;
}

static int take_prompt(Run *r, SheafErr *e) {
    const Options *o = r->job->o;
    StrBuf text = {0};
    int status = read_prompt(o, &text, e);
    if (!status && o->chat) status = make_turn(r->job, &text, e);
    if (!status)
        status = sheaf_tokenize(r->job->m, text.data ? text.data : "", text.len, true, !o->no_special, &r->prompt,
                                &r->n_prompt, e);
    strbuf_free(&text);
    if (status) return -1;
    if (r->n_prompt == 0) return fail(e, "the prompt is empty, and the model has no token that begins a text");
    if (r->n_prompt > (size_t)r->n_ctx)
        return fail(e, "the prompt has %zu tokens, the context %" PRId64 " positions: shorten it or raise --ctx",
                    r->n_prompt, r->n_ctx);
    return 0;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
/* Runs n ids; the result is that after the last one, when `wanted`. */
static int step(Run *r, const int32_t *ids, int64_t n, bool wanted, SheafErr *e) {
    for (int64_t i = 0; i < n; i++)
        r->tokens[i] = (SheafToken){.id = ids[i], .pos = (int32_t)(r->pos + i), .target = -1};
    r->tokens[n - 1].output = wanted;
    if (sheaf_step(r->session, r->tokens, (size_t)n, &r->result, wanted ? r->logits : NULL, e)) return -1;
    r->pos += n;
    if (wanted && isnan(r->result.logsumexp))
        return fail(e, "%s: the logits after position %" PRId64 " are not numbers: the file's weights may be damaged",
                    r->job->o->model, r->pos - 1);
    return 0;
}

static int prefill(Run *r, SheafErr *e) {
    double start = report_seconds();
    Progress bar = progress_start("prompt", r->job->o->quiet);
    int status = 0;
    while (!status && r->pos < (int64_t)r->n_prompt && !job_interrupted()) {
        int64_t left = (int64_t)r->n_prompt - r->pos, n = left < r->batch ? left : r->batch;
        status = step(r, r->prompt + r->pos, n, n == left, e);
        progress_show(&bar, (uint64_t)r->pos, r->n_prompt, NULL);
    }
    progress_end(&bar);
    r->prompt_s = report_seconds() - start;
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
/* Prints what is certain by now; with --json it is kept in `text` for the end. */
static int print_text(Run *r, SheafErr *e) {
    if (r->text.failed || r->passed.failed || r->ids.failed) return fail(e, "out of memory for the text");
    if (r->job->o->json || r->text.len == 0) return 0;
    r->last = r->text.data[r->text.len - 1];
    int status = report_write(r->text.data, r->text.len, e);
    r->text.len = 0;
    return status;
}

/* The bytes of a token into r->bytes; returns their number, or -1. */
static int64_t token_bytes(Run *r, int32_t id, SheafErr *e) {
    for (;;) {
        size_t n = sheaf_token_bytes(r->job->m, id, false, r->bytes, r->bytes_room);
        if (n <= r->bytes_room) return (int64_t)n;
        char *grown = realloc(r->bytes, n);
        if (!grown) return fail(e, "out of memory for the text");
        r->bytes = grown;
        r->bytes_room = n;
    }
}

/* Takes the text of a token. *ended: a stop string is complete. */
static int take_token(Run *r, int32_t id, bool *ended, SheafErr *e) {
    int64_t n = token_bytes(r, id, e);
    if (n < 0) return -1;
    strbuf_add(&r->ids, (const char *)&id, sizeof id);
    r->passed.len = 0;
    *ended = stop_feed(&r->stop, r->bytes, (size_t)n, &r->passed);
    utf8_feed(&r->utf8, r->passed.data, r->passed.len, &r->text);
    return print_text(r, e);
}

static int end_text(Run *r, bool at_stop, SheafErr *e) {
    r->passed.len = 0;
    if (!at_stop) stop_end(&r->stop, &r->passed);
    utf8_feed(&r->utf8, r->passed.data, r->passed.len, &r->text);
    utf8_end(&r->utf8, &r->text);
    if (print_text(r, e)) return -1;
    return r->job->o->json || r->last == '\n' ? 0 : report_write("\n", 1, e);
}

/* ---- generation -------------------------------------------------------------------------------------------------- */
static int generate(Run *r, SheafErr *e) {
    const Options *o = r->job->o;
    int64_t vocabulary = sheaf_model_info(r->job->m)->vocabulary;
    bool at_stop = false;
    if (prefill(r, e)) return -1;
    double start = report_seconds();
    for (;;) {
        r->stop_reason = "interrupted";
        if (job_interrupted()) break;
        int32_t id = sheaf_sample(r->sampler, &r->result, r->logits, vocabulary);
        if (id < 0) return fail(e, "out of memory for sampling");
        r->stop_reason = "end";
        if (!o->ignore_eos && sheaf_token_ends(r->job->m, id)) break;
        r->generated++;
        if (take_token(r, id, &at_stop, e)) return -1;
        r->stop_reason = "stop";
        if (at_stop) break;
        r->stop_reason = "length";
        if (r->generated == o->tokens) break;
        r->stop_reason = "context";
        if (r->pos == r->n_ctx) break;
        if (step(r, &id, 1, true, e)) return -1;
        r->decoded++;
    }
    r->decode_s = report_seconds() - start;
    r->job->interrupted = job_interrupted();
    return end_text(r, at_stop, e);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */
static double rate(int64_t n, double seconds) { return n > 0 && seconds > 0 ? (double)n / seconds : (double)NAN; }

static void note_figures(const Run *r, const SheafSessionInfo *si) {
    if (r->job->o->quiet) return;
    job_note(r->job, si);
    report_note("prompt     %zu tokens, %.2f s, %.1f tokens/s", r->n_prompt, r->prompt_s,
                rate(r->pos - r->decoded, r->prompt_s));
    char speed[32] = "";
    if (r->decoded > 0) snprintf(speed, sizeof speed, ", %.1f tokens/s", rate(r->decoded, r->decode_s));
    report_note("generated  %" PRId64 " tokens, %.2f s%s (ended by: %s)", r->generated, r->decode_s, speed,
                r->stop_reason);
}

static int print_json(Run *r, const SheafSessionInfo *si, SheafErr *e) {
    const Options *o = r->job->o;
    StrBuf out = {0};
    Json j = {.out = &out};
    json_open(&j, NULL, '{');
    json_string(&j, "text", r->text.data ? r->text.data : "", r->text.len);
    json_text(&j, "stop_reason", r->stop_reason);
    json_int(&j, "prompt_tokens", (int64_t)r->n_prompt);
    json_real(&j, "prompt_s", r->prompt_s);
    json_real(&j, "prompt_tokens_per_s", rate(r->pos - r->decoded, r->prompt_s));
    json_int(&j, "generated_tokens", r->generated);
    json_real(&j, "generated_s", r->decode_s);
    json_real(&j, "tokens_per_s", rate(r->decoded, r->decode_s));
    json_open(&j, "ids", '[');
    for (size_t i = 0; i < r->ids.len; i += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, r->ids.data + i, sizeof id);
        json_int(&j, NULL, id);
    }
    json_close(&j, ']');
    json_int(&j, "ctx", r->n_ctx);
    json_real(&j, "temp", o->temp);
    json_int(&j, "seed", o->seed);
    job_json(r->job, si, &j);
    json_close(&j, '}');
    strbuf_add(&out, "\n", 1);
    return report_text(&out, e);
}

/* Rank 0, with the session open: the whole conversation with the model. */
static int lead(Run *r, SheafErr *e) {
    int64_t vocabulary = sheaf_model_info(r->job->m)->vocabulary;
    bool whole_rows = sheaf_sampler_wants_logits(r->sampler);
    r->tokens = job_memory(r->batch, sizeof *r->tokens, "a step", e);
    if (!r->tokens) return -1;
    if (whole_rows && !(r->logits = job_memory(vocabulary, sizeof *r->logits, "the logits", e))) return -1;
    job_catch_signals();
    if (generate(r, e)) return -1;
    const SheafSessionInfo *si = sheaf_session_info(r->session);
    note_figures(r, si);
    return r->job->o->json ? print_json(r, si, e) : 0;
}

/* Each rank, once the session is open, until rank 0 is done; closes it. */
static int take_part(Run *r, SheafErr *e) {
    int status;
    if (sheaf_rank(r->job->rt) == 0) {
        status = lead(r, e);
    } else {
        job_catch_signals(); /* rank 0 ends the job in order; until then this rank is needed */
        status = sheaf_follow(r->session, e);
    }
    sheaf_session_close(r->session);
    return status;
}

/* What can be known to fail before the weights are loaded. */
static int prepare(Run *r, SheafErr *e) {
    const Options *o = r->job->o;
    SheafSampling sampling = {.temperature = (float)o->temp,
                              .top_k = (int)o->top_k,
                              .top_p = (float)o->top_p,
                              .min_p = (float)o->min_p,
                              .seed = (uint64_t)o->seed};
    r->n_ctx = job_ctx(r->job);
    if (sheaf_sampler_new(&sampling, &r->sampler, e)) return -1;
    r->batch = o->batch < r->n_ctx ? o->batch : r->n_ctx;
    r->stop = (Stop){.strings = o->stop.item, .n = o->stop.n};
    return sheaf_rank(r->job->rt) == 0 ? take_prompt(r, e) : 0;
}

static void run_free(Run *r) {
    free(r->prompt);
    free(r->tokens);
    free(r->logits);
    free(r->bytes);
    sheaf_sampler_free(r->sampler);
    stop_free(&r->stop);
    strbuf_free(&r->passed);
    strbuf_free(&r->text);
    strbuf_free(&r->ids);
}

int run_verb(Job *job, SheafErr *e) {
    Run r = {.job = job};
    SheafErr mine = {""};
    bool failed = prepare(&r, &mine) != 0;
    int status = sheaf_agree(job->rt, failed, &mine, e);
    if (!status) {
        SheafSessionOptions so = {
            .n_ctx = r.n_ctx, .n_seqs = 1, .max_batch = r.batch, .logits = sheaf_sampler_wants_logits(r.sampler)};
        status = job_open_session(job, so, &r.session, e);
        if (!status) status = take_part(&r, e);
    }
    run_free(&r);
    return status;
}
