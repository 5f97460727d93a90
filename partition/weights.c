#include "partition/weights.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum { CHUNK_BYTES = 1 << 20 }; /* of packed weights a thread takes at a time */

/* The ranges of a weight's two axes that this rank holds; a convolution's kernel window counts as part of a row. */
typedef struct Slice {
    const Value *v;
    Range row[SHARD_PARTS], column[SHARD_PARTS];
    int n_row, n_column;
    int64_t rows, columns;                      /* local, of each matrix */
    int64_t first_matrix, n_matrices, all_rows; /* local matrices; rows of one in the file */
    int64_t window;                             /* elements of the axes between rows and columns, when not packed */
    int skip;                                   /* PackedWeights.skip */
    size_t row_bytes;                           /* in the file */
    size_t part_bytes;                          /* of those, what holds the local columns: whole blocks */
    bool whole_rows;
} Slice;

typedef struct Chunk { /* panels of one matrix */
    ValueId v;
    int64_t matrix, panel0, panel1;
} Chunk;

typedef struct Loader {
    const Plan *p;
    int rank;
    const ModelFile *file;
    Weights *w;
    Slice *slice; /* [n_values] */
    Chunk *chunk;
    size_t n_chunks;
    uint8_t **buffer; /* [threads] */
    atomic_size_t next, done;
    atomic_bool failed;
    Err err; /* of the first thread that failed */
    LoadProgress *progress;
    void *arg;
} Loader;

static int64_t total(const Range *r, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += r[i].end - r[i].begin;
    return sum;
}

/* Index on the whole axis of local index i. */
static int64_t global_index(const Range *r, int n, int64_t i) {
    for (int k = 0; k < n; k++) {
        int64_t size = r[k].end - r[k].begin;
        if (i < size) return r[k].begin + i;
        i -= size;
    }
    return -1;
}

/* Where the blocks that hold columns [r.begin, r.end) lie in a row of the file. */
static void bytes_of(QType t, Range r, size_t *at, size_t *n) {
    int64_t block = qtype_info(t)->block, begin = r.begin / block, end = ceil_div(r.end, block);
    *at = (size_t)begin * (size_t)qtype_info(t)->block_bytes;
    *n = r.begin == r.end ? 0 : (size_t)(end - begin) * (size_t)qtype_info(t)->block_bytes;
}

static int slice_of(Loader *l, ValueId v, Slice *s, Err *e) {
    const Value *x = &l->p->graph.value[v];
    *s = (Slice){.v = x};
    int64_t columns = plan_axis_size(l->p, v, AXIS_LAST);
    if (x->n_dims <= 1) { /* a vector is one row */
        s->row[0] = (Range){0, 1};
        s->n_row = 1;
    } else s->n_row = plan_local_ranges(l->p, v, AXIS_FIRST, l->rank, s->row);
    s->n_column = plan_local_ranges(l->p, v, x->n_dims <= 1 ? AXIS_FIRST : AXIS_LAST, l->rank, s->column);
    s->rows = total(s->row, s->n_row);
    s->columns = total(s->column, s->n_column);
    s->whole_rows = s->columns == columns;
    bool packed = l->p->form[v] == WEIGHT_PACKED;
    s->window = 1;
    for (int i = 1; i < x->n_dims - 1; i++) s->window *= x->dim[i].size;
    s->skip = packed ? plan_weight_skip(l->p, v, l->rank) : 0;
    s->all_rows = plan_axis_size(l->p, v, AXIS_FIRST);
    s->n_matrices = plan_local_matrices(l->p, v, l->rank);
    if (packed && x->n_dims == 3) {
        Range experts[SHARD_PARTS];
        plan_local_ranges(l->p, v, AXIS_EXPERTS, l->rank, experts);
        s->first_matrix = experts[0].begin;
    }
    for (int k = 0; k < s->n_column; k++) {
        size_t at, bytes;
        bytes_of(x->type, s->column[k], &at, &bytes);
        s->part_bytes += bytes;
    }
    if (!packed && qtype_info(x->type)->group != 1)
        return err_set(e, "tensor %s: only a matrix can have type %s", x->name, qtype_info(x->type)->name);
    if (!qtype_bytes(x->type, (uint64_t)columns, &s->row_bytes))
        return err_set(e, "tensor %s: rows of %" PRId64 " values are no whole number of blocks of %s", x->name, columns,
                       qtype_info(x->type)->name);
    if (packed && !plan_can_pack(x->type, s->column, s->n_column))
        return err_set(e, "tensor %s: its columns cannot be divided so: %s has groups of %d values, in blocks of %d",
                       x->name, qtype_info(x->type)->name, qtype_info(x->type)->group, qtype_info(x->type)->block);
    return 0;
}

