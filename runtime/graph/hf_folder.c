/* Models as Hugging Face's transformers saves them: a folder with config.json, safetensors files, tokenizer.json and
 * more. They come out as a GGUF of the same model has them: keys, names, order of rows and shape of experts, so that
 * one builder serves both. Besides what GGUF's documents name, the metadata may have tokenizer.huggingface.json  the
 * text of tokenizer.json (the name is GGUF's) sheaf.end_token_ids         ids that end a text or a turn: those of
 * config.json and generation_config.json What is not known is refused by name. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/gguf.h"
#include "graph/hf_import.h"
#include "graph/hf_json.h"

/* Bytes that JSON files may have: an index has a line for each tensor, a tokenizer some for each token. */
enum { LARGEST_JSON = 256 << 20, LONGEST_NAME = 255 };

#define INDEX "model.safetensors.index.json"

typedef struct Folder {
    const char *dir;
    const char *weights; /* the name of a file of weights in it that was asked for; or NULL: all there are */
    Import i;
} Folder;

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* DIR/NAME, malloc'ed; NULL with a failure when there is no memory. */
static char *path_of(Folder *f, const char *name) {
    size_t room = strlen(f->dir) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", f->dir, name);
    else import_fail(&f->i, "%s: out of memory", f->dir);
    return path;
}

static bool exists(Folder *f, const char *name) {
    struct stat st;
    char *path = path_of(f, name);
    bool there = path && !stat(path, &st);
    free(path);
    return there;
}

/* Reads a whole file into the model's memory, NUL-terminated, as one of the model's files. An empty Text when it need
 * not be there and is not, or after a failure. */
