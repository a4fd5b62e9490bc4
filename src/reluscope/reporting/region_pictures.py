"""The section of a report that shows where the network switches: its regions in a plane, or its curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import count
from reluscope.answer import unless_interrupted
from reluscope.network import Network
from reluscope.reporting.blocks import Figure, Section
from reluscope.reporting.charts import CATEGORIES, Chart, diverging, hex_colours, sequential
from reluscope.reporting.subject import AT_THE_MEAN, Subject
from reluscope.schema import Label

_MOST_SHAPES = 6000
"""Polygons drawn in one picture."""

_MOST_ZOOM = 1 / 64

_SQUARE = 560, 540
"""A map is a square: in standard deviations a circle is round."""

_PIXELS = 220
_MOST_DENSE = 400
"""Inputs up to which the whole covariance is used."""
_DRAWN, _LOOKED_AT, _LEAST_INSIDE = 20_000, 256, 100
"""Draws at which inputs are compared; those of which the Jacobian is taken; how many must lie in the event, and not."""
_MOST_LINES = 160
"""First-layer units that may switch in the picture of the regions."""


def regions(subject: Subject) -> Section:
    """A picture of the regions: exact in the plane, a slice through the mean otherwise."""
    from reluscope.cells.regions import uninterrupted

    net = subject.net
    if net.n_inputs == 1:
        return _curve(subject)
    view = plane_of(subject)
    flat, plane, labels = view.flat, view.net, view.labels
    lower, wide, zoom = _window(plane, view.lower, view.upper)
    while True:
        budget = f"{_MOST_SHAPES} regions, {subject.allow(0.1):g}s"
        found = uninterrupted(plane, box=(lower, wide), budget=budget, progress=None)
        if len(found) < _MOST_SHAPES or zoom <= _MOST_ZOOM:
            break
        quarter = 0.25 * (wide - lower)  # too many for a picture: its middle
        lower, wide, zoom = lower + quarter, wide - quarter, 0.5 * zoom
    partial = "" if found.complete else f" (the first {len(found):,}: {found.reason})"
    grid = np.stack(np.meshgrid(*(_pixel_centres(a, b) for a, b in zip(lower, wide, strict=True))), -1)
    y = plane(grid.reshape(-1, 2))
    chart = Chart((lower[0], wide[0]), (lower[1], wide[1]), x_label=labels[0], y_label=labels[1],
                  width=_SQUARE[0], height=_SQUARE[1], title="The output and the edges of the regions")  # fmt: skip
    if 2 <= net.n_outputs <= len(CATEGORIES):
        word = subject.deciding
        winner = y.argmin(axis=1) if word == "smallest" else y.argmax(axis=1)
        chart.image(CATEGORIES[winner].reshape(_PIXELS, _PIXELS, 3)[::-1])
        for o in np.unique(winner).tolist():
            chart.swatch(CATEGORIES[o], subject.output(o))
        what = f"which output is {word}"
    else:
        values = y[:, 0].reshape(_PIXELS, _PIXELS)
        chart.image(diverging(values)[::-1])
        top = f"{float(np.abs(values).max()):.2g}"  # two digits: the largest pixel, not the largest value
        chart.colour_bar(diverging(np.linspace(-1.0, 1.0, 9)), f"−{top}", top, subject.result(0).name)
        what = subject.result(0).name
    chart.polygons([found.vertices(i) for i in range(len(found))])
    drawn = count(len(found), "region")
    blocks: list[Any] = [Figure(chart.svg(), f"{view.where}: {what}, and the edges of {drawn}{partial}.")]
    if flat and found.complete:
        blocks.append(_mass_picture(subject, found, lower, wide, labels))
    within = "in the middle of the plane, which is shown here" if zoom < 1.0 else "in the part of the plane shown here"
    more = "" if flat else " Other planes through the input space cut other regions."
    there = f"There {'is' if len(found) == 1 else 'are'} {count(len(found), 'region')}"
    answer = f"{there} {within}{partial}; their edges are exact.{more}"
    return Section("regions", "Where it switches", answer, "exact" if found.complete else "", blocks,
                   facts={"regions_in_view": len(found), "complete": bool(found.complete)})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane of the input space: `x = origin + s a + t b`, its network, the part shown and what the axes are."""

    net: Network
    origin: FloatArray
    directions: FloatArray
    lower: FloatArray
    upper: FloatArray
    labels: tuple[str | Label, str | Label]
    where: str
    flat: bool
    """Whether it is the whole input space."""
    through_event: bool = False
    """Whether the first direction goes to the nearest input of the event."""
    inputs: tuple[int, int] | None = None
    """The two inputs whose values the coordinates are; None for other directions."""

    def points(self, at: FloatArray) -> FloatArray:
        """Inputs (n, inputs) of places (n, 2) in the plane."""
        return self.origin + at @ self.directions


