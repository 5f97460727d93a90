#include "engine/hf_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/char_bpe.h"
#include "engine/merges.h"
#include "engine/unigram.h"
#include "engine/wordpiece.h"

typedef struct Kind {
    const char *type;
    const char *keys[10]; /* what the object may have besides "type" and "vocab" */
    int (*read)(HfModel *m, const cJSON *o, Err *e);
    int (*encode)(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e);
} Kind;

struct HfModel { /* of the three, what the kind uses */
    const Kind *kind;
    const Vocab *vocab;
    CharBpe bpe;
    Unigram unigram;
    WordPiece pieces;
};

/* The id of the token that a member names; *out stays when it names none. */
static int token_member(const HfModel *m, const cJSON *o, const char *key, bool required, int32_t *out, Err *e) {
    Text text = {0};
    if (hf_json_string(o, "model", key, required, &text, e)) return -1;
    if (!text.data) return 0;
    *out = vocab_find(m->vocab, text.data, text.size);
    if (*out >= 0) return 0;
    return err_set(e, "model: \"%s\" is \"%s\", which is no token", key, text_printable(text).text);
}

/* ---- BPE --------------------------------------------------------------------------------------------------------- */

/* "LEFT RIGHT", or ["LEFT", "RIGHT"]. */
static int add_merge(HfModel *m, const cJSON *v, uint32_t rank, Err *e) {
    Text left = {0}, right = {0};
    if (cJSON_IsString(v)) {
        const char *space = strchr(v->valuestring, ' ');
        if (space) {
            left = (Text){v->valuestring, (size_t)(space - v->valuestring)};
            right = hf_string(space + 1);
        }
    } else if (cJSON_IsArray(v) && cJSON_GetArraySize(v) == 2 && cJSON_IsString(v->child) &&
               cJSON_IsString(v->child->next)) {
        left = hf_string(v->child->valuestring);
        right = hf_string(v->child->next->valuestring);
    }
    if (!left.size || !right.size) return err_set(e, "model.merges: entry %u is no two texts", rank);
    return merges_add(&m->bpe.bpe, m->vocab, left, right, m->bpe.continuing.size, rank, "model.merges", e);
}

