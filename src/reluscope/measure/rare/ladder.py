"""Populations that climb from the law into a rare event, in any number of dimensions (subset simulation).

The law is brought to standard normal coordinates z, `margin(z) <= 0` is the event. Several independent *runs* have a
population each. The fifth with the smallest margins sets the next level of its run; they are copied, and moved by
steps `z' = sqrt(1 - s^2) z + s n`, n standard normal, which keep the law (preconditioned Crank-Nicolson) and are
refused where the margin is above the level. How well such a step does hardly depends on the number of dimensions. At
level 0 the points of a run are nearly draws of the law given the event, and the product of the shares that were kept
estimates its probability.

Plateaus, where the network is constant and the margin positive, are left out of all further levels: they can hold most
of the law and lead nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure.shared import RayRows, Rays, flat_values, moved_seconds, pcn, tuned, without
from reluscope.pace import charge

RUNS = 18
"""Independent runs."""

KEPT = 0.2
"""Share of a population that sets the next level."""

MOVES = 4
"""Steps at each level."""

_MOST_LEVELS = 400
_STUCK = 6
"""Levels without progress before a run gives up."""

_SETTLING = 60
"""Steps of populations that start at known points."""

Stop = Callable[[], bool]


class Target:
    """The event in standard normal coordinates, and the evaluations spent on it."""

    def __init__(self, event: RayRows, rays: Rays) -> None:
        self.event, self.rays = event, rays
        self.r = rays.r
        self.evaluations = 0
        self._scale = np.ones(len(event.bound))
        self._flat: list[float] = []
        self._each = moved_seconds(event.net)

    def start(self, Z: FloatArray) -> FloatArray:
        """Margins of draws of the law, which also set the scale of each row."""
        excess = self.event.excess(self.rays.from_normal(Z))
        spread = excess.std(axis=0)
        self._scale = np.where(spread > 1e-12 * np.abs(excess).max(axis=0, initial=1e-300), spread, 1.0)
        return self.margin(Z)

    def margin(self, Z: FloatArray) -> FloatArray:
        """How far outside the event each point is; at most 0 inside."""
        self.evaluations += len(Z)
        charge(len(Z) * self._each)
        return without(self.event.margin(self.rays.from_normal(Z), self._scale), self._flat)

    def gradient(self, Z: FloatArray) -> FloatArray:
        """The direction in which the margin grows at each point."""
        self.evaluations += 2 * len(Z)
        charge(2 * len(Z) * self._each)
        V = self.rays.from_normal(Z)
        slopes = self.event.gradient(V, self._scale)
        if self.rays.lower is None:
            return slopes
        small = 1e-5
        return slopes * (self.rays.from_normal(Z + small) - self.rays.from_normal(Z - small)) / (2.0 * small)

    def drop_plateaus(self, Z: FloatArray, margin: FloatArray) -> FloatArray:
        """Margins with new plateaus left out."""
        self._flat += flat_values(Z, margin)
        return without(margin, self._flat)


@dataclass(eq=False)
class Climbed:
    """Where the runs have come to: points (runs, size, r), and whether each run is in the event.

    `log_probability` are the logarithms of the probabilities of the runs' last levels: of the event, where `inside`.
    """

    points: FloatArray
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
    log_probability: FloatArray
    step: float
    ancestors: int = 1
    """Draws of the law, over all runs in the event, that points there descend from."""


def climb(target: Target, size: int, rng: np.random.Generator, stop: Stop, runs: int = RUNS) -> Climbed:
    """Let `runs` populations of `size` points climb into the event."""
    Z = rng.standard_normal((runs * size, target.r))
    margin = target.start(Z).reshape(runs, size)
    Z = Z.reshape(runs, size, target.r)
    inside, live = np.zeros(runs, bool), np.ones(runs, bool)
    log_probability, step = np.zeros(runs), 0.8
    ancestor = np.tile(np.arange(size), (runs, 1))
    best, idle = np.full(runs, math.inf), np.zeros(runs, np.int64)
    for _ in range(_MOST_LEVELS):
        at = np.flatnonzero(live)
        if not len(at) or stop():
            break
        margin[at] = target.drop_plateaus(Z[at].reshape(-1, target.r), margin[at].ravel()).reshape(len(at), size)
        levels = np.zeros(runs)
        for i in at:
            levels[i], chosen = _level(margin[i])
            idle[i] = idle[i] + 1 if levels[i] >= best[i] else 0
            best[i] = min(best[i], levels[i])
            if not len(chosen) or idle[i] >= _STUCK:
                live[i] = False
                continue
            log_probability[i] += math.log(len(chosen) / size)
            # Shuffled, so that copies do not stand in the order of their parents.
            picks = rng.permutation(chosen[np.arange(size) % len(chosen)])
            Z[i], margin[i], ancestor[i] = Z[i][picks], margin[i][picks], ancestor[i][picks]
        at = np.flatnonzero(live)
        for _ in range(MOVES):
            step = walk_within(target, Z, margin, levels, at, step, rng)
            if stop():
                break
        done = at[levels[at] <= 0.0]
        inside[done], live[done] = True, False
    ancestors = sum(len(np.unique(ancestor[i])) for i in np.flatnonzero(inside))
    return Climbed(Z, inside, log_probability, step, max(ancestors, 1))


def settle(target: Target, points: FloatArray, size: int, rng: np.random.Generator, stop: Stop) -> Climbed:
    """Populations that start at known points (m, r) of the event, in standard normal coordinates, and spread in it."""
    picks = np.arange(RUNS * size) % len(points)
    Z = points[rng.permutation(picks)].reshape(RUNS, size, target.r).copy()
    target.start(rng.standard_normal((RUNS * size, target.r)))
    margin, levels, step = np.zeros((RUNS, size)), np.zeros(RUNS), 0.1
    for _ in range(_SETTLING):
        step = walk_within(target, Z, margin, levels, np.arange(RUNS), step, rng)
        if stop():
            break
    return Climbed(Z, np.ones(RUNS, bool), np.full(RUNS, math.nan), step)


def _level(margin: FloatArray) -> tuple[float, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """The next level of a run, and who is at or below it."""
    hope = np.sort(margin[np.isfinite(margin)])
    if not len(hope):
        return math.inf, np.zeros(0, np.intp)
    rank = int(KEPT * len(margin))
    level = 0.0 if (margin <= 0.0).mean() >= KEPT else max(float(hope[min(rank, len(hope) // 2)]), 0.0)
    return level, np.flatnonzero(margin <= level)


def walk_within(
    target: Target,
    Z: FloatArray,
    margin: FloatArray,
    levels: FloatArray,
    at: np.ndarray[tuple[int], np.dtype[np.intp]],
    step: float,
    rng: np.random.Generator,
) -> float:
    """One step for the points of the runs `at`, in place, each below its level; returns the next step's length."""
    if not len(at):
        return step
    trial = pcn(Z[at], step, rng)
    new = target.margin(trial.reshape(-1, target.r)).reshape(trial.shape[:2])
    take = new <= levels[at, None]
    Z[at] = np.where(take[..., None], trial, Z[at])
    margin[at] = np.where(take, new, margin[at])
    return tuned(step, float(take.mean()))
