/* Folders as transformers saves them against the GGUF of the same model: the same tensors, byte by byte, and the same
 * graph. The folders are transformers' own (tests/reference/tiny_architectures.py), and their GGUFs give the logits
 * that transformers gives (engine/mpi_arch.c). */
#include "arch_files.h"
#include "graph/arch.h"

static const char *const models[] = {"llama3",   "llama_linear", "llama_yarn", "llama_yarn_set", "mistral",
                                     "qwen2",    "qwen3",        "gemma2",     "gemma3",         "gemma3_wide",
                                     "phi3",     "phi3_part",    "olmo2",      "olmo3",          "mixtral",
                                     "qwen2moe", "qwen3moe",     "olmoe",      "smollm3"};
enum { N_MODELS = sizeof models / sizeof *models };

static ModelFile *open_model(const char *path) {
    ModelFile *g = NULL;
    Err e = {""};
    if (model_file_open(path, &g, &e)) printf("\n%s", e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    return g;
}

static void same_tensors(const ModelFile *a, const ModelFile *b, const char *what) {
    Err e;
    int others = 0;
    CU_ASSERT_EQUAL(file_n_tensors(a), file_n_tensors(b));
    for (size_t i = 0; i < file_n_tensors(a); i++) {
        const FileTensor *s = file_tensor_at(a, i);
        char name[65] = "";
        memcpy(name, s->name.data, s->name.size);
        const FileTensor *t = file_tensor(b, name);
        CU_ASSERT_FATAL(t && s->type == t->type && s->bytes == t->bytes && !memcmp(s->dims, t->dims, sizeof s->dims));
        uint8_t *x = malloc(2 * s->bytes), *y = x + s->bytes;
        CU_ASSERT_FATAL(x && !model_file_read(a, s, 0, s->bytes, x, &e) && !model_file_read(b, t, 0, t->bytes, y, &e));
        /* the factors of Llama 3.1 are worked out in double here, in fp32 or double elsewhere */
        bool factors = !strcmp(name, "rope_freqs.weight");
        for (uint64_t k = 0; factors && k < s->bytes / 4; k++)
            others += !(fabsf(((float *)(void *)x)[k] / ((float *)(void *)y)[k] - 1) < 1e-6f);
        others += !factors && memcmp(x, y, s->bytes) != 0;
        /* and a part from inside, across whatever it is put together from */
        uint64_t at = s->bytes / 3 / 4 * 4, n = s->bytes / 2 / 4 * 4;
        CU_ASSERT(!model_file_read(b, t, at, n, x, &e) && !memcmp(x, y + at, n));
        free(x);
    }
    CU_ASSERT_EQUAL(others, 0);
    if (others) printf("\n%s: %d tensors differ", what, others);
}

/* The graph as text, and where its weights lie, by name. */
static char *graph_of(const ModelFile *g, LmShape *shape) {
    Graph graph;
    Err e = {""};
    if (arch_build(g, &graph, shape, &e)) printf("\n%s", e.msg);
    char *text = graph_text(&graph);
    graph_free(&graph);
    return text;
}

static bool same_attributes(const Op *a, const Op *b) {
    const AttnShape *s = &a->u.attn, *t = &b->u.attn;
    if (a->kind != OP_KV_STORE && a->kind != OP_ATTENTION) return !memcmp(&a->u, &b->u, sizeof a->u);
    return s->heads == t->heads && s->kv_heads == t->kv_heads && s->head_dim == t->head_dim && s->scale == t->scale &&
           s->softcap == t->softcap && s->window == t->window; /* there is padding between them */
}

/* What the text of a graph does not show. */
static void same_numbers(const ModelFile *a, const ModelFile *b) {
    Graph x, y;
    LmShape shape;
    Err e;
    CU_ASSERT_FATAL(!arch_build(a, &x, &shape, &e) && !arch_build(b, &y, &shape, &e) && x.n_ops == y.n_ops);
    for (int32_t i = 0; i < x.n_ops; i++) CU_ASSERT(same_attributes(&x.op[i], &y.op[i]));
    graph_free(&x);
    graph_free(&y);
}

static void test_against_gguf(void) {
    TempFolder folder = temp_folder();
    for (int i = 0; i < N_MODELS; i++) {
        size_t size;
        uint8_t *bytes = arch_model(models[i], &size);
        temp_write(&folder, "whole.gguf", bytes, size);
        free(bytes);
        arch_folder(models[i], &folder);
        ModelFile *a = open_model(temp_path(&folder, "whole.gguf")), *b = open_model(folder.path);
        same_tensors(a, b, models[i]);
        LmShape s, t;
        char *x = graph_of(a, &s), *y = graph_of(b, &t);
        CU_ASSERT(x && y && !strcmp(x, y) && s.context == t.context && s.vocab == t.vocab && s.ffn == t.ffn);
        same_numbers(a, b);
        free(x);
        free(y);
        model_file_close(a);
        model_file_close(b);
    }
    temp_remove(&folder);
}

/* By the folder, with a slash or two, or by a file in it. */
static void test_paths(void) {
    static const char *const paths[] = {"", "/", "//", "/config.json", "/model.safetensors"};
    TempFolder folder = temp_folder();
    uint64_t first = 0, sample;
    arch_folder("mistral", &folder);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[128];
        Err e;
        snprintf(path, sizeof path, "%s%s", folder.path, paths[i]);
        ModelFile *g = open_model(path);
        CU_ASSERT_STRING_EQUAL(model_file_path(g), folder.path);
        CU_ASSERT_STRING_EQUAL(model_file_format(g), "safetensors");
        CU_ASSERT(!model_file_sample(g, &sample, &e) && (i == 0 || sample == first));
        first = sample;
        model_file_close(g);
    }
    /* another file of weights than model.safetensors, if it is asked for */
    CU_ASSERT(!rename(temp_path(&folder, "model.safetensors"), temp_path(&folder, "other.safetensors")));
    model_file_close(open_model(temp_path(&folder, "other.safetensors")));
    temp_remove(&folder);
}

