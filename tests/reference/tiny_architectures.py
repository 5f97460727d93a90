#!/usr/bin/env python3
"""Tiny models of every architecture, as GGUF, with logits by Hugging Face transformers: fixtures/arch.

    tiny_architectures.py FOLDER             NAME.head, NAME.hf and NAME.logits for each model, and tokenizer.json
    tiny_architectures.py FOLDER --whole     NAME.gguf as well, for other programs
    tiny_architectures.py FOLDER --hf        the folder NAME/ as transformers saves it, for converters
    tiny_architectures.py FOLDER --only A B  these models, not all

The weights come from a seed, so a fixture has only the file's beginning: metadata, tensor descriptions and what is no
random tensor (rope_freqs, rope_factors_long and _short); tests/arch_files.h makes the rest. What a GGUF calls its
tensors and keys, and how Q
and K of llama are permuted, fused tensors laid out and Gemma's norms shifted, is what llama.cpp's convert_hf_to_gguf.py
writes; the tensors are made as they stand in the GGUF and brought to transformers' form from there.

NAME.logits, little-endian: magic "SHAR", uint32 version 1, uint32 n, uint32 vocabulary, uint32 ids[n], then twice (with
exact keys and values, then with keys and values rounded to fp16, as a KV cache keeps them): n x 8 x (uint32 id, float32
logit), the largest in falling order, and float32[vocabulary], all logits after the last token.

NAME.hf is what transformers saves the same model as, without the weights, but with what is needed to make them from
the GGUF's: uint32 n and n bytes of config.json, uint32 n and n bytes of model.safetensors up to the data, uint64 size and
FNV-1a hash of the data, uint32 number of tensors, and for each: char name[64] as in the GGUF, uint64 offset in the data
and size, uint32 heads whose rows stand in halves (0: as in the GGUF), float32 what is taken from each value. A name that
ends with /3 means the fourth matrix of a tensor of several.

hf_sharded is a whole folder of a smaller model, in BF16 and in several files; its logits are sharded.logits.

Made with torch 2.15.0 (CPU), transformers 5.24.0, gguf 0.19.0 and numpy 2.4.6; not in requirements.txt, for their size.
"""

import argparse
import json
import math
import pathlib
import re
import shutil
import struct

import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, RopeScalingType, quants

import gguf_to_hf

TOKENS = 100
TOP = 8
WINDOW = 24
SIZES = {"vocab_size": 288, "intermediate_size": 160, "max_position_embeddings": 128, "rms_norm_eps": 1e-3}
SIZES |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}


PAIRS = ("llama", "smollm3", "granite")  # whose Q and K rows a GGUF has in pairs


def heads(width, q, kv, head_dim=None):
    sizes = {"hidden_size": width, "num_attention_heads": q, "num_key_value_heads": kv}
    return sizes | ({"head_dim": head_dim} if head_dim else {})


def rope(theta, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | more}


