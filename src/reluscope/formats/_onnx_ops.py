"""The rules for ONNX nodes: what each operation does to affine expressions and to constants.

A rule takes a `Call` (a node with its operands) and returns its first output or a list of outputs. Operands that do
not depend on the input are numpy arrays: whole numbers keep their type, since they are mostly shapes and axes, and
floating-point numbers are float64. A rule raises `UnsupportedError` where the operation is not piecewise affine in
its operands, and `InputError` where they do not fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.activations import absolute, clip, leaky_relu, relu
from reluscope.errors import InputError, UnsupportedError
from reluscope.formats._terms import Window
from reluscope.formats.graph import Comparison, GraphBuilder, Tensor
from reluscope.limits import Limits

Value: TypeAlias = npt.NDArray[Any] | Tensor
"""A value of the graph: an array when it does not depend on the input, else a symbolic tensor."""

Operands: TypeAlias = list[Value | None]
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def one_line(error: object) -> str:
    """The message of someone else's error, without line breaks."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."


def short(text: str) -> str:
    """A name from a file, quoted, for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CURVED = _words("""
    Softmax LogSoftmax Hardmax Sigmoid Tanh Gelu Erf Elu Selu Celu Softplus Softsign Mish Swish HardSwish Exp Log Sqrt
    Pow Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh LayerNormalization InstanceNormalization
    GroupNormalization RMSNormalization MeanVarianceNormalization LpNormalization LRN LSTM GRU RNN Attention
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd ReduceSumSquare LpPool GlobalLpPool CumProd
""")
_JUMPS = _words("""
    Sign Floor Ceil Round Mod ArgMax ArgMin TopK NonZero ThresholdedRelu Shrink Equal Less Greater LessOrEqual
    GreaterOrEqual And Or Not Xor IsNaN IsInf OneHot Unique Binarizer Bernoulli Multinomial RandomNormal
    RandomUniform RandomNormalLike RandomUniformLike NonMaxSuppression
""")
QUANTISED = tuple(_words("QLinear Quantize Dequantize DynamicQuantize ConvInteger MatMulInteger Bitwise BitShift"))
"""How the names of integer operations begin."""
NESTED = _words("If Loop Scan SequenceMap")
MOVES_ONLY = _words("Identity Cast Reshape Flatten Squeeze Unsqueeze Transpose Dropout")
"""Nodes after which the outputs still are what they were, in another shape."""
FINAL = _words("Softmax LogSoftmax Sigmoid")
"""Curved nodes that may be cut off at the very end of a model."""


ELEMENTWISE = _words("Add Sub Mul Div Max Min Sum Mean Where PRelu")
"""Operations whose result has the broadcast shape of their operands."""


def why_not(op: str) -> str:
    """What to say about an operation that has no rule."""
    if op in _CURVED:
        return "is not piecewise affine; rs.formats.register_operation takes an approximation whose error is stated"
    if op in _JUMPS:
        return "is not continuous and piecewise affine"
    return "is not an operation that Reluscope knows; rs.formats.register_operation teaches it one"


def stored_array(onnx: Any, tensor: Any, what: str, infinite: bool = False) -> npt.NDArray[Any]:
    """A stored tensor as an array: floating-point types become float64, integers and booleans stay."""
    kinds = onnx.TensorProto
    floats = (kinds.FLOAT, kinds.DOUBLE, kinds.FLOAT16, kinds.BFLOAT16)
    whole = (kinds.INT8, kinds.INT16, kinds.INT32, kinds.INT64, kinds.UINT8, kinds.UINT16, kinds.UINT32, kinds.UINT64)
    if tensor.data_type not in (*floats, *whole, kinds.BOOL):
        raise UnsupportedError(f"{what} has ONNX element type {tensor.data_type}, which is not supported")
    try:
        array = np.array(onnx.numpy_helper.to_array(tensor))
    except Exception as error:
        raise InputError(f"{what} is damaged: {one_line(error)}") from error
    if tensor.data_type not in floats:
        return array
    array = array.astype(np.float64)
    if np.isnan(array).any() or (not infinite and not np.isfinite(array).all()):
        bad = array[~np.isfinite(array)][0]
        raise InputError(f"{what} must be finite, got {bad}; the model's weights are damaged or its training diverged")
    return array


class Call:
    """A node with its operands, as the rules below see it."""

    def __init__(
        self, onnx: Any, graph: GraphBuilder, opset: int, limits: Limits, node: Any, where: str, inputs: Operands
    ) -> None:
        self.onnx, self.graph, self.opset, self.limits = onnx, graph, opset, limits
        self.op: str = node.op_type
        self.where = where
        self.inputs = inputs
        self.n_outputs = len(node.output)
        self._attributes = {a.name: a for a in node.attribute}

    def value(self, i: int) -> Value:
        """Operand i, which must be there."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise InputError(f"operand {i + 1} is missing")
        return found

    def array(self, i: int, what: str) -> npt.NDArray[Any] | None:
        """Operand i, which must not depend on the input; None when it is left out."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(found, (Tensor, Comparison)):
            raise UnsupportedError(f"{self.where} is not piecewise affine: its {what} depends on the input")
        return found

    def needed(self, i: int, what: str) -> npt.NDArray[Any]:
        """Operand i, which must be there and not depend on the input."""
        found = self.array(i, what)
        if found is None:
            raise InputError(f"its {what} is missing")
        return found

    def integers(self, i: int, what: str, attribute: str | None = None) -> list[int] | None:
        """A list of whole numbers from operand i or, in older versions, from an attribute."""
        found = self.array(i, what)
        if found is not None:
            return [int(n) for n in found.ravel()]
        listed = self.attribute(attribute or what, None)
        return None if listed is None else [int(n) for n in listed]

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute, text decoded."""
        if name not in self._attributes:
            return default
        value = self.onnx.helper.get_attribute_value(self._attributes[name])
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def attributes(self) -> dict[str, Any]:
        """All attributes by name, text decoded."""
        return {name: self.attribute(name, None) for name in self._attributes}

    def not_affine(self, why: str) -> UnsupportedError:
        """The error for a node that is not piecewise affine in its operands."""
        return UnsupportedError(f"{self.where} is not piecewise affine: {why}")


