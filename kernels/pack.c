/* Weight panels (file blocks <-> panels of 16 columns) and the memory of quantised activations. The layouts are defined
 * in kernels.h; the file blocks are ggml's: an fp16 scale, for Q4_1 an fp16 minimum, then the codes, where byte b of a
 * 4-bit block holds value b in the low nibble and value b + 16 in the high one. */
#include "kernels/table.h"

#include "base/size.h"

#include <string.h>

enum { GROUP = 32, NIBBLES = 0x0f0f0f0f, Q4_CODES = GROUP / 2 * PANEL, Q8_CODES = GROUP * PANEL };

bool packed_panel_bytes(QType t, int64_t k, size_t *out) {
    const QTypeInfo *info = qtype_info(t);
    if (!info->packed || k < 0 || k % info->block != 0) return false;
    return size_mul((size_t)PANEL * (size_t)info->block_bytes, (size_t)(k / info->block), out);
}

/* ---- words: four codes of one column at a time ---- */

static uint32_t load_word(const uint8_t *p) {
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static void store_word(uint8_t *p, uint32_t w) { memcpy(p, &w, sizeof w); }

/* The 16 bytes of a 4-bit file block into words [0..3] of column c: word i holds values 8i .. 8i+3 in the low nibbles
 * and 8i+4 .. 8i+7 in the high ones. */
static void pack_q4_codes(const uint8_t *codes, uint8_t *group, int c) {
    for (int i = 0; i < 2; i++) {
        uint32_t a = load_word(codes + 8 * i), b = load_word(codes + 8 * i + 4);
        uint8_t *low = group + 64 * i + 4 * c, *high = low + 128;
        store_word(low, (a & NIBBLES) | (b & NIBBLES) << 4);
        store_word(high, (a >> 4 & NIBBLES) | (b & (uint32_t)~NIBBLES));
    }
}

static void pack_quantised_group(QType t, const uint8_t *block, uint8_t *group, int c) {
    if (t == QT_Q8_0) {
        for (int i = 0; i < 8; i++) store_word(group + 64 * i + 4 * c, load_word(block + 2 + 4 * i) ^ 0x80808080u);
        memcpy(group + Q8_CODES + 2 * c, block, 2);
        return;
    }
    bool has_min = t == QT_Q4_1;
    pack_q4_codes(block + (has_min ? 4 : 2), group, c);
    memcpy(group + Q4_CODES + 2 * c, block, 2);
    if (has_min) memcpy(group + Q4_CODES + 2 * PANEL + 2 * c, block + 2, 2);
}

void pack_panel(QType t, int64_t k, const void *const *rows, int n_rows, uint8_t *panel) {
    const QTypeInfo *info = qtype_info(t);
    size_t block = (size_t)info->block_bytes;
    int64_t n_blocks = k / info->block;
    for (int64_t g = 0; g < n_blocks; g++) {
        uint8_t *group = panel + (size_t)g * block * PANEL;
        if (n_rows < PANEL) memset(group, 0, block * PANEL);
        for (int c = 0; c < n_rows; c++) {
            const uint8_t *from = (const uint8_t *)rows[c] + (size_t)g * block;
            if (info->quantised) pack_quantised_group(t, from, group, c);
            else memcpy(group + (size_t)c * block, from, block);
        }
    }
}

/* ---- back to fp32 ---- */

static float load_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f16_to_f32(h);
}

static void unpack_q4_group(bool has_min, const uint8_t *group, int64_t c, float *out) {
    float scale = load_half(group + Q4_CODES + 2 * c);
    float min = has_min ? load_half(group + Q4_CODES + 2 * PANEL + 2 * c) : 0.0f;
    for (int k = 0; k < GROUP; k++) {
        uint8_t byte = group[64 * (k / 8) + 4 * c + k % 4];
        int code = k % 8 < 4 ? byte & 15 : byte >> 4;
        out[k] = has_min ? scale * (float)code + min : scale * (float)(code - 8);
    }
}

static void unpack_q8_group(const uint8_t *group, int64_t c, float *out) {
    float scale = load_half(group + Q8_CODES + 2 * c);
    for (int k = 0; k < GROUP; k++) out[k] = scale * (float)(group[64 * (k / 4) + 4 * c + k % 4] - 128);
}

void unpack_row(const PackedWeights *w, int64_t n, float *out) {
    const QTypeInfo *info = qtype_info(w->type);
    const uint8_t *panel = w->data + (size_t)(n / PANEL) * panel_stride(w);
    size_t step = (size_t)info->block_bytes * PANEL;
    int64_t c = n % PANEL;
    for (int64_t g = 0; g < w->k / info->block; g++, panel += step) {
        if (w->type == QT_Q8_0) unpack_q8_group(panel, c, out + GROUP * g);
        else if (info->quantised) unpack_q4_group(info->has_min, panel, c, out + GROUP * g);
        else qtype_dequantise(w->type, panel + c * info->block_bytes, 1, out + g);
    }
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
                  .scaled_sum = (float *)(void *)(p + codes + part),
                  .sum = (int32_t *)(void *)(p + codes + 2 * part)};
}
