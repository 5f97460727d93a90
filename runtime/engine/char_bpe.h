/* BPE over characters: the characters of a word are its first symbols; one that is no token is written in bytes
 * ("<0xE2>") or becomes the unknown token. Tokenizers of the SentencePiece family and those of Hugging Face's files. */
#pragma once

#include "base/strbuf.h"
#include "engine/bpe.h"
#include "engine/tokenizer_internal.h"

typedef struct CharBpe {
    const Vocab *vocab;
    Bpe bpe;                 /* owned */
    int32_t byte_id[256];    /* -1: none */
    int32_t unknown;         /* or -1: what is unknown is left out */
    bool bytes;              /* write unknown characters in bytes, where all their bytes have tokens */
    bool fuse_unknown;       /* one unknown token for several characters */
    bool ignore_merges;      /* a word that is a token is that token */
    bool only_usable;        /* control and byte tokens are no symbols (merges_use) */
    Text continuing, ending; /* put before each character but the first, after the last one; not owned */
    StrBuf scratch;          /* owned */

    /* Where a word with U+2581 for spaces can be cut, since no merge reaches over the place: before a space behind a
     * character that no token has before a space. Bit c % 1024 of a character that some token has there. */
    bool cuts;
    uint64_t before_space[16];
} CharBpe;
/* Finds out where words can be cut, once the rest is set. Same tokens, sooner: merging all of WikiText-2 as one word
 * takes 0.8 s with Llama 2's vocabulary, cut into words 0.05 s. Local. */
void char_bpe_find_cuts(CharBpe *b);
void char_bpe_free(CharBpe *b); /* also of a zeroed one */

/* Adds the ids of a word, which is not empty. Local. */
int char_bpe_encode(CharBpe *b, const char *word, size_t bytes, Ids *ids, Err *e);
