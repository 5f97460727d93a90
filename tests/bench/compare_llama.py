#!/usr/bin/env python3
"""Speed of Sheaf beside llama.cpp on the same files and cores, and how much of the memory's speed it gets.

A prompt of 512 tokens, then 64 generated after it. The two programs take turns (A B A B ...): what else happens on the
machine meets both, and each round gives ratios of its own, whose medians are printed beside the medians of the rates. Of
llama.cpp the best flags count, found for each file, number of threads and kind of work before the rounds.

llama-bench runs its work once unmeasured before; `sheaf run` is measured from a cold start, as a user meets it.

    LLAMA_CPP_BIN=DIR compare_llama.py [--rounds N] [--types Q4_1,Q8_0,F32] [--json FILE]

LLAMA_CPP_BIN is the folder of llama-bench; without it Sheaf is measured alone. SHEAF_BUILD (default build/release) and
SHEAF_MODELS (default models/) are found from the repository. Run it on a machine that does nothing else."""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("SHEAF_BUILD") or SOURCE / "build" / "release")
MODELS = pathlib.Path(os.environ.get("SHEAF_MODELS") or SOURCE / "models")
PEER = os.environ.get("LLAMA_CPP_BIN")
PROMPT_TOKENS, GENERATED, CTX = 512, 64, 1024
PROMPT, GENERATION = "prompt", "generation"
# What changes the speed of llama.cpp on a CPU: weights repacked at loading, and the fused attention.
PEER_FLAGS = [["--repack", repack, "-fa", fused] for repack in ("1", "0") for fused in ("1", "0")]


@dataclasses.dataclass(frozen=True)
class Setting:
    ranks: int
    threads: int  # of each rank
    activations: str

    def __str__(self):
        return f"{self.ranks} rank{'s' * (self.ranks > 1)} x {self.threads}, {self.activations}"


def settings(qtype, cores):
    """F32 weights meet F32 activations, whatever the option says."""
    shapes = [(1, 1)] + [(1, cores), (cores, 1)] * (cores > 1)
    return [Setting(r, t, a) for r, t in shapes for a in (["int16", "int8"] if qtype != "F32" else ["f32"])]


def call(words, **environment):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def model(qtype):
    return MODELS / f"SmolLM2-135M-Instruct-{qtype}.gguf"


# ---- Sheaf -------------------------------------------------------------------------------------------------------------
def sheaf(qtype, setting, prompt, generated=GENERATED):
    mpi = ["mpirun", "--bind-to", "none", "-n", setting.ranks] if setting.ranks > 1 else []
    act = ["--act", setting.activations] if setting.activations != "f32" else []
    words = [BUILD / "sheaf", "run", model(qtype), "-f", prompt, "-n", generated, "--ctx", CTX, "--threads", setting.threads]
    j = json.loads(call([*mpi, *words, *act, "--batch", PROMPT_TOKENS, "--ignore-eos", "--json", "-q"]))
    return j, {PROMPT: j["prompt_tokens_per_s"], GENERATION: j["tokens_per_s"]}


def make_prompt(folder):
    """The beginning of a text that has exactly 512 tokens, found by halving; returns the file."""
    words = (SOURCE / "tests" / "fixtures" / "wiki_small.txt").read_bytes().split(b" ")
    file = pathlib.Path(folder, "prompt.txt")
    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        file.write_bytes(b" ".join(words[:middle]))
        tokens = sheaf("Q4_1", Setting(1, 1, "int8"), file, 1)[0]["prompt_tokens"]
        low, high = (middle + 1, high) if tokens < PROMPT_TOKENS else (low, middle)
    # The last word may have had too many tokens: " the" is one.
    text = b" ".join(words[: low - 1])
    for more in range(64):
        file.write_bytes(text + b" the" * more)
        tokens = sheaf("Q4_1", Setting(1, 1, "int8"), file, 1)[0]["prompt_tokens"]
        if tokens == PROMPT_TOKENS:
            return file
    sys.exit("no prompt of 512 tokens found")


# ---- llama.cpp ---------------------------------------------------------------------------------------------------------
def llama(qtype, threads, work, flags, repetitions=1):
    """Tokens per second; generation after 512 tokens, as Sheaf's."""
    sizes = ["-p", PROMPT_TOKENS, "-n", 0] if work == PROMPT else ["-p", 0, "-n", GENERATED, "-d", PROMPT_TOKENS]
    words = [pathlib.Path(PEER, "llama-bench"), "-m", model(qtype), "-t", threads, *sizes, *flags]
    out = json.loads(call([*words, "-r", repetitions, "-o", "json"]))
    return out[0], statistics.median(out[0]["samples_ts"])


def best_flags(qtype, threads, work):
    rates = [(llama(qtype, threads, work, flags, 3)[1], flags) for flags in PEER_FLAGS]
    return max(rates)[1]


