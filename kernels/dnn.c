/* The C interface of oneDNN (https://uxlfoundation.github.io/oneDNN/), versions 2.6 and 3. The two differ in memory
 * descriptors (structs there, handles here) and in how a convolution is described; the first part of this file hides
 * it.
 *
 * Images and results are dense [h][w][channels]: given a slice of the channels of a wider image (a submemory, channel
 * stride > channels) oneDNN 2.6 falls back on its reference loops, 0.7 GFLOP/s in place of 260 (56x56x64, 3x3,
 * AVX-512). */
#include "kernels/dnn.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* ---- what differs between versions ------------------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t Desc; /* owned */
typedef const_dnnl_memory_desc_t DescRef;
static DescRef desc_ref(const Desc *d) { return *d; }
static void desc_free(Desc *d) { dnnl_memory_desc_destroy(*d); }
static dnnl_status_t desc_strided(Desc *d, int n, const dnnl_dims_t dims, const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(d, n, dims, dnnl_f32, strides);
}
static dnnl_status_t desc_any(Desc *d, int n, const dnnl_dims_t dims) {
    return dnnl_memory_desc_create_with_tag(d, n, dims, dnnl_f32, dnnl_format_tag_any);
}
static dnnl_status_t append_function(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float a, float b) {
    return dnnl_post_ops_append_eltwise(ops, kind, a, b);
}
static dnnl_status_t conv_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, DescRef src, DescRef weights,
                               DescRef bias, DescRef dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
                               const dnnl_dims_t before, const dnnl_dims_t after, const_dnnl_primitive_attr_t attr) {
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, dnnl_convolution_direct,
                                                          src, weights, bias, dst, strides, dilations, before, after,
                                                          attr);
}
#else
typedef dnnl_memory_desc_t Desc;
typedef const dnnl_memory_desc_t *DescRef;
static DescRef desc_ref(const Desc *d) { return d; }
static void desc_free(Desc *d) { (void)d; }
static dnnl_status_t desc_strided(Desc *d, int n, const dnnl_dims_t dims, const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(d, n, dims, dnnl_f32, strides);
}
static dnnl_status_t desc_any(Desc *d, int n, const dnnl_dims_t dims) {
    return dnnl_memory_desc_init_by_tag(d, n, dims, dnnl_f32, dnnl_format_tag_any);
}
static dnnl_status_t append_function(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float a, float b) {
    return dnnl_post_ops_append_eltwise(ops, 1, kind, a, b);
}
static dnnl_status_t conv_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, DescRef src, DescRef weights,
                               DescRef bias, DescRef dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
                               const dnnl_dims_t before, const dnnl_dims_t after, const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    dnnl_status_t s =
        dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_inference, dnnl_convolution_direct, src, weights,
                                                   bias, dst, strides, dilations, before, after);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}
#endif

/* ---- one thread -------------------------------------------------------------------------------------------------- */

/* Debian's oneDNN shares work over OpenMP threads; ours share it above, so OpenMP's width is 1 around every call, and
 * then again what it was: the thread may be the application's. The width belongs to the calling thread. The functions
 * are looked up in whichever OpenMP library oneDNN brought; a build without OpenMP has none, and needs none. */
static int (*omp_width)(void);
static void (*omp_set_width)(int);
static pthread_once_t omp_once = PTHREAD_ONCE_INIT;

static void omp_find(void) {
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads"), *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!get || !set) return;
    memcpy(&omp_width, &get, sizeof get);
    memcpy(&omp_set_width, &set, sizeof set);
}

static int enter_one_thread(void) {
    pthread_once(&omp_once, omp_find);
    int width = omp_width ? omp_width() : 1;
    if (width != 1) omp_set_width(1);
    return width;
}

static void leave_one_thread(int width) {
    if (width != 1) omp_set_width(width);
}

/* ---- a convolution ----------------------------------------------------------------------------------------------- */

struct DnnConv {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t plan;
    dnnl_primitive_t primitive;
    dnnl_memory_t src, dst, weights, bias, scratch, residual;
    void *weight_data, *bias_data, *scratch_data; /* weight_data may be another's */
    size_t bytes;                                 /* of weights and bias that are its own */
    bool shares_weights;
};

