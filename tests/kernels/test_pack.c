/* Packed weights give back what the file holds; the layouts are those that kernels.h describes. */
#include "kernel_data.h"

/* Columns [k0, k0 + k) of 37 rows, packed and unpacked, against the dequantised file. */
static void check_slice(QType t, int64_t columns, int64_t k0, int64_t k) {
    int64_t n = 37;
    uint8_t *blocks = random_blocks(t, n, columns, CODES_RANDOM);
    PackedWeights w = pack_slice(t, n, columns, blocks, k0, k);
    float *row = floats(k), *want = floats(n * columns);
    qtype_dequantise(t, blocks, n * columns, want);
    for (int64_t r = 0; r < n; r++) {
        unpack_row(&w, r, row);
        CU_ASSERT(memcmp(row, want + r * columns + k0, (size_t)k * sizeof *row) == 0);
    }
    free(blocks), free((void *)w.data), free(row), free(want);
}

static void unpacking_equals_dequantising(void) {
    for (int i = 0; i < N_TYPES; i++) check_slice(weight_types[i], 768, 0, 768);
}

static void slices_at_any_group(void) {
    for (int i = 0; i < N_TYPES; i++)
        for (int64_t k0 = 0; k0 <= 288; k0 += 32)
            for (int64_t k = 0; k0 + k <= 768; k += k < 320 ? 32 : 192) check_slice(weight_types[i], 768, k0, k);
}

/* Against the file's: the same; or more by what 8 bits for every 6-bit scale take, a byte in 4: for each group of 32,
 * half a byte for Q4_K and Q5_K (2 scales and minima of 6 bits: 12 bits in 16) and so on, as kernels.h says. */
static void bytes_beside_the_files(void) {
    const struct {
        QType type;
        double growth;
    } grow[] = {{QT_Q4_K, 148.0 / 144}, {QT_Q5_K, 180.0 / 176}, {QT_Q3_K, 114.0 / 110}, {QT_IQ4_XS, 138.0 / 136}};
    for (int i = 0; i < N_TYPES; i++) {
        QType t = weight_types[i];
        size_t panel, file, cut;
        double growth = 1.0;
        for (int j = 0; j < 4; j++) growth = grow[j].type == t ? grow[j].growth : growth;
        CU_ASSERT(packed_panel_bytes(t, 0, 512, &panel));
        CU_ASSERT(qtype_bytes(t, 16 * 512, &file));
        CU_ASSERT((double)panel == (double)file * growth);
        CU_ASSERT(packed_growth(t) == growth && growth <= 1.05);
        if (qtype_info(t)->block ==
            256) { /* half a super-block before and after: another header of 16 x 2 or 4 bytes */
            CU_ASSERT(packed_panel_bytes(t, 128, 512, &cut));
            CU_ASSERT(cut == panel + (qtype_info(t)->has_min ? 64 : 32));
        }
        CU_ASSERT(packed_panel_bytes(t, 0, 0, &panel) && panel == 0);
        CU_ASSERT(!packed_panel_bytes(t, 0, INT64_MAX / 32 * 32, &panel));
        CU_ASSERT(!packed_panel_bytes(t, 0, -32, &panel));
        CU_ASSERT(!packed_panel_bytes(t, qtype_info(t)->block, 64, &panel));
    }
    size_t bytes;
    CU_ASSERT(!packed_panel_bytes(QT_Q4_0, 0, 40, &bytes)); /* not whole groups */
    CU_ASSERT(!packed_panel_bytes(QT_Q6_K, 16, 64, &bytes));
    CU_ASSERT(!packed_panel_bytes(QT_A8, 0, 64, &bytes));
    CU_ASSERT(!packed_panel_bytes(QT_I32, 0, 64, &bytes));
}

/* Column 5, group 1, value 13 by hand: Q4 byte [13/8][c][13%8%4] high nibble (13 % 8 >= 4); Q8 byte [13/4][c][13%4]. */
static void codes_stand_where_the_header_says(void) {
    uint8_t *q4 = random_blocks(QT_Q4_0, 16, 64, CODES_RANDOM), *q8 = random_blocks(QT_Q8_0, 16, 64, CODES_RANDOM);
    PackedWeights w4 = pack_weights(QT_Q4_0, 16, 64, q4), w8 = pack_weights(QT_Q8_0, 16, 64, q8);
    const uint8_t *file4 = q4 + (5 * 2 + 1) * 18, *file8 = q8 + (5 * 2 + 1) * 34;
    CU_ASSERT(w4.data[288 + 64 * 1 + 4 * 5 + 1] >> 4 == (file4[2 + 13] & 15));
    CU_ASSERT(memcmp(w4.data + 288 + 256 + 2 * 5, file4, 2) == 0);
    CU_ASSERT(w8.data[544 + 64 * 3 + 4 * 5 + 1] == (uint8_t)(file8[2 + 13] + 128));
    CU_ASSERT(memcmp(w8.data + 544 + 512 + 2 * 5, file8, 2) == 0);
    free(q4), free(q8), free((void *)w4.data), free((void *)w8.data);
}

