"""Small nets for the tests, as ONNX files with random weights, and what ONNX Runtime makes of random inputs.

usage: onnx_fixtures.py FOLDER     (tests/fixtures/onnx; packages: requirements.txt)

NAME.onnx, NAME.in.npy and NAME.out.npy:
  net     convolutions of all kinds (asymmetric padding, depthwise, grouped, dilated), batch normalisation, pooling,
          squeeze and excitation, concatenation, residuals; the batch is open
  chain   what exporters leave in a file: padding by chains of shape operators, shared initialisers, constants as nodes
  parts   two results and two inputs, slices, splits, transposes, resizing by shapes of the input; all sizes are open
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(20240229)


class Net:
    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, array, name=None):
        self.count += 1
        name = name or f"w{self.count}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def noise(self, *shape, scale=1.0):
        return self.weight((rng.standard_normal(shape) * scale).astype(np.float32))

    def add(self, kind, *inputs, n=1, **attributes):
        self.count += 1
        outputs = [f"v{self.count}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=f"{kind}_{self.count}", **attributes))
        return outputs[0] if n == 1 else outputs

    def conv(self, x, inputs, outputs, k, bias=True, groups=1, **attributes):
        w = self.noise(outputs, inputs // groups, k, k, scale=(inputs // groups * k * k) ** -0.5)
        more = [self.noise(outputs, scale=0.1)] if bias else []
        return self.add("Conv", x, w, *more, group=groups, **attributes)

    def norm(self, x, channels):
        return self.add(
            "BatchNormalization",
            x,
            self.weight(rng.uniform(0.5, 1.5, channels).astype(np.float32)),
            self.noise(channels, scale=0.2),
            self.noise(channels, scale=0.2),
            self.weight(rng.uniform(0.5, 2, channels).astype(np.float32)),
            epsilon=1e-3,
        )

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def scalar(self, value):
        return self.weight(np.float32(value))

    def save(self, folder, name, inputs, outputs, opset, arrays):
        value = lambda n, shape, t=TensorProto.FLOAT: helper.make_tensor_value_info(n, t, shape)
        graph = helper.make_graph(
            self.nodes, name, [value(*i) for i in inputs], [value(*o) for o in outputs], self.weights
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{name}.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, {i[0]: a for i, a in zip(inputs, arrays)})
        for suffix, group in (("in", arrays), ("out", results)):
            for k, array in enumerate(group):
                np.save(folder / f"{name}.{suffix}{k or ''}.npy", array)


def net(folder):
    n = Net()
    x = n.add("Relu", n.norm(n.conv("image", 3, 16, 3, bias=False, strides=[2, 2], pads=[0, 0, 1, 1]), 16))
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    y = n.add("Clip", n.conv(x, 16, 16, 5, groups=16, pads=[2, 2, 2, 2]), n.scalar(0), n.scalar(6))
    y = n.norm(n.conv(y, 16, 16, 1), 16)
    x = n.add("Add", x, y)
    y = n.add("LeakyRelu", n.conv(x, 16, 24, 3, groups=2, dilations=[2, 2], pads=[2, 2, 2, 2]), alpha=0.1)
    z = n.add("Sigmoid", n.conv(x, 16, 24, 1))
    y = n.add("Mul", y, z)
    s = n.add("GlobalAveragePool", y)  # squeeze and excitation
    s = n.add("Relu", n.conv(s, 24, 6, 1))
    s = n.add("HardSigmoid", n.conv(s, 6, 24, 1), alpha=1 / 6, beta=0.5)
    y = n.add("Mul", y, s)
    x = n.add("Concat", x, y, axis=1)  # 40
    x = n.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    y = n.add("Relu", n.conv(x, 40, 40, 3, pads=[1, 1, 1, 1]))
    y = n.conv(y, 40, 40, 3, pads=[1, 1, 1, 1])
    x = n.add("Relu", n.add("Add", y, n.conv(x, 40, 40, 1)))
    x = n.add("HardSwish", n.conv(x, 40, 48, 1))
    x = n.add("Flatten", n.add("GlobalAveragePool", x))
    x = n.add("Gemm", x, n.noise(10, 48, scale=0.2), n.noise(10), transB=1)
    n.nodes[-1].output[0] = "scores"
    image = rng.standard_normal((5, 3, 23, 21)).astype(np.float32)
    n.save(folder, "net", [("image", ["N", 3, 23, 21])], [("scores", ["N", 10])], 14, [image])


def chain(folder):
    n = Net()
    shared = n.noise(8, scale=0.1)

    def constant(array):
        return n.add("Constant", value=numpy_helper.from_array(np.asarray(array)))

    def padded(x, before, after):
        """Pads of width and height as PyTorch's exporter writes them: reversed pairs, turned around at run time."""
        pairs = constant(np.array([before, after, before, after], np.int64))
        more = n.add("Sub", n.add("Mul", constant(np.int64(4)), constant(np.int64(2))), n.add("Size", pairs))
        zeros = n.add("ConstantOfShape", n.add("Unsqueeze", more, constant(np.array([0], np.int64))))
        zeros = n.add("Cast", zeros, to=TensorProto.INT64)
        table = n.add("Reshape", n.add("Concat", pairs, zeros, axis=0), constant(np.array([-1, 2], np.int64)))
        turned = n.add("Slice", table, *(constant(np.array([v], np.int64)) for v in (-1, -(2**63), 0, -1)))
        flat = n.add("Reshape", n.add("Transpose", turned, perm=[1, 0]), constant(np.array([-1], np.int64)))
        return n.add("Pad", x, n.add("Cast", flat, to=TensorProto.INT64), constant(np.float32(0)))

    def conv(x, inputs, k, **attributes):
        w = n.noise(8, inputs, k, k, scale=(inputs * k * k) ** -0.5)
        return n.add("Conv", x, w, shared, **attributes)

    x = n.add("Clip", n.norm(conv(padded("x", 0, 1), 3, 3, strides=[2, 2]), 8), constant(np.float32(0)), constant(np.float32(6)))
    x = n.add("Add", x, n.norm(conv(padded(x, 1, 1), 8, 3), 8))
    x = n.add("Div", n.add("Sub", conv(x, 8, 1), constant(np.float32(0.25))), constant(np.full((8, 1, 1), 2, np.float32)))
    x = n.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    batch = n.add("Gather", n.add("Shape", "x"), constant(np.int64(0)), axis=0)
    axis = constant(np.array([0], np.int64))
    shape = n.add("Concat", n.add("Unsqueeze", batch, axis), constant(np.array([8], np.int64)), axis=0)
    n.add("MatMul", n.add("Reshape", x, shape), n.noise(8, 6))
    n.add("Add", n.nodes[-1].output[0], n.noise(6))
    n.nodes[-1].output[0] = "y"
    x = rng.standard_normal((3, 3, 14, 17)).astype(np.float32)
    n.save(folder, "chain", [("x", ["batch", 3, 14, 17])], [("y", ["batch", 6])], 13, [x])


