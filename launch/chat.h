/* A conversation on standard input and output. Rank 0. */
#pragma once

#include "generate.h"

/* Whether the form can begin one: with a system prompt, or (NULL) without. Local. */
int chat_check(const SheafChat *form, const char *system, SheafErr *e);
/* Until the end of standard input, /exit, or a signal; says so in g->job->interrupted. Local; steps are collective. */
int chat_talk(Generator *g, const SheafChat *form, SheafErr *e);
