"""The region table: one row per region that holds data, with what the local model does there and everywhere.

Columns: `region`, `count`, `share` (of the weight), `response_mean`, `response_std` (with the divisor n), `local_auc`
or `local_mse` (the local model on the region's own rows), `global_auc` or `global_mse` (the same model on all rows;
squared errors, because R² means nothing in a region of one row),
`single_row`, `single_class`, `intercept` and one coefficient per feature. With more than two classes and no output
chosen, accuracy takes the place of AUC, and the most frequent class and its share that of the response's mean.

Coefficients are for values in the units of the columns, and the heads of exported columns say them: `range (per ft)`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from reluscope._check import FloatArray, integer
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models import scores
from reluscope.local_models._data import Response, Units, headed, read
from reluscope.local_models._grouping import spans
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_ROWS = 8192
"""Rows read at a time."""

_FEWEST = 5
"""Rows behind a centroid that is kept: fewer would give single rows away."""

_MODELS = 16
"""Local models applied to all rows at a time."""

_MOST_CELLS = 50_000_000
"""Largest table of coefficients that is written out column by column."""


@dataclass(frozen=True, eq=False, repr=False)
class RegionTable(Tabular):
    """Columns of equal length by name, and the coefficients (regions, features) apart.

    Attributes
    ----------
    columns : dict of arrays
    coefficients : (regions, features) array
    coefficient_names : tuple of str
    title : str
    units : dict of str to str
        Units of columns and coefficients by name, such as "per ft"; those without one are left out.
    note : str
        Which numbers the coefficients are for, where there are two kinds.
    """

    columns: dict[str, npt.NDArray[Any]]
    coefficients: FloatArray
    coefficient_names: tuple[str, ...]
    title: str = ""
    units: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def __len__(self) -> int:
        return len(self.columns["region"])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        name = self._plain_names.get(name, name)
        if name in self.columns:
            return self.columns[name]
        if name in self.coefficient_names:
            return self.coefficients[:, self.coefficient_names.index(name)]
        raise InputError(f"the table has no column {name!r}; it has {', '.join(self.names[:40])}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, coefficients last."""
        return (*self.columns, *self.coefficient_names)

    @property
    def _plain_names(self) -> dict[str, str]:
        """Names by the heads that exported columns have."""
        return {headed(name, unit): name for name, unit in self.units.items()}

    def _head(self, name: str) -> str:
        return headed(name, self.units.get(name, ""))

    def to_dict(self) -> dict[str, npt.NDArray[Any]]:
        """All columns by name and unit, coefficients last."""
        if self.coefficients.size > _MOST_CELLS:
            raise InputError(
                f"the table has {self.coefficients.size:,} coefficients; use .columns and .coefficients, or head(n)"
            )
        named = {name: self.coefficients[:, k] for k, name in enumerate(self.coefficient_names)}
        return {self._head(name): column for name, column in (self.columns | named).items()}

    def head(self, n: int = 10) -> RegionTable:
        """The first n rows: the largest regions.

        Parameters
        ----------
        n : int

        Returns
        -------
        RegionTable
        """
        n = integer(n, "n", low=0)
        columns = {k: v[:n] for k, v in self.columns.items()}
        title = self.title if n >= len(self) else f"the first {n:,} of {len(self):,} regions"
        return replace(self, columns=columns, coefficients=self.coefficients[:n], title=title)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the table as CSV; missing numbers are empty.

        Parameters
        ----------
        path : path
        """
        from reluscope._tables import write_csv

        write_csv({k: _blank(v) for k, v in self.to_dict().items()}, Path(path))

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write the table as a JSON list of rows; missing numbers are null.

        Parameters
        ----------
        path : path
        """
        from reluscope._files import atomic_write

        with atomic_write(Path(path)) as file:
            file.write(json.dumps(self.rows(), allow_nan=False, indent=1).encode())

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per region; missing numbers are None."""
        columns = {name: _plain(column) for name, column in self.to_dict().items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def __repr__(self) -> str:
        shown = self.head(10)
        few = self.coefficient_names[:6]
        columns = {self._head(n): column for n, column in (shown.columns | {n: shown[n] for n in few}).items()}
        listed = [dict(zip(columns, row, strict=True)) for row in zip(*map(_plain, columns.values()), strict=True)]
        more = len(self.coefficient_names) - len(few)
        tail = (self.title or f"{len(self):,} regions") + (f"; {more} more coefficients" if more else "")
        return f"{text_table(listed)}\n{tail}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True, eq=False)
class Rows:
    """Data beside the network: rows, the region of each (-1: none that is known), responses, outputs and weights."""

    X: Any
    region: Index
    response: Response
    prediction: FloatArray
    weight: FloatArray | None

    def __len__(self) -> int:
        return len(self.region)

    def part(self, rows: Any) -> Rows:
        """Some of the rows; `X` itself is not cut, because local scores do not need it."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(None, self.region[rows], self.response.part(rows), self.prediction[rows], weight)


