/* The steps of convolutional nets, and the element-wise ones that both kinds of model use. */
#include "engine/exec_internal.h"
#include "graph/eval.h"

/* Columns of all rows, in shares of whole rows; a buffer without gaps is one long row. */
static void share_elements(const Exec *x, const Buf *b, int thread, int n, bool dense, int64_t *r0, int64_t *r1,
                           int64_t *columns) {
    int64_t rows = buf_rows(x, b);
    *columns = b->columns;
    if (dense && rows < n) { /* few rows: share out vectors of 16 */
        int64_t total = rows * b->columns, begin, end;
        share_range(ceil_div(total, 16), n, thread, &begin, &end);
        *r0 = begin * 16;
        *r1 = i64_min(end * 16, total);
        *columns = 0; /* r0, r1 are elements */
        return;
    }
    share_range(rows, n, thread, r0, r1);
}

void step_add(Exec *x, const Step *s, int thread, int n) {
    int64_t r0, r1, columns;
    const Buf *a = &s->in[0], *b = &s->in[1], *y = &s->out;
    share_elements(x, y, thread, n, buf_dense(a) && buf_dense(b) && buf_dense(y), &r0, &r1, &columns);
    if (columns == 0 && r0 < r1) x->k->add(buf_row(a, 0) + r0, buf_row(b, 0) + r0, r1 - r0, buf_row(y, 0) + r0);
    for (int64_t r = r0; columns && r < r1; r++) x->k->add(buf_row(a, r), buf_row(b, r), columns, buf_row(y, r));
}

void step_plain(Exec *x, const Step *s, int thread, int n) {
    Err e = {""};
    if (op_eval(s->op, s->nd, &s->nd[s->op->n_in], (NdPart){thread, n}, &e)) exec_fail(x, s, &e);
}

void step_conv(Exec *x, const Step *s, int thread, int n) {
    (void)n;
    const float *residual = s->op->u.conv.residual ? buf_row(&s->in[s->op->n_in - 1], 0) : NULL;
    if (conv_run(s->conv, buf_row(&s->in[0], 0), residual, buf_row(&s->out, 0), thread))
        exec_fail(x, s, &(Err){"the convolution failed"});
}
