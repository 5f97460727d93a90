"""`--check-file`: damage is found by stored hashes and by SHA-256, and named; and what loading finds by itself."""
import hashlib
import os
import pathlib
import re
import struct
import tempfile
import unittest

import program

PIECE = 1 << 20  # that has a hash of its own
KEY = b"sheaf.xxh64"


def flip(path, at, mask=0x10):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


class CheckFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = tempfile.TemporaryDirectory()
        f32 = program.tiny_model(pathlib.Path(cls.source.name, "f32.gguf"), qtype="f32")
        cls.f32 = pathlib.Path(f32)
        cls.f16 = pathlib.Path(cls.source.name, "f16.gguf")  # its tensors fill their places: no padding between them
        assert program.run(["quantize", f32, "-o", cls.f16, "--type", "f16"]).status == 0

    @classmethod
    def tearDownClass(cls):
        cls.source.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.folder.name, "model.gguf")
        self.model.write_bytes(self.f16.read_bytes())
        self.sum = hashlib.sha256(self.model.read_bytes()).hexdigest()
        self.list = pathlib.Path(self.folder.name, "SHA256SUMS")

    def tearDown(self):
        self.folder.cleanup()

    def good(self, how, model=None, ranks=0):
        for verb in (["info"], ["run", "-p", "once", "-n", 2, "-q"]):
            r = program.run([verb[0], model or self.model, *verb[1:], "--check-file", how], ranks)
            self.assertEqual((r.status, r.err, r.left), (0, [], []))

    def refused(self, how, *says, model=None, ranks=0, verb=("info",)):
        check = ["--check-file", how] if how else []
        r = program.run([verb[0], model or self.model, *verb[1:], *check], ranks)
        self.assertEqual((r.status, r.out, r.left), (1, b"", []))
        line = [line for line in r.err if line.startswith("sheaf: ")]
        self.assertEqual(len(line), 1, r.err)
        for text in says:
            self.assertIn(text, line[0])
        return line[0]

    def test_stored(self):
        for ranks in (0, 2, 3):
            self.good("stored", ranks=ranks)

    def test_flipped_bits(self):
        """All over the tensors, first and last byte included; the named piece is the one with the flipped bit."""
        size = self.model.stat().st_size
        begin = size - 2 * 4096
        for at in (begin, begin + 1, size - 4097, size - 2, size - 1, size // 2):
            for ranks in (0, 3):
                flip(self.model, at, 1)
                line = self.refused("stored", str(self.model), "is damaged within its bytes", ranks=ranks)
                found = re.search(r"tensor (\S+) is .* bytes (\d+) to (\d+), from byte (\d+) of the file: 1 of", line)
                first, last, where = (int(found[i]) for i in (2, 3, 4))
                self.assertTrue(where <= at <= where + last - first and last - first < PIECE, line)
                self.assertIn(found[1].encode(), self.model.read_bytes())
                flip(self.model, at, 1)
        self.good("stored")

    def test_no_hashes(self):
        self.refused("stored", "f32.gguf: has no hashes of its tensors", model=self.f32)

    def test_hashes_of_another_file(self):
        """As if a program that does not know the key had written other tensors and kept it."""
        at = self.model.read_bytes().index(KEY) + len(KEY) + 4 + 4 + 8
        flip(self.model, at)
        self.refused("stored", "its hashes (sheaf.xxh64) are of other tensors")

    def test_sum(self):
        self.good(self.sum)
        self.good(self.sum.upper(), ranks=2)
        flip(self.model, self.model.stat().st_size - 5)
        self.refused(self.sum, str(self.model), f"its SHA-256 is {hashlib.sha256(self.model.read_bytes()).hexdigest()}")

    def test_list(self):
        other = "0" * 64
        self.list.write_text(f"{other}  other.gguf\n{self.sum} *somewhere/model.gguf\n")
        self.good(self.list, ranks=2)
        self.list.write_text(f"{other}  model.gguf\n")
        self.refused(self.list, "model.gguf: is damaged", f"not {other}", ranks=2)

    def test_wrong_lists(self):
        for text, says in (
            ("", "has no hash of model.gguf"),
            (f"{self.sum}  other.gguf\n", "has no hash of model.gguf"),
            (f"{self.sum}  a/model.gguf\n{self.sum}  b/model.gguf\n", "line 2 names model.gguf a second time"),
            (f"{self.sum} model.gguf\n", "line 1 is not as sha256sum writes it"),
            (f"\n{self.sum[:-1]}  model.gguf\n", "line 2 is not as sha256sum writes it"),
            (f"SHA256 (model.gguf) = {self.sum}\n", "line 1 is not as sha256sum writes it"),
            ("x" * (2 << 20), "is too large"),
        ):
            self.list.write_text(text)
            self.refused(self.list, str(self.list), says)
        self.refused("storde", "storde", "neither 'stored' nor 64 digits", "No such file")
        self.refused(self.folder.name, self.folder.name, "directory")

    def test_several_files(self):
        """A model in two shards: each is hashed, none may be missing from the list."""
        folder = pathlib.Path(os.environ["SHEAF_FIXTURES"], "hf_sharded")
        shards = sorted(folder.glob("*.safetensors"))
        self.assertGreater(len(shards), 1)
        lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in shards]
        self.list.write_text("".join(lines))
        r = program.run(["info", folder, "--check-file", self.list])
        self.assertEqual((r.status, r.err), (0, []))
        self.list.write_text("".join([*lines, "0" * 64 + "  config.json\n"]))
        self.refused(self.list, "config.json: is damaged", model=folder)
        self.list.write_text("".join(lines[:-1]))
        self.refused(self.list, f"has no hash of {shards[-1].name}", model=folder)
        self.list.write_text("".join([*lines[:-1], "0" * 64 + f"  {shards[-1].name}\n"]))
        self.refused(self.list, f"{shards[-1].name}: is damaged", model=folder)
        self.refused(self.sum, f"its tensors are in {len(shards)} files", model=folder)

    def test_not_finite(self):
        """Without being asked: a NaN among the last values of the file, in whatever tensor lies there."""
        data = bytearray(self.model.read_bytes())
        at = len(data) - 4096
        data[at : at + 2] = struct.pack("<H", 0x7E00)
        self.model.write_bytes(data)
        for ranks in (0, 2, 3):
            line = self.refused(None, str(self.model), f"has a value that is not finite, at byte {at} of the file",
                                ranks=ranks, verb=("run", "-p", "once", "-n", 2, "-q"))
            self.assertRegex(line, r"tensor \S+\.weight has")


if __name__ == "__main__":
    unittest.main()
