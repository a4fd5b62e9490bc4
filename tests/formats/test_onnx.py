"""ONNX: every operation against onnxruntime, refusals, damaged files, and writing."""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from reluscope.activations import absolute, clip, hard_sigmoid, identity, leaky_relu, piecewise, relu, relu6
from reluscope.errors import InputError, InputLimitError, MissingExtraError, ReluscopeWarning, UnsupportedError
from reluscope.formats.onnx import load_onnx, save_onnx
from reluscope.limits import Limits
from reluscope.network import Network
from reluscope.schema import Column, Output, Schema

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT = TensorProto.FLOAT


def node(op, inputs, outputs="y", **attributes):
    """A node; inputs and outputs as words in one string, `-` for an operand left out."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def tensor(name, value):
    array = np.asarray(value)
    return numpy_helper.from_array(array.astype(np.float32) if array.dtype == np.float64 else array, name)


def make(nodes, shape, constants=None, *, opset=17, outputs=("y",), element=FLOAT, inputs=("x",)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, element, shape) for n in inputs],
        [helper.make_tensor_value_info(n, element, None) for n in outputs],
        [tensor(n, v) for n, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def runtime(model, X):
    """onnxruntime's outputs at each row of X, one call per row."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    takes = session.get_inputs()[0]
    shape = [n if isinstance(n, int) else 1 for n in takes.shape]
    kind = np.float64 if "double" in takes.type else np.float32
    return np.array([session.run(None, {takes.name: x.reshape(shape).astype(kind)})[0].ravel() for x in X])


def agree(model, net, n=12, seed=0, scale=2.0):
    X = (np.random.default_rng(seed).normal(size=(n, net.n_inputs)) * scale).astype(np.float32)
    expected = runtime(model, X)
    np.testing.assert_allclose(net(X), expected, rtol=1e-5, atol=1e-5 * (1 + np.abs(expected).max()))


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


V, M, I1, I2 = (1, 4), (1, 3, 4), (1, 2, 9), (1, 4, 7, 6)

