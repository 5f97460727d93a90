"""Memory of the real model over ranks: the ranks share the weights, they do not each hold them. What the program says it
holds, against the file, the plan and the kernel's own account of the processes (proc(5): VmHWM, RssAnon)."""
import json
import os
import pathlib
import time
import unittest

import real
from real import program

MB = 1 << 20
# What a rank holds besides weights, cache and activations: Open MPI, the tokenizer, the program's own pages. Measured: 40 MB.
REST = 64 * MB


def peaks(qtype, ranks):
    """Runs the model and returns its JSON and, for each process of it, the most seen: {"VmHWM": bytes, "RssAnon": ...}."""
    words = ["run", real.model(qtype), "-p", "Once upon a time", "-n", 100, "--ignore-eos", "--ctx", 256, "--json", "-q"]
    call = program.Call(words, ranks)
    seen = {}
    while call.process.poll() is None:
        for pid in program.marked_processes(call.mark):
            account = read_account(pid)
            if account:
                before = seen.setdefault(pid, account)
                seen[pid] = {name: max(size, before.get(name, 0)) for name, size in account.items()}
        time.sleep(0.02)
    r = call.finish()
    if r.status != 0 or r.err or r.left:
        raise AssertionError(f"{words}, {ranks} ranks: status {r.status}, standard error {r.err}, left {r.left}")
    return json.loads(r.out), list(seen.values())


def read_account(pid):
    """None for processes that are not the program itself (mpirun, the shell), or are gone."""
    try:
        folder = pathlib.Path("/proc", str(pid))
        if (folder / "exe").resolve() != pathlib.Path(program.PROGRAM).resolve():
            return None
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return None
    sizes = (line.split() for line in lines if line.endswith(" kB"))
    account = {name.rstrip(":"): int(size) * 1024 for name, size, _ in sizes}
    return account if account.get("VmRSS") else None


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.access("/proc/self/status", os.R_OK):
            raise unittest.SkipTest("skipped: no /proc")
        cls.one, cls.one_process = peaks("F32", 0)
        cls.four, cls.four_processes = peaks("F32", 4)

    def test_weights_are_divided(self):
        for qtype, one, four in (
            ("F32", self.one, self.four),
            ("Q4_1", *(peaks("Q4_1", ranks)[0] for ranks in (1, 4))),
        ):
            ratio = four["weight_bytes"] / one["weight_bytes"]
            print(f"{qtype}: weights of 4 ranks / 1 rank: {ratio:.4f}", flush=True)
            self.assertLessEqual(ratio, 1.1)
            self.assertGreaterEqual(ratio, 1)

    def test_weights_are_what_the_file_and_the_plan_say(self):
        file = json.loads(program.run(["info", real.model("F32"), "--json"]).out)
        for j in (self.one, self.four):
            plan = json.loads(program.run(["plan", real.model("F32"), "-n", j["ranks"], "--json"]).out)
            self.assertEqual(sum(rank["weight_bytes"] for rank in plan["per_rank"]), plan["weight_bytes"])
            # Measured in pages, of 2 MB at most.
            self.assertGreaterEqual(j["weight_bytes"], plan["weight_bytes"])
            self.assertLessEqual(j["weight_bytes"], plan["weight_bytes"] + j["ranks"] * 2 * MB)
        # A packed matrix may end with rows that only fill up; norms stand in the plan of each rank.
        self.assertGreaterEqual(self.one["weight_bytes"], 0.99 * file["weight_bytes"])
        self.assertLessEqual(self.one["weight_bytes"], 1.01 * file["weight_bytes"] + 2 * MB)

    def test_the_kernel_says_so_too(self):
        self.assertEqual((len(self.one_process), len(self.four_processes)), (1, 4))
        whole = self.one_process[0]["RssAnon"]
        self.assertGreaterEqual(whole, self.one["weight_bytes"])
        self.assertLessEqual(whole, self.one["weight_bytes"] + self.one["kv_bytes_rank0"] + self.one["activation_bytes_rank0"] + REST)
        together = sum(p["RssAnon"] for p in self.four_processes)
        print("RssAnon, MB: 1 rank", whole // MB, " 4 ranks", [p["RssAnon"] // MB for p in self.four_processes], flush=True)
        self.assertLessEqual(together, 1.1 * self.one["weight_bytes"] + 4 * REST)

    def test_no_rank_ever_holds_a_whole_model(self):
        """At any moment, loading too: the file is never in a rank's memory as a whole."""
        for p in self.four_processes:
            self.assertLess(p["VmHWM"], 0.5 * self.one["weight_bytes"])
        print("peak, MB:", [p["VmHWM"] // MB for p in self.one_process + self.four_processes], flush=True)
        # Loading needs no second copy even where one rank does hold it all.
        self.assertLess(self.one_process[0]["VmHWM"], 1.25 * self.one["weight_bytes"])


if __name__ == "__main__":
    real.main()
