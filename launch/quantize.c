/* sheaf quantize: writes a model file again with other types of weights. */
#include <inttypes.h>

#include "job.h"
#include "json.h"
#include "report.h"

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* What became of the tensors, line by line. */
static void add_table(const Job *job, const SheafQuantizeInfo *i, double seconds, StrBuf *out) {
    strbuf_printf(out, "%-16s", "file");
    report_add_foreign(out, job->o->output);
    strbuf_printf(out, "\n%-16s%.2f MB, %.1f %% of %.2f MB\n", "size", 1e-6 * (double)i->bytes_after,
                  100 * (double)i->bytes_after / (double)i->bytes_before, 1e-6 * (double)i->bytes_before);
    for (int t = 0; t < i->n_types; t++)
        strbuf_printf(out, "  %-14s%" PRId64 " tensor%s, %.2f MB\n", i->types[t].type, i->types[t].tensors,
                      plural(i->types[t].tensors), 1e-6 * (double)i->types[t].bytes);
    strbuf_printf(out, "%-16s%" PRId64 " of %" PRId64 " tensors in %.1f s\n", "converted", i->converted, i->tensors,
                  seconds);
    if (i->converted)
        strbuf_printf(out, "%-16s%.4f %% (root mean square, of the converted weights')\n", "error",
                      100 * i->relative_error);
    if (i->requantised)
        strbuf_printf(out, "%-16s%" PRId64 " of them from a quantised type: the errors of both add up\n", "",
                      i->requantised);
    if (i->vectors) strbuf_printf(out, "%-16s%" PRId64 " vector%s\n", "kept", i->vectors, plural(i->vectors));
    if (i->others) strbuf_printf(out, "%-16s%" PRId64 " by rule or name, or of the type already\n", "kept", i->others);
    if (i->uneven)
        strbuf_printf(out, "%-16s%" PRId64 " whose rows are no whole blocks; --tensor gives them another type\n",
                      "kept", i->uneven);
    if (i->replaced)
        strbuf_printf(out, "%-16s%" PRId64 " by a type of smaller blocks: their rows are no whole blocks of 256\n",
                      "replaced", i->replaced);
    if (i->uneven + i->replaced) {
        strbuf_printf(out, "%-16s(", "");
        report_add_foreign(out, i->uneven_name);
        strbuf_printf(out, " has %" PRId64 " columns)\n", i->uneven_columns);
    }
    if (!*i->foreign_tokenizer) return;
    strbuf_printf(out, "%-16sas tokenizer.json, which llama.cpp does not read: ", "tokenizer");
    report_add_foreign(out, i->foreign_tokenizer);
    strbuf_add(out, "\n", 1);
}

static void add_json(const Job *job, const SheafQuantizeInfo *i, double seconds, StrBuf *out) {
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_text(&j, "model", job->o->model);
    json_text(&j, "output", job->o->output);
    json_text(&j, "type", job->o->type);
    json_int(&j, "threads", sheaf_threads(job->rt));
    json_real(&j, "seconds", seconds);
    json_uint(&j, "model_bytes", i->bytes_before);
    json_uint(&j, "output_bytes", i->bytes_after);
    json_int(&j, "tensors", i->tensors);
    json_int(&j, "converted", i->converted);
    json_int(&j, "requantised", i->requantised);
    json_int(&j, "replaced", i->replaced);
    json_real(&j, "relative_error", i->relative_error);
    json_text(&j, "foreign_tokenizer", i->foreign_tokenizer);
    json_open(&j, "kept", '{');
    json_int(&j, "vectors", i->vectors);
    json_int(&j, "others", i->others);
    json_int(&j, "uneven", i->uneven);
    json_close(&j, '}');
    json_open(&j, "types", '[');
    for (int t = 0; t < i->n_types; t++) {
        json_open(&j, NULL, '{');
        json_text(&j, "type", i->types[t].type);
        json_int(&j, "tensors", i->types[t].tensors);
        json_uint(&j, "bytes", i->types[t].bytes);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

static bool show(void *bar, uint64_t done, uint64_t total) {
    progress_show(bar, done, total, NULL);
    return !job_interrupted();
}

int quantize_verb(Job *job, SheafErr *e) {
    const Options *o = job->o;
    bool leads = sheaf_rank(job->rt) == 0;
    job_warn(job);
    Progress bar = progress_start("quantizing", o->quiet || !leads);
    SheafQuantizeOptions q = {
        .type = o->type, .rules = o->tensor.item, .n_rules = o->tensor.n, .progress = show, .progress_arg = &bar};
    SheafQuantizeInfo info;
    double begin = report_seconds();
    job_catch_signals(sheaf_rank(job->rt) ==
                      0); /* an interruption removes what was written; until then every rank is needed */
    int status = sheaf_quantize(job->rt, o->model, o->output, &q, &info, e);
    progress_end(&bar);
    if (status || !leads) return status;
    job->interrupted = info.stopped;
    if (info.stopped) {
        report_note("interrupted: %s was not written", o->output);
        return 0;
    }
    StrBuf out = {0};
    if (o->json) add_json(job, &info, report_seconds() - begin, &out);
    else add_table(job, &info, report_seconds() - begin, &out);
    return report_text(&out, e);
}
