"""Sections right under the first screen: the output with the event's part filled, and what would change that part."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._text import percent, percent_in
from reluscope.errors import InputError
from reluscope.reporting.blocks import ASK_FOR_EVENTS, Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import Subject

_STEP = 0.1
"""By how much means move (in standard deviations) and spreads grow (as a share)."""

_MOST_INPUTS = 12
_FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)
_POINTS, _BINS = 121, 48
_MOST_PDF = 2
"""Dimensions up to which the density is quick and exact."""

_LEAST_SEEN = 0.01
"""Bars below this share of the highest are hardly seen."""

_FLOOR = 1e-12
"""Smaller probabilities are not drawn."""


def density(subject: Subject) -> Section:
    """The density of the output that the event is about, with the event's part filled."""
    title = "What comes out, and which part is in the event"
    if not subject.events:
        return Section("density", title, ask=ASK_FOR_EVENTS)
    from reluscope.events import event, output_intervals

    net, text = subject.net, subject.events[0]
    placed = event(text, net.n_inputs, net.n_outputs, net=net, law=subject.law, names=subject.names)
    o = next((int(k) for case in placed.cases for k in np.flatnonzero(np.any(case.G, axis=0))), 0)
    part = output_intervals(placed, o)
    x, y = subject.draws()
    if part is None and not placed.features and net.n_outputs > 1:
        figure = _margin(subject, placed, text)
        seen = {"event": text, "share_of_draws": percent(float(subject.holds(text, x[:20_000]).mean()))}
        lead = f"{text} holds where the margin is above 0."
        return Section("density", "How far inputs are from the event", lead, "", [figure], facts=seen)
    low, high = (float(v) for v in np.quantile(y[:, o], [0.002, 0.998]))
    pad = 0.2 * (high - low) or 0.5 * max(abs(low), 1.0)
    low, high = low - pad, high + pad
    if part is not None and subject.seen() <= _MOST_PDF:
        figure = _filled(subject, o, low, high, part, text)
    else:
        figure = _counted(subject, o, low, high, text)
    share = percent(float(subject.holds(text, x[:20_000]).mean()))
    facts = {"event": text, "output": o, "share_of_draws": share}
    return Section("density", title, f"In the coloured part {text}.", "", [figure], facts=facts)


def _filled(subject: Subject, o: int, low: float, high: float, part: Any, text: str) -> Figure:
    out = subject.outputs()
    t = np.linspace(low, high, _POINTS)
    ends = np.array([v for pair in part for v in pair if low < v < high])
    t = np.unique(np.concatenate([t, ends]))
    p = np.asarray(out.pdf(t, output=o).value)
    top = 1.2 * max(float(np.quantile(p, 0.99)), 1e-300)
    chart = Chart((low, high), (0, top), x_label=subject.result(o), y_label="density", title="Density of the output")
    for a, b in part:
        inside = (t >= a) & (t <= b)
        if inside.sum() > 1:
            chart.band(t[inside], np.zeros(int(inside.sum())), p[inside], "c2 full")
    chart.line(t, p, "ink")
    chart.legend("c2", text)
    atoms = out.atoms(o)
    heavy = np.argsort(-np.asarray(atoms.mass.value))[:6]
    if len(heavy):
        most = float(np.max(atoms.mass.value))
        chart.stems(atoms.value[heavy], 0.9 * top * atoms.mass.value[heavy] / most, "c3", "single values")
    what = ""
    if len(heavy):
        each = f"{percent(most)}{' the tallest' if len(heavy) > 1 else ''}"
        what = f" Stems: single values with a probability of their own ({each}), not part of the density."
    return Figure(
        chart.svg(), f"The density of {subject.result(o).name} ({out.guarantee}), coloured where {text}.{what}"
    )


def _counted(subject: Subject, o: int, low: float, high: float, text: str) -> Figure:
    x, y = subject.draws()
    edges = np.linspace(low, high, _BINS + 1)
    every = np.histogram(y[:, o], bins=edges)[0] / len(y)
    inside = np.histogram(y[subject.holds(text, x), o], bins=edges)[0] / len(y)
    top = 1.1 * max(float(every.max()), 1e-300)
    chart = Chart((low, high), (0, top), x_label=subject.result(o), y_label="share of inputs",
                  title="The output, inside and outside of the event")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(_BINS), every, "soft")
    chart.bars(edges[:-1], edges[1:], np.zeros(_BINS), inside, "c2 full")
    chart.legend("c2", text)
    return Figure(
        chart.svg(), f"{subject.result(o).name} for {len(y):,} inputs drawn from the law; coloured: those where {text}."
    )


