/* sheaf plan: how a model would be divided over ranks. */
#include <inttypes.h>

#include "job.h"
#include "json.h"
#include "report.h"

/* Weight bytes over all ranks for each one of the model: 1 when nothing is held twice. */
static double replication(const SheafPlan *p, const SheafModelInfo *info) {
    return (double)p->weight_bytes_total / (double)info->memory_bytes;
}

static void add_table(const SheafPlan *p, const SheafModelInfo *info, int64_t n_ctx, StrBuf *out) {
    bool experts = info->experts > 0;
    strbuf_printf(out, "%5s %7s %9s ", "rank", "heads", "KV heads");
    if (experts) strbuf_printf(out, "%9s ", "experts");
    strbuf_printf(out, "%9s %11s %12s %12s %12s %8s  %s\n", "FFN rows", "vocabulary", "weights MB", "KV cache MB",
                  "buffers MB", "threads", "CPUs on nodes");
    for (int i = 0; i < p->ranks; i++) {
        const SheafPlanRank *r = &p->rank[i];
        strbuf_printf(out, "%5d %7" PRId64 " %9" PRId64 " ", i, r->heads, r->kv_heads);
        if (experts) strbuf_printf(out, "%9" PRId64 " ", r->experts);
        strbuf_printf(out, "%9" PRId64 " %11" PRId64 " %12.2f %12.2f %12.2f %8d  %s on %s\n", r->ffn_rows,
                      r->vocab_rows, 1e-6 * (double)r->weight_bytes, 1e-6 * (double)r->kv_bytes,
                      1e-6 * (double)r->activation_bytes, r->place.threads, r->place.cpus, r->place.nodes);
    }
    strbuf_printf(out, "\n%-24s%" PRId64 "\n", "context", n_ctx);
    strbuf_printf(out, "%-24s%.2f MB, %.3f times the model's\n", "weights on all ranks",
                  1e-6 * (double)p->weight_bytes_total, replication(p, info));
    for (int t = 0; t < info->n_types; t++)
        if (report_growth(&info->types[t]) > 0)
            strbuf_printf(out, "%-24s%s: %.1f %% more in memory than in the file\n", "", info->types[t].type,
                          report_growth(&info->types[t]));
    strbuf_printf(out, "%-24s%" PRId64 "\n", "collectives per step", p->collectives_per_step);
    strbuf_printf(out, "%-24s%" PRIu64 " from each rank\n", "bytes per token", p->wire_bytes_per_token);
    strbuf_printf(out, "%-24s%016" PRIx64 "\n", "plan hash", p->hash);
    strbuf_printf(out, "%-24s%s\n", "placed on", p->machine);
    if (*p->advice) strbuf_printf(out, "%-24s%s\n", "advice", p->advice);
}

static void add_rank_json(Json *j, const SheafPlanRank *r) {
    json_open(j, NULL, '{');
    json_int(j, "heads", r->heads);
    json_int(j, "kv_heads", r->kv_heads);
    json_int(j, "ffn_rows", r->ffn_rows);
    json_int(j, "experts", r->experts);
    json_int(j, "vocab_rows", r->vocab_rows);
    json_uint(j, "weight_bytes", r->weight_bytes);
    json_uint(j, "kv_bytes", r->kv_bytes);
    json_uint(j, "activation_bytes", r->activation_bytes);
    json_int(j, "threads", r->place.threads);
    json_text(j, "cpus", r->place.cpus);
    json_text(j, "nodes", r->place.nodes);
    json_close(j, '}');
}

static void add_json(const SheafPlan *p, const Job *job, int64_t n_ctx, StrBuf *out) {
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_text(&j, "model", job->o->model);
    json_int(&j, "ranks", p->ranks);
    json_int(&j, "ctx", n_ctx);
    json_hash(&j, "plan_hash", p->hash);
    json_open(&j, "per_rank", '[');
    for (int i = 0; i < p->ranks; i++) add_rank_json(&j, &p->rank[i]);
    json_close(&j, ']');
    json_uint(&j, "weight_bytes", p->weight_bytes_total);
    json_real(&j, "growth",
              (double)sheaf_model_info(job->m)->memory_bytes / (double)sheaf_model_info(job->m)->weight_bytes);
    json_real(&j, "replication", replication(p, sheaf_model_info(job->m)));
    json_int(&j, "collectives_per_step", p->collectives_per_step);
    json_uint(&j, "wire_bytes_per_token", p->wire_bytes_per_token);
    json_text(&j, "machine", p->machine);
    json_text(&j, "advice", p->advice);
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

int plan_verb(Job *job, SheafErr *e) {
    if (sheaf_rank(job->rt) != 0) return 0;
    int ranks = job->o->ranks > 0 ? (int)job->o->ranks : sheaf_ranks(job->rt);
    int64_t n_ctx = job_ctx(job);
    SheafPlan *p = NULL;
    if (sheaf_plan(job->m, ranks, n_ctx, &p, e)) return -1;
    StrBuf out = {0};
    if (job->o->json) add_json(p, job, n_ctx, &out);
    else add_table(p, sheaf_model_info(job->m), n_ctx, &out);
    sheaf_plan_free(p);
    return report_text(&out, e);
}
