#!/usr/bin/env python3
"""A plain fp32 forward pass of the llama architecture, as a reference.

Written with numpy alone, from the dequantised weights of a GGUF, to be read
next to the formulas: nothing is fused, cached or quantised, and a text is run
at once (teacher-forced) with a causal mask.

    llama_reference.py perplexity MODEL TEXT --tokenizer BIN [--windows N]
    llama_reference.py fixture MODEL WIKITEXT OUT --tokenizer BIN
    llama_reference.py check MODEL FIXTURE

perplexity scores windows of 512 tokens as llama.cpp's llama-perplexity does:
within each, the logits of positions 256 to 510 score tokens 257 to 511, with no
BOS. fixture writes teacher_forced.bin (see ../fixtures/README.md). check runs
the texts of such a file again, with MODEL's weights, and compares.

BIN is llama.cpp's llama-tokenize. The model needs 1 GB of memory or so.
Made with gguf 0.19.0 and numpy 2.4.6 (see requirements.txt).
"""

import argparse
import math
import struct
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from tokenizer_reference import tokenize

TOP = 8
MAGIC = b"SHTF"
VERSION = 1


class Llama:
    """The weights and the sizes of a model, all weights in fp32."""

    def __init__(self, path):
        reader = GGUFReader(path)

        def meta(key, default=None):
            field = reader.get_field(key)
            if field is None and default is None:
                raise SystemExit(f"{path}: no {key}")
            return default if field is None else field.contents()

        arch = meta("general.architecture")
        if arch != "llama":
            raise SystemExit(f"{path}: architecture {arch}, not llama")
        self.layers = meta("llama.block_count")
        self.width = meta("llama.embedding_length")
        self.heads = meta("llama.attention.head_count")
        self.kv_heads = meta("llama.attention.head_count_kv", self.heads)
        self.head_dim = meta("llama.attention.key_length", self.width // self.heads)
        self.rope_dims = meta("llama.rope.dimension_count", self.head_dim)
        self.rope_base = meta("llama.rope.freq_base", 10000.0)
        self.eps = np.float32(meta("llama.attention.layer_norm_rms_epsilon"))
        self.w = {
            t.name: dequantize(t.data, t.tensor_type).astype(np.float32, copy=False)
            for t in reader.tensors
        }
        if "rope_freqs.weight" in self.w:
            raise SystemExit(f"{path}: scaled RoPE is not done here")
        # A model without an output matrix uses the embedding again.
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])

    def norm(self, x, name):
        mean_square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
        return x / np.sqrt(mean_square + self.eps) * self.w[name + ".weight"]

    def linear(self, x, name):
        # A GGUF matrix is stored one output's weights after the other.
        return x @ self.w[name + ".weight"].T

    def rope(self, x):
        """Rotates the pairs (0, 1), (2, 3), ... of each head: ggml's NORM kind.

        Pair i of position p turns by p * base ** (-2 i / dims).
        """
        n_tokens = x.shape[0]
        pairs = np.arange(self.rope_dims // 2, dtype=np.float64)
        angle = np.outer(np.arange(n_tokens), self.rope_base ** (-2.0 * pairs / self.rope_dims))
        cos = np.cos(angle).astype(np.float32)[:, None, :]
        sin = np.sin(angle).astype(np.float32)[:, None, :]
        out = x.copy()
        a, b = x[..., 0:self.rope_dims:2], x[..., 1:self.rope_dims:2]
        out[..., 0:self.rope_dims:2] = a * cos - b * sin
        out[..., 1:self.rope_dims:2] = a * sin + b * cos
        return out

    def attention(self, x, layer):
        n = x.shape[0]
        name = f"blk.{layer}.attn_"
        q = self.linear(x, name + "q").reshape(n, self.heads, self.head_dim)
        k = self.linear(x, name + "k").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, name + "v").reshape(n, self.kv_heads, self.head_dim)
        q, k = self.rope(q), self.rope(k)
        scale = np.float32(1.0 / math.sqrt(self.head_dim))
        future = np.triu(np.ones((n, n), dtype=bool), 1)
        out = np.empty_like(q)
        group = self.heads // self.kv_heads
        for head in range(self.heads):
            kv = head // group
            scores = (q[:, head] @ k[:, kv].T) * scale
            scores[future] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            p = np.exp(scores)
            p /= p.sum(axis=1, keepdims=True)
            out[:, head] = p @ v[:, kv]
        return self.linear(out.reshape(n, self.heads * self.head_dim), name + "output")

    def feed_forward(self, x, layer):
        name = f"blk.{layer}.ffn_"
        gate = self.linear(x, name + "gate")
        silu = gate / (np.float32(1) + np.exp(-gate))
        return self.linear(silu * self.linear(x, name + "up"), name + "down")

    def forward(self, ids):
        """The logits, [len(ids), vocabulary], of the token after each."""
        x = self.w["token_embd.weight"][np.asarray(ids)]
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"blk.{layer}.attn_norm"), layer)
            x = x + self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm"), layer)
        return self.norm(x, "output_norm") @ self.head.T


