"""Merged models: a few linear models, the regions each is for, and how they came about.

`reluscope.local_models.merge` makes them; `MergedModels.load` reads them from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, flag, integer
from reluscope._columns import Names
from reluscope._doors import door
from reluscope._lazy import late
from reluscope._tables import Lines
from reluscope._text import count as counted
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models import scores, table
from reluscope.local_models._data import (
    Response,
    Units,
    as_rows,
    check_beside,
    headed,
    read,
    scaling_of_schema,
    weights_of,
)
from reluscope.local_models._grouping import Lookup, Words, pack, spans
from reluscope.network import Network, chunks
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.clusters import ClusterExplanation, ClusterTable
    from reluscope.local_models.inference import Intervals
    from reluscope.local_models.portrait import Portrait
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dendrogram:
    """The order of the merges: leaves 0..n-1 are regions, merge k joins two nodes into node n + k at `cost[k]`.

    Attributes
    ----------
    merges : (merges, 2) array
    cost : (merges,) array
    weight : (n,) array
    """

    merges: Index
    cost: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.weight)

    def nodes(self, n: int) -> Index:
        """For each leaf the node it belongs to when n clusters are left.

        Parameters
        ----------
        n : int

        Returns
        -------
        (regions,) array of int
        """
        leaves = len(self)
        parent = np.arange(2 * leaves - 1)
        parent[self.merges[: leaves - n]] = np.arange(leaves, 2 * leaves - n)[:, None]
        while True:  # pointer jumping: as many rounds as the logarithm of the depth
            up = parent[parent]
            if (up == parent).all():
                return parent[:leaves]
            parent = up

    def linkage(self, n: int) -> tuple[FloatArray, FloatArray]:
        """The last merges among n clusters in SciPy's form (n - 1, 4), and the weight of each of the n.

        Heights are running maxima: with a graph, a later merge may cost less than an earlier one.

        Parameters
        ----------
        n : int

        Returns
        -------
        merges, weights : (n - 1, 4) and (n,) arrays
        """
        n = min(n, len(self))
        roots = np.unique(self.nodes(n))
        index = {int(node): i for i, node in enumerate(roots.tolist())}
        total = self._weights
        start = len(self) - n
        height = np.maximum.accumulate(self.cost) if len(self.cost) else self.cost
        Z = np.empty((n - 1, 4))
        sizes = dict.fromkeys(index.values(), 1)
        for i in range(n - 1):
            a, b = (index[int(node)] for node in self.merges[start + i])
            index[len(self) + start + i] = n + i
            sizes[n + i] = sizes[a] + sizes[b]
            Z[i] = a, b, height[start + i], sizes[n + i]
        return Z, total[roots]

    @cached_property
    def _weights(self) -> FloatArray:
        total = np.concatenate([self.weight, np.zeros(len(self.merges))])
        for k, (a, b) in enumerate(self.merges.tolist()):
            total[len(self) + k] = total[a] + total[b]
        return total

    def __repr__(self) -> str:
        return f"Dendrogram({len(self):,} regions)"


@dataclass(frozen=True)
class Validation:
    """Cross-validated loss of `n` clusters: mean over the rows (lower is better) and its standard error.

    Attributes
    ----------
    n : int
    loss, error : float
    chosen : bool
    """

    n: int
    loss: float
    error: float
    chosen: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class MergedModels:
    """A few linear models and the regions each is for; clusters are numbered by their rows, most first.

    Attributes
    ----------
    C : (clusters, outputs, inputs) array
    d : (clusters, outputs) array
        The linear models `C x + d`, for the numbers that the network takes; `maps(units=True)` has them for values in
        the units of the columns.
    count : (clusters,) array
        Rows of each.
    validation : tuple of Validation
        The numbers of models that cross-validation compared; empty when the number was given.
    dendrogram : Dendrogram or None
        The order of the merges; None after `prune`.
    kept_region : (clusters,) array or None
        After `prune`: the region whose linear model each cluster has. None after `merge`.
    own_count : (clusters,) array or None
        After `prune`: the rows of that region itself; the cluster's other rows are adopted. None after `merge`.
    unwrapped : Unwrapped or None
        Where the models come from, with the data; None after loading from a file or a pickle.
    columns : tuple of str or None
        Names that the columns of data frames must have (None: any).
    penalty : float or None
        Ridge of the refits towards the one model of all rows; None if the models are the network's own.
    seed : int or None
        `rng=seed` repeats the cross-validation; None if there was none, or a Generator was given.

    Notes
    -----
    A row is sent to the cluster of its region. If its region holds no data, it is sent to the cluster that owns this
    region (facet adjacency), else to that of the nearest centroid. A centroid is the mean of the rows of a region, or
    of several small regions of one cluster: of five rows at least, because models are saved, and the mean of one row is
    that row. Files and pickles hold no data.

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])  # the absolute value
    >>> X = np.linspace(-1, 1, 41)[:, None]
    >>> m = rs.unwrap(net, X, np.abs(X)).merge(2, penalty=0.0)
    >>> m.predict([[-0.5], [0.25]]).round(6).tolist(), round(m.score(X, np.abs(X)), 6)
    ([0.5, 0.25], 1.0)
    """

    network: Network
    feature_names: tuple[str, ...]
    task: str
    classes: tuple[Any, ...]
    adjacency: str
    words: Words
    owner: Index
    centroid: FloatArray
    spread: FloatArray
    cluster_of_centroid: Index
    cluster_of_region: Index
    C: FloatArray
    d: FloatArray
    count: Index
    validation: tuple[Validation, ...]
    dendrogram: Dendrogram | None
    unwrapped: Unwrapped | None
    columns: Names | None = None
    kept_region: Index | None = None
    own_count: Index | None = None
    penalty: float | None = None
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.C)

    @property
    def metric(self) -> str:
        """What `score` measures, higher is better: `"r2"`, `"auc"` or `"accuracy"`."""
        return table.metric_of(self.task, None)

    def assign(self, X: npt.ArrayLike) -> Index:
        """Cluster of each row.

        Parameters
        ----------
        X : (n, inputs)
            Rows.

        Returns
        -------
        (n,) array
        """
        return self._assign(self._rows(X))

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Outputs of the merged models: numbers, or logits of classes.

        Parameters
        ----------
        X : (n, inputs)
            Rows.

        Returns
        -------
        (n,) or (n, outputs) array
            One column for one output, as in scikit-learn.
        """
        eta = self.outputs(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def outputs(self, X: npt.ArrayLike) -> FloatArray:
        """Outputs of the merged models in the network's shape, (n, outputs).

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        (n, outputs) array
        """
        rows = self._rows(X)
        cluster = self._assign(rows)
        out = np.empty((len(rows), self.C.shape[1]))
        for part in spans(len(rows), max(1, (1 << 21) // self.C[0].size)):
            out[part] = np.einsum("nod,nd->no", self.C[cluster[part]], read(rows, part)) + self.d[cluster[part]]
        return out

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Predicted numbers or classes.

        Parameters
        ----------
        X : (n, inputs)
            Rows.

        Returns
        -------
        (n,) or (n, outputs) array
            Numbers, or the most probable class of each row.
        """
        eta = self.decision_function(X)
        if self.task in ("regression", "none"):
            return eta
        return np.asarray(self.classes)[scores.winners(eta)]

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Probability of each class.

        Parameters
        ----------
        X : (n, inputs)
            Rows.

        Returns
        -------
        (n, classes) array

        Raises
        ------
        InputError
            If the models predict numbers.
        """
        if self.task in ("regression", "none"):
            raise InputError("predict_proba is for classes; these models predict numbers")
        return scores.probabilities(self.outputs(X))

    def score(self, X: npt.ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """Score on new data, higher is better.

        Parameters
        ----------
        X : (n, inputs)
            Rows.
        y : (n,) or (n, outputs)
            Their responses.
        sample_weight : (n,), optional
            Their weights.

        Returns
        -------
        float
            AUC (two classes), accuracy (more) or R² (numbers, averaged over outputs).
        """
        eta = self.outputs(X)
        check_beside(X, y, sample_weight)
        response = self._encoder.encode(y, len(eta))
        weight = weights_of(sample_weight, len(eta))
        rows = table.Rows(None, np.zeros(len(eta), dtype=np.int64), response, eta, weight)
        return table.overall(rows, None)

    @cached_property
    def data_score(self) -> float:
        """The score on the data these models were made from; nan without a response, or after loading from a file."""
        u = self.unwrapped
        if u is None or u.task == "none":
            return float("nan")
        return table.overall(table.Rows(None, u.region, u.response, self.outputs(u.X), u.weight), None)

    def maps(self, *, units: bool = False) -> tuple[FloatArray, FloatArray]:
        """The linear models `C x + d` of the clusters.

        Parameters
        ----------
        units : bool
            For values `x` in the units of the columns, instead of the numbers that the network takes.

        Returns
        -------
        C : (clusters, outputs, inputs) array
        d : (clusters, outputs) array
        """
        scaling = scaling_of_schema(self.network) if flag(units, "units") else None
        return (self.C, self.d) if scaling is None else scaling.model(self.C, self.d)

    def table_rows(self, output: int = 0) -> list[dict[str, Any]]:
        """One dictionary per cluster: rows, share, regions, intercept, coefficients in the units of the columns.

        After pruning also the region that was kept, its own rows, and the rows it adopted from smaller regions.

        Parameters
        ----------
        output : int
            Index of the output.

        Returns
        -------
        list of dict
        """
        k = integer(output, "output", low=0, high=self.d.shape[1] - 1)
        regions = np.bincount(self.cluster_of_region, minlength=len(self))
        C, d = self.maps(units=True)
        known = Units.of(self.network)
        names = [headed(name, known.coefficient(k, j)) for j, name in enumerate(self.feature_names)]
        return [
            {"cluster": i}
            | self._origin(i)
            | {
                "count": int(self.count[i]),
                "share": float(self.count[i] / self.count.sum()),
                "regions": int(regions[i]),
                headed("intercept", known.outputs[k]): float(d[i, k]),
            }
            | {name: float(C[i, k, j]) for j, name in enumerate(names)}
            for i in range(len(self))
        ]

    def to_pandas(self, output: int = 0) -> Any:
        """The table of one output as a pandas DataFrame.

        Parameters
        ----------
        output : int

        Returns
        -------
        DataFrame
        """
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.table_rows(output))

    def intervals(self, cluster: int, **options: Any) -> Intervals:
        """Wald or bootstrap intervals for the coefficients of one cluster's model.

        Parameters
        ----------
        cluster : int
            Index of the cluster.
        **options
            Those of `Unwrapped.intervals`.

        Returns
        -------
        Intervals
        """
        from reluscope.local_models.inference import of_rows

        u = unwrapped_of(self, "intervals")
        cluster = integer(cluster, "cluster", low=0, high=len(self) - 1)
        output = integer(options.pop("output", 0) or 0, "output", low=0, high=self.d.shape[1] - 1)
        rows = np.flatnonzero(self.cluster_of_region[u.region] == cluster)
        C, d = self.maps(units=True)
        return of_rows(u, rows, output, C[cluster, output], float(d[cluster, output]), model="merged", **options)

    # -- as a model of its own -----------------------------------------------------------------------------------

    def summary(self, X: Any = None, y: Any = None, *, sample_weight: Any = None, output: int = 0) -> ClusterTable:
        """One line per cluster for a committee paper: size, event rate, scores on training and test rows, who is in it.

        Parameters
        ----------
        X : (n, inputs), optional
            Test rows, to stand beside the data these models were made from.
        y : (n,) or (n, outputs), optional
            Their responses.
        sample_weight : (n,), optional
            Their weights.
        output : int
            Index of the output (classes: that class against the others).

        Returns
        -------
        ClusterTable
        """
        from reluscope.local_models.clusters import summary

        return summary(self, X, y, sample_weight, output)

    def single_class_levels(self) -> list[dict[str, Any]]:
        """Levels (features of zeros and ones) whose rows in a cluster are all of one class: the data set no bound to
        such a coefficient, and its size comes from the ridge alone. Fewest rows first.

        Returns
        -------
        list of dict
            `cluster`, `feature`, `rows`, `class`; empty for numbers, or without the data.
        """
        from reluscope.local_models.clusters import single_class_levels

        return single_class_levels(self)

    def importance(self, cluster: int | None = None, *, output: int = 0, groups: Any = "columns") -> dict[str, float]:
        """Share of each feature in the variance of the models' output, feature by feature, largest first.

        Parameters
        ----------
        cluster : int, optional
            One cluster; by default all, each with its own rows.
        output : int
        groups : "columns", None or mapping of str to features
            As for `Unwrapped.importance`: by default the inputs of a category together.

        Returns
        -------
        dict of str to float
            Shares of the variance of `coefficient × value`, which sum to 1.
        """
        from reluscope.local_models.clusters import importance

        return importance(self, cluster, output, groups)

    def portrait(self, cluster: int, features: int = 3) -> Portrait:
        """How the rows of one cluster differ from all rows: the features whose means differ most.

        Parameters
        ----------
        cluster : int
        features : int

        Returns
        -------
        Portrait
        """
        from reluscope.local_models.clusters import portrait

        return portrait(self, cluster, features)

    def explain(self, x: Any) -> ClusterExplanation:
        """One prediction of the merged models taken apart: its cluster's linear model, feature by feature.

        Parameters
        ----------
        x : int or (inputs,)
            Index of a row of the data, or an input.

        Returns
        -------
        ClusterExplanation
        """
        from reluscope.local_models.clusters import explain

        return explain(self, x)

    def monotone(self, *, output: int = 0, groups: str | None = "columns") -> Lines:
        """By feature: the share of rows, and the clusters, in which the output rises or falls with it.

        Parameters
        ----------
        output : int
        groups : "columns" or None
            Whether categories of several inputs, which have no direction, are left out.

        Returns
        -------
        Lines
            Exact within clusters, where the models are linear; a row that moves to another cluster may jump.
        """
        from reluscope.local_models.clusters import monotone

        return monotone(self, output, groups)

    def to_python(self) -> str:
        """The models as the text of a Python module that imports nothing but `math`: `outputs(row)` of a dictionary.

        Returns
        -------
        str
        """
        from reluscope.local_models.export import to_python

        return to_python(self)

    def to_sql(self, table: str = "applicants", *, key: str = "id") -> str:
        """The models as one SQL query with a `CASE` by cluster: key, cluster and outputs of every row of a table.

        For classes the columns are "logit of ..." and "probability of ...", with the label. A row with a level that the
        models do not know, or with a missing entry, has NULL for cluster and outputs.

        Parameters
        ----------
        table : str
            Name of the table; its columns are those of the data.
        key : str
            Column that names its rows.

        Returns
        -------
        str
            Common table expressions, plain arithmetic and EXP: for SQLite (3.35 or newer) and PostgreSQL.
        """
        from reluscope.local_models.export import to_sql

        return to_sql(self, table, key)

    def to_onnx(self, path: str | PathLike[str]) -> None:
        """Write the models as an ONNX file in double precision: `x` (n, inputs) to `output` and `cluster`.

        Parameters
        ----------
        path : path
        """
        from reluscope.local_models.export import to_onnx

        to_onnx(self, path)

    def flatten(self, **options: Any) -> Network:
        """A network with one hidden layer made from these models; see `reluscope.local_models.flatten`.

        Parameters
        ----------
        **options
            Go to that function.

        Returns
        -------
        Network
        """
        from reluscope.local_models.flatten import flatten

        return flatten(self, **options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the models to an `.npz` file; `MergedModels.load` reads it back.

        Parameters
        ----------
        path : path
        """
        from reluscope.local_models._storage import save_merged

        save_merged(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MergedModels:
        """Read models written by `save`.

        Parameters
        ----------
        path : path

        Returns
        -------
        MergedModels

        Raises
        ------
        InputError
            If the file is not one of merged models.
        """
        from reluscope.local_models._storage import load_merged

        return load_merged(path)

    def plot(self, kind: str = "dendrogram", ax: Any = None, **options: Any) -> Any:
        """Draw a picture.

        Parameters
        ----------
        kind : {"dendrogram", "validation", "regions"}
            The order of the merges, the loss by number of models, or the clusters in the plane of two inputs.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **options
            `leaves=` of the dendrogram, `view=` of the regions.

        Returns
        -------
        matplotlib Axes
        """
        return door("MergedModels.plot")(self, kind, ax, **options)

    def __repr__(self) -> str:
        first = 5 if self.own_count is None else 8
        rows = [dict(list(row.items())[: first + 6]) for row in self.table_rows()[:12]]
        lines = [self._headline(), text_table(rows)]
        left = [f"{len(self) - 12:,} more models"] if len(self) > 12 else []
        more = len(self.feature_names) - 6
        left += [f"{more:,} more coefficients"] if more > 0 else []
        lines += [f"{', '.join(left)} (to_pandas())"] if left else []
        return "\n".join([*lines, *self._thin()])

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy holds: the models, without the data they were made from."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"unwrapped": None}

    # -- inside --------------------------------------------------------------------------------------------------

    def _headline(self) -> str:
        regions = f"{len(self.cluster_of_region):,} regions"
        if self.own_count is None:
            head = f"{counted(len(self), 'merged model')} ({self.task}, {self.adjacency}) of {regions}"
        else:
            own, rows = int(self.own_count.sum()), int(self.count.sum())
            share = 100 * (rows - own) / rows
            head = (
                f"{len(self):,} of {regions} kept ({self.task}): {own:,} rows of their own, {rows - own:,} rows "
                f"({share:.1f} %) adopted from smaller regions"
            )
        head += self._choice()
        if self.penalty:
            head += f"; refitted with a ridge of {self.penalty:g} towards the one model of all rows"
        elif self.penalty is not None:
            head += "; refitted by maximum likelihood"
        u = self.unwrapped
        if u is None or np.isnan(self.data_score):
            return head
        return f"{head}; {self.metric} {self.data_score:.4f} on these data (network {u.score:.4f})"

    def within_one_error(self) -> list[int]:
        """The numbers of models whose cross-validated loss is within one standard error of the best; the smallest was
        chosen. Empty when the number was given.

        Returns
        -------
        list of int
        """
        best = min(self.validation, key=lambda v: v.loss, default=None)
        return [] if best is None else [v.n for v in self.validation if v.loss <= best.loss + best.error]

    def _thin(self) -> list[str]:
        """A line about coefficients that only the ridge holds back."""
        found = [] if self.penalty is None else self.single_class_levels()
        if not found:
            return []
        shown = ", ".join(
            f"{row['feature']} in cluster {row['cluster']} ({counted(row['rows'], 'row')}, all {row['class']})"
            for row in found[:6]
        )
        more = f" and {len(found) - 6:,} more (single_class_levels())" if len(found) > 6 else ""
        size = "only the ridge gives them their size" if self.penalty else "they have no finite estimate"
        return [f"coefficients of levels with one class alone: {size}: {shown}{more}"]

    def _choice(self) -> str:
        """How the number of models came about."""
        good = self.within_one_error()
        if not good:
            return ""
        best = min(self.validation, key=lambda v: v.loss)
        seed = "" if self.seed is None else f" (seed {self.seed})"
        said = f"; {len(self)} chosen by cross-validation{seed}"
        if len(good) == 1:
            return f"{said}, the only number within one standard error of the best"
        tried = [v.n for v in self.validation]
        gaps = tried[tried.index(good[0]) : tried.index(good[-1]) + 1] != good
        shown = ", ".join(map(str, good)) if gaps or len(good) == 2 else f"{good[0]} to {good[-1]}"
        return f"{said}: {shown} are within one standard error of the best ({best.n})"

    def _origin(self, i: int) -> dict[str, int]:
        if self.own_count is None or self.kept_region is None:
            return {}
        own = int(self.own_count[i])
        return {"region": int(self.kept_region[i]), "own": own, "adopted": int(self.count[i]) - own}

    def _rows(self, X: Any) -> Any:
        known = self.columns is not None
        return as_rows(X, self.network, names=(self.columns, self.feature_names) if known else ())  # type: ignore[arg-type]

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.words)

    @cached_property
    def _tree(self) -> Any:
        cKDTree = late("scipy.spatial", "cKDTree")

        return cKDTree(self.centroid / self.spread)

    @cached_property
    def _encoder(self) -> Response:
        """An empty response in the terms of these models."""
        target = np.zeros((0, self.d.shape[1])) if self.task == "regression" else None
        return Response(self.task, target, None, self.classes)

    def _assign(self, rows: Any) -> Index:
        net = self.network
        cluster = np.empty(len(rows), dtype=np.int64)
        with blas_threads(max(net.widths)):
            for part in chunks(net, len(rows)):
                x = read(rows, part)
                known = self._lookup.find(pack(net, net.pattern(x)))
                cluster[part] = self.owner[np.maximum(known, 0)]
                lost = np.flatnonzero(known < 0)
                if len(lost):
                    near = self._tree.query(x[lost] / self.spread)[1]
                    cluster[part.start + lost] = self.cluster_of_centroid[near]
        return cluster


def unwrapped_of(models: MergedModels, what: str) -> Unwrapped:
    """The network and the data that the models were merged from; an `InputError` about `what` if they are not there."""
    if models.unwrapped is None:
        raise InputError(f"{what} needs the data, which models read from a file or a pickle do not hold; merge again")
    return models.unwrapped
