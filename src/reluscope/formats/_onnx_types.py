"""Element types of an ONNX graph: a node whose operands have types that ONNX does not let it have is refused.

The rules that run the graph work in float64 whatever the types are, so a graph that mixes them would be read here and
refused by every runtime. The signatures come from the onnx package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reluscope.errors import InputError
from reluscope.formats._onnx_ops import short


def check_types(
    onnx: Any,
    graph: Any,
    opset: int,
    needed: Sequence[int],
    where: Callable[[int], str],
    check_time: Callable[[], None],
) -> None:
    """Follow the types from the inputs and stored tensors through the needed nodes."""
    names = onnx.TensorProto.DataType
    known: dict[str, str] = {}
    for info in graph.input:
        known[info.name] = _called(names, info.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        known[tensor.name] = _called(names, tensor.data_type)
    for stored in graph.sparse_initializer:
        known[stored.values.name] = _called(names, stored.values.data_type)
    schemas: dict[str, Any] = {}
    for i in needed:
        check_time()
        node = graph.node[i]
        if node.domain not in ("", "ai.onnx"):
            continue  # by a rule of the user's; what it gives has no type here
        if node.op_type not in schemas:
            try:
                schemas[node.op_type] = onnx.defs.get_schema(node.op_type, opset, "")
            except onnx.defs.SchemaError as error:
                raise InputError(f"{where(i)} does not exist in ONNX operator set {opset}") from error
        schema = schemas[node.op_type]
        bound: dict[str, str] = {}
        for k, name in enumerate(node.input):
            kind = known.get(name, "")
            if not kind or not schema.inputs:
                continue
            formal = schema.inputs[min(k, len(schema.inputs) - 1)]
            if kind not in formal.types:
                raise InputError(f"{where(i)} has {short(name)} of type {kind}, which ONNX does not allow there")
            other = bound.setdefault(formal.type_str, kind) if formal.is_homogeneous else kind
            if other != kind:
                raise InputError(f"{where(i)} mixes the types {other} and {kind}; convert them with Cast first")
        for k, name in enumerate(node.output):
            if name and schema.outputs:
                known[name] = _made(names, node, schema.outputs[min(k, len(schema.outputs) - 1)], bound)


def _called(names: Any, number: int) -> str:
    """The name of an element type as signatures have it; nothing for one that is not known."""
    return f"tensor({names.Name(number).lower()})" if number in names.values() and number else ""


def _made(names: Any, node: Any, formal: Any, bound: dict[str, str]) -> str:
    """The type of an output: bound by the operands, said by an attribute, or the only one that there is."""
    if formal.type_str in bound:
        return bound[formal.type_str]
    if len(formal.types) == 1:
        return str(next(iter(formal.types)))
    given = {a.name: a for a in node.attribute}
    if node.op_type == "Cast" and "to" in given:
        return _called(names, given["to"].i)
    if node.op_type in ("Constant", "ConstantOfShape"):
        if "value" in given:
            return _called(names, given["value"].t.data_type)
        whole = "value_int" in given or "value_ints" in given
        return "tensor(int64)" if whole else "" if "value_string" in given else "tensor(float)"
    return ""
