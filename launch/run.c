/* sheaf run: continues a text, answers a question, or converses. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"
#include "generate.h"
#include "report.h"

typedef struct Run {
    Generator g;
    SheafChat *chat;   /* rank 0 with --chat, else NULL */
    bool conversation; /* with --chat: the questions come from standard input, line by line */
    int32_t *prompt;   /* [n_prompt] ids, rank 0; of a conversation: none */
    size_t n_prompt;
} Run;

/* ---- the prompt -------------------------------------------------------------------------------------------------- */
static int read_prompt(const Options *o, StrBuf *text, SheafErr *e) {
    if (o->prompt) {
        strbuf_add(text, o->prompt, strlen(o->prompt));
        return text->failed ? fail(e, "out of memory for the prompt") : 0;
    }
    if (!o->file && isatty(STDIN_FILENO))
        return fail(e, "no prompt: give -p TEXT, -f FILE, or the text on standard input (-f - to type it)");
    if (report_read(o->file ? o->file : "-", text, e)) return -1;
    if (text->len > 0 && text->data[text->len - 1] == '\n') text->len--;
    return 0;
}

/* The text as it is, or as what a user says. */
static int make_ids(Run *r, const StrBuf *text, SheafErr *e) {
    const Options *o = r->g.job->o;
    const char *data = text->data ? text->data : "";
    if (!r->chat)
        return sheaf_tokenize(r->g.job->m, data, text->len, true, !o->no_special, &r->prompt, &r->n_prompt, e);
    const char *system = o->system ? o->system : "";
    SheafMessage m[] = {{SHEAF_SYSTEM, system, strlen(system)}, {SHEAF_USER, data, text->len}};
    return o->system ? sheaf_chat_tokens(r->chat, m, 2, &r->prompt, &r->n_prompt, e)
                     : sheaf_chat_tokens(r->chat, m + 1, 1, &r->prompt, &r->n_prompt, e);
}

static int take_prompt(Run *r, SheafErr *e) {
    StrBuf text = {0};
    int status = read_prompt(r->g.job->o, &text, e);
    if (!status) status = make_ids(r, &text, e);
    strbuf_free(&text);
    if (status) return -1;
    if (r->n_prompt == 0) return fail(e, "the prompt is empty, and the model has no token that begins a text");
    if (r->n_prompt > (size_t)r->g.n_ctx)
        return fail(e, "the prompt has %zu tokens, the context %" PRId64 " positions: shorten it or raise --ctx",
                    r->n_prompt, r->g.n_ctx);
    return 0;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */
static int print_json(Run *r, const SheafSessionInfo *si, SheafErr *e) {
    const Generator *g = &r->g;
    const Options *o = g->job->o;
    StrBuf out = {0};
    Json j = {.out = &out};
    json_open(&j, NULL, '{');
    json_string(&j, "text", g->text.data ? g->text.data : "", g->text.len);
    json_text(&j, "stop_reason", g->stop_reason);
    json_int(&j, "prompt_tokens", (int64_t)r->n_prompt);
    json_real(&j, "prompt_s", g->prompt_s);
    json_real(&j, "prompt_tokens_per_s", job_rate(g->prefilled, g->prompt_s));
    json_int(&j, "generated_tokens", g->generated);
    json_real(&j, "generated_s", g->decode_s);
    json_real(&j, "tokens_per_s", job_rate(g->decoded, g->decode_s));
    json_open(&j, "ids", '[');
    for (size_t i = 0; i < g->ids.len; i += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, g->ids.data + i, sizeof id);
        json_int(&j, NULL, id);
    }
    json_close(&j, ']');
    json_int(&j, "ctx", g->n_ctx);
    json_real(&j, "temp", o->temp);
    json_int(&j, "seed", o->seed);
    if (r->chat) json_text(&j, "template", sheaf_chat_name(r->chat));
    job_json(g->job, si, &j);
    json_close(&j, '}');
    strbuf_add(&out, "\n", 1);
    return report_text(&out, e);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */
/* Rank 0, with the session open. */
static int lead(Run *r, SheafSession *session, SheafErr *e) {
    Generator *g = &r->g;
    if (generator_open(g, session, e)) return -1;
    if (r->conversation) return chat_talk(g, r->chat, e);
    if (generator_prompt(g, r->prompt, r->n_prompt, e) || generator_say(g, e)) return -1;
    g->job->interrupted = job_interrupted();
    const SheafSessionInfo *si = sheaf_session_info(session);
    job_note(g->job, si);
    generator_note(g, g->stop_reason);
    return g->job->o->json ? print_json(r, si, e) : 0;
}

/* Each rank, once the session is open, until rank 0 is done; closes it. */
static int take_part(Run *r, SheafSession *session, SheafErr *e) {
    int status;
    job_catch_signals(sheaf_rank(r->g.job->rt) ==
                      0); /* rank 0 ends the job in order; till then the others are needed */
    if (sheaf_rank(r->g.job->rt) == 0) status = lead(r, session, e);
    else status = sheaf_follow(session, e);
    sheaf_session_close(session);
    return status;
}

/* Rank 0: the form of a conversation, and what it asks of the generator. */
static int open_chat(Run *r, SheafErr *e) {
    Generator *g = &r->g;
    const Options *o = g->job->o;
    SheafErr why;
    if (sheaf_chat_open(g->job->m, o->template, &r->chat, &why))
        return fail(e, o->template ? "--template: %s" : "--chat needs --template NAME: %s", why.msg);
    const char *stop = sheaf_chat_stop(r->chat);
    g->tidy = true;
    if (stop) generator_add_stop(g, stop);
    if (stop && !o->quiet)
        report_note("sheaf: the model has no token \"%s\": it was hardly taught the form %s", stop,
                    sheaf_chat_name(r->chat));
    return 0;
}

/* What can be known to fail before the weights are loaded. */
static int prepare(Run *r, Job *job, SheafErr *e) {
    const Options *o = job->o;
    if (generator_prepare(&r->g, job, e)) return -1;
    r->conversation = o->chat && !o->prompt && !o->file;
    if (r->g.limit == TOKENS_DEFAULT) r->g.limit = r->conversation ? -1 : 128;
    if (sheaf_rank(job->rt) != 0) return 0;
    if (o->chat && open_chat(r, e)) return -1;
    return r->conversation ? chat_check(r->chat, o->system, e) : take_prompt(r, e);
}

static void run_free(Run *r) {
    free(r->prompt);
    sheaf_chat_close(r->chat);
    generator_free(&r->g);
}

int run_verb(Job *job, SheafErr *e) {
    if (sheaf_model_info(job->m)->net) return run_net(job, e);
    if (job->o->n_texts)
        return fail(e, "'%.80s' is one argument too many: to a language model a text is given, by -p TEXT or -f FILE",
                    job->o->text[0]);
    Run r = {0};
    SheafErr mine = {""};
    SheafSession *session;
    bool failed = prepare(&r, job, &mine) != 0;
    int status = sheaf_agree(job->rt, failed, &mine, e);
    if (!status) {
        SheafSessionOptions so = {
            .n_ctx = r.g.n_ctx, .n_seqs = 1, .max_batch = r.g.batch, .logits = sheaf_sampler_wants_logits(r.g.sampler)};
        status = job_open_session(job, so, &session, e);
        if (!status) status = take_part(&r, session, e);
    }
    run_free(&r);
    return status;
}
