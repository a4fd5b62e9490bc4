"""Fewer local models: neighbouring regions joined, one generalised linear model refitted in each cluster.

Joining two regions costs what one common linear model takes away from the network's own fit on their rows; the cheapest
pair is joined first, along the edges of a graph: regions that share a facet where the regions of the data's box can be
listed, else those with the nearest centroids. The number of clusters is chosen by repeated K-fold cross-validation of
the refitted models with the one-standard-error rule: the smallest number whose mean loss is within one standard error
of the best. The standard error is that of a mean over rows, each with its held-out loss averaged over the repeats: the
spread over a few folds would be a few numbers, and the choice would change with the deal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, choice, integer, real, seeded
from reluscope._text import count as counted
from reluscope.errors import InputError
from reluscope.local_models import _adjacency, glm, scores, table
from reluscope.local_models._agglomerate import Polish, agglomerate
from reluscope.local_models._data import Response, read
from reluscope.local_models.glm import Linear
from reluscope.local_models.merged import Dendrogram, MergedModels, Validation
from reluscope.progress import meter
from reluscope.threads import blas_threads, look
from reluscope.workers import jobs_at_hand, run, with_jobs

if TYPE_CHECKING:
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


@with_jobs
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
    repeats: int = 5,
    budget: Any = None,
    jobs: Any = None,
    rng: Rng = None,
    progress: Any = None,
) -> MergedModels:
    """Join neighbouring regions and refit one linear model in each cluster.

    The refits are drawn towards the one model of all rows by a ridge (`penalty`), so that small clusters stay sensible;
    the printed heading says so, and `penalty=0` is maximum likelihood.

    Parameters
    ----------
    u : Unwrapped
        With a response.
    n : int, optional
        Number of models; by default the one that cross-validation chooses.
    adjacency : {"auto", "facets", "nearest"}
        Which regions are neighbours: those that share a facet, or those with the nearest centroids. "auto" takes
        facets for up to three inputs when they are listed within the budget.
    neighbours : int
        Neighbours of each region by centroids.
    penalty : float
        Ridge of the refits towards the one model of all data, in units of rows and standard deviations.
    breadth : float
        Weight of agreement everywhere against agreement on the cluster's own rows.
    rounds : int
        After the tree is cut, regions may move between neighbouring clusters in at most so many rounds.
    most : int
        Largest number of models that cross-validation tries.
    folds : int
        Folds of the cross-validation.
    repeats : int
        How often the rows are dealt to the folds; losses are averaged over the deals.
    budget : str, optional
        Time for listing the regions of the data's box (None: "10s").
    jobs : int, optional
        Workers that share cuts, folds and fits, -1 for all cores; the same result for any number of them. The tree
        itself is made by one.
    rng : None, int, SeedSequence or Generator
        Deals the rows to the folds (None: 0, so that two calls on the same data agree).
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    MergedModels

    Raises
    ------
    InputError
        Without a response, or with too many regions to hold in memory.

    Notes
    -----
    The tree does not depend on `n`: it is kept for the next call (up to 256 MB), and so are the last results.
    """
    if u.task == "none":
        raise InputError("merge refits models and needs a response; pass y to unwrap")
    choice(adjacency, "adjacency", ("auto", "facets", "nearest"))
    penalty, breadth = real(penalty, "penalty", low=0.0), real(breadth, "breadth", low=1e-6)
    if n is not None:
        n = integer(n, "n", low=1, high=len(u))
    most, folds = integer(most, "most", low=1), integer(folds, "folds", low=2)
    repeats = integer(repeats, "repeats", low=1)
    rng = 0 if rng is None else rng
    rounds, neighbours = integer(rounds, "rounds", low=0), integer(neighbours, "neighbours", low=1)
    if 2 * len(u) * (u.network.n_inputs + 1) * (u.network.n_inputs + 1 + u.network.n_outputs) > _MOST_NUMBERS:
        raise InputError(
            f"{len(u):,} regions with {u.network.n_inputs} inputs are too many to cluster; unwrap fewer rows"
        )
    # A generator would go on, and a budget object may have been spent: what they gave is not remembered.
    plain = budget is None or isinstance(budget, (str, int, float))
    tree_key = (adjacency, neighbours, breadth, budget) if plain else None
    again = tree_key is not None and (n is not None or isinstance(rng, (int, np.integer)))
    key = (n, tree_key, penalty, rounds, *(() if n is not None else (most, folds, repeats, rng))) if again else None
    generator, seed = (None, None) if n is not None else seeded(rng)

    def make() -> MergedModels:
        with meter(progress, "merge") as report, blas_threads(u.network.n_inputs):
            report(0, f"joining {len(u):,} regions")
            big = len(u) * (u.network.n_inputs + 1) ** 2 > _REMEMBERED_NUMBERS
            joined = _remembered(
                u, "tree", None if big else tree_key, 1, lambda: _join(u, adjacency, neighbours, breadth, budget)
            )
            cut = _Cut(joined, rounds, {})
            validation: tuple[Validation, ...] = ()
            if generator is not None:
                validation = _validate(u, cut, penalty, min(most, len(u)), folds, repeats, generator, report)
            chosen = n or next(v.n for v in validation if v.chosen)
            report(len(u), f"fitting {counted(chosen, 'model')}")
            merged = _assemble(
                u,
                joined.graph,
                joined.centroid,
                joined.spread,
                cut(chosen),
                _Refit(u, penalty),
                joined.tree,
                validation,
            )
            return replace(merged, penalty=penalty, seed=seed)

    models: MergedModels = _remembered(u, "merge", key, _REMEMBERED, make)
    return models


@dataclass(frozen=True, eq=False)
class _Joined:
    """All that merging knows before the number of clusters is chosen."""

    centroid: FloatArray
    spread: FloatArray
    models: _adjacency.Models
    graph: _adjacency.Adjacency
    tree: Dendrogram


def _join(u: Unwrapped, adjacency: str, neighbours: int, breadth: float, budget: Any) -> _Joined:
    centroid, spread = table.centroids(u)
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
            self.done[n] = self.polished(n)
        return self.done[n]

    def polished(self, n: int) -> Index:
        """The same, made anew."""
        label = np.unique(self.joined.tree.nodes(n), return_inverse=True)[1].astype(np.int64)
        return self.polish(label, self.rounds)

    @cached_property
    def polish(self) -> Polish:
        """What all cuts need."""
        return Polish(self.joined.models.theta, self.joined.models.gram, self.joined.graph.edges)


def prune(
    u: Unwrapped, min_count: int, *, refit: bool = False, penalty: float = 1.0, breadth: float = 0.1
) -> MergedModels:
    """Regions with at least `min_count` rows keep their own linear models; the others are adopted by one of them.

    Parameters
    ----------
    u : Unwrapped
    min_count : int
        Rows from which on a region keeps its own model.
    refit : bool
        Fit a generalised linear model to the rows of each cluster instead of keeping the network's own.
    penalty : float
        Ridge of the refits.
    breadth : float
        Weight of agreement everywhere against agreement on the region's own rows.

    Returns
    -------
    MergedModels

    Raises
    ------
    InputError
        If no region has `min_count` rows, or a refit has no response.

    Notes
    -----
    A region goes where the network's own fit suffers least: to the kept model k with the smallest

        Σ_rows h (eta_k(x) - eta(x))² + breadth Σ_rows h |θ_k - θ|²,

    the sum over the region's rows, `h` the curvature of the loss and `|θ_k - θ|²` the mean square difference of the two
    models over all data (the cost of `merge`, with one side fixed). Cost about `adopted rows * kept regions * inputs`.
    """
    min_count = integer(min_count, "min_count", low=1)
    breadth = real(breadth, "breadth", low=0.0)
    large = np.flatnonzero(u.count >= min_count)
    if not len(large):
        raise InputError(f"no region has {min_count} rows; the largest has {int(u.count[0])}")
    if refit and u.task == "none":
        raise InputError("refit needs a response; pass y to unwrap")
    centroid, spread = table.centroids(u)
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

        pruned = _assemble(u, graph, centroid, spread, nodes, fitter, None, ())
    kept = np.empty(len(pruned), dtype=np.int64)
    kept[pruned.cluster_of_region[large]] = large
    return replace(pruned, kept_region=kept, own_count=u.count[kept], penalty=float(penalty) if refit else None)


def _assemble(
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
    node, cluster = np.unique(nodes, return_inverse=True)
    count = np.bincount(cluster, u.count, minlength=len(node)).astype(np.int64)
    order = np.argsort(-count, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    cluster = rank[cluster]
    of_row = cluster[u.region]
    by_cluster = np.split(np.argsort(of_row, kind="stable"), np.cumsum(count[order])[:-1])
    pairs = ((node[k], rows) for k, rows in zip(order, by_cluster, strict=True))
    models = list(run(lambda pair: fitter(*pair), pairs, jobs=jobs_at_hand()))
    centroid, of_centroid = table.pooled(centroid, spread, u.count, cluster)
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
        of_centroid,
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
        self.whole = glm.fit(self.X, u.response, penalty=penalty, scale=self.scale, weight=u.weight, rows=every)

    def __call__(self, cluster: Any, rows: Index) -> Linear:
        return self.of_groups(rows, np.array([0, len(rows)]))[0]

    def of_groups(self, rows: Index, ends: Index) -> list[Linear]:
        """A model for each group of rows, `rows[ends[g]:ends[g + 1]]`; without rows, that of all."""
        u = self.u
        return glm.fits(
            self.X, u.response, rows, ends, penalty=self.penalty, scale=self.scale, weight=u.weight, towards=self.whole
        )

    def _weight(self, rows: Index) -> FloatArray | None:
        return None if self.u.weight is None else self.u.weight[rows]


def candidates(most: int) -> list[int]:
    """Numbers of clusters to compare: all up to 12, then steps of a fifth."""
    numbers = list(range(1, min(most, 12) + 1))
    while numbers[-1] < most:
        numbers.append(min(most, numbers[-1] + max(1, numbers[-1] // 5)))
    return numbers


def _validate(
    u: Unwrapped, cut: _Cut, penalty: float, most: int, folds: int, repeats: int, rng: np.random.Generator, report: Any
) -> tuple[Validation, ...]:
    n = len(u.region)
    folds = min(folds, n)
    if folds < 2:
        return (Validation(1, float("nan"), float("nan"), True),)
    tried = candidates(most)
    clusters, jobs = [], jobs_at_hand()
    _ = cut.polish  # before workers ask for it
    for k, label in zip(tried, run(cut.polished, tried, jobs=jobs), strict=True):
        report(k, f"cutting the tree, {k} of at most {tried[-1]} models")
        cut.done[k] = label
        clusters.append(label[u.region])
    loss = np.zeros((len(tried), n))
    for r in range(repeats):
        fold = np.empty(n, dtype=np.int64)
        fold[_stratified(u.response, rng)] = np.arange(n) % folds
        fitters = list(run(lambda f, fold=fold: _Refit(u, penalty, np.flatnonzero(fold != f)), range(folds), jobs=jobs))
        pairs = list(itertools.product(range(folds), range(len(tried))))
        losses = run(_fold_losses, pairs, shared=(fitters, clusters, fold), jobs=jobs)
        for (f, i), found in zip(pairs, losses, strict=True):
            done = (r * folds + f) * len(tried) + i
            report(done, f"fold {r * folds + f + 1} of {repeats * folds}, {tried[i]} of at most {tried[-1]} models")
            loss[i, fold == f] += found / repeats
    mean, error = _mean_and_error(loss, u.weight)
    best = int(mean.argmin())
    chosen = int(np.flatnonzero(mean <= mean[best] + error[best])[0])
    return tuple(Validation(k, float(mean[i]), float(error[i]), i == chosen) for i, k in enumerate(tried))


def _mean_and_error(loss: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Mean losses over the rows, by weight, and their standard errors."""
    n = loss.shape[1]
    share = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
    mean = loss @ share
    return mean, np.sqrt((loss - mean[:, None]) ** 2 @ share**2 * (n / (n - 1)))