# Each case: name, input shape, nodes from x to y, constants, opset.
CASES = [
    # Gemm
    ("gemm", V, [node("Gemm", "x w b")], {"w": rand(4, 3), "b": rand(3)}, 17),
    ("gemm transB", V, [node("Gemm", "x w b", transB=1)], {"w": rand(3, 4), "b": rand(1, 3)}, 17),
    ("gemm alpha beta", V, [node("Gemm", "x w b", alpha=0.5, beta=-2.0)], {"w": rand(4, 3), "b": rand(3)}, 17),
    ("gemm beta 0", V, [node("Gemm", "x w b", beta=0.0)], {"w": rand(4, 3), "b": rand(3)}, 17),
    ("gemm scalar C", V, [node("Gemm", "x w b")], {"w": rand(4, 3), "b": np.float32(2.5)}, 17),
    ("gemm without C", V, [node("Gemm", "x w")], {"w": rand(4, 3)}, 17),
    ("gemm opset 7", V, [node("Gemm", "x w b")], {"w": rand(4, 3), "b": rand(3)}, 7),
    ("gemm transA", V, [node("Transpose", "x", "t"), node("Gemm", "t w", transA=1)], {"w": rand(4, 3)}, 17),
    (
        "gemm constant A",
        V,
        [node("Transpose", "x", "t"), node("Gemm", "w t b", alpha=3.0)],
        {"w": rand(3, 4), "b": rand(3, 1)},
        17,
    ),
    ("gemm constant A, both transposed", V, [node("Gemm", "w x", transA=1, transB=1)], {"w": rand(4, 3)}, 17),
    ("gemm variable C", V, [node("Gemm", "x w x", beta=0.5)], {"w": rand(4, 4)}, 17),
    # MatMul
    ("matmul", V, [node("MatMul", "x w")], {"w": rand(4, 3)}, 17),
    ("matmul 3-D", M, [node("MatMul", "x w")], {"w": rand(4, 2)}, 17),
    ("matmul batched weight", M, [node("MatMul", "x w")], {"w": rand(2, 4, 5)}, 17),
    ("matmul left", M, [node("MatMul", "w x")], {"w": rand(2, 3)}, 17),
    ("matmul left batched", M, [node("MatMul", "w x")], {"w": rand(3, 1, 2, 3)}, 17),
    ("matmul vector", M, [node("MatMul", "x w")], {"w": rand(4)}, 17),
    ("matmul vector left", M, [node("MatMul", "w x")], {"w": rand(3)}, 17),
    ("matmul 1-D input", (4,), [node("MatMul", "x w")], {"w": rand(4, 3)}, 17),
    ("matmul 1-D input, left", (4,), [node("MatMul", "w x")], {"w": rand(3, 4)}, 17),
    # arithmetic
    ("add", M, [node("Add", "x c")], {"c": rand(3, 1)}, 17),
    ("add left, growing", M, [node("Add", "c x")], {"c": rand(2, 3, 4)}, 17),
    ("sub", M, [node("Sub", "x c")], {"c": rand(4)}, 17),
    ("sub left", M, [node("Sub", "c x")], {"c": rand(1)}, 17),
    ("mul", M, [node("Mul", "x c")], {"c": rand(3, 1)}, 17),
    ("mul left, growing", M, [node("Mul", "c x")], {"c": rand(2, 3, 1)}, 17),
    ("mul with zeros", V, [node("Mul", "x c")], {"c": np.array([0, 1, 0, -2.0])}, 17),
    ("div", M, [node("Div", "x c")], {"c": rand(3, 1)}, 17),
    ("neg", M, [node("Neg", "x")], {}, 17),
    ("add branches", V, [node("Relu", "x", "r"), node("Neg", "x", "n"), node("Add", "r n")], {}, 17),
    ("sub branches", V, [node("Relu", "x", "r"), node("Sub", "r x")], {}, 17),
    ("sub of itself", V, [node("Relu", "x", "r"), node("Sub", "r r", "z"), node("Add", "z c")], {"c": rand(4)}, 17),
    (
        "add branches, broadcast",
        M,
        [node("ReduceMean", "x", "m", axes=[2]), node("Relu", "x", "r"), node("Add", "m r")],
        {},
        17,
    ),
    ("sum and mean", V, [node("Relu", "x", "r"), node("Sum", "x r c", "s"), node("Mean", "s x c")], {"c": rand(4)}, 17),
    # activations
    ("relu", M, [node("Relu", "x")], {}, 17),
    ("leaky default", V, [node("LeakyRelu", "x")], {}, 17),
    ("leaky 0", V, [node("LeakyRelu", "x", alpha=0.0)], {}, 17),
    ("leaky 1", V, [node("LeakyRelu", "x", alpha=1.0)], {}, 17),
    ("leaky negative", V, [node("LeakyRelu", "x", alpha=-0.5)], {}, 17),
    ("prelu scalar", M, [node("PRelu", "x s")], {"s": np.array([0.3])}, 17),
    ("prelu per channel", I2, [node("PRelu", "x s")], {"s": rand(4, 1, 1)}, 17),
    ("prelu full", M, [node("PRelu", "x s")], {"s": rand(1, 3, 4)}, 17),
    ("clip attributes", V, [node("Clip", "x", min=-1.0, max=0.5)], {}, 10),
    ("clip attribute min", V, [node("Clip", "x", min=-1.0)], {}, 10),
    ("clip no attributes", V, [node("Clip", "x")], {}, 10),
    ("clip inputs", V, [node("Clip", "x a b")], {"a": np.float32(-1), "b": np.float32(0.5)}, 17),
    ("clip min only", V, [node("Clip", "x a")], {"a": np.float32(0.25)}, 17),
    ("clip max only", V, [node("Clip", "x - b")], {"b": np.float32(0.5)}, 17),
    ("clip nothing", V, [node("Clip", "x")], {}, 17),
    ("clip infinite max", V, [node("Clip", "x a b")], {"a": np.float32(0), "b": np.float32(np.inf)}, 17),
    ("clip largest float", V, [node("Clip", "x a b")], {"a": np.float32(0), "b": np.finfo(np.float32).max}, 17),
    ("clip equal bounds", V, [node("Clip", "x a a", "t"), node("Add", "t x")], {"a": np.float32(0.5)}, 17),
    ("clip crossed", V, [node("Clip", "x a b", "t"), node("Add", "t x")], {"a": np.float32(1), "b": np.float32(0)}, 17),
    ("hard sigmoid", V, [node("HardSigmoid", "x")], {}, 17),
    ("hard sigmoid falling", V, [node("HardSigmoid", "x", alpha=-0.4, beta=0.1)], {}, 17),
    ("abs", V, [node("Abs", "x")], {}, 17),
    # maxima
    ("max of one", V, [node("Max", "x")], {}, 17),
    ("max with constant", M, [node("Max", "x c")], {"c": rand(3, 1)}, 17),
    ("min with constant, growing", V, [node("Min", "c x")], {"c": rand(3, 1)}, 17),
    ("max of two", V, [node("Neg", "x", "n"), node("Max", "x n")], {}, 17),
    ("min of two", V, [node("Relu", "x", "n"), node("Mul", "x c", "m"), node("Min", "m n")], {"c": rand(4)}, 17),
    (
        "max of five",
        V,
        [node("Mul", "x c", "a"), node("Relu", "a", "b"), node("Neg", "x", "n"), node("Max", "x d a b n")],
        {"c": rand(4), "d": rand(1)},
        17,
    ),
    ("min of three", V, [node("Mul", "x c", "a"), node("Abs", "x", "b"), node("Min", "a b x d e")],
     {"c": rand(4), "d": rand(1), "e": rand(4)}, 17),
    # convolution
    ("conv 1-D", I1, [node("Conv", "x w b")], {"w": rand(3, 2, 3), "b": rand(3)}, 17),
    ("conv 1-D strides pads", I1, [node("Conv", "x w", strides=[2], pads=[1, 2])], {"w": rand(3, 2, 3)}, 17),
    ("conv", I2, [node("Conv", "x w b", kernel_shape=[3, 2])], {"w": rand(3, 4, 3, 2), "b": rand(3)}, 17),
    (
        "conv everything",
        I2,
        [node("Conv", "x w b", strides=[2, 1], pads=[1, 0, 2, 3], dilations=[1, 2], group=2)],
        {"w": rand(6, 2, 3, 2), "b": rand(6)},
        17,
    ),
    ("conv depthwise", I2, [node("Conv", "x w", group=4, pads=[1, 1, 1, 1])], {"w": rand(8, 1, 3, 3)}, 17),
    ("conv same upper", I2, [node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": rand(2, 4, 3, 2)}, 17),
    ("conv same lower", I2, [node("Conv", "x w", auto_pad="SAME_LOWER", strides=[1, 2])], {"w": rand(2, 4, 2, 4)}, 17),
    ("conv valid", I2, [node("Conv", "x w", auto_pad="VALID", strides=[2, 2])], {"w": rand(2, 4, 3, 3)}, 17),
    ("conv 1x1", I2, [node("Conv", "x w b")], {"w": rand(2, 4, 1, 1), "b": rand(2)}, 17),
    ("conv transpose", I2, [node("ConvTranspose", "x w b")], {"w": rand(4, 3, 3, 2), "b": rand(3)}, 17),
    (
        "conv transpose everything",
        I2,
        [node("ConvTranspose", "x w b", strides=[2, 3], pads=[1, 0, 2, 1], dilations=[2, 1], group=2,
              output_padding=[1, 2])],
        {"w": rand(4, 2, 3, 2), "b": rand(4)},
        17,
    ),
    ("conv transpose 1-D", I1, [node("ConvTranspose", "x w", strides=[2])], {"w": rand(2, 3, 3)}, 17),
    (
        "conv transpose output shape",
        I1,
        [node("ConvTranspose", "x w", strides=[2], output_shape=[18])],
        {"w": rand(2, 3, 4)},
        17,
    ),
    (
        "conv transpose same upper",
        I1,
        [node("ConvTranspose", "x w", strides=[2], auto_pad="SAME_UPPER")],
        {"w": rand(2, 3, 5)},
        17,
    ),
    (
        "conv transpose same lower",
        I1,
        [node("ConvTranspose", "x w", strides=[2], auto_pad="SAME_LOWER")],
        {"w": rand(2, 3, 5)},
        17,
    ),
    # pooling
    ("average pool", I2, [node("AveragePool", "x", kernel_shape=[2, 3])], {}, 17),
    (
        "average pool pads",
        I2,
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 0])],
        {},
        17,
    ),
    (
        "average pool counts pads",
        I2,
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 0], count_include_pad=1)],
        {},
        17,
    ),
    ("average pool ceil", I2, [node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 4], ceil_mode=1)], {}, 17),
    (
        "average pool same",
        I1,
        [node("AveragePool", "x", kernel_shape=[4], strides=[2], auto_pad="SAME_UPPER")],
        {},
        17,
    ),
    ("average pool dilated", I2, [node("AveragePool", "x", kernel_shape=[2, 2], dilations=[2, 3])], {}, 19),
    ("global average pool", I2, [node("GlobalAveragePool", "x")], {}, 17),
    ("global max pool", I1, [node("GlobalMaxPool", "x")], {}, 17),
    ("max pool", I2, [node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])], {}, 17),
    ("max pool pads", I2, [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {}, 17),
    ("max pool ceil", I2, [node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 4], ceil_mode=1)], {}, 17),
    ("max pool dilated", I2, [node("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 3])], {}, 17),
    ("max pool same", I1, [node("MaxPool", "x", kernel_shape=[4], strides=[2], auto_pad="SAME_LOWER")], {}, 17),
    ("max pool of one", I1, [node("MaxPool", "x", kernel_shape=[1], strides=[2])], {}, 17),
    ("max pool of a convolution", I1, [node("Conv", "x w", "c"), node("MaxPool", "c", kernel_shape=[3])],
     {"w": rand(2, 2, 3)}, 17),
    (
        "batch normalization",
        I2,
        [node("BatchNormalization", "x s b m v", epsilon=0.01)],
        {"s": rand(4), "b": rand(4), "m": rand(4), "v": np.array([0.5, 1, 2, 3.0])},
        17,
    ),
    (
        "batch normalization, old",
        V,
        [node("BatchNormalization", "x s b m v")],
        {"s": rand(4), "b": rand(4), "m": rand(4), "v": np.array([0.5, 1, 2, 3.0])},
        9,
    ),
    # data movement
    *((f"flatten {a}", I2, [node("Flatten", "x", axis=a)], {}, 17) for a in (0, 1, 2, 4, -1)),
    ("reshape", I2, [node("Reshape", "x s")], {"s": ints(0, 2, -1, 3)}, 17),
    ("reshape allowzero", M, [node("Reshape", "x s", allowzero=1)], {"s": ints(-1, 6)}, 17),
    ("transpose", I2, [node("Transpose", "x", perm=[0, 2, 3, 1])], {}, 17),
    ("transpose default", M, [node("Transpose", "x")], {}, 17),
    ("squeeze attribute", (1, 1, 3), [node("Squeeze", "x", axes=[1])], {}, 11),
    ("squeeze input", (1, 1, 3), [node("Squeeze", "x a")], {"a": ints(-2)}, 17),
    ("squeeze all", (1, 1, 3), [node("Squeeze", "x")], {}, 17),
    ("unsqueeze attribute", V, [node("Unsqueeze", "x", axes=[1, 3])], {}, 11),
    ("unsqueeze input", V, [node("Unsqueeze", "x a")], {"a": ints(-1, 0)}, 17),
    ("concat", V, [node("Relu", "x", "r"), node("Concat", "r c x", axis=1)], {"c": rand(1, 2)}, 17),
    ("concat negative axis", M, [node("Neg", "x", "n"), node("Concat", "n x", axis=-2)], {}, 17),
    ("split sizes", M, [node("Split", "x s", "a b", axis=2), node("Concat", "b a", axis=2)], {"s": ints(1, 3)}, 17),
    ("split attribute", M, [node("Split", "x", "a y", axis=2, split=[3, 1])], {}, 11),
    ("split equal", M, [node("Split", "x", "a y", axis=-1)], {}, 17),
    ("split uneven", M, [node("Split", "x", "a y", axis=1, num_outputs=2)], {}, 18),
    ("slice attributes", I2, [node("Slice", "x", starts=[1, -4], ends=[3, 2**31], axes=[1, 3])], {}, 9),
    ("slice inputs", I2, [node("Slice", "x s e a t")],
     {"s": ints(-1, 1), "e": ints(-(2**63), 100), "a": ints(2, -1), "t": ints(-2, 3)}, 17),
    ("slice default axes", M, [node("Slice", "x s e")], {"s": ints(0, 1), "e": ints(1, 3)}, 17),
    ("gather", M, [node("Gather", "x i", axis=2)], {"i": ints(3, 0, -1)}, 17),
    ("gather scalar", M, [node("Gather", "x i", axis=1)], {"i": np.int64(-2)}, 17),
    ("gather 2-D", M, [node("Gather", "x i", axis=1)], {"i": ints(0, 2, 1, 1).reshape(2, 2)}, 17),
    ("pad attributes", M, [node("Pad", "x", pads=[0, 1, 0, 0, 0, 2], value=1.5)], {}, 10),
    ("pad zero", M, [node("Pad", "x", pads=[0] * 6)], {}, 10),
    ("pad inputs", M, [node("Pad", "x p v")], {"p": ints(0, 1, 0, 0, 0, 2), "v": np.float32(-2)}, 17),
    ("pad crops", M, [node("Pad", "x p")], {"p": ints(0, -1, 1, 0, 0, -2)}, 17),
    ("pad reflect", M, [node("Pad", "x p", mode="reflect")], {"p": ints(0, 2, 1, 0, 0, 3)}, 17),
    ("pad edge", M, [node("Pad", "x p", mode="edge")], {"p": ints(0, 2, 1, 0, 4, 3)}, 17),
    ("pad axes", M, [node("Pad", "x p v a")], {"p": ints(1, 2), "v": np.float32(3), "a": ints(-1)}, 18),
    ("pad wrap", M, [node("Pad", "x p", mode="wrap")], {"p": ints(0, 0, 2, 0, 0, 3)}, 19),
    ("reduce mean attribute", I2, [node("ReduceMean", "x", axes=[1, 3])], {}, 13),
    ("reduce mean all", M, [node("ReduceMean", "x", keepdims=0)], {}, 13),
    ("reduce mean input", M, [node("ReduceMean", "x a", keepdims=0)], {"a": ints(-1)}, 18),
    ("reduce sum input", M, [node("ReduceSum", "x a", keepdims=0)], {"a": ints(1)}, 17),
    ("reduce sum attribute", M, [node("ReduceSum", "x", axes=[2])], {}, 11),
    ("reduce sum nothing", M, [node("ReduceSum", "x a", noop_with_empty_axes=1)], {"a": ints()}, 17),
    ("identity", M, [node("Identity", "x")], {}, 17),
    ("dropout old", M, [node("Dropout", "x", ratio=0.3)], {}, 7),
    ("dropout", M, [node("Dropout", "x r t")], {"r": np.float32(0.3), "t": np.bool_(False)}, 17),
    ("cast", M, [node("Cast", "x", "d", to=TensorProto.DOUBLE), node("Cast", "d", to=FLOAT)], {}, 17),
    ("expand", (1, 3, 1), [node("Expand", "x s")], {"s": ints(2, 1, 4)}, 17),
    ("tile", M, [node("Tile", "x r")], {"r": ints(1, 2, 3)}, 17),
    # constants
    ("constant tensor", V, [node("Constant", "", "c", value=tensor("t", rand(4))), node("Add", "x c")], {}, 17),
    ("constant float", V, [node("Constant", "", "c", value_float=1.5), node("Add", "x c")], {}, 17),
    ("constant floats", V, [node("Constant", "", "c", value_floats=[1.0, 2.0, 3.0, 4.0]), node("Mul", "x c")], {}, 17),
    ("constant int", V, [node("Constant", "", "c", value_int=2), node("Gather", "x c", axis=1)], {}, 17),
    ("constant ints", V, [node("Constant", "", "c", value_ints=[2, -1]), node("Reshape", "x c")], {}, 17),
    (
        "constant of shape",
        V,
        [node("ConstantOfShape", "s", "c", value=tensor("t", np.array([2.5], dtype=np.float32))), node("Add", "x c")],
        {"s": ints(3, 1)},
        17,
    ),
    ("constant of shape, zero", V, [node("ConstantOfShape", "s", "c"), node("Add", "x c")], {"s": ints(4)}, 17),
    ("shape", I2, [node("Shape", "x", "s"), node("Cast", "s", "f", to=FLOAT), node("ReduceSum", "f", "r"),
                   node("Mul", "x r")], {}, 17),
    ("shape start end", I2, [node("Shape", "x", "s", start=1, end=-1), node("Concat", "s m", "t", axis=0),
                             node("Reshape", "x t")], {"m": ints(-1)}, 17),
    ("size", V, [node("Size", "x", "s"), node("Cast", "s", "f", to=FLOAT), node("Div", "x f")], {}, 17),
    (
        "computed shape",
        I2,
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n zero1", "n1"),
            node("Concat", "n1 m", "t", axis=0),
            node("Reshape", "x t"),
        ],
        {"zero": np.int64(0), "zero1": ints(0), "m": ints(-1)},
        17,
    ),
    (
        "computed expand",
        (1, 3, 1),
        [
            node("ConstantOfShape", "n", "ones", value=tensor("v", ints(1))),
            node("Mul", "ones m", "minus"),
            node("Equal", "s minus", "open"),
            node("Where", "open ones s", "t"),
            node("Expand", "x t"),
        ],
        {"n": ints(3), "s": ints(2, -1, 4), "m": ints(-1)},
        17,
    ),
    (
        "range and integer arithmetic",
        V,
        [
            node("Range", "a b c", "r"),
            node("Div", "r two", "h"),
            node("Sub", "h one", "i"),
            node("Gather", "x i", axis=1),
        ],
        {"a": np.int64(-1), "b": np.int64(6), "c": np.int64(2), "two": np.int64(2), "one": np.int64(1)},
        17,
    ),
    (
        "curved functions of constants",
        V,
        [node("Sqrt", "c", "s"), node("Pow", "s e", "p"), node("Tanh", "p", "t"), node("Mul", "x t")],
        {"c": np.array([1.0, 2.0, 3.0, 4.0]), "e": np.float32(3)},
        17,
    ),
    ("where", M, [node("Relu", "x", "r"), node("Where", "c r x")], {"c": rand(3, 4) > 0}, 17),
    ("greater", M, [node("Greater", "x c", "b"), node("Where", "b x c")], {"c": rand(3, 4)}, 17),
    ("greater or equal", M, [node("GreaterOrEqual", "c x", "b"), node("Where", "b x c")], {"c": rand(4)}, 17),
    ("less", M, [node("Less", "x c", "b"), node("Neg", "x", "n"), node("Where", "b n x")], {"c": np.float32(0)}, 13),
    ("less or equal", M, [node("Relu", "x", "r"), node("LessOrEqual", "x r", "b"), node("Where", "b x r")], {}, 17),
    ("not", M, [node("Greater", "x c", "b"), node("Not", "b", "n"), node("Where", "n x c")], {"c": rand(3, 4)}, 17),
    ("reduce max", I2, [node("ReduceMax", "x", axes=[1, 3])], {}, 13),
    ("reduce max input", M, [node("ReduceMax", "x a", keepdims=0)], {"a": ints(-1)}, 18),
    ("reduce min all", M, [node("ReduceMin", "x", keepdims=0)], {}, 13),
    ("where with constant", M, [node("Where", "c x k")], {"c": rand(3, 4) > 0, "k": rand(4)}, 17),
    ("convolution of a constant", I2, [node("Conv", "k w", "c"), node("Conv", "x w", "d"), node("Add", "c d")],
     {"k": rand(1, 4, 7, 6), "w": rand(2, 4, 3, 3)}, 17),
]  # fmt: skip


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
@pytest.mark.parametrize(("name", "shape", "nodes", "constants", "opset"), CASES, ids=[c[0] for c in CASES])
def test_operation_agrees_with_onnxruntime(name, shape, nodes, constants, opset, inside):
    if inside:  # the same nodes between units: they act on h = relu(a x + b) + c x
        rng = np.random.default_rng(len(name))
        before = [node("Mul", "x_ a_", "m_"), node("Add", "m_ b_", "n_"), node("Relu", "n_", "r_"),
                  node("Mul", "x_ c_", "k_"), node("Add", "r_ k_", "x")]  # fmt: skip
        after = [node("Identity", "y", "z_"), node("Relu", "z_", "w_"), node("Sub", "z_ w_", "y_")]
        constants = constants | {f"{k}_": rng.normal(size=shape[1:] or shape) for k in "abc"}
        model = make([*before, *nodes, *after], shape, constants, opset=opset, inputs=("x_",), outputs=("y_",))
    else:
        model = make(nodes, shape, constants, opset=opset)
    agree(model, load_onnx(model.SerializeToString()))


def test_truth_values_are_no_output():
    for more in ([], [node("Not", "b", "y")], [node("Cast", "b", to=FLOAT)]):
        body = [node("Greater", "x c", "b" if more else "y"), *more]
        with pytest.raises(UnsupportedError):
            load_onnx(make(body, M, {"c": rand(3, 4)}).SerializeToString())


def test_every_rule_has_a_case():
    from reluscope.formats._onnx_ops import OPERATIONS

    seen = {n.op_type for case in CASES for n in case[2]}
    assert set(OPERATIONS) <= seen


# -- whole graphs --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=10),
)
def test_random_graphs_of_vectors_equal_numpy(seed, steps):
    """Residual, concatenating and branching graphs in float64 against the same steps in numpy."""
    rng = np.random.default_rng(seed)
    d = 3
    X = rng.normal(size=(15, d))
    names, values, nodes, constants = ["x"], [X], [], {}

    def constant(value):
        constants[f"c{len(constants)}"] = value
        return f"c{len(constants) - 1}"

    for k, (op, i, j) in enumerate(steps):
        (a, u), (b, v) = ((names[n % len(names)], values[n % len(names)]) for n in (i, j))
        out, W, c = f"t{k}", rng.normal(size=(d, d)), rng.normal(size=d)
        if op == 0:
            made = [node("Relu", a, out)], np.maximum(u, 0)
        elif op == 1:
            made = [node("Gemm", f"{a} {constant(W)} {constant(c)}", out, transB=1)], u @ W.T + c
        elif op == 2:
            made = [node("Add", f"{a} {b}", out)], u + v
        elif op == 3:
            made = [node("Max", f"{a} {b}", out)], np.maximum(u, v)
        elif op == 4:
            w = rng.normal(size=(2 * d, d))
            made = (
                [node("Concat", f"{a} {b}", out + "c", axis=1), node("MatMul", f"{out}c {constant(w)}", out)],
                (np.hstack([u, v]) @ w),
            )
        elif op == 5:
            made = [node("Sub", f"{constant(c)} {a}", out)], c - u
        elif op == 6:
            made = [node("Clip", f"{a} {constant(np.array(-0.5))} {constant(np.array(1.0))}", out)], np.clip(u, -0.5, 1)
        elif op == 7:
            made = [node("Abs", a, out)], np.abs(u)
        else:
            s = constant(ints(1, 2))
            made = (
                [node("Split", f"{a} {s}", f"{out}a {out}b", axis=1), node("Concat", f"{out}b {out}a", out, axis=1)],
                (np.roll(u, -1, axis=1)),
            )
        nodes += made[0]
        names.append(out)
        values.append(made[1])
    if names[-1] == "x" or not np.isfinite(values[-1]).all():
        return
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["N", d])],
        [helper.make_tensor_value_info(names[-1], TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    net = load_onnx(model.SerializeToString())
    scale = 1 + max(np.abs(v).max() for v in values)
    np.testing.assert_allclose(net(X), values[-1], rtol=1e-10, atol=1e-11 * scale)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=3, max_size=7),
)
def test_random_convolutional_graphs_agree_with_onnxruntime(seed, steps):
    rng = np.random.default_rng(seed)
    names, nodes, constants = ["x"], [], {}
    for k, (op, i) in enumerate(steps):
        a, last, out = names[i % len(names)], names[-1], f"t{k}"
        if op in (0, 1):
            constants[f"w{k}"], constants[f"b{k}"] = rng.normal(size=(2, 2, 3, 3)) / 4, rng.normal(size=2)
            nodes.append(node("Conv", f"{last} w{k} b{k}", out, pads=[1, 1, 1, 1]))
        elif op == 2:
            nodes.append(node("Relu", last, out))
        elif op == 3:
            nodes.append(node("Add", f"{last} {a}", out))
        elif op == 4:
            nodes.append(node("MaxPool", last, out, kernel_shape=[2, 2], pads=[0, 0, 1, 1]))
        else:
            constants |= {f"{s}{k}": rng.uniform(0.5, 2, size=2) for s in "sbmv"}
            nodes.append(node("BatchNormalization", f"{last} s{k} b{k} m{k} v{k}", out))
        names.append(out)
    model = make(nodes, (1, 2, 4, 4), constants, outputs=(names[-1],))
    agree(model, load_onnx(model.SerializeToString()), n=6)


