/* Packed weights give back what the file holds; the layouts are those that kernels.h describes. */
#include "kernel_data.h"

static const QType weight_types[] = {QT_F32, QT_F16, QT_BF16, QT_Q4_0, QT_Q4_1, QT_Q8_0};
enum { N_TYPES = sizeof weight_types / sizeof weight_types[0] };

static void unpacking_equals_dequantising(void) {
    for (int i = 0; i < N_TYPES; i++) {
        QType t = weight_types[i];
        int64_t n = 37, k = 96;
        uint8_t *blocks = random_blocks(t, n, k, CODES_RANDOM);
        PackedWeights w = pack_weights(t, n, k, blocks);
        float *row = floats(k), *want = floats(n * k);
        qtype_dequantise(t, blocks, n * k, want);
        for (int64_t r = 0; r < n; r++) {
            unpack_row(&w, r, row);
            CU_ASSERT(memcmp(row, want + r * k, (size_t)k * sizeof *row) == 0);
        }
        free(blocks), free((void *)w.data), free(row), free(want);
    }
}

static void packed_bytes_equal_the_files(void) {
    for (int i = 0; i < N_TYPES; i++) {
        size_t panel, file;
        CU_ASSERT(packed_panel_bytes(weight_types[i], 256, &panel));
        CU_ASSERT(qtype_bytes(weight_types[i], 16 * 256, &file));
        CU_ASSERT(panel == file);
        CU_ASSERT(!packed_panel_bytes(weight_types[i], INT64_MAX / 32 * 32, &panel));
        CU_ASSERT(!packed_panel_bytes(weight_types[i], -32, &panel));
    }
    size_t bytes;
    CU_ASSERT(!packed_panel_bytes(QT_Q4_0, 40, &bytes)); /* not whole groups */
    CU_ASSERT(!packed_panel_bytes(QT_A8, 64, &bytes));
    CU_ASSERT(!packed_panel_bytes(QT_I32, 64, &bytes));
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

static void columns_past_the_end_are_zero(void) {
    for (int i = 0; i < N_TYPES; i++) {
        uint8_t *blocks = random_blocks(weight_types[i], 3, 64, CODES_WILD);
        PackedWeights w = pack_weights(weight_types[i], 3, 64, blocks);
        float row[64];
        w.n = 16;
        for (int64_t r = 3; r < 16; r++) {
            unpack_row(&w, r, row);
            for (int j = 0; j < 64; j++) CU_ASSERT(row[j] == 0.0f);
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
        const uint8_t *parts[] = {(uint8_t *)a.codes, (uint8_t *)a.scale, (uint8_t *)a.scaled_sum, (uint8_t *)a.sum,
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
                           {"packed bytes equal the file's", packed_bytes_equal_the_files},
                           {"codes stand where the header says", codes_stand_where_the_header_says},
                           {"columns past the end are zero", columns_past_the_end_are_zero},
                           {"activation parts are aligned and apart", activation_parts_are_aligned_and_apart},
                           CU_TEST_INFO_NULL};
    return check_run("pack", tests);
}
