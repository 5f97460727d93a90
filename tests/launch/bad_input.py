"""Whatever is wrong with a call, at one rank and at two: one line on standard error that begins with "sheaf: ", nothing
on standard output, an exit status that is not zero, within the time limit, and no process left."""
import concurrent.futures
import os
import pathlib
import shutil
import tempfile
import unittest

import program

WRONG_USE, FAILED = 2, 1
SHARDED = pathlib.Path(os.environ["SHEAF_FIXTURES"]) / "hf_sharded"


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = path = pathlib.Path(cls.folder.name)
        cls.model = program.tiny_model(path / "tiny.gguf")
        whole = cls.model.read_bytes()
        (path / "empty.gguf").write_bytes(b"")
        (path / "text.gguf").write_text("This is not a model.\n" * 100)
        (path / "header.gguf").write_bytes(whole[:100])
        (path / "cut.gguf").write_bytes(whole[: len(whole) * 3 // 4])
        (path / "magic.gguf").write_bytes(b"GGML" + whole[4:])
        (path / "short.txt").write_text("Only a few words.")
        (path / "long.txt").write_text("x1 " * 400)
        (path / "latin1.txt").write_bytes(b"caf\xe9 au lait")
        os.mkfifo(path / "fifo.gguf")
        cls.folders = {}
        for name in ("sound", "falcon", "cut", "shard", "no_tokenizer"):
            cls.folders[name] = shutil.copytree(SHARDED, path / name)
        config = (SHARDED / "config.json").read_text()
        (path / "falcon" / "config.json").write_text(config.replace("LlamaFor", "FalconFor"))
        os.truncate(path / "cut" / "model-00003-of-00007.safetensors", 9000)
        (path / "shard" / "model-00002-of-00007.safetensors").unlink()
        (path / "no_tokenizer" / "tokenizer.json").unlink()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        # Several calls at a time: mpirun takes two idle seconds to end a job that failed.
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.calls = []  # (arguments, ranks, what it says, status, result to come)

    def tearDown(self):
        self.pool.shutdown()

    def refused(self, arguments, says, status, ranks=(0, 2), **how):
        for n in ranks:
            self.calls.append((arguments, n, says, status, self.pool.submit(program.run, arguments, n, **how)))

    def check(self):
        for arguments, ranks, says, status, coming in self.calls:
            with self.subTest(arguments=arguments, ranks=ranks):
                r = coming.result()
                self.assertEqual(r.left, [], "processes were left running")
                self.assertEqual(len(r.err), 1, f"standard error: {r.err}")
                self.assertTrue(r.err[0].startswith("sheaf: "), r.err[0])
                self.assertIn(says, r.err[0])
                self.assertEqual(r.out, b"")
                self.assertEqual(r.status, status)
                self.assertLess(r.seconds, program.TIME_LIMIT)

    def wrong_use(self, arguments, says, **how):
        self.refused(arguments, says, WRONG_USE, **how)

    def failure(self, arguments, says, **how):
        self.refused(arguments, says, FAILED, **how)

    def test_verbs(self):
        self.wrong_use([], "no verb", ranks=(0, 1, 2))
        self.wrong_use(["rnu", self.model], "did you mean 'run'?")
        self.wrong_use(["eval", "perplexty", self.model], "did you mean 'eval perplexity'?")
        self.check()

    def test_options(self):
        run = ["run", self.model]
        self.wrong_use([*run, "-p", "a", "--tmep", "1"], "did you mean --temp?")
        self.wrong_use([*run, "-p"], "-p needs a value")
        self.wrong_use([*run, "-p", "a", "-f", "b"], "exclude each other")
        self.wrong_use(["run", "-p", "a"], "needs a model file")
        self.wrong_use(["info", self.model, "another"], "one argument too many")
        self.failure([*run, "another", "-p", "a"], "one argument too many")
        self.wrong_use(["eval", "perplexity", self.model], "needs a text")
        self.check()

    def test_values(self):
        run = ["run", self.model, "-p", "a"]
        self.wrong_use([*run, "-n", "0"], "-n 0")
        self.wrong_use([*run, "-n", "many"], "not a whole number")
        self.wrong_use([*run, "--ctx", "0"], "--ctx 0")
        self.wrong_use([*run, "--temp", "-1"], "--temp -1")
        self.wrong_use([*run, "--top-p", "2"], "--top-p 2")
        self.wrong_use([*run, "--isa", "sse9"], "--isa sse9")
        self.wrong_use([*run, "--wire", "f8"], "--wire f8")
        self.wrong_use([*run, "--threads", "0"], "--threads 0")
        self.wrong_use(run, "SHEAF_BATCH none", environment={"SHEAF_BATCH": "none"})
        self.wrong_use(["plan", self.model, "-n", "0"], "-n 0")
        self.check()

    def test_models(self):
        run = lambda name: ["run", self.path / name, "-p", "a"]
        self.failure(run("missing.gguf"), "missing.gguf", ranks=(0, 1, 2))
        self.failure(["run", self.path, "-p", "a"], str(self.path))
        self.failure(run("empty.gguf"), "empty.gguf")
        self.failure(run("text.gguf"), "text.gguf")
        self.failure(run("header.gguf"), "header.gguf")
        self.failure(run("cut.gguf"), "cut.gguf")
        self.failure(run("magic.gguf"), "magic.gguf")
        self.failure(run("fifo.gguf"), "fifo.gguf")
        self.failure(["info", self.path / "missing.gguf"], "missing.gguf")
        self.failure(["plan", self.path / "cut.gguf", "-n", "2"], "cut.gguf")
        self.check()

    def test_folders(self):
        run = lambda name: ["run", self.path / name, "-p", "a"]
        self.failure(run("falcon"), '"FalconForCausalLM" is not supported', ranks=(0, 2, 3))
        self.failure(run("cut"), "model-00003-of-00007.safetensors")
        self.failure(run("shard"), "model-00002-of-00007.safetensors: cannot be opened")
        self.failure(run("no_tokenizer"), "has no tokenizer.json")
        self.failure(run("sound/model-00009-of-00007.safetensors"), "model-00009-of-00007.safetensors")
        self.check()

    def test_prompts(self):
        run = ["run", self.model]
        self.failure([*run, "-f", self.path / "missing.txt"], "missing.txt")
        self.failure([*run, "-f", self.path], "directory")
        self.failure([*run, "-f", self.path / "latin1.txt"], "3")  # the offset
        self.failure([*run, "-f", self.path / "long.txt"], "context")
        self.failure([*run, "-p", "a few words", "--ctx", "2"], "context")
        self.failure([*run, "-p", ""], "empty", ranks=(0, 1, 2))
        self.failure([*run, "-p", "a", "--chat"], "--template NAME", ranks=(0, 2))  # the tiny model has none
        self.failure([*run, "-p", "a", "--chat", "--template", "llama"], "llama2", ranks=(0, 2))  # lists the names
        self.failure(run, "empty")  # nothing on standard input
        self.check()

    def test_texts(self):
        perplexity = ["eval", "perplexity", self.model, "--ctx", "64"]
        self.failure([*perplexity, "-f", self.path / "short.txt"], "tokens")
        self.failure([*perplexity, "-f", self.path / "latin1.txt"], "3")
        self.failure([*perplexity, "-f", self.path / "missing.txt"], "missing.txt")
        self.check()

    def test_output_that_cannot_be_written(self):
        for arguments in (["run", self.model, "-p", "a", "-q"], ["info", self.model], ["plan", self.model]):
            self.failure(arguments, "No space left on device", to="/dev/full")
        self.failure(["--help"], "No space left on device", ranks=[0], to="/dev/full")
        self.check()


if __name__ == "__main__":
    unittest.main(verbosity=2)