def test_shapes_and_batch_axes():
    flat = [node("Flatten", "x")]
    cases = [
        (["N", 3, 2, 2], (3, 2, 2), (12,)),
        ([1, 3, 2, 2], (3, 2, 2), (12,)),
        ([None, 4, 1], (4, 1), (4,)),
    ]
    for shape, takes, gives in cases:
        net = load_onnx(make(flat, shape).SerializeToString())
        assert (net.input_shape, net.output_shape) == (takes, gives)
    assert load_onnx(make([node("Relu", "x")], [1]).SerializeToString()).input_shape == (1,)
    assert load_onnx(make([node("Relu", "x")], [5]).SerializeToString()).input_shape == (5,)
    image = load_onnx(make([node("Relu", "x")], ["N", 2, 3, 4]).SerializeToString())
    assert image.output_shape == (2, 3, 4)
    assert load_onnx(make([node("Squeeze", "x")], [1, 1, 1]).SerializeToString()).output_shape == (1,)


def test_initialisers_may_be_listed_as_inputs_and_shared(tmp_path):
    model = make([node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r w", "y")], V, {"w": rand(4, 4)})
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4, 4]))
    path = tmp_path / "shared.onnx"
    onnx.save(model, path)
    net = load_onnx(path)
    agree(model, net)
    assert net.name == "shared"
    assert net.notes[0] == "3 nodes folded into 2 affine layers"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_other_float_types_are_converted_exactly(kind):
    values = [1.0, -0.5, 3.25, 2.0**-10]
    weight = helper.make_tensor("w", kind, [4, 1], values)
    graph = helper.make_graph(
        [node("MatMul", "x w")],
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 4])],
        [helper.make_tensor_value_info("y", kind, None)],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert load_onnx(model.SerializeToString()).layers[0].dense().tolist() == [values]


