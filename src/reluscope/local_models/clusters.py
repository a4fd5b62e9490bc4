"""Merged models as models in their own right: a table for a committee paper, importance, portraits, explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, integer
from reluscope._tables import Lines, Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models import scores
from reluscope.local_models._data import Response, Units, check_beside, headed, read, weights_of
from reluscope.local_models.contributions import groups_of, values_of
from reluscope.local_models.merged import MergedModels, unwrapped_of
from reluscope.local_models.portrait import Portrait

Index = npt.NDArray[np.int64]

_SHOWN = 3
"""Coefficients and features of a portrait in a line of the table."""


@dataclass(frozen=True, eq=False, repr=False)
class ClusterTable(Tabular):
    """One line per merged model.

    Columns: rows and share of the data; `rate`, the mean response (the share of the class for classes); `predicted`,
    the mean of the merged models' own prediction; `auc` (`r2` for numbers) of the cluster's model on its own rows; the
    same with `test_` for new rows; `main`, the coefficients that matter most there, per standard deviation; `who`, how
    its rows differ from all rows.

    Attributes
    ----------
    lines : list of dict
    metric : str
    total : dict
        The same for all rows together.
    """

    lines: list[dict[str, Any]]
    metric: str
    total: dict[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per cluster, then all rows together."""
        return [*self.lines, self.total]

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        return text_table([{k: _short(v) for k, v in row.items()} for row in self.rows()])


@dataclass(frozen=True, eq=False, repr=False)
class ClusterExplanation(Tabular):
    """One prediction of merged models: `output = base + sum of parts`, exactly, on the linear model of its cluster.

    Attributes
    ----------
    cluster : int
    names : tuple of str
    value : (inputs,) array
        In the units of the columns.
    coefficient : (outputs, inputs) array
        For such values.
    parts : (outputs, inputs) array
        `coefficient * (value - mean of the data)`.
    base : (outputs,) array
        The cluster's model at the mean of the data.
    output : (outputs,) array
    columns : tuple of str
    column : (inputs,) array of int
        Which of them each input belongs to: the inputs of a category are one column.
    levels : dict of str to object
        The level of each category.
    """

    cluster: int
    names: tuple[str, ...]
    value: FloatArray
    coefficient: FloatArray
    parts: FloatArray
    base: FloatArray
    output: FloatArray
    columns: tuple[str, ...]
    column: Index
    levels: dict[str, Any]

    def rows(self, output: int = 0, *, groups: str | None = "columns") -> list[dict[str, Any]]:
        """One dictionary per feature, largest part first.

        Parameters
        ----------
        output : int
        groups : "columns" or None
            The inputs of a category are one feature, whose value is its level; None has the inputs one by one.

        Returns
        -------
        list of dict
        """
        k = integer(output, "output", low=0, high=len(self.base) - 1)
        single = groups is None or choice(groups, "groups", ("columns",)) is None
        of = np.arange(len(self.names)) if single else self.column
        rows = []
        for i in range(int(of.max()) + 1):
            inside = np.flatnonzero(of == i)
            j, alone = int(inside[0]), len(inside) == 1
            name = self.names[j] if alone else self.columns[i]
            rows.append(
                {
                    "feature": name,
                    "value": float(self.value[j]) if alone else self.levels.get(name),
                    "coefficient": float(self.coefficient[k, j]) if alone else None,
                    "part": float(self.parts[k, inside].sum()),
                }
            )
        return sorted(rows, key=lambda row: -abs(row["part"]))

    def __repr__(self) -> str:
        sums = ", ".join(
            f"{o:.6g} = {b:.6g} (its model at the mean) + parts" for o, b in zip(self.output, self.base, strict=True)
        )
        return f"cluster {self.cluster}: {sums}\n{text_table(self.rows()[:20])}"


def single_class_levels(m: MergedModels) -> list[dict[str, Any]]:
    """See `MergedModels.single_class_levels`."""
    u = m.unwrapped
    if u is None or u.response.code is None:
        return []
    X, code, cluster = read(u.X, slice(None)), u.response.code, m.cluster_of_region[u.region]
    out = []
    for j in np.flatnonzero(((X == 0) | (X == 1)).all(axis=0)).tolist():
        for i in range(len(m)):
            found = code[(cluster == i) & (X[:, j] == 1)]
            alone = len(found) and (found == found[0]).all() and not (code[cluster == i] == found[0]).all()
            if alone:
                line = {"cluster": i, "feature": m.feature_names[j], "rows": len(found)}
                out.append(line | {"class": u.response.classes[int(found[0])]})
    return sorted(out, key=lambda line: line["rows"])


def summary(m: MergedModels, X: Any, y: Any, sample_weight: Any, output: int) -> ClusterTable:
    """See `MergedModels.summary`."""
    u = unwrapped_of(m, "summary")
    k = integer(output, "output", low=0, high=m.d.shape[1] - 1)
    cluster = m.cluster_of_region[u.region]
    eta = m.outputs(u.X)
    train = _measures(m, cluster, eta, u.response, u.weight, k)
    test: list[dict[str, Any]] = [{} for _ in range(len(m) + 1)]
    if X is not None:
        rows = m._rows(X)
        check_beside(X, y, sample_weight)
        response = Response("none") if y is None else u.response.encode(y, len(rows))
        weight = weights_of(sample_weight, len(rows))
        new = _measures(m, m._assign(rows), m.outputs(X), response, weight, k)
        test = [{f"test_{name}": value for name, value in line.items()} for line in new]
    elif y is not None:
        raise InputError("y goes with X, the test rows")
    spread = u.spread
    regions = np.bincount(m.cluster_of_region, minlength=len(m))
    lines = []
    for i in range(len(m)):
        size = m.C[i, k] * spread
        top = np.argsort(-np.abs(size), kind="stable")[:_SHOWN]
        main = ", ".join(f"{m.feature_names[j]} {size[j]:+.2g}" for j in top.tolist() if size[j])
        lines.append(
            {"cluster": i, "regions": int(regions[i])} | train[i] | test[i]
            | {"main": main, "who": "all rows" if len(m) == 1 else str(portrait(m, i, _SHOWN))}
        )  # fmt: skip
    total = {"cluster": "all", "regions": int(regions.sum())} | train[-1] | test[-1] | {"main": "", "who": ""}
    return ClusterTable(lines, m.metric if m.metric != "accuracy" else "auc", total)


