"""From a search to a proposal: fitting directions, and adapting them by rounds of rays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure.shared.mixture import Directions, fit, join, modes_of, refit
from reluscope.measure.shared.ray_sampler import Drawn, Proposal, Sampler
from reluscope.measure.shared.search import KEPT, Found, Stop, climb, walk
from reluscope.pace import now

POPULATION = 1000
"""Points of the search; a hundred per dimension if that is more, up to 4000."""

ROUNDS = 2
"""Rounds of adaptation at least, twice as many at most."""

ROUND_RAYS = 512
NOMINAL = 0.1
"""Share of rays in the law's own directions."""

HALFWAY = 0.4
"""Share, of the rest, of directions fitted half-way up the ladder: wide, they cover what the final fit has missed."""

ATTEMPTS = 3
"""Searches, each with four times the population, until the rays of one agree with it and with one another."""

MOST_COMPONENTS = 16
_GOOD_SPREAD = 3.0
"""Variance of a contribution, relative to the squared mean, at which adaptation stops."""

_MANY_DIMENSIONS = 16
"""Above so many dimensions covariances are known too poorly for more than two components."""

_POOR_SPREAD = 6.0
"""Variance, relative to the squared mean, from which a plan is doubted in five dimensions; it grows with them."""

_DISAGREE = 2.5
"""Ratio between the rays' estimate and the search's from which a plan is doubted."""

_OUTLIER = 6.0
"""Contributions this many times the mean become components of their own."""

_MOST_OUTLIERS = 4

_WIDTHS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5)
"""How far around known points rays are drawn, as shares of their distance."""


@dataclass(frozen=True, eq=False)
class RayPlan:
    """Where to draw rays for one component of a law, and what the last round has shown."""

    weight: float
    sampler: Sampler
    proposal: Proposal
    modes: int
    mean: float
    """Estimate of the probability, from the last round."""
    sd: float
    """Standard deviation of a single contribution."""
    evaluations: int
    cost: float = 0.0
    """Seconds of a ray."""
    lost: float = 0.0
    """Probability beyond the end of the rays."""
    known: bool = False
    """Whether the search itself had no success: the rays go around given points of the event."""

    def doubt(self, searched: float) -> float:
        """How much the search is to be doubted: above 1 if it disagrees with the rays or these with one another."""
        if self.mean <= 0.0:
            return math.inf
        spread = (self.sd / self.mean) ** 2
        poor = _POOR_SPREAD * max(1.0, 0.2 * self.sampler.rays.r)
        return max(abs(math.log(self.mean / searched)) / math.log(_DISAGREE), spread / poor)

    @property
    def found(self) -> bool:
        """Whether the event was met at all."""
        return self.mean > 0.0


def make_plan(
    weight: float, sampler: Sampler, rng: np.random.Generator, stop: Stop, starts: FloatArray | None = None
) -> RayPlan:
    """Search for the event and adapt a proposal to it. `starts` (m, r) are points known to lie in the event."""
    rays = sampler.rays
    population = min(max(POPULATION, 100 * rays.r), 4000)
    evaluations = 0
    plan: RayPlan | None = None
    known: list[FloatArray] = []
    for attempt in range(ATTEMPTS):
        search = walk(sampler.event, rays, population * 4**attempt, rng, stop)
        evaluations += search.evaluations
        if not len(search.points) and (attempt == 1 or stop()):
            search = climb(sampler, ROUND_RAYS, rng, stop)
            evaluations += search.evaluations
        if search.probability >= KEPT:
            return _plain(weight, sampler, evaluations, rng)
        if not len(search.points):
            continue
        known.append(search.points)
        plan = _adapt(weight, sampler, search, known, rng, stop)
        evaluations += plan.evaluations
        if stop() or plan.doubt(search.probability) < 1.0:
            break
    if plan is None or not plan.found:
        inside = [*known, *([starts] if starts is not None and len(starts) else [])]
        if inside:
            plan = _planted(weight, sampler, np.concatenate(inside), rng, stop)
            evaluations += plan.evaluations
    if plan is None:
        return _plain(weight, sampler, evaluations, rng)
    return replace(plan, evaluations=evaluations)


def _planted(weight: float, sampler: Sampler, points: FloatArray, rng: np.random.Generator, stop: Stop) -> RayPlan:
    """A plan about known points of the event: rays around them, ever closer until a quarter of them meets it."""
    near = points[np.argsort(np.einsum("ij,ij->i", points, points), kind="stable")[:MOST_COMPONENTS]]
    unit, size = np.eye(near.shape[1]), np.linalg.norm(near, axis=1)
    evaluations = 0
    for width in _WIDTHS:
        factor = width * np.maximum(size, 1e-3)[:, None, None] * unit
        proposal = Proposal(NOMINAL, Directions(np.full(len(near), 1.0 / len(near)), near, factor))
        begin = now()
        drawn = sampler.independent(proposal, ROUND_RAYS, rng, points=True)
        cost = (now() - begin) / ROUND_RAYS
        evaluations += drawn.segments
        live = drawn.value > 0.0
        if live.mean() >= 0.25 or stop():
            break
    mean, sd = float(drawn.value.mean()), standard_deviation(drawn.value)
    here = RayPlan(weight, sampler, proposal, len(near), mean, sd, evaluations, cost, known=True)
    if not live.any():
        return here
    found = Found(drawn.points[live], drawn.points[live], mean, 0)
    better = _adapt(weight, sampler, found, [found.points], rng, stop)
    return replace(better if better.found else here, evaluations=evaluations + better.evaluations, known=True)


