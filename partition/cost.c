/* What a plan costs: memory of each rank, multiplications, bytes between ranks. */
#include "base/size.h"
#include "kernels/kernels.h"
#include "partition/plan.h"

/* Bytes of a weight as a rank holds it. */
static uint64_t weight_bytes(const Plan *p, ValueId v, int rank) {
    const Value *x = &p->graph.value[v];
    int64_t rows = plan_local_size(p, v, AXIS_FIRST, rank), k = plan_local_size(p, v, AXIS_LAST, rank);
    if (p->form[v] == WEIGHT_NONE) return 0;
    if (p->form[v] != WEIGHT_PACKED) {
        uint64_t size = p->form[v] == WEIGHT_F32 ? sizeof(float) : nd_size(x->type), n = (uint64_t)rows;
        for (int i = 1; i < x->n_dims; i++) n *= (uint64_t)(i == x->n_dims - 1 ? k : x->dim[i].size);
        return n * size;
    }
    size_t panel = 0;
    if (!packed_panel_bytes(x->type, plan_weight_skip(p, v, rank), k, &panel)) return 0;
    return (uint64_t)(plan_local_matrices(p, v, rank) * packed_panels(rows)) * panel;
}

PlanRankCost plan_rank_cost(const Plan *p, int rank) {
    PlanRankCost c = {0};
    bool embedded = false;
    const Graph *g = &p->graph;
    for (ValueId v = 0; v < g->n_values; v++) {
        if (g->value[v].kind == VALUE_WEIGHT) c.weight_bytes += weight_bytes(p, v, rank);
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const Op *op = &g->op[i];
        if (op->kind == OP_ATTENTION && !c.heads)
            c.heads = plan_local_size(p, op->in[0], AXIS_LAST, rank) / op->u.attn.head_dim;
        if (op->kind == OP_KV_STORE && !c.kv_heads)
            c.kv_heads = plan_local_size(p, op->in[0], AXIS_LAST, rank) / op->u.attn.head_dim;
        if ((op->kind == OP_SILU_MUL || op->kind == OP_GELU_MUL || op->kind == OP_GELU) && !c.ffn_rows)
            c.ffn_rows = plan_local_size(p, op->in[0], AXIS_LAST, rank);
        if (op->kind == OP_EMBED && !embedded) {
            c.vocab_rows = plan_local_size(p, op->in[1], AXIS_FIRST, rank);
            embedded = true;
        }
        for (int w = 0; op->kind == OP_LINEAR && w < op->u.linear.n_weights; w++) {
            ValueId v = op->in[1 + w];
            int64_t matrices = plan_local_matrices(p, v, rank);
            uint64_t macs =
                (uint64_t)(plan_local_size(p, v, AXIS_FIRST, rank) * matrices * plan_local_size(p, v, AXIS_LAST, rank));
            if (g->value[v].n_dims == 3) { /* a token meets `used` of them */
                uint64_t used = (uint64_t)g->value[op->in[0]].dim[0].size;
                macs = macs * used / (uint64_t)plan_axis_size(p, v, AXIS_EXPERTS);
                if (!c.experts) c.experts = matrices;
            }
            c.macs_per_token += macs;
        }
    }
    return c;
}

PlanWire plan_wire(const Plan *p) {
    PlanWire w = {0};
    const Graph *g = &p->graph;
    uint64_t others = (uint64_t)p->n_ranks - 1, n = (uint64_t)p->n_ranks;
    for (int32_t i = 0; i < g->n_ops; i++) {
        OpKind kind = g->op[i].kind;
        if (kind != OP_ALLREDUCE && kind != OP_ALLGATHER) continue;
        w.collectives++;
        uint64_t bytes = (uint64_t)value_columns(g, g->op[i].in[0]) * sizeof(float);
        w.bytes_per_token += bytes * (kind == OP_ALLREDUCE ? 2 : 1) * others / n;
    }
    return w;
}
