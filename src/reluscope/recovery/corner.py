"""A unit that acts in a corner of the box only, from what the model misses there.

Where all but one unit of the last hidden layer are known, the misfit is `c relu(theta . (z, 1))`: 0 but for the corner,
and there affine in the known features z. So its values and derivatives at a few points of the corner are linear
equations for `c theta`. No surface has to be met by a chord, and no scale is unknown. Weights of features that never
act in the corner stay open. They must keep the unit off wherever nothing is missed, which is a linear program.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.recovery.peel import with_one
from reluscope.recovery.refine import Model
from reluscope.recovery.trunk import Trunk
from reluscope.recovery.view import View
from reluscope.threads import look

_POINTS = 16
_STEPS = (1e-3, 1e-4, 1e-5)
"""Points at which derivatives of the misfit are taken, and the lengths of the differences that are tried in turn."""

_AGREE = 1e-5
"""How well the equations must be solved, relative to the largest misfit."""

_ROUNDS, _AT_ONCE = 12, 400
"""Linear programs, each with so many more of the points at which the unit is not yet off."""

_FAR = 1e3
"""Size of the open weights over that of the known ones, at most."""


def corner_unit(
    view: View, below: Trunk, model: Model, U: FloatArray, misfit: FloatArray, fits: float, rng: np.random.Generator
) -> FloatArray | None:
    """The row theta (features + 1,) over the features of `below` of a unit that explains the misfit (n,) of `model` at
    the points U next to the largest, and is off where the misfit is at most `fits`; None if there is none.

    Costs up to `3 (2 inputs + 1)` queries for each of 16 points.
    """
    peak = int(np.abs(misfit).argmax())
    side = np.sign(misfit[peak])
    off = np.flatnonzero(side * misfit > fits)
    near = off[np.argsort(np.linalg.norm(U[off] - U[peak], axis=1))]
    if len(near) > _POINTS:
        near = np.unique(np.concatenate([near[: _POINTS // 2], rng.choice(near, _POINTS // 2, replace=False)]))
    rows, wanted = _equations(view, below, model, U[near])
    if not len(rows):
        return None
    size = float(np.abs(wanted).max())
    theta = np.linalg.lstsq(rows, wanted, rcond=1e-9)[0]
    if np.abs(rows @ theta - wanted).max() > _AGREE * size:
        return None
    s, Vt = np.linalg.svd(rows, full_matrices=True)[1:]
    open_ = Vt[int((s > 1e-9 * s[0]).sum()) :].T
    row = _off_elsewhere(side * theta, open_, with_one(below.features(U[side * misfit <= fits])), 2 * fits)
    return None if row is None else row / np.linalg.norm(row)


def _equations(view: View, below: Trunk, model: Model, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values and derivatives of the misfit at x as equations for theta, where it is affine: rows, right sides."""
    k, n = x.shape
    local = below.local(x)
    rows, wanted = [np.zeros((0, below.width + 1))], [np.zeros(0)]
    todo = np.arange(k)
    for step in _STEPS:
        look()
        if not len(todo):
            break
        inward = np.where(x[todo] > 0, -step, step)
        ends = np.repeat(x[todo][:, None], 2 * n + 1, axis=1)
        axis = np.arange(n)
        ends[:, axis, axis] += inward
        ends[:, n + axis, axis] += 2 * inward
        flat = ends.reshape(-1, n)
        e = (view.values(flat) - model(flat) @ view.mix).reshape(len(todo), 2 * n + 1)
        once, twice, here = e[:, :n], e[:, n:-1], e[:, -1:]
        straight = np.abs(here + twice - 2 * once).max(axis=1) <= 30 * view.noise
        straight &= (np.sign(e) == np.sign(here)).all(axis=1)
        for i, slope in zip(todo[straight], (0.5 * (twice - here) / inward)[straight], strict=True):
            rows += [np.column_stack([local.J[i].T, np.zeros(n)]), np.append(local.z[i], 1.0)[None]]
            wanted += [slope, e[todo == i, -1]]
        todo = todo[~straight]
    return np.concatenate(rows), np.concatenate(wanted)


def _off_elsewhere(theta: FloatArray, open_: FloatArray, Z: FloatArray, slack: float) -> FloatArray | None:
    """Theta moved along its open directions (the columns) until `Z theta <= slack`; None if that cannot be."""
    row, size = theta, float(np.linalg.norm(theta))
    active = np.zeros(0, dtype=np.intp)
    for _ in range(_ROUNDS):
        h = Z @ row
        worst = np.argsort(-h)[:_AT_ONCE]
        worst = worst[h[worst] > slack]
        if not len(worst):
            return row
        if not open_.shape[1]:
            return None
        active = np.union1d(active, worst)
        A, b = Z[active] @ open_, slack - Z[active] @ theta
        size_a = np.maximum(np.linalg.norm(A, axis=1), 1e-300)
        keep = size_a > 1e-9
        if (b[~keep] < 0).any():
            return None
        A, b = A[keep] / size_a[keep, None], b[keep] / size_a[keep]
        # The largest margin: what is known of the edge of the corner is known from samples only.
        margin = np.ones((len(A), 1))
        bounds = [(-_FAR * size, _FAR * size)] * open_.shape[1] + [(0.0, size)]
        cost = np.append(np.zeros(open_.shape[1]), -1.0)
        found = late("scipy.optimize", "linprog")(cost, A_ub=np.hstack([A, margin]), b_ub=b, bounds=bounds)
        if found.status != 0:
            return None
        row = theta + open_ @ found.x[:-1]
    return None
