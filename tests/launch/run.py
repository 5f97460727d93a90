"""`sheaf run`, `info`, `plan` and the help on a tiny model with random weights: what is printed where, what changes the
text and what must not."""
import json
import os
import pathlib
import re
import signal
import tempfile
import unittest

import program

PROMPT = "once upon a time"


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = program.tiny_model(cls.path / "tiny.gguf")
        cls.long = program.tiny_model(cls.path / "long.gguf", context=100000)
        cls.first = cls.generate()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def generate(cls, *options, tokens=48, ranks=0, prompt=PROMPT, model=None, **how):
        """The JSON of a call."""
        given = ["-p", prompt] if prompt is not None else []
        arguments = ["run", model or cls.model, "-q", "--json", "--ignore-eos", "-n", tokens, *given, *options]
        r = program.run(arguments, ranks, **how)
        if r.status != 0 or r.err or r.left:
            raise AssertionError(f"status {r.status}, standard error {r.err}, left {r.left}")
        return json.loads(r.out)

    def test_json_says_all(self):
        j = self.first
        for name in ("text", "stop_reason", "model", "isa", "plan_hash"):
            self.assertIsInstance(j[name], str, name)
        for name in ("load_s", "prompt_tokens_per_s", "tokens_per_s"):
            self.assertIsInstance(j[name], (int, float), name)
        for name in ("ranks", "threads", "weight_bytes", "prompt_tokens", "generated_tokens"):
            self.assertIsInstance(j[name], int, name)
        self.assertEqual((j["ranks"], j["generated_tokens"], j["stop_reason"]), (1, 48, "length"))
        self.assertEqual(len(j["ids"]), 48)
        self.assertGreater(j["prompt_tokens"], 1)

    def test_streamed_text_is_the_same(self):
        r = program.run(["run", self.model, "-p", PROMPT, "-n", 48, "--ignore-eos"])
        text = self.first["text"]
        self.assertEqual(r.out.decode("utf-8"), text if text.endswith("\n") else text + "\n")
        self.assertTrue(any(line.startswith("generated") and "48 tokens" in line for line in r.err), r.err)

    def test_ranks_steps_and_threads_change_nothing(self):
        ids = self.first["ids"]
        for options in (["--batch", 1], ["--batch", 3], ["--threads", 1], ["--bind", "none"], ["--check"]):
            self.assertEqual(self.generate(*options)["ids"], ids, options)
        for ranks in (1, 2, 3):
            j = self.generate(ranks=ranks)
            self.assertEqual((j["ids"], j["ranks"]), (ids, ranks))
        self.assertEqual(self.generate("--hosts", "each", ranks=2)["ids"], ids)
        self.assertEqual(self.generate("--isa", "ref", tokens=8)["ids"], ids[:8])

    def test_ways_to_give_the_prompt(self):
        file = self.path / "prompt.txt"
        file.write_text(PROMPT + "\n")
        self.assertEqual(self.generate("-f", file, prompt=None)["ids"], self.first["ids"])
        for ranks in (0, 2):
            j = self.generate(prompt=None, ranks=ranks, text=PROMPT.encode() + b"\n")
            self.assertEqual(j["ids"], self.first["ids"])

    def test_special_tokens_in_the_prompt(self):
        with_special = self.generate(prompt="<|im_start|>a")
        without = self.generate("--no-special", prompt="<|im_start|>a")
        self.assertEqual(with_special["prompt_tokens"], 2)
        self.assertGreater(without["prompt_tokens"], 2)

    def test_sampling_follows_the_seed(self):
        # At one rank count: the order of sums differs between them, and a draw may fall just between two tokens.
        hot = ["--temp", "1.5", "--top-p", "1", "--min-p", "0"]
        for top_k, ranks in (("40", 0), ("0", 2)):  # among candidates, and among all
            a, b, c = (self.generate(*hot, "--top-k", top_k, "--seed", seed, ranks=ranks) for seed in (3, 3, 4))
            self.assertEqual(a["ids"], b["ids"])
            self.assertNotEqual(a["ids"], c["ids"])
        self.assertEqual(self.generate("--temp", "5", "--top-k", "1")["ids"], self.first["ids"])

    def test_stop_string_ends_before_itself(self):
        text = self.first["text"]
        stop = re.search("[a-z]{2}", text[len(text) // 3 :])[0]  # letters: a byte that is no UTF-8 prints as U+FFFD
        for ranks in (0, 2):
            j = self.generate("--stop", "never to be seen", "--stop", stop, ranks=ranks)
            self.assertEqual(j["stop_reason"], "stop")
            self.assertEqual(j["text"], text[: text.index(stop)])
            self.assertLess(j["generated_tokens"], 48)

    def test_context_ends_the_text(self):
        j = self.generate("--ctx", 40, tokens=-1)
        self.assertEqual(j["stop_reason"], "context")
        self.assertEqual(j["prompt_tokens"] + j["generated_tokens"], 40 + 1)  # the last one needs no position

    def test_more_context_than_trained_for_is_warned_about(self):
        for verb in (["run", self.model, "-p", "a", "-n", 1], ["plan", self.model, "-n", 3]):
            for ranks in (0, 3):
                r = program.run([*verb, "--ctx", 300], ranks)
                self.assertEqual(r.status, 0)
                warnings = [line for line in r.err if "warning" in line]
                self.assertEqual(len(warnings), 1, r.err)
                self.assertRegex(warnings[0], "tiny.gguf was trained for 256 positions, --ctx 300")
                r = program.run([*verb, "--ctx", 256], ranks)
                self.assertEqual([line for line in r.err if "warning" in line], [])
        j = self.generate("--ctx", 300, tokens=-1)  # -q: nothing on standard error; and all of it is there
        self.assertEqual(j["prompt_tokens"] + j["generated_tokens"], 300 + 1)

    def test_environment_gives_options(self):
        j = self.generate(environment={"SHEAF_SEED": "77", "SHEAF_CTX": "99"})
        self.assertEqual((j["seed"], j["ctx"]), (77, 99))

    def endless(self, ranks=0):
        """A call that goes on for minutes, once the first bytes have come."""
        arguments = ["run", self.long, "-p", PROMPT, "-n", "-1", "--ctx", 100000, "--ignore-eos"]
        call = program.Call(arguments, ranks)
        self.assertNotEqual(call.process.stdout.read(1), b"")
        return call

    def test_interrupt_prints_what_there_is(self):
        call = self.endless()
        call.process.send_signal(signal.SIGINT)
        r = call.finish()
        self.assertEqual((r.status, r.left), (130, []))
        self.assertTrue(any("interrupted" in line for line in r.err), r.err)

    def test_interrupt_of_mpirun_leaves_nothing(self):
        call = self.endless(ranks=2)
        call.process.send_signal(signal.SIGINT)
        r = call.finish()
        self.assertNotEqual(r.status, 0)
        self.assertEqual(r.left, [])

    def test_closed_pipe_ends_the_run(self):
        call = self.endless()
        call.process.stdout.close()
        call.process.wait(program.TIME_LIMIT)
        call.process.stdout = None
        r = call.finish()
        self.assertEqual((r.status, r.left), (1, []))
        self.assertEqual(len(r.err), 1, r.err)
        self.assertIn("sheaf: cannot write", r.err[0])

    def test_help_and_version(self):
        for ranks in (0, 2):
            r = program.run(["--help"], ranks)
            self.assertEqual((r.status, r.err, r.left), (0, [], []))
            self.assertEqual(r.out.count(b"Verbs:"), 1)
        for verb in (["run"], ["eval", "perplexity"], ["info"], ["plan"], ["quantize"]):
            r = program.run([*verb, "--help"])
            self.assertEqual((r.status, r.err), (0, []))
            self.assertIn(b"Options:", r.out)
        self.assertRegex(program.run(["--version"]).out, rb"^sheaf \d+\.\d+\.\d+\n$")

    def test_info(self):
        """The numbers are those that tests/tools/make_tiny.c writes."""
        j = json.loads(program.run(["info", self.model, "--json"]).out)
        self.assertEqual((j["architecture"], j["name"], j["layers"], j["width"]), ("llama", "tiny", 2, 96))
        self.assertEqual((j["heads"], j["kv_heads"], j["ffn_width"], j["vocabulary"]), (3, 1, 192, 1100))
        self.assertEqual((j["context"], j["rope_base"]), (256, 10000))
        self.assertEqual(j["file_bytes"], os.path.getsize(self.model))
        self.assertEqual(sum(t["tensors"] for t in j["types"]), j["tensors"])
        self.assertEqual(j["kv_bytes_per_token"], 2 * 2 * 2 * 1 * 32)  # layers, K and V, fp16, heads, dimensions
        table = program.run(["info", self.model], 2).out.decode()
        self.assertEqual(table.count("architecture"), 1)
        self.assertIn("llama", table)

    def test_folder(self):
        """A folder as transformers saves it; 3 query heads and one KV head on 1, 2 and 4 ranks."""
        folder = pathlib.Path(os.environ["SHEAF_FIXTURES"]) / "hf_sharded"
        j = json.loads(program.run(["info", folder, "--json"]).out)
        self.assertEqual((j["format"], j["name"], j["architecture"]), ("safetensors", "hf_sharded", "llama"))
        self.assertEqual((j["heads"], j["kv_heads"], j["vocabulary"], j["tokenizer"]), (3, 1, 288, "tokenizer.json"))
        texts = []
        for ranks in (0, 2, 4):
            r = program.run(["run", folder / "config.json", "-q", "-p", PROMPT, "-n", 16, "--ignore-eos"], ranks)
            self.assertEqual((r.status, r.err), (0, []))
            texts.append(r.out)
        self.assertEqual(texts, [texts[0]] * 3)

    def test_mixture_of_experts(self):
        """Experts of 192 x 96, 2 for each token; 6 units inside: 5 are fewer, of 9 the ranks have whole ones when 7."""
        model = program.tiny_model(self.path / "mixture.gguf", experts=5)
        ids = self.generate(model=model)["ids"]
        for options, ranks in ((["--batch", 1], 0), (["--threads", 1], 0), ([], 2), ([], 3)):
            self.assertEqual(self.generate(*options, model=model, ranks=ranks)["ids"], ids, (options, ranks))
        j = json.loads(program.run(["info", model, "--json"]).out)
        self.assertEqual((j["experts"], j["experts_used"], j["expert_width"], j["shared_width"]), (5, 2, 192, 0))
        self.assertEqual(j["parameters"] - j["active_parameters"], 2 * 3 * (5 - 2) * 192 * 96)
        self.assertIn("2 experts, ", program.run(["info", model]).out.decode())
        nine = program.tiny_model(self.path / "nine.gguf", experts=9)
        for path, experts in ((model, [5] * 2), (model, [5] * 7), (nine, [9] * 6), (nine, [2] * 2 + [1] * 5)):
            j = json.loads(program.run(["plan", path, "-n", len(experts), "--json"]).out)
            self.assertEqual([r["experts"] for r in j["per_rank"]], experts)
        self.assertIn(" experts ", program.run(["plan", model]).out.decode())
        self.assertNotIn("experts", program.run(["plan", self.model]).out.decode())

    def test_plan(self):
        j = json.loads(program.run(["plan", self.model, "-n", 2, "--json"]).out)
        self.assertEqual((j["ranks"], len(j["per_rank"])), (2, 2))
        self.assertEqual(sum(r["heads"] for r in j["per_rank"]), 3)
        self.assertEqual(sum(r["ffn_rows"] for r in j["per_rank"]), 192)
        self.assertEqual(sum(r["vocab_rows"] for r in j["per_rank"]), 1100)
        self.assertGreaterEqual(j["replication"], 1 - 1e-9)
        self.assertEqual(self.generate(ranks=2)["plan_hash"] == "", False)
        table = program.run(["plan", self.model], 2).out.decode()
        self.assertIn("plan hash", table)
        self.assertEqual(table.count("\n    0 "), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
