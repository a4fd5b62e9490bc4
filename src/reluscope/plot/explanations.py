"""Pictures of an explanation and of intervals for coefficients; the records call them from their `plot` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import flag, integer
from reluscope._text import count
from reluscope.local_models.explain import Explanation
from reluscope.local_models.inference import Intervals
from reluscope.plot._axes import BLUE, EDGE, RED, axes, expect, legend_above, name_axes, probability_axis
from reluscope.schema import output_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_explanation(
    e: Explanation, ax: Axes | None = None, *, output: int | None = None, top: int = 10, local: bool = False
) -> Axes:
    """Waterfall to the prediction, feature by feature, largest step first.

    It starts from the network's output at the reference and shows path contributions, which can be compared between
    rows; `local` shows the region's linear model instead, from its intercept in original units.

    Parameters
    ----------
    e : Explanation
        What `Unwrapped.explain(x)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    output : int, optional
        Index of the output; by default that of the class that is decided for, else the largest.
    top : int
        How many, the largest first.
    local : bool
        Coefficient times value, from the intercept of the region's linear model.

    Returns
    -------
    matplotlib Axes
    """
    expect(e, Explanation, "e", "u.explain(row)")
    flag(local, "local")
    k = e.main_output if output is None else integer(output, "output", low=0, high=len(e.output) - 1)
    way = "local" if local else "path"
    start = float(e.original[2][k] if local else e.base[k])
    order = sorted(e.rows(k), key=lambda row: -abs(row[way]))
    shown = order[: integer(top, "top", low=1)]
    rest = order[len(shown) :]
    parts = [(named_value(e, row), row[way]) for row in shown]
    if rest:
        parts.append((f"{len(rest)} others", sum(row[way] for row in rest)))
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
    first = "intercept of this region" if local else _start(e)
    names = [f"{first}: {levels[0]:.4g}", *(name for name, _ in parts), f"prediction: {levels[-1]:.4g}"]
    ax.set_yticks(np.arange(place + 1, -1, -1), names, fontsize="small")
    ax.set_xlim(levels.min() - 0.06 * reach, levels.max() + 0.2 * reach)
    ax.set_xlabel(_axis(e, k) + _cut(e, ax))
    ax.locator_params(axis="x", nbins=5)
    if e.classes and len(e.output) == 1:
        schema = e.unwrapped.network.schema
        known = schema.outputs[0] if schema is not None and len(schema.outputs) == 1 else None
        known = known if known is not None and (known.link != "raw" or known.calibration) else None
        probability_axis(ax, f"probability of class {e.classes[1]}", known)
    where = f"region {e.region}, {count(e.count, 'row')}" if e.has_data else "no data in this region"
    name_axes(ax, title=f"{'local-linear' if local else 'path'} contributions ({where})")
    return ax


def named_value(e: Explanation, row: dict[str, Any]) -> str:
    """A feature of an explanation with its value and unit, or its level."""
    name, schema = row["feature"], e.unwrapped.network.schema
    units = {} if schema is None else {c.name: c.unit for c in schema.columns if c.unit}
    value = row["value"]
    said = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return f"{name} = {said}{f' {units[name]}' if name in units else ''}"


def _cut(e: Explanation, ax: Axes) -> str:
    """A dotted line at the cut-off, where it is in the picture, and what to say of it."""
    schema = e.unwrapped.network.schema
    limit = None if schema is None or not e.classes else schema.threshold()
    if limit is None or len(e.output) > 1 or not ax.get_xlim()[0] < limit < ax.get_xlim()[1]:
        return ""
    assert schema is not None
    ax.axvline(limit, color=EDGE, linewidth=0.9, linestyle=":", zorder=0)
    return f" (dotted: the cut-off {schema.cutoff:g})"


def _start(e: Explanation) -> str:
    """The reference in few words: the network there."""
    return f"at {e.reference.name.removesuffix(', feature by feature').removesuffix(' given')}"


def _axis(e: Explanation, k: int) -> str:
    """What output k is: the logit of a class, or an output by name."""
    if e.probability is not None:
        return f"logit of class {e.classes[1 if len(e.output) == 1 else k]}"
    u = e.unwrapped
    if u.network.schema is not None and u.network.schema.outputs:
        return str(output_labels(u.network.schema, len(e.output))[k])
    return "output" if len(e.output) == 1 else f"output {u.output_names[k]}"


def plot_intervals(intervals: Intervals, ax: Axes | None = None, *, intercept: bool = False) -> Axes:
    """Intervals of the refitted coefficients, with those before the refit as crosses.

    A coefficient without a finite estimate has a triangle where its one-sided interval starts, pointing along it.

    Parameters
    ----------
    intervals : Intervals
        What `Unwrapped.intervals(region)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    intercept : bool
        Draw the intercept too.

    Returns
    -------
    matplotlib Axes
    """
    expect(intervals, Intervals, "intervals", "u.intervals(region)")
    flag(intercept, "intercept")
    first = 0 if intercept else 1
    place = np.arange(len(intervals.names) - first)[::-1]
    ax = axes(ax, figsize=(5.4, 1.2 + 0.3 * len(place)))
    estimate = intervals.estimate[first:]
    lower, upper = intervals.lower[first:], intervals.upper[first:]
    known = np.isfinite(estimate) & ~intervals.base[first:]
    # An end that is infinite is drawn as none: the axis could not show it.
    gap = np.vstack([estimate[known] - lower[known], upper[known] - estimate[known]])
    ax.errorbar(
        estimate[known], place[known], xerr=np.where(np.isfinite(gap), np.maximum(gap, 0), 0), fmt="o", color=BLUE,
        markersize=4, capsize=2, label="refitted",
    )  # fmt: skip
    for end, mark in ((lower, ">"), (upper, "<")):
        some = ~known & np.isfinite(end)
        ax.plot(end[some], place[some], mark, color=BLUE, markersize=6)
    ax.plot(intervals.network[first:], place, "x", color=RED, markersize=5, label=f"{intervals.model} model")
    ax.axvline(0, color=EDGE, linewidth=0.6, linestyle=":")
    kinds = (intervals.base, intervals.aliased, intervals.separated)
    flags = zip(*(kind[first:].tolist() for kind in kinds), strict=True)
    notes = [" (base)" if b else " (aliased)" if lost else " (separated)" if apart else "" for b, lost, apart in flags]
    ax.set_yticks(place, [a + b for a, b in zip(intervals.names[first:], notes, strict=True)], fontsize="small")
    ax.set_ylim(-0.7, len(place) - 0.3)
    ax.set_xlabel(f"coefficient ({intervals.method}, {100 * intervals.level:g} %, {intervals.rows_used:,} rows)")
    legend_above(ax)
    return ax
