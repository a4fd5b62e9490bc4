"""The exact engine of events: how much of a law lies in an event, by the cells inside it.

Masses for `probability`, and moments for derivatives (`sensitivity`). `_event_cells` finds the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope._lazy import late
from reluscope.answers._event_cells import Inside, Walk
from reluscope.cells.domain import cell_with_vertices
from reluscope.errors import InputError
from reluscope.events import decided
from reluscope.inputs import FAR
from reluscope.measure.exactness import is_exact, not_exact
from reluscope.measure.regions import (
    component_measure,
    gaussian_masses,
    gaussian_moments,
    standard_domain,
    uniform_masses,
    volume_moments,
)
from reluscope.network import Layer, Network

if TYPE_CHECKING:
    from reluscope.budget import Budget
    from reluscope.events import PlacedEvent
    from reluscope.inputs import Component

NEAR = 9.0
"""Half-width of the first box searched: outside of it N(0, I_r) has 2.3e-19 r."""

_NEGLIGIBLE = 1e-13
"""Share of the answer that may lie outside of the first box."""

_BEYOND = 1e-300
"""More than a Gaussian has where no cell is looked for: an event without cells has at most this."""

_ROUNDING = 16.0 * EPS

_FINE = 1e-11
"""Share of a cell's mass from which the slabs of its cuts are bounded with care."""

_STEPS = 64


@dataclass(frozen=True, eq=False)
class Share:
    """The part of one component in the event, given the component; what `Answer`s are summed from, not one itself.

    `value` within `error`; `left` is mass that a budget left undecided; `visited` counts cells. Rounding cannot decide
    `excess`, which is in `value`, and `missing`, which is not. `first` (r,) and `second` (r, r) are `E[u 1]` and `E[u
    u' 1]` where asked for.
    """

    value: float
    error: float
    left: float
    visited: int
    stopped: str | None
    first: FloatArray | None = None
    second: FloatArray | None = None
    excess: float = 0.0
    missing: float = 0.0


