/* Blocks of the weight formats: against the gguf package (tests/reference/qtype_reference.py), by hand, and taken apart
 * and put together again. All results are equal to the bit. */
#include "check.h"
#include "quant/qtype.h"

#include <math.h>

/* One block of each by hand, from the block's description: codes 0..15 at j, 15..0 at j + 16. */
static void test_by_hand(void) {
    uint8_t b[34];
    float y[32];
    for (int j = 0; j < 16; j++) b[2 + j] = (uint8_t)(j | (15 - j) << 4);
    b[0] = 0x00, b[1] = 0x38; /* fp16 0.5 */
    qtype_dequantise(QT_Q4_0, b, 32, y);
    for (int j = 0; j < 16; j++) CU_ASSERT(y[j] == 0.5f * (float)(j - 8) && y[j + 16] == 0.5f * (float)(7 - j));
    memmove(b + 4, b + 2, 16);
    b[2] = 0x00, b[3] = 0xbc; /* fp16 -1 */
    qtype_dequantise(QT_Q4_1, b, 32, y);
    for (int j = 0; j < 16; j++) CU_ASSERT(y[j] == 0.5f * (float)j - 1 && y[j + 16] == 0.5f * (float)(15 - j) - 1);
    for (int j = 0; j < 32; j++) b[2 + j] = (uint8_t)(j * 8 - 128);
    qtype_dequantise(QT_Q8_0, b, 32, y);
    for (int j = 0; j < 32; j++) CU_ASSERT(y[j] == 0.5f * (float)(j * 8 - 128));
}

/* A Q4_K block by hand: d 0.5, dmin 1, scales 1..8 and minima 63..56, and the same codes 0..15, 0..15 in each group of
 * 32. The bytes of scales: 0..3 scales 1..4, 4..7 minima 63..60, with the upper two bits of the other four above them,
 * which are 0 for scales 5..8 and 3 for minima 59..56; then their lower four. */
static void test_super_block_by_hand(void) {
    static const uint8_t scales[12] = {1,           2,           3,           4,           63 | 3 << 6, 62 | 3 << 6,
                                       61 | 3 << 6, 60 | 3 << 6, 5 | 11 << 4, 6 | 10 << 4, 7 | 9 << 4,  8 | 8 << 4};
    uint8_t b[144] = {0x00, 0x38, 0x00, 0x3c};
    float y[256];
    memcpy(b + 4, scales, sizeof scales);
    for (int j = 0; j < 128; j++) b[16 + j] = (uint8_t)(j % 16 * 0x11);
    qtype_dequantise(QT_Q4_K, b, 256, y);
    for (int i = 0; i < 256; i++)
        CU_ASSERT(y[i] == 0.5f * (float)(i / 32 + 1) * (float)(i % 16) - (float)(63 - i / 32));
}

typedef struct Fixture {
    uint32_t n; /* values */
    bool has_x;
    size_t bytes;
    float x[2048], y[2048];
    uint8_t blocks[8192];
} Fixture;

static void read_fixture(QType t, Fixture *f) {
    char path[512], name[32];
    snprintf(name, sizeof name, "qtype_%s.bin", qtype_info(t)->name);
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", name));
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_FATAL(fread(&f->n, sizeof f->n, 1, file) == 1);
    f->has_x = f->n > 0;
    if (!f->has_x) CU_ASSERT_FATAL(fread(&f->n, sizeof f->n, 1, file) == 1);
    CU_ASSERT_FATAL(f->n <= 2048 && qtype_bytes(t, f->n, &f->bytes) && f->bytes <= sizeof f->blocks);
    if (f->has_x) CU_ASSERT_FATAL(fread(f->x, sizeof *f->x, f->n, file) == f->n);
    CU_ASSERT_FATAL(fread(f->blocks, 1, f->bytes, file) == f->bytes);
    CU_ASSERT_FATAL(fread(f->y, sizeof *f->y, f->n, file) == f->n);
    fclose(file);
}

static void test_fixtures(void) {
    static Fixture f;
    static float got[2048];
    static uint8_t made[8192];
    for (QType t = QT_F32; t <= QT_IQ4_XS; t++) {
        const char *name = qtype_info(t)->name;
        read_fixture(t, &f);
        qtype_dequantise(t, f.blocks, f.n, got);
        if (memcmp(got, f.y, f.n * sizeof *got) != 0) printf("    %s: values differ\n", name);
        CU_ASSERT(memcmp(got, f.y, f.n * sizeof *got) == 0);
        if (!f.has_x) continue;
        qtype_quantise(t, f.x, f.n, made);
        if (memcmp(made, f.blocks, f.bytes) != 0) printf("    %s: blocks differ\n", name);
        CU_ASSERT(memcmp(made, f.blocks, f.bytes) == 0);
    }
}

/* Any bytes are a block: taken apart, every part is in its range, and put together they are the same bytes. */
static void test_apart_and_together(void) {
    uint32_t state = 12345;
    for (QType t = QT_Q4_0; t <= QT_IQ4_XS; t++) {
        const QTypeInfo *q = qtype_info(t);
        int low = t == QT_Q8_0 ? -128 : 0, high = t == QT_Q8_0 ? 127 : (1 << q->bits) - 1, wrong = 0;
        int half = q->scale_bits && !q->has_min ? 1 << (q->scale_bits - 1) : 0,
            most = q->scale_bits ? (1 << q->scale_bits) - 1 : 1;
        uint8_t block[QBLOCK_MAX], again[QBLOCK_MAX];
        QBlock b;
        for (int round = 0; round < 200; round++) {
            for (int i = 0; i < q->block_bytes; i++)
                block[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
            qtype_unpack(t, block, &b);
            qtype_pack(t, &b, again);
            wrong += memcmp(block, again, (size_t)q->block_bytes) != 0;
            for (int i = 0; i < q->block; i++) wrong += b.code[i] < low || b.code[i] > high;
            for (int g = 0; g < q->block / q->group; g++) {
                wrong += b.scale[g] < -half || b.scale[g] > most - half;
                wrong += q->has_min ? b.min[g] > most || b.min[g] < (q->scale_bits ? 0 : -1) : b.min[g] != 0;
            }
        }
        if (wrong) printf("    %s: %d wrong\n", q->name, wrong);
        CU_ASSERT(wrong == 0);
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"groups by hand", test_by_hand},
                                        {"a super-block by hand", test_super_block_by_hand},
                                        {"fixtures", test_fixtures},
                                        {"apart and together", test_apart_and_together},
                                        CU_TEST_INFO_NULL};
    return check_run("blocks", tests);
}
