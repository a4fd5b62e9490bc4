"""Networks without biases in the plane: a fan of rays, and a network that has the same fan.

Without biases `f(t x) - f(0) = t (f(x) - f(0))` for t >= 0: in the plane f is known once it is known along a curve
around 0. It is linear in the cones between K rays from 0. Each ray says one thing about the rows behind it, too little
to find them (`peel.py`); but it says all about the function. So the fan is found as such:

1. `_homogeneous`: 25 queries tell whether f is of this kind; with biases that ends it.
2. Chords around 0 are searched for bends (`critical.py`). Each gives a ray.
3. In each cone a linear function is fitted to all samples there; a ray is where those of its two cones are equal.
4. Samples that do not fit say where a ray is missing.

The network (`fan_trunk`): beside `relu(x_1), relu(-x_1), relu(x_2), relu(-x_2)`, which give the values on the axes and
interpolate between them, one unit of the second layer for each ray r in a quadrant with signs s,

    relu(min(p, q)) = relu(p - relu(p - q)),      p = |r_2| s_1 x_1,  q = |r_1| s_2 x_2,

which is 0 outside the quadrant and on the axes, and bends along r only: `p - q` is 0 on the line of r. No weight is
larger than 1, however close two rays are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.critical import Chords, find_bends
from reluscope.recovery.last_layer import OutputFit, fit_outputs
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.recovery.view import View
from reluscope.threads import look

_TRIED = 12
"""Pairs of points, on one ray from 0 each, that tell whether a function is homogeneous."""

_TRIPLES = 64
"""Second differences that the noise is measured by."""

_CHORDS, _NOISY_CHORDS, _OVERLAP = 128, 24, 0.1
"""Chords around 0 at first: fewer with noise, which asks for longer differences; and how far they go beyond
their ends, as a share of their angle."""

_NOISY = 1e-12
"""Relative noise from which it counts."""

_ANYWHERE = 8
"""Rays to begin with, beside those that are found."""

_AT_APEX = 16
"""Values at the origin itself, from which all others are measured."""

_FIRST, _AROUND, _INSIDE = 2000, 18_000, 18_000
"""Values around the box at first; and those a fan must fit, around the box and in it."""

_EACH, _MARGIN = 8, 0.05
"""Values taken in every cone, and the share of its angle at either side that is left out: there its rays may lie."""

_BESIDE = np.geomspace(1e-7, 0.1, 32)
"""Angles from every ray, on both sides, at which a fan is looked at too: two rays that were taken for one lie there, at
about as far from it as from one another."""

_MOST_FITTED, _PARTS, _FEWEST = 2000, (2, 4, 8, 16, 32), 4
"""Samples of one cone that its linear function is fitted to; stretches that are tried where they disagree, as one over
their share of the cone; and samples that a stretch must have."""

_POLISHED = 4
"""How often all rays are moved in the end."""

_AIM = 60.0
"""Multiples of the noise that no sample is to miss by: as long as one does, and more may be allowed, a ray that bends
the function slightly may be missing."""

_ROUNDS, _IDLE, _MOST_PLACES, _CLOSER = 16, 3, 40, 40
"""How often rays are looked for where samples do not fit, how often in a row in vain, at how many places at a time, and
by how many more samples each."""

_SLACK = 20.0
"""Multiples of the noise that count as equal: a sample and the linear function of its cone; the values before and
after a ray is moved onto the line of another."""

_PLACED, _LOOSE = 1000.0, 3.0
"""Error of the place of a bend on a chord, over the noise by the size of the bend; and that of the end of a stretch,
over the angle between the samples on its two sides."""


class Pool(Protocol):
    """What is asked of everything learnt so far (`exact.Pool`)."""

    view: View
    rng: np.random.Generator
    samples: FloatArray
    values: FloatArray

    def asking(self, what: str) -> AbstractContextManager[None]:
        """Count the queries of a step."""

    def sample(self, count: int) -> None:
        """Have at least so many values."""

    def add(self, U: FloatArray) -> None:
        """Values at given points."""

    def open(self) -> bool:
        """Whether more may be asked."""


@dataclass(frozen=True, eq=False)
class Rays:
    """Rays from the apex: unit directions `r` (k, 2) by their angle, the sizes of the bends, `jump` (k,), and how far
    each may be from its true place, `error` (k,)."""

    r: FloatArray
    jump: FloatArray
    error: FloatArray

    def __len__(self) -> int:
        return len(self.r)

    @property
    def angle(self) -> FloatArray:
        """In [-pi, pi], ascending."""
        return np.arctan2(self.r[:, 1], self.r[:, 0])

    @property
    def width(self) -> FloatArray:
        """The angle from each ray to the next."""
        return np.diff(self.angle, append=self.angle[:1] + 2 * np.pi)

    def cone(self, V: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """For each direction the ray before it, and where it is between that one (0) and the next (1)."""
        angle = np.arctan2(V[:, 1], V[:, 0])
        before = (np.searchsorted(self.angle, angle, side="right") - 1) % len(self)
        return before, np.mod(angle - self.angle[before], 2 * np.pi) / np.maximum(self.width[before], 1e-300)

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Rays:
        """Some of the rays."""
        return Rays(self.r[which], self.jump[which], self.error[which])

    def ordered(self) -> Rays:
        """The same by their angle."""
        return self.take(np.argsort(self.angle, kind="stable"))

    def beside(self, more: Rays) -> Rays:
        """These and more."""
        parts = ((self.r, more.r), (self.jump, more.jump), (self.error, more.error))
        return Rays(*(np.concatenate(part) for part in parts)).ordered()


@dataclass(frozen=True, eq=False)
class Fan:
    """What was found: the `rays`, the features `trunk` (unit-box coordinates) and the outputs fitted to them.

    `rows` (units, 3) is given if one hidden layer is enough: then each line bends the function alike on both sides of
    0, and `trunk` has one stage of these rows. Two layers are looked at again at many more samples; `fits` says whether
    that was possible and all of them fit.
    """

    rays: Rays
    trunk: Trunk
    fit: OutputFit
    rows: FloatArray | None
    fits: bool = False

    @property
    def worst(self) -> float:
        """The largest misfit of a sample."""
        return float(self.fit.residual.max())


def find_fan(pool: Pool, most: float) -> Fan | None:
    """The fan of a function that is homogeneous about the origin; `most` is the error that a sample may show.

    None if it is not of that kind or affine, if there are not two inputs, or if the origin is not inside the box. (If
    it is not, the line of each ray meets the box on one side of it only, and one hidden layer is enough.)
    Costs 25 queries if it is not homogeneous, else about 41,000, of which 36,000 and 64 a ray are a check.
    """
    view = pool.view
    apex = -view.centre / view.half
    if view.n != 2 or np.abs(apex).max() >= 1 or not _homogeneous(pool, apex):
        return None
    if fit_outputs(Trunk(2), pool.samples, pool.values, most, rounds=1).residual.max() <= most:
        return None
    noise = _noise(pool, apex)
    count = _NOISY_CHORDS if view.relative > _NOISY else _CHORDS
    edges = np.linspace(-np.pi, np.pi, count + 1) + pool.rng.uniform(0, 2 * np.pi)
    rays = _searched(pool, noise, apex, edges[:-1], edges[1:])
    if view.relative > _NOISY:  # not all bends may stand out of it; where nothing bends, these are left out again
        none = np.zeros(_ANYWHERE)
        rays = rays.beside(Rays(_towards(np.linspace(-np.pi, np.pi, _ANYWHERE, endpoint=False)), none, none))
    pool.add(np.tile(apex, (_AT_APEX, 1)))
    pool.add(around(apex, pool.rng.uniform(-np.pi, np.pi, _FIRST)))
    fan: Fan | None = None
    aim, wanted, idle, before = min(most, _AIM * noise), 0, 0, np.inf
    for _ in range(_ROUNDS):
        look()
        if not len(rays) or not pool.open():
            break
        inside = np.linspace(_MARGIN, 1 - _MARGIN, _EACH)
        pool.add(around(apex, (rays.angle[:, None] + inside * rays.width[:, None]).reshape(-1)))
        rays = _located(pool, noise, apex, rays)
        if not len(rays):
            break
        fan = _fitted(pool, noise, apex, rays, most)
        idle, before = 0 if fan.worst < 0.5 * before else idle + 1, min(fan.worst, before)
        if fan.worst <= aim or (fan.worst <= most and idle >= _IDLE):
            if wanted or fan.rows is not None:  # one layer is looked at again as any other is
                break
            wanted, idle, before = len(pool.samples) + _AROUND + _INSIDE, 0, np.inf
            _look_again(pool, apex, fan.rays)
            fan = _fitted(pool, noise, apex, fan.rays, most)
            if fan.worst <= aim:
                break
        if not pool.open():
            break
        rays = fan.rays.beside(_missing(pool, noise, apex, fan.rays, aim, closer=fan.worst > most))
    if fan is None:
        return None
    fan = _polished(pool, noise, apex, _fitted(pool, noise, apex, fan.rays, most), most)
    return replace(fan, fits=bool(wanted) and len(pool.samples) >= wanted and fan.worst <= most)


def _homogeneous(pool: Pool, apex: FloatArray) -> bool:
    """Whether `f(apex + t v) - f(apex) = t (f(apex + v) - f(apex))` at some pairs of points, up to noise."""
    view, rng = pool.view, pool.rng
    far = around(apex, rng.uniform(-np.pi, np.pi, _TRIED))
    t = np.linspace(0.1, 0.9, _TRIED)
    values = np.zeros(0)
    with pool.asking("homogeneity"):
        values = view.values(np.concatenate([apex[None], far, apex + t[:, None] * (far - apex)]))
    if not len(values):
        return False
    centre, out, within = values[0], values[1 : 1 + _TRIED], values[1 + _TRIED :]
    # Where the function is 0 nearly everywhere, the first look sees less than the rounding of the other values.
    noise = max(view.noise, float(np.finfo(view.oracle.dtype).eps * np.abs(values).max()))
    return bool((np.abs(within - centre - t * (out - centre)) <= _SLACK * noise).all())


def _noise(pool: Pool, apex: FloatArray) -> float:
    """The error of a value, from second differences along rays: nothing bends there, so all that is left is noise. The
    first look asks within the box; rounding grows towards its sides."""
    far = around(apex, pool.rng.uniform(-np.pi, np.pi, _TRIPLES)) - apex
    t = pool.rng.uniform(0.5, 1.0, (_TRIPLES, 1))
    values = np.zeros((3, 0))
    with pool.asking("homogeneity"):
        rows = apex + np.stack([far, t * far, (2 * t - 1) * far])
        values = pool.view.values(rows.reshape(-1, 2)).reshape(3, _TRIPLES)
    left = np.abs(values[0] + values[2] - 2 * values[1])
    return max(pool.view.noise, float(left.max(initial=0.0)) / 3)


def _towards(angle: FloatArray) -> FloatArray:
    """Unit directions, (k, 2)."""
    return np.column_stack([np.cos(angle), np.sin(angle)])


def around(apex: FloatArray, angle: FloatArray) -> FloatArray:
    """The points of the unit box furthest from the apex at given angles, (k, 2)."""
    d = _towards(angle)
    with np.errstate(divide="ignore"):
        reach = np.where(d != 0, (np.sign(d) - apex) / d, np.inf).min(axis=1)
    return np.asarray(np.clip(apex + reach[:, None] * d, -1, 1))


def _searched(pool: Pool, noise: float, apex: FloatArray, low: FloatArray, high: FloatArray) -> Rays:
    """The rays that chords around the apex meet, from angle `low` to `high` each and a little beyond."""
    more = _OVERLAP * (high - low)
    start = around(apex, low - more)
    chords = Chords(start, around(apex, high + more) - start)
    r, jump = np.zeros((0, 2)), np.zeros(0)
    with pool.asking("critical points"):
        found = find_bends(replace(pool.view, noise=noise), chords, pool.rng)
        v, way = found.x - apex, chords.way[found.line]
        size = np.maximum(np.linalg.norm(v, axis=1), 1e-300)
        r = v / size[:, None]
        # A chord that meets the ray at a small angle bends less than the gradient does.
        sine = np.abs(r[:, 0] * way[:, 1] - r[:, 1] * way[:, 0]) / np.linalg.norm(way, axis=1)
        jump = np.abs(found.jump) / np.maximum(sine, 1e-300)
    error = _PLACED * noise / np.maximum(jump, 1e-300)
    kept: list[int] = []  # a bend that two chords met is one, and rather the clearer
    for i in np.argsort(error, kind="stable"):
        if (np.linalg.norm(r[kept] - r[i], axis=1) > 1e-12 + error[kept] + error[i]).all():
            kept.append(int(i))
    return Rays(r, jump, error).take(np.array(kept, dtype=np.intp)).ordered()


def _located(pool: Pool, noise: float, apex: FloatArray, rays: Rays) -> Rays:
    """The rays as the places where the linear functions of neighbouring cones are equal. Rays at which nothing bends
    are left out."""
    while True:
        look()
        g = _slopes(pool, noise, apex, rays)  # (cones, outputs, 2)
        change = g - np.roll(g, 1, axis=0)  # at each ray, from the cone before it to the one behind
        _, size, Vt = np.linalg.svd(change)
        narrower = np.minimum(rays.width, np.roll(rays.width, 1))
        shown = size[:, 0] * np.minimum(narrower, 1.0)
        weak = shown <= _SLACK * noise
        weak &= (shown <= np.roll(shown, 1)) & (shown <= np.roll(shown, -1))  # neighbours in turn
        if not weak.any():
            break
        rays = rays.take(~weak)
    along = np.column_stack([-Vt[:, 0, 1], Vt[:, 0, 0]])
    along *= np.sign((along * rays.r).sum(axis=1))[:, None]
    turned = np.linalg.norm(along - rays.r, axis=1)
    moved = turned <= rays.error  # further off, it is where other pieces would meet: one between them is missing
    return Rays(np.where(moved[:, None], along, rays.r), size[:, 0], rays.error).ordered()


def _slopes(pool: Pool, noise: float, apex: FloatArray, rays: Rays) -> FloatArray:
    """The linear function of each cone, (cones, outputs, 2)."""
    V = pool.samples - apex
    H = pool.values - _at_apex(pool, V)
    cone, place = rays.cone(V)
    fair = (place > 0.9 * _MARGIN) & (place < 1 - 0.9 * _MARGIN)
    g = np.zeros((len(rays), H.shape[1], 2))
    for j in range(len(rays)):
        here = np.flatnonzero(fair & (cone == j))[-_MOST_FITTED:]
        here = here[np.argsort(place[here])]
        g[j] = _agreed(V[here], H[here], _SLACK * noise)
    return g


def _agreed(V: FloatArray, H: FloatArray, near: float) -> FloatArray:
    """The linear function (outputs, 2) that most of the samples, in order of their angle, agree on up to `near`.

    That of all of them, or if they disagree (a ray is missing) of shorter and shorter stretches of them: where pieces
    are linear, a stretch within the longest one agrees with all of it.
    """
    best = np.linalg.lstsq(V, H, rcond=None)[0]
    agree = np.abs(V @ best - H).max(axis=1, initial=0.0) <= near
    for parts in _PARTS:
        size = len(V) // parts
        if 2 * agree.sum() > len(V) or size < _FEWEST:
            break
        for start in range(0, len(V) - size + 1, size // 2):
            found = np.linalg.lstsq(V[start : start + size], H[start : start + size], rcond=None)[0]
            also = np.abs(V @ found - H).max(axis=1) <= near
            if also.sum() > agree.sum():
                best, agree = found, also
    if _FEWEST <= agree.sum() < len(V):
        best = np.linalg.lstsq(V[agree], H[agree], rcond=None)[0]
    return np.asarray(best.T)


def _at_apex(pool: Pool, V: FloatArray) -> FloatArray:
    """The mean of the values at the apex, (outputs,)."""
    return np.asarray(pool.values[~V.any(axis=1)].mean(axis=0))


def _beside(apex: FloatArray, rays: Rays) -> FloatArray:
    """Points on both sides of every ray, ever closer."""
    return around(apex, (rays.angle[:, None] + np.concatenate([_BESIDE, -_BESIDE])).reshape(-1))


def _look_again(pool: Pool, apex: FloatArray, rays: Rays) -> None:
    """Values at many more points: along the sides of the box, in it, and beside every ray."""
    along = 8 * (np.arange(_AROUND) + pool.rng.uniform(size=_AROUND)) / _AROUND  # one in each of so many equal parts
    place, side = np.mod(along, 2) - 1, (along // 2).astype(np.intp)
    sides = np.where((side % 2 == 0)[:, None], [1.0, 0.0], [0.0, 1.0]) * place[:, None]
    sides += np.array([[0.0, -1.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])[side]
    pool.add(np.concatenate([sides, _beside(apex, rays)]))
    pool.sample(len(pool.samples) + _INSIDE)


def _polished(pool: Pool, noise: float, apex: FloatArray, fan: Fan, most: float) -> Fan:
    """The fan with each ray where its two pieces meet, however far, as long as the samples fit better."""
    for _ in range(_POLISHED):
        free = np.minimum(fan.rays.width, np.roll(fan.rays.width, 1)) / 2
        rays = _located(pool, noise, apex, replace(fan.rays, error=free))
        better = _fitted(pool, noise, apex, rays, most) if len(rays) else fan
        if better.worst >= fan.worst:
            break
        fan = better
    return fan


def _missing(pool: Pool, noise: float, apex: FloatArray, rays: Rays, aim: float, closer: bool) -> Rays:
    """Rays at both ends of every stretch, by angle, in which samples differ from what most of their cone agree on: a
    piece of the function is missing there. The worst stretches first, and each looked at more closely before.

    If there is none, `closer` asks for samples beside all rays first. An end is known only as well as samples are
    dense. That is enough to fit the missing piece, and `_located` then moves the ray to its place.
    """
    angle, low, high = _stretches(pool, noise, apex, rays, aim)
    if closer and not len(low):  # what is missing lies between the samples
        pool.add(_beside(apex, rays))
        angle, low, high = _stretches(pool, noise, apex, rays, aim)
    inside = (np.arange(_CLOSER) + 0.5) / _CLOSER
    pool.add(around(apex, (angle[low] + inside[:, None] * (angle[high] - angle[low])).reshape(-1)))
    angle, low, high = _stretches(pool, noise, apex, rays, aim)
    first, last = np.concatenate([angle[low], angle[high - 1]]), np.concatenate([angle[low + 1], angle[high]])
    fresh = rays.cone(_towards(first))[0] == rays.cone(_towards(last))[0]  # else a known ray is the end
    r = _towards(0.5 * (first + last)[fresh])
    return Rays(r, np.zeros(len(r)), _LOOSE * (last - first)[fresh] + _PLACED * noise)


def _stretches(
    pool: Pool, noise: float, apex: FloatArray, rays: Rays, aim: float
) -> tuple[FloatArray, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The angles of all samples once around, and those (as indices) of the last before and the first behind each
    stretch that does not fit. All angles begin at a sample that fits; without any there is nothing to tell."""
    V = pool.samples - apex
    g = _slopes(pool, noise, apex, rays)[rays.cone(V)[0]]
    residual = np.abs(np.einsum("soi,si->so", g, V) + _at_apex(pool, V) - pool.values).max(axis=1)
    angle = np.arctan2(V[:, 1], V[:, 0])
    order = np.argsort(angle, kind="stable")
    first = np.flatnonzero(residual[order] <= aim)
    if not len(first):
        return np.zeros(1), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    order = np.roll(order, -first[0])
    order = np.append(order, order[0])
    turn = np.unwrap(angle[order])
    good = np.flatnonzero(residual[order] <= aim)
    low, high = good[:-1], good[1:]
    low, high = low[high > low + 1], high[high > low + 1]
    worst = np.array([residual[order[i + 1 : j]].max() for i, j in zip(low, high, strict=True)])
    chosen = np.argsort(-worst, kind="stable")[:_MOST_PLACES]
    return turn, low[chosen], high[chosen]


