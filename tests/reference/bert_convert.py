#!/usr/bin/env python3
"""Write a sentence encoder of the BERT family (a folder as sentence-transformers saves it) as GGUF.

    bert_convert.py FOLDER OUT.gguf [--type f32|f16|q8_0]

FOLDER has config.json, model.safetensors (F32), vocab.txt and, where tokens are pooled, 1_Pooling/config.json. Keys,
names and the vocabulary's form are those that llama.cpp's convert_hf_to_gguf.py writes for BertModel: word beginnings
marked with U+2581 in place of "##" before the other pieces; the pooler, which no embedding uses, is left out. The
embeddings of positions and types stay F32, vectors too.

The output depends on the input only. Made with gguf 0.19.0 and numpy 2.4.6 (see requirements.txt).
"""

import argparse
import json
import pathlib
import re
import struct

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, PoolingType, TokenType
from gguf.quants import quantize

TYPES = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
F32 = GGMLQuantizationType.F32
NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def gguf_name(name):
    """None for what an embedding does not use."""
    name = name.removeprefix("bert.")
    if name.startswith("pooler.") or name == "embeddings.position_ids":
        return None
    part, end = name.rsplit(".", 1)
    layer = re.match(r"encoder\.layer\.(\d+)\.(.*)", part)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.{end}" if layer else f"{NAMES[part]}.{end}"


def read_safetensors(path):
    """Name and F32 array of each tensor, in the file's order."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        begin = f.tell()
        for name, t in header.items():
            if name == "__metadata__" or gguf_name(name) is None:
                continue
            assert t["dtype"] == "F32", (name, t["dtype"])
            f.seek(begin + t["data_offsets"][0])
            data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            yield gguf_name(name), np.frombuffer(data, "<f4").reshape(t["shape"])


def pooling(folder):
    path = folder / "1_Pooling/config.json"
    if not path.exists():
        return PoolingType.NONE
    c = json.loads(path.read_text())
    return PoolingType.CLS if c.get("pooling_mode_cls_token") else PoolingType.MEAN


def add_vocabulary(w, folder):
    words = (folder / "vocab.txt").read_text("utf-8").split("\n")
    words = words[:-1] if not words[-1] else words
    tokens, types = [], []
    for word in words:
        special = word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        tokens.append(word if special else word[2:] if word.startswith("##") else "\u2581" + word)
        types.append(TokenType.CONTROL if special else TokenType.NORMAL)
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_types(types)
    for word, add in {
        "[UNK]": w.add_unk_token_id,
        "[SEP]": w.add_sep_token_id,
        "[PAD]": w.add_pad_token_id,
        "[CLS]": w.add_bos_token_id,
        "[MASK]": w.add_mask_token_id,
    }.items():
        if word in words:
            add(words.index(word))


def convert(folder, out, kind):
    c = json.loads((folder / "config.json").read_text())
    target, file_type = TYPES[kind]
    w = GGUFWriter(out, "bert")
    w.add_type("model")
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_eps(c["layer_norm_eps"])
    w.add_file_type(file_type)
    w.add_causal_attention(False)
    w.add_pooling_type(pooling(folder))
    w.add_token_type_count(c["type_vocab_size"])
    add_vocabulary(w, folder)
    for name, x in read_safetensors(folder / "model.safetensors"):
        kept = x.ndim < 2 or name.startswith(("position_embd", "token_types")) or x.shape[1] % 32
        t = F32 if kept else target
        w.add_tensor(name, quantize(x, t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=TYPES, default="f32")
    args = parser.parse_args()
    convert(args.folder, args.out, args.type)


if __name__ == "__main__":
    main()
