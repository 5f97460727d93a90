"""`sheaf bench comm`: what it reports at 1 to 4 ranks, on one host and with every rank a host, and what it refuses. How
fast the machine is decides nothing here."""
import json
import math
import unittest

import program

SIZES = [64, 2304, 18432, 131072, 1228800, 8388608]
ONE_SHOT_MOST = {"in host": 8192, "between hosts": 16384}  # with two hosts: any size


class BenchComm(unittest.TestCase):
    def bench(self, *words, ranks):
        r = program.run(["bench", "comm", "--rounds", "1", *words], ranks)
        self.assertEqual((r.status, r.err, r.left), (0, [], []))
        return r.out.decode()

    def check_sums(self, sums, scope, hosts):
        """Every size that was not too slow, made in both ways where the buffers allow; one is the chosen one."""
        sizes = sorted({row["bytes"] for row in sums})
        self.assertEqual(sizes, SIZES[: len(sizes)])
        self.assertGreaterEqual(len(sizes), 3)
        for size in sizes:
            rows = {row["algorithm"]: row for row in sums if row["bytes"] == size}
            self.assertIn("two-shot", rows)
            one = scope == "between hosts" and hosts == 2 or size <= ONE_SHOT_MOST[scope]
            self.assertEqual([a for a, row in rows.items() if row["chosen"]], ["one-shot" if one else "two-shot"])
        for row in sums:
            for name in ("us", "least_us", "mpi_us", "limit_us"):
                self.assertGreater(row[name], 0, row)
            self.assertLessEqual(row["least_us"], row["us"])
            for name, value in (
                ("gb_per_s", row["bytes"] / row["us"] / 1e3),
                ("times_mpi", row["mpi_us"] / row["us"]),
                ("reached", row["limit_us"] / row["us"]),
            ):
                self.assertTrue(math.isclose(row[name], value, rel_tol=1e-9), row)
        # Eight MB can not take less time than a cache line: at the least the bytes over 1 TB/s.
        for row in sums:
            self.assertGreater(row["us"], row["bytes"] / 1e6)

    def test_one_host(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                j = json.loads(self.bench("--json", ranks=ranks))
                self.assertEqual((j["ranks"], j["hosts"], j["wire"], j["rounds"]), (ranks, 1, "f32", 1))
                self.assertGreater(j["flag_us"], 0)
                self.assertEqual(j["message_us"], 0)
                self.assertEqual({row["scope"] for row in j["sums"]}, {"in host"})
                self.check_sums(j["sums"], "in host", 1)

    def test_each_rank_a_host(self):
        for ranks, wire in ((2, "bf16"), (3, "f32"), (4, "f32")):
            with self.subTest(ranks=ranks):
                j = json.loads(self.bench("--json", "--hosts", "each", "--wire", wire, "--verify", ranks=ranks))
                self.assertEqual((j["ranks"], j["hosts"], j["wire"]), (ranks, ranks, wire))
                self.assertEqual(j["flag_us"], 0)
                self.assertGreater(j["message_us"], 0)
                self.assertEqual({row["scope"] for row in j["sums"]}, {"between hosts"})
                self.check_sums(j["sums"], "between hosts", ranks)

    def test_table(self):
        lines = self.bench(ranks=2).splitlines()
        self.assertRegex(lines[0], r"^2 ranks on 1 host, 1 round; a cache line goes one way in \d+\.\d+ us$")
        rows = [line.split() for line in lines if line.startswith("in host")]
        self.assertEqual({row[2] for row in rows}, {str(size) for size in SIZES[: len(rows) // 2]})
        self.assertEqual(sum("*" in row for row in rows), len(rows) // 2)

    def test_refused(self):
        for words, ranks, status, line in (
            ([], 0, 1, "one rank has no other to speak with: start two or more with mpirun -n 2"),
            ([], 1, 1, "one rank has no other to speak with: start two or more with mpirun -n 2"),
            (["model.gguf"], 0, 2, "'model.gguf' is one argument too many: 'bench comm' takes options only"),
            (["--rounds", "0"], 2, 2, "--rounds 0: must be from 1 to 1000"),
        ):
            with self.subTest(words=words, ranks=ranks):
                r = program.run(["bench", "comm", *words], ranks)
                self.assertEqual((r.status, r.out, r.err, r.left), (status, b"", [f"sheaf: {line}"], []))
        r = program.run(["bench", "come"])
        self.assertEqual((r.status, r.err), (2, ["sheaf: unknown verb 'bench come': did you mean 'bench comm'?"]))


if __name__ == "__main__":
    unittest.main()
