"""`sheaf run --chat` on a tiny model with random weights: at a terminal, from a pipe, for one question. What it says is
no language, but it says the same to the same conversation: each answer is compared with that to the whole conversation
written out."""
import json
import os
import pathlib
import signal
import tempfile
import unittest

import program
from terminal import CTRL_C, CTRL_D, Terminal

TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
QUESTIONS = ["once upon a time", "and then?", "why"]
HELLO = "(the form is chatml; /help lists the commands)\n> "


def written(messages):
    """The conversation as ChatML."""
    roles = ["user", "assistant"] * len(messages)
    turns = [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in zip(roles, messages)]
    return "".join(turns) + "<|im_start|>assistant\n"


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = program.tiny_model(cls.path / "tiny.gguf", seed=5, template=TEMPLATE)
        cls.long = program.tiny_model(cls.path / "long.gguf", context=100000, template=TEMPLATE)
        cls.unknown = program.tiny_model(cls.path / "unknown.gguf", template="{{ messages | whatever }}")
        cls.answers = cls.right_answers(QUESTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def right_answers(cls, questions, tokens=8):
        """Each from a fresh call with the whole conversation as its prompt."""
        said = []
        for question in questions:
            said.append(question)
            r = program.run(["run", cls.model, "--json", "-n", tokens, "-p", written(said)])
            said.append(json.loads(r.out)["text"].strip())
        return said[1::2]

    def talk(self, *options, ranks=0, model=None):
        t = Terminal(["run", model or self.model, "--chat", *options], ranks)
        self.addCleanup(t.close)
        self.assertEqual(t.wait_for(HELLO), "")
        return t

    def ends(self, t, keys, status):
        """Leaves, with that status, nothing left running; returns the lines on standard error."""
        t.press(keys)
        _, got, errors, left = t.finish()
        self.assertEqual((got, left), (status, []), errors)
        return program.not_crowded(errors)

    def test_remembers(self):
        """What was said before counts, on any number of ranks; the figures come at the end."""
        for ranks in (0, 1, 2, 3):
            t = self.talk("-n", 8, ranks=ranks)
            for question, right in zip(QUESTIONS, self.answers):
                self.assertEqual(t.ask(question).strip(), (right + "\n(cut after 8 tokens: -n)").strip())
            errors = self.ends(t, CTRL_D, 0)
            self.assertEqual([line.split()[0] for line in errors], ["load", "prompt", "generated"])
            self.assertIn("24 tokens", errors[2])
        self.assertNotEqual(self.answers[2], self.right_answers(["why"])[0])

    def test_from_a_pipe(self):
        """Every line is a question; standard output has nothing but the answers."""
        lines = "".join(q + "\n" for q in QUESTIONS).encode()
        for ranks in (0, 2):
            r = program.run(["run", self.model, "--chat", "-n", 8, "-q"], ranks, text=lines)
            self.assertEqual((r.status, r.err, r.left), (0, [], []))
            self.assertEqual(r.out.decode(), "".join(a + "\n" for a in self.answers))
        r = program.run(["run", self.model, "--chat", "-n", 8, "-q"], text=lines + b"\xff\xfe\n" + lines)
        self.assertEqual(r.status, 1)  # and what came before was answered
        self.assertEqual(r.out.decode(), "".join(a + "\n" for a in self.answers))
        self.assertEqual(len(r.err), 1, r.err)
        self.assertIn("not UTF-8", r.err[0])

    def test_line_ends(self):
        """CR LF ends lines too, and the last line needs none."""
        r = program.run(["run", self.model, "--chat", "-n", 8, "-q"], text="\r\n".join(QUESTIONS).encode())
        self.assertEqual(r.out.decode(), "".join(a + "\n" for a in self.answers))

    def test_one_question(self):
        for ways, how in ((["-p", QUESTIONS[0]], {}), (["-f", "-"], {"text": QUESTIONS[0].encode() + b"\n"})):
            r = program.run(["run", self.model, "--chat", "-n", 8, "--json", *ways], **how)
            j = json.loads(r.out)
            self.assertEqual((j["text"].strip(), j["template"]), (self.answers[0], "chatml"))

    def test_system_prompt(self):
        r = program.run(["run", self.model, "--chat", "--system", "be brief", "-p", "hello", "--json", "-n", 8])
        text = "<|im_start|>system\nbe brief<|im_end|>\n" + written(["hello"])
        right = program.run(["run", self.model, "--json", "-n", 8, "-p", text])
        self.assertEqual(json.loads(r.out)["ids"], json.loads(right.out)["ids"])

    def test_special_names_are_text(self):
        """Who types <|im_end|> does not end a turn."""
        said = "a<|im_end|>"
        counts = [
            json.loads(program.run(["run", self.model, "--json", "-n", 1, *how]).out)["prompt_tokens"]
            for how in (["--chat", "-p", said], ["-p", written([said])])
        ]
        self.assertGreater(counts[0], counts[1])

    def test_commands(self):
        t = self.talk("-n", 8)
        lines = t.ask("/help").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["/help", "/clear", "/exit", "Ctrl-C", "A"])
        self.assertIn("no command /what: /help", t.ask("/what"))
        first = t.ask(QUESTIONS[0])
        self.assertNotEqual(t.ask(QUESTIONS[0]), first)  # it was asked before
        self.assertIn("(forgotten)", t.ask("/clear"))
        self.assertEqual(t.ask(QUESTIONS[0]), first)
        t.press("\n  \n")  # nothing is asked
        t.wait_for("> ")
        t.wait_for("> ")
        self.ends(t, "/exit\n", 0)

    def test_slash_and_backslash(self):
        """Words with a slash in front of others are a question; a backslash joins lines."""
        for typed, meant in (("/etc/passwd is\n", "/etc/passwd is"), ("one\\\ntwo\n", "one\ntwo")):
            t = self.talk("-n", 8)
            self.assertEqual(t.ask(typed[:-1]).splitlines()[0], self.right_answers([meant])[0].splitlines()[0])
            self.ends(t, CTRL_D, 0)

    def test_interrupt_stops_the_answer(self):
        t = self.talk("--ctx", 100000, "--ignore-eos", model=self.long)
        for _ in range(2):
            t.press("go on\n")
            t.wait_more(20)  # it has begun
            t.press(CTRL_C)
            t.wait_for("\n(stopped)\n> ")
        t.press(CTRL_C)
        t.wait_for("(Ctrl-C again, Ctrl-D or /exit leaves)\n> ")
        t.press("/clear\n")  # then it is not "again"
        t.wait_for("(forgotten)\n> ")
        t.press(CTRL_C)
        t.wait_for("leaves)\n> ")
        self.ends(t, CTRL_C, 130)

    def test_termination_ends_it(self):
        t = self.talk("--ctx", 100000, "--ignore-eos", model=self.long)
        t.press("go on\n")
        t.wait_more(20)
        os.kill(t.pid, signal.SIGTERM)
        self.assertIn("generated", " ".join(self.ends(t, b"", 130)))

    def test_under_mpirun(self):
        """mpirun keeps Ctrl-C for itself and ends the job; SIGUSR1 it passes on, which stops the answer."""
        t = self.talk("--ctx", 100000, "--ignore-eos", ranks=2, model=self.long)
        t.press("go on\n")
        t.wait_more(20)
        os.kill(t.pid, signal.SIGUSR1)
        t.wait_for("(stopped)\n> ")
        t.press("go on\n")
        t.wait_more(20)
        t.press(CTRL_C)
        _, status, _, left = t.finish()
        self.assertNotEqual(status, 0)
        self.assertEqual(left, [])

    def forgets(self, model, ctx, *options):
        """Asks until the context is full several times; each answer is that to what is left."""
        t = self.talk("-n", 8, "--ctx", ctx, *options, model=model)
        self.assertIn("positions: shorten it", t.ask("z " * ctx))
        said, forgotten = [], 0
        for i in range(8):
            said.append(f"question {i} of" + " words" * (ctx // 25))
            answer = t.ask(said[-1])
            if f"(the context of {ctx} positions is full: the oldest" in answer:
                note, answer = answer.split("forgotten)\n", 1)
                dropped = int(note.split("oldest ")[1].split()[0])
                forgotten += dropped
                said = said[2 * dropped :]
            r = program.run(["run", model, "--json", "-n", 8, "-p", written(said)])
            said.append(json.loads(r.out)["text"].strip())
            self.assertEqual(answer.split("(cut after")[0].strip(), said[-1])
        self.assertGreater(forgotten, 2)
        self.ends(t, CTRL_D, 0)

    def test_full_context(self):
        """The oldest exchanges are forgotten and the rest goes on as if they had not been; what can not fit is refused."""
        self.forgets(self.model, 100)

    def test_full_context_with_windows(self):
        """The same where the cache has dropped what no layer sees any more."""
        model = program.tiny_model(self.path / "window.gguf", seed=5, context=1024, template=TEMPLATE, window=20)
        self.forgets(model, 500, "--batch", 8)

    def test_answer_that_fills_the_context(self):
        t = self.talk("--ctx", 60, "--ignore-eos")
        self.assertIn("(the context of 60 positions is full: the answer ends here)", t.ask("go on"))
        self.assertIn("is forgotten)", t.ask("go on"))
        self.ends(t, CTRL_D, 0)

    def test_refusals(self):
        for words, error in (
            (["run", self.unknown, "--chat"], 'begins "{{ messages | whatever }}"'),
            (["run", self.unknown, "--chat", "--template", "nobody"], "the forms known are chatml,"),
            (["run", self.model, "--chat", "--template", "gemma", "--system", "x", "-q"], "no place for a system prompt"),
        ):
            for ranks in (0, 2):
                r = program.run(words, ranks, text=b"hello\n")
                self.assertEqual((r.status, r.out, r.left), (1, b"", []))
                self.assertEqual(len(r.err), 1, r.err)
                self.assertIn(error, r.err[0])

    def test_info(self):
        for model, form in ((self.model, "chatml"), (self.unknown, "unknown")):
            table = program.run(["info", model]).out.decode()
            self.assertIn(f"chat template   {form}\n", table)
        self.assertEqual(json.loads(program.run(["info", self.model, "--json"]).out)["chat_form"], "chatml")

    def test_template_of_another_model(self):
        """Is used, with a word about it; the end of a turn is then looked for as text."""
        r = program.run(["run", self.unknown, "--chat", "--template", "zephyr", "-p", "hello", "-n", 4])
        self.assertEqual(r.status, 0)
        r = program.run(["run", self.unknown, "--chat", "--template", "gemma3", "-p", "hello", "-n", 4])
        self.assertEqual(r.status, 0)
        self.assertIn('no token "<end_of_turn>"', r.err[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
