"""The first screen of a report: what the network decides, where, and how likely the event asked for is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import percent, percent_bracket
from reluscope.errors import ReluscopeError
from reluscope.intervals import binomial
from reluscope.reporting.blocks import Figure
from reluscope.reporting.charts import CATEGORIES, Chart, diverging, hex_colours
from reluscope.reporting.images import inputs_as_images
from reluscope.reporting.output_laws import decisions, numbers
from reluscope.reporting.region_pictures import Plane, plane_of
from reluscope.reporting.subject import Subject
from reluscope.threads import OutOfTimeError, look

_PIXELS, _LEAST_PIXELS = 240, 60
_WORK = 4e9
"""Products that the colours of the map may take; a larger network has fewer pixels."""

_WIDTH = 340
"""Pixels, about as wide as the panels are on a desk: text keeps its size, and the map is a square."""

_LONGEST = 20
"""Letters of a name beside a bar; longer ones are cut."""

_STRIPE = 7
"""Pixels from one stripe of the event to the next."""

_AT_THE_CENTRE = 1e-6
"""Standard deviations up to which an input is the centre of a component."""

_MOST_ELLIPSES = 12


@dataclass(frozen=True)
class Chance:
    """An event and its probability, in words.

    Attributes
    ----------
    event, number, interval, guarantee : str
        The interval says how much is known; of exact numbers, what rounding can do.
    on_data : str
        The share of the rows of data, where there are data.
    words : str
        The event in words, where there are simple ones.
    """

    event: str
    number: str
    interval: str
    guarantee: str
    on_data: str = ""
    words: str = ""
    differs: bool = False
    """Whether the share of the rows and the probability differ by more than their intervals."""

    @property
    def parts(self) -> tuple[str, str]:
        """The number as the page sets it: small words before it (`at most`), and what is large."""
        words = next((w for w in ("at most", "at least") if self.number.startswith(w)), "")
        return words, self.number.removeprefix(words).strip().replace(" ", "\N{NO-BREAK SPACE}")


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
        number, low, high = percent_bracket(float(found.value), float(found.lower), float(found.upper))
        interval = f"between {low} and {high}" if low else _rounding(float(found.lower), float(found.upper))
        share = subject.share_of_rows(text)
        on_data = "" if share is None else percent(share)
        differs = share is not None and _apart(subject, share, found)
        out.append(Chance(text, number, interval, _kind(found), on_data, event_words(subject, text), differs))
    return tuple(out)


def _apart(subject: Subject, share: float, found: Any) -> bool:
    """Whether rows like those given and the law differ: their intervals have nothing in common."""
    assert subject.X is not None
    low, high = binomial(round(share * len(subject.X)), len(subject.X))
    return bool(high < found.lower or low > found.upper)


def _kind(found: Any) -> str:
    return str(found.guarantee) + (f" {100 * found.level:g} %" if found.level else "")


def _rounding(lower: float, upper: float) -> str:
    """How much is known of a number whose interval is too narrow for its digits."""
    if upper <= lower:
        return {0.0: "it cannot happen", 1.0: "it always happens"}.get(upper, "no rounding error")
    return f"known to within {10.0 ** math.ceil(math.log10(upper - lower)):.0e}".replace("e-", "e\N{MINUS SIGN}")


_WINS = re.compile(r"\s*(argmax|argmin)\s*(==|!=)\s*(\d+|(?:argmax|argmin) at mean)\s*")


def event_words(subject: Subject, text: str) -> str:
    """An event about the decision in words, by the names of the outputs; nothing for other events."""
    found = _WINS.fullmatch(text)
    if found is None:
        sides = _sides(subject) if subject.net.n_outputs == 1 else None
        return f"The decision is “{sides[1][0]}”." if sides is not None and sides[0] == text != sides[1][0] else ""
    name, op, which = found.groups()
    word = "smallest" if name == "argmin" else "largest"
    known = subject.deciding == word and not subject.assumption
    subjects, negation = "The decision" if known else f"The {word} output", "" if op == "==" else "not "
    if which.endswith("mean"):
        same = "the same as" if op == "==" else "not the one"
        return f"{subjects} is {same} at the mean." if which.startswith(name) else ""
    if int(which) >= subject.net.n_outputs:
        return ""
    return f"{subjects} is {negation}“{subject.output(int(which))}”."


# -- what ------------------------------------------------------------------------------------------------------------


def _what(subject: Subject) -> Figure:
    if subject.net.n_outputs == 1:
        return _histogram(subject)
    found = decisions(subject)
    places = found.outputs.tolist()
    colours = hex_colours(CATEGORIES[places]) if subject.net.n_outputs <= len(CATEGORIES) else ()
    bars = shares([subject.output(i) for i in places], found.share, found.lower, found.upper, colours)
    left = subject.net.n_outputs - len(places)
    more = f" The other {left} decide less often." if left else ""
    caption = (
        f"How often each output is the {found.word} and decides under the law, {found.how}.{more} {subject.assumption}"
    )
    return Figure(bars, caption.strip())


def shares(
    names: Sequence[str], share: FloatArray, lower: FloatArray, upper: FloatArray, colours: Sequence[str] = ()
) -> str:
    """Names, bars and percentages, as rows of a table of HTML."""
    rows, said = [], numbers(share, lower, upper)
    for k, name in enumerate(names):
        number = said[k].replace("at most", "≤").replace("at least", "≥")
        colour = f"; background: {colours[k]}" if len(colours) else ""
        bar = f'<span style="width: {100 * float(share[k]):.2f}%{colour}"></span>'
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        rows.append(f'<tr><th scope="row">{escape(short)}</th><td>{bar}</td><td class="n">{number}</td></tr>')
    return f'<table class="shares"><tbody>{"".join(rows)}</tbody></table>'


def _sides(subject: Subject) -> tuple[str, list[str]] | None:
    """One output that decides: the event of the second class, and what its side and the other are called."""
    schema, classes = subject.net.schema, subject.classes
    labels: Sequence[Any] = ()
    at: float | None = None
    if schema is not None and len(schema.classes) == 2:
        labels, at = schema.classes, schema.threshold() if schema.outputs else schema.cutoff
    elif schema is None and classes is not None and len(classes) == 2:
        labels, at = classes.labels, 0.0
    if at is not None and np.isfinite(at):
        return f"y[0] > {at:.17g}", [v if isinstance(v, str) else f"class {v}" for v in labels[::-1]]
    return (subject.events[0], [subject.events[0], "otherwise"]) if subject.events else None


def _histogram(subject: Subject) -> Figure:
    """One output: how often each side of its cut-off, or of the event, is taken; below, draws of the output."""
    x, y = subject.draws()
    sides, bars_above, lead = _sides(subject), "", ""
    if sides is not None:
        found = subject.probability(sides[0], subject.allow(0.1))
        p = np.array([found.value, found.lower, found.upper], dtype=float)
        value, lower, upper = (np.array(v) for v in ((p[0], 1 - p[0]), (p[1], 1 - p[2]), (p[2], 1 - p[1])))
        second = subject.events and subject.events[0] == sides[0]
        bars_above = shares(sides[1], value, lower, upper, ("var(--c2)", "var(--quiet)") if second else ())
        schema = subject.net.schema
        by = f"{schema.outputs[0].name} > {schema.cutoff:g}" if schema is not None and schema.outputs else sides[0]
        rule = "" if sides[1][1] == "otherwise" else f"; {sides[1][0]} where {by}"
        what = "each class is decided for" if rule else "the event holds"
        lead = f"How often {what} under the law ({_kind(found)}){rule}. Below: "
    value = y[:, 0]
    low, high = np.quantile(value, [0.001, 0.999])
    counts, edges = np.histogram(value, bins=40, range=(float(low), float(high) if high > low else float(low) + 1.0))
    bars = counts / len(value)
    chart = Chart((float(edges[0]), float(edges[-1])), (0, 1.1 * float(bars.max()) or 1.0), x_label=subject.result(0),
                  y_label="share of inputs", width=_WIDTH, height=_WIDTH - 60, title="What comes out")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(40), bars, "soft")
    caption = f"{lead}{subject.result(0).name} for {len(value):,} inputs drawn from the law"
    if subject.events:
        inside = subject.holds(subject.events[0], x)
        part = np.histogram(value[inside], bins=edges)[0] / len(value)
        chart.bars(edges[:-1], edges[1:], np.zeros(40), part, "c2")
        caption += f"; coloured: those where {subject.events[0]}"
    return Figure(bars_above + chart.svg(), f"{caption}.")


# -- where -----------------------------------------------------------------------------------------------------------


def _where(subject: Subject) -> Figure | None:
    net = subject.net
    if net.n_inputs < 2:
        return None
    view = plane_of(subject)
    look()
    pixels = int(np.clip(np.sqrt(_WORK / view.net.n_parameters), _LEAST_PIXELS, _PIXELS))
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
        top = f"{float(np.abs(y[:, 0]).max()):.2g}"  # two digits: the largest pixel, not the largest value
        chart.colour_bar(diverging(np.linspace(-1.0, 1.0, 9)), f"−{top}", top, subject.result(0).name)
        what = f"colours: {subject.result(0).name}"
    colours = colours.reshape(pixels, pixels, 3).copy()
    if subject.events:
        look()
        inside = _holds(subject, view, places, y).reshape(pixels, pixels)
        colours = _striped(colours, inside)
        what += f"; {_extent(inside, subject.events[0])}"
    chart.image(colours[::-1])
    what += _ellipses(chart, subject, view)
    outside = None if view.flat else subject.beyond()
    nearest = outside or subject.nearest()
    if nearest is not None and (view.flat or view.through_event):
        at = nearest.x if view.flat else np.array([nearest.distance or 0.0, 0.0])
        chart.dots(at[:1], at[1:], "mark", radius=5.0)
        what += f"; dot: {_dot(subject, nearest, 'in the event' if outside is None else 'outside of the event')}"
    return Figure(chart.svg(), f"{view.where}; {what}.")


def _dot(subject: Subject, nearest: Any, side: str) -> str:
    """What the marked input is, and how far it is from the mean, or from the centre of a component."""
    many, far = len(subject.law.components) > 1, nearest.distance
    if many and far is not None and far < _AT_THE_CENTRE:
        return f"the centre of a component of the law that lies {side}"
    kind = f"the nearest input {side}" if nearest.proved_nearest and not many else f"an input {side}"
    if far is None:
        return kind
    return f"{kind}, {far:.3g} standard deviations from {'the centre of a component' if many else 'the mean'}"


def _holds(subject: Subject, view: Plane, places: FloatArray, y: FloatArray) -> Any:
    """Where the first event holds; an event on outputs alone needs no inputs, which may be many."""
    from reluscope.events import event

    net, text = subject.net, subject.events[0]
    placed = event(text, net.n_inputs, net.n_outputs, net=net, law=subject.law, names=subject.names)
    free = all(not c.A.any() and np.isinf(c.lower).all() and np.isinf(c.upper).all() for c in placed.cases)
    if placed.features or not free:
        return subject.holds(text, view.points(places))
    return placed.contains(np.broadcast_to(0.0, (len(places), net.n_inputs)), y)


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
    if view.inputs is not None:
        parts = sorted(law.gaussians, key=lambda p: -p[0])[:_MOST_ELLIPSES]
        pair = list(view.inputs)
        shapes = [(np.asarray(g.mean)[pair], _root(np.asarray(g.cov)[np.ix_(pair, pair)])) for _, g in parts]
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
