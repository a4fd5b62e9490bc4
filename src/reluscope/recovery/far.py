"""Points far out in the features of a model: where a unit that no sample has switched would switch first.

A unit that is missing in the next layer is on (or off) on one side of a hyperplane in the features of a layer. If that
side holds a point of the box at all, it holds one that is furthest out in the direction of the unit's row. That row
is not known, so random directions are climbed on the model, which asks the oracle nothing. Random corners of the box
are not far out: in 40 inputs a deep feature at a random corner is about as large as at any point.

A unit that is known, but on in a sliver of the box only, is known from few samples. Its sliver is entered by climbing,
and walked in.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray
from reluscope.recovery.refine import Model
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.threads import look

_DIRECTIONS, _STEPS = 6000, (40, 20, 20)
"""Directions climbed in each layer, and the steps of each climb: between them every direction takes the end that is
furthest out of all, which is worth thousands of starts."""

_WORK, _DRAWN, _NUMBERS = 1_200_000_000, 20, 1 << 22
"""Weights times directions times steps in one layer, a random number for an input counting as so many weights; and
numbers held at a time. So there are fewer directions on large networks."""

_SHARES = (1.0, 0.5, 0.25, 0.1)
"""Shares of the inputs that one step moves."""

_FEATURES = (1.0, 0.5, 0.3)
"""Shares of the features that a random direction reads: a row may have few weights that matter."""

_RARE, _LOOKED_AT, _WALK = 0.02, 20_000, 24
"""Share of points below which a side of a unit is rare, those points at most, and the steps of a walk on it."""


def far_points(model: Model, U: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """At most about `count` points of the unit box, each furthest out in some direction of the features of some layer.

    Climbs start at rows of U (n, inputs). The directions are random, or rows of the next layer some of whose weights
    are changed; every unit and every output is climbed up and down as well. Many directions share their end: the points
    differ from each other.
    """
    trunk, last = model.trunk, len(model.trunk.stages) - 1
    if last < 0:
        return np.zeros((0, trunk.n_inputs))
    found, each = [], max(2, count // (2 * last + 1))
    for k, stage in enumerate(trunk.stages):
        many = _afforded(model, _DIRECTIONS)
        ways = [_directions(trunk, k, U, many, rng)]
        if k < last:
            ways.append(_changed_rows(trunk.stages[k + 1], stage.n_free, many // 2, rng))
        for way in ways:
            x = _furthest(trunk, k, way, U, rng, after=True)
            found.append(rng.permutation(np.unique(x, axis=0))[:each])
        unit = np.repeat(np.eye(stage.n_units, stage.n_free), 2, axis=0)[:each]
        unit[1::2] *= -1.0
        found.append(_furthest(trunk, k, unit, U, rng, after=False))
    ends = np.concatenate([model.rows, -model.rows])[:each, : trunk.stages[last].n_free]
    return np.concatenate([*found, _furthest(trunk, last, ends, U, rng, after=True)])


def _changed_rows(stage: Stage, width: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Rows (count, width) of units of the stage, or the opposite, with about a third of their weights drawn anew.

    A unit that was seen in part of where it acts has a row that is right there; its other weights may be anything.
    """
    rows = stage.weight[rng.integers(stage.n_units, size=count), :width] * rng.choice([-1.0, 1.0], (count, 1))
    drawn = rng.normal(size=rows.shape) * np.sqrt((rows**2).mean(axis=1, keepdims=True))
    return np.where(rng.random(rows.shape) < rng.uniform(0.1, 0.5, (count, 1)), drawn, rows)


