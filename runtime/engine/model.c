/* A model file: its graph, its tokenizer, and what there is to say about it; and plans for any number of ranks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include "graph/file_check.h"
#include "graph/passes.h"

/* Hugging Face's folders bring a tokenizer.json, in place of GGUF's keys. */
static int read_tokenizer(SheafModel *m, Err *e) {
    Text json = {NULL, 0};
    char name[512];
    bool ggml = meta_find(m->file, "tokenizer.ggml.model");
    if (!ggml && meta_get_string(m->file, "tokenizer.huggingface.json", false, &json, e)) return -1;
    if (!json.data) return tokenizer_from_gguf(m->file, &m->tokenizer, e); /* says which keys are missing */
    snprintf(name, sizeof name, "%s: tokenizer.json", model_file_path(m->file));
    int64_t bos = -1, eos = -1;
    if (tokenizer_from_json_memory(json.data, json.size, name, m->shape.vocab, &m->tokenizer, e) ||
        meta_get_i64(m->file, "tokenizer.ggml.bos_token_id", false, 0, INT32_MAX, &bos, e) ||
        meta_get_i64(m->file, "tokenizer.ggml.eos_token_id", false, 0, INT32_MAX, &eos, e))
        return -1;
    tokenizer_set_named(m->tokenizer, bos, eos);
    return 0;
}

static int make_tokenizer(SheafModel *m, Err *e) {
    const MetaValue *ends = NULL;
    if (read_tokenizer(m, e) || meta_get_array(m->file, "sheaf.end_token_ids", false, META_I32, &ends, e)) return -1;
    for (uint64_t i = 0; ends && i < ends->v.a.n; i++)
        if (meta_array_i64(ends, i) < m->shape.vocab) tokenizer_set_end(m->tokenizer, (int32_t)meta_array_i64(ends, i));
    /* Embeddings may have rows for tokens that were never made: for round sizes. GGUF has names for these too. */
    int64_t tokens = tokenizer_size(m->tokenizer);
    if (tokens <= m->shape.vocab && (tokens == m->shape.vocab || !meta_find(m->file, "tokenizer.ggml.model"))) return 0;
    return err_set(e, "%s: the tokenizer has %lld tokens, the embedding %lld rows", model_file_path(m->file),
                   (long long)tokens, (long long)m->shape.vocab);
}

/* By the first bytes. A file that cannot be read is for the reader of language models to complain about. */
static bool is_net(const char *path) {
    uint8_t head[16];
    struct stat s;
    if (stat(path, &s) || !S_ISREG(s.st_mode)) return false; /* opening others may wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, head, sizeof head);
    close(fd);
    return n > 0 && onnx_is_file(head, (size_t)n);
}

static int open_model(SheafModel *m, const char *path, QType act, Err *e) {
    if (is_net(path)) return net_model_open(m, path, e);
    if (model_file_open(path, &m->file, e) || arch_build(m->file, &m->graph, &m->shape, e) ||
        passes_run(&m->graph, act, e) || make_tokenizer(m, e))
        return -1;
    return model_file_sample(m->file, &m->content, e) || model_describe(m, e) ? -1 : 0;
}

int sheaf_model_open(SheafRuntime *rt, const char *path, SheafModel **out, SheafErr *err) {
    Err *e = err_of(err), mine = {""};
    *out = NULL;
    SheafModel *m = calloc(1, sizeof *m);
    bool failed = !m || open_model(m, path, rt->activations, &mine) != 0;
    if (!m) err_set(&mine, "out of memory");
    else m->rt = rt;
    if (comm_agree(rt->comm, failed, &mine, e) || comm_same(rt->comm, m->info.file_bytes, "the model file's size", e) ||
        comm_same(rt->comm, m->content, "the model file's content", e)) {
        sheaf_model_close(m);
        return -1;
    }
    *out = m;
    return 0;
}

int sheaf_model_check(SheafModel *m, const char *how, void (*progress)(void *arg, uint64_t done, uint64_t total),
                      void *arg, SheafErr *err) {
    Comm *comm = m->rt->comm;
    const FileCheck c = {.how = how,
                         .share = (size_t)comm_local_rank(comm), /* each host may have files of its own */
                         .shares = (size_t)comm_local_size(comm),
                         .progress = progress,
                         .arg = arg};
    Err mine = {""};
    bool failed = file_check(m->file, &c, m->rt->pool, &mine) != 0;
    return comm_agree(comm, failed, &mine, err_of(err));
}

void sheaf_model_close(SheafModel *m) {
    if (!m) return;
    tokenizer_free(m->tokenizer);
    graph_free(&m->graph);
    model_file_close(m->file);
    net_model_close(m);
    free(m->strings);
    free(m);
}

const SheafModelInfo *sheaf_model_info(const SheafModel *m) { return &m->info; }

