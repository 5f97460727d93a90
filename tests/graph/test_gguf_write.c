/* Writing GGUF files: the same bytes as the tests' own writer makes, what goes in comes out again, and whatever goes
 * wrong leaves no file behind and says so. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/pool.h"
#include "check.h"
#include "gguf_writer.h"
#include "graph/gguf.h"
#include "graph/gguf_write.h"

static Pool *workers;
static char folder[] = "/tmp/sheaf-gguf-write-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[2][512];
    static int next;
    char *p = path[next++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* How many files the folder has; all of them are removed. */
static int empty_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (struct dirent *f = readdir(d); f; f = readdir(d))
        if (f->d_name[0] != '.') n += unlink(in_folder(f->d_name)) == 0;
    closedir(d);
    return n;
}

/* As tensor_hash.h describes it, for tensors that are one piece each. */
static void add_hash(uint64_t hash[4], int i, const char *name, const uint64_t rest[5], const uint8_t *data, size_t n) {
    hash[0] = XXH64(rest, 5 * sizeof *rest, XXH64(name, strlen(name), hash[0]));
    hash[i] = XXH64(data, n, 0);
}

/* A file with one of everything, as the tests' writer makes it; `file_type` is the value of one key. `hashes`: has
 * those of its tensors. */
static uint8_t *build(uint32_t alignment, uint32_t file_type, bool hashes, size_t *size) {
    uint8_t data[3 * 40];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(7 * i);
    GgufWriter w;
    gw_init(&w, 3, alignment);
    gw_u8(&w, "u8", 200);
    gw_i8(&w, "i8", -100);
    gw_u16(&w, "u16", 60000);
    gw_i16(&w, "i16", -30000);
    gw_u32(&w, "general.file_type", file_type);
    gw_i32(&w, "i32", -2000000000);
    gw_u64(&w, "u64", UINT64_MAX);
    gw_i64(&w, "i64", INT64_MIN);
    gw_f32(&w, "f32", 0.1f);
    gw_f64(&w, "f64", -0.1);
    gw_bool(&w, "yes", true);
    gw_string(&w, "string", "text");
    gw_string(&w, "empty", "");
    gw_array(&w, "i16s", GW_I16, 3, (int16_t[]){-1, 0, 300}, 2);
    gw_array(&w, "f64s", GW_F64, 1, (double[]){1e300}, 8);
    gw_array(&w, "u64s", GW_U64, 0, NULL, 8);
    gw_strings(&w, "strings", 3, (const char *const[]){"a", "", "ccc"});
    uint64_t hash[4] = {0};
    add_hash(hash, 1, "vector", (uint64_t[]){0, 3, 1, 1, 1}, data, 12);
    add_hash(hash, 2, "matrix", (uint64_t[]){3, 64, 3, 1, 1}, data, 3 * 40);
    add_hash(hash, 3, "cube", (uint64_t[]){8, 32, 1, 2, 1}, data, 2 * 34);
    if (hashes) gw_array(&w, "sheaf.xxh64", GW_U64, 4, hash, 8);
    gw_tensor(&w, "vector", 0, 1, (uint64_t[]){3}, data, 12);
    gw_tensor(&w, "matrix", 3, 2, (uint64_t[]){64, 3}, data, 3 * 40);
    gw_tensor(&w, "cube", 8, 3, (uint64_t[]){32, 1, 2}, data, 2 * 34);
    uint8_t *bytes = gw_finish(&w, size);
    gw_free(&w);
    return bytes;
}

static int copy_tensor(GgufOut *w, const ModelFile *from, size_t i, Err *e) {
    const FileTensor *t = file_tensor_at(from, i);
    uint8_t data[128];
    for (uint64_t at = 0; at < t->bytes; at += 5) { /* in small pieces */
        size_t n = t->bytes - at < 5 ? (size_t)(t->bytes - at) : 5;
        if (model_file_read(from, t, at, n, data, e) || gguf_out_write(w, i, at, data, n, e)) return -1;
    }
    return 0;
}

