/* KV cache and attention: spans of a step's rows times groups of query heads, shared out over threads. */
#include "engine/exec_internal.h"

void step_kv_store(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1;
    share_range(x->now->n_tokens, n, thread, &r0, &r1);
    if (s->kv.kv_heads == 0) return;
    size_t block_bytes = kv_block_bytes(s->kv);
    for (size_t i = 0; i < x->now->n_spans; i++) {
        const ExecSpan *span = &x->now->span[i];
        int64_t from = i64_max(span->row0, r0), to = i64_min(span->row0 + span->n_rows, r1);
        for (int64_t r = from; r < to; r++) {
            int64_t pos = span->pos0 + (r - span->row0);
            uint8_t *block = s->state + (size_t)span->table[s->pool][pos / KV_BLOCK] * block_bytes;
            x->k->kv_store(block, s->kv, (int)(pos % KV_BLOCK), buf_row(&s->in[0], r), buf_row(&s->in[1], r));
        }
    }
}

static void attend(const Exec *x, const Step *s, const ExecSpan *span, const HeadGroup *g, int head0, int head1) {
    bool whole = s->op->u.attn.window == WINDOW_WHOLE;
    AttnRun run = {.q = buf_row(&s->in[0], span->row0),
                   .out = buf_row(&s->out, span->row0),
                   .ldq = s->in[0].ld,
                   .ldo = s->out.ld,
                   .q_head0 = head0,
                   .q_head1 = head1,
                   .kv_head = g->kv_head,
                   .scale = s->op->u.attn.scale,
                   .shape = s->kv,
                   .blocks = s->state,
                   .table = span->table[s->pool],
                   .pos0 = span->pos0,
                   .n_rows = span->n_rows,
                   .window = whole ? 0 : s->op->u.attn.window,
                   .softcap = s->op->u.attn.softcap,
                   .n_keys = whole ? span->end : 0};
    x->k->attention(&run);
}

/* A task is a span with one group of heads; with few tasks, a span with one head. */
void step_attention(Exec *x, const Step *s, int thread, int n) {
    int64_t tasks = (int64_t)x->now->n_spans * s->n_groups, task = 0;
    bool by_head = tasks < 2 * (int64_t)n;
    for (size_t i = 0; i < x->now->n_spans; i++)
        for (int j = 0; j < s->n_groups; j++) {
            const HeadGroup *g = &s->group[j];
            int step = by_head ? 1 : g->q_head1 - g->q_head0;
            for (int h = g->q_head0; h < g->q_head1; h += step, task++)
                if (task % n == thread) attend(x, s, &x->now->span[i], g, h, h + step);
        }
}
