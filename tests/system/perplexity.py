"""Perplexity of the real model on WikiText-2 (windows of 512 tokens), against llama.cpp and against itself: other rank
counts may differ by the order of sums alone; other threads, batches and instruction sets not in a single bit.

llama.cpp's figures are llama-perplexity's (the llama.cpp inside llama-cpp-python 0.3.36, -c 512, cache of 16-bit floats).
EXACT is with the F32 file, so without rounding of activations; with Q4_1 it rounds activations to 8 bits."""
import real

EXACT = {1: 12.5619, 2: 21.2807, 16: 28.4850, 64: 23.0130}
LLAMA_CPP_Q4_1 = {1: 12.6138, 16: 28.6503, 64: 23.0934}


def evaluate(windows, *options, qtype="Q4_1", ranks=0):
    words = ["eval", "perplexity", real.model(qtype), "-f", real.wikitext(), "--windows", windows, *options]
    return real.call_json(*words, ranks=ranks)


class Few(real.PerplexityCase):
    """For every run of the tests."""

    def test_two_windows_on_ranks(self):
        results = {ranks: evaluate(2, ranks=ranks) for ranks in (1, 2, 3, 4)}
        self.assert_same_on_ranks(results, 0.02)
        for j in results.values():
            self.assert_near(j["first_window"], EXACT[1], 0.05)
            self.assert_near(j["perplexity"], EXACT[2], 0.05)

    def test_threads_and_batches_do_not_change_a_bit(self):
        first = evaluate(2, "--threads", 2)["per_window"]
        for options in (["--threads", 1], ["--batch", 512], ["--batch", 33]):
            self.assertEqual(evaluate(2, *options)["per_window"], first, options)


class Ranks(real.PerplexityCase):
    def test_q4_1(self):
        results = {ranks: evaluate(16, ranks=ranks) for ranks in (1, 2, 3, 4, 8)}
        self.assert_same_on_ranks(results, 0.02)
        self.assert_near(results[1]["perplexity"], EXACT[16], 0.05)

    def test_checked(self):
        """--check compares the ranks' results after every collective, and changes nothing."""
        for ranks in (2, 3):
            checked, plain = (evaluate(2, *options, ranks=ranks) for options in (["--check"], []))
            self.assertEqual(checked["per_window"], plain["per_window"])
        each = evaluate(2, "--check", "--hosts", "each", ranks=3)
        self.assertEqual(each["hosts"], 3)
        self.assert_near(each["perplexity"], EXACT[2], 0.05)

    def test_f32(self):
        results = {ranks: evaluate(4, qtype="F32", ranks=ranks) for ranks in (1, 2, 3)}
        self.assert_same_on_ranks(results, 0.02)


class Whole(real.PerplexityCase):
    """64 windows, one rank."""

    def test_q4_1_is_as_good_as_exact(self):
        j = evaluate(64)
        self.assertEqual(j["activations"], "int16")
        self.assert_near(j["perplexity"], EXACT[64], 0.05)

    def test_q4_1_int8_is_as_good_as_llama_cpp(self):
        j = evaluate(64, "--act", "int8")
        self.assertEqual(j["activations"], "int8")
        self.assert_near(j["perplexity"], LLAMA_CPP_Q4_1[64], 0.3)

    def test_f32(self):
        self.assert_near(evaluate(64, qtype="F32")["perplexity"], EXACT[64], 0.02)

    def test_q8_0(self):
        """Its weights are those of Q4_1 rounded once more, to 8 bits: a little noise, no more."""
        self.assert_near(evaluate(16, qtype="Q8_0")["perplexity"], EXACT[16], 0.5)


class Bits(real.PerplexityCase):
    """Not a bit may change."""

    def test_threads_and_batches(self):
        for qtype in real.TYPES:
            first = evaluate(2, "--threads", 2, qtype=qtype)["per_window"]
            for options in (["--threads", 1], ["--batch", 512], ["--batch", 33, "--threads", 1], ["--bind", "none"]):
                self.assertEqual(evaluate(2, *options, qtype=qtype)["per_window"], first, (qtype, options))

    def test_instruction_sets(self):
        for qtype in ("Q4_1", "F32"):
            first = evaluate(1, "--isa", "ref", qtype=qtype)["per_window"]
            for isa in real.isas():
                j = evaluate(1, "--isa", isa, qtype=qtype)
                self.assertEqual((j["isa"], j["per_window"]), (isa, first), qtype)

    def test_instruction_sets_int8(self):
        per_isa = [evaluate(2, "--act", "int8", "--isa", isa)["per_window"] for isa in real.isas()]
        for other in per_isa[1:]:
            self.assertEqual(other, per_isa[0])

    def test_runs(self):
        for ranks in (3, 4):
            self.assertEqual(evaluate(2, ranks=ranks)["per_window"], evaluate(2, ranks=ranks)["per_window"])


if __name__ == "__main__":
    real.main(needs_data=True)
