/* Products of batches of matrices. */
#include "kernels/nd_internal.h"

/* A batch of matrices [rows][columns] as an operand: where matrix `i` of the result's batch begins. */
typedef struct Matrices {
    int64_t rows, columns, stride[ND_DIMS];
} Matrices;

static Matrices matrices_of(const Nd *x, bool right, int batch_dims) {
    Matrices m = {.rows = 1, .columns = 1};
    int n = x->n_dims;
    if (n == 1 && right) m.rows = x->dim[0];
    else if (n == 1) m.columns = x->dim[0];
    else {
        m.rows = x->dim[n - 2];
        m.columns = x->dim[n - 1];
    }
    int64_t step = m.rows * m.columns;
    for (int i = batch_dims - 1, k = n - 3; i >= 0 && k >= 0; i--, k--) {
        m.stride[i] = x->dim[k] == 1 ? 0 : step;
        step *= x->dim[k];
    }
    return m;
}

/* Zero point of row (column) i: one for all, or one each. */
static int64_t zero_at(const Nd *zero, int64_t i) { return zero ? nd_get_i64(zero, nd_count(zero) == 1 ? 0 : i) : 0; }

/* Row r of a times columns [c0, c0 + n) of b, in fp64. */
static void row_f64(const Nd *a, int64_t row, const Nd *b, int64_t from, int64_t ldb, int64_t k, int64_t n,
                    double *sum) {
    NdBlock v;
    for (int64_t c = 0; c < n; c++) sum[c] = 0;
    for (int64_t i = 0; i < k; i++) {
        double x = nd_get_f64(a, row + i);
        nd_load(b, from + i * ldb, 1, n, &v);
        if (b->type == QT_F64)
            for (int64_t c = 0; c < n; c++) sum[c] += x * v.d[c];
        else
            for (int64_t c = 0; c < n; c++) sum[c] += x * (double)v.f[c];
    }
}

static void row_i64(const Nd *a, int64_t row, int64_t a_zero, const Nd *b, int64_t from, int64_t ldb, int64_t k,
                    int64_t n, const int64_t *b_zero, int64_t *sum) {
    NdBlock v;
    for (int64_t c = 0; c < n; c++) sum[c] = 0;
    for (int64_t i = 0; i < k; i++) {
        uint64_t x = (uint64_t)nd_get_i64(a, row + i) - (uint64_t)a_zero;
        nd_load(b, from + i * ldb, 1, n, &v);
        for (int64_t c = 0; c < n; c++) sum[c] = (int64_t)((uint64_t)sum[c] + x * (v.u[c] - (uint64_t)b_zero[c]));
    }
}

void nd_matmul(const Nd *a, const Nd *b, const Nd *a_zero, const Nd *b_zero, Nd *y, NdPart p) {
    int batch_dims = y->n_dims - (a->n_dims > 1) - (b->n_dims > 1);
    Matrices ma = matrices_of(a, false, batch_dims), mb = matrices_of(b, true, batch_dims);
    int64_t rows = ma.rows, k = ma.columns, columns = mb.columns;
    int64_t blocks = ceil_div(columns, ND_BLOCK), begin, end;
    part_range(nd_product(y->dim, 0, batch_dims) * rows * blocks, p, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t batch = t / blocks / rows, row = t / blocks % rows, c0 = t % blocks * ND_BLOCK;
        int64_t n = i64_min(ND_BLOCK, columns - c0), at_a = row * k, at_b = c0;
        for (int i = batch_dims - 1; i >= 0; batch /= y->dim[i--]) {
            at_a += batch % y->dim[i] * ma.stride[i];
            at_b += batch % y->dim[i] * mb.stride[i];
        }
        NdBlock sum;
        bool is_float = nd_is_float(a->type);
        if (is_float) row_f64(a, at_a, b, at_b, columns, k, n, sum.d);
        else {
            int64_t zeroes[ND_BLOCK];
            for (int64_t c = 0; c < n; c++) zeroes[c] = zero_at(b_zero, c0 + c);
            row_i64(a, at_a, zero_at(a_zero, row), b, at_b, columns, k, n, zeroes, sum.i);
        }
        nd_store(&sum, is_float ? WORK_F64 : WORK_I64, n, y, t / blocks * columns + c0);
    }
}
