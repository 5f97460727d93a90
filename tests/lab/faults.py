"""Faults at random moments while `sheaf run` generates text, on one host and over pretended hosts (see hosts): what ends,
when, with which words, and what is left; and what goes on, with the same text.

usage: faults.py ROUNDS DEADLINE Class[.test] ...    ROUNDS moments of each fault; DEADLINE in seconds

Each rank runs under a shell that stays when it ends, so that no launcher notices: the ranks must end by themselves. The
seed of the moments is printed; SHEAF_FAULT_SEED sets it."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launch"))
import program

HOSTS = pathlib.Path(__file__).resolve().parent / "hosts"
ROUNDS, DEADLINE = 1, 3.0
GRACE = 5  # seconds after the deadline in which every rank must have ended
SLOW = 4 if os.environ.get("SHEAF_SANITIZED") else 1
KEEPALIVE = "--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3"
# The shell around a rank: its words and its status go into files, and it stays as long as the file `hold` exists.
SHELL = ('r=$OMPI_COMM_WORLD_RANK; "$0" "$@" 2>"$SHEAF_FAULT/err.$r" >"$SHEAF_FAULT/out.$r"; echo $? >"$SHEAF_FAULT/new.$r";'
         ' mv "$SHEAF_FAULT/new.$r" "$SHEAF_FAULT/status.$r"; while [ -e "$SHEAF_FAULT/hold" ]; do sleep 0.1; done')


class Job:
    """`sheaf run` over some ranks, generating for minutes. `lab`: the name of the lab that is up, or None: this host."""

    def __init__(self, model, ranks, lab=None, hold=True, tokens=90000, deadline=None, launch=""):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.ranks, self.mark = ranks, uuid.uuid4().hex.encode()
        if hold:
            (self.folder / "hold").touch()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_COMM", "PMIX_", "SLURM_"))}
        env |= {"SHEAF_FAULT": str(self.folder), "SHEAF_TEST_MARK": self.mark.decode()}
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        launcher = [program.MPIRUN, *program.MPI_FLAGS, *launch.split(), "-n", str(ranks)]
        if lab:
            env |= {"LAB": lab, "HOSTS_TIMEOUT": "240"}
            launcher = [str(HOSTS), "run", "-n", str(ranks), "-o", launch]
        words = ["run", str(model), "-p", "once upon a time", "-n", tokens, "--ctx", 90000, "--ignore-eos",
                 "--threads", 1, "--deadline", deadline or DEADLINE]
        self.process = subprocess.Popen([*launcher, "sh", "-c", SHELL, program.PROGRAM, *map(str, words)], env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def text(self):
        """What has been generated so far."""
        try:
            return (self.folder / "out.0").read_bytes()
        except OSError:
            return b""

    def wait_for(self, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def started(self):
        if not self.wait_for(lambda: len(self.text()) > 100, 60 * SLOW):
            raise AssertionError(f"the job did not start: {self.lines()}")
        time.sleep(random.uniform(0, 0.5))

    def pids(self):
        """The program's processes by rank."""
        found = {}
        for pid in program.marked_processes(self.mark):
            try:
                entry = pathlib.Path("/proc", str(pid))
                if os.readlink(entry / "exe") == os.path.realpath(program.PROGRAM):
                    rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)\0", b"\0" + (entry / "environ").read_bytes() + b"\0")
                    found[int(rank[1])] = pid
            except OSError:
                pass
        return found

    def statuses(self):
        return {int(f.name[7:]): int(f.read_text()) for f in self.folder.glob("status.*")}

    def lines(self, start="sheaf:"):
        """What all ranks wrote to standard error that starts so (MPI has its own words about connections)."""
        lines = [l for f in sorted(self.folder.glob("err.*")) for l in f.read_text(errors="replace").splitlines()]
        return [l for l in lines if l.startswith(start)]

    def close(self):
        """Ends the job; returns the processes that were left after the launcher had its time."""
        (self.folder / "hold").unlink(missing_ok=True)
        self.wait_for(lambda: self.process.poll() is not None, 15)
        left = program.left_running(self.mark)
        self.process.wait()
        shutil.rmtree(self.folder)
        return left


