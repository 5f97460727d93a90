/* Graphs as text in which values are called by the operators that make them, to compare with what is expected. */
#pragma once

#include "check.h"
#include "graph/graph.h"

enum { TEXT_MAX = 1 << 14 };

/* The name of the operator that makes value %id: the third word after its line's '='. */
static inline void maker_of(const char *text, long id, char name[64]) {
    char head[32];
    snprintf(head, sizeof head, "%%%ld ", id);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, head, strlen(head)) && sscanf(strstr(line, " = "), " = %*s %63s", name) == 1) return;
    strcpy(name, "?");
}

/* graph_text with a value written as the operator that makes it, and the one at the start of a line left out. */
static inline void named_text(const Graph *g, char out[TEXT_MAX]) {
    char *text = graph_text(g);
    CU_ASSERT_FATAL(text != NULL);
    size_t n = 0;
    for (const char *p = text; *p && n < TEXT_MAX - 80;) {
        if (*p != '%') {
            out[n++] = *p++;
            continue;
        }
        bool defined_here = p == text || p[-1] == '\n';
        char *end, name[64];
        maker_of(text, strtol(p + 1, &end, 10), name);
        if (!defined_here) n += (size_t)sprintf(out + n, "%%%s", name);
        p = defined_here ? end + 1 : end;
    }
    out[n] = 0;
    free(text);
}

static inline void expect(const Graph *g, const char *want) {
    static char got[TEXT_MAX];
    named_text(g, got);
    CU_ASSERT_STRING_EQUAL(got, want);
    if (strcmp(got, want)) printf("\n-- got\n%s-- expected\n%s", got, want);
}