def _fitted(pool: Pool, noise: float, apex: FloatArray, rays: Rays, most: float) -> Fan:
    """Units for the rays and the outputs fitted to them: one layer if that is enough."""
    line, normal = _lines(rays, noise)
    rows = np.column_stack([normal, -normal @ apex])
    single = Trunk(2).grown(rows)
    some = fit_outputs(single, pool.samples[-_FIRST:], pool.values[-_FIRST:], most, rounds=1)
    if some.residual.max() <= most:
        fit = fit_outputs(single, pool.samples, pool.values, most, rounds=1)
        if fit.residual.max() <= most:
            return Fan(rays, single, fit, rows)
    off = np.abs(rays.r).min(axis=1) * rays.jump > _SLACK * noise  # the axes bend anyway
    used, line = np.unique(line[off], return_inverse=True)
    trunk = fan_trunk(rays.r[off], line, normal[used], apex)
    return Fan(rays, trunk, fit_outputs(trunk, pool.samples, pool.values, most, rounds=1), None)


def _lines(rays: Rays, noise: float) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """For each ray its line, and the unit normals of the lines: opposite rays share one if neither has to be moved by
    more than shows."""
    line = np.full(len(rays), -1)
    normal: list[FloatArray] = []
    for k in np.argsort(-rays.jump, kind="stable"):
        if line[k] >= 0:
            continue
        n = np.array([-rays.r[k, 1], rays.r[k, 0]])
        same = (rays.r @ rays.r[k] < 0) & (np.abs(rays.r @ n) * rays.jump <= _SLACK * noise) & (line < 0)
        same[k] = True
        line[same] = len(normal)
        normal.append(n)
    return line, np.array(normal)


