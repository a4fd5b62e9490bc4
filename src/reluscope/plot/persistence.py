"""Pictures of persistence: when parts and holes of sublevel sets appear, and when they go."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope.cells.topology import Persistence
from reluscope.plot._axes import axes, expect, name_axes

_NAMES = ("parts", "holes", "hollows")


def plot_persistence(persistence: Persistence, ax: Any = None, **style: Any) -> Any:
    """A bar for each feature, from birth to death.

    Parameters
    ----------
    persistence : Persistence
        What `reluscope.persistence(net, box)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **style
        Keywords of `Axes.plot`.

    Returns
    -------
    matplotlib Axes
    """
    expect(persistence, Persistence, "persistence", "reluscope.persistence(net, box)")
    ax = axes(ax)
    finite = persistence.pairs[:, 1:][np.isfinite(persistence.pairs[:, 1:])]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    end = high + 0.1 * max(high - low, 1e-12)
    row = 0
    for k in np.unique(persistence.pairs[:, 0]).astype(int):
        bars = persistence.of_dimension(int(k))
        name = _NAMES[k] if k < len(_NAMES) else f"dimension {k}"
        for i, (birth, death) in enumerate(bars):
            ends = {"color": f"C{k}", "linewidth": 3.0, "solid_capstyle": "butt"} | style
            ax.plot([birth, min(death, end)], [row, row], label=name if i == 0 else None, **ends)
            if death > end:
                ax.plot(end, row, ">", color=ends["color"], markersize=6)
            row += 1
    name_axes(ax, "value", "", "Features of the sublevel sets")
    ax.set_yticks([])
    ax.set_ylim(row - 0.3, -0.7)
    ax.legend(loc="lower right")
    return ax