def component_share(
    component: Component,
    event: PlacedEvent,
    budget: Budget,
    *,
    moments: bool = False,
    tolerance: float | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Share:
    """The event's share of a component of a kind that enumerates exactly (see `is_exact`).

    A Gaussian is first searched within `NEAR` standard deviations; when what lies outside may matter, everywhere.
    """
    if component.kind == "point" or component.r == 0:
        return _share_of_points(component, event)
    if not is_exact(component):
        raise InputError(not_exact(component))
    if component.kind == "uniform" and not moments:
        component = _unit_box(component)
    if component.kind == "gaussian":
        r = component.r
        near = NEAR if tolerance is None else min(max(_radius(r, 0.1 * tolerance), 1.0), FAR)
        outside = 2.0 * r * 0.5 * math.erfc(near / math.sqrt(2.0))
        box = np.full(r, -near), np.full(r, near)
        found = _walked(component, event, budget, cell_with_vertices(box), moments, report)
        enough = outside <= _NEGLIGIBLE * found.value if tolerance is None else outside <= 0.1 * tolerance
        if enough or found.stopped is not None:
            return replace(found, left=found.left + outside)
    where = standard_domain(component)
    try:
        start = cell_with_vertices(where["box"], where.get("polytope"))
    except InputError:  # the law's own rows leave no interior: nothing to find
        return Share(0.0, 0.0, 0.0, 0, None, np.zeros(component.r), np.zeros((component.r, component.r)))
    found = _walked(component, event, budget, start, moments, report)
    return replace(found, left=found.left + _BEYOND) if _reaches_beyond(component, *where["box"]) else found


def _reaches_beyond(component: Component, lower: FloatArray, upper: FloatArray) -> bool:
    """Whether a component has mass outside of the box that is searched."""
    if component.kind == "uniform":
        return False
    if component.lower is None or component.upper is None:
        return True
    return bool((component.lower < lower).any() or (component.upper > upper).any())


def _unit_box(component: Component) -> Component:
    """A uniform component in coordinates of one size, so that neither units nor a far box matter.

    Sides are divided by powers of two, and boxes that are far from 0 for their width begin at 0. Both are exact: the
    difference of two floats within a factor of two is.
    """
    low, high = component.lower, component.upper
    assert low is not None and high is not None
    width = high - low
    step = np.exp2(np.ceil(np.log2(width)))
    far = np.maximum(np.abs(low), np.abs(high)) > 4.0 * width
    start = np.where(far, low, 0.0)
    first = component.network.layers[0]
    W = first.dense()
    try:
        bias = [_exact_sum(row, start, b) for row, b in zip(W, first.bias, strict=True)]
    except OverflowError:  # the plain coordinates have it too, and widen or refuse
        return component
    layer = Layer(W * step, np.array(bias), first.units)
    low, high = (low - start) / step, (high - start) / step
    network = Network([layer, *component.network.layers[1:]])
    return replace(component, network=network, lower=low, upper=high, log_mass=float(np.log(high - low).sum()))


def _exact_sum(row: FloatArray, x: FloatArray, b: float) -> float:
    """`row . x + b`, rounded once."""
    terms = (Fraction(float(w)) * Fraction(float(v)) for w, v in zip(row, x, strict=True) if v)
    return float(sum(terms, Fraction(float(b))))


def _radius(r: int, outside: float) -> float:
    """Half-width of a box outside of which N(0, I_r) has at most `outside`."""
    ndtri = late("scipy.special", "ndtri")

    return float(-ndtri(max(outside / (2.0 * r), 1e-300)))


def _share_of_points(component: Component, event: PlacedEvent) -> Share:
    if component.kind == "point":
        assert component.points is not None and component.point_weights is not None
        points, weights = component.points, component.point_weights
    else:
        points, weights = component.to_x(np.zeros((1, component.network.n_inputs))), np.ones(1)
    surely, maybe = decided(event.net, event.event, points)
    if component.kind != "point" and not component.one_value(event.network.layers[0].weight):
        surely, maybe = np.zeros(1, bool), np.ones(1, bool)
    some = np.flatnonzero(maybe & ~surely)
    met = surely.copy()
    with np.errstate(all="ignore"):
        met[some] = event.event.holds(event.net, points[some]) if len(some) else False
    value, low, high = (float(math.fsum(weights[which])) for which in (met, surely, maybe))
    # The weights are the law; only their sum is rounded.
    error = 4 * EPS * value if component.kind == "point" else 0.0
    first, second = (None, None) if component.kind == "point" else (np.zeros(0), np.zeros((0, 0)))
    return Share(min(value, 1.0), error, 0.0, len(points), None, first, second, value - low, high - value)


def _walked(
    component: Component,
    event: PlacedEvent,
    budget: Budget,
    start: Any,
    moments: bool,
    report: Callable[[int, float], None] | None,
) -> Share:
    r = component.r
    whole = component_measure(component)
    walk = Walk(component, event, start, budget)
    values: list[float] = []
    error, excess, missing = 0.0, 0.0, 0.0
    first, second = np.zeros(r), np.zeros((r, r))
    for inside in walk:
        if not inside.counted and inside.blur.any():
            missing += float(_slabs(component, inside, inside.blur * 0.0).sum())
            continue
        mass, rounding = measured(component, inside.cells)
        if not inside.sure:
            doubt = float((mass + rounding).sum())
            excess, missing = excess + doubt * inside.counted, missing + doubt * (not inside.counted)
        if not inside.counted:
            continue
        values.append(float(mass.sum()))
        error += float(rounding.sum()) + float(_slabs(component, inside, mass).sum())
        if moments:
            _, one, two = (gaussian_moments if component.kind != "uniform" else volume_moments)(inside.cells)
            first += one.sum(axis=0)
            second += two.sum(axis=0)
        if report is not None:
            report(walk.visited, sum(values) / whole)
    total = math.fsum(values)
    left = sum(float(measured(component, cells)[0].sum()) for cells in walk.pending)
    error = (error + _ROUNDING * total) / whole + 2e-12 * (total / whole if whole != 1.0 else 0.0)
    value = min(total / whole, 1.0)
    left = min(left / whole, 1.0)
    excess, missing = min(excess / whole, 1.0), min(missing / whole, 1.0)
    return Share(value, error, left, walk.visited, walk.stopped, first / whole, second / whole, excess, missing)


def measured(component: Component, cells: Any) -> tuple[FloatArray, FloatArray]:
    """Plain measure of each cell (Gaussian mass or volume) and a bound on its rounding."""
    if not len(cells):
        return np.zeros(0), np.zeros(0)
    if component.kind == "uniform":
        found = uniform_masses(cells, 1.0)
        # Volumes are not probabilities: the bracket is not cut at 1.
        return found.value, 64 * EPS * cells.dimension * found.value + _moved_corners(component, cells)
    found = gaussian_masses(cells)
    return found.value, np.maximum(found.upper - found.value, found.value - found.lower)


def _moved_corners(component: Component, cells: Any) -> FloatArray | float:
    """What rounding of corners does to volumes: corners are rounded on the scale of the box, not of a small cell."""
    if cells.dimension > 3:  # corners are slow to find
        return 0.0
    assert component.lower is not None and component.upper is not None
    points, offsets = cells.corners()
    sides = np.maximum.reduceat(points, offsets[:-1]) - np.minimum.reduceat(points, offsets[:-1])
    scale = np.maximum(np.abs(component.lower), np.abs(component.upper))
    moved = np.zeros(len(sides))
    for k in range(cells.dimension):
        moved += scale[k] * np.prod(np.delete(sides, k, axis=1), axis=1)
    return 4 * EPS * moved


def _slabs(component: Component, inside: Inside, mass: FloatArray) -> FloatArray:
    """Measure of the slabs, `blur` thick, by which rounding may have moved the cuts of each cell."""
    if not inside.blur.any():
        return inside.blur
    points, offsets = inside.cells.corners()
    low, high = np.minimum.reduceat(points, offsets[:-1]), np.maximum.reduceat(points, offsets[:-1])
    across = np.sqrt(((high - low) ** 2).sum(axis=1))
    power = component.r - 1
    if component.kind == "uniform":
        return inside.blur * across**power
    section = inside.blur / math.sqrt(2 * math.pi) * np.minimum(1.0, across / math.sqrt(2 * math.pi)) ** power
    nearest = np.sqrt((np.maximum(np.maximum(low, -high), 0.0) ** 2).sum(axis=1))
    slabs = section * np.exp(-0.5 * nearest**2)
    # Bounding boxes come much nearer to the origin than far cells do: there the distance itself is wanted.
    loose = np.flatnonzero(slabs > _FINE * mass)
    if len(loose):
        slabs[loose] = section[loose] * np.exp(
            -0.5 * np.maximum(nearest[loose], _distance(points, offsets, loose)) ** 2
        )
    return slabs


def _distance(points: FloatArray, offsets: npt.NDArray[np.int64], chosen: npt.NDArray[np.intp]) -> FloatArray:
    """A lower bound on the distance of the hulls of `points[offsets[i]:offsets[i + 1]]` from the origin, i in `chosen`.

    Gilbert's iteration: any point p bounds it by `min p.v / |p|` over the vertices v, tight when p is nearest.
    """
    sizes = np.diff(offsets)[chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    owner = np.repeat(np.arange(len(chosen)), sizes)
    V = points[np.arange(len(owner)) + (offsets[chosen] - starts)[owner]]

    def least(along: FloatArray) -> npt.NDArray[np.intp]:
        return np.lexsort((along, owner))[starts]

    p = V[least(np.einsum("ij,ij->i", V, V))]
    best = np.zeros(len(chosen))
    for _ in range(_STEPS):
        along = np.einsum("ij,ij->i", V, p[owner])
        at = least(along)
        square = np.einsum("ij,ij->i", p, p)
        best = np.maximum(best, along[at] / np.sqrt(np.maximum(square, 1e-300)))
        step = p - V[at]
        length = np.maximum(np.einsum("ij,ij->i", step, step), 1e-300)
        p = p - np.clip((square - along[at]) / length, 0.0, 1.0)[:, None] * step
    return best
