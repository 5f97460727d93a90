/* det_* against values worked out to 60 digits (tests/reference/detmath_reference.py). */
#include "base/detmath.h"
#include "check.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Worst {
    const char *name;
    double bound, error, x, y; /* relative, or absolute for the sine and cosine */
    int n;
} Worst;

static double call(const char *name, double x, double y) {
    if (!strcmp(name, "exp")) return det_exp(x);
    if (!strcmp(name, "log")) return det_log(x);
    if (!strcmp(name, "pow")) return det_pow(x, y);
    return !strcmp(name, "sin") ? det_sin(x) : det_cos(x);
}

static void test_accuracy(void) {
    Worst worst[] = {{.name = "exp", .bound = 1e-15},
                     {.name = "log", .bound = 1e-15},
                     {.name = "pow", .bound = 1e-15},
                     {.name = "sin", .bound = 1e-15},
                     {.name = "cos", .bound = 1e-15}};
    char path[512], name[8];
    double x, y, want;
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", "detmath.txt"));
    FILE *f = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    while (fscanf(f, "%7s %la %la %la", name, &x, &y, &want) == 4) {
        double error = fabs(call(name, x, y) - want);
        bool relative = name[0] != 's' && name[0] != 'c';
        if (relative) error = want >= 0x1p-1022 || want <= -0x1p-1022 ? error / fabs(want) : 0;
        for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
            if (strcmp(worst[i].name, name) != 0) continue;
            worst[i].n++;
            if (error > worst[i].error || error != error) worst[i].error = error, worst[i].x = x, worst[i].y = y;
        }
    }
    fclose(f);
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++) {
        const Worst *w = &worst[i];
        printf("    %s: %d values, largest error %.2g at %a %a\n", w->name, w->n, w->error, w->x, w->y);
        CU_ASSERT(w->n >= 60);
        CU_ASSERT(w->error < w->bound);
    }
}

static void test_edges(void) {
    CU_ASSERT(det_exp(0) == 1);
    CU_ASSERT(det_exp(1000) == INFINITY && det_exp(INFINITY) == INFINITY);
    CU_ASSERT(det_exp(-1000) == 0 && det_exp(-INFINITY) == 0);
    CU_ASSERT(det_exp(-745) == 0x1p-1074); /* exp(-745) = 4.99e-324: the smallest subnormal */
    CU_ASSERT(isnan(det_exp(NAN)));
    CU_ASSERT(det_log(1) == 0);
    CU_ASSERT(det_log(0) == -INFINITY && det_log(INFINITY) == INFINITY);
    CU_ASSERT(isnan(det_log(-1)) && isnan(det_log(NAN)));
    CU_ASSERT_DOUBLE_EQUAL(det_log(0x1p-1074), -1074 * 0.69314718055994530942, 1e-12);
    CU_ASSERT(det_pow(5, 0) == 1 && det_pow(1, 1e300) == 1);
    CU_ASSERT(det_pow(10000, -0.5) == 0.01 && det_pow(2, 10) == 1024 && det_pow(2, -1074) == 0x1p-1074);
    CU_ASSERT(det_pow(0, 2) == 0 && det_pow(0, -2) == INFINITY);
    CU_ASSERT(det_pow(INFINITY, 2) == INFINITY && det_pow(INFINITY, -2) == 0);
    CU_ASSERT(det_pow(10, 400) == INFINITY && det_pow(10, -400) == 0);
    CU_ASSERT(isnan(det_pow(-2, 2)) && isnan(det_pow(NAN, 1)) && isnan(det_pow(2, NAN)));
    CU_ASSERT(det_sin(0) == 0 && det_cos(0) == 1);
    CU_ASSERT(isnan(det_sin(INFINITY)) && isnan(det_cos(NAN)) && isnan(det_sin(1.1e7)));
}

/* The same bits everywhere: a hash of many results, the same on every CPU and compiler that this suite runs on. */
static void test_bits(void) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (int i = 1; i <= 20000; i++) {
        double x = i * 0.37, values[] = {det_exp(-x / 16), det_log(x), det_pow(1e4, -x / 7400), det_sin(x), det_cos(x)};
        for (size_t k = 0; k < 5; k++) {
            uint64_t bits;
            memcpy(&bits, &values[k], sizeof bits);
            for (int b = 0; b < 64; b += 8) hash = (hash ^ ((bits >> b) & 255)) * 0x100000001b3u;
        }
    }
    printf("    hash %016llx\n", (unsigned long long)hash);
    CU_ASSERT(hash == 0xcf734c170b87d174u);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"accuracy", test_accuracy}, {"edges", test_edges}, {"bits", test_bits}, CU_TEST_INFO_NULL};
    return check_run("detmath", tests);
}
