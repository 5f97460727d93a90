/* sheaf embed: a vector for each text, several texts in one step. A text longer than the context is cut, as sentence
 * encoders do: what the model wants after a text stays. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "json.h"
#include "npy.h"
#include "report.h"

enum { TEXTS_AT_ONCE = 128 }; /* each may hold blocks of keys and values for a whole context */

typedef struct Piece { /* a text, in the options' words or in `input` */
    const char *text;
    size_t bytes;
} Piece;

/* One run on rank 0. */
typedef struct Embedding {
    Job *job;
    SheafSession *session;
    int64_t width, n_ctx, max_batch;
    SheafEmbedOptions options;
    StrBuf input;
    Piece *piece; /* [n_texts] */
    int64_t n_texts;
    size_t tail; /* tokens that the model wants after a text */
    SheafSequence seq[TEXTS_AT_ONCE];
    float *vectors; /* [TEXTS_AT_ONCE][width] */
    NpyFile file;
    StrBuf out;
    Json json;
    int64_t done, tokens, cut;
    double seconds;
} Embedding;

/* ---- texts ------------------------------------------------------------------------------------------------------- */
/* The lines of `input`; a last one without a newline counts, and a carriage return before a newline does not. */
static int split_lines(Embedding *v, SheafErr *e) {
    const char *at = v->input.data, *end = at + v->input.len;
    int64_t n = 0;
    for (const char *p = at; p < end; p++) n += *p == '\n' || p + 1 == end;
    v->piece = job_memory(n, sizeof *v->piece, "the lines", e);
    if (!v->piece) return -1;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        size_t bytes = (size_t)(stop - at);
        if (newline && bytes && stop[-1] == '\r') bytes--;
        v->piece[v->n_texts++] = (Piece){at, bytes};
        at = stop + 1;
    }
    return 0;
}

static int take_texts(Embedding *v, SheafErr *e) {
    const Options *o = v->job->o;
    if (!o->n_texts) {
        if (report_read(o->file ? o->file : "-", &v->input, e)) return -1;
        return v->input.len ? split_lines(v, e) : 0;
    }
    v->piece = job_memory(o->n_texts, sizeof *v->piece, "the texts", e);
    if (!v->piece) return -1;
    for (; v->n_texts < o->n_texts; v->n_texts++)
        v->piece[v->n_texts] = (Piece){o->text[v->n_texts], strlen(o->text[v->n_texts])};
    return 0;
}

/* The tokens of text i, cut to the context. */
static int tokens_of(Embedding *v, int64_t i, SheafSequence *seq, SheafErr *e) {
    int32_t *ids;
    size_t n, most = (size_t)v->n_ctx;
    SheafErr why;
    if (sheaf_tokenize(v->job->m, v->piece[i].text, v->piece[i].bytes, true, true, &ids, &n, &why))
        return fail(e, "text %" PRId64 ": %.400s", i + 1, why.msg);
    if (n > most) {
        memmove(ids + most - v->tail, ids + n - v->tail, v->tail * sizeof *ids);
        n = most;
        v->cut++;
    }
    *seq = (SheafSequence){ids, (int64_t)n};
    return n ? 0 : fail(e, "text %" PRId64 " has no tokens", i + 1);
}

