"""Rare events by populations that climb into them: the engine for many dimensions.

1. *Climb.* Eighteen independent populations walk from the law into the event (`ladder.py`).
2. *Fit.* Where they end, the law given the event differs from the law in a few directions only; a mixture is fitted
   there (`few.py`), in each third of the runs for another third.
3. *Bridge.* Draws of that mixture and the points of the runs give the probability (`bridge.py`), once for each run.

The spread over the runs is the spread of the whole method, the climb included. The climb has an estimate of its own,
the product of the shares that it kept. When runs get lost on the way, or the two estimates disagree, the populations
are made four times as large, and at last the interval is the hull of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.answer import Answer, Status
from reluscope.budget import Budget
from reluscope.measure.rare.bridge import Bridge, Estimate
from reluscope.measure.rare.ladder import RUNS, Climbed, Target, climb, settle
from reluscope.measure.rare.pieces import Piece
from reluscope.progress import Report

SMALLEST, USUAL = 48, 112
"""Points of a run: at the least, and where the budget allows, at these usual wishes:"""

_RELATIVE, _LEVEL = 0.1, 0.95

_MOST_NUMBERS = 1 << 23
"""Numbers in the points of all runs."""

_STEPS = 60
"""Evaluations of each point of a run until it is in the event, roughly, at 1e-8."""

ATTEMPTS = 3
"""Climbs, each with four times the points of the last, until the runs agree."""

_SEARCH = 0.5
"""Share of the budget after which the search ends."""

_FEW_ROUNDS = 4
_MOST_ROUNDS = 4096

_DISAGREE = math.log(2.0)
"""Logarithm of the ratio between climb and bridge from which they are compared with their spread."""

_FAR = 4.0
"""Standard errors between climb and bridge from which they disagree."""

_SMALL_OVERLAP = 0.01
"""A bridge between samples that hardly overlap is not believed."""

_MOST_POINTS = 1 << 20
_AT_ONCE = 1 << 12


@dataclass(eq=False)
class _Part:
    """One component: its share of the answer, what has been found, and what is to be doubted about it."""

    weight: float
    target: Target
    climbed: Climbed
    bridge: Bridge | None = None
    doubt: str = ""
    estimate: Estimate | None = None
    settled: bool = False
    """Whether the populations started at known points: their spread then says nothing of what they have not seen."""

    @property
    def rows(self) -> FloatArray:
        """Estimates of the component's probability, one a run."""
        return np.zeros(RUNS) if self.estimate is None else self.estimate.rows

    @property
    def products(self) -> FloatArray:
        """The climb's own estimates: 0 for runs that got lost."""
        return np.where(self.climbed.inside, np.exp(self.climbed.log_probability), 0.0)

    def beyond(self, level: float) -> float:
        """A bound from the last levels of runs that did not reach the event, which is inside all of them."""
        lost = ~self.climbed.inside
        return around(np.exp(self.climbed.log_probability[lost]), level)[1] if lost.sum() > 1 else 1.0

    def moments(self) -> FloatArray:
        """Estimates of P, `E[1 u]` and `E[1 u u']`, one row of 1 + r + r^2 numbers a run."""
        assert self.bridge is not None
        first, second = self.bridge.sums[0]
        n = self.bridge.draws
        each = np.concatenate([np.ones((RUNS, 1)), first / n, second.reshape(RUNS, -1) / n], axis=1)
        return self.rows[:, None] * each