/* The text of a metadata key, copied behind the others; "" when it is missing. */
static const char *copy_text(SheafModel *m, const char *key, char **at) {
    Text s = {"", 0};
    Err ignored;
    if (meta_get_string(m->file, key, false, &s, &ignored)) s = (Text){"", 0};
    char *text = *at;
    memcpy(text, s.data, s.size);
    text[s.size] = 0;
    *at += s.size + 1;
    return text;
}

/* Bytes of a whole tensor as it lies in memory: vectors in fp32, matrices packed. */
static uint64_t memory_bytes(const FileTensor *t) {
    if (t->type < 0) return t->bytes;
    if (t->n_dims == 1) return t->dims[0] * sizeof(float);
    return (uint64_t)(packed_growth((QType)t->type) * (double)t->bytes + 0.5);
}

static void count_types(SheafModel *m) {
    SheafModelInfo *info = &m->info;
    int room = (int)(sizeof info->types / sizeof *info->types);
    for (size_t i = 0; i < file_n_tensors(m->file); i++) {
        const FileTensor *t = file_tensor_at(m->file, i);
        const char *name = t->type < 0 ? "other" : qtype_info((QType)t->type)->name;
        int k = 0;
        while (k < info->n_types && strcmp(info->types[k].type, name)) k++;
        if (k == room) continue;
        if (k == info->n_types) info->types[info->n_types++] = (SheafTypeCount){.type = name};
        info->types[k].tensors++;
        info->types[k].bytes += t->bytes;
        info->types[k].memory_bytes += memory_bytes(t);
        info->weight_bytes += t->bytes;
        info->memory_bytes += memory_bytes(t);
        uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        bool experts = info->experts && t->n_dims == 3;
        info->parameters += n;
        info->active_parameters += experts ? n / (uint64_t)info->experts * (uint64_t)info->experts_used : n;
    }
}

/* Keys and values in fp16, by the layers that keep all of them and those that keep a window. */
static void describe_cache(SheafModel *m) {
    SheafModelInfo *info = &m->info;
    for (ValueId v = 0; v < m->graph.n_values; v++) {
        const Value *state = &m->graph.value[v];
        if (state->kind != VALUE_STATE || state->window == WINDOW_WHOLE) continue; /* an encoder keeps none */
        uint64_t bytes = (uint64_t)state->dim[0].size * 2 * 2;
        *(state->window ? &info->kv_window_bytes_per_token : &info->kv_bytes_per_token) += bytes;
        info->window = i64_max(info->window, state->window);
    }
}

static const char *const pooling_names[N_POOLINGS] = {"", "mean", "cls", "last", "rank"};

int model_describe(SheafModel *m, Err *e) {
    static const char *const keys[] = {"general.architecture",   "general.name",         "general.license",
                                       "general.size_label",     "tokenizer.ggml.model", "tokenizer.ggml.pre",
                                       "tokenizer.chat_template"};
    enum { N_KEYS = sizeof keys / sizeof *keys };
    SheafModelInfo *info = &m->info;
    size_t room = 0;
    for (size_t i = 0; i < N_KEYS; i++) {
        const MetaValue *v = meta_find(m->file, keys[i]);
        room += (v && v->type == META_STRING ? v->v.s.size : 0) + 1;
    }
    char *at = m->strings = malloc(room);
    if (!at) return err_set(e, "out of memory");
    info->format = model_file_format(m->file);
    const char **text[N_KEYS] = {&info->architecture, &info->name,          &info->license,      &info->size_label,
                                 &info->tokenizer,    &info->pre_tokenizer, &info->chat_template};
    for (size_t i = 0; i < N_KEYS; i++) *text[i] = copy_text(m, keys[i], &at);
    if (!*info->tokenizer && meta_find(m->file, "tokenizer.huggingface.json")) info->tokenizer = "tokenizer.json";
    const LmShape *s = &m->shape;
    info->file_bytes = model_file_bytes(m->file);
    info->layers = s->layers;
    info->width = s->width;
    info->ffn_width = s->ffn;
    info->experts = s->mix.experts;
    info->experts_used = s->mix.used;
    info->expert_width = s->expert_ffn;
    info->shared_width = s->shared_ffn;
    info->heads = s->heads;
    info->kv_heads = s->kv_heads;
    info->head_dim = s->head_dim;
    info->vocabulary = s->vocab;
    info->context = s->context;
    info->rope_base = s->rope_base;
    info->encoder = s->encoder;
    info->pooling = pooling_names[s->pooling];
    info->tensors = (int64_t)file_n_tensors(m->file);
    describe_cache(m);
    count_types(m);
    return 0;
}

int sheaf_tokenize(const SheafModel *m, const char *text, size_t bytes, bool bos, bool special, int32_t **ids,
                   size_t *n, SheafErr *err) {
    *ids = NULL;
    *n = 0;
    if (m->onnx) return err_set(err_of(err), "%s is a net: it takes arrays, no text", onnx_path(m->onnx));
    return tokenizer_encode(m->tokenizer, text, bytes, bos, special, ids, n, err_of(err));
}

