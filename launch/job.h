/* What the verbs share. Every rank runs the same verb on the same options. A verb returns 0 or -1 with one line in `e`;
 * main agrees the outcome over the ranks afterwards, so a verb agrees by itself (sheaf_agree) only where it goes on to
 * another collective call after something that can fail on one rank alone. Rank 0 alone writes results. */
#pragma once

#include "json.h"
#include "options.h"
#include "sheaf.h"

typedef struct Job {
    const Options *o;
    SheafRuntime *rt;
    SheafModel *m;    /* NULL for a verb that opens no model (quantize, bench comm) */
    bool interrupted; /* rank 0: a signal asked for an early end; what there was has been printed */
} Job;

/* All collective. */
int run_verb(Job *job, SheafErr *e);
int run_net(Job *job, SheafErr *e); /* run_verb for a net */
int perplexity_verb(Job *job, SheafErr *e);
int info_verb(Job *job, SheafErr *e);
int plan_verb(Job *job, SheafErr *e);
int quantize_verb(Job *job, SheafErr *e);
int embed_verb(Job *job, SheafErr *e);
int bench_comm_verb(Job *job, SheafErr *e);

/* The positions of a context: --ctx, or the smaller of 4096 and the model's own. More than the model was trained for is
 * warned about, by rank 0. Local; the same on all ranks. */
int64_t job_ctx(const Job *job);

/* What the user should know of the ranks' placement before they compute: said by rank 0, unless --quiet. Local. */
void job_warn(const Job *job);

/* What --check-file asks for, with a progress bar on rank 0. Collective. */
int job_check_file(const Job *job, SheafErr *e);

/* Warns as above, and opens the session with a progress bar on rank 0. Collective. */
int job_open_session(const Job *job, SheafSessionOptions so, SheafSession **out, SheafErr *e);

/* From now on SIGINT, SIGUSR1 or SIGTERM ask for an early end, which the verb brings about by itself; another one
 * before it went on ends the process. The ranks that do not lead leave SIGINT and SIGUSR1 to rank 0. (At Ctrl-C mpirun
 * ends the job: it sends SIGTERM to all ranks, and SIGKILL a few seconds later. SIGUSR1 it passes on.) Local. */
void job_catch_signals(bool leads);
bool job_interrupted(void);
bool job_terminated(void); /* by SIGTERM, which may have come to any rank */
void job_go_on(void);      /* the interruption was dealt with, unless it was SIGTERM */
/* Waits until there is something to read, or the end; false: a signal came first. */
bool job_wait_input(int fd);
/* By main: the ranks that are told of a SIGTERM; NULL before they are gone. */
void job_share_signals(SheafRuntime *rt);

/* Memory of n elements, zeroed; NULL and an error that says for what. n may be 0. */
void *job_memory(int64_t n, size_t size, const char *what, SheafErr *e);

double job_rate(int64_t n, double seconds); /* per second; NaN where there is none */

/* What every report of computed results says about the job, as members of the open JSON object. */
void job_json(const Job *job, const SheafSessionInfo *si, Json *j);
/* The line about loading on standard error, unless --quiet. */
void job_note(const Job *job, const SheafSessionInfo *si);
