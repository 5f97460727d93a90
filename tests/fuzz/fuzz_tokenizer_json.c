/* Two fuzzers in one, by the first byte. Even: the rest is a text for a sound tokenizer.json whose tokens have every
 * byte; its ids must give it back. Odd: the next byte is the length of a text, and what follows it is a tokenizer.json:
 * it loads or is refused by name, and the text is encoded or refused with ids that exist. Bit 1 of the first byte:
 * special tokens are wanted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "engine/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Tokenizer *sound(void) {
    static Tokenizer *t;
    StrBuf s = {0};
    Err e;
    if (t) return t;
    strbuf_puts(&s,
                "{\"added_tokens\":[{\"id\":259,\"content\":\"<s>\",\"special\":true,\"lstrip\":false,\"rstrip\":false,"
                "\"single_word\":false,\"normalized\":false}],\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{"
                "\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[\"a b\",\"ab a\"],\"vocab\":{");
    for (int b = 0; b < 256; b++) strbuf_printf(&s, "\"<0x%02X>\":%d,", (unsigned)b, b);
    strbuf_puts(&s, "\"a\":256,\"b\":257,\"ab\":258,\"aba\":260}}}");
    if (s.failed || tokenizer_from_json_memory(s.data, s.len, "sound.json", INT64_MAX, &t, &e)) abort();
    strbuf_free(&s);
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

static void fuzz_file(const uint8_t *data, size_t size, bool special) {
    Tokenizer *t;
    Err e = {""};
    size_t text = size ? data[0] : 0, n;
    if (size < 1 + text) return;
    if (tokenizer_from_json_memory((const char *)data + 1 + text, size - 1 - text, "fuzz.json", INT64_MAX, &t, &e)) {
        check_error(&e);
        if (!strstr(e.msg, "fuzz.json")) abort();
        return;
    }
    free(encode(t, (const char *)data + 1, text, special, &n));
    (void)tokenizer_bos(t);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    bool special = data[0] & 2;
    if (data[0] & 1) fuzz_file(data + 1, size - 1, special);
    else fuzz_text((const char *)data + 1, size - 1, special);
    return 0;
}
