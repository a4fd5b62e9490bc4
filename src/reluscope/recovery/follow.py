"""Following a surface from region to region, where pairs of points share too few directions to be told apart.

A critical point with its normal gives a row theta on the `inputs + 1` directions that its region of the known features
sees. Where the surface meets the surface `h_j = 0` of a known unit it goes on behind it, and there the normal has
turned by a multiple of that unit's gradient:

    lambda' v' = lambda v + theta_j grad h_j.

Three vectors in one plane: that is a test with few inputs as well (from three inputs on), and its solution is one
more weight of the row. So a surface is known once it was followed across every unit it meets. That of a deeper unit
turns in between as well; the places where it was expected and is not found say so.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.critical import Chords
from reluscope.recovery.peel import Evidence, Views, explained, shortest, with_one
from reluscope.recovery.trunk import Trunk
from reluscope.recovery.view import View

_STARTS = 160
_NEAREST = 4
"""Points of a surface from which a unit is approached: all, and the nearest that are tried for each unit."""

_ASIDE = 2e-3
_HALF = 0.03
"""Distance behind the surface of the unit at which a surface is looked for again, and half the length of the chord."""

_SHORT = 1e-5
"""Length of the differences that show whether the surface is there before it is followed."""

_MOST_ROUNDS = 14
_FEW_THERE, _LOOKED = 0.25, 12
"""Share of the places on the known part of a surface that bend, below which it is not one surface; and the fewest
places for that."""

_SEEN = 1e-9


class Pool(Protocol):
    """What following asks of everything learnt so far (`exact.Pool`)."""

    view: View
    rng: np.random.Generator
    chords: Chords
    evidence: Evidence

    def open(self) -> bool:
        """Whether more may be asked."""

    def search(self, chords: Chords, fair: bool) -> None:
        """Search more chords."""

    def measure(self, which: npt.NDArray[np.intp]) -> None:
        """Measure normals."""

    def asking(self, what: str) -> AbstractContextManager[None]:
        """Count the queries of a step."""


@dataclass(frozen=True, eq=False)
class Followed:
    """A row (features + 1,), the directions of it that stay unseen, the critical points on it, and whether the surface
    was missed where it should go on: then it belongs to a deeper layer."""

    theta: FloatArray
    unseen: FloatArray
    members: npt.NDArray[np.intp]
    broken: bool


def follow(pool: Pool, trunk: Trunk, members: npt.NDArray[np.intp], pair_error: float, near: float) -> Followed | None:
    """The row of the surface on which some measured critical points lie, as far as the surface can be followed.

    Costs about `30 + 2 inputs` queries for each unit that is crossed.
    """
    solved = Views.of(trunk, pool.evidence, members).agreed(pair_error)
    if solved is None:
        return None
    (theta, unseen), there, looked = solved, 0, 0
    missed = np.zeros(sum(len(stage.bias) for stage in trunk.stages))
    for _ in range(_MOST_ROUNDS):
        if not unseen.shape[1] or not pool.open():
            break
        x, way, target, bends, asked = _places(pool, trunk, theta, unseen, pool.evidence.x[members], missed)
        there, looked = there + bends, looked + asked
        if looked >= _LOOKED and there < _FEW_THERE * looked:
            return Followed(theta, unseen, members, True)
        if not len(x):
            break
        first = len(pool.chords)
        pool.search(Chords(x - _HALF * way, 2 * _HALF * way), fair=False)
        picked = _nearest(pool, trunk, first, len(x), near)
        known = picked >= 0
        if known.any():
            pool.measure(picked[known & np.isinf(pool.evidence.error[picked])])
        before = unseen.shape[1]
        for i, unit in zip(picked, target, strict=True):
            missed[unit] += 1
            if i < 0 or not np.isfinite(pool.evidence.error[i]) or i in members:
                continue
            more = np.append(members, i)
            trial = Views.of(trunk, pool.evidence, more)
            if len(trial.point) < len(more) or not trial.shares(unseen):
                continue
            fit = trial.agreed(pair_error)
            if fit is not None:
                (theta, unseen), members = fit, more
                missed[unit] = 0
        if unseen.shape[1] == before and (missed > 2).all():
            break
    return Followed(theta, unseen, members, False)


def _nearest(pool: Pool, trunk: Trunk, first: int, count: int, near: float) -> npt.NDArray[np.intp]:
    """For each of the last `count` chords, the bend nearest to its middle that no known unit explains, or -1."""
    e = pool.evidence
    picked = np.full(count, -1)
    here = np.flatnonzero(e.line >= first)
    here = here[~explained(trunk, e.x[here], near)]
    for i in here[np.argsort(-np.abs(e.t[here] - 0.5), kind="stable")]:
        picked[e.line[i] - first] = i
    return picked


def units_at(trunk: Trunk, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of all units of all layers, before the activation: values (n, units) and gradients (n, units, inputs)."""
    values, slopes = [np.zeros((len(x), 0))], [np.zeros((len(x), 0, trunk.n_inputs))]
    for k, stage in enumerate(trunk.stages):
        below = Trunk(trunk.n_inputs, trunk.stages[:k]).local(x)
        values.append(below.z @ stage.weight[stage.bends].T + stage.bias[stage.bends])
        slopes.append(stage.weight[stage.bends] @ below.J)
    return np.concatenate(values, axis=1), np.concatenate(slopes, axis=1)