def _margin(subject: Subject, placed: Any, text: str) -> Figure:
    """An event on several outputs: the distribution of the slack of its inequalities, positive inside."""
    x, y = subject.draws()
    margin = np.full(len(x), -np.inf)
    for case in placed.cases:
        slack = case.g - y @ case.G.T - (x @ np.asarray(case.A).T if case.A.any() else 0.0)
        inside = np.min(slack, axis=1, initial=np.inf)
        bounded = np.isfinite(case.lower) | np.isfinite(case.upper)
        if bounded.any():
            sides = np.minimum(x - case.lower, case.upper - x)[:, bounded]
            inside = np.minimum(inside, sides.min(axis=1))
        margin = np.maximum(margin, inside)
    margin = np.where(np.isfinite(margin), margin, 0.0)
    low, high = (float(v) for v in np.quantile(margin, [0.005, 0.995]))
    low, high = min(low, 0.0), max(high, 0.0)
    pad = 0.1 * (high - low) or 0.5
    edges = np.linspace(low - pad, high + pad, _BINS + 1)
    every, part = (np.histogram(margin[some], bins=edges)[0] / len(x) for some in (slice(None), subject.holds(text, x)))
    span = (float(edges[0]), float(edges[-1])), (0.0, 1.1 * max(float(every.max()), 1e-300))
    label = "margin"
    chart = Chart(*span, x_label=label, y_label="share of inputs", title="Margin of the event")
    chart.bars(edges[:-1], edges[1:], np.zeros(_BINS), every, "soft")
    chart.bars(edges[:-1], edges[1:], np.zeros(_BINS), part, "c2 full")
    chart.line([0.0, 0.0], [0.0, 1.1 * float(every.max())], "ink")
    chart.legend("c2", text)
    what = "by how much the outputs fulfil the inequalities of the event (above 0), or miss them"
    if float(part.max()) < _LEAST_SEEN * float(every.max()):
        what += ". The part in the event is too small to be seen" if part.any() else ". None of them is in the event"
    return Figure(chart.svg(), f"The margin of {len(x):,} inputs drawn from the law: {what}.")


def sensitivity(subject: Subject) -> Section:
    """How the probability moves with the mean and the spread of each input."""
    title = "What would change it"
    if not subject.events:
        return Section("sensitivity", title, ask=ASK_FOR_EVENTS)
    from reluscope.answers.sensitivity import sensitivity as ask

    subject.refuse_if_large("rs.sensitivity", law=True)
    text = subject.events[0]
    budget = f"{subject.allow(0.1):g}s"
    found = ask(subject.net, subject.law, text, names=subject.names, budget=budget, rng=subject.seed)
    by_mean, by_spread = (v * k for v, k in zip(by_input(subject.law, found), _known(found), strict=True))
    order = np.argsort(-np.maximum(np.abs(by_mean), np.abs(by_spread)), kind="stable")
    order = order[np.maximum(np.abs(by_mean), np.abs(by_spread))[order] > 0]
    if not len(order):
        sides = [side for side in (found.lower, found.upper) if side is not None]
        settled = bool(sides) and all(np.array_equal(side.lower, side.upper) for side in sides)
        proved = found.guarantee == "exact" or (found.guarantee == "sound" and settled)
        lead = (
            f"Nothing: the probability of {text} {'does not move' if proved else 'was not seen to move'} with the mean "
            "or the spread of any input."
        )
        kind = found.guarantee if proved else ""
        return Section("sensitivity", title, lead, kind, facts={"event": text, "sensitivity": {}})
    shown = order[:_MOST_INPUTS]
    names = [subject.feature(int(i)) for i in shown]
    at = np.arange(len(shown))[::-1].astype(float)
    a, b = _STEP * by_mean[shown], _STEP * by_spread[shown]
    reach = 1.1 * float(max(np.abs(a).max(), np.abs(b).max()))
    chart = Chart((-reach, reach), (-0.7, len(shown) - 0.3), x_label="change of the probability", y_label="",
                  y_names=names[::-1], height=90 + 36 * len(shown), title="Sensitivity to each input")  # fmt: skip
    for values, shift, kind in ((a, 0.05, "c1"), (b, -0.35, "c2")):
        chart.bars(np.zeros(len(shown)), values, at + shift, at + shift + 0.3, kind)
    chart.legend("c1", f"mean {_STEP:g} standard deviations higher")
    chart.legend("c2", f"spread {100 * _STEP:g} % larger")
    i, kind = (int(shown[0]), "mean") if abs(a[0]) >= abs(b[0]) else (int(shown[0]), "spread")
    most = a[0] if kind == "mean" else b[0]
    way = "raises" if most > 0 else "lowers"
    step = f"a mean {_STEP:g} standard deviations higher" if kind == "mean" else f"a spread {100 * _STEP:g} % larger"
    lead = f"Most of all {subject.feature(i)}: {step} {way} the probability of {text} by about {_points(abs(most))}."
    columns: dict[str, Any] = {
        "input": [subject.feature(int(i)) for i in order],
        "change by the mean": _STEP * by_mean[order],
        "change by the spread": _STEP * by_spread[order],
    }
    caption = f"The change of the probability of {text} to first order, from its derivatives ({found.guarantee})."
    if len(order) > len(shown):
        caption += f" The {len(shown)} of {len(order)} inputs with the largest changes."
    if found.note:
        caption += f" Note: {found.note}."
    blocks: list[Table | Figure | str] = [
        Figure(chart.svg(), caption),
        Table("sensitivity", "All inputs.", columns, shown=0),
    ]
    facts = {"event": text, "sensitivity": columns}
    return Section("sensitivity", title, lead, found.guarantee, blocks, facts=facts)


