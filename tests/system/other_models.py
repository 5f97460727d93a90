"""Perplexity of other real models on WikiText-2, at 1 to 4 ranks: Gemma 3 270M (one KV head, so that ranks share it; windows
of 512 positions in five layers of six) and Qwen2.5-Coder 1.5B (two KV heads; biases), both in Q4_K_M.

The figures are llama-perplexity's (the llama.cpp inside llama-cpp-python 0.3.36, cache of 16-bit floats), of windows of 512
tokens if not said otherwise: of the files themselves, with activations rounded to 8 bits, and EXACT, of the same weights
dequantised to F32 (reference/gguf_convert.py)."""
import sys

import real

GEMMA = real.MODELS / "gemma-3-270m-Q4_K_M.gguf"
GEMMA_LLAMA_CPP, GEMMA_EXACT = 16.5877, 16.5431  # 32 windows
GEMMA_LONG = 18.0731  # 3 windows of 2048 tokens, exact
QWEN = real.MODELS / "qwen2.5-coder-1.5b-Q4_K_M.gguf"
QWEN_LLAMA_CPP, QWEN_EXACT = 17.1928, 17.1831  # 16 windows


def evaluate(model, windows, *options, ranks=0):
    return real.call_json("eval", "perplexity", model, "-f", real.wikitext(), "--windows", windows, *options, ranks=ranks)


class OnRanks(real.PerplexityCase):
    def check(self, model, windows, llama_cpp, exact):
        results = {ranks: evaluate(model, windows, ranks=ranks) for ranks in (1, 2, 3, 4)}
        self.assert_same_on_ranks(results, 0.02)
        for j in results.values():
            self.assert_near(j["perplexity"], exact, 0.02)
            self.assert_near(j["perplexity"], llama_cpp, 0.3)
        j = evaluate(model, windows, "--act", "int8", ranks=2)
        self.assertEqual(j["activations"], "int8")
        self.assert_near(j["perplexity"], llama_cpp, 0.3)


class Gemma(OnRanks):
    def test_on_ranks(self):
        self.check(GEMMA, 32, GEMMA_LLAMA_CPP, GEMMA_EXACT)

    def test_bits(self):
        """Threads and steps change none."""
        first = evaluate(GEMMA, 2, "--threads", 2)["per_window"]
        for options in (["--threads", 1], ["--batch", 33]):
            self.assertEqual(evaluate(GEMMA, 2, *options)["per_window"], first, options)

    def test_long_contexts(self):
        """Four windows of attention in a window of text. Short steps need less of the cache, and give the same."""
        whole, short = (evaluate(GEMMA, 3, "--ctx", 2048, "--batch", batch) for batch in (2048, 128))
        self.assert_near(whole["perplexity"], GEMMA_LONG, 0.02)
        self.assertEqual(whole["per_window"], short["per_window"])
        # 3 layers keep all 32 blocks of 64 positions, 15 keep those; or 1 + (573 + 128) // 64 = 11 with steps of 128.
        self.assertEqual(short["kv_bytes_rank0"] * (18 * 32), whole["kv_bytes_rank0"] * (3 * 32 + 15 * 11))


class Qwen(OnRanks):
    def test_on_ranks(self):
        self.check(QWEN, 16, QWEN_LLAMA_CPP, QWEN_EXACT)


if __name__ == "__main__":
    real.main(needs_data=True, models=[QWEN if "Qwen" in sys.argv else GEMMA])
