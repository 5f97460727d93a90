/* A session: weights in memory, compiled steps, sequences in the KV cache. Rank 0 describes each step in one message;
 * all ranks then do the same with it, so that block tables and lengths are the same everywhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "engine/kv.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_BATCH = 512 };
typedef enum Command { COMMAND_STEP, COMMAND_TRUNCATE, COMMAND_END } Command;

/* The message that starts a step; for COMMAND_STEP n_tokens SheafTokens follow. */
typedef struct Descriptor {
    int32_t command, n_tokens, n_outputs, top, want_logits, seq;
    int64_t pos;
} Descriptor;

struct SheafSession {
    SheafModel *m;
    SheafRuntime *rt;
    Plan *plan;
    Weights weights;
    Exec *exec;
    KvCache kv;
    SheafSessionOptions o;
    SheafSessionInfo info;
    SheafToken *tokens;                        /* [max_batch] as received */
    ExecSpan *spans;                           /* [max_batch] */
    int32_t *ids, *positions, *rows, *targets; /* the executor's inputs */
    int32_t *begin, *end;                      /* in place of rows and targets, those of an encoder */
    /* results of all ranks, one after the other */
    size_t *gather_bytes; /* [ranks] */
    uint8_t *mine, *gathered;
    int *taken;        /* [ranks] candidates taken from each, while rows are merged */
    float *all_logits; /* with o.logits: [ranks' parts][max_outputs] */
    bool broken;       /* a step failed: the ranks no longer agree */
};

/* ---- opening
 * --------------------------------------------------------------------------------------------------------*/

static int check_options(const SheafModel *m, SheafSessionOptions *o, Err *e) {
    if (o->n_ctx == 0) o->n_ctx = i64_min(DEFAULT_CONTEXT, m->shape.context);
    if (o->n_seqs == 0) o->n_seqs = 1;
    if (o->max_batch == 0) o->max_batch = DEFAULT_BATCH;
    if (o->max_outputs == 0) o->max_outputs = o->n_seqs;
    if (o->n_ctx < 1 || o->n_ctx > INT32_MAX)
        return err_set(e, "context of %lld tokens: 1 to %d are possible", (long long)o->n_ctx, INT32_MAX);
    if (m->shape.encoder && o->n_ctx > m->shape.context)
        return err_set(e, "context of %lld tokens: the model has positions for %lld", (long long)o->n_ctx,
                       (long long)m->shape.context);
    if (m->shape.encoder && o->logits) return err_set(e, "an encoder has no logits");
    if (o->n_seqs < 1 || o->n_seqs > 1 << 16)
        return err_set(e, "%lld sequences: 1 to 65536 are possible", (long long)o->n_seqs);
    if (o->max_batch < 1 || o->max_batch > 1 << 20)
        return err_set(e, "steps of %lld tokens: 1 to 1048576 are possible", (long long)o->max_batch);
    if (o->max_outputs < 1 || o->max_outputs > o->max_batch)
        o->max_outputs = i64_max(1, i64_min(o->max_outputs, o->max_batch));
    return 0;
}

/* Bytes of one rank's results: a RowStats and `top` candidates for each row. */
static size_t result_bytes(int64_t rows, int top) {
    return (size_t)rows * (sizeof(RowStats) + (size_t)top * sizeof(Candidate));
}

static int make_memory(SheafSession *s, Err *e) {
    size_t batch = (size_t)s->o.max_batch, ranks = (size_t)s->plan->n_ranks, outputs = (size_t)s->o.max_outputs;
    s->tokens = calloc(batch, sizeof *s->tokens);
    s->spans = calloc(batch, sizeof *s->spans);
    s->gather_bytes = calloc(ranks, sizeof *s->gather_bytes);
    s->mine = malloc(result_bytes(s->o.max_outputs, SHEAF_TOP));
    s->gathered = malloc(ranks * result_bytes(s->o.max_outputs, SHEAF_TOP));
    s->taken = malloc(ranks * sizeof *s->taken);
    bool ok = s->tokens && s->spans && s->gather_bytes && s->mine && s->gathered && s->taken;
    if (s->o.logits && ok) ok = (s->all_logits = malloc(outputs * (size_t)s->m->shape.vocab * sizeof(float))) != NULL;
    if (!ok) return err_set(e, "out of memory for steps of %zu tokens with %zu results", batch, outputs);
    s->ids = exec_input(s->exec, "ids");
    s->positions = exec_input(s->exec, "positions");
    s->rows = exec_input(s->exec, "rows");
    s->targets = exec_input(s->exec, "targets");
    s->begin = exec_input(s->exec, "begin");
    s->end = exec_input(s->exec, "end");
    int32_t *types = exec_input(s->exec, "types");
    if (types) memset(types, 0, batch * sizeof *types); /* one text, not a pair of them */
    return 0;
}