def _known(found: Any) -> tuple[FloatArray, FloatArray]:
    """Ones where a change by the mean and by the spread of an input is known to be up or down, by the sides of a box.

    Zeros elsewhere. For other laws all are ones.
    """
    if found.lower is None or found.upper is None:
        return np.ones(1), np.ones(1)
    a, b = found.lower, found.upper
    mean, spread = (a.lower + b.lower, a.upper + b.upper), (b.lower - a.upper, b.upper - a.lower)
    by_mean, by_spread = (((low > 0) | (high < 0)).astype(float) for low, high in (mean, spread))
    return by_mean, by_spread


def _points(change: float) -> str:
    """A change of a probability in words."""
    return f"{change:.1g}" if change < 1e-5 else f"{100 * change:.2g} percentage points"


def by_input(law: Any, found: Any) -> tuple[FloatArray, FloatArray]:
    """Derivatives of the probability by a shift of each input (in standard deviations), and by the log of its spread.

    Both move the law as a whole, as `law.move` does.
    """
    sd = np.sqrt(np.asarray(law.variance))
    if found.mean is not None and found.cov is not None and not found.note.startswith("derivatives by the mean"):
        parts = [(law.mean, law.cov)] if found.mean.value.ndim == 1 else [(g.mean, g.cov) for _, g in law.components]
        mean = np.atleast_2d(found.mean.value)
        cov = np.asarray(found.cov.value).reshape(len(parts), *found.cov.value.shape[-2:])
        if len(mean) != len(parts) or any(part.unrestricted is not part for _, part in law.components):
            raise InputError(f"{law!r} has no derivatives by the spread of an input here")
        spread = np.zeros(len(sd))
        for k, (m, S) in enumerate(parts):
            spread += mean[k] * (np.asarray(m) - np.asarray(law.mean)) + 2.0 * (cov[k] * np.asarray(S)).sum(axis=1)
        return mean.sum(axis=0) * sd, spread
    if found.lower is not None and found.upper is not None:
        half = 0.5 * (np.asarray(law.upper) - np.asarray(law.lower))
        low, high = np.asarray(found.lower.value), np.asarray(found.upper.value)
        return (low + high) * sd, half * (high - low)
    raise InputError(f"{law!r} has no derivatives by the mean and spread of an input")


def _with_spread(subject: Subject) -> npt.NDArray[np.bool_]:
    """Which inputs have noise that can grow: codes of categories have none."""
    out = np.ones(subject.net.n_inputs, dtype=bool)
    schema = subject.net.schema
    for column in () if schema is None else schema.columns:
        out[schema.place(column.name)] = column.kind != "category"  # type: ignore[union-attr]
    return out


