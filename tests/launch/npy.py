"""Reading NumPy files of floats without NumPy, and comparing vectors."""
import ast
import math
import pathlib
import struct


def read(path):
    """The rows of a two-dimensional array: numpy.lib.format, version 1.0."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (size,) = struct.unpack_from("<H", data, 8)
    begin = 10 + size
    assert begin % 64 == 0 and data[begin - 1 : begin] == b"\n"
    header = ast.literal_eval(data[10:begin].decode("latin1").strip())
    rows, columns = header.pop("shape")
    assert header == {"descr": "<f4", "fortran_order": False}, header
    assert len(data) == begin + 4 * rows * columns
    values = struct.unpack_from(f"<{rows * columns}f", data, begin)
    return [values[i * columns : (i + 1) * columns] for i in range(rows)]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)
