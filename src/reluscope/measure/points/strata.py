"""Points in boxes: most of the space has nothing to tell, so most points go where the border of an event passes.

The coordinates of a component are independent, so a box of their uniform numbers has a known mass. A tree of boxes
grows from a pilot: a few points in each box say how much of it may lie inside the event, and the boxes that would add
most to the standard error, `mass sqrt(p (1 - p))`, are halved across the axis along which the event's rows change most.
Then every box gets a number of points that is fixed beforehand, at least in proportion to its mass (what no pilot has
seen must not hide anywhere), and more where the border passes. The estimate is

    P = sum over boxes of mass_i hits_i / draws_i,

with independent hits, and its interval is `intervals.strata`: it holds whatever the pilot took the boxes for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope._lazy import late
from reluscope.measure.points.single import SIDE, Bits, SingleForms
from reluscope.measure.shared import FormRows
from reluscope.pace import charge, counting, cpu_now, now
from reluscope.threads import look
from reluscope.workers import PerThread, jobs_at_hand, run

Evaluate = Callable[[Bits, int], FloatArray]
Whole = npt.NDArray[np.int64]

_ALL = 1 << 32
_LOOKS = 16
"""Pilot points in a box."""
_MOST_BOXES = 1 << 16
_NARROW = 1 << 12
"""Sides of less than 1e-6 of the mass are not halved."""
_FEWEST = 1 << 9
"""Boxes that a pilot must be able to look at, for boxes to be tried."""
_FEW = 64
_CLEAR = 0.8
"""How many of its own standard deviations a row must be away from 0 in a box counts as so many normal ones."""
_FAINT, _FLAT = 1e-9, 1e-3
"""The least variance of a point, and what may be inside of a box whose points are all on the very limit."""
_CHUNK_BITS = 1 << 17
_MOST_POINTS = 1 << 36
_NUMBERS = 1 << 24
"""Numbers that are held at a time while boxes grow."""
_SHARES = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Shares of the points that go by mass alone, of which the best is taken."""
_FARTHEST = 3.4e-6
"""Sides are taken to end where so much of the mass is beyond."""


