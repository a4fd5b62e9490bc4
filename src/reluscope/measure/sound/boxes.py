"""Brackets by splitting boxes of the law's standard coordinates: for laws seen in few dimensions.

On a box each row of the event has two linear bounds (substitution through the network, `search.py`); in these
coordinates the law is a product, so the mass of box and half-space is known to many digits (`mass.py`), and the
two half-spaces bracket the box's share. Boxes with the most undecided mass are bisected; units that keep one sign on a
box are folded away, so that small boxes cost little however deep the network is.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from reluscope.answer import Status, Stop
from reluscope.budget import Budget
from reluscope.events import PlacedEvent
from reluscope.measure.sound.chain import Chain, chain
from reluscope.measure.sound.frame import Frame
from reluscope.measure.sound.tasks import Result, Task, bisect, halves, start
from reluscope.measure.sound.witness import around, witnesses
from reluscope.progress import Report

_TASKS = 3000
"""Boxes that get a reduced network of their own before the compiled search takes over."""

_LOOK_EVERY = 1000
"""Boxes after which a run by count looks whether its bracket is good."""

_FIRST_STEP = 24.0
"""How much finer each round is than the one before."""


_DEFAULT_SHARE = 0.01


def good_enough(low: float, high: float, tolerance: float | None) -> bool:
    """Whether a bracket is narrow enough: half its width within `tolerance`, or 1 % of the upper bound."""
    if tolerance is None:
        return high - low <= _DEFAULT_SHARE * high
    return 0.5 * (high - low) <= tolerance


@dataclass(eq=False)
class BoxSearch:
    """One run: tasks with their brackets, refined round by round."""

    rows: PlacedEvent
    frames: tuple[Frame, ...]
    limit: Budget
    tolerance: float | None
    report: Report
    fixed: tuple[float, float] = (0.0, 0.0)
    """Bounds of what components that are one point add."""
    tasks: list[Task] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    settled: dict[int, list[float]] = field(default_factory=dict)
    roots: dict[int, Chain] = field(default_factory=dict)
    floor: dict[int, float] = field(default_factory=dict)
    boxes: int = 0

    threshold: float | None = None
    started: bool = False

    def advance(self, limit: Budget) -> str | None:
        """Work until the bracket is good or `limit` is spent: why it stopped, "" when it is good."""
        self.limit = limit
        note: str | None = None
        if not self.started:
            self.started = True
            note = self._spread()
        if note is None and self.tasks:
            note = self._rounds()
        return note

    # -- the bracket ---------------------------------------------------------------------------------------------

    def bracket(self) -> tuple[float, float]:
        """The bracket so far: sums over frames in a fixed order, rounded outward."""
        low, high = self.fixed
        complete = high == 0.0
        sums = {id(f): list(self.settled.get(i, [0.0, 0.0])) for i, f in enumerate(self.frames)}
        for task, result in zip(self.tasks, self.results, strict=True):
            both = sums[id(task.frame)]
            both[0] += result.inside
            both[1] += result.possible
        for i, frame in enumerate(self.frames):
            inside, possible = sums[id(frame)]
            inside = max(inside, self.floor.get(i, 0.0))
            complete &= possible == inside == 0.0
            low += frame.weight * max(0.0, inside / frame.total[1] - frame.unsure)
            high += frame.weight * min(1.0, possible / frame.total[0] + frame.beyond)
        if complete and not any(frame.beyond for frame in self.frames):
            return 0.0, 0.0
        if not self.frames and low == high and low in (0.0, 1.0):  # points alone, all of them in or out
            return low, high
        slack = 1e-15 * (len(self.tasks) + 16)
        return max(0.0, low * (1 - slack)), min(1.0, high * (1 + slack))

    def whole(self) -> tuple[float, float]:
        """The bracket when the event is the whole box."""
        from reluscope.measure.sound.mass import side_mass

        low, high = self.fixed
        for frame in self.frames:
            if (frame.lower > frame.upper).any():
                continue
            if frame.gaussian:
                mass = float(np.prod([side_mass(a, b) for a, b in zip(frame.lower, frame.upper, strict=True)]))
            else:
                mass = float(np.prod((frame.upper - frame.lower) / frame.width))
            slack = (frame.d + 4) * 1e-13 if mass != frame.total[0] else 0.0
            low += frame.weight * max(0.0, mass * (1 - slack) / frame.total[1] - frame.unsure)
            high += frame.weight * min(1.0, mass * (1 + slack) / frame.total[0] + frame.beyond)
        if self.rows.within is None:
            low = high = 1.0
        return low, high

    def _done(self, low: float, high: float) -> bool:
        return good_enough(low, high, self.tolerance)

    @property
    def _counted(self) -> bool:
        """Whether only a number of boxes ends the work: then nothing may depend on the clock."""
        return self.limit.seconds == np.inf and self.limit.regions < np.inf

    # -- first boxes, one by one ---------------------------------------------------------------------------------

    def _spread(self) -> str | None:
        """Split the most undecided boxes until there are enough tasks; the reason when that was the end."""
        heap: list[tuple[float, int, Task]] = []
        stuck: list[Task] = []
        serial = 0
        index = {id(frame): i for i, frame in enumerate(self.frames)}
        self.settled = {i: [0.0, 0.0] for i in range(len(self.frames))}

        def sort_in(task: Task) -> None:
            nonlocal serial
            self.boxes += 1
            frame = task.frame
            if task.result.gap <= 0.0 or task.chain.n_rows == 0:
                both = self.settled[index[id(frame)]]
                both[0] += task.result.inside
                both[1] += task.result.possible
            elif task.axis < 0:
                stuck.append(task)
            else:
                heapq.heappush(heap, (-task.result.gap * frame.weight / frame.total[0], serial, task))
                serial += 1

        for frame in self.frames:
            if (frame.lower >= frame.upper).any():
                continue
            reach = np.maximum(np.abs(frame.lower), np.abs(frame.upper))
            root = chain(frame.network, frame.first_error, reach, self.rows.G, self.rows.g, self.rows.strict)
            self.roots[index[id(frame)]] = root
            sort_in(start(frame, self.rows, root))
        reason: str | None = None
        checked, looked = time.monotonic(), self.boxes
        while heap and len(heap) < _TASKS:
            task = heapq.heappop(heap)[2]
            for half in halves(task, self.rows):
                sort_in(half)
            reason = self.limit.spent(self.boxes)
            if reason is not None:
                break
            if self.boxes - looked > _LOOK_EVERY if self._counted else time.monotonic() - checked > 0.2:
                checked, looked = time.monotonic(), self.boxes
                self.tasks = [t for *_, t in heap] + stuck
                self.results = [t.result for t in self.tasks]
                low, high = self.bracket()
                self.report(self.boxes, f"[{low:.6g}, {high:.6g}]")
                if self._done(low, high):
                    reason = ""
                    break
        self.tasks = [t for *_, t in sorted(heap, key=lambda item: item[:2])] + stuck
        self.results = [t.result for t in self.tasks]
        return reason

    # -- rounds of the compiled search ---------------------------------------------------------------------------

    def _rounds(self) -> str:
        """Refine all tasks to a common threshold, then to a finer one, until the bracket is good or time is up."""
        workers = max(1, min(os.cpu_count() or 1, 8))
        shares = [t.frame.weight / t.frame.total[0] for t in self.tasks]
        total = sum(s * r.gap for s, r in zip(shares, self.results, strict=True))
        if self.threshold is None:
            self.threshold = total / (8.0 * len(self.tasks))
        while True:
            low, high = self.bracket()
            if self._done(low, high):
                return ""
            spent = self.limit.spent(self.boxes)
            if spent is not None:
                return spent
            began = self.limit.elapsed()
            order = sorted(
                (i for i, r in enumerate(self.results) if r.gap > 0.0),
                key=lambda i: (-shares[i] * self.results[i].gap, i),
            )
            before = self.boxes
            reason = self._round(order, [self.threshold / s for s in shares], workers)
            if reason is not None:
                return reason
            if self.boxes - before <= len(order) and self.threshold < 1e-30 * total:
                return Stop("what is left cannot be decided in double precision", Status.UNDECIDED)
            if self.bracket()[0] == 0.0:
                self._plant()
            self.threshold /= self._step(self.limit.elapsed() - began)

    def _plant(self) -> None:
        """Look for a point of the event and a small box around it that is surely inside: a positive lower bound."""
        if self.floor:
            return
        for i, root in self.roots.items():
            self.floor[i] = 0.0
            for point in witnesses(self.frames[i], self.rows):
                mass, boxes = around(self.frames[i], self.rows, root, point, self.limit)
                self.boxes += boxes
                self.floor[i] = max(self.floor[i], mass)
                if self.limit.spent(self.boxes) is not None:
                    return

    def _step(self, took: float) -> float:
        """How much finer the next round may be: so that it ends with the budget, if the budget is near.

        A round that is f times finer takes about f^0.55 times as long.
        """
        left = self.limit.seconds - self.limit.elapsed()
        if not left < np.inf:
            return _FIRST_STEP
        room = max(left, 1e-3) / max(took, 1e-3)
        if room > 3.0 * _FIRST_STEP**0.55:
            return _FIRST_STEP
        return float(max(1.5, (0.9 * room) ** (1 / 0.55)))

    def _round(self, order: list[int], thresholds: list[float], workers: int) -> str | None:
        stop = np.zeros(1, np.uint8)
        # By count, one task after the other: which of several the count would end is a matter of the clock.
        at_once = 1 if self._counted else workers + 2
        shown, looked = time.monotonic(), self.boxes
        with ThreadPoolExecutor(workers) as pool:
            queue: Iterator[int] = iter(order)
            running: dict[Future[Result], int] = {}
            reason: str | None = None

            def feed() -> None:
                while reason is None and len(running) < at_once:
                    i = next(queue, None)
                    if i is None:
                        return
                    most = 1 << 60 if self.limit.regions == np.inf else max(2, int(self.limit.regions) - self.boxes)
                    running[pool.submit(bisect, self.tasks[i], self.rows, thresholds[i], most, stop)] = i

            feed()
            try:
                while running:
                    finished, _ = wait(running, timeout=0.05, return_when=FIRST_COMPLETED)
                    for future in finished:
                        i, found = running.pop(future), future.result()
                        self.boxes += found.boxes
                        if found.gap < self.results[i].gap:
                            self.results[i] = _tighter(self.results[i], found)
                    if reason is None:
                        reason = self.limit.spent(self.boxes)
                    late = self.boxes - looked > _LOOK_EVERY if self._counted else time.monotonic() - shown > 0.2
                    if reason is None and late:
                        shown, looked = time.monotonic(), self.boxes
                        low, high = self.bracket()
                        self.report(self.boxes, f"[{low:.6g}, {high:.6g}]")
                        if self._done(low, high):
                            reason = ""
                    if reason is not None:
                        stop[0] = 1
                    feed()
            finally:
                stop[0] = 1
        return reason


def _tighter(a: Result, b: Result) -> Result:
    return Result(max(a.inside, b.inside), min(a.possible, b.possible), b.boxes)