def plane_of(subject: Subject) -> Plane:
    """The plane to show: all inputs if there are two; else through the mean, and through the event if one is known."""
    if "plane" not in subject.cache:
        subject.cache["plane"] = _plane(subject)
    return subject.cache["plane"]


def _plane(subject: Subject) -> Plane:
    net, law = subject.net, subject.law
    dense = net.n_inputs <= _MOST_DENSE
    centre = subject.moments()[0] if dense else np.asarray(law.mean)
    if net.n_inputs == 2:
        spread = np.sqrt(np.diag(subject.moments()[1]))
        lower, upper = centre - 3.2 * spread, centre + 3.2 * spread
        upper = np.where(upper > lower, upper, lower + 1.0)
        names = (subject.axis(0), subject.axis(1))
        lower, upper = _supported(subject, (0, 1), lower, upper)
        where = "In the plane of the inputs"
        return Plane(net, np.zeros(2), np.eye(2), lower, upper, names, where, True, inputs=(0, 1))
    directions = _directions(subject)
    labels: tuple[str | Label, str | Label] = ("first direction, in sd", "second direction, in sd")
    main = "main directions of the inputs" if dense else "directions that move the outputs most"
    where, far, through = f"In the plane through the mean along the two {main}", 3.0, False
    outside = subject.beyond()
    nearest = outside or subject.nearest()
    one = nearest is not None and nearest.distance is not None and len(law.components) == 1
    if one and nearest.distance > AT_THE_MEAN:
        first = (nearest.x - centre) / nearest.distance
        if net.n_inputs <= _MOST_DENSE:
            inverse = np.linalg.pinv(subject.moments()[1], hermitian=True)
        else:
            inverse = np.diag(1.0 / np.maximum(np.asarray(law.variance), 1e-300))
        along = directions @ (inverse @ first)
        at = int(np.argmin(np.abs(along)))
        rest = directions[at] - along[at] * first  # at right angles to the first, where both are in standard deviations
        length = float(np.sqrt(max(rest @ inverse @ rest, 0.0)))
        if length > 0.1:
            directions = np.stack([first, rest / length])
            way = "towards" if outside is None else "out of"
            labels = (f"{way} the event, in sd", "a main direction, in sd")
            known = "of the event" if outside is None else "outside of the event"
            where = f"In the plane through the mean and the nearest known input {known}"
            far, through = max(3.0, 1.2 * nearest.distance), True
    if not through and dense and _independent(subject.moments()[1]):
        return _plane_of_two(subject, centre)
    plane = net.after(directions.T, centre)
    return Plane(plane, centre, directions, np.full(2, -far), np.full(2, far), labels, where, False, through)


def _independent(cov: FloatArray) -> bool:
    return not np.any(cov - np.diag(np.diag(cov)))


def _plane_of_two(subject: Subject, centre: FloatArray) -> Plane:
    """Inputs without correlation: the two that matter most to the event, or to the outputs; the others at the means."""
    net, sd = subject.net, np.sqrt(np.maximum(np.diag(subject.moments()[1]), 0.0))
    x = subject.draws()[0][:_DRAWN]
    inside = subject.holds(subject.events[0], x) if subject.events else np.zeros(len(x), dtype=bool)
    if min(inside.sum(), (~inside).sum()) >= _LEAST_INSIDE:
        pull = np.abs(x[inside].mean(axis=0) - x[~inside].mean(axis=0)) / np.where(sd > 0, sd, np.inf)
        why = "differ most between the event and the rest"
    else:
        pull = sd * np.sqrt((net.jacobian(x[:_LOOKED_AT]) ** 2).mean(axis=(0, 1)))
        why = "move the outputs most"
    i, j = (int(k) for k in np.argsort(-pull, kind="stable")[:2])
    wide = np.where(sd > 0, sd, 1.0)
    lower, upper = ((centre + side * 3.0 * wide)[[i, j]] for side in (-1.0, 1.0))
    lower, upper = _supported(subject, (i, j), lower, upper)
    directions = np.eye(net.n_inputs)[[i, j]]
    origin = np.where(np.isin(np.arange(net.n_inputs), (i, j)), 0.0, centre)
    names = (subject.axis(i), subject.axis(j))
    which = f"{names[0].name} and {names[1].name}, the inputs that {why}"
    where = f"In the plane of {which}; all others are at their means"
    plane = net.after(directions.T, origin)
    return Plane(plane, origin, directions, lower, upper, names, where, False, inputs=(i, j))


