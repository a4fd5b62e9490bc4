"""Fewer local models: neighbouring regions joined, one generalised linear model refitted in each cluster.

Joining two regions costs what one common linear model takes away from the network's own fit on their rows; the cheapest
pair is joined first, along the edges of a graph: regions that share a facet where the regions of the data's box can be
listed, else those with the nearest centroids. The number of clusters is chosen by K-fold cross-validation of the
refitted models with the one-standard-error rule: the smallest number whose mean loss is within one standard error of
the best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from reluscope._check import FloatArray, choice, generator, integer, real
from reluscope._doors import door
from reluscope._text import count as counted
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models import _adjacency, glm, scores, table
from reluscope.local_models._agglomerate import agglomerate, polish
from reluscope.local_models._data import Response, as_rows, read, weights_of
from reluscope.local_models._grouping import Lookup, Words, pack, spans, trace
from reluscope.local_models._source import Names
from reluscope.local_models.glm import Linear
from reluscope.network import Network
from reluscope.parallel import blas_threads
from reluscope.progress import meter

if TYPE_CHECKING:
    from reluscope.local_models.inference import Intervals
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_MOST_NUMBERS = 200_000_000
"""Numbers in the Gram matrices and models that are clustered in memory (1.6 GB)."""

_MOST_FACET_INPUTS = 3
"""With `adjacency="auto"`, facets are looked for up to this many inputs."""

_REMEMBERED = 4
"""Results that an unwrapped network remembers of each kind, so that asking again costs nothing."""

_REMEMBERED_NUMBERS = 1 << 25
"""Numbers in the Gram matrices of a tree that is remembered (256 MB)."""


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
        return door("MergedModels.plot")(self, kind, ax, **options)

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


def merge(
    u: Unwrapped,
    n: int | None = None,
    *,
    adjacency: str = "auto",
    neighbours: int = 10,
    penalty: float = 1.0,
    breadth: float = 0.1,
    rounds: int = 10,
    most: int = 30,
    folds: int = 5,
    budget: Any = "10s",
    rng: Any = 0,
    progress: Any = "auto",
) -> MergedModels:
    """Merge to `n` models, or to the number (at most `most`) that cross-validation with `folds` chooses (`n=None`).

    `adjacency` is `"facets"`, `"nearest"` (with that many `neighbours`), or `"auto"`: facets for up to three inputs
    when they are found within the `budget`. `penalty` is the ridge of the refits towards the one model of all data, in
    units of rows and standard deviations (see `reluscope.local_models.glm`). `breadth` is the weight of agreement
    everywhere against agreement on the cluster's own rows (see `reluscope.local_models._adjacency.models_of`). After
    the tree is cut, regions may move between neighbouring clusters in at most `rounds` rounds. `rng` deals the rows to
    the folds.

    The tree does not depend on `n`: it is kept for the next call (up to 256 MB), and so are the last results.
    """
    if u.task == "none":
        raise InputError("merge refits models and needs a response; pass y to unwrap")
    choice(adjacency, "adjacency", ("auto", "facets", "nearest"))
    penalty, breadth = real(penalty, "penalty", low=0.0), real(breadth, "breadth", low=1e-6)
    if n is not None:
        n = integer(n, "n", low=1, high=len(u))
    most, folds = integer(most, "most", low=1), integer(folds, "folds", low=2)
    rounds, neighbours = integer(rounds, "rounds", low=0), integer(neighbours, "neighbours", low=1)
    if 2 * len(u) * (u.network.n_inputs + 1) * (u.network.n_inputs + 1 + u.network.n_outputs) > _MOST_NUMBERS:
        raise InputError(
            f"{len(u):,} regions with {u.network.n_inputs} inputs are too many to cluster; unwrap fewer rows"
        )
    # A generator would go on, and a budget object may have been spent: what they gave is not remembered.
    plain = budget is None or isinstance(budget, (str, int, float))
    tree_key = (adjacency, neighbours, breadth, budget) if plain else None
    again = tree_key is not None and (n is not None or isinstance(rng, (int, np.integer)))
    key = (n, tree_key, penalty, rounds, *(() if n is not None else (most, folds, int(rng)))) if again else None

    def make() -> MergedModels:
        with meter(progress, "merge") as report, blas_threads(u.network.n_inputs):
            report(0, f"joining {len(u):,} regions")
            big = len(u) * (u.network.n_inputs + 1) ** 2 > _REMEMBERED_NUMBERS
            joined = _remembered(
                u, "tree", None if big else tree_key, 1, lambda: _join(u, adjacency, neighbours, breadth, budget)
            )
            cut = _Cut(joined, rounds, {})
            validation: tuple[Validation, ...] = ()
            if n is None:
                validation = _validate(u, cut, penalty, min(most, len(u)), folds, generator(rng), report)
            chosen = n or next(v.n for v in validation if v.chosen)
            report(len(u), f"fitting {counted(chosen, 'model')}")
            return _made(
                u,
                joined.graph,
                joined.centroid,
                joined.spread,
                cut(chosen),
                _Refit(u, penalty),
                joined.tree,
                validation,
            )

    found: MergedModels = _remembered(u, "merge", key, _REMEMBERED, make)
    return found


@dataclass(frozen=True, eq=False)
class _Joined:
    """All that merging knows before the number of clusters is chosen."""

    centroid: FloatArray
    spread: FloatArray
    models: _adjacency.Models
    graph: _adjacency.Adjacency
    tree: Dendrogram


def _join(u: Unwrapped, adjacency: str, neighbours: int, breadth: float, budget: Any) -> _Joined:
    centroid, spread = _centroids(u)
    models = _adjacency.models_of(u, breadth)
    graph = _graph(u, models.factor, centroid / spread, adjacency, neighbours, budget)
    weight = np.bincount(u.region, u.weight, minlength=len(u)).astype(np.float64)
    tree = Dendrogram(*agglomerate(models.theta, models.gram, graph.edges, models.floor), weight)
    return _Joined(centroid, spread, models, graph, tree)


def _remembered(u: Unwrapped, kind: str, key: Any, most: int, make: Callable[[], Any]) -> Any:
    """What `make` gave for the same key before, or gives now; the last `most` of a kind are kept (key None: none)."""
    if key is None:
        return make()
    memory = u._memory.setdefault(kind, {})
    if key not in memory:
        memory[key] = make()
        while len(memory) > most:
            del memory[next(iter(memory))]
    return memory[key]


@dataclass(frozen=True, eq=False)
class _Cut:
    """The regions in n clusters: the tree cut, and polished; each n once."""

    joined: _Joined
    rounds: int
    done: dict[int, Index]

    def __call__(self, n: int) -> Index:
        if n not in self.done:
            j = self.joined
            label = np.unique(j.tree.nodes(n), return_inverse=True)[1].astype(np.int64)
            self.done[n] = polish(label, j.models.theta, j.models.gram, j.graph.edges, self.rounds)
        return self.done[n]


def prune(
    u: Unwrapped, min_count: int, *, refit: bool = False, penalty: float = 1.0, breadth: float = 0.1
) -> MergedModels:
    """Regions with at least `min_count` rows keep their own local models; each of the others is adopted by one of them.

    A region goes where the network's own fit suffers least: to the kept model k with the smallest

        Σ_rows h (eta_k(x) - eta(x))² + breadth Σ_rows h |θ_k - θ|²,

    the sum over the region's rows, `h` the curvature of the loss and `|θ_k - θ|²` the mean square difference of the two
    models over all data (the cost of `merge`, with one side fixed). With `refit`, a generalised linear model with a
    ridge `penalty` is fitted to the rows of each. Cost about `adopted rows * kept regions * inputs`.
    """
    min_count = integer(min_count, "min_count", low=1)
    breadth = real(breadth, "breadth", low=0.0)
    large = np.flatnonzero(u.count >= min_count)
    if not len(large):
        raise InputError(f"no region has {min_count} rows; the largest has {int(u.count[0])}")
    if refit and u.task == "none":
        raise InputError("refit needs a response; pass y to unwrap")
    centroid, spread = _centroids(u)
    fitter: Callable[[Index, Index], Linear]
    with blas_threads(u.network.n_inputs):
        nodes = _adjacency.adopted(u, len(large), breadth)
        nothing = np.zeros((0, u._words.shape[1]), dtype=np.uint64)
        graph = _adjacency.Adjacency("adopted", np.zeros((0, 2), dtype=np.int64), nothing, np.zeros(0, dtype=np.int64))
        if refit:
            fitter = _Refit(u, real(penalty, "penalty", low=0.0))
        else:

            def fitter(node: Index, rows: Index) -> Linear:
                C, d = u.maps([int(node)])
                return Linear(C[0], d[0])

        made = _made(u, graph, centroid, spread, nodes, fitter, None, ())
    kept = np.empty(len(made), dtype=np.int64)
    kept[made.cluster_of_centroid[large]] = large
    return replace(made, kept=kept, own=u.count[kept])


def _made(
    u: Unwrapped,
    graph: _adjacency.Adjacency,
    centroid: FloatArray,
    spread: FloatArray,
    nodes: Index,
    fitter: Any,
    tree: Dendrogram | None,
    validation: tuple[Validation, ...],
) -> MergedModels:
    """Clusters numbered by size, models fitted."""
    found, cluster = np.unique(nodes, return_inverse=True)
    count = np.bincount(cluster, u.count, minlength=len(found)).astype(np.int64)
    order = np.argsort(-count, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    cluster = rank[cluster]
    of_row = cluster[u.region]
    by_cluster = np.split(np.argsort(of_row, kind="stable"), np.cumsum(count[order])[:-1])
    models = [fitter(found[k], rows) for k, rows in zip(order, by_cluster, strict=True)]
    return MergedModels(
        u.network,
        u.feature_names,
        u.task,
        u.response.classes,
        graph.kind,
        np.concatenate([u._words, graph.words]),
        np.concatenate([cluster, cluster[graph.owner]]),
        centroid,
        spread,
        cluster,
        np.stack([m.C for m in models]),
        np.stack([m.d for m in models]),
        count[order],
        validation,
        tree,
        u,
        u.columns,
    )


class _Refit:
    """Refits by generalised linear models, shrunk towards the one model of all rows at hand."""

    def __init__(self, u: Unwrapped, penalty: float, rows: Index | None = None) -> None:
        self.u, self.penalty = u, penalty
        self.X = read(u.X, slice(None))
        every = np.arange(len(self.X)) if rows is None else rows
        self.scale = glm.Scale.of(self.X[every], self._weight(every))
        self.whole = self._fit(every, None)

    def __call__(self, cluster: Any, rows: Index) -> Linear:
        return self._fit(rows, self.whole) if len(rows) else self.whole

    def _fit(self, rows: Index, towards: Linear | None) -> Linear:
        response, weight = self.u.response.part(rows), self._weight(rows)
        return glm.fit(self.X[rows], response, penalty=self.penalty, scale=self.scale, weight=weight, towards=towards)

    def _weight(self, rows: Index) -> FloatArray | None:
        return None if self.u.weight is None else self.u.weight[rows]


def candidates(most: int) -> list[int]:
    """Numbers of clusters to compare: all up to 12, then steps of a fifth."""
    found = list(range(1, min(most, 12) + 1))
    while found[-1] < most:
        found.append(min(most, found[-1] + max(1, found[-1] // 5)))
    return found


def _validate(
    u: Unwrapped, cut: _Cut, penalty: float, most: int, folds: int, rng: np.random.Generator, report: Any
) -> tuple[Validation, ...]:
    n = len(u.region)
    folds = min(folds, n)
    if folds < 2:
        return (Validation(1, float("nan"), float("nan"), True),)
    fold = np.empty(n, dtype=np.int64)
    fold[_stratified(u.response, rng)] = np.arange(n) % folds
    tried = candidates(most)
    clusters = []
    for k in tried:
        report(k, f"cutting the tree, {k} of at most {tried[-1]} models")
        clusters.append(cut(k)[u.region])
    loss = np.empty((folds, len(tried)))
    for f in range(folds):
        kept, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        fitter = _Refit(u, penalty, kept)
        for i, cluster in enumerate(clusters):
            report(f * len(tried) + i, f"fold {f + 1} of {folds}, {tried[i]} of at most {tried[-1]} models")
            eta = np.empty((len(held), u.network.n_outputs))
            of_kept, of_held = cluster[kept], cluster[held]
            for k in np.unique(of_held):
                there = of_held == k
                eta[there] = fitter(k, kept[of_kept == k])(fitter.X[held[there]])
            loss[f, i] = _loss(u.response.part(held), eta, None if u.weight is None else u.weight[held])
    mean, error = loss.mean(axis=0), loss.std(axis=0, ddof=1) / np.sqrt(folds)
    best = int(mean.argmin())
    chosen = int(np.flatnonzero(mean <= mean[best] + error[best])[0])
    return tuple(Validation(k, float(mean[i]), float(error[i]), i == chosen) for i, k in enumerate(tried))


def _stratified(response: Response, rng: np.random.Generator) -> Index:
    """Rows in random order, sorted by class, so that dealing them out spreads the classes evenly."""
    n = len(response.code) if response.code is not None else len(response.target)  # type: ignore[arg-type]
    order = rng.permutation(n)
    return order if response.code is None else order[np.argsort(response.code[order], kind="stable")]


def _loss(response: Response, eta: FloatArray, weight: FloatArray | None) -> float:
    if response.target is not None:
        return scores.mean(((response.target - eta) ** 2).mean(axis=1), weight)
    assert response.code is not None
    return scores.log_loss(eta, response.code, weight)


def _centroids(u: Unwrapped) -> tuple[FloatArray, FloatArray]:
    """Mean of the rows of each region, and the standard deviation of each feature over all rows (1 if it is 0)."""
    total = np.zeros((len(u), u.network.n_inputs))
    square = np.zeros(u.network.n_inputs)
    for rows in spans(len(u.region), 8192):
        x = read(u.X, rows)
        total += csr_array((np.ones(len(x)), (u.region[rows], np.arange(len(x)))), shape=(len(u), len(x))) @ x
        square += ((x - u.centre) ** 2).sum(axis=0)
    spread = np.sqrt(square / len(u.region))
    return total / u.count[:, None], np.where(spread > 0, spread, 1.0)


def _graph(
    u: Unwrapped, factor: FloatArray, centroid: FloatArray, adjacency: str, neighbours: int, budget: Any
) -> _adjacency.Adjacency:
    if adjacency == "facets" or (adjacency == "auto" and u.network.n_inputs <= _MOST_FACET_INPUTS):
        found = _adjacency.by_facets(u, factor, centroid, budget)
        if found is not None:
            return found
        if adjacency == "facets":
            raise InputError(
                'the regions of the data\'s box could not be listed; raise budget=, or pass adjacency="nearest"'
            )
    return _adjacency.by_distance(u, centroid, neighbours)
