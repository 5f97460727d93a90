/* A model written as GGUF with other types of weights. Rank 0 does it all: rows are shared out among its threads in
 * chunks, each read, converted, written and compared by one thread, so that no two results depend on each other. */
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/size.h"
#include "engine/engine.h"
#include "engine/hf_to_gguf.h"
#include "graph/gguf_write.h"

enum { CHUNK_VALUES = 1 << 16, CHUNK_BYTES = 1 << 20, KEEP = -1, QUANTIZATION_VERSION = 2 };

/* general.file_type for files whose matrices mostly have the type (llama_ftype in llama.cpp's llama.h). */
static const uint8_t file_types[QT_COUNT] = {
    [QT_F32] = 0,   [QT_F16] = 1,   [QT_BF16] = 32, [QT_Q4_0] = 2,    [QT_Q4_1] = 3,
    [QT_Q8_0] = 7,  [QT_Q5_0] = 8,  [QT_Q5_1] = 9,  [QT_IQ4_NL] = 25, [QT_Q2_K] = 10,
    [QT_Q3_K] = 11, [QT_Q4_K] = 14, [QT_Q5_K] = 16, [QT_Q6_K] = 18,   [QT_IQ4_XS] = 30,
};

/* What takes the place of a type whose blocks of 256 do not fill a matrix's rows, as in llama.cpp
 * (llama-quant.cpp, tensor_type_fallback). */
static const QType smaller_blocks[QT_COUNT] = {
    [QT_Q2_K] = QT_Q4_0, [QT_Q3_K] = QT_Q4_0, [QT_Q4_K] = QT_Q5_0,
    [QT_Q5_K] = QT_Q5_1, [QT_Q6_K] = QT_Q8_0, [QT_IQ4_XS] = QT_IQ4_NL,
};

/* Parts of the names of matrices that stay as they are: small ones on which much depends, or which llama.cpp reads in
 * full precision only (its llama_model_quantize keeps the same). */
static const char *const kept_names[] = {"_norm.",      "ffn_gate_inp.", "position_embd.", "token_types.",
                                         "ssm_conv1d.", "shortconv.",    "attn_rel_b."};

typedef struct Rule {
    char pattern[128];
    int type; /* QType or KEEP */
    bool used;
} Rule;

typedef struct Item {
    const FileTensor *from;
    QType to;
    bool convert;
    int64_t units;      /* rows when converted, else bytes */
    int64_t columns;    /* values of a row */
    int64_t chunk;      /* units that a thread takes at a time */
    size_t read, write; /* bytes of a unit in the input and the output */
} Item;

typedef struct Chunk {
    size_t item;
    int64_t begin, end; /* units */
    double error, sum;  /* of squares: differences, values */
} Chunk;

typedef struct Buffers { /* of a thread */
    uint8_t *raw, *blocks;
    float *x, *y;
} Buffers;

typedef struct Work {
    const SheafQuantizeOptions *o;
    SheafQuantizeInfo *info;
    Rule *rule;
    QType type;
    ModelFile *in;
    ModelFile *tokenizer; /* what a folder's tokenizer is in a GGUF; or NULL */
    GgufOut *out;
    Item *item;
    Chunk *chunk;
    size_t n_items, n_chunks;
    Buffers *buffers; /* [threads] */
    uint64_t total;
    atomic_size_t next, done;
    atomic_bool failed, stopped;
    Err err; /* of the first thread that failed */
} Work;

/* ---- what becomes of each tensor --------------------------------------------------------------------------------- */

