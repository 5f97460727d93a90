/* Every line is what the user says next; a few begin with "/" and are for this program. What was said is kept as
 * messages: each time the whole conversation becomes ids, and those that the KV cache has already are not run again. */
#include "chat.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lines.h"
#include "report.h"

typedef struct Talk {
    Generator *g;
    const SheafChat *form;
    bool person; /* is there to see prompts and to be told what went wrong */
    bool warned; /* by a Ctrl-C where there was nothing to stop */
    bool over;
    SheafMessage *message; /* [n] of [room]; texts are owned, but for a system prompt's */
    size_t n, room;
} Talk;

/* A line for a person, in the stream that the conversation is in: mpirun does not keep the order between two. Else on
 * standard error. */
__attribute__((format(printf, 2, 3))) static void tell(const Talk *t, const char *fmt, ...) {
    SheafErr line, ignored;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line.msg, sizeof line.msg - 1, fmt, args);
    va_end(args);
    if (n < 0) return;
    if (!t->person) report_note("%s", line.msg);
    else (void)(report_write(line.msg, strlen(line.msg), &ignored) || report_write("\n", 1, &ignored));
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */
static int add_message(Talk *t, SheafRole role, const char *text, size_t bytes, SheafErr *e) {
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 16;
        SheafMessage *grown = realloc(t->message, room * sizeof *grown);
        if (!grown) return fail(e, "out of memory for the conversation");
        t->message = grown;
        t->room = room;
    }
    char *copy = malloc(bytes + 1);
    if (!copy) return fail(e, "out of memory for the conversation");
    memcpy(copy, text, bytes);
    t->message[t->n++] = (SheafMessage){role, copy, bytes};
    return 0;
}

/* The first message that is not a system prompt. */
static size_t first_said(const Talk *t) { return t->n && t->message[0].role == SHEAF_SYSTEM; }

/* Forgets messages from..to-1. */
static void drop(Talk *t, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) free((char *)t->message[i].text);
    if (to < t->n) memmove(t->message + from, t->message + to, (t->n - to) * sizeof *t->message);
    t->n -= to - from;
}

int chat_check(const SheafChat *form, const char *system, SheafErr *e) {
    SheafMessage m[] = {{SHEAF_SYSTEM, system ? system : "", system ? strlen(system) : 0}, {SHEAF_USER, "", 0}};
    char *text;
    size_t bytes;
    int status = sheaf_chat_text(form, m + !system, 1 + (system != NULL), &text, &bytes, e);
    free(text);
    return status;
}

/* ---- the context ------------------------------------------------------------------------------------------------- */
/* Positions to keep for the answer. */
static int64_t room_for_answer(const Generator *g) {
    int64_t part = g->n_ctx / 4;
    return g->limit > 0 && g->limit < part ? g->limit : part;
}

static int make_ids(const Talk *t, int32_t **ids, size_t *n, SheafErr *e) {
    return sheaf_chat_tokens(t->form, t->message, t->n, ids, n, e);
}

/* The newest message is refused when it does not fit with the system prompt alone. */
static int check_newest(const Talk *t, SheafErr *e) {
    SheafMessage least[] = {t->message[0], t->message[t->n - 1]};
    size_t n;
    int32_t *ids;
    if (sheaf_chat_tokens(t->form, least + 1 - first_said(t), 1 + first_said(t), &ids, &n, e)) return -1;
    free(ids);
    if ((int64_t)n < t->g->n_ctx) return 0;
    return fail(e,
                "this takes %zu tokens, and the context has %" PRId64 " positions: shorten it, or begin with a larger "
                "--ctx",
                n, t->g->n_ctx);
}

/* The ids of the conversation. When they leave too little room for an answer, the oldest exchanges are forgotten until
 * half of the context is free, so that this happens seldom: what is left must be run again. */
static int fit(Talk *t, int32_t **ids, size_t *n, SheafErr *e) {
    int64_t n_ctx = t->g->n_ctx, most = n_ctx - room_for_answer(t->g);
    size_t dropped = 0;
    if (check_newest(t, e) || make_ids(t, ids, n, e)) return -1;
    while ((int64_t)*n > most && t->n - first_said(t) > 1) {
        drop(t, first_said(t), first_said(t) + 2);
        dropped++;
        most = n_ctx / 2;
        free(*ids);
        if (make_ids(t, ids, n, e)) return -1;
    }
    if (dropped && !t->g->job->o->quiet)
        tell(t, "(the context of %" PRId64 " positions is full: the oldest %zu exchange%s forgotten)", n_ctx, dropped,
             dropped == 1 ? " is" : "s are");
    return 0;
}

/* ---- an exchange ------------------------------------------------------------------------------------------------- */
static int keep_answer(Talk *t, SheafErr *e) {
    const StrBuf *text = &t->g->text;
    size_t n = text->len;
    while (n && isspace((unsigned char)text->data[n - 1])) n--;
    return add_message(t, SHEAF_ASSISTANT, text->data ? text->data : "", n, e);
}

