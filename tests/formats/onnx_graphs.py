"""Small random ONNX graphs over every operation that the loader knows, and what onnxruntime says about them.

Weights and inputs are halves and small whole numbers, so that float32 sums are exact or nearly so. Each node is tried
alone in onnxruntime as it is added, which gives the shapes to go on with. A node that onnxruntime refuses ends the
graph: the loader must refuse it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OPSETS = (9, 11, 12, 13, 15, 17, 18, 20, 21)


class Graph:
    """A graph under construction, with the value of everything in it at one input."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.kind = np.float32
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self.values: dict[str, Any] = {}
        self.symbolic: list[str] = []
        self.refused = ""
        self.wanted = ""
        self.spatial = self.rng.random() < 0.55
        if self.spatial:
            sizes = self.rng.integers(3, 8, 1 + int(self.rng.random() < 0.7)).tolist()
            self.shape = [1, int(self.rng.integers(1, 4)), *sizes]
        else:
            self.shape = [1, *self.rng.integers(1, 5, int(self.rng.integers(1, 4))).tolist()]
        self.values["x"] = self.numbers(self.shape)
        self.symbolic.append("x")

    # -- small choices --

    def numbers(self, shape: Any) -> Any:
        return (self.rng.integers(-4, 5, shape) / 2).astype(self.kind)

    def one_of(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *ranks: int) -> str:
        """A value that depends on the input, mostly a late one."""
        fitting = [n for n in self.symbolic if not ranks or self.values[n].ndim in ranks]
        if not fitting:
            return self.pick()
        return fitting[-1] if self.chance(0.6) else self.one_of(*fitting)

    def constant(self, value: Any, kind: Any = None) -> str:
        import onnx

        name = f"c{len(self.values)}"
        array = np.asarray(value, dtype=kind)
        self.values[name] = array
        if self.chance(0.15):
            node = onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
            self.nodes.append(node)
        else:
            self.stored.append(onnx.numpy_helper.from_array(array, name))
        return name

    def integers(self, values: Any) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def beside(self, x: str) -> str:
        """A constant whose shape mostly broadcasts with that of `x`."""
        shape = [n if self.chance(0.6) else 1 for n in self.values[x].shape]
        shape = shape[int(self.rng.integers(len(shape) + 1)) :] if self.chance(0.5) else shape
        if self.chance(0.05):
            shape = [*shape, 2]
        return self.constant(self.numbers(shape))

    def axis(self, x: str) -> int:
        rank = self.values[x].ndim
        return int(self.rng.integers(-rank, rank)) if rank else 0

    # -- nodes --

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> bool:
        """Put a node on the graph, if onnxruntime runs it (or as the last node, if it does not)."""
        import onnx

        names = [f"v{len(self.values) + i}" for i in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        try:
            node = onnx.helper.make_node(op, inputs, names, **given)
        except (TypeError, ValueError):
            return False
        made = run_alone(node, {n: self.values[n] for n in inputs if n}, self.opset)
        if isinstance(made, str):
            if not self.chance(0.25):
                return False
            self.refused, made = made, [self.values["x"]] * outputs
        elif sum(a.size for a in made) > 4000 or any(a.size == 0 for a in made):
            return False
        self.nodes.append(node)
        symbolic = any(n in self.symbolic for n in inputs)
        for name, value in zip(names, made, strict=True):
            self.values[name] = value
            if symbolic and value.dtype == self.kind:
                self.symbolic.append(name)
        self.wanted = names[int(self.rng.integers(outputs))]
        return True

    def model(self) -> bytes:
        import onnx

        helper = onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.kind))
        needed, read = [], {self.wanted}
        for node in reversed(self.nodes):  # onnxruntime complains of nodes that nobody reads, the loader does not look
            if read & set(node.output):
                needed.insert(0, node)
                read |= set(node.input)
        graph = helper.make_graph(
            needed,
            "g",
            [helper.make_tensor_value_info("x", kind, self.shape)],
            [helper.make_empty_tensor_value_info(self.wanted)],
            self.stored,
        )
        out = graph.output[0].type.tensor_type
        out.elem_type = helper.np_dtype_to_tensor_dtype(self.values[self.wanted].dtype)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return model.SerializeToString()


