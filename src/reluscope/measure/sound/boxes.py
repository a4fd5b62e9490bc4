"""Brackets by splitting boxes of the law's standard coordinates: for laws seen in few dimensions.

On a box each row of the event has two linear bounds (substitution through the network, `search.py`); in these
coordinates the law is a product, so the mass of box and half-space is known to many digits (`mass.py`), and the
two half-spaces bracket the box's share. Boxes with the most undecided mass are bisected; units that keep one sign on a
box are folded away, so that small boxes cost little however deep the network is.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.answer import Status, Stop
from reluscope.budget import Budget
from reluscope.events import PlacedEvent
from reluscope.measure.sound.chain import Chain, chain
from reluscope.measure.sound.frame import Frame
from reluscope.measure.sound.tasks import Result, Task, bisect, bisect_all, halves, look, start
from reluscope.measure.sound.witness import around, witnesses
from reluscope.progress import Report
from reluscope.workers import jobs_at_hand

_TASKS = 3000
"""Boxes that get a reduced network of their own before the compiled search takes over."""

_LOOK_EVERY = 1000
"""Boxes after which a run by count looks whether its bracket is good."""

_PARCEL = 256
"""Boxes, in the round before, of the tasks that a worker takes at a time."""

_STEP = 24.0
"""How much finer each round is than the one before."""

_GROWTH = 0.55
"""A round that is f times finer takes about f^0.55 times as long."""

_CLOSING = 30.0
"""Rounds like the last one for which there is time, below which the next round is sized to end with the budget."""

_STRIPES = 16
"""In the last round each of so many parts of the tasks is like the others: the first ones show the pace."""

_DEFAULT_SHARE = 0.01

NO_LIMITS = (0.0, np.inf)
"""Limits that no bracket is on one side of, but for the trivial one."""


def good_enough(low: float, high: float, tolerance: float | None, limits: tuple[float, float] = NO_LIMITS) -> bool:
    """Whether a bracket is good: half its width within `tolerance`, or 1 % of the upper bound.

    Or it decides: it ends below the first of the `limits`, or starts at the second or above.
    """
    if high < limits[0] or low >= limits[1]:
        return True
    if tolerance is None:
        return high - low <= _DEFAULT_SHARE * high
    return 0.5 * (high - low) <= tolerance


@dataclass(eq=False)
class _Round:
    """One pass over the tasks: each is bisected until no box has more than `threshold` undecided.

    A round that is cut short goes on when there is time again. The closing round has all the time that is left: its
    threshold is steered by the pace of the tasks that are done.
    """

    threshold: float
    order: list[int]
    """Tasks that are still to be bisected."""
    closing: bool = False
    seconds: float = 0.0
    boxes: int = 0
    done: float = 0.0
    """What the tasks that are done took in the round before, in boxes."""
    done_here: float = 0.0
    """What they took in this one, had all had its threshold."""
    finer: dict[int, float] = field(default_factory=dict)
    """How much finer than the threshold tasks were bisected, where the pace allowed for it."""


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
    limits: tuple[float, float] = NO_LIMITS
    """The work is over when the bracket ends below the first, or starts at the second."""
    tasks: list[Task] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    settled: dict[int, list[float]] = field(default_factory=dict)
    roots: dict[int, Chain] = field(default_factory=dict)
    floor: dict[int, float] = field(default_factory=dict)
    boxes: int = 0

    costs: list[int] = field(default_factory=list)
    """Boxes that each task took when it was last bisected."""
    round: _Round | None = None
    horizon: float = np.inf
    """The second at which the time of this search ends, at this call or a later one: rounds are sized for it."""
    started: bool = False
    _numbers: tuple[list[Task], npt.NDArray[np.int64]] | None = None
    """The frame of each task, by number, for the tasks at hand."""
    known: bool = False
    """Whether the tasks cover everything: not before the first boxes have been looked at."""

    def advance(self, limit: Budget, horizon: float | None = None) -> str | None:
        """Work until the bracket is good or `limit` is spent: why it stopped, "" when it is good.

        A round that is cut short goes on at the next call. `horizon`: the second at which the last call will end.
        """
        self.limit = limit
        self.horizon = limit.seconds if horizon is None else horizon
        note: str | None = None
        if not self.started:
            self.started = True
            note = self._spread()
        if note is None and self.tasks:
            note = self._rounds()
        return note

    # -- in a file -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, FloatArray]:
        """The boxes and their brackets, what is settled, and how fine they are: for `restore`, in another process."""
        d = max((frame.d for frame in self.frames), default=0)
        index = {id(frame): i for i, frame in enumerate(self.frames)}
        tasks, results, settled = self.tasks, list(self.results), self.settled
        lower, upper = np.zeros((len(tasks), d)), np.zeros((len(tasks), d))
        for i, task in enumerate(tasks):
            lower[i, : task.frame.d], upper[i, : task.frame.d] = task.lower, task.upper
        return {
            "frame": np.array([index[id(t.frame)] for t in tasks], np.float64),
            "lower": lower,
            "upper": upper,
            "inside": np.array([r.inside for r in results], np.float64),
            "possible": np.array([r.possible for r in results], np.float64),
            "settled": np.array([settled[i] for i in range(len(self.frames))], np.float64).reshape(-1, 2),
            "floor": np.array([self.floor.get(i, 0.0) for i in range(len(self.frames))], np.float64),
        }

    def restore(self, state: Mapping[str, FloatArray]) -> bool:
        """Go on from there; False (and nothing has changed) if it does not fit the frames."""
        n, d = len(state["frame"]), max((frame.d for frame in self.frames), default=0)
        shapes = state["lower"].shape == state["upper"].shape == (n, d) and len(state["settled"]) == len(self.frames)
        alike = len(state["inside"]) == len(state["possible"]) == n and len(state["floor"]) == len(self.frames)
        numbers = state["frame"].astype(np.int64)
        if not (shapes and alike) or (numbers < 0).any() or (numbers >= len(self.frames)).any():
            return False
        if (state["inside"] < 0).any() or (state["possible"] < state["inside"]).any():
            return False
        roots = {i: self._root(frame) for i, frame in enumerate(self.frames) if not (frame.lower >= frame.upper).any()}
        tasks, results = [], []
        for k, i in enumerate(numbers.tolist()):
            frame = self.frames[i]
            low, high = state["lower"][k, : frame.d].copy(), state["upper"][k, : frame.d].copy()
            if i not in roots or (low < frame.lower).any() or (high > frame.upper).any() or (low > high).any():
                return False
            task = look(frame, self.rows, roots[i], low, high, 1e-3)
            tasks.append(task)
            kept = Result(float(state["inside"][k]), float(state["possible"][k]))
            results.append(_tighter(task.result, kept))
        self.roots, self.tasks, self.results = roots, tasks, results
        self.settled = {i: list(map(float, both)) for i, both in enumerate(state["settled"])}
        self.floor = {i: float(mass) for i, mass in enumerate(state["floor"]) if mass > 0.0}
        self.started = self.known = True
        return True

    def _root(self, frame: Frame) -> Chain:
        reach = np.maximum(np.abs(frame.lower), np.abs(frame.upper))
        return chain(frame.network, frame.first_error, reach, self.rows.G, self.rows.g, self.rows.strict)

    # -- the bracket ---------------------------------------------------------------------------------------------

    def bracket(self) -> tuple[float, float]:
        """The bracket so far: sums over frames in a fixed order, rounded outward."""
        if self.started and not self.known:
            return 0.0, 1.0
        low, high = self.fixed
        complete = high == 0.0
        tasks, results, settled = self.tasks, self.results, self.settled
        if self._numbers is None or self._numbers[0] is not tasks:
            index = {id(frame): i for i, frame in enumerate(self.frames)}
            self._numbers = tasks, np.array([index[id(task.frame)] for task in tasks], np.int64)
        sums = [
            np.bincount(self._numbers[1], [getattr(r, name) for r in results], minlength=len(self.frames)).tolist()
            for name in ("inside", "possible")
        ]
        for i, frame in enumerate(self.frames):
            inside, possible = (s[i] + before for s, before in zip(sums, settled.get(i, [0.0, 0.0]), strict=True))
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
        return good_enough(low, high, self.tolerance, self.limits)

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
        settled = {i: [0.0, 0.0] for i in range(len(self.frames))}

        def take_stock(tasks: list[Task]) -> None:
            """What the bracket is made of, all of it at one moment: Ctrl-C may come between any two."""
            stock = tasks, [t.result for t in tasks], {i: list(both) for i, both in settled.items()}
            self.tasks, self.results, self.settled = stock
            self.known = True

        def sort_in(task: Task) -> None:
            nonlocal serial
            self.boxes += 1
            frame = task.frame
            if task.result.gap <= 0.0 or task.chain.n_rows == 0:
                both = settled[index[id(frame)]]
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
            root = self._root(frame)
            self.roots[index[id(frame)]] = root
            sort_in(start(frame, self.rows, root))
        take_stock([t for *_, t in heap] + stuck)
        reason: str | None = None
        checked, looked = time.monotonic(), self.boxes
        while heap and len(heap) < _TASKS:
            task = heapq.heappop(heap)[2]
            for half in halves(task, self.rows):
                sort_in(half)
            reason = self.limit.spent(self.boxes)
            if reason is not None:
                break
            if self.boxes - looked > _look_every(looked) if self._counted else time.monotonic() - checked > 0.2:
                checked, looked = time.monotonic(), self.boxes
                take_stock([t for *_, t in heap] + stuck)
                low, high = self.bracket()
                self.report(self.boxes, f"[{low:.6g}, {high:.6g}]")
                if self._done(low, high):
                    reason = ""
                    break
        take_stock([t for *_, t in sorted(heap, key=lambda item: item[:2])] + stuck)
        return reason

    # -- rounds of the compiled search ---------------------------------------------------------------------------

    def _rounds(self) -> str:
        """Refine all tasks to a common threshold, then to a finer one, until the bracket is good or time is up."""
        workers = jobs_at_hand()
        shares = [t.frame.weight / t.frame.total[0] for t in self.tasks]
        total = sum(s * r.gap for s, r in zip(shares, self.results, strict=True))
        if self.round is None:
            self.costs = [1] * len(self.tasks)
            self.round = _Round(total / (8.0 * len(self.tasks)), self._order(shares))
        gap = total
        while True:
            low, high = self.bracket()
            if self._done(low, high):
                return ""
            spent = self.limit.spent(self.boxes)
            if spent is not None:
                return spent
            now, size = self.round, len(self.round.order)
            began, before = self.limit.elapsed(), self.boxes
            try:
                reason = self._work(now, shares, workers)
            finally:
                now.seconds += self.limit.elapsed() - began
                now.boxes += self.boxes - before
            if reason is not None:
                return reason
            if now.boxes <= size and now.threshold < 1e-30 * total:
                return Stop("what is left cannot be decided in double precision", Status.UNDECIDED)
            if self.bracket()[0] == 0.0:
                self._plant()
            low, high = self.bracket()
            step, closing = self._step(now, gap, high - low)
            gap = high - low
            self.round = _Round(now.threshold / step, self._order(shares, closing), closing)

    def _order(self, shares: list[float], closing: bool = False) -> list[int]:
        """Tasks with something undecided, the most first; for the closing round in stripes that are like each other."""
        gaps = [s * r.gap for s, r in zip(shares, self.results, strict=True)]
        order = sorted((i for i, gap in enumerate(gaps) if gap > 0.0), key=lambda i: (-gaps[i], i))
        return [i for k in range(_STRIPES) for i in order[k::_STRIPES]] if closing else order

    def _plant(self) -> None:
        """Look for a point of the event and a small box around it that is surely inside: a positive lower bound."""
        if self.floor or any(frame.free for frame in self.frames):
            return
        for i, root in self.roots.items():
            self.floor[i] = 0.0
            for point in witnesses(self.frames[i], self.rows):
                mass, boxes = around(self.frames[i], self.rows, root, point, self.limit)
                self.boxes += boxes
                self.floor[i] = max(self.floor[i], mass)
                if self.limit.spent(self.boxes) is not None:
                    return

    def _step(self, now: _Round, before: float, gap: float) -> tuple[float, bool]:
        """How much finer the next round may be, and whether it is the closing one.

        It ends with the budget, if that is near, or with the bracket that is wanted.
        """
        high = self.bracket()[1]
        wanted = _DEFAULT_SHARE * high if self.tolerance is None else 2.0 * self.tolerance
        enough = np.inf
        if wanted > 0.0:
            fall = np.log(max(before / max(gap, 1e-300), 1.0)) / np.log(_STEP)
            enough = max(1.5, 1.5 * (max(gap, 1e-300) / wanted) ** (1.0 / min(max(fall, 0.2), 1.0)))
        room = max(self.limit.regions - self.boxes, 1.0) / max(now.boxes, 1)
        step = _STEP if room > 3.0 * _STEP**_GROWTH else max(1.5, (0.9 * room) ** (1.0 / _GROWTH))
        room = max(self.horizon - self.limit.elapsed(), 1e-3) / max(now.seconds, 1e-3)
        closing = room < _CLOSING and np.isinf(self.limit.regions)
        if closing:
            step = max(1.5, (0.95 * room) ** (1.0 / _GROWTH))
        elif np.isfinite(room):
            step = min(step, max(1.5, (0.9 * room) ** (1.0 / _GROWTH)))
        return float(min(step, enough)), bool(closing and step <= enough)

    def _finer(self, now: _Round, seconds: float, boxes: int) -> float:
        """How much finer than its threshold the closing round may be from here on, to end with the budget."""
        left = sum(self.costs[i] for i in now.order)
        if not now.closing or now.done < 0.03 * (now.done + left) or not left:
            return 1.0
        boxes_left = left * now.done_here / now.done
        seconds_left = 0.98 * (self.horizon - self.limit.elapsed())
        room = max(seconds_left, 0.0) / (boxes_left * seconds / max(boxes, 1))
        return float(np.clip(room ** (1.0 / _GROWTH), 0.2, 5.0))

    def _work(self, now: _Round, shares: list[float], workers: int) -> str | None:
        """Bisect the tasks that this round has not come to yet; why it ended before the last of them.

        Results count in the order of the tasks: a budget of regions ends at the same task for any number of workers.
        """
        stop = np.zeros(1, np.uint8)
        most = 1 << 60 if self.limit.regions == np.inf else max(2, int(self.limit.regions) - self.boxes)
        began, before = self.limit.elapsed(), self.boxes
        shown, looked = time.monotonic(), self.boxes
        finer = 1.0
        reason: str | None = None
        complete: set[int] = set()
        with ThreadPoolExecutor(workers) as pool:
            queue: Iterator[int] = iter(list(now.order))
            running: deque[tuple[list[int], Future[list[Result]]]] = deque()

            def threshold(i: int) -> float:
                return now.threshold / now.finer[i] / shares[i]

            def feed() -> None:
                while reason is None and len(running) < 4 * workers:
                    parcel: list[int] = []
                    boxes = 0
                    while boxes < _PARCEL and (i := next(queue, None)) is not None:
                        parcel.append(i)
                        now.finer[i] = finer
                        boxes += self.costs[i]
                    if not parcel:
                        return
                    given = [(self.tasks[i], threshold(i)) for i in parcel]
                    running.append((parcel, pool.submit(bisect_all, given, self.rows, most, stop)))

            def take(i: int, found: Result) -> None:
                left = self.limit.regions - self.boxes
                if found.boxes > left:  # the task at which the budget ends, with what is left of it
                    found = bisect(self.tasks[i], self.rows, threshold(i), max(2, int(left)), stop)
                elif not found.stopped:
                    complete.add(i)
                    now.done += self.costs[i]
                    now.done_here += found.boxes / now.finer[i] ** _GROWTH
                    self.costs[i] = max(1, found.boxes)
                self.boxes += found.boxes
                if found.gap < self.results[i].gap:
                    self.results[i] = _tighter(self.results[i], found)

            def check() -> str | None:
                low, high = self.bracket()
                self.report(self.boxes, f"[{low:.6g}, {high:.6g}]")
                return "" if self._done(low, high) else None

            feed()
            try:
                while running:
                    wait([running[0][1]], timeout=0.05)
                    while running and running[0][1].done():
                        parcel, future = running.popleft()
                        for i, found in zip(parcel, future.result(), strict=True):
                            if reason is not None and self._counted:
                                break
                            take(i, found)
                            if reason is None:
                                reason = self.limit.spent(self.boxes)
                            if reason is None and self._counted and self.boxes - looked > _look_every(looked):
                                looked, reason = self.boxes, check()
                    if reason is None:
                        reason = self.limit.spent(self.boxes)
                    if reason is None and not self._counted and time.monotonic() - shown > 0.2:
                        shown, reason = time.monotonic(), check()
                        now.order = [i for i in now.order if i not in complete]
                        seconds, boxes = self.limit.elapsed() - began, self.boxes - before
                        finer = self._finer(now, now.seconds + seconds, now.boxes + boxes)
                    if reason is not None:
                        stop[0] = 1
                    feed()
            finally:
                stop[0] = 1
                now.order = [i for i in now.order if i not in complete]
        return reason


def _look_every(boxes: int) -> int:
    """Boxes between two looks at the bracket, where nothing may depend on the clock: a look takes as long as some."""
    return max(_LOOK_EVERY, boxes // 16)


def _tighter(a: Result, b: Result) -> Result:
    return Result(max(a.inside, b.inside), min(a.possible, b.possible), b.boxes)
