#include "utf8.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Table 3-7 by lead byte: how many bytes, and which range the second one must lie in (later ones: 80..BF). */
static const struct {
    unsigned char first, last;
    int bytes;
    unsigned char second_min, second_max;
} leads[] = {
    {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF}, {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F},
    {0xEE, 0xEF, 3, 0x80, 0xBF}, {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};
enum { N_LEADS = sizeof leads / sizeof leads[0] };

static int lead_index(unsigned char byte) {
    for (int i = 0; i < N_LEADS; i++)
        if (byte >= leads[i].first && byte <= leads[i].last) return i;
    return -1;
}

static void take_first(Utf8 *u, unsigned char byte, StrBuf *out) {
    int lead = lead_index(byte);
    if (byte < 0x80) {
        strbuf_add(out, (const char *)&byte, 1);
    } else if (lead < 0) {
        strbuf_add(out, replacement, 3);
    } else {
        u->held[0] = byte;
        u->n_held = 1;
        u->n_wanted = leads[lead].bytes;
    }
}

static bool may_follow(const Utf8 *u, unsigned char byte) {
    if (u->n_held > 1) return byte >= 0x80 && byte <= 0xBF;
    int lead = lead_index(u->held[0]);
    return byte >= leads[lead].second_min && byte <= leads[lead].second_max;
}

void utf8_feed(Utf8 *u, const char *bytes, size_t n, StrBuf *out) {
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (u->n_held > 0 && !may_follow(u, byte)) utf8_end(u, out);
        if (u->n_held == 0) {
            take_first(u, byte, out);
            continue;
        }
        u->held[u->n_held++] = byte;
        if (u->n_held == u->n_wanted) {
            strbuf_add(out, (const char *)u->held, (size_t)u->n_held);
            u->n_held = 0;
        }
    }
}

void utf8_end(Utf8 *u, StrBuf *out) {
    if (u->n_held > 0) strbuf_add(out, replacement, 3);
    u->n_held = 0;
}
