/* The table of number formats, and half precision, which is checked against the compiler's own conversions. */
#include "base/size.h"
#include "check.h"
#include "quant/qtype.h"

#include <math.h>

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* All 65536 halves: value = (-1)^s 2^(e-15) (1 + m/1024), or 2^-14 m/1024 when e = 0 (IEEE 754-2008, 3.4). */
static void test_f16_widen(void) {
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        float got = f16_to_f32((uint16_t)h), want = (float)(h & 0x8000 ? -v : v);
        wrong += isnan(want) ? !isnan(got) : bits_of(got) != bits_of(want);
        wrong += !isnan(want) && f32_to_f16(got) != h; /* and back */
    }
    CU_ASSERT(wrong == 0);
}

/* Between each pair of neighbouring halves: the midpoint goes to the even one, anything else to the nearer. */
static void test_f16_narrow(void) {
    int wrong = 0;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1)), middle = (low + high) * 0.5f;
        wrong += f32_to_f16(middle) != (h & 1 ? h + 1 : h);
        wrong += f32_to_f16(nextafterf(middle, 0)) != h;
        wrong += f32_to_f16(nextafterf(middle, INFINITY)) != h + 1;
        wrong += f32_to_f16(-middle) != (0x8000 | (h & 1 ? h + 1 : h));
    }
    CU_ASSERT(wrong == 0);
    CU_ASSERT(f32_to_f16(65519.996f) == 0x7bff); /* below the midpoint to 2^16 */
    CU_ASSERT(f32_to_f16(65520.0f) == 0x7c00);
    CU_ASSERT(f32_to_f16(1e30f) == 0x7c00 && f32_to_f16(-INFINITY) == 0xfc00);
    CU_ASSERT(isnan(f16_to_f32(f32_to_f16(NAN))) && isnan(f16_to_f32(f32_to_f16(float_of(0x7f800001)))));
}

/* A sample over all floats against the compiler's (the CPU's, where it has them) conversions. */
static void test_f16_hardware(void) {
#ifdef __FLT16_MAX__
    int wrong = 0;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 257) {
        float f = float_of((uint32_t)u);
        _Float16 h = (_Float16)f;
        uint16_t want;
        memcpy(&want, &h, sizeof want);
        wrong += isnan(f) ? !isnan(f16_to_f32(f32_to_f16(f))) : f32_to_f16(f) != want;
    }
    CU_ASSERT(wrong == 0);
#else
    printf("    this compiler has no _Float16: not compared\n");
#endif
}

/* bf16: the nearest of the two neighbours that share the upper 16 bits, in exact double arithmetic. */
static void test_bf16(void) {
    int wrong = 0;
    for (uint64_t u = 0; u < 0x7f7f0000; u += 4093) {
        float f = float_of((uint32_t)u);
        uint16_t low = (uint16_t)(u >> 16);
        double down = (double)f - bf16_to_f32(low), up = (double)bf16_to_f32((uint16_t)(low + 1)) - f;
        uint16_t want = (uint16_t)(down < up || (down == up && !(low & 1)) ? low : low + 1);
        wrong += f32_to_bf16(f) != want;
        wrong += f32_to_bf16(-f) != (want | 0x8000);
    }
    CU_ASSERT(wrong == 0);
    CU_ASSERT(f32_to_bf16(1.00390625f) == 0x3f80); /* 1 + 2^-8: a tie, to even */
    CU_ASSERT(f32_to_bf16(1.01171875f) == 0x3f82); /* 1 + 3 * 2^-8 */
    CU_ASSERT(f32_to_bf16(INFINITY) == 0x7f80 && f32_to_bf16(3.4e38f) == 0x7f80);
    CU_ASSERT(isnan(bf16_to_f32(f32_to_bf16(float_of(0x7f800001)))));
}

static void test_table(void) {
    size_t bytes;
    CU_ASSERT(qtype_from_gguf(0) == QT_F32 && qtype_from_gguf(1) == QT_F16 && qtype_from_gguf(30) == QT_BF16);
    CU_ASSERT(qtype_from_gguf(2) == QT_Q4_0 && qtype_from_gguf(3) == QT_Q4_1 && qtype_from_gguf(8) == QT_Q8_0);
    CU_ASSERT(qtype_from_gguf(12) == QT_Q4_K && qtype_from_gguf(14) == QT_Q6_K && qtype_from_gguf(23) == QT_IQ4_XS);
    CU_ASSERT(qtype_from_gguf(4) == -1 && qtype_from_gguf(19) == -1 && qtype_from_gguf(UINT32_MAX) == -1);
    CU_ASSERT(qtype_bytes(QT_Q4_0, 64, &bytes) && bytes == 36);
    CU_ASSERT(qtype_bytes(QT_Q4_1, 64, &bytes) && bytes == 40);
    CU_ASSERT(qtype_bytes(QT_Q8_0, 64, &bytes) && bytes == 68);
    CU_ASSERT(qtype_bytes(QT_BF16, 3, &bytes) && bytes == 6);
    CU_ASSERT(!qtype_bytes(QT_Q8_0, 33, &bytes));
    CU_ASSERT(!qtype_bytes(QT_F32, UINT64_MAX / 2, &bytes));
    CU_ASSERT(!qtype_bytes(QT_A8, 32, &bytes)); /* never in a file */
    CU_ASSERT(qtype_bytes(QT_Q4_K, 512, &bytes) && bytes == 288);
    CU_ASSERT(!qtype_bytes(QT_Q4_K, 288, &bytes)); /* whole groups, but no whole super-block */
    for (int t = 0; t < QT_COUNT; t++) {
        const QTypeInfo *q = qtype_info((QType)t);
        CU_ASSERT(q->name != NULL && q->group >= 1 && q->block >= q->group && q->block % q->group == 0);
        CU_ASSERT((q->block == q->group) == (q->scale_bits == 0));
        CU_ASSERT(q->gguf_id < 0 || qtype_from_gguf((uint32_t)q->gguf_id) == t);
    }
}

/* A block's bytes are its codes, the groups' scales (and minima), and one fp16 number or two. */
static void test_sizes(void) {
    for (QType t = QT_Q4_0; t <= QT_IQ4_XS; t++) {
        const QTypeInfo *q = qtype_info(t);
        int per_group = q->scale_bits * (q->has_min ? 2 : 1),
            bits = q->block * q->bits + q->block / q->group * per_group;
        CU_ASSERT_EQUAL(q->block_bytes, bits / 8 + (q->has_min ? 4 : 2));
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"f16 to f32", test_f16_widen},
                                        {"f32 to f16", test_f16_narrow},
                                        {"f16, the compiler's", test_f16_hardware},
                                        {"bf16", test_bf16},
                                        {"table", test_table},
                                        {"sizes", test_sizes},
                                        CU_TEST_INFO_NULL};
    return check_run("qtype", tests);
}
