/* sheaf info: what a model file holds. */
#include <inttypes.h>

#include "arrays.h"
#include "job.h"
#include "json.h"
#include "report.h"

static const char *or_dash(const char *s) { return s && *s ? s : "-"; }

static void add_row(StrBuf *out, const char *label, const char *value) {
    strbuf_printf(out, "%-16s", label);
    report_add_foreign(out, or_dash(value));
    strbuf_add(out, "\n", 1);
}

static void add_experts(const SheafModelInfo *i, StrBuf *out) {
    strbuf_printf(out, "%-16s%" PRId64 " of width %" PRId64, "experts", i->experts, i->expert_width);
    if (i->shared_width) strbuf_printf(out, ", and one of %" PRId64 " for all tokens", i->shared_width);
    strbuf_printf(out, "\n%-16s%" PRId64 " experts, %.2f million parameters\n", "for each token", i->experts_used,
                  1e-6 * (double)i->active_parameters);
}

/* `form`: of its chat template; NULL when that is unknown or there is none. */
static void add_table(const SheafModelInfo *i, const char *path, const char *form, StrBuf *out) {
    add_row(out, "file", path);
    add_row(out, "format", i->format);
    add_row(out, "architecture", i->architecture);
    add_row(out, "name", i->name);
    add_row(out, "licence", i->license);
    strbuf_printf(out, "%-16s%.2f million", "parameters", 1e-6 * (double)i->parameters);
    if (i->size_label && *i->size_label) {
        strbuf_printf(out, " (");
        report_add_foreign(out, i->size_label);
        strbuf_printf(out, ")");
    }
    strbuf_printf(out, "\n%-16s%" PRId64 "\n", "layers", i->layers);
    strbuf_printf(out, "%-16s%" PRId64 "\n", "width", i->width);
    strbuf_printf(out, "%-16s%" PRId64 " query, %" PRId64 " KV, of %" PRId64 "\n", "heads", i->heads, i->kv_heads,
                  i->head_dim);
    strbuf_printf(out, "%-16s%" PRId64 "\n", "FFN width", i->ffn_width);
    if (i->experts) add_experts(i, out);
    strbuf_printf(out, "%-16s%" PRId64 "\n", "vocabulary", i->vocabulary);
    strbuf_printf(out, "%-16s%" PRId64 " positions\n", "context", i->context);
    if (i->encoder) add_row(out, "pooling", i->pooling);
    else strbuf_printf(out, "%-16s%.15g\n", "RoPE base", i->rope_base);
    strbuf_printf(out, "%-16s", "tokenizer");
    report_add_foreign(out, or_dash(i->tokenizer));
    strbuf_printf(out, ", pre-tokenizer ");
    report_add_foreign(out, or_dash(i->pre_tokenizer));
    if (!i->encoder)
        strbuf_printf(out, "\n%-16s%s", "chat template", form ? form : *i->chat_template ? "unknown" : "none");
    strbuf_printf(out, "\n");
    strbuf_printf(out, "%-16s%" PRId64 "\n", "tensors", i->tensors);
    for (int t = 0; t < i->n_types; t++) {
        strbuf_printf(out, "  %-14s%" PRId64 " tensors, %.2f MB", i->types[t].type, i->types[t].tensors,
                      1e-6 * (double)i->types[t].bytes);
        if (report_growth(&i->types[t]) > 0)
            strbuf_printf(out, " (%.1f %% more in memory)", report_growth(&i->types[t]));
        strbuf_printf(out, "\n");
    }
    strbuf_printf(out, "%-16s%.2f MB\n", "file size", 1e-6 * (double)i->file_bytes);
    strbuf_printf(out, "%-16s%.2f MB of weights", "memory", 1e-6 * (double)i->memory_bytes);
    if (!i->encoder) strbuf_printf(out, ", %.2f MB of KV cache per 1000 tokens", 1e-3 * (double)i->kv_bytes_per_token);
    if (i->window)
        strbuf_printf(out, ", %.2f MB for windows of %" PRId64,
                      1e-6 * (double)i->kv_window_bytes_per_token * (double)i->window, i->window);
    strbuf_printf(out, "\n");
}

static void add_ports(const char *label, int n, const SheafPort *(*at)(const SheafModel *, int), const SheafModel *m,
                      StrBuf *out) {
    for (int i = 0; i < n; i++) {
        const SheafPort *p = at(m, i);
        strbuf_printf(out, "%-16s", i ? "" : label);
        report_add_foreign(out, p->name);
        strbuf_puts(out, " ");
        port_describe(p, out);
        strbuf_puts(out, "\n");
    }
}

