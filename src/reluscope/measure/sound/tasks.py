"""Boxes with their own reduced networks, and one call of the compiled search on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.events import PlacedEvent
from reluscope.measure.sound.chain import Chain, padded
from reluscope.measure.sound.frame import Frame
from reluscope.measure.sound.mass import MASS_ERROR
from reluscope.measure.sound.search import search

Flag = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Result:
    """Bounds of the event's mass in a box, as a share of the component, and what it took."""

    inside: float
    possible: float
    boxes: int = 0
    stopped: bool = False
    faint: bool = False

    @property
    def gap(self) -> float:
        """Mass that is not decided."""
        return self.possible - self.inside


@dataclass(frozen=True, eq=False)
class Task:
    """A box of a frame, the network on it, and where to split it (`axis` < 0: nowhere)."""

    frame: Frame
    lower: FloatArray
    upper: FloatArray
    chain: Chain
    result: Result
    axis: int
    cut: float


def _bounds(out: FloatArray, frame: Frame) -> Result:
    """Outward rounding: relative errors of the masses of a box and of sums over boxes."""
    boxes = int(out[2])
    slack = (frame.d + 4) * MASS_ERROR + 4e-16 * (boxes + 8)
    inside = max(0.0, out[0] * (1.0 - slack))
    possible = out[1] * (1.0 + slack)
    if out[6] and possible < 1e-280:
        possible = 1e-280
    return Result(inside, max(inside, possible), boxes, bool(out[4]), bool(out[6]))


def start(frame: Frame, rows: PlacedEvent, chain: Chain) -> Task:
    """The whole box of a frame."""
    return look(frame, rows, chain, frame.lower, frame.upper, 1e-3)


def halves(task: Task, rows: PlacedEvent) -> list[Task]:
    """The two halves of a task, each with its reduced network."""
    found = []
    for side in (0, 1):
        lower, upper = task.lower.copy(), task.upper.copy()
        (upper if side == 0 else lower)[task.axis] = task.cut
        found.append(look(task.frame, rows, task.chain, lower, upper, 1e-3 * task.result.gap))
    return found


def look(frame: Frame, rows: PlacedEvent, chain: Chain, lower: FloatArray, upper: FloatArray, threshold: float) -> Task:
    """Bounds on one box without bisecting it, and the reduced network."""
    n = chain.n_units + chain.n_rows
    out, split = np.zeros(8), np.zeros(2)
    net, first, slack = np.empty(n * chain.stride), np.empty(n, np.int64), np.empty(n)
    counts = np.zeros(3 + chain.n_rows, np.int64)
    split[0] = -1.0
    spare = (split, net, first, slack, counts)
    _call(frame, rows, chain, lower, upper, threshold, 1, np.zeros(1, np.uint8), out, spare)
    if counts[2 + chain.n_rows]:
        k, r = int(counts[0]), int(counts[1])
        size = (k + r) * (chain.head + padded(k))
        chain = Chain(
            chain.d, chain.head, k, net[:size].copy(), first[: k + r].copy(), slack[: k + r].copy(),
            chain.rows[counts[2 : 2 + r]],
        )  # fmt: skip
    return Task(frame, lower, upper, chain, _bounds(out, frame), int(split[0]), float(split[1]))


def bisect(task: Task, rows: PlacedEvent, threshold: float, most: int, stop: Flag) -> Result:
    """Bisect a task until no box has more than `threshold` undecided; releases the interpreter's lock."""
    out = np.zeros(8)
    none = (np.zeros(2), np.empty(1), np.empty(1, np.int64), np.empty(1), np.zeros(1, np.int64))
    _call(task.frame, rows, task.chain, task.lower, task.upper, threshold, most, stop, out, none)
    return _bounds(out, task.frame)


def bisect_all(tasks: list[tuple[Task, float]], rows: PlacedEvent, most: int, stop: Flag) -> list[Result]:
    """`bisect` of several tasks, each with its threshold."""
    return [bisect(task, rows, threshold, most, stop) for task, threshold in tasks]


def _call(
    frame: Frame,
    rows: PlacedEvent,
    chain: Chain,
    lower: FloatArray,
    upper: FloatArray,
    threshold: float,
    most: int,
    stop: Flag,
    out: FloatArray,
    spare: tuple[FloatArray, FloatArray, npt.NDArray[np.int64], FloatArray, npt.NDArray[np.int64]],
) -> None:
    search(
        chain.d, frame.free, frame.norm, chain.head, chain.n_units, chain.n_rows, chain.net, chain.first, chain.slack,
        rows.case_of[chain.rows], rows.n_cases, lower, upper, frame.width, frame.gaussian, threshold, most, stop, out,
        *spare,
    )  # fmt: skip
