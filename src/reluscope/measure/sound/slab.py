"""A few directions between two ends, the rest of the input Gaussian: where slices look, and the mass of a half-space.

The directions are the orthonormal columns of Q. Along some of them (`held`) a node lies between `low` and `up`; the
rest of the input is standard normal and independent of these.

**Rounding.** The part of a row X in the rest has the length `sqrt(|X|^2 - |X Q|^2)`, known up to `_SLACK |X|^2` under
the root. Noise of that size is added and the row moved by eight of its standard deviations, which can only enlarge a
half-space's mass but for a share of 1e-15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray


@dataclass(frozen=True, eq=False)
class Slab:
    """Where the input is, per node: `low <= Q^T x <= up` in the held directions, a function's rest within `reach`."""

    Q: FloatArray
    held: npt.NDArray[np.bool_]
    low: FloatArray
    up: FloatArray
    reach: FloatArray

    @property
    def nodes(self) -> int:
        """See `Place`."""
        return len(self.reach)

    def pick(self, nodes: Any) -> Slab:
        """The slab of some nodes."""
        return Slab(self.Q, self.held[nodes], self.low[nodes], self.up[nodes], self.reach[nodes])

    def parts(self, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Coefficients along the held directions (nodes, rows, k), the rest's length, and what rounding may move."""
        square = np.einsum("ntr,ntr->nt", X, X)
        along = (X @ self.Q) * self.held[:, None, :]
        slack = 8 * EPS * (X.shape[-1] + 64) * square
        rest = np.sqrt(np.maximum(square - np.einsum("ntk,ntk->nt", along, along), 0.0) + slack)
        far = np.abs(np.where(self.held, np.maximum(np.abs(self.low), np.abs(self.up)), 0.0)).max(axis=1, initial=0.0)
        return along, rest, 8.0 * np.sqrt(slack) + 1e-12 * (far + 1.0)[:, None] * np.sqrt(square)

    def worst(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least value of `X x + x0` over the held directions, without the rest; the length of the rest."""
        along, rest, moved = self.parts(X)
        ends = np.minimum(along * self.low[:, None, :], along * self.up[:, None, :]).sum(axis=2)
        return x0 + ends - moved, rest

    def least(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Place`."""
        along, rest, moved = self.parts(X)
        corner = np.where(along > 0, self.low[:, None, :], self.up[:, None, :]) * self.held[:, None, :]
        return self._at(X, x0 - moved, along, rest, corner, self.reach[:, None])

    def reached(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Place`: the score is the distance from the mean of the half-space, cut with the held directions."""
        along, rest, moved = self.parts(X)
        score = np.empty(x0.shape)
        corner = np.empty(along.shape)
        lam = np.empty(x0.shape)
        _reach_kernel(along, rest, x0 - moved, self.held, self.low, self.up, score, corner, lam)
        radius = np.clip(lam * rest, 0.5, self.reach[:, None])
        return score, self._at(X, x0, along, rest, corner, radius)[1]

    def _at(
        self, X: FloatArray, x0: FloatArray, along: FloatArray, rest: FloatArray, corner: FloatArray, radius: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        value = x0 + np.einsum("ntk,ntk->nt", along, corner) - radius * rest
        pull = (radius / np.maximum(rest, 1e-150))[..., None]
        point = (corner + pull * along) @ self.Q.T - pull * X
        return value, point

    def mass(self) -> FloatArray:
        """The mass of every node's slab."""
        return _mass_kernel(self.held, self.low, self.up)

    def below(self, X: FloatArray, x0: FloatArray) -> FloatArray:
        """Upper bounds of the mass of `{X x + x0 <= 0}` in each node's slab (nodes, rows)."""
        along, rest, moved = self.parts(X)
        return below_kernel(along, rest, x0 - moved, self.held, self.low, self.up)


@numba.njit(cache=True, nogil=True)
def _interval(a, b):  # type: ignore[no-untyped-def]
    """`Phi(b) - Phi(a)` for a < b, a little too large."""
    root = 0.7071067811865476
    if a > 0.0:
        value = 0.5 * (math.erfc(root * a) - math.erfc(root * b))
        size = 0.5 * math.erfc(root * a)
    elif b < 0.0:
        value = 0.5 * (math.erfc(-root * b) - math.erfc(-root * a))
        size = 0.5 * math.erfc(-root * b)
    else:
        value = 1.0 - 0.5 * math.erfc(root * b) - 0.5 * math.erfc(-root * a)
        size = 1.0
    return min(1.0, value + 1e-12 * size + 1e-310)


@numba.njit(cache=True, nogil=True)
def _mass_kernel(held, low, up):  # type: ignore[no-untyped-def]
    n, k = held.shape
    out = np.ones(n)
    for i in range(n):
        for j in range(k):
            if held[i, j]:
                out[i] *= _interval(low[i, j], up[i, j])
    return out


@numba.njit(cache=True, nogil=True)
def _hazard(s):  # type: ignore[no-untyped-def]
    """`phi(s) / Phi(-s)`: minus the slope of `log Phi(-s)`."""
    if s > 25.0:
        return s + 1.0 / s - 2.0 / s**3
    return 0.3989422804014327 * math.exp(-0.5 * s * s) / (0.5 * math.erfc(0.7071067811865476 * s))


@numba.njit(cache=True, nogil=True)
def _log_tail(s):  # type: ignore[no-untyped-def]
    """`log Phi(-s)`, for s up to the far end of doubles."""
    return math.log(0.5 * math.erfc(0.7071067811865476 * min(s, 37.0)))


@numba.njit(cache=True, nogil=True)
def below_kernel(along, rest, x0, held, low, up):  # type: ignore[no-untyped-def]
    """`P(slab, X x + x0 <= 0)` from above: given the held directions t it is `Phi(-s(t))`, s affine in t.

    `log Phi(-s)` is concave: any of its tangents is above it, and the mean of an exponential of t over a box has a
    closed form. The tangent is taken where the half-space is likeliest.
    """
    n, rows, k = along.shape
    out = np.empty((n, rows))
    for i in range(n):
        whole = 1.0
        for j in range(k):
            if held[i, j]:
                whole *= _interval(low[i, j], up[i, j])
        for t in range(rows):
            sd = max(rest[i, t], 1e-300)
            base = x0[i, t] / sd
            worst = base
            for j in range(k):
                if held[i, j]:
                    c = along[i, t, j] / sd
                    worst += min(c * low[i, j], c * up[i, j])
            if not (worst < 1e6):
                out[i, t] = 0.0 if worst >= 1e6 else whole
                continue
            value = whole
            if worst > -37.0:
                value = whole * 0.5 * math.erfc(0.7071067811865476 * min(worst, 37.0)) * (1.0 + 1e-12)
            # the tangent point s with s = s(clip(-hazard(s) c)): decreasing on the right, so bisection
            a, b = max(worst, -30.0), 30.0
            if a < b:
                for _ in range(24):
                    s = 0.5 * (a + b)
                    h = _hazard(s)
                    at = base
                    for j in range(k):
                        if held[i, j]:
                            c = along[i, t, j] / sd
                            at += c * min(max(-h * c, low[i, j]), up[i, j])
                    if at > s:
                        a = s
                    else:
                        b = s
                h = _hazard(s)
                power = _log_tail(s) + h * (s - base)
                share = 1.0
                size = abs(power)
                for j in range(k):
                    if held[i, j]:
                        c = h * along[i, t, j] / sd
                        power += 0.5 * c * c
                        size += 0.5 * c * c
                        share *= _interval(low[i, j] + c, up[i, j] + c)
                if size < 1e5 and power < 700.0:
                    value = min(value, math.exp(power) * share * (1.0 + 1e-9) + 1e-305)
            out[i, t] = min(value * (1.0 + 1e-12) + 1e-305, whole)
    return out


@numba.njit(cache=True, nogil=True)
def _reach_kernel(along, rest, x0, held, low, up, score, corner, lam):  # type: ignore[no-untyped-def]
    """The nearest point to the mean with `X x + x0 <= 0` in the slab: its distance and its held coordinates.

    That point is `clip(-l X)` for the least multiplier l that reaches the half-space.
    """
    n, rows, k = along.shape
    for i in range(n):
        for t in range(rows):
            free = rest[i, t] * rest[i, t]
            a, b = 0.0, 1.0
            for step in range(90):
                m = b if step < 40 else 0.5 * (a + b)
                at = x0[i, t] - m * free
                for j in range(k):
                    if held[i, j]:
                        at += along[i, t, j] * min(max(-m * along[i, t, j], low[i, j]), up[i, j])
                if step < 40:
                    if at <= 0.0:
                        continue
                    a, b = b, 2.0 * b
                elif at > 0.0:
                    a = m
                else:
                    b = m
            at = x0[i, t]
            size = free
            far = b * b * free
            for j in range(k):
                corner[i, t, j] = 0.0
                if held[i, j]:
                    near = min(max(0.0, low[i, j]), up[i, j])
                    at += along[i, t, j] * near
                    size += along[i, t, j] * along[i, t, j]
                    corner[i, t, j] = min(max(-b * along[i, t, j], low[i, j]), up[i, j])
                    far += corner[i, t, j] * corner[i, t, j] - near * near
            lam[i, t] = b
            if at <= 0.0:  # the nearest point of the slab is inside: how deep
                score[i, t] = at / math.sqrt(max(size, 1e-300))
            else:
                score[i, t] = math.sqrt(max(far, 0.0))
