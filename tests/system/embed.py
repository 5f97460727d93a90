"""`sheaf embed` with all-MiniLM-L6-v2: the embeddings that sentence-transformers makes of 20 sentences, in fp32 and with
int8 weights, at 1 to 4 ranks, and the same bits alone and in a batch."""
import json
import pathlib
import sys
import tempfile
import unittest

import real
from real import program

import npy  # of tests/launch, as program

MODEL = real.MODELS / "all-MiniLM-L6-v2-F32.gguf"
DATA = pathlib.Path(real.DATA or "", "minilm")


def embed(*words, model=MODEL, ranks=0):
    return real.call_json("embed", model, *words, ranks=ranks)


class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lines = DATA / "sentences.txt"
        cls.sentences = cls.lines.read_text("utf-8").splitlines()
        cls.wanted = npy.read(DATA / "embeddings.npy")
        cls.tokens = sum(len(ids) for ids in json.loads((DATA / "input_ids.json").read_text()))

    def least_cosine(self, j):
        self.assertEqual((j["texts"], j["tokens"], j["cut"]), (len(self.wanted), self.tokens, 0))
        return min(npy.cosine(row, wanted) for row, wanted in zip(j["embeddings"], self.wanted))

    def test_fp32(self):
        for ranks in (1, 2, 3, 4):
            self.assertGreater(self.least_cosine(embed("-f", self.lines, ranks=ranks)), 0.9999, ranks)

    def test_int8_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            small = pathlib.Path(folder, "small.gguf")
            real.call_json("quantize", MODEL, "-o", small, "--type", "q8_0")
            for ranks in (1, 2, 3, 4):
                for act in ("int16", "int8"):
                    j = embed("-f", self.lines, "--act", act, model=small, ranks=ranks)
                    self.assertGreater(self.least_cosine(j), 0.995, (ranks, act))

    def test_same_bits(self):
        for ranks in (1, 3):
            whole = embed("-f", self.lines, ranks=ranks)["embeddings"]
            for options in (["-b", 1], ["-b", 64], ["--threads", 1], *(["--isa", isa] for isa in real.isas())):
                self.assertEqual(embed("-f", self.lines, *options, ranks=ranks)["embeddings"], whole, (ranks, options))
            for i in (0, 7, 19):
                self.assertEqual(embed(self.sentences[i], ranks=ranks)["embeddings"], [whole[i]], (ranks, i))

    def test_long_text(self):
        """Cut to the model's 512 positions, as if what is behind had not been there."""
        text = (pathlib.Path(real.SOURCE, "tests/fixtures/wiki_small.txt").read_bytes().decode().replace("\n", " ")).strip()
        j = embed(text)
        self.assertEqual((j["tokens"], j["cut"]), (512, 1))
        self.assertEqual(embed(text + " and more")["embeddings"], j["embeddings"])


if __name__ == "__main__":
    missing = [str(path) for path in (MODEL, DATA / "sentences.txt", DATA / "embeddings.npy") if not path.is_file()]
    if missing:
        print("skipped: there is no", ", ".join(missing))
        sys.exit(real.SKIPPED)
    unittest.main(verbosity=2)
