"""Sound bounds of the probability of an event, without listing the network's regions: a portfolio of three searches.

`boxes` splits the coordinates of the law: exact masses, made for few dimensions. `units` splits the units of the
network: half-spaces of known mass, made for many dimensions. `slices` cuts along the few directions that matter and
keeps the rest Gaussian: made for what lies between. They share one budget; the bracket is the intersection of theirs.
A case of the event that sees few of the inputs is bounded in those alone.

The bracket holds for the real-valued network of the stored weights and the law of the stored numbers: rounding errors
of folding, of the change of coordinates, of the bounds and of the masses are inside it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import describe, real
from reluscope.answer import Answer, Status, Stop, status_of
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events import Event, PlacedEvent, as_event, decided, place
from reluscope.inputs import Law, check_law
from reluscope.measure.checkpoint import SEARCH, Checkpoint, checkpoint_at_hand
from reluscope.measure.sound.boxes import NO_LIMITS, BoxSearch, good_enough
from reluscope.measure.sound.components import LawSearch, slice_search, unit_search
from reluscope.measure.sound.frame import Frame, frames
from reluscope.measure.sound.points import point_masses
from reluscope.measure.sound.seen import seen
from reluscope.measure.sound.turn import turned
from reluscope.network import Network
from reluscope.progress import Report, meter
from reluscope.threads import OutOfTimeError, blas_threads, deadline

MOST_UNITS = 4000
"""Hidden units (linear pieces minus one, counted) up to which boxes are split; their cost grows with the square."""

_MANY = 24
"""Dimensions above which splitting boxes is only tried."""

_FEW = 5
"""Dimensions up to which splitting units is only tried."""

_TRY_UNITS = 256
"""Nodes of that try: enough for the first tree, which often settles an event far from the mean."""

_RARE = 1e-3
"""An upper bound of units below which boxes are only tried."""

_MOST_CASES = 1000
"""Cases up to which it is asked what each of them sees."""

_DEFAULT_SECONDS = 60.0


def bound_event(
    net: Network,
    law: Law,
    event: Event,
    *,
    limits: tuple[float, float] = NO_LIMITS,
    tolerance: float | None = None,
    budget: Any = None,
    progress: Any = None,
) -> Answer:
    """A guaranteed bracket of `P((x, net(x)) in event)`, x from `law`.

    Stops when half the bracket's width is at most `tolerance` (None: 1 % of the upper bound), when the bracket ends
    below the first of the `limits` or starts at the second or above, when `budget` is spent
    (`"60s"`, `"100000 regions"` counts boxes; 60 s when neither is given), or when nothing more can be decided in
    double precision. `progress` shows the bracket as it shrinks.

    Guaranteed: `lower <= P <= upper` in exact arithmetic for the stored weights and law. `upper` is exactly 0 when
    every box is proved to miss the event, and `lower` exactly 1 when every box is proved to lie in it (bounded laws).

    Cost: microseconds to milliseconds a box; the width falls like (boxes)^-0.7 in five dimensions, more slowly in more.
    Memory does not grow with time. Laws: Gaussian, mixtures, uniform, truncated with independent inputs, particles.
    """
    event = _checked(net, law, event)
    wanted = None if tolerance is None else real(tolerance, "tolerance", low=0.0)
    limit = parse_budget(budget)
    if tolerance is None and budget is None:
        limit = Budget(seconds=_DEFAULT_SECONDS)
    if law.atoms is not None:
        low, high = point_masses(net, event, *law.atoms)
        return _answer(low, high, "points evaluated with error bounds", "", len(law.atoms[0]), limit)
    with meter(progress, "bounds") as report:
        return _by_cases(net, law, event, limit, wanted, limits, report)


def _without_points(rows: PlacedEvent, made: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], tuple[float, float]]:
    """The frames with something to search, and bounds of the weight inside the event of those that are one point."""
    spread, low, high = [], 0.0, 0.0
    for frame, component in zip(made, rows.components, strict=True):
        if component.r or not component.one_value(rows.network.layers[0].weight):
            spread.append(frame)
            continue
        surely, maybe = decided(rows.net, rows.event, component.to_x(np.zeros((1, 1))))
        low, high = low + frame.weight * bool(surely[0]), high + frame.weight * bool(maybe[0])
    return tuple(spread), (low, high)


def _checked(net: Any, law: Law, event: Any) -> Event:
    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}")
    check_law(law, net)
    return as_event(event, net, law).on_inputs_and_outputs()


def _answer(low: float, high: float, method: str, note: str, boxes: int, limit: Budget) -> Answer:
    low, high = float(max(0.0, min(1.0, low))), float(max(0.0, min(1.0, high)))
    status = status_of(note or None)
    work: dict[str, Any] = {"evaluations": boxes, "seconds": limit.elapsed(), "status": status}
    return Answer(0.5 * (low + high), low, high, "sound", method=method, note=note, **work)


# -- cases that see few inputs ---------------------------------------------------------------------------------------


def _by_cases(
    net: Network,
    law: Law,
    event: Event,
    limit: Budget,
    wanted: float | None,
    limits: tuple[float, float],
    report: Report,
) -> Answer:
    """Each case in the coordinates it sees, where that is fewer by half; else the event as a whole."""
    rows = seen(place(net, law, event, cut=True))
    if not rows.n_cases:
        return _answer(0.0, 0.0, "the law never meets the event", "", 0, limit)
    if 1 < rows.n_cases <= _MOST_CASES and not rows.everything:
        alone = [replace(event, cases=(case,)) for case in event.cases]
        placed = [seen(place(net, law, part, cut=True)) for part in alone]
        read = [np.asarray(abs(p.network.layers[0].weight).sum(axis=0)).ravel() > 0 for p in placed]
        together = np.logical_or.reduce(read).sum()
        if together > _FEW and max(r.sum() for r in read) <= 0.5 * together:
            return _joined(law, placed, read, limit, wanted, report)
    return _Portfolio(law, rows, _sides_as_rows(net, law, event, rows), limit, wanted, report, limits).run()


def _sides_as_rows(net: Network, law: Law, event: Event, rows: PlacedEvent) -> PlacedEvent:
    """The same event with the sides of its box among the rows."""
    return rows if rows.within is None else seen(place(net, law, event))


def _joined(
    law: Law,
    placed: list[PlacedEvent],
    read: list[npt.NDArray[np.bool_]],
    limit: Budget,
    wanted: float | None,
    report: Report,
) -> Answer:
    """Brackets of the cases: products where they read different independent inputs, else Boole's inequality."""
    found = []
    for i, rows in enumerate(placed):
        if not rows.n_cases:
            continue
        own = limit.part(1.0 / (len(placed) - i)) if np.isfinite(limit.seconds) else limit
        goal = None if wanted is None else wanted / len(placed)
        found.append(_Portfolio(law, rows, rows, own, goal, report).run())
    work = sum(a.evaluations or 0 for a in found)
    late = [a.note for a in found if a.note]
    lower, upper = np.array([a.lower for a in found]), np.array([a.upper for a in found])
    apart = law.independent_inputs and int(np.sum(read, axis=0).max()) <= 1
    if apart:
        ends = [float(-np.expm1(np.log1p(-np.minimum(side, 1 - 1e-16)).sum())) for side in (lower, upper)]
        low, high, how = ends[0] * (1 - 1e-12), ends[1] * (1 + 1e-12), "independent"
    else:
        low, high, how = float(lower.max()), float(upper.sum()) * (1 + 1e-12), "added up"
    method = f"{len(found)} cases, each in the inputs it sees, {how}"
    return _answer(low, high, method, late[0] if late else "", work, limit)


