/* sheaf eval perplexity: how well the model predicts a text, as llama.cpp's tool of that name defines it. The text is
 * tokenised once and cut into windows of n_ctx tokens (what is left over is not used); the first token of each window
 * is replaced by BOS where the model wants one. The tokens at positions n_ctx/2 ... n_ctx - 2 predict the next one: nll
 * = logsumexp(logits) - logit of the next token;  perplexity = exp(mean nll); standard error = perplexity * sqrt((mean
 * nll^2 - (mean nll)^2) / (count - 1)). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "job.h"
#include "json.h"
#include "report.h"

/* One evaluation on rank 0. */
typedef struct Evaluation {
    Job *job;
    SheafSession *session;
    int32_t *ids; /* [n_ids], from sheaf_tokenize */
    size_t n_ids;
    int64_t n_ctx, first; /* `first`: the first position that predicts */
    int64_t windows;      /* to score */
    int64_t at_once;      /* windows in one step, as sequences */
    int64_t max_batch;    /* tokens in one step */

    SheafToken *tokens;   /* [max_batch] */
    SheafResult *results; /* [max_batch] */
    double *window_nll;   /* [windows] sums */
    double nll, nll2;     /* sums over `count` predictions */
    int64_t count, tokens_run;
    double seconds;
} Evaluation;

static int64_t scored_per_window(const Evaluation *v) { return v->n_ctx - 1 - v->first; }

static int take_text(Evaluation *v, SheafErr *e) {
    const Options *o = v->job->o;
    StrBuf text = {0};
    int status = report_read(o->file, &text, e);
    if (!status)
        status = sheaf_tokenize(v->job->m, text.data ? text.data : "", text.len, true, false, &v->ids, &v->n_ids, e);
    strbuf_free(&text);
    if (status) return -1;
    if (v->n_ids < (size_t)v->n_ctx)
        return fail(e, "%s: the text has %zu tokens, a window %" PRId64 ": give a longer text or a smaller --ctx",
                    o->file, v->n_ids, v->n_ctx);
    v->windows = (int64_t)(v->n_ids / (size_t)v->n_ctx);
    if (o->windows > 0 && o->windows < v->windows) v->windows = o->windows;
    return 0;
}

/* The token at a position of a window, with what is wanted after it. */
static SheafToken token_at(const Evaluation *v, int64_t window, int64_t seq, int64_t pos) {
    const int32_t *ids = v->ids + window * v->n_ctx;
    int32_t bos = sheaf_token_bos(v->job->m);
    bool scored = pos >= v->first && pos < v->n_ctx - 1;
    return (SheafToken){.id = pos == 0 && bos >= 0 ? bos : ids[pos],
                        .seq = (int32_t)seq,
                        .pos = (int32_t)pos,
                        .target = scored ? ids[pos + 1] : -1,
                        .output = scored};
}

/* Adds up the results of a step, whose outputs come in the order of its tokens. */
static int score(Evaluation *v, int64_t window0, int64_t n, SheafErr *e) {
    const SheafResult *r = v->results;
    for (int64_t i = 0; i < n; i++) {
        if (!v->tokens[i].output) continue;
        double nll = r->logsumexp - (double)r->target_logit;
        int64_t window = window0 + v->tokens[i].seq;
        if (!isfinite(nll))
            return fail(e,
                        "window %" PRId64 ", position %d: the logits are not finite: the file's weights may be damaged",
                        window, v->tokens[i].pos);
        v->window_nll[window] += nll;
        v->nll += nll;
        v->nll2 += nll * nll;
        v->count++;
        r++;
    }
    return 0;
}

/* n windows from window0 on, in steps of max_batch tokens at most. The last token of a window predicts nothing that is
 * scored, but it is run: the work of a window is n_ctx tokens, as elsewhere. */
static int run_windows(Evaluation *v, int64_t window0, int64_t n, SheafErr *e) {
    int64_t total = n * v->n_ctx;
    for (int64_t begin = 0; begin < total; begin += v->max_batch) {
        int64_t size = total - begin < v->max_batch ? total - begin : v->max_batch;
        for (int64_t i = 0; i < size; i++) {
            int64_t seq = (begin + i) / v->n_ctx, pos = (begin + i) % v->n_ctx;
            v->tokens[i] = token_at(v, window0 + seq, seq, pos);
        }
        if (sheaf_step(v->session, v->tokens, (size_t)size, v->results, NULL, e)) return -1;
        if (score(v, window0, size, e)) return -1;
        v->tokens_run += size;
    }
    for (int64_t seq = 0; seq < n; seq++)
        if (sheaf_seq_truncate(v->session, (int32_t)seq, 0, e)) return -1;
    return 0;
}