static void note_end(Talk *t) {
    const Generator *g = t->g;
    if (g->job->o->quiet) return;
    if (strcmp(g->stop_reason, "interrupted") == 0) tell(t, "(stopped)");
    if (strcmp(g->stop_reason, "context") == 0)
        tell(t, "(the context of %" PRId64 " positions is full: the answer ends here)", g->n_ctx);
    if (strcmp(g->stop_reason, "length") == 0) tell(t, "(cut after %" PRId64 " tokens: -n)", g->limit);
}

/* A message that cannot be is taken back: *refused, with the reason in `e`. Other failures are the job's. */
static int answer(Talk *t, const StrBuf *line, bool *refused, SheafErr *e) {
    int32_t *ids = NULL;
    size_t n;
    if (add_message(t, SHEAF_USER, line->data, line->len, e)) return -1;
    if (fit(t, &ids, &n, e)) {
        *refused = true;
        drop(t, t->n - 1, t->n);
        return 0;
    }
    int status = generator_prompt(t->g, ids, n, e);
    free(ids);
    if (status || generator_say(t->g, e)) return -1;
    note_end(t);
    if (t->g->text.len || !job_interrupted()) return keep_answer(t, e);
    drop(t, t->n - 1, t->n);
    return 0;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */
typedef struct Command {
    const char *name, *help;
    void (*run)(Talk *t);
} Command;

static void run_exit(Talk *t) { t->over = true; }

static void run_clear(Talk *t) {
    drop(t, first_said(t), t->n);
    tell(t, "(forgotten)");
}

static void run_help(Talk *t);
static const Command commands[] = {
    {"/help", "this list", run_help},
    {"/clear", "forget what was said (a system prompt stays)", run_clear},
    {"/exit", "leave; so does Ctrl-D", run_exit},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void run_help(Talk *t) {
    for (int i = 0; i < COMMANDS; i++) tell(t, "%-10s %s", commands[i].name, commands[i].help);
    tell(t, "Ctrl-C     stop the answer\nA line that ends with \\ goes on with the next one.");
}

/* True when the line is a command, or one word that looks like it. */
static bool take_command(Talk *t, const StrBuf *line) {
    size_t n = line->len;
    while (n && isspace((unsigned char)line->data[n - 1])) n--;
    if (n < 2 || line->data[0] != '/') return false;
    for (int i = 0; i < COMMANDS; i++) {
        if (strlen(commands[i].name) != n || memcmp(commands[i].name, line->data, n) != 0) continue;
        commands[i].run(t);
        return true;
    }
    for (size_t i = 1; i < n; i++)
        if (!isalpha((unsigned char)line->data[i])) return false;
    tell(t, "sheaf: no command %.*s: /help lists them", (int)(n < 40 ? n : 40), line->data);
    return true;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */
static bool is_blank(const StrBuf *line) {
    for (size_t i = 0; i < line->len; i++)
        if (!isspace((unsigned char)line->data[i])) return false;
    return true;
}

static int take_line(Talk *t, const StrBuf *line, SheafErr *e) {
    bool refused = false;
    t->warned = false;
    if (is_blank(line) || take_command(t, line)) return 0;
    if (answer(t, line, &refused, e)) return -1;
    if (refused && !t->person) return -1;
    if (refused) tell(t, "sheaf: %s", e->msg);
    return 0;
}

/* Ctrl-C where nothing was answered. */
static void warn(Talk *t) {
    t->over = t->g->job->interrupted = t->warned;
    if (!t->warned && t->person) tell(t, "\n(Ctrl-C again, Ctrl-D or /exit leaves)");
    t->warned = true;
}

/* After a signal. Who is not there to see it does not want to go on. */
static void go_on(Talk *t) {
    if (job_terminated() || !t->person) t->over = t->g->job->interrupted = true;
    job_go_on();
}

static int next_line(Talk *t, Lines *lines, StrBuf *line, SheafErr *e) {
    if (t->person && report_write("> ", 2, e)) return -1;
    switch (lines_next(lines, line, e)) {
    case LINES_LINE: return line->failed ? fail(e, "out of memory for a line") : take_line(t, line, e);
    case LINES_END: t->over = true; return t->person ? report_write("\n", 1, e) : 0;
    case LINES_SIGNAL: warn(t); return 0;
    case LINES_FAILED: break;
    }
    return -1;
}

int chat_talk(Generator *g, const SheafChat *form, SheafErr *e) {
    const char *system = g->job->o->system;
    Talk t = {.g = g, .form = form, .person = report_person()};
    Lines lines = {.fd = STDIN_FILENO};
    StrBuf line = {0};
    int status = system ? add_message(&t, SHEAF_SYSTEM, system, strlen(system), e) : 0;
    if (t.person && !g->job->o->quiet) tell(&t, "(the form is %s; /help lists the commands)", sheaf_chat_name(form));
    while (!status && !t.over) {
        status = next_line(&t, &lines, &line, e);
        if (!status && job_interrupted()) go_on(&t);
    }
    if (!status && t.person && g->job->interrupted) status = report_write("\n", 1, e);
    if (!status) {
        job_note(g->job, sheaf_session_info(g->session));
        generator_note(g, NULL);
    }
    drop(&t, 0, t.n);
    free(t.message);
    strbuf_free(&line);
    lines_free(&lines);
    return status;
}
