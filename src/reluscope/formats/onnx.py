"""ONNX files: reading a model into a layered network, and writing a network as a model.

Reading runs the graph once on affine expressions (`reluscope.formats.graph`): what does not depend on the input is
folded in numpy, affine nodes fold into each other, and each piecewise-linear node makes units. Files are not
trusted: sizes are checked first, data outside the file is refused unless allowed, only the operations below are
run, and nothing in a file is ever executed as code.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe
from reluscope._files import as_path, atomic_write, read_bytes
from reluscope._json import parse_json
from reluscope._lazy import late
from reluscope.activations import Activation
from reluscope.errors import InputError, InputLimitError, MissingExtraError, ReluscopeWarning, UnsupportedError
from reluscope.formats._onnx_ops import (
    ELEMENTWISE,
    FINAL,
    MOVES_ONLY,
    NESTED,
    ON_CONSTANTS,
    OPERATIONS,
    QUANTISED,
    Call,
    Value,
    one_line,
    short,
    stored_array,
    why_not,
)
from reluscope.formats._onnx_types import check_types
from reluscope.formats._rules import ONNX, Registered, call_rule, check_activation, compare_rules, said_of, warn_of
from reluscope.formats._terms import Shape
from reluscope.formats.graph import Comparison, GraphBuilder, Tensor
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Layer, Network, check_network
from reluscope.schema import Schema

_OLDEST_OPSET = 7
_SCHEMA = "reluscope.schema"
"""Key of the metadata that holds the schema."""
_MAX_MODEL_BYTES = (1 << 31) - (1 << 20)
"""protobuf cannot hold a message of 2 GiB."""


# -- reading -----------------------------------------------------------------------------------------------


def load_onnx(
    path_or_bytes: str | PathLike[str] | bytes,
    *,
    limits: Limits = DEFAULT_LIMITS,
    allow_external: bool = False,
    output: str | None = None,
) -> Network:
    """Read an ONNX model as a layered network.

    A dynamic batch axis, or one of length 1, is left out of `input_shape` and `output_shape`. A Softmax, LogSoftmax
    or Sigmoid at the very end is cut off with a `ReluscopeWarning`: the outputs are then logits. `output` names
    the output to keep when the model has several. `allow_external` admits weights in files beside the model, never
    outside its folder. Weights are converted to float64 exactly.

    The schema that `save_onnx` wrote is read back. Of other models' metadata, `feature_names` and `class_names` (a JSON
    list, or names with commas) name the inputs and the outputs where there are as many.

    Raises `UnsupportedError` naming the node when the model is not piecewise affine, `InputLimitError` when it is
    larger than `limits`, and `InputError` when the file is not a sound ONNX model.
    """
    limits = started(limits)
    data, folder, name = _read(path_or_bytes, limits)
    onnx = _import_onnx()
    model = _parse(onnx, data, name)
    del data
    graph = model.graph
    _check_names(model)
    _check_sizes(onnx, model, limits, folder if allow_external else None)
    opset = _operator_set(onnx, model)
    needed, target = _needed_nodes(graph, output)
    _check_operations(graph, needed)
    check_types(onnx, graph, opset, needed, lambda i: _where(graph, i), lambda: limits.check_time("the model"))
    run = _Run(onnx, graph, opset, needed, target, limits)
    _check_model(onnx, model, name)
    net = run.network(name or graph.name or "network")
    if run.added:
        warn_of(net, run.added)
        if not run.trusted and not any("cut off" in note for note in net.notes):
            _compare(onnx, model, net, target)
    return _with_metadata(net, model, limits)


def _registered(node: Any) -> Registered | None:
    """The user's rule for a node, if there is one."""
    return ONNX.get(node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}")


