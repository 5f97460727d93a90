/* Hugging Face's names of tensors -> GGUF's, and what GGUF does to tensors besides: vectors are F32, norm weights of
 * some models are raised by 1, Q's and K's rows of some stand in the order of rotated pairs, the experts of a layer are
 * one tensor. Source: llama.cpp's convert_hf_to_gguf.py and gguf-py/gguf/tensor_mapping.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/hf_import.h"
#include "graph/hf_json.h"

enum { EXPERT_KINDS = 3, NOT_SET = -1 };

/* What is to be done with a tensor besides. */
typedef enum Deed {
    PLAIN,
    QUERY,
    KEY,
    WIDE /* always F32 */,
    HEAD,
    EXPERT /* one of several in a tensor */,
    SKIP
} Deed;

/* "*" stands for a number: the layer, then the expert. SKIP: names that begin so; else the name without ".weight" or
 * ".bias" at its end. */
typedef struct HfName {
    const char *theirs, *ours;
    Deed deed;
    unsigned bias; /* the group that its bias belongs to; 0: it can have none */
    int expert;    /* of EXPERT: kind 0 .. 2 */
} HfName;

static const HfName lm_names[] = {
    {"embed_tokens", "token_embd", PLAIN, 0, 0},
    {"norm", "output_norm", PLAIN, 0, 0},
    {"lm_head", "output", HEAD, 0, 0},
    {"layers.*.self_attn.q_proj", "attn_q", QUERY, BIAS_QKV, 0},
    {"layers.*.self_attn.k_proj", "attn_k", KEY, BIAS_QKV, 0},
    {"layers.*.self_attn.v_proj", "attn_v", PLAIN, BIAS_QKV, 0},
    {"layers.*.self_attn.o_proj", "attn_output", PLAIN, BIAS_OUTPUT, 0},
    {"layers.*.self_attn.qkv_proj", "attn_qkv", PLAIN, 0, 0},
    {"layers.*.self_attn.q_norm", "attn_q_norm", PLAIN, 0, 0},
    {"layers.*.self_attn.k_norm", "attn_k_norm", PLAIN, 0, 0},
    {"layers.*.mlp.gate_proj", "ffn_gate", PLAIN, BIAS_FFN, 0},
    {"layers.*.mlp.up_proj", "ffn_up", PLAIN, BIAS_FFN, 0},
    {"layers.*.mlp.down_proj", "ffn_down", PLAIN, BIAS_FFN, 0},
    {"layers.*.mlp.gate_up_proj", "ffn_up", PLAIN, 0, 0},
    {"layers.*.block_sparse_moe.gate", "ffn_gate_inp", WIDE, 0, 0},
    {"layers.*.block_sparse_moe.experts.*.w1", "ffn_gate_exps", EXPERT, 0, 0},
    {"layers.*.block_sparse_moe.experts.*.w2", "ffn_down_exps", EXPERT, 0, 1},
    {"layers.*.block_sparse_moe.experts.*.w3", "ffn_up_exps", EXPERT, 0, 2},
    {"layers.*.mlp.gate", "ffn_gate_inp", WIDE, 0, 0},
    {"layers.*.mlp.experts.*.gate_proj", "ffn_gate_exps", EXPERT, 0, 0},
    {"layers.*.mlp.experts.*.down_proj", "ffn_down_exps", EXPERT, 0, 1},
    {"layers.*.mlp.experts.*.up_proj", "ffn_up_exps", EXPERT, 0, 2},
    {"layers.*.mlp.shared_expert.gate_proj", "ffn_gate_shexp", PLAIN, 0, 0},
    {"layers.*.mlp.shared_expert.up_proj", "ffn_up_shexp", PLAIN, 0, 0},
    {"layers.*.mlp.shared_expert.down_proj", "ffn_down_shexp", PLAIN, 0, 0},
    {"layers.*.mlp.shared_expert_gate", "ffn_gate_inp_shexp", WIDE, 0, 0},
    {"layers.*.self_attn.rotary_emb.inv_freq", "", SKIP, 0, 0}, /* old files: follows from config.json */
    {"vision_tower.", "", SKIP, 0, 0},                          /* of Gemma 3: its text is what runs here */
    {"multi_modal_projector.", "", SKIP, 0, 0},
    {NULL},
};
static const HfName pre_norm_names[] = {
    {"layers.*.input_layernorm", "attn_norm", PLAIN, 0, 0},
    {"layers.*.post_attention_layernorm", "ffn_norm", PLAIN, 0, 0},
    {NULL},
};
static const HfName post_norm_names[] = {
    {"layers.*.input_layernorm", "attn_norm", PLAIN, 0, 0},
    {"layers.*.post_attention_layernorm", "post_attention_norm", PLAIN, 0, 0},
    {"layers.*.pre_feedforward_layernorm", "ffn_norm", PLAIN, 0, 0},
    {"layers.*.post_feedforward_layernorm", "post_ffw_norm", PLAIN, 0, 0},
    {NULL},
};
static const HfName bert_names[] = {
    {"embeddings.word_embeddings", "token_embd", PLAIN, 0, 0},
    {"embeddings.position_embeddings", "position_embd", WIDE, 0, 0},
    {"embeddings.token_type_embeddings", "token_types", WIDE, 0, 0},
    {"embeddings.LayerNorm", "token_embd_norm", PLAIN, BIAS_OUTPUT, 0},
    {"encoder.layer.*.attention.self.query", "attn_q", PLAIN, BIAS_QKV, 0},
    {"encoder.layer.*.attention.self.key", "attn_k", PLAIN, BIAS_QKV, 0},
    {"encoder.layer.*.attention.self.value", "attn_v", PLAIN, BIAS_QKV, 0},
    {"encoder.layer.*.attention.output.dense", "attn_output", PLAIN, BIAS_OUTPUT, 0},
    {"encoder.layer.*.attention.output.LayerNorm", "attn_output_norm", PLAIN, BIAS_OUTPUT, 0},
    {"encoder.layer.*.intermediate.dense", "ffn_up", PLAIN, BIAS_FFN, 0},
    {"encoder.layer.*.output.dense", "ffn_down", PLAIN, BIAS_FFN, 0},
    {"encoder.layer.*.output.LayerNorm", "layer_output_norm", PLAIN, BIAS_OUTPUT, 0},
    {"embeddings.position_ids", "", SKIP, 0, 0}, /* 0, 1, 2, ... */
    {"pooler.", "", SKIP, 0, 0},                 /* heads for other tasks than embeddings */
    {"cls.", "", SKIP, 0, 0},
    {NULL},
};
static const HfName *const tables[HF_NAMES][3] = {
    [NAMES_PRE_NORM] = {lm_names, pre_norm_names},
    [NAMES_POST_NORM] = {lm_names, post_norm_names},
    [NAMES_BERT] = {bert_names},
};
/* What names begin with before those of the tables, longest first. */
static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "language_model.", "model.",
                                       "bert."};

