"""`sheaf eval perplexity`: its arithmetic, on a tiny model with random weights."""
import json
import math
import os
import pathlib
import sys
import tempfile
import unittest

import program

TEXT = pathlib.Path(os.environ["SHEAF_FIXTURES"], "wiki_small.txt")
CTX = 64


class Perplexity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = program.tiny_model(pathlib.Path(cls.folder.name, "tiny.gguf"))
        cls.whole = cls.evaluate()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def evaluate(cls, *options, ranks=0, model=None, text=TEXT, ctx=CTX):
        arguments = ["eval", "perplexity", model or cls.model, "-f", text, "--ctx", ctx, "--json", "-q", *options]
        r = program.run(arguments, ranks)
        if r.status != 0 or r.err or r.left:
            raise AssertionError(f"status {r.status}, standard error {r.err}, left {r.left}")
        return json.loads(r.out)

    def test_counts(self):
        j = self.whole
        self.assertEqual(j["windows"], j["text_tokens"] // CTX)
        self.assertGreater(j["windows"], 8)
        self.assertEqual(j["scored_tokens"], j["windows"] * (CTX - 1 - CTX // 2))
        self.assertEqual(j["tokens"], j["windows"] * CTX)
        self.assertEqual(len(j["per_window"]), j["windows"])

    def test_windows_make_up_the_whole(self):
        j = self.whole
        mean = sum(map(math.log, j["per_window"])) / j["windows"]
        self.assertAlmostEqual(mean, j["nll_mean"], places=9)
        self.assertAlmostEqual(math.exp(mean), j["perplexity"], places=6)
        self.assertEqual(j["first_window"], j["per_window"][0])
        # 16 to 80 windows of a random model: the error bar is a few per cent.
        self.assertTrue(0 < j["stderr"] < j["perplexity"] / 4, j["stderr"])

    def test_random_weights_predict_nothing(self):
        # About the size of the vocabulary, and more where the model is wrong with confidence.
        self.assertTrue(300 < self.whole["perplexity"] < 1e6, self.whole["perplexity"])

    def test_how_windows_go_into_steps_changes_nothing(self):
        for batch in (1000, CTX, 24):  # many at once, one, part of one
            j = self.evaluate("--batch", batch, "--windows", 5)
            self.assertEqual(j["per_window"], self.whole["per_window"][:5], f"--batch {batch}")

    def test_ranks_give_the_same_but_for_the_order_of_sums(self):
        for ranks in (2, 4):
            j = self.evaluate("--windows", 6, ranks=ranks)
            self.assertEqual((j["ranks"], j["windows"]), (ranks, 6))
            for mine, theirs in zip(j["per_window"], self.whole["per_window"]):
                self.assertAlmostEqual(mine / theirs, 1, delta=0.02)

    def test_one_line_for_people(self):
        r = program.run(["eval", "perplexity", self.model, "-f", TEXT, "--ctx", CTX, "--windows", 3])
        j = self.evaluate("--windows", 3)
        self.assertEqual(r.out.decode().count("\n"), 1)
        self.assertIn(f"perplexity {j['perplexity']:.4f} +/- {j['stderr']:.4f} (3 windows of {CTX} tokens", r.out.decode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
