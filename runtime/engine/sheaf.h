/* Sheaf's public interface: one model over all the ranks that mpirun gives, on CPUs.
 *
 * Every rank makes the same calls to open things (they are collective: all ranks, same arguments, same order). Then
 * rank 0 drives (sheaf_step and the calls marked "rank 0"), and every other rank sits in sheaf_follow until rank 0 ends
 * the session. In a job of one rank there is nothing to follow.
 *
 * A function that can fail returns 0, or -1 with one line in `err`. A failure of any rank in a collective call is
 * returned on all of them with the same message. Not thread-safe: one thread of a process calls this interface.
 */
#ifndef SHEAF_H
#define SHEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* the library hides everything that is not declared here */

typedef struct SheafErr {
    char msg[512];
} SheafErr;

typedef struct SheafRuntime SheafRuntime; /* the ranks, threads, CPU */
typedef struct SheafModel SheafModel;     /* a file: what it says, its tokenizer; no weights */
typedef struct SheafSession SheafSession; /* weights in memory, compiled steps, KV cache */

const char *sheaf_version(void);

/* ---- the ranks --------------------------------------------------------------------------------------------------- */
typedef struct SheafRuntimeOptions {
    int threads;           /* per rank; 0: the physical cores this rank may use, shared out among the host's ranks */
    const char *cores;     /* CPUs for each host's ranks together, as "0-7,16-23"; NULL: as the launcher bound them */
    bool pin;              /* pin threads to cores */
    bool each_rank_a_host; /* network path between all ranks */
    bool check;            /* compare hashes over ranks after every collective */
    const char *wire;      /* "f32" or "bf16" between hosts; NULL: f32 */
    const char
        *isa; /* force a lower instruction set ("ref", "avx2", "avx512vnni"); NULL or "": the best that all have */
    const char *activations; /* what meets quantised weights: "int16" or "int8"; NULL or "": int16 */
    const char *trace;       /* file for a Chrome trace, written by sheaf_runtime_close; NULL: none */
    double deadline_s;       /* how long a rank may be silent, or a step stand still; 0: 60 */
    /* When a rank is lost (stopped, dead, cut off) or fails in the middle of a step, every other rank's process ends by
     * itself, with status 1, whatever it waits for. This is called before, on the one rank that is to say why, from a
     * thread of the library's own; NULL: nobody says it. */
    void (*lost)(void *arg, const SheafErr *why);
    /* On rank 0, once: a collective has waited far longer than is usual, with one line that says for whom. NULL: none.
     */
    void (*warn)(void *arg, const SheafErr *what);
    void *arg;   /* of both */
    bool verify; /* send a checksum after each message between hosts; a mismatch ends the job */
} SheafRuntimeOptions;

int sheaf_runtime_open(const SheafRuntimeOptions *o, SheafRuntime **out, SheafErr *err); /* collective */
int sheaf_runtime_close(SheafRuntime *rt, SheafErr *err);                                /* collective */
int sheaf_rank(const SheafRuntime *rt);                                                  /* local */
int sheaf_ranks(const SheafRuntime *rt);
int sheaf_hosts(const SheafRuntime *rt);
int sheaf_threads(const SheafRuntime *rt);
const char *sheaf_isa(const SheafRuntime *rt);
typedef struct SheafPlace { /* where a rank's threads run */
    int threads;
    char host[65];
    char cpus[64];  /* "0-3"; cut to fit; "": not pinned */
    char nodes[32]; /* NUMA nodes of its memory, "0" or "0-1"; "": not pinned */
} SheafPlace;
const SheafPlace *sheaf_place(const SheafRuntime *rt, int rank); /* of any rank */
/* What was wrong with the launcher's binding of the ranks and what was made of it, a sentence for each host where
 * something was; "": nothing. The same on all ranks. */
const char *sheaf_place_warning(const SheafRuntime *rt);
/* Agreement between ranks over a failure outside this library (collective): returns 0 when `failed` is false on all,
 * else -1 everywhere with the lowest failing rank's `mine`. */
int sheaf_agree(SheafRuntime *rt, bool failed, const SheafErr *mine, SheafErr *err);

/* Local, and safe in a signal handler: this rank is asked for an early end. All ranks learn of it within a second; to
 * look for it and to end is the caller's affair. */
