/* sheaf run, for a net: arrays from .npy files in, results printed, or written as .npy. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "job.h"
#include "report.h"

enum { DEFAULT_ROWS = 16, TOP = 5, MOST_LINES = 1000 };

/* One run of a net. The first axis of all inputs counts rows (images), of which a step takes a chunk. */
typedef struct NetRun {
    Job *job;
    SheafNet *net;
    int n_in, n_out;
    StrBuf *file;                    /* [n_in] */
    SheafArray *in, *part, *out;     /* [n_in] whole, and the rows of a step; [n_out] */
    SheafArray *all;                 /* [n_out] results of this rank's rows, then of all; data owned */
    bool by_rows;                    /* the first axis can be cut into chunks */
    int64_t rows, chunk, begin, end; /* this rank's rows: [begin, end) */
    int64_t steps;
    double seconds, compile_s;
} NetRun;

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static void add_ports(const Job *job, StrBuf *out) {
    for (int i = 0; i < sheaf_n_inputs(job->m); i++) {
        strbuf_puts(out, i ? ", " : "");
        report_add_foreign(out, sheaf_input(job->m, i)->name);
        strbuf_puts(out, " ");
        port_describe(sheaf_input(job->m, i), out);
    }
}

static int read_inputs(NetRun *r, SheafErr *e) {
    const Options *o = r->job->o;
    if (o->n_texts != r->n_in) {
        StrBuf ports = {0};
        add_ports(r->job, &ports);
        int status =
            fail(e, "%s takes %d input%s (%.300s), %d file%s given: sheaf run MODEL INPUT.npy ...", o->model, r->n_in,
                 r->n_in == 1 ? "" : "s", ports.data ? ports.data : "", o->n_texts, o->n_texts == 1 ? "" : "s");
        strbuf_free(&ports);
        return status;
    }
    for (int i = 0; i < r->n_in; i++)
        if (array_read(o->text[i], &r->file[i], &r->in[i], e)) return -1;
    return 0;
}