class Faults:
    """What holds on one host and over several. `lab` and `ranks` come from the class that has the tests."""

    lab = None
    launch = ""

    @classmethod
    def make_model(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = program.tiny_model(pathlib.Path(cls.folder.name, "long.gguf"), context=100000)

    def start(self, **how):
        job = Job(self.model, self.ranks, self.lab, **how)
        self.addCleanup(lambda: job.process.poll() is None and (job.close(), None))
        job.started()
        return job

    def expect_end(self, job, lost, began, words, deadline=None):
        """All ranks but `lost` end by themselves in time, with status 1 and one line that has the words."""
        limit = (DEADLINE if deadline is None else deadline) + GRACE * SLOW
        others = set(range(self.ranks)) - set(lost)
        ended = job.wait_for(lambda: others <= set(job.statuses()), limit - (time.monotonic() - began))
        self.assertTrue(ended, f"after {limit} s only {job.statuses()} have ended; said: {job.lines()}")
        for rank in others:
            self.assertEqual(job.statuses()[rank], 1, f"rank {rank}; said: {job.lines()}")
        self.assertEqual(len(job.lines()), 1, job.lines())
        self.assertRegex(job.lines()[0], words)
        self.assertRegex(job.lines()[0], r"; last seen in (\S+ \(\w+\)|a wait for the other ranks between steps|no step)$")

    def expect_on(self, job, seconds, more=60):
        """The job goes on, and has generated more text after a while."""
        before = len(job.text())
        on = job.wait_for(lambda: len(job.text()) > before + more, seconds)
        self.assertTrue(on, f"{len(job.text()) - before} bytes of text in {seconds} s; said {job.lines()}")
        self.assertEqual((job.statuses(), job.lines()), ({}, []))

    def undisturbed(self):
        """The text of a job to which nothing happens."""
        if not hasattr(type(self), "text"):
            job = self.start()
            self.assertTrue(job.wait_for(lambda: len(job.text()) > 600, 120), "too slow")
            type(self).text = job.text()
            for pid in job.pids().values():
                os.kill(pid, signal.SIGTERM)
            job.close()
        return self.text

    def expect_same_text(self, job):
        want, got = self.undisturbed(), job.text()
        n = min(len(want), len(got))
        self.assertGreater(n, 60)
        self.assertEqual(got[:n], want[:n])

    def end_with_signal(self, job):
        """A signal to any one rank ends all of them in order: 130."""
        os.kill(job.pids()[random.randrange(self.ranks)], signal.SIGTERM)
        self.assertTrue(job.wait_for(lambda: len(job.statuses()) == self.ranks, 10 * SLOW), job.statuses())
        self.assertEqual(set(job.statuses().values()), {130})
        self.assertEqual(job.lines(), [])
        self.assertEqual(job.close(), [])

    def kill_one(self):
        job, victim = self.start(), random.randrange(self.ranks)
        began = time.monotonic()
        os.kill(job.pids()[victim], signal.SIGKILL)
        self.expect_end(job, [victim], began, f"rank {victim} on host \\S+ .*has (died|not been heard of)")
        self.assertEqual(job.close(), [])

    def stop_one(self):
        job, victim = self.start(), random.randrange(self.ranks)
        pid, began = job.pids()[victim], time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        self.expect_end(job, [victim], began, f"rank {victim} on host \\S+ .*has not been heard of for {DEADLINE:.0f} s")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.close(), [])

    def slow_one(self):
        """A rank that gets one tenth of its time: the job goes on, and the text is the same."""
        job, victim = self.start(), random.randrange(self.ranks)
        pid, end = job.pids()[victim], time.monotonic() + 1.5 * DEADLINE
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(random.uniform(0.05, 0.15))
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        self.expect_on(job, 20 * SLOW)
        self.expect_same_text(job)
        self.end_with_signal(job)

    def launcher_killed(self):
        """Nothing stays behind when the launcher is killed."""
        job = self.start(hold=False)
        job.process.kill()
        self.assertTrue(job.wait_for(lambda: not job.pids(), 10 * SLOW), "ranks are left")
        self.assertEqual(job.close(), [])

    def launcher_stops_the_stopped(self):
        """Under a launcher that looks after its ranks, one that is stopped does not stay behind either."""
        job, victim = self.start(hold=False), random.randrange(self.ranks)
        os.kill(job.pids()[victim], signal.SIGSTOP)
        job.wait_for(lambda: job.process.poll() is not None, DEADLINE + GRACE * SLOW + 5)
        self.assertNotIn(job.process.poll(), (None, 0))
        self.assertEqual(len(job.lines()), 1, job.lines())
        self.assertEqual(job.close(), [])


