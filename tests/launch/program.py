"""Calling the program as a user does: alone or under mpirun, with a time limit, standard error apart from mpirun's own,
and nothing left running afterwards. SHEAF_PROGRAM, SHEAF_MPIRUN, SHEAF_MAKE_TINY and SHEAF_MAKE_ARCH come from ctest."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import uuid

TIME_LIMIT = 60  # seconds for one call; each takes about one
PROGRAM = os.environ.get("SHEAF_PROGRAM", "sheaf")
MPIRUN = os.environ.get("SHEAF_MPIRUN", "mpirun")
MPI_FLAGS = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
CROWDED = re.compile(r"warning: (\d+ ranks have|ranks \d+ and \d+ were bound)")
# Each rank's standard error goes into a file of its own, since mpirun adds its own words to what it passes on.
SHELL = 'exec "$0" "$@" 2>>"$SHEAF_TEST_STDERR.${OMPI_COMM_WORLD_RANK:-0}"'


@dataclasses.dataclass
class Result:
    status: int
    out: bytes
    err: list  # lines of all ranks, but for
    crowded: list  # warnings that ranks share cores: whether they do depends on the machine that the test runs on
    seconds: float
    left: list  # processes still there afterwards


def command(arguments, ranks, to=None):
    """The words of a call; ranks 0 means without mpirun. `to`: where each rank's standard output goes (mpirun would stand
    between)."""
    mpi = [MPIRUN, *MPI_FLAGS, "-n", str(ranks)] if ranks else []
    return [*mpi, "sh", "-c", SHELL + (f" >{to}" if to else ""), PROGRAM, *map(str, arguments)]


def marked_processes(mark):
    """Processes whose environment has the mark."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def left_running(mark, patience=10.0):
    """What is still running after a moment; it is then killed."""
    end = time.monotonic() + patience
    while (found := marked_processes(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return found


def not_crowded(lines):
    """Without the warnings that ranks share cores."""
    return [line for line in lines if not CROWDED.match(line)]


class Call:
    """A running call. Use `run` where nothing happens in between."""

    def __init__(self, arguments, ranks=0, environment=None, stdin=subprocess.DEVNULL, to=None):
        self.folder = tempfile.TemporaryDirectory()
        self.mark = uuid.uuid4().hex.encode()
        stderr = pathlib.Path(self.folder.name, "stderr")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_COMM", "PMIX_", "SLURM_"))}
        env |= {"SHEAF_TEST_STDERR": str(stderr), "SHEAF_TEST_MARK": self.mark.decode()}
        if ranks:  # Open MPI unloads its plug-ins before LeakSanitizer looks, which then can not tell whose a leak is
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        env |= environment or {}
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            command(arguments, ranks, to),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )

    def finish(self, text=None):
        try:
            out, _ = self.process.communicate(text, timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, _ = self.process.communicate()
        seconds = time.monotonic() - self.start
        left = left_running(self.mark)
        files = sorted(pathlib.Path(self.folder.name).iterdir())
        err = [line for file in files for line in file.read_text(errors="replace").splitlines()]
        self.folder.cleanup()
        crowded = [line for line in err if CROWDED.match(line)]
        return Result(self.process.returncode, out or b"", not_crowded(err), crowded, seconds, left)


def run(arguments, ranks=0, environment=None, text=None, to=None):
    """Runs the program to its end. `text`: bytes for its standard input."""
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    return Call(arguments, ranks, environment, stdin, to).finish(text)


def tiny_model(path, seed=1, qtype="q8_0", context=256, experts=0, template=None, window=0):
    """A small model with random weights, of `experts` 2 for each token, with a chat template of this text, and a sliding
    window; returns the path."""
    arguments = [path, seed, qtype, context, experts] + ([] if template is None else [template, window])
    subprocess.run([os.environ["SHEAF_MAKE_TINY"], *map(str, arguments)], check=True)
    return path


def arch_model(path, name):
    """A model of tests/fixtures/arch; returns the path."""
    subprocess.run([os.environ["SHEAF_MAKE_ARCH"], name, str(path)], check=True)
    return path
