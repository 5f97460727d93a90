/* The feed-forward part of a layer: one gated network, or a mixture of them of which each token gets a few
 * ("Outrageously Large Neural Networks", arXiv:1701.06538; as in Mixtral, arXiv:2401.04088). */
#include <stdio.h>

#include "graph/arch.h"

enum { EXPERTS_MAX = 4096, USED_MAX = 64 };

/* What other mixtures have: routers that this build does not compute. */
static void refuse_other_routers(Builder *b) {
    enum { SOFTMAX = 1 };
    if (builder_int(b, "expert_gating_func", 0, INT32_MAX, SOFTMAX) != SOFTMAX)
        builder_refuse(b, "expert_gating_func", "routers other than a softmax");
    if (builder_int(b, "expert_group_count", 0, INT32_MAX, 0) > 1)
        builder_refuse(b, "expert_group_count", "experts in groups");
    double scale = builder_float(b, "expert_weights_scale", 1);
    if (scale != 0 && scale != 1) builder_refuse(b, "expert_weights_scale", "scaled weights of experts");
}

void builder_mix_shape(Builder *b, LmShape *s, bool normalised) {
    int experts = (int)builder_int(b, "expert_count", 0, EXPERTS_MAX, 0);
    s->mix.experts = experts;
    builder_shape(b, s);
    if (!experts || b->failed) return;
    int most = experts < USED_MAX ? experts : USED_MAX;
    s->mix.used = (int)builder_int(b, "expert_used_count", 1, most, -1);
    s->mix.normalised = builder_bool(b, "expert_weights_norm", normalised);
    s->expert_ffn = builder_int(b, "expert_feed_forward_length", 1, 1 << 24, s->ffn);
    s->shared_ffn = builder_int(b, "expert_shared_feed_forward_length", 0, 1 << 24, 0);
    refuse_other_routers(b);
}

static ValueId gated(Builder *b, int64_t l, const char *end, ValueId x, int64_t ffn, int64_t width) {
    char gate[32], up[32], down[32];
    snprintf(gate, sizeof gate, "ffn_gate%s", end);
    snprintf(up, sizeof up, "ffn_up%s", end);
    snprintf(down, sizeof down, "ffn_down%s", end);
    ValueId xg = builder_linear(b, l, gate, x, ffn, width);                                  /* [T][ffn] */
    ValueId xu = builder_linear(b, l, up, x, ffn, width);                                    /* [T][ffn] */
    ValueId h = graph_silu_mul(b->g, builder_name(l, *end ? "silu_shexp" : "silu"), xg, xu); /* [T][ffn] */
    return builder_linear(b, l, down, h, width, ffn);                                        /* [T][width] */
}

/* The expert that every token gets, in some models weighted by a gate of its own (arXiv:2407.10671, 2.2). */
static ValueId shared_expert(Builder *b, const LmShape *s, int64_t l, ValueId x) {
    ValueId y = gated(b, l, "_shexp", x, s->shared_ffn, s->width);
    if (!builder_has(b, l, "ffn_gate_inp_shexp.weight")) return y;
    ValueId gate = builder_linear(b, l, "ffn_gate_inp_shexp", x, 1, s->width); /* [T][1] */
    return graph_gate_rows(b->g, builder_name(l, "shared_gate"), y, gate);
}

static ValueId expert_linear(Builder *b, int64_t l, const char *name, ValueId x, int experts, int64_t rows,
                             int64_t columns) {
    char tensor[48];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    return graph_linear(b->g, builder_name(l, name), x, builder_experts(b, l, tensor, experts, rows, columns), -1);
}

static ValueId mixture(Builder *b, const LmShape *s, int64_t l, ValueId x) {
    Graph *g = b->g;
    MixShape mix = s->mix;
    int64_t width = s->width, ffn = s->expert_ffn;
    ValueId logits = builder_linear(b, l, "ffn_gate_inp", x, mix.experts, width); /* [T][experts] */
    ValueId routing = graph_route(g, builder_name(l, "route"), logits, mix);      /* [T][2 used] */
    ValueId groups = graph_group(g, builder_name(l, "group"), routing, mix);
    ValueId xp = graph_dispatch(g, builder_name(l, "dispatch"), x, groups, mix); /* [P][width] */
    ValueId gate, up;                                                            /* [P][ffn] */
    if (builder_has(b, l, "ffn_gate_up_exps.weight")) {
        ValueId both = expert_linear(b, l, "ffn_gate_up_exps", xp, mix.experts, 2 * ffn, width);
        gate = graph_view(g, builder_name(l, "ffn_gate_exps"), both, 0, ffn);
        up = graph_view(g, builder_name(l, "ffn_up_exps"), both, ffn, 2 * ffn);
    } else {
        gate = expert_linear(b, l, "ffn_gate_exps", xp, mix.experts, ffn, width);
        up = expert_linear(b, l, "ffn_up_exps", xp, mix.experts, ffn, width);
    }
    ValueId h = graph_silu_mul(g, builder_name(l, "silu_exps"), gate, up);        /* [P][ffn] */
    ValueId y = expert_linear(b, l, "ffn_down_exps", h, mix.experts, width, ffn); /* [P][width] */
    y = graph_combine(g, builder_name(l, "combine"), y, routing, groups, mix);    /* [T][width] */
    if (!s->shared_ffn) return y;
    return graph_add(g, builder_name(l, "add_shexp"), y, shared_expert(b, s, l, x));
}

ValueId builder_ffn(Builder *b, const LmShape *s, int64_t l, ValueId x) {
    if (s->mix.experts && builder_has(b, l, "ffn_gate.0.weight") && !b->failed) {
        b->failed = true;
        err_set(b->e,
                "%s: tensor blk.%lld.ffn_gate.0.weight: files with a tensor for each expert are not supported; "
                "convert the model anew",
                model_file_path(b->f), (long long)l);
    }
    return s->mix.experts ? mixture(b, s, l, x) : gated(b, l, "", x, s->ffn, s->width);
}
