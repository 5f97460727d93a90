/* Which tables this build has, which of them this CPU can run, and which one is used. */
#include "kernels/table.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

/* __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the wide registers. */
static bool always(void) { return true; }
static bool has_f16c(void) { /* not a name that every compiler's builtin knows */
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static bool can_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
static bool can_avx512vnni(void) {
    return can_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

static const struct {
    const Kernels *kernels;
    bool (*runnable)(void);
} tables[] = {{&kernels_ref, always}, {&kernels_avx2, can_avx2}, {&kernels_avx512vnni, can_avx512vnni}};
enum { N_TABLES = sizeof tables / sizeof tables[0] };

const Kernels *kernels_at(int i, bool *runnable) {
    if (i < 0 || i >= N_TABLES) return NULL;
    *runnable = tables[i].runnable();
    return tables[i].kernels;
}

int kernels_index(const Kernels *k) {
    for (int i = 0; i < N_TABLES; i++)
        if (tables[i].kernels == k) return i;
    return -1;
}

/* "ref avx2 ..." of those this CPU can run. */
static void list_runnable(char *buf, size_t size) {
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < N_TABLES && used < size; i++)
        if (tables[i].runnable())
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", tables[i].kernels->name);
}

int kernels_select(const char *forced, const Kernels **out, Err *e) {
    bool any = !forced || !*forced;
    for (int i = N_TABLES - 1; i >= 0; i--) {
        bool named = !any && strcmp(forced, tables[i].kernels->name) == 0;
        if ((any || named) && tables[i].runnable()) {
            *out = tables[i].kernels;
            return 0;
        }
    }
    char list[128];
    list_runnable(list, sizeof list);
    return err_set(e, "instruction set '%s': unknown or not supported by this CPU; choose one of %s", forced, list);
}