/* `n` bytes of a weight from `at` bytes after its start. */
static int fetch(Loader *l, const Value *v, uint64_t at, size_t n, uint8_t *to, Err *e) {
    if (v->memory) {
        memcpy(to, (const uint8_t *)v->memory + v->offset + at, n);
        return 0;
    }
    return model_file_read(l->file, file_tensor_at(l->file, (size_t)v->tensor), v->offset + at, n, to, e);
}

/* Local rows [row0, row1) of a local matrix as file blocks, one after the other, those that hold local columns. */
static int fetch_rows(Loader *l, const Slice *s, int64_t matrix, int64_t row0, int64_t row1, uint8_t *to, Err *e) {
    for (int64_t r = row0; r < row1;) {
        int64_t first = global_index(s->row, s->n_row, r), n = 1;
        if (s->whole_rows)
            while (r + n < row1 && global_index(s->row, s->n_row, r + n) == first + n) n++;
        uint64_t at = (uint64_t)((s->first_matrix + matrix) * s->all_rows + first) * s->row_bytes;
        if (s->whole_rows) {
            if (fetch(l, s->v, at, (size_t)n * s->row_bytes, to, e)) return -1;
        } else {
            uint8_t *p = to;
            for (int k = 0; k < s->n_column; k++) {
                size_t before, bytes;
                bytes_of(s->v->type, s->column[k], &before, &bytes);
                if (fetch(l, s->v, at + before, bytes, p, e)) return -1;
                p += bytes;
            }
        }
        to += (size_t)n * s->part_bytes;
        r += n;
    }
    return 0;
}

static int broken(const Loader *l, const Value *v, uint64_t at, Err *e) {
    uint64_t offset;
    const char *path = model_file_place(l->file, file_tensor_at(l->file, (size_t)v->tensor), v->offset + at, &offset);
    const char *what = qtype_info(v->type)->quantised ? "a block whose scale" : "a value that";
    return err_set(e, "%s: tensor %s has %s is not finite, at byte %" PRIu64 " of the file: it is damaged", path,
                   v->name, what, offset);
}

/* Looks for damage in rows as fetch_rows leaves them: while they are in the cache, which costs next to nothing. */
static int check_rows(const Loader *l, const Slice *s, int64_t matrix, int64_t row0, int64_t row1, const uint8_t *rows,
                      Err *e) {
    size_t block = (size_t)qtype_info(s->v->type)->block_bytes, per_row = s->part_bytes / block;
    int64_t i = s->v->memory ? -1 : qtype_first_broken(s->v->type, rows, (row1 - row0) * (int64_t)per_row);
    if (i < 0) return 0;
    int64_t row =
        (s->first_matrix + matrix) * s->all_rows + global_index(s->row, s->n_row, row0 + i / (int64_t)per_row);
    size_t in_row = (size_t)i % per_row * block;
    for (int k = 0; k < s->n_column; k++) {
        size_t at, bytes;
        bytes_of(s->v->type, s->column[k], &at, &bytes);
        if (in_row < bytes) return broken(l, s->v, (uint64_t)row * s->row_bytes + at + in_row, e);
        in_row -= bytes;
    }
    return 0;
}

