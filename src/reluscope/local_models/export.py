"""Merged models as code that needs nothing of this library: plain Python, SQL, ONNX.

All three do what `MergedModels.outputs` does. The hidden layers are evaluated and each unit's break points give bits.
The bits are looked up among the known patterns, which gives the cluster; a row of a pattern that is not known goes to
the cluster of the nearest centroid (each input divided by its spread). The cluster's linear model gives the outputs.
"""

# ruff: noqa: S608 - the query is the product: names and levels in it are quoted, numbers are written by `repr`.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, text
from reluscope._extras import require
from reluscope._files import as_path, atomic_write
from reluscope.errors import InputError
from reluscope.local_models._data import result_names
from reluscope.local_models._grouping import unpack
from reluscope.schema import Column

if TYPE_CHECKING:
    from reluscope.local_models.merged import MergedModels

_MOST_NUMBERS = 5_000_000
"""Bits and coefficients that are written as text, at most."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """`h = W z + b`; bits `h[unit] > at`; `z = slope h + intercept + sum of step relu(h[unit] - at)`."""

    W: FloatArray
    b: FloatArray
    slope: FloatArray
    intercept: FloatArray
    unit: npt.NDArray[np.int64]
    at: FloatArray
    step: FloatArray


@dataclass(frozen=True, eq=False)
class _Gate:
    """What sends a row to a cluster: hidden layers, and the bits of known patterns with their owners."""

    layers: list[_Layer]
    bits: npt.NDArray[np.uint8]
    owner: npt.NDArray[np.int64]


def _gate(m: MergedModels) -> _Gate:
    layers, columns = [], []
    pattern = unpack(m.network, m.words)
    start = 0
    for layer in m.network.hidden:
        units = layer.units
        unit, k = np.nonzero(np.isfinite(units.breaks))
        layers.append(
            _Layer(
                layer.dense(), layer.bias, units.slopes[:, 0], units.intercepts[:, 0], unit.astype(np.int64),
                units.breaks[unit, k], units.slopes[unit, k + 1] - units.slopes[unit, k],
            )
        )  # fmt: skip
        columns.append(pattern[:, start + unit] > k)
        start += layer.width
    bits = np.concatenate(columns, axis=1).astype(np.uint8) if columns else np.zeros((len(pattern), 0), dtype=np.uint8)
    size = bits.size + m.centroid.size + m.C.size
    if size > _MOST_NUMBERS:
        raise InputError(
            f"these models have {size:,} bits and numbers in their gate, more than {_MOST_NUMBERS:,}; merge after "
            "training with an L1 penalty, which leaves fewer regions"
        )
    return _Gate(layers, bits, m.owner)


def _columns(m: MergedModels) -> tuple[Column, ...]:
    """The columns that rows have, in order; those of the schema, else one per input."""
    schema = m.network.schema
    return schema.columns if schema is not None and schema.columns else tuple(Column(n) for n in m.feature_names)


# -- Python --------------------------------------------------------------------------------------------------------

_PYTHON = '''"""{title}

Rows are dictionaries of columns: {names}.
"""

import math

COLUMNS = {columns!r}
"""(name, scale, shift, levels, codes, unknown, fill): the input is scale * value + shift, or the code of the level, or
that of unknown levels (None: they are refused); fill stands for a missing entry (None: refused)."""
LAYERS = {layers!r}
"""(W, b, slope, intercept, breaks) per hidden layer; breaks are (unit, at, step)."""
CLUSTER_OF = {owners!r}
"""The cluster of each known pattern of bits."""
CENTROIDS, CLUSTER_OF_CENTROID, SPREAD = {centroids!r}, {near!r}, {spread!r}
COEFFICIENTS, INTERCEPTS = {C!r}, {d!r}
CLASSES = {classes!r}


def inputs(row):
    """A row as the numbers of the model."""
    x = []
    for name, scale, shift, levels, codes, unknown, fill in COLUMNS:
        value = fill if row[name] is None and fill is not None else row[name]
        if codes is None:
            if value is None:
                raise ValueError("column %r has a missing entry" % name)
            x.append(scale * float(value) + shift)
        elif value in levels:
            x.extend(codes[levels.index(value)])
        elif unknown is not None:
            x.extend(unknown)
        else:
            raise ValueError("column %r has the unknown level %r; its levels are %r" % (name, value, levels))
    return x


def cluster(row):
    """The number of the row's cluster."""
    x = inputs(row)
    z, bits = x, []
    for W, b, slope, intercept, breaks in LAYERS:
        h = [math.fsum(w * v for w, v in zip(line, z)) + c for line, c in zip(W, b)]
        z = [s * v + i for s, v, i in zip(slope, h, intercept)]
        for unit, at, step in breaks:
            bits.append("1" if h[unit] > at else "0")
            if h[unit] > at:
                z[unit] += step * (h[unit] - at)
    known = CLUSTER_OF.get("".join(bits))
    if known is not None:
        return known
    far = [math.fsum(((v - c) / s) ** 2 for v, c, s in zip(x, centre, SPREAD)) for centre in CENTROIDS]
    return CLUSTER_OF_CENTROID[far.index(min(far))]


