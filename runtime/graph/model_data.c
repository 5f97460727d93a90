/* Tensor data of a model file, as a GGUF has them: from wherever they lie, in the order and the type they should have.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "graph/model_file_internal.h"

int data_file_read(const DataFile *f, uint64_t from, size_t n, void *to, const char *what, Err *e) {
    if (f->fd < 0) {
        if (from > f->memory_bytes || n > f->memory_bytes - from)
            return err_set(e, "%s: %s is not in memory", f->path, what);
        if (n) memcpy(to, f->memory + from, n);
        return 0;
    }
    for (uint8_t *p = to; n > 0;) {
        ssize_t got = pread(f->fd, p, n, (off_t)from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(e, "%s: reading %s at byte %" PRIu64, f->path, what, from);
        if (got == 0) return err_set(e, "%s: the file ends before byte %" PRIu64 ", inside %s", f->path, from, what);
        p += got;
        from += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

typedef struct Read {
    const ModelFile *g;
    const FileTensor *t;
    uint64_t bytes; /* of the tensor as it is stored */
    char what[84];
} Read;

/* Where byte `at` of the tensor lies, and how many bytes in all lie there without a break. Row 2 i + j of a head may be
 * stored as row i + j * head_rows / 2. */
static FilePlace place_of(const Read *r, uint64_t at, uint64_t *run) {
    const Stored *s = r->t->stored;
    *run = r->bytes - at;
    if (!s) return (FilePlace){r->t->file, r->t->offset + at};
    if (s->head_rows) {
        uint64_t rows = r->t->n_dims == 1 ? r->t->dims[0] : r->t->dims[1], size = r->bytes / rows;
        uint64_t row = at / size, in_head = row % s->head_rows;
        uint64_t from = row - in_head + in_head / 2 + in_head % 2 * (s->head_rows / 2);
        *run = size - at % size;
        at = from * size + at % size;
    }
    uint64_t piece = r->bytes / s->n_pieces;
    *run = (uint64_t)i64_min((int64_t)*run, (int64_t)(piece - at % piece));
    const FilePlace *p = &s->piece[at / piece];
    return (FilePlace){p->file, p->offset + at % piece};
}

/* Bytes of the tensor in the type that it has in the file. */
static int read_rows(const Read *r, uint64_t at, size_t n, uint8_t *to, Err *e) {
    while (n > 0) {
        uint64_t run;
        FilePlace p = place_of(r, at, &run);
        size_t part = (size_t)i64_min((int64_t)n, (int64_t)run);
        if (data_file_read(&r->g->files[p.file], p.offset, part, to, r->what, e)) return -1;
        at += part;
        to += part;
        n -= part;
    }
    return 0;
}

/* Values of another type than F32 as F32. */
static int read_converted(const Read *r, uint64_t at, size_t n, uint8_t *to, Err *e) {
    enum { AT_ONCE = 256 };
    const Stored *s = r->t->stored;
    uint8_t raw[AT_ONCE * sizeof(float)];
    float values[AT_ONCE];
    size_t size = (size_t)qtype_info(s->type)->block_bytes;
    if (at % sizeof(float) || n % sizeof(float)) return err_set(e, "%s: part of a value of %s", r->g->path, r->what);
    for (size_t done = 0, count; done < n; done += count * sizeof(float)) {
        count = (size_t)i64_min(AT_ONCE, (int64_t)((n - done) / sizeof(float)));
        if (read_rows(r, (at + done) / sizeof(float) * size, count * size, raw, e)) return -1;
        qtype_dequantise(s->type, raw, (int64_t)count, values);
        for (size_t i = 0; i < count; i++) values[i] += s->add;
        memcpy(to + done, values, count * sizeof(float));
    }
    return 0;
}

static bool is_converted(const FileTensor *t) {
    return t->stored && ((int)t->stored->type != t->type || t->stored->add != 0);
}

static Read reading(const ModelFile *g, const FileTensor *t) {
    Read r = {.g = g, .t = t, .bytes = t->bytes};
    snprintf(r.what, sizeof r.what, "tensor %s", text_printable(t->name).text);
    if (is_converted(t)) r.bytes = t->bytes / sizeof(float) * (uint64_t)qtype_info(t->stored->type)->block_bytes;
    return r;
}

int model_file_read(const ModelFile *g, const FileTensor *t, uint64_t at, size_t n, void *to, Err *e) {
    Read r = reading(g, t);
    if (at > t->bytes || n > t->bytes - at)
        return err_set(e, "%s: bytes %" PRIu64 " and %zu more of %s, which has %" PRIu64, g->files[t->file].path, at, n,
                       r.what, t->bytes);
    return is_converted(t) ? read_converted(&r, at, n, to, e) : read_rows(&r, at, n, to, e);
}

const char *model_file_place(const ModelFile *g, const FileTensor *t, uint64_t at, uint64_t *offset) {
    Read r = reading(g, t);
    uint64_t run;
    if (is_converted(t)) at = at / sizeof(float) * (uint64_t)qtype_info(t->stored->type)->block_bytes;
    FilePlace p = place_of(&r, at, &run);
    *offset = p.offset;
    return g->files[p.file].path;
}

int model_file_sample(const ModelFile *g, uint64_t *hash, Err *e) {
    enum { PIECES = 64, PIECE = 4096 };
    uint8_t piece[PIECE];
    *hash = NAME_HASH_START;
    for (size_t k = 0; k < g->n_files; k++) {
        const DataFile *f = &g->files[k];
        size_t size = (size_t)i64_min(PIECE, (int64_t)f->bytes), pieces = PIECES / g->n_files + 2;
        *hash = name_hash(*hash, (const char *)&f->bytes, sizeof f->bytes);
        for (uint64_t i = 0; i < pieces; i++) {
            if (data_file_read(f, (f->bytes - size) / (pieces - 1) * i, size, piece, "a sample", e)) return -1;
            *hash = name_hash(*hash, (const char *)piece, size);
        }
    }
    return 0;
}