@dataclass(frozen=True, eq=False)
class Space:
    """A component whose coordinates are independent: what weight it has, and what is needed to draw its points.

    `evaluate` gives the forms at points of given bits (coordinates, n), `place` the coordinates at uniform numbers
    (n, r), each a rising function of its own, `slopes` the gradients (n, forms, r) of the forms there.
    """

    weight: float
    r: int
    evaluate: Evaluate
    place: Callable[[FloatArray], FloatArray]
    slopes: Callable[[FloatArray], FloatArray]
    seconds: float
    """What a point costs by formula."""
    look_seconds: float
    """What a box costs by formula, besides the points that look at it."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes `low <= bits < high` (k, r) of spaces, with what the pilot thinks of them."""

    space: Whole
    low: Whole
    high: Whole
    axis: Whole
    """Where to halve; -1: nowhere."""
    inside: FloatArray
    """Share of the event, guessed."""

    @property
    def shares(self) -> FloatArray:
        """Masses within their spaces."""
        return np.asarray(np.prod((self.high - self.low) / _ALL, axis=1))

    def joined(self, other: Boxes) -> Boxes:
        """These and the others."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("space", "low", "high", "axis", "inside"))
        return Boxes(*(np.concatenate(pair) for pair in pairs))

    def __getitem__(self, which: Any) -> Boxes:
        return Boxes(self.space[which], self.low[which], self.high[which], self.axis[which], self.inside[which])


@dataclass(frozen=True, eq=False)
class Strata:
    """Boxes of several spaces for one event, what a point costs, and how to draw."""

    spaces: tuple[Space, ...]
    rows: FormRows
    boxes: Boxes
    cost: float
    """Seconds of CPU for a point."""

    @property
    def mass(self) -> FloatArray:
        """The probability of each box."""
        return np.asarray(np.array([s.weight for s in self.spaces])[self.boxes.space] * self.boxes.shares)

    @property
    def chance(self) -> float:
        """The event's probability, as far as the pilot knows."""
        return float(self.mass @ self.boxes.inside)

    # -- how many points where -----------------------------------------------------------------------------------

    def allotted(self, points: int, level: float) -> tuple[FloatArray, float]:
        """Draws of every box for about so many points in all, and the half-width that is expected of them."""
        mass, guess = self.mass, self.boxes.inside
        spread = mass * np.sqrt(guess * (1.0 - guess) + _FAINT)
        # Numbers from boxes inside and outside reach to different sides: both are bounded where it costs least.
        inner = float(mass @ guess) / float(mass.sum())
        side = np.where(guess > 0.5, max(inner, 1e-3) ** -0.5, max(1.0 - inner, 1e-3) ** -0.5)
        even = mass * side
        best, least = np.ones(len(mass)), np.inf
        for share in _SHARES:
            by_mass, by_spread = share * points * even / even.sum(), (1.0 - share) * points * spread / spread.sum()
            draws = np.maximum(by_mass, by_spread)
            draws = np.maximum(np.ceil(draws * (points / draws.sum())), 1.0)
            half = intervals.strata_half_width(draws, mass, guess, level)
            if half < least:
                best, least = draws, half
        return best, least

    def expected(self, seconds: float, level: float) -> float:
        """The half-width after a run of so many seconds of CPU."""
        return self.allotted(self.points(seconds), level)[1]

    def points(self, seconds: float) -> int:
        """How many points so many seconds of CPU are enough for; no fewer than two for each box."""
        return int(np.clip(seconds / self.cost, 2 * len(self.boxes.axis), _MOST_POINTS))

    # -- points --------------------------------------------------------------------------------------------------

    def hits(self, draws: Whole, rng: np.random.Generator) -> Whole:
        """How many of so many points in every box are inside."""
        found = np.zeros(len(draws), np.int64)
        for number, space in enumerate(self.spaces):
            which = np.flatnonzero((self.boxes.space == number) & (draws > 0))
            if len(which):
                found[which] = self._of_space(space, self.boxes[which], draws[which], rng)
        return found

    def _of_space(self, space: Space, boxes: Boxes, draws: Whole, rng: np.random.Generator) -> Whole:
        """The same for boxes of one space, by several workers."""
        ends = np.cumsum(draws)
        chunk = int(np.clip(_CHUNK_BITS // space.r, 1024, 16384)) // SIDE * SIDE
        low, width = boxes.low, boxes.high - boxes.low
        own = PerThread(lambda: space.evaluate.twin() if isinstance(space.evaluate, SingleForms) else space.evaluate)
        logic = _Logic.of(self.rows)

        def tasks() -> Iterator[tuple[int, int, Bits]]:
            for begin in range(0, int(ends[-1]), chunk):
                n = min(chunk, int(ends[-1]) - begin)
                yield begin, n, rng.integers(0, _ALL, (space.r, -(-n // SIDE) * SIDE), dtype=np.uint32)

        def work(task: tuple[int, int, Bits]) -> tuple[int, Whole]:
            look()
            begin, n, bits = task
            box = np.empty(n, np.int64)
            _into_boxes(bits, low, width, ends, begin, int(np.searchsorted(ends, begin, side="right")), box)
            first = int(box[0])
            found = np.zeros(int(box[-1]) - first + 1, np.int64)
            logic.count(own()(bits, n), box - first, found)
            return first, found

        total = np.zeros(len(ends), np.int64)
        for first, found in run(work, tasks(), jobs=jobs_at_hand()):
            total[first : first + len(found)] += found
        charge(float(ends[-1]) * space.seconds)
        return total


@dataclass(frozen=True, eq=False)
class _Logic:
    """Rows by conjunction, as the kernel reads them."""

    rows: FormRows
    start: Whole
    row: Whole

    @classmethod
    def of(cls, rows: FormRows) -> _Logic:
        members = rows.members
        start = np.concatenate([[0], np.cumsum(members.sum(axis=1))]).astype(np.int64)
        return cls(rows, start, np.nonzero(members)[1].astype(np.int64))

    def count(self, outputs: FloatArray, box: Whole, found: Whole) -> None:
        """Add the points inside the event to their boxes."""
        _count(outputs, self.rows.form, self.rows.bound, self.rows.strict, self.start, self.row, box, found)

    def excess(self, outputs: FloatArray, scale: FloatArray) -> tuple[FloatArray, Whole]:
        """How far points are outside (below 0: inside), and the form of the row that says so."""
        over = (outputs[:, self.rows.form] - self.rows.bound) / scale
        best, form = np.full(len(outputs), np.inf), np.zeros(len(outputs), np.int64)
        for begin, end in zip(self.start[:-1], self.start[1:], strict=True):
            mine = self.row[begin:end]
            if not len(mine):
                continue
            worst = over[:, mine].argmax(axis=1)
            value = over[np.arange(len(over)), mine[worst]]
            better = value < best
            best, form = np.where(better, value, best), np.where(better, self.rows.form[mine[worst]], form)
        return best, form


class Worked:
    """The time since it was made: that of the CPU, or a third of the clock's where a busy machine gives less."""

    def __init__(self) -> None:
        self._cpu, self._clock = cpu_now(), now()

    @property
    def pace(self) -> float:
        """Seconds of CPU in a second of the clock."""
        if counting():
            return 1.0
        return min((cpu_now() - self._cpu) / max(now() - self._clock, 1e-9), 1.0)

    @property
    def seconds(self) -> float:
        """How long it was."""
        return max(cpu_now() - self._cpu, (now() - self._clock) / 3.0)


class Tree:
    """Boxes that grow, for as long as there is time."""

    def __init__(self, spaces: tuple[Space, ...], rows: FormRows, rng: np.random.Generator) -> None:
        self._spaces, self._rows = spaces, rows
        self._pilot = _Pilot(spaces, _Logic.of(rows), rng)
        self._boxes = self._pilot.seen(_roots(spaces))
        self._spent, self._each = 0.0, 0.0
        numbers = max(s.r for s in spaces) + 2 * (int(rows.form.max(initial=0)) + 1) + 4 * len(rows.form)
        self._at_once = max(_NUMBERS // (2 * _LOOKS * numbers), 1)

    def grow(self, seconds: float, points: Callable[[float], float]) -> Strata | None:
        """Boxes after about so many seconds of work in all; None if they are too few to be of use.

        `points(cost)` is how many points of so many seconds each the run will have: more boxes than a share of them
        are not worth their pilot.
        """
        pilot = self._pilot
        weight = np.array([s.weight for s in self._spaces])
        before, started = self._spent, Worked()
        while True:
            look()
            boxes, cost = self._boxes, pilot.seconds / pilot.points
            mass = weight[boxes.space] * boxes.shares
            gain = np.where(boxes.axis >= 0, mass * np.sqrt(boxes.inside * (1.0 - boxes.inside) + _FAINT), 0.0)
            k = len(mass)
            if k >= _FEW and (_FEWEST - k) * _LOOKS * cost > seconds:  # before, costs are those of first calls
                return None
            room = k if k < _FEW else points(cost) / _LOOKS - k
            left = (seconds - self._spent) / max(2.0 * self._each, 1e-9)
            n = int(min(max(k // 2, 1), room, left, self._at_once, _MOST_BOXES - k, np.count_nonzero(gain)))
            if n < 1:
                break
            chosen = np.argpartition(-gain, n - 1)[:n]
            kept = np.ones(k, bool)
            kept[chosen] = False
            self._boxes = boxes[kept].joined(pilot.seen(_halves(boxes[chosen])))
            last, self._spent = self._spent, before + started.seconds
            self._each = (self._spent - last) / (2 * n) if k >= _FEW else 0.0
        return Strata(self._spaces, self._rows, boxes, cost) if len(boxes.axis) >= _FEWEST else None


def informed(strata: Strata, points: int, level: float, rng: np.random.Generator) -> Strata:
    """The same after a second pilot of so many points, shared out as the run's would be; its cost is measured anew."""
    draws = strata.allotted(points, level)[0].astype(np.int64)
    started = cpu_now()
    hits = strata.hits(draws, rng)
    cost = (cpu_now() - started) / max(float(draws.sum()), 1.0)
    inside = strata.boxes.inside
    # Boxes whose looks were all on one side: what those of about the same guess have shown corrects the guess.
    rest, hidden = np.minimum(inside, 1.0 - inside), np.where(inside > 0.5, draws - hits, hits)
    plain = rest < 1.0 / _LOOKS
    group = np.floor(-2.0 * np.log2(np.maximum(rest, _FAINT))).astype(np.int64)
    seen, count, number = (np.bincount(group[plain], each[plain]) for each in (hidden, draws, np.ones(len(rest))))
    guess = np.bincount(group[plain], rest[plain]) / np.maximum(number, 1.0)
    rate = (seen + 1.0) / (count + 1.0 / np.maximum(guess, _FAINT))
    rest[plain] = np.minimum(rate[group[plain]], 1.0 / _LOOKS)
    inside = np.where(inside > 0.5, 1.0 - rest, rest)
    inside = (hits + _LOOKS * inside) / (draws + _LOOKS)
    return replace(strata, boxes=replace(strata.boxes, inside=inside), cost=max(cost, 1e-9))


def _roots(spaces: tuple[Space, ...]) -> Boxes:
    """The whole of every space."""
    k, r = len(spaces), max(s.r for s in spaces)
    nothing = np.zeros((k, r), np.int64)
    return Boxes(np.arange(k), nothing, nothing + _ALL, np.zeros(k, np.int64), np.full(k, 0.5))


def _halves(boxes: Boxes) -> Boxes:
    """Both halves of every box, cut between the median and the middle of its side (as normal coordinates have it)."""
    ndtri, ndtr = late("scipy.special", "ndtri"), late("scipy.special", "ndtr")
    each, axis = np.arange(len(boxes.axis)), boxes.axis
    low, high = boxes.low[each, axis], boxes.high[each, axis]
    ends = [ndtri(np.clip(side / _ALL, _FARTHEST, 1.0 - _FARTHEST)) for side in (low, high)]
    median = ndtri(0.5 * (low + high) / _ALL)
    cut = np.rint(ndtr(0.5 * median + 0.25 * (ends[0] + ends[1])) * _ALL).astype(np.int64)
    cut = np.clip(cut, low + 1, high - 1)
    first, second = boxes.high.copy(), boxes.low.copy()
    first[each, axis], second[each, axis] = cut, cut
    return replace(boxes, high=first).joined(replace(boxes, low=second))


class _Pilot:
    """Looks at boxes by a few points in each."""

    def __init__(self, spaces: tuple[Space, ...], logic: _Logic, rng: np.random.Generator) -> None:
        self.spaces, self.logic, self.rng = spaces, logic, rng
        self.points, self.seconds = 0, 0.0
        self.scale: FloatArray | None = None

    def seen(self, boxes: Boxes) -> Boxes:
        """The boxes with what their points tell."""
        axis, inside = np.full(len(boxes.axis), -1), np.zeros(len(boxes.axis))
        for number, space in enumerate(self.spaces):
            which = np.flatnonzero(boxes.space == number)
            if len(which):
                axis[which], inside[which] = self._of_space(space, boxes[which])
        return replace(boxes, axis=axis, inside=inside)

    def _of_space(self, space: Space, boxes: Boxes) -> tuple[Whole, FloatArray]:
        k, r = len(boxes.axis), space.r
        low, width = boxes.low[:, :r], (boxes.high - boxes.low)[:, :r]
        n = k * _LOOKS
        started = cpu_now()
        bits = self.rng.integers(0, _ALL, (r, -(-n // SIDE) * SIDE), dtype=np.uint32)
        ends = _LOOKS * np.arange(1, k + 1)
        box = np.empty(n, np.int64)
        _into_boxes(bits, boxes.low, boxes.high - boxes.low, ends, 0, 0, box)
        outputs = space.evaluate(bits, n)
        hits = np.zeros(k, np.int64)
        self.logic.count(outputs, box, hits)
        charge(n * space.seconds)
        self.seconds += cpu_now() - started
        self.points += n
        charge(k * space.look_seconds)
        if self.scale is None:
            spread = outputs[:, self.logic.rows.form].std(axis=0)
            self.scale = np.where(spread > 0.0, spread, 1.0)
        over, form = self.logic.excess(outputs, self.scale)
        over = over.reshape(k, _LOOKS)
        slope = self._slopes(space, bits, form, np.abs(over), np.arange(k))
        flat = np.flatnonzero(~slope.any(axis=1))
        if len(flat):  # rows may be flat on one side of the border
            other = np.where(over[flat] > 0.0, np.inf, np.abs(over[flat]))
            slope[flat] = self._slopes(space, bits, form, other, flat)
        sides = [space.place(np.clip(end / _ALL, _FARTHEST, 1.0 - _FARTHEST)) for end in (low, low + width)]
        slope = np.where(slope.any(axis=1, keepdims=True), slope, 1.0)
        score = np.where(width > _NARROW, slope * (sides[1] - sides[0]), -1.0)
        score = np.where(np.isfinite(score), score, 0.0)
        axis = np.where(score.max(axis=1) > 0.0, score.argmax(axis=1), -1)
        # A box whose points are all on one side: how much may be on the other, if rows were normal there.
        # Spread is what is seen towards the border.
        mean = over.mean(axis=1)
        aside = over - mean[:, None]
        towards = np.where(mean > 0.0, np.minimum(aside, 0.0).T, np.maximum(aside, 0.0).T)
        spread = np.sqrt(np.maximum(2.0 * np.square(towards).mean(axis=0), np.square(aside).mean(axis=1)))
        away = np.abs(mean) / np.where(spread > 0.0, spread, 1.0)
        rest = np.minimum(late("scipy.special", "ndtr")(-_CLEAR * np.nan_to_num(away)), 0.5 / _LOOKS)
        rest = np.where(spread > 0.0, rest, np.where(mean == 0.0, _FLAT, _FAINT))
        inside = np.where(hits == 0, rest, np.where(hits == _LOOKS, 1.0 - rest, hits / _LOOKS))
        return axis, inside

    def _slopes(self, space: Space, bits: Bits, form: Whole, distance: FloatArray, boxes: Whole) -> FloatArray:
        """Sizes of the gradients at the nearest point of some boxes, of the row that matters there."""
        at = boxes * _LOOKS + distance.argmin(axis=1)
        here = space.place(((bits[:, at] + 0.5) / _ALL).T)
        return np.asarray(np.abs(space.slopes(here)[np.arange(len(at)), form[at]]))


@lru_cache(maxsize=1)
def warm_up_strata() -> None:
    """Compile before a clock starts."""
    one, box = np.ones(1, np.int64), np.zeros(1, np.int64)
    _into_boxes(np.zeros((1, SIDE), np.uint32), box[None], one[None] * _ALL, one, 0, 0, box)
    rows = (np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_), np.array([0, 1]), np.zeros(1, np.int64))
    _count(np.zeros((1, 1)), *rows, box, np.zeros(1, np.int64))


@kernel
def _into_boxes(bits: Any, low: Any, width: Any, ends: Any, begin: int, first: int, box: Any) -> None:
    """Random bits (r, n) moved into the boxes of points begin, begin + 1, ..., which are written to `box`.

    Box i has the points before `ends[i]`; the first of these points is in box `first`.
    """
    i = first
    for p in range(box.size):
        while ends[i] <= begin + p:
            i += 1
        box[p] = i
    for k in range(bits.shape[0]):
        for p in range(box.size):
            i = box[p]
            word = np.uint64(bits[k, p]) * np.uint64(width[i, k]) >> np.uint64(32)
            bits[k, p] = np.uint32(np.uint64(low[i, k]) + word)


@kernel
def _count(outputs: Any, form: Any, bound: Any, strict: Any, start: Any, row: Any, box: Any, found: Any) -> None:
    """Add the points that are in a union of conjunctions of rows to their boxes."""
    for p in range(box.size):
        for c in range(start.size - 1):
            holds = True
            for q in range(start[c], start[c + 1]):
                i = row[q]
                y = outputs[p, form[i]]
                if not (y < bound[i] if strict[i] else y <= bound[i]):
                    holds = False
                    break
            if holds:
                found[box[p]] += 1
                break
