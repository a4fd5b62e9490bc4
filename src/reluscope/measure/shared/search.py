"""Looking for the event: populations that climb from the law to the event.

Two ladders. `walk` needs a margin that falls towards the event; `climb` needs rays of the law that meet it at all.

- `walk` (subset simulation): `margin(v) <= 0` is the event. From draws of the law, the fifth with the smallest margins
  sets the next level; they are copied and moved by a random walk that keeps the law restricted to that level
  (`z' = sqrt(1 - s^2) z + s n` in normal coordinates, refused where the margin is above the level), until it is 0.
  Plateaus, where the network is constant and the margin positive, are left out.
- `climb`: directions of the law with weights `fraction(direction)^q`, q growing from 0 to 1 so that a third of the
  population still counts; in between resampling and the same random walk, accepted by the ratio of the weights.

The survivors are nearly draws of the law given the event, and the product of the shares is a rough estimate of its
probability. Neither is part of an answer: they only say where to draw rays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure.shared.costs import moved_seconds
from reluscope.measure.shared.ray_event import RayRows
from reluscope.measure.shared.ray_sampler import Sampler
from reluscope.measure.shared.rays import Rays
from reluscope.pace import charge

KEPT = 0.2
"""Share of the population that sets the next level."""

MOVES = 4
"""Steps of the walk at each level."""

_MOST_LEVELS = 400
_STUCK = 4
"""Levels without progress before the search gives up."""

_WANTED_STEPS = 0.35
"""Share of steps that the walk's length is tuned to have accepted."""

_PLATEAU = 0.01
"""Share of points with one and the same margin that makes a plateau."""

_MOST_TRIES = 48
"""Batches of rays of the law that are searched for the event before `climb` gives up."""

