"""Which regions with data are neighbours, and to which of them empty regions belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope._lazy import late
from reluscope.local_models._grouping import Words, pack, spans
from reluscope.threads import blas_threads
from reluscope.workers import jobs_at_hand, on_cluster, run

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_MARGIN = 0.01
"""The box of the data is widened by this share of its size, so that rows on its sides lie in listed regions."""

_TREE_INPUTS = 12
"""Below this many inputs a tree finds nearest points faster than all pairs do."""

_MOST_PAIRED = 50_000
"""Points of which all pairs are looked at (about 30 CPU seconds)."""


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges between regions with data; patterns of empty regions (`words`) with the region each belongs to."""

    kind: str
    edges: Index
    words: Words
    owner: Index


def by_facets(u: Unwrapped, factor: FloatArray, centroid: FloatArray, budget: Any) -> Adjacency | None:
    """Regions that share a facet, or whose territories do; None when the regions of the box cannot be listed in time.

    Every empty region of the data's box belongs to the region with data that is nearest along paths through facets,
    where a step is as long as the change of the local model over the data (`factor`: see `models_of`).
    """
    from reluscope.local_models.coverage import box_regions, data_box

    low, high = data_box(u)
    margin = _MARGIN * (high - low)
    listed, _ = box_regions(u, (low - margin, high + margin), budget)
    if listed is None or listed.stopped:
        return None
    words = pack(listed.network, listed.pattern)
    mine = u._lookup.find(words)
    pairs = listed.adjacency()
    every = model_points(u, listed.pattern, factor)
    step = np.linalg.norm(every[pairs[:, 0]] - every[pairs[:, 1]], axis=1) + 1e-12
    n = len(listed)
    graph = coo_array((step, (pairs[:, 0], pairs[:, 1])), shape=(n, n)).tocsr()
    sources = np.flatnonzero(mine >= 0)
    if not len(sources):
        return None
    _, _, nearest = dijkstra(graph, directed=False, indices=sources, min_only=True, return_predecessors=True)
    owner = np.where(nearest >= 0, mine[np.maximum(nearest, 0)], -1)
    sides = owner[pairs]
    sides = sides[(sides >= 0).all(axis=1) & (sides[:, 0] != sides[:, 1])]
    edges = _once(sides, len(u))
    empty = np.flatnonzero((mine < 0) & (owner >= 0))
    return Adjacency("facets", connected(edges, centroid), words[empty], owner[empty])


def by_distance(u: Unwrapped, centroid: FloatArray, neighbours: int = 10) -> Adjacency:
    """Each region beside those with the nearest centroids."""
    k = min(neighbours + 1, len(centroid))
    near = _nearest(centroid, k)
    pairs = np.column_stack([np.repeat(np.arange(len(centroid)), k), near.ravel()])
    edges = _once(pairs[pairs[:, 0] != pairs[:, 1]], len(centroid))
    nothing = np.zeros((0, u._words.shape[1]), dtype=np.uint64)
    return Adjacency("nearest", connected(edges, centroid), nothing, np.zeros(0, dtype=np.int64))


