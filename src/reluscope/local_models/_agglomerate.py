"""Agglomerative clustering of linear models over a graph: the pair that can best share one model is merged first.

Cluster a is a linear model `θ_a` with a Gram matrix `A_a` that says where it matters. The best common model of two
clusters under `Σ (θ - θ_a)ᵀ A_a (θ - θ_a)` is `(A_a + A_b)⁻¹ (A_a θ_a + A_b θ_b)`, and having only that one costs

    (θ_a - θ_b)ᵀ A_a (A_a + A_b)⁻¹ A_b (θ_a - θ_b),

Ward's cost when the Gram matrices are multiples of one another. At each step the cheapest pair joined by an edge is
merged; the graph is contracted.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import csr_array

from reluscope._check import FloatArray

Index = npt.NDArray[np.int64]


def agglomerate(theta: FloatArray, gram: FloatArray, edges: Index) -> tuple[Index, FloatArray]:
    """Merges (n - 1, 2) of nodes and their costs: leaves are 0..n-1, merge k makes node n + k.

    `theta` (n, p, outputs), `gram` (n, p, p) positive definite; the graph must be connected. Cost about
    `edges * log(edges)` solutions of p equations.
    """
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    both = np.concatenate([edges[order], edges[order][:, ::-1]]).astype(np.int64)
    n, p, m = theta.shape
    models, grams = np.zeros((2 * n - 1, p, m)), np.zeros((2 * n - 1, p, p))
    models[:n], grams[:n] = theta, gram
    merges, costs, done = _merge_all(n, models, grams, both)
    assert done == n - 1, "the graph is not connected"
    return merges, costs


def polish(label: Index, theta: FloatArray, gram: FloatArray, edges: Index, rounds: int) -> Index:
    """Move regions between neighbouring clusters while that lowers the total cost, as in Lloyd's algorithm.

    `label` (n,) in 0..k-1 is the cluster of each region. In each round the common model of every cluster is found, and
    each region goes to the cheapest among its own cluster and those of the regions beside it. A cluster never loses its
    last region. Cost per round `n k p²`.
    """
    k = int(label.max()) + 1
    if k == 1:
        return label
    n, p, m = theta.shape
    here, flat = np.arange(n), gram.reshape(n, p * p)
    pull = gram @ theta  # A θ of each region
    own = np.einsum("npo,npo->n", theta, pull)
    label = label.copy()
    for _ in range(rounds):
        members = csr_array((np.ones(n), (label, here)), shape=(k, n))
        common = np.linalg.solve((members @ flat).reshape(k, p, p), (members @ pull.reshape(n, -1)).reshape(k, p, m))
        # θᵀAθ - 2 ΘᵀAθ + ΘᵀAΘ for all regions and clusters: two matrix products.
        outer = (common @ common.transpose(0, 2, 1)).reshape(k, p * p)
        cost = own[:, None] - 2 * pull.reshape(n, -1) @ common.reshape(k, -1).T + flat @ outer.T
        allowed = np.zeros((n, k), dtype=bool)
        allowed[here, label] = True
        allowed[edges[:, 0], label[edges[:, 1]]] = True
        allowed[edges[:, 1], label[edges[:, 0]]] = True
        cost[~allowed] = np.inf
        best = cost.argmin(axis=1)
        # The gain must exceed rounding, or regions would go to and fro.
        best = np.where(cost[here, label] - cost[here, best] > 1e-9 * (own + 1e-300), best, label)
        lost = np.isin(label, np.setdiff1d(label, best))
        best[lost] = label[lost]
        if (best == label).all():
            break
        label = best
    return label


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
        for i in range(p):  # forward substitution of A_b Δ
            total = 0.0
            for k in range(p):
                total += grams[b, i, k] * (models[a, k, o] - models[b, k, o])
            for k in range(i):
                total -= S[i, k] * right[k]
            right[i] = total / S[i, i]
        for i in range(p - 1, -1, -1):
            total = right[i]
            for k in range(i + 1, p):
                total -= S[k, i] * right[k]
            right[i] = total / S[i, i]
        for i in range(p):
            total = 0.0
            for k in range(p):
                total += grams[a, i, k] * (models[a, k, o] - models[b, k, o])
            cost += total * right[i]
    return max(cost, 0.0)


@njit(cache=True, error_model="numpy")
def _merge_all(n, models, grams, both):  # type: ignore[no-untyped-def]
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
    heap = [(0.0, np.int64(-1), np.int64(-1))]
    heap.clear()
    for e in range(len(both)):
        a, b = both[e, 0], both[e, 1]
        if a < b:
            heap.append((_join(models, grams, a, b, S, right), a, b))
    heapq.heapify(heap)
    merges = np.empty((max(n - 1, 0), 2), dtype=np.int64)
    costs = np.empty(max(n - 1, 0))
    mark = np.full(total, -1)
    made = 0
    while len(heap) > 0 and made < n - 1:
        cost, a, b = heapq.heappop(heap)
        if parent[a] != a or parent[b] != b:
            continue
        c = n + made
        merges[made, 0], merges[made, 1], costs[made] = a, b, cost
        made += 1
        parent[a] = c
        parent[b] = c
        _join(models, grams, a, b, S, right)
        for o in range(m):  # common model: θ_b + (A_a + A_b)⁻¹ A_a (θ_a - θ_b)
            for i in range(p):
                s = 0.0
                for k in range(p):
                    s += grams[a, i, k] * (models[a, k, o] - models[b, k, o])
                for k in range(i):
                    s -= S[i, k] * right[k]
                right[i] = s / S[i, i]
            for i in range(p - 1, -1, -1):
                s = right[i]
                for k in range(i + 1, p):
                    s -= S[k, i] * right[k]
                right[i] = s / S[i, i]
                models[c, i, o] = models[b, i, o] + right[i]
        for i in range(p):
            for k in range(p):
                grams[c, i, k] = grams[a, i, k] + grams[b, i, k]
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
                heapq.heappush(heap, (_join(models, grams, t, c, S, right), t, np.int64(c)))
                before = e
            e = following
    return merges, costs, made