struct Experts {
    Stored *stored; /* of the tensor, NULL before its first piece */
    size_t tensor, missing;
};

typedef struct Found {
    const HfName *name;
    int64_t layer, expert; /* NOT_SET: the name has none */
    const char *end;       /* ".weight", ".bias" or "" */
} Found;

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* A number without leading zeros, up to 8 digits; its digits, or 0: there is none. */
static size_t number(const char *s, size_t n, int64_t *out) {
    size_t k = 0;
    for (*out = 0; k < n && k < 8 && s[k] >= '0' && s[k] <= '9'; k++) *out = 10 * *out + (s[k] - '0');
    return k > 1 && s[0] == '0' ? 0 : k;
}

/* Whether the text is what the pattern says (or begins so). */
static bool match(const char *pattern, Text s, bool begins, Found *f) {
    size_t at = 0;
    f->layer = f->expert = NOT_SET;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (at >= s.size || s.data[at++] != *pattern) return false;
            continue;
        }
        size_t digits = number(s.data + at, s.size - at, f->layer == NOT_SET ? &f->layer : &f->expert);
        if (!digits) return false;
        at += digits;
    }
    return begins || at == s.size;
}

static bool cut_end(Text *s, const char *end) {
    size_t n = strlen(end);
    if (s->size < n || memcmp(s->data + s->size - n, end, n) != 0) return false;
    s->size -= n;
    return true;
}