static int read_bpe(HfModel *m, const cJSON *o, Err *e) {
    CharBpe *b = &m->bpe;
    *b = (CharBpe){.vocab = m->vocab, .unknown = -1};
    const cJSON *dropout = hf_json_get(o, "dropout"), *merges = hf_json_get(o, "merges");
    if (dropout && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
        return err_set(e, "model: \"dropout\" (merges left out by chance) is not supported");
    if (token_member(m, o, "unk_token", false, &b->unknown, e) ||
        hf_json_string(o, "model", "continuing_subword_prefix", false, &b->continuing, e) ||
        hf_json_string(o, "model", "end_of_word_suffix", false, &b->ending, e) ||
        hf_json_bool(o, "model", "fuse_unk", false, &b->fuse_unknown, e) ||
        hf_json_bool(o, "model", "byte_fallback", false, &b->bytes, e) ||
        hf_json_bool(o, "model", "ignore_merges", false, &b->ignore_merges, e))
        return -1;
    vocab_find_bytes(m->vocab, b->byte_id);
    char_bpe_find_cuts(b);
    if (!cJSON_IsArray(merges)) return err_set(e, "model: \"merges\" is no list");
    if (bpe_init(&b->bpe, (size_t)cJSON_GetArraySize(merges), e)) return -1;
    uint32_t rank = 0;
    for (const cJSON *v = merges->child; v; v = v->next)
        if (add_merge(m, v, rank++, e)) return -1;
    return 0;
}

static int encode_bpe(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e) {
    return char_bpe_encode(&m->bpe, piece, bytes, ids, e);
}

/* ---- Unigram ----------------------------------------------------------------------------------------------------- */

/* The scores of the pieces, in the order of their ids; malloc'ed. Other tokens are none of the model's. */
static int read_scores(const HfModel *m, const cJSON *list, double **out, double *lowest, Err *e) {
    size_t n = (size_t)m->vocab->n, i = 0;
    double *scores = malloc(n * sizeof *scores);
    *out = NULL;
    if (!scores) return err_set(e, "out of memory for %zu scores", n);
    for (size_t j = 0; j < n; j++) scores[j] = -INFINITY;
    *lowest = INFINITY;
    for (const cJSON *v = list->child; v; v = v->next, i++) {
        const cJSON *score = v->child ? v->child->next : NULL;
        if (!score || !cJSON_IsNumber(score) || score->next || !(fabs(score->valuedouble) <= 1e38)) {
            free(scores);
            return err_set(e, "model.vocab: entry %zu has no score", i);
        }
        scores[i] = score->valuedouble;
        if (scores[i] < *lowest) *lowest = scores[i];
    }
    *out = scores;
    return 0;
}

static int read_unigram(HfModel *m, const cJSON *o, Err *e) {
    Unigram *u = &m->unigram;
    const cJSON *list = hf_json_get(o, "vocab");
    double *scores, lowest;
    int64_t unknown = -1;
    if (!cJSON_IsArray(list) || !list->child) return err_set(e, "model Unigram: \"vocab\" is no list of pieces");
    if (hf_json_int(o, "model", "unk_id", false, 0, cJSON_GetArraySize(list) - 1, &unknown, e) ||
        read_scores(m, list, &scores, &lowest, e) || unigram_init(u, m->vocab, scores, lowest, e))
        return -1;
    u->unknown = (int32_t)unknown;
    vocab_find_bytes(m->vocab, u->byte_id);
    return hf_json_bool(o, "model", "byte_fallback", false, &u->bytes, e);
}

static int encode_unigram(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e) {
    return unigram_encode(&m->unigram, piece, bytes, ids, e);
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

static int read_wordpiece(HfModel *m, const cJSON *o, Err *e) {
    WordPiece *w = &m->pieces;
    int64_t longest = 100;
    *w = (WordPiece){.vocab = m->vocab, .continuing = {"##", 2}};
    if (token_member(m, o, "unk_token", true, &w->unknown, e) ||
        hf_json_string(o, "model", "continuing_subword_prefix", false, &w->continuing, e) ||
        hf_json_int(o, "model", "max_input_chars_per_word", false, 0, 1000000, &longest, e))
        return -1;
    w->longest = (size_t)longest;
    return 0;
}

static int encode_wordpiece(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e) {
    return wordpiece_encode(&m->pieces, piece, bytes, ids, e);
}

static const Kind kinds[] = {
    {"BPE",
     {"merges", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
      "ignore_merges"},
     read_bpe,
     encode_bpe},
    {"Unigram", {"unk_id", "byte_fallback"}, read_unigram, encode_unigram},
    {"WordPiece",
     {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"},
     read_wordpiece,
     encode_wordpiece},
};

Text hf_model_type(const cJSON *o) {
    const cJSON *type = hf_json_get(o, "type");
    if (cJSON_IsString(type)) return hf_string(type->valuestring);
    return hf_string(cJSON_IsArray(hf_json_get(o, "vocab"))       ? "Unigram"
                     : hf_json_get(o, "merges")                   ? "BPE"
                     : hf_json_get(o, "max_input_chars_per_word") ? "WordPiece"
                                                                  : "(none)");
}

static int read_kind(HfModel *m, const cJSON *o, Err *e) {
    if (!cJSON_IsObject(o)) return err_set(e, "\"model\" is no object");
    Text type = hf_model_type(o), given;
    if (hf_json_string(o, "model", "type", false, &given, e)) return -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_is(type, kinds[i].type)) continue;
        const char *keys[12] = {"vocab"};
        memcpy((void *)(keys + 1), (const void *)kinds[i].keys, sizeof kinds[i].keys);
        m->kind = &kinds[i];
        return hf_json_only(o, "model", keys, e) || kinds[i].read(m, o, e) ? -1 : 0;
    }
    return err_set(e, "model \"%s\" is not supported; BPE, Unigram and WordPiece are", text_printable(type).text);
}

int hf_model_create(const cJSON *o, const Vocab *v, HfModel **out, Err *e) {
    *out = NULL;
    HfModel *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, "out of memory for the model");
    m->vocab = v;
    if (read_kind(m, o, e)) {
        hf_model_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void hf_model_free(HfModel *m) {
    if (!m) return;
    char_bpe_free(&m->bpe);
    unigram_free(&m->unigram);
    free(m);
}

int hf_model_encode(HfModel *m, const char *piece, size_t bytes, Ids *ids, Err *e) {
    return m->kind->encode(m, piece, bytes, ids, e);
}