void sheaf_interrupt(SheafRuntime *rt);
bool sheaf_interrupted(const SheafRuntime *rt); /* any rank was asked */

/* ---- how fast the ranks exchange data --------------------------------------------------------------------------- */
typedef struct SheafCommTiming {
    bool between_hosts;  /* over all ranks, through the network; else over those of rank 0's host */
    bool two_shot;       /* everyone sums a slice, then all gather the slices; else everyone sums everything */
    bool chosen;         /* sums of this size are made this way */
    uint64_t bytes;      /* of each rank's addends, fp32 */
    double us, least_us; /* microseconds of a sum over the ranks: the median of the rounds, and the least */
    double mpi_us;       /* of MPI_Allreduce over the same ranks: the median */
    double limit_us;     /* what the machine's own exchange of so much data takes, measured too; see comm/bench.h */
} SheafCommTiming;

enum { SHEAF_COMM_TIMINGS = 32, SHEAF_COMM_ROUNDS = 1000 };
typedef struct SheafCommBench {
    double flag_us;    /* a cache line's way between two ranks of a host; 0: rank 0 is alone there */
    double message_us; /* an empty message's way between two hosts; 0: there is one */
    int n;
    SheafCommTiming row[SHEAF_COMM_TIMINGS];
} SheafCommBench;
/* Measures sums of several sizes, `rounds` (1 to SHEAF_COMM_ROUNDS) times in turns with what they are compared with. An
 * error in a job of one rank. Collective; *out is filled on rank 0, zero on the others. */
int sheaf_comm_bench(SheafRuntime *rt, int rounds, SheafCommBench *out, SheafErr *err);

/* ---- a model file ------------------------------------------------------------------------------------------------ */
int sheaf_model_open(SheafRuntime *rt, const char *path, SheafModel **out, SheafErr *err); /* collective */
void sheaf_model_close(SheafModel *m);                                                     /* local */

/* Whether the model's files are as they were, each host's. `how`: "stored": by the hashes that sheaf_quantize stores in
 * what it writes; the SHA-256, 64 hexadecimal digits, of the one file that all tensors are in; or the path of a
 * file as sha256sum writes it, with a line for each file that tensors are in. `progress` (or NULL) is called on each
 * rank. Collective. */
int sheaf_model_check(SheafModel *m, const char *how, void (*progress)(void *arg, uint64_t done, uint64_t total),
                      void *arg, SheafErr *err);

typedef struct SheafTypeCount { /* how much of the file has which type */
    const char *type;
    int64_t tensors;
    uint64_t bytes;        /* in the file */
    uint64_t memory_bytes; /* of a model: in the layout that kernels read, for which some types grow */
} SheafTypeCount;

typedef struct SheafModelInfo { /* strings live as long as the model; "" when the file does not say */
    bool net;                   /* named arrays in and out (sheaf_net_*); else a language model (sheaf_session_*) */
    int64_t operators;          /* of a net, as the file has them */
    const char *format, *architecture, *name, *license, *size_label, *tokenizer, *pre_tokenizer, *chat_template;
    uint64_t file_bytes, weight_bytes, memory_bytes, parameters; /* memory_bytes: of the weights, held once */
    int64_t layers, width, ffn_width, heads, kv_heads, head_dim, vocabulary, context;
    double rope_base;
    bool encoder;                       /* the model makes embeddings (sheaf_embed), not text */
    const char *pooling;                /* of an encoder: "mean", "cls", "last", or "" when the file does not say */
    int64_t experts, experts_used;      /* of each layer, and those that a token gets; 0: no mixture */
    int64_t expert_width, shared_width; /* of one of them, and of the one that all tokens get (0: there is none) */
    uint64_t active_parameters;         /* without the experts that a token does not get */
    int64_t tensors;
    int n_types;
    SheafTypeCount types[32];
    /* over all ranks without replication, fp16: of the layers that see all positions, and of those with a window; an
     * encoder keeps none */
    uint64_t kv_bytes_per_token, kv_window_bytes_per_token;
    int64_t window; /* positions that layers with a window see (the largest), 0: there are none */
} SheafModelInfo;
const SheafModelInfo *sheaf_model_info(const SheafModel *m); /* local */

/* ---- other number formats for a file's weights ---------------------------------------------------------------------
 */
