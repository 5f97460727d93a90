/* Which CPUs and nodes each rank gets: a table of machines, bindings and wishes; what is expected was worked out by
 * hand from the rules in place.h. */
#include "base/place.h"
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct Case {
    const char *what;
    const char *machine; /* for HWLOC_SYNTHETIC, or a file of fixtures/topo without ".xml" */
    int ranks, threads;
    const char *cores; /* --cores, or NULL */
    const char *bound; /* of each rank: "0-3 4-7"; one for all; "*": everything */
    const char
        *launcher; /* "=": as the ranks; or CPUs, which also means that mpirun bound them by itself or NULL: all */
    bool unasked;
    const char *expected; /* of each rank: the CPUs of its threads in order, and the nodes of their memory */
    const char *note;     /* part of it; NULL: none is wanted */
} Case;

#define ONE   "package:1 numa:1 core:4 pu:1"
#define TWO   "package:2 numa:1 core:4 pu:1"
#define SMT   "package:2 numa:1 core:2 pu:2"
#define NPS   "package:2 numa:4 core:2 pu:1"
#define LARGE "package:2 numa:1 core:64 pu:1"

static const Case cases[] = {
    /* ---- unbound */
    {"a rank, one node", ONE, 1, 0, 0, "*", 0, 0, "0-3@0", 0},
    {"a rank spans two nodes", TWO, 1, 0, 0, "*", 0, 0, "0-7@0,1", 0},
    {"a rank for each node", TWO, 2, 0, 0, "*", 0, 0, "0-3@0 4-7@1", 0},
    {"two ranks for each node", TWO, 4, 0, 0, "*", 0, 0, "0-1@0 2-3@0 4-5@1 6-7@1", 0},
    {"three ranks, two nodes", TWO, 3, 0, 0, "*", 0, 0, "0-1@0 2-3@0 4-7@1", 0},
    {"five ranks, two nodes", TWO, 5, 0, 0, "*", 0, 0, "0-1@0 2@0 3@0 4-5@1 6-7@1", 0},
    {"hardware threads stay free", SMT, 2, 0, 0, "*", 0, 0, "0,2@0 4,6@1", 0},
    {"a rank, eight nodes", NPS, 1, 0, 0, "*", 0, 0, "0-15@0-7", 0},
    {"a rank for each socket of four nodes", NPS, 2, 0, 0, "*", 0, 0, "0-7@0-3 8-15@4-7", 0},
    {"a rank for each of eight nodes", NPS, 8, 0, 0, "*", 0, 0, "0-1@0 2-3@1 4-5@2 6-7@3 8-9@4 10-11@5 12-13@6 14-15@7",
     0},
    /* Whole nodes would give 3, 3 and 2, hence 6, 6 and 4 cores: more than three quarters of 5. */
    {"three ranks, eight nodes", NPS, 3, 0, 0, "*", 0, 0, "0-5@0-2 6-11@3-5 12-15@6,7", 0},
    /* 4 and 2 cores, where 3 each are possible: the nodes are cut. */
    {"unequal nodes", "uneven", 2, 0, 0, "*", 0, 0, "0-3@0 4-7@0,1", 0},
    {"more ranks than cores", ONE, 6, 0, 0, "*", 0, 0, "0@0 0@0 1@0 2@0 2@0 3@0", "6 ranks have 4 cores (CPUs 0-3)"},
    {"CPUs in an order of their own", "package:2 numa:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 2, 0, 0, "*", 0, 0,
     "0-1@0 2-3@1", 0},
    /* ---- odd machines */
    {"memory of a node without", "no_memory", 3, 0, 0, "*", 0, 0, "0-3@0 4-7@2 8-11@2", 0},
    {"a node without CPUs", "no_cores", 2, 0, 0, "*", 0, 0, "0-3@0 4-7@1", 0},
    {"slow cores are left alone", "hybrid", 1, 0, 0, "*", 0, 0, "0-6:2@0", 0},
    {"slow cores when asked for", "hybrid", 1, 8, 0, "*", 0, 0, "0-8:2,9-11@0", 0},
    {"hardware threads last", "hybrid", 1, 14, 0, "*", 0, 0, "0-8:2,9-15,1,3@0", 0},
    {"nothing but slow cores", "hybrid", 2, 0, "8-15", "*", 0, 0, "8-11@0 12-15@0", 0},
    {"little cores", "capacity", 2, 0, 0, "*", 0, 0, "4-5@0 6-7@0", 0},
    {"half a socket allowed", "half_socket", 1, 0, 0, "*", 0, 0, "8,10@1", 0},
    {"two ranks in half a socket", "half_socket", 2, 0, 0, "*", 0, 0, "8@1 10@1", 0},
    /* ---- as many threads as asked for */
    {"few threads use both nodes", TWO, 1, 2, 0, "*", 0, 0, "0,4@0,1", 0},
    {"few threads, many cores", LARGE, 1, 4, 0, "*", 0, 0, "0-96:32@0,1", 0},
    {"few threads of two ranks", TWO, 2, 2, 0, "*", 0, 0, "0,2@0 4,6@1", 0},
    {"asked for hardware threads", SMT, 2, 4, 0, "*", 0, 0, "0,2,1,3@0 4,6,5,7@1", 0},
    {"more threads than there are", ONE, 1, 6, 0, "*", 0, 0, "0-3,0-1@0", 0},
    /* ---- --cores */
    {"chosen cores", TWO, 2, 0, "2-5", "*", 0, 0, "2-3@0 4-5@1", 0},
    {"every other CPU", TWO, 2, 0, "0-6:2", "*", 0, 0, "0,2@0 4,6@1", 0},
    {"chosen cores over a binding", TWO, 2, 0, "0-7", "0 1", 0, 0, "0-3@0 4-7@1", 0},
    {"a chosen hardware thread", SMT, 1, 0, "1,2", "*", 0, 0, "1-2@0", 0},
    /* ---- the launcher's binding */
    {"bound to a node each", TWO, 2, 0, 0, "4-7 0-3", 0, 0, "4-7@1 0-3@0", 0},
    {"bound to a core each", TWO, 2, 0, 0, "1 6", 0, 0, "1@0 6@1", 0},
    {"bound two by two", TWO, 4, 0, 0, "0-3 4-7 0-3 4-7", 0, 0, "0-1@0 4-5@1 2-3@0 6-7@1", 0},
    {"mpirun started in a part of the machine", TWO, 2, 0, 0, "2-5", "=", 0, "2-3@0 4-5@1", 0},
    {"bound by mpirun's own choice", TWO, 2, 0, 0, "0 1", 0, true, "0-3@0 4-7@1", 0},
    {"the same, started in a part", TWO, 2, 0, 0, "0 1", "4-7", true, "4-5@1 6-7@1", 0},
    {"bound to hardware threads of one core, others free", SMT, 2, 0, 0, "0 1", 0, 0, "0,2@0 4,6@1",
     "ranks 0 and 1 were bound to the same cores (all ranks: CPUs 0-1): spread over 4 cores"},
    {"all on core 0, others free", TWO, 2, 0, 0, "0 0", 0, 0, "0-3@0 4-7@1", "spread over 8 cores"},
    {"all on core 0, which is all there is", TWO, 2, 0, 0, "0 0", "=", 0, "0@0 0@0", "2 ranks have 1 core (CPU 0)"},
    {"two hardware threads a rank, no core more", "package:2 numa:1 core:1 pu:2", 4, 0, 0, "0 1 2 3", 0, 0,
     "0@0 0@0 2@1 2@1", "4 ranks have 2 cores"},
    {"bound across each other", ONE, 2, 0, 0, "0-2 1-3", "=", 0, "0-1@0 2-3@0",
     "ranks 0 and 1 were bound to the same cores: CPUs 0-3 shared out anew"},
};

