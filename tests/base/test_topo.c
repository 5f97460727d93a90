/* The machine in tables: this one, against the system's own files; pretended ones, against what their description says
 * (tests/reference/topologies.py made the files). */
#include "base/topo.h"
#include "check.h"

#include <sched.h>

static Topo t;

static void test_this_machine(void) {
    Err e = {""};
    cpu_set_t mask;
    CU_ASSERT_FATAL(sched_getaffinity(0, sizeof mask, &mask) == 0);
    CU_ASSERT_FATAL(topo_load(&t, &e) == 0);
    CU_ASSERT(!t.pretended && t.n_cpus >= CPU_COUNT(&mask) && t.n_nodes >= 1);
    int firsts = 0;
    for (int i = 0; i < t.n_cpus; i++) {
        char path[96], list[32];
        const TopoCpu *c = &t.cpu[i];
        CU_ASSERT(topo_find_cpu(&t, c->id) == i);
        CU_ASSERT(c->node >= 0 && c->node < t.n_nodes);
        firsts += c->sibling == 0;
        /* The kernel lists the hardware threads of a core, its first one first. */
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c->id);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fgets(list, sizeof list, f)) CU_ASSERT((c->sibling == 0) == (strtol(list, NULL, 10) == c->id));
        fclose(f);
    }
    CU_ASSERT(firsts == t.n_cores);
    CU_ASSERT(topo_find_cpu(&t, 1000000) == -1);
}

static bool pretend(const char *variable, const char *value) {
    Err e = {""};
    char path[512];
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_XMLFILE");
    const char *fixtures = getenv("SHEAF_FIXTURES");
    snprintf(path, sizeof path, "%s/topo/%s.xml", fixtures ? fixtures : ".", value);
    setenv(variable, strcmp(variable, "HWLOC_XMLFILE") == 0 ? path : value, 1);
    bool loaded = topo_load(&t, &e) == 0;
    if (!loaded) fprintf(stderr, "%s\n", e.msg);
    unsetenv(variable);
    return loaded && t.pretended;
}

static void test_synthetic(void) {
    CU_ASSERT_FATAL(pretend("HWLOC_SYNTHETIC", "package:2 numa:2 l3:2 core:3 pu:2"));
    CU_ASSERT(t.n_packages == 2 && t.n_nodes == 4 && t.n_l3 == 8 && t.n_cores == 24 && t.n_cpus == 48);
    const TopoCpu *c = &t.cpu[47];
    CU_ASSERT(c->id == 47 && c->package == 1 && c->node == 3 && c->l3 == 7 && c->core == 23 && c->sibling == 1);
    for (int i = 0; i < 4; i++) CU_ASSERT(t.node[i].memory == i && t.node[i].bytes > 0 && t.node[i].n_cpus == 12);
}

static void test_odd_machines(void) {
    CU_ASSERT_FATAL(pretend("HWLOC_XMLFILE", "no_memory"));
    CU_ASSERT(t.n_nodes == 3 && t.node[1].bytes == 0 && t.node[1].n_cpus == 4);
    CU_ASSERT(t.node[1].memory == 2 && t.node[0].memory == 0); /* distance 16, against 21 to node 0 */
    CU_ASSERT_FATAL(pretend("HWLOC_XMLFILE", "no_cores"));
    CU_ASSERT(t.n_nodes == 3 && t.node[2].n_cpus == 0 && t.node[2].bytes == (uint64_t)64 << 30);
    CU_ASSERT(t.cpu[7].node == 1);
    CU_ASSERT_FATAL(pretend("HWLOC_XMLFILE", "hybrid"));
    CU_ASSERT(t.n_cores == 12 && !t.cpu[7].slow && t.cpu[8].slow);
    CU_ASSERT_FATAL(pretend("HWLOC_XMLFILE", "capacity"));
    CU_ASSERT(t.cpu[3].slow && !t.cpu[4].slow);
    CU_ASSERT_FATAL(pretend("HWLOC_XMLFILE", "half_socket"));
    CU_ASSERT(t.n_cpus == 4 && t.n_cores == 2 && t.cpu[0].id == 8 && t.cpu[0].node == 1);
}

static void test_refusals(void) {
    Err e = {""};
    setenv("HWLOC_SYNTHETIC", "sockets and cores", 1);
    CU_ASSERT(topo_load(&t, &e) == -1 && strstr(e.msg, "HWLOC_SYNTHETIC") && strstr(e.msg, "sockets and cores"));
    setenv("HWLOC_SYNTHETIC", "package:2 numa:1 core:1024 pu:1", 1);
    CU_ASSERT(topo_load(&t, &e) == -1 && strstr(e.msg, "2048 CPUs"));
    setenv("HWLOC_SYNTHETIC", "numa:65 pu:1", 1);
    CU_ASSERT(topo_load(&t, &e) == -1 && strstr(e.msg, "65 NUMA nodes"));
    unsetenv("HWLOC_SYNTHETIC");
}

static void test_names(void) {
    char name[128] = "", tiny[4];
    topo_cpu_name(name, sizeof name);
    CU_ASSERT(strlen(name) > 0 && !strchr(name, '\n'));
    topo_cpu_name(tiny, sizeof tiny);
    CU_ASSERT(strlen(tiny) <= 3);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"this machine", test_this_machine}, {"synthetic", test_synthetic}, {"odd machines", test_odd_machines},
        {"refusals", test_refusals},         {"names", test_names},         CU_TEST_INFO_NULL};
    return check_run("topo", tests);
}
