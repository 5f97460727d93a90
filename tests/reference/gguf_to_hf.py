#!/usr/bin/env python3
"""A GGUF of the llama architecture as a folder such as Hugging Face's transformers saves.

    gguf_to_hf.py IN.gguf FOLDER [--type f32|f16|bf16] [--shard BYTES]

Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors, or with --shard
several files of about that size and their index. For vocabularies of byte-level BPE whose pre-tokenizer is that of
SmolLM (tokenizer.ggml.pre "smollm"): digits by themselves, then GPT-2's pattern. Matrices are dequantised to --type;
vectors too. Q's and K's rows, which a GGUF has in pairs, are put back into halves.

The safetensors format: https://github.com/huggingface/safetensors#format. Made with gguf 0.19.0 and numpy 2.4.6.
"""

import argparse
import json
import pathlib
import re
import struct

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL, USER_DEFINED = 3, 4


def fields(reader):
    return {f.name: f.contents() for f in reader.fields.values() if not f.name.startswith("GGUF.")}


def hf_name(name):
    part, end = name.rsplit(".", 1)
    layer = re.fullmatch(r"blk\.(\d+)\.(.*)", part)
    return f"model.layers.{layer[1]}.{NAMES[layer[2]]}.{end}" if layer else f"{NAMES[part]}.{end}"


def halves(x, heads):
    """Rows 0, 1, 2, 3, ... of every head as 0, 2, ..., 1, 3, ..."""
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def stored(x, kind):
    """The bytes of an array of fp32; bf16 rounds to nearest even."""
    if kind == "f32":
        return x.astype("<f4").tobytes()
    if kind == "f16":
        return x.astype("<f2").tobytes()
    bits = x.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def config(m):
    heads = int(m["llama.attention.head_count"])
    c = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": int(m["llama.embedding_length"]),
        "intermediate_size": int(m["llama.feed_forward_length"]),
        "max_position_embeddings": int(m["llama.context_length"]),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": int(m["llama.block_count"]),
        "num_key_value_heads": int(m.get("llama.attention.head_count_kv", heads)),
        "rms_norm_eps": float(m["llama.attention.layer_norm_rms_epsilon"]),
        "rope_scaling": None,
        "rope_theta": float(m.get("llama.rope.freq_base", 10000.0)),
        "vocab_size": len(m["tokenizer.ggml.tokens"]),
    }
    for key in ("bos_token_id", "eos_token_id"):
        if "tokenizer.ggml." + key in m:
            c[key] = int(m["tokenizer.ggml." + key])
    return c


def tokenizer(m):
    assert m["tokenizer.ggml.model"] == "gpt2" and m["tokenizer.ggml.pre"] == "smollm", "another tokenizer"
    tokens, types = m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {"id": i, "content": t, **flags, "special": kind == CONTROL}
        for i, (t, kind) in enumerate(zip(tokens, types))
        if kind in (CONTROL, USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", **level}],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": m["tokenizer.ggml.merges"],
        },
    }


def write_safetensors(path, tensors, kind):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        n = x.size * (4 if kind == "f32" else 2)
        header[name] = {"dtype": kind.upper(), "shape": list(x.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            f.write(stored(x, kind))


def write_weights(folder, tensors, kind, shard):
    if not shard:
        write_safetensors(folder / "model.safetensors", tensors, kind)
        return
    shards, size = [{}], 0
    for name, x in tensors.items():
        if shards[-1] and size + x.nbytes > shard:
            shards.append({})
            size = 0
        shards[-1][name] = x
        size += x.nbytes
    where = {}
    for i, part in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / name, part, kind)
        where |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(x.nbytes for x in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("input")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--type", choices=["f32", "f16", "bf16"], default="f32")
    parser.add_argument("--shard", type=int, default=0)
    args = parser.parse_args()
    reader = GGUFReader(args.input)
    m = fields(reader)
    assert m["general.architecture"] == "llama", "another architecture"
    c = config(m)
    tensors = {}
    for t in reader.tensors:
        x = dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in t.shape][::-1])
        if found := re.search("attn_([qk])[.]", t.name):
            x = halves(x, c["num_attention_heads" if found[1] == "q" else "num_key_value_heads"])
        tensors[hf_name(t.name)] = x
    c["tie_word_embeddings"] = "lm_head.weight" not in tensors
    args.folder.mkdir(parents=True, exist_ok=True)
    write_weights(args.folder, tensors, args.type, args.shard)
    files = {
        "config.json": c,
        "generation_config.json": {k: c[k] for k in ("bos_token_id", "eos_token_id") if k in c},
        "tokenizer.json": tokenizer(m),
        "tokenizer_config.json": {"chat_template": m.get("tokenizer.chat_template")},
    }
    for name, value in files.items():
        (args.folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
