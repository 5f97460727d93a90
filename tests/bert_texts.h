/* Texts with their ids and embeddings by Hugging Face transformers, of the model fixtures/arch/bert.head
 * (tests/reference/tiny_bert.py, which says what the file has). Needs arch_files.h. */
#pragma once

#include "arch_files.h"

enum { BERT_WIDTH = 96, BERT_CONTEXT = 80, BERT_TEXTS = 15, BERT_POOLINGS = 3 };
static const char *const bert_poolings[BERT_POOLINGS] = {"mean", "cls", "last"}; /* in the file's order */

typedef struct BertText {
    int n;
    int32_t ids[BERT_CONTEXT];
    float exact[BERT_POOLINGS][BERT_WIDTH], fp16[BERT_POOLINGS][BERT_WIDTH]; /* keys and values */
} BertText;

static inline void bert_take(const uint8_t **at, const uint8_t *end, void *to, size_t n) {
    if ((size_t)(end - *at) < n) {
        fprintf(stderr, "arch/bert.embeddings is too short\n");
        exit(2);
    }
    memcpy(to, *at, n);
    *at += n;
}

static inline void bert_texts(BertText text[BERT_TEXTS]) {
    size_t size;
    uint32_t head[4], n;
    uint8_t *bytes = arch_fixture("bert", "embeddings", &size);
    const uint8_t *at = bytes, *end = bytes + size;
    bert_take(&at, end, head, sizeof head);
    if (memcmp(bytes, "SHEB\1\0\0\0", 8) != 0 || head[2] != BERT_TEXTS || head[3] != BERT_WIDTH) {
        fprintf(stderr, "arch/bert.embeddings is not as expected\n");
        exit(2);
    }
    for (int i = 0; i < BERT_TEXTS; i++) {
        bert_take(&at, end, &n, sizeof n);
        if ((size_t)(end - at) < n) exit(2);
        at += n; /* the text itself */
        bert_take(&at, end, &n, sizeof n);
        if (n > BERT_CONTEXT) exit(2);
        text[i].n = (int)n;
        bert_take(&at, end, text[i].ids, n * sizeof *text[i].ids);
        bert_take(&at, end, text[i].exact, sizeof text[i].exact);
        bert_take(&at, end, text[i].fp16, sizeof text[i].fp16);
    }
    free(bytes);
}