def sweep(subject: Subject) -> Section:
    """How the probability moves when all noise grows or shrinks together."""
    title = "With less or more noise"
    if not subject.events:
        return Section("sweep", title, ask=ASK_FOR_EVENTS)
    from reluscope.answers.probability import probability

    text, moves = subject.events[0], _with_spread(subject)
    given = subject.cache.get("events", {}).get(text)
    # a smaller box has no more of the event than the whole one
    inner = subject.law.kind == "uniform" and given is not None and given.upper == 0.0
    answers = {f: given for f in _FACTORS if given is not None and (f == 1.0 or (f < 1.0 and inner))}
    clock, until = subject.budget, subject.budget.elapsed() + subject.allow(0.2)
    asked = [f for f in _FACTORS[::-1] if f not in answers]
    shares = [2.0 if f < 1.0 else 1.0 for f in asked]  # with less noise events are rarer, and take longer
    for k, factor in enumerate(asked):
        seconds = max(until - clock.elapsed(), 0.2) * shares[k] / sum(shares[k:])
        law = subject.law if factor == 1.0 else subject.law.move(scale=np.where(moves, factor, 1.0))
        budget = f"{seconds:g}s"
        answers[factor] = probability(subject.net, law, text, names=subject.names, budget=budget, rng=subject.seed)
    found = [answers[f] for f in _FACTORS]
    value, lower, upper = (np.array([float(getattr(a, k)) for a in found]) for k in ("value", "lower", "upper"))
    bound = (value <= 0.5 * (upper - lower)) & (lower <= 0.01 * upper)  # no more than an upper bound
    known = ~bound | (upper == 0.0)
    lowest = np.where(known, value, upper)
    least = float(lowest[lowest >= _FLOOR].min(initial=1.0))
    wide = least < 0.01 * float(value.max())  # two decades: a logarithmic axis

    def put(v: FloatArray) -> FloatArray:
        return np.log10(np.maximum(v, _FLOOR)) if wide else v

    top = 1.05 * float(upper.max()) or 1.0
    floor = float(np.floor(np.log10(least)))
    span = (floor, float(np.ceil(put(upper).max()))) if wide else (0.0, top)
    ends = float(np.log10(0.95 * _FACTORS[0])), float(np.log10(1.05 * _FACTORS[-1]))
    chart = Chart(ends, span, x_powers=True, y_powers=wide, x_label="all standard deviations times",
                  y_label="probability", title="A sweep over the noise")  # fmt: skip
    at = np.log10(_FACTORS)
    kinds = {a.guarantee for a in found}
    kind = next(k for k in ("confidence", "sound", "exact") if k in kinds)
    drawn = known & ((value >= 10.0**floor) | (not wide))
    if kind != "exact":
        tall = put(upper) > span[0]
        chart.whiskers(at[tall], np.maximum(put(lower), span[0])[tall], put(upper)[tall], "c1")
    chart.line(at[drawn], put(value[drawn]), "c1")
    chart.dots(at[drawn], put(value[drawn]), "c1", radius=3.0)
    if drawn[given_at := _FACTORS.index(1.0)]:
        chart.dots([0.0], put(value[[given_at]]), "c2", "as given", 4.0)
    places = [_FACTORS.index(f) for f in (0.5, 2.0)]
    half, double = (percent_in(float(value[k]), float(lower[k]), float(upper[k])) for k in places)
    lead = f"With half the noise {text} has probability {half}, with twice the noise {double}."
    columns: dict[str, Any] = {"factor": list(_FACTORS), "probability": value, "lower": lower, "upper": upper}
    columns["guarantee"] = [a.guarantee for a in found]
    caption = f"The probability of {text} when all noise is less or more: the law is stretched about its mean."
    if kind != "exact":
        caption += " Upright strokes: intervals."
    caption += "" if moves.all() else " Categories stay as they are."
    if not known.all():
        caption += (
            " Where there is no dot, only an upper bound is known: inputs in the event were hardly met in the time for "
            "this. A higher bound there does not mean a higher probability."
        )
    if (known & ~drawn).any():
        some = "of 0" if not value[known & ~drawn].any() else f"below {10.0**floor:.0e}"
        caption += f" Probabilities {some} are not drawn."
    blocks: list[Table | Figure | str] = [Figure(chart.svg(), caption), Table("sweep", "The sweep.", columns, shown=0)]
    facts = {"event": text, "sweep": columns}
    return Section("sweep", title, lead, kind, blocks, facts=facts)
