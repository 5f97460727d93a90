/* One mixture of experts as a graph of its own, with random weights in memory: for tests of what divides and runs it.
 * Needs the graph layer. */
#pragma once

#include <math.h>

#include "check.h"
#include "graph/graph.h"
#include "graph/passes.h"
#include "tiny_model.h"

typedef struct MixtureShape {
    const char *what;
    MixShape mix;
    int64_t width, ffn, shared; /* shared: width of the expert that all tokens get; 0: there is none */
    QType type;                 /* of the experts; what chooses is F32 */
    bool fused;                 /* gate and up in one tensor */
} MixtureShape;

/* A weight as the graph has it, and the same values in fp32. */
typedef struct MixtureWeight {
    void *data;
    float *values;
} MixtureWeight;

typedef struct Mixture {
    MixtureShape s;
    MixtureWeight router, gate, up, down; /* gate holds up's rows as well when they are fused: then up is not used */
    MixtureWeight shared_gate, shared_up, shared_down, shared_router;
} Mixture;

static inline MixtureWeight mixture_weight(QType type, int64_t n, int64_t columns, float gain, uint64_t seed) {
    MixtureWeight w = {NULL, malloc((size_t)(n * columns) * sizeof(float))};
    size_t bytes = 0;
    CU_ASSERT_FATAL(w.values && qtype_bytes(type, (uint64_t)(n * columns), &bytes));
    w.data = malloc(bytes + 1);
    float scale = gain * sqrtf(3.0f / (float)columns);
    for (int64_t i = 0; i < n * columns; i++) w.values[i] = scale * tiny_random(&seed);
    qtype_quantise(type, w.values, n * columns, w.data);
    qtype_dequantise(type, w.data, n * columns, w.values);
    return w;
}

static inline Mixture mixture_make(const MixtureShape *s) {
    int64_t e = s->mix.experts, d = s->width, f = s->ffn, sh = s->shared;
    Mixture m = {.s = *s,
                 .router = mixture_weight(QT_F32, e, d, 2, 1),
                 .gate = mixture_weight(s->type, e * f * (s->fused ? 2 : 1), d, 1, 2),
                 .up = mixture_weight(s->type, e * f, d, 1, 3),
                 .down = mixture_weight(s->type, e * d, f, 1, 4)};
    if (sh) {
        m.shared_gate = mixture_weight(s->type, sh, d, 1, 5);
        m.shared_up = mixture_weight(s->type, sh, d, 1, 6);
        m.shared_down = mixture_weight(s->type, d, sh, 1, 7);
        m.shared_router = mixture_weight(QT_F32, 1, d, 1, 8);
    }
    return m;
}

static inline void mixture_free(Mixture *m) {
    MixtureWeight *all[] = {&m->router,      &m->gate,      &m->up,          &m->down,
                            &m->shared_gate, &m->shared_up, &m->shared_down, &m->shared_router};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->data);
        free(all[i]->values);
    }
}

static inline ValueId mixture_matrix(Graph *g, const char *name, QType t, int64_t rows, int64_t columns,
                                     const MixtureWeight *w) {
    return graph_weight(g, name, t, 2, (int64_t[]){rows, columns}, -1, w->data);
}
static inline ValueId mixture_experts(Graph *g, const Mixture *m, const char *name, int64_t rows, int64_t columns,
                                      const MixtureWeight *w) {
    return graph_weight(g, name, m->s.type, 3, (int64_t[]){m->s.mix.experts, rows, columns}, -1, w->data);
}

/* "x" [T][width] -> [T][width], with the passes run. The weights must outlive the graph. */
static inline void mixture_graph(const Mixture *m, QType act, Graph *g) {
    MixShape mix = m->s.mix;
    int64_t d = m->s.width, f = m->s.ffn, sh = m->s.shared;
    graph_init(g);
    ValueId x = graph_input(g, "x", QT_F32, 2, (Dim[]){dim_tokens(), dim_const(d)});
    ValueId logits =
        graph_linear(g, "router", x, mixture_matrix(g, "router.w", QT_F32, mix.experts, d, &m->router), -1);
    ValueId routing = graph_route(g, "route", logits, mix), groups = graph_group(g, "group", routing, mix);
    ValueId xp = graph_dispatch(g, "dispatch", x, groups, mix), gate, up;
    if (m->s.fused) {
        ValueId both = graph_linear(g, "gate_up", xp, mixture_experts(g, m, "gate_up.w", 2 * f, d, &m->gate), -1);
        gate = graph_view(g, "gate", both, 0, f);
        up = graph_view(g, "up", both, f, 2 * f);
    } else {
        gate = graph_linear(g, "gate", xp, mixture_experts(g, m, "gate.w", f, d, &m->gate), -1);
        up = graph_linear(g, "up", xp, mixture_experts(g, m, "up.w", f, d, &m->up), -1);
    }
    ValueId h = graph_silu_mul(g, "silu", gate, up);
    ValueId y = graph_linear(g, "down", h, mixture_experts(g, m, "down.w", d, f, &m->down), -1);
    y = graph_combine(g, "combine", y, routing, groups, mix);
    if (sh) {
        gate = graph_linear(g, "sgate", x, mixture_matrix(g, "sgate.w", m->s.type, sh, d, &m->shared_gate), -1);
        up = graph_linear(g, "sup", x, mixture_matrix(g, "sup.w", m->s.type, sh, d, &m->shared_up), -1);
        h = graph_silu_mul(g, "ssilu", gate, up);
        h = graph_linear(g, "sdown", h, mixture_matrix(g, "sdown.w", m->s.type, d, sh, &m->shared_down), -1);
        ValueId open =
            graph_linear(g, "srouter", x, mixture_matrix(g, "srouter.w", QT_F32, 1, d, &m->shared_router), -1);
        y = graph_add(g, "sum", y, graph_gate_rows(g, "sgated", h, open));
    }
    g->output[0] = y;
    Err e = {""};
    bool ok = !graph_check(g, &e) && !passes_run(g, act, &e);
    if (!ok) printf("\n%s: %s", m->s.what, e.msg);
    CU_ASSERT_FATAL(ok);
}