def fan_trunk(r: FloatArray, line: npt.NDArray[np.intp], normal: FloatArray, apex: FloatArray) -> Trunk:
    """Features whose affine combinations are all continuous functions that are linear between rays and axes.

    Parameters
    ----------
    r : (k, 2) array
        Unit directions of the rays, none on an axis.
    line : (k,) array
        The line of each ray.
    normal : (lines, 2) array
        Unit normals of the lines.
    apex : (2,) array
        Where all rays begin.

    Returns
    -------
    Trunk
        Two layers of `4 + lines` and `4 + k` units, all of them ReLUs.
    """
    first = np.concatenate([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], normal])
    n = normal[line]
    # p - q has the signs of (s_1, -s_2). Where the line's normal is turned the other way, q - relu(q - p) is the same.
    turned = n[:, 0] * r[:, 0] < 0
    axis = np.where(turned, 2 + (r[:, 1] < 0), 0 + (r[:, 0] < 0))
    second = np.zeros((4 + len(r), len(first)))
    second[np.arange(4), np.arange(4)] = 1.0  # what is positive passes a ReLU
    k = np.arange(len(r))
    second[4 + k, axis] = np.abs(n[k, turned.astype(np.intp)])
    second[4 + k, 4 + line] = -1.0
    stages = [(first, -first @ apex), (second, np.zeros(len(second)))]
    return Trunk(2, tuple(Stage(weight, bias, np.ones(len(bias), dtype=bool)) for weight, bias in stages))
