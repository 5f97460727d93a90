/* The definition of the matmuls, in plain C: what kernels.h says, as directly as possible. */
#include "kernels/panel.h"

#include <math.h>
#include <string.h>

static uint16_t load_u16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static float finish(float acc, const Epilogue *ep, int64_t row, int64_t column) {
    if (ep && ep->bias) acc += ep->bias[column];
    if (ep && ep->residual) acc += ep->residual[row * ep->ld_residual + column];
    return acc;
}

/* The sum of v_w * code_a over n values, v_w = code - zero. */
static int32_t dot(const uint8_t *w, int zero, const int8_t *a, int planes, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) {
        int32_t code = planes == 2 ? a[i] * (1 << HIGH_SHIFT) + a[ACT_GROUP + i] : a[i];
        sum += (w[i] - zero) * code;
    }
    return sum;
}

/* acc with what a column's group and entry i of the block give. */
static float add_whole(PanelFormat f, const ColumnGroup *w, const ActBlock *b, int64_t i, float acc) {
    const int8_t *a = b->codes + i * b->planes * ACT_GROUP;
    acc = fmaf((float)dot(w->codes, f.zero, a, b->planes, ACT_GROUP), w->scale[0] * b->scale[i], acc);
    return f.has_min ? fmaf(w->min[0], b->scale[i] * (float)b->sum[i], acc) : acc;
}

static float add_halves(PanelFormat f, const ColumnGroup *w, const ActBlock *b, int64_t i, float acc) {
    enum { HALF = ACT_GROUP / 2 };
    const int8_t *a = b->codes + i * b->planes * ACT_GROUP;
    float t = (float)dot(w->codes, f.zero, a, b->planes, HALF) * w->scale[0];
    t = fmaf((float)dot(w->codes + HALF, f.zero, a + HALF, b->planes, HALF), w->scale[1], t);
    if (f.has_min) t = fmaf(w->min[0], (float)b->half_sum[i], t);
    if (f.has_min) t = fmaf(w->min[1], (float)(b->sum[i] - b->half_sum[i]), t);
    return fmaf(t, b->scale[i], acc);
}

/* One column against one block of rows: acc[r] over all groups. */
static void column_block(const PackedWeights *w, const uint8_t *panel, int64_t c, const ActBlock *b,
                         float acc[ACT_ROWS]) {
    PanelFormat f = panel_formats[w->type];
    memset(acc, 0, ACT_ROWS * sizeof *acc);
    for (int64_t g = 0; g < w->k / ACT_GROUP; g++) {
        ColumnGroup group;
        read_group(f, panel, w->skip, g, c, &group);
        for (int64_t r = 0; r < b->rows; r++)
            acc[r] = (f.halves == 1 ? add_whole : add_halves)(f, &group, b, g * b->rows + r, acc[r]);
    }
}

void matmul_q_ref(const PackedWeights *w, const ActQ *a, int64_t block0, int64_t block1, int64_t panel0, int64_t panel1,
                  float *y, int64_t ldy, const Epilogue *ep) {
    float acc[ACT_ROWS];
    for (int64_t block = block0; block < block1; block++) {
        ActBlock b = act_block(a, block);
        for (int64_t n = panel0 * PANEL; n < panel1 * PANEL && n < w->n; n++) {
            column_block(w, w->data + (size_t)(n / PANEL) * panel_stride(w), n % PANEL, &b, acc);
            for (int64_t r = 0; r < b.rows; r++) y[(b.row0 + r) * ldy + n] = finish(acc[r], ep, b.row0 + r, n);
        }
    }
}

static float load_weight(QType t, const uint8_t *panel, int64_t i) {
    if (t == QT_F16) return f16_to_f32(load_u16(panel + 2 * i));
    if (t == QT_BF16) return bf16_to_f32(load_u16(panel + 2 * i));
    float f;
    memcpy(&f, panel + 4 * i, sizeof f);
    return f;
}

void matmul_f_ref(const PackedWeights *w, const float *x, int64_t ldx, int64_t row0, int64_t row1, int64_t panel0,
                  int64_t panel1, float *y, int64_t ldy, const Epilogue *ep) {
    for (int64_t n = panel0 * PANEL; n < panel1 * PANEL && n < w->n; n++) {
        const uint8_t *panel = w->data + (size_t)(n / PANEL) * panel_stride(w);
        for (int64_t r = row0; r < row1; r++) {
            float acc = 0.0f;
            for (int64_t k = 0; k < w->k; k++)
                acc = fmaf(load_weight(w->type, panel, k * PANEL + n % PANEL), x[r * ldx + k], acc);
            y[r * ldy + n] = finish(acc, ep, r, n);
        }
    }
}
