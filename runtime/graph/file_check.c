#include "graph/file_check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/size.h"
#include "graph/model_file_internal.h"

enum { HEX = 2 * SHA256_BYTES, LIST_MOST = 1 << 20 };

/* ---- hashes of tensors ------------------------------------------------------------------------------------------- */

static int read_piece(void *arg, const HashPiece *p, void *to, Err *e) {
    const ModelFile *g = arg;
    return model_file_read(g, &g->tensors[p->tensor], p->at, p->bytes, to, e);
}

/* The pieces of all tensors, and whether the stored hashes were made for these. */
static int cut_all(const ModelFile *g, const MetaValue *stored, HashPiece **piece, size_t *n, Err *e) {
    size_t room = 0;
    uint64_t table = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const FileTensor *t = &g->tensors[i];
        table = tensor_hash_add(table, t->name, t->type_id, t->dims);
        if (hash_cut(i, t->bytes, piece, n, &room)) return err_set(e, "%s: out of memory for its hashes", g->path);
    }
    if (stored->v.a.n != *n + 1 || (uint64_t)meta_array_i64(stored, 0) != table)
        return err_set(e, "%s: its hashes (%s) are of other tensors: another program wrote the file anew", g->path,
                       TENSOR_HASHES);
    return 0;
}

static int compare(const ModelFile *g, const MetaValue *stored, const HashJob *job, Err *e) {
    size_t wrong = 0, first = 0, looked_at = 0;
    for (size_t i = job->first; i < job->n; i += job->step, looked_at++)
        if (job->hash[i] != (uint64_t)meta_array_i64(stored, i + 1) && !wrong++) first = i;
    if (!wrong) return 0;
    const HashPiece *p = &job->piece[first];
    const FileTensor *t = &g->tensors[p->tensor];
    uint64_t offset;
    const char *path = model_file_place(g, t, p->at, &offset);
    return err_set(e,
                   "%s: tensor %s is damaged within its bytes %" PRIu64 " to %" PRIu64 ", from byte %" PRIu64
                   " of the file: %zu of %zu pieces differ from their stored hashes",
                   path, text_printable(t->name).text, p->at, p->at + p->bytes - 1, offset, wrong, looked_at);
}

static int check_stored(const ModelFile *g, const FileCheck *c, Pool *pool, Err *e) {
    const MetaValue *stored = NULL;
    HashPiece *piece = NULL;
    size_t n = 0;
    if (meta_get_array(g, TENSOR_HASHES, false, META_I32, &stored, e)) return -1;
    if (!stored || stored->v.a.n == 0)
        return err_set(e, "%s: has no hashes of its tensors: sheaf quantize stores them in what it writes", g->path);
    int status = cut_all(g, stored, &piece, &n, e);
    uint64_t *hash = calloc(n + 1, sizeof *hash);
    if (!status && !hash) status = err_set(e, "%s: out of memory for its hashes", g->path);
    HashJob job = {.piece = piece,
                   .n = n,
                   .first = c->share,
                   .step = c->shares,
                   .read = read_piece,
                   .arg = (void *)g,
                   .hash = hash,
                   .progress = c->progress,
                   .progress_arg = c->arg};
    if (!status) status = hash_run(&job, pool, e);
    if (!status) status = compare(g, stored, &job, e);
    free(piece);
    free(hash);
    return status;
}

/* ---- SHA-256 of files -------------------------------------------------------------------------------------------- */

typedef struct Sums {
    const ModelFile *g;
    const FileCheck *c;
    char (*wanted)[HEX + 1]; /* [files]; "": it is not looked at */
    uint64_t total;
    atomic_size_t next;
    atomic_uint_fast64_t done;
    atomic_bool failed;
    Err err;
} Sums;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_hash(const char *s) { return strspn(s, "0123456789abcdefABCDEF") >= HEX; }

static void copy_hash(char to[HEX + 1], const char *from) {
    for (int i = 0; i < HEX; i++) to[i] = (char)(from[i] >= 'A' && from[i] <= 'F' ? from[i] - 'A' + 'a' : from[i]);
    to[HEX] = 0;
}

/* The text of a small file, with an end; the caller frees it. */
static char *read_text(const char *path, Err *e) {
    FILE *f = fopen(path, "rb");
    char *text = malloc(LIST_MOST + 1);
    size_t n = f && text ? fread(text, 1, LIST_MOST + 1, f) : 0;
    int failed = 0;
    if (!f) failed = err_errno(e, "%s: is neither 'stored' nor 64 digits, and as a list of hashes", path);
    else if (!text) failed = err_set(e, "out of memory");
    else if (ferror(f)) failed = err_errno(e, "%s: the list of hashes", path);
    else if (n > LIST_MOST) failed = err_set(e, "%s: is too large for a list of hashes", path);
    else text[n] = 0;
    if (f) fclose(f);
    if (!failed) return text;
    free(text);
    return NULL;
}