def _fold_losses(pair: tuple[int, int], fitters: list[_Refit], clusters: list[Index], fold: Index) -> FloatArray:
    """The losses of one number of clusters on the rows of one fold, fitted to the others."""
    look()
    f, i = pair
    fitter, cluster = fitters[f], clusters[i]
    u = fitter.u
    kept, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
    n = int(cluster.max()) + 1
    of_kept = cluster[kept].astype(np.uint16 if n < 1 << 16 else np.int64)  # 16 bits are sorted in a few passes
    ends = np.concatenate([[0], np.cumsum(np.bincount(of_kept, minlength=n))])
    models = fitter.of_groups(kept[np.argsort(of_kept, kind="stable")], ends)
    return _losses(u.response.part(held), glm.predict(fitter.X, held, cluster[held], models))


def _stratified(response: Response, rng: np.random.Generator) -> Index:
    """Rows in random order, sorted by class, so that dealing them out spreads the classes evenly."""
    n = len(response.code) if response.code is not None else len(response.target)  # type: ignore[arg-type]
    order = rng.permutation(n)
    return order if response.code is None else order[np.argsort(response.code[order], kind="stable")]


def _losses(response: Response, eta: FloatArray) -> FloatArray:
    """The loss of each row."""
    if response.target is not None:
        return np.asarray(((response.target - eta) ** 2).mean(axis=1))
    assert response.code is not None
    return scores.log_losses(eta, response.code)


def _graph(
    u: Unwrapped, factor: FloatArray, centroid: FloatArray, adjacency: str, neighbours: int, budget: Any
) -> _adjacency.Adjacency:
    if adjacency == "facets" or (adjacency == "auto" and u.network.n_inputs <= _MOST_FACET_INPUTS):
        graph = _adjacency.by_facets(u, factor, centroid, "10s" if budget is None else budget)
        if graph is not None:
            return graph
        if adjacency == "facets":
            raise InputError(
                'the regions of the data\'s box could not all be listed; raise budget=, or pass adjacency="nearest"'
            )
    return _adjacency.by_distance(u, centroid, neighbours)