static int open_local(SheafSession *s, Err *e) {
    SheafRuntime *rt = s->rt;
    int rank = comm_rank(rt->comm);
    LoadProgress *progress = rank == 0 ? s->o.progress : NULL;
    if (weights_load(s->plan, rank, s->m->file, rt->pool, progress, s->o.progress_arg, &s->weights, e)) return -1;
    ExecOptions x = {
        .max_tokens = s->o.max_batch, .max_outputs = s->o.max_outputs, .context = s->o.n_ctx, .top = SHEAF_TOP};
    if (kv_pools(&s->plan->graph, s->o.n_seqs, s->o.n_ctx, s->o.max_batch, &x, e)) return -1;
    if (kv_create(&s->kv, &x, s->o.n_seqs, s->o.n_ctx, e)) return -1;
    if (exec_create(s->plan, rank, &s->weights, rt->k, rt->pool, rt->comm, &x, &s->exec, e)) return -1;
    return make_memory(s, e);
}

static int fill_info(SheafSession *s, uint64_t began, Err *e) {
    Comm *c = s->rt->comm;
    int n = comm_size(c);
    uint64_t *all = calloc((size_t)n, sizeof *all);
    size_t *bytes = calloc((size_t)n, sizeof *bytes);
    int status = comm_agree(c, !all || !bytes, &(Err){"out of memory"}, e);
    for (int i = 0; !status && i < n; i++) bytes[i] = sizeof *all;
    uint64_t resident = arena_resident(&s->weights.arena);
    if (!status) status = comm_allgather(c, &resident, bytes, all, e);
    s->info = (SheafSessionInfo){.weight_bytes = s->weights.bytes,
                                 .weight_bytes_resident = resident,
                                 .kv_bytes = exec_state_bytes(s->exec),
                                 .activation_bytes = exec_activation_bytes(s->exec),
                                 .plan_hash = s->plan->hash,
                                 .n_ctx = s->o.n_ctx,
                                 .max_batch = s->o.max_batch,
                                 .n_seqs = s->o.n_seqs};
    for (int i = 0; !status && i < n; i++) s->info.weight_bytes_all_ranks += all[i];
    s->info.load_s = 1e-9 * (double)(trace_now() - began);
    free(all);
    free(bytes);
    return status;
}

static void session_free(SheafSession *s) {
    exec_free(s->exec);
    weights_free(&s->weights);
    kv_free(&s->kv);
    plan_free(s->plan);
    free(s->tokens);
    free(s->spans);
    free(s->gather_bytes);
    free(s->mine);
    free(s->gathered);
    free(s->taken);
    free(s->all_logits);
    free(s);
}

