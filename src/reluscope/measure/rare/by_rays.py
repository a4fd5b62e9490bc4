"""Rare events by importance sampling of rays that are integrated exactly: the engine for few dimensions.

In polar coordinates about the centre of the law, `p = E fraction(w)`: w is the direction of a draw of the law and
`fraction(w)` the conditional probability of the event given w, which is exact once the network has been traced along
the ray (`reluscope.measure.shared.trace`); all stretches of the ray inside the event count. Directions are drawn from a
mixture with density f instead of the law's own f0, and

    p = E_f [fraction(w) f0(w) / f(w)].

1. *Search.* A population of points walks down a ladder of easier events (`measure/shared/search.py`); if it gets
   stuck, a population of rays climbs up.
2. *Fit.* Gaussians are fitted to what was found; their projections onto the sphere have a closed density
   (`measure/shared/mixture.py`). A few rounds of rays adapt them.
3. *Sample.* A fresh set of rays, a tenth of them in the law's own directions, which bounds every contribution; a part
   from a wide fit made half-way up the ladder. Search and adaptation are never part of the answer.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope.answer import Answer, Status
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.measure.rare.pieces import Piece
from reluscope.measure.shared import Drawn, RayPlan, Sampler, SobolDraws, make_plan
from reluscope.pace import charge, counting
from reluscope.progress import Report
from reluscope.workers import jobs_at_hand, run, together

REPLICATES = 16
"""Independent repetitions of the sampling, at the least."""

_SMALLEST = 48
"""Rays of a replicate, at the least."""

_LONG = 256
"""Rays of a replicate from which the gain of scrambled points shows."""

_LARGEST = 1 << 16
"""Rays of a replicate, at the most; more are more replicates."""

_AIM = 0.7
"""The run is planned for this share of the half-width asked for, since the pilot's variance is only an estimate."""

_MOST_RAYS = 1 << 22
"""Rays of an answer, at the most, when the budget has no end."""

_FINITE_NOMINAL = 0.5
"""Share of rays in the law's own directions for the finite-sample interval, whose width is 1 over it."""

_SEARCH = 0.6
"""Share of the budget after which the search ends."""

_UNSEEN_RAYS = 1 << 14
_ROUND = 1 << 13


_MISSED = "no ray hit the event: 0 is no estimate, and the upper bound is what so many rays can miss"