/* Declares everything that `from` has. */
static GgufOut *begin(const char *path, const ModelFile *from, Err *e) {
    GgufOut *w = NULL;
    if (gguf_out_create(path, &w, e)) return NULL;
    int failed = gguf_out_copy(w, from, e);
    for (size_t i = 0; i < file_n_tensors(from) && !failed; i++) {
        const FileTensor *t = file_tensor_at(from, i);
        failed = gguf_out_add(w, t->name, (QType)t->type, t->n_dims, t->dims, e);
    }
    if (!failed) return w;
    gguf_out_free(w);
    return NULL;
}

static ModelFile *open_built(const uint8_t *bytes, size_t size) {
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(gguf_from_memory(bytes, size, size, "built", &g, &e), 0);
    return g;
}

/* The whole file: the tests' writer is the judge. Ours pads the end to the alignment, too. */
static void test_same_bytes(void) {
    static const uint32_t alignments[] = {32, 8, 256};
    for (size_t k = 0; k < 3; k++) {
        size_t size, want_size;
        uint8_t *bytes = build(alignments[k], 1, k == 2, &size), *want = build(alignments[k], 7, true, &want_size);
        ModelFile *g = open_built(bytes, size);
        Err e = {""};
        GgufOut *w = begin(in_folder("out.gguf"), g, &e);
        CU_ASSERT_PTR_NOT_NULL_FATAL(w);
        CU_ASSERT_EQUAL(gguf_out_set(w, gguf_u32("general.file_type", 7), &e), 0);
        CU_ASSERT_EQUAL_FATAL(gguf_out_begin(w, &e), 0);
        for (size_t i = file_n_tensors(g); i-- > 0;) CU_ASSERT_EQUAL(copy_tensor(w, g, i, &e), 0); /* last one first */
        CU_ASSERT_EQUAL(access(in_folder("out.gguf"), F_OK), -1); /* not before it is complete */
        CU_ASSERT_EQUAL_FATAL(gguf_out_finish(w, workers, &e), 0);
        uint64_t file_bytes = gguf_out_bytes(w);
        gguf_out_free(w);
        model_file_close(g);
        FILE *f = fopen(in_folder("out.gguf"), "rb");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        uint8_t *got = calloc(1, want_size + 257);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got);
        size_t n = fread(got, 1, want_size + 257, f);
        CU_ASSERT(n == file_bytes && n >= want_size && n < want_size + alignments[k] && n % alignments[k] == 0);
        CU_ASSERT_EQUAL(memcmp(got, want, want_size), 0);
        for (size_t i = want_size; i < n; i++) CU_ASSERT_EQUAL(got[i], 0);
        fclose(f);
        free(got);
        free(bytes);
        free(want);
        CU_ASSERT_EQUAL(empty_folder(), 1);
    }
}

