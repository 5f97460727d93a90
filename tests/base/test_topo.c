/* Which CPUs a rank gets. The affinity of this process stands for the machine; narrowing it is seen by a child, whose
 * parent (this process) then has the same mask: nobody's own, so all local ranks share it. */
#include "base/topo.h"
#include "check.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static int cpus[TOPO_MAX_CPUS], other[TOPO_MAX_CPUS];

static void test_shares(void) {
    Err e;
    cpu_set_t mask;
    CU_ASSERT_FATAL(sched_getaffinity(0, sizeof mask, &mask) == 0);
    int cores = topo_cores(&e);
    CU_ASSERT_FATAL(cores >= 1 && cores <= CPU_COUNT(&mask));
    int n = topo_cpus(0, 1, 0, cpus, &e);
    CU_ASSERT(n >= 1 && n <= cores);
    for (int i = 0; i < n; i++) {
        CU_ASSERT(CPU_ISSET((size_t)cpus[i], &mask));
        for (int k = 0; k < i; k++) CU_ASSERT(cpus[k] != cpus[i]);
    }
    CU_ASSERT(topo_cpus(0, 1, cores, cpus, &e) == cores);
    /* Ranks of one core each: together all cores, in order; and the next one starts over. */
    for (int r = 0; r < cores; r++) CU_ASSERT(topo_cpus(r, cores, 1, other, &e) == 1 && other[0] == cpus[r]);
    for (int r = 0; r < 3 * cores; r++) {
        CU_ASSERT(topo_cpus(r, 3 * cores, 0, other, &e) == 1);
        CU_ASSERT(other[0] == cpus[r % cores]);
    }
    /* More threads than cores wrap around. */
    CU_ASSERT(topo_cpus(0, 1, cores + 1, other, &e) == cores + 1 && other[cores] == cpus[0]);
    CU_ASSERT(topo_cpus(1, 2, cores, other, &e) == cores && other[0] == cpus[0]);
}

static void test_narrowed(void) {
    Err e;
    cpu_set_t mask, one;
    CU_ASSERT_FATAL(sched_getaffinity(0, sizeof mask, &mask) == 0);
    int last = -1;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET((size_t)c, &mask)) last = c;
    CPU_ZERO(&one);
    CPU_SET((size_t)last, &one);
    CU_ASSERT_FATAL(sched_setaffinity(0, sizeof one, &one) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(topo_cpus(1, 2, 0, cpus, &e) == 1 && cpus[0] == last && topo_cores(&e) == 1 ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    sched_setaffinity(0, sizeof mask, &mask);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A child that binds itself is a rank bound by the launcher: what it has is its own. But what mpirun did unasked does
 * not count. */
static int bound_child(const char *variable) {
    Err e;
    cpu_set_t mask, one;
    int all = topo_cores(&e), n = topo_cpus(0, 1, all, cpus, &e);
    sched_getaffinity(0, sizeof mask, &mask);
    CPU_ZERO(&one);
    CPU_SET((size_t)cpus[n - 1], &one);
    sched_setaffinity(0, sizeof one, &one);
    if (n == 1) return 0; /* one core: nothing to tell apart */
    setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
    if (variable) setenv(variable, "core", 1);
    int got = topo_cpus(0, 2, 0, other, &e);
    if (variable) return got == 1 && other[0] == cpus[n - 1] ? 0 : 1;
    return got == (n + 1) / 2 && other[0] == cpus[0] ? 0 : 2;
}

static void test_bound(void) {
    static const char *const variable[] = {"OMPI_MCA_hwloc_base_binding_policy", NULL};
    for (int i = 0; i < 2; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) _exit(bound_child(variable[i]));
        int status = -1;
        waitpid(child, &status, 0);
        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void test_names(void) {
    char name[128] = "", tiny[4];
    topo_cpu_name(name, sizeof name);
    CU_ASSERT(strlen(name) > 0 && !strchr(name, '\n'));
    topo_cpu_name(tiny, sizeof tiny);
    CU_ASSERT(strlen(tiny) <= 3);
    Err e;
    CU_ASSERT_FATAL(topo_cpus(0, 1, 1, cpus, &e) == 1);
    CU_ASSERT(topo_node_of_cpu(cpus[0]) >= -1);
    CU_ASSERT(topo_node_of_cpu(1000000) == -1);
}

static void test_refusals(void) {
    Err e;
    CU_ASSERT(topo_cpus(2, 2, 0, cpus, &e) == -1);
    CU_ASSERT(topo_cpus(0, 0, 0, cpus, &e) == -1);
    CU_ASSERT(topo_cpus(0, 1, -1, cpus, &e) == -1);
    CU_ASSERT(topo_cpus(0, 1, TOPO_MAX_CPUS + 1, cpus, &e) == -1);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"shares", test_shares}, {"narrowed", test_narrowed}, {"bound", test_bound},
                                        {"names", test_names},   {"refusals", test_refusals}, CU_TEST_INFO_NULL};
    return check_run("topo", tests);
}