/* How many tokens follow a text: what an empty one has, but for the one before. */
static int find_tail(Embedding *v, SheafErr *e) {
    int32_t *ids;
    size_t n;
    if (sheaf_tokenize(v->job->m, "", 0, true, true, &ids, &n, e)) return -1;
    free(ids);
    v->tail = n - (n && sheaf_token_bos(v->job->m) >= 0);
    if (n < (size_t)v->n_ctx) return 0;
    return fail(e, "--ctx %" PRId64 ": the model wants %zu tokens around a text", v->n_ctx, n);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
static void add_vector(Embedding *v, const float *x) {
    if (v->job->o->json) json_open(&v->json, NULL, '[');
    for (int64_t i = 0; i < v->width; i++) {
        if (v->job->o->json) {
            json_float(&v->json, NULL, x[i]);
            continue;
        }
        if (i) strbuf_add(&v->out, " ", 1);
        strbuf_float(&v->out, x[i]);
    }
    if (v->job->o->json) json_close(&v->json, ']');
    else strbuf_add(&v->out, "\n", 1);
}

/* Gives away what there is to say by now. */
static int flush(Embedding *v, SheafErr *e) {
    if (v->out.failed) return fail(e, "out of memory for the output");
    int status = v->out.len ? report_write(v->out.data, v->out.len, e) : 0;
    v->out.len = 0;
    return status;
}

static int write_vectors(Embedding *v, int64_t n, SheafErr *e) {
    if (v->file.path) return npy_file_write(&v->file, v->vectors, (size_t)(n * v->width) * sizeof *v->vectors, e);
    for (int64_t i = 0; i < n; i++) add_vector(v, v->vectors + i * v->width);
    return flush(v, e);
}

static void end_json(Embedding *v) {
    const SheafSessionInfo *si = sheaf_session_info(v->session);
    Json *j = &v->json;
    if (!v->file.path) json_close(j, ']');
    else json_text(j, "output", v->file.path);
    json_int(j, "texts", v->done);
    json_int(j, "width", v->width);
    json_text(j, "pooling", v->options.pooling);
    json_bool(j, "normalized", v->options.normalize);
    json_int(j, "ctx", v->n_ctx);
    json_int(j, "cut", v->cut);
    json_int(j, "tokens", v->tokens);
    json_int(j, "batch", v->max_batch);
    json_real(j, "seconds", v->seconds);
    json_real(j, "tokens_per_s", v->seconds > 0 ? (double)v->tokens / v->seconds : 0);
    job_json(v->job, si, j);
    json_close(j, '}');
    strbuf_add(&v->out, "\n", 1);
}

static int report(Embedding *v, SheafErr *e) {
    bool quiet = v->job->o->quiet;
    job_note(v->job, sheaf_session_info(v->session));
    if (!quiet && v->done)
        report_note("embedded   %" PRId64 " text%s, %" PRId64 " tokens, %.2f s, %.1f tokens/s", v->done,
                    v->done == 1 ? "" : "s", v->tokens, v->seconds, (double)v->tokens / v->seconds);
    if (!quiet && v->cut)
        report_note("cut        %" PRId64 " text%s longer than %" PRId64 " tokens, to that length", v->cut,
                    v->cut == 1 ? "" : "s", v->n_ctx);
    bool whole = v->done == v->n_texts;
    if (v->file.path && !whole) report_note("interrupted: %s was not written", v->file.path);
    if (v->file.path && whole && npy_file_finish(&v->file, e)) return -1;
    if (v->job->o->json) end_json(v);
    return flush(v, e);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
/* One step: texts in order while they fit. `next` is the first that did not, tokenised already; ids NULL: none. */
static int embed_some(Embedding *v, SheafSequence *next, SheafErr *e) {
    int64_t n = 0, total = 0;
    int status = 0;
    while (!status && n < TEXTS_AT_ONCE && v->done + n < v->n_texts) {
        if (!next->ids) status = tokens_of(v, v->done + n, next, e);
        if (status || total + next->n > v->max_batch) break;
        total += next->n;
        v->seq[n++] = *next;
        *next = (SheafSequence){0};
    }
    if (!status) status = sheaf_embed(v->session, v->seq, (size_t)n, &v->options, v->vectors, e);
    for (int64_t i = 0; i < n; i++) free((void *)v->seq[i].ids);
    if (status || write_vectors(v, n, e)) return -1;
    v->done += n;
    v->tokens += total;
    return 0;
}

static int embed_all(Embedding *v, SheafErr *e) {
    double start = report_seconds();
    Progress bar = progress_start("embedding", v->job->o->quiet);
    SheafSequence next = {0};
    int status = 0;
    while (!status && v->done < v->n_texts && !job_interrupted()) {
        status = embed_some(v, &next, e);
        progress_show(&bar, (uint64_t)v->done, (uint64_t)v->n_texts, NULL);
    }
    free((void *)next.ids);
    progress_end(&bar);
    v->seconds = report_seconds() - start;
    v->job->interrupted = v->done < v->n_texts;
    return status;
}

/* Rank 0, with the session open. */
static int lead(Embedding *v, SheafErr *e) {
    v->vectors = job_memory(TEXTS_AT_ONCE * v->width, sizeof *v->vectors, "embeddings", e);
    if (!v->vectors) return -1;
    if (v->job->o->json) json_open(&v->json, NULL, '{');
    if (v->job->o->json && !v->file.path) json_open(&v->json, "embeddings", '[');
    return embed_all(v, e) ? -1 : report(v, e);
}

/* What can be known to fail before the weights are loaded. */
static int prepare(Embedding *v, SheafErr *e) {
    const Options *o = v->job->o;
    const SheafModelInfo *info = sheaf_model_info(v->job->m);
    if (o->ctx > info->context)
        return fail(e, "--ctx %lld: %s has a context of %lld positions", (long long)o->ctx, o->model,
                    (long long)info->context);
    v->n_ctx = job_ctx(v->job);
    v->width = info->width;
    v->max_batch = o->batch > v->n_ctx ? o->batch : v->n_ctx; /* a text is never divided */
    v->options = (SheafEmbedOptions){.pooling = o->pooling ? o->pooling : info->pooling,
                                     .normalize = strcmp(o->normalize, "l2") == 0};
    if (!*v->options.pooling)
        return fail(e, "%s does not say how its tokens become one vector: give --pooling mean, cls or last", o->model);
    bool leads = sheaf_rank(v->job->rt) == 0;
    if (leads && (find_tail(v, e) || take_texts(v, e))) return -1;
    job_catch_signals(leads); /* an interruption removes a file that is not finished; until then every rank is needed */
    if (!leads) return 0;
    const Npy what = {.kind = 'f', .bytes = sizeof(float), .n_dims = 2, .dim = {v->n_texts, v->width}};
    return o->output ? npy_file_open(&v->file, o->output, &what, e) : 0;
}

int embed_verb(Job *job, SheafErr *e) {
    Embedding v = {.job = job};
    SheafErr mine = {""};
    v.json.out = &v.out;
    bool failed = prepare(&v, &mine) != 0;
    int status = sheaf_agree(job->rt, failed, &mine, e);
    if (!status) {
        SheafSessionOptions so = {
            .n_ctx = v.n_ctx, .n_seqs = TEXTS_AT_ONCE, .max_batch = v.max_batch, .max_outputs = TEXTS_AT_ONCE};
        status = job_open_session(job, so, &v.session, e);
        if (!status) {
            status = sheaf_rank(job->rt) == 0 ? lead(&v, e) : sheaf_follow(v.session, e);
            sheaf_session_close(v.session);
        }
    }
    npy_file_close(&v.file);
    strbuf_free(&v.input);
    strbuf_free(&v.out);
    free(v.piece);
    free(v.vectors);
    return status;
}
