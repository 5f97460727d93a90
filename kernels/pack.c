/* Weight panels (file blocks <-> panels of 16 columns) and the memory of quantised activations. The layouts are defined
 * in kernels.h; file blocks are taken apart by quant/. */
#include "kernels/panel.h"

#include "base/size.h"

#include <string.h>

enum { GROUP = ACT_GROUP, HALF = GROUP / 2, WORDS = GROUP / 4 };

bool packed_panel_bytes(QType t, int skip, int64_t k, size_t *out) {
    const QTypeInfo *info = qtype_info(t);
    PanelFormat f = panel_formats[t];
    if (!(f.bits || t == QT_F32 || t == QT_F16 || t == QT_BF16)) return false;
    if (k < 0 || k % packed_unit(t) || skip < 0 || skip >= info->block || skip % packed_unit(t)) return false;
    if (!f.bits) return size_mul((size_t)PANEL * (size_t)info->block_bytes, (size_t)k, out);
    size_t groups = (size_t)(k / GROUP), before = (size_t)(skip / GROUP), bytes, headers = 0;
    if (f.super && k > 0) headers = (before + groups + SUPER_GROUPS - 1) / SUPER_GROUPS;
    if (!size_mul(groups, (size_t)group_bytes(f), &bytes)) return false;
    return size_add(bytes, headers * (size_t)header_bytes(f), out);
}

double packed_growth(QType t) {
    size_t panel = 0, file = 0;
    packed_panel_bytes(t, 0, SUPER_BLOCK, &panel);
    qtype_bytes(t, PANEL * SUPER_BLOCK, &file);
    return file ? (double)panel / (double)file : 1.0;
}

/* ---- codes: words of four values of one column at a time ---- */

enum { NIBBLES = 0x0f0f0f0f, PAIRS = 0x03030303, BITS = 0x01010101 };