int sheaf_session_open(SheafModel *m, const SheafSessionOptions *o, SheafSession **out, SheafErr *err) {
    Err *e = err_of(err), mine = {""};
    Comm *c = m->rt->comm;
    uint64_t began = trace_now();
    *out = NULL;
    if (m->onnx) return err_set(e, "%s is a net: it has no sessions", onnx_path(m->onnx));
    SheafSession *s = calloc(1, sizeof *s);
    if (comm_agree(c, !s, &(Err){"out of memory"}, e)) {
        free(s);
        return -1;
    }
    s->m = m;
    s->rt = m->rt;
    s->o = *o;
    bool failed = check_options(m, &s->o, &mine) ||
                  plan_make(&m->graph, &(PlanOptions){.n_ranks = comm_size(c)}, &s->plan, &mine);
    int status = comm_agree(c, failed, &mine, e);
    if (!status) status = comm_same(c, s->plan->hash, "the plan (is it the same model file on all hosts?)", e);
    if (!status) {
        failed = open_local(s, &mine) != 0;
        status = comm_agree(c, failed, &mine, e);
    }
    if (!status) status = fill_info(s, began, e);
    if (status) {
        session_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

const SheafSessionInfo *sheaf_session_info(const SheafSession *s) { return &s->info; }

/* ---- a step, on every rank
 * ------------------------------------------------------------------------------------------*/

/* The executor's inputs and spans from the tokens of the step. */
static int prepare(SheafSession *s, const Descriptor *d, ExecStep *step, Err *e) {
    size_t spans = 0;
    int32_t outputs = 0;
    kv_make_room(&s->kv, s->tokens, (size_t)d->n_tokens);
    bool encoder = s->m->shape.encoder;
    for (int32_t i = 0; i < d->n_tokens; i++) {
        const SheafToken *t = &s->tokens[i];
        if (kv_append(&s->kv, t->seq, t->pos, e)) return -1;
        s->ids[i] = t->id;
        s->positions[i] = t->pos;
        bool follows = i > 0 && s->tokens[i - 1].seq == t->seq && s->tokens[i - 1].pos + 1 == t->pos;
        if (t->output && encoder) {
            if (!follows || !s->tokens[i - 1].output) s->begin[outputs++] = i;
            s->end[outputs - 1] = i + 1;
        } else if (t->output) {
            s->rows[outputs] = i;
            s->targets[outputs++] = t->target;
        }
        if (follows && s->spans[spans - 1].n_rows < ATTN_ROWS) {
            s->spans[spans - 1].n_rows++;
            continue;
        }
        ExecSpan *span = &s->spans[spans++];
        *span = (ExecSpan){.row0 = i, .n_rows = 1, .pos0 = t->pos};
        for (int k = 0; k < s->kv.n_pools; k++) span->table[k] = kv_table(&s->kv, k, t->seq);
    }
    for (size_t i = 0; i < spans; i++) s->spans[i].end = kv_length(&s->kv, s->tokens[s->spans[i].row0].seq);
    *step = (ExecStep){
        .n_tokens = d->n_tokens, .n_outputs = d->n_outputs, .span = s->spans, .n_spans = spans, .top = d->top};
    return 0;
}

/* Every rank's RowStats and candidates, in rank order, in s->gathered. */
static int gather_results(SheafSession *s, const Descriptor *d, Err *e) {
    size_t rows = (size_t)d->n_outputs, top = (size_t)d->top, bytes = result_bytes(d->n_outputs, d->top);
    memcpy(s->mine, exec_output(s->exec, 0), rows * sizeof(RowStats));
    uint8_t *at = s->mine + rows * sizeof(RowStats);
    for (size_t r = 0; r < rows; r++, at += top * sizeof(Candidate))
        memcpy(at, exec_candidates(s->exec, (int64_t)r), top * sizeof(Candidate));
    for (int i = 0; i < s->plan->n_ranks; i++) s->gather_bytes[i] = bytes;
    return comm_allgather(s->rt->comm, s->mine, s->gather_bytes, s->gathered, e);
}

/* Whole rows of logits: the ranks' parts, each [rows][part], follow each other in rank order in s->all_logits. */
static int gather_logits(SheafSession *s, const Descriptor *d, Err *e) {
    const Plan *p = s->plan;
    ValueId logits = p->graph.op[p->graph.value[p->graph.output[0]].producer].in[0];
    size_t before = 0;
    for (int i = 0; i < p->n_ranks; i++) {
        s->gather_bytes[i] = (size_t)(d->n_outputs * plan_local_size(p, logits, AXIS_LAST, i)) * sizeof(float);
        if (i < comm_rank(s->rt->comm)) before += s->gather_bytes[i];
    }
    int64_t first, n;
    const float *mine = exec_logits(s->exec, 0, &first, &n);
    return comm_allgather(s->rt->comm, mine, s->gather_bytes, s->all_logits, e);
}

/* What all ranks do with a descriptor and its tokens. */
static int execute(SheafSession *s, const Descriptor *d, Err *e) {
    ExecStep step;
    if (prepare(s, d, &step, e) || exec_run(s->exec, &step, e)) return -1;
    if (s->m->shape.encoder) { /* every rank has the result; nothing is kept for another step */
        for (int32_t i = 0; i < d->n_tokens; i++) kv_truncate(&s->kv, s->tokens[i].seq, 0);
        return 0;
    }
    if (d->n_outputs && gather_results(s, d, e)) return -1;
    return d->want_logits && d->n_outputs ? gather_logits(s, d, e) : 0;
}

/* The ranks are no longer at the same place: among several nothing can be agreed any more. */
static int step_failed(SheafSession *s, const Err *e) {
    if (comm_size(s->rt->comm) > 1) comm_fail(s->rt->comm, e);
    s->broken = true;
    return -1;
}

int sheaf_follow(SheafSession *s, SheafErr *err) {
    Err own = {""}, *e = err ? err_of(err) : &own;
    Comm *c = s->rt->comm;
    for (;;) {
        Descriptor d;
        if (comm_broadcast(c, &d, sizeof d, e)) return step_failed(s, e);
        if (d.command == COMMAND_END) return 0;
        if (d.command == COMMAND_TRUNCATE) {
            kv_truncate(&s->kv, d.seq, d.pos);
            continue;
        }
        if (comm_broadcast(c, s->tokens, (size_t)d.n_tokens * sizeof *s->tokens, e) || execute(s, &d, e))
            return step_failed(s, e);
    }
}

/* ---- rank 0
 * ---------------------------------------------------------------------------------------------------------*/

static int check_step(const SheafSession *s, const SheafToken *tokens, size_t n, Descriptor *d, Err *e) {
    if (s->m->shape.encoder) return err_set(e, "the model is an encoder: it makes embeddings, not logits");
    if (s->broken) return err_set(e, "an earlier step failed: the session can only be closed");
    if (n < 1 || n > (size_t)s->o.max_batch)
        return err_set(e, "a step of %zu tokens: 1 to %lld are possible", n, (long long)s->o.max_batch);
    *d = (Descriptor){.command = COMMAND_STEP, .n_tokens = (int32_t)n, .top = 1};
    for (size_t i = 0; i < n; i++) {
        const SheafToken *t = &tokens[i];
        if (t->id < 0 || t->id >= s->m->shape.vocab)
            return err_set(e, "token id %d is not in the vocabulary of %lld", t->id, (long long)s->m->shape.vocab);
        if (t->seq < 0 || t->seq >= s->o.n_seqs)
            return err_set(e, "sequence %d: 0 to %lld are possible", t->seq, (long long)s->o.n_seqs - 1);
        if (t->pos < 0 || t->pos >= s->o.n_ctx)
            return err_set(e, "position %d is outside the context of %lld tokens", t->pos, (long long)s->o.n_ctx);
        if (t->target < -1 || t->target >= s->m->shape.vocab)
            return err_set(e, "target id %d is not in the vocabulary", t->target);
        d->n_outputs += t->output;
        if (t->output && t->target < 0) d->top = SHEAF_TOP;
    }
    if (d->n_outputs > s->o.max_outputs)
        return err_set(e, "%d results in a step: at most %lld are possible", d->n_outputs, (long long)s->o.max_outputs);
    return kv_check(&s->kv, tokens, n, e);
}

/* The ranks' results for row r joined: log-sum-exp over the parts in rank order, best candidates by value, then id. */
static void merge_row(const SheafSession *s, const Descriptor *d, int64_t r, SheafResult *out) {
    size_t bytes = result_bytes(d->n_outputs, d->top), rows = (size_t)d->n_outputs;
    int n = s->plan->n_ranks;
    double max = -INFINITY, sum = 0;
    *out = (SheafResult){.target_logit = NAN};
    int *next = s->taken;
    memset(next, 0, (size_t)n * sizeof *next);
    for (int i = 0; i < n; i++) {
        const RowStats *st = (const RowStats *)(const void *)(s->gathered + (size_t)i * bytes) + r;
        if (st->max > max || isnan(st->max)) max = st->max;
        if (!isnan(st->target)) out->target_logit = st->target;
    }
    for (int i = 0; i < n; i++) {
        const RowStats *st = (const RowStats *)(const void *)(s->gathered + (size_t)i * bytes) + r;
        if (st->sum > 0 || isnan(st->sum)) sum += (double)st->sum * exp((double)st->max - max);
    }
    out->logsumexp = max + log(sum);
    for (; out->n_top < d->top; out->n_top++) {
        const Candidate *best = NULL;
        int from = -1;
        for (int i = 0; i < n; i++) {
            const uint8_t *part = s->gathered + (size_t)i * bytes;
            const RowStats *st = (const RowStats *)(const void *)part + r;
            const Candidate *c =
                (const Candidate *)(const void *)(part + rows * sizeof(RowStats)) + r * d->top + next[i];
            if (next[i] < st->n_top && (!best || c->logit > best->logit)) {
                best = c;
                from = i;
            }
        }
        if (!best) break;
        out->id[out->n_top] = best->id;
        out->logit[out->n_top] = best->logit;
        next[from]++;
    }
}

/* From parts [rank][rows][part] to rows of the whole vocabulary. */
static void merge_logits(const SheafSession *s, const Descriptor *d, float *out) {
    const Plan *p = s->plan;
    ValueId logits = p->graph.op[p->graph.value[p->graph.output[0]].producer].in[0];
    const float *part = s->all_logits;
    for (int i = 0; i < p->n_ranks; i++) {
        Range range[SHARD_PARTS];
        plan_local_ranges(p, logits, AXIS_LAST, i, range);
        int64_t n = plan_local_size(p, logits, AXIS_LAST, i);
        for (int64_t r = 0; r < d->n_outputs; r++, part += n)
            memcpy(out + r * s->m->shape.vocab + range[0].begin, part, (size_t)n * sizeof *part);
    }
}

int sheaf_step(SheafSession *s, const SheafToken *tokens, size_t n, SheafResult *results, float *logits,
               SheafErr *err) {
    Err own = {""}, *e = err ? err_of(err) : &own;
    Descriptor d;
    if (check_step(s, tokens, n, &d, e)) return -1;
    d.want_logits = logits != NULL;
    if (logits && !s->o.logits) return err_set(e, "the session was not opened for whole logits");
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    Comm *c = s->rt->comm;
    if (comm_broadcast(c, &d, sizeof d, e) || comm_broadcast(c, s->tokens, n * sizeof *tokens, e) || execute(s, &d, e))
        return step_failed(s, e);
    for (int64_t r = 0; r < d.n_outputs; r++) merge_row(s, &d, r, &results[r]);
    if (logits) merge_logits(s, &d, logits);
    return 0;
}

/* Which rows of a sequence of n tokens its embedding is the mean of: [*first, *last]. */
static int pool_rows(const SheafModel *m, const char *name, int64_t n, int64_t *first, int64_t *last, Err *e) {
    if (!name || !*name) name = m->info.pooling;
    *first = 0;
    *last = n - 1;
    if (!strcmp(name, "mean")) return 0;
    if (!strcmp(name, "cls")) *last = 0;
    else if (!strcmp(name, "last")) *first = *last;
    else if (*name) return err_set(e, "pooling \"%s\" is not known (mean, cls, last)", name);
    else
        return err_set(e,
                       "the model does not say how its tokens become one vector: choose a pooling (mean, cls, last)");
    return 0;
}

/* The sequences as the tokens of a step, in s->tokens. */
static int take_sequences(SheafSession *s, const SheafSequence *seqs, size_t n, const char *pooling, Descriptor *d,
                          Err *e) {
    if (!s->m->shape.encoder) return err_set(e, "the model is no encoder: it makes text, not embeddings");
    if (s->broken) return err_set(e, "an earlier step failed: the session can only be closed");
    int64_t most = i64_min(s->o.max_outputs, s->o.n_seqs), total = 0;
    if (n < 1 || n > (size_t)most) return err_set(e, "%zu sequences: 1 to %lld are possible", n, (long long)most);
    for (size_t i = 0; i < n; i++) {
        int64_t first, last;
        if (seqs[i].n < 1 || seqs[i].n > s->o.n_ctx)
            return err_set(e, "a sequence of %lld tokens: 1 to %lld are possible", (long long)seqs[i].n,
                           (long long)s->o.n_ctx);
        if (seqs[i].n > s->o.max_batch - total)
            return err_set(e, "sequences of more than %lld tokens in all", (long long)s->o.max_batch);
        if (pool_rows(s->m, pooling, seqs[i].n, &first, &last, e)) return -1;
        for (int64_t k = 0; k < seqs[i].n; k++) {
            int32_t id = seqs[i].ids[k];
            if (id < 0 || id >= s->m->shape.vocab)
                return err_set(e, "token id %d is not in the vocabulary of %lld", id, (long long)s->m->shape.vocab);
            s->tokens[total++] = (SheafToken){
                .id = id, .seq = (int32_t)i, .pos = (int32_t)k, .target = -1, .output = k >= first && k <= last};
        }
    }
    *d = (Descriptor){.command = COMMAND_STEP, .n_tokens = (int32_t)total, .n_outputs = (int32_t)n};
    return 0;
}

static int finish_embedding(float *x, int64_t width, bool normalize, Err *e) {
    double squares = 0;
    for (int64_t i = 0; i < width; i++) squares += (double)x[i] * (double)x[i];
    if (!isfinite(squares)) return err_set(e, "an embedding is not finite: the file's weights may be damaged");
    for (int64_t i = 0; normalize && squares > 0 && i < width; i++) x[i] = (float)((double)x[i] / sqrt(squares));
    return 0;
}

int sheaf_embed(SheafSession *s, const SheafSequence *seqs, size_t n, const SheafEmbedOptions *o, float *out,
                SheafErr *err) {
    Err *e = err_of(err);
    Descriptor d;
    Comm *c = s->rt->comm;
    int64_t width = s->m->shape.width;
    if (take_sequences(s, seqs, n, o->pooling, &d, e)) return -1;
    if (comm_broadcast(c, &d, sizeof d, e) || comm_broadcast(c, s->tokens, (size_t)d.n_tokens * sizeof *s->tokens, e) ||
        execute(s, &d, e)) {
        s->broken = true;
        return -1;
    }
    memcpy(out, exec_output(s->exec, 0), n * (size_t)width * sizeof *out);
    for (size_t i = 0; i < n; i++)
        if (finish_embedding(out + (int64_t)i * width, width, o->normalize, e)) return -1;
    return 0;
}

int sheaf_seq_truncate(SheafSession *s, int32_t seq, int64_t pos, SheafErr *err) {
    Err *e = err_of(err);
    if (seq < 0 || seq >= s->o.n_seqs)
        return err_set(e, "sequence %d: 0 to %lld are possible", seq, (long long)s->o.n_seqs - 1);
    if (pos < 0 || pos > kv_length(&s->kv, seq))
        return err_set(e, "sequence %d has %lld positions, not %lld", seq, (long long)kv_length(&s->kv, seq),
                       (long long)pos);
    if (pos > 0 && pos < kv_earliest(&s->kv, seq))
        return err_set(e,
                       "sequence %d cannot be cut at %lld: layers with a sliding window have dropped what it would see "
                       "(possible: 0, and from %lld on)",
                       seq, (long long)pos, (long long)kv_earliest(&s->kv, seq));
    Descriptor d = {.command = COMMAND_TRUNCATE, .seq = seq, .pos = pos};
    if (comm_broadcast(s->rt->comm, &d, sizeof d, e)) return step_failed(s, e);
    kv_truncate(&s->kv, seq, pos);
    return 0;
}

int64_t sheaf_seq_earliest(const SheafSession *s, int32_t seq) {
    return seq < 0 || seq >= s->o.n_seqs ? 0 : kv_earliest(&s->kv, seq);
}

void sheaf_session_close(SheafSession *s) {
    if (!s) return;
    Descriptor d = {.command = COMMAND_END};
    if (comm_rank(s->rt->comm) == 0 && !s->broken) comm_broadcast(s->rt->comm, &d, sizeof d, NULL);
    session_free(s);
}
