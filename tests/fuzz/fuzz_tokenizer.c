/* Two fuzzers in one, by the first byte. Even: the rest is a text for a sound vocabulary; its ids must give it back.
 * Odd: the next byte is the length of a text, and what follows it is a GGUF file: its vocabulary loads or is refused,
 * and a text is encoded or refused with ids that exist. Bit 1 of the first byte: special tokens are wanted. */
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer.h"
#include "graph/gguf.h"
#include "tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Tokenizer *sound(void) {
    static Tokenizer *t;
    static ModelFile *g; /* lives as long as the process, as does its memory */
    static uint8_t *bytes;
    if (t) return t;
    GgufWriter w;
    size_t n;
    Err e;
    gw_init(&w, 3, 32);
    tiny_vocabulary(&w, 600);
    bytes = gw_finish(&w, &n);
    gw_free(&w);
    if (gguf_from_memory(bytes, n, n, "sound.gguf", &g, &e) || tokenizer_from_gguf(g, &t, &e)) abort();
    return t;
}

static void check_error(const Err *e) {
    if (!e->msg[0] || strchr(e->msg, '\n')) abort();
}

/* Encodes; ids in range, their bytes together at *joined (malloc'ed; NULL when the text was refused). */
static char *encode(Tokenizer *t, const char *text, size_t bytes, bool special, size_t *n_joined) {
    int32_t *ids;
    size_t n, total = 0;
    Err e = {""};
    if (tokenizer_encode(t, text, bytes, true, special, &ids, &n, &e)) {
        check_error(&e);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_size(t)) abort();
        total += tokenizer_bytes(t, ids[i], true, NULL, 0);
    }
    char *joined = malloc(total + 1);
    if (!joined) abort();
    *n_joined = 0;
    for (size_t i = 0; i < n; i++) *n_joined += tokenizer_bytes(t, ids[i], true, joined + *n_joined, total - *n_joined);
    if (*n_joined != total) abort();
    free(ids);
    return joined;
}

static void fuzz_text(const char *text, size_t bytes, bool special) {
    size_t n;
    char *joined = encode(sound(), text, bytes, special, &n);
    if (joined && (n != bytes || memcmp(joined, text, n))) abort();
    free(joined);
}

static void fuzz_vocabulary(const uint8_t *data, size_t size, bool special) {
    ModelFile *g;
    Tokenizer *t;
    Err e = {""};
    size_t text = size ? data[0] : 0, n;
    if (size < 1 + text) return;
    if (gguf_from_memory(data + 1 + text, size - 1 - text, size - 1 - text, "fuzz.gguf", &g, &e)) return;
    if (tokenizer_from_gguf(g, &t, &e)) {
        check_error(&e);
        if (!strstr(e.msg, "fuzz.gguf")) abort();
    } else {
        free(encode(t, (const char *)data + 1, text, special, &n));
        for (int32_t id = -1; id <= tokenizer_size(t); id++) {
            char buf[4];
            (void)tokenizer_bytes(t, id, id & 1, buf, sizeof buf);
            (void)tokenizer_ends(t, id);
        }
        tokenizer_free(t);
    }
    model_file_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    bool special = data[0] & 2;
    if (data[0] & 1) fuzz_vocabulary(data + 1, size - 1, special);
    else fuzz_text((const char *)data + 1, size - 1, special);
    return 0;
}
