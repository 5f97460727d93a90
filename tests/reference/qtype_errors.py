"""The errors that ggml's own quantisers make, for the table in tests/quant/test_quantise.c.

usage: qtype_errors.py LIBGGML_BASE.so    (llama.cpp's build makes it; no importance matrix is given)

The data are those of the test, made by the same generator.
"""
import ctypes
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

N = 64 * 256
TYPES = ("Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q5_1", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")


def uniform(seed: int, n: int) -> np.ndarray:
    """splitmix64's top 24 bits, in [-1, 1)."""
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    bell = uniform(7, 12 * N).reshape(N, 12).sum(axis=1) / 2  # variance 1
    data = {"uniform": uniform(5, N), "bell": bell, "long tails": bell**3, "one side": 0.3 + 0.05 * bell, "small": 1e-3 * bell}
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        values, size = GGML_QUANT_SIZES[kind]
        errors = []
        for exact in data.values():
            x = exact.astype(np.float32)
            blocks = np.zeros(N // values * size, np.uint8)
            library.ggml_quantize_chunk(int(kind), x.ctypes.data, blocks.ctypes.data, 0, N // 256, 256, None)
            e = quants.dequantize(blocks, kind).astype(np.float64) - x
            errors.append(np.sqrt(np.sum(e**2) / np.sum(x.astype(np.float64) ** 2)))
        print(f"{{QT_{name}, {{{', '.join(f'{e:.6f}' for e in errors)}}}}},")


if __name__ == "__main__":
    main()
