"""Laws made of laws: given values or bounds of some inputs, without some inputs, moved and scaled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from reluscope._check import describe, instance, real, several
from reluscope._columns import few
from reluscope.errors import InputError
from reluscope.inputs._law import Law, vector
from reluscope.inputs._names import column_index
from reluscope.schema import Schema


def given(law: Law, values: Any, schema: Any = None) -> Law:
    """See `Law.given`."""
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"values must be a dictionary such as {{0: 1.5}}, got {describe(values)}")
    names, known = getattr(law, "names", None), _fitting(schema, law)
    fixed: dict[int, float] = {}
    for k, v in values.items():
        _fix(fixed, _meant(k, v, law.n, names, known, "key of values"), k)
    index = np.array(sorted(fixed), dtype=np.intp)
    found = law._conditional(index, np.array([fixed[i] for i in index.tolist()]))
    if found.law is None:
        shown = ", ".join(f"{k!r}: {v!r}" for k, v in values.items())
        raise InputError(
            f"the law never takes the values {{{shown}}}: no row it was fitted to has them, or they lie outside of "
            "law.support(); choose values that occur"
        )
    return found.law


def _fix(fixed: dict[int, float], more: dict[int, float], key: Any) -> None:
    """Add values of inputs; one input cannot have two."""
    for i, v in more.items():
        if fixed.get(i, v) != v:
            raise InputError(f"{key!r} is input {i}, which cannot be both {fixed[i]:g} and {v:g}")
    fixed.update(more)


def _fitting(schema: Any, law: Law) -> Schema | None:
    """The schema, if it fits the law."""
    if schema is None:
        return None
    known = instance(schema, "schema", Schema, "a Schema")
    if known.n_inputs != law.n:
        raise InputError(f"schema has {known.n_inputs} inputs but the law has {law.n}; use the one it was fitted with")
    return known


def _meant(
    key: Any, value: Any, n: int, names: tuple[str, ...] | None, known: Schema | None, what: str
) -> dict[int, float]:
    """The inputs that a name or number means, with their values: several for the level of a category."""
    if isinstance(key, str) and known is not None and key in known.names:
        column, at = known.column(key), known.place(key)
        if column.kind != "category":
            return {at.start: column.scale * real(value, f"value of {key!r}") + column.shift}
        level = column.level_index(value)
        if level < 0:
            raise InputError(f"value of {key!r} must be one of its levels {few(column.levels)}, got {describe(value)}")
        return dict(zip(range(at.start, at.stop), column.codes[level], strict=True))
    group = _levels(key, names)
    if group and names is not None:
        levels = [names[i][len(key) + 1 :] for i in group]
        word = f"{value:.15g}" if isinstance(value, float) else str(value)
        if word not in levels:
            raise InputError(f"value of {key!r} must be one of its levels {few(levels)}, got {describe(value)}")
        return {i: float(level == word) for i, level in zip(group, levels, strict=True)}
    return {column_index(key, n, names, what): real(value, f"value of {key!r}")}


def _levels(key: Any, names: tuple[str, ...] | None) -> list[int]:
    """The inputs called `key=level`, where no input is called `key`."""
    if not isinstance(key, str) or names is None or key in names:
        return []
    return [i for i, name in enumerate(names) if name.startswith(f"{key}=")]


# -- bounds ------------------------------------------------------------------------------------------------------------

_BOUND = re.compile(r"\s*(?:x\[\s*(\d+)\s*\]|([^<>=\s\[\]][^<>=]*?))\s*(<=|>=|==|<|>|=)\s*(\S.*?)\s*$")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _number(said: str) -> float | str:
    try:
        return float(said)
    except ValueError:
        return said


def where(law: Law, text: Any, schema: Any = None) -> Law:
    """See `Law.where`."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f'text must be bounds on inputs such as "x[1] > 1e5 and x[0] <= 3", got {describe(text)}')
    n, names, known = law.n, getattr(law, "names", None), _fitting(schema, law)
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    open_below, open_above = np.zeros(n, bool), np.zeros(n, bool)
    values: dict[int, float] = {}
    for part in re.split(r"\s+and\s+", text.strip()):
        found = _BOUND.match(part)
        if found is None:
            raise InputError(f'text must be bounds joined by "and", such as "x[1] > 1e5"; cannot read {part!r}')
        number, name, sign, said = found.group(1), found.group(2), found.group(3), found.group(4).strip("'\" ")
        key = int(number) if number is not None else name.strip("'\" ")
        if sign in ("==", "="):
            _fix(values, _meant(key, _number(said), n, names, known, "input"), key)
            continue
        bound = _number(said)
        if isinstance(bound, str) or np.isnan(bound):
            raise InputError(f'text must be bounds joined by "and", such as "x[1] > 1e5"; cannot read {part!r}')
        if known is not None and key in known.names and known.column(str(key)).kind == "category":
            raise InputError(
                f"{key} is a category: ask for a level, such as {key} == {known.column(str(key)).levels[0]}"
            )
        if known is not None and key in known.names and known.column(str(key)).scale < 0:
            sign = _TURNED[sign]
        ((i, bound),) = _meant(key, bound, n, names, known, "input").items()
        if sign in ("<", "<="):
            if bound < upper[i] or (bound == upper[i] and sign == "<"):
                upper[i], open_above[i] = bound, sign == "<"
        elif bound > lower[i] or (bound == lower[i] and sign == ">"):
            lower[i], open_below[i] = bound, sign == ">"
    if values:
        law = given(law, {k if names is None else names[k]: v for k, v in values.items()})
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        law = law._between(lower, upper, open_below, open_above)
    return law


# -- fewer inputs, other units -----------------------------------------------------------------------------------------


def marginal_law(law: Law, inputs: Any) -> Law:
    """See `Law.marginal`."""
    names = getattr(law, "names", None)
    keys = [inputs] if isinstance(inputs, (str, int, np.integer)) else several(inputs, "inputs", "inputs")
    found = [_levels(k, names) or [column_index(k, law.n, names, "inputs")] for k in keys]
    index = np.array([i for group in found for i in group], dtype=np.intp)
    if not len(index) or len(set(index.tolist())) < len(index):
        raise InputError(f"inputs must name at least one input, each once, got {keys}")
    return law._keep(index)


def moved(law: Law, mean: Any, scale: Any) -> Law:
    """See `Law.move`."""
    factor = np.ones(law.n) if scale is None else vector(scale, "scale", law.n)
    if (factor <= 0).any():
        raise InputError(f"scale must be positive, got {factor.min()} for input {int(np.argmin(factor))}")
    if mean is None and scale is None:
        raise InputError("give mean, scale or both")
    old = np.asarray(law.mean)
    target = old if mean is None else vector(mean, "mean", law.n)
    return law._affine(factor, target - factor * old)