def _measures(
    m: MergedModels, cluster: Any, eta: FloatArray, response: Response, weight: FloatArray | None, k: int
) -> list[dict[str, Any]]:
    """Size, rate, mean prediction and score of each cluster, and of all rows."""
    wanted = response.column(k) if response.task != "none" else None
    classes = m.task in ("binary", "multiclass")
    value = scores.probabilities(eta)[:, 1 if eta.shape[1] == 1 else k] if classes else eta[:, k]
    out = []
    for i in [*range(len(m)), None]:
        here = np.arange(len(cluster)) if i is None else np.flatnonzero(cluster == i)
        w = None if weight is None else weight[here]
        line: dict[str, Any] = {"rows": len(here), "share": len(here) / max(len(cluster), 1)}
        if wanted is not None:
            line["rate"] = scores.mean(wanted[here], w)
            line["predicted"] = scores.mean(value[here], w)
            if classes:
                line["auc"] = scores.auc(value[here], wanted[here] == 1, w) if len(here) else float("nan")
            else:
                line["r2"] = scores.r2(wanted[here, None], value[here, None], w)
        out.append(line)
    return out


def importance(m: MergedModels, cluster: int | None, output: int, groups: Any) -> dict[str, float]:
    """See `MergedModels.importance`."""
    u = unwrapped_of(m, "importance")
    k = integer(output, "output", low=0, high=m.d.shape[1] - 1)
    mine = m.cluster_of_region[u.region]
    which = range(len(m)) if cluster is None else [integer(cluster, "cluster", low=0, high=len(m) - 1)]
    together = groups_of(m, groups)
    total = np.zeros(len(together.names))
    for i in which:
        here = np.flatnonzero(mine == i)
        if len(here):
            total += len(here) * together.total(m.C[i, k] * read(u.X, here)).var(axis=0)
    share = total / total.sum() if total.sum() > 0 else total
    order = np.argsort(-share, kind="stable")
    return {together.names[j]: float(share[j]) for j in order.tolist()}


def portrait(m: MergedModels, cluster: int, features: int) -> Portrait:
    """See `MergedModels.portrait`."""
    u = unwrapped_of(m, "portrait")
    i = integer(cluster, "cluster", low=0, high=len(m) - 1)
    wanted = integer(features, "features", low=1)
    here = np.flatnonzero(m.cluster_of_region[u.region] == i)
    varied = np.flatnonzero(u.spread > 0)
    mean = np.average(read(u.X, here), axis=0, weights=None if u.weight is None else u.weight[here])
    deviation = (mean - u.centre)[varied] / u.spread[varied]
    top = np.argsort(-np.abs(deviation), kind="stable")[:wanted]
    own, overall = (mean, u.centre) if u.scaling is None else map(u.scaling.original, (mean, u.centre))
    names = tuple(m.feature_names[j] for j in varied[top])
    return Portrait(i, len(here), names, own[varied[top]], overall[varied[top]], deviation[top])


def explain(m: MergedModels, x: Any) -> ClusterExplanation:
    """See `MergedModels.explain`."""
    u = unwrapped_of(m, "explain")
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        i = integer(x, "x", low=-len(u.region), high=len(u.region) - 1) % len(u.region)
        row = read(u.X, slice(i, i + 1))[0]
    else:
        row = u._row(x, "x")
    cluster = int(m._assign(row[None])[0])
    C, d = m.C[cluster], m.d[cluster]
    parts, base, output = C * (row - u.centre), C @ u.centre + d, C @ row + d
    value, known = row if u.scaling is None else u.scaling.original(row), Units.of(m.network)
    names = tuple(headed(name, unit) for name, unit in zip(m.feature_names, known.inputs, strict=True))
    together = groups_of(m, "columns")
    levels = {name: column[0] for name, column in values_of(m, row[None], together).items()}
    coefficient = m.maps(units=True)[0][cluster]
    return ClusterExplanation(
        cluster, names, value, coefficient, parts, base, output, together.names, together.of, levels
    )


def monotone(m: MergedModels, output: int, groups: Any) -> Lines:
    """See `MergedModels.monotone`."""
    k = integer(output, "output", low=0, high=m.d.shape[1] - 1)
    together = groups_of(m, None if groups is None else choice(groups, "groups", ("columns",)))
    share, size = m.count / m.count.sum(), np.bincount(together.of)
    return Lines(
        {
            "feature": name,
            "rises": float(share[m.C[:, k, j] > 0].sum()),
            "falls": float(share[m.C[:, k, j] < 0].sum()),
            "rises_in": np.flatnonzero(m.C[:, k, j] > 0).tolist(),
            "falls_in": np.flatnonzero(m.C[:, k, j] < 0).tolist(),
        }
        for j, name in enumerate(m.feature_names)
        if size[together.of[j]] == 1
    )


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
