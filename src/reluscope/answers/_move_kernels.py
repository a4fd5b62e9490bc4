"""Compiled steps of `_moves`: how far moves within a distance carry a linear function, and what it takes at least."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, error_model="numpy")
def reach(A, cost, room, feature, features, left_over, largest):  # type: ignore[no-untyped-def]
    """The largest `A[b, i] . t` over moves within a distance, for each row of each node: a fractional knapsack (L1), or
    a box. `room` (nodes, moves) and `left_over` (nodes,); `A` may have one node for all.
    """
    nodes = len(room)
    n = A.shape[1]
    out = np.zeros((nodes, n))
    gain = np.zeros(features)
    best = np.zeros(features, np.int64)
    for b in range(nodes):
        _reach_one(A[b if A.shape[0] > 1 else 0], cost, room[b], feature, gain, best, left_over[b], largest, out[b])
    return out


@numba.njit(cache=True, error_model="numpy")
def _reach_one(A, cost, most, feature, gain, best, distance, largest, out):  # type: ignore[no-untyped-def]
    n, K = A.shape
    features = len(gain)
    for i in range(n):
        gain[:] = 0.0
        best[:] = -1
        for k in range(K):
            if A[i, k] > 0.0 and most[k] > 0.0:
                if largest:
                    rate = A[i, k] * min(most[k], distance / cost[k])
                else:
                    rate = A[i, k] / cost[k]
                if rate > gain[feature[k]]:
                    gain[feature[k]] = rate
                    best[feature[k]] = k
        total = 0.0
        if largest:
            for f in range(features):
                total += gain[f]
        else:
            left = distance
            order = np.argsort(-gain)
            for f in order:
                if gain[f] <= 0.0 or left <= 0.0:
                    break
                k = best[f]
                spent = min(left, cost[k] * most[k])
                total += gain[f] * spent
                left -= spent
        out[i] = total


@numba.njit(cache=True, error_model="numpy")
def needed(a, need, cost, most, feature, features, largest):  # type: ignore[no-untyped-def]
    """Moves of least distance with `a . t >= need` (fractional), and that distance; inf where there are none."""
    K = len(a)
    t = np.zeros(K)
    if need <= 0.0:
        return t, 0.0
    gain = np.zeros(features)
    best = np.full(features, -1)
    for k in range(K):
        if a[k] > 0.0 and most[k] > 0.0 and a[k] / cost[k] > gain[feature[k]]:
            gain[feature[k]] = a[k] / cost[k]
            best[feature[k]] = k
    if not largest:
        spent = 0.0
        for f in np.argsort(-gain):
            if gain[f] <= 0.0:
                break
            k = best[f]
            t[k] = min(most[k], need / a[k])
            need -= a[k] * t[k]
            spent += cost[k] * t[k]
            if need <= 0.0 or t[k] < most[k]:
                return t, spent
        return t, np.inf
    low, high = 0.0, 1.0
    for _ in range(200):  # by bisection: the sum of capped terms grows with the distance
        total = 0.0
        for f in range(features):
            if best[f] >= 0:
                total += a[best[f]] * min(most[best[f]], high / cost[best[f]])
        if total >= need:
            break
        low, high = high, 2.0 * high
    else:
        return t, np.inf
    for _ in range(100):
        middle = 0.5 * (low + high)
        total = 0.0
        for f in range(features):
            if best[f] >= 0:
                total += a[best[f]] * min(most[best[f]], middle / cost[best[f]])
        if total >= need:
            high = middle
        else:
            low = middle
    for f in range(features):
        if best[f] >= 0:
            t[best[f]] = min(most[best[f]], high / cost[best[f]])
    return t, high
