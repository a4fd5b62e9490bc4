"""Contributions of features from one common reference, which can be compared between rows.

Let `r` be a reference input. Along the straight line from `r` to `x` the network is piecewise linear, so

    part_j = (x_j - r_j) ∫₀¹ ∂_j f(r + t (x - r)) dt = Σ_pieces (length of the piece) C_j (x_j - r_j)

is exact, and `f(x) = f(r) + Σ_j part_j` (path integration; "integrated gradients" without a quadrature). The base
`f(r)` is the network's own value, the same for all rows. The local linear model of `x` at `r` would be an
extrapolation, to values the network may never take.

`shapley` averages the effect of a feature (or group) over all orders in which features could be moved from `r` to `x`,
by enumeration: the other exact way to share out `f(x) - f(r)`, for few features or groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, integer, several
from reluscope._columns import few
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.cells.along import along
from reluscope.errors import InputError
from reluscope.local_models._data import feature_index, read
from reluscope.local_models._grouping import spans
from reluscope.network import Network
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.merged import MergedModels
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_PIECES = 1 << 16
"""Pieces of lines whose linear models are held at a time, at about so many."""

_MOST_PLAYERS = 12
"""Features or groups up to which all their subsets are looked at."""


@dataclass(frozen=True, eq=False)
class Reference:
    """An input to start from.

    Attributes
    ----------
    x : (inputs,) array
        In the network's numbers.
    name : str
        What it is.
    output : (outputs,) array
        The network's output there.
    """

    x: FloatArray
    name: str
    output: FloatArray


@dataclass(frozen=True, eq=False)
class Groups:
    """Features that count together.

    Attributes
    ----------
    names : tuple of str
    of : (inputs,) array of int
        The number of each input's group.
    """

    names: tuple[str, ...]
    of: Index

    def total(self, parts: FloatArray) -> FloatArray:
        """Parts of inputs added up by group.

        Parameters
        ----------
        parts : (..., inputs) array

        Returns
        -------
        (..., groups) array
        """
        out = np.zeros((*parts.shape[:-1], len(self.names)))
        for j, k in enumerate(self.of.tolist()):
            out[..., k] += parts[..., j]
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(Tabular):
    """What each feature or group adds to the output of each row, starting from the reference.

    `base + parts.sum(axis=2)` is the output, up to `error`.

    Attributes
    ----------
    names : tuple of str
        Features or groups.
    parts : (n, outputs, names) array
    base : (outputs,) array
        The network's output at the reference.
    output : (n, outputs) array
    reference : (inputs,) array
        In the network's numbers; `reference_name` says what it is.
    method : str
        "path" or "shapley".
    error : float
        Largest difference between the sums and the outputs: rounding.
    """

    names: tuple[str, ...]
    parts: FloatArray
    base: FloatArray
    output: FloatArray
    reference: FloatArray
    reference_name: str
    method: str
    error: float

    def __len__(self) -> int:
        return len(self.parts)

    def rows(self, output: int = 0) -> list[dict[str, Any]]:
        """One dictionary per row: base, the parts by name, the output.

        Parameters
        ----------
        output : int

        Returns
        -------
        list of dict
        """
        k = integer(output, "output", low=0, high=len(self.base) - 1)
        return [
            {"base": float(self.base[k])} | dict(zip(self.names, part, strict=True)) | {"output": total}
            for part, total in zip(self.parts[:, k].tolist(), self.output[:, k].tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        mean = np.abs(self.parts).mean(axis=(0, 1))
        order = np.argsort(-mean, kind="stable")
        rows = [{"feature": self.names[j], "mean size": float(mean[j])} for j in order[:20].tolist()]
        more = f"\n{len(order) - 20} more features" if len(order) > 20 else ""
        return (
            f"contributions to {len(self):,} rows ({self.method}) from {self.reference_name}, where the network gives "
            f"{', '.join(f'{v:.6g}' for v in self.base[:6])}; sums differ by at most {self.error:.1e}\n"
            f"{text_table(rows)}{more}"
        )


def reference_of(u: Unwrapped, given: Any) -> Reference:
    """The mean (None) or median of the data, a row of it by index, or a row."""
    if given is None or (isinstance(given, str) and given == "mean"):
        x, name = u.centre, "the mean of the data"
    elif isinstance(given, str):
        choice(given, "reference", ("mean", "median"))
        x, name = _typical(u), "the median of the data, feature by feature"
    elif isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        i = integer(given, "reference", low=-len(u.region), high=len(u.region) - 1) % len(u.region)
        x, name = read(u.X, slice(i, i + 1))[0], f"row {i} of the data"
    else:
        x, name = u._row(given, "reference"), "the reference given"
    return Reference(x, name, u.network(x[None])[0])


def _typical(u: Unwrapped) -> FloatArray:
    """The median of each input; the most frequent code of a category, for medians of its inputs are no level."""
    rows = read(u.X, slice(None))
    x, schema = np.median(rows, axis=0), u.network.schema
    for column in () if schema is None else schema.columns:
        if column.kind == "category":
            at = schema.place(column.name)  # type: ignore[union-attr]
            codes, counts = np.unique(rows[:, at], axis=0, return_counts=True)
            x[at] = codes[int(np.argmax(counts))]
    return np.asarray(x)


def groups_of(u: Unwrapped | MergedModels, given: Any) -> Groups:
    """Inputs one by one (None), the inputs of each column of a table together ("columns"), or groups by name; inputs in
    no group stay alone.
    """
    names, schema = u.feature_names, u.network.schema
    columns: dict[str, list[int]] = {}
    if schema is not None and schema.columns:
        columns = {c.name: list(range(len(names))[schema.place(c.name)]) for c in schema.columns}
    if given is None:
        return Groups(names, np.arange(len(names)))
    if isinstance(given, str):
        choice(given, "groups", ("columns",))
        wanted = {name: inside for name, inside in columns.items() if len(inside) > 1}
    elif isinstance(given, Mapping):
        wanted = {}
        for group, members in given.items():
            listed = (members,) if isinstance(members, (str, int)) else several(members, "groups", "features")
            wanted[str(group)] = [j for m in listed for j in (columns.get(m) or [feature_index(m, names, "groups")])]
    else:
        raise InputError(f'groups must be None, "columns" or a mapping of names to features, got {describe(given)}')
    owner = {j: group for group, inside in wanted.items() for j in inside}
    if len(owner) != sum(map(len, wanted.values())) or not all(wanted.values()):
        raise InputError(f"groups must not share features, nor be empty, got {few(list(wanted))}")
    of, out, place = np.empty(len(names), dtype=np.int64), list[str](), dict[str, int]()
    for j, name in enumerate(names):  # a group stands where its first member does
        if j in owner and owner[j] in place:
            of[j] = place[owner[j]]
            continue
        of[j] = len(out)
        out.append(owner.get(j, name))
        if j in owner:
            place[owner[j]] = int(of[j])
    return Groups(tuple(out), of)


def values_of(u: Unwrapped | MergedModels, X: FloatArray, together: Groups) -> dict[str, npt.NDArray[Any]]:
    """Features with one value each, in their own units; columns of a table as levels."""
    schema = u.network.schema
    decoded: dict[tuple[int, ...], npt.NDArray[Any]] = {}
    if schema is not None and schema.columns:
        inputs = range(X.shape[1])
        decoded = {tuple(inputs[schema.place(name)]): column for name, column in schema.decode(X).items()}
    out: dict[str, npt.NDArray[Any]] = {}
    for j, name in enumerate(together.names):
        inside = tuple(np.flatnonzero(together.of == j).tolist())
        if inside in decoded:
            out[name] = decoded[inside]
        elif len(inside) == 1:
            out[name] = X[:, inside[0]]
    return out


def contributions(u: Unwrapped, X: Any, reference: Any, groups: Any, method: str) -> Contributions:
    """Rows of `X` (None: the data) taken apart."""
    choice(method, "method", ("path", "shapley"))
    start, together = reference_of(u, reference), groups_of(u, groups)
    rows = u.X if X is None else u._rows(X)
    n, net = len(rows), u.network
    parts = np.empty((n, net.n_outputs, len(together.names)))
    output = np.empty((n, net.n_outputs))
    size = _chunk(net) if method == "path" else max(1, (1 << 18) >> min(len(together.names), 18))
    with blas_threads(max(net.widths)):
        for part in spans(n, size):
            x = read(rows, part)
            output[part] = net(x)
            if method == "path":
                parts[part] = together.total(path_parts(net, start.x, x))
            else:
                parts[part] = _shapley(net, start.x, x, together)
    error = float(np.abs(start.output + parts.sum(axis=2) - output).max(initial=0.0))
    return Contributions(together.names, parts, start.output, output, start.x, start.name, method, error)


def path_parts(net: Network, start: FloatArray, X: FloatArray) -> FloatArray:
    """Path contributions (n, outputs, inputs) of rows from `start`, exact up to rounding."""
    paths = along(net, start, X)
    C, _ = net.output_maps(paths.pattern)
    C *= (paths.stop - paths.start)[:, None, None]
    mean = np.add.reduceat(C, paths.offsets[:-1], axis=0)  # every line has a piece at least
    return np.asarray(mean * (X - start)[:, None, :])


def _chunk(net: Network) -> int:
    """Rows whose lines together have about `_PIECES` pieces, if a line crosses half of the units."""
    return max(1, min(_PIECES // max(net.n_units // 2, 1), (1 << 23) // (net.n_inputs * net.n_outputs)))


def _shapley(net: Network, start: FloatArray, X: FloatArray, groups: Groups) -> FloatArray:
    m = len(groups.names)
    if m > _MOST_PLAYERS:
        raise InputError(
            f"method='shapley' looks at all subsets of at most {_MOST_PLAYERS} features, got {m}; pass groups= that "
            'join them, or method="path"'
        )
    subsets = (np.arange(1 << m)[:, None] >> np.arange(m) & 1).astype(bool)
    moved = subsets[:, groups.of]  # (subsets, inputs)
    mixed = np.where(moved[:, None, :], X, start)  # (subsets, n, inputs)
    value = net(mixed.reshape(-1, net.n_inputs)).reshape(1 << m, len(X), net.n_outputs)
    parts = np.empty((len(X), net.n_outputs, m))
    size = subsets.sum(axis=1)
    weight = np.array([factorial(s) * factorial(m - s - 1) / factorial(m) for s in range(m)])
    for k in range(m):
        without = np.flatnonzero(~subsets[:, k])
        gain = value[without | 1 << k] - value[without]
        parts[:, :, k] = np.tensordot(weight[size[without]], gain, axes=1)
    return parts
