#include "graph/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/strbuf.h"
#include "graph/model_file_internal.h"

enum { VERSION = 3, DEFAULT_ALIGNMENT = 32, NAMES_TRIED = 100 };

typedef struct OutTensor {
    Text name; /* first, for name_map_build */
    QType type;
    int n_dims;
    uint64_t dims[4];
    uint64_t offset; /* from the start of the data section */
    size_t bytes;
} OutTensor;

struct GgufOut {
    char *path, *temporary; /* owned */
    int fd;
    bool finished;
    MetaValue *values; /* owned; what they point to is not */
    OutTensor *tensors;
    size_t n_values, n_tensors, room_values, room_tensors;
    uint64_t alignment, data, bytes; /* `data`: where the data section begins; `bytes`: of the file */
    HashPiece *piece;                /* [n_pieces] */
    uint64_t *hash;                  /* [1 + n_pieces]: of the table of tensors, of the pieces */
    size_t n_pieces;
    atomic_uint_fast64_t written; /* of tensors' data */
};

static int out_of_memory(const GgufOut *w, Err *e) { return err_set(e, "%s: out of memory for its header", w->path); }

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int open_temporary(GgufOut *w, Err *e) {
    size_t size = strlen(w->path) + 16;
    w->temporary = malloc(size);
    if (!w->temporary) return out_of_memory(w, e);
    for (int i = 0; i < NAMES_TRIED && w->fd < 0; i++) {
        snprintf(w->temporary, size, "%s.part%d", w->path, i);
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST) break;
    }
    if (w->fd < 0) err_errno(e, "%s: cannot be made", w->temporary);
    if (w->fd < 0) free(w->temporary), w->temporary = NULL;
    return w->fd < 0 ? -1 : 0;
}

int gguf_out_create(const char *path, GgufOut **out, Err *e) {
    *out = NULL;
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return err_set(e, "%s: is %s, and no model can be written there", path,
                       S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    GgufOut *w = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        return err_set(e, "%s: out of memory", path);
    }
    w->fd = -1;
    if (open_temporary(w, e)) {
        gguf_out_free(w);
        return -1;
    }
    *out = w;
    return 0;
}

void gguf_out_free(GgufOut *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary && !w->finished) unlink(w->temporary);
    free(w->values);
    free(w->tensors);
    free(w->piece);
    free(w->hash);
    free(w->temporary);
    free(w->path);
    free(w);
}

/* ---- what will be in it ------------------------------------------------------------------------------------------ */

static int add_value(GgufOut *w, MetaValue v, Err *e) {
    if (grow((void **)&w->values, w->n_values, &w->room_values, sizeof v)) return out_of_memory(w, e);
    w->values[w->n_values++] = v;
    return 0;
}

int gguf_out_copy(GgufOut *w, const ModelFile *from, Err *e) {
    for (size_t i = 0; i < meta_count(from); i++) {
        Text key = meta_at(from, i)->key;
        bool of_pieces = key.size > 6 && !memcmp(key.data, "split.", 6); /* what is written here is one file */
        if (!of_pieces && add_value(w, *meta_at(from, i), e)) return -1;
    }
    return 0;
}

static MetaValue *find(const GgufOut *w, Text key) {
    for (size_t i = 0; i < w->n_values; i++)
        if (w->values[i].key.size == key.size && !memcmp(w->values[i].key.data, key.data, key.size))
            return &w->values[i];
    return NULL;
}

int gguf_out_set(GgufOut *w, MetaValue v, Err *e) {
    MetaValue *there = find(w, v.key);
    if (!there) return add_value(w, v, e);
    *there = v;
    return 0;
}

static Text text_of(const char *s) { return (Text){s, strlen(s)}; }

void gguf_out_drop(GgufOut *w, const char *key) {
    MetaValue *there = find(w, text_of(key));
    if (there) *there = w->values[--w->n_values];
}

MetaValue gguf_u32(const char *key, uint32_t v) { return (MetaValue){.key = text_of(key), .type = META_U32, .v.u = v}; }
MetaValue gguf_text(const char *key, const char *v) {
    return (MetaValue){.key = text_of(key), .type = META_STRING, .v.s = text_of(v)};
}