Rule = Callable[[Call], Value | list[Value]]


def _moved(c: Call, value: Value, fn: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Value:
    return c.graph.apply_move(value, fn) if isinstance(value, Tensor) else np.asarray(fn(value))


# Arithmetic


def _folded(on_arrays: Callable[..., Any], on_graph: Callable[..., Value], *values: Value) -> Value:
    """A result in numpy where no operand depends on the input, else in the graph."""
    symbolic = any(isinstance(v, Tensor) for v in values)
    return on_graph(*values) if symbolic else np.asarray(on_arrays(*values))


def _mul(c: Call) -> Value:
    a, b = c.value(0), c.value(1)
    if isinstance(a, np.ndarray):
        return np.asarray(a * b) if isinstance(b, np.ndarray) else c.graph.scale(b, a)
    if isinstance(b, np.ndarray):
        return c.graph.scale(a, b)
    raise c.not_affine("it multiplies two values that depend on the input")


def _div(c: Call) -> Value:
    a, b = c.value(0), c.value(1)
    if isinstance(b, Tensor):
        raise c.not_affine("it divides by a value that depends on the input")
    if not b.all():
        raise InputError("it divides by zero")
    if isinstance(a, Tensor):
        return c.graph.scale(a, 1.0 / b)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":  # towards zero, unlike numpy
        return np.asarray(np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)).astype(a.dtype)
    return np.asarray(a / b)


def _plus(c: Call, a: Value, b: Value) -> Value:
    return _folded(np.add, c.graph.add, a, b)


def _sum(c: Call) -> Value:
    total = c.value(0)
    for i in range(1, len(c.inputs)):
        total = _plus(c, total, c.value(i))
    return total


def _mean(c: Call) -> Value:
    n = len(c.inputs)
    return _folded(lambda x: x / n, lambda x: c.graph.scale(x, 1.0 / n), _sum(c))


