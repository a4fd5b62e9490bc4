"""From sums over lines to estimates with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure._line_records import (
    Atoms,
    Estimate,
    Integrals,
    Levels,
    PatternMasses,
    Request,
    level_map,
)
from reluscope.measure._line_tally import Job, Tally
from reluscope.network import Network, Pattern

_EXACT_ERROR = 1e-12


def bounded_mean(
    total: FloatArray, square: FloatArray, n: int, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and a confidence interval from sums of n independent numbers in [0, 1] and of their squares; any n >= 2.

    The better of two bounds on each side, each at a quarter of 1 - level: empirical Bernstein,
    `sqrt(2 V log(2/d) / n) + 7 log(2/d) / (3 (n - 1))` (Maurer and Pontil 2009), and Chernoff, all q with
    `n KL(mean, q) <= log(1/d)`.
    """
    mean = np.clip(total / n, 0.0, 1.0)
    variance = np.maximum(square - n * mean * mean, 0.0) / (n - 1)
    d = 0.25 * (1.0 - level)
    width = np.sqrt(2.0 * variance * np.log(2.0 / d) / n) + 7.0 * np.log(2.0 / d) / (3.0 * (n - 1))
    reach = np.log(1.0 / d) / n
    lower, upper = _chernoff(mean, reach)
    return mean, np.maximum(mean - width, lower), np.minimum(mean + width, upper)