def _nearest(points: FloatArray, k: int) -> Index:
    """The k nearest points of each, itself among them, shape (n, k)."""
    n = len(points)
    if points.shape[1] < _TREE_INPUTS or n > _MOST_PAIRED:
        cKDTree = late("scipy.spatial", "cKDTree")

        threads = 1 if on_cluster() else jobs_at_hand()
        return np.asarray(cKDTree(points).query(points, k=k, workers=threads)[1], dtype=np.int64).reshape(n, k)
    # In many dimensions a tree visits nearly all pairs: products of blocks are faster.
    centred = points - points.mean(axis=0)
    left = np.column_stack([centred, np.ones(n)])
    right = np.ascontiguousarray(np.column_stack([-2.0 * centred, (centred**2).sum(axis=1)]).T)
    with blas_threads(points.shape[1]):
        parts = spans(n, max(1, (1 << 19) // n))
        return np.concatenate(list(run(_nearest_of, parts, shared=(left, right, k), jobs=jobs_at_hand())))


def _nearest_of(part: slice, left: FloatArray, right: FloatArray, k: int) -> Index:
    """The k nearest points of some."""
    found = np.empty((part.stop - part.start, k), dtype=np.int64)
    _keep_nearest(left[part] @ right, k, found)
    return found


@kernel
def _keep_nearest(distance, k, found):  # type: ignore[no-untyped-def]
    """Indices of the k smallest entries of each row, by insertion."""
    low = np.empty(k)
    for r in range(distance.shape[0]):
        filled = 0
        worst = np.inf
        for j in range(distance.shape[1]):
            d = distance[r, j]
            if d >= worst:
                continue
            i = min(filled, k - 1)
            while i > 0 and low[i - 1] > d:
                low[i], found[r, i] = low[i - 1], found[r, i - 1]
                i -= 1
            low[i], found[r, i] = d, j
            filled = min(filled + 1, k)
            if filled == k:
                worst = low[k - 1]


def connected(edges: Index, centroid: FloatArray) -> Index:
    """The edges, with one more from every separate part to the nearest point of the largest part."""
    cKDTree = late("scipy.spatial", "cKDTree")

    n = len(centroid)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    count, part = connected_components(graph, directed=False)
    if count == 1:
        return edges
    main = np.bincount(part).argmax()
    inside, outside = np.flatnonzero(part == main), np.flatnonzero(part != main)
    distance, near = cKDTree(centroid[inside]).query(centroid[outside])
    order = np.lexsort((distance, part[outside]))
    first = order[np.unique(part[outside][order], return_index=True)[1]]
    extra = np.column_stack([outside[first], inside[near[first]]])
    return _once(np.concatenate([edges, extra]), n)


def _once(pairs: Index, n: int) -> Index:
    """Pairs of two among n, the smaller first, each once and in order."""
    low, high = np.divmod(np.unique(pairs.min(axis=1) * n + pairs.max(axis=1)), n)
    return np.column_stack([low, high])


@dataclass(frozen=True, eq=False)
class Models:
    """Local models and where they matter, in coordinates in which the data's second moments are the identity.

    `theta` (regions, p, outputs): `θᵀ F⁻¹ (x, 1)` is the output. `gram` (regions, p, p), whose eigenvalues are at least
    `floor` (regions,).
    """

    theta: FloatArray
    gram: FloatArray
    floor: FloatArray
    factor: FloatArray


def models_of(u: Unwrapped, breadth: float) -> Models:
    """The regions' models with Gram matrices `Σ_rows h x xᵀ + breadth Σ_rows h I`.

    `h` is the curvature of the loss at the network's output (1 for numbers, p (1 - p) for classes), so costs measure
    what a merge takes away from the network's own fit. The second term stands for a little data everywhere: without it
    regions with fewer rows than coefficients could be joined to anything at no cost.
    """
    from reluscope.local_models._data import read

    factor, inverse = _metric(u)
    curvature = _curvature(u)
    if u.weight is not None:
        curvature = curvature * u.weight
    p = factor.shape[1]
    gram = np.zeros((len(u), p, p))
    order = np.argsort(u.region, kind="stable")
    ends = np.concatenate([[0], np.cumsum(u.count)])
    for part in spans(len(u), max(1, (1 << 21) // (p * p))):
        rows = order[ends[part.start] : ends[part.stop]]
        for some in spans(len(rows), max(1, (1 << 21) // (p * p))):
            x = np.column_stack([read(u.X, rows[some]), np.ones(some.stop - some.start)]) @ inverse.T
            mine = u.region[rows[some]]  # rising: the rows are sorted by region
            starts = np.flatnonzero(np.diff(mine, prepend=-1))
            products = (curvature[rows[some], None, None] * x[:, :, None]) * x[:, None, :]
            gram[mine[starts]] += np.add.reduceat(products, starts, axis=0)
    mass = np.bincount(u.region, curvature, minlength=len(u))
    floor = breadth * np.maximum(mass, 1e-9 * curvature.mean())
    gram += floor[:, None, None] * np.eye(p)
    return Models(_points(*u.maps(), factor), gram, floor, factor)


def adopted(u: Unwrapped, kept: int, breadth: float) -> Index:
    """For each region the one among the first `kept` (the largest) whose model costs its rows least; see `prune`."""
    from reluscope.local_models._data import read

    owner = np.minimum(np.arange(len(u)), kept - 1)
    factor, _ = _metric(u)
    curvature = _curvature(u)
    if u.weight is not None:
        curvature = curvature * u.weight
    C, d = u.maps(np.arange(kept))
    eta = u.prediction
    if C.shape[1] > 2:  # logits count up to a common shift
        C, d = C - C.mean(axis=1, keepdims=True), d - d.mean(axis=1, keepdims=True)
        eta = eta - eta.mean(axis=1, keepdims=True)
    theirs = _points(C, d, factor).reshape(kept, -1)
    mass = np.maximum(np.bincount(u.region, curvature, minlength=len(u)), 1e-9 * curvature.mean())
    order = np.argsort(u.region, kind="stable")
    ends = np.concatenate([[0], np.cumsum(u.count)])
    for part in spans(len(u) - kept, max(1, (1 << 21) // kept)):
        which = np.arange(kept + part.start, kept + part.stop)
        mine = _points(*u.maps(which), factor).reshape(len(which), -1)
        apart = (mine**2).sum(axis=1)[:, None] - 2 * mine @ theirs.T + (theirs**2).sum(axis=1)
        cost = breadth * mass[which, None] * np.maximum(apart, 0.0)
        rows = order[ends[which[0]] : ends[which[-1] + 1]]
        for some in spans(len(rows), max(1, (1 << 21) // (kept * C.shape[1]))):
            x, own = read(u.X, rows[some]), u.region[rows[some]] - which[0]  # rising: the rows are sorted by region
            square = np.zeros((len(x), kept))
            for o in range(C.shape[1]):
                square += (x @ C[:, o].T + d[:, o] - eta[rows[some], o, None]) ** 2
            square *= curvature[rows[some], None]
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            cost[own[starts]] += np.add.reduceat(square, starts, axis=0)
        owner[which] = cost.argmin(axis=1)
    return owner


def model_points(u: Unwrapped, pattern: Any, factor: FloatArray) -> FloatArray:
    """Models of patterns, flattened: their distance is the root mean square difference of outputs over the data."""
    theta = _points(*u.network.output_maps(pattern), factor)
    return theta.reshape(len(theta), -1)


def _points(C: FloatArray, d: FloatArray, factor: FloatArray) -> FloatArray:
    coefficients = np.concatenate([C, d[:, :, None]], axis=2)
    if C.shape[1] > 2:  # logits count up to a common shift
        coefficients = coefficients - coefficients.mean(axis=1, keepdims=True)
    return np.ascontiguousarray((coefficients @ factor).transpose(0, 2, 1))


def _curvature(u: Unwrapped) -> FloatArray:
    """Second derivative of the loss in the output, at the network's output (classes: the mean over the classes)."""
    if u.task in ("regression", "none"):
        return np.ones(len(u.region))
    from reluscope.local_models.scores import probabilities

    p = probabilities(u.prediction)
    # Rows of which the network is all but sure still count a little.
    return np.asarray(np.maximum((p * (1 - p)).mean(axis=1), 1e-3))


def _metric(u: Unwrapped) -> tuple[FloatArray, FloatArray]:
    """A factor F with `F Fᵀ = E[(x, 1)(x, 1)ᵀ]`, so that `|θᵀF|² = E[(w · x + b)²]`, and its (pseudo-)inverse."""
    from reluscope.local_models._data import read

    k = u.network.n_inputs
    total = np.zeros((k + 1, k + 1))
    for rows in spans(len(u.region), 8192):
        part = np.column_stack([read(u.X, rows), np.ones(rows.stop - rows.start)])
        total += (part if u.weight is None else part * u.weight[rows, None]).T @ part
    values, vectors = np.linalg.eigh(total / (len(u.region) if u.weight is None else u.weight.sum()))
    keep = values > 1e-12 * values[-1]  # directions in which the data do not vary do not matter
    root = np.sqrt(values[keep])
    return np.asarray(vectors[:, keep] * root), np.asarray((vectors[:, keep] / root).T)
