"""Getting an Axes, and the house style of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reluscope._check import FloatArray, describe, instance
from reluscope._extras import require
from reluscope.errors import InputTypeError

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
        raise InputTypeError(f"{name} must be {kind.__name__}, as {source} gives, got {describe(value)}")


def axes(ax: Axes | None = None, *, figsize: tuple[float, float] = (5.2, 4.4)) -> Axes:
    """`ax` itself, or the Axes of a new figure that belongs to no window."""
    if ax is None:
        return figure(None, figsize).add_subplot()
    require("matplotlib", "plot")
    from matplotlib.axes import Axes

    return instance(ax, "ax", Axes, "a matplotlib Axes")


def figure(given: Any, size: tuple[float, float], dpi: int = 150) -> Any:
    """`given` itself, or a new figure that belongs to no window."""
    require("matplotlib", "plot")
    from matplotlib.figure import Figure, FigureBase

    if given is not None:
        return instance(given, "figure", FigureBase, "a matplotlib Figure")
    return Figure(figsize=size, dpi=dpi, layout="constrained")


def name_axes(ax: Axes, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Name the axes and the picture; what is None stays as it is."""
    ax.set(**{f"{axis}label": text for axis, text in (("x", x), ("y", y)) if text is not None})
    if title is not None:
        ax.set_title(title, fontsize="medium")


def limit(ax: Axes, lower: FloatArray, upper: FloatArray) -> None:
    """Show the rectangle between two corners."""
    ax.set(xlim=(lower[0], upper[0]), ylim=(lower[1], upper[1]))


def save(ax: Axes, path: Any) -> None:
    """Write the figure of an Axes to a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure: Any = ax.figure  # SubFigures have no savefig
    FigureCanvasAgg(figure)
    figure.savefig(path)


def legend_above(ax: Axes) -> None:
    """The legend in one line above the picture."""
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