static bool find_name(const Import *i, Text s, Found *f) {
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
        size_t n = strlen(prefixes[k]);
        if (s.size < n || memcmp(s.data, prefixes[k], n) != 0) continue;
        s = (Text){s.data + n, s.size - n};
        break;
    }
    Text part = s;
    f->end = cut_end(&part, ".weight") ? ".weight" : cut_end(&part, ".bias") ? ".bias" : "";
    for (const HfName *const *t = tables[i->class->names]; *t; t++)
        for (f->name = *t; f->name->theirs; f->name++)
            if (f->name->deed == SKIP ? match(f->name->theirs, s, true, f)
                                      : *f->end && match(f->name->theirs, part, false, f))
                return true;
    return false;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* A new tensor, zeroed, with its name; its number, or NOT_SET after a failure. */
static int64_t add(Import *i, const char *name) {
    size_t n = strlen(name);
    char *text = i->failed ? NULL : model_file_alloc(i->g, n + 1, i->e);
    if (!text || grow((void **)&i->g->tensors, i->g->n_tensors, &i->room_tensors, sizeof(FileTensor))) {
        import_fail(i, "%s: out of memory", i->path);
        return NOT_SET;
    }
    memcpy(text, name, n);
    i->g->tensors[i->g->n_tensors] = (FileTensor){.name = {text, n}, .n_dims = 1, .dims = {1, 1, 1, 1}};
    return (int64_t)i->g->n_tensors++;
}

static void set_type(FileTensor *t, QType type) {
    t->type = (int)type;
    t->type_id = (uint32_t)qtype_info(type)->gguf_id;
}

/* The shape as a GGUF has it, and the type in the file. */
static bool read_shape(Import *i, const SafeTensor *s, FileTensor *t, QType *type) {
    Printable name = text_printable(s->name);
    if (hf_is(s->dtype, "F32")) *type = QT_F32;
    else if (hf_is(s->dtype, "F16")) *type = QT_F16;
    else if (hf_is(s->dtype, "BF16")) *type = QT_BF16;
    else
        import_fail(i, "%s: tensor %s has type %s; F32, F16 and BF16 are supported", i->g->path, name.text,
                    text_printable(s->dtype).text);
    if (s->n_dims < 1 || s->n_dims > 4 || s->bytes == 0)
        import_fail(i, "%s: tensor %s has %d dimensions and %" PRIu64 " bytes", i->g->path, name.text, s->n_dims,
                    s->bytes);
    if (i->failed) return false;
    t->n_dims = s->n_dims;
    for (int k = 0; k < s->n_dims; k++) t->dims[k] = s->dims[s->n_dims - 1 - k];
    return true;
}

static Stored *new_stored(Import *i, size_t n_pieces) {
    Stored *s = i->failed ? NULL : model_file_alloc(i->g, sizeof *s + n_pieces * sizeof *s->piece, i->e);
    if (!s) import_fail(i, "%s: out of memory", i->path);
    else s->n_pieces = (uint32_t)n_pieces;
    return s;
}

/* What GGUF does to it. */
static void convert(Import *i, const Found *f, QType type, FileTensor *t) {
    bool wide = t->n_dims == 1 || f->name->deed == WIDE;
    float more = strstr(f->name->ours, "norm") && !strcmp(f->end, ".weight") ? i->class->norm_add : 0;
    int64_t heads = f->name->deed == QUERY ? i->heads : f->name->deed == KEY ? i->kv_heads : 0;
    uint64_t rows = t->dims[t->n_dims > 1 ? 1 : 0];
    set_type(t, wide ? QT_F32 : type);
    if (!i->class->pairs) heads = 0;
    if ((int)type == t->type && more == 0 && heads == 0) return;
    if (heads && (rows % (uint64_t)heads || rows / (uint64_t)heads % 2)) {
        import_fail(i, "%s: %s has %" PRIu64 " rows for %" PRId64 " heads", i->g->path, text_printable(t->name).text,
                    rows, heads);
        return;
    }
    Stored *s = new_stored(i, 1);
    if (!s) return;
    s->type = type;
    s->add = more;
    s->head_rows = heads ? (uint32_t)(rows / (uint64_t)heads) : 0;
    s->piece[0] = (FilePlace){t->file, t->offset};
    t->stored = s;
    if (wide) t->bytes = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3] * sizeof(float);
}