static int load_panels(Loader *l, const Chunk *c, uint8_t *buffer, Err *e) {
    const Slice *s = &l->slice[c->v];
    const LocalWeight *all = &l->w->weight[c->v];
    const PackedWeights *w = &all->packed;
    uint8_t *to = (uint8_t *)w->data + (size_t)c->matrix * all->matrix_bytes;
    size_t panel_bytes;
    packed_panel_bytes(w->type, w->skip, w->k, &panel_bytes);
    int64_t row0 = c->panel0 * PANEL, row1 = i64_min(c->panel1 * PANEL, w->n);
    if (fetch_rows(l, s, c->matrix, row0, row1, buffer, e) || check_rows(l, s, c->matrix, row0, row1, buffer, e))
        return -1;
    for (int64_t p = c->panel0; p < c->panel1; p++) {
        const void *rows[PANEL];
        int n = (int)i64_min(PANEL, w->n - p * PANEL);
        for (int i = 0; i < n; i++) rows[i] = buffer + (size_t)(p * PANEL + i - row0) * s->part_bytes;
        pack_panel(w->type, w->skip, w->k, rows, n, to + (size_t)p * panel_bytes);
    }
    return 0;
}

static void load_worker(void *arg, int thread, int n_threads) {
    (void)n_threads;
    Loader *l = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n_chunks || atomic_load(&l->failed)) return;
        Err err = {""};
        if (load_panels(l, &l->chunk[i], l->buffer[thread], &err) && !atomic_exchange(&l->failed, true)) l->err = err;
        size_t bytes;
        const PackedWeights *w = &l->w->weight[l->chunk[i].v].packed;
        packed_panel_bytes(w->type, w->skip, w->k, &bytes);
        size_t done = atomic_fetch_add(&l->done, bytes * (size_t)(l->chunk[i].panel1 - l->chunk[i].panel0));
        if (thread == 0 && l->progress) l->progress(l->arg, done, l->w->bytes);
    }
}

/* What is not packed: few values, read by the calling thread. */
static int load_values(Loader *l, ValueId v, Err *e) {
    const Slice *s = &l->slice[v];
    const Value *x = s->v;
    const LocalWeight *w = &l->w->weight[v];
    size_t size = (size_t)qtype_info(x->type)->block_bytes, to_size = w->values ? sizeof(float) : size;
    int64_t all = plan_axis_size(l->p, v, AXIS_LAST);
    uint8_t *to = w->values ? (uint8_t *)w->values : w->data;
    enum { AT_ONCE = 1024 };
    uint8_t raw[AT_ONCE * sizeof(double)];
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t k = 0; k < s->window; k++)
            for (int c = 0; c < s->n_column; c++)
                for (int64_t i = s->column[c].begin; i < s->column[c].end; i += AT_ONCE) {
                    int64_t n = i64_min(AT_ONCE, s->column[c].end - i);
                    uint64_t at = (uint64_t)((global_index(s->row, s->n_row, r) * s->window + k) * all + i);
                    if (fetch(l, x, at * size, (size_t)n * size, raw, e)) return -1;
                    int64_t first = x->memory || !w->values ? -1 : qtype_first_broken(x->type, raw, n);
                    if (first >= 0) return broken(l, x, (at + (uint64_t)first) * size, e);
                    if (w->values) qtype_dequantise(x->type, raw, n, (float *)(void *)to);
                    else memcpy(to, raw, (size_t)n * size);
                    to += (size_t)n * to_size;
                }
    return 0;
}