size_t sheaf_token_bytes(const SheafModel *m, int32_t id, bool special, char *buf, size_t cap) {
    return tokenizer_bytes(m->tokenizer, id, special, buf, cap);
}

bool sheaf_token_ends(const SheafModel *m, int32_t id) { return tokenizer_ends(m->tokenizer, id); }
int32_t sheaf_token_bos(const SheafModel *m) { return tokenizer_bos(m->tokenizer); }

/* ---- plans
 * ----------------------------------------------------------------------------------------------------------*/

typedef struct PlanWithAdvice {
    SheafPlan plan;
    char advice[256], machine[160];
} PlanWithAdvice;

/* The average rank's work over the busiest one's: 1 is perfect balance. */
static double balance(const Plan *p, uint64_t *busiest, int *idle) {
    uint64_t sum = 0;
    *busiest = 0;
    *idle = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        PlanRankCost c = plan_rank_cost(p, r);
        sum += c.macs_per_token;
        if (c.macs_per_token > *busiest) *busiest = c.macs_per_token;
        *idle += c.heads == 0;
    }
    return *busiest ? (double)sum / ((double)*busiest * p->n_ranks) : 1;
}

static void advise(const SheafModel *m, const Plan *p, char *text, size_t size) {
    uint64_t busiest, other;
    int idle, ignored;
    double even = balance(p, &busiest, &idle);
    if (even >= 0.9 && !idle) return;
    int n = snprintf(text, size, "%d ranks: the busiest has %.2f times the average work", p->n_ranks, 1 / even);
    if (idle) n += snprintf(text + n, size - (size_t)n, ", %d without attention heads", idle);
    for (int r = p->n_ranks - 1; r > 0 && r >= p->n_ranks - 8; r--) {
        Plan *q;
        if (plan_make(&m->graph, &(PlanOptions){.n_ranks = r}, &q, NULL)) return;
        double e = balance(q, &other, &ignored);
        plan_free(q);
        if (e < 0.9 || ignored) continue;
        snprintf(text + n, size - (size_t)n, "; %d ranks would be balanced (busiest %.2f times the average)", r, 1 / e);
        return;
    }
}

int sheaf_plan(const SheafModel *m, int ranks, int64_t n_ctx, SheafPlan **out, SheafErr *err) {
    Err *e = err_of(err);
    *out = NULL;
    if (m->onnx) return err_set(e, "%s: plans of nets are not shown yet", onnx_path(m->onnx));
    if (ranks < 1 || ranks > 4096) return err_set(e, "a plan for %d ranks: 1 to 4096 are possible", ranks);
    if (n_ctx < 1) return err_set(e, "a context of %lld tokens: at least 1 is needed", (long long)n_ctx);
    Plan *p;
    if (plan_make(&m->graph, &(PlanOptions){.n_ranks = ranks}, &p, e)) return -1;
    PlanWithAdvice *a = calloc(1, sizeof *a);
    SheafPlanRank *rank = calloc((size_t)ranks, sizeof *rank);
    if (!a || !rank) {
        free(a);
        free(rank);
        plan_free(p);
        return err_set(e, "out of memory");
    }
    ExecOptions o = {.max_tokens = 512, .max_outputs = 1, .top = SHEAF_TOP};
    PlanWire w = plan_wire(p);
    a->plan = (SheafPlan){.ranks = ranks,
                          .hash = p->hash,
                          .rank = rank,
                          .wire_bytes_per_token = w.bytes_per_token,
                          .collectives_per_step = w.collectives,
                          .advice = a->advice,
                          .machine = a->machine};
    int status = kv_pools(&p->graph, 1, n_ctx, o.max_tokens, &o, e);
    for (int r = 0; r < ranks && !status; r++) {
        PlanRankCost c = plan_rank_cost(p, r);
        rank[r] = (SheafPlanRank){.heads = c.heads,
                                  .kv_heads = c.kv_heads,
                                  .ffn_rows = c.ffn_rows,
                                  .experts = c.experts,
                                  .vocab_rows = c.vocab_rows,
                                  .weight_bytes = c.weight_bytes};
        a->plan.weight_bytes_total += c.weight_bytes;
        status = exec_plan_bytes(p, r, &o, &rank[r].activation_bytes, &rank[r].kv_bytes, e);
    }
    if (!status) status = placement_plan(ranks, rank, a->machine, sizeof a->machine, e);
    if (!status) advise(m, p, a->advice, sizeof a->advice);
    plan_free(p);
    *out = &a->plan;
    if (status) {
        sheaf_plan_free(&a->plan);
        *out = NULL;
    }
    return status;
}

void sheaf_plan_free(SheafPlan *p) {
    if (!p) return;
    free(p->rank);
    free(p); /* the first member of PlanWithAdvice */
}