/* A new key goes behind the others (the hashes last of all), and the reader finds all of it in the file. */
static void test_read_again(void) {
    size_t size;
    uint8_t *bytes = build(32, 1, false, &size), data[3 * 40], again[3 * 40];
    ModelFile *g = open_built(bytes, size), *r = NULL;
    Err e = {""};
    GgufOut *w = begin(in_folder("out.gguf"), g, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    CU_ASSERT(!gguf_out_set(w, gguf_text("general.name", "new"), &e) && !gguf_out_set(w, gguf_u32("n", 5), &e));
    CU_ASSERT_EQUAL_FATAL(gguf_out_begin(w, &e), 0);
    for (size_t i = 0; i < file_n_tensors(g); i++) CU_ASSERT_EQUAL(copy_tensor(w, g, i, &e), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_out_finish(w, workers, &e), 0);
    gguf_out_free(w);
    CU_ASSERT_EQUAL_FATAL(gguf_open(in_folder("out.gguf"), &r, &e), 0);
    Text s = {0};
    int64_t n = 0;
    CU_ASSERT(!meta_get_string(r, "general.name", true, &s, &e) && s.size == 3 && !memcmp(s.data, "new", 3));
    CU_ASSERT(!meta_get_i64(r, "n", true, 0, 10, &n, &e) && n == 5);
    CU_ASSERT_EQUAL(meta_count(r), meta_count(g) + 3);
    for (size_t i = 0; i < file_n_tensors(g); i++) {
        const FileTensor *a = file_tensor_at(g, i), *b = file_tensor_at(r, i);
        CU_ASSERT_FATAL(a->bytes == b->bytes && a->bytes <= sizeof data && a->type == b->type);
        CU_ASSERT(!model_file_read(g, a, 0, a->bytes, data, &e) && !model_file_read(r, b, 0, b->bytes, again, &e));
        CU_ASSERT_EQUAL(memcmp(data, again, a->bytes), 0);
    }
    model_file_close(r);
    model_file_close(g);
    free(bytes);
    empty_folder();
}

/* Ranges of tensors: inside, at the end, and beyond; and a file that has shrunk since it was opened. */
static void test_read_ranges(void) {
    size_t size;
    uint8_t *bytes = build(32, 1, false, &size), data[128];
    FILE *f = fopen(in_folder("in.gguf"), "wb");
    CU_ASSERT_FATAL(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
    ModelFile *g = NULL;
    Err e = {""};
    CU_ASSERT_EQUAL_FATAL(gguf_open(in_folder("in.gguf"), &g, &e), 0);
    const FileTensor *t = file_tensor(g, "matrix");
    CU_ASSERT(!model_file_read(g, t, 100, 20, data, &e) && data[0] == (uint8_t)(7 * 100) &&
              data[19] == (uint8_t)(7 * 119));
    CU_ASSERT(!model_file_read(g, t, 120, 0, data, &e));
    CU_ASSERT(model_file_read(g, t, 101, 20, data, &e) == -1 && strstr(e.msg, "matrix") && strstr(e.msg, "in.gguf"));
    CU_ASSERT(model_file_read(g, t, UINT64_MAX, 20, data, &e) == -1);
    CU_ASSERT_EQUAL(truncate(in_folder("in.gguf"), (off_t)t->offset + 50), 0);
    CU_ASSERT(model_file_read(g, t, 0, 120, data, &e) == -1 && strstr(e.msg, "the file ends before byte"));
    model_file_close(g);
    free(bytes);
    empty_folder();
}

/* Whatever goes wrong: -1, a line with the two words, and no file. */
static void fails(int status, const Err *e, const char *one, const char *two) {
    CU_ASSERT_EQUAL(status, -1);
    CU_ASSERT(strstr(e->msg, one) && strstr(e->msg, two));
    if (!strstr(e->msg, one) || !strstr(e->msg, two)) printf("\n\"%s\" lacks \"%s\" or \"%s\"\n", e->msg, one, two);
}

static void test_wrong_names(void) {
    GgufOut *w = NULL;
    Err e = {""};
    fails(gguf_out_create(folder, &w, &e), &e, folder, "is a directory");
    fails(gguf_out_create(in_folder("none/out.gguf"), &w, &e), &e, "none/out.gguf", "No such file or directory");
    fails(gguf_out_create("/dev/null", &w, &e), &e, "/dev/null", "not a regular file");
    CU_ASSERT_EQUAL(empty_folder(), 0);
}

static void test_wrong_contents(void) {
    Err e = {""};
    GgufOut *w = NULL;
    Text name = {"t", 1};
    const uint64_t dims[] = {64, 2};
    const char *path = in_folder("out.gguf");
    uint8_t data[512] = {0};
    CU_ASSERT_EQUAL_FATAL(gguf_out_create(path, &w, &e), 0);
    fails(gguf_out_add(w, name, QT_Q4_K, 2, dims, &e), &e, "tensor t", "Q4_K");
    fails(gguf_out_add(w, name, QT_A8, 2, dims, &e), &e, "tensor t", "A8");
    fails(gguf_out_add(w, name, QT_F32, 2, (uint64_t[]){UINT64_MAX, 8}, &e), &e, "tensor t", "F32");
    CU_ASSERT(!gguf_out_add(w, name, QT_F32, 2, dims, &e) && !gguf_out_add(w, name, QT_F16, 2, dims, &e));
    fails(gguf_out_begin(w, &e), &e, "the tensor t", "twice");
    gguf_out_free(w);
    CU_ASSERT_EQUAL_FATAL(gguf_out_create(path, &w, &e), 0);
    CU_ASSERT_EQUAL(gguf_out_set(w, gguf_u32("general.alignment", 24), &e), 0);
    fails(gguf_out_begin(w, &e), &e, "general.alignment", "power of two");
    gguf_out_free(w);
    CU_ASSERT_EQUAL_FATAL(gguf_out_create(path, &w, &e), 0);
    CU_ASSERT(!gguf_out_add(w, name, QT_F32, 2, dims, &e) && !gguf_out_begin(w, &e));
    fails(gguf_out_write(w, 0, 500, data, 20, &e), &e, "tensor t", "512");
    CU_ASSERT_EQUAL(gguf_out_write(w, 0, 0, data, 500, &e), 0);
    fails(gguf_out_finish(w, workers, &e), &e, "500", "of 512");
    gguf_out_free(w);
    CU_ASSERT_EQUAL(empty_folder(), 0);
}

/* A full disk, as the limit on a file's size gives it: found out before any data is written, and what stood there under
 * the file's name still stands there. */
static void test_no_room(void) {
    Err e = {""};
    GgufOut *w = NULL;
    const uint64_t dims[] = {1024, 1024};
    const char *path = in_folder("out.gguf");
    FILE *f = fopen(path, "w");
    CU_ASSERT_FATAL(f && fputs("old", f) >= 0 && !fclose(f));
    struct rlimit before, small;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL_FATAL(gguf_out_create(path, &w, &e), 0);
    CU_ASSERT_EQUAL(gguf_out_add(w, (Text){"t", 1}, QT_F32, 2, dims, &e), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    int status = gguf_out_begin(w, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    fails(status, &e, "there is no room", "File too large");
    gguf_out_free(w);
    struct stat st;
    CU_ASSERT(!stat(path, &st) && st.st_size == 3);
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

/* Eight threads, each with every eighth piece. */
enum { PIECE = 1000, PIECES = 256 };
typedef struct Shared {
    GgufOut *w;
    Err e[8];
} Shared;

static void write_pieces(void *arg, int thread, int n_threads) {
    Shared *s = arg;
    uint8_t piece[PIECE];
    for (int i = thread; i < PIECES; i += n_threads) {
        memset(piece, i, sizeof piece);
        gguf_out_write(s->w, 0, (uint64_t)i * PIECE, piece, PIECE, &s->e[thread]);
    }
}

static void test_threads(void) {
    Shared s = {0};
    Err e = {""};
    Pool *pool = NULL;
    ModelFile *g = NULL;
    const uint64_t dims[] = {PIECE * PIECES / 4};
    CU_ASSERT_EQUAL_FATAL(pool_create(8, NULL, &pool, &e), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_out_create(in_folder("out.gguf"), &s.w, &e), 0);
    CU_ASSERT(!gguf_out_add(s.w, (Text){"t", 1}, QT_F32, 1, dims, &e) && !gguf_out_begin(s.w, &e));
    pool_run(pool, write_pieces, &s);
    CU_ASSERT_EQUAL(gguf_out_finish(s.w, workers, &e), 0);
    gguf_out_free(s.w);
    pool_free(pool);
    for (int i = 0; i < 8; i++) CU_ASSERT_STRING_EQUAL(s.e[i].msg, "");
    CU_ASSERT_EQUAL_FATAL(gguf_open(in_folder("out.gguf"), &g, &e), 0);
    uint8_t piece[PIECE];
    for (int i = 0; i < PIECES; i++) {
        CU_ASSERT_EQUAL(model_file_read(g, file_tensor_at(g, 0), (uint64_t)i * PIECE, PIECE, piece, &e), 0);
        CU_ASSERT(piece[0] == (uint8_t)i && !memcmp(piece, piece + 1, PIECE - 1));
    }
    model_file_close(g);
    empty_folder();
}

int main(void) {
    static const CU_TestInfo tests[] = {{"same bytes", test_same_bytes},
                                        {"read again", test_read_again},
                                        {"read ranges", test_read_ranges},
                                        {"wrong names", test_wrong_names},
                                        {"wrong contents", test_wrong_contents},
                                        {"no room", test_no_room},
                                        {"threads", test_threads},
                                        CU_TEST_INFO_NULL};
    Err e;
    if (!mkdtemp(folder) || pool_create(2, NULL, &workers, &e)) return 2;
    int status = check_run("gguf_write", tests);
    rmdir(folder);
    pool_free(workers);
    return status;
}
