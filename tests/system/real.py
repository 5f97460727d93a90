"""What the tests on the real model share: where it is, and calling the program on it.

The model is SmolLM2-135M-Instruct in three files that scripts/get-models makes: Q4_1 (as published), F32 (the very same
weights, dequantised) and Q8_0 (made from those, so other weights). Expected figures come from llama.cpp."""
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "launch"))
import program

program.TIME_LIMIT = 600  # seconds for one call: the reference kernels, or both cores shared with other tests

SKIPPED = 77
SOURCE = pathlib.Path(os.environ.get("SHEAF_SOURCE", pathlib.Path(__file__).parent.parent.parent))
MODELS = pathlib.Path(os.environ.get("SHEAF_MODELS") or SOURCE / "models")
DATA = os.environ.get("SHEAF_DATA")
TYPES = ("Q4_1", "Q8_0", "F32")


def model(qtype="Q4_1"):
    return MODELS / f"SmolLM2-135M-Instruct-{qtype}.gguf"


def wikitext():
    return pathlib.Path(DATA or "", "wikitext-2-test.raw")


def isas():
    """The instruction sets of this machine that Sheaf has kernels for, fastest last; without the reference."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split("\nflags", 1)[-1].split("\n", 1)[0].split()
    return ["avx2"] * ("avx2" in flags) + ["avx512vnni"] * ("avx512_vnni" in flags)


def call_json(*words, ranks=0, **how):
    """The JSON that a call prints; it must leave nothing else: no complaint, no process."""
    r = program.run([*words, "--json", "-q"], ranks, **how)
    if r.status != 0 or r.err or r.left:
        raise AssertionError(f"{words}, {ranks} ranks: status {r.status}, standard error {r.err}, left {r.left}")
    return json.loads(r.out)


class PerplexityCase(unittest.TestCase):
    def assert_near(self, mine, expected, percent):
        difference = 100 * (mine / expected - 1)
        print(f"perplexity {mine:.4f}, {difference:+.4f} % of {expected:.4f} (allowed: {percent} %)", flush=True)
        self.assertLessEqual(abs(difference), percent)

    def assert_same_on_ranks(self, results, percent):
        """`results` by rank count: the whole within `percent` of each other."""
        values = [j["perplexity"] for j in results.values()]
        spread = 100 * (max(values) / min(values) - 1)
        print(f"ranks {list(results)}: perplexity {min(values):.5f}, spread {spread:.5f} %", flush=True)
        self.assertLessEqual(spread, percent)
        for ranks, j in results.items():
            self.assertEqual((j["ranks"], j["windows"], j["ctx"]), (ranks, len(j["per_window"]), 512))


def main(needs_data=False, models=None):
    """Runs the test cases named on the command line (all without), or says what is missing."""
    missing = [str(path) for path in models or map(model, TYPES) if not path.exists()]
    if needs_data and not wikitext().is_file():
        missing.append("SHEAF_DATA with wikitext-2-test.raw")
    if missing:
        print("skipped: there is no", ", ".join(missing))
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