def _open_rank(trunk: Trunk, x: FloatArray, unseen: FloatArray) -> npt.NDArray[np.intp]:
    """How many of the unseen directions of theta each point would show."""
    local = trunk.local(x)
    shown = np.concatenate([np.einsum("fu,nfi->niu", unseen[:-1], local.J), (with_one(local.z) @ unseen)[:, None]], 1)
    return np.asarray((np.linalg.svd(shown, compute_uv=False) > _SEEN).sum(axis=1))


def _places(
    pool: Pool, trunk: Trunk, theta: FloatArray, unseen: FloatArray, known: FloatArray, missed: FloatArray
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.intp], int, int]:
    """Just behind the units that the known part of a surface meets and that show one more weight of its row: points,
    unit directions across the surface along the unit's, the units; and how many of how many places looked at bend."""
    view, n = pool.view, trunk.n_inputs
    x = np.concatenate([known, _on_surface(trunk, theta, unseen, known, pool.rng)])
    h, g = units_at(trunk, x)
    local = trunk.local(x)
    v = np.einsum("nfi,f->ni", local.J, theta[:-1])
    v /= np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
    tangent = g - np.einsum("nui,ni->nu", g, v)[:, :, None] * v[:, None, :]
    away = np.abs(h) / np.maximum(np.linalg.norm(tangent, axis=2), 1e-12)
    away += 0.05 * pool.rng.exponential(size=away.shape) * np.sqrt(missed[: away.shape[1]])
    unit = np.tile(np.arange(h.shape[1]), min(_NEAREST, len(x)))
    start = np.argsort(away, axis=0)[:_NEAREST].reshape(-1)
    x, side = x[start], np.sign(h[start, unit])
    which = np.arange(len(x))
    for _ in range(12):
        h, g = units_at(trunk, x)
        local = trunk.local(x)
        v, g = np.einsum("nfi,f->ni", local.J, theta[:-1]), g[which, unit]
        aim = side * _ASIDE * np.linalg.norm(g, axis=1)
        r = np.stack([with_one(local.z) @ theta, h[which, unit] - aim], axis=1)
        x = np.clip(x - shortest(np.stack([v, g], axis=1), r), -1, 1)
    h, g = units_at(trunk, x)
    local = trunk.local(x)
    v, g = np.einsum("nfi,f->ni", local.J, theta[:-1]), g[which, unit]
    size, steep = np.linalg.norm(v, axis=1), np.linalg.norm(g, axis=1)
    good = (np.abs(with_one(local.z) @ theta) < 1e-9 * np.maximum(size, 1e-300)) & (size > 1e-9) & (steep > 1e-9)
    good &= (np.sign(h[which, unit]) == side) & (np.abs(x) < 1 - 2 * _HALF / np.sqrt(n)).all(axis=1)
    good &= _open_rank(trunk, x, unseen) == 0
    x, v, g = x[good], v[good] / size[good, None], g[good] / steep[good, None]
    unit, side = unit[good], side[good]
    # Along the surface to the other side, and across it along the unit's.
    slide = g - (g * v).sum(axis=1, keepdims=True) * v
    length = np.linalg.norm(slide, axis=1, keepdims=True)
    cross = v - (g * v).sum(axis=1, keepdims=True) * g
    wide = np.linalg.norm(cross, axis=1, keepdims=True)
    good = (length[:, 0] > 0.05) & (wide[:, 0] > 0.05)
    x, v, unit, side = x[good], v[good], unit[good], side[good]
    slide, cross, length = slide[good] / length[good], cross[good] / wide[good], length[good]
    far = x - side[:, None] * slide * 2 * _ASIDE / length
    show = _open_rank(trunk, far, unseen)
    good = (show > 0) & (show <= max(1, n - 2)) & (np.abs(far) + _HALF * np.abs(cross) <= 1).all(axis=1)
    # One place for each unit, the first that bends.
    far, cross, x, v, unit = far[good], cross[good], x[good], v[good], unit[good]
    if not len(x):
        return far, cross, unit, 0, 0
    bends = np.zeros(len(x), dtype=bool)
    with pool.asking("critical points"):
        ends = np.stack([x - _SHORT * v, x, x + _SHORT * v], axis=1)
        values = view.values(ends.reshape(-1, n)).reshape(-1, 3)
        bends = np.abs(values[:, 0] + values[:, 2] - 2 * values[:, 1]) > 30 * view.noise
    here = np.flatnonzero(bends)
    here = here[np.unique(unit[here], return_index=True)[1]]
    return far[here], cross[here], unit[here], int(bends.sum()), len(bends)


def _on_surface(
    trunk: Trunk, theta: FloatArray, unseen: FloatArray, known: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Points of the box on the surface where no unseen direction acts."""
    x = rng.uniform(-1, 1, (_STARTS, trunk.n_inputs))
    x[::2] = np.clip(known[rng.integers(0, len(known), len(x[::2]))] + 0.4 * x[::2], -1, 1)
    for _ in range(15):
        local = trunk.local(x)
        slope = np.einsum("nfi,f->ni", local.J, theta[:-1])
        size = np.maximum((slope**2).sum(axis=1), 1e-30)
        x = np.clip(x - slope * ((with_one(local.z) @ theta) / size)[:, None], -1, 1)
    good = np.abs(with_one(trunk.features(x)) @ theta) < 1e-9
    x = x[good]
    return x[_open_rank(trunk, x, unseen) == 0] if len(x) else x
