"""Records as plain data: laws, events and arguments fit for JSON and back, and the comparison of two answers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe, instance, integer, real_array, several, text
from reluscope.errors import InputError, InputTypeError
from reluscope.events import Case, Event
from reluscope.inputs import ClassMixtures, Law, classes_from_dict
from reluscope.network import Network

MOST_NUMBERS = 1_000_000
"""Numbers of an argument that a record holds; of a larger one it keeps the digest."""

_NOT_COMPARED = ("seconds", "note", "method", "evaluations", "advice")
"""What may differ between two runs that did the same work: the clock, and words for people."""


# -- laws and arguments --------------------------------------------------------------------------------------------


def plain_law(law: Any) -> Any:
    """A law, two of them or one per class as plain data; None for a law that plain data cannot hold."""
    if isinstance(law, (tuple, list)):
        parts = [plain_law(one) for one in law]
        return None if any(p is None for p in parts) else parts
    try:
        data = law.to_dict()
        law_of_plain(json.loads(json.dumps(data, allow_nan=False)))
    except (AttributeError, TypeError, ValueError, NotImplementedError):  # a law of somebody else's
        return None
    return data


def law_of_plain(data: Any) -> Any:
    """What `plain_law` was given."""
    if isinstance(data, list):
        return tuple(law_of_plain(one) for one in data)
    return classes_from_dict(data)


def plain_argument(value: Any, name: str) -> Any:
    """An argument as plain data; a large array as its digest, which `argument_of_plain` asks the rows for."""
    if isinstance(value, (Law, ClassMixtures)):
        data = plain_law(value)
        if data is None:
            raise InputError(f"{name} must be a law that plain data can hold, got {describe(value)}")
        return data
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        if value.size > MOST_NUMBERS:
            return {"sha256": digest(value), "shape": list(value.shape)}
        return finite(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain_argument(v, name) for v in value]
    raise InputTypeError(f"{name} must be text, numbers or a law for a record to hold it, got {describe(value)}")


def argument_of_plain(data: Any, name: str, rows: FloatArray | None) -> Any:
    """What `plain_argument` was given; `rows` where only the digest was kept."""
    if isinstance(data, Mapping) and "law" in data:
        return law_of_plain(data)
    if isinstance(data, Mapping):
        if rows is None:
            raise InputError(f"record holds only the digest of {name}: it is large; pass it as rows=")
        if digest(rows) != data.get("sha256"):
            raise InputError(f"rows are not those of the record: their digest is {digest(rows)[:12]}...")
        return rows
    return _unfinite(data)


def fingerprint(net: Network) -> str:
    """SHA-256 of the layers' weights, biases and activations."""
    digest = hashlib.sha256()
    for layer in net.layers:
        weight = layer.weight
        parts = (weight,) if isinstance(weight, np.ndarray) else (weight.indptr, weight.indices, weight.data)
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(layer.bias.tobytes())
        for table in (layer.units.breaks, layer.units.slopes, layer.units.intercepts):
            digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()