/* Sizes, the arena, and a place in it for every weight. */
static int place(Loader *l, Err *e) {
    const Graph *g = &l->p->graph;
    size_t need = 0, n_chunks = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            if (arena_create(&l->w->arena, need, -1, e)) return err_context(e, "memory for the weights");
            l->chunk = malloc((n_chunks + 1) * sizeof *l->chunk);
            if (!l->chunk) return err_set(e, "out of memory while loading weights");
        }
        for (ValueId v = 0; v < g->n_values; v++) {
            const Value *x = &g->value[v];
            WeightForm form = x->kind == VALUE_WEIGHT ? l->p->form[v] : WEIGHT_NONE; /* planning adds other values */
            if (form == WEIGHT_NONE) continue;
            Slice *s = &l->slice[v];
            LocalWeight *w = &l->w->weight[v];
            size_t panel_bytes = 0, matrix_bytes = 0, bytes;
            if (!pass && slice_of(l, v, s, e)) return -1;
            if (form == WEIGHT_PACKED) {
                if (!packed_panel_bytes(x->type, s->skip, s->columns, &panel_bytes))
                    return err_set(e, "tensor %s: %" PRId64 " columns of %s cannot be packed", x->name, s->columns,
                                   qtype_info(x->type)->name);
                matrix_bytes = (size_t)packed_panels(s->rows) * panel_bytes;
                bytes = (size_t)s->n_matrices * matrix_bytes;
            } else {
                size_t size = form == WEIGHT_F32 ? sizeof(float) : nd_size(x->type);
                bytes = (size_t)(s->rows * s->window * s->columns) * size;
            }
            if (!pass) {
                if (!size_add(need, round_up(bytes, 64) + 64, &need))
                    return err_set(e, "the weights are larger than memory can be");
                l->w->bytes += bytes;
            }
            int64_t step = panel_bytes ? i64_max(1, CHUNK_BYTES / (int64_t)panel_bytes) : 0;
            int64_t panels = panel_bytes ? packed_panels(s->rows) : 0;
            if (pass) {
                void *at = arena_alloc(&l->w->arena, bytes, 64);
                if (!at) return err_set(e, "tensor %s finds no place in its arena", x->name);
                w->n_matrices = s->n_matrices;
                w->matrix_bytes = matrix_bytes;
                if (form == WEIGHT_PACKED) w->packed = (PackedWeights){x->type, s->rows, s->columns, at, s->skip};
                else if (form == WEIGHT_F32) w->values = at;
                else w->data = at;
            }
            for (int64_t m = 0; m < s->n_matrices; m++)
                for (int64_t i = 0; i < panels; i += step, n_chunks += !pass)
                    if (pass) l->chunk[l->n_chunks++] = (Chunk){v, m, i, i64_min(i + step, panels)};
        }
    }
    return 0;
}

/* A reading buffer for each thread, as large as the largest chunk. */
static int make_buffers(Loader *l, int n_threads, Err *e) {
    size_t largest = 0;
    for (size_t i = 0; i < l->n_chunks; i++) {
        size_t rows = (size_t)((l->chunk[i].panel1 - l->chunk[i].panel0) * PANEL);
        size_t bytes = rows * l->slice[l->chunk[i].v].part_bytes;
        if (bytes > largest) largest = bytes;
    }
    l->buffer = calloc((size_t)n_threads, sizeof *l->buffer);
    if (!l->buffer) return err_set(e, "out of memory while loading weights");
    for (int i = 0; i < n_threads; i++)
        if (!(l->buffer[i] = malloc(largest + 1))) return err_set(e, "out of memory while loading weights");
    return 0;
}

static int load(Loader *l, Pool *pool, Err *e) {
    if (place(l, e) || make_buffers(l, pool_size(pool), e)) return -1;
    const Graph *g = &l->p->graph;
    for (ValueId v = 0; v < g->n_values; v++)
        if ((l->w->weight[v].values || l->w->weight[v].data) && load_values(l, v, e)) return -1;
    pool_run(pool, load_worker, l);
    if (atomic_load(&l->failed)) {
        if (e) *e = l->err;
        return -1;
    }
    if (l->progress) l->progress(l->arg, l->w->bytes, l->w->bytes); /* vectors, and what other threads did last */
    return 0;
}

int weights_load(const Plan *p, int rank, const ModelFile *file, Pool *pool, LoadProgress *progress, void *arg,
                 Weights *w, Err *e) {
    *w = (Weights){0};
    Loader l = {.p = p, .rank = rank, .file = file, .w = w, .progress = progress, .arg = arg};
    size_t n = (size_t)p->graph.n_values;
    w->weight = calloc(n, sizeof *w->weight);
    l.slice = calloc(n, sizeof *l.slice);
    int status = w->weight && l.slice ? load(&l, pool, e) : err_set(e, "out of memory while loading weights");
    for (int i = 0; l.buffer && i < pool_size(pool); i++) free(l.buffer[i]);
    free(l.buffer);
    free(l.chunk);
    free(l.slice);
    return status;
}

void weights_free(Weights *w) {
    arena_free(&w->arena);
    free(w->weight);
    *w = (Weights){0};
}