@dataclass(eq=False)
class RayRun:
    """The search for all pieces, then the sampling with one kind of interval."""

    pieces: list[Piece]
    fixed: float
    relative: float
    level: float
    limit: Budget
    rng: np.random.Generator
    report: Report
    plans: list[RayPlan] = dataclasses.field(default_factory=list)
    divisors: list[RayPlan | None] = dataclasses.field(default_factory=list)
    evaluations: int = 0
    rays: int = 0
    sampling: float = 0.0
    """Seconds spent on the rays of the answer."""
    seen: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)
    """Rays of each plan (by identity) and the largest weighted contribution among them."""
    thin: float = 0.0
    """The largest mean contribution, over the replicates, of stretches that rounding may have made."""

    def search(self) -> None:
        """Make a plan for every piece."""
        for piece in self.pieces:
            mine, other = self.rng.spawn(2)
            self.plans.append(make_plan(piece.weight * piece.factor, piece.sampler, mine, self._searched, piece.starts))
            self.divisors.append(
                None if piece.divisor is None else make_plan(1.0, piece.divisor, other, self._searched)
            )
            self.evaluations += self.plans[-1].evaluations
            self.report(self.evaluations, f"searching, near {self._pilot():.3g}")

    # -- replicates --

    def replicate(self) -> Answer:
        """Student's t from independent replicates."""
        self.search()
        if not any(plan.found for plan in self.plans):
            return self._unseen()
        sizes = self._sizes()
        rows, weight, note, status = np.zeros(0), 0.0, "", Status.DONE
        while True:
            batch = self._replicates(sizes, REPLICATES)
            if len(rows) and len(batch) < len(rows):
                note = self.limit.spent() or ""
            else:
                # Batches are pooled replicate by replicate and never thrown away: those with a heavy ray, which ask
                # for more, are the high ones.
                size = float(sum(sizes))
                rows = (weight * rows + size * batch) / (weight + size) if len(rows) else batch
                weight += size
            mean, half = (float(v) for v in intervals.student(rows, self.level))
            more = half + self._unmet()  # what was not met can only add
            value = self.fixed + mean
            self.report(self.evaluations, f"{value:.4g} ± {more:.2g}")
            if more <= self.relative * value:
                break
            if note or self._stop() or self.rays >= _MOST_RAYS:
                status = Status.BUDGET if self.limit.spent() else Status.TOLERANCE
                note = self.limit.spent() or f"{_MOST_RAYS:,} rays reached"
                note += f" at {more / value if value > 0 else math.inf:.2g} of the value"
                break
            grow = (more / (_AIM * self.relative * max(value, 1e-307))) ** 2 * weight / sum(sizes) - 1.0
            grow = min(max(grow, 1.0), 8.0, self._affordable() / (REPLICATES * sum(sizes)))
            sizes = [min(_LARGEST, max(_SMALLEST, int(size * grow))) for size in sizes]
        if value <= self.fixed:  # the search met the event, but no ray did: that is no interval of width 0
            return self._unseen()
        lost = sum(plan.weight * plan.lost for plan in self.plans)
        lower = value - half - len(self.plans) * self.thin
        if value >= 1.0 - 1e-14:  # no ray has met the complement: what as many independent ones could have missed
            lower = 1.0 - intervals.unseen(self.rays, self.level)
        return self._answer(value, lower, value + more + lost, "replicate", note, status)

    def _replicates(self, sizes: list[int], count: int) -> FloatArray:
        """Fresh replicates of the sampled part; fewer when the budget ends."""
        parts = [
            (plan, None if divisor is None else Draws(divisor, size, count, self.rng), size)
            for plan, divisor, size in zip(self.plans, self.divisors, sizes, strict=True)
        ]
        draws = [(plan, Draws(plan, size, count, self.rng), divisor) for plan, divisor, size in parts]
        tops, bottoms = np.zeros((count, len(draws))), np.ones((count, len(draws)))
        done = 0
        # Replicates have points of their own: workers may take them in any order.
        for i, drawn in enumerate(run(_drawn, range(count), shared=(draws,), jobs=jobs_at_hand())):
            for k, (plan, _, other) in enumerate(draws):
                tops[i, k] = plan.weight * self._mean(drawn[k][0], plan.sampler, plan)
                if other is not None:
                    bottoms[i, k] = self._mean(drawn[k][1], other.sampler)
            done = i + 1
            if self._stop() and done >= 2:
                break
        # A ratio is made linear about the mean of its lower part: r = t/b + t/b^2 (b - b_i).
        tops, bottoms = tops[:done], bottoms[:done]
        middle = bottoms.mean(axis=0)
        values = tops / middle - tops.mean(axis=0) / middle**2 * (bottoms - middle)
        return np.asarray(values.sum(axis=1))

    def _unmet(self) -> float:
        """An allowance for kinds of rays not yet seen: so likely as to have stayed away, as large as the largest."""
        return max((intervals.unseen(n, self.level) * largest for n, largest in self.seen.values()), default=0.0)

    def _mean(self, timed: tuple[Drawn, float], sampler: Sampler, plan: RayPlan | None = None) -> float:
        drawn, seconds = timed
        if counting():
            seconds = sampler.seconds(len(drawn.value), drawn.segments)
            charge(seconds)
        else:
            seconds /= together()
        if plan is not None:
            n, largest = self.seen.get(id(plan), (0, 0.0))
            most = max(largest, plan.weight * float(drawn.value.max(initial=0.0)))
            self.seen[id(plan)] = n + len(drawn.value), most
            self.thin = max(self.thin, plan.weight * drawn.thin)
        self.evaluations += drawn.segments
        self.rays += len(drawn.value)
        self.sampling += seconds
        return float(drawn.value.mean())

    def _affordable(self) -> float:
        """Rays that fit into what is left of the budget."""
        return max(self.limit.seconds - self.limit.elapsed(), 0.0) * self.rays / max(self.sampling, 1e-9)

    def _sizes(self) -> list[int]:
        """Rays of a replicate for each piece: effort where weight times spread is, as much as `relative` asks for."""
        quantile = intervals.student_quantile(REPLICATES - 1, self.level)
        effort = np.array([plan.weight * plan.sd for plan in self.plans])
        goal = _AIM * self.relative * self._pilot() / quantile
        total = (float(effort.sum()) / max(goal, 1e-300)) ** 2
        share = effort / effort.sum() if effort.sum() > 0 else np.full(len(effort), 1.0 / len(effort))
        each = total * share / REPLICATES
        # Scrambled points do better than the independent ones of the pilot: long runs start with an eighth.
        each = np.where(each > 8 * _LONG, each / 8, np.minimum(each, _LONG))
        wanted = np.clip(each, _SMALLEST, min(_LARGEST, _MOST_RAYS / REPLICATES))
        left = max(0.8 * (self.limit.seconds - self.limit.elapsed()), 0.0)
        seconds = REPLICATES * float(wanted @ np.array([plan.cost for plan in self.plans]))
        if seconds > left:
            wanted = np.maximum(wanted * left / seconds, _SMALLEST)
        return [int(w) if plan.found else _SMALLEST for w, plan in zip(wanted, self.plans, strict=True)]

    # -- independent rays --

    def finite_sample(self) -> Answer:
        """Betting on independent rays; their number is fixed beforehand."""

        if any(piece.divisor is not None for piece in self.pieces):
            raise InputError(
                'interval="finite-sample" needs the mass of the restriction, which has no closed form for correlated '
                'inputs; use interval="replicate"'
            )
        self.search()
        plans = [dataclasses.replace(p, proposal=p.proposal.with_nominal(_FINITE_NOMINAL)) for p in self.plans]
        effort = np.array([p.weight * p.sd for p in plans])
        weights = np.array([p.weight for p in plans])
        chance = 0.5 * weights / weights.sum() + 0.5 * (effort / effort.sum() if effort.sum() > 0 else weights)
        chance /= chance.sum()
        bound = max(w / c * p.proposal.bound for w, c, p in zip(weights, chance, plans, strict=True))
        n = self._number(plans, bound)
        values: list[FloatArray] = []
        cost = max(plan.cost for plan in plans)
        size = int(min(_ROUND, max(256, 0.05 * self.limit.seconds / max(cost, 1e-9))))
        # In rounds, each an independent draw of the whole mixture: only the clock may end them earlier.
        while self.rays < n and not (values and self._stop()):
            counts = self.rng.multinomial(min(size, n - self.rays), chance)
            for plan, c, count in zip(plans, chance, counts, strict=True):
                if count:
                    drawn = plan.sampler.independent(plan.proposal, int(count), self.rng)
                    values.append(plan.weight / c * drawn.value)
                    self.thin = max(self.thin, plan.weight / c * drawn.thin)
                    self.evaluations += drawn.segments
                    self.rays += int(count)
            self.report(self.evaluations, f"{self.rays:,} of {n:,} rays")
        all_values = np.concatenate(values)
        lower, upper = intervals.betting(all_values, bound, self.level)
        value = self.fixed + float(all_values.mean())
        lost = sum(plan.weight * plan.lost for plan in plans)
        note, status = "", Status.DONE
        if upper - value > self.relative * value:
            note, status = "the upper bound allows for what no ray has hit", Status.TOLERANCE
        if value <= 0.0:
            note, status = self._not_met(), Status.NOTHING_MET
        lower = max(lower - self.thin, 0.0)
        return self._answer(value, self.fixed + lower, self.fixed + upper + lost, "finite-sample", note, status)

    def _number(self, plans: list[RayPlan], bound: float) -> int:
        """Rays that `relative` asks for, as far as the budget allows."""
        cost = max(plan.cost for plan in plans)
        pilot = max(self._pilot(), 1e-300)
        wanted = 6.0 * bound / (self.relative * pilot)
        left = 0.9 * (self.limit.seconds - self.limit.elapsed())
        return int(max(2048, min(wanted, _MOST_RAYS, left / max(cost, 1e-9))))

    # -- common --

    def _unseen(self) -> Answer:
        """Nothing was met: what as many independent rays that meet nothing can hide."""

        parts = []
        upper = self.fixed
        left = max(0.9 * (self.limit.seconds - self.limit.elapsed()), 0.0) / len(self.plans)
        for plan in self.plans:
            n = int(min(_UNSEEN_RAYS, max(_SMALLEST * REPLICATES, left / max(plan.cost, 1e-9))))
            drawn = plan.sampler.independent(plan.proposal.with_nominal(1.0), n, self.rng)
            self.evaluations += drawn.segments
            self.rays += len(drawn.value)
            level = 1.0 - (1.0 - self.level) / len(self.plans)
            upper += plan.weight * intervals.betting(drawn.value, 1.0, level)[1]
            parts.append(plan.weight * drawn.value.mean())
        value = self.fixed + float(sum(parts))
        note = "the search did not find the event; only a few rays hit it" if value > self.fixed else self._not_met()
        return self._answer(value, self.fixed, upper, "finite-sample", note, Status.NOTHING_MET)

    def _answer(self, value: float, lower: float, upper: float, kind: str, note: str, status: Status) -> Answer:
        modes = sum(plan.modes for plan in self.plans)
        found = f", {modes} {'mode' if modes == 1 else 'modes'}" if value > 0 else ""
        note = "; ".join(filter(None, [note, f"{kind} interval, {self.rays:,} rays{found}"]))
        ends = min(max(lower, 0.0), value), max(min(upper, 1.0), value)
        return Answer(
            value, *ends, "confidence", self.level, f"rays ({kind})", note, self.evaluations, status=status
        )  # fmt: skip

    def _not_met(self) -> str:
        """What a value of 0 means."""
        if any(plan.known for plan in self.plans):
            return f"{_MISSED}, though inputs of it are known"
        return _MISSED

    def _searched(self) -> bool:
        """Whether the search has had its share of the time: the rest is for rays."""
        return self.limit.elapsed() >= _SEARCH * self.limit.seconds

    def _pilot(self) -> float:
        return self.fixed + sum(plan.weight * plan.mean for plan in self.plans)

    def _stop(self) -> bool:
        return self.limit.spent() is not None