static void add_net_table(const SheafModel *m, const char *path, StrBuf *out) {
    const SheafModelInfo *i = sheaf_model_info(m);
    add_row(out, "file", path);
    add_row(out, "format", i->format);
    add_row(out, "made by", i->name);
    add_ports("inputs", sheaf_n_inputs(m), sheaf_input, m, out);
    add_ports("results", sheaf_n_results(m), sheaf_result, m, out);
    strbuf_printf(out, "%-16s%" PRId64 "\n", "operators", i->operators);
    strbuf_printf(out, "%-16s%" PRId64 ", %.2f million values, %.2f MB\n", "tensors", i->tensors,
                  1e-6 * (double)i->parameters, 1e-6 * (double)i->weight_bytes);
    strbuf_printf(out, "%-16s%.2f MB\n", "file size", 1e-6 * (double)i->file_bytes);
}

static void json_ports(const char *label, int n, const SheafPort *(*at)(const SheafModel *, int), const SheafModel *m,
                       Json *j) {
    json_open(j, label, '[');
    for (int i = 0; i < n; i++) {
        const SheafPort *p = at(m, i);
        json_open(j, NULL, '{');
        json_text(j, "name", p->name);
        json_text(j, "type", sheaf_type_name(p->type));
        json_open(j, "shape", '[');
        for (int k = 0; k < p->n_dims; k++)
            if (p->dim[k] >= 0) json_int(j, NULL, p->dim[k]);
            else json_text(j, NULL, p->symbol[k]);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void add_net_json(const SheafModel *m, const char *path, StrBuf *out) {
    const SheafModelInfo *i = sheaf_model_info(m);
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_text(&j, "model", path);
    json_text(&j, "format", i->format);
    json_text(&j, "made_by", i->name);
    json_ports("inputs", sheaf_n_inputs(m), sheaf_input, m, &j);
    json_ports("results", sheaf_n_results(m), sheaf_result, m, &j);
    json_int(&j, "operators", i->operators);
    json_int(&j, "tensors", i->tensors);
    json_uint(&j, "parameters", i->parameters);
    json_uint(&j, "file_bytes", i->file_bytes);
    json_uint(&j, "weight_bytes", i->weight_bytes);
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

static void add_json(const SheafModelInfo *i, const char *path, const char *form, StrBuf *out) {
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_text(&j, "model", path);
    json_text(&j, "format", i->format);
    json_text(&j, "architecture", i->architecture);
    json_text(&j, "name", i->name);
    json_text(&j, "license", i->license);
    json_text(&j, "size_label", i->size_label);
    json_uint(&j, "parameters", i->parameters);
    json_int(&j, "layers", i->layers);
    json_int(&j, "width", i->width);
    json_int(&j, "heads", i->heads);
    json_int(&j, "kv_heads", i->kv_heads);
    json_int(&j, "head_dim", i->head_dim);
    json_int(&j, "ffn_width", i->ffn_width);
    json_int(&j, "experts", i->experts);
    json_int(&j, "experts_used", i->experts_used);
    json_int(&j, "expert_width", i->expert_width);
    json_int(&j, "shared_width", i->shared_width);
    json_uint(&j, "active_parameters", i->active_parameters);
    json_int(&j, "vocabulary", i->vocabulary);
    json_int(&j, "context", i->context);
    json_real(&j, "rope_base", i->rope_base);
    json_bool(&j, "encoder", i->encoder);
    json_text(&j, "pooling", i->pooling);
    json_text(&j, "tokenizer", i->tokenizer);
    json_text(&j, "pre_tokenizer", i->pre_tokenizer);
    json_text(&j, "chat_template", i->chat_template);
    json_text(&j, "chat_form", form ? form : "");
    json_int(&j, "tensors", i->tensors);
    json_open(&j, "types", '[');
    for (int t = 0; t < i->n_types; t++) {
        json_open(&j, NULL, '{');
        json_text(&j, "type", i->types[t].type);
        json_int(&j, "tensors", i->types[t].tensors);
        json_uint(&j, "bytes", i->types[t].bytes);
        json_uint(&j, "memory_bytes", i->types[t].memory_bytes);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_uint(&j, "file_bytes", i->file_bytes);
    json_uint(&j, "weight_bytes", i->weight_bytes);
    json_uint(&j, "memory_bytes", i->memory_bytes);
    json_uint(&j, "kv_bytes_per_token", i->kv_bytes_per_token);
    json_int(&j, "window", i->window);
    json_uint(&j, "kv_window_bytes_per_token", i->kv_window_bytes_per_token);
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

static void add_lm(const Job *job, StrBuf *out) {
    const SheafModelInfo *info = sheaf_model_info(job->m);
    SheafChat *chat;
    SheafErr unknown;
    const char *form = sheaf_chat_open(job->m, NULL, &chat, &unknown) ? NULL : sheaf_chat_name(chat);
    if (job->o->json) add_json(info, job->o->model, form, out);
    else add_table(info, job->o->model, form, out);
    sheaf_chat_close(chat);
}

int info_verb(Job *job, SheafErr *e) {
    if (sheaf_rank(job->rt) != 0) return 0;
    StrBuf out = {0};
    if (!sheaf_model_info(job->m)->net) add_lm(job, &out);
    else if (job->o->json) add_net_json(job->m, job->o->model, &out);
    else add_net_table(job->m, job->o->model, &out);
    return report_text(&out, e);
}