def repeated(test):
    def run(self):
        for i in range(ROUNDS):
            with self.subTest(round=i):
                test(self)
    return run


class OneHost(Faults, unittest.TestCase):
    ranks = 3

    @classmethod
    def setUpClass(cls):
        cls.make_model()

    test_killed = repeated(Faults.kill_one)
    test_stopped = repeated(Faults.stop_one)
    test_slow = repeated(Faults.slow_one)
    test_launcher_killed = repeated(Faults.launcher_killed)
    test_launcher_that_looks = repeated(Faults.launcher_stops_the_stopped)


class EachAHost(OneHost):
    """The network path between all ranks of one host."""

    ranks = 3

    @classmethod
    def setUpClass(cls):
        cls.make_model()
        os.environ["SHEAF_HOSTS"] = "each"

    @classmethod
    def tearDownClass(cls):
        del os.environ["SHEAF_HOSTS"]


class Lab(Faults, unittest.TestCase):
    """Two hosts, two ranks on each."""

    ranks = 4
    launch = KEEPALIVE

    @classmethod
    def setUpClass(cls):
        if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
            raise unittest.SkipTest("skipped: pretended hosts need root and iproute2 (ip and tc)")
        cls.make_model()
        cls.lab = f"f{os.getpid()}"
        os.environ["LAB"] = cls.lab
        if subprocess.run([HOSTS, "up", "2", "1gbit"], stderr=subprocess.DEVNULL).returncode:
            raise unittest.SkipTest("skipped: this system does not allow network namespaces")

    @classmethod
    def tearDownClass(cls):
        cls.hosts("down")

    @classmethod
    def hosts(cls, *words):
        subprocess.run([HOSTS, *words], check=True)

    def setUp(self):
        self.hosts("link", "h1", "up")
        self.hosts("rate", "1gbit", "h1")

    def link_cut(self):
        job, began = self.start(), time.monotonic()
        self.hosts("link", "h1", "down")
        # Each side can only say that the other is silent; they cannot hear each other, so both speak.
        ended = job.wait_for(lambda: len(job.statuses()) == 4, DEADLINE + GRACE * SLOW)
        self.assertTrue(ended, f"only {job.statuses()} have ended")
        self.assertLess(time.monotonic() - began, DEADLINE + GRACE * SLOW)
        self.assertEqual(set(job.statuses().values()), {1})
        lines = sorted(job.lines())
        self.assertEqual(len(lines), 2, lines)
        for line, rank, host in zip(lines, (0, 2), ("h0", "h1")):
            self.assertRegex(line, f"rank {rank} on host {host} \\(and 1 more of that host\\) has not been heard of")
        self.hosts("link", "h1", "up")
        self.assertEqual(job.close(), [])

    def link_flaps(self):
        """Down for half the deadline (5 s of 10), then up again: the job goes on, and has warned once."""
        deadline = max(DEADLINE, 10)
        job = self.start(deadline=deadline)
        self.hosts("link", "h1", "down")
        time.sleep(min(5, deadline / 2))
        self.hosts("link", "h1", "up")
        self.expect_on(job, 30 * SLOW)
        self.expect_same_text(job)
        self.assertEqual(len(job.lines("warning: a collective")), 1, job.lines(""))
        self.assertRegex(job.lines("warning: a collective")[0],
                         r"a collective of \d+ bytes waited \d+\.\d+ s for host h1 .* is usual$")
        self.end_with_signal(job)

    def link_slow(self):
        job = self.start(deadline=max(DEADLINE, 10))
        self.hosts("rate", "1mbit", "h1")
        self.expect_on(job, 60 * SLOW, more=60)
        self.expect_same_text(job)
        self.hosts("rate", "1gbit", "h1")
        self.end_with_signal(job)

    test_killed = repeated(Faults.kill_one)
    test_stopped = repeated(Faults.stop_one)
    test_link_cut = repeated(link_cut)
    test_link_flaps = repeated(link_flaps)
    test_link_slow = repeated(link_slow)


if __name__ == "__main__":
    ROUNDS, DEADLINE = int(sys.argv[1]), float(sys.argv[2])
    seed = int(os.environ.get("SHEAF_FAULT_SEED", time.time_ns() % 1000000))
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    result = unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]], exit=False).result
    sys.exit(77 if result.skipped and not result.testsRun else not result.wasSuccessful())
