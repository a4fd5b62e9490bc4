"""Getting an Axes, and the house style of pictures."""

from __future__ import annotations

from typing import Any

from reluscope._extras import require

EDGE = "#33415c"
"""Colour of lines between regions."""


def axes(ax: Any = None, *, figsize: tuple[float, float] = (5.2, 4.4)) -> Any:
    """`ax` itself, or the Axes of a new figure that belongs to no window."""
    if ax is not None:
        return ax
    require("matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, dpi=150, layout="constrained")
    return figure.add_subplot()


def save(ax: Any, path: Any) -> None:
    """Write the figure of an Axes to a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = ax.figure
    FigureCanvasAgg(figure)
    figure.savefig(path)
