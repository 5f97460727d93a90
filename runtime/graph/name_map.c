#include "graph/name_map.h"

#include <stdlib.h>
#include <string.h>

static const Text *element(const NameMap *m, size_t i) { return (const Text *)(m->base + i * m->stride); }

/* The slots hold 32 bits; the low bits of the fold choose the slot. */
static uint32_t fold(uint64_t hash) { return (uint32_t)(hash ^ hash >> 32); }

static bool equal(const Text *s, Text a, Text b) {
    if (s->size != a.size + b.size) return false;
    return (!a.size || !memcmp(s->data, a.data, a.size)) && (!b.size || !memcmp(s->data + a.size, b.data, b.size));
}

int name_map_build(NameMap *m, const void *base, size_t stride, size_t n, bool skip_empty, size_t twin[2]) {
    *m = (NameMap){.base = base, .stride = stride};
    if (n == 0) return 0;
    if (n >= UINT32_MAX / 4) return -1;
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    m->slots = calloc(slots, sizeof *m->slots);
    if (!m->slots) return -1;
    m->mask = slots - 1;
    for (size_t i = 0; i < n; i++) {
        const Text *s = element(m, i);
        if (skip_empty && s->size == 0) continue;
        uint32_t hash = fold(name_hash(NAME_HASH_START, s->data, s->size));
        size_t at = hash & m->mask;
        for (; m->slots[at].index; at = (at + 1) & m->mask) {
            size_t other = m->slots[at].index - 1;
            if (m->slots[at].hash == hash && equal(element(m, other), *s, (Text){0})) {
                twin[0] = other;
                twin[1] = i;
                name_map_free(m);
                return 1;
            }
        }
        m->slots[at] = (NameMapSlot){hash, (uint32_t)(i + 1)};
    }
    return 0;
}

void name_map_free(NameMap *m) {
    free(m->slots);
    m->slots = NULL;
}

int64_t name_map_find_joined(const NameMap *m, uint64_t hash64, Text a, Text b) {
    if (!m->slots) return -1;
    uint32_t hash = fold(hash64);
    for (size_t at = hash & m->mask; m->slots[at].index; at = (at + 1) & m->mask) {
        size_t i = m->slots[at].index - 1;
        if (m->slots[at].hash == hash && equal(element(m, i), a, b)) return (int64_t)i;
    }
    return -1;
}

int64_t name_map_find(const NameMap *m, const char *data, size_t size) {
    return name_map_find_joined(m, name_hash(NAME_HASH_START, data, size), (Text){data, size}, (Text){0});
}