/* Column 5 of the group of 32 from value 288 (the second super-block's group 1), value 13 of it: word v = 3, byte j =
 * 1; the groups of a super-block of Q6_K take 384 + 32 bytes, of Q4_K 256 + 32. */
static void super_blocks_stand_where_the_header_says(void) {
    QBlock b;
    uint8_t *q6 = random_blocks(QT_Q6_K, 16, 512, CODES_RANDOM), *q4 = random_blocks(QT_Q4_K, 16, 512, CODES_RANDOM);
    PackedWeights w6 = pack_weights(QT_Q6_K, 16, 512, q6), w4 = pack_weights(QT_Q4_K, 16, 512, q4);
    qtype_unpack(QT_Q6_K, q6 + (5 * 2 + 1) * 210, &b);
    const uint8_t *header = w6.data + 32 + 8 * 416, *group = header + 32 + 416;
    CU_ASSERT(memcmp(header + 2 * 5, &b.d, 2) == 0);
    CU_ASSERT(group[64 * 1 + 4 * 5 + 1] >> 4 == (b.code[32 + 13] & 15));
    CU_ASSERT((group[256 + 64 * 0 + 4 * 5 + 1] >> 6) == b.code[32 + 13] >> 4);
    CU_ASSERT((int8_t)group[384 + 5] == b.scale[2] && (int8_t)group[384 + 16 + 5] == b.scale[3]);
    qtype_unpack(QT_Q4_K, q4 + (5 * 2 + 1) * 144, &b);
    header = w4.data + 64 + 8 * 288, group = header + 64 + 288;
    CU_ASSERT(memcmp(header + 2 * 5, &b.d, 2) == 0 && memcmp(header + 32 + 2 * 5, &b.dmin, 2) == 0);
    CU_ASSERT(group[64 * 1 + 4 * 5 + 1] >> 4 == b.code[32 + 13]);
    CU_ASSERT(group[256 + 5] == b.scale[1] && group[256 + 16 + 5] == b.min[1]);
    free(q6), free(q4), free((void *)w6.data), free((void *)w4.data);
}

static void columns_past_the_end_are_zero(void) {
    for (int i = 0; i < N_TYPES; i++) {
        uint8_t *blocks = random_blocks(weight_types[i], 3, 256, CODES_WILD);
        PackedWeights w = pack_weights(weight_types[i], 3, 256, blocks);
        float row[256];
        w.n = 16;
        for (int64_t r = 3; r < 16; r++) {
            unpack_row(&w, r, row);
            for (int j = 0; j < 256; j++) CU_ASSERT(row[j] == 0.0f);
        }
        free(blocks), free((void *)w.data);
    }
}

static void parts_with(int planes) {
    int64_t capacity = 70, k = 96;
    uint8_t *memory = test_alloc(act_bytes(capacity, k, planes));
    for (int64_t m = 1; m <= capacity; m += 23) {
        ActQ a = act_view(memory, capacity, m, k, planes);
        size_t codes = (size_t)(m * k * planes), entries = (size_t)(m * k / 32) * 4;
        const uint8_t *parts[] = {(uint8_t *)a.codes, (uint8_t *)a.scale, (uint8_t *)a.sum, (uint8_t *)a.half_sum,
                                  memory + act_bytes(capacity, k, planes)};
        for (int i = 0; i < 4; i++) {
            CU_ASSERT((uintptr_t)parts[i] % 64 == 0);
            CU_ASSERT(parts[i] + (i == 0 ? codes : entries) <= parts[i + 1]);
        }
    }
    free(memory);
}

static void activation_parts_are_aligned_and_apart(void) {
    parts_with(1);
    parts_with(2);
}

int main(void) {
    CU_TestInfo tests[] = {{"unpacking equals dequantising", unpacking_equals_dequantising},
                           {"slices at any group", slices_at_any_group},
                           {"bytes beside the file's", bytes_beside_the_files},
                           {"codes stand where the header says", codes_stand_where_the_header_says},
                           {"super-blocks stand where the header says", super_blocks_stand_where_the_header_says},
                           {"columns past the end are zero", columns_past_the_end_are_zero},
                           {"activation parts are aligned and apart", activation_parts_are_aligned_and_apart},
                           CU_TEST_INFO_NULL};
    return check_run("pack", tests);
}