def test_float32_weights_are_exact():
    w = np.float32([[0.1], [1 / 3], [1e-30], [-7e20]])
    net = load_onnx(make([node("MatMul", "x w")], V, {"w": w}).SerializeToString())
    assert net.layers[0].dense().tolist() == w.astype(np.float64).T.tolist()


def test_a_bound_at_the_largest_float_is_no_bound():
    model = make([node("Clip", "x a b")], V, {"a": np.float32(0), "b": np.finfo(np.float32).max})
    net = load_onnx(model.SerializeToString())
    assert net.hidden[0].units.is_relu


def test_sparse_initialisers_are_read():
    for index in (ints(1, 6), ints(0, 1, 2, 0).reshape(2, 2)):
        values = numpy_helper.from_array(np.float32([5.0, -2.0]), "w")
        made = helper.make_sparse_tensor(values, numpy_helper.from_array(index, "i"), [4, 3])
        model = make([node("MatMul", "x w")], V)
        model.graph.sparse_initializer.append(made)
        expected = np.zeros(12)
        expected[[1, 6]] = 5.0, -2.0
        net = load_onnx(model.SerializeToString())
        assert net.layers[0].dense().tolist() == expected.reshape(4, 3).T.tolist()


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Sigmoid"])
def test_a_final_squashing_node_is_cut_off_with_a_warning(op):
    body = [node("MatMul", "x w", "h"), node(op, "h", "s", name="last")]
    for tail in ([node("Identity", "s")], [node("Reshape", "s k", "t"), node("Cast", "t", to=TensorProto.DOUBLE)]):
        model = make([*body, *tail], V, {"w": rand(4, 3), "k": ints(1, 3)})
        with pytest.warns(ReluscopeWarning, match="logits"):
            net = load_onnx(model.SerializeToString())
        assert f"final {op} cut off: outputs are logits" in net.notes
        np.testing.assert_allclose(net(np.ones(4)), rand(4, 3).sum(axis=0), rtol=1e-6)
    with pytest.raises(UnsupportedError, match=f"node 2 of 3 \\({op} 'last', output 's'\\) is not piecewise affine"):
        load_onnx(make([*body, node("Neg", "s")], V, {"w": rand(4, 3)}).SerializeToString())