def digest(array: Any) -> str:
    """SHA-256 of an array's numbers."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def finite(data: Any) -> Any:
    """Plain data in which numbers that JSON does not know are text ("inf", "nan"), and arrays are lists."""
    if isinstance(data, (np.ndarray, np.generic)):
        data = data.tolist()
    if isinstance(data, Mapping):
        return {str(k): finite(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(v) for v in data]
    return data if not isinstance(data, float) or math.isfinite(data) else str(data)


def _unfinite(data: Any) -> Any:
    if isinstance(data, list):
        return [_unfinite(v) for v in data]
    return float(data) if data in ("inf", "-inf", "nan") else data


# -- events --------------------------------------------------------------------------------------------------------


def plain_event(event: Event) -> dict[str, Any]:
    """The cases of an event, not only its text."""
    cases = []
    for c in event.cases:
        rows, columns = np.nonzero(c.A) if any(c.A.strides) or c.A.any() else (np.zeros(0, int), np.zeros(0, int))
        cases.append(
            {
                "lower": _sides(c.lower),
                "upper": _sides(c.upper),
                "A": [[int(i), int(j), float(c.A[i, j])] for i, j in zip(rows, columns, strict=True)],
                "G": c.G.tolist(),
                "g": c.g.tolist(),
                "strict": c.strict.tolist(),
                "F": c.F.tolist(),
            }
        )
    features = [list(f) for f in event.features]
    return {
        "text": event.text, "n_inputs": event.n_inputs, "n_outputs": event.n_outputs, "features": features,
        "cases": cases,
    }  # fmt: skip


def _sides(side: FloatArray) -> list[float | None]:
    return [float(v) if math.isfinite(v) else None for v in side]


def event_of_plain(data: Any) -> Event:
    """What `plain_event` was given."""
    try:
        n, m = integer(data["n_inputs"], "n_inputs", low=1), integer(data["n_outputs"], "n_outputs", low=1)
        features = tuple(tuple(f) for f in data["features"])
        cases = []
        for c in data["cases"]:
            g = real_array(c["g"], "g", ndim=1)
            A = np.zeros((len(g), n))
            for i, j, value in c["A"]:
                A[integer(i, "A", low=0, high=len(g) - 1), integer(j, "A", low=0, high=n - 1)] = float(value)
            lower = np.array([-math.inf if v is None else float(v) for v in several(c["lower"], "lower", "numbers")])
            upper = np.array([math.inf if v is None else float(v) for v in several(c["upper"], "upper", "numbers")])
            G, F = _matrix(c["G"], len(g), m), _matrix(c["F"], len(g), len(features))
            strict = np.array([instance(v, "strict", bool, "True or False") for v in c["strict"]], dtype=bool)
            if len(lower) != n or len(upper) != n or len(strict) != len(g):
                raise ValueError("sizes do not fit")
            cases.append(Case(lower, upper, A, G, g, strict, F))
        return Event(text(data["text"], "text"), n, m, tuple(cases), features)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise InputError(f"record holds an event that is damaged: {str(error)[:120]}") from error


def _matrix(data: Any, rows: int, columns: int) -> FloatArray:
    found = real_array(data, "G and F")
    if found.shape != (rows, columns) and (found.size or rows * columns):
        raise ValueError("sizes do not fit")
    return found.reshape(rows, columns)


# -- two answers ---------------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """How two answers compare: what was looked at, and where they differ first ("" if nowhere)."""

    numbers: int = 0
    differs: str = ""


def facts_named(data: Any, name: str) -> Iterator[Any]:
    """All values of a key, at any depth."""
    if isinstance(data, Mapping):
        if name in data:
            yield data[name]
        for value in data.values():
            yield from facts_named(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from facts_named(value, name)


def compare_plain(before: Any, now: Any, bits: bool) -> Compared:
    """Compare two answers in plain data: all of it, or the brackets that both have (they must overlap)."""
    out = Compared()
    _compare(before, now, bits, "answer", out)
    return out


def _compare(before: Any, now: Any, bits: bool, path: str, out: Compared) -> None:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        if not bits and _is_answer(before) and _is_answer(now):
            _overlap(before, now, path, out)
            return
        keys = [k for k in before if k not in _NOT_COMPARED]
        if bits and set(keys) != {k for k in now if k not in _NOT_COMPARED}:
            out.differs = out.differs or path
        for key in keys:
            if key in now:
                _compare(before[key], now[key], bits, f"{path}.{key}", out)
    elif isinstance(before, list) and isinstance(now, list):
        if bits and len(before) != len(now):
            out.differs = out.differs or path
        for i, (a, b) in enumerate(zip(before, now, strict=False)):
            _compare(a, b, bits, f"{path}[{i}]", out)
    elif bits:
        out.numbers += 1
        if before != now or isinstance(before, bool) != isinstance(now, bool):
            out.differs = out.differs or path


def _is_answer(data: Mapping[str, Any]) -> bool:
    return all(name in data for name in ("value", "lower", "upper"))


def _overlap(before: Mapping[str, Any], now: Mapping[str, Any], path: str, out: Compared) -> None:
    names = ("value",) if "approximation" in (before.get("guarantee"), now.get("guarantee")) else ("lower", "upper")
    try:
        a, b = ([real_array(_unfinite(data[k]), k, finite=False) for k in names] for data in (before, now))
    except (TypeError, ValueError) as error:
        raise InputError(f"record holds an answer that is damaged: {str(error)[:120]}") from error
    if a[0].shape != b[0].shape or a[0].shape != a[-1].shape:
        out.differs = out.differs or path
        return
    out.numbers += a[0].size
    # Where nothing is known, the ends are nan and say nothing.
    apart = a[0] != b[0] if len(names) == 1 else (b[0] > a[1]) | (a[0] > b[1])
    if apart.any():
        out.differs = out.differs or path