def _drawn(group: int, draws: list[tuple[RayPlan, Draws, Draws | None]]) -> list[list[tuple[Drawn, float]]]:
    """One replicate of every plan (and of what it is divided by), each with the seconds it took."""
    return [[_timed(source, group) for source in (mine, other) if source is not None] for _, mine, other in draws]


def _timed(source: Draws, group: int) -> tuple[Drawn, float]:
    begin = time.perf_counter()
    return source.replicate(group), time.perf_counter() - begin


class Draws:
    """Replicates of one plan: every component of the proposal has its own scrambled points."""

    def __init__(self, plan: RayPlan, size: int, count: int, rng: np.random.Generator) -> None:
        each = np.maximum(np.round(plan.proposal.shares() * size), 1.0).astype(np.int64)
        self.sampler, self._each = plan.sampler, each
        self._proposal = plan.proposal.with_shares(each / each.sum())
        self._which = np.repeat(np.arange(len(each)), each)
        self._sources = [SobolDraws(plan.sampler.rays.r, count, int(n), rng) for n in each]

    def replicate(self, group: int, *, moments: bool = False) -> Drawn:
        """The rays of one replicate."""
        uniforms = np.empty((len(self._which), self.sampler.rays.r))
        begin = 0
        for source, n in zip(self._sources, self._each, strict=True):
            source.fill(group, uniforms[begin : begin + n])
            begin += n
        return self.sampler.draw(self._proposal, self._which, uniforms, moments=moments)