def _supported(subject: Subject, pair: tuple[int, int], lower: FloatArray, upper: FloatArray) -> tuple[Any, Any]:
    """The part of a rectangle that inputs can reach."""
    low, high = (np.asarray(side)[list(pair)] for side in subject.law.support())
    lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    return lower, np.where(upper > lower, upper, lower + 1.0)


def _window(plane: Any, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """The rectangle, made smaller around its middle until few enough first-layer units switch inside, and by how much.

    k lines that cross cut a rectangle into up to k^2 / 2 regions, and each region of a wide layer takes memory.
    """
    first = plane.layers[0]
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    offset = first.dense() @ middle + first.bias
    gap = np.abs(offset[:, None] - first.units.breaks).min(axis=1, initial=np.inf)
    reach = np.abs(first.dense()) @ half
    zoom = 1.0
    while zoom > 1e-6 and int((gap < zoom * reach).sum()) > _MOST_LINES:
        zoom *= 0.5
    return middle - zoom * half, middle + zoom * half, zoom


def _pixel_centres(low: float, high: float) -> FloatArray:
    return low + (high - low) * (np.arange(_PIXELS) + 0.5) / _PIXELS


def _directions(subject: Subject) -> FloatArray:
    """Two directions (2, inputs), one standard deviation long: the law's widest, or what outputs feel most."""
    net, law = subject.net, subject.law
    if net.n_inputs <= _MOST_DENSE:
        values, vectors = np.linalg.eigh(subject.moments()[1])
        return (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :2].T
    x = law.sample(64, rng=subject.seed)
    sd = np.sqrt(np.asarray(law.variance))
    jacobian = net.jacobian(x[:8])
    _, _, rows = np.linalg.svd(jacobian.reshape(-1, net.n_inputs) * sd, full_matrices=False)
    return rows[:2] * sd


def _curve(subject: Subject) -> Section:
    from reluscope.cells.along import along

    law = subject.law
    centre, spread = float(law.mean[0]), float(np.sqrt(law.variance[0])) or 1.0
    a, b = np.array([centre - 4 * spread]), np.array([centre + 4 * spread])
    path = along(subject.net, a, b)
    t = path.breaks(0)
    y = path.at(t, 0)[:, 0]
    x = a[0] + t * (b[0] - a[0])
    pad = 0.05 * float(np.ptp(y)) or 0.5
    chart = Chart((float(x[0]), float(x[-1])), (float(y.min()) - pad, float(y.max()) + pad),
                  x_label=subject.axis(0), y_label=subject.result(0), title="The network's function")  # fmt: skip
    chart.line(x, y)
    if len(x) <= 200:
        chart.dots(x[1:-1], y[1:-1], "c2")
    pieces = len(t) - 1
    answer = f"Within four standard deviations it has {count(pieces, 'region')}."
    return Section("regions", "Where it switches", answer, "exact",
                   [Figure(chart.svg(), f"{subject.result(0).name} as a function of the input, with its breaks.")],
                   facts={"regions_in_view": pieces})  # fmt: skip


def _mass_picture(
    subject: Subject, found: Any, lower: FloatArray, upper: FloatArray, labels: tuple[str | Label, str | Label]
) -> Figure:
    measured = found.masses(subject.law)
    unless_interrupted(measured)
    masses = np.asarray(measured.value)
    heavy = np.argsort(-masses)[:_MOST_SHAPES]
    scale = 1.0 + np.log10(np.maximum(masses[heavy], 1e-6) / max(float(masses.max()), 1e-6)) / 6.0
    chart = Chart((lower[0], upper[0]), (lower[1], upper[1]), x_label=labels[0], y_label=labels[1],
                  width=_SQUARE[0], height=_SQUARE[1], title="The probability of each region")  # fmt: skip
    most = float(masses.max())
    chart.colour_bar(sequential(np.linspace(0.0, 1.0, 9)), f"≤ {1e-6 * most:.2g}", f"{most:.3g}", "probability")
    chart.polygons([found.vertices(int(i)) for i in heavy], hex_colours(sequential(np.clip(scale, 0, 1))))
    x, _ = subject.draws()
    chart.dots(x[:300, 0], x[:300, 1], "mark", radius=1.3)
    caption = (
        "The same regions coloured by their probability inside this view, on a logarithmic scale; dots are inputs "
        "drawn at random."
    )
    return Figure(chart.svg(), caption)
