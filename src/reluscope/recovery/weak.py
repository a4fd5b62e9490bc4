"""A unit too weak for its bends to stand out of the noise, found from what it leaves in the misfit.

When all but one unit of the last layer are known, the misfit is `c relu(theta . (z, 1))` plus what the known features
can express. On the side where the unit is on, the misfit is affine in z, so theta is a fixed point of: take the samples
with `theta . (z, 1) > 0`, fit an affine function g of z on them (next to the known features everywhere), and let theta
be g up to sign. Random starts, all of them cheap: least squares with as many columns as features. Nothing is asked of
the oracle.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray
from reluscope.threads import look

_STARTS = 60
_ROUNDS = 25
_MOST_SAMPLES = 3000
_ENOUGH = 1e-4
"""Share of the squared misfit that may be left for the search to end."""


def weak_unit(
    Z: FloatArray, known: FloatArray, Y: FloatArray, bends: FloatArray, rng: np.random.Generator
) -> FloatArray | None:
    """The row theta (features + 1,) that explains most of `Y` beyond the columns of `known`; None if none explains
    half of it.

    `Z` (n, features + 1) are the features the unit stands on with a column of ones, `known` (n, columns) what the
    outputs are affine in already, `Y` (n, outputs). `bends` (k, features + 1) are critical points that nothing
    explains: if there are enough of them, the row that vanishes at most of them is tried first.
    """
    some = rng.permutation(len(Z))[:_MOST_SAMPLES]
    Z, known, Y = Z[some], known[some], Y[some]
    Q = np.linalg.qr(known / np.maximum(np.abs(known).max(axis=0), 1e-300))[0]
    rest = Y - Q @ (Q.T @ Y)
    rest = rest @ np.linalg.svd(rest, full_matrices=False)[2][0]  # the mixture of outputs with the largest misfit
    scale = np.maximum(np.abs(Z[:, :-1]).std(axis=0), 1e-12)
    best, least = None, 0.5 * float(rest @ rest)
    for k in range(_STARTS):
        slope = rng.normal(size=Z.shape[1] - 1) / scale
        theta = np.append(slope, -slope @ Z[rng.integers(len(Z)), :-1])
        if k == 0 and len(bends) > Z.shape[1]:
            theta = _through(bends)
        left, row = _settled(Z, Q, rest, theta)
        if left < least:
            best, least = row, left
        if left < _ENOUGH * float(rest @ rest):
            break
    return best


def _through(points: FloatArray) -> FloatArray:
    """The unit row that vanishes at as many of the points as possible: reweighted least squares."""
    size = np.linalg.norm(points, axis=1, keepdims=True)
    points, weight = points / size, np.ones(len(points))
    theta = np.zeros(points.shape[1])
    for _ in range(30):
        theta = np.linalg.eigh((points * weight[:, None]).T @ points)[1][:, 0]
        miss = np.abs(points @ theta)
        weight = 1.0 / np.maximum(miss, 1e-3 * np.median(miss) + 1e-15)
    return theta


def _settled(Z: FloatArray, Q: FloatArray, rest: FloatArray, theta: FloatArray) -> tuple[float, FloatArray]:
    """The fixed point from one start: what is left of the misfit, and theta."""
    before, least, row = None, np.inf, theta
    for _ in range(_ROUNDS):
        look()
        on = Z @ theta > 0
        if on.sum() < Z.shape[1] or (~on).sum() < Z.shape[1] or (before is not None and (on == before).all()):
            break
        T = np.where(on[:, None], Z, 0.0)
        T = T - Q @ (Q.T @ T)
        g = np.linalg.lstsq(T, rest, rcond=1e-10)[0]
        left = float(((rest - T @ g) ** 2).sum())
        if left < least:
            least, row = left, theta
        size = np.linalg.norm(g)
        if size == 0:
            break
        turned = g / size * (1.0 if g @ theta > 0 else -1.0)
        theta, before = 0.5 * theta / np.linalg.norm(theta) + 0.5 * turned, on
    return least, row / np.linalg.norm(row)
