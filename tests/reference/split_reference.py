#!/usr/bin/env python3
"""A small GGUF, whole and cut into three files by llama.cpp: fixtures/split.gguf and fixtures/split-0000N-of-00003.gguf.

    split_reference.py FOLDER LLAMA_GGUF_SPLIT

LLAMA_GGUF_SPLIT is llama.cpp's program of that name. Made with gguf 0.19.0 and numpy 2.4.6 (see requirements.txt), and
the llama.cpp inside the source package of llama-cpp-python 0.3.36.
"""

import argparse
import pathlib
import subprocess

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program")
    args = parser.parse_args()
    path = args.folder / "split.gguf"
    random = np.random.default_rng(1)
    w = GGUFWriter(path, "llama")
    w.add_name("in pieces")
    w.add_block_count(2)
    w.add_token_list(["a", "b", "c"])
    w.add_tensor("token_embd.weight", random.standard_normal((3, 64), np.float32))
    for i in range(2):
        w.add_tensor(f"blk.{i}.attn_norm.weight", random.standard_normal(64, np.float32))
        q8 = quantize(random.standard_normal((7, 64), np.float32), GGMLQuantizationType.Q8_0)
        w.add_tensor(f"blk.{i}.ffn_up.weight", q8, raw_dtype=GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    subprocess.run([args.program, "--split", "--split-max-tensors", "2", path, args.folder / "split"], check=True)


if __name__ == "__main__":
    main()