static int type_named(const char *name, QType *out, Err *e) {
    char known[256] = "";
    for (QType t = QT_F32; t <= QT_IQ4_XS; t++) {
        if (!strcasecmp(name, qtype_info(t)->name)) {
            *out = t;
            return 0;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", t ? ", " : "", qtype_info(t)->name);
    }
    return err_set(e, "type \"%.40s\" is not known (%s)", name, known);
}

static int read_rules(Work *w, Err *e) {
    w->rule = calloc((size_t)w->o->n_rules + 1, sizeof *w->rule);
    if (!w->rule) return err_set(e, "out of memory");
    for (int i = 0; i < w->o->n_rules; i++) {
        const char *text = w->o->rules[i], *equals = strrchr(text, '=');
        size_t n = equals ? (size_t)(equals - text) : 0;
        if (n == 0 || n >= sizeof w->rule[i].pattern)
            return err_set(e, "\"%.140s\" is no PATTERN=TYPE, as in blk.*.ffn_down.weight=q6_k", text);
        memcpy(w->rule[i].pattern, text, n);
        QType t = QT_F32;
        bool keep = !strcasecmp(equals + 1, "keep");
        if (!keep && type_named(equals + 1, &t, e)) return err_context(e, "%.140s", text);
        w->rule[i].type = keep ? KEEP : (int)t;
    }
    return 0;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* The type that a tensor is to have, or KEEP. */
static int wanted_type(Work *w, const char *name) {
    for (int i = 0; i < w->o->n_rules; i++)
        if (!fnmatch(w->rule[i].pattern, name, 0)) {
            w->rule[i].used = true;
            return w->rule[i].type;
        }
    if (!ends_with(name, ".weight")) return KEEP;
    for (size_t i = 0; i < sizeof kept_names / sizeof *kept_names; i++)
        if (strstr(name, kept_names[i])) return KEEP;
    return (int)w->type;
}

/* The type that a matrix gets: that one, or what takes its place; KEEP: there is none. */
static int possible_type(Work *w, const FileTensor *t, QType wanted) {
    bool whole = t->dims[0] % (uint64_t)qtype_info(wanted)->block == 0;
    QType smaller = smaller_blocks[wanted];
    if (whole) return (int)wanted;
    if (w->info->uneven + w->info->replaced == 0) {
        snprintf(w->info->uneven_name, sizeof w->info->uneven_name, "%s", text_printable(t->name).text);
        w->info->uneven_columns = (int64_t)t->dims[0];
    }
    bool possible = smaller != QT_F32 && t->dims[0] % (uint64_t)qtype_info(smaller)->block == 0;
    if (!possible) w->info->uneven++;
    else w->info->replaced++;
    return possible ? (int)smaller : KEEP;
}

static void decide(Work *w, const FileTensor *t, Item *item) {
    char name[65] = "";
    memcpy(name, t->name.data, t->name.size < 64 ? t->name.size : 64);
    uint64_t rows = t->dims[1] * t->dims[2] * t->dims[3];
    int wanted = wanted_type(w, name);
    *item = (Item){
        .from = t, .to = (QType)t->type, .units = (int64_t)t->bytes, .chunk = CHUNK_BYTES, .read = 1, .write = 1};
    SheafQuantizeInfo *info = w->info;
    info->tensors++;
    if (rows < 2) {
        info->vectors++;
        return;
    }
    if (wanted == KEEP || wanted == t->type) {
        info->others++;
        return;
    }
    wanted = possible_type(w, t, (QType)wanted);
    if (wanted == KEEP || wanted == t->type) return;
    item->convert = true;
    item->to = (QType)wanted;
    item->units = (int64_t)rows;
    item->columns = (int64_t)t->dims[0];
    item->chunk = i64_max(1, CHUNK_VALUES / item->columns);
    qtype_bytes((QType)t->type, t->dims[0], &item->read);
    qtype_bytes(item->to, t->dims[0], &item->write);
    info->converted++;
    info->requantised += qtype_info((QType)t->type)->quantised;
}

static int decide_all(Work *w, Err *e) {
    w->n_items = file_n_tensors(w->in);
    w->item = calloc(w->n_items + 1, sizeof *w->item);
    if (!w->item) return err_set(e, "out of memory");
    for (size_t i = 0; i < w->n_items; i++) {
        const FileTensor *t = file_tensor_at(w->in, i);
        if (t->type < 0 || t->type > QT_I32)
            return err_set(e, "%s: tensor %s has type number %" PRIu32 ", whose size is not known",
                           model_file_path(w->in), text_printable(t->name).text, t->type_id);
        decide(w, t, &w->item[i]);
    }
    for (int i = 0; i < w->o->n_rules; i++)
        if (!w->rule[i].used)
            return err_set(e, "%s: no tensor has a name that %s is first to match", model_file_path(w->in),
                           w->rule[i].pattern);
    return 0;
}

static int cut_into_chunks(Work *w, Err *e) {
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (size_t i = 0; i < w->n_items; i++) {
            const Item *item = &w->item[i];
            for (int64_t at = 0; at < item->units; at += item->chunk, n++)
                if (pass) w->chunk[n] = (Chunk){.item = i, .begin = at, .end = i64_min(at + item->chunk, item->units)};
        }
        w->n_chunks = n;
        if (!pass && !(w->chunk = calloc(n + 1, sizeof *w->chunk))) return err_set(e, "out of memory");
    }
    return 0;
}

/* ---- a thread's work --------------------------------------------------------------------------------------------- */

static bool all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static int convert(Work *w, const Buffers *b, Chunk *c, Err *e) {
    const Item *item = &w->item[c->item];
    int64_t n = (c->end - c->begin) * item->columns;
    qtype_dequantise((QType)item->from->type, b->raw, n, b->x);
    qtype_quantise(item->to, b->x, n, b->blocks);
    qtype_dequantise(item->to, b->blocks, n, b->y);
    const char *what = !all_finite(b->x, n)   ? "has a value that is not finite"
                       : !all_finite(b->y, n) ? "has a value that is too large for type"
                                              : NULL;
    if (what)
        return err_set(e, "%s: tensor %s %s %s", model_file_path(w->in), text_printable(item->from->name).text, what,
                       all_finite(b->x, n) ? qtype_info(item->to)->name : "");
    for (int64_t i = 0; i < n; i++) {
        double x = (double)b->x[i], error = (double)b->y[i] - x;
        c->error += error * error;
        c->sum += x * x;
    }
    return 0;
}

static int do_chunk(Work *w, const Buffers *b, Chunk *c, Err *e) {
    const Item *item = &w->item[c->item];
    size_t units = (size_t)(c->end - c->begin);
    if (model_file_read(w->in, item->from, (uint64_t)c->begin * item->read, units * item->read, b->raw, e)) return -1;
    if (item->convert && convert(w, b, c, e)) return -1;
    const uint8_t *from = item->convert ? b->blocks : b->raw;
    return gguf_out_write(w->out, c->item, (uint64_t)c->begin * item->write, from, units * item->write, e);
}

static void worker(void *arg, int thread, int n_threads) {
    (void)n_threads;
    Work *w = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&w->next, 1);
        if (i >= w->n_chunks || atomic_load(&w->failed) || atomic_load(&w->stopped)) return;
        Chunk *c = &w->chunk[i];
        Err err = {""};
        if (do_chunk(w, &w->buffers[thread], c, &err) && !atomic_exchange(&w->failed, true)) w->err = err;
        size_t bytes = (size_t)(c->end - c->begin) * w->item[c->item].read;
        size_t done = atomic_fetch_add(&w->done, bytes) + bytes;
        if (thread == 0 && w->o->progress && !w->o->progress(w->o->progress_arg, done, w->total))
            atomic_store(&w->stopped, true);
    }
}

