/* The program: options, the ranks, the model, one verb, and an exit status that all ranks share. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "report.h"

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_INTERRUPTED = 128 + SIGINT };

static int (*const verb_functions[VERB_COUNT])(Job *, SheafErr *) = {
    [VERB_RUN] = run_verb,
    [VERB_PERPLEXITY] = perplexity_verb,
    [VERB_INFO] = info_verb,
    [VERB_PLAN] = plan_verb,
    [VERB_QUANTIZE] = quantize_verb,
    [VERB_EMBED] = embed_verb,
    [VERB_BENCH_COMM] = bench_comm_verb,
};

/* Files opened later must not get the numbers of standard streams that the caller closed. Writing to such a standard
 * output fails, as it should. */
static void keep_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}

/* A failure that the ranks could not agree on. A launcher ends the whole job as soon as one rank leaves with a status
 * that is not zero, so the silent ranks give rank 0 the time to say its line. */
static int leave(int status, const SheafErr *e) {
    const struct timespec a_moment = {.tv_nsec = 200000000};
    if (report_speaks()) report_error(e);
    else nanosleep(&a_moment, NULL);
    return status;
}

static int print_help(const Options *o, SheafErr *e) {
    StrBuf out = {0};
    if (!report_speaks()) return 0;
    if (o->help) options_help(o->verb, &out);
    else strbuf_printf(&out, "sheaf %s\n", sheaf_version());
    return report_text(&out, e);
}

/* From a thread of the library's own, just before the process ends. */
static void report_lost(void *arg, const SheafErr *why) {
    (void)arg;
    report_error(why);
}

static void report_warning(void *arg, const SheafErr *what) {
    (void)arg;
    report_note("warning: %s", what->msg);
}

static SheafRuntimeOptions runtime_options(const Options *o) {
    bool computes = o->verb == VERB_RUN || o->verb == VERB_PERPLEXITY || o->verb == VERB_EMBED;
    bool pin = strcmp(o->bind ? o->bind : "auto", "auto") == 0;
    if (o->verb == VERB_QUANTIZE)
        return (SheafRuntimeOptions){.threads = (int)o->threads, .cores = o->cores, .pin = pin};
    if (o->verb == VERB_BENCH_COMM)
        return (SheafRuntimeOptions){.threads = 1,
                                     .cores = o->cores,
                                     .pin = pin,
                                     .each_rank_a_host = o->hosts[0] == 'e',
                                     .wire = o->wire,
                                     .isa = o->isa,
                                     .deadline_s = o->deadline,
                                     .verify = o->verify};
    if (!computes) return (SheafRuntimeOptions){.threads = 1};
    return (SheafRuntimeOptions){
        .threads = (int)o->threads,
        .cores = o->cores,
        .pin = pin,
        .each_rank_a_host = o->hosts[0] == 'e',
        .check = o->check,
        .wire = o->wire,
        .isa = o->isa,
        .activations = o->act,
        .trace = o->trace,
        .deadline_s = o->deadline,
        .verify = o->verify,
    };
}

/* A verb that computes has a model of the kind it is for. The same on all ranks. */
static int wrong_model(const Job *job, SheafErr *e) {
    VerbId verb = job->o->verb;
    if (verb != VERB_EMBED && verb != VERB_RUN && verb != VERB_PERPLEXITY) return 0;
    const SheafModelInfo *info = sheaf_model_info(job->m);
    if (info->encoder == (verb == VERB_EMBED)) return 0;
    if (info->encoder)
        return fail(e, "%s: an encoder (%s) makes vectors, not text: 'sheaf embed' is for it", job->o->model,
                    info->architecture);
    return fail(e, "%s: 'sheaf embed' is for encoders such as bert, not for a language model (%s)", job->o->model,
                info->architecture);
}

/* Collective, with the runtime open. `usage` is this rank's error from the options, or NULL. */
static int work(Job *job, const SheafErr *usage) {
    SheafErr e = {""}, mine = {""};
    int status = STATUS_USAGE;
    bool failed = sheaf_agree(job->rt, usage != NULL, usage, &e) != 0;
    if (!failed) {
        status = STATUS_FAILED;
        if (options_has_model(job->o->verb) && job->o->verb != VERB_QUANTIZE)
            failed = sheaf_model_open(job->rt, job->o->model, &job->m, &e) != 0;
        if (!failed && job->m && job->o->check_file) failed = job_check_file(job, &e) != 0;
        if (!failed) {
            int r = wrong_model(job, &mine) ? -1 : verb_functions[job->o->verb](job, &mine);
            failed = sheaf_agree(job->rt, r != 0, &mine, &e) != 0;
            sheaf_model_close(job->m);
        }
    }
    if (failed) {
        if (sheaf_rank(job->rt) == 0) report_error(&e);
        return status;
    }
    /* Rank 0 alone knows of an interruption; it has printed what there was, so there is nothing more to say. */
    return sheaf_agree(job->rt, job->interrupted, &mine, &e) ? STATUS_INTERRUPTED : 0;
}

int main(int argc, char **argv) {
    Options o;
    SheafErr usage, e;
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of write */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    bool wrong = options_parse(argc, argv, &o, &usage) != 0;
    if (!wrong && (o.help || o.version)) return print_help(&o, &e) ? leave(STATUS_FAILED, &e) : 0;
    if (wrong && !report_launched()) return leave(STATUS_USAGE, &usage);

    /* Among several ranks wrong use is agreed too: one line, however the environments of the hosts differ. */
    SheafRuntimeOptions ro = wrong ? (SheafRuntimeOptions){.threads = 1} : runtime_options(&o);
    ro.lost = report_lost;
    ro.warn = report_warning;
    Job job = {.o = &o};
    if (sheaf_runtime_open(&ro, &job.rt, &e)) return leave(STATUS_FAILED, &e);
    job_share_signals(job.rt);
    int status = work(&job, wrong ? &usage : NULL);
    job_share_signals(NULL);
    if (sheaf_runtime_close(job.rt, &e)) return leave(status ? status : STATUS_FAILED, &e);
    return status;
}