static int run_all(Evaluation *v, SheafErr *e) {
    double start = report_seconds();
    Progress bar = progress_start("perplexity", v->job->o->quiet);
    int status = 0;
    for (int64_t window = 0; !status && window < v->windows; window += v->at_once) {
        int64_t n = v->windows - window < v->at_once ? v->windows - window : v->at_once;
        status = run_windows(v, window, n, e);
        char note[64];
        snprintf(note, sizeof note, "%" PRId64 "/%" PRId64 " windows, %.4f", window + n, v->windows,
                 exp(v->nll / (double)v->count));
        progress_show(&bar, (uint64_t)(window + n), (uint64_t)v->windows, note);
    }
    progress_end(&bar);
    v->seconds = report_seconds() - start;
    return status;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */
static double standard_error(const Evaluation *v) {
    double n = (double)v->count, mean = v->nll / n, variance = v->nll2 / n - mean * mean;
    return v->count > 1 && variance > 0 ? exp(mean) * sqrt(variance / (n - 1)) : (double)NAN;
}

static double window_perplexity(const Evaluation *v, int64_t window) {
    return exp(v->window_nll[window] / (double)scored_per_window(v));
}

static void add_json(const Evaluation *v, const SheafSessionInfo *si, StrBuf *out) {
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_real(&j, "perplexity", exp(v->nll / (double)v->count));
    json_real(&j, "stderr", standard_error(v));
    json_real(&j, "nll_mean", v->nll / (double)v->count);
    json_int(&j, "scored_tokens", v->count);
    json_int(&j, "windows", v->windows);
    json_int(&j, "ctx", v->n_ctx);
    json_int(&j, "tokens", v->tokens_run);
    json_uint(&j, "text_tokens", v->n_ids);
    json_real(&j, "seconds", v->seconds);
    json_real(&j, "tokens_per_s", (double)v->tokens_run / v->seconds);
    json_int(&j, "batch", v->max_batch);
    json_real(&j, "first_window", window_perplexity(v, 0));
    json_open(&j, "per_window", '[');
    for (int64_t i = 0; i < v->windows; i++) json_real(&j, NULL, window_perplexity(v, i));
    json_close(&j, ']');
    job_json(v->job, si, &j);
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

static int report(const Evaluation *v, SheafErr *e) {
    const SheafSessionInfo *si = sheaf_session_info(v->session);
    StrBuf out = {0};
    job_note(v->job, si);
    if (!v->job->o->quiet)
        report_note("evaluated  %" PRId64 " tokens, %.2f s, %.1f tokens/s", v->tokens_run, v->seconds,
                    (double)v->tokens_run / v->seconds);
    if (v->job->o->json) add_json(v, si, &out);
    else
        strbuf_printf(&out,
                      "perplexity %.4f +/- %.4f (%" PRId64 " windows of %" PRId64 " tokens, %" PRId64 " predictions)\n",
                      exp(v->nll / (double)v->count), standard_error(v), v->windows, v->n_ctx, v->count);
    return report_text(&out, e);
}

/* Rank 0, with the session open. */
static int lead(Evaluation *v, SheafErr *e) {
    v->tokens = job_memory(v->max_batch, sizeof *v->tokens, "a step", e);
    if (!v->tokens) return -1;
    v->results = job_memory(v->max_batch, sizeof *v->results, "the results of a step", e);
    if (!v->results) return -1;
    v->window_nll = job_memory(v->windows, sizeof *v->window_nll, "the windows", e);
    if (!v->window_nll) return -1;
    return run_all(v, e) ? -1 : report(v, e);
}

/* What can be known to fail before the weights are loaded. Windows that fit into a step go together; a window longer
 * than a step goes alone, in several. */
static int prepare(Evaluation *v, SheafErr *e) {
    const Options *o = v->job->o;
    v->n_ctx = job_ctx(v->job);
    v->first = v->n_ctx / 2;
    v->at_once = o->batch >= v->n_ctx ? o->batch / v->n_ctx : 1;
    if (o->windows > 0 && o->windows < v->at_once) v->at_once = o->windows;
    v->max_batch = o->batch < v->at_once * v->n_ctx ? o->batch : v->at_once * v->n_ctx;
    return sheaf_rank(v->job->rt) == 0 ? take_text(v, e) : 0;
}

int perplexity_verb(Job *job, SheafErr *e) {
    Evaluation v = {.job = job};
    SheafErr mine = {""};
    bool failed = prepare(&v, &mine) != 0;
    int status = sheaf_agree(job->rt, failed, &mine, e);
    if (!status) {
        int64_t scored = v.at_once * scored_per_window(&v);
        SheafSessionOptions so = {.n_ctx = v.n_ctx,
                                  .n_seqs = v.at_once,
                                  .max_batch = v.max_batch,
                                  .max_outputs = scored < v.max_batch ? scored : v.max_batch};
        status = job_open_session(job, so, &v.session, e);
        if (!status) {
            status = sheaf_rank(job->rt) == 0 ? lead(&v, e) : sheaf_follow(v.session, e);
            sheaf_session_close(v.session);
        }
    }
    free(v.ids);
    free(v.tokens);
    free(v.results);
    free(v.window_nll);
    return status;
}
