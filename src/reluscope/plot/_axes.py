"""Getting an Axes, and the house style of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reluscope._check import describe
from reluscope._extras import require
from reluscope.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGE = "#33415c"
"""Colour of lines between regions."""

BLUE, RED, GREY, ORANGE = "#1d6fb8", "#d1495b", "#8d99ae", "#e09f3e"
EXACT, DRAWN = BLUE, RED
"""Colours of what is computed and of Monte Carlo beside it."""


def expect(value: Any, kind: type, name: str, source: str) -> None:
    """Raise a clear error unless `value` is what the picture is of."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {kind.__name__}, as {source} gives, got {describe(value)}")


def axes(ax: Axes | None = None, *, figsize: tuple[float, float] = (5.2, 4.4)) -> Axes:
    """`ax` itself, or the Axes of a new figure that belongs to no window."""
    if ax is not None:
        return ax
    require("matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, dpi=150, layout="constrained")
    return figure.add_subplot()


def save(ax: Axes, path: Any) -> None:
    """Write the figure of an Axes to a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure: Any = ax.figure  # SubFigures have no savefig
    FigureCanvasAgg(figure)
    figure.savefig(path)


def legend_above(ax: Axes) -> None:
    """The legend in one line above the picture."""
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
