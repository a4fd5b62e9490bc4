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
