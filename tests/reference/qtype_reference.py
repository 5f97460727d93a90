"""Fixtures for tests/quant/test_qtype.c, made with the gguf package: values, their blocks, and the blocks' values.

usage: qtype_reference.py FOLDER   writes FOLDER/qtype_NAME.bin for each type: uint32 n, float x[n], blocks, float y[n]
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants

GROUP = 32


def values() -> np.ndarray:
    """12 groups: normal values at several magnitudes, outliers, one sign only, a constant, zeroes, tiny values."""
    rng = np.random.default_rng(20240601)
    groups = [rng.normal(0, scale, GROUP) for scale in (1, 0.02, 3e-3, 50)]
    outlier = rng.normal(0, 0.1, GROUP)
    outlier[7] = -9.5
    groups += [outlier, -outlier, np.abs(rng.normal(0, 1, GROUP)), -np.abs(rng.normal(0, 1, GROUP))]
    groups += [np.full(GROUP, 0.75), np.zeros(GROUP), rng.normal(0, 1e-6, GROUP), rng.uniform(-1, 1, GROUP)]
    return np.concatenate(groups).astype(np.float32)


def main() -> None:
    x = values()
    for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"):
        kind = GGMLQuantizationType[name]
        blocks = quants.quantize(x, kind)
        y = quants.dequantize(blocks, kind).astype(np.float32)
        with open(f"{sys.argv[1]}/qtype_{name}.bin", "wb") as f:
            f.write(np.uint32(x.size).tobytes() + x.tobytes() + blocks.tobytes() + y.tobytes())


if __name__ == "__main__":
    main()
