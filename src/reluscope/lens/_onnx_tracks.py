"""Following receptive fields through an ONNX graph, without running it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._extras import require
from reluscope.errors import InputError
from reluscope.lens._tracks import Span, Track

if TYPE_CHECKING:
    from reluscope.lens.models import OnnxModel

_NORMS = {"InstanceNormalization", "GroupNormalization", "LayerNormalization"}
_REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"}
_ELEMENTWISE = frozenset(
    {
        "Relu",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Exp",
        "Log",
        "Sqrt",
        "Abs",
        "Neg",
        "Identity",
        "Dropout",
        "Cast",
        "Pow",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Min",
        "Max",
        "Sum",
        "Mean",
        "BatchNormalization",
        "HardSigmoid",
        "HardSwish",
        "Softplus",
        "Gelu",
        "Mish",
        "Where",
    }
)


def onnx_tracks(model: OnnxModel) -> dict[str, Track]:
    """Tracks of all nodes that depend on the image, by layer name."""
    onnx = require("onnx", "onnx")
    taps, graph = model.taps, model.taps.proto.graph
    layout = model.preparation.layout
    if layout == "flat" or len(taps.input_shape) != 4:
        raise InputError(f"{model.label} takes flat vectors, so its units have no receptive fields on an image")
    start = (None, None, Span(0), Span(1)) if layout == "NCHW" else (None, Span(0), Span(1), None)
    tracks: dict[str, Track] = {taps.input_name: Track(start)}
    shapes = _shapes(onnx, model)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                constants[node.output[0]] = onnx.numpy_helper.to_array(value)
    for node in graph.node:
        sources = [name for name in node.input if name in tracks]
        if not sources or node.op_type == "Shape":
            continue
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name in node.output:
            tracks[name] = _after(node, sources, tracks, attributes, constants, shapes, name)
    found = {name: tracks[taps.tensor(name)] for name, _ in taps.layers if taps.tensor(name) in tracks}
    if taps.output_name in tracks:
        found["output"] = tracks[taps.output_name]
    return found


def _after(
    node: Any,
    sources: list[str],
    tracks: dict[str, Track],
    attributes: dict[str, Any],
    constants: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    out: str,
) -> Track:
    kind, first = node.op_type, sources[0]
    track = tracks[first]
    n = len(track.spans)
    if kind in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"):
        kernel = attributes.get("kernel_shape")
        if kernel is None:
            kernel = constants[node.input[1]].shape[2:]
        return _windows(track, kernel, attributes, shapes.get(first), kind == "ConvTranspose")
    if kind in ("GlobalAveragePool", "GlobalMaxPool"):
        return track.mix(range(2, n))
    if kind in _NORMS:
        return track.with_norm(kind)
    if kind in _ELEMENTWISE:
        count = max(len(tracks[s].spans) for s in sources)
        joined = Track((None,) * count)
        for source in sources:
            joined = joined.join(tracks[source], count)
        return joined
    if kind == "Transpose":
        return track.permuted([int(i) for i in attributes.get("perm", range(n)[::-1])])
    if kind == "Pad":
        pads = attributes.get("pads")
        pads = constants.get(node.input[1]) if pads is None and len(node.input) > 1 else pads
        if pads is not None:
            for axis in range(n):
                track = track.shifted(axis, -int(pads[axis]))
            return track
    if kind == "Concat":
        joined = track
        for source in sources[1:]:
            joined = joined.join(tracks[source], n)
        axis = int(attributes.get("axis", 1)) % n
        return joined if joined.spans[axis] is None else joined.mix([axis])
    if kind in ("Gemm", "MatMul"):
        joined_axes = len(shapes.get(out, ())) or n
        joined = Track((None,) * joined_axes)
        for source in sources:
            t = tracks[source]
            mixed = t.mix([len(t.spans) - 1]) if source == node.input[0] else t.mix(range(len(t.spans)))
            same = len(mixed.spans) == joined_axes and len(sources) == 1
            joined = joined.join(mixed if same else mixed.mix(range(len(mixed.spans))), joined_axes)
        return joined
    if kind in _REDUCTIONS:
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1:
            axes = constants.get(node.input[1])
        dims = range(n) if axes is None else [int(a) % n for a in np.atleast_1d(axes)]
        return track.mix(dims, keep=bool(attributes.get("keepdims", 1)))
    if kind in ("Softmax", "LogSoftmax"):
        axis = int(attributes.get("axis", -1)) % n
        return track if track.spans[axis] is None else track.mix([axis])
    if kind in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and first in shapes and out in shapes:
        return track.reshaped(shapes[first], shapes[out])
    if kind in ("Upsample", "Resize") and first in shapes and out in shapes:
        reach = {"nearest": 0, "cubic": 2}.get(str(attributes.get("mode", b"nearest"), "ascii"), 1)
        for axis in range(2, n):
            track = track.resampled(axis, Fraction(shapes[out][axis], shapes[first][axis]), reach)
        return track
    return track.not_understood(kind, len(shapes.get(out, ())) or n)


def _windows(
    track: Track, kernel: Any, attributes: dict[str, Any], shape: tuple[int, ...] | None, transposed: bool
) -> Track:
    count = len(kernel)
    strides = attributes.get("strides", [1] * count)
    dilations = attributes.get("dilations", [1] * count)
    pads = attributes.get("pads", [0] * (2 * count))
    rule = str(attributes.get("auto_pad", b"NOTSET"), "ascii")
    for k in range(count):
        axis = len(track.spans) - count + k
        before = int(pads[k])
        if rule.startswith("SAME"):
            if shape is None:
                return track.not_understood("auto_pad without a known size", len(track.spans))
            reach = dilations[k] * (kernel[k] - 1) + 1
            total = max((-(-shape[axis] // strides[k]) - 1) * strides[k] + reach - shape[axis], 0)
            before = total // 2 if rule == "SAME_UPPER" else total - total // 2
        track = track.window(axis, int(kernel[k]), int(strides[k]), before, int(dilations[k]), transposed)
    return track


def _shapes(onnx: Any, model: OnnxModel) -> dict[str, tuple[int, ...]]:
    """Shapes of intermediate tensors for one image, where they can be inferred (an unknown batch counts as 1)."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.taps.proto)
    for given in proto.graph.input:
        if given.name == model.taps.input_name:
            for dim in given.type.tensor_type.shape.dim:
                if not dim.dim_value:
                    dim.dim_value = 1
    known: dict[str, tuple[int, ...]] = {}
    inferred = onnx.shape_inference.infer_shapes(proto)
    for info in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output):
        sides = [d.dim_value if d.HasField("dim_value") else 0 for d in info.type.tensor_type.shape.dim]
        if sides and all(sides[1:]):
            known[info.name] = (sides[0] or 1, *sides[1:])
    return known