def _adapt(
    weight: float, sampler: Sampler, search: Found, known: list[FloatArray], rng: np.random.Generator, stop: Stop
) -> RayPlan:
    """Fit directions to what the searches have found (all of them alike) and adapt them by rounds of rays."""
    sampler, lost = sampler.shortened(search.probability)
    halfway = fit(search.halfway, np.ones(len(search.halfway)), 2, rng)
    most = MOST_COMPONENTS if sampler.rays.r <= _MANY_DIMENSIONS else 2
    points = [np.concatenate(known)]
    weights = [np.concatenate([np.full(len(part), 1.0 / len(part)) for part in known])]
    fitted = fit(points[0], weights[0], most, rng)
    evaluations, size = 0, ROUND_RAYS
    for number in range(2 * ROUNDS):
        proposal = Proposal(2 * NOMINAL, join([(1.0 - HALFWAY, fitted), (HALFWAY, halfway)]))
        begin = now()
        drawn = sampler.independent(proposal, size, rng, points=True)
        cost = (now() - begin) / size
        evaluations += drawn.segments
        spread, count = _spread(drawn.value)
        fitted = _adapted(fitted, drawn, points, weights, count)
        if stop() or (number + 1 >= ROUNDS and spread <= _GOOD_SPREAD):
            break
        size = 2 * size if number + 1 >= ROUNDS else size
    proposal = Proposal(NOMINAL, join([(1.0 - HALFWAY, fitted), (HALFWAY, halfway)]))
    mean, sd = float(drawn.value.mean()), standard_deviation(drawn.value)
    return RayPlan(weight, sampler, proposal, modes_of(fitted), mean, sd, evaluations, cost, lost)


def _plain(weight: float, sampler: Sampler, evaluations: int, rng: np.random.Generator) -> RayPlan:
    """Rays in the law's own directions: the event is not rare, or was not found."""
    proposal = Proposal(1.0, None)
    begin = now()
    drawn = sampler.independent(proposal, ROUND_RAYS, rng)
    cost = (now() - begin) / ROUND_RAYS
    mean, sd = float(drawn.value.mean()), standard_deviation(drawn.value)
    return RayPlan(weight, sampler, proposal, int(mean > 0), mean, sd, evaluations + drawn.segments, cost)


def _adapted(
    fitted: Directions, drawn: Drawn, points: list[FloatArray], weights: list[FloatArray], count: float
) -> Directions:
    """The mixture moved to all that has been seen; contributions that stick out become components first."""
    live = drawn.value > 0.0
    if not live.any():
        return fitted
    value = drawn.value[live]
    points.append(drawn.points[live])
    weights.append(count * value / value.sum())
    known = sum(float(w.sum()) for w in weights[1:])
    shares = [0.3 * known * weights[0] / weights[0].sum(), *weights[1:]]
    extra = _outliers(drawn, fitted) if points[0].shape[1] <= _MANY_DIMENSIONS else None
    if extra is not None:
        fitted = join([(1.0, fitted), extra])
    return refit(np.concatenate(points), np.concatenate(shares), fitted)


def _outliers(drawn: Drawn, fitted: Directions) -> tuple[float, Directions] | None:
    value, points = drawn.value, drawn.points
    factor = fitted.factor[int(np.argmax(fitted.share))]
    inverse = np.linalg.inv(factor)
    chosen: list[int] = []
    for i in np.argsort(-value):
        if value[i] < _OUTLIER * value.mean() or len(chosen) == _MOST_OUTLIERS:
            break
        away = (points[i] - points[chosen]) @ inverse.T
        if not chosen or (np.einsum("ij,ij->i", away, away).min() > 0.5 * len(factor)):
            chosen.append(int(i))
    if not chosen:
        return None
    share = value[chosen] / value.sum()
    total = float(share.sum())
    return total, Directions(share / total, points[chosen], np.repeat(0.7 * factor[None], len(chosen), axis=0))


def standard_deviation(value: FloatArray, ddof: int = 0) -> float:
    """That of numbers whose squares may be too small for floats."""
    top = float(np.abs(value).max(initial=0.0))
    return top * float((value / top).std(ddof=ddof)) if top > 0.0 else 0.0


def _spread(value: FloatArray) -> tuple[float, float]:
    """Relative variance, and how many contributions count."""
    total = float(value.sum())
    if total <= 0.0:
        return math.inf, 0.0
    count = 1.0 / float(((value / total) ** 2).sum())
    return len(value) / count - 1.0, count
