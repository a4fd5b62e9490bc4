"""Moments of a law's coordinates on a rare event: P, `E[1 u]` and `E[1 u u']`, from the rays of the rare-event engine.

Along a ray u = t w, so `E[1 u] = E[w E[1 t | w]]` and `E[1 u u'] = E[w w' E[1 t^2 | w]]`; the inner means are exact,
and the rays carry the weights that make them right for the probability. With the score function of a Gaussian they
are the derivatives of the probability by its mean and covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.budget import Budget
from reluscope.measure.rare.by_populations import PopulationRun
from reluscope.measure.rare.by_rays import REPLICATES, Draws
from reluscope.measure.rare.ladder import RUNS
from reluscope.measure.rare.pieces import RAYS_UP_TO, Piece, everything, ray_sampler
from reluscope.measure.shared import RayPlan, make_plan
from reluscope.progress import meter

if TYPE_CHECKING:
    from reluscope.events import PlacedEvent
    from reluscope.inputs import Component

_SMALLEST, _USUAL = 64, 512
"""Rays of a replicate: at the least, and where they take no more than half of the time."""

_RELATIVE = 0.1
"""Half-width of P that populations aim at."""

_LARGEST = 1 << 13
_UNSEEN_RAYS = 1 << 14


@dataclass(frozen=True, eq=False)
class RareMoments:
    """One component: `rows[g]` holds replicate g's estimates of P, `E[1 u]` and `E[1 u u']` less P times the
    component's own moments, as one vector of 1 + r + r^2 numbers (jackknife pseudo-values where it is a ratio).

    `met` False: no ray has met the event, and P is at most `most` at the level asked for. `lost` is beyond all rays.
    `unmet` (1 + r + r^2 numbers) is an allowance for kinds of rays not yet seen: their probability is at most
    `log(2 / (1 - level)) / rays`, their contribution that of the largest met.
    """

    rows: FloatArray
    rays: int
    met: bool
    most: float
    lost: float
    unmet: FloatArray


def rare_moments(
    event: PlacedEvent,
    component: Component,
    seconds: float,
    level: float,
    rng: np.random.Generator,
    starts: FloatArray | None = None,
) -> RareMoments:
    """Moments on the event for one Gaussian or truncated component (r > 0), from 16 replicates, in about `seconds`."""
    piece = Piece(component, event, starts)
    if component.r > RAYS_UP_TO:
        return _by_populations(component, piece, seconds, level, rng)
    piece.warm_up()
    limit = Budget(seconds)

    def searched() -> bool:
        return limit.elapsed() >= 0.5 * seconds

    plan = make_plan(1.0, piece.sampler, rng.spawn(1)[0], searched, piece.starts)
    other: RayPlan | None = None
    if component.rows is not None:
        whole = ray_sampler(everything(piece.event).within(*component.rows), piece.rays)
        other = make_plan(1.0, whole, rng.spawn(1)[0], searched)
    r = component.r
    left = max(0.8 * (seconds - limit.elapsed()), 0.0)
    if not plan.found:
        n = int(min(_UNSEEN_RAYS, max(_SMALLEST * REPLICATES, left / max(plan.cost, 1e-9))))
        drawn = plan.sampler.independent(plan.proposal.with_nominal(1.0), n, rng)
        most = intervals.betting(drawn.value, 1.0, level)[1]
        if other is not None:
            most = min(most / max(0.5 * other.mean, 1e-300), 1.0)
        none = np.zeros((REPLICATES, 1 + r + r * r))
        return RareMoments(none, n, False, most, 0.0, none[0])
    cost = plan.cost + (0.0 if other is None else other.cost)
    each = REPLICATES * max(cost, 1e-9)
    size = int(min(max(0.5 * left / each, min(_USUAL, 0.5 * seconds / each), _SMALLEST), _LARGEST))
    draws = [Draws(p, size, REPLICATES, rng) for p in (plan, other) if p is not None]
    both = [[_mean(d, g) for g in range(REPLICATES)] for d in draws]
    means = [np.array([mean for mean, _ in groups]) for groups in both]
    largest = np.max([most for _, most in both[0]], axis=0)
    bottom = np.tile(own_moments(component), (REPLICATES, 1)) if other is None else means[1]
    n = size * REPLICATES
    unmet = intervals.unseen(n, level) * largest / float(bottom[:, 0].mean())
    return RareMoments(_pseudo_values(means[0], bottom), n, True, 1.0, plan.lost, unmet)


def _by_populations(
    component: Component, piece: Piece, seconds: float, level: float, rng: np.random.Generator
) -> RareMoments:
    """The same in many dimensions: one row for every population."""
    piece.weight = 1.0
    with meter(None, "rare event") as report:
        run = PopulationRun([piece], 0.0, _RELATIVE, level, Budget(seconds), rng, report, moments=True)
        found = run.search() and not run.parts[0].settled
        answer = run.replicate() if found else None
    r = component.r
    part, whole = run.parts[0], run.divisors[0]
    if answer is None or (whole is not None and whole.bridge is None):
        n = max(RUNS * run.size, 1)
        none = np.zeros((RUNS, 1 + r + r * r))
        return RareMoments(none, n, False, min(intervals.unseen(n, level), 1.0), 0.0, none[0])
    bottom = np.tile(own_moments(component), (RUNS, 1)) if whole is None else whole.moments()
    rows = _pseudo_values(piece.factor * part.moments(), bottom)
    unmet = answer.upper - answer.value
    first, square, product = largest_moments(unmet)
    squares = np.full((r, r), product) + np.diag(np.full(r, square - product))
    allowed = np.concatenate([[unmet], np.full(r, first), squares.ravel()])
    return RareMoments(rows, run.evaluations, True, 1.0, 0.0, allowed)


def _mean(draws: Draws, group: int) -> tuple[FloatArray, FloatArray]:
    """P, `E[1 u]`, `E[1 u u']` of one replicate, and bounds on the largest contributions of a ray to each."""
    found = draws.replicate(group, moments=True)
    W, n = found.directions, len(found.value)
    second = (found.second[:, None] * W).T @ W / n
    mean = np.concatenate([[found.value.mean()], found.first @ W / n, second.ravel()])
    one = np.abs(found.first[:, None] * W).max(axis=0)
    two = np.sqrt(np.abs(found.second)[:, None]) * np.abs(W)
    most = two.max(axis=0)
    return mean, np.concatenate([[found.value.max()], one, np.outer(most, most).ravel()])


def own_moments(component: Component) -> FloatArray:
    """The component's own P = 1, `E u` and `E u u'`."""
    from reluscope.inputs import restricted_moments

    r = component.r
    mean, square = np.zeros(r), np.eye(r)
    if component.lower is not None and component.upper is not None:
        mean, variance = restricted_moments(component.lower, component.upper)
        square = np.outer(mean, mean) + np.diag(variance)
    return np.concatenate([[1.0], mean, square.ravel()])


def _centred(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """P given the restriction, and the moments less P times those of the restriction."""
    top, own = top / bottom[0], bottom / bottom[0]
    out = top - top[0] * own
    out[0] = top[0]
    return out


def _pseudo_values(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Numbers whose mean and spread are those of `_centred` at the means (jackknife); plain where it is linear."""
    n = len(top)
    whole = _centred(top.mean(axis=0), bottom.mean(axis=0))
    others = (top.sum(axis=0) - top) / (n - 1), (bottom.sum(axis=0) - bottom) / (n - 1)
    return np.array([n * whole - (n - 1) * _centred(a, b) for a, b in zip(*others, strict=True)])


def largest_moments(p: float) -> tuple[float, float, float]:
    """How large `|E[1 u_i]|`, `|E[1 (u_i^2 - 1)]|` and `|E[1 u_i u_j]|` can be on an event of probability at most p.

    For u ~ N(0, I): the extremes are half-spaces and both tails of one coordinate; `u_i u_j` is half a difference of
    squares of such coordinates.
    """
    ndtri = late("scipy.special", "ndtri")

    p = min(p, 0.5)
    if p <= 0.0:
        return 0.0, 0.0, 0.0
    one = -float(ndtri(p))
    two = -float(ndtri(0.5 * p))
    first = math.exp(-0.5 * one * one) / math.sqrt(2 * math.pi)
    square = 2 * two * math.exp(-0.5 * two * two) / math.sqrt(2 * math.pi)
    return first, max(square, p), 0.5 * (square + p)
