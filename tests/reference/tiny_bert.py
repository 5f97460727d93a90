#!/usr/bin/env python3
"""A tiny BERT encoder and its embeddings by Hugging Face transformers: fixtures/arch/bert.head, bert.embeddings.

    tiny_bert.py FOLDER             both files
    tiny_bert.py FOLDER --whole     bert.gguf as well, for other programs, and bert/ as transformers saves it

Weights and the head are made as those of tiny_architectures.py; the GGUF is what bert_convert.py makes of the folder.

bert.embeddings, little-endian: magic "SHEB", uint32 version 1, uint32 number of texts, uint32 width; then for each
text: uint32 bytes, the text in UTF-8, uint32 n, uint32 ids[n] (cut to the 80 positions of the model as transformers'
tokenizer does), float32[2][3][width], with keys and values exact, then rounded to fp16 as Sheaf keeps them: mean of the
last hidden states, the first of them, the last (not normalised).

Made with torch 2.15.0 (CPU), transformers 5.24.0, gguf 0.19.0 and numpy 2.4.6.
"""

import argparse
import json
import pathlib
import shutil
import struct

import numpy as np
import torch
import transformers as hf
from bert_convert import convert, gguf_name
from tiny_architectures import uniform, weight
from transformers.models.bert import modeling_bert

CONTEXT = 80
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# words of each text; 62, 63, 64 and 78 are, with [CLS] and [SEP], at the ends of blocks of keys and of the context
WORDS = [0, 1, 3, 14, 15, 62, 63, 64, 7, 78, 40, 100, 2]
SETTINGS = {
    "vocab_size": 288,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 160,
    "max_position_embeddings": CONTEXT,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-3,
    "hidden_act": "gelu",
}


def vocabulary():
    """Special tokens, words and continuations of one letter, words of two letters."""
    pairs = [a + b for a in LETTERS for b in LETTERS]
    words = [*SPECIAL, *LETTERS, *("##" + c for c in LETTERS), *pairs]
    return words[: SETTINGS["vocab_size"]]


def texts():
    """Words that are one token each, then some of several, of capitals, and unknown ones."""
    words = [w for w in vocabulary() if w.isalpha()]
    made = []
    for i, n in enumerate(WORDS):
        pick = ((uniform(f"text {i}", max(n, 1)) + 1) / 2 * len(words)).astype(int)[:n]
        made.append(" ".join(words[k] for k in pick))
    return [*made, "Zebra, quick? yes; [MASK] ab", "\u00c9t\u00e9 na\u00efve 42"]


def save(folder):
    """The model with its weights, as transformers keeps it."""
    model = hf.BertModel(hf.BertConfig(**SETTINGS, attn_implementation="eager"), add_pooling_layer=False).eval().float()
    state = {}
    for key, old in model.state_dict().items():
        name = gguf_name(key)
        state[key] = torch.from_numpy(weight(name, tuple(old.shape)).astype(np.float32))
    model.load_state_dict(state)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary()))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return model


def embeddings(model, ids, rounded):
    eager = modeling_bert.eager_attention_forward

    def fp16(m, query, key, value, *args, **kwargs):
        return eager(m, query, key.half().float(), value.half().float(), *args, **kwargs)

    modeling_bert.eager_attention_forward = fp16 if rounded else eager
    with torch.no_grad():
        states = model(torch.tensor([ids])).last_hidden_state[0].double().numpy()
    modeling_bert.eager_attention_forward = eager
    return np.array([states.mean(axis=0), states[0], states[-1]], "<f4")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder, path = args.folder / "bert", args.folder / "bert.gguf"
    model = save(folder)
    tokenizer = hf.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True)
    convert(folder, path, "f16")
    data = sum(-(-x.nbytes // 32) * 32 for x in stored(model))
    (args.folder / "bert.head").write_bytes(path.read_bytes()[: path.stat().st_size - data])
    with open(args.folder / "bert.embeddings", "wb") as f:
        f.write(b"SHEB" + struct.pack("<III", 1, len(texts()), SETTINGS["hidden_size"]))
        for text in texts():
            ids = tokenizer(text, truncation=True, max_length=CONTEXT)["input_ids"]
            both = [embeddings(model, ids, rounded) for rounded in (False, True)]
            data = text.encode()
            f.write(struct.pack("<I", len(data)) + data)
            f.write(struct.pack("<I", len(ids)) + np.array(ids, "<u4").tobytes() + both[0].tobytes() + both[1].tobytes())
            print(len(ids), "tokens, fp16 keys and values change", np.abs(both[0] - both[1]).max())
    if not args.whole:
        path.unlink()
        shutil.rmtree(folder)


def stored(model):
    """The tensors as in the GGUF."""
    for key, x in model.state_dict().items():
        kept = x.ndim < 2 or "position" in key or "token_type" in key
        yield x.numpy() if kept else x.numpy().astype(np.float16)


if __name__ == "__main__":
    main()