typedef struct SheafQuantizeOptions {
    const char *type; /* what matrices become: a name of GGUF's types, in any case: "f32", "f16", "bf16", "q4_0",
                         "q4_1", "q5_0", "q5_1", "q8_0", "q2_k" ... "q6_k", "iq4_nl", "iq4_xs" */
    const char *const *rules; /* [n_rules] "PATTERN=TYPE" (a shell pattern), over `type` for the tensors whose name
                                 matches; the first that matches counts. TYPE may be "keep" */
    int n_rules;
    bool (*progress)(void *arg, uint64_t bytes_done,
                     uint64_t bytes_total); /* rank 0: of the input; false: stop; or NULL */
    void *progress_arg;
} SheafQuantizeOptions;

typedef struct SheafQuantizeInfo {      /* rank 0; zero on the others */
    bool stopped;                       /* `progress` said so: there is no output */
    uint64_t bytes_before, bytes_after; /* of the files */
    int64_t tensors, converted;
    int64_t requantised;             /* of those converted: from a quantised type, so that two errors add up */
    int64_t replaced;                /* of those converted: to another type than was asked for, since their rows are no
                                        whole blocks of 256 */
    int64_t vectors, others, uneven; /* kept: vectors and single rows; what a rule or its name keeps, or has the type
                                        already; matrices whose rows are no whole blocks of 32 either */
    char uneven_name[72];            /* the first that is replaced or uneven */
    int64_t uneven_columns;
    double relative_error; /* over all converted weights: root of sum (w' - w)^2 / sum w^2 */
    int n_types;
    SheafTypeCount types[32];    /* of the new file */
    char foreign_tokenizer[256]; /* why the tokenizer stays a tokenizer.json, which llama.cpp does not read; or "" */
} SheafQuantizeInfo;

/* Writes the GGUF file `out` with the metadata of `in` (a file or a folder, as sheaf_model_open takes it) and its
 * tensors in other types: matrices (tensors of two dimensions or more with at least two rows) named "*.weight", but for
 * a few that other programs want in full precision; a rule takes any matrix. Where rows are no whole blocks of 256, a
 * type with such blocks gives way to the one with blocks of 32 that llama.cpp takes then: q4_k to q5_0, q5_k to q5_1,
 * q6_k to q8_0, iq4_xs to iq4_nl, q2_k and q3_k to q4_0. Whether this library runs the architecture or the types of a
 * GGUF file does not matter. `out` appears when it is complete; a failure leaves nothing. Collective; rank 0 works,
 * with all its threads. */
int sheaf_quantize(SheafRuntime *rt, const char *in, const char *out, const SheafQuantizeOptions *o,
                   SheafQuantizeInfo *info, SheafErr *err);

/* ---- tokens (local) ---------------------------------------------------------------------------------------------- */
/* Text (any bytes; what is not UTF-8 is an error that names the offset) -> ids, malloc'ed into *ids, which the caller
 * frees with free(). `special`: text like <|im_end|> becomes the special token. BOS is added where the model's flags
 * say so and `bos` is true. */
int sheaf_tokenize(const SheafModel *m, const char *text, size_t bytes, bool bos, bool special, int32_t **ids,
                   size_t *n, SheafErr *err);
/* The bytes of one token (not always whole UTF-8 characters), into buf; returns their number, or the number needed when
 * that is more than `cap`. Special tokens give their text when `special`, else nothing. */
size_t sheaf_token_bytes(const SheafModel *m, int32_t id, bool special, char *buf, size_t cap);
bool sheaf_token_ends(const SheafModel *m, int32_t id); /* end of text, end of turn */
int32_t sheaf_token_bos(const SheafModel *m);           /* -1: the model has or wants none */

/* ---- conversations (local) --------------------------------------------------------------------------------------- */
/* How a model was taught to converse: the form of its turns. A file brings it as a template, a program whose kinds are
 * known here by their text; what is rendered equals what Hugging Face's transformers make of it. */
typedef struct SheafChat SheafChat;
/* `name` NULL: the form that the model's own template has; an unknown one is an error that says how it begins and lists
 * the names there are. Else the form of that name. The model's tokens that end a turn of this form count from now on as
 * such in sheaf_token_ends. `m` must outlive the chat. */
int sheaf_chat_open(SheafModel *m, const char *name, SheafChat **out, SheafErr *err);
void sheaf_chat_close(SheafChat *c);
const char *sheaf_chat_name(const SheafChat *c);
/* When the vocabulary has no token that ends a turn of this form: the text that does (an answer stops before it), which
 * also says that the model was hardly taught this form. Else NULL. */