def build(u: Unwrapped, data: Rows, output: int | None, global_regions: int, units: bool = True) -> RegionTable:
    """The table of rows that lie in regions of `u`; `global_regions` of the largest get a global AUC or accuracy."""
    n_regions = len(u)
    inside = np.flatnonzero(data.region >= 0)
    own = data if len(inside) == len(data) else data.part(inside)
    weight = np.ones(len(own)) if own.weight is None else own.weight
    count = np.bincount(own.region, minlength=n_regions)
    mass = np.bincount(own.region, weight, minlength=n_regions).astype(np.float64)
    everything = float(len(data)) if data.weight is None else float(data.weight.sum())
    columns: dict[str, npt.NDArray[Any]] = {"region": np.arange(n_regions), "count": count, "share": mass / everything}
    one = 0 if output is None and u.network.n_outputs == 1 else output
    task = data.response.task
    if task != "none":
        metric = "mse" if task == "regression" else metric_of(task, one)
        columns |= _responses(own, n_regions, weight, mass, one)
        columns[f"local_{metric}"] = _local_scores(own, n_regions, weight, mass, one)
        which = np.arange(n_regions if metric == "mse" else min(global_regions, n_regions))
        everywhere = np.full(n_regions, np.nan)
        everywhere[which] = global_scores(u, data, which, one)
        columns[f"global_{metric}"] = everywhere
    columns["single_row"] = count == 1
    if data.response.code is not None:
        columns["single_class"] = single_class(own.region, own.response.code, n_regions)
    if not u.fits:
        left_out = f"{n_regions:,} regions; the coefficients are too many for a table, see maps(regions)"
        return RegionTable(columns, np.zeros((n_regions, 0)), (), left_out)
    C, d = u.maps(units=units)
    known, note = Units.of(u.network, own=not units), _note(u, units)
    if one is not None:
        columns["intercept"] = d[:, one]
        stated = _stated(known, one, task) | {f: known.coefficient(one, j) for j, f in enumerate(u.feature_names)}
        return RegionTable(columns, C[:, one, :], u.feature_names, units=_given(stated), note=note)
    names = tuple(f"{o}:{f}" for o in u.output_names for f in u.feature_names)
    columns |= {f"intercept {o}": d[:, k] for k, o in enumerate(u.output_names)}
    stated = {f"intercept {o}": known.outputs[k] for k, o in enumerate(u.output_names)}
    places = ((k, j) for k in range(C.shape[1]) for j in range(C.shape[2]))
    stated |= {name: known.coefficient(*place) for name, place in zip(names, places, strict=True)}
    return RegionTable(columns, C.reshape(n_regions, -1), names, units=_given(stated), note=note)


def _stated(units: Units, output: int, task: str) -> dict[str, str]:
    """The units of one output's columns."""
    unit = units.outputs[output]
    if not unit or task != "regression":
        return {"intercept": unit}
    return {"intercept": unit, "response_mean": unit, "response_std": unit} | dict.fromkeys(
        ("local_mse", "global_mse"), f"{unit}²"
    )


def _given(units: dict[str, str]) -> dict[str, str]:
    return {name: unit for name, unit in units.items() if unit}


def _note(u: Unwrapped, units: bool) -> str:
    if u.scaling is None or u.scaling.identity:
        return ""
    if units:
        return "coefficients for values in the units of the columns (the network's own: summary(units=False))"
    return "coefficients for the network's own numbers"


def metric_of(task: str, output: int | None) -> str:
    """Name of the score of a task, higher is better: `r2`, `auc`, or `accuracy` for several classes at once."""
    if task == "regression":
        return "r2"
    return "accuracy" if task == "multiclass" and output is None else "auc"


def overall(data: Rows, output: int | None) -> float:
    """The score of the network itself on all rows."""
    response, prediction = data.response, data.prediction
    if not len(data) or response.task == "none":
        return float("nan")
    if response.task == "regression":
        assert response.target is not None
        which = slice(None) if output is None else slice(output, output + 1)
        return scores.r2(response.target[:, which], prediction[:, which], data.weight)
    assert response.code is not None
    if response.task == "multiclass" and output is None:
        return scores.mean((prediction.argmax(axis=1) == response.code).astype(np.float64), data.weight)
    column = response.column(output or 0)
    assert column is not None
    return scores.auc(prediction[:, output or 0], column > 0, data.weight)


