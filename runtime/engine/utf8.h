/* UTF-8 checking, and GPT-2's letters for bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The offset of the first byte that does not belong to a well-formed character (Unicode 15, table 3-7: no overlong
 * forms, no surrogates, nothing above U+10FFFF), or `n` when all is well. Local. */
size_t utf8_check(const char *text, size_t n);

/* Byte-level BPE writes bytes as letters, so that vocabularies are printable text: bytes that are printable in Latin-1
 * stand for themselves, the other 68, in order, for U+0100 .. U+0143
 * (https://github.com/openai/gpt-2/blob/master/src/encoder.py, bytes_to_unicode). */
enum { BYTE_LETTERS = 0x144 };
typedef struct ByteLetters {
    char utf8[256][2];          /* the letter of a byte */
    uint8_t size[256];          /* 1 or 2 */
    int16_t byte[BYTE_LETTERS]; /* the byte of a letter, or -1 */
} ByteLetters;
void byte_letters_init(ByteLetters *t);

/* Letters -> bytes. Returns their number and writes as many as fit in `cap`, or -1 when the text has something else in
 * it. Local. */
int64_t byte_letters_decode(const ByteLetters *t, const char *text, size_t n, char *out, size_t cap);
