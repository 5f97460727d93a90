"""Perplexity of what `sheaf quantize` writes: SmolLM2's F32 file in the types that people use, 8 windows of WikiText-2.

EXACT is llama-perplexity's figure (the llama.cpp inside llama-cpp-python 0.3.36) for the weights of our file dequantised to
F32: that of the file itself but for activations, which llama.cpp rounds to 8 bits. With these it gives LLAMA_CPP; how
far that is from EXACT is llama.cpp's rounding, and no property of the file. (q4_k and q6_k: rows of 576 are no whole
blocks of 256, so most matrices are q5_0 and q8_0, as llama.cpp chooses too.)"""
import pathlib
import tempfile

import real

LLAMA_CPP = {"q8_0": 23.697, "q4_0": 31.552, "q4_1": 25.053, "q4_k": 25.920, "q6_k": 23.832, "bf16": 23.613}
EXACT = {"q8_0": 23.656, "q4_0": 31.467, "q4_1": 24.958, "q4_k": 25.759, "q6_k": 23.712, "bf16": 23.613}


class Quantised(real.PerplexityCase):
    def test_types(self):
        with tempfile.TemporaryDirectory() as folder:
            for qtype, exact in EXACT.items():
                with self.subTest(qtype):
                    out = pathlib.Path(folder, f"{qtype}.gguf")
                    real.call_json("quantize", real.model("F32"), "-o", out, "--type", qtype)
                    j = real.call_json("eval", "perplexity", out, "-f", real.wikitext(), "--windows", 8)
                    self.assert_near(j["perplexity"], exact, 0.02)
                    self.assert_near(j["perplexity"], LLAMA_CPP[qtype], 0.7)
                    out.unlink()


if __name__ == "__main__":
    real.main(needs_data=True, models=[real.model("F32")])
