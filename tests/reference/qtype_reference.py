"""Fixtures for tests/quant, made with the gguf package.

usage: qtype_reference.py FOLDER

FOLDER/qtype_NAME.bin: uint32 n, float x[n], blocks, float y[n]. Of the types that the package quantises, x are values,
blocks what it makes of them, and y what these stand for. Of the others n is 0 and x is absent; after it comes uint32 m,
then random blocks of m values and y[m].
"""
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

GROUP = 32
BOTH_WAYS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q5_1")
# the type, and where its blocks have fp16 numbers (bytes)
FROM_BLOCKS = {"IQ4_NL": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0]}
# scales as fp16 bits: 1, -0.5, the largest and the least normal, the largest and the least subnormal, -0, a common one
SCALES = np.array([0x3C00, 0xB800, 0x7BFF, 0x0400, 0x83FF, 0x0001, 0x8000, 0x1234], dtype="<u2")


def values() -> np.ndarray:
    """12 groups: normal values at several magnitudes, outliers, one sign only, a constant, zeroes, tiny values."""
    rng = np.random.default_rng(20240601)
    groups = [rng.normal(0, scale, GROUP) for scale in (1, 0.02, 3e-3, 50)]
    outlier = rng.normal(0, 0.1, GROUP)
    outlier[7] = -9.5
    groups += [outlier, -outlier, np.abs(rng.normal(0, 1, GROUP)), -np.abs(rng.normal(0, 1, GROUP))]
    groups += [np.full(GROUP, 0.75), np.zeros(GROUP), rng.normal(0, 1e-6, GROUP), rng.uniform(-1, 1, GROUP)]
    return np.concatenate(groups).astype(np.float32)


def random_blocks(name: str) -> np.ndarray:
    """8 blocks of random bytes, so that codes and the groups' scales take all values; each scale of SCALES in turn."""
    bytes_of_block = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    blocks = np.random.default_rng(20240602).integers(0, 256, (len(SCALES), bytes_of_block), dtype=np.uint8)
    for k, at in enumerate(FROM_BLOCKS[name]):
        blocks[:, at : at + 2] = np.roll(SCALES, 3 * k).reshape(-1, 1).view(np.uint8)
    return blocks


def main() -> None:
    x = values()
    for name in BOTH_WAYS:
        kind = GGMLQuantizationType[name]
        blocks = quants.quantize(x, kind)
        y = quants.dequantize(blocks, kind).astype(np.float32)
        with open(f"{sys.argv[1]}/qtype_{name}.bin", "wb") as f:
            f.write(np.uint32(x.size).tobytes() + x.tobytes() + blocks.tobytes() + y.tobytes())
    for name in FROM_BLOCKS:
        blocks = random_blocks(name)
        y = quants.dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
        with open(f"{sys.argv[1]}/qtype_{name}.bin", "wb") as f:
            f.write(np.uint32(0).tobytes() + np.uint32(y.size).tobytes() + blocks.tobytes() + y.tobytes())


if __name__ == "__main__":
    main()