static int make_buffers(Work *w, int n_threads, Err *e) {
    size_t values = 1, raw = 1, blocks = 1;
    for (size_t i = 0; i < w->n_items; i++) {
        const Item *item = &w->item[i];
        size_t units = (size_t)i64_min(item->chunk, item->units);
        if (units * item->read > raw) raw = units * item->read;
        if (units * item->write > blocks) blocks = units * item->write;
        if (units * (size_t)item->columns > values) values = units * (size_t)item->columns;
    }
    w->buffers = calloc((size_t)n_threads, sizeof *w->buffers);
    if (!w->buffers) return err_set(e, "out of memory");
    for (int i = 0; i < n_threads; i++) {
        Buffers b = {malloc(raw), malloc(blocks), malloc(values * sizeof(float)), malloc(values * sizeof(float))};
        w->buffers[i] = b;
        if (!b.raw || !b.blocks || !b.x || !b.y)
            return err_set(e, "out of memory for the buffers of %d threads", n_threads);
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Under GGUF's keys, if that can be. */
static int convert_tokenizer(Work *w, Err *e) {
    static const char json[] = "tokenizer.huggingface.json";
    const FileTensor *embedding = file_tensor(w->in, "token_embd.weight");
    Err why = {""};
    if (!embedding || !meta_find(w->in, json) || meta_find(w->in, "tokenizer.ggml.model")) return 0;
    if (hf_to_gguf(w->in, (int64_t)embedding->dims[1], &w->tokenizer, &why, e)) return -1;
    snprintf(w->info->foreign_tokenizer, sizeof w->info->foreign_tokenizer, "%s", why.msg);
    if (!w->tokenizer) return 0;
    gguf_out_drop(w->out, json);
    for (size_t i = 0; i < meta_count(w->tokenizer); i++)
        if (gguf_out_set(w->out, *meta_at(w->tokenizer, i), e)) return -1;
    return 0;
}

static int declare(Work *w, Err *e) {
    if (gguf_out_copy(w->out, w->in, e) || convert_tokenizer(w, e)) return -1;
    if (gguf_out_set(w->out, gguf_u32("general.file_type", file_types[w->type]), e)) return -1;
    if (gguf_out_set(w->out, gguf_u32("general.quantization_version", QUANTIZATION_VERSION), e)) return -1;
    for (size_t i = 0; i < w->n_items; i++) {
        const FileTensor *t = w->item[i].from;
        if (gguf_out_add(w->out, t->name, w->item[i].to, t->n_dims, t->dims, e)) return -1;
        w->total += t->bytes;
    }
    return gguf_out_begin(w->out, e);
}

static void count_types(Work *w) {
    SheafQuantizeInfo *info = w->info;
    double error = 0, sum = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        const Item *item = &w->item[i];
        const char *name = qtype_info(item->to)->name;
        int k = 0;
        while (k < info->n_types && strcmp(info->types[k].type, name)) k++;
        if (k == info->n_types) info->types[info->n_types++] = (SheafTypeCount){.type = name};
        info->types[k].tensors++;
        info->types[k].bytes += (uint64_t)item->units * item->write;
    }
    for (size_t i = 0; i < w->n_chunks; i++) { /* in the file's order, whichever thread was when at it */
        error += w->chunk[i].error;
        sum += w->chunk[i].sum;
    }
    info->relative_error = sum > 0 ? sqrt(error / sum) : 0;
    info->bytes_before = model_file_bytes(w->in);
    info->bytes_after = gguf_out_bytes(w->out);
}

/* Not one of the files that are read. */
static int is_other_file(const ModelFile *in, const char *out, Err *e) {
    struct stat a, b;
    for (size_t i = 0; i < model_file_parts(in); i++)
        if (!stat(model_file_part(in, i), &a) && !stat(out, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return err_set(e, "%s: is the input itself; write to another file", out);
    return 0;
}

static int quantize(Work *w, Pool *pool, const char *in, const char *out, Err *e) {
    if (type_named(w->o->type, &w->type, e) || read_rules(w, e) || model_file_open(in, &w->in, e)) return -1;
    if (is_other_file(w->in, out, e) || decide_all(w, e) || cut_into_chunks(w, e)) return -1;
    if (make_buffers(w, pool_size(pool), e) || gguf_out_create(out, &w->out, e) || declare(w, e)) return -1;
    pool_run(pool, worker, w);
    if (atomic_load(&w->failed)) {
        if (e) *e = w->err;
        return -1;
    }
    w->info->stopped = atomic_load(&w->stopped);
    if (w->info->stopped) return 0;
    count_types(w);
    return gguf_out_finish(w->out, pool, e);
}

int sheaf_quantize(SheafRuntime *rt, const char *in, const char *out, const SheafQuantizeOptions *o,
                   SheafQuantizeInfo *info, SheafErr *err) {
    Err mine = {""};
    *info = (SheafQuantizeInfo){0};
    Work w = {.o = o, .info = info};
    bool failed = comm_rank(rt->comm) == 0 && quantize(&w, rt->pool, in, out, &mine) != 0;
    gguf_out_free(w.out);
    model_file_close(w.in);
    model_file_close(w.tokenizer);
    for (int i = 0; w.buffers && i < pool_size(rt->pool); i++) {
        free(w.buffers[i].raw);
        free(w.buffers[i].blocks);
        free(w.buffers[i].x);
        free(w.buffers[i].y);
    }
    free(w.buffers);
    free(w.chunk);
    free(w.item);
    free(w.rule);
    return comm_agree(rt->comm, failed, &mine, err_of(err));
}
