"""Pictures of the data section: importance of the inputs, how their coefficients vary, one row taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope.plot.explanations import named_value
from reluscope.reporting.blocks import Figure
from reluscope.reporting.charts import Chart
from reluscope.reporting.images import pixels_of, row_as_images
from reluscope.reporting.subject import Subject

_MOST, _MOST_BARS = 10, 20
_MOST_ROWS = 20_000
_BINS = 48


def pictures(subject: Subject, found: Any, output: int) -> list[Figure]:
    """Pictures of one output; `found` is what `unwrap` gives. Pixels of images are shown as images."""
    shape = pixels_of(subject)
    if shape is not None:
        return [_images(subject, found, output, shape)]
    order = np.argsort(-found.importance(output=output, groups=None).variance, kind="stable")[:_MOST]
    return [
        _importance(subject, found, output),
        _violin(subject, found, order, output),
        _waterfall(subject, found, output),
    ]


def _row(subject: Subject) -> tuple[int, str]:
    """The row to take apart, and which it is: the first in the event, else the first."""
    assert subject.X is not None
    if subject.events:
        inside = np.flatnonzero(subject.holds(subject.events[0], subject.X))
        if len(inside):
            return int(inside[0]), f"row {int(inside[0])}, the first where {subject.events[0]}"
    return 0, "the first row"


def _images(subject: Subject, found: Any, output: int, shape: tuple[int, int, int, bool]) -> Figure:
    row, which = _row(subject)
    assert subject.X is not None
    told, name = found.explain(row), subject.result(output).name
    parts = np.asarray(told.path)[output]
    top, whole = float(np.abs(parts).max()), float(subject.net(subject.X[row])[output])
    text = (
        f"{which[0].upper()}{which[1:]}, and what each pixel adds to {name} there (blue −{top:.2g} to red +{top:.2g}): "
        f"from {float(np.asarray(told.base)[output]):.3g} at the reference ({told.reference.name}) to {whole:.3g}. "
        f"Right: the share of the variance of {name} over all rows that is due to each pixel (black 0)."
    )
    share = found.importance(output=output, groups=None).variance
    return Figure(row_as_images(shape, subject.X[row], parts, share), text)


def _left_out(subject: Subject, shown: int) -> str:
    n = subject.net.n_inputs
    return f" The {shown} most important of {n:,} inputs." if shown < n else ""


def _chart(names: list[str], low: float, high: float, label: str, title: str) -> Chart:
    pad = 0.06 * (high - low) or 0.5
    return Chart((low - pad, high + pad), (-0.7, len(names) - 0.3), x_label=label, y_label="", y_names=names[::-1],
                 height=90 + 30 * len(names), title=title)  # fmt: skip


def _importance(subject: Subject, found: Any, output: int) -> Figure:
    importance = found.importance(output=output)
    order = np.argsort(-importance.variance, kind="stable")[:_MOST_BARS]
    share = np.asarray(importance.variance)[order]
    names = [importance.feature_names[int(i)] for i in order]
    chart = _chart(names, 0.0, float(share.max()), "share of the variance", "Importance of the inputs")
    at = np.arange(len(order))[::-1]
    chart.bars(np.zeros(len(order)), share, at - 0.32, at + 0.32)
    text = f"How much of the variance of {subject.result(output).name} over the rows each input contributes."
    more = len(importance.feature_names) - len(order)
    return Figure(
        chart.svg(), text + (f" The {len(order)} most important ones; {more:,} are left out." if more else "")
    )


def _violin(subject: Subject, found: Any, order: Any, output: int) -> Figure:
    rows = found.region[:: max(1, len(found.region) // _MOST_ROWS)]
    regions, member = np.unique(rows, return_inverse=True)
    C = found.maps(regions)[0][member, output][:, order] * found.spread[order]
    names = [subject.feature(int(i)) for i in order]
    low, high = min(0.0, float(C.min())), max(0.0, float(C.max()))
    chart = _chart(names, low, high, "coefficient times the input's standard deviation", "Coefficients over the rows")
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    for k, place in enumerate(np.arange(len(order))[::-1].tolist()):
        count = np.convolve(np.histogram(C[:, k], bins=edges)[0], [0.25, 0.5, 0.25], mode="same")
        half = 0.42 * count / max(float(count.max()), 1.0)
        some = np.flatnonzero(half > 0)
        if len(some) > 1:
            some = np.arange(some[0], some[-1] + 1)
            chart.band(middle[some], place - half[some], place + half[some], "c1 full")
        ends = np.quantile(C[:, k], [0.25, 0.5, 0.75])
        chart.whiskers([place], ends[:1], ends[2:], across=True)
        chart.dots(ends[1:2], [place], "ink", radius=3.0)
    chart.line([0.0, 0.0], [-0.7, len(order) - 0.3], "soft")
    name = subject.result(output).name
    text = f"How the coefficients of the linear models of {name} vary over the rows; bar: the middle half."
    return Figure(chart.svg(), text + _left_out(subject, len(order)))


def _waterfall(subject: Subject, found: Any, output: int) -> Figure:
    """One row, input by input."""
    row, which = _row(subject)
    told = found.explain(row)
    parts = told.rows(output)
    names = [named_value(told, part) for part in parts[:_MOST]] + ["all others"] * (len(parts) > _MOST)
    rest = sum(part["path"] for part in parts[_MOST:])
    steps = np.array([*(part["path"] for part in parts[:_MOST]), rest])[: len(names)]
    ends = float(np.asarray(told.base)[output]) + np.concatenate([[0.0], np.cumsum(steps)])
    what = subject.result(output).name
    if found.task == "binary" and subject.net.n_outputs == 2:
        what = f"logit of class {found.response.classes[1]}"
    chart = _chart(names, float(ends.min()), float(ends.max()), what, f"{what}, one row taken apart")
    at = np.arange(len(names))[::-1].astype(float)
    for sign, kind in ((1, "c2"), (-1, "c1")):
        some = np.flatnonzero(np.sign(steps) == sign)
        chart.bars(ends[some], ends[some + 1], at[some] - 0.32, at[some] + 0.32, kind)
    chart.legend("c2", "raises it")
    chart.legend("c1", "lowers it")
    text = (
        f"{what} of {which}: from {ends[0]:.3g} at the reference ({told.reference.name}) to "
        f"{ends[-1]:.3g}, input by input."
    )
    return Figure(chart.svg(), text)
