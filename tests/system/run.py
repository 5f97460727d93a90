"""`sheaf run` on the real model: sensible text, the same whatever threads and steps, the figures of --json, stop strings,
seeds, the stream's bytes, the trace, the command of scripts/demo."""
import json
import pathlib
import tempfile
import unittest

import real
from real import program

CHAT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
HOT = ("--temp", 1.5, "--top-k", 0, "--top-p", 1, "--min-p", 0)
TEXT = {"text": str, "stop_reason": str, "model": str, "isa": str, "activations": str, "wire": str, "plan_hash": str}
WHOLE = ("prompt_tokens", "generated_tokens", "ctx", "seed", "ranks", "hosts", "threads", "weight_bytes", "kv_bytes_rank0",
         "activation_bytes_rank0")
REAL = ("prompt_s", "prompt_tokens_per_s", "generated_s", "tokens_per_s", "temp", "load_s")


def generate(*options, prompt=CHAT, tokens=32, ranks=0, qtype="Q4_1"):
    return real.call_json("run", real.model(qtype), "-p", prompt, "-n", tokens, *options, ranks=ranks)


class Run(unittest.TestCase):
    def test_answers(self):
        """Facts that this model knows; the same from every type and rank count."""
        for qtype in real.TYPES:
            for ranks in (1, 2, 3):
                j = generate(qtype=qtype, ranks=ranks)
                self.assertEqual(j["text"], "The capital of France is Paris.", (qtype, ranks))
                self.assertEqual(j["stop_reason"], "end")
        self.assertTrue(generate(prompt="1, 2, 3, 4, 5, 6,", tokens=12)["text"].startswith(" 7, 8, 9, 10"))

    def test_json(self):
        j = generate(tokens=5, ranks=2)
        for name, kind in {**TEXT, **dict.fromkeys(WHOLE, int), **dict.fromkeys(REAL, (int, float)), "ids": list}.items():
            self.assertIsInstance(j[name], kind, name)
            self.assertNotIsInstance(j[name], bool, name)
        self.assertEqual((j["ranks"], j["hosts"], j["generated_tokens"], len(j["ids"])), (2, 1, 5, 5))
        self.assertEqual((j["activations"], j["wire"], j["temp"], j["seed"]), ("int16", "f32", 0, 0))
        self.assertAlmostEqual(j["prompt_tokens_per_s"] * j["prompt_s"], j["prompt_tokens"], places=6)
        self.assertAlmostEqual(j["tokens_per_s"] * j["generated_s"], 4, places=6)  # the first came from the prompt
        self.assertRegex(j["plan_hash"], "^[0-9a-f]{16}$")

    def test_threads_and_steps_change_nothing(self):
        """Nor does a rank see other numbers than the rest (--check)."""
        story = {"prompt": "Once upon a time, in a small village by the sea,", "tokens": 64}
        for ranks in (1, 2, 3):
            first = generate(ranks=ranks, **story)["ids"]
            for options in (["--threads", 1], ["--threads", 2], ["--batch", 5], ["--check"]):
                self.assertEqual(generate(*options, ranks=ranks, **story)["ids"], first, (ranks, options))

    def test_long_prompt_in_steps(self):
        """A prompt of several blocks of the cache, in steps that end inside them; then text that depends on its start."""
        text = pathlib.Path(real.SOURCE, "tests/fixtures/wiki_small.txt").read_bytes().decode()
        words = {"prompt": text, "tokens": 24}
        first = generate("--batch", 2048, **words)
        self.assertEqual(first["prompt_tokens"], 896)
        for options in (["--batch", 100], ["--batch", 7], ["--batch", 512, "--check"]):
            self.assertEqual(generate(*options, **words)["ids"], first["ids"], options)

    def test_seeds(self):
        first = generate(*HOT, "--seed", 1)
        self.assertEqual(generate(*HOT, "--seed", 1)["ids"], first["ids"])
        self.assertEqual(generate(*HOT, "--seed", 1, "--threads", 1)["ids"], first["ids"])
        self.assertNotEqual(generate(*HOT, "--seed", 2)["ids"], first["ids"])
        self.assertEqual(generate("--temp", 1.5, "--top-k", 1)["ids"], generate()["ids"])

    def test_stop(self):
        for ranks in (0, 2):
            j = generate("--stop", " is", ranks=ranks)
            self.assertEqual((j["text"], j["stop_reason"]), ("The capital of France", "stop"))
        # A stop string that begins and ends inside tokens.
        self.assertEqual(generate("--stop", "ance is Pa")["text"], "The capital of Fr")
        self.assertEqual(generate("--stop", "ance is Pq", "--stop", "is.")["text"], "The capital of France is Par")

    def test_stream_is_valid_text(self):
        """Whatever tokens come, hot sampling over the whole vocabulary too (many are parts of characters)."""
        for seed in range(6):
            words = ["run", real.model(), "-p", "😀 émoji, 日本語:", "-n", 60, "--ignore-eos", "--seed", seed, *HOT]
            r = program.run(words, 2 if seed == 0 else 0)
            self.assertEqual((r.status, r.left), (0, []))
            streamed = r.out.decode("utf-8")  # raises where it is not
            self.assertTrue(streamed.endswith("\n"))
            j = real.call_json(*words, ranks=2 if seed == 0 else 0)
            self.assertEqual(streamed.removesuffix("\n"), j["text"].removesuffix("\n"))

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "trace.json")
            plain, traced = (generate(*options, tokens=8, ranks=3) for options in ([], ["--trace", file]))
            self.assertEqual(plain["ids"], traced["ids"])
            events = json.loads(file.read_text())["traceEvents"]
        spans = [e for e in events if e["ph"] == "X"]
        for rank in range(3):
            mine = [e for e in spans if e["pid"] == rank]
            self.assertLessEqual({"linear", "attention", "allreduce", "wait"}, {e["cat"] for e in mine})
            # A span for each step (the prompt, and 7 tokens) of each layer, in order and not one over another.
            self.assertEqual(sum(e["name"] == "blk.29.ffn_down" and e["cat"] == "linear" for e in mine), 8)
            mine.sort(key=lambda e: e["ts"])
            for a, b in zip(mine, mine[1:]):
                self.assertLessEqual(a["ts"] + a["dur"], b["ts"] + 0.002, (a, b))  # µs; digits are cut

    def test_demo(self):
        """The command of scripts/demo: nothing but the defaults, on two ranks."""
        r = program.run(["run", real.model(), "--chat", "-p", "Why is the sky blue? Answer in two sentences."], 2)
        self.assertEqual((r.status, r.left), (0, []))
        self.assertIn("scatter", r.out.decode("utf-8"))
        self.assertEqual([line.split()[0] for line in r.err], ["load", "prompt", "generated"])

    def test_conversation(self):
        """The third answer is about the first two questions."""
        lines = b"Tell me about dogs in one sentence.\nNow say the same about cats.\nWhich two animals did we talk about?\n"
        for ranks in (0, 1, 2, 3):
            r = program.run(["run", real.model("Q8_0"), "--chat", "-q"], ranks, text=lines)
            self.assertEqual((r.status, r.err, r.left), (0, [], []))
            dogs, cats, both = r.out.decode().splitlines()
            self.assertIn("og", dogs)
            self.assertTrue("at" in cats and "og" not in cats, cats)
            self.assertTrue("dogs" in both and "cats" in both, both)


if __name__ == "__main__":
    real.main()
