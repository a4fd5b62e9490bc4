"""Signs: which side of its surface a unit is on.

With the previous features carried along, the next layer's rows `(alpha, beta, gamma)` over (relu(h), carried, 1) are
right for any choice of signs. Turning unit j round adds `alpha_j (w_j, b_j)` to `(beta, gamma)`. In the network
itself nothing is carried, so the true signs t in {0, 1} solve

    beta_i + sum_j t_j alpha_ij w_j = 0      for every row i of the next layer.

These equations are linear in t: rows times features of them. If that is enough, least squares gives t (contractive and
most expansive layers). If not (a wide layer before few outputs), the subset sums are met in the middle.

Units that are on wherever the chords went are missing in the layer, and the next layer's rows see them as affine
functions: then `beta_i + sum_j t_j alpha_ij w_j` is no longer 0 but of low rank, one for each such unit. Across the
rows `w_j` of the known units the signs do not matter, so the rank shows there first; then the equations without those
units give t, and what is left is carried as that many linear features.

Leaky units, `max(h, 0) + s min(h, 0)`, look the same with `t in {-r, 1 + r}`, `r = s / (1 - s)`: least squares shows
the slope s, a meet in the middle tries the usual ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.recovery.trunk import Stage, Trunk

_MOST_HALF = 17
"""Units in each half of a meet in the middle: 2^17 sums per half."""

_CLEARLY = 0.1
"""The best subset must miss by less than this share of what the second best misses by; and a sign by least squares that
hangs on a small weight must be this near 0 or 1."""

_CLEAR_RANK = 30.0
"""Singular values that count are so many times what the others may be."""

_USUAL = (0.01, 0.1, 0.2, 0.3, 0.05, 0.25, 0.02, 0.001, 0.5)
"""Slopes of leaky units that are tried where the equations do not give them."""

_ENOUGH = 3
"""Equations from which a slope is believed."""

_SHOWN, _MOST_DEAD = 1e-6, 6
"""What counts as 0 in unseen directions; units that no surface crosses, both of whose signs are tried."""

_BITS = 10
"""Signs that one equation can tell, all but one of which must do."""

_SLIGHT = 3e-5
"""Slopes below this are not distinguished from 0."""


@dataclass(frozen=True, eq=False)
class Settled:
    """A trunk whose last stage carries nothing but linear features, and the next rows on its features. `resolved` is
    False if no signs fit: then both are as they were."""

    trunk: Trunk
    rows: FloatArray
    resolved: bool


def settle(trunk: Trunk, rows: FloatArray, max_misfit: float) -> Settled:
    """Turn the units of the last stage so that the carried features are no longer needed, or few linear functions of
    them, if signs can do that."""
    if not trunk.stages or not trunk.stages[-1].carries or trunk.stages[-1].linear:
        return Settled(trunk, rows, True)
    stage = trunk.stages[-1]
    k = stage.n_units
    alpha, beta, gamma = rows[:, :k], rows[:, k:-1], rows[:, -1]
    w, b = stage.weight[:k], stage.bias[:k]
    size = np.maximum(np.linalg.norm(rows[:, :-1], axis=1), 1e-300)
    equations = ((alpha / size[:, None])[:, :, None] * w[None]).transpose(0, 2, 1).reshape(-1, k)
    wanted = -(beta / size[:, None]).reshape(-1)
    # A carried feature with a silent weight on it has a say of its own: its equations cannot speak for the signs.
    plain = np.ones(w.shape[1], dtype=bool)
    plain[[j for _, j in stage.silent]] = False
    of_feature = np.tile(plain, len(rows))
    signs = _solve(equations[of_feature], wanted[of_feature], max_misfit)
    if signs is None:
        linear = None if stage.silent else _few_linear(alpha / size[:, None], w, beta / size[:, None], max_misfit)
        if linear is None:
            return Settled(trunk, rows, False)
        (turned, slope), V = linear
        t = _t(turned, slope)
        C = (beta + alpha @ (t[:, None] * w)) @ V.T
        sign, r = np.where(turned, -1.0, 1.0), slope / (1 - slope)
        units = Stage(
            np.concatenate([sign[:, None] * w, V]),
            np.concatenate([sign * b, np.zeros(len(V))]),
            np.arange(k + len(V)) < k,
            slope=slope,
            linear=len(V),
        )
        return Settled(trunk.with_last(units), np.column_stack([(1 + r) * alpha, C, gamma + alpha @ (t * b)]), True)
    turned, slope = signs
    w, r = w.copy(), slope / (1 - slope)
    t = _t(turned, slope)
    rest = (beta + alpha @ (t[:, None] * w)) / size[:, None]
    for j in np.flatnonzero(~plain):
        free = [i for i, feature in stage.silent if feature == j and not turned[i]]
        delta = np.linalg.lstsq(alpha[:, free] / size[:, None], rest[:, j], rcond=None)[0]
        if np.abs(rest[:, j] - alpha[:, free] / size[:, None] @ delta).max() > max_misfit:
            return Settled(trunk, rows, False)
        w[free, j] += delta
    sign = np.where(turned, -1.0, 1.0)
    units = Stage(sign[:, None] * w, sign * b, np.ones(k, dtype=bool), slope=slope)
    kept = np.column_stack([(1 + r) * alpha, gamma + alpha @ (t * b)])
    return Settled(trunk.with_last(units), kept, True)


def settle_open(
    trunk: Trunk, rows: FloatArray, found: list[tuple[FloatArray, FloatArray]], max_misfit: float
) -> Settled:
    """The same from rows that are known in part: pairs of theta (features + 1,) and the directions (features + 1, u) of
    it that its surface does not show, because it lies on one side of some units. `rows` are complete.

    Across the rows `w_j` of those units the equations hold all the same. A unit that no surface crosses is turned so
    that the rows keep most freedom: what is then open has an effect on one side of it only, where it is on.
    """
    stage = trunk.stages[-1] if trunk.stages else None
    if stage is None or not stage.carries or stage.linear or stage.silent or stage.slope:
        return Settled(trunk, rows, False)
    k = stage.n_units
    w, b = stage.weight[:k], stage.bias[:k]
    none = np.zeros((trunk.width + 1, 0))
    parts = [(row / max(float(np.linalg.norm(row[:-1])), 1e-300), none) for row in rows]
    parts += [(theta / max(float(np.linalg.norm(theta[:-1])), 1e-300), unseen) for theta, unseen in found]
    equations, wanted = [np.zeros((0, k))], [np.zeros(0)]
    for theta, unseen in parts:
        hidden = np.linalg.norm(unseen[:k], axis=1) > _SHOWN
        away = _complement(np.concatenate([w[hidden].T, unseen[k:-1]], axis=1))
        equations.append(away.T @ (w.T * np.where(hidden, 0.0, theta[:k])))
        wanted.append(-(away.T @ theta[k:-1]))
    M, y = np.concatenate(equations), np.concatenate(wanted)
    live = np.linalg.norm(M, axis=0) > _SHOWN * max(float(np.abs(M).max(initial=0.0)), 1e-300)
    dead = np.flatnonzero(~live)
    if not live.any() or _BITS * (np.linalg.matrix_rank(M, tol=1e-3) - 1) < live.sum() or len(dead) > _MOST_DEAD:
        return Settled(trunk, rows, False)
    signs = _solve(M[:, live], y, max_misfit)
    if signs is None or signs[1]:
        return Settled(trunk, rows, False)
    best, turned = -1, np.zeros(k, dtype=bool)
    for choice in np.ndindex(*(2,) * len(dead)):
        t = np.zeros(k)
        t[live], t[dead] = signs[0], choice
        freedom = _freedom(parts, w, t, max_misfit)
        if freedom > best:
            best, turned = freedom, t > 0.5
    if best < 0:
        return Settled(trunk, rows, False)
    sign = np.where(turned, -1.0, 1.0)
    units = Stage(sign[:, None] * w, sign * b, np.ones(k, dtype=bool))
    kept = np.column_stack([rows[:, :k], rows[:, -1] + rows[:, :k] @ (turned * b)])
    return Settled(trunk.with_last(units), kept, True)


def _freedom(parts: list[tuple[FloatArray, FloatArray]], w: FloatArray, t: FloatArray, max_misfit: float) -> int:
    """With the signs t, how many unseen directions of all rows stay free once nothing is carried; -1 if some row cannot
    do without what is carried."""
    k, total = len(w), 0
    for theta, unseen in parts:
        gap = theta[k:-1] + (t * theta[:k]) @ w
        if unseen.shape[1]:
            moves = unseen[k:-1] + w.T @ (t[:, None] * unseen[:k])
            by, _, rank, _ = np.linalg.lstsq(moves, gap, rcond=_SHOWN)
            gap, total = gap - moves @ by, total + unseen.shape[1] - int(rank)
        if np.abs(gap).max(initial=0.0) > 10 * max_misfit:
            return -1
    return total


def _complement(columns: FloatArray) -> FloatArray:
    """An orthonormal basis, as columns, of what is orthogonal to all the columns."""
    U, s, _ = np.linalg.svd(columns, full_matrices=True)
    return U[:, int((s > _SHOWN * max(float(s.max(initial=0.0)), 1e-300)).sum()) :]


def fewer_carried(trunk: Trunk, rows: FloatArray) -> tuple[Trunk, FloatArray]:
    """The same function where signs stay open: the copies of all features that the last stage carries become as few
    linear functions of them as the next rows read, at most one for each row."""
    stage = trunk.stages[-1] if trunk.stages else None
    if stage is None or not stage.carries or stage.linear or len(stage.bias) - stage.n_units <= len(rows):
        return trunk, rows
    k = stage.n_units
    beta = rows[:, k:-1]
    s, Vt = np.linalg.svd(beta, full_matrices=False)[1:]
    V = Vt[s > EPS * max(beta.shape) * s[0]]
    units = Stage(
        np.concatenate([stage.weight[:k], V @ stage.weight[k:]]),
        np.concatenate([stage.bias[:k], V @ stage.bias[k:]]),
        np.arange(k + len(V)) < k,
        slope=stage.slope,
        linear=len(V),
    )
    return trunk.with_last(units), np.column_stack([rows[:, :k], beta @ V.T, rows[:, -1]])


_Signs = tuple[npt.NDArray[np.bool_], float]
"""Which units are turned round, and the slope of all of them below 0."""


def _t(turned: npt.NDArray[np.bool_], slope: float) -> FloatArray:
    """The unknowns of the equations, for signs and a slope."""
    r = slope / (1 - slope)
    return np.where(turned, 1 + r, -r)


def _few_linear(
    alpha: FloatArray, w: FloatArray, beta: FloatArray, max_misfit: float
) -> tuple[_Signs, FloatArray] | None:
    """Signs for which `beta + alpha (t w)` has low rank, and an orthonormal basis of its rows; None if that cannot be
    told from chance: the rank must be two less than what the rows, and what the features, would allow."""
    m = len(alpha)
    s, Vt = np.linalg.svd(w, full_matrices=True)[1:]
    free = Vt[int((s > 1e-6 * s[0]).sum()) :]
    if min(m, len(free)) < 3:
        return None
    U, s, _ = np.linalg.svd(beta @ free.T, full_matrices=True)
    allowed = max_misfit * np.sqrt(m)
    rank = int((s > allowed).sum())
    if not 0 < rank <= min(m, len(free)) - 2 or s[rank - 1] < _CLEAR_RANK * allowed:
        return None
    rest = U[:, rank:].T
    equations = ((rest @ alpha)[:, :, None] * w[None]).transpose(0, 2, 1).reshape(-1, w.shape[0])
    signs = _solve(equations, -(rest @ beta).reshape(-1), max_misfit)
    if signs is None:
        return None
    s, Vt = np.linalg.svd(beta + alpha @ (_t(*signs)[:, None] * w))[1:]
    return (signs, Vt[:rank]) if s[rank] <= _CLEAR_RANK * allowed else None


def _solve(M: FloatArray, wanted: FloatArray, max_misfit: float) -> _Signs | None:
    """Numbers t in {-r, 1 + r}, one r for all, with `M t = wanted` within the max_misfit (per equation, relative to the
    columns)."""
    scale = max(float(np.abs(M).max(initial=0.0)), 1e-300)
    allowed = max_misfit * scale * np.sqrt(M.shape[1])
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    k = M.shape[1]
    if len(s) >= k and s[-1] > 30 * max_misfit * s[0]:
        t = np.linalg.lstsq(M, wanted, rcond=None)[0]
        found = t > 0.5
        if np.abs(M @ found - wanted).max(initial=0.0) <= allowed:
            return found, 0.0
        r = float(np.median(np.where(found, t - 1, -t)))
        slope = _round_number(r / (1 + r)) if r > -0.5 else 0.0
        if not _SLIGHT < slope < 1:
            return None
        r = slope / (1 - slope)
        return (found, slope) if np.abs(M @ np.where(found, 1 + r, -r) - wanted).max() <= allowed else None
    if len(s) >= k and s[-1] > EPS * len(M) * s[0]:
        # A unit with a small weight in the next layer spoils the condition, but not the signs: each is looked at alone.
        t, spread = Vt.T @ (U.T @ wanted / s), np.linalg.norm(Vt / s[:, None], axis=0)
        found = t > 0.5
        clear = bool((np.abs(t - found) <= _CLEARLY).all()) and spread.max() * max_misfit * scale <= _CLEARLY
        if clear and np.abs(M @ found - wanted).max(initial=0.0) <= allowed:
            return found, 0.0
    live = np.linalg.norm(M, axis=0) > max_misfit * scale
    found = np.zeros(k, dtype=bool)
    if not live.any():
        return (found, 0.0) if np.abs(wanted).max(initial=0.0) <= allowed else None
    if live.sum() > 2 * _MOST_HALF:
        return None
    for slope in (0.0, *_USUAL):
        r = slope / (1 - slope)
        met = _meet(M[:, live], (wanted + r * M[:, live].sum(axis=1)) / (1 + 2 * r), allowed)
        if met is not None:
            found[live] = met
            return found, slope
        if M.shape[0] < _ENOUGH:  # so few equations fit some slope by chance
            break
    return None


def _round_number(slope: float) -> float:
    """The fraction of small whole numbers that is as good as equal, or the slope itself."""
    simple = float(Fraction(slope).limit_denominator(1000))
    return simple if abs(simple - slope) < 1e-6 else slope


def _meet(M: FloatArray, wanted: FloatArray, allowed: float) -> npt.NDArray[np.bool_] | None:
    """The subset of columns that sums to `wanted`; None if there is none, or none that is clearly the best."""
    half = M.shape[1] // 2
    # Few independent equations: rotate them to the front, so that each is worth looking at.
    U, s, _ = np.linalg.svd(np.column_stack([M, wanted]), full_matrices=False)
    keep = s > 1e-12 * s[0]
    M, wanted = U[:, keep].T @ M, U[:, keep].T @ wanted
    left, right = _sums(M[:, :half]), _sums(M[:, half:])
    order = np.argsort(right[0])
    keys = right[0][order]
    low = np.searchsorted(keys, wanted[0] - left[0] - allowed)
    high = np.searchsorted(keys, wanted[0] - left[0] + allowed)
    counts = high - low
    if counts.sum() > 20_000_000:
        return None
    one = np.repeat(np.arange(left.shape[1]), counts)
    first = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    two = order[np.arange(len(one)) + first]
    for equation in range(1, len(M)):
        good = np.abs(left[equation, one] + right[equation, two] - wanted[equation]) <= allowed
        one, two = one[good], two[good]
    if not len(one):
        return None
    miss = np.abs(left[:, one] + right[:, two] - wanted[:, None]).max(axis=0)
    best = np.argsort(miss)[:2]
    if len(one) > 1 and miss[best[0]] > _CLEARLY * miss[best[1]]:
        return None
    i, j = one[best[0]], two[best[0]]
    bits = [(i >> np.arange(half)) & 1, (j >> np.arange(M.shape[1] - half)) & 1]
    return np.concatenate(bits).astype(bool)


def _sums(M: FloatArray) -> FloatArray:
    """All subset sums of the columns; the bits of the index say which columns are in."""
    total = np.zeros((len(M), 1))
    for column in M.T:
        total = np.concatenate([total, total + column[:, None]], axis=1)
    return total