def _directions(trunk: Trunk, k: int, U: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Random directions (count, features) of layer k: half of them as the features are, half with features scaled to
    one spread, and some that read few of the features."""
    stage = trunk.stages[k]
    spread = _features(trunk, k, stage.n_free, U[:2000], after=True).std(axis=0)
    way = rng.normal(size=(count, stage.n_free))
    way[::2] /= np.where(spread > 1e-6 * spread.max(initial=0.0), spread, np.inf)
    return np.asarray(way * (rng.random(way.shape) < rng.choice(_FEATURES, (count, 1))))


def _furthest(
    trunk: Trunk, k: int, way: FloatArray, U: FloatArray, rng: np.random.Generator, after: bool
) -> FloatArray:
    """For each direction a point furthest out, as far as climbs find it."""
    x = U[rng.integers(len(U), size=len(way))]
    for i, steps in enumerate(_STEPS):
        if i:
            z = _features(trunk, k, way.shape[1], x, after)
            most = max(1, _NUMBERS // len(z))
            x = x[np.concatenate([(way[j : j + most] @ z.T).argmax(axis=1) for j in range(0, len(way), most)])]
        x = _climbed(trunk, k, way, x, rng, after, steps)[0]
    return x


def rare_points(model: Model, U: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """At most `count` points of the unit box on the rare sides of units: those that hold less than 2 % of the rows of
    U.

    A point climbs until it is there, and walks: random steps that stay on that side.
    """
    trunk = model.trunk
    sides = []
    for k, stage in enumerate(trunk.stages):
        on = (_features(trunk, k, stage.n_units, U[:_LOOKED_AT], after=False) > 0).mean(axis=0)
        sides += [(k, j, 1.0 if on[j] < 0.5 else -1.0) for j in np.flatnonzero(np.minimum(on, 1 - on) < _RARE)]
    if not sides:
        return np.zeros((0, trunk.n_inputs))
    found, each = [], max(1, _afforded(model, count) // len(sides))
    for k, j, side in sides:
        way = np.zeros((each, trunk.stages[k].n_free))
        way[:, j] = side
        x, height = _climbed(trunk, k, way, U[rng.integers(len(U), size=each)], rng, False, _STEPS[0])
        x, way = x[height > 0], way[height > 0]
        found.append(_walked(trunk, k, way, x, rng))
    return np.concatenate(found)


def _afforded(model: Model, count: int) -> int:
    return int(min(count, max(1, _WORK // (sum(_STEPS) * (model.n_parameters + _DRAWN * model.trunk.n_inputs)))))


def _climbed(
    trunk: Trunk, k: int, way: FloatArray, x: FloatArray, rng: np.random.Generator, after: bool, steps: int
) -> tuple[FloatArray, FloatArray]:
    """The points after a climb of `way . z`, each with a direction (n, features) of its own, and how high they are.

    A step moves some inputs along the sign of the gradient, to the side of the box or part of the way, and is kept if
    it leads up. `after` the units of layer k have bent, or before.
    """
    height, slope = _height(trunk, k, way, x, after)
    for _ in range(steps):
        look()
        moved = rng.random(x.shape) < rng.choice(_SHARES, (len(x), 1))
        length = np.where(rng.random((len(x), 1)) < 0.7, 1.0, rng.random((len(x), 1)))
        trial = np.where(moved & (slope != 0), x + length * (np.sign(slope) - x), x)
        h, s = _height(trunk, k, way, trial, after)
        up = h > height
        x, height, slope = np.where(up[:, None], trial, x), np.where(up, h, height), np.where(up[:, None], s, slope)
    return x, height


def _walked(trunk: Trunk, k: int, way: FloatArray, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The points after random steps that stay where `way . h > 0`, most of them short or of few inputs; one in four
    rests at the end of its climb."""
    for _ in range(_WALK):
        moved = rng.random(x.shape) < rng.choice(_SHARES, (len(x), 1))
        step = rng.choice([2.0, 0.5, 0.1], (len(x), 1)) * rng.uniform(-1, 1, x.shape)
        trial = np.clip(x + np.where(moved, step, 0.0), -1, 1)
        good = _height(trunk, k, way, trial, after=False)[0] > 0
        good[::4] = False
        x = np.where(good[:, None], trial, x)
    return x


def _features(trunk: Trunk, k: int, n: int, x: FloatArray, after: bool) -> FloatArray:
    """The first n features of layer k `after` its units have bent, or before."""
    z, stage = Trunk(trunk.n_inputs, trunk.stages[:k]).features(x), trunk.stages[k]
    h = z @ stage.weight[:n].T + stage.bias[:n]
    return np.where(stage.bends[:n] & (h < 0), stage.slope * h, h) if after else np.asarray(h)


def _height(trunk: Trunk, k: int, way: FloatArray, x: FloatArray, after: bool) -> tuple[FloatArray, FloatArray]:
    """`way . z` (n,) over the first features of layer k, and its gradient (n, inputs)."""
    z, back, last = x, [], trunk.stages[k]
    for stage in trunk.stages[:k]:
        h = z @ stage.weight.T + stage.bias
        back.append(np.where(stage.bends & (h < 0), stage.slope, 1.0))
        z = back[-1] * h
    n = way.shape[1]  # what else the layer carries, a copy of all inputs at times, is not climbed
    h = z @ last.weight[:n].T + last.bias[:n]
    slope = way * np.where(last.bends[:n] & (h < 0), last.slope, 1.0) if after else way
    height = (slope * h).sum(axis=1)
    slope = slope @ last.weight[:n]
    for stage, factor in zip(reversed(trunk.stages[:k]), reversed(back), strict=True):
        slope = (slope * factor) @ stage.weight
    return height, slope