def two_ropes(local, **full):
    """Of the layers with a window, and of those without."""
    return {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": local}, "full_attention": full}}


def longrope(pairs):
    """Factors for contexts up to the original one, and for longer ones."""
    return {
        "rope_type": "longrope",
        "short_factor": [1 + 0.05 * i for i in range(pairs)],
        "long_factor": [1 + 0.9 * i for i in range(pairs)],
    }


def contexts(original, whole):
    return {"original_max_position_embeddings": original, "max_position_embeddings": whole}


def experts(n, used, **more):
    return {"num_local_experts": n, "num_experts": n, "num_experts_per_tok": used} | more


# name: GGUF architecture, class in transformers, configuration; of mixtures whose experts have 1 unit of 32 columns, there
# are whole ones on every rank but the last of four
MODELS = {
    "llama3": ("llama", "Llama", heads(80, 5, 1, 16) | rope(500.0, **LLAMA3) | {"num_hidden_layers": 2}),
    "llama_linear": (
        "llama",
        "Llama",
        heads(96, 6, 2, 16)
        | rope(10000.0, rope_type="linear", factor=4.0)
        | {"num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama_yarn": ("llama", "Llama", heads(96, 6, 3, 32) | rope(10000.0, **YARN) | {"num_hidden_layers": 2}),
    "llama_yarn_set": (
        "llama",
        "Llama",
        heads(64, 2, 1, 32)
        | rope(1000.0, **YARN, attention_factor=1.5, beta_fast=1.5, beta_slow=0.5)
        | {"num_hidden_layers": 1},
    ),
    "mistral": (
        "llama",
        "Mistral",
        heads(64, 4, 2, 32) | rope(1000.0) | {"num_hidden_layers": 2, "sliding_window": WINDOW},
    ),
    "qwen2": ("qwen2", "Qwen2", heads(96, 6, 2) | rope(1000000.0) | {"num_hidden_layers": 2}),
    "qwen2_window": (
        "qwen2",
        "Qwen2",
        heads(96, 6, 2)
        | rope(10000.0)
        | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": (
        "qwen3",
        "Qwen3",
        heads(96, 6, 2, 32) | rope(5000.0) | {"num_hidden_layers": 2, "tie_word_embeddings": True},
    ),
    "gemma2": (
        "gemma2",
        "Gemma2",
        heads(96, 6, 3, 32)
        | rope(10000.0)
        | {"num_hidden_layers": 4, "sliding_window": WINDOW, "query_pre_attn_scalar": 32}
        | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0},
    ),
    "gemma3": (
        "gemma3",
        "Gemma3",
        heads(96, 6, 1, 32)
        | two_ropes(100.0, rope_type="linear", rope_theta=5000.0, factor=4.0)
        | {"num_hidden_layers": 7, "sliding_window": WINDOW, "query_pre_attn_scalar": 32},
    ),
    "gemma3_wide": (
        "gemma3",
        "Gemma3",
        heads(64, 2, 1, 256)
        | two_ropes(10000.0, rope_type="default", rope_theta=1000000.0)
        | {"num_hidden_layers": 7, "sliding_window": WINDOW, "query_pre_attn_scalar": 256},
    ),
    "phi3": ("phi3", "Phi3", heads(96, 6, 2) | rope(10000.0) | {"num_hidden_layers": 2, "sliding_window": WINDOW}),
    "phi3_part": (
        "phi3",
        "Phi3",
        heads(96, 3, 1)
        | rope(10000.0, partial_rotary_factor=0.75)
        | {"num_hidden_layers": 2, "tie_word_embeddings": True},
    ),
    "phi3_long": (
        "phi3",
        "Phi3",
        heads(96, 6, 2) | rope(10000.0, **longrope(8)) | {"num_hidden_layers": 2, **contexts(64, 512)},
    ),
    "phi3_short": (
        "phi3",
        "Phi3",
        heads(96, 6, 2) | rope(10000.0, **longrope(8)) | {"num_hidden_layers": 2, **contexts(128, 512)},
    ),
    "olmo2": ("olmo2", "Olmo2", heads(96, 6, 2) | rope(500000.0) | {"num_hidden_layers": 2}),
    "olmo3": (
        "olmo2",
        "Olmo3",
        heads(96, 6, 3) | two_ropes(1000.0, rope_theta=1000.0, **YARN) | {"num_hidden_layers": 5, "sliding_window": WINDOW},
    ),
    "smollm3": (
        "smollm3",
        "SmolLM3",
        heads(96, 6, 2) | rope(5000.0) | {"num_hidden_layers": 5, "tie_word_embeddings": True},
    ),
    "granite": (
        "granite",
        "Granite",
        heads(96, 6, 2)
        | rope(10000.0)
        | {"num_hidden_layers": 2, "tie_word_embeddings": True, "embedding_multiplier": 6.0, "residual_multiplier": 0.4}
        | {"attention_multiplier": 0.2, "logits_scaling": 3.0},
    ),
    "mixtral": ("llama", "Mixtral", heads(96, 6, 2) | rope(10000.0) | experts(5, 2) | {"num_hidden_layers": 2}),
    "qwen2moe": (
        "qwen2moe",
        "Qwen2Moe",
        heads(96, 6, 2)
        | rope(1000000.0)
        | experts(6, 2, moe_intermediate_size=48, shared_expert_intermediate_size=112)
        | {"num_hidden_layers": 2},
    ),
    "qwen3moe": (
        "qwen3moe",
        "Qwen3Moe",
        heads(96, 6, 2, 32)
        | rope(5000.0)
        | experts(8, 3, moe_intermediate_size=48, norm_topk_prob=True)
        | {"num_hidden_layers": 2},
    ),
    "qwen3moe_q8": (
        "qwen3moe",
        "Qwen3Moe",
        heads(96, 3, 1, 32)
        | rope(5000.0)
        | experts(3, 2, moe_intermediate_size=32, norm_topk_prob=True)
        | {"num_hidden_layers": 2},
    ),
    "olmoe": ("olmoe", "Olmoe", heads(96, 6, 3) | rope(10000.0) | experts(7, 4) | {"num_hidden_layers": 2}),
}
QUANTISED = {"qwen3moe_q8": GGMLQuantizationType.Q8_0}

# ---- names: transformers' to GGUF's, by class --------------------------------------------------------------------------
COMMON = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
EXPERTS_GATE_UP = "mlp.experts.gate_up_proj"  # two tensors in the GGUF
POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(kind, name):
    if name.endswith("_proj"):  # experts are no modules of their own
        name += ".weight"
    if one := re.search(r"[.]experts[.](\d+)[.]", name):  # as transformers saves them
        return gguf_name(kind, name.replace(one[0], ".experts.")) + "/" + one[1]
    part, end = name.rsplit(".", 1)
    layer = re.match(r"model\.layers\.(\d+)\.(.*)", part)
    names = COMMON | (POST_NORMS if kind.startswith(("Gemma", "Olmo2", "Olmo3")) else {})
    return f"blk.{layer[1]}.{names[layer[2]]}.{end}" if layer else f"{names[part]}.{end}"


# ---- weights -----------------------------------------------------------------------------------------------------------
def uniform(name, n):
    """n numbers in [-1, 1): splitmix64 from FNV-1a of the tensor's name, the top 24 bits."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)


def weight(name, shape, quantised=None):
    """A tensor as in the GGUF: vectors and what chooses experts F32; matrices F16 or quantised, of a size that keeps that
    of what they multiply. Queries and keys are larger, so that attention looks at few positions; so is what chooses, so
    that few choices are close."""
    u = uniform(name, math.prod(shape)).reshape(shape)
    if "ffn_gate_inp" in name:
        return (np.sqrt(np.float32(48) / np.float32(shape[-1])) * u).astype(np.float16).astype(np.float32)
    if len(shape) == 1:
        quarter = np.float32(0.25) * u
        if name.endswith(".bias"):
            return quarter
        return quarter + np.float32(4 if name.startswith("output_norm") else 1.5 if re.search("_[qk]_norm", name) else 1)
    gain = 4 if re.search("attn_(q|k|qkv)[.]", name) else 1
    x = np.sqrt(np.float32(3 * gain) / np.float32(shape[-1])) * u
    return quants.quantize(x, quantised) if quantised else x.astype(np.float16)


def from_gguf(arch, config, name, x):
    """What transformers calls the same tensor."""
    x = quants.dequantize(x, GGMLQuantizationType.Q8_0) if x.dtype == np.uint8 else x.astype(np.float32)
    if arch in PAIRS and (found := re.search("attn_([qk])[.]", name)):
        n = config.num_attention_heads if found[1] == "q" else config.num_key_value_heads
        return np.ascontiguousarray(x.reshape(n, -1, 2, *x.shape[1:]).swapaxes(1, 2)).reshape(x.shape)
    return x - np.float32(1) if arch.startswith("gemma") and "norm" in name else x


# ---- the GGUF ----------------------------------------------------------------------------------------------------------
def byte_letters():
    """GPT-2's letter for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + rest.index(b)) for b in range(256)]


def add_vocabulary(w, size):
    """3 control tokens, the 256 bytes, then merges: a space with each small letter, two small letters in order."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    space = byte_letters()[ord(" ")]
    pairs = [(space, c) for c in letters] + [(a, c) for a in letters for c in letters]
    pairs = pairs[: size - 3 - 256]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_letters(), *(a + b for a, b in pairs)])
    w.add_token_types([3] * 3 + [1] * (size - 3))
    w.add_token_merges([f"{a} {b}" for a, b in pairs])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(False)


def add_rope(w, kind, c):
    """Rotary positions: base, dimensions, scaling."""
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    p = c.rope_parameters
    if kind == "Gemma2":
        return
    if "full_attention" in p:
        w.add_rope_freq_base_swa(p["sliding_attention"]["rope_theta"])
        p = p["full_attention"]
    if kind in ("Llama", "Mistral", "Mixtral", "SmolLM3", "Granite"):
        w.add_rope_dimension_count(head_dim)
    if kind == "Phi3":
        w.add_rope_scaling_orig_ctx_len(c.original_max_position_embeddings)
        w.add_rope_dimension_count(int(p.get("partial_rotary_factor", 1.0) * c.hidden_size) // c.num_attention_heads)
    w.add_rope_freq_base(p["rope_theta"])
    if p["rope_type"] == "linear":
        w.add_rope_scaling_type(RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(p["factor"])
    if p["rope_type"] == "yarn":
        w.add_rope_scaling_type(RopeScalingType.YARN)
        w.add_rope_scaling_factor(p["factor"])
        w.add_rope_scaling_orig_ctx_len(p["original_max_position_embeddings"])
        for key, add in {
            "attention_factor": w.add_rope_scaling_yarn_attn_factor,
            "beta_fast": w.add_rope_scaling_yarn_beta_fast,
            "beta_slow": w.add_rope_scaling_yarn_beta_slow,
        }.items():
            if p.get(key) is not None:
                add(p[key])


def add_windows(w, kind, c):
    if kind in ("Mistral", "Gemma2", "Gemma3", "Phi3", "Olmo3") or (kind == "Qwen2" and c.use_sliding_window):
        w.add_sliding_window(c.sliding_window or 0)
    if kind == "Olmo3" or (kind == "Qwen2" and c.use_sliding_window):
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c.layer_types])


def llama3_factors(c):
    """By what Llama 3.1 slows each pair: not the fast ones, the slow ones by `factor`, in between smoothly."""
    p, dim = c.rope_parameters, c.head_dim
    turns = p["original_max_position_embeddings"] / (2 * math.pi) * p["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    smooth = (turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    slow = 1 / ((1 - smooth) / p["factor"] + smooth)
    return np.where(turns < p["low_freq_factor"], p["factor"], np.where(turns > p["high_freq_factor"], 1, slow))


def add_experts(w, kind, c):
    if not getattr(c, "num_experts_per_tok", None):
        return
    w.add_expert_count(c.num_local_experts if kind == "Mixtral" else c.num_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    if kind.startswith("Qwen"):
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    if kind == "Qwen2Moe":
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def write_gguf(path, arch, kind, c, tensors, quantised):
    """The file; returns the number of bytes before the first of `tensors`."""
    w = GGUFWriter(path, arch)
    w.add_type("model")
    w.add_name("tiny")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    if getattr(c, "head_dim", None) and kind != "Phi3":
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
    if kind in ("Llama", "Mistral", "Mixtral", "SmolLM3", "Granite"):
        w.add_vocab_size(c.vocab_size)
    if kind == "Gemma2":
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    if kind == "Granite":
        w.add_attention_scale(c.attention_multiplier)
        w.add_embedding_scale(c.embedding_multiplier)
        w.add_residual_scale(c.residual_multiplier)
        w.add_logit_scale(c.logits_scaling)
    add_rope(w, kind, c)
    add_windows(w, kind, c)
    add_experts(w, kind, c)
    w.add_file_type(7 if quantised else 1)
    add_vocabulary(w, c.vocab_size)
    factors = {}
    rope_type = c.rope_parameters.get("rope_type")
    if rope_type == "llama3":
        factors["rope_freqs.weight"] = llama3_factors(c).astype(np.float32)
    if rope_type == "longrope":
        ratio, original = c.max_position_embeddings / c.original_max_position_embeddings, c.original_max_position_embeddings
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(ratio) / math.log(original)))
        for which in ("long", "short"):
            factors[f"rope_factors_{which}.weight"] = np.array(c.rope_parameters[f"{which}_factor"], np.float32)
    for name, x in factors.items():
        w.add_tensor(name, x)
    for name, x in tensors.items():
        w.add_tensor(name, x, raw_dtype=quantised if x.dtype == np.uint8 else None)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    data = sum(-(-x.nbytes // 32) * 32 for x in tensors.values())
    return path.stat().st_size - data


# ---- logits ------------------------------------------------------------------------------------------------------------
def logits(model, ids, fp16_cache):
    """[n][vocabulary]; keys and values exact, or rounded where the model's own eager attention gets them."""
    module = __import__(type(model).__module__, fromlist=["eager_attention_forward"])
    eager = module.eager_attention_forward

    def rounded(m, query, key, value, *args, **kwargs):
        return eager(m, query, key.half().float(), value.half().float(), *args, **kwargs)

    module.eager_attention_forward = rounded if fp16_cache else eager
    try:
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    finally:
        module.eager_attention_forward = eager


def write_logits(path, ids, both):
    with open(path, "wb") as f:
        f.write(b"SHAR" + struct.pack("<III", 1, len(ids), both[0].shape[1]) + np.array(ids, "<u4").tobytes())
        for x in both:
            order = np.argsort(-x, axis=1, kind="stable")[:, :TOP]
            for row, best in zip(x, order):
                for i in best:
                    f.write(struct.pack("<If", i, row[i]))
            f.write(x[-1].astype("<f4").tobytes())


# ---- the folder of transformers ------------------------------------------------------------------------------------------
def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def write_folder(folder, arch, kind, c, model, path):
    """The model saved with F16 matrices and F32 vectors, as in the GGUF (F32 for what chooses experts, too); and the
    fixture."""
    for key, p in model.named_parameters():
        chooses = key.endswith(("mlp.gate.weight", "shared_expert_gate.weight"))
        p.data = p.data.half() if p.dim() > 1 and not chooses else p.data
    model.save_pretrained(folder)
    config, weights = (folder / "config.json").read_bytes(), (folder / "model.safetensors").read_bytes()
    data = 8 + struct.unpack("<Q", weights[:8])[0]
    header = {k: v for k, v in json.loads(weights[8:data]).items() if k != "__metadata__"}
    with open(path, "wb") as f:
        f.write(struct.pack("<I", len(config)) + config + struct.pack("<I", data) + weights[:data])
        f.write(struct.pack("<QQI", len(weights) - data, fnv(weights[data:]), len(header)))
        for key, t in header.items():
            name = gguf_name(kind, key)
            pairs = re.search("attn_([qk])[.]", name) if arch in PAIRS else None
            heads = 0 if not pairs else c.num_attention_heads if pairs[1] == "q" else c.num_key_value_heads
            begin, end = t["data_offsets"]
            less = 1.0 if arch.startswith("gemma") and "norm" in name else 0.0
            f.write(struct.pack("<64sQQIf", name.encode(), begin, end - begin, heads, less))


def build(name):
    """The model with its weights, and the tensors of its GGUF."""
    arch, kind, settings = MODELS[name]
    config_class = getattr(hf, kind + ("TextConfig" if kind == "Gemma3" else "Config"))
    tied = {"tie_word_embeddings": kind.startswith("Gemma")}
    quantised = QUANTISED.get(name)
    c = config_class(**(SIZES | tied | settings), attn_implementation="eager")
    model = getattr(hf, kind + "ForCausalLM")(c).eval().float()
    tensors, state = {}, {}
    for key, old in model.state_dict().items():
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        shape = tuple(old.shape)
        if key.endswith(EXPERTS_GATE_UP):
            names = [gguf_name(kind, key.replace("gate_up_proj", f"{part}_proj")) for part in ("gate", "up")]
            shape = (shape[0], shape[1] // 2, shape[2])
        else:
            names = [gguf_name(kind, key)]
        for stored in names:
            tensors[stored] = weight(stored, shape, quantised)
        parts = [from_gguf(arch, c, stored, tensors[stored]) for stored in names]
        state[key] = torch.from_numpy(np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]).reshape(old.shape)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    return arch, kind, c, model, tensors


def write_sharded(folder, ids):
    """A model in BF16, in several files with an index."""
    c = hf.LlamaConfig(
        **(SIZES | heads(48, 3, 1, 16) | rope(10000.0)),
        num_hidden_layers=2,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = hf.LlamaForCausalLM(c).eval()
    for key, p in model.state_dict().items():
        stored = gguf_name("Llama", key)
        if stored != "output.weight":
            p.copy_(torch.from_numpy(weight(stored, tuple(p.shape)).astype(np.float32)).bfloat16())
    model.bfloat16().save_pretrained(folder / "hf_sharded", max_shard_size="30KB")
    model = hf.LlamaForCausalLM.from_pretrained(folder / "hf_sharded", dtype=torch.float32, attn_implementation="eager")
    model.eval()  # not the one above: its table of rotations is rounded now
    write_logits(folder / "sharded.logits", ids, [logits(model, ids, fp16_cache) for fp16_cache in (False, True)])
    shutil.copy(folder / "tokenizer.json", folder / "hf_sharded")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--only", nargs="*", default=MODELS)
    parser.add_argument("--hf", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.only:
        arch, kind, c, model, tensors = build(name)
        ids = ((uniform("ids", TOKENS) + 1) / 2 * c.vocab_size).astype(int).tolist()
        path = args.folder / f"{name}.gguf"
        head = write_gguf(path, arch, kind, c, tensors, QUANTISED.get(name))
        (args.folder / f"{name}.head").write_bytes(path.read_bytes()[:head])
        both = [logits(model, ids, fp16_cache) for fp16_cache in (False, True)]
        write_logits(args.folder / f"{name}.logits", ids, both)
        spread = both[0].max() - both[0].min()
        print(f"{name}: {path.stat().st_size} bytes, spread {spread:.1f}, fp16 cache {np.abs(both[0] - both[1]).max():.4f}")
        if name not in QUANTISED:
            write_folder(args.folder / name, arch, kind, c, model, args.folder / f"{name}.hf")
        vocabulary = json.dumps(gguf_to_hf.tokenizer(gguf_to_hf.fields(GGUFReader(path))), ensure_ascii=False)
        (args.folder / "tokenizer.json").write_text(vocabulary + "\n")
        if args.hf and name not in QUANTISED:
            shutil.copy(args.folder / "tokenizer.json", args.folder / name)
        else:
            shutil.rmtree(args.folder / name, ignore_errors=True)
        if not args.whole:
            path.unlink()
    write_sharded(args.folder, ids)


if __name__ == "__main__":
    main()
