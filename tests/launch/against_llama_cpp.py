"""Perplexities of SmolLM2-135M-Instruct over the first windows of the WikiText-2 test text, beside those of llama.cpp.

The figures are the running values that llama-perplexity (llama.cpp as in llama-cpp-python 0.3.36; -c 512, fp16 KV cache)
prints for the F32 file, whose weights are those of the Q4_1 file, dequantised: with weights and activations in fp32 it
is the nearest to exact arithmetic. The Q4_1 file must come to the same within what rounding activations to 16 bits does.
The Q8_0 file has weights of its own; llama.cpp rounds activations to 8 bits there, hence the larger difference, and so
for the Q4_1 file when Sheaf rounds to 8 bits as llama.cpp does: two roundings of which neither is the other.
"""
import json
import math
import os
import pathlib
import sys
import unittest

import program

MODELS = pathlib.Path(os.environ.get("SHEAF_MODELS") or pathlib.Path(os.environ["SHEAF_SOURCE"], "models"))
NAME = "SmolLM2-135M-Instruct-{}.gguf"
F32 = [12.5619, 21.2807, 22.2074, 22.1066]
Q4_1 = [12.6138, 21.3795, 22.2525, 22.1792]
Q8_0 = [12.4583, 21.1820, 22.1765, 22.1382]


def text():
    """The whole text where there is SHEAF_DATA, else its beginning, which is enough for one window."""
    whole = pathlib.Path(os.environ.get("SHEAF_DATA", ""), "wikitext-2-test.raw")
    return whole if whole.is_file() else pathlib.Path(os.environ["SHEAF_FIXTURES"], "wiki_small.txt")


class AgainstLlamaCpp(unittest.TestCase):
    def compare(self, model, figures, tolerance, *options, ranks=1):
        path = MODELS / NAME.format(model)
        if not path.exists():
            self.skipTest(f"no {path}")
        arguments = ["eval", "perplexity", path, "-f", text(), "--windows", len(figures), "--json", "-q", *options]
        r = program.run(arguments, ranks)
        self.assertEqual((r.status, r.err, r.left), (0, [], []))
        windows = json.loads(r.out)["per_window"]
        self.assertGreaterEqual(len(windows), 1)
        for n, expected in enumerate(figures[: len(windows)], 1):
            running = math.exp(sum(map(math.log, windows[:n])) / n)
            self.assertLess(abs(running / expected - 1), tolerance, f"{n} windows: {running}, llama.cpp {expected}")

    def test_q4_1(self):
        for ranks in (1, 2):
            self.compare("Q4_1", F32, 5e-4, ranks=ranks)

    def test_q4_1_with_8_bit_activations(self):
        self.compare("Q4_1", Q4_1, 0.01, "--act", "int8", ranks=2)

    def test_q8_0(self):
        self.compare("Q8_0", Q8_0, 0.01)

    def test_f32(self):
        self.compare("F32", F32[:1], 5e-4, ranks=2)


if __name__ == "__main__":
    if not (MODELS / NAME.format("Q4_1")).exists():
        print("skipped:", MODELS / NAME.format("Q4_1"), "is not there (scripts/get-models fetches it)")
        sys.exit(77)
    unittest.main(verbosity=2)
