/* Conversations as text for a model. Local. */
#pragma once

#include <time.h>

#include "base/strbuf.h"
#include "engine/chat_form.h"
#include "engine/sheaf.h"
#include "engine/tokenizer.h"

/* A conversation as text, with the places of what was said in it: special tokens are the template's alone. */
typedef struct ChatText {
    StrBuf text;
    StrBuf said; /* TextSpan[], in order; none empty */
} ChatText;
void chat_text_free(ChatText *t);

typedef struct ChatTokens { /* texts of the model's tokens, "" when it has none */
    const char *bos, *eos;
} ChatTokens;

/* The conversation up to where the answer to its last message begins. Messages as for sheaf_chat_text, which names the
 * errors; `now`: for templates that give the date. */
int chat_render(const ChatStyle *s, const ChatTokens *k, time_t now, const SheafMessage *m, size_t n, ChatText *out,
                Err *e);