def _chernoff(mean: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
    """The q below and above the mean with KL(mean, q) = reach, rounded outwards."""
    from scipy.special import rel_entr

    ends = []
    for side in (0.0, 1.0):
        near, far = mean.copy(), np.full_like(mean, side)
        for _ in range(60):
            middle = 0.5 * (near + far)
            inside = rel_entr(mean, middle) + rel_entr(1.0 - mean, 1.0 - middle) <= reach
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(far)
    return ends[0], ends[1]


class AnswerMaker:
    """Tallies of all components put together."""

    def __init__(
        self,
        found: list[tuple[float, Tally]],
        job: Job,
        net: Network,
        kind: str,
        level: float,
        groups: int,
        sampled: float,
    ) -> None:
        self.found, self.job, self.net, self.kind, self.level = found, job, net, kind, level
        self.groups, self.sampled = groups, sampled

    def estimate(self, name: str) -> Estimate:
        """The estimate of one quantity of every tally."""
        if self.kind != "finite-sample":
            return self.from_replicates(sum(w * self._spread(t.means()[name]) for w, t in self.found))
        sampled = [t for _, t in self.found if t.replicates_are_draws]
        fixed = sum((w * t.means()[name][0] for w, t in self.found if not t.replicates_are_draws), 0.0)
        n = int(sum(t.count.sum() for t in sampled))
        total = np.sum([t.total[name][0] for t in sampled], axis=0)
        square = np.sum([t.square[name] for t in sampled], axis=0)
        value, lower, upper = bounded_mean(total, square, n, self.level)
        return Estimate(fixed + self.sampled * value, fixed + self.sampled * lower, fixed + self.sampled * upper)

    def from_replicates(self, rows: Any) -> Estimate:
        """Mean over replicates and Student's t; with one exact row, rounding only."""
        from scipy.special import stdtrit

        value = rows.mean(axis=0)
        if self.kind == "exact" or len(rows) < 2:
            slack = _EXACT_ERROR * np.abs(value)
            return Estimate(value, value - slack, value + slack)
        n = len(rows)
        half = float(stdtrit(n - 1, 0.5 + 0.5 * self.level)) * rows.std(axis=0, ddof=1) / np.sqrt(n)
        return Estimate(value, value - half, value + half)

    def record(self, method: str, direction: str, seconds: float, note: str, request: Request) -> Integrals:
        """The public record."""
        job = self.job
        levels: dict[int, Levels] = {}
        if job.n_levels:
            cdf, sf = self._clipped("below"), self._clipped("above")
            pdf = self.estimate("density") if job.density else None
            begin = 0
            for output, c in level_map(self.net, request.levels).items():
                part = slice(begin, begin + len(c))
                levels[output] = Levels(c, _cut(cdf, part), _cut(sf, part), _cut(pdf, part) if pdf else None)
                begin += len(c)
        has = {name: name in self.found[0][1].total for name in ("events", "first", "second", "marginals")}
        return Integrals(
            levels,
            self._clipped("events") if has["events"] else None,
            self.estimate("first") if has["first"] else None,
            self.estimate("second") if has["second"] else None,
            self._clipped("marginals") if has["marginals"] else None,
            self._patterns() if job.patterns else None,
            {o: self._atoms(o) for o in range(len(job.atom_forms))},
            self.kind,
            self.level,
            method,
            direction,
            sum(t.lines for _, t in self.found),
            self.groups,
            seconds,
            note,
        )

    def _spread(self, rows: FloatArray) -> FloatArray:
        """Exact components have one row for all replicates."""
        return np.broadcast_to(rows, (self.groups, *rows.shape[1:]))

    def _clipped(self, name: str) -> Estimate:
        """Probabilities: the interval cut to [0, 1]; the value stays as it is, it is unbiased.

        Where no line has seen anything but 0 (or 1) the spread says nothing: then the bound for as many independent
        lines, `log(2 / (1 - level)) / lines`.
        """
        found = self.estimate(name)
        lower, upper = np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0)
        if self.kind in ("replicate", "block"):
            unseen = min(1.0, np.log(2.0 / (1.0 - self.level)) / max(sum(t.lines for _, t in self.found), 1))
            upper = np.where(found.value <= 0.0, unseen, upper)
            lower = np.where(found.value >= 1.0 - 1e-14, 1.0 - unseen, lower)
        return Estimate(found.value, lower, upper)

    def _patterns(self) -> PatternMasses:
        keys: dict[bytes, int] = {}
        kept: list[Pattern] = []
        rows: list[FloatArray] = []
        squares: list[float] = []
        rest = 0.0
        sampled = self.sampled
        n = sum(t.count.sum() for _, t in self.found if t.replicates_are_draws)
        for w, tally in self.found:
            table = tally.patterns
            assert table is not None
            count = np.maximum(tally.count, 1.0)
            # Draws of a mixture count by number, not by weight: their weights are in how many there are.
            factor = w if self.kind != "finite-sample" or not tally.replicates_are_draws else sampled * count[0] / n
            rest += factor * float((table.rest / count).mean())
            for i in range(table.used):
                key = table.known[i].tobytes()
                k = keys.setdefault(key, len(kept))
                if k == len(kept):
                    kept.append(table.known[i])
                    rows.append(np.zeros(self.groups))
                    squares.append(0.0)
                rows[k] = rows[k] + factor * np.broadcast_to(table.total[i] / count, (self.groups,))
                squares[k] += table.square[i] + table.line_mass[i] ** 2
        masses = np.array(rows).reshape(len(kept), self.groups).T
        if self.kind == "finite-sample":
            mean, lower, upper = bounded_mean(masses[0] / sampled * n, np.array(squares), int(n), self.level)
            found = Estimate(sampled * mean, sampled * lower, sampled * upper)
        else:
            found = self.from_replicates(masses)
        order = np.argsort(-found.value, kind="stable")
        clipped = Estimate(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0))
        known = np.array(kept, np.uint8).reshape(len(kept), self.net.n_units)
        return PatternMasses(known[order], _cut(clipped, order), rest)

    def _atoms(self, which: int) -> Atoms:
        values: list[float] = []
        rows: list[FloatArray] = []
        for w, tally in self.found:
            for value, mass in zip(*_transposed(tally.atoms(which)), strict=True):
                near = [i for i, v in enumerate(values) if abs(v - value) <= 1e-9 * max(abs(v), abs(value), 1e-290)]
                share = w * np.broadcast_to(mass, (self.groups,))
                if near:
                    rows[near[0]] = rows[near[0]] + share
                else:
                    values.append(float(value))
                    rows.append(share)
        order = np.argsort(values)
        found = self.from_replicates(np.array(rows).reshape(len(rows), self.groups).T[:, order])
        return Atoms(np.array(values)[order], found)


def _transposed(atoms: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    return atoms[0], atoms[1].T


def _cut(estimate: Estimate, part: Any) -> Estimate:
    return Estimate(estimate.value[part], estimate.lower[part], estimate.upper[part])
