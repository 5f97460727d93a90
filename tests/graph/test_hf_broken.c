/* Folders of transformers with something wrong in them: refused with one line that names the file and what is wrong. */
#include "arch_files.h"
#include "base/strbuf.h"
#include "graph/arch.h"

static TempFolder folder;

/* Refused with one line that has the folder and the words, by the reader or the builder. */
static void refused(const char *path, const char *why) {
    ModelFile *m = NULL;
    Graph g = {0};
    LmShape s;
    Err e = {""};
    int status = model_file_open(path, &m, &e);
    if (!status) status = arch_build(m, &g, &s, &e);
    CU_ASSERT_EQUAL(status, -1);
    bool right = strstr(e.msg, folder.path) && strstr(e.msg, why) && !strchr(e.msg, '\n');
    CU_ASSERT(right);
    if (!right) printf("\n\"%s\" should name the folder and say \"%s\"\n", e.msg, why);
    graph_free(&g);
    model_file_close(m);
}

/* A file of the folder, NUL-terminated, malloc'ed. */
static char *text_of(const char *name) {
    FILE *f = fopen(temp_path(&folder, name), "rb");
    char *text = calloc(1, 1 << 16);
    if (!f || !text || !fread(text, 1, (1 << 16) - 1, f)) abort();
    fclose(f);
    return text;
}

/* config.json of a model with `key` given another value (JSON), or taken away (NULL); as transformers writes it, a line
 * for each key. */
static void set_key(const char *key, const char *value) {
    char *text = text_of("config.json"), quoted[64];
    StrBuf out = {0};
    snprintf(quoted, sizeof quoted, "\n  \"%s\": ", key);
    char *at = strstr(text, quoted), *rest = at ? at + strlen(quoted) : text + 1;
    int depth = 0;
    for (; at && (depth || (*rest != ',' && *rest != '\n')); rest++)
        depth += (*rest == '{' || *rest == '[') - (*rest == '}' || *rest == ']');
    strbuf_add(&out, text, at ? (size_t)(at - text) : 1);
    if (value) strbuf_printf(&out, "%s%s%s", quoted, value, at ? "" : ",");
    strbuf_puts(&out, value || !at ? rest : rest + 1);
    temp_write(&folder, "config.json", out.data, out.len);
    strbuf_free(&out);
    free(text);
}

typedef struct Change {
    const char *model, *key, *value, *why;
} Change;