def _run_alone(onnx: Any, node: Any, opset: int, x: FloatArray) -> FloatArray:
    """One node of one operand, run by the onnx package."""
    late("onnx.reference")
    kind = onnx.TensorProto.FLOAT  # some operations know no other
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    del alone.input[:], alone.output[:]
    alone.input.append("x")
    alone.output.append("y")
    ends = [onnx.helper.make_tensor_value_info(n, kind, [len(x)]) for n in "xy"]
    graph = onnx.helper.make_graph([alone], "alone", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return np.asarray(onnx.reference.ReferenceEvaluator(model).run(None, {"x": x.astype(np.float32)})[0], np.float64)


def _compare(onnx: Any, model: Any, net: Network, target: str) -> None:
    """Refuse a network that the user's rules have led away from the model, which the onnx package runs."""
    late("onnx.reference")
    stored = {t.name for t in model.graph.initializer}
    info = next(v for v in model.graph.input if v.name not in stored)
    kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    try:
        machine = onnx.reference.ReferenceEvaluator(model)
    except Exception as error:
        raise UnsupportedError(
            f"{net.name} cannot be run to try the rules that were registered: {one_line(error)}"
        ) from error
    names = [o.name for o in model.graph.output]
    shape = (1, *net.input_shape) if len(info.type.tensor_type.shape.dim) > 1 else net.input_shape

    def run(x: FloatArray) -> FloatArray:
        given = x.reshape(shape).astype(kind)
        return np.asarray(machine.run(None, {info.name: given})[names.index(target)], np.float64).ravel()

    compare_rules(net, run)


def _with_metadata(net: Network, model: Any, limits: Limits) -> Network:
    """The network with what the file's metadata says about its numbers."""
    props = {p.key: p.value for p in model.metadata_props}
    if not all(isinstance(text, str) for pair in props.items() for text in pair):
        raise InputError("the model is damaged: its metadata is not UTF-8 text")
    if _SCHEMA in props:
        return net.with_schema(Schema.from_dict(parse_json(props[_SCHEMA], "the schema of the model", limits)))
    columns = _names_in(props, "feature_names", net.n_inputs, limits)
    outputs = _names_in(props, "class_names", net.n_outputs, limits)
    known: dict[str, Any] = {"columns": columns} if columns else {}
    if outputs:
        known |= {"outputs": outputs, "classes": outputs} if len(outputs) > 1 else {"outputs": outputs}
    return net.with_schema(**known) if known else net


def _names_in(props: dict[str, str], key: str, count: int, limits: Limits) -> tuple[str, ...]:
    """As many different names as there are numbers, or none: foreign metadata is a hint, never an error."""
    said = props.get(key, "").strip()
    limits.check("text_bytes", len(said), f"{key} of the model")
    found: Any = said.split(",")
    if said[:1] in ("[", "{"):
        try:
            found = parse_json(said, f"{key} of the model", limits)
        except InputError:
            return ()
        found = list(found.values()) if isinstance(found, dict) else found
    names = [str(v).strip() for v in found if isinstance(v, (str, int))] if isinstance(found, list) else []
    return tuple(names) if len(names) == count == len(set(names)) and all(names) else ()


def _read(source: str | PathLike[str] | bytes, limits: Limits) -> tuple[bytes, Path | None, str]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        limits.check("file_bytes", len(data), "the model")
        return data, None, ""
    path = as_path(source)
    return read_bytes(path, limits=limits), path.parent, path.stem


def _import_onnx() -> Any:
    try:
        for part in ("checker", "defs", "helper", "numpy_helper"):
            late(f"onnx.{part}")
        return late("onnx")
    except ImportError as error:
        raise MissingExtraError("ONNX files need the onnx package: pip install reluscope[onnx]") from error


def _parse(onnx: Any, data: bytes, name: str) -> Any:
    what = f"{name}.onnx" if name else "the data"
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf has several decoding errors, none of them ours
        raise InputError(f"{what} is not an ONNX model: {one_line(error)}") from error
    if not model.HasField("graph") or not model.graph.output:
        raise InputError(f"{what} is not an ONNX model: it holds no graph with an output ({len(data)} bytes)")
    return model


def _check_model(onnx: Any, model: Any, name: str) -> None:
    for out in model.graph.output:
        if out.type.HasField("tensor_type"):
            out.type.tensor_type.shape.SetInParent()  # some exporters leave it out; nothing here depends on it
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker raises its own ValidationError, and protobuf errors
        raise InputError(f"{name or 'the model'} is not a valid ONNX model: {one_line(error)}") from error


def _check_names(model: Any) -> None:
    """Refuse names that are not text: protobuf hands those over as bytes."""
    graph = model.graph
    names = [model.graph.name, *(o.domain for o in model.opset_import)]
    for node in graph.node:
        names += [node.op_type, node.domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute)]
    for tensor in (*graph.initializer, *(t.values for t in graph.sparse_initializer)):
        names += [tensor.name, *(text for e in tensor.external_data for text in (e.key, e.value))]
    for info in (*graph.input, *graph.output):
        names += [info.name, *(d.dim_param for d in info.type.tensor_type.shape.dim)]
    if not all(isinstance(n, str) for n in names):
        raise InputError("the model is damaged: it has a name that is not UTF-8 text")


