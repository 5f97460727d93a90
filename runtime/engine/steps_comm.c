/* Steps that meet the other ranks: thread 0 calls comm, the others wait at the barrier after the step. */
#include <string.h>

#include "base/trace.h"
#include "engine/exec_internal.h"

void step_allreduce(Exec *x, const Step *s, int thread, int n) {
    (void)n;
    if (thread != 0) return;
    size_t values = (size_t)(buf_rows(x, &s->out) * s->out.columns);
    if (s->out.data != s->in[0].data) memcpy(s->out.data, s->in[0].data, values * sizeof(float));
    Err e = {""};
    if (comm_allreduce(x->comm, buf_row(&s->out, 0), values, s->op->u.sum.exact, &e)) exec_fail(x, s, &e);
}

static uint8_t *place_of(const Buf *b, int64_t row, int64_t column) {
    return b->data + (size_t)(row * b->ld + column) * nd_size(b->type);
}

/* One rank's part, rows one after the other, to its place in the whole. */
static void scatter(const Exec *x, const Step *s, int rank, const uint8_t *part) {
    const Plan *p = x->plan;
    ValueId v = s->op->in[0];
    Range r[SHARD_PARTS];
    ShardAxis axis = p->shard[v].axis;
    int n = plan_local_ranges(p, v, axis, rank, r);
    int64_t rows = buf_rows(x, &s->out);
    size_t size = nd_size(s->out.type);
    if (axis == AXIS_FIRST) {
        int64_t lines = s->out.h * s->out.w;
        size_t bytes = (size_t)((r[0].end - r[0].begin) * lines * s->out.columns) * size;
        if (bytes) memcpy(place_of(&s->out, r[0].begin * lines, 0), part, bytes);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < n; i++) {
            size_t bytes = (size_t)(r[i].end - r[i].begin) * size;
            memcpy(place_of(&s->out, row, r[i].begin), part, bytes);
            part += bytes;
        }
}

void step_allgather(Exec *x, const Step *s, int thread, int n) {
    (void)n;
    if (thread != 0) return;
    const Plan *p = x->plan;
    ValueId v = s->op->in[0];
    const Buf *in = &s->in[0];
    int64_t rows = buf_rows(x, &s->out), per = s->out.h * s->out.w * s->out.columns;
    size_t size = nd_size(in->type);
    for (int r = 0; r < p->n_ranks; r++) {
        int64_t local = plan_local_size(p, v, p->shard[v].axis, r);
        s->gather_bytes[r] = (size_t)(p->shard[v].axis == AXIS_FIRST ? local * per : rows * local) * size;
    }
    /* A view's rows have gaps: they are closed in this rank's place of the gathered memory. */
    size_t before = 0;
    for (int r = 0; r < x->rank; r++) before += s->gather_bytes[r];
    const void *mine = in->data;
    if (!buf_dense(in)) {
        uint8_t *to = s->gather + before;
        size_t bytes = (size_t)in->columns * size;
        for (int64_t row = 0; row < buf_rows(x, in); row++, to += bytes) memcpy(to, place_of(in, row, 0), bytes);
        mine = s->gather + before;
    }
    Err e = {""};
    if (comm_allgather(x->comm, mine, s->gather_bytes, s->gather, &e)) {
        exec_fail(x, s, &e);
        return;
    }
    const uint8_t *part = s->gather;
    for (int r = 0; r < p->n_ranks; part += s->gather_bytes[r++]) scatter(x, s, r, part);
}

/* Several pieces of the columns of a replicated value, side by side. */
void step_slice(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    share_range(buf_rows(x, &s->out), n, thread, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        uint8_t *to = place_of(&s->out, r, 0);
        for (int i = 0; i < s->n_parts; i++) {
            size_t bytes = (size_t)(s->part[i].end - s->part[i].begin) * nd_size(s->out.type);
            memcpy(to, place_of(&s->in[0], r, s->part[i].begin), bytes);
            to += bytes;
        }
    }
}
