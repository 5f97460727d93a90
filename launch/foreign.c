#include "foreign.h"

#include <stdbool.h>
#include <stddef.h>

static char names[160];

static bool is_foreign(const char *variable) {
    static const char *const prefixes[] = {"OMP_", "GOMP_", "KMP_", "MKL_"};
    for (unsigned i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const char *p = prefixes[i], *v = variable;
        while (*p && *p == *v) p++, v++;
        if (!*p) return true;
    }
    return false;
}

/* Adds the name of a variable unless its value is 1, which asks for no threads beside ours. */
static void remember(const char *variable) {
    unsigned at = 0, n = 0;
    while (variable[n] && variable[n] != '=') n++;
    if (variable[n] == '=' && variable[n + 1] == '1' && !variable[n + 2]) return;
    while (names[at]) at++;
    if (at + n + 3 > sizeof names) return;
    if (at) names[at++] = ',', names[at++] = ' ';
    for (unsigned i = 0; i < n; i++) names[at++] = variable[i];
}

/* Runs before the libraries' own initialisation: no function of theirs may be called, and a sanitizer has not started
 * yet. */
__attribute__((no_sanitize("address", "undefined"))) static void take_out(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
    char **kept = environment;
    for (char **v = environment; *v; v++) {
        if (is_foreign(*v)) remember(*v);
        else *kept++ = *v;
    }
    *kept = NULL;
}

__attribute__((section(".preinit_array"), used)) static void (*const at_start)(int, char **, char **) = take_out;

const char *foreign_variables(void) { return names; }