def _tensors(onnx: Any, graph: Any) -> list[Any]:
    """Every tensor a graph stores (not those of nested graphs, which are refused)."""
    found = list(graph.initializer)
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                found.append(a.t)
            found.extend(a.tensors)
    return found


def _check_sizes(onnx: Any, model: Any, limits: Limits, folder: Path | None) -> None:
    graph = model.graph
    limits.check("nodes", len(graph.node), "the model")
    tensors = _tensors(onnx, graph)
    limits.check("tensors", len(tensors) + len(graph.sparse_initializer), "the model")
    elements = 0
    for t in [*tensors, *graph.sparse_initializer]:
        if any(n < 0 for n in t.dims):
            raise InputError(f"tensor {_name_of(t)} has a negative dimension: {list(t.dims)}")
        elements += math.prod(t.dims)
    limits.check("elements", elements, "the model")
    budget = limits.file_bytes
    for t in tensors:
        if t.data_location == onnx.TensorProto.EXTERNAL:
            budget -= _fetch_external(onnx, t, folder, budget)


def _name_of(tensor: Any) -> str:
    inner = getattr(tensor, "values", None)
    return short(getattr(tensor, "name", "") or getattr(inner, "name", "") or "without a name")


def _fetch_external(onnx: Any, tensor: Any, folder: Path | None, budget: int) -> int:
    """Put the bytes of external data into the tensor; only from a plain file inside `folder`."""
    what = f"tensor {_name_of(tensor)}"
    if folder is None:
        raise InputError(
            f"{what} keeps its data in another file; pass the model's path with allow_external=True if you trust it"
        )
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    relative = Path(location.replace("\\", "/"))
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts or ":" in location:
        raise InputError(f"{what} keeps its data in {short(location)}, which is not a file inside the model's folder")
    file = folder / relative
    inside = folder.resolve()
    if file.is_symlink() or not file.resolve().is_relative_to(inside) or not file.is_file():
        raise InputError(f"{what} keeps its data in {short(location)}, which is not a plain file in the model's folder")
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
    except ValueError:
        raise InputError(f"{what} has an offset or length of external data that is not a number") from None
    size = file.stat().st_size
    length = size - offset if length == -1 else length
    if offset < 0 or length < 0 or offset + length > size:
        raise InputError(f"{what} wants bytes {offset}..{offset + length} of {short(location)}, which has {size}")
    if length > budget:
        raise InputLimitError(
            f"{what} brings external data beyond the limit; pass limits=reluscope.Limits(file_bytes=...)"
        )
    with file.open("rb") as handle:
        handle.seek(offset)
        tensor.raw_data = handle.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
    return length


def _operator_set(onnx: Any, model: Any) -> int:
    if any(f.domain in ("", "ai.onnx") for f in model.functions):
        raise UnsupportedError("the model redefines standard ONNX operations; export it without functions")
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not versions:
        raise InputError("the model names no version of the ONNX operator set; export it again")
    if versions[0] < _OLDEST_OPSET:
        raise InputError(
            f"the model uses ONNX operator set {versions[0]}; {_OLDEST_OPSET} or later is needed "
            "(onnx.version_converter.convert_version can raise it)"
        )
    newest = onnx.defs.onnx_opset_version()
    if versions[0] > newest:
        raise InputError(
            f"the model uses ONNX operator set {versions[0]}, the installed onnx package knows up to {newest}; "
            "upgrade it or export for an older operator set"
        )
    return int(versions[0])


def _needed_nodes(graph: Any, output: str | None) -> tuple[list[int], str]:
    """Positions of the nodes that the wanted output depends on, in file order, and that output's name."""
    names = [o.name for o in graph.output]
    listed = ", ".join(short(n) for n in names[:10]) + (", ..." if len(names) > 10 else "")
    if output is None and len(names) > 1:
        raise InputError(f"the model has {len(names)} outputs ({listed}); choose one with output=...")
    if output is not None and output not in names:
        raise InputError(f"output must be one of the model's outputs ({listed}), got {describe(output)}")
    target = names[0] if output is None else output
    made_by = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    todo, seen = [target], set()
    while todo:
        i = made_by.get(todo.pop())
        if i is not None and i not in seen:
            seen.add(i)
            todo.extend(name for name in graph.node[i].input if name)
    return sorted(seen), target


