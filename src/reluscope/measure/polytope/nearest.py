"""The distance from the origin to a polytope: a sure upper bound of a mass that every point has missed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._kernels import kernel


@kernel
def _fit_last(E: Any, chosen: Any, size: int, Q: Any, R: Any, x: Any) -> None:
    """Least-squares x for the last unit vector in terms of the chosen columns of E, by twice-done Gram-Schmidt.

    A column that depends on those before it gets the coefficient 0.
    """
    rows = E.shape[0]
    for q in range(size):
        for j in range(rows):
            Q[q, j] = E[j, chosen[q]]
        for p in range(q):
            R[p, q] = 0.0
        for _ in range(2):
            for p in range(q):
                dot = 0.0
                for j in range(rows):
                    dot += Q[p, j] * Q[q, j]
                for j in range(rows):
                    Q[q, j] -= dot * Q[p, j]
                R[p, q] += dot
        norm = 0.0
        for j in range(rows):
            norm += Q[q, j] * Q[q, j]
        norm = math.sqrt(norm)
        R[q, q] = norm
        for j in range(rows):
            Q[q, j] = Q[q, j] / norm if norm > 1e-13 else 0.0
    for q in range(size - 1, -1, -1):
        total = Q[q, rows - 1]
        for p in range(q + 1, size):
            total -= R[q, p] * x[p]
        x[q] = total / R[q, q] if R[q, q] > 1e-13 else 0.0


@kernel
def nearest_point(rows: Any, lo: Any, hi: Any) -> float:
    """Distance of the origin from {lo <= rows u <= hi} (rows of unit length); inf if the set is empty.

    Least-distance programming by non-negative least squares (Lawson & Hanson 1974, chapter 23): with one-sided
    rows g u >= h the residual of min |E x - e|, x >= 0, where E stacks gᵀ over hᵀ and e is the last unit vector, is
    zero exactly when the set is empty.
    """
    m, n = rows.shape
    E = np.zeros((n + 1, 2 * m))
    count = 0
    for i in range(m):
        for side in range(2):
            bound = lo[i] if side == 0 else -hi[i]
            if bound > -np.inf:
                sign = 1.0 if side == 0 else -1.0
                length = math.sqrt(1.0 + bound * bound)
                for j in range(n):
                    E[j, count] = sign * rows[i, j] / length
                E[n, count] = bound / length
                count += 1
    x = np.zeros(count)
    passive = np.zeros(count, dtype=np.bool_)
    chosen = np.zeros(count, dtype=np.int64)
    trial = np.zeros(count)
    Q = np.zeros((count, n + 1))
    R = np.zeros((count, count))
    residual = np.zeros(n + 1)
    residual[n] = 1.0
    for _ in range(3 * count + 10):
        best = -1
        best_gain = 1e-12
        for c in range(count):
            if not passive[c]:
                gain = 0.0
                for j in range(n + 1):
                    gain += E[j, c] * residual[j]
                if gain > best_gain:
                    best, best_gain = c, gain
        if best < 0:
            break
        passive[best] = True
        for _ in range(count + 1):
            size = 0
            for c in range(count):
                if passive[c]:
                    chosen[size] = c
                    size += 1
            _fit_last(E, chosen, size, Q, R, trial)
            step = 1.0
            for q in range(size):
                if trial[q] <= 0.0:
                    gap = x[chosen[q]] - trial[q]
                    step = min(step, x[chosen[q]] / gap if gap > 0.0 else 0.0)
            for q in range(size):
                c = chosen[q]
                x[c] += step * (trial[q] - x[c])
                if trial[q] <= 0.0 and x[c] <= 1e-15:
                    x[c] = 0.0
                    passive[c] = False
            if step == 1.0:
                break
        for j in range(n + 1):
            total = 1.0 if j == n else 0.0
            for c in range(count):
                total -= E[j, c] * x[c]
            residual[j] = total
    if not residual[n] > 1e-13:
        return np.inf
    square = 0.0
    for j in range(n):
        square += residual[j] * residual[j]
    return math.sqrt(square) / residual[n]
