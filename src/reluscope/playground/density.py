"""The density of the shown output, and which part of it is in the event."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope.playground.session import View

_POINTS, _BINS = 121, 48
_DRAWS = 4000
_WORK = 2e8
"""Products that the draws may take: a large network gets fewer of them."""

_LEAST_DRAWS = 200
_MOST_ATOMS = 6


def output_density(view: View, out: Any, *, exact: bool) -> dict[str, Any]:
    """The density of the chosen output: of the exact law where that is known, else a histogram of draws.

    `t` are places and `p` densities there ("exact"), or `t` the edges of bars and `p` their heights ("draws"). Single
    values with a probability of their own stand in `atoms`.
    """
    o = view.output
    draws = int(np.clip(_WORK / view.net.n_parameters, _LEAST_DRAWS, _DRAWS))
    y = view.net(view.law().sample(draws, rng=0))[:, o]
    low, high = (float(v) for v in np.quantile(y, [0.001, 0.999]))
    pad = 0.15 * (high - low) or 0.5 * max(abs(low), 1.0)
    low, high = low - pad, high + pad
    if not exact:
        heights, edges = np.histogram(y, bins=_BINS, range=(low, high), density=True)
        return {"kind": "draws", "draws": draws, "t": edges.tolist(), "p": heights.tolist(), "atoms": [], "output": o}
    t = np.linspace(low, high, _POINTS)
    atoms = out.atoms(o)
    heaviest = np.argsort(-atoms.mass.value, kind="stable")[:_MOST_ATOMS]
    return {
        "kind": "exact", "t": t.tolist(), "p": np.asarray(out.pdf(t, o).value).tolist(), "output": o,
        "atoms": [[float(atoms.value[i]), float(atoms.mass.value[i])] for i in heaviest if atoms.mass.value[i] > 1e-9],
    }  # fmt: skip


def output_intervals(event: Any, output: int) -> list[list[float | None]] | None:
    """The values of one output that are in an event, as intervals; None where other things decide as well."""
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
    return [[a if np.isfinite(a) else None, b if np.isfinite(b) else None] for a, b in merged]
