"""Inputs by name, and rows of data in the place of a law."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, integer
from reluscope._columns import columns_of, few
from reluscope.errors import InputError
from reluscope.network import Network, check_network, input_rows
from reluscope.schema import Column, Schema

if TYPE_CHECKING:
    from reluscope.inputs import Law

Index = npt.NDArray[np.intp]

_MOST_VERSIONS = 1000
"""Combinations of levels that a flip goes through."""


class Chosen(NamedTuple):
    """Some inputs of a network: their indices, what they are called, and the columns that they are all inputs of."""

    inputs: Index
    name: str
    columns: tuple[Column, ...]

    @property
    def categories(self) -> bool:
        """Whether they are categories, whole."""
        return bool(self.columns) and all(c.kind == "category" for c in self.columns)


def law_of(net: Network, law: Any) -> Law:
    """A law as it is; a table or an array of rows as the particles that its rows are."""
    from reluscope.inputs import Law, Particles, check_law

    check_network(net)
    if isinstance(law, Law):
        return check_law(law, net)
    if columns_of(law) is not None and net.schema is not None and net.schema.columns:
        return Particles(net.schema.encode(law, name="law"))
    if isinstance(law, np.ndarray) and law.ndim == 2:
        if not len(law):
            raise InputError(f"law, as rows of data for net, must have at least one row, got shape {law.shape}")
        try:
            rows = input_rows(net, law)[0]
        except InputError as error:
            raise InputError(f"law, as rows of data for net: {error}") from None
        if net.schema is not None and net.schema.columns:
            net.schema.warn(rows, "law")
        return Particles(rows)
    return check_law(law, net)


def chosen(net: Network, features: Any, what: str = "features") -> Chosen:
    """Inputs by index, or by the name of a column or group; all of them for None."""
    n = net.n_inputs
    if features is None:
        return Chosen(np.arange(n), "all inputs", () if net.schema is None else net.schema.columns)
    if isinstance(features, str) or (isinstance(features, (list, tuple)) and any(isinstance(f, str) for f in features)):
        return _by_name(net.schema, (features,) if isinstance(features, str) else features, what)
    if isinstance(features, bytes) or not np.iterable(features):
        raise InputError(f"{what} must be the name of a column or a list of input indices, got {describe(features)}")
    named = [integer(f, what, low=0, high=n - 1) for f in features]
    if not named or len(set(named)) != len(named):
        raise InputError(f"{what} must name at least one input, each once, got {named}")
    return Chosen(np.sort(np.array(named, dtype=np.intp)), listed(sorted(named)), ())


def _by_name(schema: Schema | None, names: Any, what: str) -> Chosen:
    if schema is None or not schema.columns:
        raise InputError(
            f"{what} names {few(list(names))}, but net has no schema; give one with net.with_schema(columns=[...]), "
            "or give the indices of inputs"
        )
    if not all(isinstance(n, str) for n in names):
        raise InputError(f"{what} must be all names or all indices, got {list(names)[:8]}")
    try:
        members = list(dict.fromkeys(m for name in names for m in schema.members(name)))
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    index = np.concatenate([np.arange(s.start, s.stop) for s in (schema.place(m) for m in members)])
    return Chosen(np.sort(index).astype(np.intp), ", ".join(names), tuple(schema.column(m) for m in members))


def level_codes(schema: Schema, named: Chosen, advice: str) -> tuple[list[tuple[Any, ...]], FloatArray]:
    """Every combination of levels of some categories, and the inputs that encode it (different codes only)."""
    if not named.categories:
        strangers = [c.name for c in named.columns if c.kind != "category"] or [named.name]
        raise InputError(f"{few(strangers)} has no levels: it is no category of the schema; {advice}")
    count = int(np.prod([len(c.levels) for c in named.columns]))
    if count > _MOST_VERSIONS:
        raise InputError(f"{named.name} has {count:,} combinations of levels, more than {_MOST_VERSIONS:,}")
    levels, rows = [], []
    place = {int(i): j for j, i in enumerate(named.inputs)}
    for combination in product(*(range(len(c.levels)) for c in named.columns)):
        row = np.zeros(len(named.inputs))
        for c, k in zip(named.columns, combination, strict=True):
            start = schema.place(c.name).start
            row[[place[start + j] for j in range(c.width)]] = c.codes[k]
        levels.append(tuple(c.levels[k] for c, k in zip(named.columns, combination, strict=True)))
        rows.append(row)
    first = np.sort(np.unique(np.array(rows), axis=0, return_index=True)[1])
    return [levels[i] for i in first.tolist()], np.array(rows)[first]


def level_of(codes: FloatArray, X: FloatArray, name: str) -> Index:
    """Which of some codes each row has; an error if a row has none of them."""
    at = np.full(len(X), -1, dtype=np.intp)
    for k, code in enumerate(codes):
        at[(code == X).all(axis=1)] = k
    bad = np.flatnonzero(at < 0)
    if len(bad):
        raise InputError(
            f"{len(bad):,} of {len(X):,} rows have no level of {name}: row {bad[0]} has the inputs "
            f"{X[bad[0]].tolist()[:6]}. A law must give the codes of levels; a Gaussian over one-hot inputs does not"
        )
    return at


def listed(features: Sequence[int]) -> str:
    """Some inputs in a sentence: all of a few, else the first and how many more."""
    if len(features) == 1:
        return f"input {features[0]}"
    shown = ", ".join(map(str, features[:8]))
    return f"inputs {shown}" if len(features) <= 8 else f"inputs {shown} and {len(features) - 8} more"