static void add_plain(Import *i, const Found *f, const char *name, const SafeTensor *s, uint32_t file) {
    QType type = QT_F32;
    int64_t n = add(i, name);
    if (n == NOT_SET) return;
    FileTensor *t = &i->g->tensors[n];
    t->file = file;
    t->offset = s->offset;
    t->bytes = s->bytes;
    if (read_shape(i, s, t, &type)) convert(i, f, type, t);
}

/* One expert's matrix: a piece of the tensor that the first one of them begins. */
static void add_expert(Import *i, const Found *f, const char *name, const SafeTensor *s, uint32_t file) {
    FileTensor one = {.dims = {1, 1, 1, 1}};
    QType type = QT_F32;
    Printable theirs = text_printable(s->name);
    if (f->expert >= i->n_experts)
        import_fail(i, "%s: tensor %s, but the model has %" PRId64 " experts", i->g->path, theirs.text, i->n_experts);
    if (!i->experts && !i->failed) {
        i->experts = model_file_alloc(i->g, (size_t)i->layers * EXPERT_KINDS * sizeof *i->experts, i->e);
        if (!i->experts) i->failed = true;
    }
    if (i->failed || !read_shape(i, s, &one, &type)) return;
    Experts *x = &i->experts[f->layer * EXPERT_KINDS + f->name->expert];
    if (!x->stored) {
        int64_t n = add(i, name);
        if (n == NOT_SET || !(x->stored = new_stored(i, (size_t)i->n_experts))) return;
        x->tensor = (size_t)n;
        x->missing = (size_t)i->n_experts;
        x->stored->type = type;
        for (int64_t k = 0; k < i->n_experts; k++) x->stored->piece[k].file = UINT32_MAX;
        FileTensor *t = &i->g->tensors[n];
        *t = (FileTensor){.name = t->name, .n_dims = 3, .file = file, .offset = s->offset, .stored = x->stored};
        memcpy(t->dims, (uint64_t[]){one.dims[0], one.dims[1], (uint64_t)i->n_experts, 1}, sizeof t->dims);
        if (__builtin_mul_overflow(s->bytes, (uint64_t)i->n_experts, &t->bytes) || t->bytes > INT64_MAX)
            import_fail(i, "%s: tensor %s is too large", i->g->path, theirs.text);
        set_type(t, type);
    }
    FileTensor *t = &i->g->tensors[x->tensor];
    FilePlace *p = &x->stored->piece[f->expert];
    if (one.n_dims != 2 || one.dims[0] != t->dims[0] || one.dims[1] != t->dims[1] || (int)type != t->type)
        import_fail(i, "%s: tensor %s has another shape or type than those of other experts", i->g->path, theirs.text);
    else if (p->file != UINT32_MAX) import_fail(i, "%s: tensor %s is there twice", i->g->path, theirs.text);
    *p = (FilePlace){file, s->offset};
    x->missing--;
}