/* One line, "HASH  NAME" or "HASH *NAME": the hash of those of the model's files that have the name. */
static int take_line(Sums *s, const char *line, int number, Err *e) {
    if (!*line) return 0;
    if (!is_hash(line) || line[HEX] != ' ' || (line[HEX + 1] != ' ' && line[HEX + 1] != '*') || !line[HEX + 2])
        return err_set(e, "%s: line %d is not as sha256sum writes it: a hash of 64 digits, two spaces, a name",
                       s->c->how, number);
    const char *name = base_name(line + HEX + 2);
    for (size_t i = 0; i < s->g->n_files; i++) {
        if (strcmp(base_name(s->g->files[i].path), name) != 0) continue;
        if (*s->wanted[i]) return err_set(e, "%s: line %d names %s a second time", s->c->how, number, name);
        copy_hash(s->wanted[i], line);
    }
    return 0;
}

/* Whether tensors lie in file i: only then there must be a hash of it. */
static bool has_tensors(const ModelFile *g, size_t i) {
    for (size_t k = 0; k < g->n_tensors; k++) {
        const Stored *s = g->tensors[k].stored;
        if (!s && g->tensors[k].file == i) return true;
        for (uint32_t p = 0; s && p < s->n_pieces; p++)
            if (s->piece[p].file == i) return true;
    }
    return false;
}

static int take_one(Sums *s, const char *hash, Err *e) {
    size_t n = 0, last = 0;
    for (size_t i = 0; i < s->g->n_files; i++)
        if (has_tensors(s->g, i)) n++, last = i;
    if (n != 1)
        return err_set(e,
                       "%s: its tensors are in %zu files: one hash is not enough, give a file as sha256sum writes it",
                       s->g->path, n);
    copy_hash(s->wanted[last], hash);
    return 0;
}

static int read_wanted(Sums *s, Err *e) {
    const char *how = s->c->how;
    if (strlen(how) == HEX && is_hash(how)) return take_one(s, how, e);
    char *text = read_text(how, e);
    if (!text) return -1;
    int status = 0, number = 1;
    for (char *line = text, *next; line && !status; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        status = take_line(s, line, number, e);
    }
    free(text);
    for (size_t i = 0; i < s->g->n_files && !status; i++)
        if (!*s->wanted[i] && has_tensors(s->g, i))
            status = err_set(e, "%s: has no hash of %s", how, base_name(s->g->files[i].path));
    return status;
}

static int check_sum(Sums *s, size_t i, uint8_t *buffer, bool shows, Err *e) {
    const DataFile *f = &s->g->files[i];
    Sha256 sum;
    char hex[HEX + 1];
    sha256_start(&sum);
    for (uint64_t at = 0; at < f->bytes && !atomic_load(&s->failed); at += HASH_PIECE) {
        size_t n = (size_t)i64_min(HASH_PIECE, (int64_t)(f->bytes - at));
        if (data_file_read(f, at, n, buffer, "what is hashed", e)) return -1;
        sha256_add(&sum, buffer, n);
        uint64_t done = atomic_fetch_add(&s->done, n) + n;
        if (shows && s->c->progress) s->c->progress(s->c->arg, done, s->total);
    }
    sha256_end(&sum, hex);
    if (atomic_load(&s->failed) || !strcmp(hex, s->wanted[i])) return 0;
    return err_set(e, "%s: is damaged, or another file: its SHA-256 is %s, not %s", f->path, hex, s->wanted[i]);
}

static void sum_worker(void *arg, int thread, int n_threads) {
    (void)n_threads;
    Sums *s = arg;
    Err err = {""};
    uint8_t *buffer = malloc(HASH_PIECE);
    int failed = buffer ? 0 : err_set(&err, "out of memory for a buffer to hash files");
    while (!failed && !atomic_load(&s->failed)) {
        size_t i = s->c->share + atomic_fetch_add(&s->next, 1) * s->c->shares;
        if (i >= s->g->n_files) break;
        if (*s->wanted[i]) failed = check_sum(s, i, buffer, thread == 0, &err);
    }
    free(buffer);
    if (failed && !atomic_exchange(&s->failed, true)) s->err = err;
}

static int check_sums(const ModelFile *g, const FileCheck *c, Pool *pool, Err *e) {
    Sums s = {.g = g, .c = c, .wanted = calloc(g->n_files, sizeof *s.wanted), .total = model_file_bytes(g)};
    int status = s.wanted ? read_wanted(&s, e) : err_set(e, "out of memory");
    if (!status) pool_run(pool, sum_worker, &s);
    free(s.wanted);
    if (status || !atomic_load(&s.failed)) return status;
    if (e) *e = s.err;
    return -1;
}

int file_check(const ModelFile *g, const FileCheck *c, Pool *pool, Err *e) {
    return strcmp(c->how, "stored") == 0 ? check_stored(g, c, pool, e) : check_sums(g, c, pool, e);
}