static int refuse(Err *e, dnnl_status_t status, const char *what) {
    static const char *const words[] = {"success",          "out of memory", "invalid arguments", "unimplemented",
                                        "last of its kind", "runtime error", "not required"};
    return err_set(e, "oneDNN: %s: %s", what,
                   (size_t)status < sizeof words / sizeof *words ? words[status] : "unknown status");
}

/* `data` as oneDNN's memory of that description. */
static int wrap(const DnnConv *d, DescRef desc, void *data, dnnl_memory_t *memory, Err *e) {
    dnnl_status_t s = dnnl_memory_create(memory, desc, d->engine, data);
    return s == dnnl_success ? 0 : refuse(e, s, "memory");
}

/* New memory of that description, for the DnnConv to own; at least a cache line, so that it is never NULL. */
static int allocate(const DnnConv *d, DescRef desc, void **owned, dnnl_memory_t *memory, Err *e) {
    size_t bytes = dnnl_memory_desc_get_size(desc);
    *owned = aligned_alloc(64, round_up(bytes ? bytes : 1, 64));
    if (!*owned) return err_set(e, "oneDNN: out of memory: %zu bytes", bytes);
    return wrap(d, desc, *owned, memory, e);
}

/* oneDNN's name of a function with two parameters. */
typedef struct Function {
    dnnl_alg_kind_t kind;
    float a, b;
} Function;

static bool function_of(NdUnary f, float a, float b, Function *out) {
    switch (f) {
    case ND_RELU: *out = (Function){dnnl_eltwise_relu, 0, 0}; return true;
    case ND_LEAKY_RELU: *out = (Function){dnnl_eltwise_relu, a, 0}; return true;
    case ND_CLIP: *out = (Function){dnnl_eltwise_clip, a, b}; return true;
    case ND_SIGMOID: *out = (Function){dnnl_eltwise_logistic, 0, 0}; return true;
    case ND_SILU: *out = (Function){dnnl_eltwise_swish, a, 0}; return true;
    case ND_TANH: *out = (Function){dnnl_eltwise_tanh, 0, 0}; return true;
    case ND_HARD_SWISH: *out = (Function){dnnl_eltwise_hardswish, 1.0f / 6, 0.5f}; return true;
    case ND_GELU: *out = (Function){dnnl_eltwise_gelu_erf, 0, 0}; return true;
    case ND_ELU: *out = (Function){dnnl_eltwise_elu, a, 0}; return b == 1;
    default: return false;
    }
}

bool dnn_fuses(NdUnary f, double a, double b) {
    Function ignored;
    return f == ND_IDENTITY || function_of(f, (float)a, (float)b, &ignored);
}

/* What comes after the sum: the residual, then the function. */
static dnnl_status_t append_all(dnnl_post_ops_t ops, const DnnShape *s, DescRef dst) {
    Function f;
    dnnl_status_t status = dnnl_success;
    if (s->residual) status = dnnl_post_ops_append_binary(ops, dnnl_binary_add, dst);
    if (status == dnnl_success && function_of(s->act, s->a, s->b, &f)) status = append_function(ops, f.kind, f.a, f.b);
    return status;
}

static dnnl_status_t make_plan(DnnConv *d, const DnnShape *s, DescRef src, DescRef weights, DescRef bias, DescRef dst) {
    const NdWindow *w = &s->win;
    const dnnl_dims_t strides = {w->stride[0], w->stride[1]}, before = {w->before[0], w->before[1]};
    const dnnl_dims_t after = {w->after[0], w->after[1]}, dilations = {w->dilation[0] - 1, w->dilation[1] - 1};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success) status = append_all(ops, s, dst);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (status == dnnl_success)
        status = conv_desc(&d->plan, d->engine, src, weights, bias, dst, strides, dilations, before, after, attr);
    if (status == dnnl_success) status = dnnl_primitive_create(&d->primitive, d->plan);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