def _responses(
    own: Rows, n_regions: int, weight: FloatArray, mass: FloatArray, one: int | None
) -> dict[str, npt.NDArray[Any]]:
    with np.errstate(invalid="ignore", divide="ignore"):
        if one is not None:
            y = own.response.column(one)
            assert y is not None
            mean = np.bincount(own.region, weight * y, minlength=n_regions) / mass
            square = np.bincount(own.region, weight * (y - mean[own.region]) ** 2, minlength=n_regions) / mass
            return {"response_mean": mean, "response_std": np.sqrt(square)}
        if own.response.code is None:
            return {}
        classes = own.response.classes
        tally = np.bincount(own.region * len(classes) + own.response.code, weight, minlength=n_regions * len(classes))
        tally = tally.reshape(n_regions, len(classes))
        top = tally.argmax(axis=1)
        return {"majority": np.array([str(c) for c in classes])[top], "majority_share": tally.max(axis=1) / mass}


def _local_scores(own: Rows, n_regions: int, weight: FloatArray, mass: FloatArray, one: int | None) -> FloatArray:
    response = own.response
    with np.errstate(invalid="ignore", divide="ignore"):
        if response.target is not None:
            error = (response.target - own.prediction) ** 2
            each = error.mean(axis=1) if one is None else error[:, one]
            return np.asarray(np.bincount(own.region, weight * each, minlength=n_regions) / mass)
        assert response.code is not None
        if one is None:
            right = own.prediction.argmax(axis=1) == response.code
            return np.asarray(np.bincount(own.region, weight * right, minlength=n_regions) / mass)
    column = response.column(one)
    assert column is not None
    return scores.auc_by_group(own.prediction[:, one], column > 0, own.region, n_regions, own.weight)


def global_scores(u: Unwrapped, data: Rows, which: Index, output: int | None) -> FloatArray:
    """The local models of some regions applied to all rows, shape (len(which),).

    Squared error comes from the Gram matrix of the data: with centred features `X`, `S = XᵀX / n` and `s = Xᵀy / n`,
    MSE(w, b) = wᵀSw - 2 w·s + var(y) + (mean(y) - b - w·mean(x))². One pass over the rows serves all models.
    AUC and accuracy take one pass and (AUC) one sort per model.
    """
    if data.response.task == "regression":
        return _global_errors(u, data, which, output)
    found = np.empty(len(which))
    response = data.response
    column = None if output is None else response.column(output)
    with blas_threads(u.network.n_inputs):
        for part in spans(len(which), _MODELS):
            C, d = u.maps(which[part])
            if column is not None:
                applied = _apply(data.X, C[:, output, :], d[:, output])
                found[part] = [scores.auc(s, column > 0, data.weight) for s in applied]
                continue
            assert response.code is not None
            for k in range(len(C)):
                right = _apply(data.X, C[k], d[k]).argmax(axis=0) == response.code
                found[part.start + k] = scores.mean(right.astype(np.float64), data.weight)
    return found


def _apply(X: Any, C: FloatArray, d: FloatArray) -> FloatArray:
    """`C x + d` for models (k, inputs) on all rows, shape (k, n)."""
    out = np.empty((len(C), len(X)))
    for rows in spans(len(X), _ROWS):
        out[:, rows] = C @ read(X, rows).T + d[:, None]
    return out


