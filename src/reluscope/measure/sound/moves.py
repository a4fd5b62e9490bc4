"""Bounds of how likely a decision can change within a radius of the input: boxes, with the worst move inside.

On a box of inputs, widened by all moves, every margin has an affine function of (x, move) below it and one above. The
worst move costs an affine function the radius times the dual norm of its slope, so both stay affine in x: half-spaces,
whose masses in the box bracket how much of it keeps its decision (`search.py`). Moves are not split: the bracket does
not shrink to a point, and is the narrower the fewer units change sign within the radius.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reluscope._check import describe
from reluscope.answer import Answer, Status, Stop, status_of
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.events import Case, Event, place
from reluscope.inputs import Law, standard
from reluscope.measure.sound.boxes import BoxSearch
from reluscope.measure.sound.frame import Frame, frames
from reluscope.measure.sound.search import NORM_1, NORM_2, NORM_INF
from reluscope.measure.sound.turn import turned
from reluscope.network import Network
from reluscope.progress import Report
from reluscope.threads import blas_threads

_NORMS = {"inf": NORM_INF, "2": NORM_2, "1": NORM_1}


def bound_changes(
    scores: Network, law: Law, radius: float, norm: str, limit: Budget, tolerance: float | None, report: Report
) -> Answer:
    """A guaranteed bracket of the probability that the largest output changes within `radius` of x."""
    if law.atoms is not None or any(part.source is not None for part in standard(law, scores)):
        raise InputError(
            f"sound bounds of robustness are made for laws with a density of their own, got {describe(law)}; "
            "ask for confidence"
        )
    rows = place(scores, law, _keeps(scores))
    own = (turned(frame, rows) for frame in frames(law, scores, None))
    parts = tuple(_widened(frame, scores, radius, _NORMS[norm]) for frame in own)
    search = BoxSearch(rows, parts, limit, tolerance, report)
    try:
        with blas_threads(max(scores.widths)):
            note = search.advance(limit)
    except KeyboardInterrupt:
        note = Stop("interrupted; the bracket so far", Status.INTERRUPTED)
    if note and status_of(note) is Status.UNDECIDED:
        note = Stop("what is left open is left open by the moves, which are not split", Status.UNDECIDED)
    keeps = search.bracket()
    low, high = 1.0 - float(keeps[1]), 1.0 - float(keeps[0])
    low, high = max(0.0, low - 1e-15 * (low < 1.0)), min(1.0, high + 1e-15 * (high > 0.0))
    work: dict[str, Any] = {"evaluations": search.boxes, "seconds": limit.elapsed(), "status": status_of(note or None)}
    method = "linear bounds with the worst move, splitting boxes"
    return Answer(0.5 * (low + high), low, high, "sound", method=method, note=note or "", **work)


def _keeps(scores: Network) -> Event:
    """One case for each decision: its output is the largest, and the first of those that are."""
    n, m = scores.n_inputs, scores.n_outputs
    free = np.full(n, np.inf)
    cases = []
    for own in range(m):
        rivals = np.delete(np.arange(m), own)
        G = np.eye(m)[rivals] - np.eye(m)[own]
        cases.append(Case(-free, free, np.zeros((m - 1, n)), G, np.zeros(m - 1), rivals < own))
    return Event("keeps its decision", n, m, tuple(cases))


def _widened(frame: Frame, scores: Network, radius: float, norm: int) -> Frame:
    """The frame with the moves of all inputs as further coordinates."""
    first, rest = frame.network.layers[0], frame.network.layers[1:]
    weight = np.concatenate([first.dense(), scores.layers[0].dense()], axis=1)
    hidden = len(frame.network.layers) > 1
    network = Network(
        [(weight, first.bias, *([first.units] if hidden else [])),
         *((layer.weight, layer.bias, *([layer.units] if layer is not rest[-1] else [])) for layer in rest)]
    )  # fmt: skip
    moves = np.full(scores.n_inputs, radius)
    return replace(
        frame,
        network=network,
        lower=np.concatenate([frame.lower, -moves]),
        upper=np.concatenate([frame.upper, moves]),
        width=np.concatenate([frame.width, 2.0 * moves]),
        free=scores.n_inputs,
        norm=norm,
    )