static Topo t;

static bool load(const char *machine) {
    Err e = {""};
    char path[512];
    bool synthetic = strchr(machine, ':') != NULL;
    const char *fixtures = getenv("SHEAF_FIXTURES");
    snprintf(path, sizeof path, "%s/topo/%s.xml", fixtures ? fixtures : ".", machine);
    setenv(synthetic ? "HWLOC_SYNTHETIC" : "HWLOC_XMLFILE", synthetic ? machine : path, 1);
    bool loaded = topo_load(&t, &e) == 0;
    if (!loaded) fprintf(stderr, "%s: %s\n", machine, e.msg);
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_XMLFILE");
    return loaded;
}

/* The next set of "0-3,5 6"; the last one stands for all that follow. */
static const char *take_set(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    if (*text == '*') {
        memset(set, 0xFF, sizeof *set);
        return text;
    }
    char *at = (char *)text;
    for (;;) {
        long first = strtol(at, &at, 10), last = first;
        if (*at == '-') last = strtol(at + 1, &at, 10);
        for (long i = first; i <= last; i++) CPU_SET((size_t)i, set);
        if (*at != ',') break;
        at++;
    }
    return *at == ' ' ? at + 1 : text;
}

static void describe(const Placement *p, char *text, size_t size) {
    int node[TOPO_MAX_NODES], n = 0;
    char cpus[128], nodes[64];
    for (int i = 0; i < p->n_threads; i++)
        if (!n || node[n - 1] != p->node[i]) node[n++] = p->node[i];
    place_list(p->cpu, p->n_threads, cpus, sizeof cpus);
    place_list(node, n, nodes, sizeof nodes);
    if (n == 2 && node[1] == node[0] + 1) snprintf(nodes, sizeof nodes, "%d,%d", node[0], node[1]);
    snprintf(text, size, "%s@%s", cpus, nodes);
}

