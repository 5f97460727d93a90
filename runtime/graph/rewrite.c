#include "graph/rewrite.h"

#include <stdlib.h>
#include <string.h>

int rewrite_begin(Rewrite *r, Graph *g, Err *e) {
    *r = (Rewrite){.g = g, .n_old = g->n_ops};
    r->old = malloc((size_t)g->n_ops * sizeof *r->old + 1);
    r->reader = malloc((size_t)g->n_values * sizeof *r->reader + 1);
    if (!r->old || !r->reader) {
        rewrite_free(r);
        return err_set(e, "out of memory in a pass over the graph");
    }
    if (g->n_ops) memcpy(r->old, g->op, (size_t)g->n_ops * sizeof *r->old);
    for (ValueId v = 0; v < g->n_values; v++) {
        r->reader[v] = -1;
        g->value[v].producer = -1; /* until it is pushed again, if it is */
    }
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int j = 0; j < g->op[i].n_in; j++) {
            int32_t *reader = &r->reader[g->op[i].in[j]];
            *reader = *reader == -1 ? i : -2;
        }
    g->n_ops = 0;
    return 0;
}

void rewrite_free(Rewrite *r) {
    free(r->old);
    free(r->reader);
    r->old = NULL;
    r->reader = NULL;
}

int rewrite_end(Rewrite *r, Err *e) {
    rewrite_free(r);
    return graph_check(r->g, e);
}

Op *rewrite_only_reader(const Rewrite *r, ValueId v) {
    if (graph_is_output(r->g, v) || r->reader[v] < 0) return NULL;
    Op *op = &r->old[r->reader[v]];
    return op_merged(op) ? NULL : op;
}

bool rewrite_is_made(const Rewrite *r, ValueId v) {
    const Value *x = &r->g->value[v];
    return x->kind != VALUE_TEMP || x->producer >= 0;
}