@dataclass(eq=False)
class PopulationRun:
    """The climb for all components, then the sampling with one kind of interval."""

    pieces: list[Piece]
    fixed: float
    relative: float
    level: float
    limit: Budget
    rng: np.random.Generator
    report: Report
    parts: list[_Part] = field(default_factory=list)
    divisors: list[_Part | None] = field(default_factory=list)
    size: int = 0
    moments: bool = False

    def search(self) -> bool:
        """Climb, for every component; whether the event was found."""
        for i, piece in enumerate(self.pieces):
            left = len(self.pieces) - i
            self.parts.append(self._found(Target(piece.event, piece.rays), piece.weight * piece.factor, left, piece))
            whole = None if piece.given is None else self._found(Target(piece.given, piece.rays), 1.0, left)
            self.divisors.append(whole)
            self.report(self.evaluations, f"climbing, near {self._value():.3g}")
        return any(part.bridge is not None for part in self.parts)

    def _found(self, target: Target, weight: float, left: int, piece: Piece | None = None) -> _Part:
        ends = self.limit.elapsed() + (_SEARCH * self.limit.seconds - self.limit.elapsed()) / left

        def stop() -> bool:
            return self.limit.elapsed() >= ends

        size = self._first_size(target)
        for attempt in range(ATTEMPTS):
            begin = self.limit.elapsed()
            self.size = max(self.size, size)
            part = _Part(weight, target, climb(target, size, self.rng, stop))
            if not part.climbed.inside.any() and piece is not None and piece.starts is not None and len(piece.starts):
                known = _normal_coordinates(piece)
                if len(known):
                    part = _Part(weight, target, settle(target, known, size, self.rng, stop), settled=True)
            if part.climbed.inside.any():
                self._bridged(part)
            took = self.limit.elapsed() - begin
            enough = stop() or self.limit.elapsed() + 4.0 * took > ends or 4 * RUNS * size * target.r > _MOST_NUMBERS
            if not part.doubt or attempt + 1 == ATTEMPTS or enough:
                break
            size *= 4
        return part

    def _first_size(self, target: Target) -> int:
        """Points of a run, from the budget and the size of the network (never from the clock)."""
        cost = 1e-10 * target.event.net.n_parameters + 3e-8 * target.r
        afforded = 0.35 * self.limit.seconds / (len(self.pieces) * RUNS * _STEPS * cost)
        # More ancestors where more digits or a higher level are asked for.
        usual = USUAL * min(max(_RELATIVE / self.relative, 1.0), 8.0)
        usual *= max(math.log(2.0 / (1.0 - self.level)) / math.log(2.0 / (1.0 - _LEVEL)), 1.0)
        return int(min(max(min(usual, afforded), SMALLEST), max(_MOST_NUMBERS // (RUNS * target.r), 8)))

    def _bridged(self, part: _Part) -> None:
        """Make the bridge, and note what is to be doubted."""
        climbed = part.climbed
        found = np.flatnonzero(climbed.inside)
        for i in np.flatnonzero(~climbed.inside):  # lost runs go on from where another one is
            climbed.points[i] = climbed.points[self.rng.choice(found)]
        first = float(part.products.mean())
        guess = math.log(first) if first > 0.0 else -20.0
        part.bridge = Bridge(part.target, climbed, self.rng, guess, moments=self.moments)
        part.bridge.prepare(lambda: self.limit.elapsed() >= 0.75 * self.limit.seconds)
        for _ in range(_FEW_ROUNDS):
            part.bridge.round()
        self._judge(part)

    def _judge(self, part: _Part) -> None:
        assert part.bridge is not None
        part.estimate = part.bridge.estimate()
        inside = int(part.climbed.inside.sum())
        products = part.products
        value = part.estimate.value
        part.doubt = ""
        if inside < RUNS:
            part.doubt = f"only {inside} of {RUNS} populations reached the event"
        elif part.estimate.overlap < _SMALL_OVERLAP:
            part.doubt = "draws and populations hardly overlap"
        elif np.isfinite(products).all():
            away = abs(math.log(max(products.mean(), 1e-320) / max(value, 1e-320)))
            if away > max(_DISAGREE, _FAR * float(products.std() / products.mean()) / math.sqrt(RUNS)):
                part.doubt = f"the climb says {products.mean():.2g}, the draws say {value:.2g}"

    # -- replicates --

    def replicate(self) -> Answer:
        """Student's t over the runs; where none has climbed into the event, what holds all the same."""
        if any(part.settled for part in self.parts):
            if all(whole is None for whole in self.divisors):
                return self.finite_sample()
            note = "the populations did not find the event, only known inputs of it"
            return self._answer(self._value(), 0.0, 1.0, "replicate", note, Status.NOTHING_MET)
        status, note = Status.DONE, ""
        while True:
            rows, lower, upper = self._interval()
            value = float(rows.mean())
            unmet = self._unmet()
            half = max(upper - value, value - lower) + unmet
            self.report(self.evaluations, f"{value:.4g} ± {half:.2g}")
            open_ = [p for p in self.parts if p.bridge is not None and p.bridge.rounds < _MOST_ROUNDS]
            if half <= max(self.relative * value, 1.4 * unmet):
                break
            note = self.limit.spent() or ""
            most = max(open_, key=lambda p: p.weight * float(p.rows.std()), default=None)
            if note or most is None or self._doubts():
                status = Status.BUDGET if note else Status.TOLERANCE
                break
            assert most.bridge is not None
            grow = min((half / (0.8 * self.relative * max(value, 1e-307))) ** 2 - 1.0, 1.0)
            for _ in range(max(1, int(grow * most.bridge.rounds))):
                most.bridge.round()
                if self.limit.spent():
                    break
            self._judge(most)
        upper += unmet
        if status is Status.DONE and half > self.relative * value:
            status = Status.TOLERANCE
        words = self._doubts()
        if note:
            words.append(f"{note} at {half / value if value > 0 else math.inf:.2g} of the value")
        return self._answer(value, lower, upper, "replicate", "; ".join(words), status)

    def _interval(self) -> tuple[FloatArray, float, float]:
        """All replicates, and the interval that also allows for what is to be doubted."""
        total = np.zeros(RUNS)
        more = 0.0
        hulls = [0.0, 0.0]
        for part, whole in zip(self.parts, self.divisors, strict=True):
            rows = part.weight * part.rows
            by = 1.0
            if whole is not None:
                by = max(float(whole.rows.mean()), 1e-300)
                # A ratio is made linear about the mean of its lower part.
                rows = rows / by - rows.mean() / by**2 * (whole.rows - by)
            total += rows
            if part.bridge is None:
                more += part.weight / by * part.beyond(self.level)
            elif part.doubt:
                mine = around(rows, self.level)
                products = np.nan_to_num(part.weight * part.products / by)
                other = around(products, self.level)
                hulls[0] += mine[0] - min(mine[0], other[0])
                hulls[1] += max(mine[1], other[1], float(products.max())) - mine[1]
        rows = self.fixed + total
        lower, upper = around(rows, self.level)
        return rows, max(lower - hulls[0], 0.0), min(upper + hulls[1] + more, 1.0)

    def _unmet(self) -> float:
        """An allowance for parts of the event that no population has met.

        A part with a share f of a component's event is missed with probability (1 - f)^n by n ancestors that went their
        ways independently.
        """
        found = [part for part in self.parts if part.bridge is not None]
        return sum(
            min(intervals.unseen(part.climbed.ancestors, self.level), 1.0)
            * part.weight
            * max(float(part.rows.mean()), 0.0)
            for part in found
        )

    def _doubts(self) -> list[str]:
        return sorted({part.doubt for part in [*self.parts, *self.divisors] if part is not None and part.doubt})

    # -- independent draws --

    def finite_sample(self) -> Answer:
        """Betting on independent draws, half of them from the law itself; their number is fixed beforehand."""
        weights = np.array([part.weight for part in self.parts])
        effort = np.array([part.weight * max(float(part.rows.mean()), 0.0) for part in self.parts])
        chance = 0.5 * weights / weights.sum() + 0.5 * (effort / effort.sum() if effort.sum() > 0 else weights)
        chance /= chance.sum()
        bound = float(np.max(2.0 * weights / chance))
        spent, done = self.limit.elapsed(), max(self.evaluations, 1)
        left = 0.9 * (self.limit.seconds - spent) * done / max(spent, 1e-9)
        wanted = 6.0 * bound / (self.relative * max(self._value(), 1e-300))
        n = int(max(2048, min(wanted, _MOST_POINTS, left)))
        values: list[FloatArray] = []
        drawn = 0
        while drawn < n and not (values and self.limit.spent()):
            counts = self.rng.multinomial(min(_AT_ONCE, n - drawn), chance)
            for part, c, count in zip(self.parts, chance, counts, strict=True):
                if count:
                    values.append(part.weight / c * _contributions(part, int(count), self.rng))
            drawn += int(counts.sum())
            self.report(self.evaluations, f"{drawn:,} of {n:,} draws")
        all_values = np.concatenate(values)
        lower, upper = intervals.betting(all_values, bound, self.level)
        value = self.fixed + float(all_values.mean())
        note, status = "", Status.DONE
        if upper - value > self.relative * value:
            note, status = "the upper bound allows for what no draw has hit", Status.TOLERANCE
        if value <= 0.0:
            note, status = "no draw hit the event: 0 is no estimate", Status.NOTHING_MET
        return self._answer(value, self.fixed + lower, self.fixed + upper, "finite-sample", note, status)

    # -- common --

    @property
    def evaluations(self) -> int:
        """Points at which the network was evaluated; a gradient counts as two."""
        return sum(part.target.evaluations for part in [*self.parts, *self.divisors] if part is not None)

    def _value(self) -> float:
        return self.fixed + sum(part.weight * float(part.rows.mean()) for part in self.parts)

    def _answer(self, value: float, lower: float, upper: float, kind: str, note: str, status: Status) -> Answer:
        modes = sum(part.bridge.modes for part in self.parts if part.bridge is not None)
        found = f", {modes} {'mode' if modes == 1 else 'modes'}" if value > 0 else ""
        how = f"{kind} interval, {RUNS} populations of up to {self.size:,} points{found}"
        note = "; ".join(filter(None, [note, how]))
        value = min(max(value, 0.0), 1.0)
        ends = min(max(lower, 0.0), value), max(min(upper, 1.0), value)
        return Answer(
            value, *ends, "confidence", self.level, f"populations ({kind})", note, self.evaluations, status=status
        )  # fmt: skip


def around(rows: FloatArray, level: float) -> tuple[float, float]:
    """Student's t over the runs, on a plain scale below, on a logarithmic one above: estimates are skewed upwards."""
    mean, half = (float(v) for v in intervals.student(rows, level))
    if not mean > 0.0:
        return 0.0, max(mean + half, 0.0)
    return max(mean - half, 0.0), mean * math.exp(min(half / mean, 700.0))


def _contributions(part: _Part, n: int, rng: np.random.Generator) -> FloatArray:
    """Independent numbers in [0, 2] whose mean is the component's probability: half of the draws are the law's own."""
    r = part.target.r
    if part.bridge is None:
        return (part.target.margin(rng.standard_normal((n, r))) <= 0.0).astype(np.float64)
    proposals = part.bridge.proposals
    k = len(proposals)
    which = rng.integers(-k, k, n)  # half of them: the law
    Z = rng.standard_normal((n, r))
    for i, q in enumerate(proposals):
        mine = np.flatnonzero(which == i)
        Z[mine] = q.draw(len(mine), rng)
    logs = np.array([-q.log_weight(Z) for q in proposals])
    weight = 1.0 / (0.5 + 0.5 / k * np.exp(np.minimum(logs, 700.0)).sum(axis=0))
    return np.where(part.target.margin(Z) <= 0.0, weight, 0.0)


def _normal_coordinates(piece: Piece) -> FloatArray:
    """The known points of the event that have finite standard normal coordinates."""
    ndtr, ndtri = late("scipy.special", "ndtr", "ndtri")

    assert piece.starts is not None
    rays, V = piece.rays, piece.starts
    if rays.lower is None or rays.upper is None:
        return V
    low, high = rays.lower, rays.upper
    share = (V - low) / (high - low) if rays.kind else (ndtr(V) - ndtr(low)) / (ndtr(high) - ndtr(low))
    with np.errstate(divide="ignore", invalid="ignore"):
        Z = ndtri(np.clip(share, 0.0, 1.0))
    Z = Z[np.isfinite(Z).all(axis=1)]
    return Z[piece.event.margin(rays.from_normal(Z), np.ones(len(piece.event.bound))) <= 0.0]
