"""`sheaf embed`: vectors as text, JSON and NumPy files, from words, files and standard input, at 1 to 4 ranks, against
transformers' (fixtures/arch/bert.embeddings, see tests/reference/tiny_bert.py); and what it refuses."""
import json
import math
import os
import pathlib
import signal
import struct
import tempfile
import unittest

import npy
import program

FIXTURES = pathlib.Path(os.environ["SHEAF_FIXTURES"])
POOLINGS = ("mean", "cls", "last")


def fixture():
    """The texts, how many tokens each has, and their vectors by pooling."""
    data = (FIXTURES / "arch/bert.embeddings").read_bytes()
    magic, version, n, width = struct.unpack_from("<4sIII", data)
    assert (magic, version) == (b"SHEB", 1)
    at, texts, tokens, vectors = 16, [], [], {p: [] for p in POOLINGS}
    for _ in range(n):
        (size,) = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
        tokens.append(struct.unpack_from("<I", data, at)[0])
        at += 4 + 4 * tokens[-1]
        for i, pooling in enumerate(POOLINGS):
            vectors[pooling].append(struct.unpack_from(f"<{width}f", data, at + 4 * i * width))
        at += 6 * 4 * width
    assert at == len(data)
    return texts, tokens, vectors


class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.model = program.arch_model(pathlib.Path(cls.kept.name, "bert.gguf"), "bert")
        cls.llama = program.tiny_model(pathlib.Path(cls.kept.name, "llama.gguf"))
        cls.texts, cls.tokens, cls.vectors = fixture()
        cls.lines = pathlib.Path(cls.kept.name, "lines.txt")
        cls.lines.write_text("".join(f"{text}\n" for text in cls.texts), "utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name, "out.npy")

    def tearDown(self):
        self.folder.cleanup()

    def embed(self, *words, ranks=0, **how):
        r = program.run(["embed", self.model, "-q", *words], ranks, **how)
        self.assertEqual((r.status, r.err, r.left), (0, [], []))
        return r.out

    def refused(self, *words, status=1, says, ranks=0, text=None, model=None):
        r = program.run(["embed", model or self.model, *words], ranks, text=text)
        self.assertEqual((r.status, r.left), (status, []), r.err)
        errors = [line for line in r.err if line.startswith("sheaf: ")]
        self.assertEqual(len(errors), 1, r.err)
        self.assertIn(says, errors[0])
        self.assertEqual(os.listdir(self.folder.name), [])
        return r

    def check(self, rows, pooling="mean"):
        self.assertEqual(len(rows), len(self.texts))
        for row, wanted in zip(rows, self.vectors[pooling]):
            self.assertGreater(npy.cosine(row, wanted), 0.99999)

    def test_as_text_json_and_file(self):
        rows = [[float(x) for x in line.split(" ")] for line in self.embed("-f", self.lines).decode().splitlines()]
        self.check(rows)
        for row in rows:
            self.assertAlmostEqual(math.hypot(*row), 1, places=6)
        j = json.loads(self.embed("--json", "-f", self.lines))
        self.assertEqual(j["embeddings"], rows)
        self.assertEqual((j["texts"], j["width"], j["pooling"], j["normalized"]), (len(rows), 96, "mean", True))
        self.assertEqual((j["tokens"], j["cut"], j["ctx"]), (sum(self.tokens), 1, 80))
        j = json.loads(self.embed("--json", "-f", self.lines, "-o", self.out))
        self.assertNotIn("embeddings", j)
        single = struct.Struct("<96f")
        self.assertEqual([single.pack(*row) for row in npy.read(self.out)], [single.pack(*row) for row in rows])

    def test_ways_in_give_the_same(self):
        whole = self.embed("-f", self.lines)
        self.assertEqual(self.embed(text=self.lines.read_bytes()), whole)
        self.assertEqual(self.embed("-f", "-", text=self.lines.read_bytes()), whole)
        self.assertEqual(self.embed(text=self.lines.read_bytes()[:-1].replace(b"\n", b"\r\n")), whole)
        self.assertEqual(self.embed("--", *self.texts), whole)
        self.assertEqual(self.embed("-f", self.lines, "-b", "1"), whole)  # each alone
        self.assertEqual(self.embed("-f", self.lines, "-b", "100", "--threads", "1"), whole)
        self.assertEqual(self.embed(text=b""), b"")

    def test_every_number_of_ranks(self):
        for ranks in (1, 2, 3, 4):
            for pooling in POOLINGS if ranks == 3 else POOLINGS[:1]:
                out = self.embed("-f", self.lines, "--json", "--check", "--pooling", pooling, ranks=ranks)
                j = json.loads(out)
                self.assertEqual((j["ranks"], j["pooling"]), (ranks, pooling))
                self.check(j["embeddings"], pooling)
        self.check(json.loads(self.embed("-f", self.lines, "--json", "--hosts", "each", "--wire", "bf16", ranks=3))["embeddings"])

    def test_not_normalized(self):
        j = json.loads(self.embed("--json", "--normalize", "none", "--", *self.texts))
        for row, wanted in zip(j["embeddings"], self.vectors["mean"]):
            for x, y in zip(row, wanted):
                self.assertAlmostEqual(x, y, delta=3e-3)

    def test_longer_texts_are_cut_and_that_is_said_once(self):
        r = program.run(["embed", self.model, "--ctx", "20", "-f", self.lines])
        self.assertEqual(r.status, 0)
        longer = sum(n > 20 for n in self.tokens)
        said = [line for line in r.err if line.startswith("cut")]
        self.assertEqual(len(said), 1)
        self.assertIn(f"{longer} texts longer than 20 tokens", said[0])
        # a cut text keeps its end: the first 18 of the words, each of which is one token here
        text = " ".join(self.texts[5].split()[:18])
        self.assertEqual(self.embed("--ctx", "20", self.texts[5]), self.embed(text))

    def test_quantised(self):
        small = pathlib.Path(self.folder.name, "small.gguf")
        r = program.run(["quantize", self.model, "-o", small, "--type", "q8_0"])
        self.assertEqual(r.status, 0, r.err)
        for act in ("int16", "int8"):
            for ranks in (1, 3):
                r = program.run(["embed", small, "--json", "-q", "--act", act, "-f", self.lines], ranks)
                self.assertEqual((r.status, r.err), (0, []))
                for row, wanted in zip(json.loads(r.out)["embeddings"], self.vectors["mean"]):
                    self.assertGreater(npy.cosine(row, wanted), 0.9995)

    def test_info_and_plan(self):
        r = program.run(["info", self.model, "--json"])
        j = json.loads(r.out)
        self.assertEqual((j["encoder"], j["pooling"], j["kv_bytes_per_token"]), (True, "mean", 0))
        self.assertIn(b"pooling         mean", program.run(["info", self.model]).out)
        self.assertEqual(program.run(["plan", self.model, "-n", "4"]).status, 0)

    def test_refused(self):
        self.refused("x", says="for encoders", model=self.llama)
        self.refused("x", says="for encoders", model=self.llama, ranks=2)
        self.refused("--ctx", "81", "x", says="has a context of 80 positions")
        self.refused("--ctx", "2", "x", says="wants 2 tokens around a text")
        self.refused("-f", "/nonexistent/lines", says="/nonexistent/lines: cannot open")
        self.refused("-f", "/nonexistent/lines", says="/nonexistent/lines: cannot open", ranks=3)
        self.refused("-o", "/nonexistent/out.npy", "x", says="/nonexistent/out.npy")
        self.refused("-o", self.folder.name, "x", says="is no file")
        self.refused("-o", self.out, text=b"fine\nnot \xff fine\n", says="text 2: the text is not UTF-8")
        self.refused(text=b"fine\nnot \xff fine\n", says="text 2: the text is not UTF-8", ranks=2)
        self.refused("-o", self.out, "x", "-f", self.lines, says="exclude each other", status=2)
        for verb in (["run", self.model, "-p", "x"], ["eval", "perplexity", self.model, "-f", self.lines]):
            r = program.run(verb, 2)
            self.assertEqual((r.status, len(r.err), r.left), (1, 1, []))
            self.assertIn("'sheaf embed' is for it", r.err[0])

    def test_an_old_file_stays_until_there_is_a_new_one(self):
        self.out.write_bytes(b"old")
        r = program.run(["embed", self.model, "-o", self.out], text=b"\xff\n")
        self.assertEqual((r.status, self.out.read_bytes(), os.listdir(self.folder.name)), (1, b"old", ["out.npy"]))
        self.embed("-o", self.out, "x")
        self.assertEqual(len(npy.read(self.out)), 1)
        self.embed("-o", self.out, text=b"")
        self.assertEqual(npy.read(self.out), [])

    def test_interrupted(self):
        many = self.lines.read_bytes() * 4000
        call = program.Call(["embed", self.model, "-q", "-o", self.out, "-f", "-", "--isa", "ref"], 0, stdin=-1)
        call.process.stdin.write(many)
        call.process.stdin.close()
        call.process.stdin = None
        while not os.listdir(self.folder.name):  # until there is a file to remove
            pass
        os.kill(call.process.pid, signal.SIGINT)
        r = call.finish()
        self.assertEqual((r.status, r.left, os.listdir(self.folder.name)), (130, [], []), r.err)
        self.assertEqual(r.err, [f"interrupted: {self.out} was not written"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
