#!/usr/bin/env python3
"""Rewrite a GGUF with its weight matrices in another type.

    gguf_convert.py IN.gguf OUT.gguf --type f32|q8_0

All metadata is copied, in its order, except general.file_type, which is set to
the new type (0 = all F32, 7 = mostly Q8_0). Tensors keep their names and their
order. Those with two or more dimensions are dequantised to F32 and, for q8_0,
quantised again to Q8_0; a tensor that has the target type already is copied
bit for bit, since quantising twice could change it. Tensors with one dimension
(norm weights, biases) become F32.

For q8_0 a matrix whose rows are no multiple of 32 long stays F32.

The output depends on the input only: the same input gives the same bytes.
Made with gguf 0.19.0 and numpy 2.4.6 (see requirements.txt).
"""

import argparse
import logging

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

TARGETS = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
F32 = GGMLQuantizationType.F32
FILE_TYPE = "general.file_type"


def copy_metadata(reader, writer, file_type):
    written = False
    for field in reader.fields.values():
        # GGUF.* are the reader's names for the header's own numbers.
        if field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == GGUFValueType.ARRAY else None
        if field.name == FILE_TYPE:
            writer.add_key_value(FILE_TYPE, int(file_type), GGUFValueType.UINT32)
            written = True
        else:
            # general.architecture is there from the writer's start: same value.
            writer.kv_data[0].pop(field.name, None)
            writer.add_key_value(field.name, field.contents(), kind, sub_kind)
    if not written:
        writer.add_key_value(FILE_TYPE, int(file_type), GGUFValueType.UINT32)


def convert_tensor(tensor, target):
    """The tensor's new data (numpy, rows first) and its GGML type."""
    shape = [int(n) for n in tensor.shape]
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    block, _ = GGML_QUANT_SIZES[target]
    wanted = target if len(shape) >= 2 and shape[0] % block == 0 else F32
    if tensor.tensor_type == wanted:
        return np.asarray(tensor.data), wanted
    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    return (values if wanted == F32 else quantize(values, wanted)), wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--type", required=True, choices=sorted(TARGETS))
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)

    target, file_type = TARGETS[args.type]
    reader = GGUFReader(args.input)
    arch = reader.get_field("general.architecture").contents()
    writer = GGUFWriter(args.output, arch)
    writer.data_alignment = reader.alignment
    copy_metadata(reader, writer, file_type)

    counts = {}
    for tensor in reader.tensors:
        data, kind = convert_tensor(tensor, target)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
        counts[kind.name] = counts.get(kind.name, 0) + 1
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(args.output + ":", ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