static const Change changes[] = {
    {"mistral", "architectures", "[\"FalconForCausalLM\"]",
     "\"FalconForCausalLM\" is not supported (this build reads: Llama"},
    {"mistral", "architectures", "[]", "\"architectures\" names none"},
    {"mistral", "architectures", NULL, "\"architectures\" names none"},
    {"mistral", "hidden_size", NULL, "\"hidden_size\" is missing"},
    {"mistral", "hidden_size", "\"64\"", "hidden_size is no whole number"},
    {"mistral", "hidden_size", "64.5", "hidden_size is no whole number"},
    {"mistral", "hidden_size", "-64", "hidden_size is no whole number from 1"},
    {"mistral", "hidden_size", "1e30", "hidden_size is no whole number"},
    {"mistral", "hidden_size", "128", "the metadata want"},
    {"mistral", "num_hidden_layers", "1",
     "tensor model.layers.1.input_layernorm.weight, but \"num_hidden_layers\" is 1"},
    {"mistral", "num_hidden_layers", "3", "blk.2.attn_norm.weight is missing"},
    {"mistral", "num_attention_heads", "0", "num_attention_heads is no whole number from 1"},
    {"mistral", "num_key_value_heads", "5", "num_key_value_heads is no whole number from 1 to 4"},
    {"mistral", "num_key_value_heads", "3", "rows for 3 heads"},
    {"mistral", "vocab_size", "289", "the embedding has 288 rows, but \"vocab_size\" is 289"},
    {"mistral", "rms_norm_eps", NULL, "\"rms_norm_eps\" is missing"},
    {"mistral", "rms_norm_eps", "1e999", "\"rms_norm_eps\" is no number"},
    {"mistral", "hidden_act", "\"gelu\"", "\"hidden_act\" is \"gelu\"; this build supports silu"},
    {"mistral", "hidden_act", "3", "\"hidden_act\" is no string"},
    {"mistral", "tie_word_embeddings", "3", "neither true nor false"},
    {"mistral", "sliding_window", "-1", "sliding_window is no whole number"},
    {"mistral", "quantization_config", "{\"quant_method\": \"gptq\"}", "quantised by \"gptq\""},
    {"mistral", "rope_parameters", "{\"rope_type\": \"dynamic\", \"rope_theta\": 10}", "kind \"dynamic\""},
    {"mistral", "rope_parameters", "[]", "no object"},
    {"mistral", "rope_parameters", "{\"rope_theta\": -5}", "\"rope_theta\" is -5"},
    {"mistral", "rope_parameters", "{\"rope_theta\": 5, \"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
    {"mistral", "attention_bias", "true", "blk.0.attn_q.bias is missing"},
    {"llama_linear", "attention_bias", "false", "self_attn.k_proj.bias, but config.json says nothing of such biases"},
    {"llama_linear", "mlp_bias", "false", "mlp.down_proj.bias, but config.json says nothing"},
    {"llama_linear", "tie_word_embeddings", "false", "lm_head.weight is missing"},
    {"llama_yarn", "rope_parameters", "{\"rope_type\": \"yarn\", \"rope_theta\": 10000}", "\"factor\" is missing"},
    {"llama_yarn", "rope_parameters", "{\"type\": \"yarn\", \"factor\": 0}", "the factor 0"},
    {"llama_yarn", "rope_parameters", "{\"type\": \"yarn\", \"factor\": 4, \"truncate\": false}",
     "\"truncate\": false"},
    {"llama3", "rope_parameters",
     "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}", "are no range"},
    {"qwen2", "use_sliding_window", "true", "\"use_sliding_window\""},
    {"qwen2", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "\"use_sliding_window\""},
    {"qwen2", "layer_types", "[\"full_attention\"]", "\"layer_types\" is no list of 2"},
    {"qwen3", "rope_parameters", "{\"rope_type\": \"llama3\", \"factor\": 8}", "kind \"llama3\""},
    {"gemma2", "query_pre_attn_scalar", "144", "\"query_pre_attn_scalar\" is 144"},
    {"gemma2", "attn_logit_softcapping", "-1", "below 0"},
    {"gemma2", "layer_types", "[\"chunked_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
     "layer 0 is of type \"chunked_attention\""},
    {"gemma3", "use_bidirectional_attention", "true", "\"use_bidirectional_attention\""},
    {"gemma3", "attn_logit_softcapping", "50.0", "\"attn_logit_softcapping\" is not supported"},
    {"gemma3", "hidden_activation", "\"silu\"", "\"hidden_activation\" is \"silu\""},
    {"phi3", "rope_parameters", "{\"rope_type\": \"longrope\"}", "kind \"longrope\""},
    {"phi3", "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4}", "kind \"yarn\""},
    {"mixtral", "num_local_experts", "6", "blk.0.ffn_gate_exps.weight lacks 1 of 6 experts"},
    {"mixtral", "num_local_experts", "4", "but the model has 4 experts"},
    {"mixtral", "num_experts_per_tok", "6", "num_experts_per_tok is no whole number from 1 to 5"},
    {"qwen3moe", "num_experts", "9", "\"num_experts\" and \"num_local_experts\" differ"},
    {"qwen3moe", "mlp_only_layers", "[1]", "layers without experts among others"},
    {"qwen3moe", "decoder_sparse_step", "2", "layers without experts among others"},
    {"qwen3moe", "moe_intermediate_size", "64", "[8][48][96], but the metadata want [8][64][96]"},
    {"qwen2moe", "shared_expert_intermediate_size", "64", "but the metadata want [64][96]"},
    {"qwen2moe", "qkv_bias", "false", "self_attn.k_proj.bias, but config.json says nothing of such biases"},
    {"olmoe", "clip_qkv", "8.0", "\"clip_qkv\" is not supported"},
};

static void test_config(void) {
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        arch_folder(changes[i].model, &folder);
        set_key(changes[i].key, changes[i].value);
        refused(folder.path, changes[i].why);
    }
    arch_folder("mistral", &folder);
    temp_write_text(&folder, "config.json", "{\"architectures\": ");
    refused(folder.path, "config.json: no JSON");
    temp_write_text(&folder, "config.json", "[]");
    refused(folder.path, "config.json: is no JSON object");
    temp_write_text(&folder, "config.json", "");
    refused(folder.path, "config.json: is empty");
    unlink(temp_path(&folder, "config.json"));
    refused(folder.path, "has no config.json");
}

