#include "graph/arch.h"

#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    ArchBuild *build;
} architectures[] = {
    {"llama", arch_llama},       {"qwen2", arch_qwen2},   {"qwen2moe", arch_qwen2moe}, {"qwen3", arch_qwen3},
    {"qwen3moe", arch_qwen3moe}, {"gemma2", arch_gemma2}, {"gemma3", arch_gemma3},     {"phi3", arch_phi3},
    {"olmo2", arch_olmo2},       {"olmoe", arch_olmoe},   {"smollm3", arch_smollm3},   {"granite", arch_granite},
    {"bert", arch_bert},
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

int arch_build(const ModelFile *f, Graph *g, LmShape *shape, Err *e) {
    graph_init(g);
    *shape = (LmShape){0};
    Text arch;
    if (meta_get_string(f, "general.architecture", true, &arch, e)) return -1;
    char known[512] = "";
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        const char *name = architectures[i].name;
        if (arch.size == strlen(name) && !memcmp(arch.data, name, arch.size)) {
            Builder b = {.f = f, .g = g, .arch = name, .e = e};
            if (architectures[i].build(&b, shape) || b.failed) return -1;
            if (graph_check(g, e)) return err_context(e, "%s", model_file_path(f));
            return 0;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", name);
    }
    int shown = arch.size < 60 ? (int)arch.size : 60;
    return err_set(e, "%s: architecture \"%.*s\" is not supported (this build runs: %s)", model_file_path(f), shown,
                   arch.data, known);
}

static void builder_fail(Builder *b) { b->failed = true; }

int64_t builder_int(Builder *b, const char *key, int64_t min, int64_t max, int64_t def) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    int64_t v = def;
    if (b->failed) return min;
    if (meta_get_i64(b->f, full, def < 0, min, max, &v, b->e)) {
        builder_fail(b);
        return min;
    }
    return v;
}

bool builder_bool(Builder *b, const char *key, bool def) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    bool v = def;
    if (b->failed) return def;
    if (meta_get_bool(b->f, full, false, &v, b->e)) builder_fail(b);
    return v;
}

double builder_float(Builder *b, const char *key, double def) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    double v = def;
    if (b->failed) return 1;
    if (meta_get_f64(b->f, full, isnan(def), &v, b->e)) {
        builder_fail(b);
        return 1;
    }
    return v;
}

const char *builder_name(int64_t layer, const char *what) {
    static _Thread_local char names[8][64];
    static _Thread_local unsigned next;
    char *s = names[next++ % 8];
    if (layer < 0) snprintf(s, sizeof names[0], "%s", what);
    else snprintf(s, sizeof names[0], "blk.%" PRId64 ".%s", layer, what);
    return s;
}

/* The last n of the dimensions, as "[8][96]"; of a vector, [1][96]. */
static void shape_text(const int64_t *dims, int64_t n, char *out, size_t size) {
    size_t at = 0;
    for (int64_t i = TENSOR_DIMS - i64_max(n, 2); i < TENSOR_DIMS && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "[%" PRId64 "]", dims[i]);
}

bool builder_has(const Builder *b, int64_t layer, const char *name) {
    return file_tensor(b->f, builder_name(layer, name)) != NULL;
}

/* A tensor of the file as a weight of these dimensions, the last running fastest; a vector is [1][columns] here. */
static ValueId add_weight(Builder *b, int64_t layer, const char *name, int n_dims, const int64_t *dims) {
    if (b->failed) return -1;
    const char *full = builder_name(layer, name);
    const FileTensor *t = file_tensor(b->f, full);
    b->failed = true;
    if (!t) return err_set(b->e, "%s: tensor %s is missing", model_file_path(b->f), full);
    if (t->type < 0)
        return err_set(b->e, "%s: tensor %s has type number %" PRIu32 ", which is not known", model_file_path(b->f),
                       full, t->type_id);
    if (!qtype_info((QType)t->type)->packed)
        return err_set(b->e, "%s: tensor %s has type %s, which is not run by this build yet", model_file_path(b->f),
                       full, qtype_info((QType)t->type)->name);
    int64_t have[TENSOR_DIMS], want[TENSOR_DIMS];
    for (int i = 0; i < TENSOR_DIMS; i++) {
        have[i] = (int64_t)t->dims[TENSOR_DIMS - 1 - i];
        want[i] = i < TENSOR_DIMS - n_dims ? 1 : dims[i - (TENSOR_DIMS - n_dims)];
    }
    if (memcmp(have, want, sizeof have) != 0) {
        char is[96], wanted[96];
        shape_text(have, i64_max(n_dims, t->n_dims), is, sizeof is);
        shape_text(want, i64_max(n_dims, t->n_dims), wanted, sizeof wanted);
        return err_set(b->e, "%s: tensor %s is %s, but the metadata want %s", model_file_path(b->f), full, is, wanted);
    }
    b->failed = false;
    return graph_weight(b->g, full, (QType)t->type, n_dims, dims, (int32_t)(t - file_tensor_at(b->f, 0)), NULL);
}

ValueId builder_weight(Builder *b, int64_t layer, const char *name, int64_t rows, int64_t columns) {
    if (rows) return add_weight(b, layer, name, 2, (int64_t[]){rows, columns});
    ValueId v = add_weight(b, layer, name, 1, &columns);
    if (v < 0 || !qtype_info(b->g->value[v].type)->quantised) return v;
    b->failed = true;
    return err_set(b->e, "%s: tensor %s is a vector of type %s; F32, F16 or BF16 is wanted", model_file_path(b->f),
                   b->g->value[v].name, qtype_info(b->g->value[v].type)->name);
}

ValueId builder_experts(Builder *b, int64_t layer, const char *name, int64_t experts, int64_t rows, int64_t columns) {
    return add_weight(b, layer, name, 3, (int64_t[]){experts, rows, columns});
}