/* Rows are cut where every input has the same number of them and the net leaves it open, or wants a part of them. */
static void divide_rows(NetRun *r) {
    const Job *job = r->job;
    r->by_rows = r->n_in > 0;
    r->rows = r->n_in ? r->in[0].dim[0] : 1;
    int64_t fixed = 0;
    for (int i = 0; i < r->n_in; i++) {
        const SheafPort *p = sheaf_input(job->m, i);
        const SheafArray *a = &r->in[i];
        r->by_rows = r->by_rows && a->n_dims > 0 && p->n_dims == a->n_dims && a->dim[0] == r->rows && r->rows > 0;
        if (p->n_dims > 0 && p->dim[0] > 0) fixed = p->dim[0];
    }
    r->by_rows = r->by_rows && (!fixed || r->rows % fixed == 0);
    r->chunk = fixed ? fixed : job->o->batch ? job->o->batch : DEFAULT_ROWS;
    if (!r->by_rows) r->chunk = r->rows = 1;
    if (r->chunk > r->rows) r->chunk = r->rows;
    r->begin = 0;
    r->end = r->rows;
    int ranks = sheaf_ranks(job->rt), rank = sheaf_rank(job->rt);
    if (job->o->shards || ranks == 1) return;
    if (!r->by_rows) { /* nothing to divide: rank 0 does it */
        r->end = rank == 0 ? r->rows : 0;
        return;
    }
    int64_t unit = fixed ? fixed : 1, units = r->rows / unit;
    r->begin = units * rank / ranks * unit;
    r->end = units * (rank + 1) / ranks * unit;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static size_t array_bytes(const SheafArray *a) { return (size_t)array_count(a) * sheaf_type_bytes(a->type); }

/* The results of rows [at, at + n) behind those before. */
static int keep_results(NetRun *r, int64_t at, int64_t n, SheafErr *e) {
    for (int i = 0; i < r->n_out; i++) {
        const SheafArray *from = &r->out[i];
        SheafArray *to = &r->all[i];
        bool whole = n == r->end - r->begin;
        if (!whole && (from->n_dims < 1 || from->dim[0] != n))
            return fail(e,
                        "result %.64s has no row for each row of the input: run it in one step (--batch %" PRId64 ")",
                        sheaf_result(r->job->m, i)->name, r->rows);
        size_t bytes = array_bytes(from), before = 0;
        if (at > r->begin) before = array_bytes(to);
        void *more = realloc(to->data, before + bytes + 1);
        if (!more) return fail(e, "out of memory for the results");
        if (bytes) memcpy((char *)more + before, from->data, bytes);
        int64_t rows = at > r->begin ? to->dim[0] : 0;
        *to = *from;
        to->data = more;
        if (!whole) to->dim[0] += rows;
    }
    return 0;
}

static int run_rows(NetRun *r, int64_t at, int64_t n, SheafErr *e) {
    for (int i = 0; i < r->n_in; i++) {
        SheafArray *part = &r->part[i];
        *part = r->in[i];
        if (!r->by_rows) continue;
        size_t row = array_bytes(part) / (size_t)r->rows;
        part->dim[0] = n;
        part->data = (char *)part->data + (size_t)at * row;
    }
    if (sheaf_net_run(r->net, r->part, r->out, e)) return -1;
    r->compile_s += sheaf_net_info(r->net).compile_s;
    r->steps++;
    return keep_results(r, at, n, e);
}

static int run_share(NetRun *r, SheafErr *e) {
    double start = report_seconds();
    Progress bar = progress_start("rows", r->job->o->quiet || sheaf_rank(r->job->rt) != 0);
    int status = 0;
    for (int64_t at = r->begin; !status && at < r->end; at += r->chunk) {
        int64_t left = r->end - at;
        status = run_rows(r, at, left < r->chunk ? left : r->chunk, e);
        progress_show(&bar, (uint64_t)(at - r->begin), (uint64_t)(r->end - r->begin), NULL);
    }
    progress_end(&bar);
    r->seconds = report_seconds() - start;
    return status;
}

/* ---- the ranks' results ------------------------------------------------------------------------------------------ */

/* The ranks' parts of a result, whose data are now `joined`, as one array. */
static void join_parts(SheafArray *mine, int ranks, const SheafArray *heads, void *joined) {
    int64_t rows = 0;
    SheafArray whole = {.n_dims = 0};
    for (int k = 0; k < ranks; k++) {
        if (!heads[k].data) continue; /* that rank had nothing to do */
        whole = heads[k];
        rows += whole.n_dims ? whole.dim[0] : 0;
    }
    free(mine->data);
    *mine = whole;
    mine->data = joined;
    if (mine->n_dims) mine->dim[0] = rows;
}

/* Result i of all ranks, rows one after the other in rank order; heads and bytes: [ranks], to be used. */
static int gather_parts(NetRun *r, int i, SheafArray *heads, size_t *bytes, SheafErr *e) {
    SheafRuntime *rt = r->job->rt;
    int ranks = sheaf_ranks(rt);
    SheafArray *mine = &r->all[i];
    size_t total = 0;
    for (int k = 0; k < ranks; k++) bytes[k] = sizeof *heads;
    if (sheaf_gather(rt, mine, bytes, heads, e)) return -1;
    for (int k = 0; k < ranks; k++) total += bytes[k] = heads[k].data ? array_bytes(&heads[k]) : 0;
    char *joined = malloc(total + 1);
    int status = sheaf_agree(rt, !joined, &(SheafErr){"out of memory for the results"}, e);
    if (!status) status = sheaf_gather(rt, mine->data, bytes, joined, e);
    if (status) free(joined);
    else join_parts(mine, ranks, heads, joined);
    return status;
}

static int gather_result(NetRun *r, int i, SheafErr *e) {
    size_t ranks = (size_t)sheaf_ranks(r->job->rt);
    SheafArray *heads = calloc(ranks, sizeof *heads);
    size_t *bytes = calloc(ranks, sizeof *bytes);
    bool failed = !heads || !bytes;
    int status = sheaf_agree(r->job->rt, failed, &(SheafErr){"out of memory for the results"}, e);
    if (!status && !failed) status = gather_parts(r, i, heads, bytes, e);
    free(heads);
    free(bytes);
    return status;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* A result that looks like scores of classes, a row for each input. */
static bool is_scores(const NetRun *r, const SheafArray *a) {
    if (a->n_dims < 2 || a->dim[0] < 1 || a->dim[0] != r->rows) return false;
    for (int i = 2; i < a->n_dims; i++)
        if (a->dim[i] != 1) return false;
    return (a->type == SHEAF_F32 || a->type == SHEAF_F64 || a->type == SHEAF_F16) && a->dim[1] > 1;
}

/* The largest of a row, equal ones by lower index first; returns how many. */
static int top_of(const SheafArray *a, int64_t row, int64_t *best) {
    int64_t classes = a->dim[1];
    int n = 0;
    for (int64_t c = 0; c < classes; c++) {
        double v = array_get(a, row * classes + c);
        int at = n;
        while (at > 0 && v > array_get(a, row * classes + best[at - 1])) at--;
        if (at == TOP) continue;
        if (n < TOP) n++;
        for (int k = n - 1; k > at; k--) best[k] = best[k - 1];
        best[at] = c;
    }
    return n;
}

static void add_scores(const SheafArray *a, StrBuf *out) {
    int64_t best[TOP], lines = a->dim[0] < MOST_LINES ? a->dim[0] : MOST_LINES;
    for (int64_t row = 0; row < lines; row++) {
        int n = top_of(a, row, best);
        strbuf_printf(out, "%" PRId64, row);
        for (int k = 0; k < n; k++)
            strbuf_printf(out, "  %" PRId64 " (%.4g)", best[k], array_get(a, row * a->dim[1] + best[k]));
        strbuf_puts(out, "\n");
    }
    if (lines < a->dim[0]) strbuf_printf(out, "... %" PRId64 " rows in all\n", a->dim[0]);
}

static void add_range(const SheafArray *a, double *low, double *high, double *mean) {
    int64_t n = array_count(a);
    *low = *high = n ? array_get(a, 0) : 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = array_get(a, i);
        *low = v < *low ? v : *low;
        *high = v > *high ? v : *high;
        sum += v;
    }
    *mean = n ? sum / (double)n : 0;
}

static int print_table(const NetRun *r, SheafErr *e) {
    StrBuf out = {0};
    bool one = r->n_out == 1 && is_scores(r, &r->all[0]);
    for (int i = 0; i < r->n_out; i++) {
        const SheafArray *a = &r->all[i];
        double low, high, mean;
        if (!one) {
            report_add_foreign(&out, sheaf_result(r->job->m, i)->name);
            strbuf_puts(&out, " ");
            array_describe(a, &out);
            add_range(a, &low, &high, &mean);
            strbuf_printf(&out, ": %.6g to %.6g, mean %.6g\n", low, high, mean);
        }
        if (is_scores(r, a)) add_scores(a, &out);
    }
    return report_text(&out, e);
}

static void json_result(const NetRun *r, int i, Json *j) {
    const SheafArray *a = &r->all[i];
    double low, high, mean;
    json_open(j, NULL, '{');
    json_text(j, "name", sheaf_result(r->job->m, i)->name);
    json_text(j, "type", sheaf_type_name(a->type));
    json_open(j, "shape", '[');
    for (int k = 0; k < a->n_dims; k++) json_int(j, NULL, a->dim[k]);
    json_close(j, ']');
    add_range(a, &low, &high, &mean);
    json_real(j, "min", low);
    json_real(j, "max", high);
    json_real(j, "mean", mean);
    if (is_scores(r, a)) {
        json_open(j, "top", '[');
        for (int64_t row = 0; row < a->dim[0]; row++) {
            int64_t best[TOP];
            int n = top_of(a, row, best);
            json_open(j, NULL, '[');
            for (int k = 0; k < n; k++) {
                json_open(j, NULL, '{');
                json_int(j, "class", best[k]);
                json_real(j, "value", array_get(a, row * a->dim[1] + best[k]));
                json_close(j, '}');
            }
            json_close(j, ']');
        }
        json_close(j, ']');
    }
    json_close(j, '}');
}

static int print_json(const NetRun *r, SheafErr *e) {
    StrBuf out = {0};
    Json j = {.out = &out};
    const Job *job = r->job;
    SheafNetInfo info = sheaf_net_info(r->net);
    json_open(&j, NULL, '{');
    json_text(&j, "model", job->o->model);
    json_open(&j, "results", '[');
    for (int i = 0; i < r->n_out; i++) json_result(r, i, &j);
    json_close(&j, ']');
    json_int(&j, "rows", r->rows);
    json_int(&j, "rows_per_step", r->chunk);
    json_int(&j, "ranks", sheaf_ranks(job->rt));
    json_bool(&j, "shards", job->o->shards);
    json_int(&j, "threads", sheaf_threads(job->rt));
    json_text(&j, "isa", sheaf_isa(job->rt));
    json_real(&j, "compile_s", r->compile_s);
    json_real(&j, "run_s", r->seconds - r->compile_s);
    json_int(&j, "operators", info.operators);
    json_uint(&j, "weight_bytes_rank0", info.weight_bytes);
    json_uint(&j, "activation_bytes_rank0", info.activation_bytes);
    json_hash(&j, "plan_hash", info.plan_hash);
    json_close(&j, '}');
    strbuf_add(&out, "\n", 1);
    return report_text(&out, e);
}

static int write_results(const NetRun *r, SheafErr *e) {
    const char *path = r->job->o->output;
    if (!path) return 0;
    if (r->n_out == 1) return array_write(path, &r->all[0], e);
    size_t n = strlen(path);
    bool npy = n > 4 && !strcmp(path + n - 4, ".npy");
    for (int i = 0; i < r->n_out; i++) {
        StrBuf name = {0};
        strbuf_add(&name, path, npy ? n - 4 : n);
        strbuf_puts(&name, "-");
        size_t from = name.len;
        report_add_foreign(&name, sheaf_result(r->job->m, i)->name);
        for (size_t k = from; k < name.len; k++)
            if (name.data[k] == '/') name.data[k] = '_';
        strbuf_puts(&name, ".npy");
        int status = name.failed ? fail(e, "out of memory") : array_write(name.data, &r->all[i], e);
        strbuf_free(&name);
        if (status) return -1;
    }
    return 0;
}

static int report_all(const NetRun *r, SheafErr *e) {
    const Job *job = r->job;
    SheafNetInfo info = sheaf_net_info(r->net);
    if (!job->o->quiet) {
        report_note(
            "load       %.2f s, %" PRId64 " operators, %.1f MB of weights and %.1f MB of activations on %s%d rank%s "
            "x %d thread%s (%s)",
            r->compile_s, info.operators, 1e-6 * (double)info.weight_bytes, 1e-6 * (double)info.activation_bytes,
            job->o->shards ? "" : "each of ", sheaf_ranks(job->rt), sheaf_ranks(job->rt) == 1 ? "" : "s",
            sheaf_threads(job->rt), sheaf_threads(job->rt) == 1 ? "" : "s", sheaf_isa(job->rt));
        report_note("run        %" PRId64 " rows, %.4f s", r->rows, r->seconds - r->compile_s);
    }
    if (write_results(r, e)) return -1;
    return job->o->json ? print_json(r, e) : print_table(r, e);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int prepare(NetRun *r, SheafErr *e) {
    size_t in = (size_t)r->n_in + 1, out = (size_t)r->n_out + 1;
    r->file = calloc(in, sizeof *r->file);
    r->in = calloc(in, sizeof *r->in);
    r->part = calloc(in, sizeof *r->part);
    r->out = calloc(out, sizeof *r->out);
    r->all = calloc(out, sizeof *r->all);
    if (!r->file || !r->in || !r->part || !r->out || !r->all) return fail(e, "out of memory");
    if (r->job->o->prompt || r->job->o->file) return fail(e, "%s is a net: it takes arrays, no text", r->job->o->model);
    if (r->job->o->output && sheaf_rank(r->job->rt) == 0 && array_may_write(r->job->o->output, e)) return -1;
    if (read_inputs(r, e)) return -1;
    divide_rows(r);
    return 0;
}

static void net_run_free(NetRun *r) {
    for (int i = 0; r->file && i < r->n_in; i++) strbuf_free(&r->file[i]);
    for (int i = 0; r->all && i < r->n_out; i++) free(r->all[i].data);
    free(r->file);
    free(r->in);
    free(r->part);
    free(r->out);
    free(r->all);
    sheaf_net_close(r->net);
}

static int run_all(NetRun *r, SheafErr *e) {
    Job *job = r->job;
    SheafErr mine = {""};
    bool failed = prepare(r, &mine) != 0;
    if (sheaf_agree(job->rt, failed, &mine, e)) return -1;
    const SheafNetOptions o = {.shards = job->o->shards};
    if (sheaf_net_open(job->m, &o, &r->net, e)) return -1;
    failed = run_share(r, &mine) != 0;
    if (sheaf_agree(job->rt, failed, &mine, e)) return -1;
    for (int i = 0; i < r->n_out && !job->o->shards && sheaf_ranks(job->rt) > 1; i++)
        if (gather_result(r, i, e)) return -1;
    return sheaf_rank(job->rt) == 0 ? report_all(r, e) : 0;
}

int run_net(Job *job, SheafErr *e) {
    NetRun r = {.job = job, .n_in = sheaf_n_inputs(job->m), .n_out = sheaf_n_results(job->m)};
    int status = run_all(&r, e);
    net_run_free(&r);
    return status;
}