Stop = Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found: points of the event (none if it failed), a rough probability, evaluations spent."""

    points: FloatArray
    halfway: FloatArray
    """The population when about the square root of the probability was reached."""
    probability: float
    evaluations: int


def walk(event: RayRows, rays: Rays, population: int, rng: np.random.Generator, stop: Stop) -> Found:
    """Walk a population of points into the event."""
    Z = rng.standard_normal((population, rays.r))
    V = rays.from_normal(Z)
    excess = event.excess(V)
    scale = excess.std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(excess).max(axis=0, initial=1e-300), scale, 1.0)
    flat: list[float] = []
    margin = event.margin(V, scale)
    evaluations = population
    each = moved_seconds(event.net)
    charge(2 * population * each)
    log_probability, step = 0.0, 0.8
    best, idle = math.inf, 0
    ladder: list[tuple[float, FloatArray]] = [(0.0, V)]
    rank = int(KEPT * population)
    for number in range(_MOST_LEVELS):
        flat += flat_values(V, margin)
        margin = without(margin, flat)
        inside = float((margin <= 0.0).mean())
        hope = np.sort(margin[np.isfinite(margin)])
        if not len(hope):
            break
        level = 0.0 if inside >= KEPT else max(float(hope[min(rank, len(hope) // 2)]), 0.0)
        kept = np.flatnonzero(margin <= level)
        log_probability += math.log(len(kept) / population)
        if number == 0 and level <= 0.0:
            return Found(V[kept], V, inside, evaluations)
        idle = idle + 1 if level >= best else 0
        best = min(best, level)
        if idle >= _STUCK or stop():
            break
        picks = kept[np.arange(population) % len(kept)]
        Z, V, margin = Z[picks], V[picks], margin[picks]
        for _ in range(MOVES):
            trial = pcn(Z, step, rng)
            there = rays.from_normal(trial)
            new = without(event.margin(there, scale), flat)
            take = new <= level
            Z[take], V[take], margin[take] = trial[take], there[take], new[take]
            evaluations += population
            charge(population * each)
            step = tuned(step, float(take.mean()))
            if stop():
                break
        if level <= 0.0:
            return Found(V, _halfway(ladder, log_probability), math.exp(log_probability), evaluations)
        ladder.append((log_probability, V.copy()))
    none = np.zeros((0, rays.r))
    return Found(none, none, 0.0, evaluations)


def flat_values(V: FloatArray, margin: FloatArray) -> list[float]:
    """Margins that many different points share: the network is constant there, and no way leads to the event.

    Such a plateau may hold most of the law and lie lower than all that surrounds it.
    """
    _, first = np.unique(V[:, 0], return_index=True)
    values, counts = np.unique(margin[first], return_counts=True)
    many = (counts >= max(8.0, _PLATEAU * len(first))) & (values > 0.0) & np.isfinite(values)
    return [float(v) for v in values[many]]


def without(margin: FloatArray, flat: list[float]) -> FloatArray:
    """Margins with those on plateaus out of reach."""
    for value in flat:
        margin = np.where(np.abs(margin - value) <= 1e-9 * value, np.inf, margin)
    return margin


def climb(sampler: Sampler, population: int, rng: np.random.Generator, stop: Stop) -> Found:
    """Climb with a population of rays into the event."""
    rays = sampler.rays
    evaluations = 0
    parts: list[tuple[FloatArray, FloatArray]] = []
    for _ in range(_MOST_TRIES):
        Z = rng.standard_normal((population, rays.r))
        drawn = sampler.measure(rays.from_normal(Z))
        charge(sampler.seconds(population, drawn.segments))
        evaluations += drawn.segments
        parts.append((Z, drawn.value))
        if sum(int((value > 0).sum()) for _, value in parts) >= population // 10 or stop():
            break
    Z, value = np.concatenate([z for z, _ in parts]), np.concatenate([v for _, v in parts])
    none = np.zeros((0, rays.r))
    if not (value > 0).any():
        return Found(none, none, 0.0, evaluations)
    power, step, log_probability = 0.0, 0.5, 0.0
    ladder: list[tuple[float, FloatArray]] = [(0.0, rays.from_normal(Z))]
    while power < 1.0:
        with np.errstate(divide="ignore"):
            logs = np.log(value)
        top = float(logs.max())
        # Rays that miss the event are dropped at the first step, whatever the power.
        live = np.isfinite(logs)
        change = _next_power(logs[live] - top, 1.0 - power, 0.33)
        weight = np.zeros(len(value))
        weight[live] = np.exp(change * (logs[live] - top))
        log_probability += math.log(float(weight.mean())) + change * top
        power = 1.0 if power + change > 1.0 - 1e-9 else power + change
        spots = (np.arange(population) + rng.random()) / population * weight.sum()
        picks = np.minimum(np.searchsorted(np.cumsum(weight), spots), len(weight) - 1)
        Z, value = Z[picks], value[picks]
        for _ in range(2):
            trial = pcn(Z, step, rng)
            drawn = sampler.measure(rays.from_normal(trial))
            charge(sampler.seconds(population, drawn.segments))
            evaluations += drawn.segments
            with np.errstate(divide="ignore"):
                take = np.log(rng.random(population)) < power * (np.log(drawn.value) - np.log(value))
            Z[take], value[take] = trial[take], drawn.value[take]
            step = tuned(step, float(take.mean()))
        ladder.append((log_probability, rays.from_normal(Z)))
        if stop():
            break
    drawn = sampler.measure(rays.from_normal(Z), rng)
    evaluations += drawn.segments
    points = drawn.points[drawn.value > 0]
    return Found(points, _halfway(ladder, log_probability), math.exp(log_probability), evaluations)


def _next_power(logs: FloatArray, most: float, share: float) -> float:
    """The largest step of the power that leaves `share` of the weights counting, by bisection."""

    def counts(step: float) -> float:
        weight = np.exp(step * logs)
        return float(weight.sum() ** 2 / (weight**2).sum())

    if counts(most) >= share * len(logs):
        return most
    low, high = 0.0, most
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if counts(middle) >= share * len(logs) else (low, middle)
    return max(low, 1e-3)


def pcn(Z: FloatArray, step: float, rng: np.random.Generator) -> FloatArray:
    """A step that keeps the standard normal law (preconditioned Crank-Nicolson)."""
    return math.sqrt(1.0 - step * step) * Z + step * rng.standard_normal(Z.shape)


def tuned(step: float, accepted: float) -> float:
    """The next step's length, after so large a share was accepted."""
    return min(1.0, max(1e-4, step * math.exp(accepted - _WANTED_STEPS)))


def _halfway(ladder: list[tuple[float, FloatArray]], log_probability: float) -> FloatArray:
    return min(ladder, key=lambda rung: abs(rung[0] - 0.5 * log_probability))[1]
