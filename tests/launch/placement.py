"""Where the ranks' threads run, as the program tells it, under good and bad bindings by the launcher and with other programs'
variables in the environment. What is expected follows from the CPUs that this test itself may use; with fewer than two cores
there is nothing to share out."""
import json
import os
import pathlib
import tempfile
import unittest

import program

CPUS = sorted(os.sched_getaffinity(0))


def cores():
    """The first CPU of each core among CPUS, as the kernel tells it."""
    first = {}
    for cpu in CPUS:
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(siblings.read_text() if siblings.exists() else cpu, cpu)
    return sorted(first.values())


def numbers(text):
    """[0, 1, 2, 6, 8] from "0-2,6-8:2"."""
    found = []
    for part in text.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


class Placement(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = program.tiny_model(pathlib.Path(cls.folder.name, "tiny.gguf"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def tearDown(self):
        os.sched_setaffinity(0, CPUS)
        program.MPI_FLAGS[:] = self.flags

    def setUp(self):
        self.flags = list(program.MPI_FLAGS)

    def bind(self, *flags):
        i = self.flags.index("--bind-to")
        program.MPI_FLAGS[:] = [*self.flags[:i], *flags, *self.flags[i + 2 :]]

    def place(self, *options, ranks=0, warning=None, **environment):
        """CPUs of each rank. `warning`: parts of the only line on standard error that warns; None: there is no such line."""
        r = program.run(
            ["run", self.model, "-p", "once", "-n", 2, "--json", *options], ranks, environment=environment
        )
        self.assertEqual((r.status, r.left), (0, []), r.err)
        warnings = r.crowded + [line for line in r.err if line.startswith("warning: ")]
        self.assertEqual(len(warnings), 1 if warning else 0, warnings)
        for part in [warning] if isinstance(warning, str) else warning or []:
            self.assertIn(part, warnings[0])
        return [numbers(p["cpus"]) if p["cpus"] else p["threads"] for p in json.loads(r.out)["placement"]]

    def test_alone_each_core_has_a_thread(self):
        self.assertEqual(self.place(), [cores()])
        self.assertEqual(self.place("--cores", str(CPUS[-1])), [[CPUS[-1]]])
        self.assertEqual(self.place("--bind", "none", "--threads", 3), [3])

    @unittest.skipIf(len(cores()) < 2, "one core")
    def test_ranks_share_the_cores_out(self):
        for flags in (["--bind-to", "none"], [], ["--bind-to", "core"]):  # [] lets mpirun bind as it likes
            self.bind(*flags)
            placed = self.place(ranks=2)
            self.assertFalse(set(placed[0]) & set(placed[1]), placed)
            self.assertTrue(all(set(p) <= set(cores()) for p in placed), placed)
            if flags[-1:] != ["core"]:
                self.assertEqual(sorted(placed[0] + placed[1]), cores())
        self.bind("--bind-to", "none")
        placed = self.place("--cores", f"{cores()[0]},{cores()[1]}", ranks=2)
        self.assertEqual(placed, [[cores()[0]], [cores()[1]]])

    @unittest.skipIf(len(cores()) < 2, "one core")
    def test_bad_bindings_are_said_and_put_right(self):
        self.bind("--bind-to", "core", "--cpu-list", str(cores()[0]))
        placed = self.place(ranks=2, warning="ranks 0 and 1 were bound to the same cores")
        self.assertEqual(sorted(placed[0] + placed[1]), cores())
        # What mpirun itself was kept to is kept to.
        self.bind("--bind-to", "none")
        os.sched_setaffinity(0, {cores()[1]})
        placed = self.place(ranks=2, warning="2 ranks have 1 core")
        self.assertEqual(placed, [[cores()[1]], [cores()[1]]])
        self.assertEqual(self.place("-q", ranks=2), placed)

    def test_other_programs_variables_have_no_effect(self):
        everything = {"OMP_NUM_THREADS": "7", "OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": str(CPUS[0]), "MKL_NUM_THREADS": "3"}
        self.assertEqual(self.place(warning=[*everything, "without effect"], **everything), [cores()])
        self.assertEqual(self.place("-q", **everything), [cores()])
        self.assertEqual(self.place(OMP_NUM_THREADS="1", OMPI_MCA_btl="self,vader"), [cores()])

    def test_plan_for_pretended_machines(self):
        for machine, ranks, expected in (
            ({"HWLOC_SYNTHETIC": "package:2 numa:2 core:8 pu:2"}, 2, [("0-30:2", "0-1"), ("32-62:2", "2-3")]),
            ({"HWLOC_XMLFILE": f"{os.environ['SHEAF_FIXTURES']}/topo/half_socket.xml"}, 1, [("8,10", "1")]),
        ):
            r = program.run(["plan", self.model, "-n", ranks, "--json"], environment=machine)
            self.assertEqual((r.status, r.err), (0, []))
            plan = json.loads(r.out)
            self.assertEqual([(p["cpus"], p["nodes"]) for p in plan["per_rank"]], expected)
            self.assertIn("(pretended)", plan["machine"])
        r = program.run(["plan", self.model, "-n", 2], environment={"HWLOC_SYNTHETIC": "package:2 numa:1 core:4 pu:1"})
        self.assertRegex(r.out.decode(), r"(?m) 4  0-3 on 0$")
        self.assertRegex(r.out.decode(), r"(?m)^placed on +2 sockets, 2 NUMA nodes, 8 cores, 8 CPUs, 2.1 GB \(pretended\)$")

    def test_refusals(self):
        for options, variables, says in (
            (["--cores", "x"], {}, "--cores x: must be CPUs such as 0-7,16-23"),
            (["--cores", "1023"], {}, "CPU 1023 cannot be used here"),
            (["--cores", "0", "--bind", "none"], {}, "exclude each other"),
            (["--bind", "core"], {}, "--bind core: must be one of auto|none"),
            ([], {"HWLOC_SYNTHETIC": "package:2 numa:1 core:2 pu:1"}, "pretend another machine"),
            ([], {"HWLOC_SYNTHETIC": "package:0"}, 'HWLOC_SYNTHETIC: hwloc finds no machine in "package:0"'),
        ):
            for ranks in (0, 2):
                r = program.run(["run", self.model, "-p", "x", *options], ranks, environment=variables)
                self.assertEqual((r.status != 0, r.out, r.left), (True, b"", []), r.err)
                self.assertEqual((len(r.err), r.crowded), (1, []), r.err)
                self.assertIn(says, r.err[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