static void test_table(void) {
    static Binding binding[8];
    static Placement p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Err e = {""};
        char got[512] = "", one[224];
        CU_ASSERT_FATAL(load(c->machine));
        const char *bound = c->bound;
        for (int r = 0; r < c->ranks; r++) {
            bound = take_set(bound, &binding[r].bound);
            take_set(c->launcher ? c->launcher : "*", &binding[r].launcher);
            if (c->launcher && *c->launcher == '=') binding[r].launcher = binding[r].bound;
            binding[r].rank = r;
            binding[r].asked = !c->unasked;
        }
        for (int r = 0; r < c->ranks; r++) {
            PlaceRequest q = {
                .binding = binding, .ranks = c->ranks, .index = r, .threads = c->threads, .cores = c->cores};
            CU_ASSERT_FATAL(place_rank(&t, &q, &p, &e) == 0);
            describe(&p, one, sizeof one);
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", r ? " " : "", one);
            bool noted = c->note ? strstr(p.note, c->note) != NULL : !p.note[0];
            if (!noted) fprintf(stderr, "%s: rank %d says \"%s\"\n", c->what, r, p.note);
            CU_ASSERT(noted);
        }
        if (strcmp(got, c->expected) != 0) fprintf(stderr, "%s: %s, expected %s\n", c->what, got, c->expected);
        CU_ASSERT(strcmp(got, c->expected) == 0);
    }
}

static void test_quota(void) {
    static Binding binding[2];
    static Placement p;
    Err e = {""};
    CU_ASSERT_FATAL(load(TWO));
    t.quota = 3;
    for (int r = 0; r < 2; r++) {
        take_set("*", &binding[r].bound);
        binding[r].asked = true;
    }
    PlaceRequest q = {.binding = binding, .ranks = 1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == 0 && p.n_threads == 3);
    q.threads = 8; /* asked for is asked for */
    CU_ASSERT(place_rank(&t, &q, &p, &e) == 0 && p.n_threads == 8);
    q = (PlaceRequest){.binding = binding, .ranks = 2, .index = 1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == 0 && p.n_threads == 1 && p.cpu[0] == 4);
}

/* Every rank count on every kind of machine: each rank has a thread at least; no core has two while there are cores for
 * all; no core of a fast kind is left over. */
static void test_all_counts(void) {
    static Binding binding[40];
    static Placement p;
    static const char *const machines[] = {ONE, TWO, SMT, NPS, "uneven", "no_memory", "no_cores", "hybrid"};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        CU_ASSERT_FATAL(load(machines[m]));
        int fast = 0;
        for (int i = 0; i < t.n_cpus; i++) fast += !t.cpu[i].slow && t.cpu[i].sibling == 0;
        for (int ranks = 1; ranks <= 40; ranks++) {
            int used[TOPO_MAX_CPUS] = {0}, cores = 0;
            take_set("*", &binding[ranks - 1].bound);
            binding[ranks - 1].launcher = binding[ranks - 1].bound;
            binding[ranks - 1].asked = true;
            for (int r = 0; r < ranks; r++) {
                Err e = {""};
                PlaceRequest q = {.binding = binding, .ranks = ranks, .index = r};
                CU_ASSERT_FATAL(place_rank(&t, &q, &p, &e) == 0 && p.n_threads >= 1);
                for (int i = 0; i < p.n_threads; i++) cores += used[p.cpu[i]]++ == 0;
            }
            CU_ASSERT(cores == fast);
            for (int i = 0; i < TOPO_MAX_CPUS && ranks <= fast; i++) CU_ASSERT(used[i] <= 1);
        }
    }
}