def outputs(row):
    """The model's outputs: logits for classes."""
    x, k = inputs(row), cluster(row)
    return [math.fsum(w * v for w, v in zip(C, x)) + d for C, d in zip(COEFFICIENTS[k], INTERCEPTS[k])]


def probability(row):
    """Probability of the last class (two classes), or of each class."""
    eta = outputs(row)
    if len(eta) == 1:
        return 1.0 / (1.0 + math.exp(-eta[0])) if eta[0] >= 0 else math.exp(eta[0]) / (1.0 + math.exp(eta[0]))
    top = max(eta)
    parts = [math.exp(v - top) for v in eta]
    return [p / sum(parts) for p in parts]
'''


def to_python(m: MergedModels) -> str:
    """The models as a Python module that imports nothing but `math`."""
    gate = _gate(m)
    columns = [
        (
            c.name, c.scale, c.shift, list(c.levels) or None, [list(r) for r in c.codes] or None,
            None if c.unknown is None else list(c.unknown), c.fill,
        )
        for c in _columns(m)
    ]  # fmt: skip
    layers = [
        (
            a.W.tolist(), a.b.tolist(), a.slope.tolist(), a.intercept.tolist(),
            list(zip(a.unit.tolist(), a.at.tolist(), a.step.tolist(), strict=True)),
        )
        for a in gate.layers
    ]  # fmt: skip
    owners = {_word(bits): int(k) for bits, k in zip(gate.bits, gate.owner.tolist(), strict=True)}
    return _PYTHON.format(
        title=_title(m), names=", ".join(c.name for c in _columns(m)).replace('"', "'").replace("\\", "/"),
        columns=columns, layers=layers, owners=owners, centroids=m.centroid.tolist(),
        near=m.cluster_of_centroid.tolist(), spread=m.spread.tolist(), C=m.C.tolist(), d=m.d.tolist(),
        classes=[c.item() if isinstance(c, np.generic) else c for c in m.classes],
    )  # fmt: skip


def _word(bits: npt.NDArray[np.uint8]) -> str:
    return "".join("1" if b else "0" for b in bits)


def _title(m: MergedModels) -> str:
    return f"{len(m)} linear models ({m.task}) of {len(m.owner):,} regions, written by reluscope."


# -- SQL -----------------------------------------------------------------------------------------------------------


def to_sql(m: MergedModels, table: str, key: str) -> str:
    """The models as one query: `key`, the cluster and the named outputs of every row of `table`."""
    text(table, "table")
    text(key, "key")
    gate = _gate(m)
    outputs = m.C.shape[1]
    ids = _name(key)
    names: list[str] = [f"x{j}" for j in range(m.network.n_inputs)]
    parts = [f"rows_in AS (SELECT {ids} AS row_key, {', '.join(_sql_inputs(m))} FROM {_name(table)})"]
    before, last = "rows_in", names
    bits = []
    for k, layer in enumerate(gate.layers):
        h = [f"{_sql_sum(w, last, b)} AS h{k}_{i}" for i, (w, b) in enumerate(zip(layer.W, layer.b, strict=True))]
        parts.append(f"h_{k} AS (SELECT *, {', '.join(h)} FROM {before})")
        terms = [
            [f"{_number(s)} * h{k}_{i} + {_number(c)}"] if s or c else []
            for i, (s, c) in enumerate(zip(layer.slope.tolist(), layer.intercept.tolist(), strict=True))
        ]
        for unit, at, step in zip(layer.unit.tolist(), layer.at.tolist(), layer.step.tolist(), strict=True):
            over = f"h{k}_{unit} > {_number(at)}"
            bits.append(f"CASE WHEN {over} THEN '1' ELSE '0' END")
            gain = f"{_number(step)} * (h{k}_{unit} - {_number(at)})" if (step, at) != (1.0, 0.0) else f"h{k}_{unit}"
            terms[unit].append(f"CASE WHEN {over} THEN {gain} ELSE 0.0 END")
        z = [f"{' + '.join(t) or '0.0'} AS z{k}_{i}" for i, t in enumerate(terms)]
        parts.append(f"z_{k} AS (SELECT *, {', '.join(z)} FROM h_{k})")
        before, last = f"z_{k}", [f"z{k}_{i}" for i in range(len(terms))]
    parts.append(f"coded AS (SELECT *, {' || '.join(bits) or chr(39) * 2} AS bits FROM {before})")
    known = ", ".join(f"('{_word(b)}', {k})" for b, k in zip(gate.bits, gate.owner.tolist(), strict=True))
    parts.append(f"patterns(bits, cluster) AS (VALUES {known})")
    centres = ", ".join(
        f"({i}, {k}, {', '.join(_number(v) for v in c)})"
        for i, (c, k) in enumerate(zip(m.centroid.tolist(), m.cluster_of_centroid.tolist(), strict=True))
    )
    parts.append(f"centres(number, cluster, {', '.join(f'c{j}' for j in range(len(names)))}) AS (VALUES {centres})")
    far = " + ".join(
        f"((coded.x{j} - c{j}) / {_number(s)}) * ((coded.x{j} - c{j}) / {_number(s)})"
        for j, s in enumerate(m.spread.tolist())
    )
    parts += [
        "known AS (SELECT coded.*, patterns.cluster AS by_pattern FROM coded LEFT JOIN patterns "
        "ON patterns.bits = coded.bits)",
        f"ranked AS (SELECT coded.row_key AS lost_key, centres.cluster AS by_centre, ROW_NUMBER() OVER (PARTITION BY "
        f"coded.row_key ORDER BY {far}, centres.number) AS place FROM known AS coded CROSS JOIN centres "
        "WHERE coded.by_pattern IS NULL)",
        "assigned AS (SELECT known.*, COALESCE(by_pattern, by_centre) AS cluster FROM known LEFT JOIN ranked "
        "ON ranked.lost_key = known.row_key AND ranked.place = 1)",
    ]
    cases = []
    for o in range(outputs):
        when = " ".join(f"WHEN {k} THEN {_sql_sum(m.C[k, o], names, float(m.d[k, o]))}" for k in range(len(m)))
        cases.append(f"CASE cluster {when} END AS output{o}")
    # A sum is NULL where an input is: a row with an unknown level or a missing entry has no cluster either.
    parts.append(
        f"scored AS (SELECT row_key, CASE WHEN {' + '.join(names)} IS NULL THEN NULL ELSE cluster END AS cluster, "
        f"{', '.join(cases)} FROM assigned)"
    )
    body = ",\n".join(parts)
    return (
        f"-- {_title(m)}\n-- Rows with an unknown level or a missing entry that the model cannot take have NULL for "
        f"cluster and outputs.\nWITH {body}\nSELECT row_key, cluster, {', '.join(_sql_outputs(m))} FROM scored\n"
    )


def _sql_outputs(m: MergedModels) -> list[str]:
    """The outputs by name: logits and probabilities of classes, else as the schema calls them."""
    outputs = m.C.shape[1]
    if m.task == "binary":
        small = "CASE WHEN ABS(output0) > 700 THEN 0.0 ELSE EXP(-ABS(output0)) END"  # an EXP may overflow, or underflow
        chance = f"CASE WHEN output0 > 0 THEN 1.0 ELSE {small} END / (1.0 + {small})"
        label = m.classes[1]
        return [f"output0 AS {_name(f'logit of {label}')}", f"{chance} AS {_name(f'probability of {label}')}"]
    if m.task == "multiclass":
        top = "output0"
        for o in range(1, outputs):
            top = f"CASE WHEN output{o} > {top} THEN output{o} ELSE {top} END"
        each = [
            f"CASE WHEN output{o} - ({top}) < -700 THEN 0.0 ELSE EXP(output{o} - ({top})) END" for o in range(outputs)
        ]
        total = " + ".join(each)
        logits = [f"output{o} AS {_name(f'logit of {label}')}" for o, label in enumerate(m.classes)]
        chances = [
            f"({part}) / ({total}) AS {_name(f'probability of {label}')}"
            for part, label in zip(each, m.classes, strict=True)
        ]
        return logits + chances
    return [f"output{o} AS {_name(name)}" for o, name in enumerate(result_names(m.network))]


def _sql_inputs(m: MergedModels) -> list[str]:
    out: list[str] = []
    for c in _columns(m):
        if c.kind != "category":
            plain = (c.scale, c.shift) == (1.0, 0.0)
            value = f"CAST({_name(c.name)} AS DOUBLE PRECISION)"
            value = value if c.fill is None else f"COALESCE({value}, {_number(c.fill)})"
            out.append(value if plain else f"{_number(c.scale)} * {value} + {_number(c.shift)}")
            continue
        for j in range(c.width):
            when = [
                f"WHEN {_name(c.name)} {'IS NULL' if level is None else f'= {_literal(level)}'} THEN {_number(code[j])}"
                for level, code in zip(c.levels, c.codes, strict=True)
            ]
            if c.fill is not None and None not in c.levels:
                when.append(f"WHEN {_name(c.name)} IS NULL THEN {_number(c.codes[c.level_index(c.fill)][j])}")
            other = "NULL" if c.unknown is None else _number(c.unknown[j])
            out.append(f"CASE {' '.join(when)} ELSE {other} END")
    return [f"{value} AS x{j}" for j, value in enumerate(out)]


def _sql_sum(weights: FloatArray, names: list[str], constant: float) -> str:
    terms = [f"{_number(w)} * {name}" for w, name in zip(weights.tolist(), names, strict=True) if w]
    return " + ".join([_number(constant), *terms])


def _number(value: float) -> str:
    shown = repr(float(value))
    return f"({shown})" if shown.startswith("-") else shown


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(level: Any) -> str:
    return "'" + level.replace("'", "''") + "'" if isinstance(level, str) else repr(level)


# -- ONNX ----------------------------------------------------------------------------------------------------------


def to_onnx(m: MergedModels, path: Any) -> None:
    """The models as an ONNX file in double precision: input `x` (n, inputs), outputs `output` and `cluster`."""
    onnx = require("onnx", "onnx")
    helper, numpy_helper, kinds = onnx.helper, onnx.numpy_helper, onnx.TensorProto
    gate = _gate(m)
    nodes: list[Any] = []
    stored: list[Any] = []

    def keep(name: str, array: Any) -> str:
        stored.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    z, bits = "x", []
    for k, a in enumerate(gate.layers):
        product = node("MatMul", [z, keep(f"W{k}", a.W.T)], f"product{k}")
        h = node("Add", [product, keep(f"b{k}", a.b)], f"h{k}")
        scaled = node("Mul", [h, keep(f"slope{k}", a.slope)], f"scaled{k}")
        z = node("Add", [scaled, keep(f"intercept{k}", a.intercept)], f"linear{k}")
        if len(a.unit):
            argument = node("Gather", [h, keep(f"unit{k}", a.unit)], f"of_unit{k}", axis=1)
            over = node("Sub", [argument, keep(f"at{k}", a.at)], f"over{k}")
            bit = node("Cast", [node("Greater", [argument, f"at{k}"], f"is_over{k}")], f"bit{k}", to=kinds.DOUBLE)
            bits.append(bit)
            spread = np.zeros((len(a.unit), len(a.b)))
            spread[np.arange(len(a.unit)), a.unit] = a.step
            bent = node("MatMul", [node("Relu", [over], f"relu{k}"), keep(f"spread{k}", spread)], f"bent{k}")
            z = node("Add", [z, bent], f"z{k}")
    # A pattern fits where all bits agree: their product with signs is the number of its ones.
    word = node("Concat", bits, "bits", axis=1)
    signs = 2.0 * gate.bits.astype(np.float64) - 1.0
    agreement = node("MatMul", [word, keep("signs", signs.T)], "agreement")
    fits = node("Sub", [agreement, keep("ones", gate.bits.sum(axis=1).astype(np.float64))], "misfit")
    best = node("ReduceMax", [fits], "best", axes=[1], keepdims=0)
    found = node("Greater", [best, keep("half", np.array(-0.5))], "found")
    known = node("Gather", [keep("owner", gate.owner), node("ArgMax", [fits], "place", axis=1, keepdims=0)], "known")
    unit = node("Div", [node("Unsqueeze", ["x", keep("one", np.array([1]))], "wide"), keep("scale", m.spread)], "unit")
    away = node("Sub", [unit, keep("centres", (m.centroid / m.spread)[None])], "away")
    far = node("ReduceSum", [node("Mul", [away, away], "square"), keep("last", np.array([2]))], "far", keepdims=0)
    near = node("ArgMin", [far], "nearest", axis=1, keepdims=0)
    fallback = node("Gather", [keep("near_owner", m.cluster_of_centroid), near], "fallback")
    cluster = node("Where", [found, known, fallback], "cluster")
    C = node("Gather", [keep("C", m.C), cluster], "C_here", axis=0)
    d = node("Gather", [keep("d", m.d), cluster], "d_here", axis=0)
    column = node("Unsqueeze", ["x", keep("two", np.array([2]))], "column")
    product = node("Squeeze", [node("MatMul", [C, column], "Cx"), "two"], "flat")
    node("Add", [product, d], "output")
    n, outputs = m.network.n_inputs, m.C.shape[1]
    graph = helper.make_graph(
        nodes, "merged", [helper.make_tensor_value_info("x", kinds.DOUBLE, ["n", n])],
        [
            helper.make_tensor_value_info("output", kinds.DOUBLE, ["n", outputs]),
            helper.make_tensor_value_info("cluster", kinds.INT64, ["n"]),
        ],
        stored,
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="reluscope"
    )
    onnx.checker.check_model(model)
    with atomic_write(as_path(path)) as file:
        file.write(model.SerializeToString())
