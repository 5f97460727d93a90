/* Any bytes as a config.json and the header of a safetensors file beside it: the model is built or refused with one
 * line, and all of its tensors can be read. The input: two bytes with the length of config.json, four with that of the
 * tensors' data, which is not there, then config.json, then the safetensors file up to its data. */
#include <stdlib.h>
#include <string.h>

#include "graph/arch.h"
#include "graph/hf_import.h"
#include "graph/hf_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Builds the graph and asks for a part of every tensor: most are said not to be in memory. */
static void use(const ModelFile *g, Err *e) {
    Graph graph;
    LmShape shape;
    uint8_t bytes[256];
    for (size_t i = 0; i < file_n_tensors(g); i++) {
        const FileTensor *t = file_tensor_at(g, i);
        size_t n = t->bytes < sizeof bytes ? (size_t)t->bytes : sizeof bytes;
        if (t->file >= model_file_parts(g) || n == 0) abort();
        if (model_file_read(g, t, t->bytes - n, n, bytes, e) && !strstr(e->msg, "not in memory")) abort();
        (void)model_file_read(g, t, (t->bytes - n) / 8 * 4, n, bytes, e);
    }
    if (arch_build(g, &graph, &shape, e) && (!e->msg[0] || strchr(e->msg, '\n'))) abort();
    graph_free(&graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 6) return 0;
    size_t config = (size_t)number(data, 2), rest = (size_t)number(data + 2, 4);
    data += 6, size -= 6;
    if (config > size) return 0;
    Err e = {""};
    cJSON *json = NULL;
    Safetensors s = {0};
    Import i = {.path = "config.json", .e = &e, .g = model_file_new("fuzz", "safetensors", &e)};
    const uint8_t *weights = data + config;
    size_t n = size - config;
    if (!i.g ||
        model_file_add(i.g, "fuzz", (DataFile){.fd = -1, .memory = weights, .memory_bytes = n, .bytes = n + rest}, &e))
        abort();
    if (!hf_json_parse((const char *)data, config, &json, &e) &&
        !safetensors_from_memory(weights, n, n + rest, "fuzz", &s, &e)) {
        hf_config_read(&i, json);
        if (!i.failed) hf_tensors_add(&i, &s, 0);
        hf_tensors_finish(&i);
        if (!i.failed && model_file_map_values(i.g, &e)) abort();
        if (!i.failed) use(i.g, &e);
        else if (!e.msg[0] || strchr(e.msg, '\n')) abort();
    }
    cJSON_Delete(json);
    safetensors_free(&s);
    model_file_close(i.g);
    return 0;
}