static void test_refusals(void) {
    static Binding binding[1];
    static Placement p;
    Err e = {""};
    CU_ASSERT_FATAL(load(TWO));
    take_set("*", &binding[0].bound);
    binding[0].asked = true;
    static const char *const wrong[] = {
        "",    "x",  "1-",   "3-1",  "0,",    ",1",  "0 1",     "0-8",
        "99",  "-1", "1,,2", "0-6:", "0-6:0", "1:2", "0-6:2:2", "0-99999999999999999999",
        "0x1", "1;2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        PlaceRequest q = {.binding = binding, .ranks = 1, .cores = wrong[i]};
        e.msg[0] = 0;
        CU_ASSERT(place_rank(&t, &q, &p, &e) == -1 && strstr(e.msg, "--cores") && strlen(e.msg) < 200);
    }
    PlaceRequest q = {.binding = binding, .ranks = 1, .cores = "6-8"};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == -1 && strstr(e.msg, "CPU 8 cannot be used here (0-7 can)"));
    q = (PlaceRequest){.binding = binding, .ranks = 1, .index = 1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == -1);
    q = (PlaceRequest){.binding = binding, .ranks = 1, .threads = -1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == -1);
    q = (PlaceRequest){.binding = binding, .ranks = 1, .threads = TOPO_MAX_CPUS + 1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == -1);
    CPU_ZERO(&binding[0].bound); /* a mask that has nothing to do with the machine */
    CPU_SET(99, &binding[0].bound);
    q = (PlaceRequest){.binding = binding, .ranks = 1};
    CU_ASSERT(place_rank(&t, &q, &p, &e) == -1 && strstr(e.msg, "rank 0"));
}

/* ---- reading the binding -------------------------------------------------------------------------------------------
 */

/* A child bound to one CPU, whose parent is not. */
static int bound_child(const char *variable) {
    Binding b;
    Err e;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &all)) cpu++;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
    if (variable) setenv(variable, "core", 1);
    if (binding_read(&b, &e)) return 1;
    if (!CPU_EQUAL(&b.bound, &one) || !CPU_EQUAL(&b.launcher, &all)) return 2;
    if (b.asked != (variable != NULL)) return 3;
    cpu_set_t now;
    if (binding_undo(&b, &e) || sched_getaffinity(0, sizeof now, &now)) return 4;
    return CPU_EQUAL(&now, variable ? &one : &all) ? 0 : 5;
}

static void test_binding(void) {
    static const char *const variable[] = {"OMPI_MCA_hwloc_base_binding_policy", NULL};
    for (int i = 0; i < 2; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) _exit(bound_child(variable[i]));
        int status = -1;
        waitpid(child, &status, 0);
        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    Binding a, b;
    Err e;
    CU_ASSERT(binding_read(&a, &e) == 0 && binding_read(&b, &e) == 0);
    CU_ASSERT(memcmp(&a, &b, sizeof a) == 0 && a.machine != 0);
}

static void test_list(void) {
    static const int n[] = {0, 1, 2, 5, 7, 8};
    char text[32], small[8];
    place_list(n, 6, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "0-2,5,7-8");
    static const int even[] = {0, 2, 4, 6, 7, 9, 11, 20};
    place_list(even, 8, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "0-6:2,7-11:2,20");
    place_list(n, 0, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "");
    place_list(n, 6, small, sizeof small);
    CU_ASSERT_STRING_EQUAL(small, "0-2,...");
}

int main(void) {
    static const CU_TestInfo tests[] = {{"table", test_table},
                                        {"quota", test_quota},
                                        {"all counts", test_all_counts},
                                        {"refusals", test_refusals},
                                        {"binding", test_binding},
                                        {"list", test_list},
                                        CU_TEST_INFO_NULL};
    return check_run("place", tests);
}