const char *sheaf_chat_stop(const SheafChat *c);

typedef enum SheafRole { SHEAF_SYSTEM, SHEAF_USER, SHEAF_ASSISTANT } SheafRole;
typedef struct SheafMessage {
    SheafRole role;
    const char *text; /* UTF-8 */
    size_t bytes;
} SheafMessage;
/* The conversation as text, up to where the answer to its last message begins. Messages: a system prompt or none, then
 * user and assistant by turns, the first and the last the user's. Refused: a system prompt where the form knows none
 * (Gemma before 3), none where the template would make up one that is not known here. *text is malloc'ed, the caller's.
 */
int sheaf_chat_text(const SheafChat *c, const SheafMessage *messages, size_t n, char **text, size_t *bytes,
                    SheafErr *err);
/* The same as ids. The names of special tokens within a message are plain text, whoever said them. BOS comes first
 * where the form or the model's flags say so. To go on with a conversation run what differs: the ids of the longer one
 * begin with those that are in the KV cache, up to where a template or the tokenizer writes the last answer in another
 * way than the model did (sheaf_seq_truncate to the common part, or to 0 when that is before sheaf_seq_earliest;
 * sheaf_step for the rest). *ids as for sheaf_tokenize.
 */
int sheaf_chat_tokens(const SheafChat *c, const SheafMessage *messages, size_t n, int32_t **ids, size_t *n_ids,
                      SheafErr *err);

/* ---- a plan (local, loads no weights) ---------------------------------------------------------------------------- */
typedef struct SheafPlanRank {
    int64_t heads, kv_heads, ffn_rows, vocab_rows;
    int64_t experts; /* of each layer, whole or a part of each (then ffn_rows are a part); 0: no mixture */
    uint64_t weight_bytes, kv_bytes, activation_bytes;
    SheafPlace place; /* if all ranks ran on this machine, or the one that hwloc is told to pretend, unbound */
} SheafPlanRank;
typedef struct SheafPlan {
    int ranks;
    uint64_t hash;
    SheafPlanRank *rank;           /* [ranks] */
    uint64_t wire_bytes_per_token; /* bytes one rank gives to others for a token, over all collectives */
    int64_t collectives_per_step;
    uint64_t weight_bytes_total; /* over all ranks; more than the model's memory_bytes where something is replicated */
    const char *machine;         /* one line about the machine that the ranks were placed on */
    const char *advice;          /* one line when this rank count is a bad idea, else "" */
} SheafPlan;
/* For `ranks` ranks, a context of n_ctx tokens, whatever the job's own size. Free with sheaf_plan_free. */
int sheaf_plan(const SheafModel *m, int ranks, int64_t n_ctx, SheafPlan **out, SheafErr *err);
void sheaf_plan_free(SheafPlan *p);