/* The caller's weights, described by `plain`, into the layout the plan wants. */
static int pack_weights(DnnConv *d, const Desc *plain, const float *weights, const DnnConv *like, Err *e) {
    DescRef wanted = dnnl_primitive_desc_query_md(d->plan, dnnl_query_weights_md, 0);
    d->shares_weights =
        like && dnnl_memory_desc_equal(wanted, dnnl_primitive_desc_query_md(like->plan, dnnl_query_weights_md, 0));
    if (d->shares_weights) {
        d->weight_data = like->weight_data;
        return wrap(d, wanted, d->weight_data, &d->weights, e);
    }
    if (allocate(d, wanted, &d->weight_data, &d->weights, e)) return -1;
    d->bytes += dnnl_memory_desc_get_size(wanted);

    dnnl_memory_t from = NULL;
    dnnl_primitive_desc_t plan = NULL;
    dnnl_primitive_t reorder = NULL;
    /* The interface has no const; a reorder only reads its source. */
    dnnl_status_t s = dnnl_memory_create(&from, desc_ref(plain), d->engine, (void *)weights);
    if (s == dnnl_success)
        s = dnnl_reorder_primitive_desc_create(&plan, desc_ref(plain), d->engine, wanted, d->engine, NULL);
    if (s == dnnl_success) s = dnnl_primitive_create(&reorder, plan);
    if (s == dnnl_success) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, d->weights}};
        s = dnnl_primitive_execute(reorder, d->stream, 2, args);
    }
    if (s == dnnl_success) s = dnnl_stream_wait(d->stream);
    if (reorder) dnnl_primitive_destroy(reorder);
    if (plan) dnnl_primitive_desc_destroy(plan);
    if (from) dnnl_memory_destroy(from);
    return s == dnnl_success ? 0 : refuse(e, s, "weights");
}

/* Everything after the descriptors. desc: source, weights as given, weights in any layout, bias, result. */
static int build(DnnConv *d, const DnnShape *s, const Desc *desc, const float *weights, const float *bias,
                 const DnnConv *like, Err *e) {
    enum { SRC, GIVEN, ANY, BIAS, DST };
    dnnl_status_t status = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (status == dnnl_success) status = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return refuse(e, status, "engine");
    status = make_plan(d, s, desc_ref(&desc[SRC]), desc_ref(&desc[ANY]), bias ? desc_ref(&desc[BIAS]) : NULL,
                       desc_ref(&desc[DST]));
    if (status != dnnl_success) return refuse(e, status, "convolution");
    if (pack_weights(d, &desc[GIVEN], weights, like, e)) return -1;
    if (bias) {
        if (allocate(d, desc_ref(&desc[BIAS]), &d->bias_data, &d->bias, e)) return -1;
        d->bytes += (size_t)s->o * sizeof *bias;
        memcpy(d->bias_data, bias, (size_t)s->o * sizeof *bias);
    }
    DescRef scratch = dnnl_primitive_desc_query_md(d->plan, dnnl_query_scratchpad_md, 0);
    if (allocate(d, scratch, &d->scratch_data, &d->scratch, e)) return -1;
    status = dnnl_memory_create(&d->src, desc_ref(&desc[SRC]), d->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success) status = dnnl_memory_create(&d->dst, desc_ref(&desc[DST]), d->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success && s->residual)
        status = dnnl_memory_create(&d->residual, desc_ref(&desc[DST]), d->engine, DNNL_MEMORY_NONE);
    return status == dnnl_success ? 0 : refuse(e, status, "memory");
}