def run_alone(node: Any, values: dict[str, Any], opset: int) -> list[Any] | str:
    """What onnxruntime makes of one node, or its complaint."""
    import onnx

    helper = onnx.helper
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in values.items()
    ]
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in values.items() if not n.startswith(("x", "v"))]
    held = {c.name for c in constants}
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "one", [i for i in infos if i.name not in held], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return run(model.SerializeToString(), {n: v for n, v in values.items() if n not in held})


def run(model: bytes, values: dict[str, Any]) -> list[Any] | str:
    """All outputs of a model in onnxruntime, or its complaint."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [np.asarray(a) for a in session.run(None, values)]
    except Exception as error:  # its errors have no common class
        return " ".join(str(error).split())[:300] or type(error).__name__


# -- one function per operation; False when it does not apply here --


def _unary(op: str, **attributes: Any) -> Any:
    return lambda g: g.add(op, [g.pick()], **attributes)


def _binary(op: str) -> Any:
    def make(g: Graph) -> bool:
        x = g.pick()
        other = g.beside(x) if g.chance(0.6) or op in ("Mul", "Div") else g.pick()
        if op == "Div":
            g.values[other][g.values[other] == 0] = 1
            if any(t.name == other for t in g.stored):
                g.stored = [t for t in g.stored if t.name != other]
                other = g.constant(g.values[other])
            else:
                return False
        pair = [x, other] if g.chance(0.7) or op == "Div" else [other, x]
        return g.add(op, pair)

    return make


def _many(op: str) -> Any:
    def make(g: Graph) -> bool:
        x = g.pick()
        parts = [x, *(g.beside(x) if g.chance(0.5) else g.pick() for _ in range(int(g.rng.integers(0, 3))))]
        return g.add(op, [str(parts[i]) for i in g.rng.permutation(len(parts))])

    return make


def _windows(g: Graph, x: str, transposed: bool = False, pool: bool = False) -> dict[str, Any]:
    n = max(g.values[x].ndim - 2, 1)
    kernel = g.rng.integers(1, 4, n).tolist()
    out: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.6):
        out["strides"] = g.rng.integers(1, 4, n).tolist()
    if g.chance(0.4):
        out["dilations"] = g.rng.integers(1, 3, n).tolist()
    padding = g.one_of("none", "none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    if padding == "pads":
        most = [k if pool else 3 for k in kernel]
        out["pads"] = [int(g.rng.integers(0, m)) for m in most * 2]
    elif padding != "none":
        out["auto_pad"] = padding
    if transposed and g.chance(0.3):
        out["output_padding"] = g.rng.integers(0, 2, n).tolist()
    if transposed and g.chance(0.15) and padding != "VALID":
        sizes = [int(s) * t for s, t in zip(g.values[x].shape[2:], out.get("strides", [1] * n), strict=False)]
        out["output_shape"] = [s + int(g.rng.integers(0, 2)) for s in sizes]
    return out


def _conv(g: Graph) -> bool:
    x = g.pick(3, 4)
    facts = _windows(g, x)
    channels = g.values[x].shape[1] if g.values[x].ndim > 1 else 1
    group = channels if g.chance(0.2) else 1
    out = group * int(g.rng.integers(1, 3))
    w = g.constant(g.numbers([out, channels // group, *facts["kernel_shape"]]))
    more = [g.constant(g.numbers([out]))] if g.chance(0.5) else []
    if g.chance(0.5):
        del facts["kernel_shape"]
    return g.add("Conv", [x, w, *more], group=group, **facts)


def _conv_transpose(g: Graph) -> bool:
    x = g.pick(3, 4)
    facts = _windows(g, x, transposed=True)
    channels = g.values[x].shape[1] if g.values[x].ndim > 1 else 1
    group = channels if g.chance(0.2) else 1
    each = int(g.rng.integers(1, 3))
    w = g.constant(g.numbers([channels, each, *facts["kernel_shape"]]))
    more = [g.constant(g.numbers([each * group]))] if g.chance(0.5) else []
    return g.add("ConvTranspose", [x, w, *more], group=group, **facts)


def _max_pool(g: Graph) -> bool:
    x = g.pick(3, 4)
    facts = _windows(g, x, pool=True)
    if g.opset < 10:
        facts.pop("dilations", None)
    if g.opset >= 10 and g.chance(0.4):
        facts["ceil_mode"] = 1
    return g.add("MaxPool", [x], **facts)


def _average_pool(g: Graph) -> bool:
    x = g.pick(3, 4)
    facts = _windows(g, x, pool=True)
    if g.opset < 19:
        facts.pop("dilations", None)
    if g.opset >= 10 and g.chance(0.4):
        facts["ceil_mode"] = 1
    return g.add("AveragePool", [x], count_include_pad=int(g.chance(0.4)), **facts)


def _batch_norm(g: Graph) -> bool:
    x = g.pick(2, 3, 4)
    n = g.values[x].shape[1] if g.values[x].ndim > 1 else 1
    variance = g.constant((g.rng.integers(1, 5, n)).astype(g.kind))
    parts = [g.constant(g.numbers([n])) for _ in range(3)]
    return g.add("BatchNormalization", [x, *parts, variance], epsilon=g.one_of(None, 0.5))


def _clip(g: Graph) -> bool:
    low, high = (g.rng.integers(-3, 4, 2) / 2).tolist()
    if g.chance(0.85):
        low, high = min(low, high), max(low, high)
    x = g.pick()
    if g.opset < 11:
        return g.add("Clip", [x], min=g.one_of(low, None), max=g.one_of(high, None))
    ends = [g.constant(end, g.kind) if g.chance(0.8) else "" for end in (low, high)]
    return g.add("Clip", [x, *ends])


def _gemm(g: Graph) -> bool:
    x = g.pick(2)
    turn_a, turn_b = int(g.chance(0.2)), int(g.chance(0.4))
    if g.values[x].ndim != 2:
        return False
    rows, inner = g.values[x].shape[::-1] if turn_a else g.values[x].shape
    columns = int(g.rng.integers(1, 5))
    w = g.constant(g.numbers([columns, inner] if turn_b else [inner, columns]))
    shift = g.one_of(None, [columns], [1, columns], [rows, columns], [rows, 1], [1], [], [columns + 1])
    more = [] if shift is None else [g.constant(g.numbers(shift))]
    attributes = {"alpha": g.one_of(None, 0.5, 2.0), "beta": g.one_of(None, 0.5, 0.0)}
    return g.add("Gemm", [x, w, *more], transA=turn_a, transB=turn_b, **attributes)


def _matmul(g: Graph) -> bool:
    x = g.pick()
    shape = g.values[x].shape
    if not shape:
        return False
    if g.chance(0.6):
        lead = list(shape[:-2]) if g.chance(0.3) else []
        other = [shape[-1]] if g.chance(0.2) else [*lead, shape[-1], int(g.rng.integers(1, 4))]
        return g.add("MatMul", [x, g.constant(g.numbers(other))])
    inner = shape[-2] if len(shape) > 1 else shape[-1]
    other = [inner] if g.chance(0.2) else [int(g.rng.integers(1, 4)), inner]
    return g.add("MatMul", [g.constant(g.numbers(other)), x])


def _prelu(g: Graph) -> bool:
    x = g.pick()
    shape = g.values[x].shape
    slope = [shape[1] if len(shape) > 1 else 1, *[1] * (len(shape) - 2)] if g.chance(0.6) else [1]
    return g.add("PRelu", [x, g.constant(g.numbers(slope))])


def _reduce(op: str) -> Any:
    def make(g: Graph) -> bool:
        x = g.pick()
        axes = sorted({g.axis(x) for _ in range(int(g.rng.integers(1, 3)))})
        keep = g.one_of(None, 0, 1)
        new = g.opset >= (13 if op == "ReduceSum" else 18)
        if g.chance(0.15):
            return g.add(op, [x], keepdims=keep)
        if new:
            return g.add(op, [x, g.integers(axes)], keepdims=keep)
        return g.add(op, [x], axes=axes, keepdims=keep)

    return make


def _concat(g: Graph) -> bool:
    x = g.pick()
    axis = g.axis(x)
    shape = list(g.values[x].shape)
    if not shape:
        return False
    shape[axis] = int(g.rng.integers(1, 3))
    return g.add("Concat", [x, g.constant(g.numbers(shape)), *([x] if g.chance(0.3) else [])], axis=axis)


def _split(g: Graph) -> bool:
    x = g.pick()
    axis = g.axis(x)
    if not g.values[x].ndim:
        return False
    size, parts = g.values[x].shape[axis], int(g.rng.integers(1, 4))
    if g.chance(0.5):
        cut = sorted(g.rng.integers(1, size + 1, parts - 1).tolist()) if parts > 1 else []
        sizes = np.diff([0, *cut, size]).tolist()
        if g.chance(0.1):
            sizes[0] += 1
        if g.opset >= 13:
            return g.add("Split", [x, g.integers(sizes)], parts, axis=axis)
        return g.add("Split", [x], parts, axis=axis, split=sizes)
    return g.add("Split", [x], parts, axis=axis, num_outputs=parts if g.opset >= 18 else None)


def _slice(g: Graph) -> bool:
    x = g.pick()
    rank = g.values[x].ndim
    if not rank:
        return False
    count = int(g.rng.integers(1, rank + 1))
    axes = g.rng.permutation(rank)[:count].tolist()
    axes = [a - rank if g.chance(0.3) else a for a in axes]
    starts, ends = g.rng.integers(-6, 6, count).tolist(), g.rng.integers(-6, 9, count).tolist()
    if g.opset < 10:
        return g.add("Slice", [x], axes=axes, starts=starts, ends=ends)
    inputs = [x, g.integers(starts), g.integers(ends), g.integers(axes)]
    if g.chance(0.5):
        inputs.append(g.integers([g.one_of(1, 1, 2, -1, -2) for _ in axes]))
    return g.add("Slice", inputs)


def _gather(g: Graph) -> bool:
    x = g.pick()
    axis = g.axis(x)
    if not g.values[x].ndim:
        return False
    size = g.values[x].shape[axis]
    shape = g.one_of([], [2], [1, 2])
    low = -size if g.opset >= 11 else 0
    high = size + 1 if g.chance(0.05) else size
    return g.add("Gather", [x, g.constant(g.rng.integers(low, high, shape), np.int64)], axis=axis)


def _pad(g: Graph) -> bool:
    x = g.pick()
    rank = g.values[x].ndim
    mode = g.one_of(None, "constant", "reflect", "edge", "wrap" if g.opset >= 19 else None)
    low = -1 if g.chance(0.2) else 0
    if g.opset < 11:
        return g.add("Pad", [x], pads=g.rng.integers(low, 3, 2 * rank).tolist(), mode=mode, value=g.one_of(None, 1.5))
    if g.opset >= 18 and g.chance(0.3) and rank:
        axes = g.rng.permutation(rank)[: int(g.rng.integers(1, rank + 1))].tolist()
        pads = g.integers(g.rng.integers(low, 3, 2 * len(axes)))
        return g.add("Pad", [x, pads, "", g.integers(axes)], mode=mode)
    fill = [g.constant(1.5, g.kind)] if g.chance(0.4) else []
    return g.add("Pad", [x, g.integers(g.rng.integers(low, 3, 2 * rank)), *fill], mode=mode)


def _reshape(g: Graph) -> bool:
    x = g.pick()
    size, shape = g.values[x].size, list(g.values[x].shape)
    wanted = g.one_of([-1], [1, -1], [size], [1, size, 1], [0, -1], [0] * len(shape), [*shape, 1], [2, -1], [-1, 2, 2])
    return g.add("Reshape", [x, g.integers(wanted)], allowzero=g.one_of(None, None, 1) if g.opset >= 14 else None)


def _transpose(g: Graph) -> bool:
    x = g.pick()
    rank = g.values[x].ndim
    return g.add("Transpose", [x], perm=g.rng.permutation(rank).tolist() if rank and g.chance(0.8) else None)


def _flatten(g: Graph) -> bool:
    x = g.pick()
    rank = g.values[x].ndim
    least = -rank - 1 if g.opset >= 11 else 0
    return g.add("Flatten", [x], axis=g.one_of(None, int(g.rng.integers(least, rank + 2))))


def _squeeze(g: Graph) -> bool:
    x = g.pick()
    ones = [i for i, n in enumerate(g.values[x].shape) if n == 1]
    axes = [int(a) for a in g.rng.permutation(ones)[:2]] if g.chance(0.9) else [g.axis(x)]
    if g.opset >= 13:
        return g.add("Squeeze", [x, g.integers(axes)] if axes else [x])
    return g.add("Squeeze", [x], axes=sorted(axes) or None)


def _unsqueeze(g: Graph) -> bool:
    x = g.pick()
    rank = g.values[x].ndim
    if rank > 3:
        return False
    axes = [int(g.rng.integers(-rank - 1, rank + 1))] if g.chance(0.7) else [0, rank + 1]
    if g.opset < 11:
        axes = [abs(a) % (rank + 1) for a in axes[:1]]
    if g.opset >= 13:
        return g.add("Unsqueeze", [x, g.integers(axes)])
    return g.add("Unsqueeze", [x], axes=axes)


def _expand(g: Graph) -> bool:
    x = g.pick()
    shape = [n if n > 1 or g.chance(0.5) else 2 for n in g.values[x].shape]
    return g.add("Expand", [x, g.integers(shape if g.chance(0.7) else [2, *shape][-4:])])


def _tile(g: Graph) -> bool:
    x = g.pick()
    return g.add("Tile", [x, g.integers(g.rng.integers(1, 3, g.values[x].ndim))])


def _where(g: Graph) -> bool:
    x = g.pick()
    condition = g.constant(g.rng.random(g.values[x].shape) < 0.5)
    other = g.beside(x) if g.chance(0.6) else x
    return g.add("Where", [condition, x, other] if g.chance(0.5) else [condition, other, x])


def _chosen(op: str, negated: bool = False) -> Any:
    """A choice by comparing a value with a constant: continuous between these two, else it jumps."""

    def make(g: Graph) -> bool:
        x, before, count = g.pick(), g.wanted, len(g.nodes)
        other = g.constant(g.numbers(g.values[x].shape))
        if g.add(op, [x, other]) and not g.refused and (not negated or g.add("Not", [g.wanted])):
            b = g.wanted
            if g.add("Where", [b, x, other] if g.chance(0.5) else [b, other, x]):
                return True
        if g.refused:
            return True
        del g.nodes[count:]
        g.wanted = before
        return False

    return make


def _constants(g: Graph) -> bool:
    """A few operations on constants, and their result added to a value."""
    x = g.pick()
    a = g.constant(np.abs(g.numbers([int(g.rng.integers(1, 4))])) + np.float32(0.5))
    before = len(g.nodes)
    op = g.one_of("Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Floor", "Ceil", "Neg", "Abs", "Reciprocal", "Sign", "Relu")
    if not g.add(op, [a]):
        return False
    made = g.wanted
    other = g.constant(g.numbers([1]))
    if not g.refused and g.add(g.one_of("Pow", "Add", "Mul", "Sub", "Max", "Min", "MatMul"), [made, other]):
        made = g.wanted
    if g.refused:
        return len(g.nodes) > before
    return g.add("Add", [x, made]) or g.add("Mul", [x, g.constant(g.numbers([1]))])


def _shapes(g: Graph) -> bool:
    """Shape arithmetic, as exporters write it."""
    x = g.pick()
    if not g.add("Shape", [x]):
        return False
    shape = g.wanted
    if not g.add("Gather", [shape, g.integers([0])]):
        return False
    first = g.wanted
    if not g.add("Concat", [first, g.integers([-1])], axis=0):
        return False
    return g.add("Reshape", [x, g.wanted])


def _filled(g: Graph) -> bool:
    x = g.pick()
    import onnx

    value = onnx.numpy_helper.from_array(np.array([1.5], dtype=g.kind))
    if not g.add("ConstantOfShape", [g.integers(g.values[x].shape)], value=g.one_of(None, value)):
        return False
    return g.add("Sub", [x, g.wanted])


def _ranged(g: Graph) -> bool:
    x = g.pick()
    if g.opset < 11 or not g.values[x].ndim:
        return False
    ends = [g.constant(v, g.kind) for v in (0, g.values[x].shape[-1], 1)]
    return g.add("Range", ends) and g.add("Add", [x, g.wanted])


def _mixed(g: Graph) -> bool:
    """An operand of another type: refused."""
    x = g.pick()
    other = g.constant(g.numbers(g.values[x].shape), g.one_of(np.float64, np.float16, np.int64))
    return g.add(g.one_of("Add", "Mul", "Max", "Concat"), [x, other], **({"axis": 0} if g.chance(0.2) else {}))


def _cast(g: Graph) -> bool:
    return g.add("Cast", [g.pick()], to=1)


def _size(g: Graph) -> bool:
    x = g.pick()
    if not g.add("Size", [x]):
        return False
    return g.add("Cast", [g.wanted], to=1) and g.add("Add", [x, g.wanted])


MAKERS = {
    "Abs": _unary("Abs"),
    "Add": _binary("Add"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constants,
    "ConstantOfShape": _filled,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _binary("Div"),
    "Dropout": _unary("Dropout"),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda g: g.add("GlobalAveragePool", [g.pick(3, 4)]),
    "GlobalMaxPool": lambda g: g.add("GlobalMaxPool", [g.pick(3, 4)]),
    "Greater": _chosen("Greater"),
    "GreaterOrEqual": _chosen("GreaterOrEqual"),
    "HardSigmoid": lambda g: g.add("HardSigmoid", [g.pick()], alpha=g.one_of(None, 0.5), beta=g.one_of(None, 0.25)),
    "Identity": _unary("Identity"),
    "LeakyRelu": lambda g: g.add("LeakyRelu", [g.pick()], alpha=g.one_of(None, 0.5, -1.0)),
    "Less": _chosen("Less"),
    "LessOrEqual": _chosen("LessOrEqual"),
    "MatMul": _matmul,
    "Max": _many("Max"),
    "MaxPool": _max_pool,
    "Mean": _many("Mean"),
    "Min": _many("Min"),
    "Mul": _binary("Mul"),
    "Neg": _unary("Neg"),
    "Not": _chosen("Greater", negated=True),
    "PRelu": _prelu,
    "Pad": _pad,
    "Range": _ranged,
    "ReduceMax": _reduce("ReduceMax"),
    "ReduceMean": _reduce("ReduceMean"),
    "ReduceMin": _reduce("ReduceMin"),
    "ReduceSum": _reduce("ReduceSum"),
    "Relu": _unary("Relu"),
    "Reshape": _reshape,
    "Shape": _shapes,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _binary("Sub"),
    "Sum": _many("Sum"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""A maker for each operation of `reluscope.formats._onnx_ops.OPERATIONS`."""
HARD = ("MaxPool", "ConvTranspose", "Conv", "AveragePool", "Pad", "Slice", "Gemm", "MatMul")


def random_graph(seed: int) -> Graph:
    """A graph of one to six nodes."""
    g = Graph(seed)
    length, tries = int(g.rng.integers(1, 7)), 0
    while len(g.nodes) < length and not g.refused and tries < 40:
        tries += 1
        hard = g.spatial and g.chance(0.3)
        MAKERS[g.one_of(*HARD) if hard else g.one_of(*MAKERS)](g)
        if g.chance(0.01):
            _mixed(g)
    if not g.wanted:
        g.add("Identity", ["x"])
    return g
