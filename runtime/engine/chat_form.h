/* The forms in which models were taught to converse: what stands around each turn. A model file brings its form as a
 * chat template, a program in Jinja, which is not run here: it is recognised by what its text has and lacks, and what
 * differs between models of one form is read off that text. Rendered conversations equal those that Hugging Face
 * transformers makes with the template (tests/engine/test_chat.c). All local. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* In the strings of a form: the text of the model's BOS and EOS tokens, and a date ("01 Dec 2026"). */
#define CHAT_BOS  "\1"
#define CHAT_EOS  "\2"
#define CHAT_DATE "\3"

typedef enum ChatTrim {
    TRIM_NOT,
    TRIM_TEXT,        /* what was said, without the white space around it */
    TRIM_WITH_SYSTEM, /* the same after the system prompt was put in front */
} ChatTrim;

typedef struct ChatTurn {
    const char *before, *after;
    ChatTrim trim;
} ChatTurn;

typedef enum ChatSystem {
    SYSTEM_NONE,  /* the template refuses it, or leaves it out */
    SYSTEM_TURN,  /* a turn of its own */
    SYSTEM_FIRST, /* in front of what the user said first */
    SYSTEM_LAST,  /* in front of what the user said last */
} ChatSystem;

typedef struct ChatForm {
    const char *name;
    const char *has[4], *lacks[8]; /* of the template's text, with every " as ' and every \n as a line end */
    const char *begin;             /* CHAT_BOS; or "" where turns have it, or it is never there */
    ChatTurn system, user, assistant;
    const char *answer;    /* in front of the answer that is wanted */
    ChatSystem place;      /* of the system prompt; of what the text may say of it, SYSTEM_FIRST and _LAST */
    const char *no_system; /* the system prompt when none was given; NULL: none */
} ChatForm;

/* A form with what the model's own template says. */
typedef struct ChatStyle {
    const ChatForm *form;
    bool begin; /* form->begin counts */
    ChatSystem place;
    char *no_system;   /* owned; over form->no_system when not NULL */
    bool needs_system; /* the system prompt for want of another is put together by the template's program */
    bool skips_empty;  /* an empty system prompt counts as none */
    bool trims;        /* the turns' `trim` counts */
    bool thinks;       /* "<think>" and a line end begin the answer */
    bool cut;          /* of earlier answers only what comes after "</think>" stays ... */
    bool cut_lines;    /* ... but for the line ends it begins with */
    bool today;        /* CHAT_DATE is the day, else 26 Jul 2024 */
} ChatStyle;

/* The style of a template's text ("": there is none); `file` stands for it in errors. Of an unknown one the error says
 * how it begins, and which forms there are. */
int chat_style_of(const char *text, const char *file, ChatStyle *out, Err *e);
/* That of a form by its name. */
int chat_style_named(const char *name, ChatStyle *out, Err *e);
void chat_style_free(ChatStyle *s);