/* What else lies in such folders. */
static void test_metadata(void) {
    TempFolder folder = temp_folder();
    arch_folder("mistral", &folder);
    temp_write_text(&folder, "generation_config.json", "{\"eos_token_id\": [7, 2, 9], \"temperature\": 0.5}");
    temp_write_text(
        &folder, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool\", \"template\": \"A\"}, {\"name\": \"default\", \"template\": "
        "\"B\"}]}");
    Err e = {""};
    Text s = {0};
    const MetaValue *ids = NULL;
    int64_t id = 0;
    ModelFile *g = open_model(folder.path);
    CU_ASSERT(!meta_get_string(g, "tokenizer.chat_template", true, &s, &e) && s.size == 1 && s.data[0] == 'B');
    CU_ASSERT_FATAL(!meta_get_array(g, "sheaf.end_token_ids", true, META_I32, &ids, &e) && ids->v.a.n == 3);
    CU_ASSERT(meta_array_i64(ids, 0) == 7 && meta_array_i64(ids, 1) == 2 && meta_array_i64(ids, 2) == 9);
    CU_ASSERT(!meta_get_i64(g, "tokenizer.ggml.eos_token_id", true, 0, 300, &id, &e) && id == 7);
    CU_ASSERT(!meta_get_i64(g, "tokenizer.ggml.bos_token_id", true, 0, 300, &id, &e) && id == 1);
    CU_ASSERT(!meta_get_string(g, "tokenizer.huggingface.json", true, &s, &e) && s.size > 1000 && s.data[0] == '{');
    CU_ASSERT(!meta_get_string(g, "general.name", true, &s, &e) && s.size == 17 && !memcmp(s.data, "sheaf_test.", 11));
    model_file_close(g);
    temp_write_text(&folder, "chat_template.jinja", "C");
    temp_write_text(&folder, "tokenizer_config.json", "{\"chat_template\": \"D\"}");
    g = open_model(folder.path);
    CU_ASSERT(!meta_get_string(g, "tokenizer.chat_template", true, &s, &e) && s.size == 1 && s.data[0] == 'C');
    model_file_close(g);
    temp_remove(&folder);
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"every architecture: as the GGUF", test_against_gguf},
        {"paths", test_paths},
        {"metadata", test_metadata},
        CU_TEST_INFO_NULL,
    };
    return check_run("folders of transformers", tests);
}