static int describe_and_build(DnnConv *d, const DnnShape *s, const float *weights, const float *bias,
                              const DnnConv *like, Err *e) {
    const int64_t kh = s->win.size[0], kw = s->win.size[1], g = s->groups, o = s->o / g, c = s->c / g;
    const dnnl_dims_t src = {1, s->c, s->h, s->w}, src_strides = {s->h * s->w * s->c, 1, s->w * s->c, s->c};
    const dnnl_dims_t dst = {1, s->o, s->oh, s->ow}, dst_strides = {s->oh * s->ow * s->o, 1, s->ow * s->o, s->o};
    const dnnl_dims_t full = {o, c, kh, kw}, full_strides = {kh * kw * c, 1, kw * c, c};
    const dnnl_dims_t parts = {g, o, c, kh, kw}, part_strides = {o * kh * kw * c, kh * kw * c, 1, kw * c, c};
    const dnnl_dims_t bias_dims = {s->o}, one = {1};
    const int n = g > 1 ? 5 : 4;

    Desc desc[5];
    int made = 0;
    dnnl_status_t status = desc_strided(&desc[made], 4, src, src_strides);
    if (status == dnnl_success)
        status = desc_strided(&desc[++made], n, g > 1 ? parts : full, g > 1 ? part_strides : full_strides);
    if (status == dnnl_success) status = desc_any(&desc[++made], n, g > 1 ? parts : full);
    if (status == dnnl_success) status = desc_strided(&desc[++made], 1, bias_dims, one);
    if (status == dnnl_success) status = desc_strided(&desc[++made], 4, dst, dst_strides);
    int failed;
    if (status == dnnl_success) {
        made++;
        failed = build(d, s, desc, weights, bias, like, e);
    } else failed = refuse(e, status, "shape");
    for (int i = 0; i < made; i++) desc_free(&desc[i]);
    return failed;
}

int dnn_conv_create(const DnnShape *s, const float *weights, const float *bias, const DnnConv *like, DnnConv **out,
                    Err *e) {
    *out = NULL;
    DnnConv *d = calloc(1, sizeof *d);
    if (!d) return err_set(e, "oneDNN: out of memory");
    int width = enter_one_thread(); /* oneDNN plans for the width it finds */
    int failed = describe_and_build(d, s, weights, bias, like, e);
    leave_one_thread(width);
    if (failed) dnn_conv_free(d);
    else *out = d;
    return failed;
}

void dnn_conv_free(DnnConv *d) {
    if (!d) return;
    dnnl_memory_t memory[6] = {d->src, d->dst, d->weights, d->bias, d->scratch, d->residual};
    for (int i = 0; i < 6; i++)
        if (memory[i]) dnnl_memory_destroy(memory[i]);
    if (d->primitive) dnnl_primitive_destroy(d->primitive);
    if (d->plan) dnnl_primitive_desc_destroy(d->plan);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    if (!d->shares_weights) free(d->weight_data);
    free(d->bias_data);
    free(d->scratch_data);
    free(d);
}

size_t dnn_conv_bytes(const DnnConv *d) { return d->bytes; }

const char *dnn_conv_name(const DnnConv *d) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(d->plan, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return "unknown";
    return name;
}

int dnn_conv_run(const DnnConv *d, const float *x, const float *residual, float *y) {
    dnnl_exec_arg_t args[6] = {{DNNL_ARG_SRC, d->src},
                               {DNNL_ARG_WEIGHTS, d->weights},
                               {DNNL_ARG_DST, d->dst},
                               {DNNL_ARG_SCRATCHPAD, d->scratch}};
    int n = 4;
    if (d->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, d->bias};
    if (d->residual) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, d->residual};
    int width = enter_one_thread();
    dnnl_status_t s = dnnl_memory_set_data_handle(d->src, (void *)x);
    if (s == dnnl_success) s = dnnl_memory_set_data_handle(d->dst, y);
    if (s == dnnl_success && d->residual) s = dnnl_memory_set_data_handle(d->residual, (void *)residual);
    if (s == dnnl_success) s = dnnl_primitive_execute(d->primitive, d->stream, n, args);
    if (s == dnnl_success) s = dnnl_stream_wait(d->stream);
    leave_one_thread(width);
    return s == dnnl_success ? 0 : -1;
}

int dnn_limit_isa(const char *kernels_name, Err *e) {
    static const struct {
        const char *kernels;
        dnnl_cpu_isa_t isa;
    } limits[] = {{"ref", dnnl_cpu_isa_sse41}, {"avx2", dnnl_cpu_isa_avx2}, {"avx512vnni", dnnl_cpu_isa_avx512_core}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(limits[i].kernels, kernels_name) != 0) continue;
        dnnl_status_t s = dnnl_set_max_cpu_isa(limits[i].isa);
        return s == dnnl_success ? 0 : refuse(e, s, "limit of the ISA (after the first convolution?)");
    }
    return 0;
}
