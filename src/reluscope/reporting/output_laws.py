"""The section of a report about what comes out: distribution of each output, and which output decides."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import percent
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import Subject

_MOST_OUTPUTS = 6


def outputs(subject: Subject) -> Section:
    """The law of each output, and which output wins."""
    out = subject.outputs()
    net = subject.net
    _, y = subject.draws()
    blocks: list[Any] = []
    names = ["output", "mean", "sd", "1 %", "median", "99 %", "exactly constant"]
    on_data = None if subject.X is None else net(subject.X)
    if on_data is not None:
        names += ["mean on the data", "median on the data"]
    rows: dict[str, list[Any]] = {k: [] for k in names}
    shown = min(net.n_outputs, _MOST_OUTPUTS)
    mean, cov = out.mean, out.cov
    points = _curve_points(subject, out, shown)
    began, time_for = time.perf_counter(), subject.allow(0.3)
    for o in range(shown):
        if o and (time.perf_counter() - began) * (o + 1) > o * time_for:
            shown = o  # another one would take too long
            break
        q = out.quantile([0.01, 0.5, 0.99], output=o)
        atoms = out.atoms(o)
        sd = float(np.sqrt(max(0.0, np.asarray(cov.value)[o, o])))
        row = [f"y[{o}]", float(mean.value[o]), sd, *map(float, q.value), float(np.sum(atoms.mass.value))]
        if on_data is not None:
            row += [float(on_data[:, o].mean()), float(np.median(on_data[:, o]))]
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        blocks += [_output_figure(out, o, y[:, o], q, atoms, points), _density_figure(out, o, y[:, o], q, points)]
    q = [f"{v:.4g}" for v in (rows["1 %"][0], rows["median"][0], rows["99 %"][0])]
    lead = f"y[0] has mean {rows['mean'][0]:.4g} and median {q[1]}; 98 % of the time it lies between {q[0]} and {q[2]}."
    if rows["exactly constant"][0] > 0:
        lead += f" With probability {percent(rows['exactly constant'][0])} it is exactly constant ({_constants(out)})."
    more = f" The first {shown} of {net.n_outputs} outputs are shown." if shown < net.n_outputs else ""
    if on_data is not None:
        more += " Where mean or median differ from those of the data, the law does not match the data."
    table = Table("outputs", "Moments and quantiles.", rows, shown=_MOST_OUTPUTS)
    if net.n_outputs > 1:
        sentence, decisions = _decisions(subject, y)
        lead = f"{sentence} {lead}"
        blocks.insert(0, decisions)
    return Section("outputs", "What comes out", lead + more, out.guarantee, [table, *blocks],
                   facts={"mean": mean.to_dict(), "method": out.method}, headline=lead)  # fmt: skip


def _constants(out: Any) -> str:
    """The values that y[0] takes with positive probability, most likely first."""
    atoms = out.atoms(0)
    order = np.argsort(-np.asarray(atoms.mass.value), kind="stable")
    shown = ", ".join(f"{float(v):.3g}" for v in np.asarray(atoms.value)[order[:3]])
    return shown if len(order) <= 3 else f"{shown} and {len(order) - 3:,} other values"


def _curve_points(subject: Subject, out: Any, curves: int) -> int:
    """Points per curve (11 to 121) that the time of a report allows, from a first question to the exact answer."""
    if out.guarantee == "confidence":
        return 121  # lines answer all points at once
    out.cdf([0.0])  # compiles
    begin = time.perf_counter()
    out.cdf(np.quantile(subject.draws()[1][:, 0], [0.3, 0.5, 0.7]))
    each = (time.perf_counter() - begin) / 3
    return int(np.clip(subject.allow(0.25) / (2 * curves * max(each, 1e-6)), 11, 121))


def _output_figure(out: Any, o: int, drawn: FloatArray, q: Any, atoms: Any, points: int) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, points)
    jumps = np.asarray(atoms.value)[:20]
    t = np.unique(np.concatenate([t, jumps, np.nextafter(jumps, -np.inf)]))
    cdf = out.cdf(t, output=o)
    chart = Chart((float(t[0]), float(t[-1])), (0, 1.02), x_label=f"y[{o}]", y_label="probability of at most this",
                  title=f"Distribution of y[{o}]")  # fmt: skip
    if cdf.guarantee == "confidence":
        chart.band(t, cdf.lower, cdf.upper, "c1")
    chart.line(t, cdf.value, "c1", f"cdf ({cdf.guarantee})")
    at = np.linspace(t[0], t[-1], 41)
    share = np.searchsorted(np.sort(drawn), at, side="right") / len(drawn)
    chart.dots(at, share, "c2", f"{len(drawn):,} draws")
    if len(jumps):
        chart.stems(jumps, np.asarray(atoms.mass.value)[:20], "c3", "atoms")
    what = (
        f", and its atoms (values taken with positive probability: {percent(float(np.sum(atoms.mass.value)))} in all)"
    )
    return Figure(chart.svg(), f"The distribution of y[{o}] and, as dots, Monte Carlo{what if len(jumps) else ''}.")


def _density_figure(out: Any, o: int, drawn: FloatArray, q: Any, points: int) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, points)
    density = np.asarray(out.pdf(t, output=o).value)
    counts, edges = np.histogram(drawn, bins=40, range=(float(t[0]), float(t[-1])))
    bars = counts / len(drawn) / (edges[1] - edges[0])
    top = float(np.quantile(density, 0.98)) if len(density) else 1.0
    chart = Chart((float(t[0]), float(t[-1])), (0, 1.25 * max(top, float(np.quantile(bars, 0.95)), 1e-12)),
                  x_label=f"y[{o}]", y_label="density", title=f"Density of y[{o}]")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(40), bars, "soft")
    chart.line(t, density, "c1")
    return Figure(
        chart.svg(), f"The density of y[{o}] (line; atoms are not part of it) and a histogram of draws (bars)."
    )


def _decisions(subject: Subject, y: FloatArray) -> tuple[str, Table]:
    """How often each output wins: exactly where that is quick, from draws with exact binomial intervals otherwise."""
    from reluscope.answers.probability import probability

    word = subject.deciding
    smallest, name = word == "smallest", "argmin" if word == "smallest" else "argmax"
    n, k = len(y), y.shape[1]
    hits = np.bincount(y.argmin(axis=1) if smallest else y.argmax(axis=1), minlength=k)
    order = np.argsort(-hits, kind="stable")[:_MOST_OUTPUTS]
    low, high = binomial(hits, n)
    share, how = hits / n, f"from {n:,} draws ({100 * DEFAULT_LEVEL:g} % intervals)"
    if subject.seen() <= MOST_EXACT_DIMENSIONS and k <= _MOST_OUTPUTS:
        seconds = subject.allow(0.1) / k
        answers = [probability(subject.net, subject.law, f"{name} == {i}", budget=f"{seconds:g}s") for i in range(k)]
        if all(a.guarantee in ("exact", "sound") for a in answers):
            share, low, high = (np.array([getattr(a, key) for a in answers]) for key in ("value", "lower", "upper"))
            how = "exactly" if all(a.guarantee == "exact" for a in answers) else "with guaranteed bounds"
            order = np.argsort(-share, kind="stable")
    columns = {f"{word} output": [f"y[{i}]" for i in order], "share": share[order], "lower": low[order],
               "upper": high[order]}  # fmt: skip
    parts = ", ".join(f"y[{i}] {percent(float(share[i]))}" for i in order[:4] if share[i] > 0)
    sentence = f"The {word} output is {parts} of the time."
    return sentence, Table("decisions", f"Which output is {word}, {how}.", columns, shown=_MOST_OUTPUTS)
