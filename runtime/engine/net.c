/* A net at work: for each set of input shapes a graph, plan, weights and steps of their own, the last few of which are
 * kept. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "graph/passes.h"

enum { KEPT = 4 };

/* What ran once. */
typedef struct Compiled {
    Nd *in;         /* [inputs] shapes; data: contents that the graph was made for, owned, else NULL */
    bool *by_value; /* [inputs] */
    Graph graph;
    Plan *plan;
    Weights weights;
    Exec *exec;
    uint64_t last_use; /* 0: empty */
} Compiled;

struct SheafNet {
    SheafModel *m;
    SheafNetOptions o;
    int n_in, n_out;
    Compiled kept[KEPT];
    Compiled *now;
    uint64_t uses;
    SheafNetInfo info;
    uint8_t *shared; /* with shards: rank 0's arrays, one after the other */
    size_t shared_room;
};

int sheaf_net_open(SheafModel *m, const SheafNetOptions *o, SheafNet **out, SheafErr *err) {
    Err *e = err_of(err), mine = {""};
    *out = NULL;
    SheafNet *n = m->onnx ? calloc(1, sizeof *n) : NULL;
    if (!m->onnx) err_set(&mine, "a language model has no arrays in and out");
    else if (!n) err_set(&mine, "out of memory");
    if (comm_agree(m->rt->comm, !n, &mine, e)) {
        free(n);
        return -1;
    }
    *n = (SheafNet){.m = m, .o = *o, .n_in = onnx_n_inputs(m->onnx), .n_out = onnx_n_outputs(m->onnx)};
    *out = n;
    return 0;
}

static void compiled_free(Compiled *c, int n_in) {
    exec_free(c->exec);
    weights_free(&c->weights);
    plan_free(c->plan);
    graph_free(&c->graph);
    for (int i = 0; c->in && i < n_in; i++) free(c->in[i].data);
    free(c->in);
    free(c->by_value);
    *c = (Compiled){0};
}

void sheaf_net_close(SheafNet *n) {
    if (!n) return;
    for (int i = 0; i < KEPT; i++) compiled_free(&n->kept[i], n->n_in);
    free(n->shared);
    free(n);
}

SheafNetInfo sheaf_net_info(const SheafNet *n) { return n->info; }

