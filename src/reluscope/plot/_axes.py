"""Getting an Axes, and the house style of pictures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, describe, instance
from reluscope._extras import require
from reluscope.errors import InputTypeError
from reluscope.schema import Label, Output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PYPLOT = "matplotlib.pyplot"

EDGE = "#33415c"
"""Colour of lines between regions."""

BLUE, RED, GREY, ORANGE = "#1d6fb8", "#d1495b", "#8d99ae", "#e09f3e"
EXACT, DRAWN = BLUE, RED
"""Colours of what is computed and of Monte Carlo beside it."""


def expect(value: Any, kind: type | tuple[type, ...], name: str, source: str) -> None:
    """Raise a clear error unless `value` is what the picture is of."""
    if not isinstance(value, kind):
        kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise InputTypeError(f"{name} must be {kinds}, as {source} gives, got {describe(value)}")


def axes(ax: Axes | None = None, *, figsize: tuple[float, float] = (5.2, 4.4)) -> Axes:
    """`ax` itself, or the Axes of a new figure."""
    if ax is None:
        return figure(None, figsize).add_subplot()
    require("matplotlib", "plot")
    from matplotlib.axes import Axes

    return instance(ax, "ax", Axes, "a matplotlib Axes")


def figure(given: Any, size: tuple[float, float], dpi: int = 150) -> Any:
    """`given` itself, or a new figure.

    Where pyplot is at work (it was imported, or this is a notebook) the figure is pyplot's: `plt.show()` and
    `plt.savefig()` know it, and notebooks show it. Elsewhere it belongs to no window and needs no closing.
    """
    require("matplotlib", "plot")
    from matplotlib.figure import Figure, FigureBase

    if given is not None:
        return instance(given, "figure", FigureBase, "a matplotlib Figure")
    if PYPLOT in sys.modules or "ipykernel" in sys.modules:
        from matplotlib import pyplot

        return pyplot.figure(figsize=size, dpi=dpi, layout="constrained")
    return Figure(figsize=size, dpi=dpi, layout="constrained")


def close(figure: Any) -> None:
    """A figure that was written to a file: pyplot, if it knows it, need not show it as well."""
    if PYPLOT in sys.modules:
        sys.modules[PYPLOT].close(figure)


def name_axes(ax: Axes, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Name the axes and the picture; what is None stays as it is."""
    ax.set(**{f"{axis}label": text for axis, text in (("x", x), ("y", y)) if text is not None})
    if title is not None:
        ax.set_title(title, fontsize="medium")


def in_units(ax: Axes, x: Label | None = None, y: Label | None = None) -> None:
    """Name axes by labels; where a label has a unit of its own, ticks are in it (coordinates stay the network's)."""
    for axis, label in ((ax.xaxis, x), (ax.yaxis, y)):
        if label is not None:
            axis.set_label_text(str(label))
            locate, spell = _ticks(label)
            if locate is not None:
                axis.set_major_locator(locate)
                axis.set_major_formatter(spell)


def colour_bar(ax: Axes, drawn: Any, label: Label | str) -> None:
    """A colour bar beside the axes, with ticks in the unit of its label."""
    locate, spell = _ticks(label) if not isinstance(label, str) else (None, None)
    ax.figure.colorbar(drawn, ax=ax, label=str(label), shrink=0.85, ticks=locate, format=spell)


def _ticks(label: Label) -> tuple[Any, Any]:
    """Where ticks stand and what they say, for a label with a unit of its own; else nothing."""
    if label.plain:
        return None, None
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    class InUnits(MaxNLocator):
        """Round values in the unit, as the network's numbers."""

        def tick_values(self, vmin: float, vmax: float) -> Any:
            low, high = sorted(float(label.value(v)) for v in (vmin, vmax))
            return label.number(np.asarray(super().tick_values(low, high)))

    return InUnits(nbins=7, steps=[1, 2, 2.5, 5, 10]), FuncFormatter(lambda v, _: _figure(float(label.value(v))))


def _figure(value: float) -> str:
    """A round number with few digits; rounding noise around 0 is 0."""
    text = f"{value:,.6g}"
    return "0" if abs(value) < 1e-12 or text == "-0" else text


def probability_axis(ax: Axes, label: str, output: Output | None = None) -> None:
    """The probabilities of a logit above it: round ones only, as many as have room; `output` says how they are made."""
    low, high = ax.get_xlim()

    def place(p: float) -> float:
        found = (output or Output(label, link="sigmoid")).raw(">", p)
        return float("inf") if isinstance(found, bool) else found[1]

    marks = [0.001, 0.01, 0.02, 0.05, *(i / 10 for i in range(1, 10)), 0.95, 0.98, 0.99, 0.999]
    fine = [i / 100 for i in range(1, 100)]
    chosen: list[float] = []
    for options in (marks, fine, [i / 1000 for i in range(1, 1000)]):
        chosen = [p for p in options if low <= place(p) <= high]
        if len(chosen) >= 3:
            break
    kept: list[float] = []
    for p in chosen:  # labels a tenth of the axis apart
        if not kept or abs(place(p) - place(kept[-1])) >= 0.13 * (high - low):
            kept.append(p)
    above = ax.secondary_xaxis("top")
    above.set_xticks([place(p) for p in kept], [f"{100 * p:g} %" for p in kept])
    above.tick_params(labelsize="small")
    above.set_xlabel(label, fontsize="small")


def limit(ax: Axes, lower: FloatArray, upper: FloatArray) -> None:
    """Show the rectangle between two corners."""
    ax.set(xlim=(lower[0], upper[0]), ylim=(lower[1], upper[1]))


def save(ax: Axes, path: Any) -> None:
    """Write the figure of an Axes to a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure: Any = ax.figure  # SubFigures have no savefig
    close(figure)
    FigureCanvasAgg(figure)
    figure.savefig(path)


def legend_above(ax: Axes) -> None:
    """The legend in one line above the picture."""
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