def _key(parts: tuple[Frame, ...], rows: PlacedEvent) -> str:
    """A digest of all that a search reads."""
    found = hashlib.sha256()
    for frame in parts:
        for layer in frame.network.layers:
            for array in (layer.dense(), layer.bias, layer.units.breaks, layer.units.slopes, layer.units.intercepts):
                found.update(np.ascontiguousarray(array).tobytes())
        numbers = [frame.weight, *frame.total, frame.unsure, frame.beyond, frame.gaussian, frame.free, frame.norm]
        for array in (frame.lower, frame.upper, frame.width, frame.first_error, np.array(numbers, np.float64)):
            found.update(np.ascontiguousarray(array).tobytes())
    for each in (rows.G, rows.F, rows.g, rows.strict, rows.start):
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()[:32]


# -- the portfolio ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Runner:
    """One search of the portfolio: how to give it time, and how it stood before it last had some."""

    name: str
    search: BoxSearch | LawSearch
    first: float
    """Its share of the time at first."""
    before: float = 1.0
    started: bool = False
    finished: bool = False

    @property
    def bracket(self) -> tuple[float, float]:
        return self.search.bracket() if self.started else (0.0, 1.0)

    @property
    def gap(self) -> float:
        low, high = self.bracket
        return high - low

    @property
    def nodes(self) -> int:
        return self.search.boxes if isinstance(self.search, BoxSearch) else self.search.nodes


