"""Agglomerative clustering of linear models over a graph: the pair that can best share one model is merged first.

Cluster a is a linear model `θ_a` with a Gram matrix `A_a` that says where it matters. The best common model of two
clusters under `Σ (θ - θ_a)ᵀ A_a (θ - θ_a)` is `(A_a + A_b)⁻¹ (A_a θ_a + A_b θ_b)`, and having only that one costs

    (θ_a - θ_b)ᵀ A_a (A_a + A_b)⁻¹ A_b (θ_a - θ_b),

Ward's cost when the Gram matrices are multiples of one another. At each step the cheapest pair joined by an edge is
merged; the graph is contracted. With `A_a >= f_a I` the cost is at least `f_a f_b / (f_a + f_b) |θ_a - θ_b|²`, so a
pair waits under this bound and is priced only when it comes up: the same merges, for a small part of the solutions.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.simd import dot

Index = npt.NDArray[np.int64]


def agglomerate(
    theta: FloatArray, gram: FloatArray, edges: Index, floor: FloatArray | None = None
) -> tuple[Index, FloatArray]:
    """Merges (n - 1, 2) of nodes and their costs: leaves are 0..n-1, merge k makes node n + k.

    `theta` (n, p, outputs), `gram` (n, p, p) positive definite; the graph must be connected. `floor` (n,) are numbers
    below the eigenvalues of the Gram matrices (default: 0, which prices every pair). Cost at most about
    `edges * log(edges)` solutions of p equations; with floors some twentieth of that.
    """
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    both = np.concatenate([edges[order], edges[order][:, ::-1]]).astype(np.int64)
    n, p, m = theta.shape
    models, grams = np.zeros((2 * n - 1, p, m)), np.zeros((2 * n - 1, p, p))
    models[:n], grams[:n] = theta, gram
    floors = np.zeros(2 * n - 1)
    floors[:n] = 0.0 if floor is None else floor
    merges, costs, done = _merge_all(n, models, grams, floors, both)
    assert done == n - 1, "the graph is not connected"
    return merges, costs


class Polish:
    """Moves regions between neighbouring clusters while that lowers the total cost, as in Lloyd's algorithm.

    In each round the common model of every cluster is found, and each region goes to the cheapest among its own cluster
    and those of the regions beside it. A cluster never loses its last region. Cost per round `p²` for each region and
    cluster beside it.
    """

    def __init__(self, theta: FloatArray, gram: FloatArray, edges: Index) -> None:
        n, p, m = self.shape = theta.shape
        pull = gram @ theta  # A θ of each region
        self.own = np.einsum("npo,npo->n", theta, pull)
        self.pull = pull.reshape(n, p * m)
        self.upper = np.triu_indices(p)  # Gram matrices are symmetric: half of each is enough
        self.flat = np.ascontiguousarray(gram[:, self.upper[0], self.upper[1]])
        # The cost θᵀAθ - 2 ΘᵀAθ + ΘᵀAΘ of region and cluster is `own` and a product of two vectors.
        self.terms = _in_blocks(self.flat, -2.0 * self.pull)
        both = np.concatenate([edges, edges[:, ::-1]])
        self.beside = both[np.argsort(both[:, 0], kind="stable"), 1]
        self.start = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n))])

    def __call__(self, label: Index, rounds: int) -> Index:
        """The clusters after so many rounds; `label` (n,) in 0..k-1 is the cluster of each region before."""
        k = int(label.max()) + 1
        if k == 1:
            return label
        (_, p, m), upper, pull, flat = self.shape, self.upper, self.pull, self.flat
        twice = np.where(upper[0] == upper[1], 1.0, 2.0)
        label = label.copy()
        total, pulled = (_added(label, part, k) for part in (flat, pull))
        full = np.empty((k, p, p))
        for _ in range(rounds):
            full[:, upper[0], upper[1]] = full[:, upper[1], upper[0]] = total
            common = np.linalg.solve(full, pulled.reshape(k, p, m))
            outer = (common @ common.transpose(0, 2, 1))[:, upper[0], upper[1]] * twice
            best = _cheapest(
                label, self.own, self.terms, _in_blocks(outer, common.reshape(k, p * m)), self.start, self.beside
            )
            lost = (np.bincount(best, minlength=k) == 0)[label]
            best[lost] = label[lost]
            moved = np.flatnonzero(best != label)
            if not len(moved):
                break
            total, pulled = (
                sums + _added(best[moved], part[moved], k) - _added(label[moved], part[moved], k)
                for sums, part in ((total, flat), (pulled, pull))
            )
            label = best
        return label


def _in_blocks(left: FloatArray, right: FloatArray) -> FloatArray:
    """Columns side by side, with zeros up to whole blocks of eight."""
    width = left.shape[1] + right.shape[1]
    return np.hstack([left, right, np.zeros((len(left), -width % 8))])


@kernel
def _added(label, rows, k):  # type: ignore[no-untyped-def]
    """Sums of the rows with each label, shape (k, columns)."""
    out = np.zeros((k, rows.shape[1]))
    for i in range(len(label)):
        for j in range(rows.shape[1]):
            out[label[i], j] += rows[i, j]
    return out


@kernel
def _cheapest(label, own, terms, clusters, start, beside):  # type: ignore[no-untyped-def]
    """The cheapest cluster of each region among its own and those of the regions beside it."""
    n, width = len(label), terms.shape[1]
    terms, clusters = terms.ravel(), clusters.ravel()
    best = label.copy()
    mark = np.full(len(clusters) // width, -1)
    for r in range(n):
        here = label[r]
        low = 0.0
        priced = False
        for e in range(start[r], start[r + 1]):
            c = label[beside[e]]
            if c == here or mark[c] == r:
                continue
            mark[c] = r
            if not priced:
                priced = True
                # The gain must exceed rounding, or regions would go to and fro.
                low = dot(terms, r * width, clusters, here * width, width // 8) - 1e-9 * (own[r] + 1e-300)
            cost = dot(terms, r * width, clusters, c * width, width // 8)
            if cost < low:
                low = cost
                best[r] = c
    return best


@njit(cache=True, error_model="numpy")
def _substitute(models, gram, a, b, o, S, right):  # type: ignore[no-untyped-def]
    """`right` = (S Sᵀ)⁻¹ gram Δ, where Δ is the difference of the models a and b in output o."""
    p = len(right)
    for i in range(p):
        total = 0.0
        for k in range(p):
            total += gram[i, k] * (models[a, k, o] - models[b, k, o])
        for k in range(i):
            total -= S[i, k] * right[k]
        right[i] = total / S[i, i]
    for i in range(p - 1, -1, -1):
        total = right[i]
        for k in range(i + 1, p):
            total -= S[k, i] * right[k]
        right[i] = total / S[i, i]


@njit(cache=True, error_model="numpy")
def _join(models, grams, a, b, S, right):  # type: ignore[no-untyped-def]
    """Cost of joining a and b; leaves the Cholesky factor of the sum of their Gram matrices in S."""
    p, m = models.shape[1], models.shape[2]
    for i in range(p):
        for j in range(i + 1):
            total = grams[a, i, j] + grams[b, i, j]
            for k in range(j):
                total -= S[i, k] * S[j, k]
            if i == j:
                S[i, i] = np.sqrt(max(total, 1e-300))
            else:
                S[i, j] = total / S[j, j]
    cost = 0.0
    for o in range(m):
        _substitute(models, grams[b], a, b, o, S, right)
        for i in range(p):
            total = 0.0
            for k in range(p):
                total += grams[a, i, k] * (models[a, k, o] - models[b, k, o])
            cost += total * right[i]
    return max(cost, 0.0)


@njit(cache=True, error_model="numpy")
def _least(models, floors, a, b):  # type: ignore[no-untyped-def]
    """A lower bound of the cost of joining a and b, a little below its own rounding."""
    floor = floors[a] + floors[b]
    if floor <= 0.0:
        return 0.0
    gap = 0.0
    for i in range(models.shape[1]):
        for o in range(models.shape[2]):
            gap += (models[a, i, o] - models[b, i, o]) ** 2
    return (1.0 - 1e-9) * gap * floors[a] * floors[b] / floor


@kernel
def _merge_all(n, models, grams, floors, both):  # type: ignore[no-untyped-def]
    p, m = models.shape[1], models.shape[2]
    total = 2 * n - 1
    S = np.zeros((p, p))
    right = np.zeros(p)
    parent = np.arange(total)  # a merged node points to the node it became part of
    # Neighbours of a node as a linked list of entries; merging joins two lists in one step.
    entries = len(both) + 1
    follower = np.full(entries, -1)
    target = np.empty(entries, dtype=np.int64)
    head = np.full(total, -1)
    tail = np.full(total, -1)
    for e in range(len(both)):
        a = both[e, 0]
        target[e] = both[e, 1]
        follower[e] = head[a]
        if head[a] < 0:
            tail[a] = e
        head[a] = e
    heap = [(0.0, np.int64(-1), np.int64(-1), False)]  # cost or bound, pair, whether it is the cost
    heap.clear()
    for e in range(len(both)):
        a, b = both[e, 0], both[e, 1]
        if a < b:
            heap.append((_least(models, floors, a, b), a, b, False))
    heapq.heapify(heap)
    merges = np.empty((max(n - 1, 0), 2), dtype=np.int64)
    costs = np.empty(max(n - 1, 0))
    mark = np.full(total, -1)
    made = 0
    clean = n
    while len(heap) > 0 and made < n - 1:
        if n - made < 0.8 * clean:  # most of what waits is about nodes that are gone: popped one by one it costs most
            clean = n - made
            kept = 0
            for i in range(len(heap)):
                if parent[heap[i][1]] == heap[i][1] and parent[heap[i][2]] == heap[i][2]:
                    heap[kept] = heap[i]
                    kept += 1
            del heap[kept:]
            heapq.heapify(heap)
        cost, a, b, priced = heapq.heappop(heap)
        if parent[a] != a or parent[b] != b:
            continue
        if not priced:
            heapq.heappush(heap, (_join(models, grams, a, b, S, right), a, b, True))
            continue
        c = n + made
        merges[made, 0], merges[made, 1], costs[made] = a, b, cost
        made += 1
        parent[a] = c
        parent[b] = c
        _join(models, grams, a, b, S, right)
        for o in range(m):  # common model: θ_b + (A_a + A_b)⁻¹ A_a (θ_a - θ_b)
            _substitute(models, grams[a], a, b, o, S, right)
            for i in range(p):
                models[c, i, o] = models[b, i, o] + right[i]
        for i in range(p):
            for k in range(p):
                grams[c, i, k] = grams[a, i, k] + grams[b, i, k]
        floors[c] = floors[a] + floors[b]
        if head[a] < 0:
            head[c], tail[c] = head[b], tail[b]
        elif head[b] < 0:
            head[c], tail[c] = head[a], tail[a]
        else:
            follower[tail[a]] = head[b]
            head[c], tail[c] = head[a], tail[b]
        # Walk the joined list, drop what is inside or doubled, and price the rest.
        before = -1
        e = head[c]
        while e >= 0:
            t = target[e]
            while parent[t] != t:
                parent[t] = parent[parent[t]]
                t = parent[t]
            target[e] = t
            following = follower[e]
            if t == c or mark[t] == c:
                if before < 0:
                    head[c] = following
                else:
                    follower[before] = following
                if following < 0:
                    tail[c] = before
            else:
                mark[t] = c
                heapq.heappush(heap, (_least(models, floors, t, c), t, np.int64(c), False))
                before = e
            e = following
    return merges, costs, made