def _check_operations(graph: Any, needed: Sequence[int]) -> None:
    """Refuse by name what no rule below can ever handle; what depends on the operands is refused later."""
    for i in needed:
        node = graph.node[i]
        if _registered(node) is not None:
            continue
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedError(
                f"{_where(graph, i)} is from the domain {short(node.domain)}, which is not standard ONNX"
            )
        if node.op_type.startswith(QUANTISED):
            raise UnsupportedError(
                f"{_where(graph, i)} is integer or quantised arithmetic; export the float model instead"
            )
        if node.op_type in NESTED:
            raise UnsupportedError(f"{_where(graph, i)} holds a nested graph; export the model without control flow")
        if not any(node.op_type in known for known in (OPERATIONS, ON_CONSTANTS, FINAL)):
            raise UnsupportedError(f"{_where(graph, i)} {why_not(node.op_type)}")


def _where(graph: Any, i: int) -> str:
    node = graph.node[i]
    name = f" {short(node.name)}" if node.name else ""
    made = next((o for o in node.output if o), "")
    return f"node {i + 1} of {len(graph.node)} ({short(node.op_type)[1:-1]}{name}, output {short(made)})"


# -- running the graph -------------------------------------------------------------------------------------


class _Run:
    """One pass over the needed nodes of a graph."""

    def __init__(self, onnx: Any, graph: Any, opset: int, needed: Sequence[int], target: str, limits: Limits) -> None:
        self.onnx = onnx
        self.graph = graph
        self.opset = opset
        self.needed = needed
        self.target = target
        self.limits = limits
        self.builder = GraphBuilder(limits)
        self.values: dict[str, Value] = {}
        self.held: dict[str, int] = {}
        self.total_held = 0
        self.notes: list[str] = []
        self.added: dict[str, str] = {}  # operations with a rule of the user's, and what is said of them
        self.trusted = False
        self.readers: dict[str, list[int]] = {}
        for i in needed:
            for name in dict.fromkeys(graph.node[i].input):
                if name:
                    self.readers.setdefault(name, []).append(i)
        self.stored = {t.name: t for t in graph.initializer}
        self.stored_sparse = {t.values.name: t for t in graph.sparse_initializer}
        self._take_input()

    def network(self, name: str) -> Network:
        wanted = {*self.readers, self.target}
        for key, tensor in self.stored.items():
            if key in wanted:
                self._keep(key, self._stored(tensor, key))
        for key, tensor in self.stored_sparse.items():
            if key in wanted:
                self._keep(key, self._stored_sparse(tensor, key))
        left = {key: len(nodes) for key, nodes in self.readers.items()}
        with np.errstate(all="ignore"):  # what overflows or divides by zero is refused as not finite below
            for i in self.needed:
                self._step(i)
                for key in dict.fromkeys(self.graph.node[i].input):
                    if key:
                        left[key] -= 1
                        if not left[key] and key != self.target:
                            self._forget(key)  # free the memory of what nobody reads any more
            return self._build(name)

    def _take_input(self) -> None:
        """Make the input and find out whether its first axis is a batch axis."""
        inputs = [v for v in self.graph.input if v.name not in self.stored and v.name not in self.stored_sparse]
        used = [v for v in inputs if v.name in self.readers or v.name == self.target]
        if len(used) != 1:
            names = ", ".join(short(v.name) for v in (used or inputs)[:10])
            if used:
                raise InputError(f"the model has {len(used)} inputs ({names}); Reluscope needs a model with one input")
            raise InputError(f"the output {short(self.target)} does not depend on any input of the model ({names})")
        if len(inputs) > 1:
            self.notes.append(f"{len(inputs) - 1} inputs that the output does not depend on were left out")
        shape = self._input_shape(used[0])
        self.values[used[0].name] = self.builder.input(shape)
        self.input_shape = shape[1:] if len(shape) > 1 else shape
        self.batched = len(shape) > 1

    def _input_shape(self, info: Any) -> Shape:
        what = f"input {short(info.name)}"
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise InputError(f"{what} has no shape in the file; export the model with a fixed input shape")
        floats = self.onnx.TensorProto
        if kind.elem_type not in (floats.FLOAT, floats.DOUBLE, floats.FLOAT16, floats.BFLOAT16):
            raise InputError(
                f"{what} must hold floating-point numbers, got ONNX element type {kind.elem_type}; "
                "export the model from after the conversion to float"
            )
        shape = [int(d.dim_value) if d.HasField("dim_value") else None for d in kind.shape.dim]
        if shape and shape[0] is None:
            shape[0] = 1
        if None in shape:
            dims = [d.dim_param or "?" if n is None else n for d, n in zip(kind.shape.dim, shape, strict=True)]
            raise InputError(
                f"{what} has shape {dims}: only the batch axis may be open; fix the others, for instance with "
                "onnx.tools.update_model_dims.update_inputs_outputs_dims"
            )
        fixed = tuple(n for n in shape if n is not None)
        if any(n < 1 for n in fixed):
            raise InputError(f"{what} has shape {list(fixed)}; every dimension must be at least 1")
        if len(fixed) > 1 and fixed[0] != 1:
            raise InputError(
                f"{what} has shape {list(fixed)}, a batch of {fixed[0]}; export the model with a batch axis of 1 "
                "or a dynamic one"
            )
        return fixed

    def _stored(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        bounds_only = all(self.graph.node[i].op_type in ("Clip", "Min", "Max") for i in self.readers.get(name, ()))
        return stored_array(self.onnx, tensor, f"tensor {short(name)}", infinite=bounds_only)

    def _stored_sparse(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        what = f"sparse tensor {short(name)}"
        values = stored_array(self.onnx, tensor.values, what)
        index = stored_array(self.onnx, tensor.indices, what).astype(np.int64)
        dims = tuple(tensor.dims)
        flat = index if index.ndim == 1 else _flat_index(index, dims, what)
        if values.ndim != 1 or len(flat) != len(values) or (flat < 0).any() or (flat >= math.prod(dims)).any():
            raise InputError(f"{what} has indices that do not fit its {len(values)} values or shape {list(dims)}")
        dense = np.zeros(math.prod(dims), dtype=values.dtype)
        dense[flat] = values
        return dense.reshape(dims)

    def _step(self, i: int) -> None:
        node = self.graph.node[i]
        where = _where(self.graph, i)
        inputs: list[Value | None] = []
        for name in node.input:
            if name and name not in self.values:
                raise InputError(f"{where} reads {short(name)}, which nothing before it computes")
            inputs.append(self.values[name] if name else None)
        self.builder.at(node.name or next((o for o in node.output if o), node.op_type), node.op_type)
        call = Call(self.onnx, self.builder, self.opset, self.limits, node, where, inputs)
        try:
            made = self._apply(call, i)
            results = made if isinstance(made, list) else [made]
        except UnsupportedError:
            raise
        except InputLimitError as error:
            raise InputLimitError(f"{where}: {error}") from error
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # A node whose operands or attributes do not fit each other: numpy says what is wrong.
            raise InputError(f"{where} does not fit its operands: {one_line(error)}") from error
        except MemoryError as error:
            raise InputLimitError(f"{where} needs more memory than there is") from error
        for name, value in zip(node.output, results, strict=False):
            if isinstance(value, Tensor) and value.value is not None:
                value = value.value
            if name in self.readers or name == self.target:
                self._keep(name, value)
        for name in node.output[len(results) :]:
            if name and (name in self.readers or name == self.target):
                raise UnsupportedError(f"{where}: its output {short(name)} is used, which is not supported")

    def _keep(self, name: str, value: Value) -> None:
        """Store a value; the constants that are alive count together (a view counts as what it looks at)."""
        self.values[name] = value
        if isinstance(value, np.ndarray):
            self.held[name] = max(value.size, getattr(value.base, "size", 0))
            self.total_held += self.held[name]
            self.limits.check("elements", self.total_held, "the model, with the constants it computes,")

    def _forget(self, name: str) -> None:
        self.values.pop(name, None)
        self.total_held -= self.held.pop(name, 0)

    def _apply(self, call: Call, i: int) -> Value | list[Value]:
        arrays = [v for v in call.inputs if isinstance(v, np.ndarray)]
        constant = not any(isinstance(v, (Tensor, Comparison)) for v in call.inputs)
        if constant and (call.op in ON_CONSTANTS or call.op in ELEMENTWISE):
            size = math.prod(np.broadcast_shapes(*(a.shape for a in arrays)))
            self.limits.check("elements", size, "its result")
        if constant and call.op in ON_CONSTANTS:
            return np.asarray(ON_CONSTANTS[call.op](*arrays))
        mine = _registered(self.graph.node[i])
        if mine is not None and not constant:
            return self._by_rule(call, self.graph.node[i], mine)
        if call.op in FINAL and self._is_last(i):
            text = f"final {call.op} cut off: outputs are logits"
            warnings.warn(f"{call.where}: {text}", ReluscopeWarning, stacklevel=5)
            self.notes.append(text)
            return call.value(0)
        if call.op not in OPERATIONS:
            raise UnsupportedError(f"{call.where} {why_not(call.op)}")
        if call.op not in ("Where", "Not") and any(isinstance(v, Comparison) for v in call.inputs):
            raise call.not_affine("it reads truth values of numbers that depend on the input, which jump")
        return OPERATIONS[call.op](call)

    def _by_rule(self, call: Call, node: Any, mine: Registered) -> Value | list[Value]:
        """A node by a rule of the user's: compared with the node itself where that can be run."""
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        foreign = name != node.op_type
        self.trusted |= foreign
        if isinstance(mine.rule, Activation) and not foreign:
            check_activation(mine, lambda x: _run_alone(self.onnx, node, self.opset, x), call.where)
        made = call_rule(mine, self.builder, call.inputs, call.attributes(), call.where)
        self.added[name] = said_of(name, mine, checked=not foreign)
        return made

    def _is_last(self, i: int) -> bool:
        """Whether only nodes that move entries lie between node i and the output."""
        todo, seen = [i], {i}
        while todo:
            for name in self.graph.node[todo.pop()].output:
                for reader in self.readers.get(name, ()):
                    if self.graph.node[reader].op_type not in MOVES_ONLY:
                        return False
                    if reader not in seen:
                        seen.add(reader)
                        todo.append(reader)
        return True

    def _build(self, name: str) -> Network:
        if self.target not in self.values:
            raise InputError(f"the output {short(self.target)} is computed by no node")
        out = self.values[self.target]
        if isinstance(out, Comparison):
            raise UnsupportedError(f"the output {short(self.target)} is a truth value, which jumps")
        shape = tuple(out.shape)
        if self.batched and len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        notes = [*self.notes, *self.added.values()]
        net = self.builder.build(
            out, name=name, input_shape=self.input_shape or (1,), output_shape=shape or (1,), notes=notes
        )
        folded = f"{len(self.needed)} nodes folded into {len(net.layers)} affine layers"
        return Network(
            net.layers,
            input_shape=net.input_shape,
            output_shape=net.output_shape,
            name=name,
            notes=(folded, *net.notes),
        ).approximating(net.approximation)


def _flat_index(index: npt.NDArray[np.int64], dims: Shape, what: str) -> npt.NDArray[np.int64]:
    if index.ndim != 2 or index.shape[1] != len(dims):
        raise InputError(f"{what} has indices of shape {index.shape} for {len(dims)} axes")
    if (index < 0).any() or (index >= np.array(dims)).any():
        raise InputError(f"{what} has indices outside its shape {list(dims)}")
    return np.ravel_multi_index(tuple(index.T), dims).astype(np.int64)


# -- writing -----------------------------------------------------------------------------------------------


def save_onnx(
    net: Network, path: str | PathLike[str], dtype: str = "float64", *, limits: Limits = DEFAULT_LIMITS
) -> None:
    """Write the network as an ONNX model with the input `input` (batch, *input_shape) and the output `output`.

    One Gemm per layer. A layer whose units are all alike becomes Relu, LeakyRelu or Clip; any other is written as
    `s_0 h + c_0 + sum_k (s_k - s_{k-1}) relu(h - t_k)`. With `dtype="float64"` the model computes the same function
    up to rounding; `"float32"` rounds the weights. Sparse weights are written dense, up to `limits.elements`
    numbers in all. A schema goes into the metadata. The file appears whole or not at all.
    """
    check_network(net)
    kind = np.dtype(choice(dtype, "dtype", ("float64", "float32")))
    elements = sum(layer.width * (layer.n_inputs + 1) for layer in net.layers)
    if elements > limits.elements or elements * kind.itemsize > _MAX_MODEL_BYTES:
        raise InputLimitError(
            f"the network has {elements:,} weights when written dense, too many for an ONNX file; save it as .npz"
        )
    onnx = _import_onnx()
    data = _Writer(onnx, kind).model(net).SerializeToString()
    with atomic_write(path) as handle:
        handle.write(data)


class _Writer:
    """Nodes and tensors of the model that is being written."""

    def __init__(self, onnx: Any, kind: np.dtype[Any]) -> None:
        self.onnx = onnx
        self.kind = kind
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def model(self, net: Network) -> Any:
        helper = self.onnx.helper
        element = helper.np_dtype_to_tensor_dtype(self.kind)
        value = "input"
        if len(net.input_shape) > 1:
            value = self.node("Flatten", [value], "flat", axis=1)
        for i, layer in enumerate(net.layers):
            value = self.layer(value, layer, f"layer{i + 1}")
        shape = ["batch", *net.output_shape]
        if len(net.output_shape) != 1:
            wanted = self.constant("output_shape", np.array([-1, *net.output_shape], dtype=np.int64))
            value = self.node("Reshape", [value, wanted], "shaped")
        self.node("Identity", [value], "output")
        graph = helper.make_graph(
            self.nodes,
            net.name or "network",
            [helper.make_tensor_value_info("input", element, ["batch", *net.input_shape])],
            [helper.make_tensor_value_info("output", element, shape)],
            self.tensors,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="reluscope"
        )
        if net.schema is not None:
            helper.set_model_props(model, {_SCHEMA: json.dumps(net.schema.to_dict())})
        self.onnx.checker.check_model(model)
        return model

    def layer(self, value: str, layer: Layer, name: str) -> str:
        weight = self.numbers(f"{name}_weight", layer.dense())
        bias = self.numbers(f"{name}_bias", layer.bias)
        h = self.node("Gemm", [value, weight, bias], f"{name}_affine", transB=1)
        units = layer.units
        if units.is_identity:
            return h
        if units.is_relu:
            return self.node("Relu", [h], f"{name}_relu")
        slopes, breaks, shifts = units.slopes, units.breaks, units.intercepts
        alike = bool((slopes == slopes[0]).all() and (breaks == breaks[0]).all() and (shifts == shifts[0]).all())
        if alike and breaks[0].tolist() == [0.0] and slopes[0, 1] == 1.0 and self.kind == np.float32:
            # onnxruntime has no double LeakyRelu; in float64 the general form below serves.
            return self.node("LeakyRelu", [h], f"{name}_leaky", alpha=float(slopes[0, 0]))
        if alike and slopes[0].tolist() == [0.0, 1.0, 0.0] and shifts[0, 1] == 0.0:
            ends = [self.numbers(f"{name}_{end}", breaks[0, k]) for k, end in enumerate(("low", "high"))]
            return self.node("Clip", [h, *ends], f"{name}_clip")
        return self.general(h, slopes, breaks, shifts[:, 0], name)

    def general(self, h: str, slopes: FloatArray, breaks: FloatArray, shift: FloatArray, name: str) -> str:
        """`s_0 h + c_0 + sum_k (s_k - s_{k-1}) relu(h - t_k)`, one vector of each per layer."""
        total = self.node("Mul", [h, self.numbers(f"{name}_slope", slopes[:, 0])], f"{name}_first")
        if shift.any():
            total = self.node("Add", [total, self.numbers(f"{name}_shift", shift)], f"{name}_shifted")
        for k in range(breaks.shape[1]):
            bend = slopes[:, k + 1] - slopes[:, k]  # 0 for the padding of units with fewer pieces
            at = np.where(np.isfinite(breaks[:, k]), breaks[:, k], 0.0)
            above = h
            if at.any():
                above = self.node("Sub", [h, self.numbers(f"{name}_break{k}", at)], f"{name}_above{k}")
            on = self.node("Relu", [above], f"{name}_relu{k}")
            bent = self.node("Mul", [on, self.numbers(f"{name}_bend{k}", bend)], f"{name}_bent{k}")
            total = self.node("Add", [total, bent], f"{name}_sum{k}")
        return total

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def numbers(self, name: str, values: npt.ArrayLike) -> str:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype=np.float64).astype(self.kind)
        if not np.isfinite(array).all():
            raise InputError(f"{name} has a number that {self.kind} cannot hold; save with dtype='float64'")
        return self.constant(name, array)

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self.tensors.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name
