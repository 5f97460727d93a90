/* The models of tests/fixtures/arch: a GGUF's beginning as the fixture has it, its weights made here from their names;
 * the same as the folder that transformers saves; and the logits that Hugging Face transformers gives
 * (tests/reference/tiny_architectures.py, which makes the same weights and says what a .logits file has). Needs
 * tiny_model.h and the graph layer. */
#pragma once

#include "check.h"
#include "graph/gguf.h"
#include "temp_folder.h"
#include "tiny_model.h"

enum { ARCH_TOKENS = 100, ARCH_TOP = 8, ARCH_VOCAB = 288 };

typedef struct ArchTop { /* as in the file */
    uint32_t id;
    float logit;
} ArchTop;
typedef struct ArchLogits {
    ArchTop top[ARCH_TOKENS][ARCH_TOP]; /* after each token, falling */
    float last[ARCH_VOCAB];             /* after the last */
} ArchLogits;
typedef struct ArchReference {
    uint32_t n, vocab, ids[ARCH_TOKENS];
    ArchLogits exact, fp16_cache; /* keys and values exact; rounded to fp16 */
} ArchReference;

/* Bytes of fixtures/arch/NAME.END, malloc'ed; ends the program when there is no such file. */
static inline uint8_t *arch_fixture(const char *name, const char *end, size_t *size) {
    char path[4096], part[128];
    snprintf(part, sizeof part, "arch/%s.%s", name, end);
    FILE *f = check_path(path, sizeof path, "SHEAF_FIXTURES", part) ? fopen(path, "rb") : NULL;
    enum { LARGEST = 1 << 16 };
    uint8_t *bytes = malloc(LARGEST);
    if (!f || !bytes) {
        fprintf(stderr, "SHEAF_FIXTURES has no %s\n", part);
        exit(2);
    }
    *size = fread(bytes, 1, LARGEST, f);
    fclose(f);
    return bytes;
}

static inline ArchReference arch_reference(const char *name) {
    ArchReference r;
    size_t size, at = 8;
    uint8_t *bytes = arch_fixture(name, "logits", &size);
    if (size != at + sizeof r || memcmp(bytes, "SHAR\1\0\0\0", at) != 0) {
        fprintf(stderr, "arch/%s.logits is not as expected\n", name);
        exit(2);
    }
    memcpy(&r, bytes + at, sizeof r);
    free(bytes);
    return r;
}

/* FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/). */
static inline uint64_t arch_seed(Text name) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name.size; i++) h = (h ^ (uint8_t)name.data[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* The values of a tensor of the file, into its place. */
static inline void arch_weight(const FileTensor *t, uint8_t *to) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
    uint64_t state = arch_seed(t->name), n = t->dims[0] * t->dims[1] * t->dims[2];
    bool router = strstr(name, "ffn_gate_inp") != NULL;
    if (t->n_dims == 1) {
        bool head = strstr(name, "_q_norm") || strstr(name, "_k_norm");
        float centre = strstr(name, ".bias") ? 0.0f : !strncmp(name, "output_norm", 11) ? 4.0f : head ? 1.5f : 1.0f;
        for (uint64_t i = 0; i < n; i++) {
            float x = 0.25f * tiny_random(&state) + centre;
            memcpy(to + 4 * i, &x, 4);
        }
        return;
    }
    bool sharp = strstr(name, "attn_q.") || strstr(name, "attn_k.") || strstr(name, "attn_qkv.");
    float scale = sqrtf((router ? 48.0f : sharp ? 12.0f : 3.0f) / (float)t->dims[0]);
    enum { AT_ONCE = 32 }; /* whole blocks */
    size_t bytes = 0;
    qtype_bytes((QType)t->type, AT_ONCE, &bytes);
    for (uint64_t i = 0; i < n; i += AT_ONCE) {
        float x[AT_ONCE];
        int64_t left = n - i < AT_ONCE ? (int64_t)(n - i) : AT_ONCE;
        for (int64_t k = 0; k < left; k++) {
            x[k] = scale * tiny_random(&state);
            if (t->type == QT_F32) x[k] = f16_to_f32(f32_to_f16(x[k]));
        }
        qtype_quantise((QType)t->type, x, left, to + i / AT_ONCE * bytes);
    }
}

/* The whole file NAME.gguf in memory, malloc'ed. */
static inline uint8_t *arch_model(const char *name, size_t *size) {
    enum { ENOUGH = 4 << 20 };
    ModelFile *g;
    Err e;
    uint8_t *head = arch_fixture(name, "head", size), *bytes = calloc(1, ENOUGH);
    if (!bytes || gguf_from_memory(head, *size, ENOUGH, name, &g, &e)) {
        fprintf(stderr, "arch/%s.head: %s\n", name, bytes ? e.msg : "out of memory");
        exit(2);
    }
    memcpy(bytes, head, *size);
    size_t begin = *size;
    for (size_t i = 0; i < file_n_tensors(g); i++) {
        const FileTensor *t = file_tensor_at(g, i);
        if (t->offset < begin) continue; /* the fixture has it */
        arch_weight(t, bytes + t->offset);
        if (t->offset + t->bytes > *size) *size = (t->offset + t->bytes + 31) / 32 * 32;
    }
    model_file_close(g);
    free(head);
    return bytes;
}

/* The same as a file. */
static inline void arch_write(const char *path, const char *name) {
    size_t size;
    uint8_t *bytes = arch_model(name, &size);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_FATAL(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
    free(bytes);
}

/* ---- the folder of transformers ---------------------------------------------------------------------------------- */

typedef struct __attribute__((packed)) ArchTensor { /* as in NAME.hf */
    char name[64];                                  /* of the GGUF's tensor; with /3, of the fourth matrix in it */
    uint64_t offset, bytes;                         /* in the data of model.safetensors */
    uint32_t heads;                                 /* whose rows stand in halves; 0: as in the GGUF */
    float less;                                     /* what is taken from each value */
} ArchTensor;

/* Rows 0, 1, 2, 3 .. of every head as 0, 2, .., 1, 3, ..; a vector's values are its rows. */
static inline void arch_halves(uint8_t *data, size_t bytes, size_t rows, size_t heads) {
    size_t size = bytes / rows, n = rows / heads;
    uint8_t *old = malloc(bytes);
    if (!old) abort();
    memcpy(old, data, bytes);
    for (size_t r = 0; r < rows; r++) {
        size_t in = r % n, to = r - in + in / 2 + in % 2 * (n / 2);
        memcpy(data + to * size, old + r * size, size);
    }
    free(old);
}

/* The data of model.safetensors, `size` bytes, from those of the GGUF. */
static inline void arch_hf_data(const ModelFile *g, const ArchTensor *t, uint8_t *data) {
    char name[64];
    int part = 0;
    bool one = sscanf(t->name, "%63[^/]/%d", name, &part) == 2;
    const FileTensor *f = file_tensor(g, name);
    uint8_t *to = data + t->offset, *whole = f ? malloc(f->bytes) : NULL;
    if (!whole || t->bytes != f->bytes / (one ? f->dims[2] : 1) || (uint64_t)part >= f->dims[2]) abort();
    arch_weight(f, whole);
    memcpy(to, whole + (uint64_t)part * t->bytes, t->bytes);
    free(whole);
    if (t->heads) arch_halves(to, t->bytes, (size_t)f->dims[f->n_dims - 1], t->heads);
    for (uint64_t i = 0; t->less != 0 && i < t->bytes / 4; i++) {
        float x;
        memcpy(&x, to + 4 * i, 4);
        x -= t->less;
        memcpy(to + 4 * i, &x, 4);
    }
}

/* Takes n bytes of a fixture. */
static inline const uint8_t *arch_take(const uint8_t **at, const uint8_t *end, size_t n) {
    const uint8_t *p = *at;
    if (n > (size_t)(end - p)) abort();
    *at += n;
    return p;
}

/* Fills the folder with config.json, model.safetensors and tokenizer.json. The data must have the hash of those that
 * transformers saved. */
static inline void arch_folder(const char *name, const TempFolder *folder) {
    size_t size;
    uint32_t config, head, n;
    uint64_t sizes[2]; /* and the hash */
    uint8_t *fixture = arch_fixture(name, "hf", &size);
    const uint8_t *at = fixture, *end = fixture + size;
    memcpy(&config, arch_take(&at, end, 4), 4);
    temp_write(folder, "config.json", arch_take(&at, end, config), config);
    memcpy(&head, arch_take(&at, end, 4), 4);
    const uint8_t *header = arch_take(&at, end, head);
    memcpy(sizes, arch_take(&at, end, 16), 16);
    memcpy(&n, arch_take(&at, end, 4), 4);

    ModelFile *g;
    Err e;
    size_t gguf_head;
    uint8_t *gguf = arch_fixture(name, "head", &gguf_head), *bytes = calloc(1, head + sizes[0]);
    if (!bytes || gguf_from_memory(gguf, gguf_head, 4 << 20, name, &g, &e)) abort();
    memcpy(bytes, header, head);
    for (uint32_t i = 0; i < n; i++) {
        ArchTensor t;
        memcpy(&t, arch_take(&at, end, sizeof t), sizeof t);
        arch_hf_data(g, &t, bytes + head);
    }
    if (arch_seed((Text){(const char *)bytes + head, sizes[0]}) != sizes[1]) {
        fprintf(stderr, "arch/%s.hf: the weights made here are not those that transformers saved\n", name);
        exit(2);
    }
    temp_write(folder, "model.safetensors", bytes, head + sizes[0]);
    model_file_close(g);
    free(gguf);
    free(bytes);
    free(fixture);
    uint8_t *tokenizer = arch_fixture("tokenizer", "json", &size);
    temp_write(folder, "tokenizer.json", tokenizer, size);
    free(tokenizer);
}
