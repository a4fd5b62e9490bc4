"""Separation in logistic regression: where the likelihood has no maximum, and what the rows say all the same.

Let `s_i = ±1` be the class of row `z_i`. A direction β with `s_i z_i · β >= 0` for all rows and `> 0` for some makes
the likelihood rise for ever: rows with `> 0` are *separated*. A linear program finds such directions; the rows that no
direction separates determine the rest, and their largest likelihood is the supremum of all (Albert and Anderson 1984,
Konis 2007). A coefficient that is not constant along such directions has no finite estimate. Its profile likelihood
still cuts off one side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.cells.lp import Program

Mask = npt.NDArray[np.bool_]

_SUSPECT = 8.0
"""Rows of a fit with `s_i eta_i` below this are not on their way to infinity: no linear program is needed."""

_STRICT = 1e-7
"""Margins below this, for rows of length 1 and coefficients up to 1, count as 0."""

_MOST_STEPS = 200
_CLOSE = 1e-9


def suspicious(eta: FloatArray, positive: Mask) -> bool:
    """Whether a fit without penalty may have run away: its linear predictor is large and right in some row."""
    return bool(np.where(positive, eta, -eta).max(initial=0.0) > _SUSPECT)


def separated_rows(Z: FloatArray, positive: Mask) -> Mask:
    """Rows that some direction separates while it puts no other row on the wrong side; none if the estimate is finite.

    Once a row is separated by a direction, a large multiple of it makes up for whatever a second one does there: it
    needs no longer be looked at.
    """
    signed = np.where(positive, 1.0, -1.0)[:, None] * Z
    signed = signed / np.maximum(np.linalg.norm(signed, axis=1), 1e-300)[:, None]
    left = np.arange(len(Z))
    while len(left):
        rows = signed[left]
        best = Program(-rows, np.zeros(len(rows)), np.full(Z.shape[1], -1.0), np.ones(Z.shape[1])).maximise(rows.sum(0))
        strict = rows @ best.point > _STRICT
        if not strict.any():
            break
        left = left[~strict]
    found = np.ones(len(Z), dtype=bool)
    found[left] = False
    return found


@dataclass(frozen=True, eq=False)
class Separated:
    """What separated rows leave: for each functional of the coefficients whether it is `infinite`, and to which side.

    Attributes
    ----------
    infinite : (k,) array of bool
    up, down : (k,) arrays of bool
        Whether it may grow, or fall, without bound.
    value, variance : (k,) arrays
        Estimate and variance where it is finite, else nan.
    best : float
        The supremum of the log-likelihood.
    """

    infinite: Mask
    up: Mask
    down: Mask
    value: FloatArray
    variance: FloatArray
    best: float


def analyse(Z: FloatArray, positive: Mask, weight: FloatArray, of: FloatArray, apart: Mask, sides: bool) -> Separated:
    """The functionals `of` (k, columns of Z) when the rows `apart` are separated. `Z` has full column rank."""
    rest = np.flatnonzero(~apart)
    _, values, basis = np.linalg.svd(np.vstack([Z[rest], np.zeros((Z.shape[1], Z.shape[1]))]), full_matrices=False)
    rank = int((values > 1e-10 * max(float(values[0]), 1.0)).sum()) if len(rest) else 0
    seen, free = basis[:rank].T, basis[rank:].T
    length = np.maximum(np.linalg.norm(of, axis=1), 1e-300)
    infinite = np.linalg.norm(of @ free, axis=1) > 1e-7 * length
    value, variance, best = np.full(len(of), np.nan), np.full(len(of), np.nan), 0.0
    if rank:
        inner = Z[rest] @ seen
        best, gamma = maximise(inner, positive[rest], weight[rest], np.zeros(len(rest)), np.zeros(rank))
        p = late("scipy.special", "expit")(inner @ gamma)
        fisher = (inner * (weight[rest] * p * (1 - p))[:, None]).T @ inner
        part = (of @ seen)[~infinite]
        value[~infinite] = part @ gamma
        variance[~infinite] = (part * np.linalg.solve(fisher, part.T).T).sum(axis=1)
    up, down = np.zeros(len(of), dtype=bool), np.zeros(len(of), dtype=bool)
    if sides and infinite.any():
        signed = np.where(positive, 1.0, -1.0)[:, None] * Z
        ones = np.ones(Z.shape[1])
        cone = Program(-signed, np.zeros(len(Z)), -ones, ones)
        for j in np.flatnonzero(infinite).tolist():
            goal = of[j] / length[j]
            up[j], down[j] = (cone.maximise(sign * goal).value > _STRICT for sign in (1.0, -1.0))
    return Separated(infinite, up, down, value, variance, best)


def maximise(
    Z: FloatArray, positive: Mask, weight: FloatArray, offset: FloatArray, start: FloatArray
) -> tuple[float, FloatArray]:
    """The largest log-likelihood of logistic regression with an offset (or its supremum, nearly), and where."""
    expit = late("scipy.special", "expit")
    y, beta = positive.astype(np.float64), start

    def value(b: FloatArray) -> float:
        eta = Z @ b + offset
        return float(weight @ (y * eta - np.logaddexp(0.0, eta)))

    best = value(beta)
    for _ in range(_MOST_STEPS):
        p = expit(Z @ beta + offset)
        slope = Z.T @ (weight * (y - p))
        hessian = (Z * (weight * p * (1 - p))[:, None]).T @ Z + 1e-12 * weight.sum() * np.eye(Z.shape[1])
        step = np.linalg.solve(hessian, slope)
        gain, t = float(slope @ step), 1.0
        while t > 1e-6 and not value(beta + t * step) >= best + 1e-4 * t * gain:
            t *= 0.5
        if t <= 1e-6:
            break
        beta, best = beta + t * step, value(beta + t * step)
        if gain < _CLOSE:
            break
    return best, beta


def profile_limit(
    Z: FloatArray, positive: Mask, weight: FloatArray, of: FloatArray, best: float, reach: float, sign: float
) -> tuple[float, float]:
    """Where twice the profile log-likelihood of `of · β` has lost `reach` against its supremum `best`, when that lies
    at `sign` times infinity; and what it has lost at 0.
    """
    size = float(of @ of)
    across = np.linalg.svd(of[None])[2][1:].T  # directions that leave the functional as it is
    inner = Z @ across
    last = np.zeros(across.shape[1])

    def lost(b: float) -> float:
        nonlocal last
        found, last = maximise(inner, positive, weight, Z @ of * (sign * b / size), last)
        return 2.0 * (best - found)

    at_zero = lost(0.0)
    unit = np.sqrt(size)
    low, high = 0.0, 0.0
    if at_zero > reach:
        high = unit
        while lost(high) > reach:
            low, high = high, 2.0 * high
    else:
        low = -unit
        while lost(low) <= reach:
            low, high = 2.0 * low, low
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lost(middle) > reach else (low, middle)
        if high - low <= 1e-7 * max(abs(low), abs(high)):
            break
    return sign * 0.5 * (low + high), at_zero
