"""Gaussian masses of many polytopes, with one tolerance for all of them together.

A partition has many cells that hold next to nothing. Asking each for the same relative error spends most of the time
on those. Here the half-widths of all intervals together are brought below an absolute tolerance, in three steps:

1. The half-space behind each facet bounds a cell's mass, min_i Φ(b_i / |a_i|). Cells whose bounds add up to less than
   a thousandth of the tolerance are not measured at all.
2. A cheap pass over the rest, most promising first.
3. With errors falling like points^-3/4, the least work that brings Σ h_i below the tolerance gives cell i the
   half-width h_i = K (h_i0 N_i0^3/4)^(4/7), where h_i0 and N_i0 are those of the cheap pass; K is found by bisection.

Cells go through compiled code in portions, between which time is looked at; what has been measured is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.answer import Answers, Status, Stop, status_of
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.measure.checkpoint import MASSES, Checkpoint, checkpoint_at_hand
from reluscope.measure.polytope.masses import Draws, seeded_masses
from reluscope.progress import Report
from reluscope.threads import OutOfTimeError, deadline
from reluscope.workers import alone, jobs_at_hand, on_cluster, run

Index = npt.NDArray[np.int64]
RowsOf = Callable[[Index], tuple[FloatArray, FloatArray, Index]]
"""Inequalities `A u <= b` of the cells with these numbers, back to back, and their offsets."""

_UNSEEN = 1e-3
_RATE = 0.75
_CHEAP = 0.5
_PORTION, _PORTION_FAR = 0.1, 0.4
"""Seconds of compiled work between two looks at the clock; on a cluster, where each task costs some hundredths."""

_SHORTEST = 0.02
"""Seconds of work that are worth handing out."""

_TURNS = 32
"""Times that each worker comes back for more: the next cells may take a hundred times as long as those before."""

_BOUND_CELLS = 4096


def half_space_bounds(rows_of: RowsOf, count: int) -> FloatArray:
    """min over the rows of each cell of Φ(b / |a|): a sure upper bound on its mass under N(0, I)."""
    ndtr = late("scipy.special", "ndtr")

    bounds = np.ones(count)
    for start in range(0, count, _BOUND_CELLS):
        cells = np.arange(start, min(start + _BOUND_CELLS, count))
        A, b, offsets = rows_of(cells)
        norm = np.linalg.norm(A, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            below = np.where(norm > 0, ndtr(b / norm), np.where(b >= 0, 1.0, 0.0))
        some = offsets[1:] > offsets[:-1]
        bounds[cells[some]] = np.minimum.reduceat(below, offsets[:-1][some]) if some.any() else 1.0
    return bounds


def wanted_half_widths(half: FloatArray, points: FloatArray, tolerance: float) -> FloatArray:
    """Half-widths that add up to at most `tolerance` for the least work (step 3 of the module's text); <= `half`."""
    if half.sum() <= tolerance:
        return half
    weight = (half * np.maximum(points, 1.0) ** _RATE) ** (1.0 / (1.0 + _RATE))
    low, high = 0.0, float((half[weight > 0] / weight[weight > 0]).max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.minimum(half, middle * weight).sum() > tolerance:
            high = middle
        else:
            low = middle
    return np.minimum(half, low * weight)


def measure_together(
    rows_of: RowsOf,
    count: int,
    *,
    tolerance: float | None,
    relative: float | None,
    level: float,
    rng: np.random.Generator,
    budget: Budget,
    report: Report,
    max_points: int = 1 << 21,
) -> Answers:
    """Masses of `count` polytopes under N(0, I): the sum of half-widths at most `tolerance`.

    With `relative`, each half-width is at most that share of its mass instead. A cell not measured before the budget
    ended has the value 0 and the bracket from 0 to its half-space bound. Same seeds, same results, however the work
    is divided; Ctrl-C ends it like a budget once something has been measured.
    """
    seeds = rng.integers(0, 2**64, size=(2, count), dtype=np.uint64)
    upper = half_space_bounds(rows_of, count)
    state = _State(np.zeros(count), np.zeros(count), upper.copy(), np.zeros(count))
    kept = _Kept.at_hand(count)
    order = np.argsort(-upper, kind="stable")
    if relative is None:
        assert tolerance is not None
        vanishing = np.cumsum(upper[order[::-1]])[::-1] <= _UNSEEN * tolerance
        order = order[~vanishing]
    goal = np.full(count, relative if relative is not None else _CHEAP)
    work = _Work(rows_of, level, max_points, budget, report)
    begin = kept.restore(0, state)
    stopped = None if begin is None else work.run(order, goal, seeds[0], state, begin, kept)
    if stopped is None and relative is None:
        assert tolerance is not None
        kept.first_turn(state)
        half = state.upper[order] - state.value[order]
        wanted = wanted_half_widths(half, state.points[order], tolerance - float(np.delete(upper, order).sum()))
        again = order[wanted < half]
        again = again[np.argsort(-(state.upper - state.value)[again], kind="stable")]
        target = np.zeros(count)
        target[order] = wanted
        with np.errstate(divide="ignore", invalid="ignore"):
            goal = np.where(state.value > 0, target / state.value, _CHEAP)
        begin = kept.restore(1, state)
        stopped = work.run(again, np.clip(goal, 1e-9, _CHEAP), seeds[1], state, begin or 0, kept)
    return Answers(
        state.value, state.lower, state.upper, "confidence", level, note=stopped or "", status=status_of(stopped)
    )


class _State(NamedTuple):
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    points: FloatArray


_FIRST = ("value1", "upper1", "points1")


class _Kept:
    """The masses that are in the file of the call at hand, if it has one."""

    def __init__(self, file: Checkpoint | None, count: int) -> None:
        self.file, self.key = file, "" if file is None else file.next_key()
        self.turn, self.first = 0, [np.zeros(0)] * 3
        found = None if file is None else file.states.get(self.key)
        if found is not None and (
            any(len(found[name]) != count for name in _State._fields)
            or any(len(found[name]) not in (0, count) for name in _FIRST)
            or any(len(found[name]) != 1 for name in ("turn", "done"))
        ):
            raise InputError("checkpoint is damaged: it has another number of regions; remove it to begin anew")
        self.found = found

    @classmethod
    def at_hand(cls, count: int) -> _Kept:
        """The file of the call at hand."""
        return cls(checkpoint_at_hand(MASSES), count)

    def restore(self, turn: int, state: _State) -> int | None:
        """Into `state` what was kept of this turn, and how many cells of it are done; None: all of them."""
        self.turn = turn
        if self.found is None or int(self.found["turn"][0]) < turn:
            return 0
        if int(self.found["turn"][0]) > turn:
            for mine, name in zip((state.value, state.upper, state.points), _FIRST, strict=True):
                mine[:] = self.found[name]
            return None
        for mine, name in zip(state, _State._fields, strict=True):
            mine[:] = self.found[name]
        return max(0, int(self.found["done"][0]))

    def first_turn(self, state: _State) -> None:
        """What the second turn is planned from."""
        self.first = [state.value.copy(), state.upper.copy(), state.points.copy()]

    def save(self, state: _State, done: int, *, now: bool = False) -> None:
        """To the file, if it is time."""
        if self.file is None or not (now or self.file.is_due()):
            return
        arrays = {name: array.copy() for name, array in zip(_State._fields, state, strict=True)}
        arrays |= dict(zip(_FIRST, self.first, strict=True))
        arrays |= {"turn": np.array([float(self.turn)]), "done": np.array([float(done)])}
        self.file.states[self.key] = arrays
        self.file.save()


class _Work(NamedTuple):
    rows_of: RowsOf
    level: float
    max_points: int
    budget: Budget
    report: Report

    def run(
        self,
        order: Index,
        goal: FloatArray,
        seeds: npt.NDArray[np.uint64],
        state: _State,
        begin: int,
        kept: _Kept,
    ) -> Stop | None:
        """Measure the cells of `order` from `begin` on, each to its relative goal; why it ended early, or None."""
        done = begin

        def report(now: int) -> None:
            nonlocal done
            done = now
            kept.save(state, done)
            self.report(done, f"{done:,} of {len(order):,} regions measured")

        walk = self._alone if alone(jobs_at_hand()) else self._together
        try:
            return walk(order, goal, seeds, state, begin, report)
        finally:
            kept.save(state, done, now=True)

    def _alone(
        self,
        order: Index,
        goal: FloatArray,
        seeds: npt.NDArray[np.uint64],
        state: _State,
        begin: int,
        report: Callable[[int], None],
    ) -> Stop | None:
        done, size = begin, 1
        try:
            while done < len(order):
                spent = self.budget.spent(done - begin)
                if spent is not None:
                    return Stop(f"{spent}: {done:,} of {len(order):,} regions measured", spent.status)
                size = int(max(1, min(size, len(order) - done, self.budget.regions - (done - begin))))
                cells = order[done : done + size]
                started = time.perf_counter()
                with deadline(lambda: self.budget.spent() is not None):
                    found, draws = seeded_masses(
                        *self.rows_of(cells), goal[cells], self.level, self.max_points, seeds[cells]
                    )
                for mine, theirs in zip(state, (found.value, found.lower, found.upper, draws.points), strict=True):
                    mine[cells] = theirs
                done += size
                pace = (time.perf_counter() - started) / size
                size = int(np.clip(_PORTION / max(pace, 1e-9), 1, 4 * size))
                report(done)
        except OutOfTimeError:  # the cells at hand are not measured
            return Stop(f"{self.budget.spent()}: {done:,} of {len(order):,} regions measured", Status.BUDGET)
        except KeyboardInterrupt:
            if done == 0 and not state.points.any():
                raise
            return Stop(f"interrupted: {done:,} of {len(order):,} regions measured", Status.INTERRUPTED)
        return None

    def _together(
        self,
        order: Index,
        goal: FloatArray,
        seeds: npt.NDArray[np.uint64],
        state: _State,
        begin: int,
        report: Callable[[int], None],
    ) -> Stop | None:
        """The same by several workers: each cell has a seed of its own, so portions may be of any size."""
        jobs, portion = jobs_at_hand(), _PORTION_FAR if on_cluster() else _PORTION
        wanted = order[: int(min(len(order), begin + max(self.budget.regions, 1)))]
        done, size = begin, 1
        took: list[float] = []

        def portions() -> Iterator[Index]:
            at = begin
            while at < len(wanted):
                end = at + size  # which grows while the portion is out
                yield wanted[at:end]
                at = end

        def measured(cells: Index) -> tuple[Index, Answers, Draws, float]:
            started = time.perf_counter()
            found, draws = seeded_masses(*self.rows_of(cells), goal[cells], self.level, self.max_points, seeds[cells])
            return cells, found, draws, (time.perf_counter() - started) / len(cells)

        def words(reason: str) -> str:
            return f"{reason}: {done:,} of {len(order):,} regions measured"

        try:
            for cells, found, draws, pace in run(measured, portions(), jobs=jobs, budget=self.budget):
                for mine, theirs in zip(state, (found.value, found.lower, found.upper, draws.points), strict=True):
                    mine[cells] = theirs
                done += len(cells)
                took = [*took[-15:], pace]
                usual = max(sum(took) / len(took), 1e-9)
                ahead = max(1.0, _SHORTEST / usual, (len(wanted) - done) / (_TURNS * jobs))
                size = int(np.clip(portion / usual, 1, min(4 * size, ahead)))
                report(done)
        except OutOfTimeError:
            return Stop(words(str(self.budget.spent())), Status.BUDGET)
        except KeyboardInterrupt:
            if done == 0 and not state.points.any():
                raise
            return Stop(words("interrupted"), Status.INTERRUPTED)
        spent = self.budget.spent(done - begin) if done < len(order) else None
        return None if spent is None else Stop(words(spent), spent.status)