int gguf_out_add(GgufOut *w, Text name, QType type, int n_dims, const uint64_t *dims, Err *e) {
    OutTensor t = {.name = name, .type = type, .n_dims = n_dims, .dims = {1, 1, 1, 1}};
    size_t n = 1;
    bool fits = n_dims >= 1 && n_dims <= 4 && dims[0] % (uint64_t)qtype_info(type)->block == 0;
    for (int i = 0; i < n_dims && fits; i++) {
        t.dims[i] = dims[i];
        fits = size_mul(n, (size_t)dims[i], &n);
    }
    if (!fits || !qtype_bytes(type, n, &t.bytes))
        return err_set(e, "%s: tensor %s cannot have type %s with rows of %" PRIu64 " values", w->path,
                       text_printable(name).text, qtype_info(type)->name, n_dims > 0 ? dims[0] : 0);
    if (grow((void **)&w->tensors, w->n_tensors, &w->room_tensors, sizeof t)) return out_of_memory(w, e);
    w->tensors[w->n_tensors++] = t;
    return 0;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

/* The low `bytes` bytes of v. */
static void put(StrBuf *b, uint64_t v, size_t bytes) {
    char little[8];
    for (size_t i = 0; i < bytes; i++) little[i] = (char)(uint8_t)(v >> 8 * i);
    strbuf_add(b, little, bytes);
}

static void put_string(StrBuf *b, Text s) {
    put(b, s.size, 8);
    strbuf_add(b, s.data, s.size);
}

static void put_float(StrBuf *b, MetaType type, double v) {
    float narrow = (float)v;
    if (type == META_F32) strbuf_add(b, (const char *)&narrow, sizeof narrow);
    else strbuf_add(b, (const char *)&v, sizeof v);
}

static void put_value(StrBuf *b, const MetaValue *v) {
    put_string(b, v->key);
    put(b, v->type, 4);
    if (v->type == META_STRING) put_string(b, v->v.s);
    else if (v->type == META_F32 || v->type == META_F64) put_float(b, v->type, v->v.f);
    else if (v->type != META_ARRAY) put(b, v->v.u, meta_type_bytes(v->type));
    if (v->type != META_ARRAY) return;
    put(b, v->v.a.type, 4);
    put(b, v->v.a.n, 8);
    if (v->v.a.type == META_STRING)
        for (uint64_t i = 0; i < v->v.a.n; i++) put_string(b, v->v.a.strings[i]);
    else strbuf_add(b, (const char *)v->v.a.data, (size_t)v->v.a.n * meta_type_bytes(v->v.a.type));
}

static void put_header(const GgufOut *w, StrBuf *b) {
    strbuf_puts(b, "GGUF");
    put(b, VERSION, 4);
    put(b, w->n_tensors, 8);
    put(b, w->n_values, 8);
    for (size_t i = 0; i < w->n_values; i++) put_value(b, &w->values[i]);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const OutTensor *t = &w->tensors[i];
        put_string(b, t->name);
        put(b, (uint64_t)t->n_dims, 4);
        for (int k = 0; k < t->n_dims; k++) put(b, t->dims[k], 8);
        put(b, (uint64_t)qtype_info(t->type)->gguf_id, 4);
        put(b, t->offset, 8);
    }
}

static int check_names(const GgufOut *w, Err *e) {
    NameMap map = {0};
    size_t twin[2] = {0, 0};
    int r = name_map_build(&map, w->values, sizeof *w->values, w->n_values, false, twin);
    if (r > 0) return err_set(e, "%s: the key %s twice", w->path, text_printable(w->values[twin[0]].key).text);
    if (!r) {
        name_map_free(&map);
        r = name_map_build(&map, w->tensors, sizeof *w->tensors, w->n_tensors, false, twin);
    }
    if (r > 0) return err_set(e, "%s: the tensor %s twice", w->path, text_printable(w->tensors[twin[0]].name).text);
    name_map_free(&map);
    return r ? out_of_memory(w, e) : 0;
}

/* Offsets within the data section; its size goes to *bytes. */
static int place_tensors(GgufOut *w, uint64_t *bytes, Err *e) {
    const MetaValue *v = find(w, text_of("general.alignment"));
    w->alignment = v ? v->v.u : DEFAULT_ALIGNMENT;
    if ((v && !meta_type_is_whole(v->type)) || w->alignment < 1 || w->alignment > 1u << 31 ||
        (w->alignment & (w->alignment - 1)))
        return err_set(e, "%s: general.alignment is no power of two up to 2^31", w->path);
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        w->tensors[i].offset = at;
        if (__builtin_add_overflow(at, w->tensors[i].bytes, &at) || at > INT64_MAX / 2)
            return err_set(e, "%s: would be larger than a file can be", w->path);
        at = round_up(at, w->alignment);
    }
    *bytes = at;
    return 0;
}

