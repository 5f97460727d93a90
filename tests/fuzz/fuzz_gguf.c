/* Any bytes as a GGUF file: it loads or is refused with one line, and what loads can be read through. */
#include <stdlib.h>
#include <string.h>

#include "graph/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_bytes(const void *p, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const uint8_t *)p)[i];
    return sum;
}

static uint64_t read_array(const MetaValue *v) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < v->v.a.n; i++) {
        if (v->v.a.type == META_STRING) sum += sum_bytes(v->v.a.strings[i].data, v->v.a.strings[i].size);
        else if (v->v.a.type == META_F32 || v->v.a.type == META_F64) sum += meta_array_f64(v, i) > 0;
        else sum += (uint64_t)meta_array_i64(v, i);
    }
    return sum;
}

static uint64_t read_through(const ModelFile *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < meta_count(g); i++) {
        const MetaValue *v = meta_at(g, i);
        sum += sum_bytes(v->key.data, v->key.size);
        if (v->type == META_STRING) sum += sum_bytes(v->v.s.data, v->v.s.size);
        if (v->type == META_ARRAY) sum += read_array(v);
    }
    for (size_t i = 0; i < file_n_tensors(g); i++) {
        const FileTensor *t = file_tensor_at(g, i);
        if (t->offset >= model_file_bytes(g) || t->bytes > model_file_bytes(g) - t->offset) abort();
        char name[65] = "";
        memcpy(name, t->name.data, t->name.size);
        if (strlen(name) == t->name.size && file_tensor(g, name) != t) abort();
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ModelFile *g = NULL;
    Err e = {""};
    if (gguf_from_memory(data, size, size, "fuzz.gguf", &g, &e)) {
        if (g || !e.msg[0] || strchr(e.msg, '\n') || !strstr(e.msg, "fuzz.gguf")) abort();
        return 0;
    }
    volatile uint64_t sum = read_through(g);
    (void)sum;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    Text s = {0};
    const MetaValue *a = NULL;
    (void)meta_get_i64(g, "general.alignment", true, 0, 1 << 20, &i, &e);
    (void)meta_get_f64(g, "f", true, &f, &e);
    (void)meta_get_bool(g, "b", true, &b, &e);
    (void)meta_get_string(g, "general.architecture", true, &s, &e);
    (void)meta_get_array(g, "a", true, META_I32, &a, &e);
    model_file_close(g);
    return 0;
}