def _product(c: Call, a: Value, b: Value) -> Value:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        c.limits.check(
            "elements", math.prod((*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))), "its result"
        )
        return _constant_product(c, a, b)
    if isinstance(a, np.ndarray):
        return c.graph.matmul_left(a, b)
    if isinstance(b, np.ndarray):
        return c.graph.matmul(a, b)
    raise c.not_affine("it multiplies two values that depend on the input")


_PRODUCTS_A_LOOK = {"f": 1 << 29, "i": 1 << 26, "u": 1 << 26, "b": 1 << 26}
"""Multiplications of constants between two looks at the clock, by kind of number."""


def _constant_product(c: Call, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`a @ b`; a large one row by row, since its factors may be small and made of nothing but their shapes."""
    most = _PRODUCTS_A_LOOK[a.dtype.kind]
    if a.ndim < 2 or math.prod(a.shape) * (b.shape[-1] if b.ndim > 1 else 1) <= most:
        return np.asarray(np.matmul(a, b))
    c.limits.check_time("its result")
    if a.ndim > 2 or b.ndim > 2:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = np.broadcast_to(a, (*lead, *a.shape[-2:])), np.broadcast_to(b, (*lead, *b.shape[-2:]))
        return np.stack([_constant_product(c, x, y) for x, y in zip(a, b, strict=True)])
    rows = max(1, most // max(b.size, 1))
    parts = []
    for i in range(0, len(a), rows):
        c.limits.check_time("its result")
        parts.append(np.matmul(a[i : i + rows], b))
    return np.concatenate(parts)


def _gemm(c: Call) -> Value:
    alpha, beta = float(c.attribute("alpha", 1.0)), float(c.attribute("beta", 1.0))
    a, b = c.value(0), c.value(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise InputError(f"it needs two matrices, got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if c.attribute("transA", 0):
        a = _moved(c, a, np.transpose)
    if c.attribute("transB", 0):
        b = _moved(c, b, np.transpose)
    if isinstance(a, np.ndarray):
        a = alpha * a
    elif isinstance(b, np.ndarray):
        b = alpha * b
    product = _product(c, a, b)
    shift = c.inputs[2] if len(c.inputs) > 2 else None
    if shift is None:
        return product
    if np.broadcast_shapes(tuple(product.shape), tuple(shift.shape)) != tuple(product.shape):
        raise InputError(f"its third operand {tuple(shift.shape)} does not broadcast to {tuple(product.shape)}")
    if beta == 0:
        return product
    return _plus(c, product, c.graph.scale(shift, beta) if isinstance(shift, Tensor) else beta * shift)


def _where_rule(c: Call) -> Value:
    a, b = c.value(1), c.value(2)
    given: Any = c.inputs[0]
    if isinstance(given, Comparison):
        try:
            return c.graph.select(given, a, b)
        except UnsupportedError as error:
            raise c.not_affine(str(error)) from error
    condition = c.needed(0, "condition").astype(bool)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.where(condition, a, b)
    return c.graph.add(c.graph.scale(a, condition.astype(float)), c.graph.scale(b, (~condition).astype(float)))


def _compared(c: Call, swap: bool, strict: bool) -> Any:
    """A comparison of values that depend on the input: only a Where can use it."""
    a, b = (c.value(1), c.value(0)) if swap else (c.value(0), c.value(1))
    return c.graph.compare(a, b, strict)


def _not(c: Call) -> Any:
    given: Any = c.inputs[0]
    if not isinstance(given, Comparison):
        raise c.not_affine("it is a truth value of numbers")
    return Comparison(c.graph.scale(given.difference, -1.0), not given.strict)


# Activations and maxima


def _as_stored(number: float) -> float:
    """An attribute's value: ONNX keeps these as float32, so the network uses that number exactly."""
    return float(np.float32(number))


def _prelu(c: Call) -> Value:
    slope = c.needed(1, "slope").astype(np.float64)
    x = c.value(0)
    if np.broadcast_shapes(x.shape, slope.shape) != tuple(x.shape):
        raise InputError(f"slopes of shape {slope.shape} do not broadcast to {tuple(x.shape)}")
    return c.graph.activate(x, c.graph.each_kind(slope.ravel(), leaky_relu).reshape(slope.shape))


def _clip(c: Call) -> Value:
    x = c.value(0)
    if c.opset < 11:
        low: Value | None = np.array(c.attribute("min", -math.inf))
        high: Value | None = np.array(c.attribute("max", math.inf))
    else:
        low = c.inputs[1] if len(c.inputs) > 1 else None
        high = c.inputs[2] if len(c.inputs) > 2 else None
    if isinstance(x, np.ndarray) and not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return np.asarray(np.clip(x, low, high)) if low is not None or high is not None else x
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        bounded = x if low is None else c.graph.maximum(x, low)
        return bounded if high is None else c.graph.minimum(bounded, high)
    least, most = _bound(low, -math.inf), _bound(high, math.inf)
    if least > most and c.opset < 11:
        raise InputError(f"its lower bound {least:g} is above its upper bound {most:g}")
    if least >= most:  # ONNX: everything becomes the upper bound
        return np.full(x.shape, most)
    return c.graph.activate(x, clip(least, most))


def _bound(value: npt.NDArray[Any] | None, default: float) -> float:
    if value is None or value.size == 0:
        return default
    if value.size != 1:
        raise InputError(f"its bounds must be single numbers, got shape {value.shape}")
    number = float(value.ravel()[0])
    return math.copysign(math.inf, number) if abs(number) >= _FLOAT32_MAX else number


def _hard_sigmoid(c: Call) -> Value:
    slope, offset = _as_stored(c.attribute("alpha", 0.2)), _as_stored(c.attribute("beta", 0.5))
    inner = c.graph.add(c.graph.scale(c.value(0), slope), offset)
    return c.graph.activate(inner, clip(0.0, 1.0))


def _extreme(c: Call, of_tensors: Callable[[Any, Any], Tensor], of_arrays: Callable[[Any, Any], Any]) -> Value:
    """n-ary maximum or minimum: constants first, then a balanced tree over the rest."""
    values = [c.value(i) for i in range(len(c.inputs))]
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    tensors: list[Value] = [v for v in values if isinstance(v, Tensor)]
    while len(tensors) > 1:
        pairs = [of_tensors(a, b) for a, b in zip(tensors[0::2], tensors[1::2], strict=False)]
        tensors = [*pairs, *(tensors[-1:] if len(tensors) % 2 else [])]
    if not arrays:
        return tensors[0]
    bound = arrays[0]
    for a in arrays[1:]:
        bound = of_arrays(bound, a)
    if not tensors:
        return np.asarray(bound)
    if np.isinf(bound).any():
        if not np.isinf(bound).all() or len({*np.sign(bound).ravel().tolist()}) != 1:
            raise InputError("its constant operand mixes infinite and finite numbers")
        if of_arrays(0.0, bound.ravel()[0]) != 0.0:
            raise InputError("its result is infinite")
        return tensors[0]
    return of_tensors(tensors[0], bound)


# Convolution, pooling, normalisation


def _window(c: Call, x: Value, kernel: Sequence[int], pool: bool = False) -> Window:
    n = len(x.shape) - 2
    if n < 1 or n > 2 or len(kernel) != n:
        raise UnsupportedError(f"{c.where} works on shape {tuple(x.shape)}; only 1-D and 2-D images are supported")
    strides = [int(s) for s in c.attribute("strides", [1] * n)]
    dilations = [int(d) for d in c.attribute("dilations", [1] * n)]
    pads = [int(p) for p in c.attribute("pads", [0] * 2 * n)]
    auto = c.attribute("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * 2 * n
        if any(d > 1 for d in dilations):
            raise _ambiguous(c, f"auto_pad {auto} with dilations")
        for i in range(n):
            size = x.shape[2 + i]
            total = (-(-size // strides[i]) - 1) * strides[i] + kernel[i] - size
            if total < 0 and pool:
                raise _ambiguous(c, f"auto_pad {auto} with strides beyond the kernel")
            _split_padding(pads, i, max(total, 0), auto)
    elif auto == "VALID":
        pads = [0] * 2 * n
    elif auto != "NOTSET":
        raise InputError(f"its auto_pad is {short(str(auto))}, which ONNX does not define")
    return Window([int(k) for k in kernel], strides, pads, dilations, bool(c.attribute("ceil_mode", 0)))


def _ambiguous(c: Call, what: str) -> UnsupportedError:
    """The error for a node that runtimes and the standard understand in different ways: none is silently taken."""
    return UnsupportedError(f"{c.where} has {what}, which runtimes compute differently; export it with explicit pads")


def _split_padding(pads: list[int], axis: int, total: int, auto: str) -> None:
    small, large = total // 2, total - total // 2
    pads[axis], pads[len(pads) // 2 + axis] = (small, large) if auto == "SAME_UPPER" else (large, small)


def _conv_operands(c: Call) -> tuple[Value, FloatArray, FloatArray | None]:
    x = c.value(0)
    w = c.inputs[1] if len(c.inputs) > 1 else None
    b = c.array(2, "bias")
    if isinstance(w, Tensor):
        raise c.not_affine("its weights depend on the input")
    if w is None:
        raise InputError("its weights are missing")
    kernel = c.attribute("kernel_shape", None)
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        raise InputError(f"its kernel_shape {list(kernel)} differs from its weights' {list(w.shape[2:])}")
    return x, w, b


def _conv(c: Call) -> Value:
    x, w, b = _conv_operands(c)
    return c.graph.conv(x, w, b, _window(c, x, w.shape[2:]), int(c.attribute("group", 1)))


def _conv_transpose(c: Call) -> Value:
    x, w, b = _conv_operands(c)
    n = len(x.shape) - 2
    auto = c.attribute("auto_pad", "NOTSET")
    extra = [int(p) for p in c.attribute("output_padding", [0] * n)]
    wanted = c.attribute("output_shape", None)
    s = _window(c, x, w.shape[2:])
    if len(extra) != n or any(not 0 <= e < s.strides[i] for i, e in enumerate(extra)):
        raise InputError(f"its output_padding {extra} must be below its strides")
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = (
            [int(k) for k in wanted][-n:] if wanted is not None else [x.shape[2 + i] * s.strides[i] for i in range(n)]
        )
        pads = [0] * 2 * n
        for i in range(n):
            reach = s.dilations[i] * (s.kernel[i] - 1) + 1
            total = s.strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach - sizes[i]
            if total < 0 and wanted is None:
                raise _ambiguous(c, f"auto_pad {auto} with strides beyond the kernel")
            if total < 0:
                extra[i], total = extra[i] - total, 0
                if extra[i] >= s.strides[i]:
                    raise InputError(f"its output_shape {sizes} is out of reach from shape {tuple(x.shape)}")
            _split_padding(pads, i, total, auto)
        s = replace(s, pads=pads)
    return c.graph.conv_transpose(x, w, b, s, int(c.attribute("group", 1)), extra)


def _max_pool(c: Call) -> Value:
    x = c.value(0)
    return c.graph.max_pool(x, _window(c, x, c.attribute("kernel_shape", []), pool=True))


def _average_pool(c: Call) -> Value:
    x = c.value(0)
    window = _window(c, x, c.attribute("kernel_shape", []), pool=True)
    return c.graph.average_pool(x, window, bool(c.attribute("count_include_pad", 0)))


def _global_average_pool(c: Call) -> Value:
    x = c.value(0)
    if len(x.shape) < 3:
        raise InputError(f"it needs at least one spatial axis, got shape {tuple(x.shape)}")
    return c.graph.reduce_mean(x, tuple(range(2, len(x.shape))), True)


def _batch_normalization(c: Call) -> Value:
    if c.attribute("training_mode", 0) or not c.attribute("spatial", 1):
        raise UnsupportedError(f"{c.where} is in training mode or not per channel; export the model for inference")
    names = ("scale", "bias", "mean", "variance")
    scale, bias, mean, var = (c.needed(i + 1, name) for i, name in enumerate(names))
    return c.graph.batch_norm(c.value(0), scale, bias, mean, var, _as_stored(c.attribute("epsilon", 1e-5)))


def _reduce(c: Call, of_tensor: Callable[..., Tensor], of_array: Callable[..., Any]) -> Value:
    x = c.value(0)
    axes = c.integers(1, "axes")
    keep = bool(c.attribute("keepdims", 1))
    if not axes:
        if c.attribute("noop_with_empty_axes", 0):
            return x
        axes = None
    if isinstance(x, np.ndarray):
        over = range(x.ndim) if axes is None else {a % max(x.ndim, 1) for a in axes}
        c.limits.check("elements", math.prod(n for i, n in enumerate(x.shape) if i not in over), "its result")
        return np.asarray(of_array(x, axis=None if axes is None else tuple(axes), keepdims=keep))
    return of_tensor(x, axes, keep)


# Data movement


def _dropout(c: Call) -> Value:
    training = c.array(2, "training mode")
    if training is not None and training.any():
        raise UnsupportedError(f"{c.where} is in training mode; export the model for inference")
    return c.value(0)


def _cast(c: Call) -> Value:
    x, to = c.value(0), int(c.attribute("to", 0))
    kinds = c.onnx.TensorProto
    floats = {kinds.FLOAT: np.float32, kinds.DOUBLE: np.float64, kinds.FLOAT16: np.float16, kinds.BFLOAT16: np.float32}
    whole = {kinds.INT8: np.int8, kinds.INT16: np.int16, kinds.INT32: np.int32, kinds.INT64: np.int64}
    whole |= {kinds.UINT8: np.uint8, kinds.UINT16: np.uint16, kinds.UINT32: np.uint32, kinds.UINT64: np.uint64}
    if isinstance(x, Tensor):
        if to not in floats:
            raise c.not_affine("it rounds to whole numbers or truth values")
        return x
    if to in floats:
        return x.astype(floats[to]).astype(np.float64)
    if to == kinds.BOOL:
        return x.astype(bool)
    if to not in whole:
        raise UnsupportedError(f"{c.where} converts to ONNX element type {to}, which is not supported")
    return x.astype(whole[to])


def _flatten(c: Call) -> Value:
    x = c.value(0)
    axis, rank = int(c.attribute("axis", 1)), len(x.shape)
    if not -rank <= axis <= rank or (axis < 0 and c.opset < 11):
        raise InputError(f"its axis {axis} is beyond the {rank} axes of shape {tuple(x.shape)}")
    axis = axis + rank if axis < 0 else axis
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return _moved(c, x, lambda a: a.reshape(shape))


def _reshape(c: Call) -> Value:
    x = c.value(0)
    wanted = c.integers(1, "shape")
    if wanted is None:
        raise InputError("its shape is missing")
    keep_zeros = bool(c.attribute("allowzero", 0))
    shape = [x.shape[i] if n == 0 and not keep_zeros else n for i, n in enumerate(wanted)]
    if any(n < -1 for n in shape) or shape.count(-1) > 1:
        raise InputError(f"its shape {wanted} has more than one -1 or other negative numbers")
    return _moved(c, x, lambda a: a.reshape(shape))


def _transpose(c: Call) -> Value:
    order = c.attribute("perm", None)
    return _moved(c, c.value(0), lambda a: a.transpose(order))


def _squeeze(c: Call) -> Value:
    axes = c.integers(1, "axes")
    return _moved(c, c.value(0), lambda a: np.squeeze(a, None if axes is None else tuple(axes)))


def _unsqueeze(c: Call) -> Value:
    axes = c.integers(1, "axes")
    if axes is None:
        raise InputError("its axes are missing")
    return _moved(c, c.value(0), lambda a: np.expand_dims(a, tuple(axes)))


def _concat(c: Call) -> Value:
    parts = [c.value(i) for i in range(len(c.inputs))]
    axis = int(c.attribute("axis", 0))
    arrays = [p for p in parts if isinstance(p, np.ndarray)]
    if len(arrays) == len(parts):
        c.limits.check("elements", sum(a.size for a in arrays), "its result")
        return np.concatenate(arrays, axis=axis)
    return c.graph.concat(parts, axis)


def _split(c: Call) -> list[Value]:
    x = c.value(0)
    axis = int(c.attribute("axis", 0))
    size = x.shape[axis]
    sizes = c.integers(1, "split")
    if sizes is None:
        parts = int(c.attribute("num_outputs", c.n_outputs))
        each = -(-size // parts)
        if (c.opset < 18 and size % parts) or each * (parts - 1) >= max(size, 1):
            raise InputError(f"its {size} entries do not split into {parts} equal parts")
        sizes = [min(each, max(size - i * each, 0)) for i in range(parts)]
    if sum(sizes) != size or min(sizes) < 0 or len(sizes) != c.n_outputs:
        raise InputError(f"its parts {sizes} do not make up {size} entries for {c.n_outputs} outputs")
    ends = np.cumsum(sizes).tolist()

    def part(a: npt.NDArray[Any], begin: int, end: int) -> npt.NDArray[Any]:
        return np.moveaxis(np.moveaxis(a, axis, 0)[begin:end], 0, axis)

    return [
        _moved(c, x, lambda a, begin=e - n, end=e: part(a, begin, end))  # type: ignore[misc]
        for n, e in zip(sizes, ends, strict=True)
    ]


def _slice(c: Call) -> Value:
    x = c.value(0)
    starts, ends = c.integers(1, "starts"), c.integers(2, "ends")
    if starts is None or ends is None:
        raise InputError("its starts or ends are missing")
    axes = c.integers(3, "axes")
    axes = list(range(len(starts))) if axes is None else axes
    steps = c.integers(4, "steps")
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InputError("its starts, ends, axes and steps differ in length")
    cut: list[slice] = [slice(None)] * len(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return _moved(c, x, lambda a: a[tuple(cut)])


def _gather(c: Call) -> Value:
    index = c.needed(1, "index").astype(np.intp)
    axis = int(c.attribute("axis", 0))
    x = c.value(0)
    c.graph.check_entries(math.prod(x.shape) // max(x.shape[axis], 1) * index.size, "its result")
    return _moved(c, x, lambda a: np.take(a, index, axis=axis))


def _pad(c: Call) -> Value:
    x = c.value(0)
    pads = c.integers(1, "pads")
    if pads is None:
        raise InputError("its pads are missing")
    if c.opset < 11:
        fill = float(c.attribute("value", 0.0))
    else:
        given = c.array(2, "fill value")
        fill = 0.0 if given is None or given.size == 0 else float(given.ravel()[0])
    axes = c.integers(3, "axes") if c.opset >= 18 else None
    axes = list(range(len(x.shape))) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise InputError(f"it has {len(pads)} pads for {len(axes)} axes")
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    full = [n + a + b for n, a, b in zip(x.shape, before, after, strict=True)]
    if min(full, default=1) < 0:
        raise InputError(f"its pads {pads} cut away more than shape {tuple(x.shape)} has")
    c.graph.check_entries(math.prod(full), "its result")
    crop = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(x.shape, before, after, strict=True))
    grow = [(max(a, 0), max(b, 0)) for a, b in zip(before, after, strict=True)]
    mode = c.attribute("mode", "constant")
    if mode == "constant":
        if isinstance(x, np.ndarray):
            return np.pad(x[crop], grow, constant_values=x.dtype.type(fill))
        index = np.arange(x.size, dtype=np.intp).reshape(x.shape)[crop]
        return c.graph.move(x, np.pad(index, grow, constant_values=-1), fill)
    if mode == "reflect" and any(max(ends) >= n for n, ends in zip(x.shape, grow, strict=True) if max(ends)):
        raise InputError(f"its pads {pads} reflect more than shape {tuple(x.shape)} has")
    if mode not in ("reflect", "edge", "wrap"):
        raise InputError(f"its mode is {short(str(mode))}, which ONNX does not define")
    return _moved(c, x, lambda a: np.pad(a[crop], grow, mode=mode))


def _expand(c: Call) -> Value:
    x = c.value(0)
    wanted = c.integers(1, "shape") or []
    shape = np.broadcast_shapes(tuple(x.shape), tuple(wanted))
    c.graph.check_entries(math.prod(shape), "its result")
    return _moved(c, x, lambda a: np.broadcast_to(a, shape))


def _tile(c: Call) -> Value:
    x = c.value(0)
    repeats = c.integers(1, "repeats") or []
    if len(repeats) != len(x.shape) or min(repeats, default=1) < 0:
        raise InputError(f"its repeats {repeats} do not fit shape {tuple(x.shape)}")
    c.graph.check_entries(math.prod(x.shape) * math.prod(repeats), "its result")
    return _moved(c, x, lambda a: np.tile(a, repeats))


# Constants


def _shape(c: Call) -> Value:
    shape = list(c.value(0).shape)
    start, end = c.attribute("start", 0), c.attribute("end", None)
    return np.array(shape[start:end], dtype=np.int64)


def _constant(c: Call) -> Value:
    tensor = c.attribute("value", None)
    if tensor is not None:
        return stored_array(c.onnx, tensor, "its value", infinite=True)
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        given = c.attribute(name, None)
        if given is not None:
            return np.array(given, dtype=np.float64 if "float" in name else np.int64)
    raise UnsupportedError(f"{c.where} holds text or a sparse tensor, which is not supported")


def _constant_of_shape(c: Call) -> Value:
    shape = c.integers(0, "shape") or []
    if any(n < 0 for n in shape):
        raise InputError(f"its shape {shape} is negative")
    c.graph.check_entries(math.prod(shape), "its result")
    tensor = c.attribute("value", None)
    value = np.zeros(1) if tensor is None else stored_array(c.onnx, tensor, "its value")
    return np.full(shape, value.ravel()[0])


def _range(c: Call) -> Value:
    start, end, step = (c.needed(i, name).ravel()[0] for i, name in enumerate(("start", "limit", "delta")))
    if step == 0:
        raise InputError("its delta is zero")
    count = max(math.ceil((end - start) / step), 0)
    c.graph.check_entries(count, "its result")
    return np.asarray(start + step * np.arange(count), dtype=np.asarray(start).dtype)


OPERATIONS: dict[str, Rule] = {
    "Abs": lambda c: _folded(np.abs, lambda x: c.graph.activate(x, absolute()), c.value(0)),
    "Add": lambda c: _plus(c, c.value(0), c.value(1)),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _div,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": lambda c: c.graph.max_pool(c.value(0), Window.whole(c.value(0).shape[2:])),
    "Greater": lambda c: _compared(c, False, True),
    "GreaterOrEqual": lambda c: _compared(c, False, False),
    "HardSigmoid": _hard_sigmoid,
    "Identity": lambda c: c.value(0),
    "LeakyRelu": lambda c: c.graph.activate(c.value(0), leaky_relu(_as_stored(c.attribute("alpha", 0.01)))),
    "Less": lambda c: _compared(c, True, True),
    "LessOrEqual": lambda c: _compared(c, True, False),
    "MatMul": lambda c: _product(c, c.value(0), c.value(1)),
    "Max": lambda c: _extreme(c, c.graph.maximum, np.maximum),
    "MaxPool": _max_pool,
    "Mean": _mean,
    "Min": lambda c: _extreme(c, c.graph.minimum, np.minimum),
    "Mul": _mul,
    "Neg": lambda c: _folded(np.negative, lambda x: c.graph.scale(x, -1.0), c.value(0)),
    "Not": _not,
    "PRelu": _prelu,
    "Pad": _pad,
    "Range": _range,
    "ReduceMax": lambda c: _reduce(c, c.graph.reduce_max, np.max),
    "ReduceMin": lambda c: _reduce(c, c.graph.reduce_min, np.min),
    "ReduceMean": lambda c: _reduce(c, c.graph.reduce_mean, np.mean),
    "ReduceSum": lambda c: _reduce(c, c.graph.reduce_sum, np.sum),
    "Relu": lambda c: c.graph.activate(c.value(0), relu()),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda c: np.array(math.prod(c.value(0).shape), dtype=np.int64),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": lambda c: _folded(np.subtract, c.graph.subtract, c.value(0), c.value(1)),
    "Sum": _sum,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where_rule,
}
"""What a node may be when its operands depend on the input (or not)."""

ON_CONSTANTS: dict[str, Callable[..., Any]] = {
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": lambda a, b: np.power(a.astype(np.float64), b).astype(a.dtype),
    "Reciprocal": np.reciprocal,
    "Round": np.round,
    "Sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
"""Curved or jumping functions, allowed where they do not depend on the input: numpy folds them."""