@dataclass(eq=False)
class _Portfolio:
    """All searches on one event; whichever closes the gap gets most of the time."""

    law: Law
    rows: PlacedEvent
    whole_rows: PlacedEvent
    limit: Budget
    tolerance: float | None
    report: Report
    limits: tuple[float, float] = NO_LIMITS
    runners: list[_Runner] = field(default_factory=list)
    few: bool = False
    """Whether there are so few dimensions that boxes will have nearly all of the time."""
    ends: tuple[float, float] = (0.0, 1.0)
    """The bracket that was proved before this call."""
    keeper: Checkpoint | None = None
    key: str = ""
    boxes: BoxSearch | None = None

    def run(self) -> Answer:
        rows = self.rows
        parts, fixed = _without_points(rows, frames(self.law, rows.network, rows.within))
        turnable = not rows.everything and int((rows.network.pieces - 1).sum()) <= MOST_UNITS
        own = tuple(turned(frame, rows) for frame in parts) if turnable else parts
        boxes = BoxSearch(rows, own, self.limit, self.tolerance, self.report, fixed, self.limits)
        if rows.everything:
            return _answer(*boxes.whole(), "mass of the event's box", "", 0, self.limit)
        if not parts:
            return _answer(*boxes.bracket(), "points evaluated with error bounds", "", 0, self.limit)
        self.keeper = checkpoint_at_hand(SEARCH)
        if self.keeper is not None:
            self._resume(own, boxes)
        try:
            # Extreme weights overflow. What is infinite or not a number is on no side of a limit: its boxes and nodes
            # stay open, and count as part of the bracket.
            quiet = np.errstate(over="ignore", invalid="ignore")
            with quiet, blas_threads(max(rows.network.widths)), deadline(lambda: self.limit.spent() is not None):
                self.few = max(frame.d for frame in parts) <= _FEW
                self.runners = self._searches(parts, fixed, boxes)
                note = self._work()
        except KeyboardInterrupt:
            note = Stop("interrupted; the bracket so far", Status.INTERRUPTED)
        except OutOfTimeError:
            note = self.limit.spent() or ""
        self._keep()
        return _answer(*self.bracket(), self._method(), note, self._evaluations(), self.limit)

    # -- a checkpoint ----------------------------------------------------------------------------------------------

    def _resume(self, parts: tuple[Frame, ...], boxes: BoxSearch) -> None:
        """Go on from what was kept of this very search, if anything was; keep it from here on."""
        assert self.keeper is not None
        self.key, self.boxes = _key(parts, self.rows), boxes
        kept = self.keeper.states.get(self.key)
        if kept is not None and boxes.restore(kept):
            low, high = map(float, kept["ends"][:2])
            self.ends = max(low, 0.0), min(high, 1.0)
        told = self.report

        def report(done: int, text: str) -> None:
            told(done, text)
            if self.keeper is not None and self.keeper.is_due():
                self._keep()

        self.report = boxes.report = report

    def _keep(self) -> None:
        if self.keeper is not None and self.boxes is not None:
            self.keeper.states[self.key] = {**self.boxes.state(), "ends": np.array(self.bracket())}
            if not self.boxes.known:  # nothing but the bracket
                del self.keeper.states[self.key]
            self.keeper.save()

    def _searches(self, parts: tuple[Frame, ...], fixed: tuple[float, float], boxes: BoxSearch) -> list[_Runner]:
        """The searches that this event allows, in the order in which they are tried."""
        rows, d = self.rows, max(frame.d for frame in parts)
        own = parts
        if rows.within is not None:
            own, _ = _without_points(self.whole_rows, frames(self.law, self.whole_rows.network, None))
        found = [_Runner("units", unit_search(own, self.whole_rows, fixed), 0.2 if self.few else 0.1)]
        slices = slice_search(own, self.whole_rows, fixed) if not self.few else None
        if slices is not None:
            found.append(_Runner("slices", slices, 0.15))
        hopeless = d > _MANY and all(frame.gaussian and frame.beyond > 0 for frame in parts)  # boxes of +-38 deviations
        if int((rows.network.pieces - 1).sum()) <= MOST_UNITS and not hopeless:
            found.append(_Runner("boxes", boxes, 0.25 if d <= _MANY else 0.08))
        # With few dimensions boxes come first: they decide events exactly where anything can be decided. For a limit
        # a try at units is enough more often than not.
        return found[::-1] if self.few and self.limits == NO_LIMITS else found

    def bracket(self) -> tuple[float, float]:
        """The intersection of all brackets."""
        ends = [self.ends, *(runner.bracket for runner in self.runners)]
        return max(low for low, _ in ends), min(high for _, high in ends)

    def _work(self) -> str:
        """Time for each search in turn, most of it for the narrowest bracket: why it ended."""
        total = self.limit.seconds if np.isfinite(self.limit.seconds) else _DEFAULT_SECONDS
        counted = np.isinf(self.limit.seconds) and np.isfinite(self.limit.regions)
        note = ""
        for runner in self.runners:
            if (why := self._over()) is not None:
                return why
            share = runner.first
            if runner.name == "boxes" and not self.few and self.bracket()[1] < _RARE:
                share = 0.08
            most = _TRY_UNITS if self.few and runner.name == "units" else np.inf
            note = self._advance(runner, share * total, 1.0 if counted and runner.name == "boxes" else share, most)
        turn = 0
        while True:
            if (why := self._over()) is not None:
                return why
            left = self.limit.seconds - self.limit.elapsed()
            leader = min(self.runners, key=lambda r: r.gap)
            open_ = [r for r in self.runners if not r.finished and (r is leader or r.gap < 0.99 * r.before)]
            if not open_:
                return note or Stop("what is left cannot be decided by splitting further", Status.UNDECIDED)
            # Few dimensions: boxes alone, once they lead. Else the leader has most of the time, the others a little.
            if self.few and leader.name == "boxes" and not leader.finished:
                return self._advance(leader, left) or self._over() or ""
            slice_ = 0.3 * left if np.isfinite(left) else 10.0 * 2.0 ** (turn // 2)
            for runner in open_:
                if self._over() is None:
                    most = runner is leader or len(open_) == 1
                    note = self._advance(runner, slice_ if most else 0.1 * slice_, 0.3 if most else 0.03)
            turn += 1

    def _over(self) -> str | None:
        """Why the work is over: empty when the bracket is good enough, None when it is not over."""
        if good_enough(*self.bracket(), self.tolerance, self.limits):
            return ""
        return self.limit.spent(self._evaluations())

    def _advance(self, runner: _Runner, seconds: float, share: float = 1.0, nodes: float = np.inf) -> str:
        """Give a search some time (`nodes`: of units and slices); why it stopped before, if it cannot go on."""
        # A budget of regions alone is shared by count, so that its answer does not depend on the clock.
        counted = np.isinf(self.limit.seconds) and np.isfinite(self.limit.regions)
        # Splits of units and slices do not always count, so that they keep a time as well.
        by_count = counted and isinstance(runner.search, BoxSearch)
        ends = np.inf if by_count else min(self.limit.seconds, self.limit.elapsed() + seconds)
        sub = replace(self.limit, seconds=ends, whole=self.limit.whole or self.limit.seconds)
        runner.before = runner.gap
        runner.started = True
        if isinstance(runner.search, BoxSearch):
            others = self._evaluations() - runner.nodes
            own = replace(self.limit if counted else sub, regions=self.limit.regions - others)
            note = runner.search.advance(own, self.limit.seconds if self.few else None)
            # None: no box is left. Undecided: no box that is left can be split in double precision.
            runner.finished = not note or status_of(note) is Status.UNDECIDED
            return note if note and status_of(note) is Status.UNDECIDED else ""
        most = self._evaluations() + share * self.limit.regions if counted and share < 1 else self.limit.regions
        most = min(most, self._evaluations() + nodes)

        def spent() -> bool:
            low, high = self.bracket()
            self.report(self._evaluations(), f"[{low:.6g}, {high:.6g}]")
            late = self._evaluations() >= most or sub.spent(self._evaluations()) is not None
            return late or good_enough(low, high, self.tolerance, self.limits)

        runner.search.advance(spent)
        runner.finished = runner.search.exhausted
        return ""

    def _evaluations(self) -> int:
        return sum(runner.nodes for runner in self.runners)

    def _method(self) -> str:
        """Which search proved which bound."""
        ends = {runner.name: runner.bracket for runner in self.runners if runner.started}
        if not ends:
            return "linear bounds"
        low = max(ends, key=lambda name: ends[name][0])
        high = min(ends, key=lambda name: ends[name][1])
        words = {"boxes": "splitting boxes", "units": "splitting units", "slices": "slices along a few directions"}
        if low == high or max(a for a, _ in ends.values()) == 0.0:
            return f"linear bounds, {words[high]}"
        return f"linear bounds: lower bound by {words[low]}, upper bound by {words[high]}"
