"""Merged models: a few linear models, the regions each is for, and how they came about.

`reluscope.local_models.merge` makes them; `MergedModels.load` reads them from a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer
from reluscope._text import count as counted
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models import scores, table
from reluscope.local_models._data import Response, as_rows, read, weights_of
from reluscope.local_models._grouping import Lookup, Words, pack, spans, trace
from reluscope.local_models._source import Names
from reluscope.network import Network
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.inference import Intervals
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dendrogram:
    """The order of the merges: leaves 0..n-1 are regions, merge k joins two nodes into node n + k at `cost[k]`."""

    merges: Index
    cost: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.weight)

    def nodes(self, n: int) -> Index:
        """For each leaf the node it belongs to when n clusters are left."""
        leaves = len(self)
        parent = np.arange(2 * leaves - 1)
        for k in range(leaves - n):
            parent[self.merges[k]] = leaves + k
        while True:  # pointer jumping: as many rounds as the logarithm of the depth
            up = parent[parent]
            if (up == parent).all():
                return parent[:leaves]
            parent = up

    def linkage(self, n: int) -> tuple[FloatArray, FloatArray]:
        """The last merges among n clusters in SciPy's form (n - 1, 4), and the weight of each of the n.

        Heights are running maxima: with a graph, a later merge may cost less than an earlier one.
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
            made = n + i
            index[len(self) + start + i] = made
            sizes[made] = sizes[a] + sizes[b]
            Z[i] = a, b, height[start + i], sizes[made]
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
    """Cross-validated loss of one number of clusters: mean over the folds, its standard error, and the fold's size."""

    n: int
    loss: float
    error: float
    chosen: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class MergedModels:
    """A few linear models and the regions each is for; clusters are numbered by their rows, most first.

    Row x is sent to the cluster of its region; if no data lie in its region, to the cluster that owns the empty region
    (facet adjacency), else to that of the nearest region's centroid. `C` (clusters, outputs, inputs), `d` (clusters,
    outputs), `count` (clusters,) rows of each. After `prune`, `kept` is the region whose model each cluster has and
    `own` the rows of that region itself; the other rows of the cluster are adopted (both None after `merge`).
    `columns` are the names that the columns of data frames must have (None: any). `unwrapped` is None after loading
    from a file.
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
    C: FloatArray
    d: FloatArray
    count: Index
    validation: tuple[Validation, ...]
    dendrogram: Dendrogram | None
    unwrapped: Unwrapped | None
    columns: Names | None = None
    kept: Index | None = None
    own: Index | None = None

    def __len__(self) -> int:
        return len(self.C)

    @property
    def metric(self) -> str:
        """What `score` measures: `mse`, `auc` or `accuracy`."""
        return table.metric_of(self.task, None)

    def assign(self, X: npt.ArrayLike) -> Index:
        """Cluster of each row."""
        return self._assign(self._rows(X))

    def decision(self, X: npt.ArrayLike) -> FloatArray:
        """Outputs of the merged models, shape (n, outputs): numbers, or logits of classes."""
        rows = self._rows(X)
        cluster = self._assign(rows)
        out = np.empty((len(rows), self.C.shape[1]))
        for part in spans(len(rows), max(1, (1 << 21) // self.C[0].size)):
            out[part] = np.einsum("nod,nd->no", self.C[cluster[part]], read(rows, part)) + self.d[cluster[part]]
        return out

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Numbers (n,) or (n, outputs), or the most probable class of each row."""
        eta = self.decision(X)
        if self.task in ("regression", "none"):
            return eta[:, 0] if eta.shape[1] == 1 else eta
        best = (eta[:, 0] > 0).astype(np.int64) if eta.shape[1] == 1 else eta.argmax(axis=1)
        return np.asarray(self.classes)[best]

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Class probabilities, shape (n, classes)."""
        if self.task in ("regression", "none"):
            raise InputError("predict_proba is for classes; these models predict numbers")
        return scores.probabilities(self.decision(X))

    def score(self, X: npt.ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """AUC (two classes), accuracy (more) or mean squared error on new data."""
        eta = self.decision(X)
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
        return table.overall(table.Rows(None, u.region, u.response, self.decision(u.X), u.weight), None)

    def table_rows(self, output: int = 0) -> list[dict[str, Any]]:
        """One dictionary per cluster: rows, share, regions, intercept, coefficients.

        After pruning also the region that was kept, its own rows, and the rows it adopted from smaller regions.
        """
        k = integer(output, "output", low=0, high=self.d.shape[1] - 1)
        regions = np.bincount(self.cluster_of_centroid, minlength=len(self))
        return [
            {"cluster": i}
            | self._origin(i)
            | {
                "count": int(self.count[i]),
                "share": float(self.count[i] / self.count.sum()),
                "regions": int(regions[i]),
                "intercept": float(self.d[i, k]),
            }
            | {name: float(self.C[i, k, j]) for j, name in enumerate(self.feature_names)}
            for i in range(len(self))
        ]

    def to_pandas(self, output: int = 0) -> Any:
        """The table of one output as a pandas DataFrame."""
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.table_rows(output))

    def intervals(self, cluster: int, **options: Any) -> Intervals:
        """Wald or bootstrap intervals for one cluster's model; options as for `Unwrapped.intervals`."""
        from reluscope.local_models.inference import _single, of_rows

        u = self._source("intervals")
        cluster = integer(cluster, "cluster", low=0, high=len(self) - 1)
        output = integer(options.pop("output", 0) or 0, "output", low=0, high=self.d.shape[1] - 1)
        rows = np.flatnonzero(self.cluster_of_centroid[u.region] == cluster)
        settings: dict[str, Any] = {"method": "wald", "level": 0.95, "draws": 500, "penalty": 0.0, "rng": 0} | options
        return of_rows(
            read(u.X, rows),
            _single(u.response.part(rows), output),
            self.feature_names,
            np.append(self.d[cluster, output], self.C[cluster, output]),
            None if u.weight is None else u.weight[rows],
            **settings,
        )

    def flatten(self, **options: Any) -> Network:
        """A network with one hidden layer made from these models; see `reluscope.local_models.flatten`."""
        from reluscope.local_models.flatten import flatten

        return flatten(self, **options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the models to an `.npz` file; `MergedModels.load` reads it back."""
        from reluscope.local_models._storage import save_merged

        save_merged(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MergedModels:
        """Read models written by `save`."""
        from reluscope.local_models._storage import load_merged

        return load_merged(path)

    def plot(self, kind: str = "dendrogram", ax: Any = None, **options: Any) -> Any:
        """A picture: `"dendrogram"`, `"validation"`, or `"regions"` (two inputs). Returns the Axes."""
        from reluscope.plot.merged import plot_merged

        return plot_merged(self, kind, ax, **options)

    def __repr__(self) -> str:
        first = 5 if self.own is None else 8
        rows = [dict(list(row.items())[: first + 6]) for row in self.table_rows()[:12]]
        lines = [self._headline(), text_table(rows)]
        left = [f"{len(self) - 12:,} more models"] if len(self) > 12 else []
        more = len(self.feature_names) - 6
        left += [f"{more:,} more coefficients"] if more > 0 else []
        return "\n".join([*lines, f"{', '.join(left)} (to_pandas())"] if left else lines)

    # -- inside --------------------------------------------------------------------------------------------------

    def _headline(self) -> str:
        regions = f"{len(self.centroid):,} regions"
        if self.own is None:
            head = f"{counted(len(self), 'merged model')} ({self.task}, {self.adjacency}) of {regions}"
        else:
            own, rows = int(self.own.sum()), int(self.count.sum())
            share = 100 * (rows - own) / rows
            head = (
                f"{len(self):,} of {regions} kept ({self.task}): {own:,} rows of their own, {rows - own:,} rows "
                f"({share:.1f} %) adopted from smaller regions"
            )
        u = self.unwrapped
        if u is None or np.isnan(self.data_score):
            return head
        return f"{head}; {self.metric} {self.data_score:.4f} on these data (network {u.score:.4f})"

    def _origin(self, i: int) -> dict[str, int]:
        if self.own is None or self.kept is None:
            return {}
        own = int(self.own[i])
        return {"region": int(self.kept[i]), "own": own, "adopted": int(self.count[i]) - own}

    def _rows(self, X: Any) -> Any:
        known = self.columns is not None
        return as_rows(X, self.network, names=(self.columns, self.feature_names) if known else ())  # type: ignore[arg-type]

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.words)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

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
            for part in net._chunks(len(rows)):
                x = read(rows, part)
                known = self._lookup.find(pack(net, trace(net, x)[0]))
                cluster[part] = self.owner[np.maximum(known, 0)]
                lost = np.flatnonzero(known < 0)
                if len(lost):
                    near = self._tree.query(x[lost] / self.spread)[1]
                    cluster[part.start + lost] = self.cluster_of_centroid[near]
        return cluster

    def _source(self, what: str) -> Unwrapped:
        if self.unwrapped is None:
            raise InputError(f"{what} needs the data; merge again, models read from a file hold none")
        return self.unwrapped
