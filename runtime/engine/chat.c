#include "engine/chat.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/unicode.h"
#include "engine/utf8.h"

void chat_text_free(ChatText *t) {
    strbuf_free(&t->text);
    strbuf_free(&t->said);
}

/* ---- what was said ----------------------------------------------------------------------------------------------- */

/* White space as Python's str.strip() has it, which is Jinja's: Unicode's, and the four separators of ASCII. */
static bool is_space(int32_t c) { return unicode_is_space(c) || (c >= 0x1C && c <= 0x1F); }

static Text trim_right(Text s) {
    size_t size;
    while (s.size) {
        size_t last = unicode_before(s.data, s.size);
        if (!is_space(unicode_at(s.data + last, &size))) break;
        s.size = last;
    }
    return s;
}

static Text trim(Text s) {
    size_t size;
    while (s.size && is_space(unicode_at(s.data, &size))) s = (Text){s.data + size, s.size - size};
    return trim_right(s);
}

/* An earlier answer without the thoughts before it. */
static Text cut_thoughts(const ChatStyle *s, Text answer) {
    static const char mark[] = "</think>";
    size_t n = strlen(mark);
    const char *p = s->cut ? memmem(answer.data, answer.size, mark, n) : NULL;
    if (!p) return answer;
    for (; p; p = memmem(answer.data, answer.size, mark, n)) {
        answer.size -= (size_t)(p - answer.data) + n;
        answer.data = p + n;
    }
    while (s->cut_lines && answer.size && *answer.data == '\n') answer = (Text){answer.data + 1, answer.size - 1};
    return answer;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

typedef struct Render {
    const ChatStyle *s;
    const ChatTokens *k;
    time_t now;
    ChatText *out;
} Render;

/* As strftime's "%d %b %Y" in the C locale, whatever ours is. */
static void add_date(const Render *r) {
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm t = {.tm_mday = 26, .tm_mon = 6, .tm_year = 124};
    if (r->s->today) localtime_r(&r->now, &t);
    strbuf_printf(&r->out->text, "%02d %s %d", t.tm_mday, months[t.tm_mon], 1900 + t.tm_year);
}

/* A string of the form. */
static void add_form(const Render *r, const char *text) {
    for (const char *p = text ? text : ""; *p; p++) {
        if (*p == *CHAT_BOS) strbuf_puts(&r->out->text, r->k->bos);
        else if (*p == *CHAT_EOS) strbuf_puts(&r->out->text, r->k->eos);
        else if (*p == *CHAT_DATE) add_date(r);
        else strbuf_add(&r->out->text, p, 1);
    }
}

static void add_said(const Render *r, Text said) {
    TextSpan span = {r->out->text.len, r->out->text.len + said.size};
    if (!said.size) return;
    strbuf_add(&r->out->text, said.data, said.size);
    strbuf_add(&r->out->said, (const char *)&span, sizeof span);
}

/* Takes the white space off the end of the text, back to `begin`. */
static void trim_end(const Render *r, size_t begin) {
    StrBuf *text = &r->out->text, *said = &r->out->said;
    if (text->failed || said->failed) return;
    text->len = begin + trim_right((Text){text->data + begin, text->len - begin}).size;
    TextSpan *last = (TextSpan *)(void *)(said->data + said->len - sizeof *last); /* there is the system prompt's */
    if (said->len && last->end > text->len) last->end = text->len;
    if (said->len && last->begin >= last->end) said->len -= sizeof *last;
}

/* A turn; `system`, when not NULL, goes in front of what was said. */
static void add_turn(const Render *r, const ChatTurn *turn, const Text *system, Text said) {
    const ChatTurn *around = &r->s->form->system;
    ChatTrim how = r->s->trims ? turn->trim : TRIM_NOT;
    add_form(r, turn->before);
    size_t begin = r->out->text.len;
    if (system) {
        add_form(r, around->before);
        add_said(r, *system);
        add_form(r, around->after);
    }
    add_said(r, how == TRIM_TEXT || (how == TRIM_WITH_SYSTEM && !system) ? trim(said) : said);
    if (system && how == TRIM_WITH_SYSTEM) trim_end(r, begin);
    add_form(r, turn->after);
}

static Text text_of(const SheafMessage *m) { return (Text){m->text, m->bytes}; }

/* The order of the messages, what they are made of, and whether the form takes a system prompt. */
static int check(const ChatStyle *s, const SheafMessage *m, size_t n, Err *e) {
    static const char *const roles[] = {"a system prompt", "the user", "the assistant"};
    size_t first = n && m[0].role == SHEAF_SYSTEM;
    const char *name = s->form->name;
    for (size_t i = 0; i < n; i++) {
        SheafRole wanted = i < first ? SHEAF_SYSTEM : (i - first) % 2 ? SHEAF_ASSISTANT : SHEAF_USER;
        if (m[i].role != wanted)
            return err_set(e, "message %zu of the conversation must be by %s", i + 1, roles[wanted]);
        size_t valid = utf8_check(m[i].text, m[i].bytes);
        if (valid < m[i].bytes)
            return err_set(e, "message %zu of the conversation is not UTF-8: byte 0x%02x at offset %zu", i + 1,
                           (unsigned)(uint8_t)m[i].text[valid], valid);
    }
    if (!n || m[n - 1].role != SHEAF_USER) return err_set(e, "a conversation must end with a message by the user");
    if (first && s->place == SYSTEM_NONE)
        return err_set(e, "the chat template (%s) has no place for a system prompt: say it in the first message", name);
    if (!first && s->needs_system)
        return err_set(
            e, "without a system prompt the chat template (%s) makes up one that is not known here: give one", name);
    return 0;
}

int chat_render(const ChatStyle *s, const ChatTokens *k, time_t now, const SheafMessage *m, size_t n, ChatText *out,
                Err *e) {
    if (check(s, m, n, e)) return -1;
    Render r = {s, k, now, out};
    const ChatForm *f = s->form;
    const char *standard = s->no_system ? s->no_system : f->no_system;
    if (s->skips_empty && m[0].role == SHEAF_SYSTEM && !m[0].bytes) {
        m++;
        n--;
    }
    size_t first = m[0].role == SHEAF_SYSTEM, folded = s->place == SYSTEM_FIRST ? first : n - 1;
    Text system = text_of(m);
    if (s->begin) add_form(&r, f->begin);
    if (first && s->place == SYSTEM_TURN) {
        add_turn(&r, &f->system, NULL, system);
    } else if (!first && standard) {
        add_form(&r, f->system.before);
        strbuf_puts(&out->text, standard);
        add_form(&r, f->system.after);
    }
    for (size_t i = first; i < n; i++) {
        bool with = first && s->place != SYSTEM_TURN && i == folded;
        if (m[i].role == SHEAF_USER) add_turn(&r, &f->user, with ? &system : NULL, text_of(&m[i]));
        else add_turn(&r, &f->assistant, NULL, cut_thoughts(s, text_of(&m[i])));
    }
    add_form(&r, f->answer);
    if (s->thinks) strbuf_puts(&out->text, "<think>\n");
    return out->text.failed || out->said.failed ? err_set(e, "out of memory for a conversation") : 0;
}

/* ---- for a model ------------------------------------------------------------------------------------------------- */

struct SheafChat {
    const SheafModel *m;
    ChatStyle style;
    char *bos, *eos; /* owned */
    char *stop;      /* owned, or NULL */
};

/* The text of a token; "" for id -1. */
static char *token_text(const Tokenizer *t, int32_t id) {
    size_t n = tokenizer_bytes(t, id, true, NULL, 0);
    char *text = malloc(n + 1);
    if (!text) return NULL;
    tokenizer_bytes(t, id, true, text, n);
    text[n] = 0;
    return text;
}

/* What ends an answer: a token, or a text to look for. */
static int find_stop(SheafChat *c, Tokenizer *t, Err *e) {
    ChatText end = {0};
    ChatTokens k = {c->bos, c->eos};
    int32_t *ids = NULL;
    size_t n = 0;
    add_form(&(Render){&c->style, &k, 0, &end}, c->style.form->assistant.after);
    Text text = trim((Text){end.text.data ? end.text.data : "", end.text.len});
    int r = end.text.failed ? err_set(e, "out of memory for a chat template")
                            : tokenizer_encode(t, text.data, text.size, false, true, &ids, &n, e);
    if (!r && n == 1) tokenizer_set_end(t, ids[0]);
    if (!r && n > 1 && !(c->stop = strndup(text.data, text.size))) r = err_set(e, "out of memory for a chat template");
    free(ids);
    chat_text_free(&end);
    return r;
}

static int open_chat(SheafChat *c, SheafModel *m, const char *name, Err *e) {
    const char *file = model_file_path(m->file), *text = m->info.chat_template;
    if (name ? chat_style_named(name, &c->style, e) : chat_style_of(text, file, &c->style, e)) return -1;
    c->m = m;
    c->bos = token_text(m->tokenizer, tokenizer_named_bos(m->tokenizer));
    c->eos = token_text(m->tokenizer, tokenizer_named_eos(m->tokenizer));
    if (!c->bos || !c->eos) return err_set(e, "out of memory for a chat template");
    return find_stop(c, m->tokenizer, e);
}

int sheaf_chat_open(SheafModel *m, const char *name, SheafChat **out, SheafErr *err) {
    Err *e = err_of(err);
    SheafChat *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set(e, "out of memory for a chat template");
    if (open_chat(c, m, name, e)) {
        sheaf_chat_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

void sheaf_chat_close(SheafChat *c) {
    if (!c) return;
    chat_style_free(&c->style);
    free(c->bos);
    free(c->eos);
    free(c->stop);
    free(c);
}

const char *sheaf_chat_name(const SheafChat *c) { return c->style.form->name; }
const char *sheaf_chat_stop(const SheafChat *c) { return c->stop; }

static int render(const SheafChat *c, const SheafMessage *m, size_t n, ChatText *out, Err *e) {
    return chat_render(&c->style, &(ChatTokens){c->bos, c->eos}, time(NULL), m, n, out, e);
}

int sheaf_chat_text(const SheafChat *c, const SheafMessage *messages, size_t n, char **text, size_t *bytes,
                    SheafErr *err) {
    Err *e = err_of(err);
    ChatText t = {0};
    *text = NULL;
    int r = render(c, messages, n, &t, e);
    *bytes = t.text.len;
    if (!r) r = strbuf_take(&t.text, text, e);
    chat_text_free(&t);
    return r;
}

/* BOS in front, unless the text had it. */
static int add_bos(int32_t bos, int32_t **ids, size_t *n, Err *e) {
    if (bos < 0 || (*n && **ids == bos)) return 0;
    int32_t *more = malloc((*n + 1) * sizeof *more);
    if (!more) return err_set(e, "out of memory for the tokens of a text");
    *more = bos;
    memcpy(more + 1, *ids, *n * sizeof *more);
    free(*ids);
    *ids = more;
    ++*n;
    return 0;
}

int sheaf_chat_tokens(const SheafChat *c, const SheafMessage *messages, size_t n, int32_t **ids, size_t *n_ids,
                      SheafErr *err) {
    Err *e = err_of(err);
    ChatText t = {0};
    *ids = NULL;
    *n_ids = 0;
    int r = render(c, messages, n, &t, e);
    if (!r)
        r = tokenizer_encode_mixed(c->m->tokenizer, t.text.data, t.text.len, (const TextSpan *)(void *)t.said.data,
                                   t.said.len / sizeof(TextSpan), ids, n_ids, e);
    if (!r) r = add_bos(tokenizer_bos(c->m->tokenizer), ids, n_ids, e);
    if (r) {
        free(*ids);
        *ids = NULL;
    }
    chat_text_free(&t);
    return r;
}
