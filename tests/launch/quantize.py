"""`sheaf quantize`: the file it writes, what it says about it, and that a failure leaves nothing behind."""
import array
import json
import os
import pathlib
import random
import resource
import signal
import stat
import struct
import tempfile
import time
import unittest

import program

PROMPT = "once upon a time"
VALUES = 4096  # in a row of the large file


def large_file(path, rows=2048, columns=VALUES):
    """A GGUF file of one F32 matrix without a model around it: some seconds of work."""
    name = b"big.weight"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(name)) + name
    head += struct.pack("<IQQIQ", 2, columns, rows, 0, 0)
    row = struct.pack(f"<{columns}f", *(((i * 2654435761) % 2**32) / 2**31 - 1 for i in range(columns)))
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _ in range(rows):
            f.write(row)
    return path


FIXTURES = pathlib.Path(os.environ["SHEAF_FIXTURES"])
TOKENS = 288  # of tests/fixtures/arch/tokenizer.json


def llama_folder(path, width=256, ffn=288, rows=TOKENS, change=lambda tokenizer: None):
    """One layer of random weights as Hugging Face's transformers saves it, with a tokenizer of byte-level BPE."""
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": width, "intermediate_size": ffn, "vocab_size": rows}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
    config |= {"max_position_embeddings": 128, "tie_word_embeddings": True, "eos_token_id": [2, 0]}
    layer = "model.layers.0."
    shapes = {"model.embed_tokens": [rows, width], "model.norm": [width], layer + "input_layernorm": [width]}
    shapes |= {layer + "post_attention_layernorm": [width], layer + "self_attn.q_proj": [width, width]}
    shapes |= {layer + f"self_attn.{n}_proj": [width // 2, width] for n in "kv"}
    shapes |= {layer + "self_attn.o_proj": [width, width], layer + "mlp.down_proj": [width, ffn]}
    shapes |= {layer + f"mlp.{n}_proj": [ffn, width] for n in ("gate", "up")}
    header, data, draw = {}, b"", random.Random(1)
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array.array("f", [1.0] * n if len(shape) == 1 else [draw.gauss(0, 0.05) for _ in range(n)])
        header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.mkdir()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((FIXTURES / "arch/tokenizer.json").read_text())
    change(tokenizer)
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = tempfile.TemporaryDirectory()
        cls.f32 = program.tiny_model(pathlib.Path(cls.source.name, "f32.gguf"), qtype="f32")
        cls.q8_0 = program.tiny_model(pathlib.Path(cls.source.name, "q8_0.gguf"), qtype="q8_0")
        cls.llama = llama_folder(pathlib.Path(cls.source.name, "llama"))

    @classmethod
    def tearDownClass(cls):
        cls.source.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name, "out.gguf")

    def tearDown(self):
        self.folder.cleanup()

    def files(self):
        return sorted(os.listdir(self.folder.name))

    def quantize(self, *options, model=None, ranks=0):
        """The JSON of a call that must succeed."""
        r = program.run(["quantize", model or self.f32, "-o", self.out, "--json", *options], ranks)
        self.assertEqual((r.status, r.err, r.left), (0, [], []))
        self.assertEqual(self.files(), ["out.gguf"])
        return json.loads(r.out)

    @staticmethod
    def info(model):
        return json.loads(program.run(["info", model, "--json"]).out)

    @staticmethod
    def ids(model):
        r = program.run(["run", model, "-p", PROMPT, "-n", 24, "--ignore-eos", "-q", "--json"])
        return json.loads(r.out)["ids"]

    def test_as_the_tests_own_writer_makes_it(self):
        """tests/tools/make_tiny.c writes the same weights as Q8_0: the types, and what the model says, are the same."""
        j = self.quantize("--type", "q8_0")
        made, wanted = self.info(self.out), self.info(self.q8_0)
        self.assertEqual(made["types"], wanted["types"])
        self.assertEqual(j["types"], [{key: t[key] for key in ("type", "tensors", "bytes")} for t in made["types"]])
        for key in ("architecture", "name", "vocabulary", "parameters", "tensors", "weight_bytes", "rope_base"):
            self.assertEqual(made[key], wanted[key], key)
        self.assertEqual(self.ids(self.out), self.ids(self.q8_0))

    def test_what_it_says(self):
        j = self.quantize("--type", "q4_0")
        before = self.info(self.f32)
        self.assertEqual((j["model_bytes"], j["output_bytes"]), (os.path.getsize(self.f32), os.path.getsize(self.out)))
        self.assertEqual(j["tensors"], before["tensors"])
        self.assertEqual(j["converted"] + sum(j["kept"].values()), j["tensors"])
        self.assertEqual(j["kept"]["vectors"], 5)  # two norms in each of two layers, and the last
        self.assertTrue(0.05 < j["relative_error"] < 0.1, j["relative_error"])  # 4 bits over uniform values: 1/15
        r = program.run(["quantize", self.f32, "-o", self.out, "--type", "q4_0", "-q"])
        self.assertEqual((r.status, r.err), (0, []))
        for text in (b"Q4_0", b"converted", b"5 vectors", b"error"):
            self.assertIn(text, r.out)

    def test_threads_and_ranks_change_nothing(self):
        self.quantize("--type", "iq4_nl", "--threads", 1)
        one = self.out.read_bytes()
        self.quantize("--type", "iq4_nl", "--threads", 4, "--bind", "none")
        self.assertEqual(self.out.read_bytes(), one)
        self.quantize("--type", "iq4_nl", ranks=2)
        self.assertEqual(self.out.read_bytes(), one)

    def test_rules(self):
        rules = ["--tensor", "token_embd.weight=keep", "--tensor", "blk.1.*=q4_1", "--tensor", "*.ffn_down.weight=F16"]
        j = self.quantize("--type", "q8_0", *rules)
        count = {t["type"]: t["tensors"] for t in j["types"]}
        # 7 matrices a layer: blk.1 has 7 as Q4_1, blk.0 6 as Q8_0 and one as F16; the head is Q8_0 too
        self.assertEqual((count["Q4_1"], count["F16"]), (7, 1))
        self.assertIn(count["Q8_0"], (6, 7))
        self.assertEqual(count["F32"], 5 + 1)
        self.assertEqual(j["kept"], {"vectors": 5, "others": 1, "uneven": 0})

    def test_rows_that_are_no_whole_blocks(self):
        """The tiny model is 96 and 192 wide: blocks of 256 give way to those of 32 that llama.cpp takes."""
        for wanted, taken in (("q4_k", "Q5_0"), ("q5_k", "Q5_1"), ("q6_k", "Q8_0"), ("q3_k", "Q4_0"), ("iq4_xs", "IQ4_NL")):
            j = self.quantize("--type", wanted)
            self.assertEqual({t["type"] for t in j["types"]}, {taken, "F32"})
            self.assertEqual(j["replaced"], j["converted"])
        r = program.run(["quantize", self.f32, "-o", self.out, "--type", "q4_k"])
        self.assertIn(b"smaller blocks", r.out)
        self.assertIn(b"96 columns", r.out)

    def test_rows_of_no_type(self):
        big = large_file(pathlib.Path(self.source.name, "odd.gguf"), rows=3, columns=100)
        j = self.quantize("--type", "q4_k", model=big)
        self.assertEqual((j["converted"], j["kept"]["uneven"]), (0, 1))
        self.assertIn(b"100 columns", program.run(["quantize", big, "-o", self.out, "--type", "q8_0"]).out)

    def test_folder(self):
        """What runs is the same as what was in the folder: in F32 to the bit, tokens and ends included."""
        j = self.quantize("--type", "f32", model=self.llama)
        self.assertEqual((j["converted"], j["foreign_tokenizer"]), (0, ""))
        before, after = self.info(self.llama), self.info(self.out)
        for key in ("architecture", "name", "vocabulary", "parameters", "tensors", "weight_bytes", "rope_base", "width"):
            self.assertEqual(after[key], before[key], key)
        self.assertEqual((after["format"], after["tokenizer"], after["pre_tokenizer"]), ("GGUF 3", "gpt2", "smollm"))
        self.assertEqual(self.ids(self.out), self.ids(self.llama))
        for ranks in (0, 2):
            j = self.quantize("--type", "q4_k", model=self.llama, ranks=ranks)
            count = {t["type"]: t["tensors"] for t in j["types"]}
            self.assertEqual(count, {"Q4_K": 7, "Q5_0": 1, "F32": 3})  # ffn_down has rows of 288
            self.assertEqual((j["replaced"], j["kept"]["vectors"]), (1, 3))
        self.assertEqual(len(self.ids(self.out)), 24)

    def test_folder_in_pieces(self):
        """Vectors in BF16, rows of Q and K in halves, one file for a few tensors."""
        folder = FIXTURES / "hf_sharded"
        self.quantize("--type", "f32", model=folder)
        self.assertEqual(self.ids(self.out), self.ids(folder))
        self.refused([folder, "-o", folder / "model-00003-of-00007.safetensors", "--type", "q8_0"], "is the input itself",
                     kept=["out.gguf"])

    def test_memory(self):
        """What weights take in memory, type by type, is what a plan for one rank counts tensor by tensor."""
        self.quantize("--type", "q4_k", model=self.llama)
        info = self.info(self.out)
        plan = json.loads(program.run(["plan", self.out, "-n", 1, "--json"]).out)
        self.assertEqual(plan["weight_bytes"], info["memory_bytes"])
        self.assertAlmostEqual(plan["replication"], 1)
        self.assertAlmostEqual(plan["growth"], info["memory_bytes"] / info["weight_bytes"])
        q4_k = next(t for t in info["types"] if t["type"] == "Q4_K")
        self.assertAlmostEqual(q4_k["memory_bytes"] / q4_k["bytes"], 148 / 144)  # 16 scales of 6 bits take 8
        for verb in ("info", "plan"):
            self.assertIn(b"2.8 % more in memory", program.run([verb, self.out]).out)

    def test_tokenizer_that_gguf_cannot_have(self):
        def lower(tokenizer):
            tokenizer["normalizer"] = {"type": "Lowercase"}

        folder = llama_folder(pathlib.Path(self.source.name, "lower"), change=lower)
        j = self.quantize("--type", "q8_0", model=folder)
        self.assertIn("other tokens for a text", j["foreign_tokenizer"])
        r = program.run(["quantize", folder, "-o", self.out, "--type", "f32"])
        self.assertIn(b"tokenizer       as tokenizer.json, which llama.cpp does not read: ", r.out)
        self.assertEqual(self.info(self.out)["tokenizer"], "tokenizer.json")  # and it runs all the same
        self.assertEqual(self.ids(self.out), self.ids(folder))

    def test_tokens_and_rows(self):
        """An embedding with more rows than there are tokens, and added tokens beyond the last row."""
        def more(tokenizer):
            token = {"content": "<pad>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            tokenizer["added_tokens"].append(token | {"id": TOKENS, "special": True})

        for name, rows, change in (("rows", 320, lambda t: None), ("tokens", TOKENS, more)):
            folder = llama_folder(pathlib.Path(self.source.name, name), rows=rows, change=change)
            self.assertEqual(self.info(folder)["vocabulary"], rows)
            j = self.quantize("--type", "f32", model=folder)
            self.assertEqual(j["foreign_tokenizer"], "")
            self.assertEqual(self.info(self.out)["vocabulary"], rows)
            self.assertEqual(self.ids(self.out), self.ids(folder))
        folder = llama_folder(pathlib.Path(self.source.name, "few"), rows=TOKENS - 1)
        r = program.run(["info", folder])
        self.assertEqual((r.status, len(r.err)), (1, 1))
        self.assertIn("tokenizer has 288 tokens, the embedding 287 rows", r.err[0])

    def test_from_a_quantised_file(self):
        j = self.quantize("--type", "q4_1", model=self.q8_0)
        self.assertEqual(j["requantised"], j["converted"])
        j = self.quantize("--type", "q8_0", model=self.q8_0)  # has it already: the data stay to the byte
        self.assertEqual((j["converted"], j["relative_error"]), (0, 0))
        self.assertEqual(self.ids(self.out), self.ids(self.q8_0))

    def test_replaces_a_file(self):
        self.out.write_text("old")
        self.quantize("--type", "f16")
        self.assertEqual(self.out.read_bytes()[:4], b"GGUF")

    def refused(self, arguments, says, status=1, kept=(), all_ranks=(0,)):
        for ranks in all_ranks:
            r = program.run(["quantize", *arguments], ranks)
            self.assertEqual((r.status, r.out, len(r.err), r.left), (status, b"", 1, []), r.err)
            self.assertTrue(r.err[0].startswith("sheaf: ") and says in r.err[0], r.err[0])
            self.assertEqual(self.files(), sorted(kept))

    def test_refusals(self):
        self.refused([self.f32, "-o", self.out], "needs a type", 2, all_ranks=(0, 2))
        self.refused([self.f32, "--type", "q8_0"], "needs a file to write", 2)
        self.refused([self.f32, "-o", self.out, "--type", "q9_0"], "--type q9_0", 2)
        self.refused([self.source.name, "-o", self.out, "--type", "q8_0"], "has no config.json")
        self.refused([self.f32, "-o", self.folder.name, "--type", "q8_0"], "is a directory")
        self.refused([self.f32, "-o", self.out / "x", "--type", "q8_0"], "No such file or directory")
        self.refused([self.f32, "-o", self.out, "--type", "q8_0", "--tensor", "a=b"], 'type "b" is not known')
        self.refused([self.f32, "-o", self.out, "--type", "q8_0", "--tensor", "q4_0"], "no PATTERN=TYPE")
        self.refused([self.f32, "-o", self.out, "--type", "q8_0", "--tensor", "blk.9.*=f16"], "blk.9.*")

    def test_never_over_the_input(self):
        self.out.write_bytes(self.f32.read_bytes())
        self.refused([self.out, "-o", self.out, "--type", "q8_0"], "is the input itself", kept=["out.gguf"], all_ranks=(0, 2))
        self.assertEqual(self.out.read_bytes(), self.f32.read_bytes())

    def test_never_over_a_device(self):
        """Not over what is no regular file, nor over what a link to a device stands for."""
        pipe = pathlib.Path(self.folder.name, "pipe")
        os.mkfifo(pipe)
        self.refused([self.f32, "-o", pipe, "--type", "q8_0"], "is not a regular file", kept=["pipe"])
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))
        self.out.symlink_to("/dev/null")
        self.refused([self.f32, "-o", self.out, "--type", "q8_0"], "is not a regular file", kept=["out.gguf", "pipe"])
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_broken_input(self):
        broken = pathlib.Path(self.source.name, "broken.gguf")
        whole = self.f32.read_bytes()
        broken.write_bytes(whole[: len(whole) // 2])
        self.refused([broken, "-o", self.out, "--type", "q8_0"], "broken.gguf")

    def test_not_finite(self):
        big = large_file(pathlib.Path(self.source.name, "nan.gguf"), rows=3)
        with open(big, "r+b") as f:
            f.seek(-4, os.SEEK_END)
            f.write(struct.pack("<f", float("inf")))
        self.refused([big, "-o", self.out, "--type", "q8_0"], "big.weight has a value that is not finite")
        with open(big, "r+b") as f:
            f.seek(-4, os.SEEK_END)
            f.write(struct.pack("<f", 1e6))
        self.refused([big, "-o", self.out, "--type", "f16"], "big.weight has a value that is too large for type F16")

    def test_full_disk(self):
        """As a limit on the size of files, in place of a small disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            self.refused([self.f32, "-o", self.out, "--type", "q8_0"], "there is no room")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_interruption_leaves_nothing(self):
        big = large_file(pathlib.Path(self.source.name, "big.gguf"))
        for ranks in (0, 2):
            call = program.Call(["quantize", big, "-o", self.out, "--type", "iq4_xs"], ranks)
            while not self.files() and call.process.poll() is None:
                time.sleep(0.01)
            call.process.send_signal(signal.SIGINT)
            r = call.finish()
            self.assertNotEqual(r.status, 0)
            self.assertEqual((r.out, r.left, self.files()), (b"", [], []))
            if not ranks:
                self.assertEqual((r.status, len(r.err)), (130, 1), r.err)
                self.assertIn("interrupted", r.err[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