static Text read_text(Folder *f, const char *name, bool required) {
    Text none = {NULL, 0};
    DataFile d = {.fd = -1};
    int fd = -1;
    char *path = f->i.failed ? NULL : path_of(f, name), *text = NULL;
    if (!path) return none;
    if ((!required && !exists(f, name)) || open_regular(path, &fd, &d.bytes, f->i.e)) {
        f->i.failed |= required || exists(f, name);
        free(path);
        return none;
    }
    if (d.bytes > LARGEST_JSON) import_fail(&f->i, "%s: %" PRIu64 " bytes are too many", path, d.bytes);
    else if (!(text = model_file_alloc(f->i.g, (size_t)d.bytes + 1, f->i.e))) f->i.failed = true;
    for (size_t at = 0; at < d.bytes && !f->i.failed;) {
        ssize_t got = read(fd, text + at, (size_t)d.bytes - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) import_fail(&f->i, "%s: %s", path, strerror(errno));
        if (got == 0) import_fail(&f->i, "%s: ends before its %" PRIu64 " bytes", path, d.bytes);
        at += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    d.memory = (const uint8_t *)text;
    d.memory_bytes = (size_t)d.bytes;
    if (!f->i.failed && model_file_add(f->i.g, path, d, f->i.e)) f->i.failed = true;
    free(path);
    return f->i.failed ? none : (Text){text, (size_t)d.bytes};
}

/* The document in it; NULL as read_text's empty text. The caller frees it with cJSON_Delete. */
static cJSON *read_json(Folder *f, const char *name, bool required) {
    cJSON *json = NULL;
    Text text = read_text(f, name, required);
    if (!text.data) return NULL;
    if (hf_json_parse(text.data, text.size, &json, f->i.e)) {
        err_context(f->i.e, "%s/%s", f->dir, name);
        f->i.failed = true;
    } else if (!cJSON_IsObject(json)) import_fail(&f->i, "%s/%s: is no JSON object", f->dir, name);
    return json;
}

static bool is_folder(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static const char *name_in(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void add_weights(Folder *f, const char *name) {
    DataFile d = {.fd = -1};
    Safetensors s = {0};
    char *path = f->i.failed ? NULL : path_of(f, name);
    if (!path) return;
    uint32_t file = (uint32_t)f->i.g->n_files;
    if (open_regular(path, &d.fd, &d.bytes, f->i.e) || model_file_add(f->i.g, path, d, f->i.e) ||
        safetensors_from_file(f->i.g->files[file].fd, d.bytes, path, &s, f->i.e))
        f->i.failed = true;
    if (!f->i.failed) hf_tensors_add(&f->i, &s, file);
    safetensors_free(&s);
    free(path);
}

/* Whether the name is that of a file of the same folder. */
static bool is_plain_name(const char *name) {
    return *name && strlen(name) <= LONGEST_NAME && !strchr(name, '/') && ends_with(name, ".safetensors");
}

/* An index says for every tensor in which file it lies; what is missing, the builder notices. */
static void add_indexed(Folder *f, const cJSON *map) {
    for (const cJSON *v = map->child; v && !f->i.failed; v = v->next) {
        const char *name = cJSON_IsString(v) ? v->valuestring : "";
        if (!is_plain_name(name)) {
            import_fail(&f->i, "%s/" INDEX ": tensor %s lies in \"%s\", which is no safetensors file of this folder",
                        f->dir, text_printable(hf_string(v->string)).text, text_printable(hf_string(name)).text);
            return;
        }
        bool seen = false;
        for (size_t k = 0; k < f->i.g->n_files; k++) seen |= !strcmp(name_in(f->i.g->files[k].path), name);
        if (!seen) add_weights(f, name);
    }
}

static bool names_file(const cJSON *map, const char *name) {
    for (const cJSON *v = map ? map->child : NULL; v; v = v->next)
        if (cJSON_IsString(v) && !strcmp(v->valuestring, name)) return true;
    return false;
}

/* The file that was asked for, if it is not part of a whole; or all there are. */
static void add_all_weights(Folder *f) {
    bool single = exists(f, "model.safetensors");
    cJSON *index = single ? NULL : read_json(f, INDEX, false);
    const cJSON *map = hf_json_get(index, "weight_map");
    if (index && !f->i.failed && (!cJSON_IsObject(map) || !map->child))
        import_fail(&f->i, "%s/" INDEX ": \"weight_map\" is no object with names of tensors", f->dir);
    if (f->i.failed) {
    } else if (f->weights && !names_file(map, f->weights)) add_weights(f, f->weights);
    else if (single) add_weights(f, "model.safetensors");
    else if (index) add_indexed(f, map);
    else if (exists(f, "pytorch_model.bin") || exists(f, "pytorch_model.bin.index.json"))
        import_fail(&f->i, "%s: has its weights in pytorch_model.bin only, which is not read; safetensors are", f->dir);
    else import_fail(&f->i, "%s: has neither model.safetensors nor " INDEX, f->dir);
    cJSON_Delete(index);
}

/* ---- what else there is ------------------------------------------------------------------------------------------ */

/* Adds the ids under a key, a number or a list of them, to the n that are there; returns how many there are then. */
static size_t read_ids(Folder *f, const cJSON *o, const char *key, uint32_t *ids, size_t n, size_t room) {
    const cJSON *v = hf_json_get(o, key);
    bool list = cJSON_IsArray(v);
    for (v = list ? v->child : v; v && !f->i.failed; v = list ? v->next : NULL) {
        int64_t id = 0;
        if (hf_json_whole(v, key, 0, INT32_MAX, &id, f->i.e)) {
            err_context(f->i.e, "%s", f->dir);
            f->i.failed = true;
        }
        bool seen = false;
        for (size_t k = 0; k < n; k++) seen |= ids[k] == (uint32_t)id;
        if (!seen && n < room) ids[n++] = (uint32_t)id;
    }
    return n;
}

static void read_special_ids(Folder *f, const cJSON *config) {
    enum { ROOM = 32 };
    uint32_t ends[ROOM], begin[1];
    cJSON *generation = read_json(f, "generation_config.json", false);
    size_t n = read_ids(f, generation, "eos_token_id", ends, 0, ROOM);
    n = read_ids(f, config, "eos_token_id", ends, n, ROOM);
    n = read_ids(f, f->i.config, "eos_token_id", ends, n, ROOM);
    if (n) import_array(&f->i, "sheaf.end_token_ids", META_U32, n, ends);
    if (n && ends[0] < f->i.vocab) import_int(&f->i, "tokenizer.ggml.eos_token_id", ends[0]);
    n = read_ids(f, config, "bos_token_id", begin, 0, 1);
    if (n && begin[0] < f->i.vocab) import_int(&f->i, "tokenizer.ggml.bos_token_id", begin[0]);
    cJSON_Delete(generation);
}

/* From a file of its own, or the member of tokenizer_config.json: a text, or a list of named ones. */
static void read_chat_template(Folder *f) {
    Text own = read_text(f, "chat_template.jinja", false);
    cJSON *json = read_json(f, "tokenizer_config.json", false);
    const cJSON *v = hf_json_get(json, "chat_template"), *text = cJSON_IsString(v) ? v : NULL;
    for (const cJSON *one = cJSON_IsArray(v) ? v->child : NULL; one && !text; one = one->next) {
        const cJSON *name = hf_json_get(one, "name"), *inner = hf_json_get(one, "template");
        if (cJSON_IsString(name) && !strcmp(name->valuestring, "default") && cJSON_IsString(inner)) text = inner;
    }
    if (own.data) import_text(&f->i, "tokenizer.chat_template", own.data, own.size);
    else if (text) import_text(&f->i, "tokenizer.chat_template", text->valuestring, strlen(text->valuestring));
    cJSON_Delete(json);
}

static void read_tokenizer(Folder *f) {
    if (f->i.failed) return;
    Text text = read_text(f, "tokenizer.json", false);
    if (text.data) import_text(&f->i, "tokenizer.huggingface.json", text.data, text.size);
    else
        import_fail(&f->i, "%s: has no tokenizer.json%s", f->dir,
                    exists(f, "tokenizer.model") ? " (tokenizer.model alone is not read)" : "");
}

/* How sentence-transformers makes one embedding of those of all tokens. The numbers are GGUF's. */
static void read_pooling(Folder *f) {
    static const struct {
        const char *key, *word;
        int id;
    } kinds[] = {{"pooling_mode_mean_tokens", "mean", 1},
                 {"pooling_mode_cls_token", "cls", 2},
                 {"pooling_mode_lasttoken", "lasttoken", 3}};
    cJSON *json = read_json(f, "1_Pooling/config.json", false);
    const cJSON *mode = hf_json_get(json, "pooling_mode");
    int found = 0, kind = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && json; k++)
        if (cJSON_IsTrue(hf_json_get(json, kinds[k].key)) ||
            (cJSON_IsString(mode) && !strcmp(mode->valuestring, kinds[k].word)))
            found++, kind = kinds[k].id;
    if (json && found != 1)
        import_fail(&f->i, "%s/1_Pooling/config.json: another pooling than one of mean, cls and lasttoken", f->dir);
    if (found == 1) import_int(&f->i, "pooling_type", kind);
    cJSON_Delete(json);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static void read_folder(Folder *f) {
    char *real = realpath(f->dir, NULL);
    const char *name = name_in(real ? real : f->dir);
    if (!exists(f, "config.json"))
        import_fail(&f->i, "%s: has no config.json; a folder should be as Hugging Face's transformers saves a model",
                    f->dir);
    cJSON *config = read_json(f, "config.json", true);
    if (!f->i.failed) hf_config_read(&f->i, config);
    import_text(&f->i, "general.name", name, strlen(name));
    free(real);
    add_all_weights(f);
    hf_tensors_finish(&f->i);
    read_tokenizer(f);
    read_special_ids(f, config);
    read_chat_template(f);
    if (!f->i.failed && f->i.class->names == NAMES_BERT) read_pooling(f);
    if (!f->i.failed && model_file_map_values(f->i.g, f->i.e)) f->i.failed = true;
    cJSON_Delete(config);
}

static bool is_hf_folder(const char *path) {
    const char *name = name_in(path);
    return is_folder(path) || !strcmp(name, "config.json") || !strcmp(name, INDEX) || ends_with(name, ".safetensors");
}

/* The folder of a path, malloc'ed, without slashes at its end. */
static char *folder_of(const char *path) {
    size_t n = strlen(path);
    if (!is_folder(path)) n = (size_t)(name_in(path) - path);
    while (n > 1 && path[n - 1] == '/') n--;
    return n ? strndup(path, n) : strdup(".");
}

static int hf_folder_open(const char *path, ModelFile **out, Err *e) {
    *out = NULL;
    char *dir = folder_of(path), *config = NULL;
    Folder f = {.dir = dir, .i = {.path = "", .e = e}};
    if (!dir) return err_set(e, "%s: out of memory", path);
    if (!is_folder(path) && ends_with(path, ".safetensors") && strcmp(name_in(path), "model.safetensors") != 0)
        f.weights = name_in(path);
    f.i.g = model_file_new(dir, "safetensors", e);
    f.i.failed = !f.i.g;
    if (f.i.g) f.i.path = config = path_of(&f, "config.json");
    if (!f.i.failed) read_folder(&f);
    free(config);
    free(dir);
    if (f.i.failed) {
        model_file_close(f.i.g);
        return -1;
    }
    *out = f.i.g;
    return 0;
}

int model_file_open(const char *path, ModelFile **out, Err *e) {
    return is_hf_folder(path) ? hf_folder_open(path, out, e) : gguf_open(path, out, e);
}
