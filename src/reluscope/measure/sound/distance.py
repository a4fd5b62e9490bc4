"""How far a polyhedron is from the origin, with a certificate; and the mass of what lies that far out.

A convex set at distance d from the mean has at most the mass of the half-space at its nearest point: `Phi(-d)` under
the standard normal law, `exp(-d^2 / 2)` under independent coordinates that are sub-Gaussian with variance 1. Any
multipliers `l >= 0` prove `d >= e l / |C^T l|` for `{C x >= e}`, so the solver may be rough.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from reluscope._check import FloatArray

FAR = 39.0
"""Distances are cut here: beyond, no double says how little mass is left."""


@numba.njit(cache=True, nogil=True)
def _solve(G, e, lam, sweeps):  # type: ignore[no-untyped-def]
    """Coordinate ascent on `e l - l G l / 2`, l >= 0, from `lam`, in place."""
    m = len(e)
    g = G @ lam
    for _ in range(sweeps):
        change = 0.0
        for i in range(m):
            d = G[i, i]
            if d <= 1e-30:
                continue
            new = max(0.0, lam[i] + (e[i] - g[i]) / d)
            step = new - lam[i]
            if step != 0.0:
                lam[i] = new
                for j in range(m):
                    g[j] += step * G[j, i]
                change = max(change, abs(step) * np.sqrt(d))
        value = 0.0
        for i in range(m):
            value += lam[i] * (2.0 * e[i] - g[i])
        if change < 1e-7 or value > 1600.0:  # distance beyond 40: empty, or as good as
            break


@numba.njit(cache=True, nogil=True)
def nearest_kernel(C, e, count, sweeps):  # type: ignore[no-untyped-def]
    """Per problem: the unit vector w and a proved d with `C x >= e  =>  w x >= d`; w = 0 and -inf when there is none.

    `C` (n, m, r), `e` (n, m), of which the first `count[n]` rows count.
    """
    n, _, r = C.shape
    w = np.zeros((n, r))
    far = np.full(n, -np.inf)
    for k in range(n):
        m = count[k]
        if m == 0:
            continue
        G = np.zeros((m, m))
        never = False
        for i in range(m):
            for j in range(i + 1):
                s = 0.0
                for t in range(r):
                    s += C[k, i, t] * C[k, j, t]
                G[i, j] = G[j, i] = s
            if G[i, i] < 0.5 and e[k, i] > 0.0:  # a row 0 >= e, see `unit_rows`
                never = True
        if never:
            far[k] = np.inf
            continue
        lam = np.zeros(m)
        # Where the origin is inside, the best single row: a negative distance, the half-space next to the origin.
        _solve(G, e[k, :m], lam, sweeps)
        total = 0.0
        for i in range(m):
            total += lam[i]
        if total == 0.0:
            best, at = -np.inf, 0
            for i in range(m):
                if G[i, i] > 0.0 and e[k, i] / np.sqrt(G[i, i]) > best:
                    best, at = e[k, i] / np.sqrt(G[i, i]), i
            if best == -np.inf:
                continue
            lam[at] = 1.0
        size, value, terms = 0.0, 0.0, 0.0
        for t in range(r):
            s = 0.0
            for i in range(m):
                s += lam[i] * C[k, i, t]
            w[k, t] = s
            size += s * s
        size = np.sqrt(size)
        weight = 0.0
        for i in range(m):
            value += lam[i] * e[k, i]
            terms += abs(lam[i] * e[k, i])
            weight += lam[i] * np.sqrt(G[i, i])
        error = 4.5e-16 * (m + r + 8)
        value -= error * terms
        size += error * weight
        if size <= 0.0:
            far[k] = np.inf if value > 0.0 else -np.inf
            for t in range(r):
                w[k, t] = 0.0
            continue
        # Division rounds once more; towards less distance on both sides of zero.
        if value > 0.0:
            far[k] = value / size * (1.0 - 1e-14)
        elif size > 4 * error * weight:
            far[k] = value / (size - 2 * error * weight) * (1.0 + 1e-14)
        for t in range(r):
            w[k, t] /= size
    return w, far


@numba.njit(cache=True, nogil=True)
def _upper_cdf(x):  # type: ignore[no-untyped-def]
    """`Phi(x)`, a little too large."""
    return 0.5 * math.erfc(-0.7071067811865476 * x) * (1.0 + 1e-12) + 1e-310


@numba.njit(cache=True, nogil=True)
def one_factor_kernel(C, e, count, step):  # type: ignore[no-untyped-def]
    """Upper bounds of `P(C x >= e)` for standard normal x and rows of length 1, by Slepian's inequality.

    The probability grows with every correlation, so correlations `l_i l_j`, none of them smaller than the true ones,
    bound it: one common factor t, given which the rows are independent. The product is increasing in t, so that sums
    with its right ends are above the integral.
    """
    n, most, r = C.shape
    out = np.ones(n)
    R = np.zeros((most, most))
    lam = np.zeros(most)
    root = np.zeros(most)
    use = np.zeros(most, np.int64)
    for k in range(n):
        m = 0
        never = False
        for i in range(count[k]):
            size = 0.0
            for t in range(r):
                size += C[k, i, t] * C[k, i, t]
            if size < 0.5:  # a row 0 >= e, see `unit_rows`
                never = never or e[k, i] > 0.0
                continue
            if e[k, i] <= -8.5:
                continue  # holds nearly always: leaving it out costs nothing
            same = False
            for j in range(m):
                s = 0.0
                for t in range(r):
                    s += C[k, i, t] * C[k, use[j], t]
                R[m, j] = R[j, m] = s + 1e-12
                if s > 0.98:  # nearly parallel: the stronger of the two is enough
                    same = True
                    if e[k, i] > e[k, use[j]]:
                        use[j] = i
                        for q in range(m):
                            if q != j:
                                s = 0.0
                                for t in range(r):
                                    s += C[k, i, t] * C[k, use[q], t]
                                R[q, j] = R[j, q] = s + 1e-12
                    break
            if not same:
                use[m] = i
                m += 1
        if never:
            out[k] = 0.0
        if never or m == 0:
            continue
        top = 1e-3
        for i in range(m):
            for j in range(i):
                top = max(top, R[i, j])
        if top >= 0.9999:
            continue
        for i in range(m):
            lam[i] = math.sqrt(top)
        for _ in range(3):
            for i in range(m):
                least = 0.0
                for j in range(m):
                    if j != i:
                        least = max(least, R[i, j] / lam[j])
                lam[i] = max(min(lam[i], least), 1e-4)
        good = True
        for i in range(m):
            for j in range(i):
                if lam[i] * lam[j] < R[i, j] - 1e-13 and R[i, j] > 0.0:
                    good = False
            if lam[i] >= 0.99999:
                good = False
            root[i] = 1.0 / math.sqrt(1.0 - lam[i] * lam[i])
        if not good:
            continue
        at, before = -9.0, _upper_cdf(-9.0)
        value = 1.0
        for i in range(m):
            value *= _upper_cdf((-9.0 * lam[i] - e[k, use[i]]) * root[i])
        total = before * value
        while at < 9.0:
            after = at + step
            value = 1.0
            for i in range(m):
                value *= _upper_cdf((after * lam[i] - e[k, use[i]]) * root[i])
            share = 0.5 * (math.erfc(0.7071067811865476 * at) - math.erfc(0.7071067811865476 * after))
            if at < 0.0:
                share = 0.5 * (math.erfc(-0.7071067811865476 * after) - math.erfc(-0.7071067811865476 * at))
            total += (share * (1.0 + 1e-9) + 1e-300) * value
            at = after
        total += 1.2e-19  # beyond 9
        out[k] = min(1.0, total * (1.0 + 1e-9))
    return out


def unit_rows(X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`X x >= x0` with rows of length 1; a row without length becomes `0 >= 1`, or `0 >= -1` if it may hold."""
    size = np.sqrt(np.einsum("...r,...r->...", X, X))
    flat = size < 1e-140
    safe = np.where(flat, 1.0, size)
    e = np.clip(x0 / safe, -1e6, 1e6)
    # The division and the length round: outwards, by more than they can.
    e = e - (X.shape[-1] + 8) * 2.3e-16 * np.abs(e)
    return np.where(flat[..., None], 0.0, X / safe[..., None]), np.where(flat, np.where(x0 > 1e-130, 1.0, -1.0), e)


def nearest(
    C: FloatArray, e: FloatArray, count: npt.NDArray[np.int64], sweeps: int = 60
) -> tuple[FloatArray, FloatArray]:
    """See `nearest_kernel`."""
    w, far = nearest_kernel(
        np.ascontiguousarray(C), np.ascontiguousarray(e), np.ascontiguousarray(count, np.int64), sweeps
    )
    return w, far


def tail(distance: FloatArray | float, gaussian: bool) -> FloatArray:
    """An upper bound of the mass of a half-space at this signed distance from the mean; rounded upwards."""
    d = np.asarray(distance, dtype=np.float64)
    near = np.minimum(d, FAR)
    if gaussian:
        value = ndtr(-near) * (1 + 1e-11) + 1e-305
    else:
        value = np.exp(-0.5 * np.maximum(near, 0.0) ** 2) * (1 + 1e-11) + 1e-305
    return np.asarray(np.where(d == np.inf, 0.0, np.minimum(value, 1.0)))
