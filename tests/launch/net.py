"""`sheaf run` and `info` on small nets (tests/fixtures/onnx): results on any number of ranks, what is printed and written,
and what is refused."""
import array
import json
import os
import pathlib
import struct
import tempfile
import unittest

import program

FIXTURES = pathlib.Path(os.environ["SHEAF_FIXTURES"], "onnx")
FAILED = 1


def read_npy(path):
    """The shape and the fp32 numbers of a file."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (n,) = struct.unpack("<H", data[8:10])
    header = eval(data[10 : 10 + n])
    assert header["descr"] == "<f4" and not header["fortran_order"] and (10 + n) % 64 == 0
    return header["shape"], array.array("f", data[10 + n :])


def relative_error(got, want):
    squares = sum((a - b) ** 2 for a, b in zip(got, want))
    return (squares / sum(b * b for b in want)) ** 0.5


class Net(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name, "out.npy")
        self.addCleanup(self.folder.cleanup)
        self.want = read_npy(FIXTURES / "net.out.npy")

    def run_net(self, *options, ranks=0, name="net"):
        r = program.run(["run", FIXTURES / f"{name}.onnx", FIXTURES / f"{name}.in.npy", "-o", self.out, *options], ranks)
        self.assertEqual((r.status, r.left), (0, []), r.err)
        return r

    def test_ranks_and_steps(self):
        for ranks in (0, 2, 3, 4):
            for options in (["--batch", "2"], ["--batch", "3", "--shards"]):
                with self.subTest(ranks=ranks, options=options):
                    r = self.run_net("-q", *options, ranks=ranks)
                    self.assertEqual(r.err, [])
                    shape, got = read_npy(self.out)
                    self.assertEqual(shape, self.want[0])
                    self.assertLess(relative_error(got, self.want[1]), 2e-6)
                    self.assertEqual(len(r.out.splitlines()), 5)

    def test_printed(self):
        r = self.run_net("--json")
        j = json.loads(r.out)
        (result,) = j["results"]
        self.assertEqual((result["name"], result["type"], result["shape"]), ("scores", "f32", [5, 10]))
        scores = self.want[1]
        for row, top in enumerate(result["top"]):
            order = sorted(range(10), key=lambda k: -scores[10 * row + k])
            self.assertEqual([t["class"] for t in top], order[:5])
            self.assertAlmostEqual(top[0]["value"], scores[10 * row + order[0]], places=5)
        self.assertTrue(any(line.startswith("load") for line in r.err), r.err)

    def test_several(self):
        r = program.run(["run", FIXTURES / "parts.onnx", FIXTURES / "parts.in.npy", FIXTURES / "parts.in1.npy", "-o", self.out])
        self.assertEqual(r.status, 0, r.err)
        for name, want in (("products", "parts.out.npy"), ("ends", "parts.out1.npy")):
            shape, got = read_npy(self.out.with_name(f"out-{name}.npy"))
            self.assertEqual(shape, read_npy(FIXTURES / want)[0])
            self.assertLess(relative_error(got, read_npy(FIXTURES / want)[1]), 2e-6)

    def test_info(self):
        r = program.run(["info", FIXTURES / "net.onnx"])
        self.assertIn(b"image f32 [N, 3, 23, 21]", r.out)
        j = json.loads(program.run(["info", FIXTURES / "net.onnx", "--json"]).out)
        self.assertEqual(j["inputs"], [{"name": "image", "type": "f32", "shape": ["N", 3, 23, 21]}])
        self.assertEqual(j["results"], [{"name": "scores", "type": "f32", "shape": ["N", 10]}])

    def refused(self, arguments, says, status=FAILED, ranks=(0,)):
        for ranks in ranks:
            with self.subTest(arguments=arguments, ranks=ranks):
                r = program.run(arguments, ranks)
                self.assertEqual((r.status, r.out, r.left), (status, b"", []))
                self.assertEqual(len(r.err), 1, r.err)
                self.assertIn(says, r.err[0])

    def test_wrong_use(self):
        net, image = FIXTURES / "net.onnx", FIXTURES / "net.in.npy"
        folder = pathlib.Path(self.folder.name)
        (folder / "cut.onnx").write_bytes(net.read_bytes()[:100000])
        (folder / "cut.npy").write_bytes(image.read_bytes()[:-1])
        (folder / "columns.npy").write_bytes(image.read_bytes().replace(b"False", b"True "))
        self.refused(["run", net], "takes 1 input (image f32 [N, 3, 23, 21]), 0 files given", ranks=(0, 2))
        self.refused(["run", net, image, image], "2 files given")
        self.refused(["run", net, FIXTURES / "parts.in.npy"], "input image has shape [N, 3, 23, 21], not [", ranks=(0, 3))
        self.refused(["run", net, folder / "missing.npy"], "missing.npy: cannot open")
        self.refused(["run", net, net], "not an .npy file")
        self.refused(["run", net, folder / "cut.npy"], "the shape needs")
        self.refused(["run", net, folder / "columns.npy"], "column order")
        self.refused(["run", net, "-p", "hello"], "it takes arrays, no text")
        self.refused(["run", folder / "cut.onnx", image], "cut.onnx")
        self.refused(["run", net, image, "-o", folder / "nowhere" / "x.npy"], "x.npy")
        self.refused(["eval", "perplexity", net, "-f", image], "is a net")
        self.refused(["plan", net], "net.onnx")


if __name__ == "__main__":
    unittest.main(verbosity=2)
