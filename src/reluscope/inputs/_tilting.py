"""Exact draws from `u ~ N(0, I_k)` given `lower <= A u <= upper`, by minimax-tilted acceptance and rejection.

Botev (2017), "The normal law under linear restrictions": draw the restricted coordinates one after the other,
each from a normal with a shifted mean restricted to its interval, and accept with probability
`exp(psi(x; shift) - max_x psi)`. The shift is the saddle point of psi, which is concave in x and convex in the
shift; any shift gives exact draws as long as the maximum over x is right, so only the speed depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.errors import InputError
from reluscope.inputs._normal1 import draw, log_mass, moments

_DEPENDENT = 1e-9
"""A row whose part orthogonal to the rows before it is smaller than this share of it is checked by rejection."""
_BATCH_NUMBERS = 1 << 20
_PATIENCE_NUMBERS = 5_000_000
_PATIENCE_DRAWS = 10_000
"""Numbers and proposals drawn, both, before a low rate of acceptance is taken for final."""
_LEAST_RATE = 1e-4
_MOST_ROWS = 500
"""Beyond this many restricted inputs tilting is not tried: preparing it takes minutes and nothing is accepted."""


@dataclass(frozen=True, eq=False, repr=False)
class TiltedSampler:
    """Draws of `v = Q^T u`, the part of u that the independent rows of A restrict; the rest of u is free."""

    Q: FloatArray
    """Orthonormal columns (k, q)."""
    below: FloatArray
    """Strictly lower triangular (q, q): `lower <= v + below v <= upper`."""
    lower: FloatArray
    upper: FloatArray
    width: FloatArray
    shift: FloatArray
    bound: float
    """Upper bound on psi, and on the logarithm of the restricted mass."""

    def propose(self, n: int, rng: np.random.Generator) -> FloatArray:
        """The accepted ones of n proposals, as full vectors u, shape (at most n, k)."""
        q = len(self.shift)
        v = np.zeros((n, q))
        log_ratio = np.full(n, -self.bound)
        for j in range(q):
            moved = v[:, :j] @ self.below[j, :j] + self.shift[j]
            a, b = self.lower[j] - moved, self.upper[j] - moved
            width = np.full(n, self.width[j])
            v[:, j] = _value(a, b, *draw(a, b, width, rng.random(n))) + self.shift[j]
            log_ratio += self.shift[j] * (0.5 * self.shift[j] - v[:, j]) + log_mass(a, b, width)
        v = v[np.log(1.0 - rng.random(n)) <= log_ratio]
        free = rng.standard_normal((len(v), len(self.Q)))
        return free + (v - free @ self.Q) @ self.Q.T


def tilted_sampler(A: FloatArray, lower: FloatArray, upper: FloatArray) -> TiltedSampler | None:
    """Prepare the sampler for rows `A` (m, k), none of them zero; None when the saddle point is not found or m > 500.

    Rows that depend on others are left out: the caller checks them. Cost O(m^2 k + m^3).
    """
    if len(A) > _MOST_ROWS:
        return None
    norm = np.sqrt(np.einsum("ij,ij->i", A, A))
    Q, order, coefficient = _ordered_basis(A / norm[:, None], lower / norm, upper / norm)
    own = np.diag(coefficient)
    below = np.tril(coefficient / own[:, None], -1)
    scale = norm[order] * own
    lo, hi = lower[order] / scale, upper[order] / scale
    width = (upper[order] - lower[order]) / scale
    saddle = _saddle(below, lo, hi, width)
    if saddle is None:
        return None
    shift, bound = saddle
    return TiltedSampler(Q, below, lo, hi, width, shift, bound)


def collect(propose: Callable[[int], FloatArray], n: int, columns: int) -> FloatArray:
    """Rows from repeated calls of `propose(batch)` until there are n; an `InputError` when hardly any come."""
    parts: list[FloatArray] = []
    found = tried = 0
    most = max(64, _BATCH_NUMBERS // columns)
    while found < n:
        rate = max(found, 1) / max(tried, 1)
        batch = int(min(most, max(64, 1.2 * (n - found) / min(rate, 1.0))))
        parts.append(propose(batch))
        found += len(parts[-1])
        tried += batch
        if tried >= max(_PATIENCE_DRAWS, _PATIENCE_NUMBERS // columns) and found < _LEAST_RATE * tried:
            raise InputError(
                f"exact sampling of this truncated Gaussian is out of reach: {found} of {tried:,} proposals were "
                "accepted; the box has too little mass for so many correlated inputs. Widen the box, free the "
                "sides that do not matter (infinite), or truncate independent inputs"
            )
    return np.concatenate(parts)[:n] if parts else np.zeros((0, columns))


def _value(a: FloatArray, b: FloatArray, side: npt.NDArray[np.int8], offset: FloatArray) -> FloatArray:
    return np.where(side == -1, a, np.where(side == 1, b, 0.0)) + offset


def _ordered_basis(
    rows: FloatArray, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.intp], FloatArray]:
    """Gram-Schmidt on unit rows, the least likely interval first: `rows[order] = coefficient Q^T`."""
    m, k = rows.shape
    rest = rows.copy()
    centre = np.zeros(m)
    left = np.ones(m, bool)
    Q = np.zeros((k, 0))
    order: list[int] = []
    coefficients: list[FloatArray] = []
    for _ in range(min(m, k)):
        size = np.sqrt(np.einsum("ij,ij->i", rest, rest))
        open_rows = np.flatnonzero(left & (size > _DEPENDENT))
        if not len(open_rows):
            break
        s = size[open_rows]
        a, b = (lower[open_rows] - centre[open_rows]) / s, (upper[open_rows] - centre[open_rows]) / s
        width = (upper[open_rows] - lower[open_rows]) / s
        pick = int(np.argmin(log_mass(a, b, width)))
        i = int(open_rows[pick])
        direction = rest[i] / size[i]
        direction = direction - Q @ (Q.T @ direction)
        direction /= np.linalg.norm(direction)
        along = rows @ direction
        one = slice(pick, pick + 1)
        centre += along * _value(a[one], b[one], *moments(a[one], b[one], width[one])[:2])
        rest -= np.outer(rest @ direction, direction)
        Q = np.column_stack([Q, direction])
        order.append(i)
        coefficients.append(along)
        left[i] = False
    index = np.array(order, dtype=np.intp)
    return Q, index, np.column_stack(coefficients)[index]


def _saddle(
    below: FloatArray, lower: FloatArray, upper: FloatArray, width: FloatArray
) -> tuple[FloatArray, float] | None:
    """Saddle point of psi by damped Newton: the shift, and an upper bound on max_x psi."""
    q = len(lower)
    x, shift = np.zeros(q), np.zeros(q)  # the last entry of both stays 0
    free = q - 1
    identity = np.eye(q)

    def gradient(x: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
        moved = below @ x + shift
        a, b = lower - moved, upper - moved
        side, offset, variance = moments(a, b, width)
        mean = _value(a, b, side, offset)
        return np.concatenate([(below.T @ mean - shift)[:free], (shift - x + mean)[:free]]), variance

    if not np.isfinite(lower[np.isfinite(lower)] ** 2).all() or not np.isfinite(upper[np.isfinite(upper)] ** 2).all():
        return None
    F, variance = gradient(x, shift)
    for _ in range(200):
        size = float(np.abs(F).max(initial=0.0))
        if size <= 1e-11 * (1 + float(np.abs(shift).max())):
            break
        g = 1.0 - variance
        xx = -below.T @ (g[:, None] * below)
        xs = -identity - below.T * g
        ss = np.diag(1.0 - g)
        J = np.block([[xx[:free, :free], xs[:free, :free]], [xs[:free, :free].T, ss[:free, :free]]])
        try:
            step = np.linalg.solve(J, -F)
        except np.linalg.LinAlgError:
            return None
        reach = 1.0
        while reach > 1e-6:
            new_x, new_shift = x.copy(), shift.copy()
            new_x[:free] += reach * step[:free]
            new_shift[:free] += reach * step[free:]
            new_F, new_variance = gradient(new_x, new_shift)
            if np.isfinite(new_F).all() and np.linalg.norm(new_F) < np.linalg.norm(F):
                break
            reach /= 2
        else:
            break
        x, shift, F, variance = new_x, new_shift, new_F, new_variance
    slope = float(np.abs(F[:free]).sum())
    if np.abs(F).max(initial=0.0) > 1e-7 * (1 + float(np.abs(shift).max())):
        return None
    moved = below @ x + shift
    psi = float((shift * (0.5 * shift - x)).sum() + log_mass(lower - moved, upper - moved, width).sum())
    # psi is concave in x, so away from a point of slope e it rises by at most e times the distance.
    slack = 1e-9 + 1e-13 * abs(psi) + slope * (50.0 + float(np.abs(x).max()))
    return shift, psi + slack
