"""From sums over lines to estimates with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope.answer import Answers
from reluscope.measure.lines.records import (
    Atoms,
    Integrals,
    Levels,
    PatternMasses,
    Request,
    level_map,
)
from reluscope.measure.shared import Job, Tally
from reluscope.network import Network, Pattern

_EXACT_ERROR = 1e-12

_CHANCES = ("below", "above", "events", "marginals")
"""Quantities between 0 and 1."""

_COMPLEMENT = 2e-15
"""Rounding error of a mean square that was found as that of a complement."""

_NOTHING = 1e-14
"""A mean of [0, 1] this close to an end is at it, up to rounding."""


@dataclass(eq=False)
class Reach:
    """How far kinds of lines not yet seen could move a mean, up and down.

    A kind of line whose probability is q stays away from n independent lines with probability `(1 - q)^n`, so with
    probability `1 - d` an unmet kind has `q <= log(1 / d) / n`. If such lines contribute no more than the most met on
    any line (and no less than the least), they move the mean by at most `(most - mean) log(1 / d) / n` upwards.
    """

    up: FloatArray
    down: FloatArray

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Reach:
        """No lines yet."""
        return cls(np.zeros(shape), np.zeros(shape))

    def add(self, weight: float, n: float, mean: FloatArray, most: FloatArray, least: FloatArray, level: float) -> None:
        """Take account of the n lines of one component; an unmet kind of line is in one component only."""
        chance = weight * min(1.0, intervals.unseen(n, level))
        self.up = np.maximum(self.up, chance * np.maximum(most - mean, 0.0))
        self.down = np.maximum(self.down, chance * np.maximum(mean - least, 0.0))


class AnswerMaker:
    """Tallies of all components put together."""

    def __init__(
        self,
        found: list[tuple[float, Tally]],
        job: Job,
        net: Network,
        units: npt.NDArray[np.intp],
        kind: str,
        level: float,
        groups: int,
        sampled: float,
        sharp: list[tuple[float, Tally]],
        expected: dict[str, tuple[FloatArray, FloatArray]],
    ) -> None:
        self.found, self.job, self.net, self.units, self.kind, self.level = found, job, net, units, kind, level
        self.groups, self.sampled, self.sharp, self.expected = groups, sampled, sharp, expected
        self._cut = sum(w * t.cut for w, t in found)

    def estimate(self, name: str) -> Answers:
        """The estimate of one quantity of every tally."""
        if self.kind != "finite-sample":
            found = self.from_replicates(sum(w * self._spread(t.means()[name]) for w, t in self.found))
            if self.kind == "exact":
                return found
            widened = self._widened(self._with_hidden(found, name), self._reach(name, found.value.shape))
            return self._blurred(widened) if name in _CHANCES else widened
        sampled = [t for _, t in self.found if t.replicates_are_draws]
        fixed = sum((w * t.means()[name][0] for w, t in self.found if not t.replicates_are_draws), 0.0)
        value, lower, upper = (self.sampled * part for part in self._bounded(name, sampled))
        if self.sharp:
            better = sum(w * t.means()[name].mean(axis=0) for w, t in self.sharp)
            value = np.clip(better, lower, upper)
        return self._blurred(self._answers(fixed + value, fixed + lower, fixed + upper))

    def _bounded(self, name: str, sampled: list[Tally]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, lower and upper bound from independent draws of all sampled components."""
        n = int(sum(t.count.sum() for t in sampled))
        total = np.sum([t.total[name][0] for t in sampled], axis=0)
        if all(t.counts for t in sampled):
            return total / n, *intervals.binomial(np.rint(total), n, self.level)
        square = np.sum([t.square[name] for t in sampled], axis=0)
        top = max(t.largest for t in sampled)
        flip = sampled[0].flipped.get(name, np.zeros(total.shape, bool))  # only a single component has any
        expected = self.expected.get(name)
        if expected is not None:
            expected = np.where(flip, 1.0 - expected[0], expected[0]), expected[1]
        square = np.where(flip, n - 2.0 * total + square + _COMPLEMENT * n, square)
        total = np.where(flip, n - total, total)
        value, lower, upper = intervals.bounded_mean(total, square, n, self.level, top=top, expected=expected)
        lower, upper = np.where(flip, 1.0 - upper, lower), np.where(flip, 1.0 - lower, upper)
        return np.where(flip, 1.0 - value, value), lower, upper

    def _blurred(self, found: Answers) -> Answers:
        """The interval widened by rounding, and by what is beyond the ends of lines that were cut."""
        slack = self._cut + _EXACT_ERROR * np.abs(found.value)
        return self._answers(found.value, found.lower - slack, found.upper + slack)

    def _answers(self, value: FloatArray, lower: FloatArray, upper: FloatArray) -> Answers:
        known = None if self.kind == "exact" else self.level
        return Answers(value, lower, upper, "exact" if self.kind == "exact" else "confidence", known)

    def from_replicates(self, rows: Any) -> Answers:
        """Mean over replicates and Student's t; with one exact row, rounding only."""
        if self.kind == "exact" or len(rows) < 2:
            value = rows.mean(axis=0)
            slack = _EXACT_ERROR * np.abs(value)
            return self._answers(value, value - slack, value + slack)
        value, half = intervals.student(rows, self.level)
        return self._answers(value, value - half, value + half)

    def _with_hidden(self, found: Answers, name: str) -> Answers:
        """The interval with the variance added that draws were expected to have, and have not shown."""
        hidden = sum(w * w * t.hidden[name] / t.count.sum() for w, t in self.found if name in t.hidden)
        quantile = intervals.student_quantile(self.groups - 1, self.level)
        half = np.sqrt((found.upper - found.value) ** 2 + quantile**2 * hidden)
        return self._answers(found.value, found.value - half, found.value + half)

    def _reach(self, name: str, shape: tuple[int, ...]) -> Reach:
        """What unmet lines could do to one kind of quantity.

        Where all lines agree on 0 or 1 a probability may be anything on the unmet ones, and a density that no line has
        met has no upper bound.
        """
        reach = Reach.none(shape)
        for w, t in self.found:
            if not t.replicates_are_draws:
                continue
            n = float(t.count.sum())
            most, least = t.most[name], t.least[name]
            if name in _CHANCES:
                most = np.where(most <= 0.0, t.largest, most)
                least = np.where(least >= 1.0 - _NOTHING, 1.0 - t.largest, least)
            elif name == "density":
                most = np.where(most <= 0.0, np.inf, most)
            reach.add(w, n, t.total[name].sum(axis=0) / n, most, least, self.level)
        return reach

    def _widened(self, found: Answers, reach: Reach) -> Answers:
        return self._answers(found.value, found.lower - reach.down, found.upper + reach.up)

    def record(
        self, method: str, direction: str, seconds: float, note: str, request: Request, value_by: str
    ) -> Integrals:
        """The public record."""
        job = self.job
        levels: dict[int, Levels] = {}
        if job.n_levels:
            cdf, sf = self._clipped("below"), self._clipped("above")
            pdf = self._clipped("density", np.inf) if job.density else None
            begin = 0
            for output, c in level_map(self.net, request.levels).items():
                part = slice(begin, begin + len(c))
                levels[output] = Levels(c, cdf[part], sf[part], None if pdf is None else pdf[part])
                begin += len(c)
        has = {name: name in self.found[0][1].total for name in ("events", "first", "second", "marginals")}
        return Integrals(
            levels,
            self._clipped("events") if has["events"] else None,
            self.estimate("first") if has["first"] else None,
            self.estimate("second") if has["second"] else None,
            self._clipped("marginals")[self.units] if has["marginals"] else None,
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
            value_by,
            sum(t.lines for _, t in self.sharp),
        )

    def _spread(self, rows: FloatArray) -> FloatArray:
        """Exact components have one row for all replicates."""
        return np.broadcast_to(rows, (self.groups, *rows.shape[1:]))

    def _clipped(self, name: str, top: float = 1.0) -> Answers:
        """The interval cut to [0, top]; the value stays as it is, it is unbiased."""
        found = self.estimate(name)
        return self._answers(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, top))

    def _patterns(self) -> PatternMasses:
        rest = 0.0
        sampled = self.sampled
        n = sum(t.count.sum() for _, t in self.found if t.replicates_are_draws)
        tables = [tally.patterns for _, tally in self.found if tally.patterns is not None]
        kept, places = _told_apart([table.known[: table.used] for table in tables])
        masses, squares, fixed = np.zeros((len(kept), self.groups)), np.zeros(len(kept)), np.zeros(len(kept))
        reach = Reach.none((len(kept),))
        for (w, tally), place in zip(self.found, places, strict=True):
            table = tally.patterns
            assert table is not None
            count = np.maximum(tally.count, 1.0)
            # Draws of a mixture count by number, not by weight: their weights are in how many there are.
            factor = w if self.kind != "finite-sample" or not tally.replicates_are_draws else sampled * count[0] / n
            rest += factor * float((table.rest / count).mean())
            here = table.total[: table.used]
            masses[place] += factor * (here / count)
            square = table.square[: table.used] + table.line_mass[: table.used] ** 2
            if not tally.replicates_are_draws:
                fixed[place] += w * here[:, 0] / count[0]
            else:
                squares[place] += square
                first, most, lines = np.zeros(len(kept)), np.zeros(len(kept)), float(tally.count.sum())
                first[place], most[place] = here.sum(axis=1), table.most[: table.used]
                reach.add(w, lines, first / lines, most, np.zeros(len(kept)), self.level)
        if self.kind == "finite-sample":
            mean, lower, upper = intervals.bounded_mean(
                (masses[:, 0] - fixed) / sampled * n, squares, int(n), self.level
            )
            found = self._answers(fixed + sampled * mean, fixed + sampled * lower, fixed + sampled * upper)
        else:
            found = self.from_replicates(masses.T)
            if self.kind != "exact":
                found = self._widened(found, reach)
        found = found if self.kind == "exact" else self._blurred(found)
        order = np.argsort(-found.value, kind="stable")
        clipped = self._answers(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0))
        known = kept[:, self.units]
        return PatternMasses(known[order], clipped[order], rest)

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
        if self.kind != "exact":
            # What single lines contribute is not kept: anything between nothing and all of a line.
            reach = Reach.none(found.value.shape)
            for w, t in self.found:
                if t.replicates_are_draws:
                    reach.add(w, float(t.count.sum()), found.value, np.ones(1), np.zeros(1), self.level)
            found = self._blurred(self._widened(found, reach))
            found = self._answers(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0))
        return Atoms(np.array(values)[order], found)


def _told_apart(lists: list[Pattern]) -> tuple[Pattern, list[npt.NDArray[np.int64]]]:
    """The different rows of several lists, in the order in which they first appear, and where each row of each is."""
    rows = np.concatenate(lists)
    if not rows.size:
        return rows[:1], [np.zeros(len(each), np.int64) for each in lists]
    names = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, place = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rows[first[order]], np.split(rank[place], np.cumsum([len(each) for each in lists])[:-1])


def _transposed(atoms: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    return atoms[0], atoms[1].T