def parts(folder):
    n = Net()
    a, b = n.add("Split", "a", n.ints(2, 4), n=2, axis=1)
    a = n.add("Mul", a, "b")
    b = n.add("Slice", b, n.ints(0, -1), n.ints(4, -100), n.ints(1, 3), n.ints(2, -1))
    a = n.add("Concat", a, b, b, axis=1)  # 6 channels, width turned around in part
    a = n.add("Softmax", n.add("Transpose", a, perm=[0, 2, 3, 1]), axis=-1)
    flat = n.add("Reshape", a, n.ints(0, -1, 6))
    n.add("MatMul", flat, n.add("Transpose", flat, perm=[0, 2, 1]))
    n.nodes[-1].output[0] = "products"
    n.add("Gather", n.add("ReduceMax", a, axes=[1], keepdims=1), n.ints(0, -1), axis=2)
    n.nodes[-1].output[0] = "ends"
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 6, 4, 5), (4, 1))]
    inputs = [("a", ["n", 6, "h", "w"]), ("b", ["h", 1])]
    n.save(folder, "parts", inputs, [("products", ["n", "p", "p"]), ("ends", ["n", 1, 2, 6])], 13, arrays)


if __name__ == "__main__":
    for make in (net, chain, parts):
        make(pathlib.Path(sys.argv[1]))