# ---- the machine -------------------------------------------------------------------------------------------------------
def cpu_name():
    lines = open("/proc/cpuinfo").read().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def physical_cores():
    out = call(["lscpu", "-p=core"])
    return len({line for line in out.splitlines() if not line.startswith("#")})


def read_speeds(cores):
    """Bytes per second that plain reading gets, on one core and on all."""
    return {n: float(call([BUILD / "tests" / "bench" / "read_bench", n])) * 1e9 for n in {1, cores}}


def note_if_busy():
    load = os.getloadavg()[0]
    if load > 0.3:
        print(f"WARNING: the load average is {load:.2f}: these figures are not those of a quiet machine", flush=True)
    return load


# ---- rounds ------------------------------------------------------------------------------------------------------------
def measure(qtype, cores, rounds, prompt):
    """Rates by setting (or ("llama.cpp", threads)) and kind of work, one a round, and what the peer said of itself."""
    rates, about = {}, {}
    flags = {}
    for threads in sorted({1, cores}) if PEER else []:
        for work in (PROMPT, GENERATION):
            flags[threads, work] = best_flags(qtype, threads, work)
    for n in range(rounds):
        for setting in settings(qtype, cores):
            threads = setting.ranks * setting.threads
            if PEER:  # right before each: the pairs that ratios are made of
                for work in (PROMPT, GENERATION):
                    about, rate = llama(qtype, threads, work, flags[threads, work])
                    rates.setdefault((f"beside {setting}", work), []).append(rate)
            for work, rate in sheaf(qtype, setting, prompt)[1].items():
                rates.setdefault((str(setting), work), []).append(rate)
        print(f"{qtype}: round {n + 1} of {rounds}", file=sys.stderr, flush=True)
    return rates, {"flags": {f"{t} threads, {w}": " ".join(f) for (t, w), f in flags.items()}, "build": about.get("build_commit")}


def pairs(above, below):
    return statistics.median(a / b for a, b in zip(above, below))


def token_bytes(qtype):
    """What one token must read: the weights, and the cache half-way through the generation."""
    info = json.loads(call([BUILD / "sheaf", "info", model(qtype), "--json"]))
    return info["weight_bytes"] + info["kv_bytes_per_token"] * (PROMPT_TOKENS + GENERATED // 2)


def print_table(qtype, cores, rates, speeds, peer):
    size = token_bytes(qtype)
    print(f"\n### {qtype}: {1e-6 * size:.1f} MB a token\n")
    print("| Sheaf | prompt, tokens/s | llama.cpp | ratio | generation, tokens/s | llama.cpp | ratio | of the read speed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for setting in settings(qtype, cores):
        row = [str(setting)]
        for work in (PROMPT, GENERATION):
            mine, theirs = rates[str(setting), work], rates.get((f"beside {setting}", work))
            row.append(f"{statistics.median(mine):.1f}")
            row += [f"{statistics.median(theirs):.1f}", f"{pairs(mine, theirs):.2f}"] if theirs else ["-", "-"]
        speed = speeds[setting.ranks * setting.threads]
        row.append(f"{statistics.median(rates[str(setting), GENERATION]) * size / speed:.2f}")
        print("|", " | ".join(row), "|")
    for activations in sorted({s.activations for s in settings(qtype, cores)}) if cores > 1 else []:
        many, one = str(Setting(cores, 1, activations)), str(Setting(1, cores, activations))
        for work in (PROMPT, GENERATION):
            print(f"\n{many} over {one}, {work}: {pairs(rates[many, work], rates[one, work]):.3f}", end="")
    print("\n\nllama.cpp's flags:", "; ".join(f"{k}: {v}" for k, v in peer["flags"].items()) or "-", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--types", default="Q4_1,Q8_0,F32")
    parser.add_argument("--json", help="write every figure of every round into this file")
    options = parser.parse_args()
    if os.geteuid() == 0:  # mpirun asks root to say it twice
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    cores = physical_cores()
    print(f"{cpu_name()}, {cores} cores; {time.strftime('%Y-%m-%d')}; {options.rounds} rounds", flush=True)
    log = {"cpu": cpu_name(), "cores": cores, "load_before": note_if_busy(), "types": {}}
    speeds = read_speeds(cores)
    for n, speed in speeds.items():
        print(f"plain reading, {n} core{'s' * (n > 1)}: {1e-9 * speed:.2f} GB/s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        prompt = make_prompt(folder)
        for qtype in options.types.split(","):
            rates, peer = measure(qtype, cores, options.rounds, prompt)
            print_table(qtype, cores, rates, speeds, peer)
            log["types"][qtype] = {"peer": peer, "rates": {" | ".join(k): v for k, v in rates.items()}}
    log["read_bytes_per_s"] = speeds
    print()
    log["load_after"] = os.getloadavg()[0]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    main()