/* The same model under another class has tensors that this one does not know, or misses some. */
static void test_class(void) {
    arch_folder("qwen3", &folder);
    set_key("architectures", "[\"LlamaForCausalLM\"]");
    refused(folder.path, "does not know what tensor blk.0.attn_k_norm.weight is for");
    arch_folder("olmo2", &folder);
    set_key("architectures", "[\"LlamaForCausalLM\"]");
    refused(folder.path,
            "does not know what tensor model.layers.0.post_feedforward_layernorm.weight is for in a Llama");
}

static void test_files(void) {
    arch_folder("mistral", &folder);
    unlink(temp_path(&folder, "tokenizer.json"));
    refused(folder.path, "has no tokenizer.json");
    temp_write_text(&folder, "tokenizer.model", "x");
    refused(folder.path, "tokenizer.model alone is not read");
    arch_folder("mistral", &folder);
    temp_write_text(&folder, "generation_config.json", "{\"eos_token_id\": \"2\"}");
    refused(folder.path, "eos_token_id is no whole number");
    temp_write_text(&folder, "generation_config.json", "x");
    refused(folder.path, "generation_config.json: no JSON");
    unlink(temp_path(&folder, "generation_config.json"));
    temp_write_text(&folder, "tokenizer_config.json", "{");
    refused(folder.path, "tokenizer_config.json: no JSON");
    unlink(temp_path(&folder, "tokenizer_config.json"));

    CU_ASSERT(!truncate(temp_path(&folder, "model.safetensors"), 200000));
    refused(folder.path, "is the download complete?");
    CU_ASSERT(!truncate(temp_path(&folder, "model.safetensors"), 100));
    refused(folder.path, "model.safetensors: its header has");
    temp_write_text(&folder, "model.safetensors", "GGUF");
    refused(folder.path, "not a safetensors file");
    unlink(temp_path(&folder, "model.safetensors"));
    refused(folder.path, "has neither model.safetensors nor model.safetensors.index.json");
    temp_write_text(&folder, "pytorch_model.bin", "x");
    refused(folder.path, "pytorch_model.bin");
    unlink(temp_path(&folder, "pytorch_model.bin"));
    CU_ASSERT(!mkdir(temp_path(&folder, "model.safetensors"), 0700));
    refused(folder.path, "is a directory");
    rmdir(temp_path(&folder, "model.safetensors"));
}

/* An index whose tensor x lies in `value` (JSON). */
static void refused_index(const char *value, const char *why) {
    char text[256];
    snprintf(text, sizeof text, "{\"weight_map\": {\"x\": %s}}", value);
    temp_write_text(&folder, "model.safetensors.index.json", text);
    refused(folder.path, why);
}

static void test_index(void) {
    arch_folder("mistral", &folder);
    CU_ASSERT(!rename(temp_path(&folder, "model.safetensors"), temp_path(&folder, "all.safetensors")));
    refused_index("\"../all.safetensors\"", "\"../all.safetensors\", which is no safetensors file of this folder");
    refused_index("\"/tmp/all.safetensors\"", "which is no safetensors file of this folder");
    refused_index("\"sub/all.safetensors\"", "which is no safetensors file of this folder");
    refused_index("\"..\"", "which is no safetensors file of this folder");
    refused_index("\"\"", "which is no safetensors file of this folder");
    refused_index("\"config.json\"", "which is no safetensors file of this folder");
    refused_index("3", "which is no safetensors file of this folder");
    refused_index("\"none.safetensors\"", "none.safetensors: cannot be opened");
    temp_write_text(&folder, "model.safetensors.index.json", "{\"weight_map\": []}");
    refused(folder.path, "\"weight_map\" is no object");
    temp_write_text(&folder, "model.safetensors.index.json", "{}");
    refused(folder.path, "\"weight_map\" is no object");
    temp_write_text(&folder, "model.safetensors.index.json",
                    "{\"weight_map\": {\"x\": \"all.safetensors\", \"y\": \"again.safetensors\"}}");
    CU_ASSERT(!link(temp_path(&folder, "all.safetensors"), temp_path(&folder, "again.safetensors")));
    refused(folder.path, "is there twice");
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"config.json", test_config},
        {"another class", test_class},
        {"missing and broken files", test_files},
        {"an index", test_index},
        CU_TEST_INFO_NULL,
    };
    folder = temp_folder();
    int status = check_run("broken folders of transformers", tests);
    temp_remove(&folder);
    return status;
}