def top(logits):
    """Ids and logits of the TOP largest, largest first, equal ones by id."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    return order.astype(np.uint32), np.take_along_axis(logits, order, axis=1)


def perplexity(args):
    model = Llama(args.model)
    with open(args.text, "rb") as f:
        ids = tokenize(args.tokenizer, args.model, f.read())
    window = 512
    nll, count = 0.0, 0
    for i in range(args.windows):
        part = ids[i * window:(i + 1) * window]
        if len(part) < window:
            break
        logits = model.forward(part)[window // 2:window - 1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        targets = part[window // 2 + 1:]
        nll -= log_p[np.arange(len(targets)), targets].sum()
        count += len(targets)
        print(f"[{i + 1}]{math.exp(nll / count):.4f}", flush=True)


# The texts of the fixture. Those of WikiText-2 are a number of tokens from the
# start of the line that holds a byte this far into the file.
WIKITEXT = [
    (0.00, 64), (0.11, 56), (0.23, 72), (0.34, 80), (0.45, 48),
    (0.52, 96), (0.63, 64), (0.74, 88), (0.86, 72), (0.97, 200),
]

CHATS = [
    "<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France, and what is it known for?<|im_end|>\n"
    "<|im_start|>assistant\n"
    "The capital of France is Paris, which is known for the Eiffel Tower,",
    "<|im_start|>user\nGive me three tips for sleeping well.<|im_end|>\n"
    "<|im_start|>assistant\n1. Go to bed at the same time every day.\n"
    "2. Keep the bedroom dark and cool.\n3. Don't drink coffee late.<|im_end|>\n"
    "<|im_start|>user\nExplain the second one.<|im_end|>\n<|im_start|>assistant\n",
]

TEXTS = [
    "#include <stdio.h>\n\nint main(int argc, char **argv)\n{\n"
    "\tfor (int i = 1; i < argc; i++) {\n\t\tprintf(\"%d: %s\\n\", i, argv[i]);\n\t}\n"
    "\treturn 0;\n}\n",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n"
    "    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n\n"
    "print([fibonacci(i) for i in range(10)])\n",
    "Year  Sales   Growth\n2019  1,204.50  3.1%\n2020  1,187.25  -1.4%\n"
    "2021  1,310.00  10.3%\nTotal: 3,701.75 (pi = 3.14159265)",
    "{\"name\": \"sheaf\", \"version\": [1, 0, 2], \"tags\": [\"mpi\", \"cpu\"], "
    "\"nested\": {\"ok\": true, \"none\": null, \"url\": \"http://example.org/?a=1&b=2\"}}",
    "Le petit déjeuner était déjà prêt lorsque la fille du boulanger, fatiguée "
    "d'avoir marché toute la nuit, s'assit près de la fenêtre.",
    "Москва — столица России. 東京は日本の首都です。 القاهرة عاصمة مصر. नमस्ते दुनिया 👩‍👩‍👧 🚀 naïve café",
    "one two three four five six seven eight nine ten\n" * 6,
    "\"Where have you been?\" she asked.\n\n\"I've been waiting at the station,\" he said; "
    "\"you'd told me that you'll be there at six, didn't you?\"\n\nShe didn't answer.",
]


def fixture_texts(args):
    with open(args.wikitext, "rb") as f:
        data = f.read()
    for at, n in WIKITEXT:
        start = data.rfind(b"\n", 0, int(len(data) * at)) + 1
        yield tokenize(args.tokenizer, args.model, data[start:start + 8 * n])[:n]
    for text in CHATS:
        yield tokenize(args.tokenizer, args.model, text.encode(), special=True)
    for text in TEXTS:
        yield tokenize(args.tokenizer, args.model, text.encode())


def fixture(args):
    model = Llama(args.model)
    texts = list(fixture_texts(args))
    out = [MAGIC, struct.pack("<II", VERSION, len(texts))]
    for number, ids in enumerate(texts):
        best, logits = top(model.forward(ids))
        out.append(struct.pack("<I", len(ids)) + np.asarray(ids, "<u4").tobytes())
        pairs = np.empty((len(ids), TOP), dtype=[("id", "<u4"), ("logit", "<f4")])
        pairs["id"], pairs["logit"] = best, logits
        out.append(pairs.tobytes())
        print(f"text {number}: {len(ids)} tokens", flush=True)
    with open(args.output, "wb") as f:
        f.write(b"".join(out))


def read_fixture(path):
    """Yields (ids, top ids, top logits) of each text."""
    with open(path, "rb") as f:
        data = f.read()
    version, n_texts = struct.unpack_from("<II", data, 4)
    if data[:4] != MAGIC or version != VERSION:
        raise SystemExit(f"{path}: not a fixture of version {VERSION}")
    at = 12
    for _ in range(n_texts):
        n, = struct.unpack_from("<I", data, at)
        ids = np.frombuffer(data, "<u4", n, at + 4)
        at += 4 + 4 * n
        pairs = np.frombuffer(data, [("id", "<u4"), ("logit", "<f4")], n * TOP, at)
        at += pairs.nbytes
        yield ids, pairs["id"].reshape(n, TOP), pairs["logit"].reshape(n, TOP)
    if at != len(data):
        raise SystemExit(f"{path}: {len(data) - at} bytes too many")


def check(args):
    model = Llama(args.model)
    same, total, worst = 0, 0, 0.0
    for ids, best, expected in read_fixture(args.fixture):
        logits = model.forward(ids)
        same += int((logits.argmax(axis=1) == best[:, 0]).sum())
        total += len(ids)
        at_best = np.take_along_axis(logits, best.astype(np.int64), axis=1)
        worst = max(worst, float(np.abs(at_best - expected).max()))
    print(f"argmax agrees at {same} of {total} positions; largest difference {worst:.2g}")
    return 0 if same == total else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("perplexity")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--windows", type=int, default=4)
    p.set_defaults(run=perplexity)
    p = commands.add_parser("fixture")
    p.add_argument("model")
    p.add_argument("wikitext")
    p.add_argument("output")
    p.add_argument("--tokenizer", required=True)
    p.set_defaults(run=fixture)
    p = commands.add_parser("check")
    p.add_argument("model")
    p.add_argument("fixture")
    p.set_defaults(run=check)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