static uint32_t load_word(const void *p) {
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static void store_word(uint8_t *p, uint32_t w) { memcpy(p, &w, sizeof w); }

/* 32 codes into the planes of a group at `to`, which points at column c of the first word. */
static void put_codes(PanelFormat f, const int8_t *codes, uint8_t *to) {
    uint32_t w[WORDS], shift = has_nibbles(f) ? 4 : 0; /* what is left above the nibbles */
    for (int v = 0; v < WORDS; v++) w[v] = load_word(codes + 4 * v);
    if (f.bits == 8) {
        for (int v = 0; v < WORDS; v++) store_word(to + 64 * v, w[v] ^ 0x80808080u);
        return;
    }
    if (has_nibbles(f)) {
        for (int v = 0; v < WORDS; v += 2) store_word(to + 32 * v, (w[v] & NIBBLES) | (w[v + 1] & NIBBLES) << 4);
        to += NIBBLE_BYTES;
    }
    if (has_pairs(f)) {
        for (int h = 0; h < 2; h++) {
            uint32_t pairs = 0;
            for (int v = 0; v < 4; v++) pairs |= (w[4 * h + v] >> shift & PAIRS) << 2 * v;
            store_word(to + 64 * h, pairs);
        }
        to += PAIR_BYTES;
        shift += 2;
    }
    if (has_single_bits(f)) {
        uint32_t bits = 0;
        for (int v = 0; v < WORDS; v++) bits |= (w[v] >> shift & BITS) << v;
        store_word(to, bits);
    }
}

const uint8_t iq4_unsigned[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

static void get_codes(PanelFormat f, const uint8_t *from, uint8_t *codes) {
    uint32_t w[WORDS] = {0}, shift = has_nibbles(f) ? 4 : 0;
    const uint8_t *pairs = from + (has_nibbles(f) ? NIBBLE_BYTES : 0), *bits = pairs + (has_pairs(f) ? PAIR_BYTES : 0);
    for (int v = 0; v < WORDS; v++) {
        if (f.bits == 8) w[v] = load_word(from + 64 * v);
        if (has_nibbles(f)) w[v] = load_word(from + 64 * (v / 2)) >> 4 * (v % 2) & NIBBLES;
        if (has_pairs(f)) w[v] |= (load_word(pairs + 64 * (v / 4)) >> 2 * (v % 4) & PAIRS) << shift;
        if (has_single_bits(f)) w[v] |= (load_word(bits) >> v & BITS) << (f.bits - 1);
        memcpy(codes + 4 * v, &w[v], sizeof w[v]);
    }
    for (int i = 0; i < GROUP && f.codebook; i++) codes[i] = iq4_unsigned[codes[i]];
}

/* ---- scales ---- */

static void put_half(uint8_t *p, uint16_t h) { memcpy(p, &h, sizeof h); }

static float get_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f16_to_f32(h);
}

/* Of the groups of 16 or 32 from `first` of block b, at `to`: column c of a group's scales. */
static void put_scales(PanelFormat f, const QBlock *b, int first, int64_t c, uint8_t *to) {
    if (!f.super) {
        put_half(to + 2 * c, b->d);
        if (f.has_min) put_half(to + 2 * PANEL + 2 * c, b->dmin);
        return;
    }
    for (int h = 0; h < f.halves; h++) {
        int scale = b->scale[first + h], min = b->min[first + h];
        to[h * PANEL + c] = (uint8_t)(f.nibbles ? scale | min << 4 : scale);
        if (f.has_min && !f.nibbles) to[(f.halves + h) * PANEL + c] = (uint8_t)min;
    }
}

static void get_scales(PanelFormat f, const uint8_t *header, const uint8_t *from, int64_t c, ColumnGroup *out) {
    if (!f.super) {
        out->scale[0] = get_half(from + 2 * c);
        out->min[0] = f.has_min ? get_half(from + 2 * PANEL + 2 * c) : 0.0f;
    }
    for (int h = 0; h < f.halves && f.super; h++) {
        int scale = (int8_t)from[h * PANEL + c], min = 0;
        if (f.nibbles) {
            min = from[h * PANEL + c] >> 4;
            scale &= 15;
        } else if (f.has_min) min = from[(f.halves + h) * PANEL + c];
        out->scale[h] = get_half(header + 2 * c) * (float)scale;
        out->min[h] = f.has_min ? -(get_half(header + 2 * PANEL + 2 * c) * (float)min) : 0.0f;
    }
    if (f.halves == 1) {
        out->scale[1] = out->scale[0];
        out->min[1] = out->min[0];
    }
}

void read_group(PanelFormat f, const uint8_t *panel, int skip, int64_t g, int64_t c, ColumnGroup *out) {
    const uint8_t *group = panel + group_at(f, skip, g);
    get_codes(f, group + 4 * c, out->codes);
    get_scales(f, panel + header_at(f, skip, g), group + code_bytes(f), c, out);
}

/* ---- panels ---- */

/* One row of a file into column c. */
static void pack_column(QType t, int skip, int64_t k, const uint8_t *row, int64_t c, uint8_t *panel) {
    PanelFormat f = panel_formats[t];
    const QTypeInfo *info = qtype_info(t);
    int per_block = info->block / GROUP;
    for (int64_t g = 0, at = skip / GROUP; g < k / GROUP; row += info->block_bytes, at = 0) {
        QBlock b;
        qtype_unpack(t, row, &b);
        if (f.super) {
            uint8_t *header = panel + header_at(f, skip, g);
            put_half(header + 2 * c, b.d);
            if (f.has_min) put_half(header + 2 * PANEL + 2 * c, b.dmin);
        }
        for (; at < per_block && g < k / GROUP; at++, g++) {
            uint8_t *group = panel + group_at(f, skip, g);
            put_codes(f, b.code + at * GROUP, group + 4 * c);
            put_scales(f, &b, (int)at * f.halves, c, group + code_bytes(f));
        }
    }
}

void pack_panel(QType t, int skip, int64_t k, const void *const *rows, int n_rows, uint8_t *panel) {
    size_t bytes = 0, value = (size_t)qtype_info(t)->block_bytes;
    packed_panel_bytes(t, skip, k, &bytes);
    if (n_rows < PANEL) memset(panel, 0, bytes);
    for (int c = 0; c < n_rows; c++) {
        const uint8_t *row = rows[c];
        if (qtype_info(t)->quantised) pack_column(t, skip, k, row, c, panel);
        else
            for (size_t i = 0; i < (size_t)k; i++)
                memcpy(panel + (PANEL * i + (size_t)c) * value, row + i * value, value);
    }
}

void unpack_row(const PackedWeights *w, int64_t n, float *out) {
    const QTypeInfo *info = qtype_info(w->type);
    PanelFormat f = panel_formats[w->type];
    const uint8_t *panel = w->data + (size_t)(n / PANEL) * panel_stride(w);
    int64_t c = n % PANEL;
    for (int64_t g = 0; info->quantised && g < w->k / GROUP; g++) {
        ColumnGroup column;
        read_group(f, panel, w->skip, g, c, &column);
        for (int i = 0; i < GROUP; i++) {
            float v = column.scale[i / HALF] * (float)(column.codes[i] - f.zero);
            out[g * GROUP + i] = f.has_min ? v + column.min[i / HALF] : v;
        }
    }
    for (int64_t i = 0; !info->quantised && i < w->k; i++)
        qtype_dequantise(w->type, panel + (size_t)(PANEL * i + c) * (size_t)info->block_bytes, 1, out + i);
}

/* ---- quantised activations ---- */

enum { ACT_ALIGN = 64 };

static size_t act_codes_bytes(int64_t m, int64_t k, int planes) {
    return round_up((size_t)m * (size_t)k * (size_t)planes, ACT_ALIGN);
}
static size_t act_entries_bytes(int64_t m, int64_t k) {
    return round_up((size_t)m * (size_t)(k / ACT_GROUP) * sizeof(float), ACT_ALIGN);
}

size_t act_bytes(int64_t m, int64_t k, int planes) {
    return act_codes_bytes(m, k, planes) + 3 * act_entries_bytes(m, k);
}

ActQ act_view(void *memory, int64_t m_capacity, int64_t m, int64_t k, int planes) {
    uint8_t *p = memory;
    size_t codes = act_codes_bytes(m_capacity, k, planes), part = act_entries_bytes(m_capacity, k);
    return (ActQ){.m = m,
                  .k = k,
                  .planes = planes,
                  .codes = (int8_t *)p,
                  .scale = (float *)(void *)(p + codes),
                  .sum = (int32_t *)(void *)(p + codes + part),
                  .half_sum = (int32_t *)(void *)(p + codes + 2 * part)};
}
