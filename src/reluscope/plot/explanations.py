"""Pictures of an explanation and of intervals for coefficients; the records call them from their `plot` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reluscope._check import integer
from reluscope._text import count
from reluscope.plot._axes import BLUE, EDGE, RED, axes, legend_above, name_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reluscope.local_models.explain import Explanation
    from reluscope.local_models.inference import Intervals


def plot_explanation(
    e: Explanation, ax: Axes | None = None, *, output: int | None = None, top: int = 10, centred: bool = True
) -> Axes:
    """Waterfall to the prediction, feature by feature, largest step first.

    Centred, it starts from the local model at the mean of the data; else from its intercept, in original units.

    Parameters
    ----------
    e : Explanation
        What `Unwrapped.explain(x)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    output : int, optional
        Index of the output; by default the largest.
    top : int
        How many, the largest first.
    centred : bool
        Start from the model at the mean of the data.

    Returns
    -------
    matplotlib Axes
    """
    k = int(np.argmax(e.output)) if output is None else integer(output, "output", low=0, high=len(e.output) - 1)
    value, coefficient, intercept = e.original
    steps = e.centred[k] if centred else coefficient[k] * value
    start = float(e.baseline[k] if centred else intercept[k])
    order = np.argsort(-np.abs(steps), kind="stable")
    shown = order[: integer(top, "top", low=1)]
    rest = order[len(shown) :]
    parts = [(f"{e.unwrapped.feature_names[j]} = {value[j]:.4g}", float(steps[j])) for j in shown]
    if len(rest):
        parts.append((f"{len(rest)} others", float(steps[rest].sum())))
    ax = axes(ax, figsize=(6.0, 1.4 + 0.34 * (len(parts) + 2)))
    levels = start + np.concatenate([[0.0], np.cumsum([step for _, step in parts])])
    reach = max(float(np.ptp(levels)), 1e-12)
    place = len(parts)
    for i, (_, step) in enumerate(parts):
        end = levels[i + 1]
        ax.barh(place - i, step, 0.62, left=levels[i], color=RED if step > 0 else BLUE)
        ax.plot([end] * 2, [place - i - 0.31, place - i - 1 + 0.31], color=EDGE, linewidth=0.6)
        at = max(levels[i], end) + 0.015 * reach
        ax.text(at, place - i, f"{step:+.3g}", va="center", fontsize="x-small", color=EDGE)
    ax.plot(levels[0], place + 1, "|", color=EDGE, markersize=12)
    ax.plot(levels[-1], 0, "D", color=EDGE, markersize=5)
    first = "at the mean" if centred else "intercept"
    names = [f"{first}: {levels[0]:.4g}", *(name for name, _ in parts), f"prediction: {levels[-1]:.4g}"]
    ax.set_yticks(np.arange(place + 1, -1, -1), names, fontsize="small")
    ax.set_xlim(levels.min() - 0.06 * reach, levels.max() + 0.16 * reach)
    which = "" if len(e.output) == 1 else f" {e.unwrapped.output_names[k]}"
    ax.set_xlabel(f"output{which}")
    where = f"region {e.region}, {count(e.count, 'row')}" if e.has_data else "no data in this region"
    name_axes(ax, title=f"exact contributions ({where})")
    return ax


def plot_intervals(found: Intervals, ax: Axes | None = None, *, intercept: bool = False) -> Axes:
    """Intervals of the refitted coefficients, with those of the local model as crosses.

    Parameters
    ----------
    found : Intervals
        What `Unwrapped.intervals(region)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    intercept : bool
        Draw the intercept too.

    Returns
    -------
    matplotlib Axes
    """
    first = 0 if intercept else 1
    place = np.arange(len(found.names) - first)[::-1]
    ax = axes(ax, figsize=(5.4, 1.2 + 0.3 * len(place)))
    estimate = found.estimate[first:]
    gap = np.vstack([estimate - found.lower[first:], found.upper[first:] - estimate])
    ax.errorbar(
        estimate, place, xerr=np.maximum(gap, 0), fmt="o", color=BLUE, markersize=4, capsize=2, label="refitted"
    )
    ax.plot(found.network[first:], place, "x", color=RED, markersize=5, label="local model")
    ax.axvline(0, color=EDGE, linewidth=0.6, linestyle=":")
    named = zip(found.names[first:], found.aliased[first:].tolist(), strict=True)
    ax.set_yticks(place, [f"{name} (aliased)" if lost else name for name, lost in named], fontsize="small")
    ax.set_ylim(-0.7, len(place) - 0.3)
    ax.set_xlabel(f"coefficient ({found.method}, {100 * found.level:g} %, {found.rows_used:,} rows)")
    legend_above(ax)
    return ax
