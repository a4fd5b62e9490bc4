"""An ONNX graph run with torch operations: gradients, and edits of intermediate values.

Only what image models and small transformers use is known; the result of the first run is not compared here, tests
compare it with onnxruntime on every shipped network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reluscope._extras import require
from reluscope.errors import UnsupportedError
from reluscope.lens.onnx_taps import Taps


def run_graph(taps: Taps, x: Any, layers: Sequence[str], edits: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Values at `layers` for a torch tensor `x`, with `edits` applied to the values of the layers they name."""
    torch, onnx = require("torch", "torch"), require("onnx", "onnx")
    wanted = {taps.tensor(name): name for name in layers}
    changes = {taps.tensor(name): edit for name, edit in edits.items()}
    if x.ndim != len(taps.input_shape):
        x = x.reshape(len(x), *(s or 1 for s in taps.input_shape[1:]))
    values = dict(_weights(taps, x.dtype))
    values[taps.input_name] = x
    values[""] = None
    for node in taps.proto.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        rule = _RULES.get(node.op_type)
        if rule is None:
            raise UnsupportedError(
                f"node {node.name or node.output[0]!r} of {taps.name} is a {node.op_type}, which cannot be "
                "differentiated here; export the model as a torch module"
            )
        if node.op_type == "Constant":
            value = torch.from_numpy(np.array(onnx.numpy_helper.to_array(attributes["value"])))
            result = value.to(x.dtype) if value.is_floating_point() else value
        else:
            result = rule(torch, [values[name] for name in node.input], attributes)
        out = node.output[0]
        values[out] = changes[out](result) if out in changes else result
        if all(name in values for name in wanted):
            break
    return {name: values[taps.tensor(name)] for name in layers}


def _weights(taps: Taps, kind: Any) -> dict[str, Any]:
    """The stored tensors of a graph, floats in one type; converted once, because a climb runs the graph often."""
    torch, onnx = require("torch", "torch"), require("onnx", "onnx")
    if kind not in taps.converted:
        stored = {
            t.name: torch.from_numpy(np.array(onnx.numpy_helper.to_array(t))) for t in taps.proto.graph.initializer
        }
        taps.converted[kind] = {k: v.to(kind) if v.is_floating_point() else v for k, v in stored.items()}
    return taps.converted[kind]


def _pads(attributes: dict[str, Any], count: int) -> list[int]:
    pads = [int(p) for p in attributes.get("pads", [0] * 2 * count)]
    flat: list[int] = []
    for k in reversed(range(count)):  # torch pads the last axis first
        flat += [pads[k], pads[k + count]]
    return flat