int sheaf_gather(SheafRuntime *rt, const void *mine, const size_t *bytes, void *all, SheafErr *err) {
    return comm_allgather(rt->comm, mine, bytes, all, err_of(err));
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static size_t nd_bytes(const Nd *x) { return (size_t)nd_count(x) * nd_size(x->type); }

/* Shapes, and the contents that shapes depend on. */
static int remember(Compiled *c, const Nd *in, int n_in, Err *e) {
    for (int i = 0; i < n_in; i++) {
        c->in[i] = in[i];
        c->in[i].data = NULL;
    }
    for (int i = 0; i < n_in; i++) {
        if (!c->by_value[i]) continue;
        if (!(c->in[i].data = malloc(nd_bytes(&in[i]) + 1))) return err_set(e, "out of memory");
        memcpy(c->in[i].data, in[i].data, nd_bytes(&in[i]));
    }
    return 0;
}

static int compile(SheafNet *n, Compiled *c, const Nd *in, Err *e) {
    SheafRuntime *rt = n->m->rt;
    c->in = calloc((size_t)n->n_in + 1, sizeof *c->in);
    c->by_value = calloc((size_t)n->n_in + 1, sizeof *c->by_value);
    if (!c->in || !c->by_value) return err_set(e, "out of memory");
    if (onnx_build(n->m->onnx, in, c->by_value, &c->graph, e) || remember(c, in, n->n_in, e)) return -1;
    if (passes_run(&c->graph, rt->activations, e)) return -1;
    int ranks = n->o.shards ? comm_size(rt->comm) : 1, rank = n->o.shards ? comm_rank(rt->comm) : 0;
    if (plan_make(&c->graph, &(PlanOptions){.n_ranks = ranks}, &c->plan, e)) return -1;
    if (weights_load(c->plan, rank, NULL, rt->pool, NULL, NULL, &c->weights, e)) return -1;
    const ExecOptions o = {.max_tokens = 1, .max_outputs = 1};
    return exec_create(c->plan, rank, &c->weights, rt->k, rt->pool, rt->comm, &o, &c->exec, e);
}

static bool fits(const Compiled *c, const Nd *in, int n_in) {
    if (!c->last_use) return false;
    for (int i = 0; i < n_in; i++) {
        const Nd *a = &c->in[i];
        if (a->type != in[i].type || a->n_dims != in[i].n_dims) return false;
        if (memcmp(a->dim, in[i].dim, (size_t)a->n_dims * sizeof *a->dim) != 0) return false;
        if (c->by_value[i] && memcmp(a->data, in[i].data, nd_bytes(a)) != 0) return false;
    }
    return true;
}

/* The compiled net for these inputs: one that is there, or a new one in the place of the one used longest ago. */
static int choose(SheafNet *n, const Nd *in, Err *e) {
    Compiled *oldest = &n->kept[0];
    n->info.compile_s = 0;
    for (int i = 0; i < KEPT; i++) {
        Compiled *c = &n->kept[i];
        if (fits(c, in, n->n_in)) {
            c->last_use = ++n->uses;
            n->now = c;
            return 0;
        }
        if (c->last_use < oldest->last_use) oldest = c;
    }
    uint64_t began = trace_now();
    compiled_free(oldest, n->n_in);
    n->now = NULL;
    Err mine = {""};
    bool failed = compile(n, oldest, in, &mine) != 0;
    int status = n->o.shards ? comm_agree(n->m->rt->comm, failed, &mine, e) : failed ? -1 : 0;
    if (failed && !n->o.shards && e) *e = mine;
    if (!status && n->o.shards) status = comm_same(n->m->rt->comm, oldest->plan->hash, "the plan of the net", e);
    if (status) {
        compiled_free(oldest, n->n_in);
        return -1;
    }
    oldest->last_use = ++n->uses;
    n->now = oldest;
    n->info.compile_s = 1e-9 * (double)(trace_now() - began);
    return 0;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int take_arrays(const SheafNet *n, const SheafArray *in, Nd *out, Err *e) {
    for (int i = 0; i < n->n_in; i++) {
        const SheafArray *a = &in[i];
        if (a->type < 0 || a->type >= SHEAF_TYPES || a->n_dims < 0 || a->n_dims > SHEAF_AXES)
            return err_set(e, "input %d: unusable type or number of axes", i);
        out[i] = (Nd){.type = net_qtype(a->type), .n_dims = a->n_dims, .data = a->data};
        size_t bytes = nd_size(out[i].type);
        for (int k = 0; k < a->n_dims; k++) {
            out[i].dim[k] = a->dim[k];
            if (a->dim[k] < 0 || !size_mul(bytes, (size_t)a->dim[k], &bytes))
                return err_set(e, "input %d: size %lld of axis %d is out of range", i, (long long)a->dim[k], k);
        }
        if (!a->data && bytes) return err_set(e, "input %d: no data", i);
    }
    return 0;
}

/* With shards every rank works on rank 0's arrays. */
static int share_arrays(SheafNet *n, Nd *in, Err *e) {
    Comm *c = n->m->rt->comm;
    if (comm_broadcast(c, in, (size_t)n->n_in * sizeof *in, e)) return -1; /* shapes; the pointers are replaced */
    size_t all = 0;
    for (int i = 0; i < n->n_in; i++) all += round_up(nd_bytes(&in[i]), 64);
    bool failed = false;
    if (all > n->shared_room) {
        free(n->shared);
        n->shared = aligned_alloc(64, round_up(all, 64));
        n->shared_room = n->shared ? all : 0;
        failed = !n->shared;
    }
    if (comm_agree(c, failed, &(Err){"out of memory for the inputs"}, e)) return -1;
    uint8_t *at = n->shared;
    for (int i = 0; i < n->n_in; i++) {
        if (comm_rank(c) == 0 && nd_bytes(&in[i])) memcpy(at, in[i].data, nd_bytes(&in[i]));
        in[i].data = at;
        at += round_up(nd_bytes(&in[i]), 64);
    }
    return all ? comm_broadcast(c, n->shared, all, e) : 0;
}

static void give_results(const SheafNet *n, SheafArray *out) {
    const Graph *g = &n->now->plan->graph;
    for (int i = 0; i < n->n_out; i++) {
        const Value *v = &g->value[g->output[i]];
        out[i] = (SheafArray){.type = net_type(v->type), .n_dims = v->n_dims};
        for (int k = 0; k < v->n_dims; k++) out[i].dim[k] = v->dim[k].size;
        out[i].data = (void *)exec_output(n->now->exec, i);
    }
}

static int run(SheafNet *n, Nd *in, SheafArray *out, Err *e) {
    if (n->o.shards && share_arrays(n, in, e)) return -1;
    if (choose(n, in, e)) return -1;
    const Compiled *c = n->now;
    for (int i = 0; i < n->n_in; i++) {
        void *to = exec_nth_input(c->exec, i);
        if (to && in[i].data && nd_bytes(&in[i])) memcpy(to, in[i].data, nd_bytes(&in[i]));
    }
    if (exec_run(c->exec, &(ExecStep){0}, e)) return -1;
    n->info.weight_bytes = c->weights.bytes;
    n->info.activation_bytes = exec_activation_bytes(c->exec);
    n->info.plan_hash = c->plan->hash;
    n->info.operators = c->plan->graph.n_ops;
    give_results(n, out);
    return 0;
}

int sheaf_net_run(SheafNet *n, const SheafArray *in, SheafArray *out, SheafErr *err) {
    Err *e = err_of(err), mine = {""};
    Nd *nd = calloc((size_t)n->n_in + 1, sizeof *nd);
    bool leads = !n->o.shards || comm_rank(n->m->rt->comm) == 0;
    int status = nd ? 0 : err_set(&mine, "out of memory");
    if (!status && leads) status = take_arrays(n, in, nd, &mine);
    if (n->o.shards) status = comm_agree(n->m->rt->comm, status != 0, &mine, e);
    else if (status && e) *e = mine;
    if (!status) status = run(n, nd, out, e);
    free(nd);
    return status;
}