def _global_errors(u: Unwrapped, data: Rows, which: Index, output: int | None) -> FloatArray:
    target = data.response.target
    assert target is not None
    y = target if output is None else target[:, [output]]
    weight = np.ones(len(data)) if data.weight is None else data.weight
    total, d = weight.sum(), u.network.n_inputs
    centre = weighted_mean(data.X, data.weight)
    y_centre = weight @ y / total
    S, s = np.zeros((d, d)), np.zeros((d, y.shape[1]))
    found = np.empty(len(which))
    with blas_threads(d):
        for rows in spans(len(data), _ROWS):
            part = read(data.X, rows) - centre
            weighted = part * weight[rows, None]
            S += weighted.T @ part
            s += weighted.T @ (y[rows] - y_centre)
        S, s = S / total, s / total
        spread = weight @ (y - y_centre) ** 2 / total
        for part in spans(len(which), max(1, _MOST_CELLS // 4 // (d * y.shape[1]))):
            C, offset = u.maps(which[part])
            if output is not None:
                C, offset = C[:, [output]], offset[:, [output]]
            quadratic = ((C @ S) * C).sum(axis=2) - 2 * np.einsum("rod,do->ro", C, s)
            bias = y_centre - offset - C @ centre
            found[part] = np.maximum(quadratic + spread + bias**2, 0.0).mean(axis=1)
    return found


def weighted_mean(X: Any, weight: FloatArray | None) -> FloatArray:
    """Mean of the rows, read in chunks."""
    total = np.zeros(X.shape[1])
    for rows in spans(len(X), _ROWS):
        part = read(X, rows)
        total += part.sum(axis=0) if weight is None else weight[rows] @ part
    return total / (len(X) if weight is None else weight.sum())


def weighted_spread(X: Any, weight: FloatArray | None, centre: FloatArray) -> FloatArray:
    """Standard deviation of each column (divisor n), read in chunks; rounding of a constant column counts as 0."""
    total, size = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in spans(len(X), _ROWS):
        part = read(X, rows)
        size = np.maximum(size, np.abs(part).max(axis=0))
        square = (part - centre) ** 2
        total += square.sum(axis=0) if weight is None else weight[rows] @ square
    spread = np.sqrt(total / (len(X) if weight is None else weight.sum()))
    return np.where(spread > 1e-13 * size, spread, 0.0)


def centroids(u: Unwrapped) -> tuple[FloatArray, FloatArray]:
    """Mean of the rows of each region, and the standard deviation of each feature over all rows (1 if it is 0)."""
    total = np.zeros((len(u), u.network.n_inputs))
    square = np.zeros(u.network.n_inputs)
    for rows in spans(len(u.region), 8192):
        x = read(u.X, rows)
        total += csr_array((np.ones(len(x)), (u.region[rows], np.arange(len(x)))), shape=(len(u), len(x))) @ x
        square += ((x - u.centre) ** 2).sum(axis=0)
    spread = np.sqrt(square / len(u.region))
    return total / u.count[:, None], np.where(spread > 0, spread, 1.0)


def pooled(centroid: FloatArray, spread: FloatArray, count: Index, cluster: Index) -> tuple[FloatArray, Index]:
    """Centroids of which each is the mean of `_FEWEST` rows or more, and their clusters: none is a row of the data.

    Regions with fewer rows are put together with others of their cluster, neighbours by halving along the widest side;
    a cluster with too few rows of that kind does without, unless nothing else is left.
    """
    small = np.flatnonzero(count < _FEWEST)
    block = cluster[small]
    while len(small):
        block = np.unique(block, return_inverse=True)[1]
        size = np.bincount(block)
        if (size < 2 * _FEWEST).all():
            break
        x = centroid[small] / spread
        by_block = csr_array((np.ones(len(small)), (block, np.arange(len(small)))), shape=(len(size), len(small)))
        widest = (by_block @ x**2 / size[:, None] - (by_block @ x / size[:, None]) ** 2).argmax(axis=1)
        order = np.lexsort((x[np.arange(len(small)), widest[block]], block))
        rank = np.empty(len(small), dtype=np.int64)
        rank[order] = np.arange(len(small)) - (np.cumsum(size) - size)[block[order]]
        block = 2 * block + ((rank >= size[block] // 2) & (size[block] >= 2 * _FEWEST))
    large = np.flatnonzero(count >= _FEWEST)
    n_blocks = int(block.max(initial=-1)) + 1
    rows = np.bincount(block, count[small], minlength=n_blocks)
    total = csr_array((count[small].astype(np.float64), (block, np.arange(len(small)))), shape=(n_blocks, len(small)))
    home = np.zeros(n_blocks, dtype=np.int64)
    home[block] = cluster[small]
    good = rows >= _FEWEST
    means = np.concatenate([centroid[large], (total @ centroid[small])[good] / rows[good, None]])
    if not len(means):  # fewer than five rows in every cluster: one mean of all
        return (count @ centroid / count.sum())[None], cluster[[np.argmax(count)]]
    return means, np.concatenate([cluster[large], home[good]])


def single_class(region: Index, code: Index | None, n_regions: int) -> npt.NDArray[np.bool_]:
    """Which regions hold rows of one class only (and at least one row)."""
    assert code is not None
    low, high = np.full(n_regions, np.iinfo(np.int64).max), np.full(n_regions, -1)
    np.minimum.at(low, region, code)
    np.maximum.at(high, region, code)
    return np.asarray(low == high)


def _plain(column: npt.NDArray[Any]) -> list[Any]:
    """A column as plain Python values, nan as None."""
    values = np.asarray(column).tolist()
    return [None if isinstance(v, float) and v != v else v for v in values]


def _blank(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column for CSV: nan becomes an empty field."""
    if column.dtype.kind != "f" or not np.isnan(column).any():
        return column
    out = column.astype(object)
    out[np.isnan(column)] = ""
    return out