def _same(torch: Any, x: Any, kernel: Sequence[int], attributes: dict[str, Any], fill: float) -> Any:
    """`x` padded as `pads` or `auto_pad` say."""
    count = len(kernel)
    rule = str(attributes.get("auto_pad", b"NOTSET"), "ascii")
    if rule.startswith("SAME"):
        strides = attributes.get("strides", [1] * count)
        dilations = attributes.get("dilations", [1] * count)
        flat: list[int] = []
        for k in reversed(range(count)):
            size, reach = x.shape[2 + k], dilations[k] * (kernel[k] - 1) + 1
            total = max((-(-size // strides[k]) - 1) * strides[k] + reach - size, 0)
            few, many = total // 2, total - total // 2
            flat += [few, many] if rule == "SAME_UPPER" else [many, few]
    else:
        flat = _pads(attributes, count)
    return torch.nn.functional.pad(x, flat, value=fill) if any(flat) else x


def _conv(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    count = a[1].ndim - 2
    x = _same(torch, a[0], a[1].shape[2:], at, 0.0)
    run = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[count - 1]
    bias = a[2] if len(a) > 2 else None
    return run(
        x,
        a[1],
        bias,
        stride=tuple(at.get("strides", [1] * count)),
        dilation=tuple(at.get("dilations", [1] * count)),
        groups=int(at.get("group", 1)),
    )


def _max_pool(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    kernel = at["kernel_shape"]
    x = _same(torch, a[0], kernel, at, float("-inf"))
    return torch.nn.functional.max_pool2d(
        x, tuple(kernel), tuple(at.get("strides", [1] * len(kernel))), ceil_mode=bool(at.get("ceil_mode", 0))
    )


def _avg_pool(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    kernel = tuple(at["kernel_shape"])
    stride = tuple(at.get("strides", [1] * len(kernel)))
    pool = torch.nn.functional.avg_pool2d
    total = pool(_same(torch, a[0], kernel, at, 0.0), kernel, stride)
    if at.get("count_include_pad", 0):
        return total
    return total / pool(_same(torch, torch.ones_like(a[0][:1, :1]), kernel, at, 0.0), kernel, stride)


def _gemm(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    left = a[0].T if at.get("transA", 0) else a[0]
    right = a[1].T if at.get("transB", 0) else a[1]
    out = at.get("alpha", 1.0) * (left @ right)
    return out if len(a) < 3 or a[2] is None else out + at.get("beta", 1.0) * a[2]


def _reshape(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    shape = [int(s) for s in (a[1] if len(a) > 1 else at["shape"])]
    shape = [a[0].shape[i] if s == 0 else s for i, s in enumerate(shape)]
    if -1 not in shape and int(np.prod(shape)) != a[0].numel() and shape[0] == 1:
        shape[0] = len(a[0])  # a graph exported for one image, run on several
    return a[0].reshape(shape)


def _axes(a: list[Any], at: dict[str, Any]) -> list[int]:
    return [int(i) for i in (at["axes"] if "axes" in at else a[1])]


def _unsqueeze(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    out = a[0]
    for axis in sorted(_axes(a, at)):
        out = out.unsqueeze(axis)
    return out


def _squeeze(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    return a[0].squeeze(tuple(_axes(a, at))) if "axes" in at or len(a) > 1 else a[0].squeeze()


def _slice(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    starts = at["starts"] if "starts" in at else a[1].tolist()
    ends = at["ends"] if "ends" in at else a[2].tolist()
    axes = at.get("axes") or (a[3].tolist() if len(a) > 3 and a[3] is not None else range(len(starts)))
    steps = a[4].tolist() if len(a) > 4 else [1] * len(starts)
    index: list[Any] = [slice(None)] * a[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(int(start), int(min(end, 2**31)), int(step))
    return a[0][tuple(index)]


def _pad(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    pads = at["pads"] if "pads" in at else a[1].tolist()
    count = len(pads) // 2
    flat: list[int] = []
    for k in reversed(range(count)):
        flat += [int(pads[k]), int(pads[k + count])]
    value = float(a[2]) if len(a) > 2 and a[2] is not None else float(at.get("value", 0.0))
    return torch.nn.functional.pad(a[0], flat, value=value)


def _clip(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    low = at.get("min", a[1] if len(a) > 1 else None)
    high = at.get("max", a[2] if len(a) > 2 else None)
    return a[0].clamp(low, high)


def _reduce_mean(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    axes = _axes(a, at) if "axes" in at or len(a) > 1 else list(range(a[0].ndim))
    return a[0].mean(axes, keepdim=bool(at.get("keepdims", 1)))


def _gather(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    axis, index = int(at.get("axis", 0)), a[1].long()
    if index.ndim == 0:
        return a[0].select(axis, int(index))
    out = a[0].index_select(axis, index.reshape(-1))
    return out.reshape(*a[0].shape[:axis], *index.shape, *a[0].shape[axis + 1 :])


def _batch_norm(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    return torch.nn.functional.batch_norm(a[0], a[3], a[4], a[1], a[2], eps=at.get("epsilon", 1e-5))


def _fill(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    onnx = require("onnx", "onnx")
    value = onnx.numpy_helper.to_array(at["value"]) if "value" in at else np.zeros(1, np.float32)
    shape = [int(s) for s in a[0]]
    return torch.from_numpy(np.full(shape, value.reshape(-1)[0]))


def _cast(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    kinds = {1: a[0].dtype if a[0].is_floating_point() else torch.float32, 6: torch.int32, 7: torch.int64}
    return a[0].to(kinds.get(int(at["to"]), torch.float64 if int(at["to"]) == 11 else torch.bool))


def _softmax(torch: Any, a: list[Any], at: dict[str, Any]) -> Any:
    return torch.softmax(a[0], int(at.get("axis", -1)))


_RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _avg_pool,
    "GlobalAveragePool": lambda t, a, at: a[0].mean(tuple(range(2, a[0].ndim)), keepdim=True),
    "Relu": lambda t, a, at: t.relu(a[0]),
    "LeakyRelu": lambda t, a, at: t.nn.functional.leaky_relu(a[0], at.get("alpha", 0.01)),
    "Sigmoid": lambda t, a, at: t.sigmoid(a[0]),
    "Tanh": lambda t, a, at: t.tanh(a[0]),
    "Erf": lambda t, a, at: t.erf(a[0]),
    "Sqrt": lambda t, a, at: t.sqrt(a[0]),
    "Pow": lambda t, a, at: a[0] ** a[1],
    "Clip": _clip,
    "Gemm": _gemm,
    "MatMul": lambda t, a, at: a[0] @ a[1],
    "Add": lambda t, a, at: a[0] + a[1],
    "Sub": lambda t, a, at: a[0] - a[1],
    "Mul": lambda t, a, at: a[0] * a[1],
    "Div": lambda t, a, at: a[0] / a[1] if a[0].is_floating_point() else t.div(a[0], a[1], rounding_mode="trunc"),
    "Neg": lambda t, a, at: -a[0],
    "Identity": lambda t, a, at: a[0],
    "Dropout": lambda t, a, at: a[0],
    "Flatten": lambda t, a, at: a[0].flatten(int(at.get("axis", 1))),
    "Reshape": _reshape,
    "Transpose": lambda t, a, at: a[0].permute(*at.get("perm", range(a[0].ndim)[::-1])),
    "Concat": lambda t, a, at: t.cat([b.to(a[0].dtype) for b in a], int(at["axis"])),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Pad": _pad,
    "Shape": lambda t, a, at: t.tensor(list(a[0].shape)),
    "Gather": _gather,
    "Constant": lambda t, a, at: None,
    "ConstantOfShape": _fill,
    "Expand": lambda t, a, at: a[0].expand(t.broadcast_shapes(a[0].shape, tuple(int(s) for s in a[1]))),
    "Cast": _cast,
    "ReduceMean": _reduce_mean,
    "BatchNormalization": _batch_norm,
    "Softmax": _softmax,
}
