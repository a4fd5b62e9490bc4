"""The first screen of a report: what the network decides, where, and how likely the event asked for is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import percent, percent_ends, percent_in
from reluscope.errors import ReluscopeError
from reluscope.reporting.blocks import Figure
from reluscope.reporting.charts import CATEGORIES, Chart, diverging
from reluscope.reporting.images import inputs_as_images
from reluscope.reporting.output_laws import decisions
from reluscope.reporting.region_pictures import Plane, plane_of
from reluscope.reporting.subject import Subject
from reluscope.threads import OutOfTimeError, look

_PIXELS, _LEAST_PIXELS = 240, 60
_WORK = 4e9
"""Products that the colours of the map may take; a larger network has fewer pixels."""

_WIDTH = 340
"""Pixels, about as wide as the panels are on a desk: text keeps its size, and the map is a square."""

_STRIPE = 7
"""Pixels from one stripe of the event to the next."""

_MOST_ELLIPSES = 12


@dataclass(frozen=True)
class Chance:
    """An event and its probability, in words.

    Attributes
    ----------
    event, number, interval, guarantee : str
        The interval is empty where it says no more than the number.
    on_data : str
        The share of the rows of data, where there are data.
    """

    event: str
    number: str
    interval: str
    guarantee: str
    on_data: str = ""


@dataclass(frozen=True)
class Screen:
    """What, where, how likely; what could not be worked out is None or empty.

    Attributes
    ----------
    what, where : Figure or None
    chances : tuple of Chance
    images : Figure or None
        Inputs of an image network, below where.
    """

    what: Figure | None = None
    where: Figure | None = None
    chances: tuple[Chance, ...] = ()
    images: Figure | None = None


def first_screen(subject: Subject) -> Screen:
    """The three panels, from the answers that the sections share."""
    what, where = _tried(_what, subject), _tried(_where, subject)
    return Screen(what, where, chances(subject), _tried(inputs_as_images, subject))


def _tried(panel: Callable[[Subject], Figure | None], subject: Subject) -> Figure | None:
    try:
        look()
        return panel(subject)
    except (ReluscopeError, MemoryError, np.linalg.LinAlgError, OutOfTimeError):  # the section below says why
        return None


def chances(subject: Subject) -> tuple[Chance, ...]:
    """The events asked for with their probabilities, where they were worked out."""
    out = []
    for text in subject.events:
        found = subject.cache.get("events", {}).get(text)
        if found is None:
            continue
        low, high = percent_ends(float(found.lower), float(found.upper))
        kind = found.guarantee + (f" {100 * found.level:g} %" if found.level else "")
        number = percent_in(float(found.value), float(found.lower), float(found.upper))
        share = subject.share_of_rows(text)
        on_data = "" if share is None else percent(share)
        out.append(Chance(text, number, "" if low == high else f"between {low} and {high}", kind, on_data))
    return tuple(out)


# -- what ------------------------------------------------------------------------------------------------------------


def _what(subject: Subject) -> Figure:
    schema = subject.net.schema
    if subject.net.n_outputs == 1:
        at = schema.threshold() if schema is not None and len(schema.classes) == 2 else None
        return _histogram(subject) if at is None or not np.isfinite(at) else _two_classes(subject, at)
    found = decisions(subject)
    chart = _shares([subject.output(int(i)) for i in found.outputs], found.share, found.lower, found.upper)
    return Figure(chart.svg(), f"How often each output is the {found.word}, {found.how}. {subject.assumption}".strip())


def _two_classes(subject: Subject, at: float) -> Figure:
    """A score and a cut-off: how often each class is decided for, asked as events are."""
    schema = subject.net.schema
    assert schema is not None
    found = subject.probability(f"y[0] > {at:.17g}", subject.allow(0.1))
    p = np.array([found.value, found.lower, found.upper], dtype=float)
    share, lower, upper = (np.array(v) for v in ((p[0], 1.0 - p[0]), (p[1], 1.0 - p[2]), (p[2], 1.0 - p[1])))
    order = np.argsort(-share, kind="stable")
    names = [f"class {label}" for label in schema.classes[::-1]]
    chart = _shares([names[k] for k in order], share[order], lower[order], upper[order])
    rule = f"{schema.outputs[0].name} > {schema.cutoff:g}"
    kind = found.guarantee + (f" {100 * found.level:g} %" if found.level else "")
    return Figure(chart.svg(), f"How often each class is decided for under the law ({kind}); {names[0]} where {rule}.")


def _shares(names: list[str], share: FloatArray, lower: FloatArray, upper: FloatArray) -> Chart:
    """Lying bars, the first on top, with their intervals."""
    at = np.arange(len(names))[::-1]
    span = (0.0, 1.08 * float(upper.max())), (-0.6, len(names) - 0.4)
    chart = Chart(*span, x_label="share of inputs", y_label="", y_names=names[::-1], width=_WIDTH,
                  height=70 + 34 * len(names), title="How often each decision is made")  # fmt: skip
    chart.bars(np.zeros(len(names)), share, at - 0.3, at + 0.3)
    chart.whiskers(at, lower, upper, across=True)
    return chart


def _histogram(subject: Subject) -> Figure:
    """Draws of the one output; those in the event have a colour of their own."""
    x, y = subject.draws()
    value = y[:, 0]
    low, high = np.quantile(value, [0.001, 0.999])
    counts, edges = np.histogram(value, bins=40, range=(float(low), float(high) if high > low else float(low) + 1.0))
    bars = counts / len(value)
    chart = Chart((float(edges[0]), float(edges[-1])), (0, 1.1 * float(bars.max()) or 1.0), x_label=subject.result(0),
                  y_label="share of inputs", width=_WIDTH, height=_WIDTH - 60, title="What comes out")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(40), bars, "soft")
    caption = f"{subject.result(0).name} for {len(value):,} inputs drawn from the law"
    if subject.events:
        inside = subject.holds(subject.events[0], x)
        part = np.histogram(value[inside], bins=edges)[0] / len(value)
        chart.bars(edges[:-1], edges[1:], np.zeros(40), part, "c2")
        chart.legend("c2", subject.events[0])
        caption += "; coloured: those in the event"
    return Figure(chart.svg(), f"{caption}.")


# -- where -----------------------------------------------------------------------------------------------------------


def _where(subject: Subject) -> Figure | None:
    net = subject.net
    if net.n_inputs < 2:
        return None
    view = plane_of(subject)
    look()
    pixels = int(np.clip(np.sqrt(_WORK / net.n_parameters), _LEAST_PIXELS, _PIXELS))
    sides = [a + (b - a) * (np.arange(pixels) + 0.5) / pixels for a, b in zip(view.lower, view.upper, strict=True)]
    places = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    y = view.net(places)
    # In standard deviations a circle is round; inputs have units of their own.
    chart = Chart((view.lower[0], view.upper[0]), (view.lower[1], view.upper[1]), x_label=view.labels[0],
                  y_label=view.labels[1], width=_WIDTH, height=_WIDTH - 20, title="Where it decides what")  # fmt: skip
    if 2 <= net.n_outputs <= len(CATEGORIES):
        winner = y.argmin(axis=1) if subject.deciding == "smallest" else y.argmax(axis=1)
        colours = CATEGORIES[winner]
        for o in np.unique(winner).tolist():
            chart.swatch(CATEGORIES[o], subject.output(o))
        what = f"colours: which output is {subject.deciding}"
    else:
        colours = diverging(y[:, 0])
        top = f"{float(np.abs(y[:, 0]).max()):.3g}"
        chart.colour_bar(diverging(np.linspace(-1.0, 1.0, 9)), f"−{top}", top, subject.result(0).name)
        what = f"colours: {subject.result(0).name}"
    colours = colours.reshape(pixels, pixels, 3).copy()
    if subject.events:
        look()
        inside = subject.holds(subject.events[0], view.points(places)).reshape(pixels, pixels)
        colours = _striped(colours, inside)
        what += f"; {_extent(inside, subject.events[0])}"
    chart.image(colours[::-1])
    what += _ellipses(chart, subject, view)
    outside = None if view.flat else subject.beyond()
    nearest = outside or subject.nearest()
    if nearest is not None and (view.flat or view.through_event):
        at = nearest.x if view.flat else np.array([nearest.distance or 0.0, 0.0])
        chart.dots(at[:1], at[1:], "mark", radius=5.0)
        alone = nearest.distance is not None and len(subject.law.components) == 1
        far = f", {nearest.distance:.3g} standard deviations from the mean" if alone else ""
        side = "of the event" if outside is None else "outside of the event"
        kind = f"the nearest input {side}" if nearest.proved_nearest else f"an input {side}"
        what += f"; dot: {kind}{far}"
    return Figure(chart.svg(), f"{view.where}; {what}.")


def _extent(inside: Any, event: str) -> str:
    """What the stripes are, or that there are none."""
    if not inside.any():
        return f"{event} holds nowhere in this view"
    return f"stripes: {event}, everywhere in this view" if inside.all() else f"stripes: {event}"


def _striped(pixels: Any, inside: Any) -> Any:
    """Dark stripes where the event holds, and a dark edge around it."""
    row, column = np.indices(inside.shape)
    stripe = inside & ((row + column) % _STRIPE < 2)
    edge = np.zeros_like(inside)
    for axis in (0, 1):
        for way in (1, -1):
            edge |= inside & ~np.roll(inside, way, axis)
    edge[[0, -1]] = edge[:, [0, -1]] = False
    out = pixels.astype(float)
    out[stripe] *= 0.55
    out[edge] *= 0.25
    return out.astype(np.uint8)


def _ellipses(chart: Chart, subject: Subject, view: Plane) -> str:
    """The law: one and two standard deviations of its Gaussians, where they lie in the plane; what to say of them."""
    turn = np.linspace(0.0, 2 * np.pi, 97)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    law = subject.law
    if view.flat:
        parts = sorted(law.gaussians, key=lambda p: -p[0])[:_MOST_ELLIPSES]
        shapes = [(np.asarray(g.mean), _root(np.asarray(g.cov))) for _, g in parts]
    elif len(law.gaussians) == 1:
        shapes = [(np.zeros(2), np.eye(2))]
    else:
        shapes = []
    for centre, root in shapes:
        for size in (1.0, 2.0):
            x, y = centre[:, None] + size * root @ circle
            chart.line(x, y, "mark")
    return "; ellipses: one and two standard deviations of the inputs" if shapes else ""


def _root(cov: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