static void add_one(Import *i, const SafeTensor *s, uint32_t file) {
    Found f;
    char name[96];
    Printable theirs = text_printable(s->name);
    if (!find_name(i, s->name, &f)) {
        import_fail(i, "%s: this build does not know what tensor %s is for in a %s", i->g->path, theirs.text,
                    i->class->name);
        return;
    }
    if (f.name->deed == SKIP || (f.name->deed == HEAD && i->tied)) return;
    if (f.layer >= i->layers)
        import_fail(i, "%s: tensor %s, but \"num_hidden_layers\" is %" PRId64, i->g->path, theirs.text, i->layers);
    if (!strcmp(f.end, ".bias") && !(f.name->bias & i->biases))
        import_fail(i, "%s: tensor %s, but config.json says nothing of such biases", i->g->path, theirs.text);
    if (f.layer == NOT_SET) snprintf(name, sizeof name, "%s%s", f.name->ours, f.end);
    else snprintf(name, sizeof name, "blk.%" PRId64 ".%s%s", f.layer, f.name->ours, f.end);
    if (i->failed) return;
    if (f.name->deed == EXPERT) add_expert(i, &f, name, s, file);
    else add_plain(i, &f, name, s, file);
}

void hf_tensors_add(Import *i, const Safetensors *s, uint32_t file) {
    for (size_t k = 0; k < s->n && !i->failed; k++) add_one(i, &s->tensor[k], file);
}

void import_vector(Import *i, const char *name, const float *values, size_t n) {
    size_t bytes = n * sizeof *values;
    uint8_t *memory = i->failed ? NULL : model_file_alloc(i->g, bytes, i->e);
    int64_t k = memory ? add(i, name) : NOT_SET;
    if (k == NOT_SET) {
        i->failed = true;
        return;
    }
    memcpy(memory, values, bytes);
    DataFile f = {.fd = -1, .memory = memory, .memory_bytes = bytes, .bytes = bytes};
    FileTensor *t = &i->g->tensors[k];
    t->dims[0] = n;
    t->bytes = bytes;
    t->file = (uint32_t)i->g->n_files;
    set_type(t, QT_F32);
    if (model_file_add(i->g, i->path, f, i->e)) i->failed = true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* GGUF's name of a tensor; layer NOT_SET: it is in none. */
static const FileTensor *find(const Import *i, int64_t layer, const char *ours, const char *end, char name[96]) {
    if (layer == NOT_SET) snprintf(name, 96, "%s%s", ours, end);
    else snprintf(name, 96, "blk.%" PRId64 ".%s%s", layer, ours, end);
    return file_tensor(i->g, name);
}

/* A linear that is there must have the bias that its class or config.json promises. */
static void check_bias(Import *i, const HfName *n) {
    char name[96];
    bool layers = strchr(n->theirs, '*') != NULL;
    for (int64_t l = 0; l < (layers ? i->layers : 1) && !i->failed; l++) {
        int64_t layer = layers ? l : NOT_SET;
        if (find(i, layer, n->ours, ".weight", name) && !find(i, layer, n->ours, ".bias", name))
            import_fail(i, "%s: tensor %s is missing (\"%s\" of the %s)", i->g->path, name, n->theirs, i->class->name);
    }
}

void hf_tensors_finish(Import *i) {
    if (!i->failed && model_file_map_tensors(i->g, i->e)) i->failed = true;
    for (int64_t k = 0; k < i->layers * EXPERT_KINDS && i->experts && !i->failed; k++) {
        const Experts *x = &i->experts[k];
        if (x->stored && x->missing)
            import_fail(i, "%s: tensor %s lacks %zu of %" PRId64 " experts", i->g->path,
                        text_printable(i->g->tensors[x->tensor].name).text, x->missing, i->n_experts);
    }
    if (i->failed) return;
    const FileTensor *embedding = file_tensor(i->g, "token_embd.weight");
    if (embedding && embedding->dims[1] != (uint64_t)i->vocab)
        import_fail(i, "%s: the embedding has %" PRIu64 " rows, but \"vocab_size\" is %" PRId64, i->g->path,
                    embedding->dims[1], i->vocab);
    if (!i->tied && !file_tensor(i->g, "output.weight"))
        import_fail(i, "%s: lm_head.weight is missing, and config.json does not tie it to the embedding", i->g->path);
    for (const HfName *const *table = tables[i->class->names]; *table; table++)
        for (const HfName *n = *table; n->theirs; n++)
            if (n->bias & i->biases) check_bias(i, n);
}
