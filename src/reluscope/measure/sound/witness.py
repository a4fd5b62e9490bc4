"""Points of an event, and the mass of a small box around one that is surely inside.

A search by sampling and steepest descent proves nothing; the box around what it finds does. It gives a positive lower
end where the event is so rare that bisection from the outside would take long to reach it.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray
from reluscope.budget import Budget
from reluscope.events import PlacedEvent
from reluscope.measure.sound.chain import Chain
from reluscope.measure.sound.frame import Frame
from reluscope.measure.sound.tasks import bisect, look

_STARTS = 256
_STEPS = 60
_SAMPLES = 20_000
_HALVINGS = 24
_BOXES = 4000


def witnesses(frame: Frame, rows: PlacedEvent, most: int = 3) -> list[FloatArray]:
    """Points u of the frame's box with the largest margin inside the event, deepest first; none when not found."""
    rng = np.random.default_rng(0)
    low, high = np.maximum(frame.lower, -6.0), np.minimum(frame.upper, 6.0)
    # A truncated law may lie beyond: then next to its near side.
    low = np.where(frame.upper < -6.0, np.maximum(frame.lower, frame.upper - 1.0), low)
    high = np.where(frame.lower > 6.0, np.minimum(frame.upper, frame.lower + 1.0), high)
    if not frame.gaussian:
        low, high = frame.lower, frame.upper
    if frame.gaussian:
        points = np.clip(rng.standard_normal((_SAMPLES, frame.d)), frame.lower, frame.upper)
        points[: _SAMPLES // 2] = rng.uniform(low, high, (_SAMPLES // 2, frame.d))
    else:
        points = rng.uniform(low, high, (_SAMPLES, frame.d))
    worst = _margin(frame, rows, points)[0]
    order = np.argsort(worst, kind="stable")[:_STARTS]
    points, best = points[order], worst[order]
    where = points.copy()
    for step in range(_STEPS):
        _, row = _margin(frame, rows, where)
        C, _ = frame.network.output_maps(frame.network.pattern(where))
        gradient = np.einsum("nm,nmd->nd", rows.G[row], C)
        size = 0.05 * 0.93**step * (high - low)
        where = np.clip(where - size * np.sign(gradient), frame.lower, frame.upper)
        worst = _margin(frame, rows, where)[0]
        better = worst < best
        points[better], best[better] = where[better], worst[better]
    order = np.argsort(best, kind="stable")
    return [points[i] for i in order[:most] if best[i] < 0]


def _margin(frame: Frame, rows: PlacedEvent, U: FloatArray) -> tuple[FloatArray, np.ndarray]:
    """The event's least violation over cases (negative inside) and the row that decides it."""
    value = frame.network(U) @ rows.G.T - rows.g
    best = np.full(len(U), np.inf)
    row = np.zeros(len(U), dtype=np.intp)
    for case in range(rows.n_cases):
        mine = np.flatnonzero(rows.case_of == case)
        pick = value[:, mine].argmax(axis=1)
        worst = value[np.arange(len(U)), mine[pick]]
        better = worst < best
        best[better], row[better] = worst[better], mine[pick][better]
    return best, row


def around(frame: Frame, rows: PlacedEvent, root: Chain, point: FloatArray, limit: Budget) -> tuple[float, int]:
    """The largest mass that is surely inside among boxes of shrinking size around a point, and the boxes looked at."""
    span = frame.upper - frame.lower if not frame.gaussian else np.minimum(frame.upper - frame.lower, 8.0)
    stop = np.zeros(1, np.uint8)
    best, boxes = 0.0, 0
    for halving in range(2, _HALVINGS):
        half = span * 0.5**halving
        lower, upper = np.maximum(frame.lower, point - half), np.minimum(frame.upper, point + half)
        if not (lower < upper).all():
            break
        task = look(frame, rows, root, lower, upper, 1e-9)
        found = task.result
        if found.gap > 0 and task.axis >= 0:
            found = bisect(task, rows, found.gap * 1e-4, _BOXES, stop)
        boxes += found.boxes + 1
        if best > 0 and found.inside <= best:
            break
        best = max(best, found.inside)
        if limit.spent(boxes) is not None:
            break
    return best, boxes
