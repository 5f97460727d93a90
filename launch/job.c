#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "foreign.h"
#include "report.h"

enum { DEFAULT_CTX = 4096, OTHERS_MS = 500 };

int64_t job_ctx(const Job *job) {
    int64_t most = sheaf_model_info(job->m)->context, wanted = job->o->ctx;
    if (wanted == 0) wanted = most > 0 && most < DEFAULT_CTX ? most : DEFAULT_CTX;
    if (most > 0 && wanted > most && sheaf_rank(job->rt) == 0 && !job->o->quiet)
        report_note("warning: %s was trained for %" PRId64 " positions, --ctx %" PRId64
                    " asks for more: results may be poor beyond them",
                    job->o->model, most, wanted);
    return wanted;
}

static void show_loading(void *bar, uint64_t done, uint64_t total) { progress_show(bar, done, total, NULL); }

void job_warn(const Job *job) {
    const char *placement = sheaf_place_warning(job->rt), *foreign = foreign_variables();
    if (sheaf_rank(job->rt) != 0 || job->o->quiet) return;
    if (*placement) report_note("warning: %s", placement);
    if (*foreign) report_note("warning: %s: without effect, threads are set by --threads, --cores and --bind", foreign);
}

int job_check_file(const Job *job, SheafErr *e) {
    Progress bar = progress_start("checking", job->o->quiet || sheaf_rank(job->rt) != 0);
    int r = sheaf_model_check(job->m, job->o->check_file, show_loading, &bar, e);
    progress_end(&bar);
    return r;
}

int job_open_session(const Job *job, SheafSessionOptions so, SheafSession **out, SheafErr *e) {
    job_warn(job);
    Progress bar = progress_start("loading", job->o->quiet || sheaf_rank(job->rt) != 0);
    so.progress = show_loading;
    so.progress_arg = &bar;
    int r = sheaf_session_open(job->m, &so, out, e);
    progress_end(&bar);
    return r;
}

static volatile sig_atomic_t interrupted; /* the signal that did, or 0 */
static int signal_pipe[2] = {-1, -1};     /* has a byte once a signal came, so that poll can wait for one */
static SheafRuntime *ranks;               /* NULL: not open */
static bool follows;                      /* this rank tells the others of its signals */

static void on_signal(int number) {
    if (interrupted) {
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = number;
    int kept = errno;
    if (follows && ranks) sheaf_interrupt(ranks);
    if (signal_pipe[1] >= 0) (void)!write(signal_pipe[1], "", 1);
    errno = kept;
}

void job_share_signals(SheafRuntime *rt) { ranks = rt; }

void job_catch_signals(bool leads) {
    static const int asking[] = {SIGINT, SIGUSR1};
    struct sigaction catch = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    if (leads && signal_pipe[0] < 0 && pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK)) signal_pipe[0] = signal_pipe[1] = -1;
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) sigaction(asking[i], leads ? &catch : &ignore, NULL);
    sigaction(SIGTERM, &catch, NULL);
    follows = !leads;
}

static bool told(void) { return ranks && sheaf_interrupted(ranks); }
bool job_interrupted(void) { return interrupted || told(); }
bool job_terminated(void) { return interrupted == SIGTERM || told(); }

void job_go_on(void) {
    char bytes[16];
    while (read(signal_pipe[0], bytes, sizeof bytes) > 0) {
    }
    if (interrupted != SIGTERM) interrupted = 0;
}

bool job_wait_input(int fd) {
    struct pollfd fds[] = {{.fd = signal_pipe[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    for (int ready = 0; !ready && !job_interrupted();) { /* another rank's signal wakes nobody here */
        ready = poll(fds, 2, OTHERS_MS);
        if (ready < 0 && errno == EINTR) ready = 0;
    }
    return !job_interrupted();
}

void *job_memory(int64_t n, size_t size, const char *what, SheafErr *e) {
    void *p = calloc(n > 0 ? (size_t)n : 1, size);
    if (!p) fail(e, "out of memory: %" PRId64 " x %zu bytes for %s", n, size, what);
    return p;
}

double job_rate(int64_t n, double seconds) { return n > 0 && seconds > 0 ? (double)n / seconds : (double)NAN; }

void job_json(const Job *job, const SheafSessionInfo *si, Json *j) {
    json_text(j, "model", job->o->model);
    json_int(j, "ranks", sheaf_ranks(job->rt));
    json_int(j, "hosts", sheaf_hosts(job->rt));
    json_int(j, "threads", sheaf_threads(job->rt));
    json_open(j, "placement", '[');
    for (int i = 0; i < sheaf_ranks(job->rt); i++) {
        const SheafPlace *p = sheaf_place(job->rt, i);
        json_open(j, NULL, '{');
        json_text(j, "host", p->host);
        json_int(j, "threads", p->threads);
        json_text(j, "cpus", p->cpus);
        json_text(j, "nodes", p->nodes);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_text(j, "isa", sheaf_isa(job->rt));
    json_text(j, "activations", job->o->act);
    json_text(j, "wire", job->o->wire);
    json_hash(j, "plan_hash", si->plan_hash);
    json_real(j, "load_s", si->load_s);
    json_uint(j, "weight_bytes", si->weight_bytes_all_ranks);
    json_uint(j, "weight_bytes_rank0", si->weight_bytes);
    json_uint(j, "weight_bytes_resident_rank0", si->weight_bytes_resident);
    json_uint(j, "kv_bytes_rank0", si->kv_bytes);
    json_uint(j, "activation_bytes_rank0", si->activation_bytes);
}

void job_note(const Job *job, const SheafSessionInfo *si) {
    if (job->o->quiet) return;
    report_note("load       %.2f s, %.1f MB of weights on %d rank%s x %d thread%s (%s)", si->load_s,
                1e-6 * (double)si->weight_bytes_all_ranks, sheaf_ranks(job->rt), sheaf_ranks(job->rt) == 1 ? "" : "s",
                sheaf_threads(job->rt), sheaf_threads(job->rt) == 1 ? "" : "s", sheaf_isa(job->rt));
}
