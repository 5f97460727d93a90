/* A model in several GGUF files NAME-00001-of-00003.gguf, NAME-00002-of-00003.gguf, ...: each has some of the tensors,
 * the first one the metadata as well. All of them say split.count, split.no and (the first at least)
 * split.tensors.count: https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gguf.h"
#include "graph/model_file_internal.h"

enum { NAME_END = 32 }; /* of "-00001-of-00003.gguf", with numbers up to 65535 */

typedef struct Split {
    int64_t no, count, tensors; /* tensors: in all pieces, -1 when it is not said */
} Split;

static int read_split(const ModelFile *g, Split *s, Err *e) {
    *s = (Split){0, 1, -1};
    if (meta_get_i64(g, "split.count", false, 0, UINT16_MAX, &s->count, e) ||
        meta_get_i64(g, "split.no", s->count > 1, 0, s->count > 1 ? s->count - 1 : UINT16_MAX, &s->no, e) ||
        meta_get_i64(g, "split.tensors.count", false, 0, INT32_MAX, &s->tensors, e))
        return -1;
    return 0;
}

static void name_end(const Split *s, char end[NAME_END]) {
    snprintf(end, NAME_END, "-%05d-of-%05d.gguf", (int)s->no + 1, (int)s->count);
}

/* Opens piece `no` beside the one at `path`, which is `from`, and checks that it is that piece. */
static int open_piece(const char *path, const Split *from, int64_t no, ModelFile **out, Err *e) {
    char end[NAME_END];
    Split wanted = {no, from->count, -1}, found;
    size_t stem = strlen(path);
    name_end(from, end);
    stem -= strlen(end);
    name_end(&wanted, end);
    char *name = malloc(stem + NAME_END);
    if (!name) return err_set(e, "%s: out of memory", path);
    memcpy(name, path, stem);
    memcpy(name + stem, end, strlen(end) + 1);
    int failed = gguf_open_one(name, out, e);
    free(name);
    if (failed || read_split(*out, &found, e)) return -1;
    if (found.count != from->count || found.no != no)
        return err_set(e, "%s: says that it is piece %" PRId64 " of %" PRId64, model_file_path(*out), found.no + 1,
                       found.count);
    return 0;
}

/* Opens the others and joins them all to the first. `g` is the piece at `path`; it is taken over, also when this fails.
 */
static int join_pieces(const char *path, ModelFile *g, const Split *s, ModelFile **out, Err *e) {
    ModelFile *all = NULL;
    int failed = 0;
    for (int64_t no = 0; no < s->count && !failed; no++) {
        ModelFile *piece = no == s->no ? g : NULL;
        if (!piece) failed = open_piece(path, s, no, &piece, e);
        if (failed) {
            model_file_close(piece);
            err_context(e, "%s: is in %" PRId64 " files, of which number %" PRId64 " is wanted", path, s->count,
                        no + 1);
            break;
        }
        if (no == s->no) g = NULL; /* has found its place */
        if (!all) all = piece;
        else failed = model_file_join(all, piece, e);
    }
    model_file_close(g);
    Split first = {0, 1, -1};
    if (!failed) failed = model_file_map_tensors(all, e) || read_split(all, &first, e);
    if (!failed && first.tensors >= 0 && (size_t)first.tensors != file_n_tensors(all))
        failed =
            err_set(e, "%s: split.tensors.count is %" PRId64 ", but there are %zu tensors in its %" PRId64 " files",
                    model_file_path(all), first.tensors, file_n_tensors(all), s->count);
    if (failed) {
        model_file_close(all);
        return -1;
    }
    *out = all;
    return 0;
}

int gguf_open(const char *path, ModelFile **out, Err *e) {
    *out = NULL;
    ModelFile *g;
    Split s;
    char end[NAME_END];
    if (gguf_open_one(path, &g, e)) return -1;
    int failed = read_split(g, &s, e);
    if (!failed && s.count <= 1) {
        *out = g;
        return 0;
    }
    size_t size = strlen(path);
    if (!failed) {
        name_end(&s, end);
        if (size < strlen(end) || strcmp(path + size - strlen(end), end) != 0)
            failed = err_set(e,
                             "%s: is piece %" PRId64 " of %" PRId64 ", but its name does not end in %s, by which the "
                             "others are found",
                             path, s.no + 1, s.count, end);
    }
    if (!failed) return join_pieces(path, g, &s, out, e);
    model_file_close(g);
    return -1;
}