def test_several_outputs_need_a_choice():
    model = make([node("Relu", "x", "r"), node("Tanh", "x", "t")], V, outputs=("r", "t"))
    data = model.SerializeToString()
    with pytest.raises(InputError, match=r"2 outputs \('r', 't'\)"):
        load_onnx(data)
    with pytest.raises(InputError, match="must be one of"):
        load_onnx(data, output="q")
    assert load_onnx(data, output="r")([1, -1, 2, -2]).tolist() == [1, 0, 2, 0]  # the curved branch is not touched
    with pytest.raises(UnsupportedError, match="Tanh"):
        load_onnx(data, output="t")


def test_inputs_that_the_output_ignores_are_left_out():
    model = make([node("Relu", "x")], V, inputs=("x", "z"))
    assert any("1 inputs" in note for note in load_onnx(model.SerializeToString()).notes)
    both = make([node("Add", "x z")], V, inputs=("x", "z"))
    with pytest.raises(InputError, match=r"2 inputs \('x', 'z'\)"):
        load_onnx(both.SerializeToString())


# -- refusals ------------------------------------------------------------------------------------------------

NOT_AFFINE = [
    ("Tanh", [node("Tanh", "x", "t"), node("Neg", "t")], {}),
    ("Gelu", [node("Gelu", "x")], {}),
    ("Softplus", [node("Softplus", "x")], {}),
    ("Sign", [node("Sign", "x")], {}),
    ("Floor", [node("Floor", "x")], {}),
    ("Mul", [node("Relu", "x", "r"), node("Mul", "x r")], {}),
    ("Div", [node("Div", "c x")], {"c": rand(4)}),
    ("MatMul", [node("Transpose", "x", "t"), node("MatMul", "x t")], {}),
    ("Gemm", [node("Gemm", "x x", transB=1)], {}),
    ("Conv", [node("Unsqueeze", "x a", "u"), node("Conv", "u u")], {"a": ints(0)}),
    ("PRelu", [node("PRelu", "x x")], {}),
    ("Where", [node("Greater", "x c", "b"), node("Where", "b x k")], {"c": rand(4), "k": rand(4) + 5}),
    ("Cast", [node("Cast", "x", "b", to=TensorProto.INT64), node("Cast", "b", to=FLOAT)], {}),
    ("ArgMax", [node("ArgMax", "x", "i", axis=1), node("Gather", "x i")], {}),
    ("MaxPool", [node("Unsqueeze", "x a", "u"), node("MaxPool", "u", "p y", kernel_shape=[2])], {"a": ints(0)}),
    ("Dropout", [node("Dropout", "x r t")], {"r": np.float32(0.3), "t": np.bool_(True)}),
    ("QuantizeLinear", [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s")], {"s": np.float32(0.1)}),
    ("TopK", [node("TopK", "x k", "y i")], {"k": ints(2)}),
    ("DynamicQuantizeLinear", [node("DynamicQuantizeLinear", "x", "y s z")], {}),
    ("Einsum", [node("Einsum", "x c", equation="bi,i->b")], {"c": rand(4)}),
    ("Conv", [node("Unsqueeze", "x a", "u"), node("Conv", "u w")], {"a": ints(1, 2, 3), "w": rand(1, 1, 1, 1, 1)}),
]


@pytest.mark.parametrize(
    ("op", "nodes", "constants"), NOT_AFFINE, ids=[f"{i}-{c[0]}" for i, c in enumerate(NOT_AFFINE)]
)
def test_what_is_not_piecewise_affine_is_refused_by_name(op, nodes, constants):
    for n, made in enumerate(nodes):
        made.name = f"layer/{n}"
    model = make(nodes, V, constants, opset=20)
    with pytest.raises(UnsupportedError) as caught:
        load_onnx(model.SerializeToString())
    message = str(caught.value)
    assert "\n" not in message
    found = next(n for n in nodes if n.op_type == op and f"({op} '{n.name}'" in message)
    assert f"node {nodes.index(found) + 1} of {len(nodes)}" in message
    assert repr(found.output[0]) in message


def test_nested_graphs_and_foreign_domains_are_refused():
    inner = helper.make_graph([node("Relu", "x", "z")], "b", [], [helper.make_tensor_value_info("z", FLOAT, None)])
    branch = make([node("If", "c", then_branch=inner, else_branch=inner)], V, {"c": np.bool_(True)})
    with pytest.raises(UnsupportedError, match="nested graph"):
        load_onnx(branch.SerializeToString())
    foreign = make([helper.make_node("Relu", ["x"], ["y"], domain="com.example")], V)
    with pytest.raises(UnsupportedError, match=r"com\.example"):
        load_onnx(foreign.SerializeToString())
    redefined = make([node("Relu", "x")], V)
    redefined.functions.append(helper.make_function("", "Relu", ["x"], ["y"], [node("Neg", "x")], []))
    with pytest.raises(UnsupportedError, match="redefines"):
        load_onnx(redefined.SerializeToString())


# -- bad files -----------------------------------------------------------------------------------------------


def good(**changes):
    return make([node("Gemm", "x w b")], V, {"w": rand(4, 3), "b": rand(3)} | changes)


def edited(edit):
    model = good()
    edit(model)
    return model.SerializeToString()


def external(location, **entries):
    def edit(model):
        t = model.graph.initializer[0]
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            t.external_data.add(key=key, value=str(value))

    return edited(edit)


def wrong_dims(dims):
    return lambda m: m.graph.initializer[0].dims.__setitem__(slice(None), dims)


BAD_FILES = {
    "empty": (b"", "not an ONNX model"),
    "truncated": (good().SerializeToString()[:-20], "not an ONNX model"),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "not an ONNX model"),
    "zip": (b"PK\x03\x04" + bytes(60), "not an ONNX model"),
    "noise": (np.random.default_rng(0).bytes(500), "not an ONNX model"),
    "no output": (edited(lambda m: m.graph.ClearField("output")), "no graph with an output"),
    "no input": (edited(lambda m: m.graph.ClearField("input")), "does not depend on any input|not computed|valid"),
    "cycle": (
        make([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b")], V).SerializeToString(),
        "not a valid ONNX model",
    ),
    "missing initialiser": (edited(lambda m: m.graph.initializer.pop()), "not a valid ONNX model"),
    "output of nothing": (edited(lambda m: setattr(m.graph.output[0], "name", "q")), "any input|no node|valid"),
    "duplicate names": (
        make([node("Relu", "x", "y"), node("Neg", "x", "y")], V).SerializeToString(),
        "not a valid ONNX model",
    ),
    "nan weight": (good(w=np.full((4, 3), np.nan)).SerializeToString(), "must be finite, got nan"),
    "infinite weight": (good(b=np.array([0, np.inf, 0])).SerializeToString(), "'b' must be finite, got inf"),
    "negative dimension": (edited(wrong_dims([-1, 3])), "negative dimension"),
    "wrong dimension": (edited(wrong_dims([5, 3])), "not a valid ONNX model|tensor .w. is damaged"),
    "huge dimensions": (edited(wrong_dims([2**40, 2**20])), "elements, more than the limit"),
    "unfitting dimension": (good(w=rand(5, 3)).SerializeToString(), "Gemm.*does not fit|valid"),
    "old operator set": (edited(lambda m: setattr(m.opset_import[0], "version", 6)), "operator set 6"),
    "no operator set": (edited(lambda m: m.ClearField("opset_import")), "operator set"),
    "future operator set": (edited(lambda m: setattr(m.opset_import[0], "version", 9999)), "knows up to"),
    "batch of 7": (make([node("Relu", "x")], [7, 4]).SerializeToString(), "a batch of 7; export"),
    "open image size": (make([node("Relu", "x")], [1, 3, "H", "W"]).SerializeToString(), "only the batch axis"),
    "no shape": (make([node("Relu", "x")], None).SerializeToString(), "no shape"),
    "empty input": (make([node("Relu", "x")], [1, 0]).SerializeToString(), "at least 1"),
    "integer input": (
        make([node("Relu", "x")], V, element=TensorProto.INT64).SerializeToString(),
        "floating-point",
    ),
    "text tensor": (
        make([node("Constant", "", "c", value_string="a"), node("Add", "x c")], V).SerializeToString(),
        "text",
    ),
    "name that is no text": (good().SerializeToString().replace(b"Gemm", b"G\xffmm"), "not UTF-8"),
    "external": (external("w.bin"), "allow_external"),
    "division by zero": (make([node("Div", "x c")], V, {"c": np.zeros(1)}).SerializeToString(), "divides by zero"),
    "overflow": (
        make([node("Exp", "c", "e"), node("Mul", "x e")], V, {"c": np.array([1e30])}).SerializeToString(),
        "must be finite",
    ),
    "gather outside": (make([node("Gather", "x i", axis=1)], V, {"i": ints(9)}).SerializeToString(), "Gather"),
    "reshape does not fit": (make([node("Reshape", "x s")], V, {"s": ints(3, 3)}).SerializeToString(), "Reshape"),
    "two open sizes": (make([node("Reshape", "x s")], V, {"s": ints(-1, -1)}).SerializeToString(), "Reshape|valid"),
    "zero step": (
        make([node("Slice", "x o e a o")], V, {"o": ints(0), "e": ints(2), "a": ints(1)}).SerializeToString(),
        "Slice",
    ),
    "zero stride": (
        make([node("Conv", "x w", strides=[0])], I1, {"w": rand(1, 2, 3)}).SerializeToString(),
        "Conv|valid",
    ),
    "huge padding": (
        make([node("Conv", "x w", pads=[2**40, 2**40])], I1, {"w": rand(1, 2, 3)}).SerializeToString(),
        "more than the limit",
    ),
    "huge expansion": (
        make([node("Expand", "x s")], V, {"s": ints(2**31, 4)}).SerializeToString(),
        "more than the limit",
    ),
    "huge range": (
        make([node("Range", "a b c", "r"), node("Add", "x r")], V,
             {"a": np.float32(0), "b": np.float32(1e18), "c": np.float32(1)}).SerializeToString(),
        "more than the limit",
    ),
    "wide constant": (
        make([node("MatMul", "a b", "c"), node("Add", "x c")], V,
             {"a": np.ones((2**15, 1)), "b": np.ones((1, 2**15))}).SerializeToString(),
        "more than the limit",
    ),
    "wide sum": (
        make([node("Add", "a b", "c"), node("Add", "x c")], V,
             {"a": np.ones((2**15, 1)), "b": np.ones((1, 2**15))}).SerializeToString(),
        "more than the limit",
    ),
    "huge fill": (
        make([node("ConstantOfShape", "s", "c"), node("Add", "x c")], V, {"s": ints(2**40, 4)}).SerializeToString(),
        "more than the limit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("as_file", [False, True], ids=["bytes", "file"])
def test_bad_files_get_one_line_errors(name, as_file, tmp_path):
    data, message = BAD_FILES[name]
    source = data
    if as_file:
        source = tmp_path / "bad.onnx"
        source.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        load_onnx(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_paths_that_are_no_files(tmp_path):
    for wrong in (tmp_path / "missing.onnx", tmp_path, "", 7):
        with pytest.raises(InputError):
            load_onnx(wrong)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_bytes_never_escape_as_other_errors(data):
    blob = bytearray(
        make(
            [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Flatten", "r")], I1, {"w": rand(2, 2, 2)}
        ).SerializeToString()
    )
    for _ in range(data.draw(st.integers(1, 6))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReluscopeWarning)
        try:
            net = load_onnx(bytes(blob), limits=Limits(elements=1 << 16, weights=1 << 16))
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert np.isfinite(net(np.zeros(net.n_inputs))).all()


def test_limits_are_named(tmp_path):
    model = good()
    data = model.SerializeToString()
    for limit, amount in [
        ("file_bytes", len(data) - 1),
        ("nodes", 0),
        ("tensors", 1),
        ("elements", 14),
        ("weights", 11),
    ]:
        with pytest.raises(InputLimitError, match=f"limits=reluscope.Limits\\({limit}="):
            load_onnx(data, limits=Limits(**{limit: amount}))
    load_onnx(data, limits=Limits(file_bytes=len(data), nodes=1, tensors=2, elements=15, weights=40))


def test_constants_that_are_alive_count_together():
    n = 10
    fills = [node("ConstantOfShape", "s", f"c{i}") for i in range(n)]
    sums = [node("Add", f"x c{i}", f"y{i}") for i in range(n)]
    model = make([*fills, *sums, node("Sum", " ".join(f"y{i}" for i in range(n)))], V, {"s": ints(1000, 4)})
    data = model.SerializeToString()
    load_onnx(data)
    with pytest.raises(InputLimitError, match="constants it computes"):
        load_onnx(data, limits=Limits(elements=35_000))


def test_a_large_image_is_refused():
    wide = make([node("Conv", "x w", pads=[1, 1, 1, 1])], (1, 64, 224, 224), {"w": np.ones((64, 64, 3, 3))})
    with pytest.raises(InputLimitError, match=r"node 1 of 1 \(Conv.*unrolled weights"):
        load_onnx(wide.SerializeToString())


def test_external_data_only_from_inside_the_folder(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    weight = rand(4, 3)
    (folder / "w.bin").write_bytes(b"\0" * 8 + weight.tobytes())
    (tmp_path / "secret.bin").write_bytes(weight.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "short.bin").write_bytes(b"123")
    path = folder / "m.onnx"

    path.write_bytes(external("w.bin", offset=8))
    with pytest.raises(InputError, match="allow_external"):
        load_onnx(path)
    net = load_onnx(path, allow_external=True)
    assert net.layers[0].dense().tolist() == weight.T.astype(float).tolist()
    with pytest.raises(InputError, match="path"):
        load_onnx(path.read_bytes(), allow_external=True)  # bytes have no folder
    with pytest.raises(InputLimitError, match="file_bytes"):
        load_onnx(path, allow_external=True, limits=Limits(file_bytes=path.stat().st_size - 1))

    refused = {
        "../secret.bin": {},
        str(tmp_path / "secret.bin"): {},
        "a/../../secret.bin": {},
        "..\\secret.bin": {},
        "C:\\secret.bin": {},
        "link.bin": {},
        "linked/secret.bin": {},
        "missing.bin": {},
        ".": {},
        "": {},
        "short.bin": {},
        "w.bin": {"offset": -4},
    }
    for location, entries in refused.items():
        path.write_bytes(external(location, **entries))
        with pytest.raises(InputError) as caught:
            load_onnx(path, allow_external=True)
        assert "\n" not in str(caught.value)
    for entries in ({"length": 2**60}, {"offset": "x"}, {"offset": 8, "length": 12}):
        path.write_bytes(external("w.bin", **entries))
        with pytest.raises(InputError):
            load_onnx(path, allow_external=True)


def test_without_the_onnx_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install reluscope\[onnx\]"):
        load_onnx(b"abc")


# -- writing -------------------------------------------------------------------------------------------------


def random_network(acts, seed=0, **more):
    rng = np.random.default_rng(seed)
    widths = [4, *(5 for _ in acts), 3]
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in itertools.pairwise(widths)]
    return Network([*((*layer, act) for layer, act in zip(layers, acts, strict=False)), layers[-1]], **more)


MIXED = [
    relu(),
    identity(),
    clip(-0.5, np.inf),
    piecewise([-1.0, 0.5, 1.5], [2.0, -1.0, 0.0, 3.0], 0.3),
    leaky_relu(0.2),
]
UNITS = {
    "affine": [],
    "relu": [relu(), relu()],
    "leaky": [leaky_relu(0.1)],
    "clip": [relu6(), clip(-1.0, 1.0)],
    "one-sided clip": [clip(-np.inf, 0.5), clip(0.25, np.inf)],
    "abs": [absolute()],
    "hard sigmoid": [hard_sigmoid()],
    "residual": [[relu(), relu(), identity(), identity(), relu()]],
    "mixed": [MIXED, relu()],
}


@pytest.mark.parametrize("name", UNITS)
def test_a_written_network_is_the_same_function(name, tmp_path):
    net = random_network(UNITS[name])
    X = np.random.default_rng(3).normal(size=(50, 4)) * 3
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-5)):
        path = tmp_path / f"{dtype}.onnx"
        save_onnx(net, path, dtype)
        model = onnx.load(path)
        assert model.opset_import[0].version >= 13
        expected = net(X)
        scale = 1 + np.abs(expected).max()
        np.testing.assert_allclose(runtime(model, X), expected, rtol=tolerance, atol=tolerance * scale)
        again = load_onnx(path)
        np.testing.assert_allclose(again(X), expected, rtol=tolerance, atol=tolerance * scale)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["float32.onnx", "float64.onnx"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kinds=st.lists(st.sampled_from(sorted(UNITS)), max_size=3))
def test_round_trips(seed, kinds, tmp_path_factory):
    net = random_network([a for k in kinds for a in UNITS[k]], seed)
    path = tmp_path_factory.mktemp("round") / "n.onnx"
    save_onnx(net, path)
    X = np.random.default_rng(seed).normal(size=(20, 4)) * 2
    scale = 1 + np.abs(net(X)).max()
    np.testing.assert_allclose(load_onnx(path)(X), net(X), rtol=1e-11, atol=1e-11 * scale)


def test_relu_networks_come_back_with_the_same_layers(tmp_path):
    net = random_network([relu(), relu()], name="mlp")
    save_onnx(net, tmp_path / "mlp.onnx")
    again = load_onnx(tmp_path / "mlp.onnx")
    assert again.widths == net.widths
    for a, b in zip(net.layers, again.layers, strict=True):
        assert a.dense().tolist() == b.dense().tolist()
        assert a.bias.tolist() == b.bias.tolist()


def test_image_shapes_and_sparse_weights_are_written(tmp_path):
    W = sparse.random_array((90, 96), density=0.05, rng=np.random.default_rng(1), format="csr")
    net = Network(
        [(W, None), (sparse.eye_array(90, format="csr"), np.ones(90))], input_shape=(6, 4, 4), output_shape=(9, 10)
    )
    path = tmp_path / "image.onnx"
    save_onnx(net, path)
    again = load_onnx(path)
    assert (again.input_shape, again.output_shape) == ((6, 4, 4), (9, 10))
    X = np.random.default_rng(2).normal(size=(7, 96))
    np.testing.assert_allclose(again(X), net(X), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(runtime(onnx.load(path), X), net(X), rtol=1e-12, atol=1e-12)
    with pytest.raises(InputLimitError, match="npz"):
        save_onnx(net, path, limits=Limits(elements=100))


def test_failed_writes_leave_nothing_behind(tmp_path):
    net = Network([([[1e300, 1.0]], [0.0])])
    path = tmp_path / "n.onnx"
    with pytest.raises(InputError, match="float32 cannot hold"):
        save_onnx(net, path, "float32")
    with pytest.raises(InputError, match="dtype"):
        save_onnx(net, path, "float16")
    with pytest.raises(InputError, match="Network"):
        save_onnx("net", path)
    with pytest.raises(InputError):
        save_onnx(net, tmp_path / "no such folder" / "n.onnx")
    assert not list(tmp_path.iterdir())


def test_a_schema_goes_into_the_metadata_and_comes_back(tmp_path):
    columns = [Column("SEX", "category", levels=["f", "m"]), Column("range", unit="ft", scale=0.5, support=(0, np.inf))]
    schema = Schema(columns, [Output("PD", link="sigmoid")], cutoff=0.2)
    net = Network([(np.eye(3), np.zeros(3)), (np.ones((1, 3)), None)], schema=schema)
    save_onnx(net, tmp_path / "net.onnx")
    back = load_onnx(tmp_path / "net.onnx")
    assert back.schema == schema
    table = {"range": [4.0, 1.0], "SEX": ["m", "f"]}
    assert (back(table) == net(table)).all() and (runtime(onnx.load(tmp_path / "net.onnx"), np.eye(3)) == 1).all()


@pytest.mark.parametrize(
    ("features", "classes", "columns", "outputs"),
    [
        ('["a", "b"]', '["no", "yes"]', ("a", "b"), ("no", "yes")),
        ("a, b", '{"0": "cat", "1": "dog"}', ("a", "b"), ("cat", "dog")),
        ('["a"]', "[1, 1]", (), ()),  # too few, not different: no names
        ("[broken", "", (), ()),
    ],
)
def test_names_in_the_metadata_of_other_models(features, classes, columns, outputs):
    model = make([node("MatMul", "x w")], [1, 2], {"w": np.eye(2)})
    helper.set_model_props(model, {"feature_names": features, "class_names": classes})
    net = load_onnx(model.SerializeToString())
    assert (() if net.schema is None else net.schema.names) == columns
    assert (() if net.schema is None else net.schema.output_names) == outputs


def test_a_damaged_schema_is_refused():
    model = make([node("MatMul", "x w")], [1, 2], {"w": np.eye(2)})
    for words, said in {"the schema of the model": "{", "schema has 1 columns": '{"columns": [{"name": "a"}]}'}.items():
        helper.set_model_props(model, {"reluscope.schema": said})
        with pytest.raises(InputError, match=words):
            load_onnx(model.SerializeToString())
