#include "engine/bert_text.h"

static void drop_hidden(const BertText *b, const char *text, size_t n, StrBuf *out) {
    for (size_t i = 0, size; i < n; i += size) {
        int32_t c = unicode_at(text + i, &size);
        bool line = c == '\t' || c == '\n' || c == '\r';
        if (b->clean && (c == 0 || c == 0xFFFD || (!line && unicode_is_hidden(c)))) continue;
        if (b->clean && unicode_is_space(c)) strbuf_add(out, " ", 1);
        else if (b->spaced && unicode_is_ideograph(c)) {
            strbuf_add(out, " ", 1);
            strbuf_add(out, text + i, size);
            strbuf_add(out, " ", 1);
        } else strbuf_add(out, text + i, size);
    }
}

/* In place: what stays is never longer. */
static void drop_accents(StrBuf *s) {
    size_t kept = 0;
    for (size_t i = 0, size; i < s->len; i += size) {
        if (unicode_is_accent(unicode_at(s->data + i, &size))) continue;
        for (size_t j = 0; j < size; j++) s->data[kept++] = s->data[i + j];
    }
    s->len = kept;
}

int bert_text_clean(const BertText *b, const char *text, size_t n, StrBuf *scratch, StrBuf *out, Err *e) {
    scratch->len = 0;
    drop_hidden(b, text, n, b->strip_accents || b->lower ? scratch : out);
    if (b->strip_accents) {
        StrBuf normal = {0};
        int failed = unicode_normalize(UNICODE_NFD, scratch->data, scratch->len, &normal, e);
        drop_accents(&normal);
        scratch->len = 0;
        strbuf_add(scratch, normal.data, normal.len);
        scratch->failed = scratch->failed || normal.failed;
        strbuf_free(&normal);
        if (failed) return -1;
    }
    if (b->lower) unicode_lower(scratch->data, scratch->len, out);
    else if (b->strip_accents) strbuf_add(out, scratch->data, scratch->len);
    if (scratch->failed || out->failed) return err_set(e, "out of memory for a text of %zu bytes", n);
    return 0;
}

size_t bert_text_word(const char *text, size_t n, size_t *at) {
    size_t size, i = *at;
    while (i < n && unicode_is_space(unicode_at(text + i, &size))) i += size;
    *at = i;
    if (i == n) return 0;
    if (unicode_is_punct(unicode_at(text + i, &size))) return i + size;
    for (; i < n; i += size) {
        int32_t c = unicode_at(text + i, &size);
        if (unicode_is_space(c) || unicode_is_punct(c)) break;
    }
    return i;
}