/* Blocks on the disk for the whole file, where the file system can promise them. */
static int reserve(const GgufOut *w, Err *e) {
    while (fallocate(w->fd, 0, 0, (off_t)w->bytes)) {
        if (errno == EINTR) continue;
        if (errno != EOPNOTSUPP && errno != ENOSYS)
            return err_errno(e, "%s: there is no room for its %" PRIu64 " bytes", w->path, w->bytes);
        if (ftruncate(w->fd, (off_t)w->bytes))
            return err_errno(e, "%s: cannot have %" PRIu64 " bytes", w->path, w->bytes);
        break;
    }
    return 0;
}

static int write_at(const GgufOut *w, uint64_t at, const void *data, size_t n, Err *e) {
    for (const uint8_t *p = data; n > 0;) {
        ssize_t done = pwrite(w->fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return err_errno(e, "%s: cannot be written at byte %" PRIu64, w->temporary, at);
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Room in the metadata for the hashes, which are known at the end. */
static int add_hashes(GgufOut *w, Err *e) {
    size_t room = 0;
    uint64_t table = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const OutTensor *t = &w->tensors[i];
        table = tensor_hash_add(table, t->name, (uint32_t)qtype_info(t->type)->gguf_id, t->dims);
        if (hash_cut(i, t->bytes, &w->piece, &w->n_pieces, &room)) return out_of_memory(w, e);
    }
    w->hash = calloc(w->n_pieces + 1, sizeof *w->hash);
    if (!w->hash) return out_of_memory(w, e);
    w->hash[0] = table;
    MetaValue v = {.key = text_of(TENSOR_HASHES), .type = META_ARRAY};
    v.v.a.type = META_U64;
    v.v.a.n = w->n_pieces + 1;
    v.v.a.data = (const uint8_t *)w->hash;
    return gguf_out_set(w, v, e);
}

int gguf_out_begin(GgufOut *w, Err *e) {
    uint64_t data_bytes;
    StrBuf header = {0};
    if (add_hashes(w, e) || check_names(w, e) || place_tensors(w, &data_bytes, e)) return -1;
    put_header(w, &header);
    w->data = w->n_tensors ? round_up(header.len, w->alignment) : header.len;
    w->bytes = w->data + data_bytes;
    int failed = header.failed ? out_of_memory(w, e) : 0;
    if (!failed) failed = reserve(w, e);
    if (!failed) failed = write_at(w, 0, header.data, header.len, e);
    strbuf_free(&header);
    return failed;
}

uint64_t gguf_out_bytes(const GgufOut *w) { return w->bytes; }

/* ---- data -------------------------------------------------------------------------------------------------------- */

int gguf_out_write(GgufOut *w, size_t tensor, uint64_t at, const void *data, size_t n, Err *e) {
    const OutTensor *t = &w->tensors[tensor];
    if (at > t->bytes || n > t->bytes - at)
        return err_set(e, "%s: %zu bytes at %" PRIu64 " of tensor %s, which has %zu", w->path, n, at,
                       text_printable(t->name).text, t->bytes);
    if (write_at(w, w->data + t->offset + at, data, n, e)) return -1;
    atomic_fetch_add(&w->written, n);
    return 0;
}

static int read_back(void *arg, const HashPiece *p, void *to, Err *e) {
    const GgufOut *w = arg;
    const DataFile f = {.path = w->temporary, .fd = w->fd, .bytes = w->bytes};
    return data_file_read(&f, w->data + w->tensors[p->tensor].offset + p->at, p->bytes, to, "what was written", e);
}

static int fill_hashes(GgufOut *w, Pool *pool, Err *e) {
    const HashJob job = {
        .piece = w->piece, .n = w->n_pieces, .step = 1, .read = read_back, .arg = w, .hash = w->hash + 1};
    StrBuf header = {0};
    if (hash_run(&job, pool, e)) return -1;
    put_header(w, &header); /* as long as before */
    int failed = header.failed ? out_of_memory(w, e) : write_at(w, 0, header.data, header.len, e);
    strbuf_free(&header);
    return failed;
}

int gguf_out_finish(GgufOut *w, Pool *pool, Err *e) {
    uint64_t wanted = 0, written = atomic_load(&w->written);
    for (size_t i = 0; i < w->n_tensors; i++) wanted += w->tensors[i].bytes;
    if (written != wanted)
        return err_set(e, "%s: %" PRIu64 " bytes of tensors were written of %" PRIu64, w->path, written, wanted);
    if (fill_hashes(w, pool, e)) return -1;
    int fd = w->fd;
    w->fd = -1;
    if (fsync(fd)) {
        err_errno(e, "%s: cannot be written", w->temporary);
        close(fd);
        return -1;
    }
    if (close(fd)) return err_errno(e, "%s: cannot be written", w->temporary);
    if (rename(w->temporary, w->path)) return err_errno(e, "%s: cannot be given to the finished file", w->path);
    w->finished = true;
    return 0;
}
