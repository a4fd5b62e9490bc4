"""Intermediate values of an ONNX graph, through onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._extras import require
from reluscope._files import as_path, read_bytes
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits, started

Array = npt.NDArray[Any]

_PASSED = 4
"""Nodes without effect that may stand between a Softmax and the product with the values."""


class Taps:
    """A graph whose every node can be made an output.

    A node is called by its name or, without one, by the name of its first output. Files with weights elsewhere on
    disk are refused: only this one file is read.
    """

    def __init__(self, path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        onnx = require("onnx", "onnx")
        where, limits = as_path(path), started(limits)
        content = read_bytes(where, limits=limits)
        try:
            self.proto = onnx.ModelProto.FromString(content)
        except Exception as error:
            raise InputError(f"{where.name} is not an ONNX file") from error
        graph = self.proto.graph
        limits.check("nodes", len(graph.node), where.name)
        limits.check("tensors", len(graph.initializer), where.name)
        if any(n < 0 for t in graph.initializer for n in t.dims):
            raise InputError(f"{where.name} has a tensor with a negative dimension")
        # Two numbers of 4 bytes count as one of 8: nothing is converted here.
        limits.check("elements", sum(math.prod(t.dims) for t in graph.initializer) // 2, where.name)
        if any(t.data_location == onnx.TensorProto.EXTERNAL for t in graph.initializer):
            raise InputError(f"{where.name} keeps weights in other files; save it as one file")
        self.name = where.name
        self._sessions: dict[tuple[str, ...], Any] = {}
        self.converted: dict[Any, dict[str, Any]] = {}
        weights = {t.name for t in graph.initializer}
        inputs = [i for i in graph.input if i.name not in weights]
        if len(inputs) != 1:
            raise InputError(f"{where.name} takes {len(inputs)} inputs ({[i.name for i in inputs]}); one is expected")
        self.input_name = inputs[0].name
        dims = inputs[0].type.tensor_type.shape.dim
        self.input_shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims)
        self.output_name = graph.output[0].name
        self._tensor: dict[str, str] = {}
        kinds: list[tuple[str, str]] = []
        for node in graph.node:
            if node.op_type == "Constant" or not node.output:
                continue
            name = node.name or node.output[0]
            if name in self._tensor:
                name = node.output[0]
            self._tensor[name] = node.output[0]
            kinds.append((name, node.op_type))
        self.layers = tuple(kinds)

    def tensor(self, layer: str) -> str:
        """The graph's own name of a layer's value."""
        return self.output_name if layer == "output" else self._tensor.get(layer, layer)

    def kernel(self, layer: str) -> Array:
        """The weights of a convolution or matrix layer."""
        onnx = require("onnx", "onnx")
        stored = {t.name: t for t in self.proto.graph.initializer}
        for node in self.proto.graph.node:
            if node.output and node.output[0] == self.tensor(layer):
                for name in node.input[1:2]:
                    if name in stored:
                        return np.asarray(onnx.numpy_helper.to_array(stored[name]))
        raise InputError(f"layer {layer!r} of {self.name} has no weights")

    def attention_layers(self) -> tuple[str, ...]:
        """Softmax nodes, in order: the places where attention weights are made."""
        return tuple(name for name, kind in self.layers if kind == "Softmax")

    def attended(self, layer: str) -> tuple[str, str] | None:
        """The tensors of the values that a Softmax's weights are multiplied with, and of the product; None without."""
        name = self.tensor(layer)
        for _ in range(_PASSED):
            users = [node for node in self.proto.graph.node if name in node.input]
            for node in users:
                if node.op_type == "MatMul" and node.input[0] == name:
                    return node.input[1], node.output[0]
            onward = [node for node in users if node.op_type in ("Dropout", "Identity", "Cast")]
            if not onward:
                return None
            name = onward[0].output[0]
        return None

    def fitted(self, x: Array) -> Array:
        """`x` with the number of axes the graph takes, its batch axis kept."""
        shape = self.input_shape
        if len(shape) == x.ndim:
            return np.ascontiguousarray(x, dtype=np.float32)
        sides = [len(x), *(s or 1 for s in shape[1:])]
        if int(np.prod(sides[1:])) != int(np.prod(x.shape[1:])):
            raise InputError(f"{self.name} takes {shape}, which images of shape {x.shape[1:]} do not fill")
        return np.ascontiguousarray(x.reshape(sides), dtype=np.float32)

    def run(self, x: Array, layers: Sequence[str], *, batch: int = 64) -> dict[str, Array]:
        """Values at the named layers for inputs `x` with the batch in front."""
        wanted = tuple(dict.fromkeys(self.tensor(name) for name in layers))
        session = self._session(wanted)
        if self.input_shape and self.input_shape[0] is not None:
            batch = int(self.input_shape[0])
            if len(x) % batch:
                raise InputError(f"{self.name} takes batches of {batch}, and {len(x)} inputs do not divide into them")
        parts: dict[str, list[Array]] = {name: [] for name in wanted}
        for start in range(0, len(x), batch):
            values = session.run(list(wanted), {self.input_name: x[start : start + batch]})
            for name, value in zip(wanted, values, strict=True):
                parts[name].append(np.asarray(value))
        joined = {name: np.concatenate([np.atleast_1d(p) for p in pieces]) for name, pieces in parts.items()}
        return {layer: joined[self.tensor(layer)] for layer in layers}

    def _session(self, wanted: tuple[str, ...]) -> Any:
        if wanted not in self._sessions:
            onnx, ort = require("onnx", "onnx"), require("onnxruntime", "onnxruntime")
            proto = onnx.ModelProto()
            proto.CopyFrom(self.proto)
            known = {o.name for o in proto.graph.output}
            for name in wanted:
                if name not in known:
                    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 3
            self._sessions[wanted] = ort.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        return self._sessions[wanted]
