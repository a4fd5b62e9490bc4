"""What an event asks of one output alone."""

from __future__ import annotations

import numpy as np

from reluscope.events.record import Event


def output_intervals(event: Event, output: int) -> list[tuple[float, float]] | None:
    """The values of one output that are in an event, as intervals in order; None where other things decide as well.

    Ends belong to an interval or not, as the event says; that is not told here.
    """
    found: list[tuple[float, float]] = []
    for case in event.cases:
        others = np.delete(case.G, output, axis=1)
        bounded = np.isfinite(case.lower).any() or np.isfinite(case.upper).any()
        if bounded or np.any(case.A) or np.any(case.F) or others.any():
            return None
        low, high = -np.inf, np.inf
        for g, limit in zip(case.G[:, output].tolist(), case.g.tolist(), strict=True):
            if g > 0:
                high = min(high, limit / g)
            elif g < 0:
                low = max(low, limit / g)
            elif limit < 0:
                low, high = 1.0, 0.0
        if low <= high:
            found.append((low, high))
    merged: list[tuple[float, float]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