/* ---- a session --------------------------------------------------------------------------------------------------- */
typedef struct SheafSessionOptions {
    int64_t n_ctx;       /* positions a sequence may have; 0: the smaller of 4096 and the model's own. A model with
                            LongRoPE turns by its long factors when this is more than it was first trained for */
    int64_t n_seqs;      /* sequences held at once; 0: 1 */
    int64_t max_batch;   /* tokens in one step at most; 0: 512 */
    int64_t max_outputs; /* rows of a step that may want a result; 0: n_seqs */
    bool logits;         /* whole rows of logits may be asked for */
    void (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* rank 0, while loading; or NULL */
    void *progress_arg;
} SheafSessionOptions;

int sheaf_session_open(SheafModel *m, const SheafSessionOptions *o, SheafSession **out, SheafErr *err); /* collective */
void sheaf_session_close(
    SheafSession *s); /* rank 0 calls it to release the followers; each rank frees its own with it */
int sheaf_follow(SheafSession *s, SheafErr *err); /* ranks > 0: executes steps until rank 0 closes the session */

/* A token of a step. The tokens of a sequence come at consecutive positions, starting where the sequence ended. */
typedef struct SheafToken {
    int32_t id;
    int32_t seq; /* 0 .. n_seqs - 1 */
    int32_t pos;
    int32_t target; /* id whose logit is wanted after this token, or -1 */
    bool output;    /* a result is wanted for this token */
} SheafToken;

enum { SHEAF_TOP = 64 };
typedef struct SheafResult { /* for one output token, in the order of the batch */
    double logsumexp;        /* of all logits */
    float target_logit;      /* of `target`, NaN when it was -1 */
    int n_top;               /* largest logits, descending */
    int32_t id[SHEAF_TOP];
    float logit[SHEAF_TOP];
} SheafResult;

/* Rank 0: runs n tokens (1 .. max_batch) through the model; results[] has room for the tokens with `output`. `logits`,
 * when not NULL, gets [outputs][vocabulary] (the session must have been opened for it). A step that is refused (-1)
 * changes nothing; what fails inside a step ends the processes of a job of several ranks (`lost` above). */
int sheaf_step(SheafSession *s, const SheafToken *tokens, size_t n, SheafResult *results, float *logits, SheafErr *err);
/* Rank 0: forgets the positions >= pos of a sequence (0: all of it), so that its blocks are free again. Layers with a
 * sliding window drop what they no longer see when a step needs the room: a position above 0 and below
 * sheaf_seq_earliest is refused, since what it would see is gone; cut at 0 and run the tokens again. */
int sheaf_seq_truncate(SheafSession *s, int32_t seq, int64_t pos, SheafErr *err);
/* Rank 0: the positions from here on are all that a sequence can be cut at, besides 0. 0 where no layer has a window;
 * never more than the position at which the last step began. */
int64_t sheaf_seq_earliest(const SheafSession *s, int32_t seq);

/* ---- embeddings: a session of an encoder (SheafModelInfo.encoder) takes this in place of sheaf_step ----------------
 */
typedef struct SheafSequence {
    const int32_t *ids; /* as sheaf_tokenize gives them, with what the model wants before and after */
    int64_t n;          /* 1 .. n_ctx */
} SheafSequence;
typedef struct SheafEmbedOptions {
    const char *pooling; /* "mean", "cls" (the first token) or "last"; NULL or "": the model's own */
    bool normalize;      /* to length 1 (a vector of zeroes stays one) */
} SheafEmbedOptions;
/* Rank 0: out[n][width], one embedding for each sequence; n at most max_outputs, with at most max_batch tokens in all.
 * A sequence's embedding does not depend on those beside it. */
int sheaf_embed(SheafSession *s, const SheafSequence *seqs, size_t n, const SheafEmbedOptions *o, float *out,
                SheafErr *err);

typedef struct SheafSessionInfo {
    double load_s;
    uint64_t weight_bytes, weight_bytes_resident, weight_bytes_all_ranks; /* this rank's, measured, and the sum */
    uint64_t kv_bytes, activation_bytes;
    uint64_t plan_hash;
    int64_t n_ctx, max_batch, n_seqs;
} SheafSessionInfo;
const SheafSessionInfo *sheaf_session_info(const SheafSession *s); /* local */

/* ---- nets: named arrays in and out ---------------------------------------------------------------------------------
 */
typedef enum SheafType {
    SHEAF_F32,
    SHEAF_F64,
    SHEAF_F16,
    SHEAF_BF16,
    SHEAF_I8,
    SHEAF_U8,
    SHEAF_I16,
    SHEAF_U16,
    SHEAF_I32,
    SHEAF_U32,
    SHEAF_I64,
    SHEAF_U64,
    SHEAF_BOOL, /* a byte, 0 or 1 */
    SHEAF_TYPES
} SheafType;
const char *sheaf_type_name(SheafType t); /* "f32" */
size_t sheaf_type_bytes(SheafType t);     /* of an element */

enum { SHEAF_AXES = 8 };
typedef struct SheafArray {
    SheafType type;
    int n_dims;
    int64_t dim[SHEAF_AXES];
    void *data; /* row after row */
} SheafArray;

typedef struct SheafPort { /* an input or a result of a net; strings live as long as the model */
    const char *name;
    SheafType type;
    int n_dims;                     /* -1: any */
    int64_t dim[SHEAF_AXES];        /* -1: any size */
    const char *symbol[SHEAF_AXES]; /* the name of such a size, "" when it has none */
} SheafPort;
int sheaf_n_inputs(const SheafModel *m); /* local, like the next three; 0 for a language model */
int sheaf_n_results(const SheafModel *m);
const SheafPort *sheaf_input(const SheafModel *m, int i);
const SheafPort *sheaf_result(const SheafModel *m, int i);

typedef struct SheafNetOptions {
    bool shards; /* all ranks work on the same arrays together, channels divided; else each on its own arrays */
} SheafNetOptions;

typedef struct SheafNet SheafNet; /* a net's weights and steps for the shapes it ran last */
int sheaf_net_open(SheafModel *m, const SheafNetOptions *o, SheafNet **out, SheafErr *err); /* collective */
void sheaf_net_close(SheafNet *n);                                                          /* local */
/* in: [sheaf_n_inputs]; out: [sheaf_n_results], filled with arrays that are valid until the next call. New shapes are
 * compiled when they first come. Local; with shards collective: all ranks get rank 0's arrays, whatever they pass. */
int sheaf_net_run(SheafNet *n, const SheafArray *in, SheafArray *out, SheafErr *err);

typedef struct SheafNetInfo { /* of what ran last */
    uint64_t weight_bytes, activation_bytes;
    uint64_t plan_hash;
    double compile_s;  /* the time it took to get ready for the shapes, 0 when it was */
    int64_t operators; /* after fusion */
} SheafNetInfo;
SheafNetInfo sheaf_net_info(const SheafNet *n); /* local */

/* Rank r gives bytes[r] bytes (known to all); all get them one after the other. Collective. */
int sheaf_gather(SheafRuntime *rt, const void *mine, const size_t *bytes, void *all, SheafErr *err);

/* ---- choosing the next token (local) ----------------------------------------------------------------------------- */
typedef struct SheafSampling {
    float temperature; /* 0: greedy */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint64_t seed;
} SheafSampling;
typedef struct SheafSampler SheafSampler; /* the random state */
int sheaf_sampler_new(const SheafSampling *o, SheafSampler **out,
                      SheafErr *err); /* refuses values out of range by name */
void sheaf_sampler_free(SheafSampler *s);
bool sheaf_sampler_wants_logits(const SheafSampler *s); /* more candidates than SHEAF_TOP may matter */
/* From a result; `logits` [vocabulary] when sheaf_sampler_wants_logits. In the order top-k, top-p, min-p, temperature,
 * as llama.cpp's default chain has them. */
int32_t sheaf_sample(SheafSampler *s, const SheafResult *r, const float *logits, int64_t vocabulary);

/* ---- images (local; unlike the rest, several threads may call these at once) ----------------------------------------
 */
typedef struct SheafImage {
    int64_t width, height;
    uint8_t *rgb; /* [height][width][3], owned: sheaf_image_free */
} SheafImage;

/* JPEG (sequential or progressive, 8 bits; grey, YCbCr, RGB, CMYK, YCCK) and PNG (all kinds), turned upright as EXIF
 * says. The pixels are those that Pillow's convert("RGB") gives: alpha is dropped, CMYK is taken for inverted as Adobe
 * writes it, colour profiles and gamma are not applied. Of 16 bits the upper 8 count. What is cut off, damaged, or
 * larger than 2^27 pixels is refused. Nothing to free after a failure. */
int sheaf_image_read(const char *path, SheafImage *out, SheafErr *err);
/* From memory; `name` is for messages. */
int sheaf_image_decode(const void *bytes, size_t n, const char *name, SheafImage *out, SheafErr *err);
void sheaf_image_free(SheafImage *i);

typedef struct SheafPreprocess { /* what a net wants of an image, in this order */
    int64_t resize;              /* its short side becomes this, the long one in proportion (rounded down); 0: no */
    int64_t resize_width, resize_height; /* in place of `resize`: to this size; 0: no */
    int64_t crop_width, crop_height;     /* this much of the centre; 0: all */
    const char *interpolation;           /* "bilinear" or "bicubic", both over all pixels that a new one covers;
                                            NULL: bilinear */
    double scale, mean[3], std[3];       /* red, green, blue: (value * scale - mean) / std */
    bool nhwc;                           /* [height][width][3], else [3][height][width] */
} SheafPreprocess;

/* Resizes and crops. The same as Pillow's resize() to the bit; cropped as torchvision does. */
int sheaf_image_fit(const SheafImage *in, const SheafPreprocess *p, SheafImage *out, SheafErr *err);
/* out: 3 * height * width floats in the layout wanted. */
void sheaf_image_normalise(const SheafImage *in, const SheafPreprocess *p, float *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
