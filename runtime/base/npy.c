#include "base/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/size.h"

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
enum { LONGEST_HEADER = 1 << 16, ALIGN = 64 };

/* The text behind 'key': in the header's dictionary, or NULL. */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at++ != ':') return NULL;
    return at + strspn(at, " ");
}

static int parse_type(const char *text, Npy *a) {
    if (!text || (text[0] != '\'' && text[0] != '"')) return -1;
    char order = text[1];
    a->kind = text[2];
    if (!a->kind || (order != '<' && order != '|' && order != '=')) return -1;
    a->bytes = text[3] - '0';
    bool good = text[4] == text[0] && (a->bytes == 1 || a->bytes == 2 || a->bytes == 4 || a->bytes == 8);
    if (a->kind == 'b') return good && a->bytes == 1 ? 0 : -1;
    return good && (a->kind == 'i' || a->kind == 'u' || (a->kind == 'f' && a->bytes > 1)) ? 0 : -1;
}

static int parse_shape(const char *text, Npy *a) {
    if (!text || *text++ != '(') return -1;
    while (*(text += strspn(text, " ")) != ')') {
        char *end;
        if (*text < '0' || *text > '9' || a->n_dims == NPY_DIMS) return -1;
        a->dim[a->n_dims] = strtoll(text, &end, 10);
        if (a->dim[a->n_dims++] == INT64_MAX) return -1;
        text = end + strspn(end, " ");
        if (*text == ',') text++;
        else if (*text != ')') return -1;
    }
    return 0;
}

int npy_parse(const uint8_t *file, size_t n, const char *name, Npy *out, Err *e) {
    Cursor c = {.base = file, .size = n, .name = name};
    const uint8_t *start, *text;
    uint8_t major = 0, minor;
    uint16_t short_length = 0;
    uint32_t length = 0;
    *out = (Npy){0};
    if (cursor_bytes(&c, sizeof magic, &start, e)) return -1;
    if (memcmp(start, magic, sizeof magic) != 0) return err_set(e, "%s: not an .npy file", name);
    if (cursor_u8(&c, &major, e) || cursor_u8(&c, &minor, e)) return -1;
    if (major < 1 || major > 3) return err_set(e, "%s: version %d of the .npy format is not supported", name, major);
    if (major == 1 ? cursor_u16(&c, &short_length, e) : cursor_u32(&c, &length, e)) return -1;
    if (major == 1) length = short_length;
    if (length > LONGEST_HEADER) return err_set(e, "%s: a header of %" PRIu32 " bytes", name, length);
    if (cursor_bytes(&c, length, &text, e)) return -1;
    char *header = strndup((const char *)text, length);
    if (!header) return err_set(e, "%s: out of memory", name);
    const char *columns = value_of(header, "fortran_order");
    bool by_columns = columns && !strncmp(columns, "True", 4);
    bool good = columns && !parse_type(value_of(header, "descr"), out) && !parse_shape(value_of(header, "shape"), out);
    free(header);
    if (!good) return err_set(e, "%s: an array of this type or shape is not supported", name);
    if (by_columns && out->n_dims > 1)
        return err_set(e, "%s: the array is in column order; save it in row order", name);
    size_t bytes = (size_t)out->bytes;
    for (int i = 0; i < out->n_dims; i++)
        if (!size_mul(bytes, (size_t)out->dim[i], &bytes)) return err_set(e, "%s: sizes out of range", name);
    if (bytes != cursor_left(&c))
        return err_set(e, "%s: %zu bytes of data, the shape needs %zu", name, cursor_left(&c), bytes);
    out->n_bytes = bytes;
    return cursor_bytes(&c, bytes, &out->data, e);
}

void npy_header(const Npy *a, StrBuf *out) {
    StrBuf header = {0};
    strbuf_printf(&header, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (", a->bytes == 1 ? '|' : '<', a->kind,
                  a->bytes);
    for (int i = 0; i < a->n_dims; i++)
        strbuf_printf(&header, "%s%" PRId64 "%s", i ? " " : "", a->dim[i],
                      i + 1 < a->n_dims || a->n_dims == 1 ? "," : "");
    strbuf_puts(&header, "), }");
    size_t fixed = sizeof magic + 4, all = round_up(fixed + header.len + 1, ALIGN) - fixed;
    while (!header.failed && header.len + 1 < all) strbuf_puts(&header, " ");
    strbuf_puts(&header, "\n");
    const uint8_t version[4] = {1, 0, (uint8_t)(header.len & 255), (uint8_t)(header.len >> 8)};
    strbuf_add(out, (const char *)magic, sizeof magic);
    strbuf_add(out, (const char *)version, sizeof version);
    strbuf_add(out, header.data, header.len);
    out->failed |= header.failed;
    strbuf_free(&header);
}
